//! A process that leaves the process tree of a registered agent is still the agent's: by its control group, and by the
//! variables that agents set for the commands they run.

use crate::CSN;
use countersign_model::ApprovalState;
use countersign_testkit::TestHome;
use serde_json::json;
use std::path::Path;

/// A program that waits until its parent is gone, and then adds a grant and answers an approval, as a person may. The
/// result is in `said`.
const ORPHAN: &str = r#"
exec < /dev/null > /dev/null 2>&1
while [ -e "/proc/$AGENT" ]; do :; done
if "$CSN" grants add --verb touch --anywhere > answer 2>&1 || "$CSN" approvals answer "$AP" once >> answer 2>&1
then echo done > said.new; else echo refused > said.new; fi
mv said.new said
"#;

struct Scene {
    daemon: TestHome,
    approval: String,
}

impl Scene {
    fn new() -> Self {
        let daemon = TestHome::started(CSN);
        let waiting = daemon.ask_with("touch granted", json!({"profile": "safe"}));
        let approval = waiting.approval_id().unwrap().to_string();
        std::fs::write(daemon.work().join("orphan.sh"), ORPHAN).unwrap();
        Self { daemon, approval }
    }

    /// Runs shell text as a program of its own, with the variables that the orphan needs.
    fn run(&self, text: &str) {
        let home = self.daemon.home().display();
        let script = format!("export CSN={CSN} AGENT=$$ AP={} COUNTERSIGN_HOME={home}\n{text}\n", self.approval);
        std::fs::write(self.daemon.work().join("agent.sh"), script).unwrap();
        let out = self.daemon.outside(&["bash", "agent.sh"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }

    /// The result of the orphan's answer.
    fn orphan_answer(&self) -> String {
        let said = self.daemon.work().join("said");
        while !said.exists() {
            std::thread::yield_now();
        }
        let text = std::fs::read_to_string(&said).unwrap();
        std::fs::remove_file(said).unwrap();
        text.trim().to_owned()
    }

    fn still_waits(&self) {
        assert_eq!(self.daemon.client().approval(&self.approval).unwrap().state, ApprovalState::Waiting);
    }
}

/// Whether control groups can be created here, in the version 2 hierarchy of this process.
fn groups() -> bool {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(within) = own.lines().find_map(|l| l.strip_prefix("0::/")) else { return false };
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let Some(root) = roots.into_iter().find(|r| r.join("cgroup.procs").exists()) else { return false };
    let tried = root.join(within).join(format!("csn-test-{}", std::process::id()));
    let made = std::fs::create_dir(&tried).is_ok();
    let _ = std::fs::remove_dir(tried);
    made
}

const REGISTER: &str = "\"$CSN\" sessions open --agent --in . > /dev/null || exit 1";
/// The daemon moves an agent into a group right after it has registered it.
const ENCLOSED: &str = "until grep -q csn-agent /proc/self/cgroup; do :; done";

#[test]
fn an_orphan_of_a_registered_agent_stays_the_agents_whatever_it_clears() {
    if !groups() {
        eprintln!("skipped: no control groups can be made here");
        return;
    }
    let scene = Scene::new();
    for away in [
        "(bash orphan.sh &)",
        "(setsid bash orphan.sh &)",
        "(env -i PATH=\"$PATH\" AGENT=$AGENT CSN=\"$CSN\" AP=\"$AP\" COUNTERSIGN_HOME=\"$COUNTERSIGN_HOME\" setsid bash orphan.sh &)",
        "((setsid bash -c '(bash orphan.sh &)' &) &)",
    ] {
        scene.run(&format!("{REGISTER}\n{ENCLOSED}\n{away}"));
        assert_eq!(scene.orphan_answer(), "refused", "{away}");
        let why = std::fs::read_to_string(scene.daemon.work().join("answer")).unwrap();
        assert!(why.contains("agent"), "{away}: {why}");
        scene.still_waits();
    }
}

#[test]
fn an_orphan_with_an_agents_environment_stays_the_agents_without_control_groups() {
    let scene = Scene::new();
    // A registered agent elsewhere in the tree: the processes below were never in its group.
    scene.run(REGISTER);
    for variable in ["CLAUDECODE=1", "CODEX_SANDBOX=seatbelt", "OPENCODE=1", "GEMINI_CLI=1"] {
        scene.run(&format!("(env {variable} setsid bash orphan.sh &)"));
        assert_eq!(scene.orphan_answer(), "refused", "{variable}");
        let why = std::fs::read_to_string(scene.daemon.work().join("answer")).unwrap();
        assert!(why.contains("variables of an agent"), "{variable}: {why}");
    }
    scene.still_waits();
    // An orphan of no agent is a person's background job.
    scene.run("(setsid bash orphan.sh &)");
    assert_eq!(scene.orphan_answer(), "done");
}

#[test]
fn an_agents_environment_does_not_keep_it_from_being_registered() {
    let daemon = TestHome::started(CSN);
    let csn = format!("CLAUDECODE=1 COUNTERSIGN_HOME={} {CSN}", daemon.home().display());
    for _ in 0..2 {
        std::fs::write(daemon.work().join("agent.sh"), format!("{csn} sessions open --agent --in .\n")).unwrap();
        let out = daemon.outside(&["bash", "agent.sh"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
}
