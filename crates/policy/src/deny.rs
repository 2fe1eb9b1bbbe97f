//! Hard denies: commands that no grant, rule or profile allows.

use crate::{judge::JudgeContext, paths};
use countersign_model::{Facts, Occurrence, Plan, Refusal, RefusalCode, Word, WordValue};

/// The first occurrence that is always refused, with the refusal.
pub(crate) fn find_hard_deny(plan: &Plan, facts: &Facts, context: &JudgeContext<'_>) -> Option<(usize, Refusal)> {
    if plan.multiplies {
        return Some((
            0,
            system_refusal("a function that keeps starting copies of itself (a fork bomb) would stop the machine"),
        ));
    }
    plan.occurrences.iter().enumerate().find_map(|(n, occurrence)| {
        if occurrence.remote {
            return None;
        }
        let refusal = removes_everything(occurrence, facts, context)
            .or_else(|| overwrites_a_disk(occurrence))
            .or_else(|| stops_countersign(occurrence, plan, facts))
            .or_else(|| acts_for_the_user(occurrence))
            .or_else(|| touches_protected_files(occurrence, facts, context));
        refusal.map(|r| (n, r))
    })
}

fn system_refusal(message: &str) -> Refusal {
    Refusal::new(RefusalCode::SystemDestructive, message).hint("to do it anyway, run it yourself, outside Countersign")
}

fn argument_texts(occurrence: &Occurrence) -> impl Iterator<Item = &str> {
    occurrence.words.iter().skip(1).filter_map(Word::texts).flatten().map(String::as_str)
}

/// Whether an option is set: as a short letter in any cluster, or as a long option in any abbreviation.
fn has_flag(occurrence: &Occurrence, letters: &str, long: &str) -> bool {
    argument_texts(occurrence).take_while(|t| *t != "--").any(|t| match t.strip_prefix("--") {
        Some(name) => !name.is_empty() && long.starts_with(name),
        None => t.strip_prefix('-').is_some_and(|cluster| cluster.chars().any(|c| letters.contains(c))),
    })
}

fn removes_everything(occurrence: &Occurrence, facts: &Facts, context: &JudgeContext<'_>) -> Option<Refusal> {
    let removes = match occurrence.program.as_str() {
        "rm" => has_flag(occurrence, "rR", "recursive") && has_flag(occurrence, "f", "force"),
        // `find -delete` without a test removes everything below its start.
        "find" => {
            argument_texts(occurrence).any(|t| t == "-delete")
                && argument_texts(occurrence)
                    .filter(|t| t.starts_with('-'))
                    .all(|t| matches!(t, "-delete" | "-depth" | "-xdev" | "-mount" | "-H" | "-L" | "-P"))
        }
        _ => false,
    };
    if !removes {
        return None;
    }
    let whole = |path: &str| {
        path == "/"
            || path == "/home"
            || paths::below_home(path, context.home) == Some("")
            || occurrence.program == "rm" && context.roots.iter().any(|root| root != path && paths::inside(root, path))
    };
    let hit = occurrence.scopes.iter().any(|scope| {
        if scope.pattern {
            // `/*`, `~/*`, `~/.*`
            let last = paths::base(&scope.walked);
            return paths::clean(paths::parent(&scope.walked)) == scope.path
                && last.chars().all(|c| matches!(c, '*' | '.' | '?'))
                && (whole(&scope.path));
        }
        let found = facts.paths.get(&scope.walked);
        whole(&scope.path) || found.is_some_and(|f| f.mount || whole(&f.resolved))
    });
    hit.then(|| {
        system_refusal("it would remove a whole file system, a home, or a directory that contains a workspace root")
    })
}

fn overwrites_a_disk(occurrence: &Occurrence) -> Option<Refusal> {
    let program = occurrence.program.as_str();
    let device = |t: &str| paths::is_block_device(&paths::clean(t));
    let named = || argument_texts(occurrence).any(|t| t.starts_with("/dev/") && device(t));
    let last = || argument_texts(occurrence).filter(|t| !t.starts_with('-')).last().is_some_and(device);
    let hit = program == "mkfs"
        || program.starts_with("mkfs.")
        || matches!(program, "mke2fs" | "mkdosfs" | "mkntfs" | "newfs")
        || matches!(
            program,
            "mkswap" | "wipefs" | "blkdiscard" | "shred" | "badblocks" | "tee" | "truncate" | "sgdisk"
        ) && named()
        || matches!(program, "cp" | "mv" | "install" | "ddrescue" | "rsync") && last()
        || matches!(program, "dd" | "dcfldd" | "dc3dd")
            && argument_texts(occurrence).any(|t| t.strip_prefix("of=").is_some_and(device))
        || program == "hdparm" && argument_texts(occurrence).any(|t| t.starts_with("--security-erase"))
        || occurrence.scopes.iter().any(|s| s.write && device(&s.path));
    hit.then(|| system_refusal("it would overwrite a disk or create a file system on it"))
}

/// Whether a word names a process or service of Countersign.
fn names_countersign(word: &str) -> bool {
    let name = paths::base(word);
    // A pattern such as `c[s]n` or `^csn$` matches too.
    let bare: String = word.chars().filter(|c| !"^$.*[]()\\?+".contains(*c)).collect();
    matches!(name, "csn" | "csn-shim" | "countersign" | "countersign.service")
        || [word, &bare].iter().any(|w| w.contains("csn") || w.contains("countersign"))
}

fn stops_countersign(occurrence: &Occurrence, plan: &Plan, facts: &Facts) -> Option<Refusal> {
    let words: Vec<&str> = argument_texts(occurrence).collect();
    let everything = |w: &str| matches!(w, "." | ".*" | "" | "*");
    let hit = match occurrence.program.as_str() {
        "csn" => words.iter().find(|w| !w.starts_with('-')).is_some_and(|w| *w == "down"),
        "pkill" | "killall" | "skill" | "killall5" | "xkill" => {
            let operands: Vec<&&str> = words.iter().filter(|w| !w.starts_with('-')).collect();
            words.iter().any(|w| names_countersign(w))
                || operands.iter().any(|w| everything(w))
                || occurrence.program == "killall5"
                // `pkill -u me` without another operand ends every process of the user.
                || words.iter().any(|w| matches!(*w, "-u" | "-U" | "--user" | "--euid" | "--uid")) && operands.len() <= 1
        }
        "kill" => {
            let all = words.len() > 1 && words.last() == Some(&"-1");
            let named = words
                .iter()
                .filter_map(|w| w.trim_start_matches('-').parse::<u32>().ok())
                .any(|pid| facts.processes.get(&pid).is_some_and(|name| matches!(name.as_str(), "csn" | "csn-shim")));
            // `kill $(pgrep csn)`: the process id is unknown, but `pgrep` names the process.
            let unknown = occurrence.words.iter().any(|w| matches!(w.value, WordValue::Unknown));
            let looked_up = unknown
                && plan.occurrences.iter().any(|o| {
                    matches!(o.program.as_str(), "pgrep" | "pidof") && argument_texts(o).any(names_countersign)
                });
            all || named || looked_up
        }
        "systemctl" | "service" | "rc-service" | "sv" | "launchctl" | "initctl" => {
            words.iter().any(|w| names_countersign(w))
                && words.iter().any(|w| {
                    matches!(
                        *w,
                        "stop"
                            | "kill"
                            | "disable"
                            | "restart"
                            | "mask"
                            | "down"
                            | "unload"
                            | "bootout"
                            | "remove"
                            | "try-restart"
                            | "isolate"
                    )
                })
        }
        _ => false,
    };
    hit.then(|| {
        Refusal::new(RefusalCode::SelfDestructive, "a task may not stop or kill Countersign")
            .hint("a person can do that with `csn down` in their own terminal")
    })
}

fn acts_for_the_user(occurrence: &Occurrence) -> Option<Refusal> {
    if occurrence.program != "csn" {
        return None;
    }
    let words: Vec<&str> = argument_texts(occurrence).filter(|w| !w.starts_with('-')).collect();
    let hit = match words[..] {
        ["approvals", what, ..] => matches!(what, "answer" | "approve" | "deny"),
        ["approve" | "answer", ..] => true,
        ["grants" | "grant", what, ..] => matches!(what, "add" | "revoke" | "remove" | "import"),
        ["token" | "tokens", what, ..] => what != "list",
        ["pair" | "trust" | "rule" | "rules", ..] => true,
        ["config", "set", ..] => true,
        // An agent may not change its own integration.
        ["install", ..] => !has_flag(occurrence, "", "dry-run"),
        // Only the agent itself starts its MCP server or hook; a task may not.
        ["mcp" | "hook", ..] => true,
        _ => false,
    };
    hit.then(|| {
        Refusal::new(
            RefusalCode::SelfDestructive,
            "a task may not answer approvals, change grants, create tokens or set up agents",
        )
        .hint("a person can do that in their own terminal")
    })
}

fn touches_protected_files(occurrence: &Occurrence, facts: &Facts, context: &JudgeContext<'_>) -> Option<Refusal> {
    let (home, places) = (context.home, &context.protected);
    let removes = matches!(occurrence.program.as_str(), "rm" | "mv" | "shred" | "rmdir");
    let hit = occurrence.scopes.iter().any(|scope| {
        if scope.pattern {
            let meets = paths::protected_overlap(&scope.walked, home, places);
            return meets == paths::GlobOverlap::In || removes && meets == paths::GlobOverlap::Above;
        }
        let found = facts.paths.get(&scope.walked);
        let is = |path: &str| {
            paths::is_protected(path, home, places)
                || removes
                    && scope.recursive_or_moved(&occurrence.program)
                    && paths::holds_protected(path, home, places)
        };
        is(&scope.path)
            || found.is_some_and(|f| is(&f.resolved))
            || facts.patterns.get(&scope.walked).and_then(Option::as_ref).is_some_and(|all| all.iter().any(|p| is(p)))
    });
    hit.then(|| {
        Refusal::new(RefusalCode::ProtectedPath, "a task may not use Countersign's own files")
            .hint("a person can read and change them in their own terminal")
    })
}
