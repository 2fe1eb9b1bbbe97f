//! The differential proof: real bash runs generated commands in a directory of its own, with a PATH that holds only
//! programs that note what they were given. Every program that bash starts is an occurrence of the plan, with the
//! same words where the plan says literal and the same directory where it says known; or the plan said that it could
//! not read this.
//!
//! `CSN_DIFFERENTIAL` says how many commands, `CSN_SEED` repeats a run.

use crate::generate::{Random, mutate, script};
use countersign_model::{Directory, Occurrence, Plan, Value, Word, glob_matches};
use countersign_policy::{Surroundings, read_text};
use serde::Deserialize;
use std::{
    fs, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

const SAMPLE: &str = include_str!("data/gate-sample.jsonl");
/// Programs that only note.
pub(crate) const PROGRAMS: &[&str] =
    &["alpha", "beta", "gamma", "delta", "cat", "ls", "grep", "git", "rm", "make", "head", "sort"];
/// Programs that really run their commands.
const REAL: &[&str] = &["bash", "sh", "env", "nice", "timeout", "nohup", "xargs", "find", "stdbuf", "setsid"];

#[derive(Deserialize)]
struct Note {
    program: String,
    words: Vec<String>,
    cwd: String,
}

/// A directory to run in: `bin` with the programs, `work`, `home`, and the log.
struct Jail {
    dir: tempfile::TempDir,
    root: PathBuf,
}

impl Jail {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let stub = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples/stub");
        for name in ["bin", "work", "work/sub", "work/sub/deep", "home", "home/x"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        for name in ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt"] {
            fs::write(root.join("work").join(name), "x\n").unwrap();
        }
        for name in PROGRAMS {
            fs::copy(&stub, root.join("bin").join(name)).expect("the stub is built with the tests, as an example");
        }
        for name in REAL {
            let real = ["/bin", "/usr/bin"].iter().map(|d| Path::new(d).join(name)).find(|p| p.exists());
            if let Some(real) = real {
                std::os::unix::fs::symlink(real, root.join("bin").join(name)).unwrap();
            }
        }
        fs::write(root.join("log"), "").unwrap();
        // Whoever runs the tests, what they run here is nobody.
        if rustix::process::geteuid().is_root() {
            for path in walk(&root) {
                std::os::unix::fs::lchown(&path, Some(65534), Some(65534)).unwrap();
            }
        }
        Self { dir, root }
    }

    fn home(&self) -> String {
        self.root.join("home").to_str().unwrap().to_owned()
    }

    fn cwd(&self) -> String {
        self.root.join("work").to_str().unwrap().to_owned()
    }

    #[expect(clippy::disallowed_methods, reason = "the other side of the proof is a real bash")]
    fn bash(&self, options: &[&str], text: &str) -> io::Result<Output> {
        let mut command = Command::new("/usr/bin/timeout");
        command.args(["-k", "1", "10", "/bin/bash", "--norc", "--noprofile"]).args(options).args(["-c", text]);
        command.env_clear().env("PATH", self.root.join("bin")).env("HOME", self.home());
        command.current_dir(self.cwd()).stdin(Stdio::null());
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        // All that it starts holds this pipe open: when it ends, everything has.
        static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let turn = ONE_AT_A_TIME.lock().unwrap();
        let (mut end, held) = io::pipe()?;
        rustix::io::fcntl_setfd(&held, rustix::io::FdFlags::empty())?;
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        drop(held);
        drop(turn);
        io::Read::read_to_end(&mut end, &mut Vec::new())?;
        child.wait_with_output()
    }

    /// What bash starts, in any order.
    fn run(&self, text: &str) -> Vec<Note> {
        let log = self.root.join("log");
        fs::write(&log, "").unwrap();
        self.bash(&[], text).unwrap();
        let notes = fs::read_to_string(&log).unwrap();
        notes.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    fn accepts(&self, text: &str) -> bool {
        self.bash(&["-n"], text).unwrap().status.success()
    }

    fn plan(&self, text: &str) -> Plan {
        read_text(text, &Surroundings { cwd: &self.cwd(), home: &self.home(), environment: &|_| false })
    }
}

fn walk(root: &Path) -> Vec<PathBuf> {
    let mut all = vec![root.to_owned()];
    for entry in fs::read_dir(root).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            all.extend(walk(&entry.path()));
        } else {
            all.push(entry.path());
        }
    }
    all
}

/// Whether the words of an occurrence can be these.
fn can_be(words: &[Word], texts: &[String]) -> bool {
    let Some((word, rest)) = words.split_first() else { return texts.is_empty() };
    let one = |text: &String| match &word.value {
        Value::One(value) => value == text,
        Value::Any(values) => values.contains(text),
        Value::Pattern(globs) => globs.iter().any(|g| g == text || parts_match(g, text)),
        Value::Unknown => true,
    };
    if word.many {
        // None, or one more and then the same again.
        return can_be(rest, texts) || texts.first().is_some_and(|t| one(t) && can_be(words, &texts[1..]));
    }
    texts.first().is_some_and(|t| one(t) && can_be(rest, &texts[1..]))
}

fn parts_match(glob: &str, text: &str) -> bool {
    let (globs, texts): (Vec<&str>, Vec<&str>) = (glob.split('/').collect(), text.split('/').collect());
    globs.len() == texts.len() && globs.iter().zip(texts).all(|(g, t)| glob_matches(g, t) || *g == t)
}

fn explains(occurrence: &Occurrence, note: &Note) -> bool {
    let directory = match &occurrence.directory {
        Directory::Known(all) => all.contains(&note.cwd),
        Directory::Unknown => true,
    };
    // The name that was found is what counts, not what the program was told that it is called.
    let named =
        occurrence.words.first().and_then(Word::text).is_some_and(|t| t.rsplit('/').next() == Some(&note.program));
    named && directory && can_be(&occurrence.words[1..], &note.words[1..])
}

#[derive(Default)]
struct Tally {
    commands: usize,
    started: usize,
    opaque: usize,
    plain: usize,
    compared: usize,
    accepted_by_us_only: usize,
    rejected_by_us_only: usize,
    wrong: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.commands += other.commands;
        self.started += other.started;
        self.opaque += other.opaque;
        self.plain += other.plain;
        self.compared += other.compared;
        self.accepted_by_us_only += other.accepted_by_us_only;
        self.rejected_by_us_only += other.rejected_by_us_only;
        self.wrong.extend(other.wrong);
    }
}

fn compare(seed: u64, count: usize) -> Tally {
    let (jail, mut random, mut tally) = (Jail::new(), Random::new(seed), Tally::default());
    let sample: Vec<String> = SAMPLE
        .lines()
        .filter_map(|l| serde_json::from_str::<serde_json::Value>(l).unwrap()["command"].as_str().map(str::to_owned))
        .filter(|c| harmless(c))
        .collect();
    for n in 0..count {
        let mutated = n % 4 == 3;
        let text = if mutated { mutate(&sample, &mut random) } else { script(&mut random) };
        if mutated && !harmless(&text) {
            continue;
        }
        let plan = jail.plan(&text);
        let opaque = plan.occurrences.iter().any(|o| o.opaque.is_some());
        tally.commands += 1;
        if !mutated {
            tally.plain += 1;
            tally.opaque += usize::from(opaque);
        }
        if n % 5 == 0 || mutated {
            let unparseable =
                plan.occurrences.iter().any(|o| o.unread && o.opaque == Some(countersign_model::Opaque::Unparseable));
            tally.compared += 1;
            match (jail.accepts(&text), unparseable) {
                (true, true) => tally.rejected_by_us_only += 1,
                (false, false) => tally.accepted_by_us_only += 1,
                _ => {}
            }
        }
        for note in jail.run(&text) {
            tally.started += 1;
            if !opaque && !plan.occurrences.iter().any(|o| explains(o, &note)) {
                let plan: Vec<_> = plan
                    .occurrences
                    .iter()
                    .map(|o| (&o.directory, o.words.iter().map(|w| &w.value).collect::<Vec<_>>()))
                    .collect();
                tally.wrong.push(format!(
                    "{text:?}\n  started {} {:?} in {}\n  plan {plan:?}",
                    note.program,
                    &note.words[1..],
                    note.cwd
                ));
            }
        }
        if tally.wrong.len() >= 5 {
            break;
        }
    }
    drop(jail.dir);
    tally
}

/// Nothing here may reach beyond the directory, even by mistake: no absolute paths, no signals, no other shells' files.
fn harmless(text: &str) -> bool {
    let absolute = text
        .split(|c: char| c.is_whitespace() || "'\"=<>|&;(){}$`,:".contains(c))
        .any(|w| w.starts_with('/') || w.starts_with("\\x2f"));
    let words = [
        "kill", "/dev", "..", "~", "exec", "ulimit", "sleep", "while", "until", "yes", "\\x", "\\0", "csn", ":|:",
        "f|f", "wait", "tail -f",
    ];
    !absolute && !words.iter().any(|w| text.contains(w)) && text.len() < 2000
}

#[test]
fn every_program_that_bash_starts_is_in_the_plan() {
    let count: usize = std::env::var("CSN_DIFFERENTIAL").ok().and_then(|n| n.parse().ok()).unwrap_or(2400);
    let seed: u64 = std::env::var("CSN_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or_else(|| {
        use std::hash::{BuildHasher as _, Hasher as _};
        std::collections::hash_map::RandomState::new().build_hasher().finish() >> 16
    });
    println!("CSN_SEED={seed}");
    let halves: Vec<_> = (0..2).map(|n| std::thread::spawn(move || compare(seed.wrapping_add(n), count / 2))).collect();
    let mut tally = Tally::default();
    halves.into_iter().for_each(|h| tally.add(h.join().unwrap()));
    println!(
        "{} commands, {} programs started, {:.1} % opaque of the plain ones; against bash -n: {} compared, {} accepted by us only, {} by bash only",
        tally.commands,
        tally.started,
        100.0 * tally.opaque as f64 / tally.plain.max(1) as f64,
        tally.compared,
        tally.accepted_by_us_only,
        tally.rejected_by_us_only,
    );
    assert!(tally.wrong.is_empty(), "CSN_SEED={seed}\n{}", tally.wrong.join("\n"));
    assert!(tally.started > tally.commands / 2, "bash ran: {} of {}", tally.started, tally.commands);
    assert!(tally.opaque * 10 <= tally.plain, "CSN_SEED={seed}: {} of {} are opaque", tally.opaque, tally.plain);
    assert!(
        tally.rejected_by_us_only * 20 <= tally.compared,
        "CSN_SEED={seed}: {} of {}",
        tally.rejected_by_us_only,
        tally.compared
    );
    assert!(
        tally.accepted_by_us_only * 20 <= tally.compared,
        "CSN_SEED={seed}: {} of {}",
        tally.accepted_by_us_only,
        tally.compared
    );
}
