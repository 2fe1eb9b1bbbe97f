//! Runs a page from top to bottom in one shell, and compares what it prints. Refreshed pages are written by `main.rs`.

use crate::{
    compare,
    page::{Item, Page, Step},
    shell::{CommandOutput, KeyboardInput, Shell},
};
use std::{collections::BTreeMap, ops::Range};

/// The home that pages print.
const HOME: &str = "/home/u";
/// How much of an id a later command must name.
const MIN_ID_PREFIX: usize = 8;

/// What came of a page.
#[derive(Default)]
pub(crate) struct Report {
    /// What no refresh repairs.
    pub(crate) failures: Vec<String>,
    /// Outputs that differ, in words.
    pub(crate) mismatches: Vec<String>,
    /// The same outputs: the lines of the page, and what belongs there.
    pub(crate) refreshed: Vec<(Range<usize>, Vec<String>)>,
    pub(crate) commands: usize,
}

struct PageRun<'p> {
    page: &'p Page,
    shell: Shell,
    /// The real id for each printed one.
    ids: BTreeMap<String, String>,
    report: Report,
}

pub(crate) fn run_page(page: &Page) -> Report {
    let runnable = page.items.iter().any(|item| !matches!(item, Item::Setup(_)));
    if !runnable {
        return Report { failures: page.faults.clone(), ..Report::default() };
    }
    run_page_in(page, Shell::start())
}

pub(crate) fn run_page_in(page: &Page, shell: Shell) -> Report {
    let report = Report { failures: page.faults.clone(), ..Report::default() };
    let mut run = PageRun { page, shell, ids: BTreeMap::new(), report };
    let mut printed = String::new();
    for item in &page.items {
        let done = match item {
            Item::Setup(step) => run.run_setup(step),
            Item::Console(step) => run.run_console(step),
            Item::Script { step, code } => run.run_script(step, *code).map(|text| printed = text),
            Item::Output(lines) => {
                run.compare_output(lines.start - 1, lines, 0, &printed);
                Ok(())
            }
        };
        if let Err((line, why)) = done {
            // What follows builds on this.
            run.add_failure(line, &format!("{why}\n(the rest of the page was not run)"));
            break;
        }
    }
    run.report
}

/// A line of the page, and why nothing below it can be run.
type Abort = (usize, String);

impl PageRun<'_> {
    fn add_failure(&mut self, line: usize, why: &str) {
        self.report.failures.push(format!("{}:{}: {why}", self.page.name, line + 1));
    }

    fn run_step(&mut self, step: &Step, typed: Vec<KeyboardInput>) -> Result<CommandOutput, Abort> {
        let command = self.real_command(&step.command);
        self.report.commands += 1;
        self.shell.run_command(&command, typed).map_err(|why| (step.line, format!("`{}`: {why}", step.command)))
    }

    fn run_setup(&mut self, step: &Step) -> Result<(), Abort> {
        let shown = self.run_step(step, vec![])?;
        if shown.code != 0 || !shown.text.is_empty() {
            return Err((step.line, format!("the setup exits {}: {}", shown.code, shown.text)));
        }
        Ok(())
    }

    fn run_script(&mut self, step: &Step, code: i32) -> Result<String, Abort> {
        let shown = self.run_step(step, vec![])?;
        if shown.code != code {
            let why = format!("`{}` exits {}, not {code}:\n{}", step.command, shown.code, shown.text);
            self.add_failure(step.line, &why);
        }
        Ok(shown.text)
    }

    fn run_console(&mut self, step: &Step) -> Result<(), Abort> {
        let printed = self.page.block_lines(&step.output, step.indent);
        let typed: Vec<KeyboardInput> = printed.iter().filter_map(|line| KeyboardInput::read(line)).collect();
        let shown = self.run_step(step, typed)?;
        self.compare_output(step.line, &step.output, step.indent, &shown.text);
        Ok(())
    }

    fn compare_output(&mut self, line: usize, output: &Range<usize>, indent: usize, text: &str) {
        let printed = self.page.block_lines(output, indent);
        // Keys are pressed, not printed.
        let is_key = |line: &String| matches!(KeyboardInput::read(line), Some(KeyboardInput::Keys(_)));
        let expected: Vec<String> = printed.iter().filter(|line| !is_key(line)).cloned().collect();
        let actual: Vec<String> = text.lines().map(|line| self.as_printed(line)).collect();
        let differs = match compare::align(&expected, &actual) {
            Ok(pairs) => match self.learn_ids(&expected, &actual, &pairs) {
                None => return,
                Some(differs) => differs,
            },
            Err(differs) => differs,
        };
        let indented = |lines: &[String]| lines.iter().map(|l| format!("    {l}\n")).collect::<String>();
        self.report.mismatches.push(format!(
            "{}:{}: `{}` prints something else (line {} of its output):\n{}  the page says:\n{}",
            self.page.name,
            line + 1,
            self.page.block_line(line, indent),
            differs + 1,
            indented(&actual),
            indented(&expected)
        ));
        self.pair_new_ids(&expected, &actual);
        let actual: Vec<String> = text.lines().map(|line| self.as_printed(line)).collect();
        let mut lines = compare::refresh(&expected, &actual);
        if let Some(at) = printed.iter().position(is_key) {
            lines.insert(at.min(lines.len()), printed[at].clone());
        }
        let margin = " ".repeat(indent);
        let lines = lines.iter().map(|l| format!("{margin}{l}").trim_end().to_owned()).collect();
        self.report.refreshed.push((output.clone(), lines));
    }

    /// Remembers which real id each printed one stands for. A page that prints two ids for one thing, or one for two, differs:
    /// the answer is that line.
    fn learn_ids(&mut self, expected: &[String], actual: &[String], pairs: &[(usize, usize)]) -> Option<usize> {
        for (e, a) in pairs {
            for (printed, real) in compare::ids(&expected[*e]).into_iter().zip(compare::ids(&actual[*a])) {
                let is_new = !self.ids.contains_key(printed) && !self.ids.contains_key(real);
                if is_new {
                    self.ids.insert(printed.to_owned(), real.to_owned());
                } else if printed != real && self.ids.get(printed).is_none_or(|known| known != real) {
                    return Some(*a);
                }
            }
        }
        None
    }

    /// Where an output differs, its new ids still take the places of the printed ones, kind by kind.
    fn pair_new_ids(&mut self, expected: &[String], actual: &[String]) {
        let printed: Vec<&str> = expected.iter().flat_map(|line| compare::ids(line)).collect();
        let mut real: Vec<&str> = actual.iter().flat_map(|line| compare::ids(line)).collect();
        real.retain(|id| !self.ids.contains_key(*id));
        for id in printed {
            let same_kind = real.iter().position(|other| other[..2] == id[..2]);
            if let Some(at) = same_kind.filter(|_| !self.ids.contains_key(id)) {
                let found = real[at];
                real.retain(|other| *other != found);
                self.ids.insert(id.to_owned(), found.to_owned());
            }
        }
    }

    /// A line as the page prints it: with the reader's home, and with the ids that the page has used so far.
    fn as_printed(&self, line: &str) -> String {
        let line = line.replace(&*self.shell.base().to_string_lossy(), "");
        let with_ids = self.ids.iter().fold(line, |line, (printed, real)| line.replace(real, printed));
        with_ids.trim_end().to_owned()
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
                word.len() >= MIN_ID_PREFIX && (printed.starts_with(&word) || printed[3..].starts_with(&word))
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
                let listed = self.shell.run_csn(&args);
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
