//! Package managers and build tools in a new project and a new home, confined to the workspace.

use super::{CheckStage, SYSTEM_PATH, install_missing, tmux::stdout_text};
use crate::Result;
use std::{fs, path::Path};

const NEEDED: &[(&str, &str)] =
    &[("npm", "npm"), ("node", "nodejs"), ("git", "git"), ("make", "make"), ("cc", "gcc"), ("pip3", "python3-pip")];

const FILES: &[(&str, &str)] = &[
    ("package.json", r#"{"name":"fresh","version":"1.0.0","dependencies":{"is-number":"7.0.0"}}"#),
    (
        "Cargo.toml",
        "[package]\nname = \"fresh\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nitoa = \"1\"\n",
    ),
    ("main.rs", "fn main() { println!(\"{}\", itoa::Buffer::new().format(42)); }\n"),
    (
        "test_six.py",
        "import six\n\ndef test_six(tmp_path):\n    (tmp_path / 'x').write_text('y')\n    assert six.PY3\n",
    ),
    ("main.c", "#include <stdio.h>\nint main(void) { puts(\"made\"); return 0; }\n"),
    ("Makefile", "main: main.c\n\t$(CC) -o main main.c\n\t./main\n"),
];

/// Each must work and print this.
const WORKING_COMMANDS: &[(&str, &str)] = &[
    (
        "git init -q -b main . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m one && git log --oneline",
        "one",
    ),
    (
        "npm install --no-audit --no-fund && rm -rf node_modules && npm ci --no-audit --no-fund && node -e 'console.log(require(\"is-number\")(5))'",
        "true",
    ),
    (
        "python3 -m venv venv && venv/bin/pip install -q six pytest && venv/bin/python -c 'import six; print(six.__name__)'",
        "six",
    ),
    ("venv/bin/pytest -q test_six.py", "1 passed"),
    ("mkdir -p src && cp main.rs src && cargo build -q && ./target/debug/fresh", "42"),
    ("make", "made"),
];

/// Each must fail.
const REFUSED_COMMANDS: &[&str] = &[
    "echo evil >> ~/.bashrc",
    "mkdir -p ~/.ssh && echo evil > ~/.ssh/authorized_keys",
    "echo evil > ../another/file",
    "git -C ../another commit -q --allow-empty -m evil",
    "npm config set --location=user script-shell evil",
    "echo evil > ~/.cargo/config.toml",
];

pub(super) fn workspace(stage: &CheckStage) -> Result<()> {
    install_missing(NEEDED)?;
    stage.directory("project", FILES)?;
    stage.directory("another", &[("file", "mine\n")])?;
    let status = stage.command("git", "another").args(["init", "-q", "."]).status();
    status.map_err(|e| format!("git: {e}"))?;
    // The toolchain that built this program, found on PATH as a user's would be.
    let cargo = std::env::var("CARGO").unwrap_or_default();
    let path = format!("{SYSTEM_PATH}:{}", Path::new(&cargo).parent().unwrap_or(Path::new("/usr/bin")).display());
    let run = |text: &str| {
        let mut csn = stage.command(&stage.csn, "project");
        csn.env("PATH", &path).args(["run", "--profile", "full_auto", text]);
        let output = csn.output().map_err(|e| format!("csn: {e}"))?;
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        let task = printed.split_whitespace().find(|w| w.starts_with("tk_")).unwrap_or_default().to_owned();
        let shown = stage.csn(&["show", &task, "--json"])?;
        if shown.contains(r#""confinement":"workspace""#) {
            Ok((output, printed))
        } else {
            Err(format!("{text}: not confined to the workspace:\n{shown}"))
        }
    };
    for (text, expected) in WORKING_COMMANDS {
        let (output, printed) = run(text)?;
        let out = stdout_text(text, &output)?;
        if !out.contains(expected) {
            return Err(format!("{text}: said {out:?} and {printed:?}"));
        }
    }
    for text in REFUSED_COMMANDS {
        if run(text)?.0.status.success() {
            return Err(format!("{text}: this should have failed"));
        }
    }
    let file = fs::read_to_string(stage.dir.join("another/file")).map_err(|e| e.to_string())?;
    if file != "mine\n" || stage.dir.join("user/.bashrc").exists() {
        return Err("a file outside the workspace was written".to_owned());
    }
    Ok(())
}
