//! What a person is asked, what an answer saves, and what a card says about both. Decides nothing: the desk does.

use crate::{case::Case, desk::ApprovalQuestion, facts::Prepared, register_command};
use countersign_model::{
    Assessment, Card, Choice, Confinement, Coverage, DecidedBy, Digest, Grant, GrantId, GrantOffer, GrantSandbox,
    Grants, IdMint, Operands, Plan, Refusal, RefusalCode, Request, Sandbox, SandboxReason, Script, Text, Tool,
    UncoveredCommand, Verdict,
};
use countersign_policy::{GrantProposal, JudgeContext};
use countersign_redact::{Mask, text, text_bounded, text_by_shape};
use countersign_store::random;

/// More commands than this are not told one by one.
const MOST_TOLD: usize = 256;
/// As much of a script as a card shows.
const SCRIPT_SHOWN: u64 = 16 * 1024;
const MAX_VERBS_BYTES: usize = 4096;
const LONGEST_OPERANDS: usize = 500;
const LONGEST_VARIABLE: usize = 200;
const LONGEST_SCRIPT: u64 = 8 * 1024 * 1024;

/// What may be said about each occurrence of a plan, secrets taken out.
#[derive(Debug, Default)]
pub(crate) struct CleanTexts {
    each: Vec<OccurrenceText>,
    /// Nothing had to be taken out of what a grant would hold.
    clean: bool,
}

#[derive(Debug)]
struct OccurrenceText {
    verb: Text,
    text: Text,
    directories: Vec<Text>,
}

impl CleanTexts {
    pub(crate) fn of(request: &Request, prepared: &Prepared, mask: &Mask, display: &Text) -> Self {
        let source = request.args.command.as_deref();
        let mut texts = Self { each: Vec::new(), clean: true };
        for occurrence in &prepared.plan.occurrences {
            let directories = countersign_policy::occurrence_directories(occurrence, &prepared.facts);
            let verb = text(mask, &occurrence.verb);
            let said = match source.and_then(|s| s.get(occurrence.span.clone())) {
                Some(part) if !part.trim().is_empty() => text(mask, part),
                _ => display.clone(),
            };
            let cleaned: Vec<Text> = directories.iter().map(|d| text(mask, d)).collect();
            texts.clean &= verb.as_str() == occurrence.verb
                && cleaned.iter().zip(&directories).all(|(clean, raw)| clean.as_str() == raw);
            texts.each.push(OccurrenceText { verb, text: said, directories: cleaned });
        }
        texts
    }

    /// The verbs that matter, for people: those that only a grant covers or that nothing does, else all of them.
    pub(crate) fn verbs(&self, plan: &Plan, assessment: &Assessment) -> Text {
        let own = || {
            let all = plan.occurrences.iter().zip(&assessment.coverage).zip(&self.each);
            all.filter(|((occurrence, _), _)| !occurrence.shadow).map(|((_, coverage), said)| (coverage, &said.verb))
        };
        let asked = |coverage: &Coverage| matches!(coverage, Coverage::None { .. } | Coverage::Grant { .. });
        let uncovered: Vec<&str> = own().filter(|(c, _)| asked(c)).map(|(_, verb)| verb.as_str()).collect();
        let mut verbs = if uncovered.is_empty() { own().map(|(_, verb)| verb.as_str()).collect() } else { uncovered };
        verbs.dedup();
        text_bounded(&Mask::of_shapes(), &verbs.join(", "), MAX_VERBS_BYTES)
    }
}

impl Case<'_> {
    /// What a person is asked, where the verdict is to ask.
    pub(crate) fn question(&self, assessment: &Assessment, texts: &CleanTexts) -> ApprovalQuestion {
        if self.request.tool == Tool::SetWorkingDirectory {
            let options = vec![Choice::Session, Choice::Deny];
            return ApprovalQuestion { uncovered: Vec::new(), about: Vec::new(), options };
        }
        let Verdict::Ask { uncovered } = &assessment.verdict else { return ApprovalQuestion::default() };
        let told = || uncovered.iter().take(MOST_TOLD).filter_map(|n| Some((*n, texts.each.get(*n)?)));
        let about = told().map(|(n, said)| UncoveredCommand {
            verb: said.verb.clone(),
            directories: said.directories.clone(),
            risks: risks(assessment, n),
        });
        let in_session = self.session.is_some_and(|s| s.implicit.is_none());
        let Prepared { plan, facts, .. } = self.prepared;
        let options = if texts.clean {
            countersign_policy::offered_choices(plan, facts, assessment, &self.context(), in_session)
        } else {
            vec![Choice::Once, Choice::Deny]
        };
        ApprovalQuestion {
            uncovered: told().map(|(_, said)| said.text.clone()).collect(),
            about: about.collect(),
            options,
        }
    }

    /// The grants that an answer leaves behind; none when nothing is uncovered any more.
    pub(crate) fn saved_grants(
        &self,
        given: &SavingAnswer<'_>,
        assessment: &Assessment,
        mint: &mut IdMint,
    ) -> Result<Vec<Grant>, Refusal> {
        let SavingAnswer { choice, any_arguments, by, about } = *given;
        let Prepared { plan, facts, .. } = self.prepared;
        let context = self.context();
        let all = countersign_policy::grant_proposals(choice, any_arguments, plan, facts, assessment, &context);
        let mask = self.mask();
        // What the card did not ask about, because it was covered then, is not saved by answering it.
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
                let grant = made(choice, proposal, &context, &mask)?;
                let (created_at, created_by) = (Some(self.now), Some(text_by_shape(&by.to_string())));
                let (sandbox, confinement) = saved_sandbox(&assessment.sandbox);
                Ok(Grant { id: Some(id), created_at, created_by, surface, sandbox, confinement, ..grant })
            })
            .collect()
    }

    /// Everything that a card shows beside the question itself.
    pub(crate) fn card(&self, asked_by: &str, options: &[Choice], assessment: &Assessment) -> Card {
        let mask = self.mask();
        let Prepared { plan, facts, .. } = self.prepared;
        let places = countersign_policy::card_directories(plan, assessment);
        let context = self.context();
        let offers = options.iter().copied().filter(|c| c.saves());
        let offers = offers.filter_map(|choice| self.offer(choice, assessment, &context, &mask, &places));
        let variables = self.request.args.env.iter();
        let variables = variables.map(|(k, v)| text_bounded(&mask, &format!("{k}={v}"), LONGEST_VARIABLE));
        let not_saved = countersign_policy::unsavable_reason(plan, assessment);
        Card {
            asked_by: text_bounded(&mask, asked_by, LONGEST_OPERANDS),
            risks: risks_in_words(assessment, &mask),
            not_saved: not_saved.filter(|_| !options.iter().any(|c| c.saves())).map(Text::from_static),
            variables: variables.collect(),
            offers: offers.collect(),
            scripts: facts.scripts.iter().filter_map(|(path, digest)| script(path, *digest, &mask)).collect(),
            in_session_folder: matches!((&places[..], &context.session_folder), ([one], Some(folder)) if one == folder),
            confinement: assessment.sandbox.confinement,
            sandbox: Some(assessment.sandbox.summary(|path| text(&mask, path))),
        }
    }

    /// What one answer would save, and examples of how far that goes, judged with that very grant.
    fn offer(
        &self,
        choice: Choice,
        assessment: &Assessment,
        context: &JudgeContext<'_>,
        mask: &Mask,
        places: &[String],
    ) -> Option<GrantOffer> {
        let Prepared { plan, facts, argv, .. } = self.prepared;
        let all = countersign_policy::grant_proposals(choice, false, plan, facts, assessment, context)?;
        let place = places.first().map_or(facts.cwd.resolved.as_str(), String::as_str);
        let mut offer =
            GrantOffer { choice, saves: Vec::new(), covers: Vec::new(), does_not_cover: Vec::new(), exact: false };
        let told = |(command, cwd): &(String, String)| {
            let place = if cwd == place { String::new() } else { format!(" in {cwd}") };
            text_bounded(mask, &format!("{command}{place}"), LONGEST_OPERANDS)
        };
        for proposal in &all {
            let grant = made(choice, proposal, context, mask).ok()?;
            offer.exact |= proposal.operands.is_some();
            offer.saves.push(register_command::label(&grant));
            let grants = Grants::from_grants(vec![grant]);
            let reach = countersign_policy::coverage_examples(proposal, place, facts, &grants, context, &self.settings.rules);
            // That it covers what is asked for goes without saying.
            let other = |(command, cwd): &&(String, String)| cwd != place || argv.get(2) != Some(command);
            offer.covers.extend(reach.covered.iter().filter(other).map(told));
            offer.does_not_cover.extend(reach.not_covered.iter().map(told));
        }
        Some(offer)
    }
}

/// The risks of what nothing covers, each with its reason, each once.
fn risks_in_words(assessment: &Assessment, mask: &Mask) -> Vec<Text> {
    let Verdict::Ask { uncovered } = &assessment.verdict else { return Vec::new() };
    let mut risks: Vec<Text> = Vec::new();
    for note in assessment.risks.iter().filter(|r| uncovered.contains(&r.occurrence)) {
        let told = text(mask, &format!("{}: {}", note.risk.as_str().replace('_', " "), note.reason));
        if !risks.contains(&told) {
            risks.push(told);
        }
    }
    risks
}

fn risks(assessment: &Assessment, n: usize) -> Vec<countersign_model::Risk> {
    let mut risks: Vec<_> = assessment.risks.iter().filter(|r| r.occurrence == n).map(|r| r.risk).collect();
    risks.sort_unstable();
    risks.dedup();
    risks
}

/// An answer that may leave something behind.
pub(crate) struct SavingAnswer<'a> {
    pub(crate) choice: Choice,
    /// What is saved covers other operands too.
    pub(crate) any_arguments: bool,
    pub(crate) by: &'a DecidedBy,
    /// What the card was about.
    pub(crate) about: &'a [UncoveredCommand],
}

/// What a grant says of its sandbox: what the request asked for, and the card showed; else what each call needs.
fn saved_sandbox(sandbox: &Sandbox) -> (GrantSandbox, Confinement) {
    match (sandbox.why, sandbox.confinement) {
        (SandboxReason::Requested, Confinement::Shield) => (GrantSandbox::Open, Confinement::None),
        (SandboxReason::Requested, narrowed) => (GrantSandbox::Narrow, narrowed),
        _ => (GrantSandbox::Narrow, Confinement::None),
    }
}

/// A proposal as a grant. What it holds must be what was meant, so nothing may have to be taken out of it.
fn made(choice: Choice, proposal: &GrantProposal, context: &JudgeContext<'_>, mask: &Mask) -> Result<Grant, Refusal> {
    let clean = |raw: &str| match text(mask, raw) {
        clean if clean.as_str() == raw => Ok(clean),
        _ => {
            Err(Refusal::new(RefusalCode::OptionNotOffered, "this cannot be saved: it holds what looks like a secret")
                .hint("answer `once`"))
        }
    };
    let operands = proposal.operands.as_ref().map(|(digest, words)| Operands {
        digest: *digest,
        shown: text_bounded(mask, &words.join(" "), LONGEST_OPERANDS),
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

/// A script as it is now, and whether that is what was asked about.
fn script(path: &str, asked: Digest, mask: &Mask) -> Option<Script> {
    let bytes = countersign_store::read_regular(path, LONGEST_SCRIPT).unwrap_or_default();
    let shown = &bytes[..bytes.len().min(SCRIPT_SHOWN as usize)];
    let content = text(mask, &String::from_utf8_lossy(shown));
    Some(Script {
        path: text(mask, &countersign_policy::clean_path(path)),
        sha256: asked,
        content,
        omitted: (bytes.len() - shown.len()) as u64,
        changed: Digest::sha256(&[&bytes]) != asked,
    })
}
