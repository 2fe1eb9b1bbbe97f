//! What confinement costs: a spawn, and everyday reading, confined and not, in turns.

use super::{
    BenchHome,
    http::Conn,
    load::{LoadTarget, now, percentile},
    row,
};
use crate::command;
use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

const ROUNDS: usize = 300;
const FILES: usize = 3_000;

fn post(conn: &mut Conn, path: &str, body: &str) -> String {
    let (status, answer) = conn.call("POST", path, "content-type: application/json\r\n", body).expect("an answer");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(status < 300, "{path}: {status} {answer}");
    answer
}

fn number(text: &str, name: &str) -> Option<f64> {
    text.split(&format!(r#""{name}":"#)).nth(1)?.split([',', '}']).next()?.parse().ok()
}

/// Runs a command to its end: microseconds from the beginning of its record to the running process, and from there to its end.
fn run(daemon: &LoadTarget, conn: &mut Conn, text: &str, cwd: &Path, confinement: &str) -> (f64, f64) {
    let body = format!(
        r#"{{"tool":"shell","args":{{"command":"{text}","cwd":"{}"}},"profile":"safe","attended":false,"confinement":"{confinement}"}}"#,
        cwd.display()
    );
    // What the task before has left to be done, a new spare shim for one, is not this one's cost.
    std::thread::sleep(Duration::from_millis(4));
    let asked = post(conn, "/tasks", &body);
    let task = asked.split(r#""task_id":""#).nth(1).and_then(|t| t.split('"').next()).unwrap_or_default().to_owned();
    let mut spawned = 0.0;
    let mut took = 0.0;
    daemon.conn().lines(&format!("/tasks/{task}/events"), |line| {
        if line.contains(r#""kind":"process.spawned""#) {
            assert!(line.contains(&format!(r#""confinement":"{confinement}""#)), "{line}");
            spawned = number(line, "t_us").unwrap_or_default();
        }
        if line.contains(r#""kind":"process.exited""#) {
            took = number(line, "duration_us").unwrap_or_default();
        }
        !line.contains(r#""kind":"task.settled""#)
    });
    (spawned, took - spawned)
}

/// Microseconds that a program takes, started here.
fn started(mut make: impl FnMut() -> Command) -> f64 {
    let one = |_| {
        let began = now();
        let ended = make().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(ended.is_ok_and(|s| s.success()), "it runs");
        began.elapsed().as_secs_f64() * 1e6
    };
    percentile(&(0..ROUNDS).map(one).collect::<Vec<_>>(), 0.5)
}

pub(super) fn confinement(stand: &mut BenchHome) {
    let daemon = stand.daemon();
    let mut conn = daemon.conn();
    for verb in ["true", "git status", "rg"] {
        post(&mut conn, "/grants", &format!(r#"{{"verb":"{verb}","directory":null}}"#));
    }
    let (plain, secrets, repository) =
        (stand.dir.join("plain"), stand.dir.join("secrets"), stand.dir.join("repository"));
    for (dir, files) in [(&plain, 20), (&secrets, 500)] {
        std::fs::create_dir_all(dir.join(".git")).expect("a directory");
        (0..files).for_each(|n| std::fs::write(dir.join(format!("f{n}")), "x").expect("a file"));
    }
    std::fs::write(secrets.join(".env"), "x").expect("a file");
    let (mut shield, mut read_only, mut workspace, mut carved) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        shield.push(run(&daemon, &mut conn, "true", &plain, "shield").0);
        read_only.push(run(&daemon, &mut conn, "true", &plain, "read_only").0);
        workspace.push(run(&daemon, &mut conn, "true", &plain, "workspace").0);
        carved.push(run(&daemon, &mut conn, "true", &secrets, "read_only").0);
    }
    let base = percentile(&shield, 0.5);
    let alone = started(|| command("/bin/true"));
    let bwrap = match command("bwrap").arg("--version").stdout(Stdio::null()).status() {
        Ok(_) => {
            let took = started(|| {
                let mut bwrap = command("bwrap");
                bwrap.args(["--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "/bin/true"]);
                bwrap
            });
            format!("+{:.2} ms (bwrap --unshare-all)", (took - alone) / 1e3)
        }
        Err(_) => "bwrap is not installed".to_owned(),
    };
    // Each against the shield of the same round: what else the machine does drifts.
    let added = |all: &[f64]| {
        let pairs: Vec<f64> = all.iter().zip(&shield).map(|(with, without)| with - without).collect();
        format!("+{:.3} ms", percentile(&pairs, 0.5) / 1e3)
    };
    row("record begun → process runs, shield, p50", format!("{:.3} ms", base / 1e3), String::new(), String::new());
    row("added by read_only, p50", added(&read_only), bwrap, "bar 0.3 ms".to_owned());
    row("added by workspace, p50", added(&workspace), String::new(), String::new());
    row("added by read_only with a secret among 500 entries, p50", added(&carved), String::new(), String::new());
    everyday(&daemon, &mut conn, &repository);
}

/// `git status` and `rg` in a repository of some size.
fn everyday(daemon: &LoadTarget, conn: &mut Conn, at: &Path) {
    for n in 0..FILES {
        let dir = at.join(format!("d{}", n % 60));
        std::fs::create_dir_all(&dir).expect("a directory");
        let text = format!("fn f{n}() {{ /* needle {} */ }}\n", n % 7).repeat(200);
        std::fs::write(dir.join(format!("f{n}.rs")), text).expect("a file");
    }
    let git = "git init -q . && git add -A && git -c user.name=a -c user.email=a@b commit -qm x";
    assert!(command("bash").args(["-c", git]).current_dir(at).status().is_ok_and(|s| s.success()), "git works");
    for text in ["git status", "rg needle.3"] {
        let (mut open, mut confined) = (Vec::new(), Vec::new());
        for _ in 0..80 {
            open.push(run(daemon, conn, text, at, "shield").1);
            confined.push(run(daemon, conn, text, at, "read_only").1);
        }
        let (o, c) = (percentile(&open, 0.5), percentile(&confined, 0.5));
        row(
            &format!("`{text}` over {FILES} files, confined, p50"),
            format!("{:.2} ms", c / 1e3),
            format!("{:.2} ms (open)", o / 1e3),
            format!("{:.3}×", c / o),
        );
    }
}
