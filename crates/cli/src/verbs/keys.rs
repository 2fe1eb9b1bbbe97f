//! `keys list|export|rotate`: what receipts are signed with.

use crate::{args::KeysCommand, render::text::cut, target_home::reach};
use anyhow::Context as _;
use countersign_model::api::KeyView;
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
                let by = key.announced_by.map_or_else(|| "nobody".to_owned(), |k| cut(&k.to_string(), 16));
                let used = if key.in_use { "in use" } else { "retired" };
                writeln!(out, "{}  {used}, announced by {by}", key.key)?;
            }
        }
        KeysCommand::Export { key } => {
            let all = client.keys()?;
            let wanted = |k: &&KeyView| match &key {
                Some(id) => k.key.to_string().starts_with(id.as_str()),
                None => k.in_use,
            };
            let found = all.iter().find(wanted).context("there is no such key; see csn keys list")?;
            write!(out, "{}", found.pem.as_deref().unwrap_or_default())?;
        }
        KeysCommand::Rotate { lost } => {
            let announced = client.rotate_key(lost)?;
            writeln!(out, "{}", announced.key)?;
            let spoken = match announced.by {
                Some(old) => format!("{old} speaks for it"),
                None => {
                    "no key speaks for it: whoever verifies must be told (csn keys export, csn verify --key)".to_owned()
                }
            };
            crate::say(&format!("csn: receipts are signed with this key from now on; {spoken}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
