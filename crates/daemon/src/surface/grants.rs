//! `/grants`: saved approvals, given and taken back.

use super::{
    Answer, Shared,
    arrive::Who,
    problem::{Problem, Query, Segment, Whole, body},
};
use crate::{
    house::House,
    people::Eyes,
    wish::{Kept, Wish, label},
};
use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use countersign_model::{
    At, Audience, Code, Confinement, Grant, GrantId, GrantSandbox, Refusal, Register, Risk, SessionId, Shown, Text,
    Tool,
};
use countersign_policy::{Context, can_be_granted, verb_alone};
use countersign_redact::text_by_shape;
use countersign_store::{clock, world};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

const PAGE: usize = 100;
const LARGEST_PAGE: usize = 500;

/// As it is stored, and as people write it.
fn shown(grant: &Grant) -> Value {
    let mut value = json!(grant);
    value["label"] = json!(label(grant));
    value
}

pub(crate) async fn list(State(house): Shared, who: Who, mut query: Query) -> Answer<Json<Value>> {
    let before = query.parse::<GrantId>("cursor", "the `next` of an earlier page")?;
    let limit = query.limit(PAGE, LARGEST_PAGE)?;
    let verb = query.text("verb");
    let session = query.parse::<SessionId>("session", "the id of a session")?;
    query.nothing_else()?;
    let seen = {
        let house = Arc::clone(&house);
        move |g: &Grant| {
            g.principal == who.principal && g.session.is_none_or(|s| who.sees(&house, g.principal, Some(s)))
        }
    };
    let page = move |register: &Register| {
        let now = clock::now();
        let wanted = |g: &&Grant| {
            g.holds(now)
                && seen(g)
                && before.is_none_or(|before| g.id < Some(before))
                && verb.as_deref().is_none_or(|v| g.verb.as_str() == v)
                && session.is_none_or(|s| g.session == Some(s))
        };
        let mut page: Vec<Grant> = register.grants.iter().rev().filter(wanted).take(limit + 1).cloned().collect();
        let more = page.len() > limit;
        page.truncate(limit);
        let next = page.last().filter(|_| more).and_then(|g| g.id);
        json!({"grants": page.iter().map(shown).collect::<Vec<_>>(), "next": next})
    };
    Ok(Json(house.read(page).await?))
}

pub(crate) async fn show(State(house): Shared, who: Who, Segment(id): Segment) -> Answer<Json<Value>> {
    let grant = find(&house, &who, &id).await?;
    Ok(Json(shown(&grant)))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Giving {
    verb: String,
    /// Absolute; none (written as null) is anywhere.
    directory: Option<String>,
    #[serde(default)]
    audience: Audience,
    #[serde(default)]
    tool: Tool,
    #[serde(default)]
    risks: Option<Vec<Risk>>,
    #[serde(default)]
    session: Option<SessionId>,
    #[serde(default)]
    expires_at: Option<At>,
    #[serde(default)]
    uses: Option<u64>,
    /// `shield`: its calls run open. Without it they run in what their risks need, and never in less than is named here.
    #[serde(default)]
    confinement: Option<Confinement>,
}

pub(crate) async fn add(State(house): Shared, who: Who, Whole(bytes): Whole) -> Answer<Response> {
    // A grant that says nothing about where must not come about by leaving a field out.
    let named = serde_json::from_slice::<Value>(&bytes).is_ok_and(|v| v.get("directory").is_some());
    let giving: Giving = body(&bytes)?;
    if !named {
        let refusal = Refusal::new(Code::BadRequest, "`directory` is missing: a path, or null for anywhere");
        return Err(refusal.into());
    }
    let grant = {
        let house = Arc::clone(&house);
        tokio::task::spawn_blocking(move || given(&house, &who, giving)).await
    };
    let grant = grant.map_err(|e| Refusal::new(Code::Internal, e.to_string()))??;
    match house.wish(Wish::Grant(Box::new(grant))).await? {
        Kept::Grant { grant, new } => {
            let status = if new { StatusCode::CREATED } else { StatusCode::OK };
            Ok((status, Json(shown(&grant))).into_response())
        }
        _ => Err(Refusal::new(Code::Internal, "no grant came of it").into()),
    }
}

fn given(house: &House, who: &Who, giving: Giving) -> Answer<Grant> {
    let bad = |message: String| Problem::from(Refusal::new(Code::BadRequest, message));
    let verb = verb_alone(&giving.verb)
        .map_err(|why| bad(format!("`{}` is not a verb: {why}", Shown::bounded(&giving.verb, 200))))?;
    let clean = |raw: &str| match text_by_shape(raw) {
        clean if clean.as_str() == raw => Ok(clean),
        _ => Err(bad("it holds what looks like a secret".to_owned())),
    };
    let eyes = house.eyes(who.principal)?;
    let directory = giving.directory.map(|d| place(house, &eyes, &d)).transpose()?;
    if let Some(session) = giving.session {
        let known = house.roster.borrow().session(session).cloned();
        if known.is_none_or(|s| s.ended_at.is_some() || !who.sees(house, s.principal, Some(s.id))) {
            return Err(Refusal::new(Code::NotFound, format!("there is no session {session}")).into());
        }
    }
    if giving.confinement == Some(Confinement::None) {
        return Err(bad("`confinement` is shield, workspace or read_only".to_owned()));
    }
    if giving.uses == Some(0) {
        return Err(bad("`uses` is 1 or more".to_owned()));
    }
    if giving.expires_at.is_some_and(|end| end <= clock::now()) {
        return Err(bad("`expires_at` has passed already".to_owned()));
    }
    let risks = giving.risks.map(|mut risks| {
        risks.sort_unstable();
        risks.dedup();
        risks
    });
    if risks.as_ref().is_some_and(|r| r.iter().any(|r| matches!(r, Risk::Opaque | Risk::OfSelf | Risk::Privileged))) {
        return Err(bad("`opaque`, `self` and `privileged` cannot be granted beforehand".to_owned()));
    }
    Ok(Grant {
        id: None,
        verb: clean(&verb)?,
        directory: directory.as_deref().map(clean).transpose()?,
        repository: false,
        principal: who.principal,
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
        created_by: Some(who.actor()),
        surface: Some(who.name.clone()),
        expires_at: giving.expires_at,
        uses_left: giving.uses,
    })
}

/// A directory as a grant holds it: where it really is, and not nearly everything.
fn place(house: &House, eyes: &Eyes, directory: &str) -> Answer<String> {
    let bad = |what: &str| {
        let shown = Shown::bounded(directory, 300).to_string();
        Problem::from(Refusal::new(Code::BadRequest, format!("`{shown}` {what}")))
    };
    if !directory.starts_with('/') || directory.contains('\0') || directory.len() > 4096 {
        return Err(bad("is not an absolute path"));
    }
    let resolved = match eyes.see(|| world::path_fact(directory))? {
        Some(fact) => fact.resolved,
        None => countersign_policy::clean(directory),
    };
    let mut context = Context::personal(eyes.home(), Vec::new());
    let roster = Arc::clone(&house.roster.borrow());
    let folders = roster.sessions().filter_map(|s| s.folder.as_ref());
    context.folder = folders.map(Text::as_str).find(|f| resolved.starts_with(*f)).map(str::to_owned);
    match can_be_granted(&resolved, &context) {
        true => Ok(resolved),
        false => {
            Err(bad("cannot be granted: name a project directory, not /, one below it, a home or a session's folder"))
        }
    }
}

/// `POST /grants/{id}/narrow`: from now on its calls run in what their risks need.
pub(crate) async fn narrow(State(house): Shared, who: Who, Segment(id): Segment) -> Answer<Json<Value>> {
    let found = find(&house, &who, &id).await?;
    let Some(grant) = found.id else { return Err(unknown(&id).into()) };
    let (principal, by) = (who.principal, who.actor());
    match house.wish(Wish::Narrow { grant, principal, by }).await? {
        Kept::Grant { grant, .. } => Ok(Json(shown(&grant))),
        _ => Err(unknown(&id).into()),
    }
}

pub(crate) async fn revoke(State(house): Shared, who: Who, Segment(id): Segment) -> Answer<Json<Value>> {
    let found = find(&house, &who, &id).await?;
    let Some(grant) = found.id else { return Err(unknown(&id).into()) };
    let (principal, by) = (who.principal, who.actor());
    match house.wish(Wish::Revoke { grant, principal, by }).await? {
        Kept::Grant { grant, .. } => Ok(Json(shown(&grant))),
        _ => Err(unknown(&id).into()),
    }
}

fn unknown(id: &str) -> Refusal {
    let shown = Shown::bounded(id, 60);
    Refusal::new(Code::NotFound, format!("there is no grant {shown}")).hint("`csn grants list` shows them")
}

/// By a whole id, or the beginning of exactly one.
async fn find(house: &Arc<House>, who: &Who, id: &str) -> Answer<Grant> {
    let prefix = if id.starts_with("gr_") { id.to_owned() } else { format!("gr_{id}") };
    if prefix.len() < 7 {
        return Err(unknown(id).into());
    }
    let seen = {
        let (house, who) = (Arc::clone(house), who.clone());
        move |g: &Grant| {
            g.principal == who.principal && g.session.is_none_or(|s| who.sees(&house, g.principal, Some(s)))
        }
    };
    let whole: Option<GrantId> = prefix.parse().ok();
    let found = house
        .read(move |register| -> Vec<Grant> {
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
        [] => Err(unknown(id).into()),
        _ => Err(Refusal::new(Code::AmbiguousId, "more than one grant begins like that").into()),
    }
}
