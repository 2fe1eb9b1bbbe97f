//! The sandbox that a command gets once it is accepted.

use crate::support::{HOME, ROOT, grant, plan, verdict_word};
use countersign_model::{
    Assessment, Confinement, Facts, Grant, GrantSandbox, GrantedSandbox, Grants, Kernel, Network, PathTarget,
    PathTargetKind, Profile, Risk, SandboxReason,
};
use countersign_policy::{CheckedRules, JudgeContext, judge};

fn context() -> JudgeContext<'static> {
    JudgeContext::personal(HOME, vec![ROOT.to_owned()])
}

fn judge_with(command: &str, context: &JudgeContext<'_>, grants: &[Grant]) -> Assessment {
    judge(
        &plan(command, ROOT),
        &Facts::none(ROOT),
        context,
        &CheckedRules::default(),
        &Grants::from_grants(grants.to_vec()),
    )
}

fn narrow_grant(verb: &str) -> Grant {
    Grant { sandbox: GrantSandbox::Narrow, ..grant(verb, Some(ROOT)) }
}

/// Shows a sandbox as `level`, with `+net` for the network, `+unix` for unix sockets, then `w:`, `r:` and `k:` paths.
fn sandbox_text(assessment: &Assessment) -> String {
    let s = &assessment.sandbox;
    let mut text = s.confinement.as_str().to_owned();
    if s.confinement == Confinement::Workspace {
        text.push_str(if s.network == Network::Open { "+net" } else { "" });
        text.push_str(if s.unix_sockets { "+unix" } else { "" });
    }
    for (name, paths) in [("w", &s.writes), ("r", &s.reads), ("k", &s.keys)] {
        if !paths.is_empty() && s.confinement >= Confinement::Workspace {
            text.push_str(&format!(" {name}:{}", paths.join(",")));
        }
    }
    text
}

#[test]
fn the_sandbox_is_the_narrowest_that_the_accepted_risks_need() {
    for (command, expect) in [
        ("git status", "read_only"),
        // Writing and code in the roots.
        ("git commit -m x", "workspace"),
        ("make", "workspace"),
        ("cargo test && npm test", "workspace"),
        ("touch a; rm -rf build", "workspace"),
        ("python3 -c 'print(1)'", "workspace"),
        ("eval \"$X\"", "workspace"),
        ("an-unknown-tool --flag", "workspace"),
        // The network, only if it was accepted.
        ("curl https://example.org", "workspace+net"),
        ("npm install", "workspace+net"),
        ("make && curl https://example.org", "workspace+net"),
        // Reading elsewhere is still reading.
        ("cat /var/log/syslog", "read_only r:/var/log/syslog"),
        ("grep -r x /srv/data", "read_only r:/srv/data"),
        ("cat .env", "read_only k:/work/proj/.env"),
        ("cat ~/.ssh/id_rsa", "read_only k:/home/dev/.ssh/id_rsa"),
        ("find / -name x", "read_only r:/"),
        // Named paths.
        ("echo x > /tmp/out.txt", "workspace w:/tmp"),
        ("cp a /srv/app/b", "workspace w:/srv/app"),
        ("make -C /srv/other", "workspace w:/srv/other"),
        ("git -C /srv/other commit -m x", "workspace w:/srv/other"),
        ("cd /srv/other && make", "workspace w:/srv/other"),
        // Effects that no path rule can express.
        ("echo x > ~/new", "shield"),
        ("touch /new", "shield"),
        ("apt-get install x", "shield"),
        ("systemctl restart x", "shield"),
        ("printenv", "shield"),
        ("rm -rf /srv", "shield"),
        ("sudo make install", "none"),
    ] {
        let assessment = judge_with(command, &context(), &[]);
        assert_eq!(sandbox_text(&assessment), expect, "{command}");
    }
}

#[test]
fn a_known_tool_gets_its_own_login_when_nothing_else_runs_beside_it() {
    let has = |command: &str| judge_with(command, &context(), &[]).sandbox;
    for command in [
        "git push origin main",
        "git fetch",
        "git add -A && git commit -m x && git push",
        "git status; git push",
        "timeout 60 git push",
        "cd sub && git push",
    ] {
        let sandbox = has(command);
        assert!(sandbox.keys.contains(&format!("{HOME}/.ssh")) && sandbox.unix_sockets, "{command}: {sandbox:?}");
        assert_eq!((sandbox.confinement, sandbox.network), (Confinement::Workspace, Network::Open), "{command}");
    }
    for command in [
        "git commit -m x",
        "make && git push",
        "git push; python3 -c 1",
        "git push; ./tool",
        "git push; eval \"$X\"",
        "./git push",
        "git push; curl https://example.org",
    ] {
        let sandbox = has(command);
        assert!(sandbox.keys.is_empty() && !sandbox.unix_sockets, "{command}: {sandbox:?}");
    }
}

#[test]
fn a_grant_gives_its_calls_what_they_need_and_nothing_of_its_neighbours() {
    let both = [narrow_grant("git commit"), narrow_grant("git status")];
    let commit = judge_with("git status && git commit -m x", &context(), &both);
    assert_eq!((verdict_word(&commit), sandbox_text(&commit).as_str()), ("allow", "workspace"));
    // A risk that the grant names counts, even if the table does not list it for the tool.
    let networked = Grant { risks: Some(vec![Risk::Write, Risk::Network]), ..narrow_grant("an-unknown-tool") };
    let tool = judge_with("an-unknown-tool", &context(), &[networked]);
    assert_eq!((verdict_word(&tool), sandbox_text(&tool).as_str()), ("allow", "workspace+net"));
    let plain = judge_with("an-unknown-tool", &context(), &[narrow_grant("an-unknown-tool")]);
    assert_eq!((verdict_word(&plain), sandbox_text(&plain).as_str()), ("allow", "workspace"));
}

/// A grant did not show the path that a later call names, so that path never opens the sandbox.
#[test]
fn a_path_that_a_granted_call_names_does_not_open_its_sandbox() {
    let anywhere = Grant { directory: None, ..narrow_grant("make") };
    for command in ["make -C /", "make -C /etc", "make -C ~", "cd / && make"] {
        let assessment = judge_with(command, &context(), std::slice::from_ref(&anywhere));
        if verdict_word(&assessment) == "allow" {
            assert_eq!(sandbox_text(&assessment), "workspace", "{command}");
        }
    }
    let many: Vec<String> = (0..40).map(|n| format!("make -C /srv/d{n}")).collect();
    let assessment = judge_with(&many.join(" && "), &context(), &[anywhere]);
    assert_eq!((verdict_word(&assessment), assessment.sandbox.confinement), ("allow", Confinement::Workspace));
    assert_eq!(assessment.sandbox.writes.len(), 32);
    // An operand that looks like an option is not one.
    let commit = judge_with("git commit -m x -- -S --gpg-sign", &context(), &[narrow_grant("git commit")]);
    assert_eq!((verdict_word(&commit), sandbox_text(&commit).as_str()), ("allow", "workspace"));
}

#[test]
fn older_grants_keep_the_sandbox_of_their_card() {
    let earlier = grant("git commit", Some(ROOT));
    assert_eq!(earlier.sandbox, GrantSandbox::Open);
    let open = judge_with("git commit -m x", &context(), std::slice::from_ref(&earlier));
    assert_eq!((verdict_word(&open), sandbox_text(&open).as_str()), ("allow", "shield"));
    assert_eq!(open.sandbox.why, SandboxReason::EarlierGrant);
    let narrowed = Grant { sandbox: GrantSandbox::Narrow, ..earlier };
    assert_eq!(sandbox_text(&judge_with("git commit -m x", &context(), &[narrowed])), "workspace");
}

#[test]
fn a_wider_sandbox_needs_approval_and_a_narrower_one_does_not() {
    let wants = |level| JudgeContext { requested_confinement: Some(level), ..context() };
    let granted = [narrow_grant("git commit")];
    let wider = judge_with("git commit -m x", &wants(Confinement::Shield), &granted);
    assert_eq!((verdict_word(&wider), sandbox_text(&wider).as_str()), ("ask", "shield"));
    assert_eq!(wider.sandbox.why, SandboxReason::Requested);
    let narrower = judge_with("git commit -m x", &wants(Confinement::ReadOnly), &granted);
    assert_eq!((verdict_word(&narrower), sandbox_text(&narrower).as_str()), ("allow", "read_only"));
    let open = [grant("git commit", Some(ROOT))];
    assert_eq!(
        verdict_word(&judge_with("git commit -m x", &wants(Confinement::Shield), &open)),
        "allow",
        "it was granted open"
    );
}

#[test]
fn a_request_can_ask_for_the_network_and_refuse_it() {
    let wants = |network| JudgeContext { requested_network: Some(network), ..context() };
    let granted = [narrow_grant("make")];
    let asks = judge_with("make", &wants(Network::Open), &granted);
    assert_eq!((verdict_word(&asks), sandbox_text(&asks).as_str()), ("ask", "workspace+net"));
    assert!(asks.risk_set().contains(&Risk::Network));
    assert_eq!(verdict_word(&judge_with("make", &wants(Network::None), &granted)), "allow");
    assert_eq!(sandbox_text(&judge_with("curl https://example.org", &wants(Network::None), &[])), "workspace");
    assert_eq!(
        verdict_word(&judge_with("ls", &wants(Network::Open), &[])),
        "allow",
        "what only reads needs no network"
    );
    let never = JudgeContext { network_limit: Network::None, ..context() };
    assert_eq!(sandbox_text(&judge_with("curl https://example.org", &never, &[])), "workspace");
}

#[test]
fn the_operator_limits_the_sandbox() {
    let operator = |granted| JudgeContext { granted_sandbox: granted, ..context() };
    for (command, narrow, workspace, shield) in [
        ("touch a", "workspace", "workspace", "shield"),
        ("systemctl restart x", "shield", "workspace", "shield"),
        ("cat /var/log/x", "read_only r:/var/log/x", "read_only r:/var/log/x", "shield"),
        ("ls", "read_only", "read_only", "read_only"),
    ] {
        let of = |granted| sandbox_text(&judge_with(command, &operator(granted), &[]));
        assert_eq!(of(GrantedSandbox::Narrow), narrow, "{command}");
        assert_eq!(of(GrantedSandbox::Workspace), workspace, "{command}");
        assert_eq!(of(GrantedSandbox::Shield), shield, "{command}");
    }
    let asks = JudgeContext { requested_confinement: Some(Confinement::Shield), ..operator(GrantedSandbox::Workspace) };
    assert_eq!(
        sandbox_text(&judge_with("touch a", &asks, &[])),
        "workspace",
        "the operator's limit is not the asker's to widen"
    );
}

#[test]
fn an_automatic_plan_gets_no_path_and_no_login_that_it_names() {
    let auto = JudgeContext { profile: Profile::FullAuto, ..context() };
    for command in ["git push", "echo x > /tmp/a", "make -C /srv/other", "systemctl restart x", "cat ~/.ssh/id_rsa > a"]
    {
        let assessment = judge_with(command, &auto, &[]);
        assert_eq!(
            (verdict_word(&assessment), sandbox_text(&assessment).as_str()),
            ("allow", "workspace+net"),
            "{command}"
        );
    }
}

#[test]
fn a_kernel_that_cannot_confine_is_the_reason_and_blocks_no_approval() {
    let old = JudgeContext { kernel: Kernel { landlock: 0, seccomp: true }, ..context() };
    let assessment = judge_with("git commit -m x", &old, &[narrow_grant("git commit")]);
    assert_eq!((verdict_word(&assessment), sandbox_text(&assessment).as_str()), ("allow", "shield"));
    assert_eq!(assessment.sandbox.why, SandboxReason::Kernel);
}

/// A file is replaced in its directory if the directory may be opened, otherwise the file itself is opened.
#[test]
fn a_file_is_written_by_the_narrowest_rule_there_is() {
    let file = |path: &str| {
        let mut facts = Facts::none(ROOT);
        let found =
            PathTarget { resolved: path.to_owned(), kind: PathTargetKind::File, dev: 1, inode: 1, mount: false };
        facts.paths.insert(path.to_owned(), found);
        let command = format!("echo x >> {path}");
        sandbox_text(&judge(&plan(&command, ROOT), &facts, &context(), &CheckedRules::default(), &Grants::default()))
    };
    assert_eq!(file("/srv/app/notes"), "workspace w:/srv/app");
    assert_eq!(file("/home/dev/.bashrc"), "workspace w:/home/dev/.bashrc");
    assert_eq!(file("/etc/hosts"), "workspace w:/etc/hosts");
}
