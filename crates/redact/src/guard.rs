//! Whether a value that stands behind a telling name is a secret, or a word, a type, a variable, a call, a placeholder.

use crate::{rules::entropy, shape::random};

/// How much a name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Strength {
    /// It says something else: `public_key`, `keyboard`, `max_tokens`.
    None,
    /// `key`, `token` and what holds them: often a name for a place in a table.
    Weak,
    /// `token` itself: often a secret, but also often some number or hash.
    Fair,
    /// `api_key`, `client_secret`, `GITHUB_TOKEN`.
    Strong,
    Password,
}

/// How a value stands there.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) quoted: bool,
    /// Where values stand rather than expressions.
    pub(crate) plain: bool,
    pub(crate) spaced: bool,
    /// What stands right behind it.
    pub(crate) follows: u8,
}

/// Parts of names that say something else.
const OTHER: &[&str] = &[
    "public",
    "primary",
    "foreign",
    "keyboard",
    "keyword",
    "keymap",
    "hotkey",
    "shortcut",
    "monkey",
    "turkey",
    "tokeniz",
    "tokenis",
    "keyframe",
    "keypath",
    "keycode",
    "keydown",
    "keyup",
    "keypress",
    "keystroke",
    "keyval",
    "keysym",
    "keypad",
    "keyspace",
    "sortkey",
    "sort_key",
    "sort-key",
    "partition",
    "cachekey",
    "cache_key",
    "cache-key",
    "fingerprint",
    "keyid",
    "key_id",
    "key-id",
    "keyname",
    "key_name",
    "key-name",
    "keytype",
    "key_type",
    "key-type",
    "keylen",
    "key_len",
    "key_size",
    "keysize",
    "keyusage",
    "key_usage",
    "keyfile",
    "key_file",
    "key-file",
    "key_path",
    "key-path",
    "keyring",
    "keystore",
    "keyserver",
    "secret_name",
    "secretname",
    "secret-name",
    "secretref",
    "secret_ref",
    "secret-ref",
    "secretkeyref",
    "tokentype",
    "token_type",
    "token-type",
    "token_url",
    "tokenurl",
    "token_uri",
    "token_endpoint",
    "password_file",
    "password-file",
    "passwordfile",
    "passwd_file",
    "secret_file",
    "secret-file",
    "token_file",
    "token-file",
    "tokenfile",
    "password_field",
    "password_hash_",
    "max_token",
    "maxtoken",
    "min_token",
    "num_token",
    "token_count",
    "tokencount",
    "tokens_",
    "_tokens",
    "keys_",
    "token_limit",
    "token_budget",
    "token_len",
    "donkey",
    "whiskey",
    "hockey",
    "jockey",
    "mickey",
    "key_mgmt",
    "key-mgmt",
    "key_exchange",
    "known_hosts",
    "keyalg",
    "key_alg",
    "key_ops",
    "pwdlast",
    "passwords",
    "secrets",
    "passwordless",
    "secretary",
    "token_index",
    "keyboard",
    "stringkey",
    "objectkey",
    "propertykey",
    "keyof",
    "keyphrase",
    "object_key",
    "image_key",
    "row_key",
    "group_key",
    "group-key",
    "key_prefix",
    "token_prefix",
];

/// What makes a key or a token one that opens something.
const TELLING: &[&str] = &[
    "api",
    "access",
    "auth",
    "private",
    "priv",
    "signing",
    "sign_",
    "encrypt",
    "master",
    "bearer",
    "refresh",
    "session",
    "client",
    "account",
    "service",
    "admin",
    "deploy",
    "bot",
    "app",
    "ssh",
    "license",
    "subscription",
    "storage",
    "shared",
    "webhook",
    "registry",
    "npm",
    "github",
    "gitlab",
    "slack",
    "aws",
    "azure",
    "gcp",
    "openai",
    "anthropic",
    "stripe",
    "heroku",
    "vault",
    "secret",
    "csrf",
    "xsrf",
    "jwt",
    "oauth",
    "id_token",
    "idtoken",
    "device",
    "publish",
    "upload",
    "push",
    "user",
    "root",
    "server",
    "security",
    "consumer",
    "ingest",
    "write",
    "read",
    "pypi",
    "docker",
    "discord",
    "telegram",
    "twilio",
    "sentry",
    "datadog",
    "grafana",
    "cloudflare",
    "digitalocean",
    "hook",
    "bridge",
];

fn has(name: &str, words: &[&str]) -> bool {
    words.iter().any(|w| name.contains(w))
}

/// How much a name says. `quoted`: it stands in quotes, as names in JSON do.
pub(crate) fn strength(name: &[u8], quoted: bool) -> Strength {
    let Ok(written) = std::str::from_utf8(name) else { return Strength::None };
    let name = written.trim_matches(['-', '.']).to_ascii_lowercase();
    if has(&name, &["password", "passwd", "passphrase", "passwort", "pwd", "passw"]) {
        return Strength::Password;
    }
    if has(&name, &["secret", "credential"]) {
        return Strength::Strong;
    }
    // `GITHUB_TOKEN`, `DEPLOY_KEY`: nobody writes a table's names like this.
    let shouted = !written.bytes().any(|b| b.is_ascii_lowercase())
        && written.len() > 3
        && (name.ends_with("key") || name.ends_with("token"));
    let ends = name.ends_with("key")
        || name.ends_with("token")
        || name.contains("key-data")
        || name.contains("token_")
        || name.contains("key_");
    if shouted && !quoted || ends && has(&name, TELLING) {
        return Strength::Strong;
    }
    match ends {
        true if name.ends_with("token") => Strength::Fair,
        true => Strength::Weak,
        false => Strength::None,
    }
}

/// Whether a name says something else, whatever words it holds.
pub(crate) fn says_other(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| has(&name.to_ascii_lowercase(), OTHER))
}

/// Words that stand where a secret would.
const WORDS: &[&str] = &[
    "null",
    "none",
    "nil",
    "true",
    "false",
    "undefined",
    "void",
    "string",
    "str",
    "bytes",
    "byte",
    "object",
    "required",
    "optional",
    "default",
    "password",
    "passwd",
    "secret",
    "token",
    "key",
    "user",
    "username",
    "value",
    "text",
    "empty",
    "unset",
    "unknown",
    "disabled",
    "enabled",
    "hidden",
    "masked",
    "redacted",
    "removed",
    "omitted",
    "example",
    "changeme",
    "change-me",
    "change_me",
    "changeit",
    "placeholder",
    "dummy",
    "sample",
    "todo",
    "fixme",
    "tbd",
    "xxx",
    "yyy",
    "foo",
    "bar",
    "baz",
    "test",
    "testing",
    "secretkey",
    "mysecret",
    "mypassword",
    "yourpassword",
    "passw0rd",
    "invalid",
    "valid",
    "expired",
    "missing",
    "wrong",
    "incorrect",
    "is",
    "was",
    "are",
    "and",
    "the",
    "for",
    "not",
    "must",
    "should",
    "prompt",
    "stdin",
    "file",
    "env",
    "auto",
    "manual",
    "basic",
    "digest",
    "bearer",
    "public",
    "private",
    "rsa",
    "ed25519",
    "ecdsa",
    "x25519",
    "aes",
    "sha256",
    "sha512",
    "md5",
    "utf8",
    "utf-8",
    "base64",
    "hex",
    "int",
    "integer",
    "number",
    "boolean",
    "bool",
    "float",
    "double",
    "char",
    "date",
    "array",
    "list",
    "dict",
    "self",
    "this",
    "args",
    "input",
    "output",
    "name",
    "type",
    "status",
    "error",
    "fail",
    "failed",
    "success",
    "ok",
    "yes",
    "no",
    "on",
    "off",
    "any",
    "all",
    "new",
    "old",
    "next",
    "prev",
    "current",
    "reset",
    "forgot",
    "confirm",
    "repeat",
    "enter",
    "password1",
    "pass",
    "postgres",
    "root",
    "admin",
    "guest",
    "minioadmin",
    "option",
    "some",
    "vec",
    "static",
    "const",
    "let",
    "var",
    "return",
    "function",
    "async",
    "await",
    "import",
    "from",
    "class",
    "struct",
];

/// Whether a value only shows where one would stand.
pub(crate) fn is_placeholder(value: &[u8]) -> bool {
    let Some(first) = value.first() else { return true };
    if value.iter().all(|b| b == first)
        || value.starts_with(b"[redacted:")
        || memchr::memmem::find(value, b"[redacted:").is_some()
    {
        return true;
    }
    // Variables and templates; a dollar inside a value is a value's.
    let opens = [&b"${"[..], b"$(", b"{{", b"<", b"%(", b"%{", b"#{", b"$$", b"{", b"[%", b"@@"];
    if opens.iter().any(|o| value.starts_with(o)) || matches!(value, b"%s" | b"%d" | b"%v" | b"{}") {
        return true;
    }
    if *first == b'$' && value[1..].iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_') {
        return true;
    }
    let lower = value.to_ascii_lowercase();
    let parts = [
        &b"xxxx"[..],
        b"your",
        b"example",
        b"placeholder",
        b"changeme",
        b"change-me",
        b"change_me",
        b"dummy",
        b"....",
        b"****",
        b"<your",
        b"insert",
        b"replace",
        b"redacted",
        b"secret-here",
        b"_here",
    ];
    if parts.iter().any(|p| memchr::memmem::find(&lower, p).is_some()) {
        return true;
    }
    std::str::from_utf8(&lower).is_ok_and(|v| WORDS.contains(&v.trim_end_matches(['!', '?', '.', ',', ';', ':'])))
}

fn is_hex(value: &[u8]) -> bool {
    value.len() >= 8 && value.iter().all(u8::is_ascii_hexdigit)
}

fn is_uuid(value: &[u8]) -> bool {
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
    let wordy = |p: &[u8]| p.len() <= 32 && !random(p);
    rooted && value.contains(&b'/') && parts.clone().all(wordy)
        || value.contains(&b'/')
            && !value.ends_with(b"=")
            && parts.clone().count() >= 2
            && parts.clone().all(|p| wordy(p) && p.len() < 24)
        || memchr::memmem::find(value, b"://").is_some()
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
        fits && camel(segment)
    })
}

/// Capitals only where words begin.
fn camel(segment: &[u8]) -> bool {
    let upper = segment.iter().filter(|b| b.is_ascii_uppercase()).count();
    let lower = segment.iter().filter(|b| b.is_ascii_lowercase()).count();
    lower == 0 || upper * 3 <= lower + 2
}

/// A value of a program rather than a text: a call, a member, a number, an operator.
fn is_expression(value: &[u8], setting: &Setting) -> bool {
    if setting.quoted {
        return false;
    }
    let number = value.iter().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-' | b'x' | b'+'));
    let operator = matches!(
        value[0],
        b'&' | b'*' | b'!' | b'-' | b'=' | b'?' | b'|' | b'~' | b'^' | b'\\' | b'%' | b'.' | b'@' | b'#'
    );
    let call = matches!(setting.follows, b'(' | b'[' | b'{');
    let generic = !setting.plain && setting.follows == b'<' || setting.follows == b'>' && setting.spaced;
    call || generic
        || (number && !setting.plain)
        || (operator && !setting.plain)
        || memchr::memmem::find(value, b"::").is_some()
        || memchr::memmem::find(value, b"->").is_some()
}

/// The decision.
pub(crate) fn is_secret(strength: Strength, name: &[u8], value: &[u8], setting: &Setting) -> bool {
    if value.len() < 4 || is_placeholder(value) || is_path(value) || is_expression(value, setting) {
        return false;
    }
    let digits = value.iter().filter(|b| b.is_ascii_digit()).count();
    let letters = value.iter().filter(|b| b.is_ascii_alphabetic()).count();
    let blanks = value.iter().filter(|b| **b == b' ').count();
    // A sentence.
    if blanks > 0 && (strength != Strength::Password || blanks > 6 || digits == 0 && blanks < 3) {
        return false;
    }
    let wordy = is_wordy(value);
    match strength {
        Strength::None => false,
        Strength::Password => {
            if digits == value.len() {
                return setting.plain && digits >= 4;
            }
            if !wordy {
                return setting.plain || value.len() >= 6 && (digits > 0 && letters > 0 || random(value));
            }
            // Words alone: only where nothing but a value can stand, and not the name again.
            let segments = value.split(|b| !b.is_ascii_alphanumeric()).filter(|s| !s.is_empty()).count();
            let lower = value.to_ascii_lowercase();
            let words = [
                "pass", "passwd", "password", "pwd", "secret", "token", "key", "cred", "user", "login", "auth", "str",
                "config", "setting", "param",
            ];
            let own = words.iter().any(|w| lower.starts_with(w.as_bytes()) || lower.ends_with(w.as_bytes()));
            let upper_name = !name.iter().any(u8::is_ascii_lowercase);
            let config =
                setting.plain && (!setting.quoted || segments >= 3) && !setting.spaced || upper_name && setting.plain;
            config && !own && value.len() >= 6 && value.is_ascii() && !value.contains(&b'.')
                || setting.plain && digits > 0 && !own && value.len() >= 6 && segments == 1
        }
        Strength::Fair if is_hex(value) || is_uuid(value) => false,
        Strength::Fair | Strength::Strong => {
            if digits == value.len() || wordy && !is_hex(value) && !is_uuid(value) {
                return false;
            }
            let mixed = digits > 0 && letters > 0;
            let strong = mixed && value.len() >= 8 || value.len() >= 16 && entropy(value) >= 3.2;
            strong
                && (setting.plain || value.len() >= 16 && entropy(value) >= 3.0)
                && !value.iter().any(|b| matches!(b, b'*' | b'<' | b'>'))
        }
        Strength::Weak => {
            let made = value.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'+' | b'/' | b'='));
            made && digits >= 2
                && letters > 0
                && value.len() >= 16
                && !is_hex(value)
                && !is_uuid(value)
                && !wordy
                && random(value)
                && entropy(value) >= 3.5
                && !value.contains(&b'/')
                && setting.plain
        }
    }
}

/// Whether a value under a telling name in an environment is a switch, a path or a word rather than a secret.
pub(crate) fn is_ordinary(value: &[u8]) -> bool {
    is_placeholder(value)
        || is_path(value)
        || value.len() < 16 && value.iter().all(u8::is_ascii_digit) && value.len() < 6
}
