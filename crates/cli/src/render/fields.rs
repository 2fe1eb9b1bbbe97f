//! Refusals in the words of the command line. The daemon names the fields of a request, because most callers send JSON;
//! a person at a terminal types options.

/// Fields of the HTTP API, each with the option of `csn` that sets it.
const OPTION_OF_FIELD: &[(&str, &str)] = &[
    ("any_arguments", "--any-arguments"),
    ("args.cwd", "--cwd"),
    ("confinement", "--confinement"),
    ("cwd", "--cwd"),
    ("expires_at", "--expires"),
    ("labels", "--label"),
    ("limits.idle_ms", "--idle-timeout"),
    ("limits.output_bytes", "--output-limit"),
    ("limits.wall_ms", "--timeout"),
    ("max_results", "--max"),
    ("network", "--network"),
    ("principal", "--principal"),
    ("profile", "--profile"),
    ("rationale", "--why"),
    ("scopes", "--scope"),
    ("session_id", "--session"),
    ("tcp", "--tcp"),
    ("workspace", "--workspace"),
];

/// The message of a refusal. Only a field at its beginning is replaced: what comes later may quote the request.
pub(crate) fn name_option_first(message: &str) -> String {
    let end = message.strip_prefix('`').and_then(|rest| rest.find('`')).map_or(0, |end| end + 2);
    let (first, rest) = message.split_at(end);
    format!("{}{rest}", name_options(first))
}

/// The hint of a refusal: each field in backticks is replaced by its option. A name without an option stays as it is.
pub(crate) fn name_options(sentence: &str) -> String {
    let sentence = sentence.replace("`args.command`", "the command");
    OPTION_OF_FIELD
        .iter()
        .fold(sentence, |sentence, (field, option)| sentence.replace(&format!("`{field}`"), &format!("`{option}`")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn a_field_is_named_by_its_option_and_nothing_else_changes() {
        for (sentence, expected) in [
            ("use another `cwd`, or create the directory first", "use another `--cwd`, or create the directory first"),
            ("`args.command` is empty", "the command is empty"),
            ("`limits.wall_ms` is 5, the maximum is 4", "`--timeout` is 5, the maximum is 4"),
            ("leave out `profile` and `network`", "leave out `--profile` and `--network`"),
            ("`agent_pid` is missing; the new cwd", "`agent_pid` is missing; the new cwd"),
        ] {
            assert_eq!(name_options(sentence), expected);
        }
        assert_eq!(name_option_first("`args.cwd` is missing"), "`--cwd` is missing");
        assert_eq!(name_option_first("a token named `profile` exists"), "a token named `profile` exists");
        assert_eq!(name_option_first("`unclosed"), "`unclosed");
    }

    #[test]
    fn every_field_and_every_option_exists() {
        fn options_of(command: &clap::Command) -> Vec<String> {
            let own = command.get_arguments().filter_map(|arg| arg.get_long().map(|long| format!("--{long}")));
            own.chain(command.get_subcommands().flat_map(options_of)).collect()
        }
        let options = options_of(&Cli::command());
        let api = include_str!("../../../../docs/openapi.json");
        for (field, option) in OPTION_OF_FIELD {
            assert!(options.iter().any(|known| known == option), "{option}");
            let name = field.rsplit('.').next().unwrap();
            assert!(api.contains(&format!("\"{name}\"")), "{field}");
        }
    }
}
