//! Commands that look like read-only phrases but do more than read, or show a secret.

use crate::support::{ROOT, assess, grant, verdict_word};
use countersign_model::Risk;

#[track_caller]
fn assert_all_need_approval(commands: &[&str]) {
    let unasked: Vec<&&str> =
        commands.iter().filter(|c| verdict_word(&assess(c, ROOT, &[ROOT], &[], None)) == "allow").collect();
    assert!(unasked.is_empty(), "run unasked: {unasked:#?}");
}

#[track_caller]
fn assert_all_need_approval_for_secrets(commands: &[&str]) {
    let shows = |c: &str| {
        let assessment = assess(c, ROOT, &[ROOT], &[], None);
        verdict_word(&assessment) == "ask" && assessment.risk_set().contains(&Risk::Credential)
    };
    let unasked: Vec<&&str> = commands.iter().filter(|c| !shows(c)).collect();
    assert!(unasked.is_empty(), "not told as secrets: {unasked:#?}");
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
    assert!(asked.is_empty(), "asked about: {asked:#?}");
}

#[test]
fn each_value_of_a_loop_variable_is_checked() {
    assert_all_need_approval(&[
        "for x in show update; do git remote $x; done",
        "for x in show expire; do git reflog $x --all; done",
        "for f in .env x; do git cat-file -p HEAD:$f; done",
        "for k in credential.helper user.name; do git config --get $k; done",
        "for x in eval .a; do yq $x config.yaml; done",
        "for x in -p A; do export $x; done",
        "for x in 1p 1w; do sed -n -e 1p -e $x README.md; done",
        "for x in -n @list; do strings $x a.bin; done",
        "git cat-file -p -- \"$(echo HEAD:sub/.env)\"",
        "git cat-file -p \"$x\"",
        "git remote \"$x\"",
        "git reflog \"$x\"",
        "git config --get \"$x\"",
    ]);
    assert_all_allowed(&[
        "for k in user.email user.name; do git config --get $k; done",
        "for f in a b; do git cat-file -p HEAD:$f; done",
        "for x in .a .b; do yq $x config.yaml; done",
    ]);
}

#[test]
fn git_config_reads_only_where_its_options_stand_before_its_operands() {
    assert_all_need_approval(&[
        "git config core.fsmonitor ./evil --get",
        "git config core.pager x -l",
        "git config core.pager x --list",
        "git config --name-only core.pager x",
        "git config get x core.pager",
        "git config set core.pager x",
    ]);
    assert_all_allowed(&[
        "git config --get user.name",
        "git config user.name",
        "git config --global --get user.email",
        "git config get --show-origin user.name",
        "git config --list --name-only",
        "git config --get-regexp '^alias\\.'",
    ]);
}

#[test]
fn settings_that_may_hold_secrets_need_approval_as_credentials() {
    assert_all_need_approval_for_secrets(&[
        "git config --list",
        "git config -l",
        "git config --global -l",
        "git config list",
        "git config --get-regexp .",
        "git config --get-regexp '^user\\.|http'",
        "git config --get http.extraheader",
        "git config http.proxy",
    ]);
}

#[test]
fn letters_behind_an_option_of_tree_are_options() {
    assert_all_need_approval(&[
        "tree -Io pat out.txt",
        "tree -Po pat out.txt",
        "tree -Ho base out.html",
        "tree -Lo 2 out.txt",
        "tree -L2o out.txt",
        "tree -aIo pat out.txt",
    ]);
    assert_all_allowed(&["tree -L 2 -I target", "tree -aL 2", "tree -L2", "tree -I 'target|node_modules' src"]);
}

#[test]
fn no_word_of_binutils_reads_its_arguments_from_a_file() {
    assert_all_need_approval(&[
        "strings -n @list",
        "nm -f @list2",
        "objdump -j @x",
        "readelf -p @x a.out",
        "size --format @x",
        "nm *.o",
        "objdump -S a.out",
        "objdump --source a.out",
        "objdump --plugin x a.out",
        "nm --plugin x a.out",
    ]);
    assert_all_allowed(&["strings -n 8 a.bin", "nm -C a.out", "objdump -d a.out", "readelf -h a.out", "nm target/*.o"]);
}

#[test]
fn values_that_a_script_splits_again_are_plain() {
    assert_all_need_approval(&[
        "bzgrep -A '1 root' /etc/passwd README.md",
        "bzgrep -A '1 root' x README.md",
        "zgrep -m '1 -f x' y a.gz",
        "bzgrep -C '*' x a.bz2",
        "bzgrep -e 'a b' x.bz2",
    ]);
    assert_all_allowed(&[
        "zgrep -A 3 -n error logs/app.log.gz",
        "bzgrep -m1 'a b' logs/app.bz2",
        "xzgrep -e error logs/a.xz",
    ]);
}

#[test]
fn an_option_that_takes_no_value_swallows_no_file() {
    assert_all_need_approval(&[
        "git blame --abbrev .env",
        "pr -nh .env",
        "pr -sh .env",
        "pr -eh .env",
        "strings -Ue /etc/passwd",
        "column -t -nH .env",
        "nm -Uf .env",
    ]);
    assert_all_allowed(&[
        "git blame --abbrev=8 src/main.rs",
        "pr -n -h title notes.txt",
        "column -t -s, data/a.csv",
        "strings -U hex a.bin",
    ]);
}

#[test]
fn a_number_that_less_takes_has_nothing_behind_it() {
    assert_all_need_approval(&[
        "less -b5k./lk README.md",
        "less -y5k./lk README.md",
        "less -x4\\$k./lk README.md",
        "less -b5olog.txt README.md",
        "less -j5+!cmd README.md",
        "less -z \"$x\" README.md",
    ]);
    assert_all_allowed(&["less -x4 README.md", "less -x 4,8 -R README.md", "less -j5 README.md"]);
}

#[test]
fn a_bare_glob_is_no_value_where_it_may_become_an_action() {
    assert_all_need_approval(&[
        "xxd -l *",
        "xxd -s \"$x\" a.bin",
        "find . -name -*",
        "find . -name ?delete",
        "find . -name *",
        "find . -newer * -print",
        "find . -name [-]delete",
    ]);
    assert_all_allowed(&["find . -name *.rs", "find . -name test_*", "find . -name '*'", "xxd -l 32 a.bin"]);
}

#[test]
fn find_leaves_out_only_what_no_action_sees() {
    assert_all_need_approval_for_secrets(&[
        "find . -name .env -prune -exec cat {} +",
        "find . -name .env -prune | xargs cat",
        "find . -name .env -prune -print | xargs cat",
        "find . -name .env -prune -o -type f | xargs cat",
        "find . -not -not -name .env -exec cat {} +",
        "find . ! ! -name .env -exec cat {} +",
        "find . ! '(' ! -name .env ')' -exec cat {} +",
        "find . ! -name .env -o -exec cat {} +",
        "find . '(' -name .env -prune -o -false ')' -exec cat {} +",
        "find . -false -name .env -prune -o -exec cat {} +",
        "find . ! -name .env -prune -o -exec cat {} +",
        "find . -name .env -prune -o -true , -exec cat {} +",
    ]);
    assert_all_allowed(&[
        "find . ! -name .env -type f -exec cat {} +",
        "find . -not -name .env -name '*.rs' | xargs cat",
        "find . -name .env -prune -o -name '*.rs' -exec cat {} +",
    ]);
}

#[test]
fn unzip_takes_options_only_before_its_archive() {
    assert_all_need_approval(&[
        "unzip a.zip '*' -l",
        "unzip a.zip -l",
        "unzip a.zip x -Z",
        "unzip -l a.zip -p",
        "unzip -l a.zip *",
    ]);
    assert_all_allowed(&["unzip -l a.zip", "unzip -l a.zip 'src/*'"]);
}

#[test]
fn ps_shows_no_environment_when_its_options_conflict() {
    assert_all_need_approval(&[
        "ps -eT --forest",
        "ps -e -T --forest",
        "ps -eL --forest",
        "ps -ely --forest",
        "ps -em --forest",
    ]);
    assert_all_allowed(&[
        "ps -ef",
        "ps -e",
        "ps -A",
        "ps aux",
        "ps auxf",
        "ps -eo pid,args",
        "ps -ely",
        "ps -eLf",
        "ps -ef --forest",
    ]);
}

#[test]
fn a_tool_that_the_workspace_can_replace_prints_its_version_only_confined() {
    let make = [grant("make", Some(ROOT))];
    for tool in ["cargo", "flake8", "tox", "pytest", "npm", "gradle"] {
        for option in ["--version", "--help"] {
            let alone = format!("{tool} {option}");
            assert_all_allowed(&[&alone]);
            let beside = format!("make; {alone}");
            assert_eq!(verdict_word(&assess(&beside, ROOT, &[ROOT], &make, None)), "ask", "{beside}");
        }
    }
    assert_eq!(verdict_word(&assess("make; yarn -v", ROOT, &[ROOT], &make, None)), "ask");
    for inert in ["make; git --version", "make; python3 --version", "make; ls --help", "make; gcc --version"] {
        assert_eq!(verdict_word(&assess(inert, ROOT, &[ROOT], &make, None)), "allow", "{inert}");
    }
}

#[test]
fn lsof_looks_up_no_host() {
    assert_all_need_approval(&[
        "lsof -i@example.org",
        "lsof -i @example.org",
        "lsof -i tcp@example.org:80",
        "lsof -i \"$x\"",
    ]);
    assert_all_allowed(&["lsof -i :8080", "lsof -i:8080", "lsof -i tcp:8080", "lsof -nP -iTCP:3000", "lsof -i"]);
}

#[test]
fn a_branch_is_listed_by_the_long_option() {
    assert_all_need_approval(&["git branch -l NAME", "git branch -v -l NAME"]);
    assert_all_allowed(&["git branch --list NAME", "git branch -l", "git tag -l 'v1.*'", "git branch --contains HEAD"]);
}

#[test]
fn only_known_sections_and_formats_are_read_only() {
    assert_all_need_approval(&[
        "man -s '1/../..' ls",
        "man -L ../x ls",
        "git log --pretty=a:b.c",
        "git log --format=mine",
    ]);
    assert_all_allowed(&[
        "man -s 3 printf",
        "git log --pretty=format:%h",
        "git log --format='%h %s'",
        "git log --pretty=oneline",
    ]);
}

#[test]
fn half_a_listed_name_cannot_become_a_writing_option() {
    assert_all_need_approval(&[
        "find src -name '*.txt' | xargs sort",
        "sort $(find src -name '*.txt')",
        "grep -rl x src | xargs tree",
        "find src -name '*.c' | xargs git log",
        "find src -name '*.txt' | xargs file",
        "for f in $(find src -name '*.txt'); do sort \"$f\"; done",
    ]);
    assert_all_allowed(&[
        "find src -name '*.txt' | xargs cat",
        "find src -name '*.txt' | xargs sort --",
        "find src -name '*.txt' | xargs awk '{print $1}'",
        "wc -l $(git ls-files '*.rs')",
    ]);
}
