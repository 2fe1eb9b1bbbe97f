//! What the kernel holds a task to: a program that tries everything, under the names of what only reads.

use crate::CSN;
use countersign_model::{Code, Confinement, Frame, Limited, Outcome, Record, Status, What};
use countersign_testkit::House;
use serde_json::{Value, json};
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

/// The program that tries to get out, built beside the tests.
fn escape() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    me.parent().unwrap().with_file_name("examples").join("escape")
}

/// A command outside of any house.
#[expect(clippy::disallowed_methods, reason = "tests drive real programs")]
fn command(program: impl AsRef<std::ffi::OsStr>) -> std::process::Command {
    std::process::Command::new(program)
}

/// A house with everything to aim at: directories to write to, keys to read, processes to signal.
struct Range {
    house: House,
    victim: Child,
    targets: String,
    /// Where programs are found that are not what their names say.
    bin: PathBuf,
    setuid: Option<PathBuf>,
}

impl Drop for Range {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
        if let Some(program) = &self.setuid {
            let _ = fs::remove_file(program);
        }
    }
}

/// Something that can be written to, in every way.
fn aim(directory: &Path) {
    fs::create_dir_all(directory.join("empty")).unwrap();
    fs::write(directory.join("victim"), "victim\n").unwrap();
    fs::copy(escape(), directory.join("program")).unwrap();
    fs::set_permissions(directory.join("victim"), fs::Permissions::from_mode(0o644)).unwrap();
}

/// Everything about a directory that a task could have changed.
fn seen(directory: &Path) -> Vec<String> {
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

impl Range {
    fn new(user: Option<u32>) -> Self {
        let house = match user {
            Some(user) => House::of_user(CSN, user),
            None => House::new(CSN),
        };
        let base = house.base().to_owned();
        let (work, other, bin) = (house.work(), base.join("other"), base.join(".local/bin"));
        for directory in [&work, &other, &base] {
            aim(directory);
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
        targets += &format!("read.ledger={}\n", house.home().join("ledger.db").display());
        targets += &format!("read.key={}\n", house.home().join("keys/digest.key").display());
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
        house.own();
        Self { house, victim, targets, bin, setuid }
    }

    fn start(&mut self, mode: &str) {
        self.house.start();
        self.targets += &format!("pid.daemon={}\n", self.house.daemon_pid());
        self.mode(mode);
    }

    fn mode(&self, mode: &str) {
        fs::write(self.bin.join("escape.targets"), format!("{}mode={mode}\n", self.targets)).unwrap();
        self.house.own();
    }

    /// Puts the escaping program into the place of another.
    fn name(&self, program: &str) {
        let link = self.bin.join(program);
        if !link.exists() {
            symlink(self.bin.join("escape"), link).unwrap();
        }
    }

    /// Has the house run a command, with programs from where anything could be.
    fn run(&self, text: &str, more: &[&str]) -> (i32, String, String) {
        let path = format!("{}:{}", self.bin.display(), std::env::var("PATH").unwrap());
        let args = [&["run", "--unattended"], more, &[text]].concat();
        let out = self.house.csn_with(&args, &[("PATH", &path)]);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (out.status.code().unwrap_or(-1), text(out.stdout), text(out.stderr))
    }
}

/// The commands that are shown as examples of what only reads, one for each program and phrase.
fn examples() -> Vec<String> {
    let of =
        |table: &str| table.lines().filter_map(|l| l.strip_prefix("  yes ")).map(str::to_owned).collect::<Vec<_>>();
    [of(PHRASES), of(GIT_PHRASES)].concat()
}

fn nothing_gets_out(user: Option<u32>) {
    let mut range = Range::new(user);
    range.start("everything");
    for program in ["seq", "xargs"] {
        range.name(program);
    }
    let before: Vec<_> = [range.house.work(), range.house.base().join("other")].iter().map(|d| seen(d)).collect();
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
    // Some are builtins, or stand behind words that are not these programs.
    assert!(ran > 100, "only {ran} ran; not these:\n{}", not.join("\n"));
    let after: Vec<_> = [range.house.work(), range.house.base().join("other")].iter().map(|d| seen(d)).collect();
    assert_eq!(before, after, "nothing of it has changed");
    assert!(range.victim.try_wait().unwrap().is_none(), "it still runs");
    let left = fs::read_dir(range.house.home().join("tasks")).unwrap().flatten();
    let left = left.flat_map(|shard| fs::read_dir(shard.path()).unwrap().flatten());
    assert!(left.map(|task| task.path().join("tmp")).all(|tmp| !tmp.exists()), "temporary files are gone");
}

#[test]
fn nothing_gets_out_of_a_read_only_task() {
    nothing_gets_out(None);
}

#[test]
fn nothing_gets_out_of_a_read_only_task_of_an_ordinary_user() {
    if is_root() {
        nothing_gets_out(Some(NOBODY));
    }
}

/// The suite can fail: without confinement the same program gets nearly everywhere.
#[test]
fn without_confinement_the_same_program_gets_out() {
    let range = Range::new(None);
    fs::create_dir_all(range.house.home().join("keys")).unwrap();
    fs::write(range.house.home().join("keys/digest.key"), "key").unwrap();
    range.mode("everything");
    let mut open = command(range.bin.join("escape"));
    let out = open.current_dir(range.house.work()).env("TMPDIR", range.house.base()).output().unwrap();
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
        "pair that takes addresses",
        "memfd",
        "a program that it has written",
    ] {
        assert!(out.contains(&format!("ESCAPED {what}")), "{what}:\n{out}");
    }
    let escaped: u32 = out.split(" escaped ").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert!(escaped > 120, "{escaped}");
}

#[test]
fn what_a_read_only_task_uses_is_bounded() {
    let mut range = Range::new(None);
    range.start("forks");
    range.name("ls");
    let (code, _, err) = range.run("ls", &[]);
    assert!(code == 124 && err.contains("too many processes"), "{code} {err}");
    range.mode("memory");
    let (code, _, err) = range.run("ls", &[]);
    assert!(code == 124 && err.contains("memory limit"), "{code} {err}");
    range.mode("disk");
    let (_, out, err) = range.run("ls", &[]);
    let wrote: u64 = out.trim().strip_prefix("wrote ").map_or(0, |n| n.parse().unwrap());
    assert!(wrote <= 256, "{out} {err}");
    range.mode("output");
    let (code, out, _) = range.run("ls", &["--json"]);
    assert_eq!(code, 0);
    let records = out.lines().map(|l| Record::parse(l).unwrap().what);
    let closed = records.filter_map(|w| match w {
        What::Frame(Frame::Closed { streams, .. }) => Some(streams),
        _ => None,
    });
    let total = closed.last().unwrap().into_values().next().unwrap();
    assert!(total.bytes <= 258 << 20 && total.bytes + total.dropped == 2 << 30, "{total:?}");
}
