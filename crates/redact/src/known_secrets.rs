//! Known secrets: values of a task's environment and arguments that must not appear in its output.

use crate::guard;
use base64::{Engine as _, engine::general_purpose};
use std::collections::BTreeSet;

/// Shorter values are words, not secrets: redacting them would destroy ordinary text.
const MIN_SECRET_BYTES: usize = 6;
/// A value must fit into what a scrubber may hold.
const MAX_SECRET_BYTES: usize = 8 * 1024;
/// A shorter encoded form would match ordinary text.
const MIN_FORM_BYTES: usize = 6;

/// Whether a variable of this name is likely to hold a secret.
#[must_use]
pub fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "token", "secret", "password", "passwd", "pwd", "credential", "passphrase"]
        .iter()
        .any(|word| name.contains(word))
        && !matches!(&*name, "pwd" | "oldpwd")
}

/// Values to redact, plain and in the encodings in which programs often print them.
#[derive(Debug, Default, Clone)]
pub struct KnownSecrets {
    pub(crate) forms: BTreeSet<Vec<u8>>,
}

impl KnownSecrets {
    /// The values of an environment that look secret, by name or by rule.
    pub fn from_env<'a>(env: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut known = Self::default();
        let mut values = Vec::new();
        for (name, value) in env {
            // The name tells, unless the value is a switch, a path or a placeholder.
            if looks_secret(name) && !guard::is_ordinary(value.as_bytes()) {
                known.add(value);
            }
            values.push(value);
        }
        known.add_found_in(values);
        known
    }

    /// The secrets of a task: the secret values of its environment, and what rules find in its arguments. Everything that
    /// prints about a task redacts with these.
    pub fn from_task(env: &[(String, String)], argv: &[String]) -> Self {
        let mut known = Self::from_env(env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        known.add_found_in(argv.iter().map(String::as_str));
        known
    }

    /// Adds what rules find in these texts, in every form. One scan covers all of them.
    pub fn add_found_in<'a>(&mut self, texts: impl IntoIterator<Item = &'a str>) {
        let all: Vec<&str> = texts.into_iter().collect();
        // No text of a request or an environment contains a NUL, and no secret spans one.
        for secret in crate::find_secrets(&all.join("\0")) {
            self.add(&secret);
        }
    }

    /// Adds a value, unless it is too short or too long to be distinguished from other text.
    pub fn add(&mut self, value: &str) {
        if !(MIN_SECRET_BYTES..=MAX_SECRET_BYTES).contains(&value.len()) {
            return;
        }
        let bytes = value.as_bytes();
        self.add_form(bytes.to_vec());
        // The last letter of encoded text depends on what follows. If nothing follows, it is redacted, too.
        self.add_form(general_purpose::STANDARD_NO_PAD.encode(bytes).into_bytes());
        self.add_form(general_purpose::URL_SAFE_NO_PAD.encode(bytes).into_bytes());
        for shift in 0..3 {
            self.add_form(base64_core(&general_purpose::STANDARD_NO_PAD, bytes, shift));
            self.add_form(base64_core(&general_purpose::URL_SAFE_NO_PAD, bytes, shift));
        }
        for form in [
            percent_encode(bytes, false, false),
            percent_encode(bytes, true, false),
            percent_encode(bytes, false, true),
        ] {
            self.add_form(form);
        }
        for form in [json_escape(value, false, false), json_escape(value, true, false), json_escape(value, false, true)]
        {
            self.add_form(form);
        }
        self.add_form(bytes.iter().flat_map(|b| format!("{b:02x}").into_bytes()).collect());
        self.add_form(bytes.iter().flat_map(|b| format!("{b:02X}").into_bytes()).collect());
        self.add_form(value.replace('\'', "'\\''").into_bytes());
    }

    /// Adds a form without line breaks: the search skips them in the text.
    fn add_form(&mut self, mut form: Vec<u8>) {
        form.retain(|b| !matches!(b, b'\n' | b'\r'));
        if form.len() >= MIN_FORM_BYTES {
            self.forms.insert(form);
        }
    }
}

/// The part of a base64 text that does not depend on the bytes around the value, which begins at one of three positions
/// in a group.
fn base64_core(engine: &general_purpose::GeneralPurpose, bytes: &[u8], shift: usize) -> Vec<u8> {
    let padded: Vec<u8> = std::iter::repeat_n(0, shift).chain(bytes.iter().copied()).collect();
    let text = engine.encode(&padded).into_bytes();
    let first = (shift * 8).div_ceil(6);
    let last = padded.len() * 8 / 6;
    text[first.min(last)..last].to_vec()
}

fn percent_encode(bytes: &[u8], lower: bool, form: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for &b in bytes {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(b),
            b' ' if form => out.push(b'+'),
            _ if lower => out.extend(format!("%{b:02x}").bytes()),
            _ => out.extend(format!("%{b:02X}").bytes()),
        }
    }
    out
}

fn json_escape(value: &str, ascii: bool, slash: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '"' | '\\' => out.extend([b'\\', c as u8]),
            '/' if slash => out.extend(b"\\/"),
            '\n' => out.extend(b"\\n"),
            '\r' => out.extend(b"\\r"),
            '\t' => out.extend(b"\\t"),
            c if (c as u32) < 0x20 || ascii && !c.is_ascii() => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.extend(format!("\\u{unit:04x}").bytes());
                }
            }
            c => out.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    out
}
