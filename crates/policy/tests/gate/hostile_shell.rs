//! Shell text that is written so that it does not say what it does.

use crate::support::{ROOT, assess, check, plan, word};

#[track_caller]
fn asks(command: &str) {
    assert_ne!(word(&assess(command, ROOT, &[ROOT], &[], None)), "allow", "{command}");
}

#[test]
fn an_empty_place_between_braces_is_no_word() {
    asks("sed {,1eid} README.md");
    asks("awk {,'BEGIN{system(\"id\")}'} f");
    asks("bash -c {,'touch z'}");
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
        asks(&format!("git symbolic-ref -- \"{list}\""));
    }
    asks("a=(HEAD refs/heads/evil); git symbolic-ref -- \"${a[@]}\"");
    let many = |command: &str| plan(command, ROOT).occurrences.last().unwrap().words[1].many;
    assert!(many("echo \"$@\""));
    assert!(many("echo \"${a[@]}\""));
    assert!(!many("echo \"${a[0]}\""));
    assert!(!many("echo \"${#a[@]}\""));
    assert!(!many("echo \"$*\""));
    assert!(!many("set -- one; echo \"$@\""));
}

#[test]
fn the_format_of_printf_is_looked_at_behind_two_dashes() {
    asks("printf -- 'aaaaa%n' x");
    asks("printf -- \"$format\" x");
    asks("printf -- -v x");
    check("printf -- '- %s\\n' x", &[], "allow");
}
