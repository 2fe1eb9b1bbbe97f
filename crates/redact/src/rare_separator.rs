//! Reads separators of rare notations between a name and its value: brackets of calls, line breaks, words of sentences.

use crate::{
    context::{MAX_BLANKS, SecretName},
    name::NameStrength,
    separator::{MAX_TAG_BYTES, Separator, is_setter},
    value_reader::{BREAK, ValueReader},
    value_syntax::{is_text_next, skip_line_break},
    visible_text::TextView,
};

/// Before a password that a server shows once.
const ANNOUNCEMENT: &[u8] = b"to proceed to installation:";

/// Between the name and the value of a property of C#.
const PROPERTY: &[u8] = b"{ get; set; } = ";

/// The longest text between `password for` and a colon.
const MAX_ANNOUNCEMENT_BYTES: usize = 100;

/// Reads such a separator. The inner `None`: there is none, and the reader has not moved.
pub(crate) fn read_rare_separator(r: &mut ValueReader<'_>, name_info: &SecretName<'_>) -> Option<Option<Separator>> {
    let SecretName { begin, name, strength, opened, closed, blanks, .. } = *name_info;
    if strength < NameStrength::Strong && !name.starts_with(b"-") {
        return Some(None);
    }
    let before = begin.checked_sub(1).and_then(|i| r.view.byte(i));
    let mut value = ValueReader { view: r.view, at: r.at, value: None };
    let separator = match r.peek()? {
        BREAK => read_line_below(&mut value, name_info)?,
        // `Set `NAME` to `V``
        b't' if closed && blanks == 1 && is_text_next(r, b"to ")? => {
            value.at += b"to ".len();
            matches!(value.peek()?, b'"' | b'\'' | b'`').then_some(Separator::Compared)
        }
        _ if closed || strength < NameStrength::Strong => None,
        // `the api_key `V``
        b'`' if blanks > 0 && strength == NameStrength::Password => Some(Separator::Near),
        b'`' if blanks > 0 => Some(Separator::Compared),
        // `public string ApiKey { get; set; } = "V"`
        b'{' if blanks == 1 && is_text_next(r, PROPERTY)? => {
            value.at += PROPERTY.len();
            Some(Separator::Apart)
        }
        // `std::string kApiKey{"V"}`
        b'{' if blanks == 0 => {
            value.at += 1;
            Some(Separator::Compared)
        }
        // `.cohereApiKey("V")`
        b'(' if blanks == 0 && !is_setter(name) && (before == Some(b'.') || name.contains(&b'.')) => {
            value.at += 1;
            matches!(value.peek()?, b'"' | b'\'').then_some(Separator::Compared)
        }
        // `{default_pass,<<"V">>}`
        b',' if blanks == 0 && is_text_next(r, b",<<\"")? => {
            value.at += 3;
            Some(Separator::Apart)
        }
        // `NAME,V`
        b',' if blanks == 0 && !opened && name.contains(&b'_') => {
            value.at += 1;
            (value.peek()? != b' ').then_some(Separator::Compared)
        }
        b't' if blanks == 1 && is_text_next(r, ANNOUNCEMENT)? => {
            value.at += ANNOUNCEMENT.len();
            while value.at - r.at < 2 * MAX_BLANKS && value.peek()? == BREAK && skip_line_break(&mut value)? {}
            Some(Separator::Prose)
        }
        // `password for user bob: V`
        b'f' if blanks == 1 && is_text_next(r, b"for ")? => {
            value.skip(MAX_ANNOUNCEMENT_BYTES, |b| b != b':' && b != BREAK)?;
            let is_named = value.take_byte(b':')?;
            let is_below = is_named && value.peek()? == BREAK && skip_line_break(&mut value)?;
            (is_below || is_named && value.take_byte(b' ')?).then_some(Separator::Prose)
        }
        // `SET PASSWORD FOR 'bob'@'%' = 'V'`
        b'F' if blanks == 1 && is_text_next(r, b"FOR ")? => {
            value.skip(MAX_TAG_BYTES, |b| b != b'=' && b != BREAK)?;
            (value.take_byte(b'=')? && value.take_byte(b' ')?).then_some(Separator::Apart)
        }
        // `DefaultPassword    REG_SZ    V`
        b'R' if blanks > 1 && is_text_next(r, b"REG_SZ ")? => {
            value.at += b"REG_SZ".len();
            Some(Separator::Apart)
        }
        b'S' if is_text_next(r, b"SecureString\t")? => {
            value.at += b"SecureString".len();
            Some(Separator::Apart)
        }
        // `AWS Secret Access Key [None]: V`
        b'[' if blanks == 1 && is_text_next(r, b"[None]: ")? => {
            value.at += b"[None]: ".len();
            Some(Separator::Apart)
        }
        _ => None,
    };
    if separator.is_some() {
        r.at = value.at;
    }
    Some(separator)
}

/// Reads to a value on the line below its name. The inner `None`: there is none.
fn read_line_below(r: &mut ValueReader<'_>, name_info: &SecretName<'_>) -> Option<Option<Separator>> {
    let SecretName { begin, name, strength, closed, .. } = *name_info;
    let certain = strength >= NameStrength::Strong;
    // `>>> name`
    if certain && !closed && line_before(r.view, begin) == b">>>" {
        let quoted = skip_line_break(r)? && matches!(r.peek()?, b'"' | b'\'');
        return Some(quoted.then_some(Separator::Compared));
    }
    // `- --api-key`, and `- V`
    if name.starts_with(b"-") && !closed && line_before(r.view, begin) == b"-" {
        let is_item = skip_line_break(r)?
            && r.skip(2 * MAX_BLANKS, |b| b == b' ')? < 2 * MAX_BLANKS
            && r.take_byte(b'-')?
            && r.take_byte(b' ')?;
        return Some(is_item.then_some(Separator::Blank));
    }
    // `name="x"` of a form, an empty line, and the value.
    if certain && closed && r.view.bytes[..begin].ends_with(b"name=\"") {
        let is_below = skip_line_break(r)? && r.peek()? == BREAK && skip_line_break(r)?;
        return Some(is_below.then_some(Separator::Apart));
    }
    Some(None)
}

/// What precedes a name on its line.
fn line_before(view: TextView<'_>, begin: usize) -> &[u8] {
    view.bytes[view.line_start(begin, MAX_TAG_BYTES)..begin].trim_ascii()
}
