//! Runs the service under a real systemd, in a machine made of namespaces with an overlay over this one. What is
//! installed there disappears with it; Countersign's home is kept, to be read after that machine is off.

use super::{CheckStage, Deadline, install_missing};
use crate::{Result, command};
use std::{fs, path::Path, process::Child};

const NEEDED: &[(&str, &str)] = &[("unshare", "util-linux"), ("nsenter", "util-linux"), ("systemd-analyze", "systemd")];
const SYSTEMD: &str = "/lib/systemd/systemd";

/// Becomes the first process of another machine. `$1` is where its disk is assembled, `$2` the home to keep.
const BOOT_SCRIPT: &str = r#"set -e
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

/// Runs `csn` as a user of that machine.
const ANN_FUNCTION: &str = r#"ann() { (cd /home/ann/p && setpriv --reuid=ann --regid=ann --init-groups env -i PATH="$PATH" HOME=/home/ann csn "$@"); }
"#;

const INSTALL_SCRIPT: &str = "
useradd -m ann && install -d -o ann -g ann /home/ann/p && echo hello > /home/ann/p/f
csn service install --system && csn service status --system
ann run 'cat f; id -un'
";

/// Tasks survive a restart and a crash, after which systemd restarts the daemon.
const RESTART_SCRIPT: &str = "
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

/// Starts a task that does not end on its own, then powers the machine off.
const POWER_OFF_SCRIPT: &str = "
ann run --background --profile full_auto 'while :; do sleep 1; done'
systemctl poweroff
";

pub(super) fn systemd(stage: &CheckStage) -> Result<()> {
    install_missing(NEEDED)?;
    let (disk, kept_home) = (stage.dir.join("disk"), stage.dir.join("kept"));
    for dir in [&disk, &kept_home] {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let machine = SystemdMachine::boot(&disk, &kept_home)?;
    machine.wait_until_up()?;
    for name in ["csn", "csn-shim"] {
        machine.copy_program(&Path::new(&stage.csn).with_file_name(name), "usr/local/bin")?;
    }
    let printed = machine.run_script(&format!("{ANN_FUNCTION}{INSTALL_SCRIPT}"))?;
    if !printed.contains("active   active") || !printed.contains("hello\nann\n") {
        return Err(format!("the service does not run: {printed}"));
    }
    let printed = machine.run_script(&format!("{ANN_FUNCTION}{RESTART_SCRIPT}"))?;
    if !printed.contains("RESTARTED") {
        return Err(printed);
    }
    println!(
        "   systemctl restart and kill -9: the task kept running; only the service's user can verify and read the ledger"
    );
    machine.run_script(&format!("{ANN_FUNCTION}{POWER_OFF_SCRIPT}"))?;
    machine.wait_until_off()?;
    // The task was stopped and its receipt sealed before the machine was off.
    let ledger = kept_home.join("ledger.db").display().to_string();
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
    let ended = lines.contains("\"says\":\"1 task stopped\"")
        && lines.contains("\"state\":\"halted\"")
        && lines.contains("receipt.sealed");
    if !ended {
        return Err(format!("the daemon did not stop in order with its machine:\n{lines}"));
    }
    println!("   poweroff: the task was stopped, its receipt sealed, and the daemon halted");
    Ok(())
}

/// Another machine in namespaces of this one, which is off after drop.
struct SystemdMachine {
    outer: Child,
}

impl SystemdMachine {
    fn boot(disk: &Path, kept_home: &Path) -> Result<Self> {
        if !is_root() {
            return Err("only root can start a machine in namespaces".into());
        }
        if !Path::new(SYSTEMD).exists() {
            return Err(format!("{SYSTEMD} is missing"));
        }
        let log = fs::File::create(disk.with_extension("log")).map_err(|e| e.to_string())?;
        let errors = log.try_clone().map_err(|e| e.to_string())?;
        let outer = command("unshare")
            .args(["--fork", "--pid", "--mount", "--uts", "--ipc", "--kill-child", "bash", "-c", BOOT_SCRIPT, "boot"])
            .args([disk, kept_home])
            .stdin(std::process::Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(|e| format!("unshare: {e}"))?;
        Ok(Self { outer })
    }

    /// The process id of the first process in the machine.
    fn init_pid(&self) -> Option<String> {
        let pid = self.outer.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next().map(str::to_owned)
    }

    fn wait_until_up(&self) -> Result<()> {
        let deadline = Deadline::start();
        loop {
            let state = self.run_script("systemctl is-system-running || true").unwrap_or_default();
            if ["running", "degraded"].contains(&state.trim()) {
                return Ok(());
            }
            if !deadline.wait() {
                return Err(format!("systemd does not start: {state}"));
            }
        }
    }

    /// Copies a program into a directory of the machine.
    fn copy_program(&self, program: &Path, directory: &str) -> Result<()> {
        let first = self.init_pid().ok_or("the machine is off")?;
        let name = program.file_name().ok_or("a program has a name")?;
        let to = Path::new("/proc").join(first).join("root").join(directory).join(name);
        fs::copy(program, &to).map(drop).map_err(|e| format!("{}: {e}", to.display()))
    }

    /// Runs shell text as root in the machine.
    fn run_script(&self, text: &str) -> Result<String> {
        let first = self.init_pid().ok_or("the machine is off")?;
        let output = command("timeout")
            .args(["60", "nsenter", "-t", &first, "-p", "-m", "-u", "-i", "-r", "-w"])
            .args(["env", "-i", "PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"])
            .args(["bash", "-c", &format!("cd /; set -e\n{text}")])
            .stdin(std::process::Stdio::null())
            .output()
            .map_err(|e| format!("nsenter: {e}"))?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            Ok(printed)
        } else {
            Err(format!("{printed}{}", String::from_utf8_lossy(&output.stderr)))
        }
    }

    fn wait_until_off(mut self) -> Result<()> {
        let deadline = Deadline::start();
        while self.outer.try_wait().map_err(|e| e.to_string())?.is_none() {
            if !deadline.wait() {
                return Err("the machine does not turn off".into());
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
