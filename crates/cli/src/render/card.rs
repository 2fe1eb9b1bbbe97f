//! The card of an approval as text: the layout of a [`CardView`] and nothing else.

use super::text::count;
use countersign_model::{Approval, ApprovalId, CardView, ChoiceView, CommandView, DisplaySafe, ScriptView};
use std::fmt::Write as _;

/// How much of each part a card shows.
#[derive(Clone, Copy)]
pub(crate) struct CardLimits {
    pub(crate) max_command_chars: usize,
    max_listed_commands: usize,
    max_script_lines: usize,
}

impl CardLimits {
    /// Shows every part in full.
    pub(crate) const UNLIMITED: Self =
        Self { max_command_chars: usize::MAX, max_listed_commands: usize::MAX, max_script_lines: usize::MAX };

    /// Keeps the choices visible on a terminal with this many rows.
    pub(crate) fn for_terminal_rows(rows: usize) -> Self {
        Self { max_command_chars: 1000, max_listed_commands: 8, max_script_lines: rows.saturating_sub(18).clamp(3, 40) }
    }
}

/// The card without its choices. The question comes last, so that no text of the requester stands between the command
/// and the choices.
pub(crate) fn card(view: &CardView, limits: CardLimits) -> String {
    let mut out = String::new();
    if let Some(title) = &view.title {
        let _ = writeln!(out, "  title (from the requester): \"{title}\"");
    }
    if let Some(why) = &view.rationale {
        let _ = writeln!(out, "  reason (from the requester): \"{why}\"");
    }
    if view.asker_gone {
        let _ = writeln!(out, "  the requester no longer waits; to get the result later: csn wait {}", view.task);
    }
    for risk in &view.risks {
        let _ = writeln!(out, "  {risk}");
    }
    if let Some(sandbox) = &view.sandbox {
        let _ = writeln!(out, "  sandbox: {sandbox}");
    }
    if let Some(asked_by) = &view.asked_by {
        let _ = writeln!(out, "  asked by {asked_by}");
    }
    for variable in &view.variables {
        let _ = writeln!(out, "  with {variable}");
    }
    for script in &view.scripts {
        write_script(&mut out, script, view, limits);
    }
    if let Some(whole) = view.whole_command(limits.max_command_chars) {
        let _ = writeln!(out, "  the whole command: `{whole}`");
    }
    let _ = writeln!(out, "{}", view.question(limits.max_command_chars));
    for CommandView { command, directories } in view.commands.iter().take(limits.max_listed_commands) {
        if directories.is_empty() {
            let _ = writeln!(out, "  • {command}");
        } else {
            let _ = writeln!(out, "  • {command}   in {}", directories.join(", "));
        }
    }
    if view.commands.len() > limits.max_listed_commands {
        let more = view.commands.len() - limits.max_listed_commands;
        let _ = writeln!(out, "  • … {more} more: csn approvals show {}", view.approval);
    }
    out
}

fn write_script(out: &mut String, script: &ScriptView, view: &CardView, limits: CardLimits) {
    let changed = if script.changed { " CHANGED since the request: it will not run" } else { "" };
    let _ = writeln!(out, "  runs {}, sha256 {}…{changed}", script.path, script.sha256);
    let (head, left_out, tail) = script.excerpt(limits.max_script_lines);
    for line in head {
        let _ = writeln!(out, "    | {line}");
    }
    if left_out > 0 {
        let left_out = count(left_out as u64, "more line");
        let _ = writeln!(out, "    … {left_out}: csn approvals show {}", view.approval);
    }
    for line in tail {
        let _ = writeln!(out, "    | {line}");
    }
    if script.omitted > 0 {
        let _ = writeln!(out, "    … {} in the file", count(script.omitted, "more byte"));
    }
}

/// The choices, one per line, each with the grants that it would save and what those would cover.
pub(crate) fn choices(view: &CardView) -> String {
    let mut out = String::new();
    if let Some(why) = &view.not_saved {
        let _ = writeln!(out, "  nothing can be saved: {why}");
    }
    for choice in &view.choices {
        let danger = if choice.dangerous { " (!)" } else { "" };
        let label = format!("{}{danger}", choice.label);
        let _ = write!(out, "  [{}] {label:<20}", choice.key);
        write_choice_details(&mut out, choice);
        while out.ends_with(' ') {
            out.pop();
        }
        out.push('\n');
    }
    out
}

fn write_choice_details(out: &mut String, choice: &ChoiceView) {
    let list = |texts: &[String]| texts.iter().map(|text| example(text)).collect::<Vec<_>>().join(", ");
    if choice.takes_words {
        out.push_str("you may add a message to the agent: d MESSAGE");
    }
    out.push_str(&choice.saves.join(", "));
    if choice.these_words_only {
        let _ = write!(out, "; {}* for any arguments", choice.key);
    }
    if !choice.would_cover.is_empty() {
        let _ = write!(out, "\n      would also cover {}", list(&choice.would_cover));
    }
    if !choice.would_not_cover.is_empty() {
        let _ = write!(out, "\n      would not cover {}", list(&choice.would_not_cover));
    }
}

/// An example of a card: the command, and the directory if it is another than that of the request.
fn example(text: &str) -> String {
    match text.rsplit_once(" in /") {
        Some((command, directory)) => format!("`{command}` in /{directory}"),
        None => format!("`{text}`"),
    }
}

/// How an approval was resolved, in one line.
pub(crate) fn resolution(approval: &Approval) -> String {
    approval.resolution().map_or_else(|| "waiting".to_owned(), |how| DisplaySafe::new(&how).to_string())
}

/// Tells where to look at an approval when no terminal can ask the question. It suggests no answer: a person should see
/// the risks first.
pub(crate) fn waiting_line(approval: ApprovalId) -> String {
    format!("csn: waiting for approval {approval}; a person can answer it: csn approvals show {approval}")
}
