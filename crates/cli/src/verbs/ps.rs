//! `ps`: the tasks that wait or run.

use crate::{house::reach, render::task::line};
use countersign_store::clock;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

pub(crate) fn ps(all: bool, json: bool) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let mut out = io::stdout().lock();
    let now = clock::now();
    if !json {
        writeln!(out, "{:<19}  {:<9}  {:>6}  {:<22}  COMMAND", "TASK", "STATUS", "AGE", "OUTCOME")?;
    }
    let statuses: &[&str] = if all { &[""] } else { &["running", "queued"] };
    for status in statuses {
        let mut cursor = String::new();
        loop {
            let status = if status.is_empty() { String::new() } else { format!("&status={status}") };
            let page = client.tasks(&format!("?limit=200{status}{cursor}"))?;
            for task in &page.tasks {
                match json {
                    true => writeln!(out, "{}", serde_json::to_string(task)?)?,
                    false => line(&mut out, task, now)?,
                }
            }
            match page.next {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
