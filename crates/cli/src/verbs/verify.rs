//! `verify`: whether what was kept is what was signed. Needs no daemon; of a bundle or an envelope, no house either.

use crate::{UsageError, args::VerifyArgs, target_home::TargetHome};
use anyhow::{Context as _, bail};
use countersign_model::{HomeId, PrincipalId, ReceiptId, TaskAddress, TaskId};
use countersign_store::{
    Envelope, Home, PublicKey,
    condition::{self, CheckDepth},
    ledger::LedgerReader,
    verify::{self, ExportRange, Finding, KeyAnnouncement, TrustedKeys, VerifyReport, VerifyScope},
};
use serde_json::{Value, json};
use std::{
    fs::File,
    io::{self, BufRead, BufReader, IsTerminal as _, Read as _, Seek as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Mutex,
    time::Duration,
};

pub(crate) fn verify(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let report = check(args)?;
    tell(&report, args.json)?;
    Ok(ExitCode::from(u8::from(!report.is_ok())))
}

fn check(args: &VerifyArgs) -> anyhow::Result<VerifyReport> {
    let pinned = args.key.iter().map(|path| public_key(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let since = args.since.as_deref().map(envelope).transpose()?;
    let wanted = VerifyScope { pinned: &pinned, since: since.as_ref(), receipts_only: args.receipts_only };
    if let Some(path) = args.target.as_deref().filter(|target| is_path(target)) {
        return exported(Path::new(path), &pinned);
    }
    let TargetHome { home, own, .. } = TargetHome::find()?;
    if !own && std::fs::metadata(home.path()).map_or(true, |m| m.uid() != rustix::process::geteuid().as_raw()) {
        bail!(
            "only its own user reads all of {}: sudo -u countersign csn verify; \
             what is yours: csn export TASK, and csn verify the file",
            home.path().display()
        );
    }
    if !home.ledger().exists() && condition::check(&home, CheckDepth::Quick).is_ok() {
        bail!("there is no ledger at {}; name a bundle, or set COUNTERSIGN_HOME", home.ledger().display());
    }
    let waits = ProgressLine::new();
    let progress = |done, total| waits.tell(done, total);
    let mut report = match (&args.target, args.from, args.to) {
        (None, None, None) => verify::home(&home, &wanted, &progress)?,
        (None, from, to) => verify::range(&home, from.unwrap_or(1), to, &wanted, &progress)?,
        (Some(target), ..) => match named(&home, target)? {
            VerifyTarget::Task(task) => verify::task(&home, task, &wanted)?,
            VerifyTarget::Number(number) => verify::range(&home, number, Some(number), &wanted, &progress)?,
        },
    };
    if let Some(target) = args.target.as_deref().filter(|target| Path::new(target).exists()) {
        report.notes.push(format!("there is a file of this name, too: csn verify ./{target}"));
    }
    waits.done();
    Ok(report)
}

enum VerifyTarget {
    Task(TaskId),
    Number(u64),
}

/// A receipt's number. Ids have more characters.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.len() < 10)
}

/// Whether a file is meant. What is an id or a number is one, whatever lies around here.
fn is_path(text: &str) -> bool {
    if text.parse::<TaskAddress>().is_ok() {
        return false;
    }
    let id = text.parse::<TaskId>().is_ok() || text.parse::<ReceiptId>().is_ok() || number(text).is_some();
    let ending = [".tar", ".json", ".jsonl"].iter().any(|ending| text.ends_with(ending));
    text.contains('/') || ending || !id && Path::new(text).exists()
}

/// A task or a receipt, by whatever it is called.
fn named(home: &Home, text: &str) -> anyhow::Result<VerifyTarget> {
    if let Ok(task) = text.parse() {
        return Ok(VerifyTarget::Task(task));
    }
    let ledger = LedgerReader::open(&home.ledger())?;
    if let Ok(TaskAddress { task, .. }) = text.parse() {
        TaskAddress::within(text, ledger.home_id()?).map_err(|why| UsageError(why.to_string()))?;
        return Ok(VerifyTarget::Task(task));
    }
    if let Ok(receipt) = text.parse() {
        let number = ledger.receipt_number_by_id(receipt)?.with_context(|| format!("there is no receipt {receipt}"))?;
        return Ok(VerifyTarget::Number(number));
    }
    if let Some(number) = number(text) {
        return Ok(VerifyTarget::Number(number));
    }
    let prefix = if text.starts_with("tk_") { text.to_owned() } else { format!("tk_{text}") };
    match ledger.tasks_by_prefix(&prefix, PrincipalId::owner())?.as_slice() {
        [task] if prefix.len() >= 7 => Ok(VerifyTarget::Task(*task)),
        [_, _, ..] => bail!("more than one task begins with {prefix}: give more characters of the id"),
        _ => Err(UsageError(format!(
            "`{}` is no task, no receipt and no file",
            countersign_model::DisplaySafe::bounded(text, 60)
        ))
        .into()),
    }
}

/// A key or a head has no more than this.
const SMALL: u64 = 1024 * 1024;

fn small(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
    file.take(SMALL).read_to_string(&mut text).with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(text)
}

fn public_key(path: &Path) -> anyhow::Result<PublicKey> {
    PublicKey::from_pem(&small(path)?)
        .with_context(|| format!("{} is not a public Ed25519 key in PEM (csn keys export)", path.display()))
}

fn envelope(path: &Path) -> anyhow::Result<Envelope> {
    serde_json::from_str(&small(path)?).with_context(|| format!("{} is not a DSSE envelope", path.display()))
}

/// A directory, an archive, a row of envelopes or one.
fn exported(path: &Path, pinned: &[PublicKey]) -> anyhow::Result<VerifyReport> {
    let unread = || format!("{} cannot be read", path.display());
    // Whatever has this name is not waited for.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file = File::options().read(true).custom_flags(nonblock).open(path).with_context(unread)?;
    let kind = file.metadata().with_context(unread)?.file_type();
    if kind.is_dir() {
        return verify::bundle(path, pinned).map_err(anyhow::Error::msg);
    }
    if !kind.is_file() {
        bail!("{} is not a regular file", path.display());
    }
    let mut start = [0; 512];
    let read = file.read(&mut start)?;
    file.rewind()?;
    let mut report = match start.get(257..262) == Some(b"ustar") {
        true => {
            let unpacked = UnpackedArchive::of(file)?;
            let mut report = verify::bundle(&unpacked.dir, pinned).map_err(anyhow::Error::msg)?;
            report.findings.extend_from_slice(&unpacked.strange);
            report.what = format!("the bundle {}", path.display());
            report
        }
        false if start[..read].trim_ascii_start().first() == Some(&b'{') => envelopes(BufReader::new(file), pinned)?,
        false => bail!("{} is neither a bundle nor an envelope", path.display()),
    };
    if report.what.is_empty() {
        report.what = format!("the receipts in {}", path.display());
    }
    Ok(report)
}

/// No line of an export is longer.
const LONGEST_LINE: u64 = 64 * 1024 * 1024;

/// Envelopes, one to a line, and the keys that they were signed with.
fn envelopes(mut file: impl BufRead, pinned: &[PublicKey]) -> anyhow::Result<VerifyReport> {
    let (mut announced, mut all, mut ends): (Vec<KeyAnnouncement>, Vec<Envelope>, Option<ExportRange>) =
        Default::default();
    let mut home: Option<HomeId> = None;
    let mut line = Vec::new();
    for n in 1.. {
        line.clear();
        let read = io::Read::take(&mut file, LONGEST_LINE).read_until(b'\n', &mut line)?;
        match line.trim_ascii() {
            [] if read == 0 => break,
            [] => continue,
            _ => {}
        }
        let mut value: Value = serde_json::from_slice(&line).with_context(|| format!("line {n} does not read"))?;
        if value.get("row").is_some() && value.get("home_id").is_some() {
            home =
                serde_json::from_value(value["home_id"].take()).with_context(|| format!("line {n} does not read"))?;
        }
        if let Some(row) = value.get_mut("row") {
            let row = serde_json::from_value(row.take()).with_context(|| format!("line {n} does not read"))?;
            if ends.replace(row).is_some() || !all.is_empty() || !announced.is_empty() {
                bail!("line {n} begins a row of receipts inside of another file");
            }
        } else if let Some(key) = value.get_mut("announcement") {
            let said = serde_json::from_value(key.take()).with_context(|| format!("line {n} is no key"))?;
            announced.push(KeyAnnouncement::from_line(format!("line {n}"), said));
        } else {
            all.push(serde_json::from_value(value).with_context(|| format!("line {n} is not a DSSE envelope"))?);
        }
    }
    if announced.is_empty() && pinned.is_empty() {
        let home = TargetHome::find()?.home;
        if !home.ledger().exists() {
            return Err(
                UsageError("name the key that it was signed with: --key FILE (csn keys export)".to_owned()).into()
            );
        }
        announced = KeyAnnouncement::read_all(&LedgerReader::open(&home.ledger())?)?;
    }
    let mut report = VerifyReport::default();
    let keys = TrustedKeys::for_part(&announced, pinned, &mut report);
    verify::envelopes(&all, ends, &keys, &mut report);
    if let (Some(said), Some(named)) = (home, report.home_id)
        && said != named
    {
        let what = format!("says that it is of home {said}; its receipts name {named}");
        report.findings.push(Finding { place: "line 1".to_owned(), what });
    }
    report.notes.push("what the receipts speak for was not looked at: only the receipts are here".to_owned());
    Ok(report)
}

/// An archive, unpacked for as long as this lives.
struct UnpackedArchive {
    dir: PathBuf,
    /// What is in it that cannot be in a bundle.
    strange: Vec<Finding>,
}

impl UnpackedArchive {
    fn of(file: File) -> anyhow::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let name = countersign_model::Digest::from_bytes(countersign_store::random()).to_string();
        let dir = std::env::temp_dir().join(format!("csn-verify-{}", &name[..16]));
        std::fs::DirBuilder::new().mode(0o700).create(&dir)?;
        let mut unpacked = Self { dir, strange: Vec::new() };
        let mut archive = tar::Archive::new(file);
        for entry in archive.entries()? {
            let mut entry = entry?;
            let inside = entry.path()?.into_owned();
            let kind = entry.header().entry_type();
            let strange = match inside.file_name().map(|name| unpacked.dir.join(name)) {
                _ if kind.is_dir() => None,
                // Names only, files only: an archive says nothing about where things go.
                Some(to) if kind.is_file() => match File::create_new(to) {
                    Ok(mut file) => io::copy(&mut entry, &mut file).map(|_| None)?,
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Some("is in the archive twice"),
                    Err(e) => return Err(e.into()),
                },
                _ => Some("is not a regular file"),
            };
            let place = inside.display().to_string();
            unpacked.strange.extend(strange.map(|what| Finding { place, what: what.to_owned() }));
        }
        Ok(unpacked)
    }
}

impl Drop for UnpackedArchive {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Says how far it is, to whoever waits at a terminal.
struct ProgressLine {
    last: Mutex<Option<std::time::Instant>>,
    shown: bool,
}

const SAY_EVERY: Duration = Duration::from_secs(1);

impl ProgressLine {
    fn new() -> Self {
        Self { last: Mutex::new(Some(countersign_store::clock::steady())), shown: io::stderr().is_terminal() }
    }

    fn tell(&self, done: u64, total: u64) {
        if !self.shown {
            return;
        }
        let Ok(mut last) = self.last.lock() else { return };
        let now = countersign_store::clock::steady();
        if last.is_none_or(|at| now.duration_since(at) >= SAY_EVERY) {
            *last = Some(now);
            let _ = write!(io::stderr(), "\r{done} of {total} tasks\x1b[K");
        }
    }

    fn done(&self) {
        if self.shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn tell(report: &VerifyReport, as_json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        let mut told = json!(report);
        (told["v"], told["ok"]) = (json!(1), json!(report.is_ok()));
        writeln!(out, "{told}")?;
        return Ok(());
    }
    for finding in &report.findings {
        let shown = |text: &str| countersign_model::DisplaySafe::bounded(text, 500).to_string();
        writeln!(out, "FAIL  {}: {}", shown(&finding.place), shown(&finding.what))?;
    }
    let many = |n: u64, what: &str| if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") };
    let mut looked = vec![many(report.receipts, "receipt")];
    if report.decisions > 0 {
        looked.push(many(report.decisions, "decision"));
    }
    looked.push(many(report.files, "file"));
    looked.push(format!("{} of {}", many(report.bytes, "byte"), many(report.tasks, "task")));
    if report.expired > 0 {
        looked.push(format!("{} expired: what they left was removed and not looked at", report.expired));
    }
    let verdict = match report.findings.len() {
        0 if report.expired > 0 => "ok    all that is still kept holds".to_owned(),
        0 => "ok    all holds".to_owned(),
        1 => "FAIL  one thing does not hold".to_owned(),
        n => format!("FAIL  {n} things do not hold"),
    };
    let what = countersign_model::DisplaySafe::bounded(&report.what, 500);
    writeln!(out, "{verdict}: {what}: {}", looked.join(", "))?;
    for note in &report.notes {
        writeln!(out, "      {note}")?;
    }
    Ok(())
}
