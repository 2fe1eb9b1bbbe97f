//! Commands that the gate misses, beside one ordinary grant: the sandbox of the granted command confines them.

use crate::CSN;
use countersign_client::ClientError;
use countersign_model::{Confinement, Network, RefusalCode, TaskRefusal};
use countersign_testkit::{TestHome, body};
use serde_json::json;
use std::{
    fs,
    net::TcpListener,
    os::unix::net::{UnixDatagram, UnixListener},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

const SECRET: &str = "PRIVATE-KEY-OF-THE-USER";

/// A project with a grant for `git commit`, a home with a key, and listeners that count connections.
struct Target {
    daemon: TestHome,
    home: PathBuf,
    port: u16,
    came: Arc<AtomicUsize>,
}

impl Target {
    fn new() -> Self {
        let daemon = TestHome::new(CSN);
        let home = daemon.base().to_owned();
        fs::create_dir_all(home.join(".ssh")).unwrap();
        fs::write(home.join(".ssh/id_ed25519"), SECRET).unwrap();
        fs::write(home.join(".gitconfig"), "[user]\n\tname = Me\n\temail = me@example.org\n").unwrap();
        daemon.start();
        let out = daemon.outside(&["git", "init", "-q", "-b", "main", daemon.work().to_str().unwrap()]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        daemon.client().grant(&body(json!({"verb": "git commit", "directory": daemon.work()}))).unwrap();
        let came = Arc::new(AtomicUsize::new(0));
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let unix = UnixListener::bind(home.join("agent.sock")).unwrap();
        let counts = Arc::clone(&came);
        std::thread::spawn(move || tcp.incoming().for_each(|_| _ = counts.fetch_add(1, Ordering::SeqCst)));
        let counts = Arc::clone(&came);
        std::thread::spawn(move || unix.incoming().for_each(|_| _ = counts.fetch_add(1, Ordering::SeqCst)));
        let datagrams = UnixDatagram::bind(home.join("agent.dgram")).unwrap();
        let counts = Arc::clone(&came);
        std::thread::spawn(move || {
            while datagrams.recv(&mut [0; 8]).is_ok() {
                counts.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { daemon, home, port, came }
    }

    /// What a hidden command would do: write to the home, read a key, connect. Each leaves a mark if it succeeds.
    fn payloads(&self) -> Vec<String> {
        let (home, port) = (self.home.display(), self.port);
        vec![
            format!("touch {home}/pwned"),
            format!("echo evil >>{home}/.bashrc"),
            format!("mkdir -p {home}/.local/bin"),
            format!("cp {home}/.ssh/id_ed25519 stolen"),
            format!("base64 {home}/.ssh/id_ed25519 -w0 >stolen64"),
            format!("cat <{home}/.ssh/id_ed25519"),
            format!("exec 9<>/dev/tcp/127.0.0.1/{port}"),
            format!("python3 -c \"import socket;socket.create_connection(('127.0.0.1',{port}),1)\""),
            format!("python3 -c \"import socket;socket.socket(socket.AF_UNIX).connect('{home}/agent.sock')\""),
            format!("python3 -c \"import socket;socket.socketpair(type=2)[0].sendto(b'x','{home}/agent.dgram')\""),
        ]
    }

    /// The marks of what has succeeded.
    fn marks(&self, said: &str) -> Vec<String> {
        let mut marks = Vec::new();
        for path in ["pwned", ".bashrc", ".local/bin"] {
            if self.home.join(path).exists() {
                marks.push(format!("wrote {path}"));
            }
        }
        let work = self.daemon.work();
        for path in ["stolen", "stolen64"] {
            if fs::read_to_string(work.join(path)).is_ok_and(|text| !text.is_empty()) {
                marks.push(format!("read the key into {path}"));
            }
        }
        if said.contains(SECRET) {
            marks.push("printed the key".to_owned());
        }
        if self.came.load(Ordering::SeqCst) > 0 {
            marks.push("connected".to_owned());
        }
        marks
    }
}

/// Ways to put a command where a parser might miss it. `P` is the command.
#[rustfmt::skip]
const FORMS: &[&str] = &[
    // Continued lines.
    "git commit --allow-empty -m \"fix: $\\\n(P)\"", "git commit --allow-empty -m \"`\\\nP`\"", "git commit --allow-empty -m x$\\\n(P)",
    "git commit --allow-empty -m \"${x:-$\\\n(P)}\"", "x=\"$\\\n(P)\" git commit --allow-empty -m x", "x=$\\\n(P); git commit --allow-empty -m x",
    "[[ \"$\\\n(P)\" ]]; git commit --allow-empty -m x", "case \"$\\\n(P)\" in *) git commit --allow-empty -m x;; esac",
    "for i in \"$\\\n(P)\"; do git commit --allow-empty -m x; done", "git commit --allow-empty -F - <<<\"$\\\n(P)\"",
    "git commit --allow-empty -m x >\"$\\\n(P)\"", "git commit --allow-empty -F - <<E\n$\\\n(P)\nE", "git commit --allow-empty -m x;\\\nP", "git commit --allow-empty -m x &\\\n& P",
    "git commit --allow-empty -m x |\\\n| P", "git commit --allow-empty -m \"$(\\\nP)\"", "git commit --allow-empty -m $\\\n'x'; P",
    // Here-documents that end elsewhere.
    "cat <<E\\\nOF\nx\nEOF\nP\ngit commit --allow-empty -m x", "cat <<\"it's\"\nx\nit's\nP\ngit commit --allow-empty -m x", "cat <<'a\\b'\nx\na\\b\nP\ngit commit --allow-empty -m x",
    "cat <<\\\n-E\n\tx\n\tE\nP\ngit commit --allow-empty -m x", "cat <<\\'E\nx\n'E\nP\ngit commit --allow-empty -m x", "cat <<A <<\\\nB\nA\nB\nP\ngit commit --allow-empty -m x",
    "cat <<\\\n<word\nP\ngit commit --allow-empty -m x", "echo $(cat<<E\nE)\nP\nE\n)\ngit commit --allow-empty -m x", "cat <<E\nx\nE\\\n\nP\nE\ngit commit --allow-empty -m x",
    "cat <<$'E'\nx\nE\nP\ngit commit --allow-empty -m x", "cat <<-E\n\t\tE\nP\ngit commit --allow-empty -m x", "cat <<E; git commit --allow-empty -m x\nE\nP", "cat <<\"\"\n\nP\ngit commit --allow-empty -m x",
    "cat <<E\\E\nE\nEE\nP\ngit commit --allow-empty -m x",
    // Programs within programs.
    "awk 'BEGIN{1system(\"P\")}'; git commit --allow-empty -m x", "awk 'BEGIN{print \"x\", # c\n\"y\" | \"P\"}'; git commit --allow-empty -m x", "sed -n '1e P' README; git commit --allow-empty -m x",
    "find . -maxdepth 0 -exec P \\; ; git commit --allow-empty -m x", "xargs -I{} P <<<x; git commit --allow-empty -m x", "git commit --allow-empty -m \"$(awk 'BEGIN{$1system(\"P\")}')\"",
    // Ordinary places.
    "git commit --allow-empty -m x; P", "git commit --allow-empty -m x && P", "P & git commit --allow-empty -m x", "P | git commit --allow-empty -F -", "git commit --allow-empty -m \"$(P)\"",
    "git commit --allow-empty -F <(P)", "git commit --allow-empty -m x > >(P)", "(P); git commit --allow-empty -m x", "{ P; }; git commit --allow-empty -m x", "f() { P; }; f; git commit --allow-empty -m x",
    "trap 'P' EXIT; git commit --allow-empty -m x", "eval 'P'; git commit --allow-empty -m x", "bash -c 'P'; git commit --allow-empty -m x", "git commit --allow-empty -m x\rP", "git commit --allow-empty -m 'x'\nP",
    "git commit --allow-empty -m ${x:=$(P)}", "git commit --allow-empty -m $((a[$(P)]))", "a[$(P)]=1; git commit --allow-empty -m x", "printf -v 'a[$(P)]' x; git commit --allow-empty -m x",
    "[ -v 'a[$(P)]' ]; git commit --allow-empty -m x", "alias g='P'; g; git commit --allow-empty -m x", "coproc P; git commit --allow-empty -m x", "time P; git commit --allow-empty -m x",
    "if P; then git commit --allow-empty -m x; fi", "while P; do break; done; git commit --allow-empty -m x", "select i in \"$(P)\"; do break; done; git commit --allow-empty -m x",
    "GIT_EDITOR='P' git commit --allow-empty", "git -c core.editor='P' commit --allow-empty", "git -c alias.commit='!P' commit", "git -c core.hookspath=. commit --allow-empty -m x; P",
    "env -S 'P'; git commit --allow-empty -m x", "nohup P; git commit --allow-empty -m x", "timeout 5 P; git commit --allow-empty -m x", "command P; git commit --allow-empty -m x",
];

#[test]
fn nothing_hidden_beside_a_grant_gets_through() {
    let target = Target::new();
    let payloads = target.payloads();
    let (mut tried, mut ran, mut refused) = (0, 0, 0);
    for form in FORMS {
        for payload in &payloads {
            let text = form.replace('P', payload);
            tried += 1;
            let request = target.daemon.request(&text, json!({"profile": "safe", "attended": false}));
            match target.daemon.client().ask(&request) {
                Err(ClientError::Refused(TaskRefusal { refusal, .. })) => {
                    // The record names what was refused, and the reason.
                    assert_ne!(refusal.code, RefusalCode::Internal, "{text}");
                    refused += 1;
                }
                Err(other) => panic!("{text}: {other}"),
                Ok(state) => {
                    ran += 1;
                    let state = target.daemon.settled(state.task_id);
                    assert!(state.confinement() >= Some(Confinement::Workspace), "{text}: {:?}", state.confinement());
                    let sandbox = state.sandbox.as_ref().and_then(|s| s.summary.clone()).unwrap_or_default();
                    let alone = state.confinement() == Some(Confinement::ReadOnly) || sandbox.network == Network::None;
                    assert!(alone && sandbox.keys.is_empty() && !sandbox.unix_sockets, "{text}: {sandbox:?}");
                    let said = target.daemon.stdout(state.task_id);
                    assert_eq!(target.marks(&said), [""; 0], "{text}");
                }
            }
        }
    }
    assert_eq!(target.marks(""), [""; 0]);
    assert!(tried >= 500 && refused > 0, "{tried} tried, {ran} ran, {refused} refused");
}

/// A hook is a hidden command that no parser finds: all of them really run, in the sandbox of `git commit`.
#[test]
fn hooks_of_a_granted_commit_stay_in_its_sandbox() {
    let target = Target::new();
    let work = target.daemon.work();
    let hook = work.join(".git/hooks/pre-commit");
    let mut script = "#!/bin/bash\n".to_owned();
    for (n, payload) in target.payloads().iter().enumerate() {
        fs::write(work.join(format!("payload-{n}.sh")), payload).unwrap();
        script.push_str(&format!("bash payload-{n}.sh && echo \"payload {n} got through\"\n"));
    }
    script.push_str("echo hooked > ran\nexit 0\n");
    fs::write(&hook, script).unwrap();
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // An argument that looks like an option must not bring its credentials along.
    fs::write(work.join("-S"), "").unwrap();
    let added = target.daemon.outside(&["git", "-C", work.to_str().unwrap(), "add", "--", "-S"]);
    assert!(added.status.success());
    let state = target.daemon.ask_with("git commit -m x -- -S", json!({"profile": "safe", "attended": false}));
    let state = target.daemon.settled(state.task_id);
    assert_eq!(state.confinement(), Some(Confinement::Workspace));
    let said = [countersign_model::StreamName::Stdout, countersign_model::StreamName::Stderr]
        .map(|s| String::from_utf8_lossy(&target.daemon.output(state.task_id, s)).into_owned())
        .concat();
    assert!(work.join("ran").exists(), "the hook ran: {said}");
    assert_eq!(target.marks(&said), [""; 0], "{said}");
    assert!(!said.contains("got through"), "{said}");
    let shown = target.daemon.csn(&["show", &state.task_id.to_string()]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("sandboxed (workspace): writes the workspace roots") && shown.contains("no network"),
        "{shown}"
    );
}

/// The same payloads succeed where a person allowed them without a sandbox: the proof above can fail.
#[test]
fn the_same_commands_get_through_where_they_run_open() {
    let target = Target::new();
    let payload = target.payloads().join("\n");
    fs::write(target.daemon.work().join("all.sh"), payload).unwrap();
    let task = target.daemon.ask_open("bash all.sh", json!({}));
    let state = target.daemon.settled(task);
    assert_eq!(state.confinement(), Some(Confinement::Shield));
    let marks = target.marks("");
    assert!(marks.len() >= 5, "{marks:?}");
    assert!(Path::new(&target.home.join("pwned")).exists());
}
