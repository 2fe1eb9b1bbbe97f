//! Receipts, artifacts and keys: what was signed, what it speaks for, and by which key.

use super::{ApiResult, Ops};
use crate::caller::Caller;
use bytes::Bytes;
use countersign_model::{
    CredentialScope, DecimalCount, Decision, Digest, DisplaySafe, KeyAnnounced, ReceiptSubject, Record, RecordContent,
    Refusal, RefusalCode, Statement, TaskId, TaskRefusal,
    api::{KeyList, KeyView, ReceiptPage, ReceiptQuery, ReceiptRow, RotateBody, WaitQuery},
};
use countersign_store::{Envelope, PublicKey, SignedReceipt, ledger::LedgerReader};
use std::{fs::File, sync::Arc, time::Duration};

const PAGE: usize = 50;
const MAX_PAGE: usize = 500;
const MAX_WAIT: Duration = Duration::from_secs(60);
/// How long what has settled is waited for.
const SEALED_WITHIN: Duration = Duration::from_secs(2);
/// How long a signature is waited for.
const SIGNED_WITHIN: Duration = Duration::from_secs(20);
/// How many receipts are looked at for one page.
const LOOKED_AT: u32 = 500;

/// Receipts, newest first, each with what a list shows.
pub(crate) async fn list(ops: &Arc<Ops>, caller: &Caller, query: ReceiptQuery) -> ApiResult<ReceiptPage> {
    caller.may(CredentialScope::Observe)?;
    let limit = super::page_limit(query.limit, PAGE, MAX_PAGE)?;
    // What has just settled is there, too.
    ops.sealed_so_far(SEALED_WITHIN).await;
    let (mut found, mut before, mut more) = (Vec::new(), query.cursor.unwrap_or(u64::MAX), false);
    let roster = ops.records.roster();
    // What may not be seen is passed over, and nothing tells that it is there.
    'pages: loop {
        let page = ops.records.ledger(|r| r.receipts_before(caller.principal, before, LOOKED_AT))?;
        let Some((last, _)) = page.last() else { break };
        before = last.number;
        for (signed, session) in page {
            if !caller.sees(&roster, caller.principal, session) {
                continue;
            }
            if found.len() == limit {
                more = true;
                break 'pages;
            }
            found.push(signed);
        }
    }
    let next = found.last().filter(|_| more).map(|signed: &SignedReceipt| DecimalCount(signed.number));
    let failing = ops.sealing.borrow().trouble();
    Ok(ReceiptPage { receipts: found.iter().filter_map(row).collect(), next, failing })
}

fn row(signed: &SignedReceipt) -> Option<ReceiptRow> {
    let statement: Statement = serde_json::from_str(&signed.payload).ok()?;
    let receipt = statement.predicate;
    Some(ReceiptRow {
        receipt_id: receipt.receipt_id,
        seq: receipt.seq,
        task_id: receipt.task_id,
        digest: signed.digest(),
        key: signed.key,
        sealed_at: receipt.sealed_at,
        outcome: receipt.outcome,
        decision: receipt.decision.outcome,
        recovered: receipt.recovered,
        display: receipt.request.display,
    })
}

/// The envelope of a receipt, by its task, its own id or its number, as it was signed.
pub(crate) async fn of_task(ops: &Arc<Ops>, caller: &Caller, id: &str, query: WaitQuery) -> ApiResult<Envelope> {
    caller.may(CredentialScope::Observe)?;
    let task = match named(ops, id)? {
        // One that may not be seen is not there, and its task is not named.
        Some(task) => ops.records.find(caller, &task.to_string()).map_err(|_| no_receipt(id))?,
        None => ops.records.find(caller, id)?,
    };
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0)).min(MAX_WAIT);
    if let Some(signed) = sealed(ops, task, wait).await? {
        return Ok(signed.envelope());
    }
    let hint = match ops.sealing.borrow().trouble() {
        None => "it gets one a moment after it has settled".to_owned(),
        Some(why) => format!("receipts: {why}"),
    };
    let refusal = Refusal::new(RefusalCode::NotSealed, "this task has no receipt yet").hint(hint);
    Err(TaskRefusal::from(refusal).of_task(task))
}

/// A receipt by its own name or number, where a task could be named.
fn named(ops: &Ops, text: &str) -> ApiResult<Option<TaskId>> {
    let signed = match (text.parse(), text.parse::<u64>()) {
        (Ok(receipt), _) => ops.records.ledger(|r| r.receipt_by_id(receipt))?,
        // Ids have more characters.
        (_, Ok(number)) if text.len() < 10 => ops.records.ledger(|r| r.receipt(number))?,
        _ if text.starts_with("rc_") => None,
        _ => return Ok(None),
    };
    match signed {
        Some(signed) => Ok(Some(signed.task)),
        None => Err(no_receipt(text).into()),
    }
}

fn no_receipt(text: &str) -> Refusal {
    Refusal::new(RefusalCode::NotFound, format!("there is no receipt {}", DisplaySafe::bounded(text, 40)))
        .hint("`csn receipts list` shows them")
}

/// A task's receipt, once there is one.
async fn sealed(ops: &Arc<Ops>, task: TaskId, wait: Duration) -> ApiResult<Option<SignedReceipt>> {
    if !wait.is_zero() {
        // Somebody waits: it need not wait for others.
        ops.sealed_so_far(wait.min(SEALED_WITHIN)).await;
    }
    let mut notifications = ops.registry.subscribe(task);
    let there = async {
        loop {
            if let Some(signed) = ops.records.ledger(|r| r.receipt_of_task(task))? {
                return Ok(Some(signed));
            }
            if notifications.changed().await.is_err() {
                notifications = ops.registry.subscribe(task);
            }
        }
    };
    let found = match tokio::time::timeout(wait, there).await {
        Ok(found) => found,
        Err(_) => Ok(ops.records.ledger(|r| r.receipt_of_task(task))?),
    };
    if found.as_ref().is_ok_and(Option::is_some) {
        ops.registry.unlist(task);
    }
    found
}

fn busy() -> Refusal {
    Refusal::new(RefusalCode::SealerUnavailable, "whoever signs is busy").hint("ask again in a moment")
}

/// A head of the ledger, signed: kept elsewhere, it proves later that nothing before it was taken back.
pub(crate) async fn head(ops: &Ops, caller: &Caller) -> ApiResult<Envelope> {
    caller.may(CredentialScope::Admin)?;
    Ok(tokio::time::timeout(SIGNED_WITHIN, ops.sealer.head()).await.map_err(|_| busy())??)
}

/// Every key that receipts were signed with, oldest first.
pub(crate) fn keys(ops: &Ops, caller: &Caller) -> ApiResult<KeyList> {
    caller.may(CredentialScope::Observe)?;
    let keys = ops.records.ledger(LedgerReader::keys)?;
    let last = keys.len().saturating_sub(1);
    let view = |(n, (decision, key)): (usize, (i64, KeyAnnounced))| KeyView {
        key: key.key,
        pem: PublicKey::from_bytes(&key.public).map(|k| k.pem()),
        decision,
        announced_by: key.by,
        in_use: n == last,
        announcement: key,
    };
    Ok(KeyList { keys: keys.into_iter().enumerate().map(view).collect() })
}

/// Goes over to a new key.
pub(crate) async fn rotate(ops: &Ops, caller: &Caller, body: RotateBody) -> ApiResult<KeyAnnounced> {
    caller.may(CredentialScope::Admin)?;
    if !body.rotate {
        return Err(
            Refusal::new(RefusalCode::BadRequest, "`rotate` is true: nothing else can be done with keys").into()
        );
    }
    Ok(ops.sealer.rotate(body.lost).await?)
}

/// The bytes that a digest names.
pub(crate) enum ArtifactBytes {
    /// The decisions of a task, one line each.
    Decisions(Bytes),
    File {
        file: File,
        bytes: u64,
    },
}

/// The bytes that a receipt speaks for, by their digest.
pub(crate) async fn artifact(ops: &Arc<Ops>, caller: &Caller, digest: &str) -> ApiResult<(Digest, ArtifactBytes)> {
    caller.may(CredentialScope::Observe)?;
    let shown = DisplaySafe::bounded(digest, 70).to_string();
    let wanted = digest.strip_prefix("sha256:").unwrap_or(digest).to_ascii_lowercase();
    let wanted = Digest::parse(&wanted).ok_or_else(|| {
        Refusal::new(RefusalCode::BadRequest, format!("`{shown}` is not a SHA-256 digest: 64 hex digits"))
    })?;
    let (ops, caller) = (Arc::clone(ops), caller.clone());
    Ok((wanted, crate::blocking(move || find(&ops, &caller, wanted)).await??))
}

fn find(ops: &Ops, caller: &Caller, wanted: Digest) -> ApiResult<ArtifactBytes> {
    let (mut tampered, mut expired) = (None, None);
    for (task, name) in ops.records.ledger(|r| r.artifacts(wanted))? {
        if ops.records.find(caller, &task.to_string()).is_err() {
            continue;
        }
        if name == ReceiptSubject::DECISIONS {
            let bytes = Bytes::from(decisions(ops, task)?);
            if Digest::sha256(&[&bytes]) == wanted {
                return Ok(ArtifactBytes::Decisions(bytes));
            }
            tampered = Some((task, name));
            continue;
        }
        let file = match ops.records.file(task, &name) {
            Ok(file) => file,
            Err(_) if ops.records.ledger(|r| r.is_expired(task))? => {
                expired = Some(task);
                continue;
            }
            Err(_) => {
                tampered = Some((task, name));
                continue;
            }
        };
        let held = ops.records.verified.holds(wanted, &file);
        if !held.map_err(|e| Refusal::new(RefusalCode::Internal, format!("{name} cannot be read: {e}")))? {
            tampered = Some((task, name));
            continue;
        }
        let bytes = file.metadata().map_err(|e| Refusal::new(RefusalCode::Internal, e.to_string()))?.len();
        return Ok(ArtifactBytes::File { file, bytes });
    }
    let (refusal, task) = match (tampered, expired) {
        (Some((task, name)), _) => {
            let message = format!("{name} of {task} is not what its receipt speaks for");
            (Refusal::new(RefusalCode::ArtifactTampered, message), task)
        }
        (None, Some(task)) => {
            let refusal = Refusal::new(RefusalCode::Expired, "what this digest names is not kept any more");
            (refusal.hint("the receipt still speaks for it"), task)
        }
        (None, None) => {
            return Err(Refusal::new(RefusalCode::NotFound, format!("there is no artifact {wanted}")).into());
        }
    };
    Err(TaskRefusal::from(refusal).of_task(task))
}

/// The decisions of a task up to its receipt, one line each.
fn decisions(ops: &Ops, task: TaskId) -> ApiResult<String> {
    let mut out = String::new();
    for (_, line) in ops.records.ledger(|r| r.decisions(task, 0))? {
        if let Ok(Record { what: RecordContent::Decision(Decision::Sealed(_)), .. }) = Record::parse(&line) {
            break;
        }
        out.push_str(&line);
        out.push('\n');
    }
    Ok(out)
}
