//! Helpers for columns and sentences: cutting, counting, durations.

use countersign_model::DisplaySafe;
use std::time::Duration;

/// Cuts untrusted text for a column of `width` characters and makes it safe to print.
pub(crate) fn cut(text: &str, width: usize) -> String {
    let safe = DisplaySafe::bounded(text, width + 1).to_string();
    if safe.chars().count() > width { safe.chars().take(width - 1).chain(['…']).collect() } else { safe }
}

/// A count with its noun: `1 task`, `2 tasks`. For nouns whose plural ends in `s`.
pub(crate) fn count(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// A duration in at most two units: `12ms`, `3m05s`, `2d01h`.
pub(crate) fn brief(d: Duration) -> String {
    match d.as_secs() {
        0 => format!("{}ms", d.as_millis()),
        s @ 1..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        s @ 3600..86400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        s => format!("{}d{:02}h", s / 86400, s % 86400 / 3600),
    }
}
