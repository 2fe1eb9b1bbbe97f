//! The user's git configuration without secrets and without settings that run programs. Confined git reads it instead
//! of the real one. Parses git's own format and leaves out what it does not understand.

use countersign_model::glob_matches;
use countersign_redact::looks_secret;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Longer files and deeper includes are not read.
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;
const MAX_INCLUDE_DEPTH: usize = 10;

/// One setting: `[section "subsection"] key = value`. `value` is none for a key without a value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GitSetting {
    section: String,
    subsection: Option<String>,
    key: String,
    value: Option<String>,
}

/// The part of the user's configuration that confined programs see.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SanitisedGitConfig {
    /// The harmless settings, as the text of a file.
    pub(crate) text: String,
    /// The files that the settings name for git to read: ignores, attributes.
    pub(crate) reads: Vec<PathBuf>,
}

/// Writes the configuration to `git/config` below a directory, where programs look for it, and copies the ignores and
/// attributes that lie beside the original. Returns the path of the configuration.
pub(crate) fn write_config(text: &str, config_home: &Path, directory: &Path) -> io::Result<PathBuf> {
    let (from, to) = (config_home.join("git"), directory.join("git"));
    fs::create_dir_all(&to)?;
    for name in ["ignore", "attributes"] {
        if fs::metadata(from.join(name)).is_ok_and(|m| m.is_file() && m.len() <= MAX_CONFIG_BYTES) {
            fs::copy(from.join(name), to.join(name))?;
        }
    }
    let config = to.join("config");
    fs::write(&config, text)?;
    Ok(config)
}

/// Reads `/etc/gitconfig`, `~/.config/git/config` and `~/.gitconfig` as git would. `git_dir` decides conditional
/// includes.
pub(crate) fn sanitise_config(
    system: &Path,
    home: &Path,
    config_home: &Path,
    git_dir: Option<&Path>,
) -> SanitisedGitConfig {
    let mut out = SanitisedGitConfig::default();
    for path in [system.to_owned(), config_home.join("git/config"), home.join(".gitconfig")] {
        let mut settings = Vec::new();
        read_settings(&path, home, git_dir, 0, &mut settings);
        let mut last = None;
        for setting in settings.iter().filter(|s| is_harmless(s)) {
            let header = (&setting.section, &setting.subsection);
            if last != Some(header) {
                out.text.push_str(&format_header(setting));
                last = Some(header);
            }
            out.text.push_str(&format_setting(setting));
            if names_file(setting) {
                out.reads.extend(setting.value.as_deref().map(|v| expand_home(v, home)));
            }
        }
    }
    out
}

/// The files that the user's configuration includes, and those that it names: ignores, attributes, hooks, templates.
pub(crate) fn named_files(system: &Path, home: &Path, config_home: &Path, git_dir: Option<&Path>) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for path in [system.to_owned(), config_home.join("git/config"), home.join(".gitconfig")] {
        let mut settings = Vec::new();
        read_settings_and_includes(&path, home, git_dir, 0, &mut settings, &mut all);
        let names_file = |s: &&GitSetting| {
            let key = (s.section.as_str(), s.key.as_str());
            names_file(s) || matches!(key, ("core", "hookspath") | ("commit", "template") | ("init", "templatedir"))
        };
        all.extend(settings.iter().filter(names_file).filter_map(|s| Some(expand_home(s.value.as_deref()?, home))));
    }
    all.retain(|path| path.is_absolute());
    all
}

/// Appends the settings of a file, if it exists, and of the files that it includes.
fn read_settings(path: &Path, home: &Path, git_dir: Option<&Path>, depth: usize, out: &mut Vec<GitSetting>) {
    read_settings_and_includes(path, home, git_dir, depth, out, &mut Vec::new());
}

/// Like [`read_settings`], and also lists the included files.
fn read_settings_and_includes(
    path: &Path,
    home: &Path,
    git_dir: Option<&Path>,
    depth: usize,
    out: &mut Vec<GitSetting>,
    included: &mut Vec<PathBuf>,
) {
    let small = fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() <= MAX_CONFIG_BYTES);
    let Some(text) = fs::read_to_string(path).ok().filter(|_| small && depth < MAX_INCLUDE_DEPTH) else { return };
    for setting in parse_settings(&text) {
        let includes = match (setting.section.as_str(), setting.key.as_str(), setting.subsection.as_deref()) {
            ("include", "path", None) => true,
            ("includeif", "path", Some(condition)) => include_applies(condition, path, home, git_dir),
            _ => {
                out.push(setting);
                continue;
            }
        };
        if let Some(value) = setting.value.filter(|_| includes) {
            let target = expand_home(&value, home);
            let target = path.parent().map_or_else(|| target.clone(), |dir| dir.join(&target));
            included.push(target.clone());
            read_settings_and_includes(&target, home, git_dir, depth + 1, out, included);
        }
    }
}

/// Whether the condition of an `includeIf` holds. An unknown condition does not.
fn include_applies(condition: &str, from: &Path, home: &Path, git_dir: Option<&Path>) -> bool {
    let Some(git_dir) = git_dir else { return false };
    if let Some(pattern) = condition.strip_prefix("gitdir:").or_else(|| condition.strip_prefix("gitdir/i:")) {
        let fold = |s: &str| if condition.starts_with("gitdir/i:") { s.to_lowercase() } else { s.to_owned() };
        let mut pattern = match pattern.strip_prefix("./") {
            Some(rest) => from.parent().unwrap_or(home).join(rest).to_string_lossy().into_owned(),
            None => expand_home(pattern, home).to_string_lossy().into_owned(),
        };
        if condition.ends_with('/') && !pattern.ends_with('/') {
            pattern.push('/');
        }
        let (pattern, at) = (fold(&pattern), fold(&git_dir.to_string_lossy()));
        let anywhere = pattern.strip_prefix("**/").or_else(|| (!pattern.starts_with('/')).then_some(pattern.as_str()));
        let everything = pattern
            .strip_suffix("/**")
            .map(|p| format!("{p}/"))
            .or_else(|| pattern.ends_with('/').then(|| pattern.clone()));
        return match (everything, anywhere) {
            (Some(directory), None) => format!("{at}/").starts_with(&directory),
            (Some(directory), Some(_)) => {
                format!("{at}/").contains(&format!("/{}", directory.trim_start_matches("**/").trim_start_matches('/')))
            }
            (None, Some(rest)) => at.ends_with(&format!("/{rest}")),
            (None, None) => at == pattern || glob_matches(&pattern, &at),
        };
    }
    if let Some(pattern) = condition.strip_prefix("onbranch:") {
        let head = fs::read_to_string(git_dir.join("HEAD")).unwrap_or_default();
        let Some(branch) = head.trim().strip_prefix("ref: refs/heads/") else { return false };
        return match pattern.strip_suffix('/') {
            Some(directory) => branch.starts_with(&format!("{directory}/")),
            None => branch == pattern || glob_matches(pattern, branch),
        };
    }
    false
}

/// The work tree that a submodule's configuration names.
pub(crate) fn configured_worktree(config: &str) -> Option<String> {
    let is_worktree = |s: &GitSetting| s.section == "core" && s.subsection.is_none() && s.key == "worktree";
    parse_settings(config).into_iter().rfind(is_worktree)?.value
}

fn expand_home(value: &str, home: &Path) -> PathBuf {
    match value.strip_prefix("~/") {
        Some(rest) => home.join(rest),
        None => PathBuf::from(value),
    }
}

fn names_file(s: &GitSetting) -> bool {
    matches!(
        (s.section.as_str(), s.key.as_str()),
        ("core", "excludesfile" | "attributesfile")
            | ("mailmap", "file")
            | ("blame", "ignorerevsfile")
            | ("diff", "orderfile")
    )
}

/// Whether a setting holds a secret.
fn is_secret(s: &GitSetting) -> bool {
    let with_user = |text: &str| {
        text.split("://").skip(1).any(|rest| rest.split('/').next().is_some_and(|host| host.contains('@')))
    };
    matches!(s.section.as_str(), "http" | "sendemail" | "imap" | "github" | "gitlab" | "hub" | "azure")
        || looks_secret(&s.key) && s.key != "signingkey"
        || s.value.as_deref().is_some_and(with_user)
        || s.subsection.as_deref().is_some_and(with_user)
}

/// Whether a setting neither runs programs nor holds secrets. Unknown settings are not harmless.
fn is_harmless(s: &GitSetting) -> bool {
    if is_secret(s) {
        return false;
    }
    // Keys that name programs in any section.
    const PROGRAMS: &[&str] = &[
        "command",
        "cmd",
        "program",
        "helper",
        "tool",
        "driver",
        "textconv",
        "editor",
        "pager",
        "external",
        "clean",
        "smudge",
        "process",
        "hookspath",
        "templatedir",
        "template",
        "sshcommand",
        "askpass",
        "fsmonitor",
        "gitproxy",
        "difffilter",
        "packobjectshook",
        "uploadpack",
        "receivepack",
        "vcs",
        "browser",
        "guitool",
        "update",
        "alternaterefscommand",
        "defaultkeycommand",
        "worktree",
    ];
    if PROGRAMS.contains(&s.key.as_str()) {
        return false;
    }
    match s.section.as_str() {
        "user" | "author" | "committer" => matches!(s.key.as_str(), "name" | "email" | "useconfigonly"),
        "alias" => s.value.as_deref().is_some_and(|v| !v.trim_start().starts_with('!')),
        "url" => matches!(s.key.as_str(), "insteadof" | "pushinsteadof"),
        "core" => s.key != "gitdir" && s.key != "sshcommand",
        "diff" => match s.subsection {
            None => true,
            Some(_) => matches!(s.key.as_str(), "xfuncname" | "funcname" | "binary" | "wordregex" | "algorithm"),
        },
        "color" | "column" | "status" | "log" | "blame" | "grep" | "pretty" | "i18n" | "safe" | "versionsort"
        | "feature" | "advice" | "notes" | "mailmap" | "stash" | "rerere" | "index" | "checkout" | "fetch" | "pull"
        | "push" | "rebase" | "merge" | "branch" | "tag" | "init" | "apply" | "submodule" | "format" | "showbranch"
        | "commit" | "help" | "gc" | "pack" | "extensions" | "remote" => {
            s.section != "remote" || s.subsection.is_none()
        }
        _ => false,
    }
}

fn format_header(s: &GitSetting) -> String {
    match &s.subsection {
        None => format!("[{}]\n", s.section),
        Some(name) => format!("[{} \"{}\"]\n", s.section, name.replace('\\', "\\\\").replace('"', "\\\"")),
    }
}

fn format_setting(s: &GitSetting) -> String {
    match &s.value {
        None => format!("\t{}\n", s.key),
        // Without quotes where possible: some programs that read this file do not understand quotes.
        Some(value)
            if value == value.trim() && !value.is_empty() && !value.contains(['"', '\\', '#', ';', '\n', '\t']) =>
        {
            format!("\t{} = {value}\n", s.key)
        }
        Some(value) => {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
            format!("\t{} = \"{value}\"\n", s.key)
        }
    }
}

/// Parses the settings of a file in order. Stops at a malformed line; git would refuse the file.
fn parse_settings(text: &str) -> Vec<GitSetting> {
    let mut out = Vec::new();
    let (mut section, mut subsection): (String, Option<String>) = (String::new(), None);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_whitespace() => {}
            '#' | ';' => while chars.next_if(|c| *c != '\n').is_some() {},
            '[' => {
                let Some(found) = parse_header(&mut chars) else { return out };
                (section, subsection) = found;
            }
            c if c.is_ascii_alphabetic() => {
                let mut key = String::from(c);
                while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '-') {
                    key.push(c);
                }
                while chars.next_if(|c| *c == ' ' || *c == '\t').is_some() {}
                let value = match chars.peek() {
                    Some('=') => {
                        chars.next();
                        let Some(value) = parse_value(&mut chars) else { return out };
                        Some(value)
                    }
                    Some('\n' | '\r' | '#' | ';') | None => None,
                    Some(_) => return out,
                };
                let (section, subsection, key) = (section.clone(), subsection.clone(), key.to_ascii_lowercase());
                out.push(GitSetting { section, subsection, key, value });
            }
            _ => return out,
        }
    }
    out
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Parses what follows `[`: `name]`, `name.sub]` or `name "sub"]`.
fn parse_header(chars: &mut Chars<'_>) -> Option<(String, Option<String>)> {
    let mut name = String::new();
    while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')) {
        name.push(c.to_ascii_lowercase());
    }
    while chars.next_if(|c| *c == ' ' || *c == '\t').is_some() {}
    match chars.next()? {
        ']' => Some(match name.split_once('.') {
            Some((section, sub)) => (section.to_owned(), Some(sub.to_owned())),
            None => (name, None),
        }),
        '"' => {
            let mut sub = String::new();
            loop {
                match chars.next()? {
                    '"' => break,
                    '\n' => return None,
                    '\\' => sub.push(chars.next()?),
                    c => sub.push(c),
                }
            }
            (chars.next()? == ']').then_some((name, Some(sub)))
        }
        _ => None,
    }
}

/// Parses what follows `=`: to the end of the line, with quotes, escapes, comments and continuations.
fn parse_value(chars: &mut Chars<'_>) -> Option<String> {
    let (mut out, mut blanks, mut quoted) = (String::new(), String::new(), false);
    while chars.next_if(|c| *c == ' ' || *c == '\t').is_some() {}
    loop {
        match chars.next() {
            None | Some('\n') if quoted => return None,
            None | Some('\n') => return Some(out),
            Some('\r') if !quoted && chars.peek() == Some(&'\n') => {}
            Some('"') => {
                out.push_str(&std::mem::take(&mut blanks));
                quoted = !quoted;
            }
            Some('#' | ';') if !quoted => while chars.next_if(|c| *c != '\n').is_some() {},
            Some('\\') => {
                out.push_str(&std::mem::take(&mut blanks));
                match chars.next()? {
                    '\n' => {}
                    '\r' if chars.next_if_eq(&'\n').is_some() => {}
                    'n' => out.push('\n'),
                    't' => out.push('\t'),
                    'b' => drop(out.pop()),
                    c @ ('\\' | '"') => out.push(c),
                    _ => return None,
                }
            }
            Some(c @ (' ' | '\t')) if !quoted => blanks.push(c),
            Some(c) => {
                out.push_str(&std::mem::take(&mut blanks));
                out.push(c);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sanitise_files(files: &[(&str, &str)], git_dir: Option<&str>) -> (SanitisedGitConfig, PathBuf) {
        let dir = tempfile::tempdir().unwrap().keep();
        for (name, text) in files {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text.replace("HOME", dir.to_str().unwrap())).unwrap();
        }
        let git_dir = git_dir.map(|g| PathBuf::from(g.replace("HOME", dir.to_str().unwrap())));
        (sanitise_config(&dir.join("system"), &dir, &dir.join(".config"), git_dir.as_deref()), dir)
    }

    #[test]
    fn display_settings_stay_and_settings_that_run_programs_go() {
        let (sanitised, dir) = sanitise_files(
            &[(
                ".gitconfig",
                r#"[user]
	name = A "B" C ; comment
	email = a@b
	signingkey = ABC
[core]
	pager = less
	fsmonitor = /evil
	excludesFile = ~/.ignore
	abbrev=12
[alias]
	st = status -s
	evil = !rm -rf /
[diff "x"]
	textconv = evil
	xfuncname = "^a\\b"
[diff]
	external = evil
	noprefix
[filter "lfs"]
	process = evil
[credential]
	helper = store
[log]
	date = \
iso
"#,
            )],
            None,
        );
        let expect = "[user]\n\tname = A B C\n\temail = a@b\n[core]\n\texcludesfile = ~/.ignore\n\tabbrev = 12\n[alias]\n\t\
                      st = status -s\n[diff \"x\"]\n\txfuncname = \"^a\\\\b\"\n[diff]\n\tnoprefix\n[log]\n\tdate = iso\n";
        assert_eq!(sanitised.text, expect);
        assert_eq!(sanitised.reads[0], dir.join(".ignore"));
    }

    #[test]
    fn secrets_are_left_out() {
        for secret in [
            "[http \"https://x\"]\n\textraHeader = Authorization: x\n",
            "[url \"https://me:pw@host/\"]\n\tinsteadOf = https://host/\n",
            "[github]\n\tuser = me\n",
            "[x]\n\tapi-token = y\n",
            "= bad\n[github]\n\ttoken = x\n",
        ] {
            let (sanitised, _) = sanitise_files(&[(".gitconfig", secret)], None);
            assert_eq!(sanitised.text, "", "{secret}");
        }
        let (sanitised, _) =
            sanitise_files(&[(".gitconfig", "[url \"git@host:\"]\n\tinsteadOf = https://host/\n")], None);
        assert!(sanitised.text.contains("insteadof"), "{sanitised:?}");
    }

    #[test]
    fn included_files_are_merged_where_they_are_included() {
        let files = [
            (".config/git/config", "[include]\n\tpath = more\n"),
            (".config/git/more", "[user]\n\tname = One\n"),
            (
                ".gitconfig",
                "[includeIf \"gitdir:~/work/\"]\n\tpath = work.inc\n[includeIf \"onbranch:main\"]\n\tpath = \
                 b.inc\n[include]\n\tpath = .gitconfig\n",
            ),
            ("work.inc", "[user]\n\temail = w@w\n"),
            ("b.inc", "[log]\n\tdate = iso\n"),
            ("work/p/.git/HEAD", "ref: refs/heads/main\n"),
        ];
        let (sanitised, _) = sanitise_files(&files, Some("HOME/work/p/.git"));
        assert!(sanitised.text.starts_with("[user]\n\tname = One\n[user]\n\temail = w@w\n[log]"), "{}", sanitised.text);
        let (sanitised, _) = sanitise_files(&files, Some("HOME/other/.git"));
        assert!(!sanitised.text.contains("w@w"), "{}", sanitised.text);
        let (sanitised, _) = sanitise_files(&files, None);
        assert!(!sanitised.text.contains("w@w"), "{}", sanitised.text);
    }

    #[test]
    fn parsing_stops_at_a_malformed_line() {
        for text in ["[a", "[a \"b", "= 1", "[user]\nname = \"open", "[user]\n\u{0}", "[user]\nname x", "[]\nx = \\q"] {
            let (sanitised, _) = sanitise_files(&[(".gitconfig", text)], None);
            assert_eq!(sanitised.text, "", "{text:?}");
        }
    }

    #[test]
    fn formatted_settings_parse_back() {
        for value in [
            "a",
            " lead and trail ",
            "q\"uo\\te",
            "tab\there",
            "line\nbreak",
            "# ; no comment",
            "",
            "plain words, $(x) = y",
        ] {
            let setting = GitSetting {
                section: "pretty".into(),
                subsection: Some("s\"u\\b".into()),
                key: "x".into(),
                value: Some(value.into()),
            };
            assert_eq!(parse_settings(&(format_header(&setting) + &format_setting(&setting))), [setting]);
        }
    }
}
