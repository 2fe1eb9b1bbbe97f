//! Generates tables from `rules/*.toml`: the rules, their keywords by their first three bytes, and the keywords that need a
//! search of their own because a short secret may follow them.

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    env,
    error::Error,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    rule: Vec<RuleSource>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleSource {
    id: String,
    about: String,
    keywords: Vec<String>,
    regex: String,
    #[serde(default)]
    entropy: Option<f64>,
    #[serde(default)]
    check: Option<String>,
    #[serde(default)]
    before: Option<String>,
    #[serde(default)]
    unless: Vec<String>,
    #[serde(default)]
    whole: bool,
    #[serde(default)]
    mixed: bool,
    #[serde(default)]
    wrapped: bool,
    #[serde(default)]
    digit: bool,
    #[serde(default = "default_true")]
    bounded: bool,
    #[serde(default)]
    free: bool,
    r#match: Vec<String>,
    miss: Vec<String>,
    /// The keywords as links and JSON write them.
    #[serde(skip)]
    encoded: Vec<String>,
}

fn default_true() -> bool {
    true
}

/// The file of words of providers.
const PROVIDERS: &str = "providers.toml";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderFile {
    provider: Vec<ProviderGroup>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderGroup {
    value: String,
    #[serde(default)]
    lengths: Vec<usize>,
    words: Vec<String>,
}

/// Writes the words of providers in their order, each with the values that are its secrets.
fn write_providers(out: &mut String) -> Result<(), Box<dyn Error>> {
    let file: ProviderFile = toml::from_str(&fs::read_to_string(Path::new("rules").join(PROVIDERS))?)?;
    let mut words: BTreeMap<String, (bool, bool, bool, Vec<usize>)> = BTreeMap::new();
    for group in file.provider {
        for word in group.words {
            let (random, strict, uuid, hex) = words.entry(word.clone()).or_default();
            let kind = match &*group.value {
                "random" => random,
                "strict" => strict,
                "uuid" => uuid,
                "hex" => {
                    hex.extend(&group.lengths);
                    continue;
                }
                other => return Err(format!("{PROVIDERS}: unknown value {other:?}").into()),
            };
            if std::mem::replace(kind, true) {
                return Err(format!("{PROVIDERS}: {word} is listed twice as {}", group.value).into());
            }
        }
    }
    // A word that means something else, too, is not taken for any random value.
    if let Some((word, _)) = words.iter().find(|(_, (random, strict, ..))| *random && *strict) {
        return Err(format!("{PROVIDERS}: {word} is listed as random and as strict: drop one").into());
    }
    out.push_str("pub(crate) static PROVIDERS: &[Provider] = &[\n");
    for (word, (random, strict, uuid, hex)) in words {
        writeln!(
            out,
            "Provider {{ word: {word:?}, random: {random}, strict: {strict}, uuid: {uuid}, hex: &{hex:?} }},"
        )?;
    }
    out.push_str("];\n");
    Ok(())
}

/// Keywords are found by this many first bytes.
const HEAD_BYTES: usize = 3;
/// At least twice as many as there are heads.
const HEAD_SLOTS: usize = 1 << 12;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=rules");
    let rules = read_rules()?;
    let mut out = String::new();
    write_rules(&mut out, &rules)?;
    write_keywords(&mut out, &rules)?;
    write_wrapped_keywords(&mut out, &rules)?;
    write_providers(&mut out)?;
    let to = Path::new(&env::var("OUT_DIR")?).join("rules.rs");
    fs::write(to, out)?;
    Ok(())
}

fn read_rules() -> Result<Vec<RuleSource>, Box<dyn Error>> {
    let mut files: Vec<_> = fs::read_dir("rules")?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.sort();
    let mut rules: Vec<RuleSource> = Vec::new();
    let is_rules = |p: &&PathBuf| p.extension().is_some_and(|e| e == "toml") && !p.ends_with(PROVIDERS);
    for path in files.iter().filter(is_rules) {
        let file: RuleFile =
            toml::from_str(&fs::read_to_string(path)?).map_err(|e| format!("{}: {e}", path.display()))?;
        rules.extend(file.rule);
    }
    for rule in &mut rules {
        let encoded: Vec<String> = rule.keywords.iter().flat_map(|k| encoded_forms(k)).collect();
        rule.encoded = encoded;
    }
    let mut keywords: Vec<String> = rules.iter().flat_map(|r| r.keywords.clone()).collect();
    keywords.sort();
    keywords.dedup();
    if let Some(short) = keywords.iter().find(|k| k.len() < HEAD_BYTES) {
        return Err(format!("the keyword {short:?} is too short: it would match too often").into());
    }
    Ok(rules)
}

fn write_rules(out: &mut String, rules: &[RuleSource]) -> Result<(), Box<dyn Error>> {
    out.push_str("pub(crate) static RULES: &[BuiltInRule] = &[\n");
    for r in rules {
        let RuleSource {
            id,
            about,
            keywords,
            regex,
            entropy,
            check,
            before,
            unless,
            whole,
            mixed,
            wrapped: _,
            digit,
            bounded,
            free: _,
            r#match,
            miss,
            encoded: _,
        } = r;
        let checked = match check.as_deref() {
            None => false,
            Some("crc32") => true,
            Some(other) => return Err(format!("{id}: unknown check {other:?}").into()),
        };
        writeln!(
            out,
            "BuiltInRule {{ id: {id:?}, about: {about:?}, keywords: &{keywords:?}, regex: {regex:?}, entropy: {:?}, checked: {checked}, \
             before: {before:?}, unless: &{unless:?}, whole: {whole}, mixed: {mixed}, digit: {digit}, bounded: {bounded}, matches: &{:?}, misses: &{miss:?} }},",
            entropy.unwrap_or(1.9),
            r#match
        )?;
    }
    out.push_str("];\n");
    Ok(())
}

/// Writes the keywords by their heads, and those that are searched for in all text.
fn write_keywords(out: &mut String, rules: &[RuleSource]) -> Result<(), Box<dyn Error>> {
    out.push_str("pub(crate) static FREE_KEYWORDS: &[Keyword] = &[\n");
    let keyword = |text: &str, rule: usize| format!("Keyword {{ text: {text:?}, rule: {rule} }}, ");
    for (n, rule) in rules.iter().enumerate().filter(|(_, r)| r.free) {
        rule.keywords.iter().for_each(|k| out.push_str(&keyword(k, n)));
    }
    out.push_str("];\n");
    let mut heads: BTreeMap<[u8; HEAD_BYTES], Vec<(&str, usize)>> = BTreeMap::new();
    for (n, rule) in rules.iter().enumerate() {
        for k in rule.keywords.iter().chain(&rule.encoded) {
            heads.entry(k.as_bytes()[..HEAD_BYTES].try_into()?).or_default().push((k, n));
        }
    }
    // Open addressing: the slots behind the hash of a head lead to it.
    let mut slots = vec![0u16; HEAD_SLOTS];
    for (n, head) in heads.keys().enumerate() {
        let mut slot = head_hash(head) % HEAD_SLOTS;
        while slots[slot] != 0 {
            slot = (slot + 1) % HEAD_SLOTS;
        }
        slots[slot] = u16::try_from(n + 1)?;
    }
    writeln!(
        out,
        "/// Where each head is in `KEYWORD_HEADS`, counted from 1.\npub(crate) static HEAD_SLOTS: [u16; {HEAD_SLOTS}] = {slots:?};"
    )?;
    writeln!(out, "pub(crate) static KEYWORD_HEADS: &[([u8; {HEAD_BYTES}], &[Keyword])] = &[")?;
    for (head, of_head) in &mut heads {
        // Longest first: `sk-ant-` before `sk-`.
        of_head.sort_by_key(|(k, _)| std::cmp::Reverse(k.len()));
        writeln!(out, "({head:?}, &[{}]),", of_head.iter().map(|(k, n)| keyword(k, *n)).collect::<String>())?;
    }
    out.push_str("];\n");
    let inside: Vec<&[u8]> = rules
        .iter()
        .filter(|r| !r.bounded || r.before.is_some() || r.check.is_some())
        .flat_map(|r| r.keywords.iter().chain(&r.encoded))
        .map(String::as_bytes)
        // A sign begins a word wherever it stands.
        .filter(|k| k[0].is_ascii_alphanumeric())
        .collect();
    let wrapped = wrapped_keywords(rules);
    let wrapped: Vec<&[u8]> = wrapped.iter().map(|(text, ..)| text.as_bytes()).collect();
    let head = |text: &&[u8]| [text[0], text[1], text[2]];
    let (inside_heads, wrapped_heads): (Vec<_>, Vec<_>) =
        (inside.iter().map(head).collect(), wrapped.iter().map(head).collect());
    // Behind the first byte; the byte behind a keyword of three may be any.
    let second = |text: &&[u8]| -> Vec<[u8; HEAD_BYTES]> {
        let thirds = text.get(3).map_or(0..=u8::MAX, |b| *b..=*b);
        thirds.map(|third| [text[1], text[2], third]).collect()
    };
    let inward: Vec<_> = inside
        .iter()
        .chain(&wrapped)
        .flat_map(second)
        .chain(inside_heads.clone())
        .chain(wrapped_heads.clone())
        .collect();
    write_bits(out, "HEAD_BITS", "the first bytes of a keyword", heads.keys())?;
    write_bits(out, "INSIDE_BITS", "the first bytes of a keyword that also counts inside words", &inside_heads)?;
    write_bits(out, "WRAPPED_BITS", "the first bytes of a keyword in base64", &wrapped_heads)?;
    write_bits(out, "INWARD_BITS", "the first three bytes of both, and of the three behind the first", &inward)?;
    Ok(())
}

/// Writes the keywords that also count inside base64.
fn write_wrapped_keywords(out: &mut String, rules: &[RuleSource]) -> Result<(), Box<dyn Error>> {
    let wrapped = wrapped_keywords(rules);
    out.push_str("pub(crate) static WRAPPED_KEYWORDS: &[WrappedKeyword] = &[\n");
    for (text, keyword, offset, rule) in &wrapped {
        writeln!(out, "WrappedKeyword {{ text: {text:?}, keyword: {keyword:?}, offset: {offset}, rule: {rule} }},")?;
    }
    out.push_str("];\n");
    Ok(())
}

/// A keyword with signs as links, JSON and HTML write it.
fn encoded_forms(keyword: &str) -> Vec<String> {
    let in_link = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '~') {
            c.to_string()
        } else {
            format!("%{:02X}", u32::from(c))
        }
    };
    let mut forms = vec![
        keyword.chars().map(in_link).collect::<String>(),
        keyword.replace('/', "\\/"),
        keyword.replace('&', "\\u0026"),
        keyword.replace('&', "&amp;"),
    ];
    forms.retain(|form| form != keyword);
    forms
}

/// The keywords of rules that also count inside base64, as they look there: the text, the keyword, how many bytes of its
/// group precede it, and its rule. Sorted by the text.
fn wrapped_keywords(rules: &[RuleSource]) -> Vec<(String, &str, usize, usize)> {
    let mut wrapped = Vec::new();
    for (n, rule) in rules.iter().enumerate().filter(|(_, r)| r.wrapped) {
        for keyword in rule.keywords.iter().filter(|k| k.len() >= 4) {
            for offset in 0..HEAD_BYTES {
                let bytes = [vec![0; offset], keyword.clone().into_bytes()].concat();
                let text = STANDARD_NO_PAD.encode(&bytes);
                // Only letters that depend on the keyword alone.
                let core = &text[(offset * 8).div_ceil(6)..bytes.len() * 8 / 6];
                wrapped.push((core.to_owned(), keyword.as_str(), offset, n));
            }
        }
    }
    wrapped.sort();
    wrapped
}

/// The same as `head_hash` in src/rules.rs.
fn head_hash([a, b, c]: &[u8; HEAD_BYTES]) -> usize {
    (u32::from_le_bytes([*a, *b, *c, 0]).wrapping_mul(0x9e37_79b1) >> 16) as usize
}

/// Writes a table with a bit for each possible hash of these heads.
fn write_bits<'h>(
    out: &mut String,
    name: &str,
    of: &str,
    heads: impl IntoIterator<Item = &'h [u8; HEAD_BYTES]>,
) -> std::fmt::Result {
    let mut bits = vec![0u64; 1 << 10];
    for head in heads {
        let hash = head_hash(head);
        bits[hash / 64] |= 1 << (hash % 64);
    }
    writeln!(out, "/// A bit for each possible hash of {of}.\npub(crate) static {name}: [u64; 1024] = {bits:?};")
}
