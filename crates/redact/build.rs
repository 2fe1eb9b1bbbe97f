//! Generates tables from `rules/*.toml`: the rules, their keywords by their first three bytes, and the keywords that need a
//! search of their own because a short secret may follow them.

use serde::Deserialize;
use std::{collections::BTreeMap, env, error::Error, fmt::Write as _, fs, path::Path};

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
    digit: bool,
    #[serde(default = "default_true")]
    bounded: bool,
    #[serde(default)]
    free: bool,
    r#match: Vec<String>,
    miss: Vec<String>,
}

fn default_true() -> bool {
    true
}

/// Keywords are found by this many first bytes.
const HEAD_BYTES: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=rules");
    let mut files: Vec<_> = fs::read_dir("rules")?.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>()?;
    files.sort();
    let mut rules: Vec<RuleSource> = Vec::new();
    for path in files.iter().filter(|p| p.extension().is_some_and(|e| e == "toml")) {
        let file: RuleFile =
            toml::from_str(&fs::read_to_string(path)?).map_err(|e| format!("{}: {e}", path.display()))?;
        rules.extend(file.rule);
    }
    let mut keywords: Vec<String> = rules.iter().flat_map(|r| r.keywords.clone()).collect();
    keywords.sort();
    keywords.dedup();
    if let Some(short) = keywords.iter().find(|k| k.len() < HEAD_BYTES) {
        return Err(format!("the keyword {short:?} is too short: it would match too often").into());
    }
    let mut out = String::from("pub(crate) static RULES: &[BuiltInRule] = &[\n");
    for r in &rules {
        let RuleSource { id, about, keywords, regex, entropy, check, before, digit, bounded, free: _, r#match, miss } =
            r;
        let checked = match check.as_deref() {
            None => false,
            Some("crc32") => true,
            Some(other) => return Err(format!("{id}: unknown check {other:?}").into()),
        };
        writeln!(
            out,
            "BuiltInRule {{ id: {id:?}, about: {about:?}, keywords: &{keywords:?}, regex: {regex:?}, entropy: {:?}, checked: {checked}, \
             before: {before:?}, digit: {digit}, bounded: {bounded}, matches: &{:?}, misses: &{miss:?} }},",
            entropy.unwrap_or(1.9),
            r#match
        )?;
    }
    out += "];\n";
    out += "pub(crate) static FREE_KEYWORDS: &[Keyword] = &[\n";
    let keyword = |text: &str, rule: usize| format!("Keyword {{ text: {text:?}, rule: {rule} }}, ");
    for (n, rule) in rules.iter().enumerate().filter(|(_, r)| r.free) {
        rule.keywords.iter().for_each(|k| out += &keyword(k, n));
    }
    out += "];\n";
    let mut heads: BTreeMap<[u8; HEAD_BYTES], Vec<(&str, usize)>> = BTreeMap::new();
    for (n, rule) in rules.iter().enumerate() {
        for k in &rule.keywords {
            heads.entry(k.as_bytes()[..HEAD_BYTES].try_into()?).or_default().push((k, n));
        }
    }
    writeln!(out, "pub(crate) static KEYWORD_HEADS: &[([u8; {HEAD_BYTES}], &[Keyword])] = &[")?;
    for (head, of_head) in &mut heads {
        // Longest first: `sk-ant-` before `sk-`.
        of_head.sort_by_key(|(k, _)| std::cmp::Reverse(k.len()));
        writeln!(out, "({head:?}, &[{}]),", of_head.iter().map(|(k, n)| keyword(k, *n)).collect::<String>())?;
    }
    out += "];\n";
    let mut bits = vec![0u64; 1 << 9];
    for [a, b, c] in heads.keys() {
        let hash = (usize::from(*a) ^ usize::from(*b) << 5 ^ usize::from(*c) << 10) & 0x7fff;
        bits[hash / 64] |= 1 << (hash % 64);
    }
    writeln!(
        out,
        "/// A bit for each possible hash of the first bytes of a keyword.\npub(crate) static HEAD_BITS: [u64; 512] = {bits:?};"
    )?;
    let to = Path::new(&env::var("OUT_DIR")?).join("rules.rs");
    fs::write(to, out)?;
    Ok(())
}
