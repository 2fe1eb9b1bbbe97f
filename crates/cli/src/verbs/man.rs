//! `man`: manual pages, from the same texts as the help.

use crate::{
    examples::{Example, examples},
    help, say,
};
use anyhow::Context as _;
use clap::Command;
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};
use std::{
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

/// A file name, and its content.
type Page = (String, Vec<u8>);

pub(crate) fn man(directory: Option<&Path>) -> anyhow::Result<ExitCode> {
    let pages = pages()?;
    let Some(directory) = directory else {
        if let Some((_, overview)) = pages.first() {
            io::stdout().write_all(overview)?;
        }
        return Ok(ExitCode::SUCCESS);
    };
    std::fs::create_dir_all(directory).with_context(|| format!("{} cannot be created", directory.display()))?;
    for (name, content) in &pages {
        let path = directory.join(name);
        std::fs::write(&path, content).with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let first = directory.join("csn.1");
    say(&format!("csn: wrote {} manual pages. To read the first: man -l {}", pages.len(), first.display()));
    Ok(ExitCode::SUCCESS)
}

/// `csn.1` first, then one page for each verb.
fn pages() -> io::Result<Vec<Page>> {
    let mut root = help::full_command(help::DEFAULT_WIDTH);
    root.build();
    let mut pages = Vec::new();
    collect(&root, "", &mut pages)?;
    Ok(pages)
}

fn collect(command: &Command, path: &str, pages: &mut Vec<Page>) -> io::Result<()> {
    pages.push(page(command, path)?);
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        collect(verb, format!("{path} {}", verb.get_name()).trim_start(), pages)?;
    }
    Ok(())
}

fn page(command: &Command, path: &str) -> io::Result<Page> {
    let name = page_name(path);
    let man = Man::new(command.clone().subcommand_help_heading("VERBS"));
    let mut content = Vec::new();
    man.render_name_section(&mut content)?;
    man.render_synopsis_section(&mut content)?;
    man.render_description_section(&mut content)?;
    if path.is_empty() {
        verb_groups(command).to_writer(&mut content)?;
    } else if command.has_subcommands() {
        man.render_subcommands_section(&mut content)?;
    }
    man.render_options_section(&mut content)?;
    closing_sections(path).to_writer(&mut content)?;
    let page = with_title(&name, &String::from_utf8_lossy(&content));
    Ok((format!("{name}.1"), page.into_bytes()))
}

/// Puts the title before the first section. The page has no date, so that the same version writes the same bytes.
///
/// Every section comes with the same preamble; a page needs it once.
fn with_title(name: &str, sections: &str) -> String {
    let (preamble, _) = sections.split_at(sections.find(".SH").unwrap_or_default());
    let sections = if preamble.is_empty() { sections.to_owned() } else { sections.replace(preamble, "") };
    let title = name.to_uppercase().replace('-', "\\-");
    let version = env!("CARGO_PKG_VERSION");
    format!("{preamble}.TH {title} 1 \"\" \"Countersign {version}\" \"Countersign Manual\"\n{sections}")
}

fn page_name(path: &str) -> String {
    if path.is_empty() { help::PROGRAM.to_owned() } else { format!("{}-{}", help::PROGRAM, path.replace(' ', "-")) }
}

/// The verbs of `csn`, in the groups of its help.
fn verb_groups(root: &Command) -> Roff {
    let mut roff = Roff::default();
    roff.control("SH", ["VERBS"]);
    for (group, verbs) in help::GROUPS {
        roff.control("SS", [*group]);
        for verb in *verbs {
            let about = root.find_subcommand(verb).and_then(Command::get_about);
            roff.control("TP", []);
            roff.text([bold(page_name(verb)), roman("(1)")]);
            roff.text([roman(about.map(ToString::to_string).unwrap_or_default())]);
        }
    }
    roff
}

fn closing_sections(path: &str) -> Roff {
    let mut roff = Roff::default();
    if path == "run" {
        roff.control("SH", ["EXIT STATUS"]);
        roff.text([roman("The exit code is that of the command, except:")]);
        for (code, meaning) in help::RUN_EXIT_CODES {
            roff.control("TP", []);
            roff.text([bold(*code)]);
            roff.text([roman(*meaning)]);
        }
    }
    roff.control("SH", ["EXAMPLES"]);
    for Example { line, effect } in examples(path) {
        roff.control("TP", []);
        roff.text([bold(*line)]);
        roff.text([roman(*effect)]);
    }
    if !path.is_empty() {
        let above = path.rsplit_once(' ').map_or("", |(above, _)| above);
        roff.control("SH", ["SEE ALSO"]);
        roff.text([bold(page_name(above)), roman("(1)")]);
    }
    roff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_verb_has_a_page_with_an_example() {
        let pages = pages().expect("pages");
        assert_eq!(pages[0].0, "csn.1");
        for (name, content) in &pages {
            let text = std::str::from_utf8(content).expect("UTF-8");
            for part in [".TH CSN", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH OPTIONS", ".SH EXAMPLES"] {
                assert!(text.contains(part), "{name} has no {part}:\n{text}");
            }
            let lines = text.split(".SH EXAMPLES").nth(1).unwrap_or_default().matches(".TP").count();
            assert!(lines > 0, "{name} has no example");
        }
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["csn-run.1", "csn-approvals.1", "csn-approvals-answer.1", "csn-man.1"] {
            assert!(names.contains(&name), "{names:?}");
        }
    }

    #[test]
    fn pages_are_written_into_a_new_directory() {
        let dir = tempfile::tempdir().expect("a temp dir");
        let man1 = dir.path().join("share/man1");
        man(Some(&man1)).expect("writes");
        let overview = std::fs::read_to_string(man1.join("csn.1")).expect("csn.1");
        assert!(overview.contains("csn\\-run"), "{overview}");
        assert!(man1.join("csn-run.1").is_file());
    }
}
