//! Looking: what the world says about the paths and programs of a request, and the request resolved against it.

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

/// Shell text longer than this does not fit into one argument of the kernel.
const LONGEST_TEXT: usize = 128 * 1024 - 1;
/// The most that a file tool writes at once; a request has to hold it.
const LARGEST_CONTENT: usize = 3 * 1024 * 1024;
/// The size of a terminal for those who name none.
pub(crate) const ROWS: u16 = 24;
pub(crate) const COLS: u16 = 80;
const LARGEST_TERMINAL: u16 = 1000;
/// Of more directories than this, nobody is told which repository they are in.
const MOST_DIRECTORIES: usize = 32;
const BASH: &[&str] = &["/bin/bash", "/usr/bin/bash"];

/// A request with its surroundings looked up, before anyone has decided about it.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    pub(crate) facts: Facts,
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) exposure: Exposure,
    pub(crate) plan_digest: Digest,
    pub(crate) plan: Plan,
    /// The homes of whoever asks and of whom it runs as, with colons between them.
    pub(crate) home: String,
    /// The home of whom it runs as, whatever an asker says is theirs.
    pub(crate) own_home: String,
    /// Whom it runs as, in a house of several users.
    pub(crate) user: Option<TaskUser>,
}

/// What the gate goes by, beside the request and the world.
#[derive(Debug)]
pub(crate) struct GateSettings {
    pub(crate) rules: CheckedRules,
    /// Where this house keeps what is its own.
    pub(crate) protected: Vec<String>,
    pub(crate) read_all: bool,
    /// Directories that the configuration makes roots.
    pub(crate) roots: Vec<String>,
    /// The configuration cannot be read, for this reason: only what provably reads may run.
    pub(crate) degraded: Option<String>,
    pub(crate) key: HomeKey,
    /// What the kernel can hold tasks to, what the operator wants of what is granted, and whom workspaces reach.
    pub(crate) kernel: Kernel,
    pub(crate) granted: GrantedSandbox,
    pub(crate) network: Network,
    /// The user's rules for what is taken out of output.
    pub(crate) redaction: Vec<countersign_model::RedactionRule>,
}

/// The program of a request is not on this machine.
#[derive(Debug, thiserror::Error)]
#[error("{0}: no such program")]
pub(crate) struct NoSuchProgram(String);

impl Prepared {
    /// What a file tool does, and where: the path that was judged.
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

/// Checks what can be wrong with a request by itself.
pub(crate) fn check(request: &Request) -> Result<(), Refusal> {
    let args = &request.args;
    let bad = |message: &str| Err(Refusal::new(RefusalCode::BadRequest, message));
    if request.tool.is_builtin() {
        check_file_tool(request)?;
    } else if [&args.path, &args.content, &args.old, &args.new].iter().any(|a| a.is_some()) {
        return bad("`path`, `content`, `old` and `new` are for file tools: read_file, write_file, edit_file");
    }
    match (&args.command, &args.argv) {
        _ if request.tool.is_builtin() => {}
        (None, None) if request.tool == Tool::SetWorkingDirectory => {}
        _ if request.tool == Tool::SetWorkingDirectory => return bad("`args` takes `cwd` alone"),
        (None, None) => return bad("`args` needs `command` (shell text) or `argv` (a list of words)"),
        (Some(_), Some(_)) => return bad("`args` takes `command` or `argv`, not both"),
        (Some(text), None) if text.len() > LONGEST_TEXT => {
            return Err(Refusal::new(
                RefusalCode::TooLarge,
                format!("the command has {} bytes, the most is {LONGEST_TEXT}", text.len()),
            )
            .hint("write it to a script and run that"));
        }
        (Some(text), None) if text.trim().is_empty() => return bad("`args.command` is empty: there is nothing to run"),
        (Some(text), None) if text.contains('\0') => return bad("`args.command` holds a NUL byte"),
        (None, Some(argv)) if argv.iter().any(|w| w.contains('\0')) => return bad("`args.argv` holds a NUL byte"),
        (None, Some(argv)) if argv.first().is_none_or(String::is_empty) => {
            return bad("`args.argv` needs the name of a program");
        }
        _ => {}
    }
    match &args.cwd {
        None => return bad("`args.cwd` is missing: it says where the command runs, and its session has no directory"),
        Some(cwd) if cwd.contains('\0') || !Path::new(cwd).is_absolute() => {
            return bad("`args.cwd` must be an absolute path");
        }
        _ => {}
    }
    match (request.mode, args.stdin, args.rows, args.cols) {
        (Mode::Pipes, _, None, None) => {}
        (Mode::Pipes, ..) => return bad("`args.rows` and `args.cols` need `execution_mode: pty`"),
        (Mode::Pty, true, ..) => return bad("`args.stdin` is for pipes: a terminal always takes input"),
        (Mode::Pty, false, rows, cols) => {
            terminal_size(rows.unwrap_or(ROWS), cols.unwrap_or(COLS))?;
        }
    }
    if request.confinement == Some(Confinement::None) {
        return bad(
            "`confinement` is shield, workspace or read_only: nothing runs without a shield but what is privileged",
        );
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
            return bad(&format!("`limits.{name}` is longer than a year"));
        }
    }
    if l.frames.is_some_and(|f| f < Limits::FEWEST_FRAMES) {
        return bad(&format!("`limits.frames` is at least {}", Limits::FEWEST_FRAMES));
    }
    Ok(())
}

/// Checks what a file tool was given.
fn check_file_tool(request: &Request) -> Result<(), Refusal> {
    let (args, tool) = (&request.args, request.tool.as_str());
    let bad = |message: String| Err(Refusal::new(RefusalCode::BadRequest, message));
    if args.command.is_some() || args.argv.is_some() || args.stdin || request.mode == Mode::Pty {
        return bad(format!("`{tool}` runs no command: it takes `path`, and no terminal or input"));
    }
    match &args.path {
        None => return bad(format!("`args.path` is missing: `{tool}` is about one file")),
        Some(path) if path.is_empty() || path.contains('\0') => return bad("`args.path` is not a path".to_owned()),
        Some(path) if path.ends_with('/') => return bad("`args.path` is a directory's: name a file".to_owned()),
        _ => {}
    }
    let given = (args.content.is_some(), args.old.is_some(), args.new.is_some());
    match (request.tool, given) {
        (Tool::ReadFile, (false, false, false)) | (Tool::WriteFile, (true, false, false)) => {}
        (Tool::EditFile, (false, true, true)) if args.old.as_deref() == Some("") => {
            return bad("`args.old` is empty: name what stands there now, or use write_file".to_owned());
        }
        (Tool::EditFile, (false, true, true)) => {}
        (Tool::ReadFile, _) => return bad("`read_file` takes `path`, `first_line` and `line_count`".to_owned()),
        (Tool::WriteFile, _) => return bad("`write_file` takes `path` and `content`".to_owned()),
        _ => return bad("`edit_file` takes `path`, `old`, `new` and `all`".to_owned()),
    }
    if args.first_line == Some(0) {
        return bad("`args.first_line` counts from 1".to_owned());
    }
    let longest = [&args.content, &args.old, &args.new].into_iter().flatten().map(String::len).max().unwrap_or(0);
    match longest > LARGEST_CONTENT {
        true => Err(Refusal::new(RefusalCode::TooLarge, format!("{longest} bytes are more than `{tool}` takes"))
            .hint("write it in parts, or let a command write it")),
        false => Ok(()),
    }
}

/// A size that a terminal can have.
pub(crate) fn terminal_size(rows: u16, cols: u16) -> Result<(), Refusal> {
    match (1..=LARGEST_TERMINAL).contains(&rows) && (1..=LARGEST_TERMINAL).contains(&cols) {
        true => Ok(()),
        false => Err(Refusal::new(RefusalCode::BadRequest, format!("`rows` and `cols` are 1 to {LARGEST_TERMINAL}"))),
    }
}

/// Fills in the bounds that a request does not name, and refuses those beyond what the operator allows.
pub(crate) fn bound(request: &mut Request, config: &Config, credential: CredentialKind) -> Result<(), Refusal> {
    let (l, most) = (&mut request.limits, &config.limits);
    // An agent that waits for a command must not wait for ever; a person sees that it hangs.
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
            let message = format!("`limits.{name}` is {value}, the most that this house allows is {most}");
            return Err(
                Refusal::new(RefusalCode::BadRequest, message).hint(format!("config.toml: [limits] {name} = …"))
            );
        }
    }
    Ok(())
}

/// What may be read unasked: what the session may, or, of one that nobody opened, the repository or directory where
/// the request runs; and what the configuration adds.
pub(crate) fn roots(
    prepared: &Prepared,
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
        _ => root_of(&prepared.facts, &prepared.home, &prepared.own_home, gate).into_iter().collect(),
    };
    own.into_iter().chain(folder).chain(gate.roots.iter().cloned()).collect()
}

/// The root that a working directory gives, if it gives one.
pub(crate) fn root_of(facts: &Facts, home: &str, own_home: &str, gate: &GateSettings) -> Option<String> {
    let cwd = &facts.cwd.resolved;
    let repository = facts.repositories.get(cwd);
    let here = repository.unwrap_or(cwd);
    let named = repository.is_some() || gate.roots.contains(here);
    let can = |home| countersign_policy::can_be_root(here, home, &gate.protected, named);
    (can(home) && can(own_home)).then(|| here.clone())
}

/// The waiting request against the world as it is now. One that is gone has been answered; the desk will say so.
pub(crate) fn prepare_again(
    home: &Home,
    key: &HomeKey,
    users: &Users,
    task: TaskId,
) -> Result<(FactsAtLaunch, Option<(Prepared, Request)>), Refusal> {
    let kept = match waiting::read(home, task) {
        Ok(kept) => kept,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((FactsAtLaunch::Same, None)),
        Err(e) => return Err(Refusal::new(RefusalCode::Internal, format!("the waiting request cannot be read: {e}"))),
    };
    let now = users.run_as(kept.uid).and_then(|run_as| prepare(&kept.request, key, &run_as)).ok();
    let world = FactsAtLaunch::compare(&kept.facts, now.as_ref().map(|l| &l.facts));
    Ok((world, now.map(|l| (l, kept.request))))
}

/// Looks everything up. A missing program is a fact; a missing directory is an error.
pub(crate) fn prepare(request: &Request, key: &HomeKey, run_as: &RunAs) -> Result<Prepared, Refusal> {
    check(request)?;
    run_as.with_fs_ids(|| look_as(request, key, run_as))?
}

fn look_as(request: &Request, key: &HomeKey, run_as: &RunAs) -> Result<Prepared, Refusal> {
    let base = &run_as.base;
    let cwd = request.args.cwd.as_deref().unwrap_or("/");
    let fact = world::path_fact(cwd).filter(|_| Path::new(cwd).is_dir());
    let cwd_fact = fact.ok_or_else(|| {
        Refusal::new(RefusalCode::BadRequest, format!("there is no directory {}", DisplaySafe::bounded(cwd, 300)))
            .hint("give another with --cwd, or make it first")
    })?;
    let (mut env, mut exposure) = env::expose(request, base)?;
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
    let plan = countersign_policy::read(request, &surroundings);
    let path = env.get("PATH").cloned();
    let (program, argv) = match (&request.args.argv, &request.args.command) {
        (Some(argv), _) => (find_program(&argv[0], cwd, path.as_deref().unwrap_or_default()), argv.clone()),
        (None, None) if request.tool.is_builtin() => {
            // There is no program; what is done is done where the file is.
            (
                Some(cwd_fact.clone()),
                vec![request.tool.as_str().to_owned(), request.args.path.clone().unwrap_or_default()],
            )
        }
        (None, None) => (None, Vec::new()),
        (None, text) => {
            let bash = BASH.iter().find_map(|p| world::path_fact(p));
            (bash, vec!["bash".to_owned(), "-c".to_owned(), text.clone().unwrap_or_default()])
        }
    };
    let mut facts = Facts { cwd: cwd_fact, program, ..Facts::none(cwd) };
    let sight = world::LookupLimits { below: None, path };
    world::look_up_facts(&countersign_policy::needs(&plan), &sight, &mut facts);
    let mut directories = countersign_policy::directories(&plan, &facts);
    directories.truncate(MOST_DIRECTORIES);
    directories.push(facts.cwd.resolved.clone());
    for directory in directories {
        if let Some(top) = world::find_repository(&directory) {
            facts.repositories.insert(directory, top);
        }
    }
    Ok(Prepared {
        facts,
        argv,
        env: env.into_iter().collect(),
        exposure,
        plan_digest: Plan::digest(key, request, cwd),
        plan,
        home: homes([Some(&home), base.get("HOME")]),
        own_home: base.get("HOME").cloned().unwrap_or_default(),
        user: run_as.user.clone(),
    })
}

/// Homes by their names, and by their real ones where those are others; see `countersign_model::places`.
fn homes(named: [Option<&String>; 2]) -> String {
    let mut homes: Vec<String> = Vec::new();
    for home in named.into_iter().flatten() {
        let real = fs::canonicalize(home).ok().and_then(|p| p.into_os_string().into_string().ok());
        homes.extend([Some(home.clone()), real].into_iter().flatten());
    }
    homes.dedup();
    homes.join(":")
}

/// As the kernel and a shell would find it: a word with a slash is a path, a bare name is looked up on PATH.
fn find_program(name: &str, cwd: &str, path: &str) -> Option<PathFact> {
    if name.contains('/') {
        return world::path_fact(Path::new(cwd).join(name).to_str()?);
    }
    world::find_program(name, path, cwd).and_then(|p| world::path_fact(&p))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine without bash: shell text is an outcome that says so, not a panic.
    #[test]
    fn a_program_that_is_not_there_is_named() {
        let key = HomeKey::new([1; 32]);
        let request = serde_json::from_value(serde_json::json!({
            "tool": "shell", "args": {"argv": ["no-such-\u{1b}program"], "cwd": "/"},
        }));
        let prepared = prepare(&request.unwrap(), &key, &RunAs { user: None, base: Default::default() }).unwrap();
        assert_eq!(prepared.facts.program, None);
        assert_eq!(prepared.exec(&key).unwrap_err().to_string(), "no-such-\\u{1b}program: no such program");
    }
}
