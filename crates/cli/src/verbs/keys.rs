//! `keys list|export|rotate`: the keys that sign receipts.

use crate::{args::KeysCommand, render::text::cut, target_home::reach};
use anyhow::Context as _;
use countersign_model::{Digest, api::KeyView};
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

pub(crate) fn keys(command: KeysCommand) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let mut out = io::stdout().lock();
    match command {
        KeysCommand::List { json } => {
            for key in client.keys()? {
                if json {
                    writeln!(out, "{}", serde_json::json!(key))?;
                    continue;
                }
                let announced = |by: Digest| format!("announced by {}", cut(&by.to_string(), 16));
                let origin = key.announced_by.map_or_else(|| "the first key".to_owned(), announced);
                let state = if key.in_use { "in use" } else { "retired" };
                writeln!(out, "{}  {state}, {origin}", key.key)?;
            }
        }
        KeysCommand::Export { key } => {
            let all = client.keys()?;
            let wanted = |k: &&KeyView| match &key {
                Some(id) => k.key.to_string().starts_with(id.as_str()),
                None => k.in_use,
            };
            let found = all.iter().find(wanted).context("there is no such key; to list them: csn keys list")?;
            write!(out, "{}", found.pem.as_deref().unwrap_or_default())?;
        }
        KeysCommand::Rotate { lost } => {
            let announced = client.rotate_key(lost)?;
            writeln!(out, "{}", announced.key)?;
            crate::say("csn: this key signs receipts from now on");
            crate::say(&match announced.by {
                Some(old) => format!("     the old key {old} announces it"),
                None => {
                    "     no key announces it: give it to everyone who verifies (csn keys export, csn verify --key)"
                        .to_owned()
                }
            });
        }
    }
    Ok(ExitCode::SUCCESS)
}
