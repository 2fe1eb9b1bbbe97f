//! `search`: where in a task's output something is.

use crate::{args::SearchArgs, house::reach};
use countersign_model::Shown;
use serde_json::Value;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

/// What one question brings at most.
const PAGE: u64 = 500;

pub(crate) fn search(args: &SearchArgs) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let task = client.task(&args.task)?.task_id;
    let mut out = io::stdout().lock();
    let (mut after, mut left, mut any, mut first) = (None, args.max.unwrap_or(u64::MAX), false, true);
    while left > 0 {
        let mut query = vec![
            ("pattern", args.pattern.clone()),
            ("regex", args.regex.to_string()),
            ("ignore_case", args.ignore_case.to_string()),
            ("context", args.context.to_string()),
            ("max_results", left.min(PAGE).to_string()),
        ];
        query.extend(args.stream.map(|s| ("stream", s.name().to_string())));
        query.extend(after.take().map(|a| ("after", a)));
        let found = client.search(task, &query)?;
        for m in &found.matches {
            any = true;
            left -= 1;
            if args.json {
                let line = serde_json::json!({
                    "v": 1, "stream": m.stream, "offset_bytes": m.offset_bytes, "bytes": m.bytes, "line": m.line,
                    "excerpt": m.excerpt, "before": m.before, "after": m.after,
                });
                writeln!(out, "{line}")?;
                continue;
            }
            if args.context > 0 && !std::mem::replace(&mut first, false) {
                writeln!(out, "--")?;
            }
            let place = |n: Option<i64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
            let line = m.line.and_then(|n| i64::try_from(n).ok());
            let around = m.before.len() as i64;
            for (n, text) in (0i64..).zip(&m.before) {
                writeln!(out, "{}-{}-{}", m.stream, place(line.map(|l| l - around + n)), shown(text))?;
            }
            writeln!(out, "{}:{}:{}:{}", m.stream, place(line), m.offset_bytes, shown(&m.excerpt))?;
            for (n, text) in (1i64..).zip(&m.after) {
                writeln!(out, "{}-{}-{}", m.stream, place(line.map(|l| l + n)), shown(text))?;
            }
        }
        match found.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    // As grep does: nothing found is no error, but it can be told.
    Ok(ExitCode::from(u8::from(!any)))
}

/// A line of somebody's output, with nothing in it that a terminal would obey.
fn shown(text: &Value) -> String {
    match text {
        Value::String(text) => Shown::new(text.trim_end_matches('\r')).to_string(),
        other => {
            use base64::Engine as _;
            let encoded = other["content"].as_str().unwrap_or_default();
            let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
            Shown::new(&String::from_utf8_lossy(&bytes)).to_string()
        }
    }
}
