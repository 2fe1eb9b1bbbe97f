//! Known values: what the environment of a task passes in and would not want printed.

use base64::{Engine as _, engine::general_purpose};
use std::collections::BTreeSet;

/// Shorter values are words, not secrets: masking them would tear ordinary text apart.
const SHORTEST: usize = 6;
/// A value must fit into what a scrubber may hold back.
const LONGEST: usize = 8 * 1024;

/// Whether a variable of this name is likely to hold a secret.
#[must_use]
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "token", "secret", "password", "passwd", "pwd", "credential"].iter().any(|word| name.contains(word))
        && !matches!(&*name, "pwd" | "oldpwd")
}

/// Values to take out verbatim and in the encodings in which programs like to print them.
#[derive(Debug, Default, Clone)]
pub struct Known {
    pub(crate) forms: BTreeSet<Vec<u8>>,
}

impl Known {
    /// The secret-looking values of an environment.
    pub fn of_env<'a>(env: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut known = Self::default();
        for (name, value) in env {
            if looks_secret(name) {
                known.add(value);
            }
        }
        known
    }

    pub fn add(&mut self, value: &str) {
        if !(SHORTEST..=LONGEST).contains(&value.len()) {
            return;
        }
        let bytes = value.as_bytes();
        let mut add = |form: Vec<u8>| {
            self.forms.insert(form);
        };
        add(bytes.to_vec());
        add(general_purpose::STANDARD_NO_PAD.encode(bytes).into_bytes());
        add(general_purpose::URL_SAFE_NO_PAD.encode(bytes).into_bytes());
        add(percent(bytes));
        add(json(value));
    }
}

fn percent(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for &b in bytes {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(b),
            _ => out.extend(format!("%{b:02X}").bytes()),
        }
    }
    out
}

fn json(value: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend([b'\\', c as u8]),
            '\n' => out.extend(b"\\n"),
            '\r' => out.extend(b"\\r"),
            '\t' => out.extend(b"\\t"),
            c if (c as u32) < 0x20 => out.extend(format!("\\u{:04x}", c as u32).bytes()),
            c => out.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    out
}
