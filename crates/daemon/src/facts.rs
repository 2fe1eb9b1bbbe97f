//! Prepares a request: looks up its paths and programs, and resolves the request with them.

use crate::{
    desk::FactsAtLaunch,
    env,
    users::{RunAs, Users},
};
use countersign_model::{
    Audience, Builtin, Confinement, CredentialKind, Digest, DisplaySafe, Exec, Exposure, Facts, FileWork,
    GrantedSandbox, HomeKey, Kernel, Limits, Mode, Network, PathFact, Plan, Refusal, RefusalCode, Request, Requester,
    Session, TaskId, TaskUser, Text, Tool,
};
use countersign_policy::CheckedRules;
use countersign_store::{Config, Home, waiting, world};
use std::{fs, io, path::Path};

/// Shell text must fit into one argument of the kernel.
const MAX_COMMAND_BYTES: usize = 128 * 1024 - 1;
/// The most that a file tool writes in one call; it must fit into a request.
const MAX_CONTENT_BYTES: usize = 3 * 1024 * 1024;
/// The terminal size for requests that name none.
pub(crate) const DEFAULT_ROWS: u16 = 24;
pub(crate) const DEFAULT_COLS: u16 = 80;
const MAX_TERMINAL_SIZE: u16 = 1000;
/// For how many directories the repository is looked up.
const MAX_REPOSITORY_LOOKUPS: usize = 32;
const BASH_PATHS: &[&str] = &["/bin/bash", "/usr/bin/bash"];

/// A request with its facts looked up, before the decision.
#[derive(Debug, Clone)]
pub(crate) struct PreparedRequest {
    pub(crate) facts: Facts,
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) exposure: Exposure,
    pub(crate) plan_digest: Digest,
    pub(crate) plan: Plan,
    /// The homes of the requester and of the user that it runs as, separated by colons.
    pub(crate) home: String,
    /// The home of the user that it runs as, whatever the request claims.
    pub(crate) own_home: String,
    /// The user that it runs as, in a system service.
    pub(crate) user: Option<TaskUser>,
}

/// The settings that the gate judges by.
#[derive(Debug)]
pub(crate) struct GateSettings {
    pub(crate) rules: CheckedRules,
    /// The daemon's own directories.
    pub(crate) protected: Vec<String>,
    pub(crate) read_all: bool,
    /// Directories that the configuration makes roots.
    pub(crate) roots: Vec<String>,
    /// Why the configuration cannot be read: only provably read-only commands may run.
    pub(crate) degraded: Option<String>,
    pub(crate) key: HomeKey,
    /// What the kernel can enforce, the sandbox for granted requests, and the hosts that workspaces may reach.
    pub(crate) kernel: Kernel,
    pub(crate) granted: GrantedSandbox,
    pub(crate) network: Network,
    /// The user's redaction rules for output.
    pub(crate) redaction: Vec<countersign_model::RedactionRule>,
}

/// The program of a request is not on this machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}: program not found")]
pub(crate) struct NoSuchProgram(String);

impl PreparedRequest {
    /// What a file tool does, on the path that was judged.
    pub(crate) fn builtin(&self, request: &Request) -> Option<Builtin> {
        let args = &request.args;
        let named = args.path.clone().filter(|_| request.tool.is_builtin())?;
        let scope = self.plan.occurrences.first()?.scopes.iter().find(|s| !s.pattern)?;
        let resolved = self.facts.paths.get(&scope.walked).map(|found| found.resolved.clone())?;
        let what = match request.tool {
            Tool::ReadFile => FileWork::Read { first_line: args.first_line, line_count: args.line_count },
            Tool::WriteFile => FileWork::Write { content: args.content.clone()? },
            _ => FileWork::Edit { old: args.old.clone()?, new: args.new.clone()?, all: args.all },
        };
        Some(Builtin { named, resolved, work: what })
    }

    pub(crate) fn exec(&self, key: &HomeKey) -> Result<Exec, NoSuchProgram> {
        let program = self.facts.program.clone().ok_or_else(|| {
            let name = self.argv.first().map(String::as_str).unwrap_or_default();
            NoSuchProgram(DisplaySafe::bounded(name, 200).to_string())
        })?;
        let words: Vec<&[u8]> = self.argv.iter().map(|w| w.as_bytes()).collect();
        let argv_digest = key.digest("argv", &words);
        Ok(Exec { program, argv: self.argv.clone(), argv_digest })
    }
}

/// Checks a request on its own, without looking anything up.
pub(crate) fn check_request(request: &Request) -> Result<(), Refusal> {
    let args = &request.args;
    let bad = |message: &str| Err(Refusal::new(RefusalCode::BadRequest, message));
    if request.tool.is_builtin() {
        check_file_tool(request)?;
    } else if [&args.path, &args.content, &args.old, &args.new].iter().any(|a| a.is_some()) {
        return bad(
            "`path`, `content`, `old` and `new` are only for the file tools read_file, write_file and edit_file",
        );
    }
    match (&args.command, &args.argv) {
        _ if request.tool.is_builtin() => {}
        (None, None) if request.tool == Tool::SetWorkingDirectory => {}
        _ if request.tool == Tool::SetWorkingDirectory => return bad("`args` may only contain `cwd`"),
        (None, None) => return bad("`args` needs `command` (shell text) or `argv` (a list of strings)"),
        (Some(_), Some(_)) => return bad("`args` may contain `command` or `argv`, not both"),
        (Some(text), None) if text.len() > MAX_COMMAND_BYTES => {
            return Err(Refusal::new(
                RefusalCode::TooLarge,
                format!("the command has {} bytes; the maximum is {MAX_COMMAND_BYTES}", text.len()),
            )
            .hint("write it to a script and run the script"));
        }
        (Some(text), None) if text.trim().is_empty() => return bad("`args.command` is empty"),
        (Some(text), None) if text.contains('\0') => return bad("`args.command` contains a NUL byte"),
        (None, Some(argv)) if argv.iter().any(|w| w.contains('\0')) => return bad("`args.argv` contains a NUL byte"),
        (None, Some(argv)) if argv.first().is_none_or(String::is_empty) => {
            return bad("`args.argv` must begin with the name of a program");
        }
        _ => {}
    }
    match &args.cwd {
        None => return bad("`args.cwd` is missing: name the working directory, because the session has none"),
        Some(cwd) if cwd.contains('\0') || !Path::new(cwd).is_absolute() => {
            return bad("`args.cwd` must be an absolute path");
        }
        _ => {}
    }
    match (request.mode, args.stdin, args.rows, args.cols) {
        (Mode::Pipes, _, None, None) => {}
        (Mode::Pipes, ..) => return bad("`args.rows` and `args.cols` need `execution_mode` to be `pty`"),
        (Mode::Pty, true, ..) => {
            return bad("`args.stdin` is only for `execution_mode` `pipes`; a terminal always accepts input");
        }
        (Mode::Pty, false, rows, cols) => {
            check_terminal_size(rows.unwrap_or(DEFAULT_ROWS), cols.unwrap_or(DEFAULT_COLS))?;
        }
    }
    if request.confinement == Some(Confinement::None) {
        return bad("`confinement` must be shield, workspace or read_only; only privileged commands run without one");
    }
    if let Some(workspace) = &request.workspace
        && (workspace.contains('\0') || !Path::new(workspace).is_absolute())
    {
        return bad("`workspace` must be an absolute path");
    }
    let l = &request.limits;
    for (name, value) in
        [("wall_ms", l.wall_ms), ("idle_ms", l.idle_ms), ("grace_ms", l.grace_ms), ("drain_ms", l.drain_ms)]
    {
        if value.is_some_and(|v| v > Limits::MAX_MS) {
            return bad(&format!("`limits.{name}` must not be longer than a year"));
        }
    }
    if l.frames.is_some_and(|f| f < Limits::FEWEST_FRAMES) {
        return bad(&format!("`limits.frames` must be at least {}", Limits::FEWEST_FRAMES));
    }
    Ok(())
}

/// Checks the arguments of a file tool.
fn check_file_tool(request: &Request) -> Result<(), Refusal> {
    let (args, tool) = (&request.args, request.tool.as_str());
    let bad = |message: String| Err(Refusal::new(RefusalCode::BadRequest, message));
    if args.command.is_some() || args.argv.is_some() || args.stdin || request.mode == Mode::Pty {
        return bad(format!("`{tool}` runs no command: it needs `path`, and cannot have a terminal or input"));
    }
    match &args.path {
        None => return bad(format!("`args.path` is missing: name the file for `{tool}`")),
        Some(path) if path.is_empty() || path.contains('\0') => {
            return bad("`args.path` is not a valid path".to_owned());
        }
        Some(path) if path.ends_with('/') => return bad("`args.path` names a directory; name a file".to_owned()),
        _ => {}
    }
    let present = (args.content.is_some(), args.old.is_some(), args.new.is_some());
    match (request.tool, present) {
        (Tool::ReadFile, (false, false, false)) | (Tool::WriteFile, (true, false, false)) => {}
        (Tool::EditFile, (false, true, true)) if args.old.as_deref() == Some("") => {
            return bad("`args.old` is empty: give the text to replace, or use write_file".to_owned());
        }
        (Tool::EditFile, (false, true, true)) => {}
        (Tool::ReadFile, _) => {
            return bad("the arguments of `read_file` are `path`, `first_line` and `line_count`".to_owned());
        }
        (Tool::WriteFile, _) => return bad("the arguments of `write_file` are `path` and `content`".to_owned()),
        _ => return bad("the arguments of `edit_file` are `path`, `old`, `new` and `all`".to_owned()),
    }
    if args.first_line == Some(0) {
        return bad("`args.first_line` must be at least 1".to_owned());
    }
    let longest = [&args.content, &args.old, &args.new].into_iter().flatten().map(String::len).max().unwrap_or(0);
    if longest > MAX_CONTENT_BYTES {
        let message = format!("{longest} bytes are too much for `{tool}`; the maximum is {MAX_CONTENT_BYTES}");
        return Err(Refusal::new(RefusalCode::TooLarge, message).hint("write it in parts, or with a command"));
    }
    Ok(())
}

/// Checks the size of a terminal.
pub(crate) fn check_terminal_size(rows: u16, cols: u16) -> Result<(), Refusal> {
    let sizes = 1..=MAX_TERMINAL_SIZE;
    if sizes.contains(&rows) && sizes.contains(&cols) {
        return Ok(());
    }
    let message = format!("`rows` and `cols` must be from 1 to {MAX_TERMINAL_SIZE}");
    Err(Refusal::new(RefusalCode::BadRequest, message))
}

/// Fills in the limits that a request does not name, and refuses those above the operator's.
pub(crate) fn apply_limits(request: &mut Request, config: &Config, credential: CredentialKind) -> Result<(), Refusal> {
    let (l, most) = (&mut request.limits, &config.limits);
    // An agent must not wait forever for a command; a person sees that it hangs.
    if credential == CredentialKind::Agent && !request.background {
        l.wall_ms.get_or_insert(most.wall_ms.map_or(most.agent_wall_ms, |wall| wall.min(most.agent_wall_ms)));
    }
    l.grace_ms.get_or_insert(most.grace_ms);
    l.drain_ms.get_or_insert(most.drain_ms);
    if l.wall_ms.is_none() {
        l.wall_ms = most.wall_ms;
    }
    l.output_bytes.get_or_insert(most.output_bytes);
    l.frames.get_or_insert(most.frames);
    for (name, value, most) in [
        ("wall_ms", l.wall_ms, most.wall_ms),
        ("output_bytes", l.output_bytes, Some(most.output_bytes)),
        ("frames", l.frames, Some(most.frames)),
    ] {
        if let (Some(value), Some(most)) = (value, most)
            && value > most
        {
            let message = format!("`limits.{name}` is {value}; the maximum of this daemon is {most}");
            let hint = format!("the operator sets it in config.toml: [limits] {name} = …");
            return Err(Refusal::new(RefusalCode::BadRequest, message).hint(hint));
        }
    }
    Ok(())
}

/// The directories that may be read without approval: the session's roots or, for an implicit session, the repository
/// or directory where the request runs; and those of the configuration.
pub(crate) fn roots(
    prepared: &PreparedRequest,
    gate: &GateSettings,
    requester: &Requester,
    session: Option<&Session>,
) -> Vec<String> {
    let text = |t: &Text| t.as_str().to_owned();
    let folder = session.and_then(|s| s.folder.as_ref()).map(text);
    if requester.audience == Audience::Public {
        return folder.into_iter().collect();
    }
    let own: Vec<String> = match session {
        Some(session) if session.implicit.is_none() => session.roots.iter().map(text).collect(),
        _ => root_for_directory(&prepared.facts, &prepared.home, &prepared.own_home, gate).into_iter().collect(),
    };
    own.into_iter().chain(folder).chain(gate.roots.iter().cloned()).collect()
}

/// The root that a working directory leads to, if it may be one.
pub(crate) fn root_for_directory(facts: &Facts, home: &str, own_home: &str, gate: &GateSettings) -> Option<String> {
    let cwd = &facts.cwd.resolved;
    let repository = facts.repositories.get(cwd);
    let here = repository.unwrap_or(cwd);
    let named = repository.is_some() || gate.roots.contains(here);
    let can = |home| countersign_policy::can_be_root(here, home, &gate.protected, named);
    (can(home) && can(own_home)).then(|| here.clone())
}

/// Prepares a waiting request again, with the facts of now. A request that is gone has been answered; the desk says so.
pub(crate) fn prepare_again(
    home: &Home,
    key: &HomeKey,
    users: &Users,
    task: TaskId,
) -> Result<(FactsAtLaunch, Option<(PreparedRequest, Request)>), Refusal> {
    let stored = match waiting::read(home, task) {
        Ok(stored) => stored,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((FactsAtLaunch::Same, None)),
        Err(e) => return Err(Refusal::new(RefusalCode::Internal, format!("the stored request cannot be read: {e}"))),
    };
    let now = users.run_as(stored.uid).and_then(|run_as| prepare(&stored.request, key, &run_as)).ok();
    let world = FactsAtLaunch::compare(&stored.facts, now.as_ref().map(|l| &l.facts));
    Ok((world, now.map(|l| (l, stored.request))))
}

/// Looks up all facts of a request. A missing program is a fact; a missing directory is an error.
pub(crate) fn prepare(request: &Request, key: &HomeKey, run_as: &RunAs) -> Result<PreparedRequest, Refusal> {
    check_request(request)?;
    run_as.with_fs_ids(|| look_up(request, key, run_as))?
}

fn look_up(request: &Request, key: &HomeKey, run_as: &RunAs) -> Result<PreparedRequest, Refusal> {
    let base = &run_as.base;
    let cwd = request.args.cwd.as_deref().unwrap_or("/");
    let fact = world::path_fact(cwd).filter(|_| Path::new(cwd).is_dir());
    let cwd_fact = fact.ok_or_else(|| {
        Refusal::new(
            RefusalCode::BadRequest,
            format!("the directory {} does not exist", DisplaySafe::bounded(cwd, 300)),
        )
        .hint("use another `cwd`, or create the directory first")
    })?;
    let (mut env, mut exposure) = env::build_environment(request, base)?;
    env.insert("PWD".to_owned(), cwd.to_owned());
    if request.mode == Mode::Pty {
        env.entry("TERM".to_owned()).or_insert_with(|| "xterm-256color".to_owned());
    }
    exposure.names = env.keys().cloned().collect();
    let home = env.get("HOME").or_else(|| base.get("HOME")).cloned().unwrap_or_else(|| "/".to_owned());
    let surroundings = countersign_policy::ParseContext {
        cwd: &cwd_fact.path,
        home: &home,
        environment: &|name| env.contains_key(name),
    };
    let plan = countersign_policy::read_request(request, &surroundings);
    let path = env.get("PATH").cloned();
    let (program, argv) = match (&request.args.argv, &request.args.command) {
        (Some(argv), _) => (find_program(&argv[0], cwd, path.as_deref().unwrap_or_default()), argv.clone()),
        (None, None) if request.tool.is_builtin() => {
            // There is no program: the file tool works where the file is.
            (
                Some(cwd_fact.clone()),
                vec![request.tool.as_str().to_owned(), request.args.path.clone().unwrap_or_default()],
            )
        }
        (None, None) => (None, Vec::new()),
        (None, text) => {
            let bash = BASH_PATHS.iter().find_map(|p| world::path_fact(p));
            (bash, vec!["bash".to_owned(), "-c".to_owned(), text.clone().unwrap_or_default()])
        }
    };
    let mut facts = Facts { cwd: cwd_fact, program, ..Facts::none(cwd) };
    let sight = world::LookupLimits { below: None, path };
    world::look_up_facts(&countersign_policy::required_facts(&plan), &sight, &mut facts);
    let mut directories = countersign_policy::plan_directories(&plan, &facts);
    directories.truncate(MAX_REPOSITORY_LOOKUPS);
    directories.push(facts.cwd.resolved.clone());
    for directory in directories {
        if let Some(top) = world::find_repository(&directory) {
            facts.repositories.insert(directory, top);
        }
    }
    Ok(PreparedRequest {
        facts,
        argv,
        env: env.into_iter().collect(),
        exposure,
        plan_digest: Plan::digest(key, request, cwd),
        plan,
        home: join_homes([Some(&home), base.get("HOME")]),
        own_home: base.get("HOME").cloned().unwrap_or_default(),
        user: run_as.user.clone(),
    })
}

/// Homes as written, and their real paths where those differ; see `countersign_model::places`.
fn join_homes(named: [Option<&String>; 2]) -> String {
    let mut homes: Vec<String> = Vec::new();
    for home in named.into_iter().flatten() {
        let real = fs::canonicalize(home).ok().and_then(|p| p.into_os_string().into_string().ok());
        homes.extend([Some(home.clone()), real].into_iter().flatten());
    }
    homes.dedup();
    homes.join(":")
}

/// Finds a program as the kernel and a shell do: a name with a slash is a path, a bare name is searched on PATH.
fn find_program(name: &str, cwd: &str, path: &str) -> Option<PathFact> {
    if name.contains('/') {
        return world::path_fact(Path::new(cwd).join(name).to_str()?);
    }
    world::find_program(name, path, cwd).and_then(|p| world::path_fact(&p))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine without bash, shell text fails with a message, not with a panic.
    #[test]
    fn a_missing_program_is_named() {
        let key = HomeKey::new([1; 32]);
        let request = serde_json::from_value(serde_json::json!({
            "tool": "shell", "args": {"argv": ["no-such-\u{1b}program"], "cwd": "/"},
        }));
        let prepared = prepare(&request.unwrap(), &key, &RunAs { user: None, base: Default::default() }).unwrap();
        assert_eq!(prepared.facts.program, None);
        assert_eq!(prepared.exec(&key).unwrap_err().to_string(), "no-such-\\u{1b}program: program not found");
    }
}
