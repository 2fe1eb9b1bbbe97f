//! What is said about a confined task when it is over: whether it may have failed at the walls, and which files it changed
//! that make programs run later.

use crate::sandbox;
use countersign_model::{Confinement, FileChange, Network, SandboxSpec};
use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Seek as _, SeekFrom},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// How much of the end of a stream is looked through.
const TAIL: u64 = 64 * 1024;
/// More entries of one directory than this are not looked at.
const MOST: usize = 256;
/// What programs say when the kernel refuses them something.
const REFUSED: &[&str] = &[
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
/// What they say when nobody can be reached.
const UNREACHED: &[&str] = &[
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
/// What they say when they cannot sign in or reach an agent, a container daemon or a local database.
const SIGNED_OUT: &[&str] = &[
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
/// What shells say about signals that were not sent.
const SIGNALS: &[&str] = &["kill: (", "kill: sending signal", "killing pid"];
/// Behind a shield files are as ever: only these can be its doing.
const SHIELDED: &[&str] = &["Operation not permitted", "EPERM", "no new privileges"];

/// For a task that had no more time.
pub(crate) const LATE: &str = "it ran confined (read_only), which has two minutes at most; \
    to have a person let it run longer, ask with --confinement shield";

/// How to have a person give a task more, once or for good.
const OPEN: &str = "to run it with your rights, ask with --confinement shield and a person answers \
    (for good: csn grants add --verb VERB --in DIR --confinement shield)";

/// The one line for whoever asked, if what a failed task said speaks of refusals.
pub(crate) fn note(confinement: Confinement, sandbox: &SandboxSpec, streams: &[PathBuf]) -> Option<String> {
    let tails: Vec<String> = streams.iter().filter_map(|s| tail(s)).collect();
    let said = |words: &[&str]| tails.iter().any(|t| words.iter().any(|w| t.contains(w)));
    if confinement > Confinement::None && (said(SIGNALS) || confinement == Confinement::Shield && said(SHIELDED)) {
        let what = "it ran shielded: no task can signal or trace what is not its own, nor gain other rights";
        return Some(format!("{what}; a task is stopped with csn cancel"));
    }
    let alone = confinement == Confinement::ReadOnly || sandbox.network == Network::None;
    match confinement {
        Confinement::None | Confinement::Shield => None,
        Confinement::ReadOnly => (said(REFUSED) || said(UNREACHED)).then(|| {
            "it ran in a sandbox (read_only): it reads the roots and the system, without what is called like a secret \
             (.env, *.pem, …), writes nothing but its own TMPDIR, and reaches nobody; to have a person let it run open, \
             ask with --confinement shield"
                .to_owned()
        }),
        Confinement::Workspace if said(SIGNED_OUT) && !sandbox.unix_sockets => Some(format!(
            "it ran in a sandbox (workspace) without your keys, logins and local sockets (ssh and gpg agents, containers, \
             databases); a known tool such as git push gets its own when nothing but it runs in the command; {OPEN}"
        )),
        Confinement::Workspace if alone && said(UNREACHED) => Some(
            "it ran in a sandbox (workspace) without the network, since nobody accepted the risk `network` for it; ask \
             with --network open, and a person answers"
                .to_owned(),
        ),
        Confinement::Workspace if said(REFUSED) => {
            let network = if alone { ", and has no network (--network open asks for it)" } else { "" };
            Some(format!(
                "it ran in a sandbox (workspace): it writes the roots, its own TMPDIR, caches and the paths that were \
                 accepted, reads no keys of the home, makes no local sockets{network}; {OPEN}"
            ))
        }
        Confinement::Workspace => None,
    }
}

fn tail(stream: &Path) -> Option<String> {
    let mut file = fs::File::open(stream).ok()?;
    let len = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The files of the roots that make programs run later, as they are now.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct EscapeFiles(BTreeMap<String, Stamp>);

type Stamp = (u64, u64, u64, i64, i64, i64, i64);

impl EscapeFiles {
    pub(crate) fn of(sandbox: &SandboxSpec) -> Self {
        Self::at(&sandbox::places_of_escapes(sandbox))
    }

    fn at(places: &[(PathBuf, &[&str])]) -> Self {
        let mut found = BTreeMap::new();
        let mut see = |path: &Path| {
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
                match name.ends_with('/') {
                    false => see(&path),
                    true => {
                        let entries = fs::read_dir(&path).into_iter().flatten().flatten().take(MOST);
                        entries.for_each(|entry| see(&entry.path()));
                    }
                }
            }
        }
        Self(found)
    }

    /// What has become of them since.
    pub(crate) fn changes(&self, now: &Self) -> Vec<(String, FileChange)> {
        let mut changes = Vec::new();
        for (path, stamp) in &now.0 {
            match self.0.get(path) {
                None => changes.push((path.clone(), FileChange::Created)),
                Some(before) if before != stamp => changes.push((path.clone(), FileChange::Modified)),
                Some(_) => {}
            }
        }
        let gone = self.0.keys().filter(|path| !now.0.contains_key(*path));
        changes.extend(gone.map(|path| (path.clone(), FileChange::Deleted)));
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_to_what_runs_later_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join(".git/hooks")).unwrap();
        fs::write(root.join("Makefile"), "a").unwrap();
        fs::write(root.join(".envrc"), "a").unwrap();
        let places = [(root.to_owned(), &[".git/hooks/", "Makefile", ".envrc"][..])];
        let before = EscapeFiles::at(&places);
        assert_eq!(before.changes(&EscapeFiles::at(&places)), []);
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
        assert_eq!(before.changes(&EscapeFiles::at(&places)), expect);
    }

    #[test]
    fn a_note_needs_a_refusal() {
        let dir = tempfile::tempdir().unwrap();
        let said = |text: &str| {
            let at = dir.path().join("stderr.log");
            fs::write(&at, text).unwrap();
            at
        };
        let refused = [said("touch: cannot touch 'x': Permission denied\n")];
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
        let note = |confinement, streams: &[PathBuf]| note(confinement, &sandbox(Network::Open), streams);
        assert!(note(Confinement::ReadOnly, &refused).is_some());
        assert!(note(Confinement::Shield, &refused).is_none());
        assert!(note(Confinement::None, &refused).is_none());
        let other = said("grep: no such thing\n");
        assert!(note(Confinement::ReadOnly, &[other]).is_none());
        let killed = said("bash: kill: (1) - Operation not permitted\n");
        for confinement in [Confinement::Shield, Confinement::Workspace, Confinement::ReadOnly] {
            assert!(note(confinement, std::slice::from_ref(&killed)).unwrap().contains("csn cancel"));
        }
        let alone = [said("curl: (6) Could not resolve host: x\n")];
        assert!(note(Confinement::Workspace, &alone).is_none());
        let told = super::note(Confinement::Workspace, &sandbox(Network::None), &alone).unwrap();
        assert!(told.contains("--network open"), "{told}");
        let unsigned = [said("error: gpg failed to sign the data\n")];
        assert!(note(Confinement::Workspace, &unsigned).unwrap().contains("--confinement shield"));
    }
}
