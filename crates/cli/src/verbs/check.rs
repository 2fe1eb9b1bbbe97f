//! `csn check`: the gate, in this process. No daemon, no home, nothing is run.

use crate::{UsageError, args::CheckArgs, exit};
use anyhow::Context as _;
use countersign_model::{
    Assessment, Audience, Confinement, Coverage, Directory, DisplaySafe, Facts, Grant, GrantSandbox, Grants, Kernel,
    Occurrence, PathTargetKind, Plan, Profile, Verdict,
};
use countersign_policy::{CheckedRules, JudgeContext, Label, ParseContext};
use countersign_store::{Config, Home, SYSTEM_HOME, UnaskedReads, world};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    io::{BufRead as _, BufWriter, IsTerminal as _, Write as _},
    process::ExitCode,
};

/// The exit code of a refusal, as a shell knows it.
const REFUSED: u8 = 77;

/// What the answer depends on beside the command.
struct CheckSettings {
    home: String,
    protected: Vec<String>,
    config: Config,
    rules: CheckedRules,
}

impl CheckSettings {
    fn load(without_config: bool) -> anyhow::Result<Self> {
        let config = if without_config { Config::default() } else { Config::load()? };
        let rules = rules_of(&config)?;
        let mut protected: Vec<String> =
            Home::locate().ok().and_then(|h| h.path().to_str().map(str::to_owned)).into_iter().collect();
        if Home::shared_socket().is_some() {
            protected.extend([SYSTEM_HOME, "/etc/countersign"].map(str::to_owned));
        }
        protected.extend(Config::path().and_then(|p| p.parent()?.to_str().map(str::to_owned)));
        let home = std::env::var("HOME").ok().filter(|h| h.starts_with('/')).unwrap_or_else(|| "/".to_owned());
        Ok(Self { home, protected, config, rules })
    }
}

pub(crate) fn rules_of(config: &Config) -> anyhow::Result<CheckedRules> {
    let [rules, denies] = config.rules();
    Ok(CheckedRules::new(rules, denies)
        .map_err(|fault| config.rule_fault(fault.index, fault.hard, fault.to_string()))?)
}

/// One question. What else stands in its line is the asker's own.
#[derive(Deserialize)]
struct CheckQuestion {
    #[serde(default)]
    id: Value,
    command: String,
    cwd: String,
    #[serde(default)]
    roots: Vec<String>,
    #[serde(default)]
    grants: Vec<Grant>,
    #[serde(default)]
    audience: Option<String>,
    #[serde(default)]
    profile: Option<Profile>,
    #[serde(default = "yes")]
    attended: bool,
}

fn yes() -> bool {
    true
}

/// What is unknown is a stranger.
fn audience(name: Option<&str>) -> Audience {
    match name {
        None | Some("personal") => Audience::Personal,
        Some("team") => Audience::Team,
        Some(_) => Audience::Public,
    }
}

pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let basis = CheckSettings::load(args.no_config)?;
    if args.batch {
        return batch(args, &basis);
    }
    let command = match (&args.text[..], &args.argv[..]) {
        ([], []) => return Err(UsageError("say which command: csn check 'git status'".to_owned()).into()),
        (text, []) => text.join(" "),
        (_, argv) => argv.join(" "),
    };
    let cwd = match &args.cwd {
        Some(cwd) => std::path::absolute(cwd).context("--cwd")?,
        None => std::env::current_dir().context("where this runs")?,
    };
    let cwd = cwd.to_str().context("the working directory is not text")?.to_owned();
    let mut grants = Vec::new();
    for text in &args.grant {
        let label: Label = text.parse().map_err(|e| UsageError(format!("--grant: {e}")))?;
        grants.push(serde_json::from_value(json!({
            "verb": label.verb, "directory": label.directory, "sandbox": GrantSandbox::Narrow,
        }))?);
    }
    let grants = Grants::from_grants(grants);
    let repository = world::find_repository(&cwd);
    let here = repository.clone().unwrap_or_else(|| cwd.clone());
    let mut roots = args.root.clone();
    if roots.is_empty() && countersign_policy::can_be_root(&here, &basis.home, &basis.protected, repository.is_some()) {
        roots.push(here);
    }
    roots.extend(basis.config.roots.iter().cloned());
    let environment = |name: &str| std::env::var_os(name).is_some();
    let surroundings = ParseContext { cwd: &cwd, home: &basis.home, environment: &environment };
    let plan = match &args.argv[..] {
        [] => countersign_policy::read_text(&command, &surroundings),
        argv => countersign_policy::read_argv(argv, &surroundings),
    };
    let mut facts = Facts::none(&cwd);
    let sight = world::LookupLimits { below: None, path: std::env::var("PATH").ok() };
    world::look_up_facts(&countersign_policy::needs(&plan), &sight, &mut facts);
    let context = JudgeContext {
        profile: args.profile.map_or(basis.config.profile, Into::into),
        attended: !args.unattended,
        protected: basis.protected.clone(),
        read_all: basis.config.audience.personal.read == UnaskedReads::All,
        kernel: basis.config.confine.kernel(Kernel::FULL),
        granted: basis.config.confine.granted,
        wanted: args.confinement.map(Into::into),
        wanted_network: args.network.map(Into::into),
        network: basis.config.confine.network,
        ..JudgeContext::personal(&basis.home, roots)
    };
    let assessment = countersign_policy::judge(&plan, &facts, &context, &basis.rules, &grants);
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", answer(&Value::Null, &plan, &assessment))?;
    } else {
        let colour = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        tell(&mut out, &command, &plan, &assessment, &context, Palette(colour))?;
    }
    Ok(ExitCode::from(match assessment.verdict {
        Verdict::Allow { .. } => 0,
        Verdict::Ask { .. } => exit::PENDING,
        Verdict::Deny(_) => REFUSED,
    }))
}

/// Many questions: one JSON object a line in, one out. A line that is none gets an answer that says so.
fn batch(args: &CheckArgs, basis: &CheckSettings) -> anyhow::Result<ExitCode> {
    let input: Box<dyn std::io::BufRead> = match &args.text[..] {
        [] => Box::new(std::io::stdin().lock()),
        [file] => Box::new(std::io::BufReader::new(
            std::fs::File::open(file).with_context(|| format!("cannot read {}", DisplaySafe::new(file)))?,
        )),
        _ => return Err(UsageError("--batch takes one file".to_owned()).into()),
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut wrong = 0;
    for (n, line) in input.split(b'\n').enumerate() {
        let line = line.context("reading questions")?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<CheckQuestion>(&line) {
            Ok(question) if question.cwd.starts_with('/') => writeln!(out, "{}", respond(&question, basis))?,
            Ok(question) => {
                wrong += 1;
                let message = format!("line {}: `cwd` must be an absolute path", n + 1);
                writeln!(out, "{}", json!({"id": question.id, "error": message}))?;
            }
            Err(e) => {
                wrong += 1;
                writeln!(out, "{}", json!({"id": null, "error": format!("line {}: {e}", n + 1)}))?;
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::from(if wrong == 0 { 0 } else { exit::USAGE }))
}

fn respond(question: &CheckQuestion, basis: &CheckSettings) -> Value {
    let surroundings = ParseContext { cwd: &question.cwd, home: &basis.home, environment: &|_| false };
    let plan = countersign_policy::read_text(&question.command, &surroundings);
    let mut facts = Facts::none(&question.cwd);
    // Only below where the question is about, so that answers do not depend on this machine.
    let mut below = question.roots.clone();
    below.push(question.cwd.clone());
    let needs = countersign_policy::needs(&plan);
    world::look_up_facts(&needs, &world::LookupLimits { below: Some(below), path: None }, &mut facts);
    // What does not exist is judged by its letters, unless a link leads to where it would be.
    facts.paths.retain(|path, f| f.kind != PathTargetKind::Absent || f.resolved != countersign_policy::clean(path));
    let context = JudgeContext {
        profile: question.profile.unwrap_or(basis.config.profile),
        audience: audience(question.audience.as_deref()),
        attended: question.attended,
        protected: basis.protected.clone(),
        read_all: basis.config.audience.personal.read == UnaskedReads::All,
        ..JudgeContext::personal(&basis.home, question.roots.clone())
    };
    let narrow = |g: &Grant| Grant { sandbox: GrantSandbox::Narrow, ..g.clone() };
    let grants = Grants::from_grants(question.grants.iter().map(narrow).collect());
    let assessment = countersign_policy::judge(&plan, &facts, &context, &basis.rules, &grants);
    answer(&question.id, &plan, &assessment)
}

fn covered_by(coverage: &Coverage) -> Value {
    match coverage {
        Coverage::SideEffect => json!("side_effect"),
        Coverage::Phrase(name) => json!(format!("phrase:{name}")),
        Coverage::Grant { label, .. } => json!(format!("grant:{label}")),
        Coverage::Rule(name) => json!(format!("rule:{name}")),
        Coverage::Elsewhere => json!("elsewhere"),
        Coverage::None { .. } => Value::Null,
    }
}

/// The occurrences that stand for themselves.
fn own<'a>(
    plan: &'a Plan,
    assessment: &'a Assessment,
) -> impl Iterator<Item = (usize, &'a Occurrence, &'a Coverage, &'a [String])> {
    let rows = plan.occurrences.iter().zip(&assessment.coverage).zip(&assessment.directories).enumerate();
    rows.filter(|(_, ((o, _), _))| !o.shadow).map(|(n, ((o, c), d))| (n, o, c, d.as_slice()))
}

fn answer(id: &Value, plan: &Plan, assessment: &Assessment) -> Value {
    let occurrences: Vec<Value> = own(plan, assessment)
        .map(|(_, occurrence, coverage, directories)| {
            let scopes: Vec<&str> = occurrence.scopes.iter().map(|s| s.path.as_str()).collect();
            let why = match coverage {
                Coverage::None { why, .. } => json!(why),
                _ => Value::Null,
            };
            json!({
                "verb": occurrence.verb,
                "directory": directories.first(),
                "scopes": scopes,
                "covered_by": covered_by(coverage),
                "opaque": occurrence.opaque,
                "why": why,
            })
        })
        .collect();
    let risks: Vec<&str> = assessment.risk_set().iter().map(|r| r.as_str()).collect();
    json!({
        "id": id,
        "verdict": assessment.verdict.kind(),
        "one_shot": assessment.one_shot,
        "risks": risks,
        "occurrences": occurrences,
        "confinement": assessment.sandbox.confinement,
        "sandbox": assessment.sandbox.summary(countersign_redact::text_by_shape),
        "reason": reason(plan, assessment),
    })
}

/// Why, in one line.
fn reason(plan: &Plan, assessment: &Assessment) -> String {
    match &assessment.verdict {
        Verdict::Allow { rule } => match *rule {
            "read_only" => "everything in it only reads, inside the roots".to_owned(),
            "grant" | "rule" => "everything in it only reads, or is granted".to_owned(),
            "profile.full_auto" => "the profile lets it run, held to its workspace".to_owned(),
            other => other.to_owned(),
        },
        Verdict::Deny(refusal) => refusal.message.clone(),
        Verdict::Ask { uncovered } => {
            let first = uncovered.first().and_then(|n| Some((plan.occurrences.get(*n)?, assessment.coverage.get(*n)?)));
            match first {
                Some((occurrence, Coverage::None { why, .. })) => format!("{}: {why}", occurrence.verb),
                _ => "nothing covers it".to_owned(),
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Palette(bool);

impl Palette {
    fn on(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn colour(word: &str) -> &'static str {
        match word {
            "allow" => "32",
            "ask" => "33",
            _ => "31",
        }
    }

    fn verdict(self, word: &str) -> String {
        self.on(Self::colour(word), word)
    }
}

fn tell(
    out: &mut impl std::io::Write,
    command: &str,
    plan: &Plan,
    assessment: &Assessment,
    context: &JudgeContext<'_>,
    paint: Palette,
) -> std::io::Result<()> {
    writeln!(out, "{}", spans(command, plan, assessment, paint))?;
    if let Some(c) = countersign_policy::invisible(command) {
        writeln!(out, "  it holds U+{:04X}, which cannot be seen: {}", c as u32, DisplaySafe::bounded(command, 300))?;
    }
    writeln!(out)?;
    for (n, occurrence, coverage, directories) in own(plan, assessment) {
        let denied = assessment.culprit == Some(n);
        let word = match (denied, coverage.is_covered()) {
            (true, _) => "deny",
            (false, true) => "allow",
            (false, false) => "ask",
        };
        let place = match (directories, &occurrence.directory) {
            ([], Directory::Unknown) => " (where is not known)".to_owned(),
            ([], Directory::Known(_)) => String::new(),
            ([one], _) => format!(" in {}", DisplaySafe::bounded(one, 200)),
            (many, _) => format!(" in {} directories", many.len()),
        };
        let covering = match coverage {
            Coverage::SideEffect => "touches no file".to_owned(),
            Coverage::Phrase(name) => format!("read-only phrase `{name}`"),
            Coverage::Grant { label, .. } => format!("granted: {}", DisplaySafe::bounded(label, 200)),
            Coverage::Rule(name) => format!("rule `{}`", DisplaySafe::bounded(name, 100)),
            Coverage::Elsewhere | Coverage::None { .. } => String::new(),
        };
        let line = paint
            .on(Palette::colour(word), &format!("{word:<5} `{}`{place}", DisplaySafe::bounded(&occurrence.verb, 100)));
        writeln!(out, "{}", format!("  {line}  {covering}").trim_end())?;
        for note in assessment.risks.iter().filter(|r| r.occurrence == n) {
            writeln!(out, "          {}: {}", note.risk.as_str(), note.reason)?;
        }
        if let (Coverage::None { why, help }, false) = (coverage, denied) {
            writeln!(out, "          why: {}", DisplaySafe::bounded(why, 300))?;
            writeln!(out, "          what would help: {}", DisplaySafe::bounded(help, 300))?;
        }
    }
    writeln!(out)?;
    let word = assessment.verdict.kind().as_str();
    match &assessment.verdict {
        Verdict::Allow { .. } => writeln!(out, "{}: {}", paint.verdict(word), reason(plan, assessment))?,
        Verdict::Ask { uncovered } => {
            let saved = if assessment.one_shot {
                "once only: nothing of this could be saved"
            } else {
                "the answer can be saved"
            };
            let count = match uncovered.len() {
                1 => "one command".to_owned(),
                n => format!("{n} commands"),
            };
            writeln!(out, "{}: a person decides about {count} ({saved})", paint.verdict(word))?;
        }
        Verdict::Deny(refusal) => {
            writeln!(out, "{}: {} ({})", paint.verdict(word), refusal.message, refusal.code.as_str())?;
            if let Some(hint) = &refusal.hint {
                writeln!(out, "  {hint}")?;
            }
        }
    }
    if matches!(assessment.verdict, Verdict::Deny(_)) {
        return Ok(());
    }
    let sandbox = assessment.sandbox.summary(countersign_redact::text_by_shape);
    writeln!(out, "sandbox: {}", DisplaySafe::bounded(&sandbox.sentence(assessment.sandbox.confinement), 600))?;
    if assessment.sandbox.confinement >= Confinement::Workspace && !context.roots.is_empty() {
        writeln!(out, "  roots: {}", DisplaySafe::bounded(&context.roots.join(", "), 300))?;
    }
    Ok(())
}

/// The command with each of its occurrences in the colour of its answer; without colours, as it is.
fn spans(command: &str, plan: &Plan, assessment: &Assessment, paint: Palette) -> String {
    if !paint.0 {
        return format!("  {}", DisplaySafe::new(command));
    }
    let mut colours = vec![None; command.len()];
    for (n, occurrence, coverage, _) in own(plan, assessment) {
        let colour = match (assessment.culprit == Some(n), coverage.is_covered()) {
            (true, _) => "31",
            (false, true) => "32",
            (false, false) => "33",
        };
        let range = occurrence.span.start.min(command.len())..occurrence.span.end.min(command.len());
        for cell in &mut colours[range] {
            // What needs care shows through what does not.
            if cell.is_none_or(|before: &str| before > colour || before == "32") {
                *cell = Some(colour);
            }
        }
    }
    let mut out = String::from("  ");
    let mut run = String::new();
    let mut last: Option<&str> = None;
    let flush = |out: &mut String, run: &mut String, colour: Option<&str>| {
        let shown = DisplaySafe::new(run).to_string();
        out.push_str(&colour.map_or(shown.clone(), |c| paint.on(c, &shown)));
        run.clear();
    };
    for (at, c) in command.char_indices() {
        if colours[at] != last {
            flush(&mut out, &mut run, last);
            last = colours[at];
        }
        run.push(c);
    }
    flush(&mut out, &mut run, last);
    out
}
