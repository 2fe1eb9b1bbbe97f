//! Work on a project, sandboxed in it.

use crate::CSN;
use countersign_model::{
    Choice, Confinement, FileChange, Frame, Outcome, RecordContent, Status, StreamName, TaskState,
};
use countersign_testkit::{TestHome, body};
use serde_json::json;
use std::{fs, path::Path};

/// A daemon with a project, and everything around it that does not belong to the project.
fn daemon(config: &str) -> TestHome {
    let daemon = TestHome::new(CSN);
    let base = daemon.base().to_owned();
    for (path, text) in [
        (".bashrc", "# mine\n"),
        (".ssh/id_rsa", "STOLEN\n"),
        (".ssh/config", "Host *\n"),
        (".aws/credentials", "STOLEN\n"),
        (".npmrc", "//registry/:_authToken=STOLEN\n"),
        (".config/gh/hosts.yml", "STOLEN\n"),
        (".cache/huggingface/token", "STOLEN\n"),
        ("other/.git/config", "[core]\n"),
        ("other/file", "STOLEN\n"),
        (".gitconfig", "[user]\n\tname = Me\n\temail = me@example.org\n"),
        (".cargo/config.toml", "# nothing\n"),
    ] {
        fs::create_dir_all(base.join(path).parent().unwrap()).unwrap();
        fs::write(base.join(path), text).unwrap();
    }
    fs::create_dir_all(daemon.work().join(".git")).unwrap();
    daemon.configure(config);
    daemon.start();
    daemon
}

/// Runs under profile `full_auto`, and so in a workspace sandbox.
fn run(daemon: &TestHome, text: &str) -> (TaskState, String) {
    let task = daemon.ask(text);
    let state = daemon.settled(task);
    assert_eq!(state.confinement(), Some(Confinement::Workspace), "{text}");
    let said = [StreamName::Stdout, StreamName::Stderr].map(|s| daemon.output(task, s)).concat();
    (state, String::from_utf8_lossy(&said).into_owned())
}

fn works(daemon: &TestHome, text: &str) -> String {
    let (state, said) = run(daemon, text);
    assert_eq!(state.outcome(), Some(&Outcome::Exited { code: 0 }), "{text}: {said}");
    said
}

fn fails(daemon: &TestHome, text: &str) -> String {
    let (state, said) = run(daemon, text);
    assert_ne!(state.outcome(), Some(&Outcome::Exited { code: 0 }), "{text}: {said}");
    said
}

#[test]
fn a_project_can_be_worked_on() {
    let daemon = daemon("");
    fs::remove_dir_all(daemon.work().join(".git")).unwrap();
    works(
        &daemon,
        "git init -q -b main . && echo a > a && git add a && git commit -qm one && git log --format=%ae | grep me@",
    );
    works(&daemon, "mkdir -p x/y && echo 1 > x/y/f && mv x/y/f x/g && ln x/g x/h && chmod 755 x/g && rm -r x");
    let temporary = works(&daemon, "f=$(mktemp) && echo x > $f && cp /bin/true $TMPDIR/t && $TMPDIR/t && echo $TMPDIR");
    assert!(!Path::new(temporary.trim()).exists(), "it is gone with its task: {temporary}");
    fs::write(
        daemon.work().join("Makefile"),
        "all:\n\t@printf 'int main(){return 0;}' > m.c && cc -o m m.c && ./m && echo built\n",
    )
    .unwrap();
    assert!(works(&daemon, "make").contains("built"));
    works(
        &daemon,
        "python3 -c 'import multiprocessing as m; l = m.Lock(); p = m.Process(target=print, args=(1,)); p.start(); p.join()'",
    );
    works(
        &daemon,
        "python3 -m venv --without-pip venv && venv/bin/python -c 'import sys; assert sys.prefix != sys.base_prefix'",
    );
    works(
        &daemon,
        "exec 3<>/dev/ptmx; echo hi > /dev/null; head -c 4 /dev/urandom > r; ulimit -c; sleep 5 & kill $!; wait; true",
    );
    fs::create_dir_all(daemon.work().join("t")).unwrap();
    fs::write(daemon.work().join("t/conftest.py"), "").unwrap();
    works(&daemon, "python3 -m unittest discover -s t || test $? = 5");
}

#[test]
fn cargo_builds_in_a_workspace() {
    let daemon = daemon("");
    // The toolchain of the user who runs the tests, found on PATH; its home is elsewhere.
    let real = std::env::var("HOME").unwrap_or_default();
    let rustup = Path::new(&real).join(".rustup");
    if rustup.exists() {
        std::os::unix::fs::symlink(&rustup, daemon.base().join(".rustup")).unwrap();
    }
    let inherit = json!({"HOME": daemon.base(), "PATH": std::env::var("PATH").unwrap()});
    let task = daemon.ask_with(
        "cargo init -q --vcs none --name fresh . && cargo build -q --offline && ./target/debug/fresh",
        json!({"args": {"inherit": inherit}}),
    );
    let state = daemon.settled(task.task_id);
    let said = String::from_utf8_lossy(&daemon.output(task.task_id, StreamName::Stderr)).into_owned();
    assert_eq!(state.outcome(), Some(&Outcome::Exited { code: 0 }), "{said}");
    assert_eq!(daemon.stdout(task.task_id), "Hello, world!\n");
}

#[test]
fn a_workspace_task_changes_nothing_outside_the_project() {
    let daemon = daemon("");
    let base = daemon.base().display().to_string();
    fails(&daemon, &format!("echo evil >> {base}/.bashrc"));
    fails(&daemon, &format!("echo evil > {base}/.ssh/authorized_keys"));
    fails(&daemon, &format!("echo evil > {base}/new-file"));
    fails(&daemon, &format!("echo evil > {base}/other/file"));
    fails(&daemon, &format!("git config -f {base}/other/.git/config core.pager evil"));
    fails(&daemon, &format!("rm -r {base}/other/file"));
    fails(&daemon, &format!("mkdir -p {base}/.local/bin && cp /bin/true {base}/.local/bin/git"));
    fails(&daemon, &format!("echo evil > {base}/.gitconfig"));
    fails(&daemon, &format!("echo evil > {base}/.cargo/config.toml"));
    fails(&daemon, "echo evil > /usr/local/bin/evil");
    fails(&daemon, "echo evil > /tmp/evil-of-a-workspace");
    works(&daemon, &format!("mkdir {base}/.cache/fresh && echo x > {base}/.cache/fresh/y"));
    for secret in
        [".ssh/id_rsa", ".aws/credentials", ".npmrc", ".config/gh/hosts.yml", ".cache/huggingface/token", "other/file"]
    {
        let said = fails(&daemon, &format!("dd if={base}/{secret}"));
        assert!(!said.contains("STOLEN") && said.contains("Permission denied"), "{said}");
    }
    // The task cannot reach its own daemon's home either.
    fs::write(daemon.work().join("look.sh"), format!("cat {}/ledger.db", daemon.home().display())).unwrap();
    fails(&daemon, "bash look.sh");
    assert_eq!(fs::read_to_string(daemon.base().join(".bashrc")).unwrap(), "# mine\n");
    assert!(!Path::new("/tmp/evil-of-a-workspace").exists());
    let (state, _) = run(&daemon, &format!("echo evil >> {base}/.bashrc"));
    assert!(state.aftermath.note.unwrap().as_str().contains("this task ran sandboxed (workspace)"));
    // The task can signal and trace no process outside.
    fs::write(daemon.work().join("kill.sh"), format!("kill -CONT {}", daemon.daemon_pid())).unwrap();
    let said = fails(&daemon, "bash kill.sh");
    assert!(said.contains("not permitted"), "{said}");
}

#[test]
fn a_workspace_without_network_reaches_only_its_own_loopback() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let python = |what: &str| format!("python3 -c 'import socket; {what}'");
    let open = daemon("");
    let closed = daemon("[confine]\nnetwork = \"none\"\n");
    let connect = python(&format!("socket.create_connection((\"127.0.0.1\", {port}))"));
    works(&open, &connect);
    let said = fails(&closed, &connect);
    assert!(said.contains("refused") || said.contains("not permitted"), "{said}");
    assert!(run(&closed, &connect).0.aftermath.note.unwrap().as_str().contains("--network open"));
    // Neither allows local sockets or sockets of other kinds, which no network namespace separates.
    for other in ["socket.AF_UNIX", "socket.AF_VSOCK"] {
        for daemon in [&open, &closed] {
            let said = fails(daemon, &python(&format!("socket.socket({other})")));
            assert!(said.contains("not permitted"), "{other}: {said}");
        }
    }
    works(&closed, &python("a, b = socket.socketpair(); a.send(b\"x\"); assert b.recv(1)"));
    // Tests that start a server and connect to it keep working.
    let serves = "s = socket.create_server((\"127.0.0.1\", 0)); c = socket.create_connection(s.getsockname()); \
                  s.accept()[0].send(b\"x\"); assert c.recv(1) == b\"x\"";
    works(&closed, &python(serves));
}

#[test]
fn the_operator_may_narrow_what_is_granted() {
    let daemon = daemon("[confine]\ngranted = \"workspace\"\n");
    let base = daemon.base().display().to_string();
    let text = format!("touch {base}/evil");
    let asked = daemon.ask_with(&text, json!({"profile": "safe"}));
    daemon.client().answer(asked.approval_id().unwrap(), Choice::Once, None).unwrap();
    let state = daemon.settled(asked.task_id);
    assert_eq!(
        (state.confinement(), state.outcome()),
        (Some(Confinement::Workspace), Some(&Outcome::Exited { code: 1 }))
    );
    drop(daemon);

    let rules = "[[rules]]\nname = \"builds\"\nanswer = \"allow\"\nverb = \"make\"\nrisks = [\"write\", \"workspace_code\"]\n\
                 confinement = \"workspace\"\nmatch = \"make\"\nnot_match = \"cmake\"\n";
    let daemon = self::daemon(rules);
    fs::write(daemon.work().join("Makefile"), format!("all:\n\ttouch in && touch {base}/out\n")).unwrap();
    let task = daemon.ask_with("make", json!({"profile": "safe"}));
    assert_ne!(task.status, Status::Queued);
    let state = daemon.settled(task.task_id);
    assert_eq!(state.confinement(), Some(Confinement::Workspace));
    assert!(daemon.work().join("in").exists() && state.outcome() != Some(&Outcome::Exited { code: 0 }));
    // A request may ask for a narrower sandbox, never for a wider one.
    let task = daemon.ask_with("make", json!({"profile": "safe", "confinement": "shield"}));
    assert_eq!(daemon.settled(task.task_id).confinement(), Some(Confinement::Workspace));
    fs::remove_file(daemon.work().join("in")).unwrap();
    let task = daemon.ask_with("make", json!({"profile": "safe", "confinement": "read_only"}));
    assert_eq!(daemon.settled(task.task_id).confinement(), Some(Confinement::ReadOnly));
    assert!(!daemon.work().join("in").exists());
}

/// A file that makes other programs run commands later is named when it changes.
#[test]
fn changed_escape_files_are_reported() {
    let daemon = daemon("");
    let root = fs::canonicalize(daemon.work()).unwrap();
    fs::write(daemon.work().join("package.json"), "{}").unwrap();
    let out = daemon.csn(&[
        "run",
        "--profile",
        "full_auto",
        "mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; echo '{ }' > package.json; echo y > plain.txt",
    ]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        said.contains(".git/hooks/pre-commit, which makes other programs run commands later")
            && said.contains("package.json"),
        "{said}"
    );
    assert!(!said.contains("plain.txt"), "{said}");
    let task = daemon.client().tasks(&body(json!({"limit": 1}))).unwrap().tasks.remove(0).task_id;
    let found: Vec<_> = daemon
        .records(task)
        .into_iter()
        .filter_map(|r| match r.what {
            RecordContent::Frame(Frame::WriteDetected { path, change, escape, .. }) => {
                Some((path.as_str().to_owned(), change, escape))
            }
            _ => None,
        })
        .collect();
    let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
    let expect =
        [(at(".git/hooks/pre-commit"), FileChange::Created, true), (at("package.json"), FileChange::Modified, true)];
    assert_eq!(found, expect);
}

/// The hooks of a work tree belong to its repository, which is elsewhere.
#[test]
fn changed_hooks_of_a_repository_elsewhere_are_reported() {
    let daemon = daemon("");
    let main = daemon.base().join("main");
    let sh = |text: &str| {
        let out = daemon.outside(&["bash", "-c", text]);
        assert!(out.status.success(), "{text}: {}", String::from_utf8_lossy(&out.stderr));
    };
    let main = main.to_str().unwrap();
    sh(&format!(
        "git init -q -b main {main} && cd {main} && git commit -q --allow-empty -m x && git worktree add -q ../tree"
    ));
    let with = json!({"args": {"cwd": daemon.base().join("tree")}});
    let task =
        daemon.ask_with(&format!("echo x > {main}/.git/hooks/post-checkout; git commit -q --allow-empty -m y"), with);
    let state = daemon.settled(task.task_id);
    assert_eq!(state.outcome(), Some(&Outcome::Exited { code: 0 }));
    assert!(
        state.aftermath.escapes.iter().any(|p| p.as_str().ends_with("main/.git/hooks/post-checkout")),
        "{:?}",
        state.aftermath.escapes
    );
}

/// A task cannot set the limits of its supervisor.
#[test]
fn a_workspace_task_cannot_end_its_supervisor_with_a_limit() {
    let daemon = daemon("");
    let said = fails(
        &daemon,
        "python3 -c 'import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (0, 0))'",
    );
    assert!(said.contains("not permitted") || said.contains("PermissionError"), "{said}");
}

/// A command that is approved as sandboxed is saved as sandboxed; a command that needs other privileges changes nothing
#[test]
fn a_grant_keeps_the_sandbox_of_its_card() {
    let daemon = daemon("");
    let ask = |text: &str, with: serde_json::Value| daemon.ask_with(text, with);
    let first = ask("make", json!({"profile": "safe", "confinement": "workspace"}));
    let card = daemon.client().approval(&first.approval_id().unwrap().to_string()).unwrap();
    assert_eq!(card.card.unwrap().confinement, Confinement::Workspace);
    daemon.client().answer(first.approval_id().unwrap(), Choice::Here, None).unwrap();
    assert_eq!(daemon.settled(first.task_id).confinement(), Some(Confinement::Workspace));
    let again = ask("make", json!({"profile": "safe"}));
    assert_eq!(daemon.settled(again.task_id).confinement(), Some(Confinement::Workspace));
    let sudo = ask("sudo -n id", json!({"profile": "safe"}));
    let card = daemon.client().approval(&sudo.approval_id().unwrap().to_string()).unwrap();
    assert_eq!(card.card.unwrap().confinement, Confinement::None);
    daemon.client().answer(sudo.approval_id().unwrap(), Choice::Here, None).unwrap();
    assert_eq!(daemon.settled(sudo.task_id).confinement(), Some(Confinement::None));
    assert_eq!(
        ask("make; sudo -n id", json!({"profile": "safe"})).status,
        Status::Queued,
        "nobody saw the two together"
    );
    let refused = daemon.refused("sudo -n id", json!({"profile": "safe", "confinement": "read_only"})).0;
    assert_eq!(refused.code, countersign_model::RefusalCode::CannotConfine);
}

/// A queued task runs in the sandbox that the operator has configured when it starts.
#[test]
fn a_sandbox_that_was_narrowed_while_queued_counts() {
    let daemon = daemon("[limits]\nrunning = 1\n");
    daemon.client().grant(&body(json!({"verb": "make", "directory": daemon.work()}))).unwrap();
    let first = daemon.ask_with("cat", json!({"args": {"stdin": true}}));
    let waits = daemon.ask_with("make", json!({"profile": "safe"}));
    assert_eq!(waits.status, Status::Queued);
    daemon.kill_daemon();
    daemon.configure("[limits]\nrunning = 1\n[confine]\ngranted = \"workspace\"\n");
    daemon.start();
    daemon.client().cancel(first.task_id, None).unwrap();
    assert_eq!(daemon.settled(waits.task_id).confinement(), Some(Confinement::Workspace));
}
