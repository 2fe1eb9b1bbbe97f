//! The last step of judging: turns coverage and sandbox into allow, ask or deny.

use crate::{JudgeContext, judge::uncovered};
use countersign_model::{
    Assessment, Audience, Confinement, Coverage, Network, Plan, Profile, Refusal, RefusalCode, Sandbox, SandboxReason,
    Tool, Verdict,
};

/// The properties of a plan that the verdict depends on, apart from coverage and sandbox.
pub(crate) struct VerdictInput {
    /// A command of the plan asks for another user's rights.
    pub(crate) privileged: bool,
    /// A rule requires approval.
    pub(crate) must_ask: bool,
    /// The plan only reads, and the kernel enforces that.
    pub(crate) only_reads: bool,
    /// The plan has no occurrence to ask about, and it cannot be confined.
    pub(crate) ask_whole_plan: bool,
}

impl VerdictInput {
    /// Returns the verdict and the sandbox for it.
    pub(crate) fn decide(
        &self,
        plan: &Plan,
        context: &JudgeContext<'_>,
        assessment: &Assessment,
    ) -> (Verdict, Sandbox) {
        let sandbox = assessment.sandbox.clone();
        let can_confine = context.kernel.can_enforce(sandbox.confinement);
        let open = uncovered(&assessment.coverage);
        let verdict = if context.degraded && !self.only_reads {
            Verdict::Deny(degraded_refusal())
        } else if self.privileged && context.requested_confinement.is_some() {
            let refusal = Refusal::new(
                RefusalCode::CannotConfine,
                "a command that asks for another user's rights cannot be sandboxed",
            );
            Verdict::Deny(refusal.hint("leave out `confinement`, or the command that asks for another user's rights"))
        } else if open.is_empty() && !self.ask_whole_plan {
            self.covered_verdict(can_confine, assessment)
        } else if context.audience == Audience::Public {
            let refusal = Refusal::new(
                RefusalCode::NotForAudience,
                "the public audience may only read, and only in its own folder",
            );
            Verdict::Deny(refusal.hint("the owner can bind this chat or token to another audience"))
        } else if self.is_automatic(context) && context.kernel.can_enforce(Confinement::Workspace) {
            return (Verdict::Allow { rule: "profile.full_auto" }, automatic_sandbox(context));
        } else if context.profile == Profile::Locked {
            Verdict::Deny(locked_refusal())
        } else if context.attended && !can_confine {
            Verdict::Deny(cannot_confine_refusal(sandbox.confinement))
        } else if context.attended {
            Verdict::Ask { uncovered: open }
        } else {
            Verdict::Deny(unattended_refusal(plan, context.tool, &open))
        };
        (verdict, sandbox)
    }

    /// The verdict on a plan that is covered completely.
    fn covered_verdict(&self, can_confine: bool, assessment: &Assessment) -> Verdict {
        if self.only_reads {
            Verdict::Allow { rule: "read_only" }
        } else if !can_confine {
            Verdict::Deny(cannot_confine_refusal(assessment.sandbox.confinement))
        } else if assessment.coverage.iter().any(|c| matches!(c, Coverage::Grant { .. })) {
            Verdict::Allow { rule: "grant" }
        } else {
            Verdict::Allow { rule: "rule" }
        }
    }

    fn is_automatic(&self, context: &JudgeContext<'_>) -> bool {
        let wider = context.requested_confinement.is_some_and(|requested| requested < Confinement::Workspace);
        context.profile == Profile::FullAuto && !self.privileged && !self.must_ask && !wider
    }
}

/// The sandbox of a plan that profile `full_auto` allows without approval: the workspace, without the paths and
/// logins that the plan names.
fn automatic_sandbox(context: &JudgeContext<'_>) -> Sandbox {
    let level = context.requested_confinement.unwrap_or_default().max(Confinement::Workspace);
    let network = match context.requested_network {
        Some(Network::None) => Network::None,
        _ => context.network_limit,
    };
    Sandbox::plain(level, network, SandboxReason::Profile)
}

fn degraded_refusal() -> Refusal {
    Refusal::new(RefusalCode::PolicyUnavailable, "config.toml is not valid, so only read-only commands may run")
        .hint("`csn doctor` shows what is wrong with config.toml")
}

fn locked_refusal() -> Refusal {
    let message = "the profile is `locked`: only read-only and granted commands run, and no approval is requested";
    Refusal::new(RefusalCode::Locked, message).hint("a person can run it with the profile `safe` (--profile safe)")
}

fn unattended_refusal(plan: &Plan, tool: Tool, uncovered: &[usize]) -> Refusal {
    let message = "this needs a person's approval, and no person can be asked";
    let verb = uncovered.iter().find_map(|n| plan.occurrences.get(*n)).map_or("…", |o| o.verb.as_str());
    let tool = match tool {
        Tool::Shell => String::new(),
        tool => format!(" --tool {}", tool.as_str()),
    };
    Refusal::new(RefusalCode::ApprovalRequiredUnattended, message).hint(format!(
        "grant it in advance (csn grants add --verb '{verb}'{tool} --in DIR), or send the request where a person can answer"
    ))
}

/// The refusal when the operator or the request asks for a confinement that this kernel cannot enforce.
fn cannot_confine_refusal(confinement: Confinement) -> Refusal {
    let message = format!("it must run sandboxed ({}), and this kernel cannot enforce that", confinement.as_str());
    Refusal::new(RefusalCode::CannotConfine, message)
        .hint("`csn doctor` shows what the kernel supports; [confine] in config.toml sets what is required")
}
