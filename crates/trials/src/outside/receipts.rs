//! Third-party verification of receipts: the libraries securesystemslib and in-toto verify what a home has signed,
//! and refuse what was changed.

use super::{CheckStage, install_missing};
use crate::{Result, command};
use std::fs;

const NEEDED: &[(&str, &str)] = &[("pip3", "python3-pip"), ("tar", "tar")];

/// Verifies the exported task in a directory, and prints what it found.
const VERIFY: &str = r#"
import copy, hashlib, json, pathlib, sys
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey
directory = pathlib.Path(sys.argv[1])
raw = json.loads((directory / "receipt.dsse.json").read_text())
key = SSlibKey.from_crypto(load_pem_public_key((directory / "key.pub.pem").read_bytes()))
assert key.keyid == raw["signatures"][0]["keyid"], "the key has another name"
envelope = Envelope.from_dict(copy.deepcopy(raw))
envelope.verify([key], 1)
statement = json_format.Parse(envelope.payload, statement_pb2.Statement())
Statement.copy_from_pb(statement).validate()
for subject in statement.subject:
    found = hashlib.sha256((directory / subject.name).read_bytes()).hexdigest()
    assert found == subject.digest["sha256"], subject.name + " is another"
print(len(statement.subject), "subjects of", statement.predicate_type)
"#;

pub(super) fn receipts(stage: &CheckStage) -> Result<()> {
    install_missing(NEEDED)?;
    let venv = stage.dir.join("venv");
    let make = format!(
        "python3 -m venv {0} && {0}/bin/pip install -q 'securesystemslib[crypto]' in-toto-attestation",
        venv.display()
    );
    let status = command("sh").args(["-c", &make]).status().map_err(|e| format!("venv: {e}"))?;
    if !status.success() {
        return Err("securesystemslib and in-toto-attestation could not be installed".into());
    }
    let project = stage.directory("project", &[])?.display().to_string();
    stage.csn(&["run", "--quiet", "--profile", "full_auto", "--cwd", &project, "seq 1 1000; echo err >&2"])?;
    let listed = stage.csn(&["ps", "-a", "--json"])?;
    let task = listed.split("\"task_id\":\"").nth(1).and_then(|t| t.split('"').next()).ok_or("no task is listed")?;
    let tar = stage.dir.join("task.tar").display().to_string();
    stage.csn(&["export", task, "-o", &tar])?;
    let unpacked = command("tar").args(["-C", &project, "-xf", &tar]).status().map_err(|e| e.to_string())?;
    if !unpacked.success() {
        return Err("tar does not unpack what was exported".into());
    }
    let dir = format!("{project}/{task}");
    let verify = || {
        let python = venv.join("bin/python").display().to_string();
        let output = command(&python).args(["-c", VERIFY, &dir]).output().map_err(|e| format!("python: {e}"))?;
        Ok::<_, String>((output.status.success(), String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    };
    let (good, printed) = verify()?;
    println!("   securesystemslib and in-toto-attestation: {printed}");
    if !good || !printed.starts_with("4 subjects") {
        return Err(format!("the libraries do not accept the receipt: {printed}"));
    }
    for name in ["stdout.log", "receipt.dsse.json"] {
        let path = format!("{dir}/{name}");
        let original = fs::read(&path).map_err(|e| format!("{path}: {e}"))?;
        let mut bytes = original.clone();
        // In the envelope, this byte is part of the payload.
        let at = if name == "stdout.log" { 10 } else { 200 };
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        fs::write(&path, bytes).map_err(|e| e.to_string())?;
        if verify()?.0 {
            return Err(format!("the libraries do not detect the change of {name}"));
        }
        fs::write(&path, original).map_err(|e| e.to_string())?;
    }
    Ok(())
}
