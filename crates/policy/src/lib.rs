//! `read(request) → plan`, then `judge(plan, facts, context, rules, grants) → assessment`. Pure and total: the caller
//! supplies the facts, nothing here looks at the world.
//!
//! `shell` takes text apart, `interpret` says what each command is (by the tables), `judge` says what may happen.

mod deny;
mod examples;
mod grant;
mod interpret;
mod judge;
mod label;
mod offer;
mod paths;
mod phrase;
mod programs;
mod rules;
mod sandbox;
mod scopes;
mod shell;
mod tables;
mod verdict;

pub use examples::failing_examples;
pub use judge::{JudgeContext, judge};
pub use label::{Label, LabelError};
pub use offer::{
    CoverageExamples, GrantProposal, can_be_granted, card_directories, coverage_examples, grant_proposals,
    offered_choices, parse_verb, unsavable_reason,
};
pub use rules::{CheckedRules, RuleFault};
pub use shell::find_invisible_char;
pub use tables::describe_verb;

use countersign_model::{Assignment, FactQuery, Opaque, Plan, Request, Risk, Tool, Word, WordValue};

/// The tables that this program judges by, as one digest.
#[must_use]
pub fn tables_digest() -> countersign_model::Digest {
    let texts: Vec<&[u8]> =
        tables::table_texts().chain([countersign_model::secret_names::TABLE]).map(str::as_bytes).collect();
    countersign_model::Digest::sha256(&texts)
}

/// What a text means depends on this.
pub struct ParseContext<'a> {
    pub cwd: &'a str,
    pub home: &'a str,
    /// Whether a variable of this name is in the environment of the task.
    pub environment: &'a dyn Fn(&str) -> bool,
}

/// The plan of a request. Reading never fails; what cannot be read is opaque.
#[must_use]
pub fn read_request(request: &Request, context: &ParseContext<'_>) -> Plan {
    if let Some(path) = request.args.path.as_deref().filter(|_| request.tool.is_builtin()) {
        return read_file_tool(request.tool, path, context);
    }
    let mut plan = match (&request.args.argv, &request.args.command) {
        (Some(argv), _) => read_argv(argv, context),
        (None, text) => read_text(text.as_deref().unwrap_or_default(), context),
    };
    add_request_variables(&mut plan, request);
    plan
}

/// The plan of a file tool: what it does to its file is what a well-known program would, and it is judged as that, under
/// its own name.
fn read_file_tool(tool: Tool, path: &str, context: &ParseContext<'_>) -> Plan {
    let like = if tool == Tool::ReadFile { "cat" } else { "tee" };
    let mut plan = read_argv(&[like, "--", path].map(str::to_owned), context);
    for occurrence in &mut plan.occurrences {
        occurrence.verb = tool.as_str().to_owned();
    }
    plan
}

/// Variables that the asker names are assignments that every command sees, as if they stood before it.
fn add_request_variables(plan: &mut Plan, request: &Request) {
    let named: Vec<Assignment> = request
        .args
        .env
        .iter()
        .filter(|(name, _)| !shell::is_inert_variable(name))
        .map(|(name, value)| Assignment { name: name.clone(), value: WordValue::One(value.clone()) })
        .collect();
    let shell = request.args.argv.is_none();
    let one = |value: &String| WordValue::One(value.clone());
    // A character set in which a backslash may be half of a character: named by the asker, or its own.
    let of_halves = request.args.env.iter().any(|(name, value)| !shell::keeps_characters(name, &one(value)))
        || request.args.inherit.iter().any(|(name, value)| shell::splits_characters(name, value));
    let mutates = shell && (of_halves || named.iter().any(|a| shell::mutates_bash(&a.name)));
    for occurrence in &mut plan.occurrences {
        for assignment in &named {
            if !occurrence.assignments.iter().any(|a| a.name == assignment.name) {
                occurrence.assignments.push(assignment.clone());
            }
        }
        if mutates && occurrence.opaque.is_none() {
            let reason = Opaque::ShellMutation;
            occurrence.opaque = Some(reason);
            occurrence.risks.push((Risk::Opaque, reason.reason()));
        }
    }
}

/// The plan of shell text.
#[must_use]
pub fn read_text(text: &str, context: &ParseContext<'_>) -> Plan {
    let mut builder = shell::PlanBuilder::new(context.home, context.environment);
    builder.read_text(text, context.cwd);
    finish_plan(builder, context)
}

/// The plan of an argv, which no shell sees.
#[must_use]
pub fn read_argv(argv: &[String], context: &ParseContext<'_>) -> Plan {
    let mut builder = shell::PlanBuilder::new(context.home, context.environment);
    builder.read_argv(argv, context.cwd);
    finish_plan(builder, context)
}

fn finish_plan(builder: shell::PlanBuilder<'_>, context: &ParseContext<'_>) -> Plan {
    let mut plan = Plan { occurrences: builder.occurrences, multiplies: builder.multiplies };
    for occurrence in &mut plan.occurrences {
        if occurrence.opaque != Some(Opaque::TooLarge) {
            interpret::interpret(occurrence, context.home);
        }
    }
    // What another machine is told to do is done by whoever tells it.
    let remote_risks: Vec<_> =
        plan.occurrences.iter().filter(|o| o.remote).map(|o| (o.span.clone(), o.risks.clone())).collect();
    for (span, risks) in remote_risks {
        let ssh = plan.occurrences.iter_mut().find(|o| !o.shadow && o.program == "ssh" && o.span == span);
        if let Some(ssh) = ssh {
            let new = risks.into_iter().filter(|(r, _)| !matches!(r, Risk::Opaque | Risk::Write));
            for (risk, reason) in new {
                if !ssh.risks.iter().any(|(r, _)| *r == risk) {
                    ssh.risks.push((risk, reason));
                }
            }
        }
    }
    plan
}

/// Names every path, glob, program and script that judging a plan asks about.
#[must_use]
pub fn required_facts(plan: &Plan) -> FactQuery {
    let mut query = FactQuery::default();
    let add = |list: &mut Vec<String>, text: &str| {
        if !list.iter().any(|l| l == text) {
            list.push(text.to_owned());
        }
    };
    for occurrence in plan.occurrences.iter().filter(|o| !o.remote) {
        for scope in &occurrence.scopes {
            if scope.pattern {
                add(&mut query.patterns, &scope.walked);
                add(&mut query.paths, &scope.path);
            } else {
                add(&mut query.paths, &scope.walked);
            }
        }
        if let Some(name) = occurrence.words.first().and_then(Word::text) {
            if !name.contains('/') && !name.is_empty() {
                add(&mut query.programs, name);
            }
            if occurrence.program == "kill" {
                let words = occurrence.words.iter().skip(1).filter_map(Word::text);
                query.processes.extend(words.filter_map(|w| w.trim_start_matches('-').parse::<u32>().ok()));
            }
            if let Some(script) = offer::script_path(occurrence) {
                add(&mut query.scripts, script);
            }
        }
    }
    query
}

/// The directories that one command of a plan works in, resolved.
#[must_use]
pub fn occurrence_directories(
    occurrence: &countersign_model::Occurrence,
    facts: &countersign_model::Facts,
) -> Vec<String> {
    grant::working_directories(occurrence, facts)
}

/// Every directory that a plan works in, resolved.
#[must_use]
pub fn plan_directories(plan: &Plan, facts: &countersign_model::Facts) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for directory in plan.occurrences.iter().filter(|o| !o.shadow).flat_map(|o| grant::working_directories(o, facts)) {
        if !all.contains(&directory) {
            all.push(directory);
        }
    }
    all
}

/// `.` and `..` and doubled slashes resolved, without looking.
#[must_use]
pub fn clean_path(path: &str) -> String {
    paths::clean(path)
}

/// Whether a directory lies in one of the roots of a session.
#[must_use]
pub fn in_roots(directory: &str, roots: &[String]) -> bool {
    let directory = paths::clean(directory);
    roots.iter().any(|root| paths::inside(&directory, &paths::clean(root)))
}

/// Whether a directory may be a root: read unasked by whoever works there. `repository`: it holds `.git`, or the
/// configuration names it.
#[must_use]
pub fn can_be_root(directory: &str, home: &str, protected: &[String], repository: bool) -> bool {
    let components = directory.split('/').filter(|c| !c.is_empty()).count();
    components > 0
        && (components > 1 || repository)
        && !paths::is_protected(directory, home, protected)
        && !paths::holds_protected(directory, home, protected)
        && !countersign_model::places::is_credential_place(&format!("{directory}/x"), home)
        && !countersign_model::places::covers_credentials(directory, home)
}
