//! Decides whether the value of a telling name is a secret, or a word, a type, a variable, a call or a placeholder.
use crate::{
    generated::{Composition, capitalised_letters, looks_generated, spoken_letters},
    name::NameStrength,
    rules::has_entropy,
    shape::looks_random,
    words::{ALGORITHM_WORDS, PATH_WORDS, PLACEHOLDER_WORDS, UI_WORDS},
};
use std::{collections::HashSet, sync::OnceLock};

/// How a value is written.
#[derive(Debug)]
pub(crate) struct ValueSetting {
    pub(crate) quoted: bool,
    /// In a place for values rather than for expressions.
    pub(crate) plain: bool,
    pub(crate) spaced: bool,
    /// The byte behind it.
    pub(crate) follows: u8,
    /// `name=value` without blanks.
    pub(crate) shell: bool,
    /// An assignment of a shell: the value ends with a blank.
    pub(crate) alone: bool,
    /// The line above names a user.
    pub(crate) paired: bool,
}

fn is_word(value: &str) -> bool {
    static BUILT: OnceLock<HashSet<&'static str>> = OnceLock::new();
    BUILT.get_or_init(|| PLACEHOLDER_WORDS.split_ascii_whitespace().collect()).contains(value)
}

/// Whether a value is written in place of a secret.
pub(crate) fn is_placeholder(value: &[u8]) -> bool {
    let Some(first) = value.first() else { return true };
    if value.iter().all(|b| b == first)
        || value.starts_with(b"[redacted:")
        || memchr::memmem::find(value, b"[redacted:").is_some()
    {
        return true;
    }
    // Variables and templates; a dollar inside a value belongs to the value.
    let closed = |open: &[u8], close: &[u8]| value.starts_with(open) && memchr::memmem::find(value, close).is_some();
    let pairs: [(&[u8], &[u8]); 10] = [
        (b"[", b"]"),
        (b"${", b"}"),
        (b"$(", b")"),
        (b"{{", b"}}"),
        (b"<", b">"),
        (b"%(", b")"),
        (b"%{", b"}"),
        (b"#{", b"}"),
        (b"{", b"}"),
        (b"@@", b"@@"),
    ];
    if pairs.iter().any(|(open, close)| closed(open, close))
        || value.starts_with(b"${")
        || value.starts_with(b"$(")
        || matches!(value, b"%s" | b"%d" | b"%v")
    {
        return true;
    }
    if *first == b'$' && is_variable(&value[1..]) {
        return true;
    }
    let lower = value.to_ascii_lowercase();
    let has = |part: &[u8]| memchr::memmem::find(&lower, part).is_some();
    let parts = [
        &b"xxxxxx"[..],
        b"your_",
        b"your-",
        b"example",
        b"placeholder",
        b"changeme",
        b"change-me",
        b"change_me",
        b"....",
        b"****",
        b"redacted",
        b"-here",
        b"_here",
        b" here",
        b"scrubbed",
    ];
    let words = [&b"your"[..], b"dummy", b"insert", b"replace", b"xxxx"];
    if parts.iter().any(|p| has(p)) || !value.iter().any(u8::is_ascii_digit) && words.iter().any(|w| has(w)) {
        return true;
    }
    std::str::from_utf8(&lower).is_ok_and(|v| is_word(v.trim_matches(['!', '?', '.', ',', ';', ':', '[', ']'])))
}

/// A name of one case, numbered at most at its end.
fn is_variable(name: &[u8]) -> bool {
    let body = name.len() - name.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let body = &name[..body];
    let letters = body.iter().all(|b| b.is_ascii_alphabetic() || *b == b'_');
    letters && !body.is_empty() && (is_camel_case(body) || body.contains(&b'_'))
}

/// Whether this is code: a call, a link or a name.
pub(crate) fn is_code(value: &[u8]) -> bool {
    value.contains(&b'(') || memchr::memmem::find(value, b"://").is_some() || is_wordy(value)
}

fn is_hex(value: &[u8]) -> bool {
    value.len() >= 8 && value.iter().all(u8::is_ascii_hexdigit)
}

pub(crate) fn is_uuid(value: &[u8]) -> bool {
    value.len() == 36
        && value
            .iter()
            .enumerate()
            .all(|(i, b)| if matches!(i, 8 | 13 | 18 | 23) { *b == b'-' } else { b.is_ascii_hexdigit() })
}

/// A path, or a file's name.
fn is_path(value: &[u8]) -> bool {
    let rooted = value.starts_with(b"/")
        || value.starts_with(b"./")
        || value.starts_with(b"../")
        || value.starts_with(b"~/")
        || value.get(1..3) == Some(b":\\");
    let parts = value.split(|b| *b == b'/');
    let wordy = |p: &[u8]| p.len() <= 32 && !looks_random(p);
    rooted && value.contains(&b'/') && parts.clone().all(wordy)
        || value.contains(&b'/')
            && !value.ends_with(b"=")
            && parts.clone().count() >= 2
            && parts.clone().all(|p| wordy(p) && p.len() < 24)
        || memchr::memmem::find(value, b"://").is_some()
        || memchr::memmem::find(value, b".html#").is_some()
        || [
            &b".pem"[..],
            b".key",
            b".crt",
            b".pub",
            b".json",
            b".yaml",
            b".yml",
            b".toml",
            b".txt",
            b".rs",
            b".py",
            b".js",
            b".ts",
            b".go",
            b".c",
            b".h",
            b".html",
            b".png",
            b".svg",
            b".css",
        ]
        .iter()
        .any(|e| value.ends_with(e))
}

/// A path without a sign of what it is: parts that are words, or a dot, beside slashes.
pub(crate) fn is_file_path(value: &[u8]) -> bool {
    value.contains(&b'/') && (value.contains(&b'.') || spoken_letters(value) * 3 > value.len())
}

/// Words joined as in a name: `my-app-secret-v2`, `fooBarBaz`, `config.password`, `Token`.
fn is_wordy(value: &[u8]) -> bool {
    value.iter().all(|b| {
        b.is_ascii_alphanumeric()
            || matches!(
                b,
                b'-' | b'_' | b'.' | b':' | b'/' | b' ' | b'*' | b'&' | b'!' | b'?' | b'+' | b'%' | b'\'' | b','
            )
            || !b.is_ascii()
    }) && value.split(|b| !b.is_ascii_alphanumeric()).all(|segment| {
        let digits = segment.iter().filter(|b| b.is_ascii_digit()).count();
        let letters = segment.len() - digits;
        let trailing = segment.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        let leading = segment.iter().take_while(|b| b.is_ascii_digit()).count();
        let at_edge = digits == trailing.max(leading);
        let fits = letters == 0 && digits <= 4 || digits == 0 || at_edge && digits <= 3 && letters > digits;
        fits && is_camel_case(segment) && is_pronounceable(segment)
    })
}

/// A part of the path of a type: `serde_json`.
fn is_wordy_part(part: &[u8]) -> bool {
    is_wordy(part.strip_prefix(b"$").unwrap_or(part))
}

/// Whether letters could be words: words have no six consonants in a row, and have vowels.
fn is_pronounceable(segment: &[u8]) -> bool {
    let letters: Vec<u8> = segment.iter().filter(|b| b.is_ascii_alphabetic()).copied().collect();
    let vowel = |b: &u8| matches!(b.to_ascii_lowercase(), b'a' | b'e' | b'i' | b'o' | b'u' | b'y');
    let vowels = letters.iter().filter(|b| vowel(b)).count();
    if letters.len() < 12 {
        return letters.len() < 7 || vowels > 0;
    }
    // Consonants meet where two words do: `PasswordMgrWith`.
    let (mut longest, mut run, mut before) = (0, 0, b'A');
    for b in &letters {
        run = if vowel(b) { 0 } else { run + 1 };
        if before.is_ascii_lowercase() && b.is_ascii_uppercase() {
            run = run.min(1);
        }
        longest = longest.max(run);
        before = *b;
    }
    longest < 6 && vowels * 5 >= letters.len() && vowels * 3 <= letters.len() * 2
}

/// Whether capitals are only at the beginnings of words, or everywhere.
fn is_camel_case(segment: &[u8]) -> bool {
    let upper = segment.iter().filter(|b| b.is_ascii_uppercase()).count();
    let lower = segment.iter().filter(|b| b.is_ascii_lowercase()).count();
    if lower == 0 || upper * 3 <= lower + 2 {
        return true;
    }
    let words = 1 + segment.windows(2).filter(|w| w[0].is_ascii_lowercase() && w[1].is_ascii_uppercase()).count();
    let longest = segment.split(|b| !b.is_ascii_lowercase()).map(<[u8]>::len).max().unwrap_or(0);
    (upper + lower) / words >= 4 && longest >= 4
}

/// Whether a value is an expression rather than text: a call, a member, a number, an operator.
fn is_expression(value: &[u8], setting: &ValueSetting) -> bool {
    if setting.quoted || is_generated_password(value) {
        return false;
    }
    let number = value.iter().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-' | b'x' | b'+'));
    let operator = matches!(
        value[0],
        b'&' | b'*' | b'!' | b'-' | b'=' | b'?' | b'|' | b'~' | b'^' | b'\\' | b'%' | b'.' | b'@' | b'#'
    );
    let call = matches!(setting.follows, b'(' | b'[') || setting.follows == b'{' && !setting.shell;
    let generic =
        !setting.plain && setting.follows == b'<' && !looks_random(value) || setting.follows == b'>' && setting.spaced;
    // `certs[0][2]`, `request.key):`
    let name = value.iter().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.')).count();
    let indexed = name > 0 && matches!(value.get(name), Some(b'[' | b'('));
    let closes = value.contains(&b')') && !value.contains(&b'(') || !setting.quoted && value[0] == b'(';
    // `withCredentials = _config$withCr`, `token=result.status===…`
    let variable = setting.spaced && !setting.plain && value[0] == b'_' && is_name_of_variable(value);
    indexed
        || closes
        || call
        || variable
        || memchr::memmem::find(value, b"===").is_some()
        || generic
        || (number && !setting.plain && !setting.shell)
        || (operator && !setting.plain && !(b"#%^~".contains(&value[0]) && is_clear_password(value)))
        || memchr::memmem::find(value, b"::").is_some()
        || memchr::memmem::find(value, b"->").is_some()
}

fn is_name_of_variable(value: &[u8]) -> bool {
    value.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$' | b'.'))
}

/// Whether the letters of a value are a part of its name: `#define TXT_kRSAPSK "kRSAPSK"`.
fn repeats_name(name: &[u8], value: &[u8]) -> bool {
    let letters = |text: &[u8]| -> Vec<u8> {
        text.iter().filter(|b| b.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).collect()
    };
    let (name, value) = (letters(name), letters(value));
    !value.is_empty() && memchr::memmem::find(&name, &value).is_some()
}

/// A day, with or without a time: `2026-11-18T11:02:59Z`.
pub(crate) fn is_time(value: &[u8]) -> bool {
    let shape = b"0000-00-00";
    value.len() >= shape.len()
        && value.iter().zip(shape).all(|(b, like)| if *like == b'0' { b.is_ascii_digit() } else { b == like })
        && value.get(shape.len()).is_none_or(|b| matches!(b, b'T' | b't' | b' ' | b'_'))
}

/// A member of a module or an object: `ed25519.Ed25519PrivateKey`.
pub(crate) fn is_member(value: &[u8]) -> bool {
    let is_name = |part: &[u8]| {
        part.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
            && part.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
            && (part.len() < 8
                || !looks_generated(part)
                    && (is_wordy(part)
                        || capitalised_letters(part) * 3
                            >= part.iter().filter(|b| b.is_ascii_alphabetic()).count() * 2))
    };
    value.contains(&b'.') && value.split(|b| *b == b'.').all(is_name)
}

/// Whether a value is no secret whatever its name says: a resource, a list, a time, a version, a number.
fn is_other_text(name: &[u8], value: &[u8], setting: &ValueSetting) -> bool {
    // The name of a resource; a letter as JSON writes it; a path; a value that repeats its name.
    let slashes = value.iter().filter(|b| **b == b'/').count();
    let names_directory = [&b"pwd"[..], b"oldpwd"].iter().any(|n| name.eq_ignore_ascii_case(n));
    let is_rooted = value.starts_with(b"/") || value.starts_with(b"~") || value.get(1) == Some(&b':');
    if names_directory && is_rooted
        || value.starts_with(b"arn:")
        || value.starts_with(b"\\u")
        || value.starts_with(b"/") && slashes >= 3 && value.contains(&b'.')
        || repeats_name(name, value)
    {
        return true;
    }
    // A list of names: `'OPTION_PASSWORD', 'OPTION_DATA'`; a pattern: `r'(?:x)'`.
    let is_name = |b: &u8| b.is_ascii_uppercase() || matches!(b, b'_' | b'*' | b'/');
    if setting.quoted && !setting.shell && name.iter().chain(value).all(is_name) || value.starts_with(b"(?") {
        return true;
    }
    let is_type = memchr::memmem::find(value, b"::").is_some() && value.split(|b| *b == b':').all(is_wordy_part);
    if is_time(value)
        || is_type
        || !setting.quoted && is_member(value) && !is_numbered_phrase(value) && !is_word_beside_number(value)
    {
        return true;
    }
    // `"some-pass": "^7.1.2"`
    let version = value.iter().all(|b| b.is_ascii_digit() || b".^~><=v* |-".contains(b));
    if version && value.contains(&b'.') {
        return true;
    }
    // `MASK_PASS = 0x0100`
    if value.len() <= 10 && value.starts_with(b"0x") && value[2..].iter().all(u8::is_ascii_hexdigit) {
        return true;
    }
    false
}

/// Whether a value is a secret, given the strength of its name and how it is written.
pub(crate) fn is_secret(strength: NameStrength, name: &[u8], value: &[u8], setting: &ValueSetting) -> bool {
    if value.len() < 4 || is_placeholder(value) || is_expression(value, setting) {
        return false;
    }
    if strength >= NameStrength::Fair
        && (is_generated_password(value) || is_bootstrap_token(value) || is_keychain_password(value))
    {
        return true;
    }
    if is_other_text(name, value, setting) {
        return false;
    }
    let password = strength == NameStrength::Password;
    let scrambled = setting.quoted && is_scrambled(value);
    let drive = matches!(value, [letter, b':', b'\\' | b'/', ..] if letter.is_ascii_alphabetic());
    let rooted = value.starts_with(b"/")
        || value.starts_with(b"./")
        || value.starts_with(b"~/")
        || memchr::memmem::find(value, b"://").is_some();
    if drive || is_path(value) && (!password || rooted) && !scrambled {
        return false;
    }
    let digits = value.iter().filter(|b| b.is_ascii_digit()).count();
    let letters = value.iter().filter(|b| b.is_ascii_alphabetic()).count();
    let blanks = value.iter().filter(|b| **b == b' ').count();
    let groups =
        || value.split(|b| *b == b' ').all(|group| group.len() == 4 && group.iter().all(u8::is_ascii_alphanumeric));
    if password && blanks == 5 && groups() && digits > 0 {
        return true;
    }
    // Blanks: a sentence.
    if blanks >= 11 && is_mnemonic(name, value) {
        return true;
    }
    if blanks > 0 && !scrambled && (!password || blanks > 6 || digits == 0 && blanks < 3) {
        return false;
    }
    let wordy = is_wordy(value);
    match strength {
        NameStrength::None => false,
        NameStrength::Random => is_random_value(name, value, setting),
        NameStrength::Password if is_short_name(name) && !is_salted_word(value) && !is_chosen_password(value) => false,
        NameStrength::Password if digits == value.len() => setting.plain && digits >= 4 || setting.shell && digits >= 6,
        NameStrength::Password if !wordy => {
            setting.plain || value.len() >= 6 && (digits > 0 && letters > 0 || looks_random(value))
        }
        NameStrength::Password => is_password_of_words(name, value, digits, setting),
        NameStrength::Fair if is_uuid(value) => setting.shell && setting.plain,
        NameStrength::Fair if is_hex(value) => setting.plain && value.len() >= 32,
        NameStrength::Fair | NameStrength::Strong => {
            // `crimson-otter-9417`
            let is_phrase = is_numbered_words(value) || is_numbered_phrase(value);
            if strength == NameStrength::Strong && is_phrase && (setting.plain || setting.shell) {
                return true;
            }
            if digits == value.len() || wordy && !is_hex(value) && !is_uuid(value) {
                return false;
            }
            let mixed = digits > 0 && letters > 0;
            let strong = mixed && value.len() >= 8
                || value.len() >= 16 && has_entropy(value, 3.0)
                || value.len() >= 10 && Composition::of(value).changes >= 4;
            strong
                && (setting.plain
                    || setting.shell && mixed && is_token_like(value)
                    || value.len() >= 10 && is_random_token(value)
                    || value.len() >= 16 && has_entropy(value, 3.0))
                && (scrambled || !value.iter().any(|b| matches!(b, b'*' | b'<' | b'>')))
        }
        NameStrength::Weak => {
            // `?key=V`
            if setting.shell && setting.plain && !setting.quoted && is_hex(value) {
                return value.len() >= 32 && digits >= 4 && digits < value.len();
            }
            let is_token = value.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'='));
            let is_random =
                digits >= 2 && letters > 0 && value.len() >= 16 && looks_random(value) && has_entropy(value, 3.5);
            is_token && is_random && !is_hex(value) && !is_uuid(value) && !wordy && setting.plain
        }
    }
}

/// Plain words are a password only in a place for values, and only if they do not repeat the name.
fn is_password_of_words(name: &[u8], value: &[u8], digits: usize, setting: &ValueSetting) -> bool {
    let is_upper_case = !name.iter().any(u8::is_ascii_lowercase);
    if setting.alone && is_upper_case && !setting.quoted {
        return value.len() >= 6;
    }
    let words = [
        "pass", "passwd", "password", "pwd", "secret", "token", "key", "cred", "user", "login", "auth", "str",
        "config", "setting", "param",
    ];
    let lower = value.to_ascii_lowercase();
    let own = words.iter().any(|w| lower.starts_with(w.as_bytes()) || lower.ends_with(w.as_bytes()));
    let segments = value.split(|b| !b.is_ascii_alphanumeric()).filter(|s| !s.is_empty()).count();
    let config =
        setting.plain && (!setting.quoted || segments >= 3) && !setting.spaced || is_upper_case && setting.plain;
    let numbered = setting.plain && digits > 0 && segments == 1;
    let is_value = setting.plain || setting.shell || setting.quoted || setting.paired;
    if is_app_password(value)
        || setting.follows == b'\n' && is_chosen_password(value)
        || is_value && (is_chosen_password(value) || is_human_password(value))
    {
        return true;
    }
    let is_sum = value.iter().any(|b| matches!(b, b'*' | b'%'));
    if (setting.plain || setting.shell || setting.paired || !is_sum && matches!(setting.follows, b' ' | b'\n'))
        && is_salted_phrase(value)
    {
        return true;
    }
    if !setting.quoted && matches!(setting.follows, b' ' | b'\n') && is_word_with_number(value) {
        return true;
    }
    // Below the name of a user.
    if setting.paired && value.len() >= 6 && value.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_') {
        return true;
    }
    if is_passphrase(value) && (setting.plain || setting.quoted || !value.contains(&b'_')) {
        return true;
    }
    !own && value.len() >= 6 && (numbered || config && value.is_ascii() && !value.contains(&b'.'))
}

/// A password that a generator made of words or of small letters: `frozen-falcon-otter-quiet`, `badger quiet frozen 36`,
/// `jcuwgdmaahfqhhej`.
fn is_chosen_password(value: &[u8]) -> bool {
    let words = |sign: u8| -> Vec<&[u8]> { value.split(|b| *b == sign).collect() };
    let is_word = |word: &&[u8]| (4..=10).contains(&word.len()) && word.iter().all(u8::is_ascii_lowercase);
    let is_telling = |word: &&[u8]| UI_WORDS.split_ascii_whitespace().any(|w| w.as_bytes() == *word);
    let (dashed, spaced) = (words(b'-'), words(b' '));
    let is_number = |word: &[u8]| (2..=4).contains(&word.len()) && word.iter().all(u8::is_ascii_digit);
    dashed.len() >= 4 && dashed.iter().all(is_word) && !dashed.iter().any(is_telling)
        || spaced
            .split_last()
            .is_some_and(|(last, rest)| rest.len() >= 3 && is_number(last) && rest.iter().all(is_word))
        || value.len() >= 12 && value.iter().all(u8::is_ascii_lowercase) && spoken_letters(value) == 0
}

/// Whether a value reads as a password even in an expression.
pub(crate) fn is_clear_password(value: &[u8]) -> bool {
    is_generated_password(value) || is_keychain_password(value) || is_numbered_phrase(value) || is_human_password(value)
}

/// Words with signs and numbers among them, as people choose passwords: `chelsea!8353`, `la bella Piano 77`,
/// `%Meadow!Piano43`.
fn is_human_password(value: &[u8]) -> bool {
    if !(8..=48).contains(&value.len()) {
        return false;
    }
    let words = || value.split(|b| b.is_ascii() && !b.is_ascii_alphabetic()).filter(|word| word.len() > 1);
    let tells = |word: &[u8]| {
        let lower = word.to_ascii_lowercase();
        is_algorithm(&lower)
            || [UI_WORDS, PLACEHOLDER_WORDS, PATH_WORDS]
                .iter()
                .any(|list| list.split_ascii_whitespace().any(|other| other.as_bytes() == lower))
    };
    let letters: usize = words().map(<[u8]>::len).sum();
    let digits = value.iter().filter(|b| b.is_ascii_digit()).count();
    let blanks = value.iter().filter(|b| **b == b' ').count();
    let signs = value.iter().filter(|b| b.is_ascii_punctuation() && **b != b'_').count();
    let slashes = value.iter().filter(|b| matches!(b, b'/' | b'.')).count();
    let capitals = value.iter().filter(|b| b.is_ascii_uppercase()).count();
    if letters < 4 || words().any(tells) {
        return false;
    }
    if blanks > 0 {
        // Three words and a number.
        let last = value.rsplit(|b| *b == b' ').next().unwrap_or_default();
        let is_number = (2..=4).contains(&last.len()) && last.iter().all(u8::is_ascii_digit);
        return is_number && (2..=5).contains(&blanks) && digits == last.len() && signs == 0;
    }
    let rare = signs - slashes.min(signs) - value.iter().filter(|b| **b == b'-').count();
    let foreign = value.iter().any(|b| !b.is_ascii());
    (digits >= 2 && (1..=4).contains(&signs) && slashes <= 1)
        || foreign && (digits >= 1 || rare >= 1)
        || rare >= 1 && capitals >= 1 && words().count() >= 2 && slashes == 0
}

/// Words with a number and a sign behind them, as people choose passwords: `Winter2026!`, `RustyFalcon46`.
fn is_salted_phrase(value: &[u8]) -> bool {
    let letters = value.iter().take_while(|b| b.is_ascii_alphabetic()).count();
    let (letters, rest) = value.split_at(letters);
    let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let signs = &rest[digits..];
    let words = letters.windows(2).filter(|w| w[0].is_ascii_lowercase() && w[1].is_ascii_uppercase()).count() + 1;
    let is_words = letters.first().is_some_and(u8::is_ascii_uppercase)
        && letters.last().is_some_and(u8::is_ascii_lowercase)
        && words == letters.iter().filter(|b| b.is_ascii_uppercase()).count();
    let marked = !signs.is_empty() && signs.iter().all(|b| b"!?*#$@%^&+".contains(b));
    // `Kaffee&Kuchen7`, `iloveyou!2`, `8Pferde+Wagen`
    if is_numbered_phrase(value) || is_word_beside_number(value) {
        return true;
    }
    let is_sign = |b: &u8| b"!?*&+%#$^~@_.-".contains(b);
    let count = |of: &dyn Fn(&u8) -> bool| value.iter().filter(|b| of(b)).count();
    let joined = value.iter().all(|b| b.is_ascii_alphanumeric() || is_sign(b))
        && count(&is_sign) >= 1
        && count(&u8::is_ascii_digit) >= 1
        && count(&u8::is_ascii_alphabetic) >= 5
        && value.iter().any(|b| b"!?*&+%#^~".contains(b))
        && !value.ends_with(b"&")
        && (value[0].is_ascii_alphanumeric() || matches!(value[0], b'#' | b'^' | b'~' | b'+' | b'%'));
    if joined {
        return true;
    }
    letters.len() >= 4
        && !is_algorithm(&value[..letters.len() + digits])
        && (marked && digits >= 1 && is_words || matches!(signs, [] | [b'.']) && digits >= 2 && is_words && words >= 2)
}

/// Words joined by a sign, the last one with a number: `Velvet.Marble88`, `orchid-falcon-quartz5`, `otter_river_42`.
fn is_numbered_phrase(value: &[u8]) -> bool {
    const OTHER: &[&[u8]] =
        &[b"pass", b"secret", b"token", b"config", b"value", b"param", b"option", b"server", b"version"];
    let Some(sign) = value.iter().copied().find(|b| matches!(b, b'.' | b'-' | b'_' | b'+' | b' ' | b'/')) else {
        return false;
    };
    let digits = value.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    let words: Vec<&[u8]> =
        value[..value.len() - digits].split(|b| *b == sign).filter(|word| !word.is_empty()).collect();
    let is_word = |word: &&[u8]| {
        (3..=12).contains(&word.len())
            && (word[0].is_ascii_alphabetic() || !word[0].is_ascii())
            && word[1..].iter().all(|b| b.is_ascii_lowercase() || !b.is_ascii())
            && !is_algorithm(word)
            && !UI_WORDS.split_ascii_whitespace().any(|other| word.eq_ignore_ascii_case(other.as_bytes()))
            && !OTHER.iter().any(|other| memchr::memmem::find(&word.to_ascii_lowercase(), other).is_some())
    };
    let capitals = words.iter().filter(|word| word.first().is_some_and(u8::is_ascii_uppercase)).count();
    (1..=4).contains(&digits)
        && words.iter().all(is_word)
        && (words.len() >= 3 || words.len() == 2 && capitals >= 1 && sign != b' ')
}

/// Two words, a number behind the first, and a sign between them: `gildZ82.Ridge`, `hollW44=Kestrel`.
fn is_word_beside_number(value: &[u8]) -> bool {
    let letters = value.iter().take_while(|b| b.is_ascii_alphabetic()).count();
    let digits = value[letters..].iter().take_while(|b| b.is_ascii_digit()).count();
    let Some((sign, rest)) = value[letters + digits..].split_first() else { return false };
    (4..=10).contains(&letters)
        && (2..=4).contains(&digits)
        && b"._=?!-+#@%&*".contains(sign)
        && (4..=10).contains(&rest.len())
        && rest.iter().all(u8::is_ascii_alphabetic)
        && value.iter().any(u8::is_ascii_uppercase)
        && !is_algorithm(&value[..letters])
        && !is_algorithm(&value[..letters + digits])
        && !UI_WORDS.split_ascii_whitespace().any(|other| rest.eq_ignore_ascii_case(other.as_bytes()))
}

/// A text that a generator of passwords made: letters, digits and several signs mixed, and no words.
pub(crate) fn is_generated_password(value: &[u8]) -> bool {
    const SIGNS: &[u8] = b"!#$%&()*+,-./:;<=>?@[]^_{|}~";
    let counted = Composition::of(value);
    let letters = counted.lower + counted.upper;
    let signs: HashSet<u8> = value.iter().copied().filter(|b| SIGNS.contains(b)).collect();
    let rare = signs.iter().filter(|b| b"!#%^*?@~|+$=&;".contains(b)).count();
    let kinds =
        value.windows(2).filter(|pair| pair[0].is_ascii_alphanumeric() != pair[1].is_ascii_alphanumeric()).count();
    value.len() >= 12
        && value.iter().all(|b| b.is_ascii_alphanumeric() || SIGNS.contains(b))
        && counted.digits >= 1
        && letters >= 4
        && (signs.len() >= 2 || value.len() >= 14 && counted.changes * 3 >= value.len())
        && rare >= 1
        && kinds + counted.changes >= value.len() / 3
        && spoken_letters(value) * 3 <= value.len()
        && !value.windows(2).any(|pair| matches!(pair, b"()" | b"${" | b"{{" | b"$(" | b"//" | b"=="))
        && !is_placeholder(value)
        && has_entropy(value, 3.0)
}

/// A token with which a machine joins a Kubernetes cluster: `abc123.0123456789abcdef`.
fn is_bootstrap_token(value: &[u8]) -> bool {
    let is_part = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    value.len() == 23
        && value[6] == b'.'
        && value[..6].iter().chain(&value[7..]).all(is_part)
        && value[7..].iter().filter(|b| b.is_ascii_digit()).count() >= 2
}

/// `hunter2`: small letters and a number, and no word of a program.
pub(crate) fn is_word_with_number(value: &[u8]) -> bool {
    const OTHER: &[&[u8]] = &[b"pass", b"user", b"test", b"string", b"token", b"secret", b"value", b"param", b"option"];
    let letters = value.iter().take_while(|b| b.is_ascii_lowercase()).count();
    let digits = value.len() - letters;
    (5..=12).contains(&letters)
        && (1..=4).contains(&digits)
        && value[letters..].iter().all(u8::is_ascii_digit)
        && !is_algorithm(value)
        && !is_algorithm(&value[..letters])
        && !OTHER.iter().any(|word| memchr::memmem::find(value, word).is_some())
}

/// Four groups of four letters, as Apple and others generate them for one program: `abcd-efgh-ijkl-mnop`.
fn is_app_password(value: &[u8]) -> bool {
    is_keychain_password(value)
        || value.len() == 16 && value.iter().all(u8::is_ascii_lowercase) && spoken_letters(value) < 12
        || value.len() == 19
            && value.split(|b| *b == b'-').all(|part| part.len() == 4 && part.iter().all(u8::is_ascii_lowercase))
}

/// Three groups of six letters with one digit and one capital, as Apple generates passwords: `tdjlni-argbia-Wuax24`.
fn is_keychain_password(value: &[u8]) -> bool {
    value.len() == 20
        && value.split(|b| *b == b'-').map(<[u8]>::len).eq([6, 6, 6])
        && value.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
        && (1..=2).contains(&value.iter().filter(|b| b.is_ascii_digit()).count())
}

/// Words joined by dashes, with a number: `crimson-otter-9417`. Names of algorithms and versions are no passphrases.
fn is_passphrase(value: &[u8]) -> bool {
    let segments = || value.split(|b| matches!(b, b'-' | b'_')).filter(|s| !s.is_empty());
    let digits = value.iter().filter(|b| b.is_ascii_digit()).count();
    value.len() >= 10
        && digits >= 2
        && segments().count() >= 2
        && value.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'!' | b'+'))
        // A constant: `PKCS11_DEFAULT_PROMPT`.
        && (value.iter().any(u8::is_ascii_lowercase) || !value.contains(&b'_'))
        && value.iter().filter(|b| b.is_ascii_alphabetic()).count() >= 4
        && !segments().any(is_algorithm)
}

fn is_algorithm(word: &[u8]) -> bool {
    let lower = word.to_ascii_lowercase();
    std::str::from_utf8(&lower).is_ok_and(|word| ALGORITHM_WORDS.split_ascii_whitespace().any(|w| w == word))
}

/// Whether a password is so distinct that it is one wherever it stands: digits, and signs or letters of both cases, and no
/// name, time or algorithm.
pub(crate) fn is_distinct_password(value: &[u8]) -> bool {
    let counted = Composition::of(value);
    let signs = value.len() - counted.digits - counted.lower - counted.upper;
    counted.digits >= 1
        && (signs > 0 || counted.changes >= 3)
        && !is_time(value)
        && !is_member(value)
        && !value.split(|b| !b.is_ascii_alphanumeric()).any(is_algorithm)
}

/// Words and a number, as generators of passphrases write them.
fn is_numbered_words(value: &[u8]) -> bool {
    let mut segments: Vec<&[u8]> = value.split(|b| *b == b'-').collect();
    let Some(number) = segments.pop() else { return false };
    is_passphrase(value)
        && (2..=5).contains(&number.len())
        && number.iter().all(u8::is_ascii_digit)
        && segments.iter().all(|s| s.len() >= 4 && s.iter().all(u8::is_ascii_lowercase))
}

/// Whether a value in a sentence is a password: `password is V`, `password 7 V`.
pub(crate) fn is_password_in_prose(value: &[u8]) -> bool {
    let long = value.len() >= 8;
    let is_mixed = value.iter().all(u8::is_ascii_alphabetic) && !is_wordy(value) && looks_random(value);
    long && (value.iter().any(u8::is_ascii_digit) && is_token_like(value) || is_mixed)
        && !value.starts_with(b"\\")
        && !is_placeholder(value)
        && !is_path(value)
        && (!is_wordy(value) || is_passphrase(value) || is_salted_phrase(value) || is_keychain_password(value))
}

/// Whether a value in a column, or behind words, is a random token.
pub(crate) fn is_token_in_column(value: &[u8]) -> bool {
    value.len() >= 10
        && value.iter().all(|b| crate::span::is_token_byte(*b))
        && !value.starts_with(b"0x")
        && is_random_token(value)
}

/// Names that are also ordinary words: `pass`, `pw`.
fn is_short_name(name: &[u8]) -> bool {
    let name: Vec<u8> = name.iter().filter(|b| **b != b'-').map(u8::to_ascii_lowercase).collect();
    matches!(&*name, b"pass" | b"pw")
}

/// A word with a digit, or random text, of six bytes or more.
fn is_salted_word(value: &[u8]) -> bool {
    let digits = value.iter().filter(|b| b.is_ascii_digit()).count();
    value.len() >= 6 && digits < value.len() && (digits > 0 || !is_wordy(value) && looks_random(value))
}

/// A long random value of a name that seldom has a secret.
fn is_random_value(name: &[u8], value: &[u8], setting: &ValueSetting) -> bool {
    let digits = value.iter().filter(|b| b.is_ascii_digit()).count();
    let letters = value.iter().filter(|b| b.is_ascii_alphabetic()).count();
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || b"_-+=/.%~:|!".contains(b);
    let name = name.to_ascii_lowercase();
    if name.ends_with(b"auth") && is_basic_pair(value) {
        return true;
    }
    if memchr::memmem::find(&name, b"mnemonic").is_some() {
        return false;
    }
    let least = if matches!(&*name, b"code" | b"sig" | b"signature") { 20 } else { 16 };
    (setting.plain || setting.shell || setting.quoted)
        && value.len() >= least
        && digits >= 2
        && letters >= 2
        && value.iter().all(is_token)
        && !is_wordy(value)
        && !is_uuid(value)
        && !is_path(value)
        && has_entropy(value, 3.0)
}

/// Base64 of `user:password`.
pub(crate) fn is_basic_pair(value: &[u8]) -> bool {
    use base64::Engine as _;
    let stripped: Vec<u8> = value.iter().copied().filter(|b| *b != b'=').collect();
    if stripped.len() < 8 || stripped.len() > 512 {
        return false;
    }
    base64::engine::general_purpose::STANDARD_NO_PAD
        .decode(&stripped)
        .is_ok_and(|t| t.contains(&b':') && t.iter().all(|b| b.is_ascii_graphic() || *b == b' ' || !b.is_ascii()))
}

/// Twelve or more short words in lower case: the words of a wallet.
fn is_mnemonic(name: &[u8], value: &[u8]) -> bool {
    let name = name.to_ascii_lowercase();
    let telling = [&b"mnemonic"[..], b"seed", b"phrase", b"secret"];
    telling.iter().any(|t| memchr::memmem::find(&name, t).is_some())
        && value.split(|b| *b == b' ').all(|w| (3..=8).contains(&w.len()) && w.iter().all(u8::is_ascii_lowercase))
        && matches!(value.split(|b| *b == b' ').count(), 12 | 15 | 18 | 21 | 24)
}

/// A long value in which letters, digits and signs alternate, as generators of keys write them; blanks may be among them.
fn is_scrambled(value: &[u8]) -> bool {
    let kind = |b: u8| match b {
        b'a'..=b'z' => 1,
        b'A'..=b'Z' => 2,
        b'0'..=b'9' => 3,
        _ => 4,
    };
    let changes = value.windows(2).filter(|w| kind(w[0]) != kind(w[1])).count();
    value.len() >= 32 && changes * 5 >= value.len() * 2
}

/// Whether the value of a telling variable is a switch, a path or a word rather than a secret.
pub(crate) fn is_ordinary(value: &[u8]) -> bool {
    is_placeholder(value)
        || is_path(value)
        || value.len() < 16 && value.iter().all(u8::is_ascii_digit) && value.len() < 6
}

/// Whether a value is a token or a password with digits, rather than a word, an option or a path.
pub(crate) fn is_token_like(value: &[u8]) -> bool {
    let digits = value.iter().filter(|b| b.is_ascii_digit()).count();
    let letters = value.iter().filter(|b| b.is_ascii_alphabetic()).count();
    let mixed = digits > 0 && letters > 0;
    let random = value.len() >= 16 && !is_wordy(value) && looks_random(value);
    value.len() >= 6
        && (mixed || random)
        && !value.iter().any(u8::is_ascii_whitespace)
        && !value.starts_with(b"\\\\")
        && memchr::memmem::find(value, b"://").is_none()
        && !(value.starts_with(b"/") && is_path(value))
}

/// Whether this is a variable of a shell or of a batch file, in a form that values hardly have.
pub(crate) fn is_shell_variable(value: &[u8]) -> bool {
    let variable = value.strip_prefix(b"$").is_some_and(|name| {
        name.len() < 2
            || name.starts_with(b"env:")
            || name.starts_with(b"{")
            || name.starts_with(b"(")
            || name.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_')
    });
    variable || value.starts_with(b"`") || value.len() > 2 && value.starts_with(b"!") && value.ends_with(b"!")
}

/// Whether this is a template or an expression: it contains a variable, or a call.
pub(crate) fn is_code_like(value: &[u8]) -> bool {
    let has = |part: &[u8]| memchr::memmem::find(value, part).is_some();
    has(b"${") || has(b"$(") || has(b"{{") || has(b"://") || has(b"()")
}

/// Whether this looks like a token of a generator: letters and digits that alternate, and no words.
pub(crate) fn is_random_token(value: &[u8]) -> bool {
    let digits = value.iter().filter(|b| b.is_ascii_digit()).count();
    digits >= 2
        && digits < value.len()
        && looks_random(value)
        && !is_wordy(value)
        && !is_uuid(value)
        && has_entropy(value, 3.0)
}

/// Whether a value is a secret wherever it stands beside a telling name: a random token, long hexadecimal text or a UUID.
pub(crate) fn is_certain_value(value: &[u8]) -> bool {
    !is_placeholder(value)
        && !value.iter().any(|b| matches!(b, b'(' | b' '))
        && (is_random_token(value) || is_uuid(value) || value.len() >= 24 && is_hex(value))
}

/// Whether a value in a column of secrets is one.
pub(crate) fn is_secret_in_table(strength: NameStrength, value: &[u8]) -> bool {
    let setting = ValueSetting {
        quoted: true,
        plain: true,
        spaced: false,
        follows: b'\n',
        shell: true,
        alone: false,
        paired: false,
    };
    let digits = value.iter().filter(|b| b.is_ascii_digit()).count();
    match strength {
        NameStrength::Password => {
            !value.contains(&b' ')
                && is_secret(strength, b"", value, &setting)
                && (!is_wordy(value)
                    || is_passphrase(value)
                    || is_salted_phrase(value)
                    || digits >= 3 && value.len() >= 9)
        }
        NameStrength::Strong => {
            is_certain_value(value) || value.len() >= 16 && is_secret(strength, b"", value, &setting)
        }
        _ => false,
    }
}

/// Base64 of `\0user\0password`, or of another answer to a question for a login.
pub(crate) fn is_basic_pair_of_auth(value: &[u8]) -> bool {
    value.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=')) && !is_wordy(value)
}

/// Whether a value that a program passes in the place of a password is one.
pub(crate) fn is_password_argument(value: &[u8]) -> bool {
    is_token_like(value) || is_chosen_password(value) || !is_wordy(value) && value.len() >= 8 && looks_random(value)
}
