//! Bodies on the wire: each one reads its JSON and writes the same JSON again.

use super::*;
use crate::{Approval, KeyPress, RecordContent, Request, Session, view::View};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{collections::BTreeMap, fmt::Debug};

const DIGEST: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const AT: &str = "2026-11-16T02:09:48.000120Z";

/// Reads the value and checks that it is written back unchanged.
fn same<T: Serialize + DeserializeOwned>(json: Value) -> T {
    let text = json.to_string();
    let read: T = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_eq!(serde_json::to_value(&read).unwrap(), json);
    read
}

/// Checks that an unknown field is refused.
fn strict<T: DeserializeOwned + Debug>(mut json: Value) {
    json["surprise"] = json!(1);
    let error = serde_json::from_value::<T>(json).unwrap_err().to_string();
    assert!(error.contains("unknown field `surprise`"), "{error}");
}

fn task() -> Value {
    json!({
        "task_id": "tk_01jcx3v9q8k2m4tz", "status": "running", "plan_digest": DIGEST, "display": "echo hello",
        "verb": "echo", "cwd": "/tmp", "mode": "pipes", "tool": "shell", "session_id": "se_01jcx3v9q8k2m4tz",
        "principal": "pr_0000000000000000", "credential": "person", "risks": [], "audience": "personal",
        "profile": "safe", "background": false, "asked_at": AT, "streams": {"stdout": {"bytes": 6, "redactions": 0}},
        "next_seq": 4,
    })
}

fn session() -> Value {
    json!({
        "id": "se_01jcx3v9q8k2m4tz", "principal": "pr_0000000000000000", "credential": "person",
        "audience": "personal", "by": "socket", "directory": "/work", "roots": ["/work"], "opened_at": AT,
    })
}

fn approval() -> Value {
    json!({
        "id": "ap_01jcx3v9q8k2m4tz", "task_id": "tk_01jcx3v9q8k2m4tz", "state": {"is": "waiting"}, "asked_at": AT,
        "principal": "pr_0000000000000000", "tool": "shell", "display": "rm x", "uncovered": ["rm x"], "about": [],
        "cwd": "/tmp", "risks": ["write"], "options": ["once", "deny"], "asker": "waiting",
    })
}

fn grant() -> Value {
    json!({
        "id": "gr_01jcx3v9q8k2m4tz", "verb": "git add", "directory": null, "principal": "pr_0000000000000000",
        "audience": "personal", "tool": "shell", "sandbox": "narrow", "created_at": AT, "created_by": "owner",
        "surface": "socket", "label": "git add anywhere",
    })
}

fn token() -> Value {
    json!({
        "id": "ct_01jcx3v9q8k2m4tz", "name": "ci", "principal": "pr_0000000000000000", "principal_name": null,
        "kind": "agent", "scopes": ["observe", "run"], "audience": "personal", "created_at": AT,
    })
}

fn conversation() -> Value {
    json!({"agent": "claude", "id": "c1", "cwd": "/work", "agent_pid": 7})
}

#[test]
fn tasks_and_their_output() {
    same::<AskResponse>(task());
    let mut waited = task();
    waited["output"] = json!({"stdout": {"text": "hello\n"}, "stderr": {"text": "/w==", "encoding": "base64"}});
    let waited: AskResponse = same(waited);
    assert_eq!(waited.output.unwrap().len(), 2);
    same::<TaskPage>(json!({"tasks": [task()], "next": null}));
    same::<TaskPage>(json!({"tasks": [], "next": "tk_01jcx3v9q8k2m4tz"}));
    let page = json!({
        "content": "hello\n", "encoding": "utf-8", "offset_bytes": 0, "bytes": 6, "total_bytes": 6, "next_offset": 6,
        "end_offset": 6, "truncated": false, "complete": true,
    });
    same::<OutputPage>(page.clone());
    let mut gap = page;
    gap["gap"] = json!({"offset_bytes": 10, "bytes": 20});
    same::<OutputPage>(gap);
    same::<SearchPage>(json!({
        "matches": [{
            "stream": "stdout", "offset_bytes": 3, "bytes": 2, "line": null, "line_offset_bytes": 0,
            "excerpt": "hello", "before": [{"encoding": "base64", "content": "/w=="}], "after": [],
        }],
        "next": "stdout.5.1.0", "complete": false,
    }));
    same::<ScreenView>(json!({
        "rows": 24, "cols": 80, "cursor": {"row": 0, "col": 2}, "alternate_screen": false, "text": "$ ",
        "next_seq": 9, "offset_bytes": 2,
    }));
    same::<Request>(json!({"tool": "shell", "args": {"command": "true"}, "attended": true}));
    strict::<Request>(json!({"tool": "shell", "args": {"command": "true"}}));
}

#[test]
fn operations() {
    same::<CancelBody>(json!({}));
    same::<CancelBody>(json!({"reason": "enough"}));
    same::<SignalBody>(json!({"signal": "INT"}));
    same::<ResizeBody>(json!({"rows": 24, "cols": 80}));
    same::<AppliedRecord>(json!({"seq": 4}));
    for body in [json!({"text": "x", "eof": true}), json!({"keys": ["ctrl-c", "enter"]}), json!({"paste": "x"})] {
        same::<StdinBody>(body);
    }
    let keys = StdinBody::keys(vec!["ctrl-c".parse::<KeyPress>().unwrap()]);
    assert_eq!(serde_json::to_value(keys).unwrap(), json!({"keys": ["ctrl-c"]}));
    assert_eq!(serde_json::to_value(StdinBody::eof()).unwrap(), json!({"eof": true}));
    strict::<CancelBody>(json!({}));
    strict::<SignalBody>(json!({"signal": "INT"}));
    strict::<StdinBody>(json!({"eof": true}));
    strict::<ResizeBody>(json!({"rows": 24, "cols": 80}));
    // Older clients send this form.
    assert_eq!(serde_json::from_value::<CancelBody>(json!({"reason": null})).unwrap(), CancelBody::default());
}

#[test]
fn attachments() {
    same::<AttachMessage>(json!({"resize": {"rows": 24, "cols": 80}}));
    same::<AttachMessage>(json!({"stdin": {"keys": ["up"]}}));
    same::<AttachMessage>(json!({"signal": "INT"}));
    let screen = json!({"rows": 24, "cols": 80, "alternate_screen": false, "next_seq": 4, "offset_bytes": 10});
    same::<AttachEvent>(json!({"kind": "attach.begin", "v": 1, "task": task()}));
    same::<AttachEvent>(json!({"kind": "attach.begin", "v": 1, "task": task(), "screen": screen}));
    same::<AttachEvent>(json!({"kind": "attach.screen", "screen": screen}));
    same::<AttachEvent>(json!({"kind": "attach.tail", "stream": "stdout", "offset": 0, "len": 6}));
    same::<AttachEvent>(json!({"kind": "attach.applied", "n": 0, "seq": 5}));
    let refusal = json!({"code": "task_over", "message": "the task is over"});
    same::<AttachEvent>(json!({"kind": "attach.refused", "n": 1, "refusal": refusal}));
    same::<AttachEvent>(json!({"kind": "attach.refused", "refusal": refusal}));
}

#[test]
fn approvals_grants_and_verdicts() {
    same::<Approval>(approval());
    same::<ApprovalPage>(json!({"approvals": [approval()], "next": null, "without_card": 2}));
    same::<AnswerBody>(json!({"choice": "once"}));
    same::<AnswerBody>(json!({"choice": "deny", "words": "use make"}));
    strict::<AnswerBody>(json!({"choice": "once"}));
    let old: AnswerBody =
        serde_json::from_value(json!({"choice": "here", "words": null, "any_arguments": true})).unwrap();
    assert!(old.words.is_none() && old.any_arguments);
    let view: GrantView = same(grant());
    assert_eq!((view.label.as_str(), view.grant.directory), ("git add anywhere", None));
    same::<GrantPage>(json!({"grants": [grant()], "next": "gr_01jcx3v9q8k2m4tz"}));
    same::<GrantBody>(json!({"verb": "git add", "directory": null}));
    same::<GrantBody>(json!({"verb": "make", "directory": "/work", "uses": 2, "confinement": "shield"}));
    strict::<GrantBody>(json!({"verb": "make", "directory": null}));
    let left_out = serde_json::from_value::<GrantBody>(json!({"verb": "make"})).unwrap_err();
    assert!(left_out.to_string().contains("missing field `directory`"), "{left_out}");
    same::<CheckResponse>(
        json!({"verdict": "ask", "one_shot": false, "risks": ["write"], "grants": [], "refusal": null}),
    );
    same::<CheckResponse>(json!({
        "verdict": "deny", "one_shot": false, "risks": [], "grants": ["gr_01jcx3v9q8k2m4tz"],
        "refusal": {"code": "denied_by_rule", "message": "no", "hint": "ask"},
    }));
}

#[test]
fn sessions_and_tokens() {
    same::<SessionPage>(json!({"sessions": [session()], "next": null}));
    same::<OpenSessionBody>(json!({"directory": "/work", "title": "x", "agent_pid": 7}));
    strict::<OpenSessionBody>(json!({}));
    strict::<DirectoryBody>(json!({"directory": "/work"}));
    assert!(matches!(same(session()), SessionMove::There(_)));
    assert!(matches!(same(task()), SessionMove::Asked(_)));
    same::<SessionEnd>(json!({"session": session(), "stopped": ["tk_01jcx3v9q8k2m4tz"], "left": []}));
    same::<Session>(session());
    same::<TokenList>(json!({"tokens": [token()]}));
    let mut new = token();
    new["token"] = json!("cst_secret");
    let new: NewToken = same(new);
    assert!(!format!("{new:?}").contains("cst_secret"));
    same::<TokenBody>(json!({"name": "ci", "kind": "agent", "scopes": ["run"], "expires_at": AT}));
    strict::<TokenBody>(json!({"name": "ci", "kind": "agent", "scopes": ["run"]}));
}

#[test]
fn receipts_and_keys() {
    let row = json!({
        "receipt_id": "rc_01jcx3v9q8k2m4tz", "seq": "7", "task_id": "tk_01jcx3v9q8k2m4tz", "digest": DIGEST,
        "key": DIGEST, "sealed_at": AT, "outcome": {"kind": "exited", "code": 0}, "decision": "granted",
        "recovered": false, "display": "true",
    });
    same::<ReceiptPage>(json!({"receipts": [row], "next": "7", "failing": null}));
    same::<Envelope>(json!({"payloadType": "x", "payload": "e30=", "signatures": [{"keyid": DIGEST, "sig": "AA=="}]}));
    same::<KeyList>(json!({"keys": [{
        "key": DIGEST, "pem": "-----BEGIN", "decision": 3, "announced_by": null, "in_use": true,
        "announcement": {"key": DIGEST, "public": DIGEST},
    }]}));
    same::<RotateBody>(json!({"rotate": true}));
    strict::<RotateBody>(json!({"rotate": true}));
}

#[test]
fn the_daemon_itself() {
    let whole = json!({
        "state": "running", "reason": null, "pid": 7, "you": "person", "version": "0.1.0", "home": "/h",
        "home_id": "hm_01jcx3v9q8k2m4tz",
        "machine": false, "profile": "safe", "tcp": "127.0.0.1:7311", "degraded": null, "reading_only": null,
        "receipts": null, "shutdown": [], "started_at": AT,
    });
    same::<Lifecycle>(whole);
    // An older daemon sends fewer fields.
    let old = json!({"state": "running", "pid": 7, "version": "0.0.9", "home": "/h"});
    let old = serde_json::from_value::<Lifecycle>(old).unwrap();
    assert_eq!((old.tcp, old.home_id), (None, None));
    same::<ListenBody>(json!({}));
    strict::<ListenBody>(json!({"tcp": null}));
    same::<ListenResponse>(json!({"tcp": "127.0.0.1:7311"}));
    same::<StopBody>(json!({"state": "halted", "tasks": "keep"}));
    strict::<StopBody>(json!({"state": "halted"}));
    same::<StopResponse>(json!({"state": "draining", "pid": 7}));
    same::<GcBody>(json!({"older_than_days": 3, "dry_run": true}));
    strict::<GcBody>(json!({}));
    let removed = json!({"task_id": "tk_01jcx3v9q8k2m4tz", "bytes": 9, "why": "older than is kept"});
    same::<GcReport>(json!({"removed": [removed], "bytes": 9, "kept_tasks": 1, "kept_bytes": 3}));
    same::<RebuildBody>(json!({"index": "rebuild"}));
    strict::<RebuildBody>(json!({"index": "rebuild"}));
    same::<IndexRebuilt>(json!({"index": "rebuilt"}));
    same::<Readiness>(json!({"ready": true, "checks": {"ledger": "ok"}}));
    same::<Readiness>(json!({"ready": false, "failing": "ledger: gone", "checks": {"ledger": "gone"}}));
}

#[test]
fn hooks_tickets_and_mcp_sessions() {
    same::<HookBeforeBody>(
        json!({"conversation": conversation(), "command": "ls", "inherit": {"HOME": "/h"}, "witness": true}),
    );
    strict::<HookBeforeBody>(json!({"conversation": conversation(), "command": "ls"}));
    same::<HookBeforeResponse>(json!({"verdict": "allow", "task_id": "tk_01jcx3v9q8k2m4tz"}));
    same::<HookBeforeResponse>(json!({"verdict": "allow", "ticket": "ti_x", "moves": false}));
    same::<HookBeforeResponse>(json!({"verdict": "ask", "ticket": "ti_x", "moves": true}));
    same::<HookBeforeResponse>(
        json!({"verdict": "deny", "code": "locked", "reason": "no", "hint": null, "task_id": "tk_01jcx3v9q8k2m4tz"}),
    );
    same::<HookAfterBody>(json!({"conversation": conversation(), "tool_use": "u1", "exit_code": 0}));
    strict::<HookAfterBody>(json!({"conversation": conversation(), "tool_use": "u1"}));
    same::<HookAfterResponse>(json!({"task_id": "tk_01jcx3v9q8k2m4tz"}));
    same::<RedeemBody>(json!({"command": "ls", "cwd": "/work"}));
    strict::<RedeemBody>(json!({"command": "ls", "cwd": "/work"}));
    same::<RedeemResponse>(json!({"task": task(), "patience_ms": 1000}));
    same::<McpSessionBody>(json!({"conversation": conversation()}));
    strict::<McpSessionBody>(json!({"conversation": conversation()}));
    strict::<Conversation>(conversation());
    same::<McpSessionResponse>(json!({"session_id": "se_01jcx3v9q8k2m4tz"}));
}

#[test]
fn a_streamed_record_has_all_its_fields() {
    let output = json!({
        "v": 1, "seq": 5, "at": AT, "t_us": 12, "kind": "stream.output", "stream": "stdout", "offset": 0, "len": 9000,
        "digest": DIGEST, "text": "ab", "omitted": 8998, "omitted_at": 1,
    });
    let read: StreamRecord = same(output);
    assert_eq!((read.record.seq, read.record.t_us, read.output.unwrap().omitted), (5, Some(12), Some(8998)));
    let granted = json!({
        "v": 1, "seq": 1, "at": AT, "kind": "permission.granted", "permit": "pm_01jcx3v9q8k2m4tz",
        "by": {"rule": "read_only"}, "scope": "once", "confinement": "read_only",
    });
    let decision: StreamRecord = same(granted.clone());
    assert!(matches!(decision.record.what, RecordContent::Decision(_)) && decision.output.is_none());
    same::<LedgerEvent>(json!({"task": "tk_01jcx3v9q8k2m4tz", "decision": granted}));
    same::<LedgerEvent>(
        json!({"task": null, "decision": {"v": 1, "seq": 0, "at": AT, "kind": "house.state", "state": "boot"}}),
    );
    // A record of a later version keeps all its fields, `text` too.
    let unknown = json!({"v": 1, "seq": 2, "at": AT, "kind": "later", "text": "x", "more": {"n": 1}});
    let unknown: StreamRecord = same(unknown);
    assert_eq!(unknown.record.what, RecordContent::Unknown("later".to_owned()));
    let newer = serde_json::from_value::<StreamRecord>(json!({"v": 9, "seq": 2, "at": AT, "kind": "later"}));
    assert!(newer.unwrap_err().to_string().contains("format 9"));
    same::<GapEvent>(json!({"from": 3, "to": 8}));
}

#[test]
fn records_in_the_terminal_vocabulary() {
    let once = json!({
        "v": 1, "seq": 1, "at": AT, "kind": "terminal.permission.granted_once", "permit": "pm_01jcx3v9q8k2m4tz",
        "by": {"rule": "read_only"}, "scope": "once", "confinement": "read_only",
    });
    same::<TerminalRecord>(once);
    let here = json!({
        "v": 1, "seq": 1, "at": AT, "kind": "terminal.permission.granted", "permit": "pm_01jcx3v9q8k2m4tz",
        "by": {"rule": "read_only"}, "scope": "here", "confinement": "read_only",
    });
    same::<TerminalRecord>(here);
    same::<TerminalRecord>(json!({"v": 1, "seq": 2, "at": AT, "kind": "terminal.later", "more": 1}));
    assert!(serde_json::from_value::<TerminalRecord>(json!({"v": 1, "seq": 2, "at": AT, "kind": "later"})).is_err());
}

#[test]
fn events_in_the_tool_task_vocabulary() {
    let event = |what: Value| {
        let mut event = json!({
            "id": "tk_01jcx3v9q8k2m4tz:4:0", "stream_kind": "task", "stream_id": "tk_01jcx3v9q8k2m4tz", "seq": 4,
            "timestamp_ms": 1000,
        });
        event.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
        same::<ToolTaskEvent>(event)
    };
    let task = "tk_01jcx3v9q8k2m4tz";
    event(json!({
        "type": "tool_task_spawned", "task_id": task, "tool_name": "shell", "args": {"command": "ls"}, "cwd": "/",
        "execution_mode": "pty", "title": "t", "origin_session_id": "se_01jcx3v9q8k2m4tz",
    }));
    event(json!({"type": "tool_task_status", "task_id": task, "status": "queued"}));
    event(json!({"type": "tool_task_status", "task_id": task, "status": "failed", "error": "denied",
                 "started_at_ms": null, "ended_at_ms": 5}));
    event(json!({"type": "tool_ended", "exit_code": 0, "duration_ms": 3,
                 "artifacts": [{"name": "stdout.log", "bytes": 3, "sha256": DIGEST}]}));
    event(json!({"type": "tool_task_cancelled", "reason": "cancelled", "wall_time_ms": null}));
    event(json!({"type": "tool_task_output_delta", "stream": "pty", "chunk": "/w==", "encoding": "base64",
                 "offset_bytes": 7, "bytes": 1}));
    event(json!({"type": "tool_stdout", "chunk": "ab", "encoding": "utf-8", "offset_bytes": 0, "bytes": 9000,
                 "omitted": 8998, "omitted_at": 1}));
    event(json!({"type": "tool_task_cancel_requested", "reason": null}));
    event(json!({"type": "tool_task_stdin_written", "bytes": 3}));
    event(json!({"type": "tool_task_resized", "rows": 1, "cols": 2}));
    event(json!({"type": "tool_task_signalled", "signal": "INT"}));
}

fn pairs(text: &str) -> BTreeMap<String, String> {
    let plain = |text: &str| text.replace("%20", " ").replace("%26", "&").replace("%3D", "=");
    let pair = |p: &str| p.split_once('=').map(|(name, value)| (plain(name), plain(value)));
    text.trim_start_matches('?').split('&').filter_map(pair).collect()
}

/// Checks that a query renders like this and reads back.
fn query<Q: Serialize + DeserializeOwned + PartialEq + Debug>(query: Q, rendered: &str) {
    assert_eq!(to_query(&query), rendered);
    assert_eq!(from_pairs::<Q>(pairs(rendered)).unwrap(), query);
}

#[test]
fn queries_render_and_read_back() {
    query(TaskQuery::default(), "");
    query(
        TaskQuery {
            status: Some(crate::Status::Running),
            text: Some("a b".to_owned()),
            limit: Some(5),
            cursor: Some("tk_01jcx3v9q8k2m4tz".parse().unwrap()),
            ..TaskQuery::default()
        },
        "?cursor=tk_01jcx3v9q8k2m4tz&limit=5&status=running&text=a%20b",
    );
    query(WaitQuery { wait_ms: Some(9) }, "?wait_ms=9");
    query(ApprovalQuery { all: true, ..ApprovalQuery::default() }, "?all=true");
    query(
        EventQuery { after: Some(4), view: Some(View::ToolTask), speed: Some(1.5) },
        "?after=4&speed=1.5&view=tool_task",
    );
    query(LedgerQuery { after: Some(-1) }, "?after=-1");
    let search = SearchQuery { pattern: "x&y=z".to_owned(), regex: true, ..SearchQuery::default() };
    query(search, "?pattern=x%26y%3Dz&regex=true");
    query(CastQuery { version: Some(crate::cast::Version::V2) }, "?version=v2");
    assert_eq!(from_pairs(pairs("version=3")), Ok(CastQuery { version: Some(crate::cast::Version::V3) }));
    query(GrantQuery { verb: Some("git".to_owned()), ..GrantQuery::default() }, "?verb=git");
    query(ReceiptQuery { cursor: Some(7), limit: Some(2) }, "?cursor=7&limit=2");
    query(SessionQuery { all: true, ..SessionQuery::default() }, "?all=true");
    query(McpStdioQuery { session: "se_x".to_owned() }, "?session=se_x");
    query(AttachQuery { read_only: true, from: 3, ..AttachQuery::default() }, "?from=3&read_only=true");
    query(OutputQuery { tail_lines: Some(3), ..OutputQuery::default() }, "?tail_lines=3");
}

#[test]
fn a_query_error_names_the_parameter_and_the_reason() {
    fn check<Q: DeserializeOwned + Debug>(text: &str, message: &str) {
        assert_eq!(from_pairs::<Q>(pairs(text)).unwrap_err().to_string(), message);
    }
    check::<TaskQuery>("limit=many", "`limit` must be a non-negative whole number, not `many`");
    check::<TaskQuery>("limit=-1", "`limit` must be a non-negative whole number, not `-1`");
    check::<TaskQuery>("surprise=1", "unknown parameter `surprise`");
    check::<TaskQuery>("status=on", "`status` must be queued, running, exited, cancelled or failed, not `on`");
    check::<ApprovalQuery>("all=yes", "`all` must be true or false, not `yes`");
    check::<SearchQuery>("regex=true", "`pattern` is missing");
    check::<ApprovalQuery>("cursor=x", "`cursor`: `x` is not an id such as tk_01jcx3v9q8k2m4tz");
}

#[cfg(feature = "schema")]
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_body_has_a_schema() {
    use schemars::generate::SchemaSettings;
    let mut generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
    macro_rules! all {
        ($($name:ty),* $(,)?) => {$( generator.subschema_for::<$name>(); )*};
    }
    all!(
        AskResponse,
        TaskPage,
        TaskQuery,
        WaitQuery,
        Request,
        OutputQuery,
        OutputPage,
        SearchQuery,
        SearchPage,
        ScreenView,
        CastQuery,
        CancelBody,
        SignalBody,
        StdinBody,
        ResizeBody,
        AppliedRecord,
        AttachQuery,
        AttachMessage,
        AttachEvent,
        ApprovalQuery,
        ApprovalPage,
        AnswerBody,
        CheckResponse,
        GrantQuery,
        GrantPage,
        GrantView,
        GrantBody,
        HookBeforeBody,
        HookBeforeResponse,
        HookAfterBody,
        HookAfterResponse,
        RedeemBody,
        RedeemResponse,
        Lifecycle,
        ListenBody,
        ListenResponse,
        StopBody,
        StopResponse,
        GcBody,
        GcReport,
        RebuildBody,
        IndexRebuilt,
        Readiness,
        McpSessionBody,
        McpSessionResponse,
        McpStdioQuery,
        ReceiptQuery,
        ReceiptPage,
        Envelope,
        KeyList,
        RotateBody,
        SessionQuery,
        SessionPage,
        OpenSessionBody,
        DirectoryBody,
        SessionMove,
        SessionEnd,
        TokenBody,
        TokenList,
        NewToken,
        EventQuery,
        LedgerQuery,
        LedgerEvent,
        GapEvent,
        StreamRecord,
        TerminalRecord,
        ToolTaskEvent,
        Problem,
        Approval,
        Session,
    );
    let definitions = generator.take_definitions(true);
    assert_eq!(definitions["TaskId"]["type"], "string");
    assert_eq!(definitions["GrantBody"]["required"], json!(["verb", "directory"]));
    assert_eq!(definitions["CancelBody"]["additionalProperties"], json!(false));
    assert!(definitions["AskResponse"]["properties"]["task_id"].is_object());
    // Two types of one name would get numbered names.
    let doubled =
        definitions.keys().find(|name| name.ends_with('2') && definitions.contains_key(&name[..name.len() - 1]));
    assert_eq!(doubled, None);
}
