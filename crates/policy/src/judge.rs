//! Judging: risks, hard denies, the profile. In that order, and deny wins.

use crate::read::rough_words;
use countersign_model::{
    Answer, Assessment, Code, Confinement, Facts, Occurrence, Plan, Profile, Refusal, Risk, RiskNote,
};

/// What the verdict depends on beside the plan and the facts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Context {
    pub profile: Profile,
    /// Whether somebody can be asked.
    pub attended: bool,
    /// Whether the kernel can hold a read-only task to what it may do. Where it cannot, such tasks ask.
    pub can_confine: bool,
    pub background: bool,
    /// Whether it gets a terminal, and so somebody to answer its questions.
    pub interactive: bool,
}

/// Programs that only read, as long as every word is literal.
const READ_ONLY: &[&str] = &[
    "basename", "cat", "cut", "date", "df", "dirname", "du", "head", "id", "ls", "nl", "nproc", "pwd", "realpath",
    "stat", "tail", "tr", "true", "uname", "wc", "whoami",
];
const ESCALATES: &[&str] = &["sudo", "doas", "su", "pkexec"];

/// The verdict on a plan.
#[must_use]
pub fn judge(plan: &Plan, _facts: &Facts, context: Context) -> Assessment {
    let risks = risks(plan, context);
    let privileged = risks.iter().any(|r| r.risk == Risk::Privileged);
    let uncovered: Vec<usize> = (0..plan.occurrences.len()).collect();
    let read_only = plan.occurrences.iter().all(reads_only);
    let answer = if let Some(refusal) = plan.occurrences.iter().find_map(stops_the_house) {
        Answer::Deny(refusal)
    } else if context.profile == Profile::FullAuto && !privileged {
        Answer::Allow { rule: "profile.full_auto" }
    } else if read_only && context.can_confine && !context.interactive && !context.background {
        Answer::Allow { rule: "read_only" }
    } else if context.profile == Profile::Locked {
        let locked =
            Refusal::new(Code::Locked, "the profile is locked: only what is granted runs, and nothing is asked");
        Answer::Deny(locked.hint("a person may run it with --profile safe"))
    } else if context.attended {
        Answer::Ask { uncovered }
    } else {
        let refusal = Refusal::new(
            Code::ApprovalRequiredUnattended,
            "this needs a person's approval, and nobody is there to ask",
        );
        Answer::Deny(refusal.hint("ask where somebody can answer (without --unattended), or with --profile full_auto"))
    };
    Assessment { answer, risks, confinement: Confinement::None }
}

fn reads_only(occurrence: &Occurrence) -> bool {
    // A program given by path is that file, whatever its name.
    let bare = occurrence.words.first().is_some_and(|w| READ_ONLY.contains(&w.as_str()));
    occurrence.opaque.is_none() && bare
}

fn risks(plan: &Plan, context: Context) -> Vec<RiskNote> {
    let mut risks = Vec::new();
    for (n, occurrence) in plan.occurrences.iter().enumerate() {
        let mut note = |risk, reason| risks.push(RiskNote { risk, occurrence: n, reason });
        if occurrence.opaque.is_some() {
            note(Risk::Opaque, "shell text that has not been taken apart");
        } else if !reads_only(occurrence) {
            note(Risk::Write, "not known to be read-only");
        }
        if rough_words(occurrence).iter().flatten().any(|w| ESCALATES.contains(&w.rsplit('/').next().unwrap_or(w))) {
            note(Risk::Privileged, "asks for another user's rights");
        }
        if stops_the_house(occurrence).is_some() {
            note(Risk::OfSelf, "stops or kills countersign");
        }
        if context.interactive {
            note(Risk::Interactive, "gets a terminal: what is typed into it is not known now");
        }
        if context.background {
            note(Risk::Background, "goes on when nobody waits for it");
        }
    }
    risks
}

/// Hard deny: what would end the house or its supervisors. No grant and no profile overrides it.
fn stops_the_house(occurrence: &Occurrence) -> Option<Refusal> {
    let ours = |word: &str| {
        let name = word.rsplit('/').next().unwrap_or(word);
        matches!(name, "csn" | "csn-shim" | "countersign" | "countersign.service")
    };
    for words in rough_words(occurrence) {
        for (n, word) in words.iter().enumerate() {
            let rest = &words[n + 1..];
            let name = word.rsplit('/').next().unwrap_or(word);
            let hit = match name {
                "csn" => rest.iter().any(|w| w == "down"),
                "pkill" | "killall" | "skill" => rest.iter().any(|w| ours(w) || w.contains("csn")),
                "systemctl" | "service" => {
                    rest.iter().any(|w| ours(w))
                        && rest.iter().any(|w| matches!(w.as_str(), "stop" | "kill" | "disable" | "restart"))
                }
                _ => false,
            };
            if hit {
                let refusal = Refusal::new(Code::SelfDestructive, "a task may not stop or kill countersign");
                return Some(refusal.hint("a person can do that with `csn down` in a terminal of their own"));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use countersign_model::{Command, Request, Tool};

    fn facts() -> Facts {
        let cwd = countersign_model::PathFact { path: "/p".into(), resolved: "/p".into(), dev: 1, inode: 1 };
        Facts { cwd, program: None }
    }

    fn request(args: Command) -> Request {
        serde_json::from_value(serde_json::json!({"tool": Tool::Shell, "args": args})).unwrap()
    }

    fn context(profile: Profile) -> Context {
        Context { profile, attended: true, can_confine: false, background: false, interactive: false }
    }

    fn check(text: &str, profile: Profile, expect: &str) {
        let argv = text.strip_prefix("argv: ").map(|t| t.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let command = argv.is_none().then(|| text.to_owned());
        let request = request(Command { command, argv, ..Command::default() });
        let assessment = judge(&crate::read(&request, "/p"), &facts(), context(profile));
        let answer = match assessment.answer {
            Answer::Allow { rule } => rule.to_owned(),
            Answer::Ask { .. } => "ask".to_owned(),
            Answer::Deny(refusal) => refusal.code.as_str().to_owned(),
        };
        assert_eq!(answer, expect, "{text} under {profile:?}");
    }

    #[test]
    fn safe_asks_even_for_what_only_reads_while_nothing_confines_it() {
        check("argv: ls -l", Profile::Safe, "ask");
        check("git push", Profile::Safe, "ask");
        check("", Profile::Safe, "ask");
    }

    #[test]
    fn where_the_kernel_confines_literal_reads_run() {
        let request = request(Command { argv: Some(vec!["ls".into()]), ..Command::default() });
        let can = Context { can_confine: true, ..context(Profile::Safe) };
        let answer = judge(&crate::read(&request, "/p"), &facts(), can).answer;
        assert_eq!(answer, Answer::Allow { rule: "read_only" });
    }

    #[test]
    fn full_auto_runs_what_is_not_denied_and_asks_for_more_rights() {
        check("rm -rf build && make", Profile::FullAuto, "profile.full_auto");
        check("x=$(sudo ls)", Profile::FullAuto, "ask");
        check("argv: /usr/bin/sudo ls", Profile::FullAuto, "ask");
    }

    #[test]
    fn locked_never_asks() {
        check("argv: make", Profile::Locked, "locked");
    }

    #[test]
    fn stopping_countersign_is_denied_in_every_profile() {
        for profile in [Profile::Locked, Profile::Safe, Profile::FullAuto] {
            for text in [
                "csn down",
                "cd /tmp && csn down",
                "bash -lc 'csn down'",
                "true | /usr/local/bin/csn down",
                "pkill csn",
                "killall -9 csn-shim",
                "systemctl --user stop countersign",
                "argv: csn down",
                "sleep 1 & c\"s\"n down",
            ] {
                check(text, profile, "self_destructive");
            }
        }
        check("csn ps; echo down", Profile::FullAuto, "profile.full_auto");
        check("kill 123", Profile::FullAuto, "profile.full_auto");
    }

    #[test]
    fn unattended_is_a_denial_that_says_so() {
        let request = request(Command { command: Some("make".into()), ..Command::default() });
        let alone = Context { attended: false, ..context(Profile::Safe) };
        let answer = judge(&crate::read(&request, "/p"), &facts(), alone).answer;
        assert!(matches!(answer, Answer::Deny(r) if r.code == Code::ApprovalRequiredUnattended && r.hint.is_some()));
    }
}
