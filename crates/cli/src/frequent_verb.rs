//! Parses the verbs that programs call all the time, each with a parser of its own: building the parsers of all verbs
//! takes a third of the processor time of `csn run`. It may not report errors; the parser of all verbs does.

use crate::args::Command;
use clap::Args;
use std::ffi::OsString;

/// The command of the words after `csn`. None for any other verb, and for words that its parser refuses.
pub(crate) fn parse(words: Vec<OsString>) -> Option<Command> {
    match words.first()?.to_str()? {
        "run" => parse_arguments(words).map(Command::Run),
        "exec" => parse_arguments(words).map(Command::Exec),
        "hook" => parse_arguments(words).map(Command::Hook),
        _ => None,
    }
}

/// The verb takes the place of the program name.
fn parse_arguments<A: Args>(words: Vec<OsString>) -> Option<A> {
    let mut matches = A::augment_args(clap::Command::new("csn")).try_get_matches_from(words).ok()?;
    A::from_arg_matches_mut(&mut matches).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser as _;

    #[test]
    fn both_parsers_accept_the_same_words() {
        for (line, accepted) in [
            ("run true", true),
            ("run --quiet --env A=1 --timeout 5m --json -- ls -la --help", true),
            ("run --profile=safe --confinement read_only true", true),
            ("run", false),
            ("run true -- false", false),
            ("run --nothing true", false),
            ("run --help", false),
            ("run --version", false),
            ("exec --ticket t -- -x", true),
            ("exec --leave t", true),
            ("exec --leave t --ticket t", false),
            ("hook claude-code --witness", true),
            ("hook nobody", false),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let all = Cli::try_parse_from([OsString::from("csn")].into_iter().chain(words.clone()));
            assert_eq!((parse(words).is_some(), all.is_ok()), (accepted, accepted), "{line}");
        }
        assert!(parse(vec!["ps".into()]).is_none(), "the parser of all verbs has the others");
        assert!(parse(vec![]).is_none());
    }
}
