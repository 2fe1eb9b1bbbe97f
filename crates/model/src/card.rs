//! What a person sees of an approval, as data: the question, what it is about, and what each answer would do.
//!
//! Pure. Every text here is bounded and safe to look at; a surface lays it out, and says how much room it has for the
//! command, the list of commands and the lines of a script. It adds nothing of its own.

use crate::{Approval, ApprovalId, AskerPresence, Choice, DisplaySafe, GrantOffer, Script, TaskId, Text, Tool};

const MAX_DIRECTORY: usize = 300;
const MAX_LISTED_DIRECTORY: usize = 200;
const MAX_LISTED_COMMAND: usize = 300;
const MAX_RISK: usize = 160;
const MAX_TITLE: usize = 200;
const MAX_RATIONALE: usize = 500;
const MAX_SANDBOX: usize = 500;
const MAX_ASKED_BY: usize = 300;
const MAX_VARIABLE: usize = 160;
const MAX_SCRIPT_PATH: usize = 200;
const MAX_SCRIPT_LINE: usize = 160;
const MAX_NOT_SAVED: usize = 160;
const MAX_SAVES: usize = 120;
const MAX_EXAMPLE: usize = 60;
/// How many examples show what a saved answer would cover, and what it would not.
const COVERED_EXAMPLES: usize = 2;
const UNCOVERED_EXAMPLES: usize = 3;

/// A card, ready to be laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardView {
    pub approval: ApprovalId,
    pub task: TaskId,
    subject: CardSubject,
    /// Where it would run.
    cwd: String,
    /// A directory is too long to be shown whole.
    cut_directory: bool,
    /// The directories that the question is about, each once; empty when only the working directory is known.
    pub directories: Vec<String>,
    /// One line for each risk with its reason, or one line that names them all.
    pub risks: Vec<String>,
    /// The risks by the names that config and JSON have for them.
    pub risk_names: Vec<&'static str>,
    /// The asker's own title and reason. Nobody has checked them.
    pub title: Option<String>,
    pub rationale: Option<String>,
    /// The asker is gone, or did not wait; an answer still counts.
    pub asker_gone: bool,
    /// Who asks, unless it is the reader.
    pub asked_by: Option<String>,
    /// What the sandbox would give it, in one sentence.
    pub sandbox: Option<String>,
    /// The variables that the asker names.
    pub variables: Vec<String>,
    pub scripts: Vec<ScriptView>,
    /// The commands that are asked about, where there are several; each once.
    pub commands: Vec<CommandView>,
    /// Why nothing can be saved, when nothing can.
    pub not_saved: Option<String>,
    pub choices: Vec<ChoiceView>,
}

/// What the question is about.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CardSubject {
    /// Clean, not yet made safe to look at: how much of it is shown is for the surface to say.
    Command { text: Text, place: String, several: bool },
    /// A session that wants to work elsewhere: its display is the question.
    WorkingDirectory(String),
}

/// One of several commands that are asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandView {
    pub command: String,
    /// Where it works; empty when all of them work in the same place.
    pub directories: Vec<String>,
}

/// A script that would run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptView {
    pub path: String,
    /// The beginning of its digest.
    pub sha256: String,
    /// It is not what it was when it was asked about: an approval would not let it run.
    pub changed: bool,
    pub lines: Vec<String>,
    /// Bytes of the file behind those lines.
    pub omitted: u64,
}

/// One answer that the card offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChoiceView {
    pub choice: Choice,
    pub label: &'static str,
    pub key: char,
    /// Its grant would hold in every directory.
    pub dangerous: bool,
    /// What it would save; empty when it saves nothing.
    pub saves: Vec<String>,
    /// Only the same words would be covered, unless the answer lets any arguments through.
    pub these_words_only: bool,
    /// Examples, each of them judged.
    pub would_cover: Vec<String>,
    pub would_not_cover: Vec<String>,
    /// It takes words for the agent.
    pub takes_words: bool,
}

fn shown(text: &Text, max: usize) -> String {
    DisplaySafe::bounded(text.as_str(), max).to_string()
}

fn all_shown(texts: &[Text], max: usize) -> Vec<String> {
    texts.iter().map(|text| shown(text, max)).collect()
}

impl CardView {
    #[must_use]
    pub fn from_approval(approval: &Approval) -> Self {
        let card = approval.card.as_ref();
        let places = places(approval);
        let runs = approval.tool != Tool::SetWorkingDirectory;
        let sandbox = card.filter(|_| approval.tool == Tool::Shell).and_then(|c| Some((c, c.sandbox.as_ref()?)));
        let asked_by = card.map(|c| &c.asked_by).filter(|by| by.as_str() != "you" && runs);
        let details = card.filter(|_| runs);
        Self {
            approval: approval.id,
            task: approval.task_id,
            subject: CardSubject::of(approval, &places),
            cwd: DisplaySafe::new(approval.cwd.as_str()).to_string(),
            cut_directory: places.iter().any(|place| place.as_str().chars().count() > MAX_DIRECTORY),
            directories: places.iter().map(|place| shown(place, MAX_DIRECTORY)).collect(),
            risks: if runs { risks(approval) } else { Vec::new() },
            risk_names: approval.risks.iter().map(|risk| risk.as_str()).collect(),
            title: approval.title.as_ref().map(|title| shown(title, MAX_TITLE)),
            rationale: approval.rationale.as_ref().map(|why| shown(why, MAX_RATIONALE)),
            asker_gone: approval.asker == Some(AskerPresence::Gone),
            asked_by: asked_by.map(|by| shown(by, MAX_ASKED_BY)),
            sandbox: sandbox.map(|(c, s)| DisplaySafe::bounded(&s.sentence(c.confinement), MAX_SANDBOX).to_string()),
            variables: details.map(|c| all_shown(&c.variables, MAX_VARIABLE)).unwrap_or_default(),
            scripts: details.iter().flat_map(|c| &c.scripts).map(ScriptView::of).collect(),
            commands: if runs { commands(approval, places.len() > 1) } else { Vec::new() },
            not_saved: card.and_then(|c| c.not_saved.as_ref()).map(|why| shown(why, MAX_NOT_SAVED)),
            choices: approval.options.iter().map(|choice| ChoiceView::of(*choice, approval)).collect(),
        }
    }

    /// The question, with at most this many characters of the command.
    #[must_use]
    pub fn question(&self, max_command: usize) -> String {
        match &self.subject {
            CardSubject::Command { text, place, several: false } => {
                format!("Approve `{}` in {place}?", shown(text, max_command))
            }
            CardSubject::Command { place, several: true, .. } => format!("Approve in {place}?"),
            CardSubject::WorkingDirectory(question) => question.clone(),
        }
    }

    /// The whole command, where the question names none because it is about several; at most this many characters.
    #[must_use]
    pub fn whole_command(&self, max: usize) -> Option<String> {
        match &self.subject {
            CardSubject::Command { text, several: true, .. } => Some(shown(text, max)),
            CardSubject::Command { several: false, .. } | CardSubject::WorkingDirectory(_) => None,
        }
    }

    /// Whether more than this many characters would be needed to show all of the command.
    #[must_use]
    pub fn is_longer_than(&self, max_command: usize) -> bool {
        match &self.subject {
            CardSubject::Command { text, .. } => text.as_str().chars().count() > max_command,
            CardSubject::WorkingDirectory(_) => false,
        }
    }

    /// The question, where it would run, the other directories that it is about and its risks, for a surface that has one
    /// line; none if the command or its places have more than this many bytes, or if the command could pass for words of
    /// the question.
    #[must_use]
    pub fn in_one_line(&self, max: usize) -> Option<String> {
        let CardSubject::Command { text, .. } = &self.subject else { return None };
        let (command, cwd) = (text.as_str(), &self.cwd);
        let elsewhere: Vec<&str> = self.directories.iter().filter(|d| *d != cwd).map(String::as_str).collect();
        let elsewhere = elsewhere.join(", ");
        let long = command.len() > max || cwd.len() > max || elsewhere.len() > max || self.cut_directory;
        if long || command.contains(['`', '\n']) {
            return None;
        }
        let mut question = format!("Approve `{}` in {cwd}?", DisplaySafe::new(command));
        if !elsewhere.is_empty() {
            question += &format!(" It works in {elsewhere}.");
        }
        Some(match self.risk_names.is_empty() {
            true => question,
            false => format!("{question} Risks: {}", self.risk_names.join(", ")),
        })
    }
}

impl CardSubject {
    fn of(approval: &Approval, places: &[&Text]) -> Self {
        if approval.tool == Tool::SetWorkingDirectory {
            return Self::WorkingDirectory(DisplaySafe::new(approval.display.as_str()).to_string());
        }
        let place = match places {
            _ if approval.card.as_ref().is_some_and(|c| c.in_session_folder) => "this session".to_owned(),
            [] => shown(&approval.cwd, MAX_DIRECTORY),
            [one] => shown(one, MAX_DIRECTORY),
            many => format!("{} directories", many.len()),
        };
        Self::Command { text: approval.display.clone(), place, several: approval.uncovered.len() > 1 }
    }
}

/// The directories that a question is about, each once.
fn places(approval: &Approval) -> Vec<&Text> {
    let mut places: Vec<&Text> = Vec::new();
    for place in approval.about.iter().flat_map(|about| &about.directories) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

fn risks(approval: &Approval) -> Vec<String> {
    if let Some(card) = approval.card.as_ref().filter(|card| !card.risks.is_empty()) {
        return all_shown(&card.risks, MAX_RISK);
    }
    let names: Vec<String> = approval.risks.iter().map(|risk| risk.as_str().replace('_', " ")).collect();
    vec![format!("risks: {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") })]
}

fn commands(approval: &Approval, in_several_places: bool) -> Vec<CommandView> {
    let mut commands: Vec<CommandView> = Vec::new();
    if approval.uncovered.len() < 2 {
        return commands;
    }
    for (n, text) in approval.uncovered.iter().enumerate() {
        let about = approval.about.get(n).filter(|_| in_several_places);
        let directories = about.map(|about| all_shown(&about.directories, MAX_LISTED_DIRECTORY)).unwrap_or_default();
        let view = CommandView { command: shown(text, MAX_LISTED_COMMAND), directories };
        if !commands.contains(&view) {
            commands.push(view);
        }
    }
    commands
}

impl ScriptView {
    fn of(script: &Script) -> Self {
        let line = |line: &str| DisplaySafe::bounded(line, MAX_SCRIPT_LINE).to_string();
        Self {
            path: shown(&script.path, MAX_SCRIPT_PATH),
            sha256: script.sha256.to_string().chars().take(12).collect(),
            changed: script.changed,
            lines: script.content.as_str().lines().map(line).collect(),
            omitted: script.omitted,
        }
    }

    /// Its first lines, how many follow that are left out, and its last ones: in all, as many as there is room for.
    #[must_use]
    pub fn within(&self, room: usize) -> (&[String], usize, &[String]) {
        // Its end matters as much as its beginning.
        let tail = if self.lines.len() > room { room / 3 } else { 0 };
        let head = room.saturating_sub(tail).min(self.lines.len());
        (&self.lines[..head], self.lines.len() - head - tail, &self.lines[self.lines.len() - tail..])
    }
}

impl ChoiceView {
    fn of(choice: Choice, approval: &Approval) -> Self {
        let offer = approval.card.iter().flat_map(|card| &card.offers).find(|offer| offer.choice == choice);
        let examples = |of: fn(&GrantOffer) -> &Vec<Text>, most: usize| {
            offer.iter().flat_map(|offer| of(offer)).take(most).map(|text| shown(text, MAX_EXAMPLE)).collect()
        };
        Self {
            choice,
            label: choice.label(),
            key: choice.key(),
            dangerous: choice == Choice::Anywhere,
            saves: offer.map(|offer| all_shown(&offer.saves, MAX_SAVES)).unwrap_or_default(),
            these_words_only: offer.is_some_and(|offer| offer.exact),
            would_cover: examples(|offer| &offer.covers, COVERED_EXAMPLES),
            would_not_cover: examples(|offer| &offer.does_not_cover, UNCOVERED_EXAMPLES),
            takes_words: choice == Choice::Deny && offer.is_none(),
        }
    }
}

#[cfg(test)]
#[path = "card/tests.rs"]
mod tests;
