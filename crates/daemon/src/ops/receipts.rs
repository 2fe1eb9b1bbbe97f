//! Receipts, artifacts and keys: what was signed, what it covers, and by which key.

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

const DEFAULT_PAGE_ITEMS: usize = 50;
const MAX_PAGE_ITEMS: usize = 500;
const MAX_WAIT: Duration = Duration::from_secs(60);
/// How long a list waits for the receipts of settled tasks.
const SEALING_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a caller waits for a signature.
const SIGNING_TIMEOUT: Duration = Duration::from_secs(20);
/// How many receipts are read for one page.
const RECEIPTS_PER_READ: u32 = 500;

/// Receipts, newest first, each with the fields of a list.
pub(crate) async fn list(ops: &Arc<Ops>, caller: &Caller, query: ReceiptQuery) -> ApiResult<ReceiptPage> {
    caller.require_scope(CredentialScope::Observe)?;
    let limit = super::page_limit(query.limit, DEFAULT_PAGE_ITEMS, MAX_PAGE_ITEMS)?;
    // Include the tasks that have just settled.
    ops.wait_for_receipts(SEALING_TIMEOUT).await;
    let (mut found, mut before, mut more) = (Vec::new(), query.cursor.unwrap_or(u64::MAX), false);
    let roster = ops.records.roster();
    // Receipts that the caller may not see are skipped without a trace.
    'pages: loop {
        let page = ops.records.read_ledger(|r| r.receipts_before(caller.principal, before, RECEIPTS_PER_READ))?;
        let Some((last, _)) = page.last() else { break };
        before = last.number;
        for (signed, session) in page {
            if !caller.can_see(&roster, caller.principal, session) {
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
    let failing = ops.sealing.borrow().problem();
    Ok(ReceiptPage { receipts: found.iter().filter_map(receipt_row).collect(), next, failing })
}

fn receipt_row(signed: &SignedReceipt) -> Option<ReceiptRow> {
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

/// The envelope of a receipt as it was signed, by its task, its own id or its number.
pub(crate) async fn envelope(ops: &Arc<Ops>, caller: &Caller, id: &str, query: WaitQuery) -> ApiResult<Envelope> {
    caller.require_scope(CredentialScope::Observe)?;
    let task = match task_of_named_receipt(ops, id)? {
        // A receipt that the caller may not see does not exist for it, and its task is not named.
        Some(task) => ops.records.find_task(caller, &task.to_string()).map_err(|_| no_receipt(id))?,
        None => ops.records.find_task(caller, id)?,
    };
    let wait = Duration::from_millis(query.wait_ms.unwrap_or(0)).min(MAX_WAIT);
    if let Some(signed) = wait_for_receipt(ops, task, wait).await? {
        return Ok(signed.envelope());
    }
    let hint = match ops.sealing.borrow().problem() {
        None => "a task gets its receipt a moment after it has settled".to_owned(),
        Some(why) => format!("receipts: {why}"),
    };
    let refusal = Refusal::new(RefusalCode::NotSealed, "this task has no receipt yet").hint(hint);
    Err(TaskRefusal::from(refusal).of_task(task))
}

/// The task of a receipt that is named by its own id or number.
fn task_of_named_receipt(ops: &Ops, text: &str) -> ApiResult<Option<TaskId>> {
    let signed = match (text.parse(), text.parse::<u64>()) {
        (Ok(receipt), _) => ops.records.read_ledger(|r| r.receipt_by_id(receipt))?,
        // Ids are longer.
        (_, Ok(number)) if text.len() < 10 => ops.records.read_ledger(|r| r.receipt(number))?,
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
        .hint("`csn receipts list` shows all receipts")
}

/// A task's receipt, once it has one.
async fn wait_for_receipt(ops: &Arc<Ops>, task: TaskId, wait: Duration) -> ApiResult<Option<SignedReceipt>> {
    if !wait.is_zero() {
        // The caller waits, so do not wait for more tasks to batch.
        ops.wait_for_receipts(wait.min(SEALING_TIMEOUT)).await;
    }
    let mut notifications = ops.registry.subscribe(task);
    let there = async {
        loop {
            if let Some(signed) = ops.records.read_ledger(|r| r.receipt_of_task(task))? {
                return Ok(Some(signed));
            }
            if notifications.changed().await.is_err() {
                notifications = ops.registry.subscribe(task);
            }
        }
    };
    let found = match tokio::time::timeout(wait, there).await {
        Ok(found) => found,
        Err(_) => Ok(ops.records.read_ledger(|r| r.receipt_of_task(task))?),
    };
    if found.as_ref().is_ok_and(Option::is_some) {
        ops.registry.forget_task(task);
    }
    found
}

fn sealer_busy() -> Refusal {
    Refusal::new(RefusalCode::SealerUnavailable, "the sealer is busy").hint("try again in a moment")
}

/// A signed ledger head: stored elsewhere, it proves later that no earlier entry was removed.
pub(crate) async fn signed_head(ops: &Ops, caller: &Caller) -> ApiResult<Envelope> {
    caller.require_scope(CredentialScope::Admin)?;
    Ok(tokio::time::timeout(SIGNING_TIMEOUT, ops.sealer.signed_head()).await.map_err(|_| sealer_busy())??)
}

/// Every key that receipts were signed with, oldest first.
pub(crate) fn keys(ops: &Ops, caller: &Caller) -> ApiResult<KeyList> {
    caller.require_scope(CredentialScope::Observe)?;
    let keys = ops.records.read_ledger(LedgerReader::keys)?;
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

/// Rotates to a new signing key.
pub(crate) async fn rotate(ops: &Ops, caller: &Caller, body: RotateBody) -> ApiResult<KeyAnnounced> {
    caller.require_scope(CredentialScope::Admin)?;
    if !body.rotate {
        let message = "`rotate` must be true; this request supports nothing else";
        return Err(Refusal::new(RefusalCode::BadRequest, message).into());
    }
    Ok(ops.sealer.rotate_key(body.lost).await?)
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

/// The bytes that a receipt covers, by their digest.
pub(crate) async fn artifact(ops: &Arc<Ops>, caller: &Caller, digest: &str) -> ApiResult<(Digest, ArtifactBytes)> {
    caller.require_scope(CredentialScope::Observe)?;
    let shown = DisplaySafe::bounded(digest, 70).to_string();
    let wanted = digest.strip_prefix("sha256:").unwrap_or(digest).to_ascii_lowercase();
    let wanted = Digest::parse(&wanted).ok_or_else(|| {
        Refusal::new(RefusalCode::BadRequest, format!("`{shown}` is not a SHA-256 digest (64 hex digits)"))
    })?;
    let (ops, caller) = (Arc::clone(ops), caller.clone());
    Ok((wanted, crate::blocking(move || find_artifact(&ops, &caller, wanted)).await??))
}

fn find_artifact(ops: &Ops, caller: &Caller, wanted: Digest) -> ApiResult<ArtifactBytes> {
    let (mut tampered, mut expired) = (None, None);
    for (task, name) in ops.records.read_ledger(|r| r.artifacts(wanted))? {
        if ops.records.find_task(caller, &task.to_string()).is_err() {
            continue;
        }
        if name == ReceiptSubject::DECISIONS {
            let bytes = Bytes::from(decision_lines(ops, task)?);
            if Digest::sha256(&[&bytes]) == wanted {
                return Ok(ArtifactBytes::Decisions(bytes));
            }
            tampered = Some((task, name));
            continue;
        }
        let file = match ops.records.open_file(task, &name) {
            Ok(file) => file,
            Err(_) if ops.records.read_ledger(|r| r.is_expired(task))? => {
                expired = Some(task);
                continue;
            }
            Err(_) => {
                tampered = Some((task, name));
                continue;
            }
        };
        let held = ops.records.verified.matches_digest(wanted, &file);
        if !held.map_err(|e| Refusal::new(RefusalCode::Internal, format!("{name} cannot be read: {e}")))? {
            tampered = Some((task, name));
            continue;
        }
        let bytes = file.metadata().map_err(|e| Refusal::new(RefusalCode::Internal, e.to_string()))?.len();
        return Ok(ArtifactBytes::File { file, bytes });
    }
    let (refusal, task) = match (tampered, expired) {
        (Some((task, name)), _) => {
            let message = format!("{name} of {task} does not match its receipt");
            (Refusal::new(RefusalCode::ArtifactTampered, message), task)
        }
        (None, Some(task)) => {
            let refusal = Refusal::new(RefusalCode::Expired, "the file with this digest was removed by retention");
            (refusal.hint("the receipt still covers its digest"), task)
        }
        (None, None) => {
            return Err(Refusal::new(RefusalCode::NotFound, format!("there is no artifact {wanted}")).into());
        }
    };
    Err(TaskRefusal::from(refusal).of_task(task))
}

/// The decisions of a task up to its receipt, one line each.
fn decision_lines(ops: &Ops, task: TaskId) -> ApiResult<String> {
    let mut out = String::new();
    for (_, line) in ops.records.read_ledger(|r| r.decisions(task, 0))? {
        if let Ok(Record { what: RecordContent::Decision(Decision::Sealed(_)), .. }) = Record::parse(&line) {
            break;
        }
        out.push_str(&line);
        out.push('\n');
    }
    Ok(out)
}
