//! Runs real programs for the differential tests where they can do no harm: bash starts them one after the other in
//! its own namespaces, with everything but one directory read-only, without privileges or network, and with small
//! limits. The driver first tries to write outside; the test fails if that works.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A text that programs must not print: it is in a file beside the working directory and in the environment.
pub(crate) const CANARY: &str = "canary-7f3a";
/// The files that every run starts with.
const FILES: &[(&str, &str)] =
    &[("a.txt", "1 a x\n2 b/y w\n10 c \"z\"\n"), ("b.json", "{\"a\":[1,2],\"env\":\"x\"}\n"), ("sub/c.txt", "c\n")];

/// One run: the programs, and the words that each gets.
pub(crate) struct Case {
    pub(crate) programs: &'static [&'static str],
    pub(crate) words: Vec<String>,
}

/// A run that left a mark: the case, the program, and what it did.
#[derive(Debug)]
pub(crate) struct Mark {
    pub(crate) case: usize,
    pub(crate) program: String,
    pub(crate) what: String,
}

pub(crate) struct ProgramSandbox {
    /// Removes the directory on drop.
    _dir: tempfile::TempDir,
    root: PathBuf,
}

/// Reads cases from its input, runs them and reports the marks they left. A case is the programs, the number of words
/// and the words, each ended by NUL. A mark is a file that was created, removed or changed in length, or the canary
/// in the output.
const DRIVER_SCRIPT: &str = r#"
set -u
say() { printf '%s\0' "$@" >&3; }
for place in "$OUTSIDE" /tmp /var/tmp /dev/shm; do
  if ( : > "$place/csn-escaped" ) 2>/dev/null; then rm -f "$place/csn-escaped"; say confined no "$place"; exit 0; fi
done
say confined yes
cd "$ROOT/work" || exit 9
tidy() { rm -rf "$ROOT/work" 2>/dev/null; mkdir -p "$ROOT/work" && cp -r "$ROOT/fresh/." "$ROOT/work/"; cd "$ROOT/work" || exit 9; }
tidy
shopt -s nullglob dotglob globstar
look() {
  local f
  state=
  for f in **; do
    if [[ -d $f ]]; then state+="$f/ "; continue; fi
    mapfile -d '' content < "$f"
    state+="$f=${#content[0]} "
  done
}
look; clean=$state
n=0
while IFS= read -r -d '' programs; do
  IFS= read -r -d '' count
  words=()
  while (( ${#words[@]} < count )); do IFS= read -r -d '' word; words+=("$word"); done
  IFS='|' read -r -a each <<< "$programs"
  for program in "${each[@]}"; do
    IFS=' ' read -r -a start <<< "$program"
    ( ulimit -t 2 -f 2048 -v 1048576 -c 0; exec "${start[@]}" "${words[@]}" ) < "$ROOT/input" > "$ROOT/said" 2>&1
    [[ -n $(<"$ROOT/ran") ]] && { say "$n" "$program" "ran $(<"$ROOT/ran")"; : > "$ROOT/ran"; }
    look
    [[ $state != "$clean" ]] && { say "$n" "$program" "files are now $state"; tidy; }
    mapfile -d '' said < "$ROOT/said"
    [[ ${said[*]} == *"$CANARY"* ]] && say "$n" "$program" "said what it must not read"
  done
  n=$((n + 1))
done
say done "$n"
"#;

/// Makes everything but the directory read-only, and drops the rights to undo that.
const CONFINE_SCRIPT: &str = r#"
set -u
mount --make-rprivate / && mount --bind "$ROOT" "$ROOT" || exit 8
# Only what runs in here is a process.
mount -t proc proc /proc || exit 8
while read -r _ _ _ _ target _; do
  printf -v target '%b' "$target"
  [[ $target == "$ROOT" ]] || mount -o remount,bind,ro "$target" 2>/dev/null
done < /proc/self/mountinfo
exec "$@"
"#;

impl ProgramSandbox {
    /// `helpers`: names of programs that only record that they ran. bash runs `setup` once in the directory whose
    /// content every run starts with.
    pub(crate) fn new(helpers: &[&str], setup: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        for name in ["bin", "fresh", "fresh/sub", "home", "work"] {
            fs::create_dir(root.join(name)).unwrap();
        }
        for (name, content) in FILES {
            fs::write(root.join("fresh").join(name), content).unwrap();
        }
        fs::write(root.join("secret"), format!("{CANARY}\n")).unwrap();
        fs::write(root.join("input"), "a.txt b.json\nsub/c.txt\n../secret\n").unwrap();
        fs::write(root.join("said"), "").unwrap();
        fs::write(root.join("ran"), "").unwrap();
        for name in helpers {
            let path = root.join("bin").join(name);
            fs::write(&path, format!("#!/bin/sh\necho {name} >> {}/ran\n", root.display())).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let sandbox = Self { _dir: dir, root };
        if rustix::process::geteuid().is_root() {
            chown_to_nobody(&sandbox.root);
        }
        if !setup.is_empty() {
            let setup = format!("exec > \"$ROOT/said\" 2>&1\nset -e\ncd \"$ROOT/fresh\"\n{setup}");
            let (status, report) = sandbox.bash(&setup, &[]);
            assert!(status, "the setup failed: {} {}", String::from_utf8_lossy(&report), sandbox.last_output());
            fs::write(sandbox.root.join("ran"), "").unwrap();
        }
        sandbox
    }

    /// Whether the setup created this file in the home.
    pub(crate) fn setup_created(&self, word: &str) -> bool {
        self.root.join("home").join(word).exists()
    }

    /// The output of the last program.
    fn last_output(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.root.join("said")).unwrap()).into_owned()
    }

    /// The working directory of the programs, and the only root for the gate.
    pub(crate) fn cwd(&self) -> String {
        self.root.join("work").to_str().unwrap().to_owned()
    }

    /// Runs bash in its own namespaces. Returns whether it succeeded, and its output on descriptor 3.
    #[expect(clippy::disallowed_methods, reason = "the other side of the proof are real programs")]
    fn bash(&self, script: &str, input: &[u8]) -> (bool, Vec<u8>) {
        let outside = tempfile::tempdir().unwrap();
        // The output of the programs is discarded; the driver reports on descriptor 3.
        let script = &format!("exec 3>&1 >/dev/null\n{script}");
        let mut command = Command::new("/usr/bin/timeout");
        command.args([
            "-k",
            "1",
            "3000",
            "/usr/bin/unshare",
            "--net",
            "--ipc",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount",
        ]);
        let nobody: &[&str] = if rustix::process::geteuid().is_root() {
            &["--reuid=65534", "--regid=65534", "--clear-groups"]
        } else {
            command.args(["--user", "--map-root-user"]);
            &[]
        };
        command.args(["--", "/bin/bash", "-c", CONFINE_SCRIPT, "bash", "/usr/bin/setpriv"]).args(nobody);
        command.args(["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all", "/bin/bash", "-c", script]);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.root.join("bin").display());
        command.env_clear().env("PATH", path).env("HOME", self.root.join("home")).env("LC_ALL", "C.UTF-8");
        command
            .env("TMPDIR", self.root.join("home"))
            .env("ROOT", &self.root)
            .env("OUTSIDE", outside.path())
            .env("CANARY", CANARY)
            .env("TERM", "dumb");
        command.current_dir(&self.root).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("timeout, unshare, setpriv and bash are installed");
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output().unwrap();
        // A driver that ends early does not read all input; its report shows that.
        drop(writer.join().unwrap());
        (output.status.success(), output.stdout)
    }

    /// Runs every case with each of its programs.
    pub(crate) fn run(&self, cases: &[Case]) -> Vec<Mark> {
        let mut input = Vec::new();
        for case in cases {
            let words = case.words.iter().map(String::as_str);
            let count = case.words.len().to_string();
            for text in [case.programs.join("|").as_str(), count.as_str()].into_iter().chain(words) {
                input.extend_from_slice(text.as_bytes());
                input.push(0);
            }
        }
        let (_, report) = self.bash(DRIVER_SCRIPT, &input);
        let report = String::from_utf8_lossy(&report);
        let mut reported: Vec<&str> = report.split('\0').collect();
        reported.pop();
        assert!(
            reported.starts_with(&["confined", "yes"]),
            "programs cannot be confined here, so none was run: this needs root, or user namespaces that may mount /proc \
             (report: {reported:?})"
        );
        let (marks, end) = reported[2..].split_at(reported[2..].len().saturating_sub(2));
        assert_eq!(end, ["done", cases.len().to_string().as_str()], "the driver ended early");
        let mark = |m: &[&str]| Mark { case: m[0].parse().unwrap(), program: m[1].to_owned(), what: m[2].to_owned() };
        marks.chunks(3).map(mark).collect()
    }
}

fn chown_to_nobody(path: &Path) {
    std::os::unix::fs::lchown(path, Some(65534), Some(65534)).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().flatten().for_each(|entry| chown_to_nobody(&entry.path()));
    }
}

/// Fails if a program is missing: the test would then compare nothing.
pub(crate) fn require_programs(programs: &[&str]) {
    let missing: Vec<_> = programs
        .iter()
        .filter(|p| !["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|d| Path::new(d).join(p).exists()))
        .collect();
    assert!(missing.is_empty(), "not installed: {missing:?}; apt-get install gawk mawk original-awk busybox jq git");
}
