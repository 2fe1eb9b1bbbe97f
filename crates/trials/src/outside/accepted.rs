//! Runs real tools under grants, in the sandbox that their risks give them: they work, or they fail with a hint that
//! helps.

use super::{CheckStage, SYSTEM_PATH, install_missing};
use crate::Result;
use std::{fs, path::Path, process::Output};

const NEEDED: &[(&str, &str)] = &[
    ("git", "git"),
    ("gpg", "gnupg"),
    ("sshd", "openssh-server"),
    ("ssh", "openssh-client"),
    ("go", "golang-go"),
    ("npm", "npm"),
    ("make", "make"),
    ("psql", "postgresql"),
    ("pytest-3", "python3-pytest"),
    ("pip3", "python3-pip"),
];

const FILES: &[(&str, &str)] = &[
    (
        "package.json",
        r#"{"name":"fresh","version":"1.0.0","dependencies":{"is-number":"7.0.0"},"scripts":{"test":"node t.js"}}"#,
    ),
    (
        "t.js",
        "const h=require('http');const s=h.createServer((q,r)=>r.end('x')).listen(0,'127.0.0.1',()=>h.get({port:s.address().port},r=>{console.log('served',r.statusCode);s.close()}));\n",
    ),
    ("go.mod", "module fresh\n\ngo 1.18\n"),
    (
        "serve_test.go",
        "package fresh\n\nimport (\n\t\"net/http\"\n\t\"net/http/httptest\"\n\t\"testing\"\n)\n\nfunc TestServe(t *testing.T) {\n\ts := httptest.NewServer(http.NotFoundHandler())\n\tdefer s.Close()\n\tif r, err := http.Get(s.URL); err != nil || r.StatusCode != 404 {\n\t\tt.Fatal(err)\n\t}\n}\n",
    ),
    (
        "test_serve.py",
        "import http.server, threading, urllib.request\n\ndef test_serve(tmp_path):\n    (tmp_path / 'x').write_text('y')\n    s = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n    threading.Thread(target=s.serve_forever, daemon=True).start()\n    assert urllib.request.urlopen('http://127.0.0.1:%d/' % s.server_port).status == 200\n    s.shutdown()\n",
    ),
    ("Makefile", "all:\n\t@echo made\npush:\n\t@git push\nfetch:\n\t@npm view is-odd version --fetch-retries=0\n"),
    ("Cargo.toml", "[package]\nname = \"fresh\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[lib]\npath = \"lib.rs\"\n"),
    (
        "lib.rs",
        "#[test]\nfn serves() {\n    let l = std::net::TcpListener::bind(\"127.0.0.1:0\").unwrap();\n    std::net::TcpStream::connect(l.local_addr().unwrap()).unwrap();\n}\n",
    ),
];

/// The grants, with the risks that each accepts beyond those of its verb.
const GRANTS: &[(&str, &str)] = &[
    ("git commit", ""),
    ("git commit", "write,workspace_code,credential"),
    ("git push", ""),
    ("make", ""),
    ("npm install", ""),
    ("npm test", ""),
    ("go test", ""),
    ("cargo test", ""),
    ("pytest-3", ""),
    ("pip3 download", "write,network,workspace_code"),
    ("psql", ""),
];

/// Each must work and print this.
const WORKING_COMMANDS: &[(&str, &str)] = &[
    ("git commit -q --allow-empty -m one && git log --oneline", "one"),
    ("git commit -q -S --allow-empty -m signed && git log --oneline -1", "signed"),
    ("git push -q && git status -sb", "main...origin/main"),
    ("git commit -q --allow-empty -m two && git push -q; git status -sb", "main...origin/main"),
    ("make", "made"),
    ("npm install --no-audit --no-fund", "added 1 package"),
    ("npm test", "served 200"),
    ("go test ./...", "ok"),
    ("cargo test -q --offline", "1 passed"),
    ("pytest-3 -q test_serve.py", "1 passed"),
    ("pip3 download -q --no-deps -d wheels six && ls wheels", "six"),
    ("psql -h 127.0.0.1 -p 54399 -d postgres -Atc 'select 40 + 2'", "42"),
];

/// Each must fail, and print this hint.
const REFUSED_COMMANDS: &[(&str, &str)] = &[("make push", "--network open"), ("make fetch", "--network open")];

pub(super) fn accepted(stage: &CheckStage) -> Result<()> {
    install_missing(NEEDED)?;
    stage.directory("project", FILES)?;
    let server = Servers::start(stage)?;
    let cargo = std::env::var("CARGO").unwrap_or_default();
    let path =
        format!("{SYSTEM_PATH}:/usr/sbin:{}", Path::new(&cargo).parent().unwrap_or(Path::new("/usr/bin")).display());
    for (verb, risks) in GRANTS {
        let project = stage.dir.join("project").display().to_string();
        let mut args = vec!["grants", "add", "--verb", verb, "--in", &project];
        if !risks.is_empty() {
            args.extend(["--accept", risks]);
        }
        stage.csn(&args)?;
    }
    let run = |text: &str| -> Result<(Output, String)> {
        let mut csn = stage.command(&stage.csn, "project");
        let output = csn.env("PATH", &path).args(["run", "--unattended", text]).output();
        let output = output.map_err(|e| format!("csn: {e}"))?;
        let printed = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
        Ok((output, printed))
    };
    for (text, expected) in WORKING_COMMANDS {
        let (output, printed) = run(text)?;
        if !output.status.success() || !printed.contains(expected) {
            return Err(format!("{text}: {}: {printed}", output.status));
        }
    }
    let signed = stage.command("git", "project").args(["log", "--format=%G? %s", "-4"]).output();
    let signed = signed.map_err(|e| format!("git: {e}"))?;
    if !String::from_utf8_lossy(&signed.stdout).lines().any(|line| line.ends_with(" signed") && !line.starts_with('N'))
    {
        return Err(format!("nothing is signed: {}", String::from_utf8_lossy(&signed.stdout)));
    }
    for (text, hint) in REFUSED_COMMANDS {
        let (output, printed) = run(text)?;
        if output.status.success() || !printed.contains(hint) {
            return Err(format!("{text}: {}: the hint `{hint}` is missing: {printed}", output.status));
        }
    }
    // A command does not show that the configuration signs: it fails with a hint, and a grant without a sandbox
    // helps.
    let mut git = stage.command("git", "project");
    git.args(["config", "commit.gpgsign", "true"]).status().map_err(|e| format!("git: {e}"))?;
    let (output, printed) = run("git commit -q --allow-empty -m by-configuration")?;
    if output.status.success() || !printed.contains("--confinement shield") {
        return Err(format!("signing by configuration: {}: {printed}", output.status));
    }
    let project = stage.dir.join("project").display().to_string();
    stage.csn(&["grants", "revoke", &format!("git commit in {project}")])?;
    stage.csn(&["grants", "add", "--verb", "git commit", "--in", &project, "--confinement", "shield"])?;
    let (output, printed) = run("git commit -q --allow-empty -m by-configuration")?;
    drop(server);
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("signing by configuration, granted without a sandbox: {}: {printed}", output.status))
    }
}

/// An SSH server and a database on loopback, for this check only.
struct Servers<'s>(&'s CheckStage);

impl<'s> Servers<'s> {
    fn start(stage: &'s CheckStage) -> Result<Self> {
        let home = stage.dir.join("user");
        fs::create_dir_all(home.join(".ssh")).map_err(|e| e.to_string())?;
        let script = START_SERVERS.replace("@STAGE@", &stage.dir.display().to_string());
        let output = stage.command("bash", ".").args(["-c", &script]).output().map_err(|e| format!("bash: {e}"))?;
        if output.status.success() {
            Ok(Self(stage))
        } else {
            Err(format!("the servers do not start: {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
    }
}

impl Drop for Servers<'_> {
    fn drop(&mut self) {
        let script = STOP_SERVERS.replace("@STAGE@", &self.0.dir.display().to_string());
        let _ = self.0.command("bash", ".").args(["-c", &script]).output();
    }
}

const START_SERVERS: &str = r#"set -e
cd @STAGE@
chmod 700 user/.ssh
ssh-keygen -q -t ed25519 -N '' -f user/.ssh/id_ed25519
ssh-keygen -q -t ed25519 -N '' -f host
cat > sshd.conf <<E
Port 54322
ListenAddress 127.0.0.1
HostKey @STAGE@/host
AuthorizedKeysFile @STAGE@/user/.ssh/id_ed25519.pub
StrictModes no
UsePAM no
PidFile @STAGE@/sshd.pid
E
mkdir -p /run/sshd
/usr/sbin/sshd -f sshd.conf
cat > user/.ssh/config <<E
Host local
  HostName 127.0.0.1
  Port 54322
  IdentityFile @STAGE@/user/.ssh/id_ed25519
  UserKnownHostsFile @STAGE@/user/.ssh/known_hosts
  StrictHostKeyChecking accept-new
E
git config --global user.name Me
git config --global user.email me@example.org
git config --global init.defaultBranch main
git init -q --bare remote.git
cd project
git init -q .
# ssh looks for its configuration in the home that the system knows.
git config core.sshCommand 'ssh -F @STAGE@/user/.ssh/config'
git config push.autoSetupRemote true
git remote add origin local:@STAGE@/remote.git
gpg --batch --quiet --passphrase '' --quick-gen-key 'Me <me@example.org>' ed25519 sign never
cd ..
initdb=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
mkdir -p pg && chmod 755 . && chown nobody pg
setpriv --reuid=nobody --clear-groups "$initdb/initdb" -D pg -A trust -U "$(id -un)" > /dev/null
setpriv --reuid=nobody --clear-groups "$initdb/pg_ctl" -D pg -o '-p 54399 -k ""' -l pg/log -w start > /dev/null
"#;

const STOP_SERVERS: &str = r"cd @STAGE@
kill $(cat sshd.pid)
setpriv --reuid=nobody --clear-groups $(ls -d /usr/lib/postgresql/*/bin | tail -1)/pg_ctl -D pg -m fast stop
gpgconf --kill all
";
