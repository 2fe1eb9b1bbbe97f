//! A second opinion: third-party scanners search a file of planted secrets, then everything that the home keeps of
//! tasks that printed it. They must not find any of the secrets again.

use super::{CheckStage, install_missing};
use crate::{Result, command};
use std::{collections::BTreeMap, fs, path::Path};

const NEEDED: &[(&str, &str)] = &[("pip3", "python3-pip")];

/// Prints what a scanner finds below a path, one secret per line.
const KINGFISHER: &str = r#"
import json, subprocess, sys
out = subprocess.run([sys.argv[1] + "/kingfisher", "scan", sys.argv[2], "--no-validate", "--confidence", "low",
                      "--format", "jsonl", "--no-update-check"], capture_output=True, text=True).stdout
for line in out.splitlines():
    try: entry = json.loads(line)
    except ValueError: continue
    for found in entry if isinstance(entry, list) else [entry]:
        snippet = (found.get("finding") or {}).get("snippet")
        if snippet: print(json.dumps(snippet))
"#;

const DETECT_SECRETS: &str = r#"
import json, os, sys
from detect_secrets import SecretsCollection
from detect_secrets.settings import default_settings
for root, _, files in [(os.path.dirname(sys.argv[2]), [], [os.path.basename(sys.argv[2])])] if os.path.isfile(sys.argv[2]) else os.walk(sys.argv[2]):
    for name in files:
        secrets = SecretsCollection()
        with default_settings():
            secrets.scan_file(os.path.join(root, name))
        for _, found in secrets:
            if found.secret_value: print(json.dumps(found.secret_value))
"#;

pub(super) fn second_opinion(stage: &CheckStage) -> Result<()> {
    install_missing(NEEDED)?;
    let venv = stage.dir.join("venv");
    let make = format!("python3 -m venv {0} && {0}/bin/pip install -q kingfisher-bin detect-secrets", venv.display());
    let status = command("sh").args(["-c", &make]).status().map_err(|e| format!("venv: {e}"))?;
    if !status.success() {
        return Err("kingfisher-bin and detect-secrets could not be installed".into());
    }
    stage.directory("project", &[])?;
    let examples = stage.csn(&["redact", "--no-config", "--examples"])?;
    let plants: Vec<(&str, &str)> = examples.lines().filter_map(|line| line.split_once('\t')).collect();
    let control = stage.dir.join("project/control.txt");
    let text: String = plants.iter().map(|(_, text)| format!("{text}\n")).collect();
    fs::write(&control, &text).map_err(|e| e.to_string())?;
    let names: BTreeMap<&str, &str> = [("kingfisher", KINGFISHER), ("detect-secrets", DETECT_SECRETS)].into();
    let mut before = BTreeMap::new();
    for (name, script) in &names {
        let found = run_scanner(&venv, script, &control)?;
        let rules: Vec<&str> = plants
            .iter()
            .filter(|(_, text)| found.iter().any(|f| f.len() >= 8 && text.contains(f.as_str())))
            .map(|p| p.0)
            .collect();
        println!(
            "   {name} finds {} of {} planted secrets in the raw file: {}",
            rules.len(),
            plants.len(),
            rules.join(", ")
        );
        if rules.len() < 10 {
            return Err(format!("{name} finds almost nothing, so this check would prove nothing"));
        }
        before.insert(*name, found);
    }
    let path = control.display().to_string();
    let project = stage.dir.join("project").display().to_string();
    let print = format!("while read -r line; do echo \"said $line\"; done < {path}; cat {path} >&2");
    for terminal in [&[][..], &["--pty"]] {
        let run = ["run", "--quiet", "--profile", "full_auto", "--cwd", &project];
        stage.csn(&[&run[..], terminal, &[&print]].concat())?;
    }
    stage.csn(&["file", "read", "--quiet", "--cwd", &project, "control.txt"])?;
    fs::remove_file(&control).map_err(|e| e.to_string())?;
    let home = stage.dir.join("home");
    for (name, script) in &names {
        let found = run_scanner(&venv, script, &home)?;
        let again: Vec<&String> =
            before[name].iter().filter(|b| b.len() >= 8 && found.iter().any(|f| f.contains(b.as_str()))).collect();
        println!("   {name} finds {} of those again in the home, and {} other findings", again.len(), found.len());
        if !again.is_empty() {
            return Err(format!("{name} finds {} planted secrets in the home", again.len()));
        }
    }
    Ok(())
}

fn run_scanner(venv: &Path, script: &str, path: &Path) -> Result<Vec<String>> {
    let bin = venv.join("bin");
    let output = command(&bin.join("python").display().to_string()).args(["-c", script]).arg(&bin).arg(path).output();
    let output = output.map_err(|e| format!("python: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text
        .lines()
        .map(|line| line.trim_matches('"').replace("\\n", "\n").replace("\\\"", "\"").replace("\\\\", "\\"))
        .collect())
}
