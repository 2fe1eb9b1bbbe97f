//! What a confined task is given, as the order says it: its walls, its environment, its budget. The supervisor builds.

use crate::{
    env,
    facts::{self, GateSettings, Prepared},
};
use countersign_model::{
    Audience, EnvClass, Exposure, Limits, Request, Requester, Sandbox, SandboxSpec, Session, is_base_variable, places,
};
use std::collections::BTreeSet;

/// What is kept of what a read-only task says.
const OUTPUT_BYTES: u64 = 256 * 1024 * 1024;

/// Variables that say where a toolchain is.
const TOOLS: &[&str] =
    &["RUSTUP_HOME", "CARGO_HOME", "GOROOT", "JAVA_HOME", "NVM_DIR", "PYENV_ROOT", "VOLTA_HOME", "SDKMAN_DIR"];

/// The places of a task, as they are judged by.
pub(crate) fn sandbox_spec(
    prepared: &Prepared,
    gate: &GateSettings,
    requester: &Requester,
    session: Option<&Session>,
    sandbox: Sandbox,
) -> SandboxSpec {
    let named = prepared.facts.programs.values().chain(prepared.facts.program.iter().map(|p| &p.resolved));
    let programs: BTreeSet<String> = named.cloned().collect();
    SandboxSpec {
        roots: facts::roots(prepared, gate, requester, session),
        read_all: gate.read_all && requester.audience == Audience::Personal,
        homes: prepared.home.clone(),
        home: prepared.own_home.clone(),
        protected: gate.protected.iter().cloned().chain(gate.rules.denied_places()).collect(),
        programs: programs.into_iter().collect(),
        network: sandbox.network,
        unix_sockets: sandbox.unix_sockets,
        reads: sandbox.reads,
        writes: sandbox.writes,
        keys: sandbox.keys,
        kernel: gate.kernel,
    }
}

/// Confined reading gets the base of an environment, and what the asker named; what injects code only where a person has
/// seen it. What is left out is on record.
pub(crate) fn base_only(
    request: &Request,
    asked: bool,
    homes: &str,
    env: &mut Vec<(String, String)>,
    exposure: &mut Exposure,
) {
    let named = |name: &str| request.args.env.contains_key(name) && (asked || !env::injects(name));
    // Where the system or the home keeps a toolchain, when that says so.
    let tools =
        |(name, value): &(String, String)| TOOLS.contains(&name.as_str()) && places::is_program_place(value, homes);
    env.retain(|v| is_base_variable(&v.0) || v.0 == "PWD" || named(&v.0) || tools(v));
    let (kept, left) = std::mem::take(&mut exposure.names).into_iter().partition(|n| env.iter().any(|(k, _)| k == n));
    exposure.names = kept;
    exposure.withheld.extend::<Vec<String>>(left);
    exposure.class = if request.args.env.is_empty() { EnvClass::Base } else { EnvClass::Named };
}

pub(crate) fn budget(limits: &mut Limits) {
    let within = |limit: Option<u64>, most: u64| Some(limit.map_or(most, |l| l.min(most)));
    limits.wall_ms = within(limits.wall_ms, Limits::READ_ONLY_WALL_MS);
    limits.output_bytes = within(limits.output_bytes, OUTPUT_BYTES);
}
