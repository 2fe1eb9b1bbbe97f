//! `export`: writes one task into one archive: receipt, stream, output, plan and keys. `csn verify` checks it anywhere.

use super::receipts;
use crate::{args::ExportArgs, target_home::reach};
use anyhow::Context as _;
use countersign_client::{Client, ClientError};
use countersign_model::{ReceiptSubject, Record, RefusalCode};
use countersign_store::verify::{self, BundleNames};
use serde_json::json;
use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

pub(crate) fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    // The argument is a task, or the id or number of its receipt.
    let task = receipts::parse_statement(&receipts::fetch(&client, &args.task)?)?.predicate.task_id;
    let state = client.task(&task.to_string())?;
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.tar", state.task_id)));
    let file = receipts::create_file(&path)?;
    let written = write_archive(&client, &state, file);
    if written.is_err() {
        let _ = std::fs::remove_file(&path);
    }
    let left_out = written?;
    for name in &left_out {
        crate::say(&format!("csn: {name} was removed by csn gc and is not in the archive"));
    }
    writeln!(io::stdout(), "{}", path.display())?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the archive; returns the names of the files that retention has removed.
fn write_archive(client: &Client, state: &countersign_model::TaskState, file: File) -> anyhow::Result<Vec<String>> {
    let envelope = receipts::fetch(client, &state.task_id.to_string())?;
    let statement = receipts::parse_statement(&envelope)?;
    let mut archive = Archive { tar: tar::Builder::new(file), dir: state.task_id.to_string() };
    archive.add(BundleNames::RECEIPT, envelope.json().as_bytes())?;
    archive.add(BundleNames::STATEMENT, serde_json::to_string_pretty(&statement)?.as_bytes())?;
    let keys = client.keys()?;
    let lines: String = keys.iter().map(|k| format!("{}\n", json!(k.announcement))).collect();
    archive.add(BundleNames::KEYS, lines.as_bytes())?;
    let signer = envelope.signatures.first().map(|s| s.keyid.clone());
    if let Some(key) = keys.iter().find(|k| Some(k.key.to_string()) == signer) {
        archive.add(BundleNames::PUBLIC_KEY, key.pem.as_deref().unwrap_or_default().as_bytes())?;
    }
    let (mut left_out, mut decisions, mut journal) = (Vec::new(), Vec::new(), Vec::new());
    for subject in &statement.subject {
        let (length, mut bytes) = match client.artifact(subject.digest.sha256) {
            Ok(found) => found,
            Err(ClientError::Refused(refused)) if refused.refusal.code == RefusalCode::Expired => {
                left_out.push(subject.name.clone());
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        match subject.name.as_str() {
            ReceiptSubject::DECISIONS => {
                bytes.read_to_end(&mut decisions)?;
                archive.add(&subject.name, &decisions)?;
            }
            ReceiptSubject::JOURNAL => {
                bytes.read_to_end(&mut journal)?;
                archive.add(&subject.name, &journal)?;
            }
            name => archive.append(name, length, bytes)?,
        }
    }
    let sealed_at = last_seq(&decisions).max(last_seq(&journal));
    let mut after = String::new();
    let mut events = client.events(state.task_id, sealed_at);
    while let Some(event) = events.next_event()? {
        after.push_str(&event.json);
        after.push('\n');
    }
    let plan = verify::plan(state.task_id, &decisions)
        .context("the decisions of the task cannot be read; to check the home: csn verify")?;
    archive.add(BundleNames::PLAN, serde_json::to_string_pretty(&plan)?.as_bytes())?;
    let mut stream = Vec::with_capacity(decisions.len() + journal.len());
    verify::merge_stream(&decisions, journal.as_slice(), &mut stream)?;
    archive.add(BundleNames::STREAM, &stream)?;
    archive.add(BundleNames::AFTER, after.as_bytes())?;
    archive.tar.into_inner()?.sync_all()?;
    Ok(left_out)
}

struct Archive {
    tar: tar::Builder<File>,
    dir: String,
}

impl Archive {
    fn add(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.append(name, bytes.len() as u64, bytes)
    }

    fn append(&mut self, name: &str, length: u64, bytes: impl io::Read) -> io::Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_size(length);
        header.set_mode(0o600);
        self.tar.append_data(&mut header, Path::new(&self.dir).join(name), bytes)
    }
}

/// The sequence number of the last record in these lines.
fn last_seq(lines: &[u8]) -> Option<u64> {
    let last = lines.trim_ascii_end().rsplit(|b| *b == b'\n').next()?;
    std::str::from_utf8(last).ok().and_then(|line| Record::parse(line).ok()).map(|r| r.seq)
}
