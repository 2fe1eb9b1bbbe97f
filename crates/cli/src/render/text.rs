//! Small things for columns and sentences.

use countersign_model::DisplaySafe;
use std::time::Duration;

/// Untrusted text for a column of `width` characters.
pub(crate) fn cut(text: &str, width: usize) -> String {
    let shown = DisplaySafe::bounded(text, width + 1).to_string();
    match shown.chars().count() > width {
        true => shown.chars().take(width - 1).chain(['…']).collect(),
        false => shown,
    }
}

pub(crate) fn brief(d: Duration) -> String {
    match d.as_secs() {
        0 => format!("{}ms", d.as_millis()),
        s @ 1..60 => format!("{s}s"),
        s @ 60..3600 => format!("{}m{:02}s", s / 60, s % 60),
        s @ 3600..86400 => format!("{}h{:02}m", s / 3600, s % 3600 / 60),
        s => format!("{}d{:02}h", s / 86400, s % 86400 / 3600),
    }
}
