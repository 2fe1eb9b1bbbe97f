//! The system service: tasks run as the user who asks, and cannot read anything of the service.

use crate::CSN;
use countersign_model::{Statement, TaskState};
use countersign_testkit::system_service::{ANN, BOB, ROOT, TestSystemService, TestUser};
use std::os::unix::fs::MetadataExt as _;

fn out(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A command that is allowed immediately, in the workspace of the user who asks.
fn run(machine: &TestSystemService, user: TestUser, text: &str) -> std::process::Output {
    machine.csn(user, &["run", "--profile", "full_auto", text])
}

fn newest(machine: &TestSystemService, user: TestUser) -> TaskState {
    let listed = machine.csn(user, &["ps", "-a", "--json"]);
    serde_json::from_str(out(&listed).lines().next().expect("a task")).unwrap()
}

#[test]
fn tasks_run_as_the_user_who_asks_and_with_no_other_rights() {
    let Some(machine) = TestSystemService::started(CSN) else { return };
    machine.write(ANN, "a.txt", "ann's\n");
    // Reading without approval, where no other user can read.
    let read = machine.csn(ANN, &["run", "cat a.txt; id -u"]);
    assert_eq!((out(&read), read.status.code()), ("ann's\n5\n".to_owned(), Some(0)), "{}", err(&read));
    // Writing: the new files belong to the user, and so does the temporary directory, which is removed.
    let wrote = run(
        &machine,
        ANN,
        "echo x > made; id -u; id -g; id -G; cat a.txt > /dev/stderr; echo $TMPDIR; stat -c %u $TMPDIR; echo $HOME $USER",
    );
    let said = out(&wrote);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(&lines[..3], ["5", "60", "60"], "{said}{}", err(&wrote));
    assert!(err(&wrote).starts_with("ann's\n"), "its streams can be opened again by name: {}", err(&wrote));
    assert_eq!(lines[4], "5");
    assert!(!std::path::Path::new(lines[3]).exists(), "{} is gone with its task", lines[3]);
    assert_eq!(std::fs::metadata(machine.project(ANN).join("made")).unwrap().uid(), ANN.uid);
    // The task has no capability of the service, whatever its confinement.
    let caps = run(&machine, ANN, "grep Cap /proc/self/status");
    let effective =
        |text: &str| text.lines().filter(|l| !l.starts_with("CapBnd")).all(|l| l.ends_with("0000000000000000"));
    assert!(out(&caps).contains("CapEff") && effective(&out(&caps)), "{}", out(&caps));
    // The terminal belongs to the user; a file tool writes as the user, and not where the user may not.
    let pty = machine.csn(ANN, &["run", "--profile", "full_auto", "--pty", "tty; stat -c %u $(tty)"]);
    assert!(out(&pty).contains("/dev/pts/") && out(&pty).contains("5\r\n"), "{}", out(&pty));
    assert_eq!(machine.csn(ANN, &["file", "--no-wait", "write", "b.txt"]).status.code(), Some(75));
    let task = newest(&machine, ANN);
    assert!(
        machine.csn(ANN, &["approvals", "answer", &task.approval_id().unwrap().to_string(), "once"]).status.success()
    );
    assert_eq!(machine.csn(ANN, &["wait", &task.task_id.to_string()]).status.code(), Some(0));
    assert_eq!(std::fs::metadata(machine.project(ANN).join("b.txt")).unwrap().uid(), ANN.uid);
    // The receipt names the user and what changed.
    let task = {
        run(&machine, ANN, "echo y > seen; sleep 0.1");
        newest(&machine, ANN)
    };
    let receipt = machine.csn(ANN, &["receipts", "show", &task.task_id.to_string(), "--json"]);
    let statement: Statement = serde_json::from_str(&out(&receipt)).unwrap();
    let r = statement.predicate;
    assert_eq!(r.execution.unwrap().uid, Some(ANN.uid));
    assert!(r.touched_files.files.iter().any(|f| f.path.as_str().ends_with("/seen")), "{:?}", r.touched_files);
    // Published in the user's directory, and owned by the user.
    let published = machine.csn(ANN, &["run", "--profile", "full_auto", "--workspace", ".", "echo published"]);
    assert!(published.status.success(), "{}", err(&published));
    let runs = machine.project(ANN).join(".runs");
    while !runs.exists() {
        std::thread::yield_now();
    }
    assert_eq!(std::fs::metadata(runs).unwrap().uid(), ANN.uid);
    // Session folders are created as the user: a home that the user cannot write is reported.
    let session = machine.csn(ANN, &["sessions", "open", "--in", "."]);
    assert!(
        err(&session).contains("/usr/games/.local/share/countersign") && err(&session).contains("cannot be created"),
        "{}",
        err(&session)
    );
}

#[test]
fn tasks_can_read_nothing_of_the_system_service() {
    let Some(machine) = TestSystemService::started(CSN) else { return };
    let home = machine.home().display().to_string();
    // Even without a sandbox the task reads nothing: another user owns the home.
    machine.write(ANN, "steal.sh", &format!("cat {home}/keys/signing.key; cat {home}/ledger.db; ls {home}; touch {home}/x; kill -9 $(pgrep -o -f 'csn up')\n"));
    let asked = machine.csn(ANN, &["run", "--no-wait", "--confinement", "shield", "bash steal.sh"]);
    assert_eq!(asked.status.code(), Some(75), "{}", err(&asked));
    let task = newest(&machine, ANN);
    let approval = task.approval_id().unwrap().to_string();
    // No other user answers for them, not even root.
    for other in [BOB, ROOT] {
        assert!(!machine.csn(other, &["approvals", "answer", &approval, "once"]).status.success());
    }
    assert!(machine.csn(ANN, &["approvals", "answer", &approval, "once"]).status.success());
    let id = task.task_id.to_string();
    machine.csn(ANN, &["wait", &id]);
    let said = machine.csn(ANN, &["logs", &id]);
    let both = out(&said) + &err(&said);
    assert_eq!(
        both.matches("Permission denied").count() + both.matches("Operation not permitted").count(),
        5,
        "{both}"
    );
    // The gate denies it by name before the kernel has to.
    let named = run(&machine, ANN, &format!("cat {home}/ledger.db"));
    assert_eq!(named.status.code(), Some(77));
    // Only root may stop the service and manage its keys and tokens.
    for args in [&["down"][..], &["keys", "rotate"], &["token", "create", "--person", "--name", "x", "--scope", "run"]]
    {
        assert!(!machine.csn(ANN, args).status.success(), "{args:?}");
    }
    assert!(machine.csn(ROOT, &["keys", "rotate"]).status.success());
    let refused = run(&machine, ROOT, "id");
    assert!(!refused.status.success() && err(&refused).contains("runs nothing as"), "{}", err(&refused));
}

#[test]
fn users_of_one_machine_are_separated() {
    let Some(machine) = TestSystemService::started(CSN) else { return };
    machine.write(ANN, "secret.txt", "of ann\n");
    assert!(run(&machine, ANN, "cat secret.txt; sleep 0").status.success());
    let task = newest(&machine, ANN);
    let id = task.task_id.to_string();
    assert_eq!(out(&machine.csn(BOB, &["ps", "-a", "--json"])), "");
    for args in [&["show", &id][..], &["logs", &id], &["receipts", "show", &id], &["cancel", &id], &["export", &id]] {
        assert!(!machine.csn(BOB, args).status.success(), "{args:?}");
    }
    // Neither in the other's directory, nor by claiming to be the other's task.
    let project = machine.project(ANN).display().to_string();
    let there = machine.csn(BOB, &["run", "--profile", "full_auto", "--cwd", &project, "cat secret.txt"]);
    assert!(!there.status.success() && err(&there).contains("does not exist"), "{}", err(&there));
    let marked = machine.csn_with(BOB, &["run", "--no-wait", "id -u"], &[("COUNTERSIGN_TASK", &id)]);
    assert_eq!(out(&machine.csn(ANN, &["ps", "-a", "--json"])).lines().count(), 1, "{}{}", out(&marked), err(&marked));
    let read = machine.csn_with(BOB, &["logs", &id], &[("COUNTERSIGN_TASK", &id)]);
    assert!(!read.status.success() && !out(&read).contains("of ann"));
    // A grant of one user does not cover the other.
    assert!(machine.csn(ANN, &["grants", "add", "--verb", "touch", "--anywhere"]).status.success());
    assert_eq!(machine.csn(BOB, &["run", "--unattended", "touch t"]).status.code(), Some(77));
    assert!(machine.csn(ANN, &["run", "--unattended", "touch t"]).status.success());
    // A token that root creates for one of them runs as that user only.
    let token = machine.csn(
        ROOT,
        &[
            "token",
            "create",
            "--person",
            "--name",
            "of-bob",
            "--principal",
            BOB.name,
            "--scope",
            "run",
            "--scope",
            "observe",
        ],
    );
    assert!(token.status.success(), "{}", err(&token));
    let none = machine.csn(
        ROOT,
        &["token", "create", "--person", "--name", "y", "--principal", "nobody-like-this", "--scope", "run"],
    );
    assert!(!none.status.success() && err(&none).contains("no user"), "{}", err(&none));
}

#[test]
fn tasks_of_other_users_survive_the_daemon_and_end_with_their_whole_tree() {
    let Some(machine) = TestSystemService::started(CSN) else { return };
    let started = machine.csn(
        ANN,
        &[
            "run",
            "--background",
            "--profile",
            "full_auto",
            "(setsid sleep 271828 &); echo began; while ! test -e go; do sleep 0.02; done; echo done",
        ],
    );
    let id = out(&started).trim().to_owned();
    machine.kill_daemon();
    machine.start();
    machine.write(ANN, "go", "");
    let waited = machine.csn(ANN, &["wait", &id]);
    assert_eq!(waited.status.code(), Some(0), "{}", err(&waited));
    assert_eq!(out(&machine.csn(ANN, &["logs", &id])), "began\ndone\n");
    let cancelled = machine.csn(
        ANN,
        &[
            "run",
            "--background",
            "--profile",
            "full_auto",
            "(setsid sleep 271829 &); trap '' TERM; while :; do sleep 1; done",
        ],
    );
    let id = out(&cancelled).trim().to_owned();
    assert!(machine.csn(ANN, &["signal", &id, "KILL"]).status.success());
    assert_eq!(machine.csn(ANN, &["wait", &id]).status.code(), Some(137));
    let left = |number: &str| {
        let mut all = std::fs::read_dir("/proc").unwrap().flatten();
        all.any(|p| std::fs::read(p.path().join("cmdline")).is_ok_and(|c| c == format!("sleep\0{number}\0").as_bytes()))
    };
    assert!(!left("271828") && !left("271829"), "nothing is left behind");
    let verified = machine.csn(ROOT, &["verify"]);
    assert!(err(&verified).contains("sudo -u countersign csn verify"), "{}", err(&verified));
}

/// A task cannot read the service's open files through the service, nor through what the kernel shows of it.
#[test]
fn no_task_reads_the_system_service_through_itself() {
    let Some(machine) = TestSystemService::started(CSN) else { return };
    let project = machine.project(ANN);
    std::os::unix::fs::symlink("/proc/self/fd", project.join("fds")).unwrap();
    for script in ["/proc/self/maps", "/proc/self/environ", "/dev/fd/3", "fds/4"] {
        let asked = machine.csn(ANN, &["run", "--no-wait", &format!("bash {script}")]);
        assert_eq!(asked.status.code(), Some(75), "{script}: {}", err(&asked));
        let approval = newest(&machine, ANN).approval_id().unwrap().to_string();
        let shown = machine.csn(ANN, &["approvals", "show", &approval, "--json"]);
        let said = out(&shown);
        assert!(shown.status.success() && !said.contains("r--p") && !said.contains("COUNTERSIGN_HOME="), "{said}");
    }
    let there = machine.csn(ANN, &["run", "--profile", "full_auto", "--cwd", "/proc/self/cwd", "pwd"]);
    assert!(!there.status.success() && err(&there).contains("does not exist"), "{}", err(&there));
}

/// Keys in the session keyring of one user are not in another's.
#[test]
fn users_share_no_keyring() {
    let Some(machine) = TestSystemService::started(CSN) else { return };
    // KEYCTL_GET_KEYRING_ID of the session keyring.
    let ask = "python3 -c 'import ctypes, platform; n = {\"x86_64\": 250, \"aarch64\": 219}[platform.machine()]; \
               print(ctypes.CDLL(None).syscall(n, 0, -3, 0))'";
    let id = |user: TestUser| {
        machine.write(user, "key.sh", &format!("{ask}\n"));
        assert_eq!(
            machine.csn(user, &["run", "--no-wait", "--confinement", "shield", "bash key.sh"]).status.code(),
            Some(75)
        );
        let task = newest(&machine, user);
        let approval = task.approval_id().unwrap().to_string();
        assert!(machine.csn(user, &["approvals", "answer", &approval, "once"]).status.success());
        machine.csn(user, &["wait", &task.task_id.to_string()]);
        out(&machine.csn(user, &["logs", &task.task_id.to_string()])).trim().parse::<i64>().unwrap()
    };
    let (ann, bob) = (id(ANN), id(BOB));
    assert!(ann > 0 && bob > 0 && ann != bob, "{ann} {bob}");
}

#[test]
fn the_system_service_runs_nothing_as_its_own_user() {
    let Some(machine) = TestSystemService::started(CSN) else { return };
    let token = machine.csn(
        ROOT,
        &[
            "token",
            "create",
            "--person",
            "--name",
            "own",
            "--principal",
            "daemon",
            "--scope",
            "run",
            "--scope",
            "observe",
        ],
    );
    let token = out(&token);
    let listened = machine.csn(ROOT, &["up", "--tcp", "127.0.0.1:0"]);
    assert!(listened.status.code().is_some());
    let body = r#"{"tool":"shell","args":{"command":"id","cwd":"/tmp"}}"#;
    let bearer = format!("Authorization: Bearer {}", token.trim());
    let asked = machine.run_as(
        ROOT,
        &[
            "curl",
            "-s",
            "--unix-socket",
            machine.socket().to_str().unwrap(),
            "-H",
            &bearer,
            "-d",
            body,
            "http://csn/tasks",
        ],
    );
    assert!(out(&asked).contains("runs nothing as its own user"), "{}{}", out(&asked), err(&asked));
}
