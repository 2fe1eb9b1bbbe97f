//! Shapes of provider tokens: a public prefix that stays, and a run of characters after it that goes.

/// One shape. `min..=max` counts the characters after the prefix.
pub(crate) struct Rule {
    pub(crate) id: &'static str,
    pub(crate) prefix: &'static str,
    pub(crate) alphabet: fn(u8) -> bool,
    pub(crate) min: usize,
    pub(crate) max: usize,
}

fn alnum(b: u8) -> bool {
    b.is_ascii_alphanumeric()
}

fn upper(b: u8) -> bool {
    b.is_ascii_uppercase() || b.is_ascii_digit()
}

fn word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_'
}

fn url_safe(b: u8) -> bool {
    word(b) || b == b'-'
}

const fn rule(id: &'static str, prefix: &'static str, alphabet: fn(u8) -> bool, min: usize, max: usize) -> Rule {
    Rule { id, prefix, alphabet, min, max }
}

pub(crate) const RULES: &[Rule] = &[
    rule("github-token", "ghp_", alnum, 36, 255),
    rule("github-token", "gho_", alnum, 36, 255),
    rule("github-token", "ghu_", alnum, 36, 255),
    rule("github-token", "ghs_", alnum, 36, 255),
    rule("github-token", "ghr_", alnum, 36, 255),
    rule("github-pat", "github_pat_", word, 22, 255),
    rule("gitlab-token", "glpat-", url_safe, 20, 255),
    rule("anthropic-key", "sk-ant-", url_safe, 20, 255),
    rule("openai-key", "sk-proj-", url_safe, 20, 255),
    rule("slack-token", "xoxb-", url_safe, 10, 255),
    rule("slack-token", "xoxp-", url_safe, 10, 255),
    rule("slack-token", "xoxa-", url_safe, 10, 255),
    rule("slack-token", "xoxs-", url_safe, 10, 255),
    rule("aws-key-id", "AKIA", upper, 16, 16),
    rule("aws-key-id", "ASIA", upper, 16, 16),
    rule("stripe-key", "sk_live_", alnum, 16, 255),
    rule("stripe-key", "rk_live_", alnum, 16, 255),
    rule("google-key", "AIza", url_safe, 35, 35),
    rule("npm-token", "npm_", alnum, 36, 36),
    rule("pypi-token", "pypi-", url_safe, 50, 511),
    rule("huggingface-token", "hf_", alnum, 30, 64),
];
