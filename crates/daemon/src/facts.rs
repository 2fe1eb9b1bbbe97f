//! Looking: what the world says about the paths and programs of a request, and the request resolved against it.

use crate::env;
use countersign_model::{Code, Digest, Exec, Exposure, Facts, HouseKey, PathFact, Plan, Refusal, Request, Shown};
use std::{
    collections::BTreeMap,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
};

/// Shell text longer than this does not fit into one argument of the kernel.
const LONGEST_TEXT: usize = 128 * 1024 - 1;
const BASH: &[&str] = &["/bin/bash", "/usr/bin/bash"];

/// A request with its surroundings looked up, before anyone has decided about it.
#[derive(Debug, Clone)]
pub(crate) struct Looked {
    pub(crate) facts: Facts,
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) exposure: Exposure,
    pub(crate) plan_digest: Digest,
}

impl Looked {
    pub(crate) fn exec(&self, key: &HouseKey) -> Result<Exec, String> {
        let program = self.facts.program.clone().ok_or_else(|| {
            let name = self.argv.first().map(String::as_str).unwrap_or_default();
            format!("{}: no such program", Shown::bounded(name, 200))
        })?;
        let words: Vec<&[u8]> = self.argv.iter().map(|w| w.as_bytes()).collect();
        let argv_digest = key.digest("argv", &words);
        Ok(Exec { program, argv: self.argv.clone(), argv_digest })
    }
}

/// Checks what can be wrong with a request by itself.
pub(crate) fn check(request: &Request) -> Result<(), Refusal> {
    let args = &request.args;
    let bad = |message: &str| Err(Refusal::new(Code::BadRequest, message));
    match (&args.command, &args.argv) {
        (None, None) => return bad("`args` needs `command` (shell text) or `argv` (a list of words)"),
        (Some(_), Some(_)) => return bad("`args` takes `command` or `argv`, not both"),
        (Some(text), None) if text.len() > LONGEST_TEXT => {
            return Err(Refusal::new(
                Code::TooLarge,
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
        None => return bad("`args.cwd` is missing: it says where the command runs"),
        Some(cwd) if cwd.contains('\0') || !Path::new(cwd).is_absolute() => {
            return bad("`args.cwd` must be an absolute path");
        }
        _ => {}
    }
    if request.mode == countersign_model::Mode::Pty {
        return Err(
            Refusal::new(Code::Unsupported, "`execution_mode: pty` is not available in this version").hint("use pipes")
        );
    }
    let l = &request.limits;
    for (name, value) in
        [("wall_ms", l.wall_ms), ("idle_ms", l.idle_ms), ("grace_ms", l.grace_ms), ("drain_ms", l.drain_ms)]
    {
        if value.is_some_and(|v| v > countersign_model::Limits::MAX_MS) {
            return bad(&format!("`limits.{name}` is longer than a year"));
        }
    }
    Ok(())
}

/// Looks everything up. A missing program is a fact; a missing directory is an error.
pub(crate) fn look(request: &Request, key: &HouseKey, base: &BTreeMap<String, String>) -> Result<Looked, Refusal> {
    check(request)?;
    let cwd = request.args.cwd.as_deref().unwrap_or("/");
    let fact = path_fact(cwd).filter(|_| Path::new(cwd).is_dir());
    let cwd_fact = fact.ok_or_else(|| {
        Refusal::new(Code::BadRequest, format!("there is no directory {}", Shown::bounded(cwd, 300)))
            .hint("give another with --cwd, or make it first")
    })?;
    let (mut env, exposure) = env::expose(request, base)?;
    env.insert("PWD".to_owned(), cwd.to_owned());
    let (program, argv) = match (&request.args.argv, &request.args.command) {
        (Some(argv), _) => {
            let path = env.get("PATH").map(String::as_str).unwrap_or_default();
            (find_program(&argv[0], cwd, path), argv.clone())
        }
        (None, text) => {
            let bash = BASH.iter().find_map(|p| path_fact(p));
            (bash, vec!["bash".to_owned(), "-c".to_owned(), text.clone().unwrap_or_default()])
        }
    };
    Ok(Looked {
        facts: Facts { cwd: cwd_fact, program },
        argv,
        env: env.into_iter().collect(),
        exposure,
        plan_digest: Plan::digest(key, request, cwd),
    })
}

/// As the kernel and a shell would find it: a word with a slash is a path, a bare name is looked up on PATH.
fn find_program(name: &str, cwd: &str, path: &str) -> Option<PathFact> {
    if name.contains('/') {
        return path_fact(Path::new(cwd).join(name).to_str()?);
    }
    let executable =
        |p: &String| std::fs::metadata(p).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    path.split(':').map(|dir| format!("{dir}/{name}")).find(executable).and_then(|p| path_fact(&p))
}

fn path_fact(path: &str) -> Option<PathFact> {
    let resolved = std::fs::canonicalize(path).ok()?;
    let meta = std::fs::metadata(&resolved).ok()?;
    Some(PathFact {
        path: path.to_owned(),
        resolved: resolved.to_string_lossy().into_owned(),
        dev: meta.dev(),
        inode: meta.ino(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine without bash: shell text is an outcome that says so, not a panic.
    #[test]
    fn a_program_that_is_not_there_is_named() {
        let key = HouseKey::new([1; 32]);
        let request = serde_json::from_value(serde_json::json!({
            "tool": "shell", "args": {"argv": ["no-such-\u{1b}program"], "cwd": "/"},
        }));
        let looked = look(&request.unwrap(), &key, &BTreeMap::new()).unwrap();
        assert_eq!(looked.facts.program, None);
        assert_eq!(looked.exec(&key).unwrap_err(), "no-such-\\u{1b}program: no such program");
    }
}
