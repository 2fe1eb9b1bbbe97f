//! The tidy test: rules for the source tree that the compiler does not check. Each module contains one rule, a test that it
//! fails on made-up input, and a test of this tree. `words_command` applies the rules about text, and lists what they find.

mod boolean_matches;
mod markdown_width;
mod retired_words;
mod rust_text;
mod tracked_files;
pub(crate) mod words_command;

#[cfg(test)]
mod dependencies;
#[cfg(test)]
mod frameworks;
#[cfg(test)]
mod glossary;
#[cfg(test)]
mod machine_paths;
#[cfg(test)]
mod module_cycles;
#[cfg(test)]
mod module_tree;
#[cfg(test)]
mod source;
#[cfg(test)]
mod type_names;
#[cfg(test)]
mod workspace;

use std::fmt;

/// One place that breaks a rule, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    file: String,
    line: usize,
    advice: String,
}

impl Finding {
    fn new(file: &str, line: usize, advice: impl Into<String>) -> Self {
        Self { file: file.to_owned(), line, advice: advice.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.advice)
    }
}

/// Fails with every finding, one per line.
#[cfg(test)]
fn assert_none(mut findings: Vec<Finding>) {
    findings.sort();
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
}
