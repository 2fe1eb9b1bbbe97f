//! Shell text that hides what it does.

use crate::support::{ROOT, assess, check, plan, verdict_word};

#[track_caller]
fn assert_needs_approval(command: &str) {
    assert_ne!(verdict_word(&assess(command, ROOT, &[ROOT], &[], None)), "allow", "{command}");
}

#[test]
fn an_empty_brace_alternative_is_not_a_word() {
    assert_needs_approval("sed {,1eid} README.md");
    assert_needs_approval("awk {,'BEGIN{system(\"id\")}'} f");
    assert_needs_approval("bash -c {,'touch z'}");
    check("{,git} push", &[], "ask[git push]");
    check("bash -c {,'git push'}", &[], "ask[git push]");
    let words = |command: &str| plan(command, ROOT).occurrences[0].words.len();
    assert_eq!(words("echo {,a}"), 2);
    assert_eq!(words("echo {\"\",a}"), 3);
    assert_eq!(words("echo ''{,a}"), 3);
    assert_eq!(words("echo x{,a}"), 3);
    check("cat a{,.orig}", &[], "allow");
}

#[test]
fn quoted_lists_are_any_number_of_words() {
    for list in ["${a[@]}", "${a[@]:1}", "${a[@]:-x}", "$@", "${@:2}", "${x:-$@}", "${x:-${a[@]}}"] {
        assert_needs_approval(&format!("git symbolic-ref -- \"{list}\""));
    }
    assert_needs_approval("a=(HEAD refs/heads/evil); git symbolic-ref -- \"${a[@]}\"");
    let many = |command: &str| plan(command, ROOT).occurrences.last().unwrap().words[1].many;
    assert!(many("echo \"$@\""));
    assert!(many("echo \"${a[@]}\""));
    assert!(!many("echo \"${a[0]}\""));
    assert!(!many("echo \"${#a[@]}\""));
    assert!(!many("echo \"$*\""));
    assert!(!many("set -- one; echo \"$@\""));
}

#[test]
fn the_format_of_printf_is_checked_behind_two_dashes() {
    assert_needs_approval("printf -- 'aaaaa%n' x");
    assert_needs_approval("printf -- \"$format\" x");
    assert_needs_approval("printf -- -v x");
    check("printf -- '- %s\\n' x", &[], "allow");
}

#[test]
fn options_that_change_what_a_shell_reads_make_its_text_opaque() {
    for options in [
        "-kc",
        "-ac",
        "-fc",
        "-ic",
        "-k -c",
        "-c -k",
        "-o keyword -c",
        "-o posix -c",
        "-oc keyword",
        "-O extglob -c",
        "+O extglob -c",
        "-O dotglob -c",
        "-cO lastpipe",
        "--posix -c",
        "--restricted -c",
        "-posix -c",
        "-o \"$x\" -c",
        "+c",
        "--rcfile x -c",
        "-rcfile x -c",
        "-oo errexit keyword -c",
    ] {
        assert_needs_approval(&format!("bash {options} 'git status'"));
    }
    assert_needs_approval("bash -kc 'git diff GIT_EXTERNAL_DIFF=./evil'");
    assert_needs_approval("bash -O extglob -c '!(echo hi)'");
    // The value of an option is not the command.
    check("bash -eo pipefail -c 'git push'", &[], "ask[git push]");
    check("bash -O extglob -c 'rm -rf /'", &["bash@any", "rm@any"], "deny[system_destructive]");
    for options in ["-c", "-lc", "-ec", "-euxc", "-euo pipefail -c", "-o errexit -c", "+x -c", "-c --", "--norc -c"] {
        check(&format!("bash {options} 'git status'"), &[], "allow");
    }
    check("sh -ec 'git status'", &[], "allow");
}

#[test]
fn text_for_other_shells_is_not_read_as_if_it_were_for_bash() {
    for shell in ["zsh", "ksh", "mksh", "yash", "fish", "csh", "tcsh", "rc", "/bin/zsh", "env zsh", "busybox zsh"] {
        assert_needs_approval(&format!("{shell} -c 'git status'"));
        let command = format!("{shell} -c 'rm x'");
        let all = [crate::support::grant("rm", None), crate::support::grant("git status", None)];
        assert_eq!(verdict_word(&assess(&command, ROOT, &[ROOT], &all, None)), "ask", "{command}");
        let command = format!("{shell} -c 'rm -rf /'");
        assert_eq!(verdict_word(&assess(&command, ROOT, &[ROOT], &all, None)), "deny", "{command}");
    }
    check("dash -c 'git status'", &[], "allow");
}

#[test]
fn paths_are_relative_to_the_directory_of_the_program() {
    use crate::support::check_directories;
    for command in [
        "env -C link/.. cat passwd",
        "env --chdir=link/.. cat passwd",
        "env -C .. cat passwd",
        "env -C sub -C link/.. cat passwd",
        "env -C \"$x\" cat passwd",
        "env -C /etc cat passwd",
        "env -C /srv true",
        "env -C link bash -c 'cd .. && cat passwd'",
        "cd link && env -i bash -c 'cd .. && cat passwd'",
        "cd link && env -u PWD bash -c 'cd .. && cat passwd'",
        "cd link && PWD=/ bash -c 'cd .. && cat passwd'",
    ] {
        assert_needs_approval(command);
    }
    check("env -C sub cat README.md", &[], "allow");
    // The last of two counts, relative to the starting directory.
    check_directories("env -C a -C b cat x", &[&["/work/proj/b"], &["/work/proj/b"]]);
}

#[test]
fn the_parent_of_a_link_target_is_unknown() {
    for command in [
        "cd -P sub/link/.. && cat passwd",
        "cd -P -- sub/link/.. && cat passwd",
        "cd -P sub/link && cd .. && cat passwd",
        "cd -P sub/link && cd a && cd ../.. && cat passwd",
        "cd sub/link && cd -P .. && cat passwd",
        "cd -P sub/link && pushd /work/proj && popd && cd .. && cat passwd",
        "cd -P sub/link; x=$PWD; cd /work/proj; cd $x/.. && cat passwd",
    ] {
        assert_needs_approval(command);
    }
    check("for d in a b; do (cd $d && cd .. && cat README.md); done", &[], "allow");
    for command in ["cd sub/.. && cat README.md", "cd -P sub && cat README.md", "cd sub && cd .. && cat README.md"] {
        check(command, &[], "allow");
    }
}
