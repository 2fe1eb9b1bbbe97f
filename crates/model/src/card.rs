//! An approval as a person sees it, as data: the question, its details, and what each answer would do.
//!
//! Pure. Every text is bounded and safe to display. A surface only lays the texts out; it chooses how many characters
//! of the command, list entries and script lines it has room for.

use crate::{Approval, ApprovalId, AskerPresence, Choice, DisplaySafe, GrantOffer, Script, TaskId, Text, Tool};

const MAX_DIRECTORY_CHARS: usize = 300;
const MAX_LISTED_DIRECTORY_CHARS: usize = 200;
const MAX_LISTED_COMMAND_CHARS: usize = 300;
const MAX_RISK_CHARS: usize = 160;
const MAX_TITLE_CHARS: usize = 200;
const MAX_RATIONALE_CHARS: usize = 500;
const MAX_SANDBOX_CHARS: usize = 500;
const MAX_ASKED_BY_CHARS: usize = 300;
const MAX_VARIABLE_CHARS: usize = 160;
const MAX_SCRIPT_PATH_CHARS: usize = 200;
const MAX_SCRIPT_LINE_CHARS: usize = 160;
const MAX_NOT_SAVED_CHARS: usize = 160;
const MAX_SAVES_CHARS: usize = 120;
const MAX_EXAMPLE_CHARS: usize = 60;
/// The number of examples that show what a saved grant would cover, and would not cover.
const MAX_COVERED_EXAMPLES: usize = 2;
const MAX_UNCOVERED_EXAMPLES: usize = 3;

/// A card, ready to be laid out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardView {
    pub approval: ApprovalId,
    pub task: TaskId,
    subject: CardSubject,
    /// The directory that it would run in.
    cwd: String,
    /// A directory was too long and is cut.
    cut_directory: bool,
    /// The directories that the commands work in, each once; empty if only the working directory is known.
    pub directories: Vec<String>,
    /// One line for each risk with its reason, or one line that lists all of them.
    pub risks: Vec<String>,
    /// The names of the risks in config and JSON.
    pub risk_names: Vec<&'static str>,
    /// Title and reason as the requester wrote them. Nobody has checked them.
    pub title: Option<String>,
    pub rationale: Option<String>,
    /// The caller no longer waits. The approval can still be answered.
    pub asker_gone: bool,
    /// Who asks, unless it is the person who reads the card.
    pub asked_by: Option<String>,
    /// The sandbox that it would run in, in one sentence.
    pub sandbox: Option<String>,
    /// The variables that the request sets.
    pub variables: Vec<String>,
    pub scripts: Vec<ScriptView>,
    /// The commands that need approval, each once; empty if there is only one.
    pub commands: Vec<CommandView>,
    /// Why no grant can be saved, if none can.
    pub not_saved: Option<String>,
    pub choices: Vec<ChoiceView>,
}

/// The subject of the question.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CardSubject {
    /// Clean, but not yet made safe to display: the surface decides how much of it is shown.
    Command { text: Text, place: String, several: bool },
    /// A session that wants to work in another directory. Its display text is the question.
    WorkingDirectory(String),
}

/// One of several commands that need approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandView {
    pub command: String,
    /// The directories that it works in; empty if all commands work in the same one.
    pub directories: Vec<String>,
}

/// A script that would run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptView {
    pub path: String,
    /// The first characters of its digest.
    pub sha256: String,
    /// The script changed after the request. An approval would not run it.
    pub changed: bool,
    pub lines: Vec<String>,
    /// Bytes of the file after those lines.
    pub omitted: u64,
}

/// One answer that the card offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChoiceView {
    pub choice: Choice,
    pub label: &'static str,
    pub key: char,
    /// The saved grant would be valid in every directory.
    pub dangerous: bool,
    /// The grants that it would save; empty if it saves none.
    pub saves: Vec<String>,
    /// At least one of the grants covers only the arguments of the request (its label says so), unless the answer allows
    /// any arguments.
    pub these_words_only: bool,
    /// Example commands. The gate has judged every one.
    pub would_cover: Vec<String>,
    pub would_not_cover: Vec<String>,
    /// The person can add a message for the agent.
    pub takes_words: bool,
}

fn display(text: &Text, max: usize) -> String {
    DisplaySafe::bounded(text.as_str(), max).to_string()
}

fn display_all(texts: &[Text], max: usize) -> Vec<String> {
    texts.iter().map(|text| display(text, max)).collect()
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
            subject: CardSubject::from_approval(approval, &places),
            cwd: DisplaySafe::new(approval.cwd.as_str()).to_string(),
            cut_directory: places.iter().any(|place| place.as_str().chars().count() > MAX_DIRECTORY_CHARS),
            directories: places.iter().map(|place| display(place, MAX_DIRECTORY_CHARS)).collect(),
            risks: if runs { risks(approval) } else { Vec::new() },
            risk_names: approval.risks.iter().map(|risk| risk.as_str()).collect(),
            title: approval.title.as_ref().map(|title| display(title, MAX_TITLE_CHARS)),
            rationale: approval.rationale.as_ref().map(|why| display(why, MAX_RATIONALE_CHARS)),
            asker_gone: approval.asker == Some(AskerPresence::Gone),
            asked_by: asked_by.map(|by| display(by, MAX_ASKED_BY_CHARS)),
            sandbox: sandbox
                .map(|(c, s)| DisplaySafe::bounded(&s.sentence(c.confinement), MAX_SANDBOX_CHARS).to_string()),
            variables: details.map(|c| display_all(&c.variables, MAX_VARIABLE_CHARS)).unwrap_or_default(),
            scripts: details.iter().flat_map(|c| &c.scripts).map(ScriptView::from_script).collect(),
            commands: if runs { commands(approval, places.len() > 1) } else { Vec::new() },
            not_saved: card.and_then(|c| c.not_saved.as_ref()).map(|why| display(why, MAX_NOT_SAVED_CHARS)),
            choices: approval.options.iter().map(|choice| ChoiceView::for_choice(*choice, approval)).collect(),
        }
    }

    /// The question, with at most `max_command` characters of the command.
    #[must_use]
    pub fn question(&self, max_command: usize) -> String {
        match &self.subject {
            CardSubject::Command { text, place, several: false } => {
                format!("Approve `{}` in {place}?", display(text, max_command))
            }
            CardSubject::Command { place, several: true, .. } => format!("Approve in {place}?"),
            CardSubject::WorkingDirectory(question) => question.clone(),
        }
    }

    /// The whole command if the question does not contain it because it is about several; at most `max` characters.
    #[must_use]
    pub fn whole_command(&self, max: usize) -> Option<String> {
        match &self.subject {
            CardSubject::Command { text, several: true, .. } => Some(display(text, max)),
            CardSubject::Command { several: false, .. } | CardSubject::WorkingDirectory(_) => None,
        }
    }

    /// Whether the command has more than `max_command` characters.
    #[must_use]
    pub fn is_longer_than(&self, max_command: usize) -> bool {
        match &self.subject {
            CardSubject::Command { text, .. } => text.as_str().chars().count() > max_command,
            CardSubject::WorkingDirectory(_) => false,
        }
    }

    /// The question, the directory, the other directories that it works in and its risks, for a surface that has a
    /// single line. None if the command or its directories have more than `max` bytes, or if the command could be
    /// mistaken for a part of the question.
    #[must_use]
    pub fn in_one_line(&self, max: usize) -> Option<String> {
        let CardSubject::Command { text, .. } = &self.subject else { return None };
        let (command, cwd) = (text.as_str(), &self.cwd);
        let others: Vec<&str> = self.directories.iter().filter(|d| *d != cwd).map(String::as_str).collect();
        let other_directories = others.join(", ");
        let too_long = command.len() > max || cwd.len() > max || other_directories.len() > max || self.cut_directory;
        if too_long || command.contains(['`', '\n']) {
            return None;
        }
        let mut question = format!("Approve `{}` in {cwd}?", DisplaySafe::new(command));
        if !other_directories.is_empty() {
            question += &format!(" It works in {other_directories}.");
        }
        if !self.risk_names.is_empty() {
            question += &format!(" Risks: {}.", self.risk_names.join(", "));
        }
        Some(question)
    }
}

impl CardSubject {
    fn from_approval(approval: &Approval, places: &[&Text]) -> Self {
        if approval.tool == Tool::SetWorkingDirectory {
            return Self::WorkingDirectory(DisplaySafe::new(approval.display.as_str()).to_string());
        }
        let place = match places {
            _ if approval.card.as_ref().is_some_and(|c| c.in_session_folder) => "this session".to_owned(),
            [] => display(&approval.cwd, MAX_DIRECTORY_CHARS),
            [one] => display(one, MAX_DIRECTORY_CHARS),
            many => format!("{} directories", many.len()),
        };
        Self::Command { text: approval.display.clone(), place, several: approval.uncovered.len() > 1 }
    }
}

/// The directories that the commands work in, each once.
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
        return display_all(&card.risks, MAX_RISK_CHARS);
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
        let directories =
            about.map(|about| display_all(&about.directories, MAX_LISTED_DIRECTORY_CHARS)).unwrap_or_default();
        let view = CommandView { command: display(text, MAX_LISTED_COMMAND_CHARS), directories };
        if !commands.contains(&view) {
            commands.push(view);
        }
    }
    commands
}

impl ScriptView {
    fn from_script(script: &Script) -> Self {
        let line = |line: &str| DisplaySafe::bounded(line, MAX_SCRIPT_LINE_CHARS).to_string();
        Self {
            path: display(&script.path, MAX_SCRIPT_PATH_CHARS),
            sha256: script.sha256.to_string().chars().take(12).collect(),
            changed: script.changed,
            lines: script.content.as_str().lines().map(line).collect(),
            omitted: script.omitted,
        }
    }

    /// The first lines, the number of lines left out, and the last lines: together at most `room` lines.
    #[must_use]
    pub fn excerpt(&self, room: usize) -> (&[String], usize, &[String]) {
        // The end of a script matters as much as its beginning.
        let tail = if self.lines.len() > room { room / 3 } else { 0 };
        let head = room.saturating_sub(tail).min(self.lines.len());
        (&self.lines[..head], self.lines.len() - head - tail, &self.lines[self.lines.len() - tail..])
    }
}

impl ChoiceView {
    fn for_choice(choice: Choice, approval: &Approval) -> Self {
        let offer = approval.card.iter().flat_map(|card| &card.offers).find(|offer| offer.choice == choice);
        let examples = |from_offer: fn(&GrantOffer) -> &Vec<Text>, max: usize| {
            offer
                .iter()
                .flat_map(|offer| from_offer(offer))
                .take(max)
                .map(|text| display(text, MAX_EXAMPLE_CHARS))
                .collect()
        };
        Self {
            choice,
            label: choice.label(),
            key: choice.key(),
            dangerous: choice == Choice::Anywhere,
            saves: offer.map(|offer| display_all(&offer.saves, MAX_SAVES_CHARS)).unwrap_or_default(),
            these_words_only: offer.is_some_and(|offer| offer.exact),
            would_cover: examples(|offer| &offer.covers, MAX_COVERED_EXAMPLES),
            would_not_cover: examples(|offer| &offer.does_not_cover, MAX_UNCOVERED_EXAMPLES),
            takes_words: choice == Choice::Deny && offer.is_none(),
        }
    }
}

#[cfg(test)]
#[path = "card/tests.rs"]
mod tests;
