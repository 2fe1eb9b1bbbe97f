//! A full disk: the daemon stops reading, then ends tasks step by step and reports it; nothing hangs. Mounting a small
//! file system needs root.

use crate::CSN;
use countersign_model::{Frame, LimitReached, Outcome};
use countersign_testkit::TestHome;
use serde_json::json;
use std::path::Path;

/// A small file system at a directory, unmounted when dropped.
struct SmallFileSystem<'a>(&'a Path);

impl<'a> SmallFileSystem<'a> {
    /// None, with a message, if this user may not mount.
    fn mount(at: &'a Path, size: &str) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let mounted = command("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(at).status();
        if mounted.is_ok_and(|s| s.success()) {
            return Some(Self(at));
        }
        assert_ne!(rustix::process::geteuid().as_raw(), 0, "root can mount");
        eprintln!("skipped: mounting a small file system needs root");
        None
    }
}

impl Drop for SmallFileSystem<'_> {
    fn drop(&mut self) {
        let _ = command("umount").arg("-l").arg(self.0).status();
        let _ = std::fs::remove_dir(self.0);
    }
}

#[expect(clippy::disallowed_methods, reason = "mounting is the machine's affair")]
fn command(program: &str) -> std::process::Command {
    std::process::Command::new(program)
}

#[test]
fn f168_a_full_disk_ends_the_task_and_is_reported() {
    let dir = std::env::temp_dir().join(format!("csn-small-{}", std::process::id()));
    let Some(_small) = SmallFileSystem::mount(&dir, "6m") else { return };
    let daemon = TestHome::new(CSN).with_home(dir.join("home"));
    daemon.start();
    let task =
        daemon.ask_with("echo begin; yes | head -c 50000000; echo end", json!({"limits": {"grace_ms": 200}})).task_id;
    let state = daemon.settled(task);
    assert_eq!(state.outcome(), Some(&Outcome::Limited { limit: LimitReached::Disk }));
    let reached = daemon.frame(task, |f| matches!(f, Frame::LimitReached { .. }));
    assert!(matches!(reached, Frame::LimitReached { limit, .. } if limit.as_str() == "disk"));
    daemon.frame(task, |f| matches!(f, Frame::Closed { .. }));
    assert!(daemon.stdout(task).starts_with("begin\ny\n"), "the record is intact");
    // With free space the daemon continues.
    std::fs::remove_file(daemon.task_dir(task).join("stdout.log")).unwrap();
    let next = daemon.ask("echo again");
    assert_eq!(daemon.outcome(next), Outcome::Exited { code: 0 });
    drop(daemon);
}

#[test]
fn f168_a_terminal_on_a_full_disk_ends_too() {
    let dir = std::env::temp_dir().join(format!("csn-small-pty-{}", std::process::id()));
    let Some(_small) = SmallFileSystem::mount(&dir, "6m") else { return };
    let daemon = TestHome::new(CSN).with_home(dir.join("home"));
    daemon.start();
    let with = json!({"execution_mode": "pty", "limits": {"grace_ms": 200}});
    let task = daemon.ask_with("echo begin; yes | head -c 50000000; echo end", with).task_id;
    assert_eq!(daemon.outcome(task), Outcome::Limited { limit: LimitReached::Disk });
    let shown = daemon.output(task, countersign_model::StreamName::Pty);
    assert!(shown.starts_with(b"begin\r\ny\r\n"), "the record is intact");
}

#[test]
fn a_home_that_cannot_be_written_is_explained() {
    let dir = std::env::temp_dir().join(format!("csn-readonly-{}", std::process::id()));
    let Some(_small) = SmallFileSystem::mount(&dir, "6m") else { return };
    let daemon = TestHome::new(CSN).with_home(dir.join("home"));
    daemon.start();
    // Without a sandbox: the kernel releases the private directory of a sandboxed task only some time after its end.
    let before = daemon.ask_open("echo before", json!({}));
    daemon.settled(before);
    daemon.kill_daemon();
    let remount = |how: &str| command("mount").args(["-o", &format!("remount,{how}")]).arg(&dir).status().unwrap();
    // Idle shims end when they see that the daemon has; until then they hold files without a name.
    let made_read_only = (0..500).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        remount("ro").success()
    });
    assert!(made_read_only);
    let error = daemon.try_start().unwrap_err();
    assert!(error.contains("Read-only") && error.contains("COUNTERSIGN_HOME"), "{error}");
    assert!(remount("rw").success());
    daemon.start();
    assert_eq!(daemon.stdout(before), "before\n");
}

#[test]
fn a_disk_without_room_for_the_ledger_refuses_and_loses_nothing() {
    let dir = std::env::temp_dir().join(format!("csn-full-{}", std::process::id()));
    let Some(_small) = SmallFileSystem::mount(&dir, "3m") else { return };
    let daemon = TestHome::new(CSN).with_home(dir.join("home"));
    daemon.start();
    let before = daemon.ask("echo before");
    daemon.settled(before);
    let filler = dir.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while std::io::Write::write_all(&mut file, &[0; 4096]).is_ok() {}
    let mut refused = None;
    for _ in 0..200 {
        match daemon.client().ask(&daemon.request("echo full", json!({}))) {
            Ok(state) => drop(daemon.settled(state.task_id)),
            Err(countersign_client::ClientError::Refused(countersign_model::TaskRefusal { refusal, .. })) => {
                refused = Some(refusal);
                break;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    let refused = refused.expect("a full disk is refused in the end");
    assert_eq!(refused.code.as_str(), "ledger_unavailable", "{refused:?}");
    drop(file);
    std::fs::remove_file(&filler).unwrap();
    let after = daemon.ask("echo after");
    assert_eq!(daemon.outcome(after), Outcome::Exited { code: 0 });
    assert_eq!(daemon.stdout(before), "before\n");
}
