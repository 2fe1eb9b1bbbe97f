//! The card of an approval as text.

use countersign_model::{Approval, ApprovalId, Asker, Choice, Offer, Shown, Tool};
use std::fmt::Write as _;

/// How much of everything a card shows.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// Characters of the command.
    pub(crate) command: usize,
    /// Commands that are named one by one.
    bullets: usize,
    /// Lines of a script.
    script: usize,
}

impl Room {
    /// All of it.
    pub(crate) const WHOLE: Self = Self { command: usize::MAX, bullets: usize::MAX, script: usize::MAX };

    /// What leaves the choices in sight.
    pub(crate) fn of_screen() -> Self {
        let rows = crate::terminal::raw::size().map_or(24, |(rows, _)| usize::from(rows));
        Self { command: 1000, bullets: 8, script: rows.saturating_sub(18).clamp(3, 40) }
    }
}

/// The question in words. Nothing of the asker stands between the command and the choices.
#[expect(clippy::too_many_lines, reason = "one part after another, as they are read")]
pub(crate) fn card(approval: &Approval, room: Room) -> String {
    let mut out = String::new();
    let risks: Vec<String> = approval.risks.iter().map(|r| r.as_str().replace('_', " ")).collect();
    if let Some(title) = &approval.title {
        let _ = writeln!(out, "  title, as the asker gave it: \"{}\"", Shown::bounded(title.as_str(), 200));
    }
    if let Some(why) = &approval.rationale {
        let _ = writeln!(out, "  why, in the asker's words: \"{}\"", Shown::bounded(why.as_str(), 500));
    }
    if approval.asker == Some(Asker::Gone) {
        let _ = writeln!(
            out,
            "  the asker is gone, or did not wait; the result will be there: csn wait {}",
            approval.task_id
        );
    }
    if approval.tool == Tool::SetWorkingDirectory {
        let _ = writeln!(out, "{}", Shown::new(approval.display.as_str()));
        return out;
    }
    match &approval.card {
        Some(card) if !card.risks.is_empty() => {
            for risk in &card.risks {
                let _ = writeln!(out, "  {}", Shown::bounded(risk.as_str(), 160));
            }
        }
        _ => {
            let risks = if risks.is_empty() { "none".to_owned() } else { risks.join(", ") };
            let _ = writeln!(out, "  risks: {risks}");
        }
    }
    if let Some(card) = approval.card.as_ref().filter(|_| approval.tool == Tool::Shell)
        && let Some(sandbox) = &card.sandbox
    {
        let _ = writeln!(out, "  sandbox: {}", Shown::bounded(&sandbox.sentence(card.confinement), 500));
    }
    if let Some(card) = approval.card.as_ref().filter(|c| c.asked_by.as_str() != "you") {
        let _ = writeln!(out, "  asked by {}", Shown::bounded(card.asked_by.as_str(), 300));
    }
    for variable in approval.card.iter().flat_map(|c| &c.variables) {
        let _ = writeln!(out, "  with {}", Shown::bounded(variable.as_str(), 160));
    }
    for script in approval.card.iter().flat_map(|c| &c.scripts) {
        let digest = script.sha256.to_string();
        let changed = if script.changed { " CHANGED since it was asked about: it will not run" } else { "" };
        let path = Shown::bounded(script.path.as_str(), 200);
        let _ = writeln!(out, "  runs {path}, sha256 {}…{changed}", &digest[..12]);
        let lines: Vec<&str> = script.content.as_str().lines().collect();
        // Its end matters as much as its beginning.
        let tail = if lines.len() > room.script { room.script / 3 } else { 0 };
        let head = room.script.saturating_sub(tail).min(lines.len());
        let left_out = lines.len() - head - tail;
        let print = |out: &mut String, line: &str| {
            let _ = writeln!(out, "    | {}", Shown::bounded(line, 160));
        };
        lines[..head].iter().for_each(|line| print(&mut out, line));
        if left_out > 0 {
            let _ = writeln!(out, "    … {left_out} more lines: csn approvals show {}", approval.id);
        }
        lines[lines.len() - tail..].iter().for_each(|line| print(&mut out, line));
        if script.omitted > 0 {
            let _ = writeln!(out, "    … {} more bytes, in the file itself", script.omitted);
        }
    }
    let _ = writeln!(out, "{}", header(approval, room));
    if approval.uncovered.len() > 1 {
        let several = places(approval).len() > 1;
        let mut bullets: Vec<String> = Vec::new();
        for (n, text) in approval.uncovered.iter().enumerate() {
            let mut bullet = Shown::bounded(text.as_str(), room.command.min(300)).to_string();
            if let Some(about) = approval.about.get(n).filter(|_| several) {
                let all: Vec<String> =
                    about.directories.iter().map(|d| Shown::bounded(d.as_str(), 200).to_string()).collect();
                let _ = write!(bullet, "   in {}", all.join(", "));
            }
            if !bullets.contains(&bullet) {
                bullets.push(bullet);
            }
        }
        for bullet in bullets.iter().take(room.bullets) {
            let _ = writeln!(out, "  • {bullet}");
        }
        if bullets.len() > room.bullets {
            let _ = writeln!(out, "  • … {} more: csn approvals show {}", bullets.len() - room.bullets, approval.id);
        }
    }
    out
}

/// The directories that a question is about, each once.
fn places(approval: &Approval) -> Vec<&str> {
    let mut places: Vec<&str> = Vec::new();
    for place in approval.about.iter().flat_map(|a| &a.directories).map(|d| d.as_str()) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// ``Approve `git push` in /home/u/repo?``
fn header(approval: &Approval, room: Room) -> String {
    let place = match &places(approval)[..] {
        _ if approval.card.as_ref().is_some_and(|c| c.in_session_folder) => "this session".to_owned(),
        [] => Shown::bounded(approval.cwd.as_str(), 300).to_string(),
        [one] => Shown::bounded(one, 300).to_string(),
        many => format!("{} directories", many.len()),
    };
    match approval.uncovered.len() {
        0 | 1 => format!("Approve `{}` in {place}?", Shown::bounded(approval.display.as_str(), room.command)),
        _ => {
            let all = Shown::bounded(approval.display.as_str(), room.command);
            format!("  the whole command: `{all}`\nApprove in {place}?")
        }
    }
}

/// The choices, one a line, with what each would save and how far that would go.
pub(crate) fn choices(approval: &Approval) -> String {
    let mut out = String::new();
    if let Some(why) = approval.card.as_ref().and_then(|c| c.not_saved.as_ref()) {
        let _ = writeln!(out, "  nothing can be saved: {}", Shown::bounded(why.as_str(), 160));
    }
    for choice in &approval.options {
        let offer = approval.card.iter().flat_map(|c| &c.offers).find(|o| o.choice == *choice);
        let danger = if matches!(choice, Choice::Anywhere) { " (!)" } else { "" };
        let label = format!("{}{danger}", choice.label());
        let _ = write!(out, "  [{}] {label:<20}", key(*choice));
        match offer {
            Some(offer) => explain(&mut out, offer),
            None if *choice == Choice::Deny => out.push_str("d and words for the agent, if you like"),
            None => {}
        }
        while out.ends_with(' ') {
            out.pop();
        }
        out.push('\n');
    }
    out
}

fn explain(out: &mut String, offer: &Offer) {
    let list = |all: &[countersign_model::Text], most: usize| {
        let shown: Vec<String> =
            all.iter().take(most).map(|t| format!("`{}`", Shown::bounded(t.as_str(), 60))).collect();
        shown.join(", ")
    };
    let saves: Vec<String> = offer.saves.iter().map(|s| Shown::bounded(s.as_str(), 120).to_string()).collect();
    out.push_str(&saves.join(", "));
    if offer.exact {
        let _ = write!(out, ", these words only ({}* for any)", key(offer.choice));
    }
    if !offer.covers.is_empty() {
        let _ = write!(out, "\n      would also cover {}", list(&offer.covers, 2));
    }
    if !offer.does_not_cover.is_empty() {
        let _ = write!(out, "\n      would not cover {}", list(&offer.does_not_cover, 3));
    }
}

pub(crate) fn key(choice: Choice) -> char {
    match choice {
        Choice::Once => 'o',
        Choice::Session => 's',
        Choice::Here => 'h',
        Choice::Repository => 'r',
        Choice::Anywhere => 'a',
        Choice::Deny => 'd',
    }
}

/// How a question ended, in one line.
pub(crate) fn resolution(approval: &Approval) -> String {
    approval.resolution().map_or_else(|| "waiting".to_owned(), |how| Shown::new(&how).to_string())
}

/// What to do about a question where there is no terminal to ask it.
pub(crate) fn waiting_line(approval: ApprovalId) -> String {
    format!("csn: waiting for approval {approval}: csn approvals answer {approval} once")
}
