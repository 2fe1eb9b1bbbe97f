//! Grants: listing, adding and revoking saved approvals.

use super::{ApiResult, Ops};
use crate::caller::Caller;
use crate::{
    register_command::{RegisterCommand, RegisterReply, grant_label},
    users::RunAs,
};
use countersign_model::{
    Confinement, CredentialScope, DisplaySafe, Grant, GrantId, GrantSandbox, Refusal, RefusalCode, Register, Risk,
    TaskRefusal, Text,
    api::{GrantBody, GrantPage, GrantQuery, GrantView},
};
use countersign_policy::{JudgeContext, can_be_granted, parse_verb};
use countersign_redact::text_by_shape;
use countersign_store::{clock, world};
use std::sync::Arc;

const DEFAULT_PAGE_ITEMS: usize = 100;
const MAX_PAGE_ITEMS: usize = 500;

/// A grant, with its text for people.
fn grant_view(grant: Grant) -> GrantView {
    let label = grant_label(&grant);
    GrantView { grant, label }
}

/// The valid grants, newest first.
pub(crate) async fn list(ops: &Arc<Ops>, caller: &Caller, query: GrantQuery) -> ApiResult<GrantPage> {
    caller.require_scope(CredentialScope::Observe)?;
    let limit = super::page_limit(query.limit, DEFAULT_PAGE_ITEMS, MAX_PAGE_ITEMS)?;
    let (roster, caller) = (ops.records.roster(), caller.clone());
    let page = move |register: &Register| {
        let now = clock::now();
        let wanted = |g: &&Grant| {
            g.is_valid_at(now)
                && g.principal == caller.principal
                && g.session.is_none_or(|s| caller.can_see(&roster, g.principal, Some(s)))
                && query.cursor.is_none_or(|before| g.id < Some(before))
                && query.verb.as_deref().is_none_or(|v| g.verb.as_str() == v)
                && query.session.is_none_or(|s| g.session == Some(s))
        };
        let mut page: Vec<Grant> = register.grants.iter().rev().filter(wanted).take(limit + 1).cloned().collect();
        let more = page.len() > limit;
        page.truncate(limit);
        let next = page.last().filter(|_| more).and_then(|g| g.id);
        GrantPage { grants: page.into_iter().map(grant_view).collect(), next }
    };
    Ok(ops.commit.read_register(page).await?)
}

pub(crate) async fn show(ops: &Arc<Ops>, caller: &Caller, id: &str) -> ApiResult<GrantView> {
    caller.require_scope(CredentialScope::Observe)?;
    Ok(grant_view(find_grant(ops, caller, id).await?))
}

/// Adds a grant; returns whether it is new or an equal one exists.
pub(crate) async fn add(ops: &Arc<Ops>, caller: &Caller, body: GrantBody) -> ApiResult<(GrantView, bool)> {
    caller.require_scope(CredentialScope::Approve)?;
    let grant = {
        let (ops, caller) = (Arc::clone(ops), caller.clone());
        crate::blocking(move || resolve_grant(&ops, &caller, body)).await??
    };
    match ops.commit.register(RegisterCommand::Grant(Box::new(grant))).await? {
        RegisterReply::Grant { grant, new } => Ok((grant_view(*grant), new)),
        _ => Err(Refusal::new(RefusalCode::Internal, "the register returned no grant").into()),
    }
}

fn resolve_grant(ops: &Ops, caller: &Caller, giving: GrantBody) -> ApiResult<Grant> {
    let bad = |message: String| TaskRefusal::from(Refusal::new(RefusalCode::BadRequest, message));
    let verb = parse_verb(&giving.verb)
        .map_err(|why| bad(format!("`{}` is not a verb: {why}", DisplaySafe::bounded(&giving.verb, 200))))?;
    let clean = |raw: &str| match text_by_shape(raw) {
        clean if clean.as_str() == raw => Ok(clean),
        _ => Err(bad("the grant contains text that looks like a secret".to_owned())),
    };
    let run_as = ops.run_as(caller.principal)?;
    let directory = giving.directory.map(|d| grantable_directory(ops, &run_as, &d)).transpose()?;
    if let Some(session) = giving.session {
        let known = ops.roster.borrow().session(session).cloned();
        if known.is_none_or(|s| s.ended_at.is_some() || !caller.can_see(&ops.records.roster(), s.principal, Some(s.id)))
        {
            return Err(Refusal::new(RefusalCode::NotFound, format!("there is no session {session}")).into());
        }
    }
    if giving.confinement == Some(Confinement::None) {
        return Err(bad("`confinement` must be shield, workspace or read_only".to_owned()));
    }
    if giving.uses == Some(0) {
        return Err(bad("`uses` must be at least 1".to_owned()));
    }
    if giving.expires_at.is_some_and(|end| end <= clock::now()) {
        return Err(bad("`expires_at` is in the past".to_owned()));
    }
    let risks = giving.risks.map(|mut risks| {
        risks.sort_unstable();
        risks.dedup();
        risks
    });
    if risks.as_ref().is_some_and(|r| r.iter().any(|r| matches!(r, Risk::Opaque | Risk::OfSelf | Risk::Privileged))) {
        return Err(bad("the risks `opaque`, `self` and `privileged` cannot be granted in advance".to_owned()));
    }
    Ok(Grant {
        id: None,
        verb: clean(&verb)?,
        directory: directory.as_deref().map(clean).transpose()?,
        repository: false,
        principal: caller.principal,
        session: giving.session,
        audience: giving.audience,
        tool: giving.tool,
        risks,
        program: None,
        operands: None,
        assignments: None,
        script: None,
        confinement: giving.confinement.filter(|c| *c > Confinement::Shield).unwrap_or_default(),
        sandbox: match giving.confinement {
            Some(Confinement::Shield) => GrantSandbox::Open,
            _ => GrantSandbox::Narrow,
        },
        created_at: None,
        created_by: Some(caller.actor()),
        surface: Some(caller.via.clone()),
        expires_at: giving.expires_at,
        uses_left: giving.uses,
    })
}

/// The real path of a directory for a grant. Directories that contain nearly everything are refused.
fn grantable_directory(ops: &Ops, run_as: &RunAs, directory: &str) -> ApiResult<String> {
    let bad = |what: &str| {
        let shown = DisplaySafe::bounded(directory, 300).to_string();
        TaskRefusal::from(Refusal::new(RefusalCode::BadRequest, format!("`{shown}` {what}")))
    };
    if !directory.starts_with('/') || directory.contains('\0') || directory.len() > 4096 {
        return Err(bad("is not an absolute path"));
    }
    let resolved = match run_as.with_fs_ids(|| world::path_fact(directory))? {
        Some(fact) => fact.resolved,
        None => countersign_policy::clean_path(directory),
    };
    let mut context = JudgeContext::personal(run_as.home(), Vec::new());
    let roster = Arc::clone(&ops.roster.borrow());
    let folders = roster.sessions().filter_map(|s| s.folder.as_ref());
    context.session_folder = folders.map(Text::as_str).find(|f| resolved.starts_with(*f)).map(str::to_owned);
    if !can_be_granted(&resolved, &context) {
        return Err(bad(
            "cannot be granted; name a project directory, not /, a directory directly below /, a home or the folder of a session",
        ));
    }
    Ok(resolved)
}

/// Confines the calls of a grant to what their risks need, from now on.
pub(crate) async fn narrow(ops: &Arc<Ops>, caller: &Caller, id: &str) -> ApiResult<GrantView> {
    let (principal, by) = (caller.principal, caller.actor());
    change_grant(ops, caller, id, |grant| RegisterCommand::Narrow { grant, principal, by }).await
}

pub(crate) async fn revoke(ops: &Arc<Ops>, caller: &Caller, id: &str) -> ApiResult<GrantView> {
    let (principal, by) = (caller.principal, caller.actor());
    change_grant(ops, caller, id, |grant| RegisterCommand::Revoke { grant, principal, by }).await
}

async fn change_grant(
    ops: &Arc<Ops>,
    caller: &Caller,
    id: &str,
    build_command: impl FnOnce(GrantId) -> RegisterCommand,
) -> ApiResult<GrantView> {
    caller.require_scope(CredentialScope::Approve)?;
    let grant = find_grant(ops, caller, id).await?.id.ok_or_else(|| unknown_grant(id))?;
    match ops.commit.register(build_command(grant)).await? {
        RegisterReply::Grant { grant, .. } => Ok(grant_view(*grant)),
        _ => Err(unknown_grant(id).into()),
    }
}

fn unknown_grant(id: &str) -> Refusal {
    let shown = DisplaySafe::bounded(id, 60);
    Refusal::new(RefusalCode::NotFound, format!("there is no grant {shown}")).hint("`csn grants list` shows all grants")
}

/// Finds a grant by its id or an unambiguous prefix.
async fn find_grant(ops: &Arc<Ops>, caller: &Caller, id: &str) -> ApiResult<Grant> {
    let prefix = if id.starts_with("gr_") { id.to_owned() } else { format!("gr_{id}") };
    if prefix.len() < 7 {
        return Err(unknown_grant(id).into());
    }
    let seen = {
        let (ops, caller) = (Arc::clone(ops), caller.clone());
        move |g: &Grant| {
            g.principal == caller.principal
                && g.session.is_none_or(|s| caller.can_see(&ops.records.roster(), g.principal, Some(s)))
        }
    };
    let whole: Option<GrantId> = prefix.parse().ok();
    let found = ops
        .commit
        .read_register(move |register| -> Vec<Grant> {
            match whole {
                Some(id) => register.grants.get(id).filter(|g| seen(g)).cloned().into_iter().collect(),
                None => {
                    let begins = |g: &&Grant| seen(g) && g.id.is_some_and(|i| i.to_string().starts_with(&prefix));
                    register.grants.iter().filter(begins).take(2).cloned().collect()
                }
            }
        })
        .await?;
    match &found[..] {
        [one] => Ok(one.clone()),
        [] => Err(unknown_grant(id).into()),
        _ => {
            Err(Refusal::new(RefusalCode::AmbiguousId, "several grants begin with this id; use more characters").into())
        }
    }
}
