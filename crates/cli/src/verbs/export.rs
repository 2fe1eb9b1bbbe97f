//! `export`: one task in one archive: receipt, stream, output, plan, keys. Whoever has it can verify it.

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
    // By task, number or id of its receipt.
    let named = receipts::read(&receipts::fetch(&client, &args.task)?)?.predicate.task_id;
    let state = client.task(&named.to_string())?;
    let path = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("{}.tar", state.task_id)));
    let file = receipts::new_file(&path)?;
    let written = write(&client, &state, file);
    if written.is_err() {
        let _ = std::fs::remove_file(&path);
    }
    let left_out = written?;
    for name in &left_out {
        crate::say(&format!("csn: {name} is not kept any more, and not in the archive"));
    }
    writeln!(io::stdout(), "{}", path.display())?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the archive; gives what retention had removed.
fn write(client: &Client, state: &countersign_model::TaskState, file: File) -> anyhow::Result<Vec<String>> {
    let envelope = receipts::fetch(client, &state.task_id.to_string())?;
    let statement = receipts::read(&envelope)?;
    let mut archive = Archive { tar: tar::Builder::new(file), dir: state.task_id.to_string() };
    archive.put(BundleNames::RECEIPT, envelope.json().as_bytes())?;
    archive.put(BundleNames::STATEMENT, serde_json::to_string_pretty(&statement)?.as_bytes())?;
    let keys = client.keys()?;
    let lines: String = keys.iter().map(|k| format!("{}\n", json!(k.announcement))).collect();
    archive.put(BundleNames::KEYS, lines.as_bytes())?;
    let signer = envelope.signatures.first().map(|s| s.keyid.clone());
    if let Some(key) = keys.iter().find(|k| Some(k.key.to_string()) == signer) {
        archive.put(BundleNames::PUBLIC_KEY, key.pem.as_deref().unwrap_or_default().as_bytes())?;
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
                archive.put(&subject.name, &decisions)?;
            }
            ReceiptSubject::JOURNAL => {
                bytes.read_to_end(&mut journal)?;
                archive.put(&subject.name, &journal)?;
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
    let plan = verify::plan(state.task_id, &decisions).context("the decisions of the task do not read")?;
    archive.put(BundleNames::PLAN, serde_json::to_string_pretty(&plan)?.as_bytes())?;
    let mut stream = Vec::with_capacity(decisions.len() + journal.len());
    verify::merge_stream(&decisions, journal.as_slice(), &mut stream)?;
    archive.put(BundleNames::STREAM, &stream)?;
    archive.put(BundleNames::AFTER, after.as_bytes())?;
    archive.tar.into_inner()?.sync_all()?;
    Ok(left_out)
}

struct Archive {
    tar: tar::Builder<File>,
    dir: String,
}

impl Archive {
    fn put(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.append(name, bytes.len() as u64, bytes)
    }

    fn append(&mut self, name: &str, length: u64, bytes: impl io::Read) -> io::Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_size(length);
        header.set_mode(0o600);
        self.tar.append_data(&mut header, Path::new(&self.dir).join(name), bytes)
    }
}

/// The number of the last record of some lines.
fn last_seq(lines: &[u8]) -> Option<u64> {
    let last = lines.trim_ascii_end().rsplit(|b| *b == b'\n').next()?;
    std::str::from_utf8(last).ok().and_then(|line| Record::parse(line).ok()).map(|r| r.seq)
}
