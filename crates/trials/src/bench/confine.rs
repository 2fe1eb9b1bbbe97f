//! Measures the cost of confinement: a spawn, and everyday reading, confined and not, in turns.

use super::{
    BenchHome,
    http::Conn,
    load::{LoadTarget, now, percentile},
    print_row,
};
use crate::command;
use std::{
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

const ROUNDS: usize = 300;
const FILE_COUNT: usize = 3_000;

fn post(conn: &mut Conn, path: &str, body: &str) -> String {
    let (status, answer) = conn.call("POST", path, "content-type: application/json\r\n", body).expect("an answer");
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(status < 300, "{path}: {status} {answer}");
    answer
}

pub(super) fn json_number(text: &str, name: &str) -> Option<f64> {
    text.split(&format!(r#""{name}":"#)).nth(1)?.split([',', '}']).next()?.parse().ok()
}

/// Runs a command to its end. Returns the microseconds from the start of its journal to the running process, and from
/// there to the end.
fn run_task(daemon: &LoadTarget, conn: &mut Conn, text: &str, cwd: &Path, confinement: &str) -> (f64, f64) {
    let body = format!(
        r#"{{"tool":"shell","args":{{"command":"{text}","cwd":"{}"}},"profile":"safe","attended":false,"confinement":"{confinement}"}}"#,
        cwd.display()
    );
    // Lets the daemon finish the work of the previous task first, such as forking a new idle shim.
    std::thread::sleep(Duration::from_millis(4));
    let asked = post(conn, "/tasks", &body);
    let task = asked.split(r#""task_id":""#).nth(1).and_then(|t| t.split('"').next()).unwrap_or_default().to_owned();
    let mut spawned = 0.0;
    let mut took = 0.0;
    daemon.connect().read_lines(&format!("/tasks/{task}/events"), |line| {
        if line.contains(r#""kind":"process.spawned""#) {
            assert!(line.contains(&format!(r#""confinement":"{confinement}""#)), "{line}");
            spawned = json_number(line, "t_us").unwrap_or_default();
        }
        if line.contains(r#""kind":"process.exited""#) {
            took = json_number(line, "duration_us").unwrap_or_default();
        }
        !line.contains(r#""kind":"task.settled""#)
    });
    (spawned, took - spawned)
}

/// Microseconds that a program takes if it is started directly.
fn measure_start(mut make: impl FnMut() -> Command) -> f64 {
    let one = |_| {
        let began = now();
        let ended = make().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(ended.is_ok_and(|s| s.success()), "it runs");
        began.elapsed().as_secs_f64() * 1e6
    };
    percentile(&(0..ROUNDS).map(one).collect::<Vec<_>>(), 0.5)
}

pub(super) fn measure_confinement(bench: &mut BenchHome) {
    let daemon = bench.daemon();
    let mut conn = daemon.connect();
    for verb in ["true", "git status", "rg"] {
        // The requests below ask for `shield`, which only such a grant covers.
        post(&mut conn, "/grants", &format!(r#"{{"verb":"{verb}","directory":null,"confinement":"shield"}}"#));
    }
    let (plain, secrets, repository) =
        (bench.dir.join("plain"), bench.dir.join("secrets"), bench.dir.join("repository"));
    for (dir, files) in [(&plain, 20), (&secrets, 500)] {
        std::fs::create_dir_all(dir.join(".git")).expect("a directory");
        (0..files).for_each(|n| std::fs::write(dir.join(format!("f{n}")), "x").expect("a file"));
    }
    std::fs::write(secrets.join(".env"), "x").expect("a file");
    let (mut shield, mut read_only, mut workspace, mut carved) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        shield.push(run_task(&daemon, &mut conn, "true", &plain, "shield").0);
        read_only.push(run_task(&daemon, &mut conn, "true", &plain, "read_only").0);
        workspace.push(run_task(&daemon, &mut conn, "true", &plain, "workspace").0);
        carved.push(run_task(&daemon, &mut conn, "true", &secrets, "read_only").0);
    }
    let base = percentile(&shield, 0.5);
    let alone = measure_start(|| command("/bin/true"));
    let bwrap = match command("bwrap").arg("--version").stdout(Stdio::null()).status() {
        Ok(_) => {
            let took = measure_start(|| {
                let mut bwrap = command("bwrap");
                bwrap.args(["--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "/bin/true"]);
                bwrap
            });
            format!("+{:.2} ms (bwrap --unshare-all)", (took - alone) / 1e3)
        }
        Err(_) => "bwrap is not installed".to_owned(),
    };
    // Compares each with the `shield` of the same round, since the load of the machine changes.
    let added = |all: &[f64]| {
        let pairs: Vec<f64> = all.iter().zip(&shield).map(|(with, without)| with - without).collect();
        format!("+{:.3} ms", percentile(&pairs, 0.5) / 1e3)
    };
    print_row(
        "record begun → process runs, shield, p50",
        format!("{:.3} ms", base / 1e3),
        String::new(),
        String::new(),
    );
    print_row("added by read_only, p50", added(&read_only), bwrap, "bar 0.3 ms".to_owned());
    print_row("added by workspace, p50", added(&workspace), String::new(), String::new());
    print_row("added by read_only with a secret among 500 entries, p50", added(&carved), String::new(), String::new());
    measure_everyday_commands(&daemon, &mut conn, &repository);
}

/// Measures `git status` and `rg` in a repository with many files.
fn measure_everyday_commands(daemon: &LoadTarget, conn: &mut Conn, at: &Path) {
    for n in 0..FILE_COUNT {
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
            open.push(run_task(daemon, conn, text, at, "shield").1);
            confined.push(run_task(daemon, conn, text, at, "read_only").1);
        }
        let (o, c) = (percentile(&open, 0.5), percentile(&confined, 0.5));
        print_row(
            &format!("`{text}` over {FILE_COUNT} files, confined, p50"),
            format!("{:.2} ms", c / 1e3),
            format!("{:.2} ms (open)", o / 1e3),
            format!("{:.3}×", c / o),
        );
    }
}
