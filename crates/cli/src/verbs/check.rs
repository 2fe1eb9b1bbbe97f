//! `csn check`: tells what the gate would decide, computed in this process. It needs no daemon and runs nothing.

use crate::{
    UsageError,
    args::CheckArgs,
    exit,
    render::{fields::name_options, text::count},
};
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

/// The exit code for a command that would be denied (EX_NOPERM).
const DENIED: u8 = 77;

/// What the verdict depends on, other than the command.
struct CheckSettings {
    home: String,
    protected: Vec<String>,
    config: Config,
    rules: CheckedRules,
}

impl CheckSettings {
    fn load(without_config: bool) -> anyhow::Result<Self> {
        let config = if without_config { Config::default() } else { Config::load()? };
        let rules = load_rules(&config)?;
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

/// Checks the rules of config.toml.
pub(crate) fn load_rules(config: &Config) -> anyhow::Result<CheckedRules> {
    let [rules, denies] = config.rules();
    Ok(CheckedRules::new(rules, denies)
        .map_err(|fault| config.rule_fault(fault.index, fault.hard, fault.to_string()))?)
}

/// One line of a batch. Other members of the line are ignored.
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
    #[serde(default = "default_attended")]
    attended: bool,
}

fn default_attended() -> bool {
    true
}

/// An unknown audience counts as public, the strictest one.
fn parse_audience(name: Option<&str>) -> Audience {
    match name {
        None | Some("personal") => Audience::Personal,
        Some("team") => Audience::Team,
        Some(_) => Audience::Public,
    }
}

pub(crate) fn check(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let settings = CheckSettings::load(args.no_config)?;
    if args.batch {
        return check_batch(args, &settings);
    }
    let command = match (&args.text[..], &args.argv[..]) {
        ([], []) => return Err(UsageError("name a command: csn check 'git status'".to_owned()).into()),
        (text, []) => text.join(" "),
        (_, argv) => argv.join(" "),
    };
    let cwd = match &args.cwd {
        Some(cwd) => std::path::absolute(cwd).context("--cwd")?,
        None => {
            std::env::current_dir().context("the current directory no longer exists: name another with --cwd DIR")?
        }
    };
    let cwd = cwd.to_str().context("the name of the working directory is not UTF-8; use another directory")?.to_owned();
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
    if roots.is_empty()
        && countersign_policy::can_be_root(&here, &settings.home, &settings.protected, repository.is_some())
    {
        roots.push(here);
    }
    roots.extend(settings.config.roots.iter().cloned());
    let environment = |name: &str| std::env::var_os(name).is_some();
    let parse_context = ParseContext { cwd: &cwd, home: &settings.home, environment: &environment };
    let plan = match &args.argv[..] {
        [] => countersign_policy::read_text(&command, &parse_context),
        argv => countersign_policy::read_argv(argv, &parse_context),
    };
    let mut facts = Facts::none(&cwd);
    let limits = world::LookupLimits { below: None, path: std::env::var("PATH").ok() };
    world::look_up_facts(&countersign_policy::required_facts(&plan), &limits, &mut facts);
    let context = JudgeContext {
        profile: args.profile.map_or(settings.config.profile, Into::into),
        attended: !args.unattended,
        protected: settings.protected.clone(),
        read_all: settings.config.audience.personal.read == UnaskedReads::All,
        kernel: settings.config.confine.kernel(Kernel::FULL),
        granted_sandbox: settings.config.confine.granted,
        requested_confinement: args.confinement.map(Into::into),
        requested_network: args.network.map(Into::into),
        network_limit: settings.config.confine.network,
        ..JudgeContext::personal(&settings.home, roots)
    };
    let assessment = countersign_policy::judge(&plan, &facts, &context, &settings.rules, &grants);
    let mut out = std::io::stdout().lock();
    if args.json {
        writeln!(out, "{}", answer_json(&Value::Null, &plan, &assessment))?;
    } else {
        let colour = out.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        print_assessment(&mut out, &command, &plan, &assessment, &context, Palette(colour))?;
    }
    Ok(ExitCode::from(match assessment.verdict {
        Verdict::Allow { .. } => 0,
        Verdict::Ask { .. } => exit::PENDING,
        Verdict::Deny(_) => DENIED,
    }))
}

/// Checks many commands: reads one JSON object per line and prints one answer per line. An invalid line gets an answer
/// with an error.
fn check_batch(args: &CheckArgs, settings: &CheckSettings) -> anyhow::Result<ExitCode> {
    let input: Box<dyn std::io::BufRead> = match &args.text[..] {
        [] => Box::new(std::io::stdin().lock()),
        [file] => Box::new(std::io::BufReader::new(
            std::fs::File::open(file).with_context(|| format!("cannot read {}", DisplaySafe::new(file)))?,
        )),
        _ => return Err(UsageError("--batch reads one file, or standard input without one".to_owned()).into()),
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut invalid = 0;
    for (n, line) in input.split(b'\n').enumerate() {
        let line = line.context("the batch cannot be read")?;
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<CheckQuestion>(&line) {
            Ok(question) if question.cwd.starts_with('/') => writeln!(out, "{}", check_question(&question, settings))?,
            Ok(question) => {
                invalid += 1;
                let message = format!("line {}: `cwd` must be an absolute path", n + 1);
                writeln!(out, "{}", json!({"id": question.id, "error": message}))?;
            }
            Err(e) => {
                invalid += 1;
                writeln!(out, "{}", json!({"id": null, "error": format!("line {}: {e}", n + 1)}))?;
            }
        }
    }
    out.flush()?;
    Ok(ExitCode::from(if invalid == 0 { 0 } else { exit::USAGE }))
}

fn check_question(question: &CheckQuestion, settings: &CheckSettings) -> Value {
    let parse_context = ParseContext { cwd: &question.cwd, home: &settings.home, environment: &|_| false };
    let plan = countersign_policy::read_text(&question.command, &parse_context);
    let mut facts = Facts::none(&question.cwd);
    // Facts come only from below the named directories, so that the answers do not depend on this machine.
    let mut below = question.roots.clone();
    below.push(question.cwd.clone());
    let needs = countersign_policy::required_facts(&plan);
    world::look_up_facts(&needs, &world::LookupLimits { below: Some(below), path: None }, &mut facts);
    // A path that does not exist is judged by its text, unless a symbolic link leads to its place.
    facts
        .paths
        .retain(|path, f| f.kind != PathTargetKind::Absent || f.resolved != countersign_policy::clean_path(path));
    let context = JudgeContext {
        profile: question.profile.unwrap_or(settings.config.profile),
        audience: parse_audience(question.audience.as_deref()),
        attended: question.attended,
        protected: settings.protected.clone(),
        read_all: settings.config.audience.personal.read == UnaskedReads::All,
        ..JudgeContext::personal(&settings.home, question.roots.clone())
    };
    let narrow = |g: &Grant| Grant { sandbox: GrantSandbox::Narrow, ..g.clone() };
    let grants = Grants::from_grants(question.grants.iter().map(narrow).collect());
    let assessment = countersign_policy::judge(&plan, &facts, &context, &settings.rules, &grants);
    answer_json(&question.id, &plan, &assessment)
}

fn coverage_json(coverage: &Coverage) -> Value {
    match coverage {
        Coverage::SideEffect => json!("side_effect"),
        Coverage::Phrase(name) => json!(format!("phrase:{name}")),
        Coverage::Grant { label, .. } => json!(format!("grant:{label}")),
        Coverage::Rule(name) => json!(format!("rule:{name}")),
        Coverage::Elsewhere => json!("elsewhere"),
        Coverage::None { .. } => Value::Null,
    }
}

/// The occurrences that are not shadows of others.
fn primary_occurrences<'a>(
    plan: &'a Plan,
    assessment: &'a Assessment,
) -> impl Iterator<Item = (usize, &'a Occurrence, &'a Coverage, &'a [String])> {
    let rows = plan.occurrences.iter().zip(&assessment.coverage).zip(&assessment.directories).enumerate();
    rows.filter(|(_, ((o, _), _))| !o.shadow).map(|(n, ((o, c), d))| (n, o, c, d.as_slice()))
}

fn answer_json(id: &Value, plan: &Plan, assessment: &Assessment) -> Value {
    let occurrences: Vec<Value> = primary_occurrences(plan, assessment)
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
                "covered_by": coverage_json(coverage),
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

/// The reason for the verdict, in one line.
fn reason(plan: &Plan, assessment: &Assessment) -> String {
    match &assessment.verdict {
        Verdict::Allow { rule } => match *rule {
            "read_only" => "every command is a known read-only command inside the workspace roots".to_owned(),
            "grant" | "rule" => "every command is a known read-only command, or a grant or rule covers it".to_owned(),
            "profile.full_auto" => "the profile allows it, sandboxed (workspace)".to_owned(),
            other => other.to_owned(),
        },
        Verdict::Deny(refusal) => refusal.message.clone(),
        Verdict::Ask { uncovered } => {
            let first = uncovered.first().and_then(|n| Some((plan.occurrences.get(*n)?, assessment.coverage.get(*n)?)));
            match first {
                Some((occurrence, Coverage::None { why, .. })) => format!("{}: {why}", occurrence.verb),
                _ => "no grant or rule covers it".to_owned(),
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Palette(bool);

impl Palette {
    fn paint(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn colour_code(word: &str) -> &'static str {
        match word {
            "allow" => "32",
            "ask" => "33",
            _ => "31",
        }
    }

    fn verdict(self, word: &str) -> String {
        self.paint(Self::colour_code(word), word)
    }
}

fn print_assessment(
    out: &mut impl std::io::Write,
    command: &str,
    plan: &Plan,
    assessment: &Assessment,
    context: &JudgeContext<'_>,
    palette: Palette,
) -> std::io::Result<()> {
    writeln!(out, "{}", colour_command(command, plan, assessment, palette))?;
    if let Some(c) = countersign_policy::find_invisible_char(command) {
        writeln!(
            out,
            "  it contains the invisible character U+{:04X}: {}",
            c as u32,
            DisplaySafe::bounded(command, 300)
        )?;
    }
    writeln!(out)?;
    for (n, occurrence, coverage, directories) in primary_occurrences(plan, assessment) {
        let denied = assessment.culprit == Some(n);
        let word = match (denied, coverage.is_covered()) {
            (true, _) => "deny",
            (false, true) => "allow",
            (false, false) => "ask",
        };
        let place = match (directories, &occurrence.directory) {
            ([], Directory::Unknown) => " (directory unknown)".to_owned(),
            ([], Directory::Known(_)) => String::new(),
            ([one], _) => format!(" in {}", DisplaySafe::bounded(one, 200)),
            (many, _) => format!(" in {} directories", many.len()),
        };
        let covering = match coverage {
            Coverage::SideEffect => "reads and writes no file".to_owned(),
            Coverage::Phrase(name) => format!("known read-only command `{name}`"),
            Coverage::Grant { label, .. } => format!("grant: {}", DisplaySafe::bounded(label, 200)),
            Coverage::Rule(name) => format!("rule `{}`", DisplaySafe::bounded(name, 100)),
            Coverage::Elsewhere | Coverage::None { .. } => String::new(),
        };
        let line = palette.paint(
            Palette::colour_code(word),
            &format!("{word:<5} `{}`{place}", DisplaySafe::bounded(&occurrence.verb, 100)),
        );
        writeln!(out, "{}", format!("  {line}  {covering}").trim_end())?;
        for note in assessment.risks.iter().filter(|r| r.occurrence == n) {
            writeln!(out, "          {}: {}", note.risk.as_str(), note.reason)?;
        }
        if let (Coverage::None { why, help }, false) = (coverage, denied) {
            writeln!(out, "          why: {}", DisplaySafe::bounded(why, 300))?;
            writeln!(out, "          what would help: {}", DisplaySafe::bounded(&name_options(help), 300))?;
        }
    }
    writeln!(out)?;
    let word = assessment.verdict.kind().as_str();
    match &assessment.verdict {
        Verdict::Allow { .. } => writeln!(out, "{}: {}", palette.verdict(word), reason(plan, assessment))?,
        Verdict::Ask { uncovered } => {
            let saved = if assessment.one_shot { "once only: nothing can be saved" } else { "the answer can be saved" };
            let commands = count(uncovered.len() as u64, "command");
            writeln!(out, "{}: a person decides about {commands} ({saved})", palette.verdict(word))?;
        }
        Verdict::Deny(refusal) => {
            writeln!(out, "{}: {} ({})", palette.verdict(word), refusal.message, refusal.code.as_str())?;
            if let Some(hint) = &refusal.hint {
                writeln!(out, "  {}", name_options(hint))?;
            }
        }
    }
    if matches!(assessment.verdict, Verdict::Deny(_)) {
        return Ok(());
    }
    let sandbox = assessment.sandbox.summary(countersign_redact::text_by_shape);
    writeln!(out, "sandbox: {}", DisplaySafe::bounded(&sandbox.sentence(assessment.sandbox.confinement), 600))?;
    if assessment.sandbox.confinement >= Confinement::Workspace && !context.roots.is_empty() {
        writeln!(out, "  workspace roots: {}", DisplaySafe::bounded(&context.roots.join(", "), 300))?;
    }
    Ok(())
}

/// The command with each of its occurrences in the colour of its verdict; unchanged without colours.
fn colour_command(command: &str, plan: &Plan, assessment: &Assessment, palette: Palette) -> String {
    if !palette.0 {
        return format!("  {}", DisplaySafe::new(command));
    }
    let mut colours = vec![None; command.len()];
    for (n, occurrence, coverage, _) in primary_occurrences(plan, assessment) {
        let colour = match (assessment.culprit == Some(n), coverage.is_covered()) {
            (true, _) => "31",
            (false, true) => "32",
            (false, false) => "33",
        };
        let range = occurrence.span.start.min(command.len())..occurrence.span.end.min(command.len());
        for cell in &mut colours[range] {
            // Where occurrences overlap, ask and deny win over allow.
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
        out.push_str(&colour.map_or(shown.clone(), |c| palette.paint(c, &shown)));
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
