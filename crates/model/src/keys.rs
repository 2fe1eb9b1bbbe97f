//! Keys by name, and the bytes that a terminal sends for them.

use serde::{Deserialize, Serialize};
use std::{borrow::Cow, str::FromStr};

/// One key: a named one or a character, with modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyPress {
    ctrl: bool,
    alt: bool,
    shift: bool,
    base: Base,
}

/// The key modes that the program has set on its terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeyMode {
    /// Arrows as `ESC O A` instead of `ESC [ A`.
    pub application_cursor: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Base {
    Char(char),
    /// Final letter of `ESC [ … X`: arrows, home, end.
    Letter(u8),
    /// `ESC [ n ~`.
    Tilde(u8),
    /// `ESC O X`: the first four function keys.
    Function(u8),
    BackTab,
}

const NAMED: &[(&str, Base)] = &[
    ("enter", Base::Char('\r')),
    ("return", Base::Char('\r')),
    ("tab", Base::Char('\t')),
    ("backtab", Base::BackTab),
    ("escape", Base::Char('\u{1b}')),
    ("esc", Base::Char('\u{1b}')),
    ("space", Base::Char(' ')),
    ("backspace", Base::Char('\u{7f}')),
    ("up", Base::Letter(b'A')),
    ("down", Base::Letter(b'B')),
    ("right", Base::Letter(b'C')),
    ("left", Base::Letter(b'D')),
    ("home", Base::Letter(b'H')),
    ("end", Base::Letter(b'F')),
    ("insert", Base::Tilde(2)),
    ("delete", Base::Tilde(3)),
    ("pageup", Base::Tilde(5)),
    ("pagedown", Base::Tilde(6)),
    ("f1", Base::Function(b'P')),
    ("f2", Base::Function(b'Q')),
    ("f3", Base::Function(b'R')),
    ("f4", Base::Function(b'S')),
    ("f5", Base::Tilde(15)),
    ("f6", Base::Tilde(17)),
    ("f7", Base::Tilde(18)),
    ("f8", Base::Tilde(19)),
    ("f9", Base::Tilde(20)),
    ("f10", Base::Tilde(21)),
    ("f11", Base::Tilde(23)),
    ("f12", Base::Tilde(24)),
];

impl FromStr for KeyPress {
    type Err = String;
    /// Parses `enter`, `ctrl-c`, `alt-left`, `shift-tab` or `q`, in any case. A single character stands for itself.
    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || {
            format!(
                "unknown key `{}`: use a character, a name such as enter, tab, escape, up, pagedown or f5, or one of \
                 them after ctrl-, alt- or shift-",
                crate::DisplaySafe::bounded(text, 40)
            )
        };
        let mut key = KeyPress { ctrl: false, alt: false, shift: false, base: Base::Char('\0') };
        let mut rest = text;
        // A single character is that key, even if it is a dash.
        while rest.chars().nth(1).is_some() {
            let lower = rest.to_ascii_lowercase();
            let (flag, prefix) = if lower.starts_with("ctrl-") {
                (&mut key.ctrl, 5)
            } else if lower.starts_with("alt-") {
                (&mut key.alt, 4)
            } else if lower.starts_with("shift-") {
                (&mut key.shift, 6)
            } else {
                break;
            };
            *flag = true;
            rest = &rest[prefix..];
        }
        let mut chars = rest.chars();
        key.base = match (chars.next(), chars.next()) {
            (Some(c), None) => Base::Char(c),
            _ => {
                let lower = rest.to_ascii_lowercase();
                NAMED.iter().find(|(name, _)| *name == lower).map(|(_, base)| *base).ok_or_else(unknown)?
            }
        };
        match key.base {
            Base::Char('\t') if key.shift => key.base = Base::BackTab,
            Base::Char(c) if key.ctrl && control_byte(c).is_none() => {
                return Err(format!(
                    "`{}` is not a key that a terminal can send",
                    crate::DisplaySafe::bounded(text, 40)
                ));
            }
            _ => {}
        }
        Ok(key)
    }
}

/// The control byte of a character.
fn control_byte(c: char) -> Option<u8> {
    let c = u8::try_from(c).ok()?.to_ascii_uppercase();
    match c {
        b'@'..=b'_' => Some(c & 0x1f),
        b' ' => Some(0),
        b'?' => Some(0x7f),
        // Keys that already are a control character.
        b'\r' | b'\t' | 0x1b | 0x7f => Some(c),
        _ => None,
    }
}

impl KeyPress {
    /// The names of all named keys.
    #[cfg(feature = "schema")]
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// The bytes that a terminal in this mode sends for the key.
    pub fn bytes(self, mode: KeyMode) -> Vec<u8> {
        let modifiers = 1 + u8::from(self.shift) + 2 * u8::from(self.alt) + 4 * u8::from(self.ctrl);
        match self.base {
            Base::Char(c) => {
                let mut out = if self.alt { vec![0x1b] } else { Vec::new() };
                let c = if self.shift { c.to_ascii_uppercase() } else { c };
                match control_byte(c).filter(|_| self.ctrl) {
                    Some(byte) => out.push(byte),
                    None => out.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
                }
                out
            }
            Base::BackTab => b"\x1b[Z".to_vec(),
            Base::Letter(letter) if modifiers > 1 => format!("\x1b[1;{modifiers}{}", char::from(letter)).into_bytes(),
            Base::Letter(letter) => vec![0x1b, if mode.application_cursor { b'O' } else { b'[' }, letter],
            Base::Function(letter) if modifiers > 1 => format!("\x1b[1;{modifiers}{}", char::from(letter)).into_bytes(),
            Base::Function(letter) => vec![0x1b, b'O', letter],
            Base::Tilde(n) if modifiers > 1 => format!("\x1b[{n};{modifiers}~").into_bytes(),
            Base::Tilde(n) => format!("\x1b[{n}~").into_bytes(),
        }
    }
}

impl std::fmt::Display for KeyPress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (pressed, name) in [(self.ctrl, "ctrl-"), (self.alt, "alt-"), (self.shift, "shift-")] {
            f.write_str(if pressed { name } else { "" })?;
        }
        match (NAMED.iter().find(|(_, base)| *base == self.base), self.base) {
            (Some((name, _)), _) => f.write_str(name),
            (None, Base::Char(c)) => write!(f, "{c}"),
            (None, _) => Ok(()),
        }
    }
}

impl Serialize for KeyPress {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyPress {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_the_bytes_that_a_terminal_sends() {
        let normal = KeyMode::default();
        for (name, bytes) in [
            ("enter", "\r"),
            ("Ctrl-C", "\u{3}"),
            ("ctrl-\\", "\u{1c}"),
            ("ctrl-space", "\0"),
            ("alt-x", "\u{1b}x"),
            ("up", "\u{1b}[A"),
            ("ctrl-left", "\u{1b}[1;5D"),
            ("shift-tab", "\u{1b}[Z"),
            ("delete", "\u{1b}[3~"),
            ("shift-f5", "\u{1b}[15;2~"),
            ("f1", "\u{1b}OP"),
            ("-", "-"),
            ("ä", "ä"),
            ("Q", "Q"),
        ] {
            let key: KeyPress = name.parse().unwrap();
            assert_eq!(String::from_utf8(key.bytes(normal)).unwrap(), bytes, "{name}");
            assert_eq!(key.to_string().parse::<KeyPress>().unwrap(), key, "{name}");
        }
        let up: KeyPress = "up".parse().unwrap();
        assert_eq!(up.bytes(KeyMode { application_cursor: true }), b"\x1bOA");
    }

    #[test]
    fn an_unknown_key_is_refused() {
        for bad in ["", "entr", "ctrl-", "ctrl-ä", "ctrl-up-up", "hyper-x"] {
            assert!(bad.parse::<KeyPress>().is_err(), "{bad}");
        }
    }
}
