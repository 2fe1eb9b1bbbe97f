//! `ps`: lists the tasks that wait or run.

use crate::{
    render::task::{task_row, task_table_heading},
    target_home::reach,
};
use countersign_model::{Status, api::TaskQuery};
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
        writeln!(out, "{}", task_table_heading())?;
    }
    let statuses: &[Option<Status>] = if all { &[None] } else { &[Some(Status::Running), Some(Status::Queued)] };
    for status in statuses {
        let mut query = TaskQuery { status: *status, limit: Some(200), ..TaskQuery::default() };
        loop {
            let page = client.tasks(&query)?;
            for task in &page.tasks {
                if json {
                    writeln!(out, "{}", serde_json::to_string(task)?)?;
                } else {
                    writeln!(out, "{}", task_row(task, now))?;
                }
            }
            query.cursor = page.next;
            if query.cursor.is_none() {
                break;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
