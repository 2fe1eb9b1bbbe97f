//! Secrets by name: a command that shows one needs approval in every spelling; one that only names it, or a similar
//! name, does not.

use crate::support::{ROOT, assess, verdict_word};
use countersign_model::{Risk, secret_names};

/// Whether a command needs approval because it would show a secret.
fn asks_for_secret(command: &str) -> bool {
    let assessment = assess(command, ROOT, &[ROOT], &[], None);
    verdict_word(&assessment) == "ask" && assessment.risk_set().contains(&Risk::Credential)
}

fn quoted(text: &str) -> String {
    format!("'{text}'")
}

#[track_caller]
fn assert_all_need_approval(commands: &[&str]) {
    let unasked: Vec<&&str> = commands.iter().filter(|c| !asks_for_secret(c)).collect();
    assert!(unasked.is_empty(), "{unasked:#?}");
}

#[track_caller]
fn assert_all_allowed(commands: &[&str]) {
    let asked: Vec<String> = commands
        .iter()
        .filter_map(|c| {
            let assessment = assess(c, ROOT, &[ROOT], &[], None);
            let why = assessment.coverage.iter().find(|c| !c.is_covered());
            (verdict_word(&assessment) != "allow").then(|| format!("{c}: {why:?}"))
        })
        .collect();
    assert!(asked.is_empty(), "{asked:#?}");
}

#[test]
fn every_secret_of_the_table_needs_approval_and_no_near_miss_does() {
    for example in secret_names::examples() {
        let path = quoted(example.path);
        for command in [
            format!("cat {path}"),
            format!("head -n 3 -- {path}"),
            format!("grep -n x {path}"),
            format!("jq . < {path}"),
        ] {
            if example.is_secret {
                assert!(asks_for_secret(&command), "{command}");
            } else {
                assert_eq!(verdict_word(&assess(&command, ROOT, &[ROOT], &[], None)), "allow", "{command}");
            }
        }
    }
}

#[test]
fn copies_of_secrets_need_approval_in_every_spelling() {
    for example in secret_names::examples().iter().filter(|e| e.is_secret) {
        for copy in [".bak", ".old", ".txt", "~", ".orig", ".save", ".1"] {
            let command = format!("cat {}", quoted(&format!("{}{copy}", example.path)));
            assert!(asks_for_secret(&command), "{command}");
        }
    }
}

/// `cat`, a search and a recursive search with patterns that could match a secret's name.
#[test]
fn no_pattern_that_matches_a_secret_is_read_without_approval() {
    let examples: Vec<_> = secret_names::examples().iter().filter(|e| e.is_secret && !e.path.contains(' ')).collect();
    let mut count = 0;
    for example in examples {
        let chars: Vec<char> = example.path.chars().collect();
        for (at, c) in chars.iter().enumerate().filter(|(_, c)| **c != '/') {
            for with in [format!("[{c}]"), "?".to_owned(), "*".to_owned()] {
                let pattern: String =
                    chars.iter().enumerate().map(|(n, c)| if n == at { with.clone() } else { c.to_string() }).collect();
                let name = pattern.rsplit('/').next().unwrap_or(&pattern);
                // Only a literal dot matches a leading dot in the shell.
                let hidden = at == 0 && *c == '.';
                let mut commands =
                    vec![format!("rg -g '{pattern}' x"), format!("rg --iglob '{}' x", pattern.to_uppercase())];
                if !hidden {
                    commands.push(format!("cat {pattern}"));
                }
                if !example.path.contains('/') {
                    commands.push(format!("grep -r --include='{name}' x ."));
                    commands.push(format!("find . -name '{name}' -exec cat {{}} +"));
                }
                for command in commands {
                    count += 1;
                    assert!(asks_for_secret(&command), "{command} for {}", example.path);
                }
            }
        }
    }
    assert!(count > 10_000, "{count}");
}

#[test]
fn searches_for_secrets_need_approval_in_every_spelling() {
    assert_all_need_approval(&[
        "rg -g '[.]env' --hidden .",
        "rg --hidden --iglob '.E[N]V' x",
        "rg --iglob='.E[N]V' x",
        "rg --hidden --type-add 'x:.env' -tx .",
        "rg --type-add 'x:id_rsa' -tx .",
        "rg --type-add 'x:*.{md,pem}' -tx .",
        "rg -g '{.env,x}' .",
        "rg -g '**/.env' .",
        "rg -g 'secrets/**' .",
        "for g in .env x; do rg -g \"$g\" y; done",
        "grep --include='[.]env' -r x",
        "grep -r --include='*.e*v' x .",
        "grep -r --include=.env x",
        "grep -r --include '.en?' x",
        "ag -G '\\.env$' x",
        "ag --hidden -G '(env|pem)$' x",
        "find . -name '.e[n]v' -exec cat {} \\;",
        "find . -iname '.ENV' -exec cat {} +",
        "find . -path '*/secrets/*' -exec cat {} +",
        "find . -regex '.*/\\.en[v]' -exec cat {} +",
        "find . -type f -iregex '.*\\.\\(pem\\|key\\)' -exec head {} +",
        "find secrets -type f -exec cat {} +",
        "cat .e?v",
        "cat .[e]nv",
        "cat {.env,x}",
        "cat .en*",
        "cat .{env,npmrc}",
        "head -- .*",
        "cat .git/c*",
        "cat s?crets/app.yaml",
        "git grep -e x -- '.e*'",
        "git grep x -- .env",
        "git show HEAD:.env",
        "git show HEAD:deploy_key",
        "git diff -- .env",
        "git diff -- deploy_key",
        "git log -p -- .env",
        "git log -p -- secrets",
        "git log -p -- ':(icase).ENV'",
        "grep -r x secrets",
        "rg x config/secrets",
        "grep -r url .git",
        "cat .git/config",
        "tar -xOf a.tar .env",
    ]);
}

#[test]
fn showing_only_the_name_of_a_secret_needs_no_approval() {
    assert_all_allowed(&[
        "test -e .env",
        "[ -f .env ] && echo yes",
        "[[ -f .env ]] && echo yes",
        "ls -la .env",
        "ls -la .env*",
        "ls -d .e*",
        "ls secrets",
        "stat .env",
        "stat -c %s id_rsa",
        "find . -name .env",
        "find . -name '*.pem' -o -name '*.key'",
        "git ls-files .env",
        "git check-ignore -v .env",
        "git status -- .env",
        "du -sh .git",
        "cd secrets && ls",
        "grep -n .env .gitignore",
        "grep -rn '\\.env' src",
        "rg -n 'token' src",
        "rg -g '!.env' x",
        "rg -g '!.*' x",
        "grep -r --exclude='.env*' x .",
        "find . -not -path '*/.*' -exec grep -l x {} +",
        "find . -path './.git' -prune -o -type f -exec grep -l x {} +",
        "git log --oneline -- ':!.env'",
    ]);
}

#[test]
fn broad_patterns_and_similar_words_need_no_approval() {
    assert_all_allowed(&[
        "cat *",
        "cat *.json",
        "cat *.txt",
        "cat src/**/*.rs",
        "cat config/*.yml",
        "grep -rn --include='*.json' x .",
        "rg -g '*.{ts,tsx}' x",
        "rg -g '*.md' x",
        "rg x src/secrets",
        "rg x token/",
        "rg x pkg/secrets",
        "rg x internal/credentials",
        "cat src/secrets/mod.rs",
        "cat credentials/provider.go",
        "git log feat/refresh-token",
        "git diff main..add-token",
        "git show api-token",
        "git diff -- src/token.rs",
        "git log -p -- src/auth",
        "find . -name '*.json' -exec jq . {} +",
        "wc -l src/token.rs src/password.rs",
        "cat tokenizer.json package-lock.json tsconfig.json",
        "rg -g '*auth*' x",
        "cat .github/workflows/*.yml",
        "cat .eslintrc* .prettierrc*",
    ]);
}

/// A word that sounds like a secret does not weaken a grant for something else.
#[test]
fn plain_words_of_a_granted_command_are_not_taken_for_secrets() {
    for (verb, command) in [
        ("cargo test", "cargo test token"),
        ("npm test", "npm test secret"),
        ("git checkout", "git checkout -b add-api-token"),
        ("gh secret list", "gh secret list"),
    ] {
        let grants = [crate::support::grant(verb, None)];
        assert_eq!(verdict_word(&assess(command, ROOT, &[ROOT], &grants, None)), "allow", "{command}");
    }
}

/// A list of names that goes into a command that reads counts as reading what the list selects.
#[test]
fn reading_a_list_of_secret_names_needs_approval() {
    assert_all_need_approval(&[
        "find . -name .env | xargs cat",
        "find . -name '.e[n]v' -print0 | xargs -0 cat",
        "find . -iname '*.PEM' | head -1 | xargs cat",
        "find .env | xargs cat",
        "find secrets -type f | xargs cat",
        "find . -path '*/secrets/*' | xargs grep x",
        "find . | grep env | xargs cat",
        "find . -type f | grep secrets/ | xargs cat",
        "find . -type f | grep '\\.env' | sort | xargs -n1 cat",
        "git ls-files .env | xargs cat",
        "git ls-files '*.pem' | xargs head",
        "ls .env | xargs cat",
        "ls -a | xargs cat",
        "rg --files -g '.e?v' | xargs cat",
        "fd -H env | xargs cat",
        "cat $(find . -name .env)",
        "for f in $(git ls-files '*.key'); do cat \"$f\"; done",
        "for f in $(find . -name '.env*'); do head \"$f\"; done",
        "find . -name .env | while read -r f; do cat \"$f\"; done",
        "find . -name .env | xargs -I{} cat {}",
    ]);
}
