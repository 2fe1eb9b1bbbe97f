//! The gate. `read_request` turns a request into a `Plan`; `judge` turns the plan, the facts and the grants into an
//! `Assessment`. Every function is pure and total: the caller supplies the facts, and nothing here reads files,
//! processes or the environment.
//!
//! `shell` splits text into commands, `interpret` classifies each command by the tables, `judge` decides.

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

/// One digest of all tables that this program judges by.
#[must_use]
pub fn tables_digest() -> countersign_model::Digest {
    let texts: Vec<&[u8]> =
        tables::table_texts().chain([countersign_model::secret_names::TABLE]).map(str::as_bytes).collect();
    countersign_model::Digest::sha256(&texts)
}

/// Context that the meaning of a text depends on.
pub struct ParseContext<'a> {
    pub cwd: &'a str,
    pub home: &'a str,
    /// Whether a variable of this name is in the environment of the task.
    pub environment: &'a dyn Fn(&str) -> bool,
}

/// Reads a request into a plan. Reading never fails: text that cannot be analysed becomes an opaque occurrence.
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

/// Reads a file tool as the program that does the same to the file (`cat`, `tee`), under the tool's own name.
fn read_file_tool(tool: Tool, path: &str, context: &ParseContext<'_>) -> Plan {
    let like = if tool == Tool::ReadFile { "cat" } else { "tee" };
    let mut plan = read_argv(&[like, "--", path].map(str::to_owned), context);
    for occurrence in &mut plan.occurrences {
        occurrence.verb = tool.as_str().to_owned();
    }
    plan
}

/// Adds the variables of the request to every command, as if they were written before it.
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
    // In some character sets a backslash may be the second byte of a character. The request may name such a set, or
    // the task may inherit it.
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

/// Reads shell text into a plan.
#[must_use]
pub fn read_text(text: &str, context: &ParseContext<'_>) -> Plan {
    let mut builder = shell::PlanBuilder::new(context.home, context.environment);
    builder.read_text(text, context.cwd);
    finish_plan(builder, context)
}

/// Reads an argv, which no shell expands, into a plan.
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
    // `ssh` causes the effects of the commands that it runs on the other machine.
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

/// Lists every path, glob, program and script whose facts `judge` needs.
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

/// The resolved directories that one command of a plan works in.
#[must_use]
pub fn occurrence_directories(
    occurrence: &countersign_model::Occurrence,
    facts: &countersign_model::Facts,
) -> Vec<String> {
    grant::working_directories(occurrence, facts)
}

/// The resolved directories that the commands of a plan work in.
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

/// Resolves `.`, `..` and doubled slashes without reading the file system.
#[must_use]
pub fn clean_path(path: &str) -> String {
    paths::clean(path)
}

/// Whether a directory is inside one of the roots of a session.
#[must_use]
pub fn in_roots(directory: &str, roots: &[String]) -> bool {
    let directory = paths::clean(directory);
    roots.iter().any(|root| paths::inside(&directory, &paths::clean(root)))
}

/// Whether a directory may be a root, which sessions read without approval. `repository`: the directory holds `.git`,
/// or the configuration names it.
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
