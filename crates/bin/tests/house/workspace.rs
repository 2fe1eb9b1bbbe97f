//! Work on a project, confined to it.

use crate::CSN;
use countersign_model::{
    Choice, Confinement, FileChange, Frame, Outcome, RecordContent, Status, StreamName, TaskState,
};
use countersign_testkit::{TestHome, body};
use serde_json::json;
use std::{fs, path::Path};

/// A house with a project, and everything around it that is not the project's.
fn house(config: &str) -> TestHome {
    let house = TestHome::new(CSN);
    let base = house.base().to_owned();
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
    fs::create_dir_all(house.work().join(".git")).unwrap();
    house.configure(config);
    house.start();
    house
}

/// Runs under `full_auto`, and so in a workspace.
fn run(house: &TestHome, text: &str) -> (TaskState, String) {
    let task = house.ask(text);
    let state = house.settled(task);
    assert_eq!(state.confinement(), Some(Confinement::Workspace), "{text}");
    let said = [StreamName::Stdout, StreamName::Stderr].map(|s| house.output(task, s)).concat();
    (state, String::from_utf8_lossy(&said).into_owned())
}

fn works(house: &TestHome, text: &str) -> String {
    let (state, said) = run(house, text);
    assert_eq!(state.outcome(), Some(&Outcome::Exited { code: 0 }), "{text}: {said}");
    said
}

fn fails(house: &TestHome, text: &str) -> String {
    let (state, said) = run(house, text);
    assert_ne!(state.outcome(), Some(&Outcome::Exited { code: 0 }), "{text}: {said}");
    said
}

#[test]
fn a_project_can_be_worked_on() {
    let house = house("");
    fs::remove_dir_all(house.work().join(".git")).unwrap();
    works(
        &house,
        "git init -q -b main . && echo a > a && git add a && git commit -qm one && git log --format=%ae | grep me@",
    );
    works(&house, "mkdir -p x/y && echo 1 > x/y/f && mv x/y/f x/g && ln x/g x/h && chmod 755 x/g && rm -r x");
    let temporary = works(&house, "f=$(mktemp) && echo x > $f && cp /bin/true $TMPDIR/t && $TMPDIR/t && echo $TMPDIR");
    assert!(!Path::new(temporary.trim()).exists(), "it is gone with its task: {temporary}");
    fs::write(
        house.work().join("Makefile"),
        "all:\n\t@printf 'int main(){return 0;}' > m.c && cc -o m m.c && ./m && echo built\n",
    )
    .unwrap();
    assert!(works(&house, "make").contains("built"));
    works(
        &house,
        "python3 -c 'import multiprocessing as m; l = m.Lock(); p = m.Process(target=print, args=(1,)); p.start(); p.join()'",
    );
    works(
        &house,
        "python3 -m venv --without-pip venv && venv/bin/python -c 'import sys; assert sys.prefix != sys.base_prefix'",
    );
    works(
        &house,
        "exec 3<>/dev/ptmx; echo hi > /dev/null; head -c 4 /dev/urandom > r; ulimit -c; sleep 5 & kill $!; wait; true",
    );
    fs::create_dir_all(house.work().join("t")).unwrap();
    fs::write(house.work().join("t/conftest.py"), "").unwrap();
    works(&house, "python3 -m unittest discover -s t || test $? = 5");
}

#[test]
fn cargo_builds_in_a_workspace() {
    let house = house("");
    // The toolchain of whoever runs the tests, found on PATH; its home is elsewhere.
    let real = std::env::var("HOME").unwrap_or_default();
    let rustup = Path::new(&real).join(".rustup");
    if rustup.exists() {
        std::os::unix::fs::symlink(&rustup, house.base().join(".rustup")).unwrap();
    }
    let inherit = json!({"HOME": house.base(), "PATH": std::env::var("PATH").unwrap()});
    let task = house.ask_with(
        "cargo init -q --vcs none --name fresh . && cargo build -q --offline && ./target/debug/fresh",
        json!({"args": {"inherit": inherit}}),
    );
    let state = house.settled(task.task_id);
    let said = String::from_utf8_lossy(&house.output(task.task_id, StreamName::Stderr)).into_owned();
    assert_eq!(state.outcome(), Some(&Outcome::Exited { code: 0 }), "{said}");
    assert_eq!(house.stdout(task.task_id), "Hello, world!\n");
}

#[test]
fn what_is_not_the_projects_is_left_alone() {
    let house = house("");
    let base = house.base().display().to_string();
    fails(&house, &format!("echo evil >> {base}/.bashrc"));
    fails(&house, &format!("echo evil > {base}/.ssh/authorized_keys"));
    fails(&house, &format!("echo evil > {base}/new-file"));
    fails(&house, &format!("echo evil > {base}/other/file"));
    fails(&house, &format!("git config -f {base}/other/.git/config core.pager evil"));
    fails(&house, &format!("rm -r {base}/other/file"));
    fails(&house, &format!("mkdir -p {base}/.local/bin && cp /bin/true {base}/.local/bin/git"));
    fails(&house, &format!("echo evil > {base}/.gitconfig"));
    fails(&house, &format!("echo evil > {base}/.cargo/config.toml"));
    fails(&house, "echo evil > /usr/local/bin/evil");
    fails(&house, "echo evil > /tmp/evil-of-a-workspace");
    works(&house, &format!("mkdir {base}/.cache/fresh && echo x > {base}/.cache/fresh/y"));
    for secret in
        [".ssh/id_rsa", ".aws/credentials", ".npmrc", ".config/gh/hosts.yml", ".cache/huggingface/token", "other/file"]
    {
        let said = fails(&house, &format!("dd if={base}/{secret}"));
        assert!(!said.contains("STOLEN") && said.contains("Permission denied"), "{said}");
    }
    // Its own house is not its business either.
    fs::write(house.work().join("look.sh"), format!("cat {}/ledger.db", house.home().display())).unwrap();
    fails(&house, "bash look.sh");
    assert_eq!(fs::read_to_string(house.base().join(".bashrc")).unwrap(), "# mine\n");
    assert!(!Path::new("/tmp/evil-of-a-workspace").exists());
    let (state, _) = run(&house, &format!("echo evil >> {base}/.bashrc"));
    assert!(state.aftermath.note.unwrap().as_str().contains("it ran in a sandbox (workspace)"));
    // Nobody outside is signalled, and nothing is traced.
    fs::write(house.work().join("kill.sh"), format!("kill -CONT {}", house.daemon_pid())).unwrap();
    let said = fails(&house, "bash kill.sh");
    assert!(said.contains("not permitted"), "{said}");
}

#[test]
fn a_workspace_without_network_reaches_nobody_and_serves_itself() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let python = |what: &str| format!("python3 -c 'import socket; {what}'");
    let open = house("");
    let closed = house("[confine]\nnetwork = \"none\"\n");
    let connect = python(&format!("socket.create_connection((\"127.0.0.1\", {port}))"));
    works(&open, &connect);
    let said = fails(&closed, &connect);
    assert!(said.contains("refused") || said.contains("not permitted"), "{said}");
    assert!(run(&closed, &connect).0.aftermath.note.unwrap().as_str().contains("--network open"));
    // Neither leads to local sockets, nor to sockets of other kinds, which no network keeps apart.
    for other in ["socket.AF_UNIX", "socket.AF_VSOCK"] {
        for house in [&open, &closed] {
            let said = fails(house, &python(&format!("socket.socket({other})")));
            assert!(said.contains("not permitted"), "{other}: {said}");
        }
    }
    works(&closed, &python("a, b = socket.socketpair(); a.send(b\"x\"); assert b.recv(1)"));
    // Tests that start a server and speak with it go on working.
    let serves = "s = socket.create_server((\"127.0.0.1\", 0)); c = socket.create_connection(s.getsockname()); \
                  s.accept()[0].send(b\"x\"); assert c.recv(1) == b\"x\"";
    works(&closed, &python(serves));
}

#[test]
fn the_operator_may_narrow_what_is_granted() {
    let house = house("[confine]\ngranted = \"workspace\"\n");
    let base = house.base().display().to_string();
    let text = format!("touch {base}/evil");
    let asked = house.ask_with(&text, json!({"profile": "safe"}));
    house.client().answer(asked.approval_id().unwrap(), Choice::Once, None).unwrap();
    let state = house.settled(asked.task_id);
    assert_eq!(
        (state.confinement(), state.outcome()),
        (Some(Confinement::Workspace), Some(&Outcome::Exited { code: 1 }))
    );
    drop(house);

    let rules = "[[rules]]\nname = \"builds\"\nanswer = \"allow\"\nverb = \"make\"\nrisks = [\"write\", \"workspace_code\"]\n\
                 confinement = \"workspace\"\nmatch = \"make\"\nnot_match = \"cmake\"\n";
    let house = self::house(rules);
    fs::write(house.work().join("Makefile"), format!("all:\n\ttouch in && touch {base}/out\n")).unwrap();
    let task = house.ask_with("make", json!({"profile": "safe"}));
    assert_ne!(task.status, Status::Queued);
    let state = house.settled(task.task_id);
    assert_eq!(state.confinement(), Some(Confinement::Workspace));
    assert!(house.work().join("in").exists() && state.outcome() != Some(&Outcome::Exited { code: 0 }));
    // What the asker wants may be less, never more.
    let task = house.ask_with("make", json!({"profile": "safe", "confinement": "shield"}));
    assert_eq!(house.settled(task.task_id).confinement(), Some(Confinement::Workspace));
    fs::remove_file(house.work().join("in")).unwrap();
    let task = house.ask_with("make", json!({"profile": "safe", "confinement": "read_only"}));
    assert_eq!(house.settled(task.task_id).confinement(), Some(Confinement::ReadOnly));
    assert!(!house.work().join("in").exists());
}

/// What runs later, for whoever comes, is named when it changes.
#[test]
fn files_that_make_programs_run_are_noted() {
    let house = house("");
    let root = fs::canonicalize(house.work()).unwrap();
    fs::write(house.work().join("package.json"), "{}").unwrap();
    let out = house.csn(&[
        "run",
        "--profile",
        "full_auto",
        "mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; echo '{ }' > package.json; echo y > plain.txt",
    ]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        said.contains(".git/hooks/pre-commit, which makes programs run later") && said.contains("package.json"),
        "{said}"
    );
    assert!(!said.contains("plain.txt"), "{said}");
    let task = house.client().tasks(&body(json!({"limit": 1}))).unwrap().tasks.remove(0).task_id;
    let found: Vec<_> = house
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

/// A work tree's hooks are those of its repository, which lies elsewhere.
#[test]
fn hooks_of_a_repository_elsewhere_are_noted_too() {
    let house = house("");
    let main = house.base().join("main");
    let sh = |text: &str| {
        let out = house.outside(&["bash", "-c", text]);
        assert!(out.status.success(), "{text}: {}", String::from_utf8_lossy(&out.stderr));
    };
    let main = main.to_str().unwrap();
    sh(&format!(
        "git init -q -b main {main} && cd {main} && git commit -q --allow-empty -m x && git worktree add -q ../tree"
    ));
    let with = json!({"args": {"cwd": house.base().join("tree")}});
    let task =
        house.ask_with(&format!("echo x > {main}/.git/hooks/post-checkout; git commit -q --allow-empty -m y"), with);
    let state = house.settled(task.task_id);
    assert_eq!(state.outcome(), Some(&Outcome::Exited { code: 0 }));
    assert!(
        state.aftermath.escapes.iter().any(|p| p.as_str().ends_with("main/.git/hooks/post-checkout")),
        "{:?}",
        state.aftermath.escapes
    );
}

/// Nobody sets the limits of a supervisor.
#[test]
fn a_workspace_does_not_end_its_supervisor_by_a_limit() {
    let house = house("");
    let said = fails(
        &house,
        "python3 -c 'import os, resource; resource.prlimit(os.getppid(), resource.RLIMIT_FSIZE, (0, 0))'",
    );
    assert!(said.contains("not permitted") || said.contains("PermissionError"), "{said}");
}

/// What is approved as confined is saved as confined; and what asks for other rights takes nothing else out of it.
#[test]
fn a_grant_keeps_what_its_card_said() {
    let house = house("");
    let ask = |text: &str, with: serde_json::Value| house.ask_with(text, with);
    let first = ask("make", json!({"profile": "safe", "confinement": "workspace"}));
    let card = house.client().approval(&first.approval_id().unwrap().to_string()).unwrap();
    assert_eq!(card.card.unwrap().confinement, Confinement::Workspace);
    house.client().answer(first.approval_id().unwrap(), Choice::Here, None).unwrap();
    assert_eq!(house.settled(first.task_id).confinement(), Some(Confinement::Workspace));
    let again = ask("make", json!({"profile": "safe"}));
    assert_eq!(house.settled(again.task_id).confinement(), Some(Confinement::Workspace));
    let sudo = ask("sudo -n id", json!({"profile": "safe"}));
    let card = house.client().approval(&sudo.approval_id().unwrap().to_string()).unwrap();
    assert_eq!(card.card.unwrap().confinement, Confinement::None);
    house.client().answer(sudo.approval_id().unwrap(), Choice::Here, None).unwrap();
    assert_eq!(house.settled(sudo.task_id).confinement(), Some(Confinement::None));
    assert_eq!(
        ask("make; sudo -n id", json!({"profile": "safe"})).status,
        Status::Queued,
        "nobody saw the two together"
    );
    let refused = house.refused("sudo -n id", json!({"profile": "safe", "confinement": "read_only"})).0;
    assert_eq!(refused.code, countersign_model::Code::CannotConfine);
}

/// What waits in line runs as the operator wants it when it runs.
#[test]
fn what_is_narrowed_meanwhile_counts() {
    let house = house("[limits]\nrunning = 1\n");
    house.client().grant(&body(json!({"verb": "make", "directory": house.work()}))).unwrap();
    let first = house.ask_with("cat", json!({"args": {"stdin": true}}));
    let waits = house.ask_with("make", json!({"profile": "safe"}));
    assert_eq!(waits.status, Status::Queued);
    house.kill_daemon();
    house.configure("[limits]\nrunning = 1\n[confine]\ngranted = \"workspace\"\n");
    house.start();
    house.client().cancel(first.task_id, None).unwrap();
    assert_eq!(house.settled(waits.task_id).confinement(), Some(Confinement::Workspace));
}
