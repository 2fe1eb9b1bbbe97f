//! Ordinary reading that once needed approval, and similar commands that must still need it.

use crate::support::{ROOT, assess, grant, verdict_word};

#[track_caller]
fn assert_each(expect: &str, commands: &[&str]) {
    let wrong: Vec<String> = commands
        .iter()
        .filter_map(|c| {
            let assessment = assess(c, ROOT, &[ROOT], &[], None);
            let why = assessment.coverage.iter().find(|c| !c.is_covered());
            (verdict_word(&assessment) != expect).then(|| format!("{}: {c} {why:?}", verdict_word(&assessment)))
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn lists_of_files_are_read_below_where_they_start() {
    assert_each(
        "allow",
        &[
            "find . -name '*.rs' | xargs grep -n foo",
            "find . -name '*.rs' | xargs wc -l",
            "find src -name '*.rs' | xargs sed -n '1,5p'",
            "find . -type f -print0 | xargs -0 grep x",
            "find . -name '*.rs' 2>/dev/null | sort | head -20 | xargs wc -l",
            "find src crates -name '*.rs' -type f -print0 | xargs -0 wc -l | sort -nr | head -40",
            "grep -rl foo src | xargs -r grep -n bar",
            "grep -rl foo src | xargs -r sed -n '1,5p'",
            "rg -l foo | xargs wc -l",
            "git ls-files '*.rs' | xargs wc -l",
            "git diff --name-only | xargs grep -n TODO",
            "find . -name '*.md' | grep -v node_modules | xargs head -5",
            "ls *.md | xargs -I{} grep area: {}",
            "for f in $(git ls-files '*.rs'); do wc -l \"$f\"; done",
            "for f in $(find src -name '*.rs'); do echo \"== $f\"; head -5 \"$f\"; done",
            "wc -l $(git ls-files '*.rs')",
            "cat $(find src -name 'mod.rs' | head -1)",
            "find src -name '*.rs' | while read -r f; do wc -l \"$f\"; done",
            "git ls-files | while IFS= read -r f; do grep -c x \"$f\"; done",
            "find . -name '*.rs' | xargs -n1 basename",
        ],
    );
}

#[test]
fn lists_of_files_allow_no_more_than_reading_in_the_roots() {
    assert_each(
        "ask",
        &[
            "find . -name '*.rs' | xargs rm",
            "find . -name '*.rs' | xargs sed -i s/a/b/",
            "rg -l foo | xargs sed -n 1,5p",
            "find / -name '*.rs' | xargs grep x",
            "find .. -name '*.rs' | xargs grep x",
            "find ~/src -name '*.rs' | xargs grep x",
            "cat list.txt | xargs grep x",
            "find . -printf '%h /etc/passwd' | xargs cat",
            "find . | xargs -I{} sh -c 'cat {}'",
            "find . | xargs sh",
            "find . | xargs python3",
            "find . | sh",
            "find . | python3",
            "find . | sed 's|^|/etc/|' | xargs cat",
            "find . | tr . / | xargs cat",
            "find . | xargs -a list cat",
            "find . | xargs -d . cat",
            "find . | tail -c 12 | xargs cat",
            "find . | cat -n | xargs cat",
            "find . | while read -r -d . f; do cat \"$f\"; done",
            "find . | while read f; do cat \"$f\"; done",
            "find . | while read -r -u 3 f; do cat \"$f\"; done",
            "echo x | grep -l --label=/etc/passwd x - | xargs cat",
            "git diff --name-only --line-prefix=/ | xargs cat",
            "git diff-tree --name-only --pretty=/etc/passwd HEAD | xargs cat",
            "cat $(cd /etc && ls)",
            "cat $(ls; echo /etc/passwd)",
            "find() { echo /etc/passwd; }; cat $(find .)",
            "PATH=.; cat $(find .)",
            "for f in $(find . -name '*.sh'); do bash \"$f\"; done",
            "for f in $(find . -name '*.sh'); do \"$f\"; done",
            "$(find . -name x)",
            "for f in $(git ls-files); do rm \"$f\"; done",
            "for f in $(git ls-files); do echo x > \"$f\"; done",
            "IFS=/; for f in $(git ls-files); do cat \"$f\"; done",
            "grep -l x $(cat files) | xargs cat",
            "find . -name '*.rs' | while read -r f; do bash -c \"$f\"; done",
            "while read -r f; do cat \"$f\"; done < list",
            "while read -r f; do rm \"$f\"; done < list",
            "while read 'a[$(id)]'; do echo x; done < f",
            "read PATH < f; ls",
            "read -r LD_PRELOAD < f; ls",
            "read RANDOM < f",
            "read -ra 'x[$(id)]' < f",
        ],
    );
}

/// Beside a grant, nothing confines the words of a list to reading in the roots.
#[test]
fn no_grant_covers_the_words_of_a_list() {
    let all = ["make", "cat", "rm", "wc", "xargs", "echo"].map(|verb| grant(verb, Some(ROOT)));
    let anywhere = ["make", "cat", "rm", "wc"].map(|verb| grant(verb, None));
    for command in [
        "make; find . -name '*.rs' | xargs cat",
        "find . -name '*.rs' | xargs rm",
        "for f in $(git ls-files); do rm \"$f\"; done",
        "x=$(git ls-files); rm $x",
        "for f in $(git ls-files); do g=$f; rm \"$g\"; done",
        "set -- $(git ls-files); rm \"$1\"",
        "bash -c 'rm \"$1\"' _ $(git ls-files)",
        "git ls-files | while read -r f; do rm \"$f\"; done",
        "make; wc -l $(git ls-files)",
        "rm > $(git ls-files a)",
    ] {
        for grants in [&all[..], &anywhere[..]] {
            assert_eq!(verdict_word(&assess(command, ROOT, &[ROOT], grants, None)), "ask", "{command}");
        }
    }
}

#[test]
fn a_line_that_is_read_and_printed_needs_no_approval() {
    assert_each(
        "allow",
        &[
            "while read -r l; do echo \"$l\"; done < f",
            "while IFS= read -r line; do echo \"$line\"; done < notes.txt",
            "while IFS=, read -r a b; do printf '%s %s\\n' \"$a\" \"$b\"; done < data.csv",
            "cat notes.txt | while read -r l; do echo \"> $l\"; done",
            "basename $(pwd)",
            "basename \"$(git rev-parse --show-toplevel)\"",
            "dirname \"$x\"",
        ],
    );
}

#[test]
fn pagers_and_manuals_run_without_approval() {
    assert_each(
        "allow",
        &["less f", "less -R README.md", "more f", "man ls | head", "man 3 printf", "git help log", "git log | less"],
    );
    assert_each(
        "ask",
        &[
            "less -o out f",
            "less -O out f",
            "less --log-file=out f",
            "less '+!id' f",
            "less +F f",
            "less -k x f",
            "less --lesskey-src=x f",
            "less *",
            "less \"$x\"",
            "LESSOPEN='|id %s' less f",
            "less .env",
            "less /etc/passwd",
            "more '+!id' f",
            "man -P ./x ls",
            "man --pager=./x ls",
            "man -H ls",
            "man --html=./x ls",
            "man -C x ls",
            "man -K x",
            "man ./x.1",
            "man -l x.1",
            "man -M /x ls",
            "man -T ps ls",
            "MANPAGER=./x man ls",
            "git help -w log",
            "git -c man.viewer=x help log",
        ],
    );
}

#[test]
fn archives_are_listed_without_approval() {
    assert_each(
        "allow",
        &["tar tzf a.tgz", "tar -tf a.tar", "tar -tvzf a.tgz | head", "unzip -l a.zip", "tar tf a.tar src/x"],
    );
    assert_each(
        "ask",
        &[
            "tar xzf a.tgz",
            "tar tzf",
            "tar -t",
            "tar -tzf a.tgz -I ./x",
            "tar tIf ./x a.tar",
            "tar -tf host:a.tar",
            "tar tf user@host:a.tar",
            "tar -tf a.tar --to-command=./x",
            "tar -tf a.tar --use-compress-prog=./x",
            "tar -tf a.tar --checkpoint=1 --checkpoint-action=exec=id",
            "tar -tf a.tar --info-script=./x",
            "tar -tf a.tar --index-file=out",
            "tar -tf a.tar -T list",
            "tar -tf /etc/a.tar",
            "TAR_OPTIONS=--to-command=id tar tf a.tar",
            "unzip a.zip",
            "unzip -p a.zip",
            "unzip -o -l a.zip",
            "unzip -l /tmp/a.zip",
        ],
    );
}

#[test]
fn other_ordinary_reading_runs_without_approval() {
    assert_each(
        "allow",
        &[
            "ls | tee /dev/null",
            "ls | tee /dev/stderr | wc -l",
            "python3 -m json.tool f.json",
            "cat f.json | python3 -m json.tool",
            "python3 -m json.tool --indent 2 f.json | head",
        ],
    );
    assert_each(
        "ask",
        &[
            "ls | tee out",
            "ls | tee /dev/null out",
            "ls | tee -a out",
            "python3 -m json.tool in.json out.json",
            "python3 -c 'import json' -m json.tool f.json",
            "python3 -i -m json.tool f.json",
            "python3 -m json.tools f.json",
            "python3 -m json.tool .env",
            "PYTHONPATH=. python3 -m json.tool f.json",
        ],
    );
}

/// Commands that may load code of the workspace or run a pager are read-only only because the kernel confines them.
#[test]
fn commands_confined_only_by_the_kernel_need_approval_beside_a_grant() {
    for command in ["make && python3 -m json.tool f.json", "make && less f", "make && man ls", "make && git help log"] {
        assert_eq!(verdict_word(&assess(command, ROOT, &[ROOT], &[grant("make", None)], None)), "ask", "{command}");
    }
}
