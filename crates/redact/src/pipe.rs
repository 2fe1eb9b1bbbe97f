//! Finds passwords that a shell passes to the input of a program: `echo V | docker login --password-stdin`, `<<< V`.

use crate::{
    command_line::{self, Argument, Arguments, NextArgument},
    guard,
    span::{Inspection, Rank, Span},
    visible_text::{TextView, is_break},
};

/// What a command contains that reads a password from its input.
const READERS: &[&[u8]] = &[
    b"password-stdin",
    b"--stdin",
    b"chpasswd",
    b"sudo -S",
    b"su -",
    b"--with-token",
    b"secret put",
    b"secret set",
    b"secret create",
    b"secrets set",
    b"secrets create",
    b"passwd",
    b"passphrase-fd",
    b"cryptsetup",
    b"kinit",
    b" login",
    b"gpg --",
    b"-pass stdin",
    b"-passin stdin",
    b"env add",
    b"vault kv",
    b"data-file=-",
    b"ykman",
    b"op signin",
    b"bw unlock",
];
/// How much of a command is read behind the bar.
const MAX_READER_BYTES: usize = 240;

/// Inspects `echo V | …`; `end` is behind the blank.
pub(crate) fn inspect_echo(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let within =
        start.checked_sub(1).and_then(|i| view.byte(i)).is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
    if within {
        return Inspection::Nothing;
    }
    // The blank or quote belongs to the text that is searched for.
    let quoted = matches!(view.bytes[end - 1], b'"' | b'\'');
    let mut arguments = Arguments::new(view, end - usize::from(quoted));
    let is_printf = view.bytes[start] == b'p';
    let mut value = loop {
        match arguments.next() {
            NextArgument::Found(a) => {
                let text = &view.bytes[a.start..a.end];
                let flag = matches!(text, [b'-', b'n' | b'e' | b'E', ..]) && text.len() <= 4;
                let unfinished_flag = !a.whole && matches!(text, b"" | b"-");
                let format = is_printf && matches!(text, b"%s" | b"%s\\n" | b"%s\\\\n");
                if unfinished_flag {
                    return Inspection::Nothing;
                }
                if !(a.whole && (flag || format)) {
                    break a;
                }
            }
            NextArgument::More if arguments.at < view.len() => return Inspection::Open(arguments.at),
            NextArgument::End | NextArgument::More => return Inspection::Nothing,
        }
    };
    let text = &view.bytes[value.start..value.end];
    if text.contains(&b' ') || text.first() == Some(&b'$') || text.first() == Some(&b'-') || text.len() > 512 {
        return Inspection::Nothing;
    }
    if !value.whole {
        return Inspection::Open(value.start);
    }
    if is_printf && text.ends_with(b"\\n") {
        value.end -= 2;
    }
    let blanks = view.bytes[arguments.at..].iter().take(8).take_while(|b| matches!(b, b' ' | b'\t')).count();
    let bar = arguments.at + blanks;
    match (view.byte(bar), view.byte(bar + 1)) {
        (Some(b'|'), Some(b'|')) => return Inspection::Nothing,
        (Some(b'|'), _) => {}
        (None, _) if !view.end && !view.is_moved_at(bar) => return Inspection::Open(value.start),
        _ => return Inspection::Nothing,
    }
    let rest = &view.bytes[bar + 1..view.len().min(bar + 1 + MAX_READER_BYTES)];
    let stop = rest.iter().position(|b| is_break(*b) || *b == b';');
    let ended = stop.is_some() || rest.len() == MAX_READER_BYTES || view.end;
    let rest = &rest[..stop.unwrap_or(rest.len())];
    // Which program reads it decides what of it is secret, so the whole command is needed.
    if !ended {
        return Inspection::Open(value.start);
    }
    let reads = READERS.iter().any(|r| memchr::memmem::find(rest, r).is_some());
    if reads { take(view, value, rest) } else { Inspection::Nothing }
}

/// Inspects the word behind `<<<`.
pub(crate) fn inspect_here_string(view: TextView<'_>, start: usize, end: usize) -> Inspection {
    let command = &view.bytes[command_line::command_start(view, start)..start];
    if !READERS.iter().any(|r| memchr::memmem::find(command, r).is_some()) {
        return Inspection::Nothing;
    }
    let mut arguments = Arguments::new(view, end);
    match arguments.next() {
        // An escape has begun.
        NextArgument::More if arguments.at < view.len() => Inspection::Open(arguments.at),
        NextArgument::Found(value) if value.whole => take(view, value, command),
        NextArgument::Found(value) if value.start < view.len() => Inspection::Open(value.start),
        _ => Inspection::Nothing,
    }
}

fn take(view: TextView<'_>, value: Argument, reader: &[u8]) -> Inspection {
    let text = &view.bytes[value.start..value.end];
    let pair = memchr::memmem::find(reader, b"chpasswd").is_some();
    let start = match text.iter().position(|b| *b == b':') {
        Some(n) if pair => value.start + n + 1,
        _ if pair => return Inspection::Nothing,
        _ => value.start,
    };
    let secret = &view.bytes[start..value.end];
    // Plain words are answers: `echo yes | …`.
    let answer = secret.len() < 6 || secret.iter().all(u8::is_ascii_lowercase) && secret.len() < 8;
    if answer || !command_line::is_argument_secret(secret) || guard::is_code_like(secret) {
        return Inspection::Nothing;
    }
    Inspection::Found(Span::new(start, value.end, "command-password", Rank::Context))
}
