//! The ledger in `doctor`: what is wrong with it, and putting a sound one in its place.

use crate::target_home::TargetHome;
use anyhow::{Context as _, bail};
use countersign_model::{CredentialKind, api::StopTasks};
use countersign_store::{
    Home, is_below_agent,
    condition::{self, CheckDepth},
    ledger::LedgerError,
    repair::{RepairRecord, repair, repairs},
    verify::{self, VerifyScope},
};

/// Whether the ledger is sound, from its files.
pub(crate) fn examine(home: &Home) -> Result<String, String> {
    if let Err(e) = condition::check(home, CheckDepth::Whole) {
        return Err(e.to_string());
    }
    if !home.ledger().exists() {
        return Ok("none yet".to_owned());
    }
    let wanted = VerifyScope { receipts_only: true, ..VerifyScope::default() };
    let report = verify::home(home, &wanted, &|_, _| {}).map_err(|e| e.to_string())?;
    let repairs = repairs(home);
    let known: Vec<&String> = repairs.iter().flat_map(|r| &r.findings).collect();
    let findings: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    let fresh: Vec<&String> = findings.iter().filter(|f| !known.contains(f)).collect();
    if !fresh.is_empty() {
        let told: Vec<&str> = fresh.iter().take(3).map(|f| f.as_str()).collect();
        return Err(format!("{} (csn verify tells all)", told.join("; ")));
    }
    let (decisions, receipts) = (report.decisions, report.receipts);
    match repairs.last() {
        None => Ok(format!("{decisions} decisions, {receipts} receipts, chains whole")),
        Some(last) => Ok(format!(
            "{decisions} decisions, {receipts} receipts; repaired at {}, {} (csn verify names what is missing since)",
            last.at,
            lost(last)
        )),
    }
}

/// Repairs a ledger that cannot be gone on from; what was done. A daemon that only reads is stopped for it.
pub(crate) fn fix(place: &TargetHome) -> anyhow::Result<Vec<String>> {
    let TargetHome { home, client, own } = place;
    if !own || condition::check(home, CheckDepth::Whole).is_ok() {
        return Ok(Vec::new());
    }
    let life = client.lifecycle().ok();
    let a_person = life.as_ref().is_none_or(|life| life.you == CredentialKind::Person);
    if !a_person || is_below_agent(home) || std::env::var_os(countersign_model::MARKER).is_some() {
        bail!("the ledger needs repair, which only a person may start: run `csn doctor --fix` in a terminal of yours");
    }
    if let Some(life) = life {
        client.stop(Some(StopTasks::Keep)).context("the daemon could not be stopped for the repair")?;
        Home::wait_for_exit(life.pid)?;
    }
    let held = home.lock().context("the ledger is repaired while no daemon runs")?;
    let done = match repair(home, &held) {
        Err(e @ LedgerError::Newer { .. }) => return Err(e).context("this cannot be repaired; install the newer csn"),
        done => done?,
    };
    Ok(done.map_or_else(Vec::new, |done| told(&done)))
}

/// What a repair did, and what is lost, for the person who asked for it.
fn told(done: &RepairRecord) -> Vec<String> {
    let mut told = vec![format!("the ledger was repaired: {} decisions were recovered", done.decisions)];
    if let Some(kept) = &done.kept_as {
        told.push(format!("the old ledger is kept as {kept}, as it was"));
    }
    told.push(lost(done));
    if done.remade > 0 {
        let tasks = counted(done.remade, "task");
        told.push(format!("{tasks}: only the output and the exit are known, not the command or who allowed it"));
    }
    if done.grants_revoked + done.tokens_revoked > 0 {
        let (grants, tokens) = (counted(done.grants_revoked, "grant"), counted(done.tokens_revoked, "token"));
        told.push(format!(
            "{grants} and {tokens} were revoked, because a lost decision may have revoked or narrowed them: grant again what \
             you want (csn grants add, csn token create)"
        ));
    }
    if !is_whole(done) {
        told.push("start agents again that are running now: the ledger may not know them any more".to_owned());
    }
    told
}

fn is_whole(done: &RepairRecord) -> bool {
    done.lost.is_empty() && done.remade == 0 && done.findings.is_empty()
}

fn lost(done: &RepairRecord) -> String {
    let range = |(from, to): &(i64, i64)| if from == to { from.to_string() } else { format!("{from} to {to}") };
    match done.lost.as_slice() {
        [] if is_whole(done) => "no decision is lost".to_owned(),
        [] => "what was decided last may be lost".to_owned(),
        lost => {
            let ranges: Vec<String> = lost.iter().take(5).map(range).collect();
            let more = if lost.len() > 5 { ", …" } else { "" };
            format!("lost: decisions {}{more}", ranges.join(", "))
        }
    }
}

fn counted(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
