//! The environment of a task: a base, the variables that the request names, and what may be inherited. Never the
//! daemon's own.

use countersign_model::{EnvClass, Exposure, Refusal, RefusalCode, Request, is_base_variable};
use countersign_redact::looks_secret;
use std::{collections::BTreeMap, os::unix::fs::MetadataExt as _, path::Path};

/// The PATH for requests without one.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Variables that make a program run other code.
const CODE_INJECTION_VARIABLES: &[&str] = &[
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "PS4",
    "SHELLOPTS",
    "BASHOPTS",
    "IFS",
    "NODE_OPTIONS",
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PERL5OPT",
    "RUBYOPT",
];

pub(crate) fn injects_code(name: &str) -> bool {
    let git = name.starts_with("GIT_") && !name.starts_with("GIT_AUTHOR_") && !name.starts_with("GIT_COMMITTER_");
    CODE_INJECTION_VARIABLES.contains(&name)
        || name.starts_with("LD_")
        || name.starts_with("BASH_FUNC_")
        || git
        || is_own_variable(name)
}

fn is_own_variable(name: &str) -> bool {
    name.starts_with("COUNTERSIGN_")
}

/// The variables for a request, and the record of them.
pub(crate) fn build_environment(
    request: &Request,
    base: &BTreeMap<String, String>,
) -> Result<(BTreeMap<String, String>, Exposure), Refusal> {
    let args = &request.args;
    for (name, value) in args.env.iter().chain(&args.inherit) {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let shown = countersign_model::DisplaySafe::bounded(name, 60);
            return Err(Refusal::new(RefusalCode::BadRequest, format!("`{shown}` cannot be an environment variable"))
                .hint("a name must not contain `=`, and neither names nor values may contain a NUL byte"));
        }
    }
    let mut env = BTreeMap::new();
    let mut withheld = Vec::new();
    let source = if args.inherit.is_empty() { base } else { &args.inherit };
    for (name, value) in source {
        let named = args.env.contains_key(name);
        match (is_base_variable(name), injects_code(name) || looks_secret(name)) {
            (true, _) => drop(env.insert(name.clone(), value.clone())),
            (false, true) if !named => withheld.push(name.clone()),
            _ => drop(env.insert(name.clone(), value.clone())),
        }
    }
    if args.inherit.is_empty() {
        env.retain(|name, _| is_base_variable(name));
        withheld.clear();
    }
    let path = env.get("PATH").map_or(DEFAULT_PATH, String::as_str);
    env.insert("PATH".to_owned(), safe_path(path));
    env.extend(args.env.iter().filter(|(name, _)| !is_own_variable(name)).map(|(k, v)| (k.clone(), v.clone())));
    let class = match (args.inherit.keys().any(|name| !is_base_variable(name)), args.env.is_empty()) {
        (true, _) => EnvClass::Inherited,
        (false, false) => EnvClass::Named,
        (false, true) => EnvClass::Base,
    };
    let names = env.keys().cloned().collect();
    Ok((env, Exposure { class, names, withheld }))
}

/// PATH without relative entries and without directories that everyone may write to.
fn safe_path(path: &str) -> String {
    let safe =
        |entry: &&str| Path::new(entry).is_absolute() && !std::fs::metadata(entry).is_ok_and(|m| m.mode() & 0o002 != 0);
    let entries: Vec<&str> = path.split(':').filter(safe).collect();
    if entries.is_empty() { DEFAULT_PATH.to_owned() } else { entries.join(":") }
}

/// The base variables of this process, for requests without an environment.
pub(crate) fn daemon_base_variables() -> BTreeMap<String, String> {
    let vars = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    vars.filter(|(name, _)| is_base_variable(name) && name != "PATH" && name != "TERM").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(inherit: &[(&str, &str)], named: &[(&str, &str)]) -> Request {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())).collect::<serde_json::Map<_, _>>()
        };
        let args = serde_json::json!({"command": "true", "inherit": map(inherit), "env": map(named)});
        serde_json::from_value(serde_json::json!({"tool": "shell", "args": args})).unwrap()
    }

    #[test]
    fn f160_nothing_that_injects_code_or_looks_secret_is_inherited() {
        let inherit = [
            ("HOME", "/h"),
            ("EDITOR", "vi"),
            ("LD_PRELOAD", "x"),
            ("BASH_ENV", "x"),
            ("GIT_SSH_COMMAND", "x"),
            ("GIT_AUTHOR_NAME", "A"),
            ("GITHUB_TOKEN", "t"),
            ("COUNTERSIGN_HOME", "/c"),
            ("BASH_FUNC_ls%%", "() { :; }"),
        ];
        let (env, exposure) = build_environment(&request(&inherit, &[]), &BTreeMap::new()).unwrap();
        let names: Vec<_> = env.keys().map(String::as_str).collect();
        assert_eq!(names, ["EDITOR", "GIT_AUTHOR_NAME", "HOME", "PATH"]);
        assert_eq!(exposure.class, EnvClass::Inherited);
        assert_eq!(exposure.withheld.len(), 6);
    }

    #[test]
    fn a_named_variable_is_passed_even_if_it_looks_secret() {
        let (env, exposure) =
            build_environment(&request(&[("GITHUB_TOKEN", "t")], &[("GITHUB_TOKEN", "t")]), &BTreeMap::new()).unwrap();
        assert_eq!(env["GITHUB_TOKEN"], "t");
        assert_eq!(exposure.withheld, Vec::<String>::new());
    }

    #[test]
    fn path_loses_directories_that_everyone_may_write() {
        let (env, _) =
            build_environment(&request(&[("PATH", "/usr/bin:.::rel:/tmp:/bin")], &[]), &BTreeMap::new()).unwrap();
        assert_eq!(env["PATH"], "/usr/bin:/bin");
    }

    #[test]
    fn a_request_without_environment_gets_the_base_only() {
        let base = BTreeMap::from([("HOME".to_owned(), "/h".to_owned()), ("SECRET".to_owned(), "s".to_owned())]);
        let (env, exposure) = build_environment(&request(&[], &[]), &base).unwrap();
        assert_eq!(env.keys().collect::<Vec<_>>(), ["HOME", "PATH"]);
        assert_eq!((exposure.class, exposure.withheld.len()), (EnvClass::Base, 0));
    }

    #[test]
    fn names_that_cannot_be_variables_are_refused() {
        for bad in [("", "x"), ("A=B", "x"), ("A", "x\0y")] {
            assert!(build_environment(&request(&[], &[bad]), &BTreeMap::new()).is_err(), "{bad:?}");
        }
        assert!(build_environment(&request(&[], &[("A", "line\nline")]), &BTreeMap::new()).is_ok());
    }
}
