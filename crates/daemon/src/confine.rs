//! What a confined task is given, as the order says it: its walls, its environment, its budget. The supervisor builds.

use crate::{
    desk::Standing,
    env,
    facts::{self, Gate, Looked},
};
use countersign_model::{Audience, EnvClass, Exposure, Limits, Request, Session, Walls, is_base_variable};
use std::collections::BTreeSet;

/// What a read-only task gets of time, and what is kept of what it says.
const WALL_MS: u64 = 120_000;
const OUTPUT_BYTES: u64 = 256 * 1024 * 1024;

/// The places of a task, as they are judged by.
pub(crate) fn walls(looked: &Looked, gate: &Gate, standing: &Standing, session: Option<&Session>) -> Walls {
    let named = looked.facts.programs.values().chain(looked.facts.program.iter().map(|p| &p.resolved));
    let programs: BTreeSet<String> = named.cloned().collect();
    Walls {
        roots: facts::roots(looked, gate, standing, session),
        read_all: gate.read_all && standing.audience == Audience::Personal,
        home: looked.home.clone(),
        protected: gate.protected.clone(),
        programs: programs.into_iter().collect(),
        network: gate.network,
        kernel: gate.kernel,
    }
}

/// Confined reading gets the base of an environment, and what the asker named: it was judged with that.
pub(crate) fn base_only(request: &Request, env: &mut Vec<(String, String)>, exposure: &mut Exposure) {
    let named = |name: &str| request.args.env.contains_key(name) && !env::injects(name);
    let kept = |name: &str| is_base_variable(name) || name == "PWD" || named(name);
    env.retain(|(name, _)| kept(name));
    exposure.names.retain(|name| kept(name));
    exposure.class = if request.args.env.is_empty() { EnvClass::Base } else { EnvClass::Named };
}

pub(crate) fn budget(limits: &mut Limits) {
    let within = |limit: Option<u64>, most: u64| Some(limit.map_or(most, |l| l.min(most)));
    limits.wall_ms = within(limits.wall_ms, WALL_MS);
    limits.output_bytes = within(limits.output_bytes, OUTPUT_BYTES);
}
