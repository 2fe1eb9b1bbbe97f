//! Agents that ask before their own shell runs a command: hooks, tickets, witness mode.

use crate::{CSN, stream::get};
use countersign_client::ClientError;
use countersign_model::{
    Choice, CredentialKind, ExecutionKind, Frame, Outcome, RefusalCode, TaskRefusal, TaskState, Text,
};
use countersign_testkit::{TestAgent, TestHome, body};
use serde_json::{Value, json};

fn bash(daemon: &TestHome, command: &str) -> Value {
    json!({
        "session_id": "c1", "cwd": daemon.work(), "hook_event_name": "PreToolUse", "tool_name": "Bash",
        "tool_input": {"command": command, "description": "why", "timeout": 60_000}, "tool_use_id": "use-1",
    })
}

/// The command that the agent runs instead, after its hook allowed it.
fn rewritten(daemon: &TestHome, agent: &mut TestAgent, command: &str) -> String {
    let (code, out, err) = agent.hook("claude-code", &bash(daemon, command));
    assert_eq!((code, err.as_str()), (0, ""), "{command}");
    let answer: Value = serde_json::from_str(&out).unwrap();
    let said = &answer["hookSpecificOutput"];
    assert_eq!(said["permissionDecision"], "allow", "{answer}");
    assert_eq!(
        (&said["updatedInput"]["description"], &said["updatedInput"]["timeout"]),
        (&json!("why"), &json!(60_000))
    );
    said["updatedInput"]["command"].as_str().unwrap().to_owned()
}

fn tasks(daemon: &TestHome) -> Vec<TaskState> {
    let listed = get(daemon, "/tasks?limit=50").unwrap();
    serde_json::from_value(listed["tasks"].clone()).unwrap()
}

fn last(daemon: &TestHome) -> TaskState {
    let id = tasks(daemon)[0].task_id;
    daemon.client().task(&id.to_string()).unwrap()
}

#[test]
fn a_read_only_command_runs_in_the_daemon_and_looks_as_if_the_agent_ran_it() {
    let daemon = TestHome::started(CSN);
    std::fs::write(daemon.work().join("a.txt"), "read me\n").unwrap();
    let mut agent = daemon.agent();
    let command = rewritten(&daemon, &mut agent, "cat a.txt; echo bad >&2; exit 3");
    assert!(
        command.contains(" exec --ticket ti_") && command.ends_with("-- 'cat a.txt; echo bad >&2; exit 3'"),
        "{command}"
    );
    assert_eq!(agent.shell(&command), (3, "read me\n".to_owned(), "bad\n".to_owned()));
    let task = daemon.settled(last(&daemon).task_id);
    assert_eq!(
        (task.request.credential, task.request.title.as_ref().map(Text::as_str)),
        (CredentialKind::Agent, Some("why"))
    );
    assert_eq!(task.request.labels["agent"].as_str(), "claude-code");
    assert_eq!(task.request.labels["tool_use_id"].as_str(), "use-1");
    assert_eq!(task.outcome(), Some(&Outcome::Exited { code: 3 }));
    let session = get(&daemon, &format!("/sessions/{}", task.request.session_id.unwrap())).unwrap();
    assert_eq!((&session["conversation"], &session["agent"]["pid"]), (&json!("claude-code c1"), &json!(agent.pid())));
    // A command that runs without approval has only the base variables.
    let command = rewritten(&daemon, &mut agent, "echo \"<$FROM_AGENT$API_TOKEN>\"");
    assert_eq!(agent.shell(&command).1, "<>\n");
}

#[test]
fn a_person_answers_elsewhere_and_the_command_continues_in_the_agent() {
    let daemon = TestHome::started(CSN);
    let mut agent = daemon.agent();
    let command = rewritten(&daemon, &mut agent, "echo $FROM_AGENT:$API_TOKEN > made; cat made");
    let waits = std::thread::spawn(move || (agent.shell(&command), agent));
    let approval = loop {
        // The approval exists once `csn exec` has requested the task.
        let all = get(&daemon, "/approvals").unwrap();
        if let Some(found) = all["approvals"].as_array().and_then(|a| a.first()) {
            break found["id"].as_str().unwrap().parse().unwrap();
        }
        std::thread::yield_now();
    };
    daemon.client().answer(approval, Choice::Once, None).unwrap();
    let ((code, out, err), _agent) = waits.join().unwrap();
    assert_eq!((code, out.as_str()), (0, "yes:\n"), "{err}");
    assert!(err.contains("waiting for approval ap_"), "{err}");
}

#[test]
fn a_denied_command_does_not_run_and_gets_the_reason() {
    let daemon = TestHome::started(CSN);
    let mut agent = daemon.agent();
    for (name, command) in [("claude-code", "csn down"), ("codex", "rm -rf /"), ("claude-code", "echo $(csn down)")] {
        let (code, out, _) = agent.hook(name, &bash(&daemon, command));
        let answer: Value = serde_json::from_str(&out).unwrap();
        let said = &answer["hookSpecificOutput"];
        assert_eq!(
            (code, &said["permissionDecision"], &said["hookEventName"]),
            (0, &json!("deny"), &json!("PreToolUse"))
        );
        let reason = said["permissionDecisionReason"].as_str().unwrap();
        let task = last(&daemon);
        assert!(reason.starts_with("countersign: ") && reason.ends_with(&format!("[{}]", task.task_id)), "{reason}");
        assert!(matches!(daemon.sealed(task.task_id).outcome(), Some(&Outcome::Denied { .. })), "it has its receipt");
    }
    let (_, out, _) = agent.hook("opencode", &bash(&daemon, "csn down"));
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert!(answer["decision"] == "deny" && answer["reason"].as_str().unwrap().contains("countersign"), "{answer}");
}

/// Whatever goes wrong, the agent is told not to run the command.
#[test]
fn hooks_fail_closed() {
    let daemon = TestHome::started(CSN);
    let mut agent = daemon.agent();
    for bad in ["", "{", "[]", "{\"tool_name\":\"Bash\"}", "\u{0}", r#"{"cwd":"/","tool_name":"Bash","tool_input":{}}"#]
    {
        let (code, out, err) = agent.run(&["/bin/sh", "-c", &format!("{CSN} hook codex || exit 2")], bad);
        assert_eq!((code, out.as_str()), (2, ""), "{bad}");
        assert!(err.contains("nothing was run"), "{err}");
    }
    let mut elsewhere = bash(&daemon, "ls");
    elsewhere["cwd"] = json!("/nowhere/at/all");
    assert_eq!(agent.hook("claude-code", &elsewhere).0, 2);
    // The hook answers only for shells; a shell of another name is one.
    let mut other = bash(&daemon, "ls");
    (other["tool_name"], other["tool_input"]) = (json!("Read"), json!({"file_path": "/a"}));
    assert_eq!(agent.hook("claude-code", &other), (0, String::new(), String::new()));
    for name in ["shell", "exec_command", " Bash", "Bash\u{200b}", "PowerShell"] {
        let mut renamed = bash(&daemon, "csn down");
        renamed["tool_name"] = json!(name);
        assert!(agent.hook("claude-code", &renamed).1.contains("\"deny\""), "{name}");
        renamed["tool_input"] = json!({"command": ["bash", "-lc", "csn down"]});
        assert_eq!(agent.hook("codex", &renamed).0, 2, "{name}");
        renamed["tool_input"] = json!({"cmd": "csn down"});
        assert_eq!(agent.hook("codex", &renamed).0, 2, "{name}");
    }
    // An answer that cannot be written is no answer.
    let said = bash(&daemon, "csn down").to_string();
    for closed in ["1>&-", ">/dev/full"] {
        assert_eq!(agent.run(&["/bin/sh", "-c", &format!("{CSN} hook codex {closed}")], &said).0, 2, "{closed}");
    }
    let command = rewritten(&daemon, &mut agent, "touch ran");
    daemon.kill_daemon();
    let (code, out, err) = agent.hook("claude-code", &bash(&daemon, "ls"));
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("csn up --detach"), "{err}");
    for starts in [["ps", "-a"], ["run", "true"], ["wait", "tk_0000000000000000"]] {
        let (code, _, err) = agent.csn(&starts);
        assert!(code == 125 && err.contains("an agent may not start one"), "{starts:?}: {err}");
    }
    for up in [&["up", "--detach"][..], &["up"], &["up", "--detached"]] {
        let (code, _, err) = agent.csn(up);
        assert!(code == 125 && err.contains("an agent may not start one"), "{up:?}: {err}");
    }
    assert!(daemon.client().lifecycle().is_err(), "nothing below an agent starts one");
    assert_eq!(agent.shell(&command).0, 125);
    assert!(!daemon.work().join("ran").exists());
    daemon.start();
    // Tickets end with their daemon: the hook asks again about what it allowed before.
    let (code, _, err) = agent.shell(&command);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("its hook gets a new ticket"), "{err}");
    assert!(!daemon.work().join("ran").exists());
}

#[test]
fn a_ticket_is_for_one_command_one_place_one_agent_and_one_time() {
    let daemon = TestHome::started(CSN);
    let (mut agent, mut other) = (daemon.agent(), daemon.agent());
    rewritten(&daemon, &mut other, "ls");
    let ticket = |command: &str| command.split_ascii_whitespace().nth(3).unwrap().to_owned();
    let first = rewritten(&daemon, &mut agent, "echo one");
    let (code, _, err) = agent.csn(&["exec", "--ticket", &ticket(&first), "--", "echo two"]);
    assert!(code == 77 && err.contains("another command"), "{err}");
    assert_eq!(agent.shell(&first).0, 1, "the ticket was used for another command");
    let second = rewritten(&daemon, &mut agent, "echo one");
    let (code, _, err) = other.shell(&second);
    assert!(code == 77 && err.contains("another agent"), "{err}");
    let third = rewritten(&daemon, &mut agent, "echo one");
    std::fs::create_dir(daemon.work().join("sub")).unwrap();
    let (code, _, err) = agent.shell(&format!("cd sub && {third}"));
    assert!(code == 77 && err.contains("another directory"), "{err}");
    let fourth = rewritten(&daemon, &mut agent, "echo one");
    let person = daemon.csn(&["exec", "--ticket", &ticket(&fourth), "--", "echo one"]);
    assert_eq!(person.status.code(), Some(77), "a ticket is for its agent");
    let fifth = rewritten(&daemon, &mut agent, "echo one");
    assert_eq!(agent.shell(&fifth), (0, "one\n".to_owned(), String::new()));
    assert_eq!(agent.shell(&fifth).0, 1);
    // A command that was allowed and never ran is recorded all the same.
    let withdrawn = tasks(&daemon).iter().filter(|t| matches!(t.outcome(), Some(Outcome::Withdrawn { .. }))).count();
    assert_eq!(withdrawn, 4);
}

/// The shell of an agent that keeps its directory follows its command.
#[test]
fn the_agents_shell_follows_the_directory_of_its_command() {
    let daemon = TestHome::started(CSN);
    std::fs::create_dir_all(daemon.work().join("it's/sub")).unwrap();
    std::fs::create_dir(daemon.work().join("two\nlines")).unwrap();
    let mut agent = daemon.agent();
    for (command, status, place) in [
        ("cd \"it's/sub\" && pwd", 0, "it's/sub"),
        ("cd \"it's\"; exit 7", 7, "it's"),
        ("(cd \"it's\"); true", 0, ""),
        ("cd \"it's\"; exec true", 0, ""),
        ("pushd \"it's\" > /dev/null; bash -c 'cd sub'; false", 1, "it's"),
        ("cd 'two\nlines' && pwd", 0, "two\nlines"),
        ("set -eu; cd \"it's\"; set -x; true", 0, "it's"),
    ] {
        let text = rewritten(&daemon, &mut agent, command);
        assert!(text.contains("exec --leave"), "{text}");
        let (_, out, err) = agent.shell(&format!("{text}\nprintf '%s %s' $? \"$PWD\""));
        let place = daemon.work().join(place);
        let ended = format!("{status} {}", place.display());
        assert!(out.ends_with(ended.trim_end_matches('/')), "{command}: {out} {err}");
    }
    assert!(!rewritten(&daemon, &mut agent, "ls").contains("--leave"));
    let text = rewritten(&daemon, &mut agent, "cd \"it's\"; echo \"<$BASH_ENV>\"");
    assert_eq!(agent.shell(&text).1, "<>\n", "it is gone before the command begins");
    let exposed = daemon.frame(last(&daemon).task_id, |f| matches!(f, Frame::EnvExposed { .. }));
    assert!(!format!("{exposed:?}").contains("BASH_ENV"), "it belongs to the user: {exposed:?}");
}

/// No process below an agent is a person, however it hides.
#[test]
fn a_script_of_the_agent_cannot_approve() {
    let daemon = TestHome::started(CSN);
    let mut agent = daemon.agent();
    rewritten(&daemon, &mut agent, "ls");
    assert_eq!(agent.csn(&["run", "--no-wait", "touch granted"]).0, 75);
    let waiting = last(&daemon);
    let approval = waiting.approval_id().unwrap().to_string();
    std::fs::write(daemon.work().join("answer.sh"), format!("{CSN} approvals answer {approval} once\n")).unwrap();
    for text in [
        "bash answer.sh",
        "setsid bash answer.sh",
        "env -i COUNTERSIGN_HOME=$COUNTERSIGN_HOME HOME=$HOME bash answer.sh",
    ] {
        let (_, out, err) = agent.shell(text);
        assert!(!out.contains("Approved") && !err.contains("Approved"), "{text}: {out}{err}");
    }
    let (code, _, err) = agent.csn(&["approvals", "answer", &approval, "once"]);
    assert!(code == 77 && err.contains("approve"), "{code} {err}");
    assert!(daemon.client().task(&waiting.task_id.to_string()).unwrap().outcome().is_none());
    assert!(agent.csn(&["grants", "add", "--verb", "touch", "--anywhere"]).0 != 0);
}

#[test]
fn witness_mode_decides_and_records_the_end() {
    let daemon = TestHome::started(CSN);
    let mut agent = daemon.agent();
    let (code, out, _) = agent.hook("claude-code --witness", &bash(&daemon, "ls"));
    let answer: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &answer["hookSpecificOutput"]["permissionDecision"]), (0, &json!("allow")));
    assert!(answer["hookSpecificOutput"].get("updatedInput").is_none());
    let task = last(&daemon);
    assert!(task.observed() && task.outcome().is_none() && task.first_seq().is_none());
    let mut after = bash(&daemon, "ls");
    after["hook_event_name"] = json!("PostToolUse");
    after["tool_response"] = json!({"stdout": "a", "stderr": "", "interrupted": false});
    assert_eq!(agent.hook("claude-code --witness", &after), (0, String::new(), String::new()));
    let task = daemon.sealed(task.task_id);
    assert_eq!(task.outcome(), Some(&Outcome::Exited { code: 0 }));
    let kind = crate::receipts::statement(&daemon, task.task_id).predicate.execution.unwrap().kind;
    assert_eq!(kind, ExecutionKind::Observed);
    // A command that needs approval is denied: in witness mode no one waits for a person.
    let (_, out, _) = agent.hook("claude-code --witness", &bash(&daemon, "git push"));
    assert!(out.contains("\"deny\"") && out.contains("csn grants add"), "{out}");
    assert_eq!(agent.hook("codex --witness", &bash(&daemon, "ls")).1, "", "a bare allow is a fault there");
    let verified = daemon.csn(&["verify"]);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
}

/// A directory that an agent names does not become a root once it is known to be an agent.
#[test]
fn a_directory_that_an_agent_claims_is_not_believed() {
    let daemon = TestHome::started(CSN);
    let secret = daemon.base().join("elsewhere");
    std::fs::create_dir(&secret).unwrap();
    std::fs::write(secret.join("diary"), "dear").unwrap();
    let mut agent = daemon.agent();
    rewritten(&daemon, &mut agent, "ls");
    let mut said = bash(&daemon, "cat diary");
    (said["cwd"], said["session_id"]) = (json!(secret), json!("c2"));
    let (_, out, _) = agent.hook("claude-code", &said);
    let ticket = out.split("--ticket ").nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let text = format!("cd {} && timeout 2 {CSN} exec --ticket {ticket} -- 'cat diary'", secret.display());
    let (_, out, err) = agent.shell(&text);
    assert!(!out.contains("dear") && err.contains("waiting for approval"), "{out} {err}");
}

#[test]
fn ending_the_agents_tool_ends_the_command() {
    let daemon = TestHome::started(CSN);
    daemon.configure("profile = \"full_auto\"\n");
    let mut agent = daemon.agent();
    daemon.kill_daemon();
    daemon.start();
    let command = rewritten(&daemon, &mut agent, "sleep 1000");
    let (code, _, _) = agent.shell(&format!("timeout -s TERM 1 sh -c \"{}\"", command.replace('"', "\\\"")));
    assert_eq!(code, 124);
    let task = tasks(&daemon)[0].task_id;
    assert!(matches!(daemon.settled(task).outcome(), Some(&Outcome::Cancelled { .. })));
    let frames = daemon.records(task);
    let asked = frames
        .iter()
        .any(|r| matches!(&r.what, countersign_model::RecordContent::Frame(Frame::CancelRequested { .. })));
    assert!(asked);
}

#[test]
fn refused_calls_name_what_is_wrong() {
    let daemon = TestHome::started(CSN);
    let said = json!({"conversation": {"agent": "x", "id": "y", "cwd": daemon.work(), "agent_pid": daemon.daemon_pid()}, "command": "ls"});
    match daemon.client().hook(&body(said)) {
        Err(ClientError::Refused(TaskRefusal { refusal, .. })) => assert_eq!(refusal.code, RefusalCode::BadRequest),
        other => panic!("{other:?}"),
    }
}

/// The whole way: installed, proved, used, examined, uninstalled.
#[test]
fn an_installation_is_proved_with_the_real_programs() {
    let daemon = TestHome::started(CSN);
    let settings = daemon.base().join(".claude/settings.json");
    std::fs::create_dir_all(settings.parent().unwrap()).unwrap();
    let before = "{\n  // kept\n  \"model\": \"x\",\n}\n";
    std::fs::write(&settings, before).unwrap();
    for agent in ["claude-code", "codex", "opencode", "gemini", "goose", "cursor"] {
        let done = daemon.csn(&["install", agent, "--json"]);
        let said: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{agent}: {done:?}"));
        assert!(done.status.success() && said["proof"][0]["ok"] == true, "{agent}: {said}");
    }
    let doctor = daemon.csn(&["doctor"]);
    let told = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert_eq!(told.lines().filter(|l| l.starts_with("ok") && l.contains(" agent ")).count(), 6, "{told}");
    // Exactly as the agent would call it.
    let written: String = std::fs::read_to_string(&settings).unwrap();
    let command = written.split("\"command\": \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let mut agent = daemon.agent();
    let (code, out, _) = agent.run(&["/bin/sh", "-c", &command], &bash(&daemon, "ls").to_string());
    assert!(code == 0 && out.contains("exec --ticket"), "{out}");
    let (_, out, _) = agent.hook("claude-code", &bash(&daemon, "csn install claude-code --uninstall"));
    assert!(out.contains("\"deny\""), "an agent cannot uninstall its own hook: {out}");
    for args in [&["install", "claude-code", "--uninstall"][..], &["install", "claude-code", "--witness"]] {
        let (code, _, err) = agent.csn(args);
        assert!(code == 125 && err.contains("an agent may not change"), "{args:?}: {err}");
    }
    for agent in ["codex", "gemini", "goose", "cursor"] {
        assert!(daemon.csn(&["install", agent, "--uninstall"]).status.success());
    }
    daemon.kill_daemon();
    let doctor = daemon.csn(&["doctor"]);
    assert!(!doctor.status.success(), "without a daemon a hook blocks everything");
    daemon.start();
    for agent in ["claude-code", "opencode"] {
        assert!(daemon.csn(&["install", agent, "--uninstall"]).status.success());
    }
    assert_eq!(std::fs::read_to_string(&settings).unwrap(), before);
    assert!(!daemon.base().join(".codex").exists() && !daemon.base().join(".cursor").exists());
}

/// The agent is the process that started the hook: not a shell in between, and never a person's process.
#[test]
fn the_agent_is_found_behind_the_shell_that_starts_its_hook() {
    for how in ["bash -o pipefail -c", "bash -euo pipefail -c", "timeout 60 sh -c", "env A=b sh -c", "bash -lc"] {
        let daemon = TestHome::started(CSN);
        let mut agent = daemon.agent();
        let argv: Vec<String> = how.split(' ').map(str::to_owned).chain([format!("{CSN} hook claude-code")]).collect();
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let (code, out, err) = agent.run(&argv, &bash(&daemon, "echo here").to_string());
        assert!(code == 0 && out.contains("--ticket"), "{how}: {err}");
        assert_ne!(agent.csn(&["grants", "add", "--verb", "touch", "--anywhere"]).0, 0, "{how}");
        let command: Value = serde_json::from_str(&out).unwrap();
        let command = command["hookSpecificOutput"]["updatedInput"]["command"].as_str().unwrap().to_owned();
        assert_eq!(agent.shell(&command).1, "here\n", "{how}");
    }
    let daemon = TestHome::started(CSN);
    let mut agent = daemon.agent();
    let script = daemon.work().join("wrap.sh");
    std::fs::write(&script, format!("#!/bin/sh\n{CSN} hook claude-code\n")).unwrap();
    let (code, out, _) = agent.run(&["sh", script.to_str().unwrap()], &bash(&daemon, "ls").to_string());
    assert!(code == 0 && out.contains("--ticket"));
    assert_ne!(agent.csn(&["grants", "add", "--verb", "touch", "--anywhere"]).0, 0);
}

#[test]
fn closing_the_output_ends_the_command() {
    let daemon = TestHome::new(CSN);
    daemon.configure("profile = \"full_auto\"\n");
    daemon.start();
    let mut agent = daemon.agent();
    let command = rewritten(&daemon, &mut agent, "yes");
    let (_, out, _) = agent.shell(&format!("{command} | head -1; echo ${{PIPESTATUS[0]}}"));
    assert_eq!(out, "y\n141\n");
    assert!(matches!(daemon.settled(tasks(&daemon)[0].task_id).outcome(), Some(&Outcome::Cancelled { .. })));
}

/// Every request that reached the gate is recorded, whatever happened to it.
#[test]
fn unredeemed_tickets_are_withdrawn() {
    let daemon = TestHome::started(CSN);
    let mut agent = daemon.agent();
    let first = rewritten(&daemon, &mut agent, "echo one");
    let ticket = first.split_ascii_whitespace().nth(3).unwrap().to_owned();
    let script = format!(
        "import http.client, json, socket\n\
         c = http.client.HTTPConnection('x')\n\
         c.sock = socket.socket(socket.AF_UNIX); c.sock.connect('{}')\n\
         c.request('POST', '/tickets/{ticket}', json.dumps({{'command': 'echo one', 'cwd': '/nonexistent/x'}}))\n\
         print(c.getresponse().status)\n",
        daemon.home().join("run/csn.sock").display()
    );
    // The agent itself: what it started is a child of its own.
    assert_eq!(agent.run(&["python3", "-c", &script], "").1, "400\n");
    let withdrawn = |n| {
        let all = tasks(&daemon);
        let found: Vec<_> = all.iter().filter(|t| matches!(t.outcome(), Some(Outcome::Withdrawn { .. }))).collect();
        assert_eq!(found.len(), n, "{all:?}");
    };
    withdrawn(1);
    rewritten(&daemon, &mut agent, "echo two");
    assert!(daemon.csn(&["down"]).status.success());
    daemon.daemon_ends();
    daemon.start();
    withdrawn(2);
    assert!(daemon.csn(&["verify"]).status.success());
}

/// A marker that a task has left behind does not stand for every agent.
#[test]
fn a_marker_of_no_task_sees_no_sessions_of_agents() {
    let daemon = TestHome::started(CSN);
    let mut agent = daemon.agent();
    let text = rewritten(&daemon, &mut agent, "echo one");
    agent.shell(&text);
    let seen = daemon.csn_with(&["sessions", "list", "--json"], &[("COUNTERSIGN_TASK", "zzz")]);
    assert_eq!(String::from_utf8_lossy(&seen.stdout), "");
    let seen = daemon.csn_with(&["ps", "-a", "--json"], &[("COUNTERSIGN_TASK", "zzz")]);
    assert_eq!(String::from_utf8_lossy(&seen.stdout), "");
}

/// The text that the agent's shell evaluates must not be a file that can be changed and executed.
#[test]
fn the_text_for_the_agents_shell_only_changes_directory() {
    let daemon = TestHome::new(CSN);
    daemon.configure("profile = \"full_auto\"\n");
    daemon.start();
    std::fs::create_dir(daemon.work().join("sub")).unwrap();
    let mut agent = daemon.agent();
    let text = rewritten(&daemon, &mut agent, "cd sub; ls -l /proc/self/fd");
    let (_, out, _) = agent.shell(&text);
    let open: Vec<&str> = out.lines().filter(|l| l.contains(" -> ")).collect();
    assert!(open.iter().any(|l| l.contains(" 198 -> pipe:")) && !open.iter().any(|l| l.contains("197 -> ")), "{out}");
    assert!(!out.contains("memfd"), "{out}");
}

/// A client that disconnects while it redeems its ticket leaves a task or a record, never nothing.
#[test]
fn a_ticket_whose_redeemer_disconnects_leaves_a_task_or_a_record() {
    let daemon = TestHome::started(CSN);
    let mut agent = daemon.agent();
    let mut tickets = Vec::new();
    for _ in 0..12 {
        let text = rewritten(&daemon, &mut agent, "echo one");
        tickets.push(text.split_ascii_whitespace().nth(3).unwrap().to_owned());
    }
    let script = format!(
        "import json, socket, sys, time\n\
         body = json.dumps({{'command': 'echo one', 'cwd': '{work}'}})\n\
         for n, ticket in enumerate(sys.argv[1:]):\n\
         \x20   s = socket.socket(socket.AF_UNIX); s.connect('{sock}')\n\
         \x20   s.sendall((f'POST /tickets/{{ticket}} HTTP/1.1\\r\\nhost: x\\r\\ncontent-length: {{len(body)}}\\r\\n\\r\\n' + body).encode())\n\
         \x20   time.sleep(n * 0.0002)\n\
         \x20   s.close()\n",
        work = daemon.work().display(),
        sock = daemon.home().join("run/csn.sock").display(),
    );
    let argv: Vec<&str> = ["python3", "-c", &script].into_iter().chain(tickets.iter().map(String::as_str)).collect();
    assert_eq!(agent.run(&argv, "").0, 0);
    // Tickets that were never redeemed are still open: the daemon withdraws them when it stops.
    assert!(daemon.csn(&["down"]).status.success());
    daemon.daemon_ends();
    daemon.start();
    assert_eq!(tasks(&daemon).len(), tickets.len());
}
