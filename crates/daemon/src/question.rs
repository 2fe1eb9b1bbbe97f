//! What a person is asked, what an answer saves, and what a card says about both. Decides nothing: the desk does.

use crate::{desk::Question, facts::Looked, wish};
use countersign_model::{
    About, Assessment, By, Card, Choice, Code, Confinement, Digest, Grant, GrantId, GrantSandbox, Grants, IdMint,
    Offer, Operands, Refusal, Request, Sandbox, SandboxReason, Script, Session, Text, Tool, Verdict,
};
use countersign_policy::{Context, Proposal, Rules};
use countersign_redact::{Known, Mask, text, text_bounded};
use countersign_store::{clock, random};

/// More commands than this are not told one by one.
const MOST_TOLD: usize = 256;
/// As much of a script as a card shows.
const SCRIPT_SHOWN: u64 = 16 * 1024;
const LONGEST_OPERANDS: usize = 500;
const LONGEST_VARIABLE: usize = 200;
const LONGEST_SCRIPT: u64 = 8 * 1024 * 1024;

/// What may be said about each occurrence of a plan, secrets taken out.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    each: Vec<Said>,
    /// Nothing had to be taken out of what a grant would hold.
    clean: bool,
}

#[derive(Debug)]
struct Said {
    verb: Text,
    text: Text,
    directories: Vec<Text>,
}

/// What the environment of a request must not give away.
pub(crate) fn mask(key: &countersign_model::HouseKey, looked: &Looked) -> Mask {
    let known = Known::of_env(looked.env.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    Mask::new(mask_key(key), known)
}

/// One key for all that the house shows: what was read in one task can be named in the next.
pub(crate) fn mask_key(key: &countersign_model::HouseKey) -> countersign_model::Digest {
    key.digest("mask", &[b"house"])
}

impl Texts {
    pub(crate) fn of(request: &Request, looked: &Looked, assessment: &Assessment, mask: &Mask, display: &Text) -> Self {
        let source = request.args.command.as_deref();
        let mut texts = Self { each: Vec::new(), clean: true };
        for (occurrence, directories) in looked.plan.occurrences.iter().zip(&assessment.directories) {
            let verb = text(mask, &occurrence.verb);
            let said = match source.and_then(|s| s.get(occurrence.span.clone())) {
                Some(part) if !part.trim().is_empty() => text(mask, part),
                _ => display.clone(),
            };
            let cleaned: Vec<Text> = directories.iter().map(|d| text(mask, d)).collect();
            texts.clean &= verb.as_str() == occurrence.verb
                && cleaned.iter().zip(directories).all(|(clean, raw)| clean.as_str() == raw);
            texts.each.push(Said { verb, text: said, directories: cleaned });
        }
        texts
    }
}

/// The question, when there is one.
pub(crate) fn of(
    request: &Request,
    looked: &Looked,
    assessment: &Assessment,
    context: &Context<'_>,
    session: Option<&Session>,
    texts: Texts,
) -> Question {
    if request.tool == Tool::SetWorkingDirectory {
        let options = vec![Choice::Session, Choice::Deny];
        return Question { uncovered: Vec::new(), about: Vec::new(), options };
    }
    let Verdict::Ask { uncovered } = &assessment.answer else { return Question::default() };
    let told = || uncovered.iter().take(MOST_TOLD).filter_map(|n| Some((*n, texts.each.get(*n)?)));
    let about = told().map(|(n, said)| About {
        verb: said.verb.clone(),
        directories: said.directories.clone(),
        risks: risks(assessment, n),
    });
    let in_session = session.is_some_and(|s| s.implicit.is_none());
    let options = match texts.clean {
        true => countersign_policy::options(&looked.plan, &looked.facts, assessment, context, in_session),
        false => vec![Choice::Once, Choice::Deny],
    };
    Question { uncovered: told().map(|(_, said)| said.text.clone()).collect(), about: about.collect(), options }
}

fn risks(assessment: &Assessment, n: usize) -> Vec<countersign_model::Risk> {
    let mut risks: Vec<_> = assessment.risks.iter().filter(|r| r.occurrence == n).map(|r| r.risk).collect();
    risks.sort_unstable();
    risks.dedup();
    risks
}

/// An answer that may leave something behind.
pub(crate) struct Given<'a> {
    pub(crate) choice: Choice,
    /// What is saved covers other operands too.
    pub(crate) any_arguments: bool,
    pub(crate) by: &'a By,
    /// What the card was about.
    pub(crate) about: &'a [About],
}

/// The grants that an answer leaves behind; none when nothing is uncovered any more.
pub(crate) fn grants(
    given: &Given<'_>,
    looked: &Looked,
    assessment: &Assessment,
    context: &Context<'_>,
    mint: &mut IdMint,
) -> Result<Vec<Grant>, Refusal> {
    let Given { choice, any_arguments, by, about } = *given;
    let all = countersign_policy::proposals(choice, any_arguments, &looked.plan, &looked.facts, assessment, context);
    let mask = mask(context.key, looked);
    let now = clock::now();
    // What the card did not ask about, because it was covered then, is not saved by answering it.
    let asked = |p: &&Proposal| {
        about.iter().any(|a| a.verb.as_str() == p.verb && p.risks.iter().all(|risk| a.risks.contains(risk)))
    };
    all.unwrap_or_default()
        .iter()
        .filter(asked)
        .map(|proposal| {
            let id = GrantId::mint(mint, now.millis(), u32::from_le_bytes(random()));
            let surface = match by {
                By::Person { surface, .. } => Some(surface.clone()),
                By::Rule(_) | By::Grants(_) => None,
            };
            let grant = made(choice, proposal, context, &mask)?;
            let created_by = Some(countersign_redact::text_by_shape(&by.to_string()));
            let (sandbox, confinement) = saved_sandbox(&assessment.sandbox);
            Ok(Grant { id: Some(id), created_at: Some(now), created_by, surface, sandbox, confinement, ..grant })
        })
        .collect()
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
fn made(choice: Choice, proposal: &Proposal, context: &Context<'_>, mask: &Mask) -> Result<Grant, Refusal> {
    let clean = |raw: &str| match text(mask, raw) {
        clean if clean.as_str() == raw => Ok(clean),
        _ => Err(Refusal::new(Code::OptionNotOffered, "this cannot be saved: it holds what looks like a secret")
            .hint("answer `once`")),
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

/// Everything that a card shows beside the question itself.
pub(crate) fn card(
    request: &Request,
    asked_by: &str,
    options: &[Choice],
    looked: &Looked,
    assessment: &Assessment,
    context: &Context<'_>,
    rules: &Rules,
) -> Card {
    let mask = mask(context.key, looked);
    let places = countersign_policy::places(&looked.plan, assessment);
    let offers = options.iter().copied().filter(|c| c.saves());
    let offers = offers.filter_map(|choice| offer(choice, looked, assessment, context, rules, &mask, &places));
    let scripts = looked.facts.scripts.iter();
    let variables = request.args.env.iter();
    let mut risks: Vec<Text> = Vec::new();
    if let Verdict::Ask { uncovered } = &assessment.answer {
        for note in assessment.risks.iter().filter(|r| uncovered.contains(&r.occurrence)) {
            let told = text(&mask, &format!("{}: {}", note.risk.as_str().replace('_', " "), note.reason));
            if !risks.contains(&told) {
                risks.push(told);
            }
        }
    }
    let not_saved = countersign_policy::cannot_be_saved(&looked.plan, assessment);
    Card {
        asked_by: text_bounded(&mask, asked_by, LONGEST_OPERANDS),
        risks,
        not_saved: not_saved.filter(|_| !options.iter().any(|c| c.saves())).map(Text::of),
        variables: variables.map(|(k, v)| text_bounded(&mask, &format!("{k}={v}"), LONGEST_VARIABLE)).collect(),
        offers: offers.collect(),
        scripts: scripts.filter_map(|(path, digest)| script(path, *digest, &mask)).collect(),
        in_session_folder: matches!((&places[..], &context.folder), ([one], Some(folder)) if one == folder),
        confinement: assessment.sandbox.confinement,
        sandbox: Some(assessment.sandbox.summary(|path| text(&mask, path))),
    }
}

fn offer(
    choice: Choice,
    looked: &Looked,
    assessment: &Assessment,
    context: &Context<'_>,
    rules: &Rules,
    mask: &Mask,
    places: &[String],
) -> Option<Offer> {
    let all = countersign_policy::proposals(choice, false, &looked.plan, &looked.facts, assessment, context)?;
    let place = places.first().map_or(looked.facts.cwd.resolved.as_str(), String::as_str);
    let mut offer = Offer { choice, saves: Vec::new(), covers: Vec::new(), does_not_cover: Vec::new(), exact: false };
    let told = |(command, cwd): &(String, String)| {
        let place = if cwd == place { String::new() } else { format!(" in {cwd}") };
        text_bounded(mask, &format!("{command}{place}"), LONGEST_OPERANDS)
    };
    for proposal in &all {
        let grant = made(choice, proposal, context, mask).ok()?;
        offer.exact |= proposal.operands.is_some();
        offer.saves.push(wish::label(&grant));
        let grants = Grants::of(vec![grant]);
        let reach = countersign_policy::reach(proposal, place, &looked.facts, &grants, context, rules);
        // That it covers what is asked for goes without saying.
        let other = |(command, cwd): &&(String, String)| cwd != place || looked.argv.get(2) != Some(command);
        offer.covers.extend(reach.covers.iter().filter(other).map(told));
        offer.does_not_cover.extend(reach.does_not.iter().map(told));
    }
    Some(offer)
}

/// A script as it is now, and whether that is what was asked about.
fn script(path: &str, asked: Digest, mask: &Mask) -> Option<Script> {
    let bytes = countersign_store::read_regular(path, LONGEST_SCRIPT).unwrap_or_default();
    let shown = &bytes[..bytes.len().min(SCRIPT_SHOWN as usize)];
    let content = text(mask, &String::from_utf8_lossy(shown));
    Some(Script {
        path: text(mask, &countersign_policy::clean(path)),
        sha256: asked,
        content,
        omitted: (bytes.len() - shown.len()) as u64,
        changed: Digest::sha256(&[&bytes]) != asked,
    })
}
