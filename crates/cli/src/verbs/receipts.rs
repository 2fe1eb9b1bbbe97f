//! `receipts list|show|export|verify|head`: the signed receipts.

use crate::{
    UsageError,
    args::ReceiptsCommand,
    render::receipt::{receipt_details, receipt_row},
    target_home::reach,
    verbs::verify,
};
use anyhow::Context as _;
use countersign_client::Client;
use countersign_model::Statement;
use countersign_store::{Envelope, RECEIPT_TYPE};
use serde_json::json;
use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

/// How long to wait for the receipt of a task that has just ended.
const RECEIPT_TIMEOUT_MS: u64 = 5000;

pub(crate) fn receipts(command: ReceiptsCommand) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match command {
        ReceiptsCommand::List { limit, json } => list(&reach()?, limit, json, &mut out)?,
        ReceiptsCommand::Show { receipt, json, envelope } => {
            let found = fetch(&reach()?, &receipt)?;
            let statement = parse_statement(&found)?;
            if envelope {
                writeln!(out, "{}", found.json())?;
            } else if json {
                writeln!(out, "{}", json!(statement))?;
            } else {
                let signers: Vec<&str> = found.signatures.iter().map(|s| s.keyid.as_str()).collect();
                write!(out, "{}", receipt_details(&statement, &signers))?;
            }
        }
        ReceiptsCommand::Export { receipts, from, to, output } => {
            let client = reach()?;
            drop(out);
            let exported = export(&client, &receipts, from, to, output.as_deref());
            if let (Err(e), Some(path)) = (&exported, &output)
                && !e.is::<UsageError>()
            {
                // A partial export could be taken for a complete one.
                let _ = std::fs::remove_file(path);
            }
            exported?;
        }
        ReceiptsCommand::Verify(args) => {
            drop(out);
            return verify::verify(&args);
        }
        ReceiptsCommand::Head { output } => {
            let head = reach()?.signed_head()?;
            drop(out);
            writeln!(open_output(output.as_deref())?, "{}", String::from_utf8_lossy(&head))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates a file that does not exist yet.
pub(crate) fn create_file(path: &Path) -> anyhow::Result<File> {
    match File::create_new(path) {
        Ok(file) => Ok(file),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let message = format!("{} already exists: remove it, or name another file with -o", path.display());
            Err(UsageError(message).into())
        }
        Err(e) => Err(e).with_context(|| format!("{} cannot be written", path.display())),
    }
}

/// Standard output, or a new file.
fn open_output(path: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    Ok(match path {
        None => Box::new(io::stdout().lock()),
        Some(path) => Box::new(create_file(path)?),
    })
}

/// Fetches the envelope of a receipt by task, receipt id or number.
pub(crate) fn fetch(client: &Client, receipt: &str) -> anyhow::Result<Envelope> {
    let bytes = client.receipt(receipt, RECEIPT_TIMEOUT_MS)?;
    serde_json::from_slice(&bytes)
        .context("the daemon's answer is not an envelope; check that csn and the daemon have one version: csn doctor")
}

pub(crate) fn parse_statement(envelope: &Envelope) -> anyhow::Result<Statement> {
    let (payload, ..) = envelope.open(RECEIPT_TYPE).map_err(anyhow::Error::msg)?;
    serde_json::from_str(&payload).context("the receipt cannot be read; to check the home: csn verify")
}

fn list(client: &Client, limit: usize, as_json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let (mut left, mut cursor) = (limit, None);
    while left > 0 {
        let page = client.receipts(left.min(500), cursor)?;
        for row in &page.receipts {
            left = left.saturating_sub(1);
            if as_json {
                writeln!(out, "{}", json!(row))?;
            } else {
                writeln!(out, "{}", receipt_row(row))?;
            }
        }
        if let Some(why) = &page.failing {
            crate::say(&format!("csn: new receipts are not being sealed: {why}; to find the cause: csn doctor"));
        }
        match page.next {
            Some(next) => cursor = Some(next.0),
            None => break,
        }
    }
    Ok(())
}

/// Exports envelopes, one per line, after the keys that signed them. A range starts with a line that states its first and
/// last number, so that a missing receipt is noticed.
fn export(
    client: &Client,
    receipts: &[String],
    from: Option<u64>,
    to: Option<u64>,
    output: Option<&Path>,
) -> anyhow::Result<()> {
    if receipts.is_empty() && from.is_none() && to.is_none() {
        let message = "name receipts or tasks, or a range: csn receipts export --from 1";
        return Err(UsageError(message.to_owned()).into());
    }
    let is_range = from.is_some() || to.is_some();
    if is_range && !receipts.is_empty() {
        return Err(UsageError("name receipts, or give a range with --from and --to, not both".to_owned()).into());
    }
    let (from, to) = if is_range { range_ends(client, from, to)? } else { (1, 0) };
    let mut out = open_output(output)?;
    if is_range {
        let home = client.lifecycle()?.home_id;
        writeln!(out, "{}", json!({"row": {"from": from, "to": to}, "home_id": home}))?;
    }
    for key in client.keys()? {
        writeln!(out, "{}", json!({"announcement": key.announcement}))?;
    }
    for receipt in receipts {
        writeln!(out, "{}", fetch(client, receipt)?.json())?;
    }
    for number in from..=to {
        writeln!(out, "{}", fetch(client, &number.to_string())?.json())?;
    }
    out.flush()?;
    Ok(())
}

/// The first and last number of a range; all receipts between them exist.
fn range_ends(client: &Client, from: Option<u64>, to: Option<u64>) -> anyhow::Result<(u64, u64)> {
    let newest = client.receipts(1, None)?.receipts.first().map_or(0, |newest| newest.seq.0);
    let (from, to) = (from.unwrap_or(1), to.unwrap_or(newest));
    if from == 0 || from > to || to > newest {
        return Err(
            UsageError(format!("there are no receipts {from} to {to}: the newest receipt is number {newest}")).into()
        );
    }
    Ok((from, to))
}
