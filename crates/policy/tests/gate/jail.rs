//! Runs a real bash with a directory of its own, a PATH of programs that record their arguments, and the rights of
//! the user `nobody`; for many commands also in namespaces without a network, if the machine supports them.

use countersign_model::{Directory, Occurrence, Plan, Word, WordValue, glob_matches};
use countersign_policy::{ParseContext, read_text};
use serde::Deserialize;
use std::{
    fs, io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::LazyLock,
};

/// Programs that only record their arguments.
pub(crate) const PROGRAMS: &[&str] =
    &["alpha", "beta", "gamma", "delta", "cat", "ls", "grep", "git", "rm", "make", "head", "sort"];
/// Real programs that run their commands.
const REAL_PROGRAMS: &[&str] = &["bash", "sh", "env", "nice", "timeout", "nohup", "xargs", "find", "stdbuf", "setsid"];

#[derive(Deserialize)]
pub(crate) struct StartedProgram {
    pub(crate) program: String,
    pub(crate) words: Vec<String>,
    pub(crate) cwd: String,
}

/// A directory to run in: `bin` with the programs, `work`, `home`, and the log.
pub(crate) struct Jail {
    _dir: tempfile::TempDir,
    root: PathBuf,
}

impl Jail {
    pub(crate) fn new() -> Self {
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
        for name in REAL_PROGRAMS {
            let real = match *name {
                "bash" => Some(bash_path()),
                name => ["/bin", "/usr/bin"].iter().map(|d| Path::new(d).join(name)).find(|p| p.exists()),
            };
            if let Some(real) = real {
                std::os::unix::fs::symlink(real, root.join("bin").join(name)).unwrap();
            }
        }
        fs::write(root.join("log"), "").unwrap();
        // Under root, the programs run as the user `nobody`.
        if rustix::process::geteuid().is_root() {
            for path in all_paths(&root) {
                std::os::unix::fs::lchown(&path, Some(65534), Some(65534)).unwrap();
            }
        }
        Self { _dir: dir, root }
    }

    pub(crate) fn home(&self) -> String {
        self.root.join("home").to_str().unwrap().to_owned()
    }

    pub(crate) fn cwd(&self) -> String {
        self.root.join("work").to_str().unwrap().to_owned()
    }

    #[expect(clippy::disallowed_methods, reason = "the other side of the proof is a real bash")]
    fn bash(&self, options: &[&str], text: &str) -> io::Result<Output> {
        let mut command = Command::new("/usr/bin/timeout");
        command
            .args(["-k", "1", "10"])
            .arg(bash_path())
            .args(["--norc", "--noprofile"])
            .args(options)
            .args(["-c", text]);
        command.env_clear().env("PATH", self.root.join("bin")).env("HOME", self.home());
        command.current_dir(self.cwd()).stdin(Stdio::null());
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        // Every process that bash starts holds this pipe open, so its end means that all have ended.
        static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let guard = ONE_AT_A_TIME.lock().unwrap();
        let (mut end, writer) = io::pipe()?;
        rustix::io::fcntl_setfd(&writer, rustix::io::FdFlags::empty())?;
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        drop(writer);
        drop(guard);
        io::Read::read_to_end(&mut end, &mut Vec::new())?;
        child.wait_with_output()
    }

    /// The programs that bash starts, in any order.
    pub(crate) fn run(&self, text: &str) -> Vec<StartedProgram> {
        let log = self.root.join("log");
        fs::write(&log, "").unwrap();
        self.bash(&[], text).unwrap();
        let notes = fs::read_to_string(&log).unwrap();
        notes.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    pub(crate) fn accepts(&self, text: &str) -> bool {
        self.bash(&["-n"], text).unwrap().status.success()
    }

    pub(crate) fn plan(&self, text: &str) -> Plan {
        read_text(text, &ParseContext { cwd: &self.cwd(), home: &self.home(), environment: &|_| false })
    }
}

/// The bash under test; `CSN_BASH` names another version.
fn bash_path() -> PathBuf {
    std::env::var_os("CSN_BASH").map_or_else(|| PathBuf::from("/bin/bash"), PathBuf::from)
}

/// Runs every text that it reads until all processes of that text have ended, and logs the end of each and whether it
/// changed files. An endless loop is stopped after two seconds.
const RUNNER_SCRIPT: &str = r#"
ulimit -t 5 -f 65536 -c 0
exec 7<"$1" 8>>"$2"
shopt -s nullglob dotglob
look() { found=(* sub/* sub/deep/* ../home/*); [[ -s a.txt && -s b.txt ]] && found+=(whole); }
look; before="${found[*]}" kept=" ${found[*]} "
while IFS= read -r -d '' text <&7; do
    IFS= read -r -t 2 -d '' -u 9 _ 9< <(exec "$3" --norc --noprofile -c "$text" 7<&- 8>&- 9>&1 >/dev/null 2>&1 </dev/null)
    (( $? > 128 )) && kill -9 $!
    look
    if [[ ${found[*]} == "$before" ]]; then echo end; else
        echo changed
        for f in "${found[@]}"; do [[ $kept == *" $f "* ]] || /bin/rm -rf -- "$f"; done
        { echo x >a.txt; echo x >b.txt; } 2>/dev/null
    fi >&8
done
echo all >&8
"#;

/// What one text did.
#[derive(Default)]
pub(crate) struct TextEffects {
    pub(crate) notes: Vec<StartedProgram>,
    /// It created, removed or emptied a file.
    pub(crate) changed: bool,
}

/// The namespaces for the commands, if the machine supports them.
static NAMESPACE_OPTIONS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let options = vec!["--user", "--net", "--ipc", "--pid", "--fork", "--kill-child", "--"];
    if as_nobody("/usr/bin/unshare").args(&options).arg("/bin/true").status().is_ok_and(|s| s.success()) {
        options
    } else {
        Vec::new()
    }
});

#[expect(clippy::disallowed_methods, reason = "the other side of the proof is a real bash")]
fn as_nobody(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534).current_dir("/");
    }
    command
}

impl Jail {
    /// Runs many texts, one after the other; none if the run did not finish.
    pub(crate) fn run_all(&self, texts: &[&str]) -> Option<Vec<TextEffects>> {
        let (input, log, script) = (self.root.join("texts"), self.root.join("log"), self.root.join("runner"));
        fs::write(&input, texts.iter().map(|t| format!("{t}\0")).collect::<String>()).unwrap();
        fs::write(&script, RUNNER_SCRIPT).unwrap();
        fs::write(&log, "").unwrap();
        let mut command = as_nobody("/usr/bin/timeout");
        command.args(["-k", "1", "120"]);
        if !NAMESPACE_OPTIONS.is_empty() {
            command.arg("/usr/bin/unshare").args(&*NAMESPACE_OPTIONS);
        }
        command.args(["/bin/bash", "--norc", "--noprofile"]).arg(script).arg(input).arg(&log).arg(bash_path());
        command.env("PATH", self.root.join("bin")).env("HOME", self.home()).current_dir(self.cwd());
        command.status().unwrap();
        let (mut all, mut now) = (Vec::new(), TextEffects::default());
        for line in fs::read_to_string(&log).unwrap().lines() {
            match line {
                "all" => return (all.len() == texts.len()).then_some(all),
                "end" | "changed" => {
                    now.changed = line == "changed";
                    all.push(std::mem::take(&mut now));
                }
                note => now.notes.push(serde_json::from_str(note).unwrap()),
            }
        }
        None
    }
}

fn all_paths(root: &Path) -> Vec<PathBuf> {
    let mut all = vec![root.to_owned()];
    for entry in fs::read_dir(root).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            all.extend(all_paths(&entry.path()));
        } else {
            all.push(entry.path());
        }
    }
    all
}

/// Whether the words of an occurrence can be these.
fn words_match(words: &[Word], texts: &[String]) -> bool {
    let Some((word, rest)) = words.split_first() else { return texts.is_empty() };
    let one = |text: &String| match &word.value {
        WordValue::One(value) => value == text,
        WordValue::Any(values) => values.contains(text),
        // The stand-in for `find` and similar programs prints no names; `marks` tests the real programs. The gate
        // takes such a word as a name only for reading, and as unknown otherwise.
        _ if word.is_listed() => true,
        // A glob that matches no file stays as it is.
        WordValue::Pattern(globs) => {
            globs.iter().any(|g| g == text || unescape_glob(g) == *text || parts_match(g, text))
        }
        WordValue::Unknown => true,
    };
    if word.many {
        // No word, or one word and then the same again.
        return words_match(rest, texts) || texts.first().is_some_and(|t| one(t) && words_match(words, &texts[1..]));
    }
    texts.first().is_some_and(|t| one(t) && words_match(rest, &texts[1..]))
}

/// A glob without its escapes.
fn unescape_glob(glob: &str) -> String {
    let (mut out, mut chars) = (String::new(), glob.chars());
    while let Some(c) = chars.next() {
        out.extend(if c == '\\' { chars.next() } else { Some(c) });
    }
    out
}

fn parts_match(glob: &str, text: &str) -> bool {
    let (globs, texts): (Vec<&str>, Vec<&str>) = (glob.split('/').collect(), text.split('/').collect());
    globs.len() == texts.len() && globs.iter().zip(texts).all(|(g, t)| glob_matches(g, t) || *g == t)
}

pub(crate) fn explains(occurrence: &Occurrence, note: &StartedProgram) -> bool {
    let directory = match &occurrence.directory {
        Directory::Known(all) => all.contains(&note.cwd),
        Directory::Unknown => true,
    };
    // The program that was found counts, not the name that it was given.
    let named =
        occurrence.words.first().and_then(Word::text).is_some_and(|t| t.rsplit('/').next() == Some(&note.program));
    named && directory && words_match(&occurrence.words[1..], &note.words[1..])
}
