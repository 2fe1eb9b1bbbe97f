//! `gc`: removes the output of old tasks. Decisions and receipts stay.

use crate::{UsageError, render::text::count, target_home::reach};
use countersign_model::api::GcBody;
use serde_json::json;
use std::{
    io::{self, Write as _},
    process::ExitCode,
};

pub(crate) fn gc(
    older_than: Option<u64>,
    keep: Option<&str>,
    dry_run: bool,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let keep = keep.map(|text| parse_bytes("--keep", text)).transpose()?;
    let client = reach()?;
    let report = client.gc(&GcBody { older_than_days: older_than, keep_bytes: keep, dry_run })?;
    let mut out = io::stdout().lock();
    if as_json {
        writeln!(out, "{}", json!(report))?;
        return Ok(ExitCode::SUCCESS);
    }
    for task in &report.removed {
        writeln!(out, "{}  {:>10}  {}", task.task_id, format_bytes(task.bytes), task.why)?;
    }
    let verb = if dry_run { "would remove" } else { "removed" };
    crate::say(&format!(
        "csn: {verb} the output of {} ({}); {} ({}) remain stored",
        count(report.removed.len() as u64, "task"),
        format_bytes(report.bytes),
        count(report.kept_tasks as u64, "task"),
        format_bytes(report.kept_bytes)
    ));
    Ok(ExitCode::SUCCESS)
}

/// Parses `500M`, `10G` or `1024` into bytes.
pub(crate) fn parse_bytes(flag: &str, text: &str) -> anyhow::Result<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_uppercase().trim_end_matches('B').trim_end_matches('I') {
        "" => Some(0),
        "K" => Some(10),
        "M" => Some(20),
        "G" => Some(30),
        "T" => Some(40),
        _ => None,
    };
    let bytes = shift.zip(number.parse::<u64>().ok()).and_then(|(shift, n)| n.checked_mul(1 << shift));
    bytes.ok_or_else(|| {
        UsageError(format!("{flag} {text}: give a number of bytes, for example 500M or 10G (K, M, G or T)")).into()
    })
}

fn format_bytes(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1u32 << 30)),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn byte_counts_are_parsed_and_formatted() {
        for (text, n) in [("0", 0), ("12", 12), ("4k", 4096), ("1MiB", 1 << 20), ("2GB", 2 << 30), ("1t", 1 << 40)] {
            assert_eq!(super::parse_bytes("--keep", text).unwrap(), n, "{text}");
        }
        for bad in ["", "x", "1x", "-1", "99999999T"] {
            assert!(super::parse_bytes("--keep", bad).is_err(), "{bad}");
        }
        assert_eq!(super::format_bytes(3 << 29), "1.5 GiB");
    }
}
