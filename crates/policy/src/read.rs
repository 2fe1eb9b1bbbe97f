//! Reading: from a request to its plan. Reading never fails; what cannot be read is opaque.

use countersign_model::{Occurrence, Opaque, Plan, Request};

/// The plan of a request that runs in `cwd`.
#[must_use]
pub fn read(request: &Request, cwd: &str) -> Plan {
    let occurrence = match (&request.args.argv, &request.args.command) {
        (Some(argv), _) => Occurrence {
            verb: argv.first().cloned().unwrap_or_default(),
            words: argv.clone(),
            directory: cwd.to_owned(),
            opaque: None,
        },
        (None, text) => Occurrence {
            verb: "bash".to_owned(),
            words: text.iter().cloned().collect(),
            directory: cwd.to_owned(),
            opaque: Some(Opaque::ShellText),
        },
    };
    Plan { occurrences: vec![occurrence] }
}

/// The words of an occurrence as far as they can be told without a shell parser: for shell text, everything that
/// stands between blanks, quotes and operators. Good for finding something, never for ruling something out.
pub(crate) fn rough_words(occurrence: &Occurrence) -> Vec<Vec<String>> {
    if occurrence.opaque.is_none() {
        return vec![occurrence.words.clone()];
    }
    let text = occurrence.words.join(" ");
    let commands = text.split(['\n', ';', '&', '|', '(', ')', '`', '{', '}']);
    commands
        .map(|command| {
            let bare: String = command.chars().filter(|c| !matches!(c, '"' | '\'' | '\\')).collect();
            bare.split_whitespace().map(str::to_owned).collect()
        })
        .filter(|words: &Vec<String>| !words.is_empty())
        .collect()
}
