//! `search`: finds text in a task's output.

use crate::{args::SearchArgs, target_home::reach};
use countersign_model::{
    DisplaySafe,
    api::{Excerpt, SearchQuery},
};
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

/// How many matches one call returns at most.
const MAX_PAGE_MATCHES: u64 = 500;

pub(crate) fn search(args: &SearchArgs) -> anyhow::Result<ExitCode> {
    let client = reach()?;
    let task = client.task(&args.task)?.task_id;
    let mut out = io::stdout().lock();
    let mut query = SearchQuery {
        pattern: args.pattern.clone(),
        regex: args.regex,
        ignore_case: args.ignore_case,
        context: usize::try_from(args.context).ok(),
        stream: args.stream.map(|s| s.name()),
        ..SearchQuery::default()
    };
    let (mut left, mut any, mut first) = (args.max.unwrap_or(u64::MAX), false, true);
    while left > 0 {
        query.max_results = usize::try_from(left.min(MAX_PAGE_MATCHES)).ok();
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
            let line_number = |n: Option<i64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
            let line = m.line.and_then(|n| i64::try_from(n).ok());
            let around = m.before.len() as i64;
            for (n, text) in (0i64..).zip(&m.before) {
                writeln!(out, "{}-{}-{}", m.stream, line_number(line.map(|l| l - around + n)), display_safe(text))?;
            }
            writeln!(out, "{}:{}:{}:{}", m.stream, line_number(line), m.offset_bytes, display_safe(&m.excerpt))?;
            for (n, text) in (1i64..).zip(&m.after) {
                writeln!(out, "{}-{}-{}", m.stream, line_number(line.map(|l| l + n)), display_safe(text))?;
            }
        }
        query.after = found.next;
        if query.after.is_none() {
            break;
        }
    }
    // As grep does: no match is exit code 1.
    Ok(ExitCode::from(u8::from(!any)))
}

/// A line of the task's output, without escapes that a terminal would obey.
fn display_safe(text: &Excerpt) -> String {
    match text {
        Excerpt::Text(text) => DisplaySafe::new(text.trim_end_matches('\r')).to_string(),
        Excerpt::Encoded { content, .. } => {
            use base64::Engine as _;
            let bytes = base64::engine::general_purpose::STANDARD.decode(content).unwrap_or_default();
            DisplaySafe::new(&String::from_utf8_lossy(&bytes)).to_string()
        }
    }
}
