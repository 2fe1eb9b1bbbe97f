//! The identity under which a request is judged.

use crate::{Audience, CredentialKind, Decision, PrincipalId, Profile, SessionId, TaskState, Tool};

/// Who asks, how far they are trusted, and with which tool. A task keeps its requester for its whole life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requester {
    pub principal: PrincipalId,
    pub session: Option<SessionId>,
    pub audience: Audience,
    pub credential: CredentialKind,
    pub profile: Profile,
    pub tool: Tool,
}

impl Requester {
    /// The requester that `command.planned` records; none for any other decision.
    #[must_use]
    pub fn from_decision(planned: &Decision) -> Option<Self> {
        let Decision::Planned { principal, session, audience, credential, profile, tool, .. } = planned else {
            return None;
        };
        Some(Self {
            principal: *principal,
            session: *session,
            audience: *audience,
            credential: *credential,
            profile: *profile,
            tool: *tool,
        })
    }

    /// The requester of a task.
    #[must_use]
    pub fn from_task(task: &TaskState) -> Self {
        Self {
            principal: task.request.principal,
            session: task.request.session_id,
            audience: task.request.audience,
            credential: task.request.credential,
            profile: task.request.profile,
            tool: task.request.tool,
        }
    }
}
