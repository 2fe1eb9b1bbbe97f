//! Hard denies and protected paths: in every spelling, under every grant.

use crate::support::{ROOT, assess, check, grant, plan, verdict_text, verdict_word};
use countersign_model::{Facts, PathTarget, PathTargetKind};

const EVERYTHING: &[&str] =
    &["rm@any", "sudo@any", "csn down@any", "cat@any", "bash@any", "kill@any", "dd@any", "cp@any", "echo@any"];

#[test]
fn f110_stopping_countersign_is_refused_in_every_position() {
    for command in [
        "csn down",
        "ls && csn down",
        "ls | csn down",
        "bash -lc 'csn down'",
        "/bin/dash -c 'csn down'",
        "cd /nowhere && csn down",
        "sleep 1 & csn down",
        "sleep 1 && csn down &",
        "/usr/local/bin/csn down",
        "c\"s\"n down",
        "x=csn; $x down",
        "echo $(csn down)",
        "eval 'csn down'",
        "echo 'csn down' | sh",
        "trap 'csn down' EXIT",
        "timeout 5 csn down",
        "find . -exec csn down \\;",
        "systemctl --user stop countersign",
        "csn approvals answer ap_1 once",
        "csn grants add --verb x --anywhere",
        "csn token create",
        "csn install claude-code --uninstall",
        "bash -c 'csn install codex'",
        "pkill csn",
        "pkill -f 'csn up'",
        "killall -9 csn-shim",
        "kill -9 -1",
        "kill $(pgrep csn)",
        "pkill .",
    ] {
        check(command, EVERYTHING, "deny[self_destructive]");
    }
    for command in [
        "csn ps",
        "pkill -f http.server",
        "kill 123",
        "echo csn down",
        "grep 'csn down' README.md",
        "kill $(pgrep node)",
    ] {
        assert_ne!(verdict_word(&assess(command, ROOT, &[ROOT], &[], None)), "deny", "{command}");
    }
}

#[test]
fn f111_another_users_rights_always_need_approval() {
    for (command, expect) in [
        ("sudo ls", "ask[sudo, ls]"),
        ("x=$(sudo ls)", "ask[sudo, ls]"),
        ("sudo bash -lc 'ls'", "ask[sudo, ls]"),
        ("doas ls", "ask[doas, ls]"),
        ("sudo -u root -- ls", "ask[sudo, ls]"),
    ] {
        check(command, &["ls@any", "sudo@any", "doas@any"], expect);
    }
    check("sudo rm -rf /", EVERYTHING, "deny[system_destructive]");
}

#[test]
fn f112_removing_everything_is_refused_in_every_spelling() {
    for command in [
        "rm -rf /",
        "rm -fr ~/",
        "rm -r -f $HOME",
        "rm --recursive --force /",
        "rm --recurs --forc /",
        "x=/; rm -rf \"$x\"",
        "[ 3 -gt 2 ] && rm -rf /",
        "rm -rf /*",
        "rm -rf ~/*",
        "rm -rf //",
        "rm -rf /./",
        "rm -rf /tmp/..",
        "rm -vrf -- /",
        "for d in /tmp /; do rm -rf \"$d\"; done",
        "rm -rf /work",
        "rm -rf ..",
        "cd / && rm -rf .",
        "rm -rf {/,x}",
        "env rm -rf /",
        "find / -exec rm -rf {} \\;",
        "echo / | xargs rm -rf /",
        "eval 'rm -rf /'",
        "bash <<< 'rm -rf /'",
        "sh <<'EOF'\nrm -rf /\nEOF",
        "busybox rm -rf /",
        "rm -rf $'\\x2f'",
        "rm -rf /home/dev",
        "rm -rf /home/other/",
    ] {
        check(command, EVERYTHING, "deny[system_destructive]");
    }
    for command in [
        "x=/tmp/b; rm -rf $x",
        "rm -rf ./-/",
        "rm -r build",
        "rm -rf /work/proj/build",
        "echo 'rm -rf /'",
        "ssh host 'rm -rf /'",
    ] {
        assert_ne!(verdict_word(&assess(command, ROOT, &[ROOT], &[], None)), "deny", "{command}");
    }
    let mut facts = Facts::none(ROOT);
    facts.paths.insert(
        "/mnt/disk".to_owned(),
        PathTarget { resolved: "/mnt/disk".into(), kind: PathTargetKind::Directory, dev: 1, inode: 1, mount: true },
    );
    assert_eq!(verdict_word(&assess("rm -rf /mnt/disk", ROOT, &[ROOT], &[grant("rm", None)], Some(facts))), "deny");
}

#[test]
fn f113_fork_bombs_and_new_file_systems_are_refused() {
    for command in [
        ":(){ :|:& };:",
        ":() { : | : & } ; :",
        "bomb() { bomb | bomb & }; bomb",
        "f(){ f & f; }; f",
        "mkfs.ext4 /dev/sda1",
        "sudo mkfs -t ext4 /dev/sdb",
        "dd if=/dev/zero of=/dev/sda",
        "cat x > /dev/nvme0n1",
        "cp x /dev/sda",
        "tee /dev/sdb < x",
        "wipefs -a /dev/sda",
    ] {
        check(command, EVERYTHING, "deny[system_destructive]");
    }
    for command in
        ["f() { ls; }; f", "dd if=/dev/sda of=mbr.bin count=1", "printf '%s' ':(){ :|:& };:'", "cat /dev/null"]
    {
        assert_ne!(verdict_word(&assess(command, ROOT, &[ROOT], &[], None)), "deny", "{command}");
    }
}

#[test]
fn f114_signals_to_countersign_are_refused_and_to_others_need_approval() {
    check("kill 123", &[], "ask[kill]");
    check("pkill -f http.server", &[], "ask[pkill]");
    check("kill $(cat x.pid)", &["kill@any"], "once[kill]");
    let mut facts = Facts::none(ROOT);
    facts.processes.insert(4711, "csn-shim".to_owned());
    facts.processes.insert(4712, "bash".to_owned());
    for (command, expect) in
        [("kill 4711", "deny"), ("kill -TERM 4711", "deny"), ("kill -- -4711", "deny"), ("kill 4712", "ask")]
    {
        assert_eq!(verdict_word(&assess(command, ROOT, &[ROOT], &[], Some(facts.clone()))), expect, "{command}");
    }
}

#[test]
fn f115_f117_countersigns_own_files_are_refused_in_every_spelling() {
    let home = "/home/dev/.config/countersign";
    for command in [
        format!("cat {home}/config.toml"),
        "cat ~/.config/countersign/config.toml".to_owned(),
        "cat ~/.config/countersign/k*".to_owned(),
        "cat ~/.config/{countersign,x}/a".to_owned(),
        "cat ~/.config/$'\\x63ountersign'/a".to_owned(),
        "d=~/.config/countersign; cat $d/a".to_owned(),
        "cat ~//.config/./countersign/../countersign/a".to_owned(),
        "cat ~/.config/\"counter\"sign/a".to_owned(),
        "cat ~/.config/*/config.toml".to_owned(),
        "cat ~/.config/c*/x".to_owned(),
        "ln -s ~/.config/countersign x".to_owned(),
        "[ -f ~/.config/countersign/a ]".to_owned(),
        "p=~/.config/countersign/k*; echo $p".to_owned(),
        "cp x ~/.config/countersign/config.toml".to_owned(),
        "echo > ~/.config/countersign/config.toml".to_owned(),
        "sort -o ~/.config/countersign/config.toml a".to_owned(),
        "sed -i s/a/b/ ~/.config/countersign/config.toml".to_owned(),
        "cd ~/.config && cat countersign/a".to_owned(),
        "cat ~/.local/state/countersign/ledger.db".to_owned(),
        "ls /run/user/1000/countersign".to_owned(),
        "rm -rf ~/.config".to_owned(),
        "mv ~/.config/countersign x".to_owned(),
        "bash -c 'echo x > ~/.config/countersign/a'".to_owned(),
        "tar cf x.tar ~/.config/countersign".to_owned(),
        "COUNTERSIGN_HOME=/home/dev/.local/state/countersign ls".to_owned(),
    ] {
        let all: Vec<_> =
            ["cat", "cp", "echo", "ls", "sort", "sed", "rm", "mv", "ln", "tar", "cd"].map(|v| grant(v, None)).into();
        let told = verdict_text(&assess(&command, ROOT, &[ROOT], &all, None), &plan(&command, ROOT));
        assert_eq!(told, "deny[protected_path]", "{command}");
    }
    // A path that leads there through a symbolic link.
    let mut facts = Facts::none(ROOT);
    facts.paths.insert(
        "/work/proj/x/a".to_owned(),
        PathTarget { resolved: format!("{home}/a"), kind: PathTargetKind::File, dev: 1, inode: 1, mount: false },
    );
    assert_eq!(verdict_word(&assess("cat x/a", ROOT, &[ROOT], &[], Some(facts))), "deny");
    // A path built from unknown text can be approved only once, under any grant.
    for command in ["cat ~/.config/\"$X\"/a", "cat \"$X\"", "cat $(echo x)"] {
        check(command, &["cat@any"], "once[cat]");
    }
    for command in ["grep countersign README.md", "ls ~/.config", "cat ~/.config/other", "echo ~/.config/countersign"] {
        assert_ne!(verdict_word(&assess(command, ROOT, &[ROOT], &[], None)), "deny", "{command}");
    }
}
