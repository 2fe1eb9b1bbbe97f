//! How output bytes are put beside a `stream.output` frame when it is shown: whole when short, else both ends.

use serde::Serialize;

/// Up to this many bytes the text of a frame is whole.
pub const INLINE_WHOLE: usize = 8 * 1024;
const END: usize = 2 * 1024;

/// The readable part of one chunk of output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rendered {
    pub text: String,
    /// `base64` when the bytes are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<&'static str>,
    /// Bytes between head and tail that are not in `text`, and where in `text` they are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted_at: Option<usize>,
}

impl Rendered {
    /// `encode` is base64: the caller brings it, so that this crate needs no codec.
    pub fn of(chunk: &[u8], encode: impl Fn(&[u8]) -> String) -> Self {
        match std::str::from_utf8(chunk) {
            Ok(text) if chunk.len() <= INLINE_WHOLE => {
                Self { text: text.to_owned(), encoding: None, omitted: None, omitted_at: None }
            }
            Ok(text) => {
                let head = &text[..text.floor_char_boundary(END)];
                let tail = &text[text.ceil_char_boundary(text.len() - END)..];
                Self {
                    omitted: Some((chunk.len() - head.len() - tail.len()) as u64),
                    omitted_at: Some(head.len()),
                    text: [head, tail].concat(),
                    encoding: None,
                }
            }
            Err(_) if chunk.len() <= INLINE_WHOLE => {
                Self { text: encode(chunk), encoding: Some("base64"), omitted: None, omitted_at: None }
            }
            Err(_) => {
                // A multiple of three, so that the two ends are base64 together as well as apart.
                let end = END - END % 3;
                let head = encode(&chunk[..end]);
                Self {
                    omitted: Some((chunk.len() - 2 * end) as u64),
                    omitted_at: Some(head.len()),
                    text: head + &encode(&chunk[chunk.len() - end..]),
                    encoding: Some("base64"),
                }
            }
        }
    }

    /// A record's line with the rendered text put in.
    pub fn beside(&self, line: &str) -> String {
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

    #[test]
    fn short_text_is_whole_and_long_text_keeps_both_ends() {
        assert_eq!(Rendered::of("häh".as_bytes(), hex).text, "häh");
        let long = "ä".repeat(10_000);
        let r = Rendered::of(long.as_bytes(), hex);
        assert_eq!(r.text.len() as u64 + r.omitted.unwrap(), 20_000);
        assert!(r.text.chars().all(|c| c == 'ä'));
    }

    #[test]
    fn bytes_that_are_not_text_are_encoded() {
        let r = Rendered::of(&[0xff, 0xfe], hex);
        assert_eq!((r.text.as_str(), r.encoding), ("fffe", Some("base64")));
        let r = Rendered::of(&[0xff; 9000], hex);
        assert_eq!(r.text.len() as u64 / 2 + r.omitted.unwrap(), 9000);
    }

    #[test]
    fn rendered_text_joins_the_line() {
        let line = Rendered::of(b"x\n", hex).beside(r#"{"v":1,"kind":"stream.output"}"#);
        assert_eq!(line, r#"{"v":1,"kind":"stream.output","text":"x\n"}"#);
    }
}
