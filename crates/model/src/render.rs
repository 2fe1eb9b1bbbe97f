//! Output bytes as text beside a `stream.output` frame: complete if they are short, otherwise beginning and end.

use serde::{Deserialize, Serialize};

/// The text of a frame is complete up to this size.
pub const MAX_COMPLETE_BYTES: usize = 8 * 1024;

/// How bytes are written in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

/// The readable part of one chunk of output.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RenderedOutput {
    pub text: String,
    /// `base64` if the bytes are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// How many bytes between beginning and end are not in `text`, and where in `text` they are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted_at: Option<usize>,
    /// Why there is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

impl RenderedOutput {
    /// How many bytes of each end of a long chunk are shown.
    pub const END_BYTES: usize = 2 * 1024;

    /// A chunk of at most [`MAX_COMPLETE_BYTES`] bytes. The caller passes in base64 as `encode`, so that this crate needs no
    /// codec.
    pub fn complete(chunk: &[u8], encode: impl Fn(&[u8]) -> String) -> Self {
        let (text, encoding) = match std::str::from_utf8(chunk) {
            Ok(text) => (text.to_owned(), None),
            Err(_) => (encode(chunk), Some(Encoding::Base64)),
        };
        Self { text, encoding, omitted: None, omitted_at: None, unreadable: None }
    }

    /// A chunk whose bytes cannot be read.
    pub fn unreadable(why: String) -> Self {
        Self { text: String::new(), encoding: None, omitted: None, omitted_at: None, unreadable: Some(why) }
    }

    /// A longer chunk of `len` bytes: its first and last [`RenderedOutput::END_BYTES`] bytes.
    pub fn ends(head: &[u8], tail: &[u8], len: u64, encode: impl Fn(&[u8]) -> String) -> Self {
        // Each end may cut a character in two; the cut halves count as left out.
        let text_of = |bytes: &[u8]| -> Option<String> {
            let lead = bytes.iter().take(3).take_while(|b| (0x80..0xc0).contains(*b)).count();
            match std::str::from_utf8(&bytes[lead..]) {
                Ok(text) => Some(text.to_owned()),
                Err(e) if e.error_len().is_none() => {
                    String::from_utf8(bytes[lead..lead + e.valid_up_to()].to_vec()).ok()
                }
                Err(_) => None,
            }
        };
        match (text_of(head), text_of(tail)) {
            (Some(head), Some(tail)) => Self {
                omitted: Some(len - head.len() as u64 - tail.len() as u64),
                omitted_at: Some(head.len()),
                text: head + &tail,
                encoding: None,
                unreadable: None,
            },
            _ => {
                // A multiple of three, so that the concatenation of both ends is valid base64.
                let (head, tail) = (&head[..head.len() - head.len() % 3], &tail[tail.len() % 3..]);
                let encoded = encode(head);
                Self {
                    omitted: Some(len - head.len() as u64 - tail.len() as u64),
                    omitted_at: Some(encoded.len()),
                    text: encoded + &encode(tail),
                    encoding: Some(Encoding::Base64),
                    unreadable: None,
                }
            }
        }
    }

    /// The line of a record with this text added to it.
    pub fn add_to_line(&self, line: &str) -> String {
        let extra = serde_json::to_string(self).expect("rendered text has string keys");
        [&line[..line.len() - 1], ",", &extra[1..]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    fn ends(chunk: &[u8]) -> RenderedOutput {
        RenderedOutput::ends(
            &chunk[..RenderedOutput::END_BYTES],
            &chunk[chunk.len() - RenderedOutput::END_BYTES..],
            chunk.len() as u64,
            hex,
        )
    }

    #[test]
    fn short_text_is_complete_and_long_text_keeps_both_ends() {
        assert_eq!(RenderedOutput::complete("häh".as_bytes(), hex).text, "häh");
        for pad in ["", "a", "aa"] {
            let long = format!("{pad}{}", "€".repeat(10_000));
            let r = ends(long.as_bytes());
            assert_eq!(r.text.len() as u64 + r.omitted.unwrap(), long.len() as u64);
            assert!(r.text.starts_with(pad) && r.text.trim_start_matches('a').chars().all(|c| c == '€'));
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_encoded() {
        let r = RenderedOutput::complete(&[0xff, 0xfe], hex);
        assert_eq!((r.text.as_str(), r.encoding), ("fffe", Some(Encoding::Base64)));
        let r = ends(&[0xff; 9000]);
        assert_eq!(r.text.len() as u64 / 2 + r.omitted.unwrap(), 9000);
    }

    #[test]
    fn rendered_text_is_added_to_the_line() {
        let line = RenderedOutput::complete(b"x\n", hex).add_to_line(r#"{"v":1,"kind":"stream.output"}"#);
        assert_eq!(line, r#"{"v":1,"kind":"stream.output","text":"x\n"}"#);
    }
}
