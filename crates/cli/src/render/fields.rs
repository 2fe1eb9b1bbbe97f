//! Refusals in the words of the command line. The daemon names the fields of a request, because most callers send JSON;
//! a person at a terminal types options.

/// Fields of the HTTP API, each with the option of `csn` that sets it.
const OPTION_OF_FIELD: &[(&str, &str)] = &[
    ("any_arguments", "--any-arguments"),
    ("confinement", "--confinement"),
    ("context", "--context"),
    ("cwd", "--cwd"),
    ("expires_at", "--expires"),
    ("labels", "--label"),
    ("limits.idle_ms", "--idle-timeout"),
    ("limits.output_bytes", "--output-limit"),
    ("limits.wall_ms", "--timeout"),
    ("lost", "--lost"),
    ("max_results", "--max"),
    ("network", "--network"),
    ("new", "--new"),
    ("old", "--old"),
    ("principal", "--principal"),
    ("profile", "--profile"),
    ("rationale", "--why"),
    ("scopes", "--scope"),
    ("session_id", "--session"),
    ("speed", "--speed"),
    ("tcp", "--tcp"),
    ("uses", "--uses"),
    ("words", "--words"),
    ("workspace", "--workspace"),
];

/// Replaces each field in backticks by its option. A name without an option stays as it is.
pub(crate) fn name_options(sentence: &str) -> String {
    OPTION_OF_FIELD.iter().fold(sentence.to_owned(), |sentence, (field, option)| {
        sentence.replace(&format!("`{field}`"), &format!("`{option}`"))
    })
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
            ("`limits.wall_ms` is 5, the maximum is 4", "`--timeout` is 5, the maximum is 4"),
            ("leave out `profile` and `network`", "leave out `--profile` and `--network`"),
            ("`agent_pid` is missing; the new cwd", "`agent_pid` is missing; the new cwd"),
        ] {
            assert_eq!(name_options(sentence), expected);
        }
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
