//! Replaces an unusable ledger by a usable one. The old files are kept under another name; lost decisions are reported
//! and recorded beside the ledger.

use crate::{
    Home, HomeLock, clock,
    condition::{self, CheckDepth},
    fsx, high_water,
    ledger::{Ledger, LedgerEntry, LedgerError},
    salvage::{SalvageReport, remove_ledger, salvage, sidecar_path},
    verify::{self, VerifyScope},
};
use countersign_model::{Decision, Record, Register, RegisterEntry, Text};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

/// The file while it is being written, and after it is complete.
const UNFINISHED_FILE: &str = "ledger.unfinished.db";
const FINISHED_FILE: &str = "ledger.repaired.db";
const REPAIRS_FILE: &str = "ledger.repairs";
const MAX_REPAIRS_BYTES: u64 = 16 * 1024 * 1024;

/// The record of a repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepairRecord {
    pub at: String,
    /// What was wrong.
    pub trouble: String,
    /// The name in the home under which the old ledger is kept; none if it was missing.
    pub kept_as: Option<String>,
    pub decisions: u64,
    /// The first and last number of each range of lost decisions, as far as known.
    pub lost: Vec<(i64, i64)>,
    /// Tasks that are known only from their directory.
    pub remade: u64,
    pub grants_revoked: u64,
    pub tokens_revoked: u64,
    /// What verification found right after the repair.
    pub findings: Vec<String>,
}

/// Replaces an unusable ledger. None if there is nothing to repair. The caller holds the lock of the home, so that no
/// daemon writes at the same time.
pub fn repair(home: &Home, _lock: &HomeLock) -> Result<Option<RepairRecord>, LedgerError> {
    let trouble = match condition::check(home, CheckDepth::Whole) {
        Ok(()) => return Ok(None),
        Err(e @ LedgerError::Newer { .. }) => return Err(e),
        Err(e) => e,
    };
    let (unfinished, finished) = (home.path().join(UNFINISHED_FILE), home.path().join(FINISHED_FILE));
    let failed = |e: io::Error| LedgerError::unreadable(&home.ledger(), format!("it could not be replaced: {e}"));
    let mut repair = match File::open(sidecar_path(&finished, ".json")) {
        // The last repair was interrupted after it had moved the old ledger away.
        Ok(file) if !home.ledger().exists() && finished.exists() => {
            serde_json::from_reader(file).map_err(io::Error::other).map_err(failed)?
        }
        _ => {
            remove_ledger(&finished).map_err(failed)?;
            let repair = build_ledger(home, &unfinished, &trouble)?;
            let text = serde_json::to_vec(&repair).map_err(io::Error::other).map_err(failed)?;
            fsx::write_durably(home.path(), &format!("{FINISHED_FILE}.json"), &text).map_err(failed)?;
            high_water::remove_mark(&unfinished).map_err(failed)?;
            fs::rename(&unfinished, &finished).map_err(failed)?;
            repair
        }
    };
    replace_ledger(home, &finished, repair.kept_as.as_deref()).map_err(failed)?;
    // Writes the high-water mark of the new ledger.
    drop(Ledger::open(&home.ledger())?);
    let wanted = VerifyScope { receipts_only: true, ..VerifyScope::default() };
    let report = verify::home(home, &wanted, &|_, _| {})?;
    repair.findings = report.findings.iter().map(ToString::to_string).collect();
    append_repair(home, &repair).map_err(failed)?;
    let _ = fs::remove_file(sidecar_path(&finished, ".json"));
    Ok(Some(repair))
}

/// Builds the new ledger completely, on the disk.
fn build_ledger(home: &Home, at: &Path, trouble: &LedgerError) -> Result<RepairRecord, LedgerError> {
    let (mut ledger, salvaged) = salvage(home, at)?;
    // A lost decision may have revoked something, so in doubt every grant is revoked.
    let certain = salvaged.is_complete() && salvaged.remade == 0 && matches!(trouble, LedgerError::Damaged { .. });
    let (grants_revoked, tokens_revoked) = if certain { (0, 0) } else { revoke_everything(&mut ledger)? };
    ledger.checkpoint()?;
    drop(ledger);
    let failed = |e: io::Error| LedgerError::unreadable(at, e);
    File::open(at).and_then(|file| file.sync_all()).map_err(failed)?;
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(sidecar_path(at, suffix));
    }
    let now = clock::now().to_string();
    let stamp: String = now.chars().filter(char::is_ascii_digit).take(14).collect();
    let left = ["", "-wal"].iter().any(|suffix| sidecar_path(&home.ledger(), suffix).exists());
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
fn revoke_everything(ledger: &mut Ledger) -> Result<(u64, u64), LedgerError> {
    let mut register = Register::default();
    for (at, entry) in ledger.reader()?.register_entries()? {
        register.enter(at, &entry);
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
    let entry = |entry| {
        let decision = Decision::Entered(entry);
        LedgerEntry { task: None, seq: 0, at, line: Record::decision_line(0, at, &decision), decision, receipt: None }
    };
    let entries: Vec<LedgerEntry> = grants.into_iter().chain(tokens).map(entry).collect();
    if !entries.is_empty() {
        ledger.commit(&entries)?;
    }
    Ok(counts)
}

/// Moves the old ledger and its write-ahead log away, then moves the new one into place. After an interruption at any
/// point it can be repeated: the old ledger is moved first, and while the ledger is missing the home is read-only.
fn replace_ledger(home: &Home, finished: &Path, kept_as: Option<&str>) -> io::Result<()> {
    let ledger = home.ledger();
    for suffix in ["", "-wal"] {
        let (old, Some(kept)) = (sidecar_path(&ledger, suffix), kept_as.map(|name| home.path().join(name))) else {
            continue;
        };
        match fs::rename(old, sidecar_path(&kept, suffix)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    let _ = fs::remove_file(sidecar_path(&ledger, "-shm"));
    fsx::sync_dir(home.path())?;
    fs::rename(finished, &ledger)?;
    fsx::sync_dir(home.path())?;
    // Last, because until then the mark shows that a ledger is missing.
    high_water::remove_mark(&ledger)
}

fn append_repair(home: &Home, repair: &RepairRecord) -> io::Result<()> {
    let mut line = serde_json::to_vec(repair)?;
    line.push(b'\n');
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = File::options().create(true).append(true).mode(0o600).open(home.path().join(REPAIRS_FILE))?;
    file.write_all(&line)?;
    file.sync_all()
}

/// Every repair of this home's ledger, oldest first.
#[must_use]
pub fn repairs(home: &Home) -> Vec<RepairRecord> {
    let path: PathBuf = home.path().join(REPAIRS_FILE);
    let bytes = path.to_str().and_then(|p| fsx::read_regular(p, MAX_REPAIRS_BYTES).ok()).unwrap_or_default();
    bytes.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}
