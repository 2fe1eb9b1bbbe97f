//! Runs a page from top to bottom in one shell, and compares what it prints. Refreshed pages are written by `main.rs`.

use crate::{
    compare,
    page::{Item, Page, Step},
    shell::{Shell, Shown, Typed},
};
use std::{collections::BTreeMap, ops::Range};

/// The home that pages print.
const HOME: &str = "/home/u";
/// How much of an id a later command must name.
const SHORTEST_ID: usize = 8;

/// What came of a page.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) failures: Vec<String>,
    /// Outputs that differ: the lines of the page and what belongs there.
    pub(crate) refreshed: Vec<(Range<usize>, Vec<String>)>,
    pub(crate) commands: usize,
}

struct Run<'p> {
    page: &'p Page,
    shell: Shell,
    /// Printed ids and the real ones.
    ids: BTreeMap<String, String>,
    report: Report,
}

pub(crate) fn run(page: &Page) -> Report {
    let runnable = page.items.iter().any(|item| !matches!(item, Item::Setup(_)));
    if !runnable {
        return Report { failures: page.faults.clone(), ..Report::default() };
    }
    run_in(page, Shell::start())
}

pub(crate) fn run_in(page: &Page, shell: Shell) -> Report {
    let report = Report { failures: page.faults.clone(), ..Report::default() };
    let mut run = Run { page, shell, ids: BTreeMap::new(), report };
    let mut printed = String::new();
    for item in &page.items {
        let done = match item {
            Item::Setup(step) => run.setup(step),
            Item::Console(step) => run.console(step),
            Item::Script { step, code } => run.script(step, *code).map(|text| printed = text),
            Item::Output(lines) => {
                run.compare(lines.start - 1, lines, 0, &printed);
                Ok(())
            }
        };
        if let Err((line, why)) = done {
            // What follows builds on this.
            run.fail(line, &format!("{why}\n(the rest of the page was not run)"));
            break;
        }
    }
    run.report
}

/// A line of the page, and why nothing below it can be run.
type Stopped = (usize, String);

impl Run<'_> {
    fn fail(&mut self, line: usize, why: &str) {
        self.report.failures.push(format!("{}:{}: {why}", self.page.name, line + 1));
    }

    fn type_in(&mut self, step: &Step, typed: Vec<Typed>) -> Result<Shown, Stopped> {
        let command = self.real_command(&step.command);
        self.report.commands += 1;
        self.shell.run(&command, typed).map_err(|why| (step.line, format!("`{}`: {why}", step.command)))
    }

    fn setup(&mut self, step: &Step) -> Result<(), Stopped> {
        let shown = self.type_in(step, vec![])?;
        if shown.code != 0 || !shown.text.is_empty() {
            return Err((step.line, format!("the setup exits {}: {}", shown.code, shown.text)));
        }
        Ok(())
    }

    fn script(&mut self, step: &Step, code: i32) -> Result<String, Stopped> {
        let shown = self.type_in(step, vec![])?;
        if shown.code != code {
            let why = format!("`{}` exits {}, not {code}:\n{}", step.command, shown.code, shown.text);
            self.fail(step.line, &why);
        }
        Ok(shown.text)
    }

    fn console(&mut self, step: &Step) -> Result<(), Stopped> {
        let printed = self.page.shown(&step.output, step.indent);
        let typed: Vec<Typed> = printed.iter().filter_map(|line| Typed::read(line)).collect();
        let shown = self.type_in(step, typed)?;
        self.compare(step.line, &step.output, step.indent, &shown.text);
        Ok(())
    }

    fn compare(&mut self, line: usize, output: &Range<usize>, indent: usize, text: &str) {
        let printed = self.page.shown(output, indent);
        // Keys are pressed, not printed.
        let keys = |line: &String| matches!(Typed::read(line), Some(Typed::Keys(_)));
        let expected: Vec<String> = printed.iter().filter(|line| !keys(line)).cloned().collect();
        let actual: Vec<String> = text.lines().map(|line| self.as_printed(line)).collect();
        match compare::align(&expected, &actual) {
            Ok(pairs) => {
                for (e, a) in pairs {
                    let printed = compare::ids(&expected[e]).into_iter().map(str::to_owned);
                    let real = compare::ids(&actual[a]).into_iter().map(str::to_owned);
                    self.ids.extend(printed.zip(real));
                }
            }
            Err(differs) => {
                let show = |lines: &[String]| lines.iter().map(|l| format!("    {l}\n")).collect::<String>();
                let why = format!(
                    "`{}` prints something else (line {} of its output):\n{}  the page says:\n{}",
                    self.page.text(line, indent),
                    differs + 1,
                    show(&actual),
                    show(&expected)
                );
                self.fail(line, &why);
                let mut lines = compare::refresh(&expected, &actual);
                if let Some(at) = printed.iter().position(keys) {
                    lines.insert(at.min(lines.len()), printed[at].clone());
                }
                let margin = " ".repeat(indent);
                let lines = lines.iter().map(|l| format!("{margin}{l}").trim_end().to_owned()).collect();
                self.report.refreshed.push((output.clone(), lines));
            }
        }
    }

    /// A line as a page prints it: the home of its reader, csn where it is installed.
    fn as_printed(&self, line: &str) -> String {
        line.replace(&*self.shell.base().to_string_lossy(), "").trim_end().to_owned()
    }

    /// A command as it is printed, with the real home and the real ids.
    fn real_command(&self, command: &str) -> String {
        let home = format!("{}{HOME}", self.shell.base().display());
        let mut real = command.replace(HOME, &home);
        for (printed, id) in &self.ids {
            real = real.replace(printed, id);
        }
        let words = |text: &str| -> Vec<String> {
            let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
        };
        for word in words(&real) {
            let begins = |printed: &&String| {
                word.len() >= SHORTEST_ID && (printed.starts_with(&word) || printed[3..].starts_with(&word))
            };
            if self.ids.values().any(|id| *id == word) {
                continue;
            }
            if let Some(id) = self.ids.keys().find(begins).map(|printed| &self.ids[printed]) {
                real = real.replace(&word, id);
            }
        }
        for (placeholder, args) in [("TASK", ["ps", "-a", "--json"]), ("APPROVAL", ["approvals", "list", "--json"])] {
            if words(&real).iter().any(|word| word == placeholder) {
                let listed = self.shell.csn(&args);
                let kind = if placeholder == "TASK" { "tk_" } else { "ap_" };
                let text = String::from_utf8_lossy(&listed.stdout).into_owned();
                // Ids grow with time.
                let newest = compare::ids(&text).into_iter().filter(|id| id.starts_with(kind)).max();
                real = replace_word(&real, placeholder, newest.unwrap_or("none"));
            }
        }
        real
    }
}

fn replace_word(text: &str, word: &str, with: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, behind) = (&rest[..at], &rest[at + word.len()..]);
        let whole = !before.ends_with(is_word) && !behind.starts_with(is_word);
        out.push_str(before);
        out.push_str(if whole { with } else { word });
        rest = behind;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_whole_words() {
        assert_eq!(
            replace_word("csn show TASK > TASK.txt; MYTASK", "TASK", "tk_1"),
            "csn show tk_1 > tk_1.txt; MYTASK"
        );
    }
}
