//! What an approval asks, which grants an answer saves, and what a card shows about both. The desk decides, not this.

use crate::{case::Case, desk::ApprovalQuestion, facts::PreparedRequest, register_command};
use countersign_model::{
    Assessment, Card, Choice, Confinement, Coverage, DecidedBy, Digest, Grant, GrantId, GrantOffer, GrantSandbox,
    Grants, IdMint, Operands, Plan, Refusal, RefusalCode, Request, Sandbox, SandboxReason, Script, Text, Tool,
    UncoveredCommand, Verdict,
};
use countersign_policy::{GrantProposal, JudgeContext};
use countersign_redact::{Mask, text, text_bounded, text_by_shape};
use countersign_store::random;

/// How many commands an approval lists one by one.
const MAX_LISTED_COMMANDS: usize = 256;
/// How much of a script a card shows.
const MAX_SCRIPT_SHOWN_BYTES: u64 = 16 * 1024;
const MAX_VERBS_BYTES: usize = 4096;
const MAX_OPERANDS_BYTES: usize = 500;
const MAX_VARIABLE_BYTES: usize = 200;
const MAX_SCRIPT_BYTES: u64 = 8 * 1024 * 1024;

/// The redacted texts of each occurrence of a plan.
#[derive(Debug, Default)]
pub(crate) struct CleanTexts {
    occurrences: Vec<OccurrenceText>,
    /// Nothing was redacted from the parts that a grant would hold.
    clean: bool,
}

#[derive(Debug)]
struct OccurrenceText {
    verb: Text,
    text: Text,
    directories: Vec<Text>,
}

impl CleanTexts {
    pub(crate) fn from_request(request: &Request, prepared: &PreparedRequest, mask: &Mask, display: &Text) -> Self {
        let source = request.args.command.as_deref();
        let mut texts = Self { occurrences: Vec::new(), clean: true };
        for occurrence in &prepared.plan.occurrences {
            let directories = countersign_policy::occurrence_directories(occurrence, &prepared.facts);
            let verb = text(mask, &occurrence.verb);
            let command_text = match source.and_then(|s| s.get(occurrence.span.clone())) {
                Some(part) if !part.trim().is_empty() => text(mask, part),
                _ => display.clone(),
            };
            let cleaned: Vec<Text> = directories.iter().map(|d| text(mask, d)).collect();
            texts.clean &= verb.as_str() == occurrence.verb
                && cleaned.iter().zip(&directories).all(|(clean, raw)| clean.as_str() == raw);
            texts.occurrences.push(OccurrenceText { verb, text: command_text, directories: cleaned });
        }
        texts
    }

    /// The verbs for people: those that need an approval or a grant; if there are none, all of them.
    pub(crate) fn verbs(&self, plan: &Plan, assessment: &Assessment) -> Text {
        let own = || {
            let all = plan.occurrences.iter().zip(&assessment.coverage).zip(&self.occurrences);
            all.filter(|((occurrence, _), _)| !occurrence.shadow).map(|((_, coverage), texts)| (coverage, &texts.verb))
        };
        let asked = |coverage: &Coverage| matches!(coverage, Coverage::None { .. } | Coverage::Grant { .. });
        let uncovered: Vec<&str> = own().filter(|(c, _)| asked(c)).map(|(_, verb)| verb.as_str()).collect();
        let mut verbs = if uncovered.is_empty() { own().map(|(_, verb)| verb.as_str()).collect() } else { uncovered };
        verbs.dedup();
        text_bounded(&Mask::without_values(), &verbs.join(", "), MAX_VERBS_BYTES)
    }
}

impl Case<'_> {
    /// What an approval asks, if the verdict is to ask.
    pub(crate) fn approval_question(&self, assessment: &Assessment, texts: &CleanTexts) -> ApprovalQuestion {
        if self.request.tool == Tool::SetWorkingDirectory {
            let options = vec![Choice::Session, Choice::Deny];
            return ApprovalQuestion { uncovered: Vec::new(), about: Vec::new(), options };
        }
        let Verdict::Ask { uncovered } = &assessment.verdict else { return ApprovalQuestion::default() };
        let listed =
            || uncovered.iter().take(MAX_LISTED_COMMANDS).filter_map(|n| Some((*n, texts.occurrences.get(*n)?)));
        let about = listed().map(|(n, texts)| UncoveredCommand {
            verb: texts.verb.clone(),
            directories: texts.directories.clone(),
            risks: risks_of_occurrence(assessment, n),
        });
        let in_session = self.session.is_some_and(|s| s.implicit.is_none());
        let PreparedRequest { plan, facts, .. } = self.prepared;
        let options = if texts.clean {
            countersign_policy::offered_choices(plan, facts, assessment, &self.context(), in_session)
        } else {
            vec![Choice::Once, Choice::Deny]
        };
        ApprovalQuestion {
            uncovered: listed().map(|(_, texts)| texts.text.clone()).collect(),
            about: about.collect(),
            options,
        }
    }

    /// The grants that an answer saves; none if everything is covered by now.
    pub(crate) fn saved_grants(
        &self,
        answer: &SavingAnswer<'_>,
        assessment: &Assessment,
        mint: &mut IdMint,
    ) -> Result<Vec<Grant>, Refusal> {
        let SavingAnswer { choice, any_arguments, by, about } = *answer;
        let PreparedRequest { plan, facts, .. } = self.prepared;
        let context = self.context();
        let all = countersign_policy::grant_proposals(choice, any_arguments, plan, facts, assessment, &context);
        let mask = self.mask();
        // A command that was covered when the card was shown is not saved by answering it.
        let asked = |p: &&GrantProposal| {
            about.iter().any(|a| a.verb.as_str() == p.verb && p.risks.iter().all(|risk| a.risks.contains(risk)))
        };
        all.unwrap_or_default()
            .iter()
            .filter(asked)
            .map(|proposal| {
                let id = GrantId::mint(mint, self.now.millis(), u32::from_le_bytes(random()));
                let surface = match by {
                    DecidedBy::Person { surface, .. } => Some(surface.clone()),
                    DecidedBy::Rule(_) | DecidedBy::Grants(_) => None,
                };
                let grant = build_grant(choice, proposal, &context, &mask)?;
                let (created_at, created_by) = (Some(self.now), Some(text_by_shape(&by.to_string())));
                let (sandbox, confinement) = saved_sandbox(&assessment.sandbox);
                Ok(Grant { id: Some(id), created_at, created_by, surface, sandbox, confinement, ..grant })
            })
            .collect()
    }

    /// Everything that a card shows besides the question itself.
    pub(crate) fn card(&self, asked_by: &str, options: &[Choice], assessment: &Assessment) -> Card {
        let mask = self.mask();
        let PreparedRequest { plan, facts, .. } = self.prepared;
        let places = countersign_policy::card_directories(plan, assessment);
        let context = self.context();
        let offers = options.iter().copied().filter(|c| c.saves());
        let offers = offers.filter_map(|choice| self.grant_offer(choice, assessment, &context, &mask, &places));
        let variables = self.request.args.env.iter();
        let variables = variables.map(|(k, v)| text_bounded(&mask, &format!("{k}={v}"), MAX_VARIABLE_BYTES));
        let not_saved = countersign_policy::unsavable_reason(plan, assessment);
        Card {
            asked_by: text_bounded(&mask, asked_by, MAX_OPERANDS_BYTES),
            risks: describe_risks(assessment, &mask),
            not_saved: not_saved.filter(|_| !options.iter().any(|c| c.saves())).map(Text::from_static),
            variables: variables.collect(),
            offers: offers.collect(),
            scripts: facts.scripts.iter().filter_map(|(path, digest)| read_script(path, *digest, &mask)).collect(),
            in_session_folder: matches!((&places[..], &context.session_folder), ([one], Some(folder)) if one == folder),
            confinement: assessment.sandbox.confinement,
            // A file tool runs no program that a sandbox could confine.
            sandbox: self.runs_a_program().then(|| assessment.sandbox.summary(|path| text(&mask, path))),
        }
    }

    fn runs_a_program(&self) -> bool {
        self.request.tool == Tool::Shell
    }

    /// What one choice would save, and examples of what that grant covers, judged with the grant itself.
    fn grant_offer(
        &self,
        choice: Choice,
        assessment: &Assessment,
        context: &JudgeContext<'_>,
        mask: &Mask,
        places: &[String],
    ) -> Option<GrantOffer> {
        let PreparedRequest { plan, facts, argv, .. } = self.prepared;
        let all = countersign_policy::grant_proposals(choice, false, plan, facts, assessment, context)?;
        let place = places.first().map_or(facts.cwd.resolved.as_str(), String::as_str);
        let mut offer =
            GrantOffer { choice, saves: Vec::new(), covers: Vec::new(), does_not_cover: Vec::new(), exact: false };
        let example = |(command, cwd): &(String, String)| {
            let place = if cwd == place { String::new() } else { format!(" in {cwd}") };
            text_bounded(mask, &format!("{command}{place}"), MAX_OPERANDS_BYTES)
        };
        let grants =
            all.iter().map(|proposal| build_grant(choice, proposal, context, mask)).collect::<Result<Vec<_>, _>>();
        let grants = grants.ok()?;
        offer.exact = all.iter().any(|proposal| proposal.operands.is_some());
        let label = |(grant, proposal): (&Grant, &GrantProposal)| {
            let label = register_command::grant_label(grant);
            if proposal.operands.is_none() {
                return label;
            }
            text(mask, &format!("{label} (these arguments only)"))
        };
        offer.saves = grants.iter().zip(&all).map(label).collect();
        // The examples are commands.
        if !self.runs_a_program() {
            return Some(offer);
        }
        // A later request does not ask for the sandbox of this one.
        let context = &JudgeContext { requested_confinement: None, requested_network: None, ..context.clone() };
        // One answer saves all of these grants, so they are judged together: `sudo ls` needs those for `sudo` and `ls`.
        let grants = Grants::from_grants(grants);
        for proposal in &all {
            let reach =
                countersign_policy::coverage_examples(proposal, place, facts, &grants, context, &self.settings.rules);
            // It covers the command itself; that needs no example.
            let other = |(command, cwd): &&(String, String)| cwd != place || argv.get(2) != Some(command);
            let covered = reach.covered.iter().filter(other).map(example);
            let not_covered = reach.not_covered.iter().map(example);
            extend_once(&mut offer.covers, covered);
            extend_once(&mut offer.does_not_cover, not_covered);
        }
        Some(offer)
    }
}

/// Adds texts that the list does not have yet.
fn extend_once(list: &mut Vec<Text>, texts: impl Iterator<Item = Text>) {
    for text in texts {
        if !list.contains(&text) {
            list.push(text);
        }
    }
}

/// The risks of the uncovered commands with their reasons, each once.
fn describe_risks(assessment: &Assessment, mask: &Mask) -> Vec<Text> {
    let Verdict::Ask { uncovered } = &assessment.verdict else { return Vec::new() };
    let mut risks: Vec<Text> = Vec::new();
    for note in assessment.risks.iter().filter(|r| uncovered.contains(&r.occurrence)) {
        let risk = text(mask, &format!("{}: {}", note.risk.as_str().replace('_', " "), note.reason));
        if !risks.contains(&risk) {
            risks.push(risk);
        }
    }
    risks
}

fn risks_of_occurrence(assessment: &Assessment, n: usize) -> Vec<countersign_model::Risk> {
    let mut risks: Vec<_> = assessment.risks.iter().filter(|r| r.occurrence == n).map(|r| r.risk).collect();
    risks.sort_unstable();
    risks.dedup();
    risks
}

/// An answer that may save grants.
pub(crate) struct SavingAnswer<'a> {
    pub(crate) choice: Choice,
    /// Whether the saved grant covers other operands too.
    pub(crate) any_arguments: bool,
    pub(crate) by: &'a DecidedBy,
    /// What the card asked about.
    pub(crate) about: &'a [UncoveredCommand],
}

/// The sandbox of a saved grant: what the request asked for and the card showed; otherwise what each call needs.
fn saved_sandbox(sandbox: &Sandbox) -> (GrantSandbox, Confinement) {
    match (sandbox.why, sandbox.confinement) {
        (SandboxReason::Requested, Confinement::Shield) => (GrantSandbox::Open, Confinement::None),
        (SandboxReason::Requested, narrowed) => (GrantSandbox::Narrow, narrowed),
        _ => (GrantSandbox::Narrow, Confinement::None),
    }
}

/// A proposal as a grant. A grant must hold exactly what was approved, so nothing in it may be redacted.
fn build_grant(
    choice: Choice,
    proposal: &GrantProposal,
    context: &JudgeContext<'_>,
    mask: &Mask,
) -> Result<Grant, Refusal> {
    let clean = |raw: &str| match text(mask, raw) {
        clean if clean.as_str() == raw => Ok(clean),
        _ => Err(Refusal::new(
            RefusalCode::OptionNotOffered,
            "this cannot be saved as a grant: it contains text that looks like a secret",
        )
        .hint("answer `once`")),
    };
    let operands = proposal.operands.as_ref().map(|(digest, words)| Operands {
        digest: *digest,
        shown: text_bounded(mask, &words.join(" "), MAX_OPERANDS_BYTES),
    });
    Ok(Grant {
        id: None,
        verb: clean(&proposal.verb)?,
        directory: proposal.directory.as_deref().map(clean).transpose()?,
        repository: choice == Choice::Repository,
        principal: context.principal,
        session: context.session.filter(|_| choice == Choice::Session),
        audience: context.audience,
        tool: context.tool,
        risks: Some(proposal.risks.clone()),
        program: proposal.program.as_deref().map(clean).transpose()?,
        operands,
        assignments: proposal.assignments,
        script: proposal.script,
        confinement: Confinement::None,
        sandbox: GrantSandbox::Narrow,
        created_at: None,
        created_by: None,
        surface: None,
        expires_at: None,
        uses_left: None,
    })
}

/// A script as it is now, and whether it has changed since the request.
fn read_script(path: &str, asked: Digest, mask: &Mask) -> Option<Script> {
    let bytes = countersign_store::read_regular(path, MAX_SCRIPT_BYTES).unwrap_or_default();
    let shown = &bytes[..bytes.len().min(MAX_SCRIPT_SHOWN_BYTES as usize)];
    let content = text(mask, &String::from_utf8_lossy(shown));
    Some(Script {
        path: text(mask, &countersign_policy::clean_path(path)),
        sha256: asked,
        content,
        omitted: (bytes.len() - shown.len()) as u64,
        changed: Digest::sha256(&[&bytes]) != asked,
    })
}
