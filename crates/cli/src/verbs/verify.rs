//! `verify`: checks stored data against the signed receipts. It needs no daemon, and for an exported bundle or envelope
//! no home either.

use crate::{UsageError, args::VerifyArgs, render::text::count, target_home::TargetHome};
use anyhow::{Context as _, bail};
use countersign_model::{DisplaySafe, HomeId, PrincipalId, ReceiptId, TaskAddress, TaskId};
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
    print_report(&report, args.json)?;
    Ok(ExitCode::from(u8::from(!report.is_ok())))
}

fn check(args: &VerifyArgs) -> anyhow::Result<VerifyReport> {
    let pinned = args.key.iter().map(|path| read_public_key(path)).collect::<anyhow::Result<Vec<_>>>()?;
    let since = args.since.as_deref().map(read_envelope).transpose()?;
    let scope = VerifyScope { pinned: &pinned, since: since.as_ref(), receipts_only: args.receipts_only };
    if let Some(path) = args.target.as_deref().filter(|target| is_path(target)) {
        return verify_export(Path::new(path), &pinned);
    }
    let TargetHome { home, own, .. } = TargetHome::find()?;
    if !own && std::fs::metadata(home.path()).map_or(true, |m| m.uid() != rustix::process::geteuid().as_raw()) {
        bail!(
            "only the user countersign can read all of {}: sudo -u countersign csn verify; \
             to verify a task of yours: csn export TASK, then csn verify FILE",
            home.path().display()
        );
    }
    if !home.ledger().exists() && condition::check(&home, CheckDepth::Quick).is_ok() {
        bail!("there is no ledger at {}; name an exported file, or set COUNTERSIGN_HOME", home.ledger().display());
    }
    let line = ProgressLine::new();
    let progress = |done, total| line.update(done, total);
    let mut report = match (&args.target, args.from, args.to) {
        (None, None, None) => verify::home(&home, &scope, &progress)?,
        (None, from, to) => verify::range(&home, from.unwrap_or(1), to, &scope, &progress)?,
        (Some(target), ..) => match parse_target(&home, target)? {
            VerifyTarget::Task(task) => verify::task(&home, task, &scope)?,
            VerifyTarget::Number(number) => verify::range(&home, number, Some(number), &scope, &progress)?,
        },
    };
    if let Some(target) = args.target.as_deref().filter(|target| Path::new(target).exists()) {
        report.notes.push(format!("a file of this name exists, too; to verify it: csn verify ./{target}"));
    }
    line.clear();
    Ok(report)
}

enum VerifyTarget {
    Task(TaskId),
    Number(u64),
}

/// Parses a receipt's number. Ids have more characters.
fn parse_number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.len() < 10)
}

/// Whether the argument names a file. An id or a number is never a file name, even if such a file exists.
fn is_path(text: &str) -> bool {
    if text.parse::<TaskAddress>().is_ok() {
        return false;
    }
    let id = text.parse::<TaskId>().is_ok() || text.parse::<ReceiptId>().is_ok() || parse_number(text).is_some();
    let ending = [".tar", ".json", ".jsonl"].iter().any(|ending| text.ends_with(ending));
    text.contains('/') || ending || !id && Path::new(text).exists()
}

/// Finds a task or a receipt by its id, its number or the beginning of its id.
fn parse_target(home: &Home, text: &str) -> anyhow::Result<VerifyTarget> {
    if let Ok(task) = text.parse() {
        return Ok(VerifyTarget::Task(task));
    }
    let ledger = LedgerReader::open(&home.ledger())?;
    if let Ok(TaskAddress { task, .. }) = text.parse() {
        TaskAddress::within(text, ledger.home_id()?).map_err(|why| UsageError(why.to_string()))?;
        return Ok(VerifyTarget::Task(task));
    }
    if let Ok(receipt) = text.parse() {
        let number = ledger
            .receipt_number_by_id(receipt)?
            .with_context(|| format!("there is no receipt {receipt}; to list them: csn receipts list"))?;
        return Ok(VerifyTarget::Number(number));
    }
    if let Some(number) = parse_number(text) {
        return Ok(VerifyTarget::Number(number));
    }
    let prefix = if text.starts_with("tk_") { text.to_owned() } else { format!("tk_{text}") };
    match ledger.tasks_by_prefix(&prefix, PrincipalId::owner())?.as_slice() {
        [task] if prefix.len() >= 7 => Ok(VerifyTarget::Task(*task)),
        [_, _, ..] => bail!("more than one task begins with {prefix}: give more characters of the id"),
        _ => Err(UsageError(format!(
            "`{}` is not a task, a receipt or a file; to list tasks: csn ps --all",
            DisplaySafe::bounded(text, 60)
        ))
        .into()),
    }
}

/// The size limit for a file with a key or a ledger head.
const MAX_SMALL_FILE_BYTES: u64 = 1024 * 1024;

fn read_small_file(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
    file.take(MAX_SMALL_FILE_BYTES)
        .read_to_string(&mut text)
        .with_context(|| format!("{} cannot be read", path.display()))?;
    Ok(text)
}

fn read_public_key(path: &Path) -> anyhow::Result<PublicKey> {
    PublicKey::from_pem(&read_small_file(path)?).with_context(|| {
        format!("{} is not a public Ed25519 key in PEM form; csn keys export writes one", path.display())
    })
}

fn read_envelope(path: &Path) -> anyhow::Result<Envelope> {
    serde_json::from_str(&read_small_file(path)?)
        .with_context(|| format!("{} is not a DSSE envelope; csn receipts head writes one", path.display()))
}

/// Verifies an exported directory, an archive, or a file of one or more envelopes.
fn verify_export(path: &Path, pinned: &[PublicKey]) -> anyhow::Result<VerifyReport> {
    let read_failed = || format!("{} cannot be read", path.display());
    // Non-blocking: a pipe of this name must not hang the program.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let mut file = File::options().read(true).custom_flags(nonblock).open(path).with_context(read_failed)?;
    let kind = file.metadata().with_context(read_failed)?.file_type();
    if kind.is_dir() {
        return verify::bundle(path, pinned).map_err(anyhow::Error::msg);
    }
    if !kind.is_file() {
        bail!("{} is not a regular file", path.display());
    }
    let mut start = [0; 512];
    let read = file.read(&mut start)?;
    file.rewind()?;
    let mut report = if start.get(257..262) == Some(b"ustar") {
        let unpacked = UnpackedArchive::unpack(file)?;
        let mut report = verify::bundle(&unpacked.dir, pinned).map_err(anyhow::Error::msg)?;
        report.findings.extend_from_slice(&unpacked.unexpected);
        report.what = format!("the bundle {}", path.display());
        report
    } else if start[..read].trim_ascii_start().first() == Some(&b'{') {
        verify_envelopes(BufReader::new(file), pinned)?
    } else {
        bail!(
            "{} is neither a bundle nor an envelope; csn export and csn receipts export write such files",
            path.display()
        );
    };
    if report.what.is_empty() {
        report.what = format!("the receipts in {}", path.display());
    }
    Ok(report)
}

const MAX_LINE_BYTES: u64 = 64 * 1024 * 1024;

/// Verifies envelopes, one per line, with the keys that the same file announces.
fn verify_envelopes(mut file: impl BufRead, pinned: &[PublicKey]) -> anyhow::Result<VerifyReport> {
    let (mut announced, mut all, mut ends): (Vec<KeyAnnouncement>, Vec<Envelope>, Option<ExportRange>) =
        Default::default();
    let mut home: Option<HomeId> = None;
    let mut line = Vec::new();
    for n in 1.. {
        line.clear();
        let read = io::Read::take(&mut file, MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        match line.trim_ascii() {
            [] if read == 0 => break,
            [] => continue,
            _ => {}
        }
        let mut value: Value = serde_json::from_slice(&line).with_context(|| format!("line {n} cannot be read"))?;
        if value.get("row").is_some() && value.get("home_id").is_some() {
            home =
                serde_json::from_value(value["home_id"].take()).with_context(|| format!("line {n} cannot be read"))?;
        }
        if let Some(row) = value.get_mut("row") {
            let row = serde_json::from_value(row.take()).with_context(|| format!("line {n} cannot be read"))?;
            if ends.replace(row).is_some() || !all.is_empty() || !announced.is_empty() {
                bail!(
                    "line {n} starts another export: the file holds more than one; verify each of them in a file of its own"
                );
            }
        } else if let Some(key) = value.get_mut("announcement") {
            let announcement =
                serde_json::from_value(key.take()).with_context(|| format!("line {n} is not a key announcement"))?;
            announced.push(KeyAnnouncement::from_line(format!("line {n}"), announcement));
        } else {
            all.push(serde_json::from_value(value).with_context(|| format!("line {n} is not a DSSE envelope"))?);
        }
    }
    if announced.is_empty() && pinned.is_empty() {
        let home = TargetHome::find()?.home;
        if !home.ledger().exists() {
            return Err(UsageError(
                "name the public key of the signer: --key FILE (csn keys export writes it)".to_owned(),
            )
            .into());
        }
        announced = KeyAnnouncement::read_all(&LedgerReader::open(&home.ledger())?)?;
    }
    let mut report = VerifyReport::default();
    let keys = TrustedKeys::for_part(&announced, pinned, &mut report);
    verify::envelopes(&all, ends, &keys, &mut report);
    if let (Some(stated), Some(named)) = (home, report.home_id)
        && stated != named
    {
        let what = format!("states home {stated}, but its receipts name {named}");
        report.findings.push(Finding { place: "line 1".to_owned(), what });
    }
    report.notes.push("the files that the receipts cover were not checked: the export holds only receipts".to_owned());
    Ok(report)
}

/// An archive, unpacked into a temporary directory until this is dropped.
struct UnpackedArchive {
    dir: PathBuf,
    /// Entries that a bundle cannot contain.
    unexpected: Vec<Finding>,
}

impl UnpackedArchive {
    fn unpack(file: File) -> anyhow::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let name = countersign_model::Digest::from_bytes(countersign_store::random()).to_string();
        let dir = std::env::temp_dir().join(format!("csn-verify-{}", &name[..16]));
        std::fs::DirBuilder::new().mode(0o700).create(&dir)?;
        let mut unpacked = Self { dir, unexpected: Vec::new() };
        let mut archive = tar::Archive::new(file);
        for entry in archive.entries()? {
            let mut entry = entry?;
            let inside = entry.path()?.into_owned();
            let kind = entry.header().entry_type();
            let problem = match inside.file_name().map(|name| unpacked.dir.join(name)) {
                _ if kind.is_dir() => None,
                // Only regular files, and only their last name: an archive must not choose where files go.
                Some(to) if kind.is_file() => match File::create_new(to) {
                    Ok(mut file) => io::copy(&mut entry, &mut file).map(|_| None)?,
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Some("is in the archive twice"),
                    Err(e) => return Err(e.into()),
                },
                _ => Some("is not a regular file"),
            };
            let place = inside.display().to_string();
            unpacked.unexpected.extend(problem.map(|what| Finding { place, what: what.to_owned() }));
        }
        Ok(unpacked)
    }
}

impl Drop for UnpackedArchive {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A line that shows the progress at a terminal.
struct ProgressLine {
    last_shown: Mutex<std::time::Instant>,
    enabled: bool,
}

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

impl ProgressLine {
    fn new() -> Self {
        Self { last_shown: Mutex::new(countersign_store::clock::steady()), enabled: io::stderr().is_terminal() }
    }

    fn update(&self, done: u64, total: u64) {
        if !self.enabled {
            return;
        }
        let Ok(mut last_shown) = self.last_shown.lock() else { return };
        let now = countersign_store::clock::steady();
        if now.duration_since(*last_shown) >= PROGRESS_INTERVAL {
            *last_shown = now;
            let _ = write!(io::stderr(), "\r{done} of {total} tasks\x1b[K");
        }
    }

    fn clear(&self) {
        if self.enabled {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn print_report(report: &VerifyReport, as_json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        let mut object = json!(report);
        (object["v"], object["ok"]) = (json!(1), json!(report.is_ok()));
        writeln!(out, "{object}")?;
        return Ok(());
    }
    for finding in &report.findings {
        let safe = |text: &str| DisplaySafe::bounded(text, 500).to_string();
        writeln!(out, "FAIL  {}: {}", safe(&finding.place), safe(&finding.what))?;
    }
    let mut checked = vec![count(report.receipts, "receipt")];
    if report.decisions > 0 {
        checked.push(count(report.decisions, "decision"));
    }
    checked.push(count(report.files, "file"));
    checked.push(format!("{} of {}", count(report.bytes, "byte"), count(report.tasks, "task")));
    if report.expired > 0 {
        checked.push(format!("{} expired: their output was removed earlier and not checked", report.expired));
    }
    let verdict = match report.findings.len() {
        0 if report.expired > 0 => "ok    everything that is still stored is intact".to_owned(),
        0 => "ok    everything is intact".to_owned(),
        n => format!("FAIL  {}", count(n as u64, "finding")),
    };
    let what = DisplaySafe::bounded(&report.what, 500);
    writeln!(out, "{verdict}: {what}: {}", checked.join(", "))?;
    for note in &report.notes {
        writeln!(out, "      {note}")?;
    }
    Ok(())
}
