//! The last step of judging: from what a plan is covered by, and where it would run, to allow, ask or deny.

use crate::{JudgeContext, judge::uncovered};
use countersign_model::{
    Assessment, Audience, Confinement, Coverage, Network, Plan, Profile, Refusal, RefusalCode, Sandbox, SandboxReason,
    Tool, Verdict,
};

/// What the verdict goes by, beside coverage and sandbox.
pub(crate) struct VerdictInput {
    /// Something in it asks for another user's rights.
    pub(crate) privileged: bool,
    /// A rule wants a person to be asked.
    pub(crate) must_ask: bool,
    /// It reads, and is held to that.
    pub(crate) only_reads: bool,
    /// There is nothing in it to ask about, and nothing that would hold it.
    pub(crate) unheld_whole: bool,
}

impl VerdictInput {
    /// The verdict, and the sandbox that goes with it.
    pub(crate) fn answer(
        &self,
        plan: &Plan,
        context: &JudgeContext<'_>,
        assessment: &Assessment,
    ) -> (Verdict, Sandbox) {
        let sandbox = assessment.sandbox.clone();
        let held = context.kernel.can_enforce(sandbox.confinement);
        let open = uncovered(&assessment.coverage);
        let verdict = if context.degraded && !self.only_reads {
            Verdict::Deny(degraded())
        } else if self.privileged && context.wanted.is_some() {
            let refusal = Refusal::new(RefusalCode::CannotConfine, "what asks for other rights cannot be confined");
            Verdict::Deny(refusal.hint("leave `confinement` out, or leave out what asks for other rights"))
        } else if open.is_empty() && !self.unheld_whole {
            self.covered(held, assessment)
        } else if context.audience == Audience::Public {
            let refusal =
                Refusal::new(RefusalCode::NotForAudience, "strangers may only read, and only in their own folder");
            Verdict::Deny(refusal.hint("the owner may bind this chat or token to another audience"))
        } else if self.is_automatic(context) && context.kernel.can_enforce(Confinement::Workspace) {
            return (Verdict::Allow { rule: "profile.full_auto" }, unseen(context));
        } else if context.profile == Profile::Locked {
            Verdict::Deny(locked())
        } else if context.attended && !held {
            Verdict::Deny(unheld(sandbox.confinement))
        } else if context.attended {
            Verdict::Ask { uncovered: open }
        } else {
            Verdict::Deny(unattended(plan, context.tool, &open))
        };
        (verdict, sandbox)
    }

    /// Everything in it is let run by something.
    fn covered(&self, held: bool, assessment: &Assessment) -> Verdict {
        if self.only_reads {
            Verdict::Allow { rule: "read_only" }
        } else if !held {
            Verdict::Deny(unheld(assessment.sandbox.confinement))
        } else if assessment.coverage.iter().any(|c| matches!(c, Coverage::Grant { .. })) {
            Verdict::Allow { rule: "grant" }
        } else {
            Verdict::Allow { rule: "rule" }
        }
    }

    fn is_automatic(&self, context: &JudgeContext<'_>) -> bool {
        let wider = context.wanted.is_some_and(|wanted| wanted < Confinement::Workspace);
        context.profile == Profile::FullAuto && !self.privileged && !self.must_ask && !wider
    }
}

/// Where nobody has seen it, it gets no further than its workspace, and no path or login that it names.
fn unseen(context: &JudgeContext<'_>) -> Sandbox {
    let level = context.wanted.unwrap_or_default().max(Confinement::Workspace);
    let network = match context.wanted_network {
        Some(Network::None) => Network::None,
        _ => context.network,
    };
    Sandbox::plain(level, network, SandboxReason::Profile)
}

fn degraded() -> Refusal {
    Refusal::new(RefusalCode::PolicyUnavailable, "the configuration cannot be read: only reading is allowed")
        .hint("`csn doctor` says what is wrong with config.toml")
}

fn locked() -> Refusal {
    let message = "the profile is locked: only what reads and what is granted runs, and nothing is asked";
    Refusal::new(RefusalCode::Locked, message).hint("a person may run it with --profile safe")
}

fn unattended(plan: &Plan, tool: Tool, uncovered: &[usize]) -> Refusal {
    let message = "this needs a person's approval, and nobody is there to ask";
    let verb = uncovered.iter().find_map(|n| plan.occurrences.get(*n)).map_or("…", |o| o.verb.as_str());
    let tool = match tool {
        Tool::Shell => String::new(),
        tool => format!(" --tool {}", tool.as_str()),
    };
    Refusal::new(RefusalCode::ApprovalRequiredUnattended, message).hint(format!(
        "approve it beforehand (csn grants add --verb '{verb}'{tool} --in DIR), or ask where somebody can answer"
    ))
}

/// The operator, or the asker, wants it held to more than this kernel can.
fn unheld(confinement: Confinement) -> Refusal {
    let message = format!("it is to run confined ({}), and this kernel cannot do that", confinement.as_str());
    Refusal::new(RefusalCode::CannotConfine, message)
        .hint("`csn doctor` says what the kernel has; config.toml: [confine]")
}
