//! The service under a real systemd: a machine of its own in namespaces, made of this one with an overlay over it. What is
//! installed there is gone with it; the house's home is kept aside, to be looked at when that machine is off.

use super::{CheckStage, Deadline, install_missing};
use crate::{Result, command};
use std::{fs, path::Path, process::Child};

const NEEDED: &[(&str, &str)] = &[("unshare", "util-linux"), ("nsenter", "util-linux"), ("systemd-analyze", "systemd")];
const SYSTEMD: &str = "/lib/systemd/systemd";

/// Becomes the first process of another machine. `$1` is where its disk is put together, `$2` the home to keep.
const BOOT: &str = r#"set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
cd "$1/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs run
mount -t tmpfs tmpfs tmp
mkdir -p var/lib/countersign
mount --bind "$2" var/lib/countersign
exec env -i container=csn PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /lib/systemd/systemd --system --unit=basic.target
"#;

/// Somebody who works there.
const ANN: &str = r#"ann() { (cd /home/ann/p && setpriv --reuid=ann --regid=ann --init-groups env -i PATH="$PATH" HOME=/home/ann csn "$@"); }
"#;

const INSTALL: &str = "
useradd -m ann && install -d -o ann -g ann /home/ann/p && echo hello > /home/ann/p/f
csn service install --system && csn service status --system
ann run 'cat f; id -un'
";

/// Tasks go on through a restart and through a crash, after which systemd starts the house again.
const RESTART: &str = "
task=$(ann run --background --profile full_auto 'for i in $(seq 1 3000); do echo tick $i; sleep 0.1; done')
before=$(systemctl show -p MainPID --value countersign)
systemctl restart countersign
after=$(systemctl show -p MainPID --value countersign)
test \"$before\" != \"$after\"
ann show \"$task\" --json | grep -q '\"status\":\"running\"'
kill -9 \"$after\"
until test \"$(systemctl show -p NRestarts --value countersign)\" = 1 && ann ps > /dev/null 2>&1; do sleep 0.2; done
ann show \"$task\" --json | grep -q '\"status\":\"running\"'
ann cancel \"$task\"
ann wait \"$task\" || test $? = 130
setpriv --reuid=countersign --regid=countersign --clear-groups env -i PATH=\"$PATH\" HOME=/ csn verify
! ann verify
! setpriv --reuid=ann --regid=ann --init-groups cat /var/lib/countersign/ledger.db
csn down && test \"$(systemctl is-active countersign)\" = inactive && systemctl start countersign
echo RESTARTED
";

/// Something that does not end by itself, when everything goes down.
const POWER_OFF: &str = "
ann run --background --profile full_auto 'while :; do sleep 1; done'
systemctl poweroff
";

pub(super) fn systemd(stage: &CheckStage) -> Result<()> {
    install_missing(NEEDED)?;
    let (disk, kept) = (stage.dir.join("disk"), stage.dir.join("kept"));
    for dir in [&disk, &kept] {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let machine = SystemdMachine::boot(&disk, &kept)?;
    machine.is_up()?;
    for name in ["csn", "csn-shim"] {
        machine.put(&Path::new(&stage.csn).with_file_name(name), "usr/local/bin")?;
    }
    let said = machine.script(&format!("{ANN}{INSTALL}"))?;
    if !said.contains("active   active") || !said.contains("hello\nann\n") {
        return Err(format!("the service does not run: {said}"));
    }
    let said = machine.script(&format!("{ANN}{RESTART}"))?;
    if !said.contains("RESTARTED") {
        return Err(said);
    }
    println!(
        "   systemctl restart and kill -9: the task went on; its user verifies the ledger, and nobody else reads it"
    );
    machine.script(&format!("{ANN}{POWER_OFF}"))?;
    machine.goes_off()?;
    // The ladder ran, and the receipt was sealed, before the machine was off.
    let ledger = kept.join("ledger.db").display().to_string();
    let text = "SELECT line FROM decisions ORDER BY n DESC LIMIT 20";
    let lines = command("python3")
        .args([
            "-c",
            "import sqlite3, sys\nfor r in sqlite3.connect(sys.argv[1]).execute(sys.argv[2]): print(r[0])",
            &ledger,
            text,
        ])
        .output()
        .map_err(|e| e.to_string())?;
    let lines = String::from_utf8_lossy(&lines.stdout).into_owned();
    let ended = lines.contains("\"says\":\"1 stopped\"")
        && lines.contains("\"state\":\"halted\"")
        && lines.contains("receipt.sealed");
    if !ended {
        return Err(format!("the house did not go down in order with its machine:\n{lines}"));
    }
    println!("   poweroff: the task was stopped, its receipt sealed, the house halted");
    Ok(())
}

/// Another machine in namespaces of this one. Dropped, it is off.
struct SystemdMachine {
    outer: Child,
}

impl SystemdMachine {
    fn boot(disk: &Path, kept: &Path) -> Result<Self> {
        if !is_root() {
            return Err("only root can make a machine of its own".into());
        }
        if !Path::new(SYSTEMD).exists() {
            return Err(format!("{SYSTEMD} is missing"));
        }
        let log = fs::File::create(disk.with_extension("log")).map_err(|e| e.to_string())?;
        let errors = log.try_clone().map_err(|e| e.to_string())?;
        let outer = command("unshare")
            .args(["--fork", "--pid", "--mount", "--uts", "--ipc", "--kill-child", "bash", "-c", BOOT, "boot"])
            .args([disk, kept])
            .stdin(std::process::Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|e| format!("unshare: {e}"))?;
        Ok(Self { outer })
    }

    /// The first process in there.
    fn first(&self) -> Option<String> {
        let pid = self.outer.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next().map(str::to_owned)
    }

    fn is_up(&self) -> Result<()> {
        let patience = Deadline::begin();
        loop {
            let state = self.script("systemctl is-system-running || true").unwrap_or_default();
            if ["running", "degraded"].contains(&state.trim()) {
                return Ok(());
            }
            if !patience.left() {
                return Err(format!("systemd does not come up: {state}"));
            }
        }
    }

    /// Copies a program into a directory in there.
    fn put(&self, program: &Path, directory: &str) -> Result<()> {
        let first = self.first().ok_or("the machine is off")?;
        let name = program.file_name().ok_or("a program has a name")?;
        let to = Path::new("/proc").join(first).join("root").join(directory).join(name);
        fs::copy(program, &to).map(drop).map_err(|e| format!("{}: {e}", to.display()))
    }

    /// Shell text as root in there, to its end.
    fn script(&self, text: &str) -> Result<String> {
        let first = self.first().ok_or("the machine is off")?;
        let output = command("timeout")
            .args(["60", "nsenter", "-t", &first, "-p", "-m", "-u", "-i", "-r", "-w"])
            .args(["env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"])
            .args(["bash", "-c", &format!("cd /; set -e\n{text}")])
            .stdin(std::process::Stdio::null())
            .output()
            .map_err(|e| format!("nsenter: {e}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(said),
            false => Err(format!("{said}{}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    fn goes_off(mut self) -> Result<()> {
        let patience = Deadline::begin();
        while self.outer.try_wait().map_err(|e| e.to_string())?.is_none() {
            if !patience.left() {
                return Err("the machine does not go off".into());
            }
        }
        Ok(())
    }
}

impl Drop for SystemdMachine {
    fn drop(&mut self) {
        let _ = self.outer.kill();
        let _ = self.outer.wait();
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}
