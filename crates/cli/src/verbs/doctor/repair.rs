//! The ledger in `doctor`: examines it, and with `--fix` repairs it.

use crate::{render::text::count, target_home::TargetHome};
use anyhow::{Context as _, bail};
use countersign_model::{CredentialKind, api::StopTasks};
use countersign_store::{
    Home,
    condition::{self, CheckDepth},
    is_below_agent,
    ledger::LedgerError,
    repair::{RepairRecord, repair, repairs},
    verify::{self, VerifyScope},
};

/// Examines the ledger's files: one line about a sound ledger, or about what is wrong.
pub(crate) fn examine(home: &Home) -> Result<String, String> {
    if let Err(e) = condition::check(home, CheckDepth::Whole) {
        return Err(e.to_string());
    }
    if !home.ledger().exists() {
        return Ok("none yet; the first start creates it".to_owned());
    }
    let scope = VerifyScope { receipts_only: true, ..VerifyScope::default() };
    let report = verify::home(home, &scope, &|_, _| {}).map_err(|e| e.to_string())?;
    let repairs = repairs(home);
    // Findings that an earlier repair recorded are not new.
    let recorded: Vec<&String> = repairs.iter().flat_map(|r| &r.findings).collect();
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    let new: Vec<&String> = findings.iter().filter(|f| !recorded.contains(f)).collect();
    if !new.is_empty() {
        let first: Vec<&str> = new.iter().take(3).map(|f| f.as_str()).collect();
        return Err(format!("{}; for all findings: csn verify", first.join("; ")));
    }
    let counts = format!("{}, {}", count(report.decisions, "decision"), count(report.receipts, "receipt"));
    match repairs.last() {
        None => Ok(format!("{counts}, chains intact (csn verify also checks stored output)")),
        Some(last) => {
            Ok(format!("{counts}; repaired at {}, {} (csn verify names what is missing)", last.at, lost_line(last)))
        }
    }
}

/// Repairs a ledger that the daemon cannot write any more, and tells what it did. Stops a daemon that only reads.
pub(crate) fn fix(target: &TargetHome) -> anyhow::Result<Vec<String>> {
    let TargetHome { home, client, own } = target;
    if !own || condition::check(home, CheckDepth::Whole).is_ok() {
        return Ok(Vec::new());
    }
    let life = client.lifecycle().ok();
    let a_person = life.as_ref().is_none_or(|life| life.you == CredentialKind::Person);
    if !a_person || is_below_agent(home) || std::env::var_os(countersign_model::MARKER).is_some() {
        bail!("the ledger needs a repair, and only a person may start it: run `csn doctor --fix` in your own terminal");
    }
    if let Some(life) = life {
        client.stop(Some(StopTasks::Keep)).context("the daemon could not be stopped for the repair")?;
        Home::wait_for_exit(life.pid)?;
    }
    let lock = home.lock().context("the ledger can be repaired only while no daemon runs")?;
    let record = match repair(home, &lock) {
        Err(e @ LedgerError::Newer { .. }) => {
            return Err(e).context("this csn cannot repair the ledger: install the newer csn");
        }
        record => record?,
    };
    Ok(record.map_or_else(Vec::new, |record| repair_lines(&record)))
}

/// Tells the person who asked for a repair what it did and what is lost.
fn repair_lines(record: &RepairRecord) -> Vec<String> {
    let mut lines = vec![format!("repaired the ledger: recovered {}", count(record.decisions, "decision"))];
    if let Some(name) = &record.kept_as {
        lines.push(format!("kept the old ledger unchanged as {name}"));
    }
    lines.push(lost_line(record));
    if record.remade > 0 {
        let tasks = count(record.remade, "task");
        lines.push(format!("{tasks}: only the output and the exit are known, not the command or who allowed it"));
    }
    if record.grants_revoked + record.tokens_revoked > 0 {
        let (grants, tokens) = (count(record.grants_revoked, "grant"), count(record.tokens_revoked, "token"));
        lines.push(format!(
            "revoked {grants} and {tokens}, because a lost decision may have revoked or narrowed them: create again what \
             you need (csn grants add, csn token create)"
        ));
    }
    if !is_complete(record) {
        lines.push("restart the agents that are running now: the ledger may not know them any more".to_owned());
    }
    lines
}

fn is_complete(record: &RepairRecord) -> bool {
    record.lost.is_empty() && record.remade == 0 && record.findings.is_empty()
}

fn lost_line(record: &RepairRecord) -> String {
    let range = |(from, to): &(i64, i64)| if from == to { from.to_string() } else { format!("{from} to {to}") };
    match record.lost.as_slice() {
        [] if is_complete(record) => "no decision is lost".to_owned(),
        [] => "the most recent decisions may be lost".to_owned(),
        lost => {
            let ranges: Vec<String> = lost.iter().take(5).map(range).collect();
            let more = if lost.len() > 5 { ", …" } else { "" };
            format!("lost: decisions {}{more}", ranges.join(", "))
        }
    }
}
