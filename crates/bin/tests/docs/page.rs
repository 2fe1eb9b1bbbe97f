//! Reads a Markdown page as a list of things to run. It runs nothing and knows nothing of csn.
//!
//! `console` blocks hold commands behind `$ ` and their exact output. `sh` blocks hold commands that exit with 0; a `text output`
//! block right below one holds their output. `no-run: REASON` behind the language says why a block cannot be run in a test.
//! `<!-- setup … -->` prepares what a reader has already.

use std::ops::Range;

/// Languages of blocks that are shown and never run.
const LANGUAGES_NOT_RUN: &[&str] = &["text", "json", "toml", "diff"];

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) name: String,
    pub(crate) lines: Vec<String>,
    pub(crate) items: Vec<Item>,
    /// What is wrong with the page itself: a block without a language, a mark without a reason.
    pub(crate) faults: Vec<String>,
    /// The blocks that carry `no-run`, with their reasons.
    pub(crate) skipped: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum Item {
    Setup(Step),
    /// A command of a `console` block. Its output is compared.
    Console(Step),
    /// A command of an `sh` block. It exits with `code`.
    Script {
        step: Step,
        code: i32,
    },
    /// Lines of a `text output` block: what the commands of the `sh` block above it print.
    Output(Range<usize>),
}

/// One command, or one setup script.
#[derive(Debug)]
pub(crate) struct Step {
    /// Its first line, from 0.
    pub(crate) line: usize,
    pub(crate) command: String,
    /// The lines below it that show its output.
    pub(crate) output: Range<usize>,
    /// The column that the block starts in.
    pub(crate) indent: usize,
}

impl Page {
    pub(crate) fn read(name: &str, text: &str) -> Self {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut page = Self { name: name.into(), lines, items: vec![], faults: vec![], skipped: vec![] };
        let mut at = 0;
        while at < page.lines.len() {
            let line = page.lines[at].clone();
            let indent = line.len() - line.trim_start().len();
            if let Some(info) = line.trim_start().strip_prefix("```") {
                let end = page.closing_line(at, |l| l.trim() == "```");
                page.read_block(info.trim(), at + 1..end, indent);
                at = end;
            } else if line.trim_end() == "<!-- setup" {
                let end = page.closing_line(at, |l| l.trim() == "-->");
                let command = page.lines[at + 1..end].join("\n");
                page.items.push(Item::Setup(Step { line: at, command, output: end..end, indent: 0 }));
                at = end;
            }
            at += 1;
        }
        page
    }

    /// The line that closes what `at` opens.
    fn closing_line(&mut self, at: usize, closes: impl Fn(&str) -> bool) -> usize {
        let found = self.lines[at + 1..].iter().position(|l| closes(l));
        if found.is_none() {
            self.add_fault(at, "it is never closed");
        }
        found.map_or(self.lines.len() - 1, |n| at + 1 + n)
    }

    fn add_fault(&mut self, line: usize, what: &str) {
        self.faults.push(format!("{}:{}: {what}", self.name, line + 1));
    }

    fn read_block(&mut self, info: &str, body: Range<usize>, indent: usize) {
        let fence = body.start - 1;
        let (language, mark) = info.split_once(' ').unwrap_or((info, ""));
        if let Some(reason) = mark.strip_prefix("no-run:") {
            if reason.split_whitespace().count() < 2 {
                self.add_fault(fence, "`no-run:` needs a reason");
            }
            self.skipped.push(format!("{}:{}: {}", self.name, fence + 1, reason.trim()));
            return;
        }
        match (language, mark) {
            ("console", "") => self.read_console(body, indent),
            ("sh", "") => self.read_script(body, indent),
            ("text", "output") => {
                if matches!(self.items.last(), Some(Item::Script { .. })) {
                    self.items.push(Item::Output(body));
                } else {
                    self.add_fault(fence, "a `text output` block follows an `sh` block");
                }
            }
            (shown, "") if LANGUAGES_NOT_RUN.contains(&shown) => {
                if self.lines[body].iter().any(|l| l.trim_start().starts_with("$ ")) {
                    self.add_fault(fence, "commands belong into a `console` block, which is run");
                }
            }
            ("", _) => self.add_fault(fence, "a block names its language"),
            _ => self.add_fault(fence, &format!("`{info}` is no kind of block that this test knows")),
        }
    }

    fn read_console(&mut self, body: Range<usize>, indent: usize) {
        let prompts: Vec<usize> = body.clone().filter(|n| self.block_line(*n, indent).starts_with("$ ")).collect();
        if prompts.first() != Some(&body.start) {
            self.add_fault(body.start - 1, "a `console` block begins with `$ ` and a command");
        }
        for (nth, line) in prompts.iter().enumerate() {
            let output = line + 1..prompts.get(nth + 1).copied().unwrap_or(body.end);
            let command = self.block_line(*line, indent)[2..].to_owned();
            self.items.push(Item::Console(Step { line: *line, command, output, indent }));
        }
    }

    /// Lines that belong together are one command: bash says what is complete.
    fn read_script(&mut self, body: Range<usize>, indent: usize) {
        let (mut command, mut first) = (String::new(), body.start);
        for n in body.clone() {
            if command.is_empty() {
                first = n;
            } else {
                command.push('\n');
            }
            command.push_str(self.block_line(n, indent));
            if command.trim().is_empty() || command.trim_start().starts_with('#') && !command.contains('\n') {
                command.clear();
            } else if !command.ends_with('\\') && crate::shell::is_complete(&command) {
                let code = expected_exit_code(&command);
                let step = Step { line: first, command: std::mem::take(&mut command), output: n + 1..n + 1, indent };
                self.items.push(Item::Script { step, code });
            }
        }
        if !command.is_empty() {
            self.add_fault(first, "bash finds no end of this command");
        }
    }

    /// A line of a block that starts in column `indent`.
    pub(crate) fn block_line(&self, line: usize, indent: usize) -> &str {
        let text = &self.lines[line];
        text.get(indent..).filter(|_| text[..indent].trim().is_empty()).unwrap_or(text.trim_start())
    }

    /// The lines that show an output.
    pub(crate) fn block_lines(&self, output: &Range<usize>, indent: usize) -> Vec<String> {
        output.clone().map(|n| self.block_line(n, indent).to_owned()).collect()
    }
}

/// `# exits 75` at the end of a command.
fn expected_exit_code(command: &str) -> i32 {
    let code = command.rsplit_once("# exits ").and_then(|(_, code)| code.trim().parse().ok());
    code.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        Page::read("x.md", text).faults
    }

    #[test]
    fn a_block_without_language_or_reason_is_a_fault() {
        assert_eq!(faults("```\nls\n```\n"), ["x.md:1: a block names its language"]);
        assert_eq!(faults("```sh no-run:\nls\n```\n"), ["x.md:1: `no-run:` needs a reason"]);
        assert_eq!(faults("a\n```bash\nls\n```\n"), ["x.md:2: `bash` is no kind of block that this test knows"]);
        assert_eq!(faults("```sh skip\nls\n```\n"), ["x.md:1: `sh skip` is no kind of block that this test knows"]);
        assert_eq!(faults("```text\n$ ls\n```\n"), ["x.md:1: commands belong into a `console` block, which is run"]);
        assert_eq!(faults("```console\nls\n```\n"), ["x.md:1: a `console` block begins with `$ ` and a command"]);
        assert_eq!(faults("```sh\nls"), ["x.md:1: it is never closed"]);
        assert!(faults("```sh no-run: needs systemd\nls\n```\n```text\nls\n```\n").is_empty());
    }

    #[test]
    fn every_command_of_a_page_is_an_item() {
        let text = "<!-- setup\na=1\n-->\n```console\n$ one\nout\n$ two\n```\n- x\n  ```sh\n  # words\n  if a\n  then b; fi\n\n  c # exits 75\n  ```\n";
        let page = Page::read("x.md", text);
        let commands: Vec<String> = page
            .items
            .iter()
            .map(|item| match item {
                Item::Setup(s) => format!("setup {}", s.command),
                Item::Console(s) => format!("{} -> {:?}", s.command, page.block_lines(&s.output, s.indent)),
                Item::Script { step, code } => format!("{}: {code}", step.command),
                Item::Output(_) => String::new(),
            })
            .collect();
        let expected = ["setup a=1", "one -> [\"out\"]", "two -> []", "if a\nthen b; fi: 0", "c # exits 75: 75"];
        assert_eq!((commands.as_slice(), page.faults.len()), (expected.map(str::to_owned).as_slice(), 0));
    }
}
