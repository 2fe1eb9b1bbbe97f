//! A case: one request under judgement, with everything that its verdict depends on. Asking, showing a card and
//! answering all judge through it, so they cannot differ. It reads nothing but its own fields.

use crate::facts::{self, GateSettings, PreparedRequest};
use countersign_model::{Assessment, Grants, HomeKey, Mode, Request, Requester, Session, Timestamp};
use countersign_policy::JudgeContext;
use countersign_redact::{KnownSecrets, Mask};

/// A request, with the settings, grants and time that it is judged by.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) request: &'a Request,
    /// The resolved request: its plan and the facts about its files.
    pub(crate) prepared: &'a PreparedRequest,
    pub(crate) settings: &'a GateSettings,
    pub(crate) requester: &'a Requester,
    pub(crate) session: Option<&'a Session>,
    pub(crate) grants: &'a Grants,
    pub(crate) now: Timestamp,
}

impl<'a> Case<'a> {
    /// The verdict. A decision takes it once, and everything that follows from the decision uses that one.
    pub(crate) fn assess(&self) -> Assessment {
        let Self { prepared, settings, grants, .. } = *self;
        countersign_policy::judge(&prepared.plan, &prepared.facts, &self.context(), &settings.rules, grants)
    }

    /// The inputs of the verdict besides the plan, the facts, the rules and the grants.
    pub(crate) fn context(&self) -> JudgeContext<'a> {
        let Self { request, prepared, settings, requester, session, now, .. } = *self;
        JudgeContext {
            profile: requester.profile,
            audience: requester.audience,
            attended: request.attended,
            kernel: settings.kernel,
            requested_confinement: request.confinement,
            requested_network: request.network,
            granted_sandbox: settings.granted,
            network_limit: settings.network,
            background: request.background,
            interactive: request.mode == Mode::Pty,
            home: &prepared.home,
            roots: facts::roots(prepared, settings, requester, session),
            protected: settings.protected.clone(),
            read_all: settings.read_all,
            principal: requester.principal,
            session: requester.session,
            tool: requester.tool,
            session_folder: session.and_then(|s| s.folder.as_ref()).map(|f| f.as_str().to_owned()),
            now,
            key: &settings.key,
            degraded: settings.degraded.is_some(),
        }
    }

    /// The mask that redacts the secrets of this request.
    pub(crate) fn mask(&self) -> Mask {
        mask(&self.settings.key, self.prepared)
    }
}

/// The mask of a request: it knows the secrets in its environment and its words.
pub(crate) fn mask(key: &HomeKey, prepared: &PreparedRequest) -> Mask {
    Mask::new(mask_key(key), KnownSecrets::from_task(&prepared.env, &prepared.argv))
}

/// One key for the whole home: a masked secret has the same name in every task.
pub(crate) fn mask_key(key: &HomeKey) -> countersign_model::Digest {
    key.digest("mask", &[b"house"])
}
