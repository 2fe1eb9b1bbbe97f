//! A ledger that can be gone on from, in place of one that cannot. The old files are kept under another name; what is lost is
//! said, and written down beside the ledger.

use crate::{
    Home, HomeLock, clock,
    condition::{self, CheckDepth},
    fsx, high_water,
    ledger::{Ledger, LedgerEntry, LedgerError},
    salvage::{SalvageReport, beside, remove, salvage},
    verify::{self, VerifyScope},
};
use countersign_model::{Decision, Record, Register, RegisterEntry, Text};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// Being made, and made: only a whole one has the second name.
const UNFINISHED: &str = "ledger.unfinished.db";
const FINISHED: &str = "ledger.repaired.db";
const REPAIRS: &str = "ledger.repairs";
const MAX_REPAIRS_BYTES: u64 = 16 * 1024 * 1024;

/// A repair, as it is written down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairRecord {
    pub at: String,
    /// What was wrong.
    pub trouble: String,
    /// The name below the home under which the old ledger is kept; none if it was gone.
    pub kept_as: Option<String>,
    pub decisions: u64,
    /// From and to, as far as that can be told.
    pub lost: Vec<(i64, i64)>,
    /// Tasks of which only their directory tells.
    pub remade: u64,
    pub grants_revoked: u64,
    pub tokens_revoked: u64,
    /// What verification found right after it.
    pub findings: Vec<String>,
}

/// Puts a sound ledger in place of one that cannot be gone on from. None if there is nothing to repair. Whoever calls holds
/// the home, so no daemon writes meanwhile.
pub fn repair(home: &Home, _held: &HomeLock) -> Result<Option<RepairRecord>, LedgerError> {
    let trouble = match condition::check(home, CheckDepth::Whole) {
        Ok(()) => return Ok(None),
        Err(e @ LedgerError::Newer { .. }) => return Err(e),
        Err(e) => e,
    };
    let (unfinished, finished) = (home.path().join(UNFINISHED), home.path().join(FINISHED));
    let failed = |e: io::Error| LedgerError::unreadable(&home.ledger(), format!("it could not be replaced: {e}"));
    let mut repair = match File::open(beside(&finished, ".json")) {
        // The last repair was cut off after it had taken the old ledger away.
        Ok(file) if !home.ledger().exists() && finished.exists() => {
            serde_json::from_reader(file).map_err(io::Error::other).map_err(failed)?
        }
        _ => {
            remove(&finished).map_err(failed)?;
            let repair = build(home, &unfinished, &trouble)?;
            let text = serde_json::to_vec(&repair).map_err(io::Error::other).map_err(failed)?;
            fsx::write_durably(home.path(), &format!("{FINISHED}.json"), &text).map_err(failed)?;
            high_water::forget(&unfinished).map_err(failed)?;
            fs::rename(&unfinished, &finished).map_err(failed)?;
            repair
        }
    };
    exchange(home, &finished, repair.kept_as.as_deref()).map_err(failed)?;
    // Notes how far the new ledger has come.
    drop(Ledger::open(&home.ledger())?);
    let wanted = VerifyScope { receipts_only: true, ..VerifyScope::default() };
    let report = verify::home(home, &wanted, &|_, _| {})?;
    repair.findings = report.findings.iter().map(ToString::to_string).collect();
    write_down(home, &repair).map_err(failed)?;
    let _ = fs::remove_file(beside(&finished, ".json"));
    Ok(Some(repair))
}

/// Makes the new ledger, whole and on the disk.
fn build(home: &Home, at: &Path, trouble: &LedgerError) -> Result<RepairRecord, LedgerError> {
    let (mut ledger, salvaged) = salvage(home, at)?;
    // A decision that is lost may have revoked something: what is not certainly granted is not granted.
    let certain = salvaged.is_whole() && salvaged.remade == 0 && matches!(trouble, LedgerError::Damaged { .. });
    let (grants_revoked, tokens_revoked) = if certain { (0, 0) } else { revoke(&mut ledger)? };
    ledger.checkpoint()?;
    drop(ledger);
    let failed = |e: io::Error| LedgerError::unreadable(at, e);
    File::open(at).and_then(|file| file.sync_all()).map_err(failed)?;
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(beside(at, suffix));
    }
    let now = clock::now().to_string();
    let stamp: String = now.chars().filter(char::is_ascii_digit).take(14).collect();
    let left = ["", "-wal"].iter().any(|suffix| beside(&home.ledger(), suffix).exists());
    let SalvageReport { decisions, lost, remade, .. } = salvaged;
    Ok(RepairRecord {
        at: now,
        trouble: trouble.to_string(),
        kept_as: left.then(|| format!("ledger.damaged-{stamp}.db")),
        decisions,
        lost,
        remade,
        grants_revoked,
        tokens_revoked,
        findings: Vec::new(),
    })
}

/// Revokes every grant and every token.
fn revoke(ledger: &mut Ledger) -> Result<(u64, u64), LedgerError> {
    let mut register = Register::default();
    for (at, entered) in ledger.reader()?.entered()? {
        register.enter(at, &entered);
    }
    let by = Text::from_static("csn doctor --fix");
    let grants =
        register.grants.iter().filter_map(|g| Some(RegisterEntry::GrantRevoked { grant: g.id?, by: by.clone() }));
    let grants: Vec<RegisterEntry> = grants.collect();
    let tokens = register.roster.tokens().filter(|t| t.revoked_at.is_none());
    let tokens: Vec<RegisterEntry> =
        tokens.map(|t| RegisterEntry::TokenRevoked { token: t.id, by: by.clone() }).collect();
    let counts = (grants.len() as u64, tokens.len() as u64);
    let at = clock::now();
    let entry = |entered| {
        let decision = Decision::Entered(entered);
        LedgerEntry { task: None, seq: 0, at, line: Record::decision_line(0, at, &decision), decision, receipt: None }
    };
    let entries: Vec<LedgerEntry> = grants.into_iter().chain(tokens).map(entry).collect();
    if !entries.is_empty() {
        ledger.commit(&entries)?;
    }
    Ok(counts)
}

/// Takes the old ledger and its write-ahead log out of the way, then puts the new one there. Cut off anywhere, it can be done
/// again: the old ledger goes first, and while it is missing the home only reads.
fn exchange(home: &Home, finished: &Path, kept_as: Option<&str>) -> io::Result<()> {
    let ledger = home.ledger();
    for suffix in ["", "-wal"] {
        let (old, Some(kept)) = (beside(&ledger, suffix), kept_as.map(|name| home.path().join(name))) else { continue };
        match fs::rename(old, beside(&kept, suffix)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    let _ = fs::remove_file(beside(&ledger, "-shm"));
    fsx::sync_dir(home.path())?;
    fs::rename(finished, &ledger)?;
    fsx::sync_dir(home.path())?;
    // Last: until then it says that a ledger is missed.
    high_water::forget(&ledger)
}

fn write_down(home: &Home, repair: &RepairRecord) -> io::Result<()> {
    let mut line = serde_json::to_vec(repair)?;
    line.push(b'\n');
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = File::options().create(true).append(true).mode(0o600).open(home.path().join(REPAIRS))?;
    file.write_all(&line)?;
    file.sync_all()
}

/// Every repair of this home's ledger, oldest first.
#[must_use]
pub fn repairs(home: &Home) -> Vec<RepairRecord> {
    let path: PathBuf = home.path().join(REPAIRS);
    let bytes = path.to_str().and_then(|p| fsx::read_regular(p, MAX_REPAIRS_BYTES).ok()).unwrap_or_default();
    bytes.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}
