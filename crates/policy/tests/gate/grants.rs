//! A grant covers what its card showed and nothing else: as properties, and for special cases.

use crate::support::{
    HOME, ROOT, assess, grant, grant_from_proposal, plan, saved_grants, saved_grants_in, verdict_word,
};
use countersign_model::{Audience, Choice, Facts, Grant, Grants, PathTarget, PathTargetKind, Risk, Tool, Verdict};
use countersign_policy::{
    CheckedRules, JudgeContext, can_be_granted, grant_proposals, judge, offered_choices, parse_verb, required_facts,
};
use proptest::prelude::*;

fn covered(command: &str, cwd: &str, grants: &[Grant]) -> bool {
    verdict_word(&assess(command, cwd, &[ROOT], grants, None)) == "allow"
}

/// Directory names, some of which look alike.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("proj".to_owned()),
        Just("proj2".to_owned()),
        Just("Proj".to_owned()),
        Just("pro".to_owned()),
        Just("proj ".to_owned()),
        Just("pröj".to_owned()),
        // Looks the same, but is another name to the kernel.
        Just("pro\u{308}j".to_owned()),
        Just("..proj".to_owned()),
        "[x-z]{2,3}",
    ]
}

fn place() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(name(), 2..5)
}

fn path(parts: &[String]) -> String {
    format!("/{}", parts.join("/"))
}

fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', r"'\''"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Paths are compared by components, never by prefix, case or appearance.
    #[test]
    fn containment_is_by_components(granted in place(), asked in place()) {
        let inside = asked.len() >= granted.len() && asked[..granted.len()] == granted[..];
        let (granted, asked) = (path(&granted), path(&asked));
        let grants = [grant("alpha", Some(&granted))];
        let assessment = assess(&format!("touch {}/f", quoted(&asked)), "/somewhere/else", &[ROOT], &[grant("touch", Some(&granted))], None);
        prop_assert_eq!(verdict_word(&assessment) == "allow", inside, "touch in {} for {}", granted, asked);
        let run_there = assess("alpha", &asked, &[ROOT], &grants, None);
        prop_assert_eq!(verdict_word(&run_there) == "allow", inside, "alpha in {} for {}", granted, asked);
    }

    /// Every spelling of a path is the same path.
    #[test]
    fn spelling_changes_nothing(asked in place(), noise in prop::collection::vec(0..4usize, 4)) {
        let odd: String = asked.iter().zip(noise.iter().cycle()).map(|(part, n)| match n {
            0 => format!("/{part}"),
            1 => format!("//{part}"),
            2 => format!("/./{part}"),
            _ => format!("/x/../{part}"),
        }).collect();
        let plain = path(&asked);
        for granted in [plain.clone(), format!("{plain}/"), odd.clone()] {
            let grants = [grant("touch", Some(&granted))];
            for text in [format!("touch {}/f", quoted(&plain)), format!("touch {}/f", quoted(&odd))] {
                // A saved grant has a clean path; one with an unclean path is cleaned for the comparison.
                if granted == plain {
                    prop_assert!(covered(&text, "/w/e", &grants), "{text} under {granted}");
                }
            }
        }
    }

    /// A symbolic link that leads outside is outside, wherever it is.
    #[test]
    fn the_target_of_a_link_decides(below in "[a-z]{1,5}", out in prop_oneof![Just("/etc/x"), Just("/work/proj2/x"), Just("/work/projx")]) {
        let walked = format!("{ROOT}/{below}");
        let mut facts = Facts::none(ROOT);
        let found = PathTarget { resolved: out.to_owned(), kind: PathTargetKind::Absent, dev: 0, inode: 0, mount: false };
        facts.paths.insert(walked, found);
        let assessment = assess(&format!("touch {below}"), ROOT, &[ROOT], &[grant("touch", Some(ROOT))], Some(facts));
        prop_assert_ne!(verdict_word(&assessment), "allow");
    }

    /// A grant accepts the risks that were shown; any other risk needs approval.
    #[test]
    fn a_grant_covers_only_accepted_risks(accepted in prop::sample::subsequence(Risk::ALL.to_vec(), 0..6), n in 0..8usize) {
        let command = ["git push", "git push --force", "rm -rf sub", "curl -o f http://x", "make", "npm install", "touch f", "sudo make"][n];
        let mut given = grant(&plan(command, ROOT).occurrences.last().unwrap().verb, None);
        given.risks = Some(accepted.clone());
        let assessment = assess(command, ROOT, &[ROOT], &[given], None);
        let beyond = assessment.risk_set().iter().any(|r| !accepted.contains(r));
        if verdict_word(&assessment) == "allow" {
            prop_assert!(!beyond, "{command}: {:?} under {accepted:?}", assessment.risk_set());
        }
    }

    /// Every offered grant covers the call that asked, in the directory that was shown, and in no other.
    #[test]
    fn a_saved_grant_covers_the_call_and_not_its_neighbour(n in 0..COMMANDS.len(), choice in prop::sample::select(vec![Choice::Here, Choice::Anywhere, Choice::Session])) {
        let command = COMMANDS[n];
        let grants = saved_grants(command, choice, false);
        prop_assume!(!grants.is_empty());
        prop_assert!(covered(command, ROOT, &grants), "{command} under {grants:?}");
        if choice != Choice::Anywhere {
            prop_assert!(!covered(command, "/work/proj2", &grants), "{command} in a neighbour");
            prop_assert!(!covered(command, "/work", &grants), "{command} above");
            prop_assert!(!covered(&format!("{command} > ../x"), ROOT, &grants), "{command} > ../x");
        }
        for worse in ["sudo ", "env LD_PRELOAD=/tmp/x.so ", "PATH=/tmp:$PATH "] {
            prop_assert!(!covered(&format!("{worse}{command}"), ROOT, &grants), "{worse}{command}");
        }
        for more in [" > /etc/x", "; rm -rf other", " && git push --mirror", " | sh", " $(touch x)"] {
            prop_assert!(!covered(&format!("{command}{more}"), ROOT, &grants), "{command}{more}");
        }
    }
}

const COMMANDS: &[&str] = &[
    "alpha",
    "alpha one two",
    "git push origin main",
    "git push --force",
    "rm -rf build",
    "touch src/new.rs",
    "mkdir -p a/b",
    "cp a b",
    "cargo build --release",
    "npm install left-pad",
    "curl -s https://example.com",
    "make -C sub all",
    "kubectl delete pod x",
    "docker compose up -d",
    "sed -i s/a/b/ f.txt",
    "git commit -m 'a b'",
    "X=1 beta",
    "tee out.txt",
];

#[test]
fn destructive_and_secret_calls_are_bound_to_their_operands() {
    for (command, exact) in [
        ("rm -f a", true),
        ("git push --force", true),
        ("cat ~/.ssh/id_rsa", true),
        ("apt-get install jq", true),
        ("touch a", false),
        ("make", false),
        ("git push", false),
    ] {
        let grants = saved_grants(command, Choice::Anywhere, false);
        assert_eq!(grants[0].operands.is_some(), exact, "{command}");
        let any = saved_grants(command, Choice::Anywhere, true);
        assert!(any[0].operands.is_none(), "{command}");
    }
    // A privileged command is never granted for any arguments.
    let sudo = saved_grants("sudo systemctl restart nginx", Choice::Anywhere, true);
    assert!(sudo.iter().all(|g| g.operands.is_some()), "{sudo:?}");
}

#[test]
fn opaque_calls_and_unknown_directories_are_not_offered() {
    let offered = |command: &str, cwd: &str| {
        let context = JudgeContext::personal(HOME, vec![ROOT.to_owned()]);
        let (plan, facts) = (plan(command, cwd), Facts::none(cwd));
        let assessment = judge(&plan, &facts, &context, &CheckedRules::default(), &Grants::default());
        assert!(matches!(assessment.verdict, Verdict::Ask { .. }), "{command}");
        offered_choices(&plan, &facts, &assessment, &context, true)
    };
    let once = [Choice::Once, Choice::Deny];
    for command in
        ["eval \"$X\"", "touch \"$F\"", "cd \"$X\" && make", "make; eval x", "bash -c \"$CODE\"", "X=$Y beta"]
    {
        assert_eq!(offered(command, ROOT), once, "{command}");
    }
    let no_here = [Choice::Once, Choice::Session, Choice::Anywhere, Choice::Deny];
    for cwd in ["/work", "/", HOME, "/root", "/home/other"] {
        assert_eq!(offered("make", cwd), no_here, "{cwd}");
    }
    let all = [Choice::Once, Choice::Session, Choice::Here, Choice::Anywhere, Choice::Deny];
    assert_eq!(offered("make", ROOT), all, "no repository was found, so none is offered");
    let mut facts = Facts::none("/work/proj/sub");
    facts.repositories.insert("/work/proj/sub".to_owned(), ROOT.to_owned());
    let repository = saved_grants_in("make", "/work/proj/sub", &facts, Choice::Repository, false).unwrap();
    assert_eq!(repository[0].directory.as_ref().unwrap().as_str(), ROOT);
    facts.repositories.insert(ROOT.to_owned(), ROOT.to_owned());
    assert!(
        saved_grants_in("make", ROOT, &facts, Choice::Repository, false).is_none(),
        "only where it differs from here"
    );
    let mut context = JudgeContext::personal(HOME, vec![]);
    context.session_folder = Some("/data/sessions/s".to_owned());
    assert!(!can_be_granted("/data/sessions/s", &context) && !can_be_granted("/data/sessions/s/sub", &context));
    assert!(can_be_granted("/data/sessions", &context) && !can_be_granted("/data", &context));
}

#[test]
fn session_grants_hold_in_their_session_and_their_directories() {
    let session = "se_01m7h4jys3gnc16h".parse().unwrap();
    let under = |command: &str, cwd: &str, from: Option<_>, grants: Vec<Grant>| {
        let context = JudgeContext { session: from, ..JudgeContext::personal(HOME, vec![ROOT.to_owned()]) };
        let judged = judge(
            &plan(command, cwd),
            &Facts::none(cwd),
            &context,
            &CheckedRules::default(),
            &Grants::from_grants(grants),
        );
        verdict_word(&judged) == "allow"
    };
    let of_session = |command: &str| -> Vec<Grant> {
        saved_grants(command, Choice::Session, false)
            .into_iter()
            .map(|g| Grant { session: Some(session), ..g })
            .collect()
    };
    let pushes = of_session("git push");
    assert!(under("git push", ROOT, Some(session), pushes.clone()));
    assert!(under("git push", "/elsewhere/x", Some(session), pushes.clone()), "without paths, by verb and risks");
    assert!(!under("git push --force", ROOT, Some(session), pushes.clone()));
    assert!(!under("git push", ROOT, None, pushes.clone()));
    assert!(!under("git push", ROOT, Some("se_01m7h4jys3gnc16j".parse().unwrap()), pushes));
    let touches = of_session("touch src/a");
    assert!(under("touch src/b", ROOT, Some(session), touches.clone()));
    assert!(!under("touch other/b", ROOT, Some(session), touches), "with paths, where the card said");
}

#[test]
fn another_audience_tool_or_principal_is_not_covered() {
    let under = |with: &dyn Fn(&mut JudgeContext<'_>)| {
        let mut context = JudgeContext::personal(HOME, vec![ROOT.to_owned()]);
        with(&mut context);
        let grants = Grants::from_grants(vec![grant("make", None)]);
        verdict_word(&judge(&plan("make", ROOT), &Facts::none(ROOT), &context, &CheckedRules::default(), &grants))
            .to_owned()
    };
    assert_eq!(under(&|_| {}), "allow");
    assert_eq!(under(&|c| c.audience = Audience::Team), "ask");
    assert_eq!(under(&|c| c.audience = Audience::Public), "deny");
    assert_eq!(under(&|c| c.tool = Tool::WriteFile), "ask");
    assert_eq!(under(&|c| c.principal = "pr_01m7h4jys3gnc16h".parse().unwrap()), "ask");
    let mut spent = grant("make", None);
    spent.uses_left = Some(0);
    assert!(!covered("make", ROOT, &[spent]));
}

#[test]
fn a_script_is_granted_by_its_content() {
    let facts = |command: &str, content: &str| {
        let mut facts = Facts::none(ROOT);
        for script in required_facts(&plan(command, ROOT)).scripts {
            let resolved = format!("{ROOT}/run.sh");
            let found = PathTarget { resolved, kind: PathTargetKind::File, dev: 1, inode: 1, mount: false };
            facts.paths.insert(script.clone(), found);
            facts.scripts.insert(script, countersign_model::Digest::sha256(&[content.as_bytes()]));
        }
        facts
    };
    for command in ["./run.sh", "bash run.sh", "sh ./run.sh x y"] {
        for choice in [Choice::Here, Choice::Anywhere] {
            let grants = saved_grants_in(command, ROOT, &facts(command, "one"), choice, false).unwrap();
            assert!(grants[0].script.is_some(), "{command}");
            let judged = |content: &str| {
                verdict_word(&assess(command, ROOT, &[ROOT], &grants, Some(facts(command, content)))).to_owned()
            };
            assert_eq!((judged("one").as_str(), judged("two").as_str()), ("allow", "ask"), "{command}");
        }
        // A script whose content could not be read is not saved at all.
        assert_eq!(saved_grants_in(command, ROOT, &Facts::none(ROOT), Choice::Here, false), None, "{command}");
    }
}

#[test]
fn parse_verb_agrees_with_the_gate() {
    for bad in ["sudo", "csn approvals", "/", "/opt/dir/", "doas"] {
        assert!(parse_verb(bad).is_err(), "{bad}");
    }
    for verb in ["make", "git push", "cargo test", "npm run", "/opt/tool", "kubectl get"] {
        assert_eq!(parse_verb(verb).as_deref(), Ok(verb), "{verb}");
    }
    assert_eq!(parse_verb("  git   push ").as_deref(), Ok("git push"));
    for bad in
        ["git push origin", "git push --force", "a; b", "", "eval", "$X", "bash -c", "rm -rf", "a | b", "x=1 make"]
    {
        assert!(parse_verb(bad).is_err(), "{bad}");
    }
}

/// With ten thousand grants for one verb, the right one is found without checking the others.
#[test]
fn one_grant_among_ten_thousand_is_found_quickly() {
    let mut all: Vec<Grant> = (0..10_000).map(|n| grant("make", Some(&format!("/work/p{n}/x")))).collect();
    all.extend((0..1000).map(|n| grant(&format!("tool{n}"), None)));
    let grants = Grants::from_grants(all);
    assert_eq!(grants.candidates("make", Some("/work/p77/x/y/z"), None).count(), 1);
    assert_eq!(grants.candidates("make", Some("/work/q/x"), None).count(), 0);
    let context = JudgeContext::personal(HOME, vec![ROOT.to_owned()]);
    for (cwd, expect) in [("/work/p9999/x", "allow"), ("/work/p9999", "ask"), ("/work/p10000/x", "ask")] {
        let judged = judge(&plan("make", cwd), &Facts::none(cwd), &context, &CheckedRules::default(), &grants);
        assert_eq!(verdict_word(&judged), expect, "{cwd}");
    }
}

#[test]
fn a_proposal_covers_every_uncovered_occurrence() {
    let context = JudgeContext::personal(HOME, vec![ROOT.to_owned()]);
    let (command, facts) = ("git status && git push && echo x && make && ls", Facts::none(ROOT));
    let plan = plan(command, ROOT);
    let assessment = judge(&plan, &facts, &context, &CheckedRules::default(), &Grants::default());
    let all = grant_proposals(Choice::Here, false, &plan, &facts, &assessment, &context).unwrap();
    let verbs: Vec<&str> = all.iter().map(|p| p.verb.as_str()).collect();
    assert_eq!(verbs, ["git push", "make"], "not what only reads or says something");
    let grants: Vec<Grant> = all.iter().map(grant_from_proposal).collect();
    assert!(covered(command, ROOT, &grants));
}

/// Grants that once covered more than their card showed.
#[test]
fn a_grant_covers_its_call_and_not_a_similar_one() {
    for (granted, not) in [
        // Variables: a call with them differs from a call without.
        ("DRY_RUN=1 terraform apply", "terraform apply"),
        ("DRY_RUN=1 terraform apply", "DRY_RUN=0 terraform apply"),
        ("DRY=0 DRY=1 beta", "DRY=1 DRY=0 beta"),
        // Interpreters: only the script that was shown.
        ("python3 -m pytest", "python3 -m http.server"),
        ("python3 -m pytest", "python3 evil.py"),
        ("node -r ./a.js b.js", "node -r ./e.js b.js"),
        // Exact calls: their redirects, their input, and the file that a word means.
        ("crontab - <<< a", "crontab - <<< b"),
        ("sudo tee /etc/x.conf <<< a", "sudo tee /etc/x.conf <<< b"),
        ("rm -f b.py", "cd sub && rm -f b.py"),
        ("rm -f b.py", "rm -f b.py > c.py"),
        ("kubectl get pods", "kubectl get pods --kubeconfig=/tmp/evil"),
        ("kubectl get pods", "kubectl get --raw /api/v1/secrets"),
    ] {
        let grants = saved_grants(granted, Choice::Anywhere, false);
        assert!(!grants.is_empty() && covered(granted, ROOT, &grants), "{granted}");
        assert!(!covered(not, ROOT, &grants), "{granted} covers {not}");
    }
    // Unknown input cannot be granted exactly.
    assert!(saved_grants("make | sudo tee /etc/x.conf", Choice::Anywhere, false).is_empty());
    // Another working directory is another directory, also when an option names it.
    let session: Vec<Grant> = saved_grants("git push", Choice::Session, false);
    let id = "se_01m7h4jys3gnc16h".parse().unwrap();
    let session: Vec<Grant> = session.into_iter().map(|g| Grant { session: Some(id), ..g }).collect();
    let context = JudgeContext { session: Some(id), ..JudgeContext::personal(HOME, vec![ROOT.to_owned()]) };
    let under = |command: &str| {
        let judged = judge(
            &plan(command, ROOT),
            &Facts::none(ROOT),
            &context,
            &CheckedRules::default(),
            &Grants::from_grants(session.clone()),
        );
        verdict_word(&judged).to_owned()
    };
    assert_eq!((under("git push").as_str(), under("git -C /other/repo push").as_str()), ("allow", "ask"));
}

/// A name that resolves outside the system and the toolchains is another program.
#[test]
fn a_grant_is_bound_to_the_program_that_a_name_resolves_to() {
    let at = |path: &str| {
        let mut facts = Facts::none(ROOT);
        facts.programs.insert("terraform".to_owned(), path.to_owned());
        facts
    };
    let under = |grants: &[Grant], path: &str| {
        verdict_word(&assess("terraform plan", ROOT, &[ROOT], grants, Some(at(path)))).to_owned()
    };
    let typed = [grant("terraform plan", None)];
    for path in ["/usr/bin/terraform", "/opt/hashicorp/terraform", "/home/dev/.local/bin/terraform"] {
        assert_eq!(under(&typed, path), "allow", "{path}");
    }
    for path in
        ["/tmp/evil/terraform", "/work/proj/bin/terraform", "/home/dev/Downloads/terraform", "/var/tmp/terraform"]
    {
        assert_eq!(under(&typed, path), "ask", "{path}");
        let saved = saved_grants_in("terraform plan", ROOT, &at(path), Choice::Anywhere, false).unwrap();
        assert_eq!(under(&saved, path), "allow", "{path}");
        assert_eq!(under(&saved, "/usr/bin/terraform"), "ask", "one for {path} is not for the system's");
        assert_eq!(under(&saved, "/tmp/other/terraform"), "ask");
    }
}

/// Variables of a request count as assignments in its text.
#[test]
fn variables_of_a_request_count_as_assignments() {
    let judged = |env: serde_json::Value, grants: Vec<Grant>| {
        let request = serde_json::from_value(serde_json::json!({
            "tool": "shell", "args": {"command": "git push origin main", "cwd": ROOT, "env": env},
        }));
        let plan = countersign_policy::read_request(
            &request.unwrap(),
            &countersign_policy::ParseContext { cwd: ROOT, home: HOME, environment: &|_| false },
        );
        let context = JudgeContext::personal(HOME, vec![ROOT.to_owned()]);
        let assessment =
            judge(&plan, &Facts::none(ROOT), &context, &CheckedRules::default(), &Grants::from_grants(grants));
        (verdict_word(&assessment).to_owned(), assessment.one_shot)
    };
    let granted = || vec![grant("git push", None)];
    assert_eq!(judged(serde_json::json!({}), granted()).0, "allow");
    assert_eq!(judged(serde_json::json!({"LC_ALL": "C", "NO_COLOR": "1"}), granted()).0, "allow");
    for name in ["PATH", "LD_PRELOAD", "GIT_SSH_COMMAND", "HOME", "FOO"] {
        assert_eq!(judged(serde_json::json!({name: "/tmp/x"}), granted()), ("ask".to_owned(), false), "{name}");
    }
    for name in ["BASH_ENV", "BASH_FUNC_git%%", "CDPATH", "ENV", "PS4"] {
        assert_eq!(judged(serde_json::json!({name: "x"}), granted()), ("ask".to_owned(), true), "{name}");
    }
    // If a backslash may be half of a character, bash reads another text than the gate.
    for name in ["LC_ALL", "LC_CTYPE", "LANG"] {
        assert_eq!(judged(serde_json::json!({name: "zh_CN.GBK"}), granted()), ("ask".to_owned(), true), "{name}");
        assert_eq!(judged(serde_json::json!({name: "de_DE.UTF-8"}), granted()).0, "allow", "{name}");
    }
}

#[test]
fn without_confinement_a_grant_covers_read_only_commands() {
    let context = JudgeContext {
        kernel: countersign_model::Kernel { landlock: 2, seccomp: true },
        ..JudgeContext::personal(HOME, vec![ROOT.to_owned()])
    };
    let under = |command: &str, grants: Vec<Grant>| {
        let judged = judge(
            &plan(command, ROOT),
            &Facts::none(ROOT),
            &context,
            &CheckedRules::default(),
            &Grants::from_grants(grants),
        );
        verdict_word(&judged).to_owned()
    };
    let ls = || vec![grant("ls", Some(ROOT))];
    assert_eq!(under("ls", vec![]), "ask");
    assert_eq!(under("ls -la && echo done", ls()), "allow");
    assert_eq!(under("ls /etc", ls()), "ask");
    assert_eq!(under("ls && cat README.md", ls()), "ask");
    assert_eq!(under("echo hi", ls()), "ask");
    assert_eq!(under("echo hi; pwd", vec![grant("echo", None)]), "allow", "what only says something goes with it");
    assert_eq!(under("echo hi; ls", vec![grant("echo", None)]), "ask");
}

#[test]
fn confinement_is_never_wider_than_the_user_saw() {
    use countersign_model::{Confinement, Kernel, Profile};
    type Change<'a> = &'a dyn Fn(JudgeContext<'static>) -> JudgeContext<'static>;
    let of = |text: &str, change: Change<'_>| {
        let context = change(JudgeContext::personal(HOME, vec![ROOT.to_owned()]));
        judge(&plan(text, ROOT), &Facts::none(ROOT), &context, &CheckedRules::default(), &Grants::default())
    };
    let plain = |c: JudgeContext<'static>| c;
    let reads = of("ls", &plain);
    assert_eq!((verdict_word(&reads), reads.sandbox.confinement), ("allow", Confinement::ReadOnly));
    let open = of("ls", &|c| JudgeContext { requested_confinement: Some(Confinement::Shield), ..c });
    assert_eq!((verdict_word(&open), open.sandbox.confinement), ("ask", Confinement::Shield));
    let empty = of("x=1", &|c| JudgeContext { requested_confinement: Some(Confinement::Shield), ..c });
    assert_eq!(verdict_word(&empty), "ask");
    let auto = of("touch x", &|c| JudgeContext { profile: Profile::FullAuto, ..c });
    assert_eq!((verdict_word(&auto), auto.sandbox.confinement), ("allow", Confinement::Workspace));
    let older = |c: JudgeContext<'static>| JudgeContext {
        profile: Profile::FullAuto,
        kernel: Kernel { landlock: 2, seccomp: true },
        ..c
    };
    assert_eq!(verdict_word(&of("touch x", &older)), "ask");
    assert_eq!(
        verdict_word(&of("touch x", &|c| JudgeContext {
            requested_confinement: Some(Confinement::Shield),
            ..older(c)
        })),
        "ask"
    );
    // Only reading is allowed, and no user can change that.
    let degraded =
        of("ls", &|c| JudgeContext { degraded: true, requested_confinement: Some(Confinement::Shield), ..c });
    assert_eq!(verdict_word(&degraded), "deny");
    let sudo = of("sudo -n id", &|c| JudgeContext { requested_confinement: Some(Confinement::ReadOnly), ..c });
    assert_eq!(verdict_word(&sudo), "deny");
    assert_eq!(of("sudo -n id", &plain).sandbox.confinement, Confinement::None);
}
