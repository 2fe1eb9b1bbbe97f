//! Generates examples of secrets. The source tree contains none, so that no scanner reports it, and no example is a real
//! secret.
//!
//! A template is a text with `{class:length}` in it; `{=class:length}` is a public part.

use crate::rules::crc32_base62;

/// A text, and the parts of it that are secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    pub text: String,
    pub secrets: Vec<String>,
}

/// Pseudo-random numbers, the same for the same seed.
struct SeededRandom(u64);

impl SeededRandom {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    fn text(&mut self, alphabet: &[u8], length: usize) -> String {
        (0..length).map(|_| char::from(alphabet[self.below(alphabet.len())])).collect()
    }
}

const ALNUM: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

fn make_part(random: &mut SeededRandom, class: &str, length: usize) -> Option<String> {
    let alphabet: &[u8] = match class {
        "alnum" => ALNUM,
        "digit" => b"0123456789",
        "hex" => b"0123456789abcdef",
        "HEX" => b"0123456789ABCDEF",
        "lower" => b"abcdefghijklmnopqrstuvwxyz",
        "lower_digit" => b"0123456789abcdefghijklmnopqrstuvwxyz",
        "upper" | "bech32" => b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "base32" => b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
        "base58" => b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
        "base64" => b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/",
        "base64url" => b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_",
        "bcrypt" => b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
        "checked" => {
            let body = random.text(ALNUM, length.checked_sub(6)?);
            let sum = crc32_base62(body.as_bytes());
            return Some(body + &String::from_utf8_lossy(&sum));
        }
        "uuid" => {
            let hex = random.text(b"0123456789abcdef", 32);
            return Some([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"));
        }
        _ => return None,
    };
    // A token does not end with a dash: line wrapping breaks there.
    let body = random.text(alphabet, length.checked_sub(1)?);
    let last = random.text(if alphabet.contains(&b'-') { ALNUM } else { alphabet }, 1);
    Some(body + &last)
}

/// Generates the text of a template.
///
/// # Errors
/// Names the part of the template that is invalid.
pub fn expand(template: &str, seed: u64) -> Result<Example, String> {
    let mut random = SeededRandom(seed);
    let (mut text, mut secrets, mut rest) = (String::new(), Vec::new(), template);
    while let Some((before, after)) = rest.split_once('{') {
        text += before;
        let Some((inside, behind)) = after.split_once('}') else {
            return Err(format!("{template:?}: a `{{` has no `}}`"));
        };
        let (public, inside) = inside.strip_prefix('=').map_or((false, inside), |i| (true, i));
        let (class, length) = inside.split_once(':').unwrap_or((inside, "0"));
        let made = length.parse().ok().and_then(|n| make_part(&mut random, class, n));
        match made {
            Some(made) => {
                text += &made;
                if !public {
                    secrets.push(made);
                }
            }
            // Other braces are text.
            None if class.chars().all(|c| c.is_ascii_lowercase() || c == '_') && length != "0" => {
                return Err(format!("{template:?}: there is no class {class:?}"));
            }
            None => text += &format!("{{{inside}}}"),
        }
        rest = behind;
    }
    text += rest;
    Ok(Example { text, secrets })
}
