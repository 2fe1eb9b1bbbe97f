//! The keys that let go of a task.

use crate::Usage;
use countersign_model::{Key, KeyMode};

/// Ctrl-\ then Ctrl-D, as for `run`.
pub(crate) const DETACH_KEYS: &str = "ctrl-\\,ctrl-d";

/// The bytes of the keys that let go.
pub(crate) fn detach_keys(text: &str) -> anyhow::Result<Vec<u8>> {
    let key = |name: &str| name.trim().parse::<Key>().map(|k| k.bytes(KeyMode::default()));
    let keys: Result<Vec<_>, String> = text.split(',').map(key).collect();
    Ok(keys.map_err(|e| Usage(format!("--detach-keys: {e}")))?.concat())
}
