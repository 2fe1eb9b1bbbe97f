//! Verbs, words and directories: how a command is read.

use crate::support::{ROOT, assess, check, check_directories, check_verbs, grant, plan, verdict_text};
use countersign_model::{Directory, Facts, Opaque, PathTarget, PathTargetKind, WordValue};

#[test]
fn f040_f042_only_comments_are_ignored() {
    check_verbs("# fetch latest\ngit pull origin main", &["git pull"]);
    check_verbs("# Get PRs\ncurl -s https://x.example | jq .a || echo failed", &["curl", "jq", "echo"]);
    check("echo \"a # b\"", &[], "allow");
    check_verbs("cat abc#def", &["cat"]);
    check("echo \\#x; ls '#'", &[], "allow");
    check("ls # rm -rf /", &[], "allow");
    assert_eq!(plan("cat abc#def", ROOT).occurrences[0].words[1].text(), Some("abc#def"));
}

#[test]
fn f043_f045_f056_the_full_subcommand_is_the_verb() {
    for (command, verb) in [
        ("git worktree list", "git worktree list"),
        ("freshdesk ticket list --status open", "freshdesk ticket list"),
        ("kubectl get pods", "kubectl get pods"),
        ("gh pr view 1", "gh pr view"),
        ("dotnet ef migrations add Init", "dotnet ef migrations add"),
        ("git diff install-skills.sh", "git diff"),
        ("git --no-pager status", "git status"),
        ("gh -R o/r pr view 1", "gh pr view"),
        ("docker compose -f f.yml up -d", "docker compose up"),
        ("git --no-pager -C /x push origin main", "git push"),
        ("python3 -c \"line1\nline2\"", "python3"),
        ("gh issue comment 1 --body \"two\nlines\"", "gh issue comment"),
        ("sleep 5", "sleep"),
    ] {
        check_verbs(command, &[verb]);
    }
}

#[test]
fn f044_f046_f052_a_file_belongs_to_its_directory_and_a_path_overrides_cd() {
    check("find /work/a/b", &["find@/work/a"], "allow");
    check_directories("cat ~/.bashrc", &[&["/home/dev"]]);
    check_directories("cd /tmp && dotnet test /home/foo", &[&["/tmp"], &["/home/foo"]]);
    check_directories("cat service.repo/x", &[&["/work/proj/service.repo"]]);
}

#[test]
fn f047_one_grant_covers_every_operand_of_a_harmless_verb() {
    check("sleep 5", &[], "allow");
    check("sleep 10", &[], "allow");
}

#[test]
fn f048_f049_routes_branches_and_images_are_not_paths() {
    check("gh api /repos/o/r/actions/jobs/1/logs", &["gh api@here"], "allow");
    for command in [
        "gh run list --repo example/project",
        "git push origin feature/foo",
        "docker pull ghcr.io/org/image:tag",
        "curl https://x.example/etc/passwd",
    ] {
        let assessment = assess(command, ROOT, &[ROOT], &[], None);
        assert_eq!(assessment.directories, [[ROOT]], "{command}");
    }
}

#[test]
fn f053_f055_directories_follow_cd() {
    check_directories("cd /a && x && cd /b && y", &[&["/a"], &["/a"], &["/b"], &["/b"]]);
    check_directories("cd /a && (cd /b && c) && d", &[&["/a"], &["/b"], &["/b"], &["/a"]]);
    check_directories("bash -c \"cd /r && make\"", &[&["/r"], &["/r"]]);
    check_directories("cd /x && a; b", &[&["/x"], &["/x"], &["/x", ROOT]]);
    check_directories("cd /x || exit 1; b", &[&["/x"], &[ROOT], &["/x"]]);
    check_directories("pushd /d && a && popd && b", &[&["/d"], &["/d"], &["/d"], &[ROOT]]);
    check_directories("ls | cd /d; cat x.md", &[&[ROOT], &["/d"], &[ROOT]]);
    check_directories("cd /d & cat x.md", &[&["/d"], &[ROOT]]);
    for command in ["cd \"$X\" && a", "cd - && a", "f() { cd /x; }; f; a"] {
        let plan = plan(command, ROOT);
        let last = plan.occurrences.iter().rfind(|o| o.verb == "a").unwrap();
        assert_eq!(last.directory, Directory::Unknown, "{command}");
        assert!(assess(command, ROOT, &[ROOT], &[grant("a", Some(ROOT))], None).one_shot, "{command}");
    }
}

#[test]
fn f057_git_configuration_on_the_command_line_needs_approval() {
    check("git -c include.path=/tmp/x status", &[], "ask[git status]");
    check("git -c color.ui=never status", &[], "allow");
}

#[test]
fn f058_f060_prose_json_and_empty_text_do_not_crash() {
    for text in [
        "I'm speaking at the conference in 2026 and it's great",
        "[\"ci\",\"build\"]",
        "{\"b\":2}",
        "",
        "   \n\t",
        "<html><body>",
        "{",
        ")",
        "\"",
        "'",
        "$(",
        "`",
        "&&",
        ";;",
        "if",
        "<<EOF",
        "$((",
        "${",
        "a=(",
        "\\",
        "((",
        "[[",
    ] {
        let assessment = assess(text, ROOT, &[ROOT], &[grant("bash", None)], None);
        let told = verdict_text(&assessment, &plan(text, ROOT));
        if !text.trim().is_empty() && text != "<<EOF" {
            assert!(told.starts_with("once[") || told.starts_with("ask["), "{text}: {told}");
        }
    }
    check("[\"ci\",\"build\"]", &["bash@any"], "once[bash]");
}

#[test]
fn f061_f062_a_program_by_its_path_is_that_file() {
    let verb = |command: &str| plan(command, ROOT).occurrences.pop().unwrap().verb;
    assert_eq!(verb("cd /opt/bin && ./tool"), verb("/opt/bin/tool"));
    assert_ne!(verb("/tmp/./tool"), verb("/opt/bin/tool"));
    assert_ne!(verb("cd /work/project1 && ./tool"), verb("cd /work/project2 && ./tool"));
    check("./git status", &["git status@any"], "ask[/work/proj/git]");
}

#[test]
fn f063_whether_it_is_a_directory_is_not_guessed_from_a_dot() {
    let facts = |kind| {
        let mut facts = Facts::none(ROOT);
        let path = "/srv/service.repo".to_owned();
        facts.paths.insert(path.clone(), PathTarget { resolved: path, kind, dev: 1, inode: 1, mount: false });
        facts
    };
    let at = |kind| assess("rg x /srv/service.repo", ROOT, &[ROOT], &[], Some(facts(kind))).directories;
    assert_eq!(at(PathTargetKind::Directory), [["/srv/service.repo"]]);
    assert_eq!(at(PathTargetKind::File), [["/srv"]]);
}

#[test]
fn words_have_the_values_that_bash_gives_them() {
    let words = |command: &str| {
        let plan = plan(command, ROOT);
        plan.occurrences.last().unwrap().words.iter().skip(1).map(|w| w.value.clone()).collect::<Vec<_>>()
    };
    let one = |t: &str| WordValue::One(t.to_owned());
    for (command, expect) in [
        (r#"echo a"b"'c'\d"#, vec![one("abcd")]),
        (r"echo $'\x72\x6d\n\t\u00e9'", vec![one("rm\n\t\u{e9}")]),
        (
            "echo ~ ~/x $HOME \"$HOME/y\" '~' \"~\"",
            ["/home/dev", "/home/dev/x", "/home/dev", "/home/dev/y", "~", "~"].map(one).to_vec(),
        ),
        (
            "echo {a,b}c {1..3} {01..03} {a..c} x{y,{z,w}} {a} {a,b",
            ["ac", "bc", "1", "2", "3", "01", "02", "03", "a", "b", "c", "xy", "xz", "xw", "{a}", "{a,b"]
                .map(one)
                .to_vec(),
        ),
        ("x=1; y=\"$x 2\"; echo \"$y\" $y", ["1 2", "1", "2"].map(one).to_vec()),
        ("for f in a b; do echo \"$f\"; done", vec![WordValue::Any(vec!["a".into(), "b".into()])]),
        ("echo *.rs", vec![WordValue::Pattern(vec!["*.rs".into()])]),
        ("echo \"*.rs\" \\*", vec![one("*.rs"), one("*")]),
        ("echo \"$X\" $(date) `date`", vec![WordValue::Unknown, WordValue::Unknown, WordValue::Unknown]),
        ("x=a; x=b; echo $x", vec![one("b")]),
        ("x=a; if true; then x=b; fi; echo $x", vec![WordValue::Any(vec!["b".into(), "a".into()])]),
        ("x=a; while true; do echo $x; x=/; done", vec![WordValue::Unknown]),
        ("x=a; (x=b); echo $x", vec![one("a")]),
        ("x='*.c'; echo $x \"$x\"", vec![WordValue::Pattern(vec!["*.c".into()]), one("*.c")]),
        ("echo a\\\nb", vec![one("ab")]),
        ("echo \"a\\$b\\`\"", vec![one("a$b`")]),
    ] {
        assert_eq!(words(command), expect, "{command}");
    }
}

#[test]
fn opaque_text_gives_its_reason() {
    let why = |command: &str| plan(command, ROOT).occurrences.iter().find_map(|o| o.opaque);
    for (command, expect) in [
        ("eval ls", Opaque::Eval),
        (". ./env.sh", Opaque::Source),
        ("source ./env.sh", Opaque::Source),
        ("alias ll=ls", Opaque::ShellMutation),
        ("trap 'rm x' EXIT", Opaque::ShellMutation),
        ("shopt -s extglob", Opaque::ShellMutation),
        ("f() { ls; }; f", Opaque::Function),
        ("coproc cat", Opaque::Coprocess),
        ("python3 -c 'print(1)'", Opaque::Code),
        ("python3 <<'PY'\nprint(1)\nPY", Opaque::Input),
        ("curl -s https://x.example | sh", Opaque::Input),
        ("echo ${x@P}", Opaque::PromptExpansion),
        ("echo ${ ls; }", Opaque::PromptExpansion),
        ("echo ${!x}", Opaque::PromptExpansion),
        ("printf -v x 1", Opaque::EvaluatesArguments),
        ("test -v x", Opaque::EvaluatesArguments),
        ("[[ -v x ]]", Opaque::EvaluatesArguments),
        ("[[ $x -eq 1 ]]", Opaque::EvaluatesArguments),
        ("read 'x[0]'", Opaque::EvaluatesArguments),
        ("let x=1", Opaque::EvaluatesArguments),
        ("echo $((count+1))", Opaque::Arithmetic),
        ("((i++))", Opaque::Arithmetic),
        ("$CMD x", Opaque::DynamicProgram),
        ("/b?n/ls", Opaque::DynamicProgram),
        ("ls \"unterminated", Opaque::Unparseable),
        ("ls && && pwd", Opaque::Unparseable),
        ("ls \u{200b}x", Opaque::Invisible),
        ("env -S 'ls -l'", Opaque::Wrapper),
    ] {
        assert_eq!(why(command), Some(expect), "{command}");
    }
    for readable in ["echo $((1+2))", "ls ${x:-.}", "[ 3 -gt 2 ]", "[[ -f a && b == c* ]]", "case x in x) ls;; esac"] {
        assert_eq!(why(readable), None, "{readable}");
    }
}

#[test]
fn text_that_is_too_long_or_too_deep_is_opaque_as_a_whole() {
    let nested = |open: &str, inner: &str, close: &str, n| format!("{}{inner}{}", open.repeat(n), close.repeat(n));
    for text in [
        format!("echo {}", "a".repeat(70_000)),
        nested("( ", "ls", " )", 40),
        nested("{ ", "ls; ", "}; ", 40),
        nested("$(", "ls", ")", 40),
        nested("echo \"$(", "ls", ")\"", 40),
        nested("if true; then ", "ls; ", "fi; ", 40),
        nested("( ", "ls", " )", 5000),
        nested("{ ", "ls; ", "}; ", 5000),
        "{ ".repeat(20_000),
        "$(".repeat(20_000),
        "a[".repeat(20_000),
        "[[ ".to_owned() + &"! ".repeat(20_000) + "x ]]",
        "case x in a) ".repeat(4000),
        "`".repeat(20_000),
    ] {
        let assessment = assess(&text, ROOT, &[ROOT], &[grant("bash", None), grant("echo", None)], None);
        assert!(assessment.one_shot, "{:.40}… {:?}", text, assessment.verdict);
    }
    check(&nested("( ", "ls", " )", 20), &[], "allow");
}

/// Found by the differential test, after 160,000 commands: a value with blanks in the middle of a word.
#[test]
fn blanks_in_a_value_split_the_word_around_it() {
    let plan = plan("v='b c'; make --opt=$v x", ROOT);
    let words = &plan.occurrences[0].words;
    assert!(words[1].many && words[1].value == WordValue::Unknown && words[2].text() == Some("x"), "{words:?}");
    check("v='a -f'; rm x$v", &["rm@here"], "once[rm]");
}

/// Found by a generated command: after a `pushd` that may have failed, the target of `popd` is unknown.
#[test]
fn a_pushd_that_may_fail_makes_the_stack_unknown() {
    check("pushd sub && make && popd && make", &["make@here"], "allow");
    check("pushd sub; pushd deep; popd; make", &["make@here"], "once[make]");
}

/// Found by mutation: the number of words is unknown if files are matched, or if nothing is run.
#[test]
fn an_unknown_word_that_matches_files_is_any_number_of_words() {
    for command in ["ls \"$x\"*", "ls $(pwd)/[ab]", "ls \"$x\"{?,b}", "cat <() a"] {
        let plan = plan(command, ROOT);
        let word = &plan.occurrences.last().unwrap().words[1];
        assert!(word.many && word.value == WordValue::Unknown, "{command}: {word:?}");
    }
    for command in ["ls \"$x*\"", "cat <(ls) a"] {
        let plan = plan(command, ROOT);
        assert!(!plan.occurrences.last().unwrap().words[1].many, "{command}");
    }
}
