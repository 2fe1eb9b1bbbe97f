//! `gc`: what old tasks have written goes; what was decided stays.

use crate::{UsageError, target_home::reach};
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
    let keep = keep.map(|text| bytes("--keep", text)).transpose()?;
    let client = reach()?;
    let done = client.gc(&GcBody { older_than_days: older_than, keep_bytes: keep, dry_run })?;
    let mut out = io::stdout().lock();
    if as_json {
        writeln!(out, "{}", json!(done))?;
        return Ok(ExitCode::SUCCESS);
    }
    for task in &done.removed {
        writeln!(out, "{}  {:>10}  {}", task.task_id, size(task.bytes), task.why)?;
    }
    let verb = if dry_run { "would be removed" } else { "removed" };
    crate::say(&format!(
        "csn: {} tasks, {} {verb}; {} tasks, {} kept",
        done.removed.len(),
        size(done.bytes),
        done.kept_tasks,
        size(done.kept_bytes)
    ));
    Ok(ExitCode::SUCCESS)
}

/// `500M`, `10G`, `1024`.
pub(crate) fn bytes(flag: &str, text: &str) -> anyhow::Result<u64> {
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
    bytes.ok_or_else(|| UsageError(format!("{flag} {text}: a number of bytes, with K, M, G or T for more")).into())
}

fn size(bytes: u64) -> String {
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
    fn sizes_are_read_and_shown() {
        for (text, n) in [("0", 0), ("12", 12), ("4k", 4096), ("1MiB", 1 << 20), ("2GB", 2 << 30), ("1t", 1 << 40)] {
            assert_eq!(super::bytes("--keep", text).unwrap(), n, "{text}");
        }
        for bad in ["", "x", "1x", "-1", "99999999T"] {
            assert!(super::bytes("--keep", bad).is_err(), "{bad}");
        }
        assert_eq!(super::size(3 << 29), "1.5 GiB");
    }
}
