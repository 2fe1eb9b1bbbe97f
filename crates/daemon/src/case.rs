//! A case: one request under judgement, with everything that a verdict on it depends on. Asking, showing a card and
//! answering all judge through it, so that they cannot differ. Reads nothing but what it holds.

use crate::facts::{self, GateSettings, Prepared};
use countersign_model::{Assessment, Grants, HomeKey, Mode, Request, Requester, Session, Timestamp};
use countersign_policy::JudgeContext;
use countersign_redact::{Known, Mask};

/// A request, and the moment at which it is judged.
#[derive(Clone, Copy)]
pub(crate) struct Case<'a> {
    pub(crate) request: &'a Request,
    /// The request as it stands in the world.
    pub(crate) prepared: &'a Prepared,
    pub(crate) settings: &'a GateSettings,
    pub(crate) requester: &'a Requester,
    pub(crate) session: Option<&'a Session>,
    pub(crate) grants: &'a Grants,
    pub(crate) now: Timestamp,
}

impl<'a> Case<'a> {
    /// The verdict. A decision takes it once, and everything that follows from the decision goes by that one.
    pub(crate) fn assess(&self) -> Assessment {
        let Self { prepared, settings, grants, .. } = *self;
        countersign_policy::judge(&prepared.plan, &prepared.facts, &self.context(), &settings.rules, grants)
    }

    /// What the verdict depends on beside the plan, the facts, the rules and the grants.
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

    /// What takes the secrets of this request out of what is said about it.
    pub(crate) fn mask(&self) -> Mask {
        mask(&self.settings.key, self.prepared)
    }
}

/// The mask of a request: it knows what its environment and its words give away.
pub(crate) fn mask(key: &HomeKey, prepared: &Prepared) -> Mask {
    Mask::new(mask_key(key), Known::of_task(&prepared.env, &prepared.argv))
}

/// One key for all that this home shows: what was read in one task can be named in the next.
pub(crate) fn mask_key(key: &HomeKey) -> countersign_model::Digest {
    key.digest("mask", &[b"house"])
}
