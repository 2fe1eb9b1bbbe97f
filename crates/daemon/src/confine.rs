//! What a confined task is given, as its order says: sandbox, environment and budget. The supervisor enforces it.

use crate::{
    env,
    facts::{self, GateSettings, PreparedRequest},
};
use countersign_model::{
    Audience, EnvClass, Exposure, Limits, Request, Requester, Sandbox, SandboxSpec, Session, is_base_variable, places,
};
use std::collections::BTreeSet;

/// How many bytes of output a read-only task may write.
const MAX_READ_ONLY_OUTPUT_BYTES: u64 = 256 * 1024 * 1024;

/// Variables that point to toolchains.
const TOOLCHAIN_VARIABLES: &[&str] =
    &["RUSTUP_HOME", "CARGO_HOME", "GOROOT", "JAVA_HOME", "NVM_DIR", "PYENV_ROOT", "VOLTA_HOME", "SDKMAN_DIR"];

/// The sandbox of a task: the same directories that it was judged by.
pub(crate) fn sandbox_spec(
    prepared: &PreparedRequest,
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
        protected: gate.protected.iter().cloned().chain(gate.rules.denied_directories()).collect(),
        programs: programs.into_iter().collect(),
        network: sandbox.network,
        unix_sockets: sandbox.unix_sockets,
        reads: sandbox.reads,
        writes: sandbox.writes,
        keys: sandbox.keys,
        kernel: gate.kernel,
    }
}

/// Reduces the environment of a read-only task to the base and the variables that the request names. A variable that
/// injects code is kept only if a person approved it. The exposure records which variables are withheld.
pub(crate) fn reduce_environment(
    request: &Request,
    asked: bool,
    homes: &str,
    env: &mut Vec<(String, String)>,
    exposure: &mut Exposure,
) {
    let named = |name: &str| request.args.env.contains_key(name) && (asked || !env::injects_code(name));
    // A toolchain in a system directory or in a known place below the home.
    let tools = |(name, value): &(String, String)| {
        TOOLCHAIN_VARIABLES.contains(&name.as_str()) && places::is_program_place(value, homes)
    };
    env.retain(|v| is_base_variable(&v.0) || v.0 == "PWD" || named(&v.0) || tools(v));
    let (kept, left) = std::mem::take(&mut exposure.names).into_iter().partition(|n| env.iter().any(|(k, _)| k == n));
    exposure.names = kept;
    exposure.withheld.extend::<Vec<String>>(left);
    exposure.class = if request.args.env.is_empty() { EnvClass::Base } else { EnvClass::Named };
}

pub(crate) fn limit_read_only(limits: &mut Limits) {
    let within = |limit: Option<u64>, most: u64| Some(limit.map_or(most, |l| l.min(most)));
    limits.wall_ms = within(limits.wall_ms, Limits::READ_ONLY_WALL_MS);
    limits.output_bytes = within(limits.output_bytes, MAX_READ_ONLY_OUTPUT_BYTES);
}
