//! Lines as bash reads them: continuations that it removes before it scans, and here-documents that end where bash
//! ends them. `⏎` stands for a newline.

use crate::support::{ROOT, assess, check, check_verbs, grant, plan, verdict_text, verdict_word};
use countersign_model::{Opaque, WordValue};

fn with_newlines(text: &str) -> String {
    text.replace('⏎', "\n")
}

/// Checks that a command needs approval: it is not read-only, and no grant for an ordinary command covers it.
#[track_caller]
fn assert_needs_approval(shown: &str) {
    let command = with_newlines(shown);
    let granted = [grant("git commit", Some(ROOT))];
    for grants in [&[][..], &granted[..]] {
        let answer = assess(&command, ROOT, &[ROOT], grants, None);
        assert_ne!(verdict_word(&answer), "allow", "{shown}");
    }
}

/// Checks that a command needs approval and that the plan names it, as bash reads it.
#[track_caller]
fn assert_named(shown: &str) {
    assert_needs_approval(shown);
    let all = plan(&with_newlines(shown), ROOT);
    let found = all.occurrences.iter().any(|o| o.program == "touch" && !o.shadow);
    assert!(found, "{shown}: {:?}", all.occurrences.iter().map(|o| &o.verb).collect::<Vec<_>>());
}

#[track_caller]
fn assert_opaque(shown: &str) {
    assert_needs_approval(shown);
    let all = plan(&with_newlines(shown), ROOT);
    assert!(all.occurrences.iter().any(|o| o.unread && o.opaque == Some(Opaque::Unparseable)), "{shown}");
}

#[test]
fn a_continuation_hides_no_substitution() {
    for command in [
        // Double quotes.
        r#"git commit -m "fix: $\⏎(touch ~/pwned)""#,
        r#"echo "$\⏎(touch ~/pwned)""#,
        r#"echo "a$\⏎\⏎(touch ~/pwned)b""#,
        r#"echo $"$\⏎(touch ~/pwned)""#,
        // Assignments, plain and declared, arrays, subscripts.
        r#"x="$\⏎(touch ~/pwned)"; git commit -m "$x""#,
        r#"x="$\⏎(touch ~/pwned)" git commit -m y"#,
        r#"export X="$\⏎(touch ~/pwned)"; git commit -m y"#,
        r#"a=("$\⏎(touch ~/pwned)"); git commit -m y"#,
        r#"a=\⏎($\⏎(touch ~/pwned)); git commit -m y"#,
        // Conditions and compound commands.
        r#"[[ "$\⏎(touch ~/pwned)" == x ]]"#,
        r#"[[ x == $\⏎(touch ~/pwned) ]] && git commit -m y"#,
        r#"[[ x =~ $\⏎(touch ~/pwned) ]]"#,
        r#"[ "$\⏎(touch ~/pwned)" = x ]"#,
        r#"case "$\⏎(touch ~/pwned)" in x) ls;; esac"#,
        r#"case x in "$\⏎(touch ~/pwned)") ls;; esac"#,
        r#"for f in "$\⏎(touch ~/pwned)"; do ls; done"#,
        r#"if [ -n "$\⏎(touch ~/pwned)" ]; then ls; fi"#,
        r#"while [ "$\⏎(touch ~/pwned)" = y ]; do ls; done"#,
        r#"{ echo "$\⏎(touch ~/pwned)"; }"#,
        r#"(echo "$\⏎(touch ~/pwned)")"#,
        r#"f() { echo "$\⏎(touch ~/pwned)"; }; f"#,
        // Redirects and their words.
        r#"cat <<< "$\⏎(touch ~/pwned)""#,
        r#"cat <<\⏎< "$(touch ~/pwned)""#,
        r#"ls > "/dev/null$\⏎(touch ~/pwned)""#,
        r#"cat < "a$\⏎(touch ~/pwned)""#,
        // Expansions.
        r#"echo ${x:-$\⏎(touch ~/pwned)}"#,
        r#"echo "${x:-$\⏎(touch ~/pwned)}""#,
        r#"echo $\⏎{x:-$(touch ~/pwned)}"#,
        r#"echo "$\⏎{x:-`touch ~/pwned`}""#,
        r#"echo "`echo $\⏎(touch ~/pwned)`""#,
        r#"echo `echo $\⏎(touch ~/pwned)`"#,
        r#"echo <\⏎(touch ~/pwned)"#,
        r#"echo "a $(echo "$\⏎(touch ~/pwned)")""#,
        // Bodies of here-documents.
        "cat <<E⏎$\\⏎(touch ~/pwned)⏎E",
        "git commit -F - <<E⏎$\\⏎(touch ~/pwned)⏎E",
        "cat <<E⏎${x:-$\\⏎(touch ~/pwned)}⏎E",
        "cat <<-E⏎\t$\\⏎(touch ~/pwned)⏎\tE",
        // Text for another shell.
        r#"bash -c 'echo "$\⏎(touch ~/pwned)"'"#,
        r#"sh -c 'echo "$\⏎(touch ~/pwned)"'"#,
        r#"timeout 5 bash -c 'git commit -m "$\⏎(touch ~/pwned)"'"#,
        r#"find . -exec sh -c 'echo "$\⏎(touch ~/pwned)"' \;"#,
    ] {
        assert_named(command);
    }
    for command in [
        r#"echo $((1 + $\⏎(touch ~/pwned)))"#,
        r#"echo $(\⏎(touch ~/pwned))"#,
        r#"a[$\⏎(touch ~/pwned)]=1; git commit -m y"#,
        r#"(( $\⏎(touch ~/pwned) ))"#,
        r#"eval 'echo "$\⏎(touch ~/pwned)"'"#,
        r#"trap 'echo "$\⏎(touch ~/pwned)"' EXIT; git commit -m y"#,
        r#"ssh host 'echo "$\⏎(touch ~/pwned)"'"#,
        r#"coproc echo "$\⏎(touch ~/pwned)""#,
        r#"select f in "$\⏎(touch ~/pwned)"; do ls; done"#,
        r#"echo "${x:-'$\⏎(touch ~/pwned)'}""#,
    ] {
        assert_needs_approval(command);
    }
}

#[test]
fn a_continuation_hides_no_command_operator_or_word() {
    for command in [
        "ls &\\⏎& touch ~/pwned",
        "ls |\\⏎| touch ~/pwned",
        "ls |\\⏎& touch ~/pwned",
        "ls ;\\⏎ touch ~/pwned",
        "to\\⏎uch ~/pwned",
        "\\⏎touch ~/pwned",
        "i\\⏎f ls; th\\⏎en touch ~/pwned; f\\⏎i",
        "while false; do ls; d\\⏎one; touch ~/pwned",
        "for f in a; d\\⏎o touch ~/pwned; done",
        "case x in x) ls ;\\⏎; y) touch ~/pwned;; esac",
        "case x in x) ls;; es\\⏎ac; touch ~/pwned",
        "[\\⏎[ -f a ]] && touch ~/pwned",
        "echo $\\⏎'a\\'b'; touch ~/pwned #'",
        "echo '\\⏎'; touch ~/pwned",
        "echo \"a\\⏎\"; touch ~/pwned",
        // A word and no comment; then a comment, which a backslash does not continue.
        "ls a\\⏎#b; touch ~/pwned",
        "ls # a\\⏎touch ~/pwned",
        "ls \\⏎# a\\⏎touch ~/pwned",
        // Escaped backslashes and carriage returns do not continue a line.
        "echo \\\\⏎touch ~/pwned",
        "echo \"\\\\⏎\"; touch ~/pwned",
        "echo \\\r⏎touch ~/pwned",
        // Removed even in single quotes, between backquotes.
        "echo `echo 'a\\⏎b'; touch ~/pwned`",
    ] {
        assert_named(command);
    }
    check_verbs(&with_newlines("git sta\\⏎tus 2\\⏎>&1"), &["git status"]);
    check(&with_newlines("git sta\\⏎tus 2\\⏎>/dev/null"), &[], "allow");
    check(&with_newlines("ls -l \\⏎  -a \\⏎  sub"), &[], "allow");
    check(&with_newlines("git commit -m 'a \\⏎ b'"), &["git commit@here"], "allow");
    check(&with_newlines("git commit -m \"a \\⏎ b\""), &["git commit@here"], "allow");
    check(&with_newlines("ls # it's \\⏎pwd"), &[], "allow");
}

#[test]
fn syntax_that_depends_on_the_version_of_bash_is_opaque() {
    for command in [
        // Arithmetic to some versions, a substitution to others.
        "echo $(\\⏎(1)); git commit -m y",
        "((1)\\⏎); git commit -m y",
        "echo $((1)\\⏎)",
        // Quotes in quotes.
        "echo \"${x:-'}\" '$(touch ~/pwned)'\"}\"",
        "echo ${x:-<(ls })}",
        // Counting finds another end than parsing.
        "((ls ${x:-))⏎touch ~/pwned⏎echo a} ) )",
        "echo $((ls ${x:-)) $(touch ~/pwned) ${x:-} ) )",
        // A here-document of an outer line, and a word that extends over its end.
        "cat <<A \"x⏎y\"⏎a⏎A",
        "cat <<A $(cat <<B⏎b⏎B⏎)⏎a⏎A",
    ] {
        assert_opaque(command);
    }
}

#[test]
fn a_span_is_the_position_in_the_source() {
    let text = "ls \\\n a; cat \\\n b\\\nc; rm \"$(touch x)\"";
    let all = plan(text, ROOT);
    let shown = |program: &str| {
        let span = all.occurrences.iter().find(|o| o.program == program).unwrap().span.clone();
        &text[span]
    };
    assert_eq!(shown("ls"), "ls \\\n a");
    assert_eq!(shown("cat"), "cat \\\n b\\\nc");
    assert_eq!(shown("touch"), "touch x");
    let cat = all.occurrences.iter().find(|o| o.program == "cat").unwrap();
    assert_eq!(cat.words[1].value, WordValue::One("bc".to_owned()));
    // Inside a continued word, the span is that of the word.
    let text = "ls; echo \"a\\\nb $(touch x)\"";
    let all = plan(text, ROOT);
    let touch = all.occurrences.iter().find(|o| o.program == "touch").unwrap();
    assert_eq!(&text[touch.span.clone()], "\"a\\\nb $(touch x)\"");
}

#[test]
fn a_here_document_ends_where_bash_ends_it() {
    for command in [
        "cat <<E\\⏎OF⏎x⏎EOF⏎touch ~/pwned",
        "cat <<\"it's\"⏎x⏎it's⏎touch ~/pwned⏎its",
        "cat <<'a\\b'⏎x⏎a\\b⏎touch ~/pwned⏎ab",
        "cat <<\"a\\b\"⏎x⏎a\\b⏎touch ~/pwned⏎ab",
        "cat <<\"a\\\\b\"⏎x⏎a\\b⏎touch ~/pwned⏎ab",
        "cat <<\"a\\\"b\"⏎x⏎a\"b⏎touch ~/pwned⏎ab",
        "cat <<a\\ b⏎x⏎a b⏎touch ~/pwned",
        "cat <<'a b'⏎x⏎a b⏎touch ~/pwned",
        "cat <<E'O'\"F\"⏎x⏎EOF⏎touch ~/pwned",
        "cat <<\\E⏎x⏎E⏎touch ~/pwned",
        "cat <<\\'E⏎x⏎'E⏎touch ~/pwned⏎E",
        "cat <<\\\"E⏎x⏎\"E⏎touch ~/pwned⏎E",
        "cat <<\\\\E⏎x⏎\\E⏎touch ~/pwned⏎E",
        "cat <<\\⏎-E⏎x⏎\tE⏎touch ~/pwned⏎-E",
        "cat <\\⏎<-E⏎x⏎\tE⏎touch ~/pwned⏎E",
        "cat <<\\⏎E⏎x⏎E⏎touch ~/pwned",
        "cat << \\⏎ E⏎x⏎E⏎touch ~/pwned",
        "cat <<A <<\\⏎B⏎a⏎A⏎b⏎B⏎touch ~/pwned",
        "cat <<\\⏎<word⏎touch ~/pwned⏎word",
        "cat <\\⏎<\\⏎<word⏎touch ~/pwned⏎word",
        // Lines of the body are joined before bash compares the delimiter, unless it is quoted.
        "cat <<EOF⏎x⏎E\\⏎OF⏎touch ~/pwned⏎EOF",
        "cat <<EOF⏎x\\⏎EOF⏎EOF⏎touch ~/pwned",
        "cat <<'EOF'⏎x\\⏎EOF⏎touch ~/pwned⏎EOF",
        "cat <<EOF⏎x\\\\⏎EOF⏎touch ~/pwned⏎EOF",
        "cat <<-E⏎\t\\⏎\tE⏎touch ~/pwned⏎E",
        "cat <<-E⏎x⏎\t\tE⏎touch ~/pwned⏎E",
        "cat <<E⏎x⏎\tE⏎E⏎touch ~/pwned",
        // Inside other constructs, and with other constructs behind them.
        "cat <<E && touch ~/pwned⏎x⏎E",
        "cat <<E; touch ~/pwned⏎x⏎E",
        "{ cat <<E⏎x⏎E⏎touch ~/pwned⏎}",
        "(cat <<E⏎x⏎E⏎touch ~/pwned)",
        "if cat <<E⏎x⏎E⏎then touch ~/pwned; fi",
        "for f in a; do cat <<E⏎x⏎E⏎touch ~/pwned; done",
        "f() { cat <<E⏎x⏎E⏎touch ~/pwned⏎}; f",
        "echo $(cat <<E⏎x⏎E⏎touch ~/pwned)",
        "echo \"$(cat <<'E'⏎x⏎E⏎touch ~/pwned)\"",
        "cat <(cat <<E⏎x⏎E⏎touch ~/pwned)",
        "echo `cat <<E⏎x⏎E⏎touch ~/pwned`",
        "bash -c 'cat <<E⏎x⏎E⏎touch ~/pwned'",
    ] {
        assert_named(command);
    }
}

#[test]
fn a_here_document_with_an_uncertain_end_is_opaque() {
    for command in [
        // Without an end, bash takes the rest of the text.
        "cat <<E⏎touch ~/pwned",
        "cat <<E",
        "cat <<E⏎E ⏎touch ~/pwned",
        "cat <<E⏎E\r⏎touch ~/pwned",
        "cat <<'E⏎F'⏎x⏎E⏎F⏎touch ~/pwned",
        "git commit -F - <<EOF⏎x⏎ EOF⏎touch ~/pwned",
        // Delimiters that bash changes, some only in some versions.
        "cat <<$'E'⏎x⏎E⏎touch ~/pwned⏎$E",
        "cat <<$\"E\"⏎x⏎E⏎touch ~/pwned⏎$E",
        "cat <<$E⏎x⏎$E⏎touch ~/pwned",
        "cat <<`E`⏎x⏎`E`⏎touch ~/pwned",
        "cat <<''⏎x⏎⏎touch ~/pwned",
        "cat <<-'\tE'⏎x⏎\tE⏎touch ~/pwned⏎E",
        "cat << #E⏎x⏎#E⏎touch ~/pwned",
        "cat <<E=(a)⏎x⏎E=(a)⏎touch ~/pwned",
        // In a substitution, bash also ends the body where the delimiter starts a line and a parenthesis follows.
        "echo $(cat<<E⏎E)⏎touch ~/pwned⏎E⏎)",
        "echo \"$(cat <<E⏎E)\"⏎touch ~/pwned⏎E⏎)\"",
        "echo $(cat <<'E'⏎x⏎E ; true)⏎touch ~/pwned⏎E⏎)",
        "echo $(cat <<-E⏎x⏎\tE)⏎touch ~/pwned⏎E⏎)",
        "echo $(cat <<E⏎x⏎E\\⏎)⏎touch ~/pwned⏎E⏎)",
        "cat <(cat<<E⏎E)⏎touch ~/pwned⏎E⏎)",
        "echo $( (cat<<E⏎E) )⏎touch ~/pwned⏎E⏎) )",
        "git commit -m \"$(cat <<EOF⏎x⏎EOF)\"⏎touch ~/pwned⏎EOF⏎)\"",
        "cat <<X⏎$(cat<<E⏎E)⏎$(touch ~/pwned)⏎E⏎)⏎X",
        // Old versions do not read this as a here-document.
        "echo $(cat $<<'E'⏎touch ~/pwned⏎E⏎)",
        // Old versions follow one here-document there, not two.
        "echo $(cat <<A <<B⏎A⏎)⏎touch ~/pwned⏎B⏎)",
        // Old versions join lines there even if the backslash is escaped or the delimiter is quoted.
        "echo \"$(cat <<E⏎\\\\⏎\\$(touch ~/pwned)⏎E⏎)\"",
        "echo $(cat <<'E'⏎x\\\\⏎E⏎touch ~/pwned⏎E⏎)",
        "echo $(cat <<'E'⏎x\\⏎E⏎touch ~/pwned⏎E⏎)",
        // Bodies behind the parenthesis that ends the substitution.
        "echo $(cat <<E)⏎x⏎E⏎touch ~/pwned",
    ] {
        assert_needs_approval(command);
        let all = plan(&with_newlines(command), ROOT);
        assert!(all.occurrences.iter().any(|o| o.opaque.is_some() && !o.shadow), "{command}");
    }
}

#[test]
fn ordinary_here_documents_are_read() {
    for command in [
        "cat <<'EOF'⏎it's $(fine) `here` \\⏎ and here⏎EOF",
        "cat <<EOF⏎plain \\⏎text⏎EOF",
        "cat <<-EOF⏎\ttext⏎\tEOF⏎ls",
        "cat <<A <<'B'⏎a⏎A⏎b⏎B⏎ls",
        "wc -l <<\"E F\"⏎x⏎E F",
        "echo \"$(cat <<E⏎a⏎E⏎)\"",
    ] {
        let command = with_newlines(command);
        let answer = assess(&command, ROOT, &[ROOT], &[], None);
        assert_eq!(verdict_text(&answer, &plan(&command, ROOT)), "allow", "{command}");
    }
    let message = "git commit -m \"$(cat <<'EOF'⏎feat: it's done (really)⏎⏎    curl -s \\⏎      x | sh⏎EOF⏎)\"";
    check(&with_newlines(message), &["git commit@here"], "allow");
}

/// bash reads a group in a conditional as one word: no comment and no here-document starts in it.
#[test]
fn a_group_in_a_conditional_hides_nothing() {
    for command in [
        "[[ a =~ (<<E) ]]⏎touch ~/pwned⏎E",
        "[[ a =~ ( #) ]]; touch ~/pwned⏎x ) ]]",
        "[[ a =~ (x|y)<<E ]]⏎touch ~/pwned⏎E",
        "time -p [[ a =~ (<<E) ]]⏎touch ~/pwned⏎E",
        "[[ a == @(<<E) ]]⏎touch ~/pwned⏎E",
        "[[ a == +(x #) ]]; touch ~/pwned⏎) ]]",
        "[[ a << E ]]⏎touch ~/pwned⏎E",
        "[[ a =~ ('<<E) ]]'⏎touch ~/pwned⏎E",
    ] {
        assert_needs_approval(command);
    }
    for command in ["[[ $x =~ ^(a|b)+$ ]]", "[[ a =~ [0-9]+ && -f b ]]", "[[ ! ( -f a || -d b ) ]]", "[[ x =~ a\\ b ]]"]
    {
        check(command, &[], "allow");
    }
}

/// `name[` extends to its bracket: a comment or here-document in there is neither.
#[test]
fn a_subscript_hides_nothing() {
    for command in [
        "a[1 <<2]=3⏎touch ~/pwned⏎2]=3",
        "declare -A a; a[ #]=1; touch ~/pwned",
        "x=1 a[ #]=2; touch ~/pwned",
        "a=([ #]=1); touch ~/pwned",
        "a=([0 #]=1⏎); touch ~/pwned",
    ] {
        assert_needs_approval(command);
    }
}

/// In some character sets the second byte of a character is a backslash, and the quote behind it is then no quote.
#[test]
fn a_character_set_that_changes_quoting_is_opaque() {
    for command in [
        "LC_ALL=zh_CN.GBK bash -c 'echo \"你\\\"; touch ~/pwned; echo \\\"\"'",
        "LC_CTYPE=ja_JP.SJIS; ls",
        "export LANG=zh_TW.Big5; ls",
        "export 'LC_ALL=zh_CN.GB18030'; ls",
        "env LC_ALL=zh_CN.GBK bash -c ls",
        "LC_ALL=$x ls",
        "LC_ALL=C LC_ALL+=x ls",
    ] {
        assert_needs_approval(command);
    }
    for command in ["LC_ALL=C sort a", "LANG=en_US.UTF-8 ls", "export LC_ALL=C.utf8; ls", "env LC_ALL=POSIX ls"] {
        check(command, &[], "allow");
    }
}

/// Text for another shell may write invisible characters as escapes.
#[test]
fn invisible_characters_in_text_for_another_shell_are_opaque() {
    for command in [r"bash -c $'echo \x01\x01 a'", r"bash -c $'echo \x7f a'", r"bash -c $'ls \u200b a'"] {
        assert_needs_approval(command);
    }
}

/// Found by mutation: bash expands the word behind `>&`, and expands it again if the result is not a number.
#[test]
fn a_word_behind_an_ampersand_is_expanded_twice() {
    for command in [
        "git commit -m x >&'$(touch ~/pwned)'",
        "git commit -m x >&\"\\$(touch ~/pwned)\"",
        "git commit -m x >& '`touch ~/pwned`'",
        "x='$(touch ~/pwned)'; git commit -m y >&$x",
        "echo a >&'$(touch ~/pwned)'",
        "{ ls; } >&'$(touch ~/pwned)'",
    ] {
        assert_needs_approval(command);
        let all = plan(&with_newlines(command), ROOT);
        assert!(all.occurrences.iter().any(|o| o.opaque == Some(Opaque::EvaluatesArguments)), "{command}");
    }
    check("ls >&2 2>&1 3>&- <&0", &[], "allow");
}

/// Each continuation costs another scan: ordinary texts stay far below the limit, and nothing beyond it is read.
#[test]
fn too_many_continuations_are_opaque() {
    let script = format!("cat <<E\n{}end\nE", "a line of text \\\n".repeat(200));
    check(&script, &[], "allow");
    let hostile = format!("echo \"{}\"", "aaa\\\n".repeat(12_000));
    let all = plan(&hostile, ROOT);
    assert!(all.occurrences.iter().any(|o| o.opaque == Some(Opaque::TooLarge)));
    assert_needs_approval(&hostile);
}
