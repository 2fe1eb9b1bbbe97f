//! `receipts list|show|export|verify|head`: what was signed.

use crate::{
    UsageError,
    args::ReceiptsCommand,
    render::receipt::{line, show},
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

/// How long a receipt is waited for, of a task that has just settled.
const PATIENCE_MS: u64 = 5000;

pub(crate) fn receipts(command: ReceiptsCommand) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    match command {
        ReceiptsCommand::List { limit, json } => list(&reach()?, limit, json, &mut out)?,
        ReceiptsCommand::Show { receipt, json, envelope } => {
            let found = fetch(&reach()?, &receipt)?;
            let statement = read(&found)?;
            match (envelope, json) {
                (true, _) => writeln!(out, "{}", found.json())?,
                (false, true) => writeln!(out, "{}", json!(statement))?,
                (false, false) => show(&statement, &found, &mut out)?,
            }
        }
        ReceiptsCommand::Export { receipts, from, to, output } => {
            let client = reach()?;
            drop(out);
            let exported = export(&client, &receipts, from, to, output.as_deref());
            if let (Err(e), Some(path)) = (&exported, &output)
                && !e.is::<UsageError>()
            {
                // Half of what was wanted would pass for all of it.
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
            writeln!(sink(output.as_deref())?, "{}", String::from_utf8_lossy(&head))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A file that was not there before.
pub(crate) fn new_file(path: &Path) -> anyhow::Result<File> {
    match File::create_new(path) {
        Ok(file) => Ok(file),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let what = format!("{} is there already: remove it, or name another with -o", path.display());
            Err(UsageError(what).into())
        }
        Err(e) => Err(e).with_context(|| format!("{} cannot be written", path.display())),
    }
}

/// Standard output, or a new file.
fn sink(path: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    Ok(match path {
        None => Box::new(io::stdout().lock()),
        Some(path) => Box::new(new_file(path)?),
    })
}

/// The envelope of a receipt by task, id or number.
pub(crate) fn fetch(client: &Client, receipt: &str) -> anyhow::Result<Envelope> {
    let bytes = client.receipt(receipt, PATIENCE_MS)?;
    serde_json::from_slice(&bytes).context("the house sent something that is no envelope")
}

pub(crate) fn read(envelope: &Envelope) -> anyhow::Result<Statement> {
    let (payload, ..) = envelope.open(RECEIPT_TYPE).map_err(anyhow::Error::msg)?;
    serde_json::from_str(&payload).context("the receipt does not read")
}

fn list(client: &Client, limit: usize, as_json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let (mut left, mut cursor) = (limit, None);
    while left > 0 {
        let page = client.receipts(left.min(500), cursor)?;
        for row in &page.receipts {
            left = left.saturating_sub(1);
            match as_json {
                true => writeln!(out, "{}", json!(row))?,
                false => writeln!(out, "{}", line(row))?,
            }
        }
        if let Some(why) = &page.failing {
            crate::say(&format!("csn: receipts are not made out: {why}"));
        }
        match page.next {
            Some(next) => cursor = Some(next.0),
            None => break,
        }
    }
    Ok(())
}

/// Envelopes, one to a line, behind the keys that they were signed with. A row says first where it begins and ends, so that
/// what is taken out of it is missed.
fn export(
    client: &Client,
    receipts: &[String],
    from: Option<u64>,
    to: Option<u64>,
    output: Option<&Path>,
) -> anyhow::Result<()> {
    if receipts.is_empty() && from.is_none() && to.is_none() {
        let what = "name receipts or tasks, or a row of them: csn receipts export --from 1";
        return Err(UsageError(what.to_owned()).into());
    }
    let row = from.is_some() || to.is_some();
    if row && !receipts.is_empty() {
        return Err(UsageError("name receipts, or a row of them with --from and --to, not both".to_owned()).into());
    }
    let (from, to) = match row {
        true => ends(client, from, to)?,
        false => (1, 0),
    };
    let mut out = sink(output)?;
    if row {
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

/// From which receipt to which a row goes; each of them is there.
fn ends(client: &Client, from: Option<u64>, to: Option<u64>) -> anyhow::Result<(u64, u64)> {
    let newest = client.receipts(1, None)?.receipts.first().map_or(0, |newest| newest.seq.0);
    let (from, to) = (from.unwrap_or(1), to.unwrap_or(newest));
    if from == 0 || from > to || to > newest {
        return Err(UsageError(format!("there is no row from {from} to {to}: the newest receipt is {newest}")).into());
    }
    Ok((from, to))
}
