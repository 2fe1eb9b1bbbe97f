//! The card of an approval as text: the layout of a [`CardView`], and nothing else.

use countersign_model::{Approval, ApprovalId, CardView, ChoiceView, CommandView, DisplaySafe, ScriptView};
use std::fmt::Write as _;

/// How much of everything a card shows.
#[derive(Clone, Copy)]
pub(crate) struct CardLimits {
    /// Characters of the command.
    pub(crate) command: usize,
    /// Commands that are named one by one.
    bullets: usize,
    /// Lines of a script.
    script: usize,
}

impl CardLimits {
    /// All of it.
    pub(crate) const WHOLE: Self = Self { command: usize::MAX, bullets: usize::MAX, script: usize::MAX };

    /// What leaves the choices in sight.
    pub(crate) fn of_screen() -> Self {
        let rows = crate::terminal::raw::size().map_or(24, |(rows, _)| usize::from(rows));
        Self { command: 1000, bullets: 8, script: rows.saturating_sub(18).clamp(3, 40) }
    }
}

/// The question in words. Nothing of the asker stands between the command and the choices.
pub(crate) fn card(view: &CardView, room: CardLimits) -> String {
    let mut out = String::new();
    if let Some(title) = &view.title {
        let _ = writeln!(out, "  title, as the asker gave it: \"{title}\"");
    }
    if let Some(why) = &view.rationale {
        let _ = writeln!(out, "  why, in the asker's words: \"{why}\"");
    }
    if view.asker_gone {
        let _ = writeln!(out, "  the asker is gone, or did not wait; the result will be there: csn wait {}", view.task);
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
        lay_out_script(&mut out, script, view, room);
    }
    if let Some(whole) = view.whole_command(room.command) {
        let _ = writeln!(out, "  the whole command: `{whole}`");
    }
    let _ = writeln!(out, "{}", view.question(room.command));
    for CommandView { command, directories } in view.commands.iter().take(room.bullets) {
        let _ = match directories.is_empty() {
            true => writeln!(out, "  • {command}"),
            false => writeln!(out, "  • {command}   in {}", directories.join(", ")),
        };
    }
    if view.commands.len() > room.bullets {
        let more = view.commands.len() - room.bullets;
        let _ = writeln!(out, "  • … {more} more: csn approvals show {}", view.approval);
    }
    out
}

fn lay_out_script(out: &mut String, script: &ScriptView, view: &CardView, room: CardLimits) {
    let changed = if script.changed { " CHANGED since it was asked about: it will not run" } else { "" };
    let _ = writeln!(out, "  runs {}, sha256 {}…{changed}", script.path, script.sha256);
    let (head, left_out, tail) = script.excerpt(room.script);
    for line in head {
        let _ = writeln!(out, "    | {line}");
    }
    if left_out > 0 {
        let _ = writeln!(out, "    … {left_out} more lines: csn approvals show {}", view.approval);
    }
    for line in tail {
        let _ = writeln!(out, "    | {line}");
    }
    if script.omitted > 0 {
        let _ = writeln!(out, "    … {} more bytes, in the file itself", script.omitted);
    }
}

/// The choices, one a line, with what each would save and how far that would go.
pub(crate) fn choices(view: &CardView) -> String {
    let mut out = String::new();
    if let Some(why) = &view.not_saved {
        let _ = writeln!(out, "  nothing can be saved: {why}");
    }
    for choice in &view.choices {
        let danger = if choice.dangerous { " (!)" } else { "" };
        let label = format!("{}{danger}", choice.label);
        let _ = write!(out, "  [{}] {label:<20}", choice.key);
        explain(&mut out, choice);
        while out.ends_with(' ') {
            out.pop();
        }
        out.push('\n');
    }
    out
}

fn explain(out: &mut String, choice: &ChoiceView) {
    let list = |all: &[String]| all.iter().map(|text| format!("`{text}`")).collect::<Vec<_>>().join(", ");
    if choice.takes_words {
        out.push_str("d and words for the agent, if you like");
    }
    out.push_str(&choice.saves.join(", "));
    if choice.these_words_only {
        let _ = write!(out, ", these words only ({}* for any)", choice.key);
    }
    if !choice.would_cover.is_empty() {
        let _ = write!(out, "\n      would also cover {}", list(&choice.would_cover));
    }
    if !choice.would_not_cover.is_empty() {
        let _ = write!(out, "\n      would not cover {}", list(&choice.would_not_cover));
    }
}

/// How a question ended, in one line.
pub(crate) fn resolution(approval: &Approval) -> String {
    approval.resolution().map_or_else(|| "waiting".to_owned(), |how| DisplaySafe::new(&how).to_string())
}

/// What to do about a question where there is no terminal to ask it.
pub(crate) fn waiting_line(approval: ApprovalId) -> String {
    format!("csn: waiting for approval {approval}: csn approvals answer {approval} once")
}
