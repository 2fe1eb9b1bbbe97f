//! What is recorded about a confined task after its end: whether the sandbox may be why it failed, and which escape
//! files (files that make programs run later) it changed.

use crate::sandbox;
use countersign_model::{Confinement, FileChange, Network, SandboxSpec};
use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// How much of the end of a stream is searched.
const MAX_TAIL_BYTES: u64 = 64 * 1024;
/// How many entries of one directory are checked.
const MAX_DIRECTORY_ENTRIES: usize = 256;
/// What programs print when the kernel refuses an operation.
const PERMISSION_ERRORS: &[&str] = &[
    "Permission denied",
    "permission denied",
    "Operation not permitted",
    "operation not permitted",
    "EACCES",
    "EPERM",
    "os error 13",
    "os error 1)",
    "Errno 13]",
    "Errno 1]",
    "no new privileges",
    "Keine Berechtigung",
    "Vorgang nicht zulässig",
    "Permission non accordée",
    "Opération non permise",
    "Permiso denegado",
    "Operación no permitida",
];
/// What programs print when they cannot reach a host.
const NETWORK_ERRORS: &[&str] = &[
    "ould not resolve",
    "name resolution",
    "Network is unreachable",
    "network is unreachable",
    "ENOTFOUND",
    "EAI_AGAIN",
    "ENETUNREACH",
    "ECONNREFUSED",
    "Connection refused",
    "connection refused",
    "Failed to connect",
    "failed to lookup address",
    "Name or service not known",
    "No route to host",
    "listen EPERM: operation not permitted 1",
    "listen EPERM: operation not permitted :",
];
/// What programs print when they cannot log in or reach an agent, a container daemon or a local database.
const LOGIN_ERRORS: &[&str] = &[
    "failed to sign",
    "Load key",
    "No private key found",
    "Couldn't load public key",
    "(publickey",
    "authentication agent",
    "could not read Username",
    "Docker daemon",
    "docker.sock",
    "docker API",
    "podman.sock",
    "Failed to connect to bus",
    "listen EPERM: operation not permitted /",
    "on socket \"/",
    "through socket '",
    "gpg: can't connect",
    "gpg-agent",
];
/// What shells print about signals that were not sent.
const SIGNAL_ERRORS: &[&str] = &["kill: (", "kill: sending signal", "killing pid"];
/// Confinement `shield` does not restrict files: it can only cause these errors.
const SHIELD_ERRORS: &[&str] = &["Operation not permitted", "EPERM", "no new privileges"];

/// The note for a read-only task that reached its time limit.
pub(crate) const TIME_LIMIT_NOTE: &str = "this task ran sandboxed (read-only), where a task may run for two minutes; to run \
    it for longer, ask with confinement `shield` (csn run --confinement shield), and a user is asked to approve it";

/// How to run a task outside the sandbox, once or always.
const SHIELD_HINT: &str = "to run it without the sandbox, ask with confinement `shield` (csn run --confinement shield): a person is then asked";

/// The note for the caller of a failed task, if its output shows that the sandbox may be the reason.
pub(crate) fn refusal_note(confinement: Confinement, sandbox: &SandboxSpec, streams: &[PathBuf]) -> Option<String> {
    let tails: Vec<String> = streams.iter().filter_map(|s| read_tail(s)).collect();
    let printed = |words: &[&str]| tails.iter().any(|t| words.iter().any(|w| t.contains(w)));
    let shield_refused = confinement == Confinement::Shield && printed(SHIELD_ERRORS);
    if confinement > Confinement::None && (printed(SIGNAL_ERRORS) || shield_refused) {
        return Some(
            "Countersign does not allow a task to signal or trace processes outside of the task, or to gain \
             privileges; to stop another task, cancel it (csn cancel)"
                .to_owned(),
        );
    }
    let no_network = confinement == Confinement::ReadOnly || sandbox.network == Network::None;
    match confinement {
        Confinement::None | Confinement::Shield => None,
        Confinement::ReadOnly => (printed(PERMISSION_ERRORS) || printed(NETWORK_ERRORS)).then(|| {
            format!(
                "this task ran sandboxed (read-only), which may be why it failed: it reads the workspace and the system, \
                 writes only to its TMPDIR, and has no network and no credentials; {SHIELD_HINT}"
            )
        }),
        Confinement::Workspace if printed(LOGIN_ERRORS) && !sandbox.unix_sockets => Some(format!(
            "this task ran sandboxed (workspace), which may be why it failed: it has no access to your keys, logins \
             and local sockets (ssh and gpg agents, containers, databases); a known tool such as git push gets its \
             own keys if the command runs nothing else; {SHIELD_HINT}"
        )),
        Confinement::Workspace if no_network && printed(NETWORK_ERRORS) => Some(
            "this task ran sandboxed (workspace) without a network, which may be why it failed: the risk `network` \
             was not accepted for it; ask with network `open` (csn run --network open): a person is then asked"
                .to_owned(),
        ),
        Confinement::Workspace if printed(PERMISSION_ERRORS) => {
            let network = if no_network { ", and it has no network (csn run --network open asks for it)" } else { "" };
            Some(format!(
                "this task ran sandboxed (workspace), which may be why it failed: it can write to the workspace, its \
                 TMPDIR, caches and the paths that were accepted; it cannot read keys in the home directory or make \
                 local sockets{network}; {SHIELD_HINT}"
            ))
        }
        Confinement::Workspace => None,
    }
}

fn read_tail(stream: &Path) -> Option<String> {
    let mut file = fs::File::open(stream).ok()?;
    let len = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(MAX_TAIL_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_TAIL_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The escape files of the workspace roots, with stamps that show whether they change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EscapeFiles(BTreeMap<String, Stamp>);

type Stamp = (u64, u64, u64, i64, i64, i64, i64);

impl EscapeFiles {
    pub(crate) fn for_sandbox(sandbox: &SandboxSpec) -> Self {
        Self::scan(&sandbox::escape_places(sandbox))
    }

    fn scan(places: &[(PathBuf, &[&str])]) -> Self {
        let mut found = BTreeMap::new();
        let mut add = |path: &Path| {
            if let Ok(m) = fs::symlink_metadata(path)
                && !m.is_dir()
            {
                let stamp = (m.dev(), m.ino(), m.size(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec());
                found.insert(path.to_string_lossy().into_owned(), stamp);
            }
        };
        for (place, names) in places {
            for name in *names {
                let path = place.join(name);
                if name.ends_with('/') {
                    let entries = fs::read_dir(&path).into_iter().flatten().flatten().take(MAX_DIRECTORY_ENTRIES);
                    entries.for_each(|entry| add(&entry.path()));
                } else {
                    add(&path);
                }
            }
        }
        Self(found)
    }

    /// The files that were created, modified or deleted between this scan and `now`.
    pub(crate) fn changes_until(&self, now: &Self) -> Vec<(String, FileChange)> {
        let mut changes = Vec::new();
        for (path, stamp) in &now.0 {
            match self.0.get(path) {
                None => changes.push((path.clone(), FileChange::Created)),
                Some(before) if before != stamp => changes.push((path.clone(), FileChange::Modified)),
                Some(_) => {}
            }
        }
        let deleted = self.0.keys().filter(|path| !now.0.contains_key(*path));
        changes.extend(deleted.map(|path| (path.clone(), FileChange::Deleted)));
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_to_escape_files_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        fs::write(root.join("Makefile"), "a").unwrap();
        fs::write(root.join(".envrc"), "a").unwrap();
        let places = [(root.to_owned(), &[".git/hooks/", "Makefile", ".envrc"][..])];
        let before = EscapeFiles::scan(&places);
        assert_eq!(before.changes_until(&EscapeFiles::scan(&places)), []);
        fs::write(root.join("Makefile"), "ab").unwrap();
        fs::write(root.join(".git/hooks/pre-commit"), "x").unwrap();
        fs::write(root.join("other.txt"), "x").unwrap();
        fs::remove_file(root.join(".envrc")).unwrap();
        let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
        let expect = [
            (at(".git/hooks/pre-commit"), FileChange::Created),
            (at("Makefile"), FileChange::Modified),
            (at(".envrc"), FileChange::Deleted),
        ];
        assert_eq!(before.changes_until(&EscapeFiles::scan(&places)), expect);
    }

    #[test]
    fn a_note_is_written_only_when_the_output_shows_a_refusal() {
        let dir = tempfile::tempdir().unwrap();
        let printed = |text: &str| {
            let at = dir.path().join("stderr.log");
            fs::write(&at, text).unwrap();
            at
        };
        let refused = [printed("touch: cannot touch 'x': Permission denied\n")];
        let sandbox = |network| SandboxSpec {
            roots: Vec::new(),
            read_all: false,
            homes: String::new(),
            home: String::new(),
            protected: Vec::new(),
            programs: Vec::new(),
            network,
            unix_sockets: false,
            reads: Vec::new(),
            writes: Vec::new(),
            keys: Vec::new(),
            kernel: countersign_model::Kernel::FULL,
        };
        let note = |confinement, streams: &[PathBuf]| refusal_note(confinement, &sandbox(Network::Open), streams);
        assert!(note(Confinement::ReadOnly, &refused).is_some());
        assert!(note(Confinement::Shield, &refused).is_none());
        assert!(note(Confinement::None, &refused).is_none());
        let other = printed("grep: no such thing\n");
        assert!(note(Confinement::ReadOnly, &[other]).is_none());
        let killed = printed("bash: kill: (1) - Operation not permitted\n");
        for confinement in [Confinement::Shield, Confinement::Workspace, Confinement::ReadOnly] {
            assert!(note(confinement, std::slice::from_ref(&killed)).unwrap().contains("csn cancel"));
        }
        let unreachable = [printed("curl: (6) Could not resolve host: x\n")];
        assert!(note(Confinement::Workspace, &unreachable).is_none());
        let text = super::refusal_note(Confinement::Workspace, &sandbox(Network::None), &unreachable).unwrap();
        assert!(text.contains("--network open"), "{text}");
        let unsigned = [printed("error: gpg failed to sign the data\n")];
        assert!(note(Confinement::Workspace, &unsigned).unwrap().contains("--confinement shield"));
    }
}
