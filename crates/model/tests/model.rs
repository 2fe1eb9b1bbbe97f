//! The serialised form, as data: every kind of record has a sample that never changes.
#![allow(clippy::unwrap_used)]

use countersign_model::*;
use std::collections::BTreeMap;

fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

fn at() -> Timestamp {
    Timestamp::from_micros(1_794_798_000_123_456)
}

fn digest(text: &str) -> Digest {
    Digest::sha256(&[text.as_bytes()])
}

fn task() -> TaskId {
    id("tk_01m7h4jys3gnc16h")
}

/// One of every decision, in an order that a task could have.
fn decisions() -> Vec<Decision> {
    let person = DecidedBy::Person { principal: PrincipalId::owner(), surface: Via::Socket, channel: Channel::Person };
    vec![
        Decision::Planned {
            plan_digest: digest("plan"),
            display: Text::from_static("make \"all\" \u{1f980}"),
            verb: Text::from_static("bash"),
            cwd: Text::from_static("/p"),
            mode: Mode::Pipes,
            tool: Tool::Shell,
            title: Some(Text::from_static("build")),
            rationale: Some(Text::from_static("because")),
            labels: Default::default(),
            session: Some(id("se_01m7h4jys3gnc16h")),
            principal: PrincipalId::owner(),
            credential: CredentialKind::Person,
            risks: vec![Risk::Opaque, Risk::OfSelf],
            audience: Audience::Personal,
            profile: Profile::Safe,
            background: true,
            limits: Box::default(),
            workspace: None,
            on_session_end: OnSessionEnd::Keep,
            idempotency: Some(Box::new(Idempotency { key: digest("key"), body: digest("body") })),
        },
        Decision::PermissionRequested {
            approval: id("ap_01m7h4jys3gnc16j"),
            uncovered: vec![Text::from_static("make")],
            options: vec![Choice::Once, Choice::Deny],
            about: vec![],
        },
        Decision::Queued { waits_for: WaitsFor::Approval, position: None },
        Decision::PermissionGranted {
            permit: id("pm_01m7h4jys3gnc16k"),
            by: person.clone(),
            scope: Scope::Once,
            confinement: Confinement::None,
            sandbox: None,
            saved: vec![],
            policy: None,
        },
        Decision::PermissionDenied {
            by: person,
            reason: DenialReason::Code(RefusalCode::DeniedByPerson),
            hint: Some(Text::from_static("a hint")),
            words: Some(Text::from_static("no")),
            policy: None,
        },
        Decision::Withdrawn { by: Text::from_static("owner") },
        Decision::Launched { shim_pid: 42, first_seq: 7 },
        Decision::Lost { known: Text::from_static("little") },
        Decision::Settled {
            outcome: Outcome::Lost { why: Text::from_static("gone") },
            journal_head: Some(digest("head")),
            recovered: false,
        },
        Decision::DaemonStateChanged {
            state: DaemonState::Draining,
            reason: Some(Text::from_static("SIGTERM")),
            boot: None,
        },
    ]
}

fn frames() -> Vec<Frame> {
    let total = StreamTotal { bytes: 6, dropped: 0, sha256: digest("stdout") };
    vec![
        Frame::EnvExposed {
            class: EnvClass::Named,
            names: vec![Text::from_static("PATH")],
            withheld: vec![Text::from_static("TOKEN")],
        },
        Frame::Spawned {
            pid: 43,
            pgid: 43,
            sid: 42,
            argv_digest: digest("argv"),
            executable: Text::from_static("/usr/bin/bash"),
            dev: 1,
            inode: 2,
            confinement: Confinement::None,
            enforced: None,
            uid: None,
        },
        Frame::Output { stream: StreamName::Stdout, offset: 0, len: 6, digest: digest("chunk") },
        Frame::Redacted { stream: StreamName::Stderr, offset: 3, rule: Text::from_static("github-token"), count: 2 },
        Frame::Signalled { signal: SignalName::USR1, by: Text::from_static("owner") },
        Frame::CancelRequested { by: Text::from_static("owner"), reason: Some(Text::from_static("enough")) },
        Frame::LimitReached { limit: Text::from_static("wall"), value: 1000, action: Text::from_static("stopped") },
        Frame::Killed { signal: SignalName::KILL, why: KilledWhy::Timeout, survivors: vec![9] },
        Frame::Exited { status: ExitStatus::Code { code: 3 }, duration_us: 1, cpu_us: 2, max_rss_kb: 3 },
        Frame::Exited {
            status: ExitStatus::Signal { signal: 11, core: true },
            duration_us: 1,
            cpu_us: 2,
            max_rss_kb: 3,
        },
        Frame::Kept { processes: vec![44] },
        Frame::CleanupStarted { processes: vec![44, 45] },
        Frame::CleanupCompleted { ended: 2, survivors: vec![] },
        Frame::Closed {
            outcome: Outcome::Exited { code: 3 },
            frames: 13,
            streams: BTreeMap::from([(StreamName::Stdout, total)]),
        },
    ]
}

/// Decisions that were added with terminals, the queue for slots and retention.
fn later_decisions() -> Vec<Decision> {
    let Some(Decision::Planned {
        plan_digest, display, verb, cwd, tool, principal, credential, audience, profile, ..
    }) = decisions().into_iter().next()
    else {
        panic!("the first decision is a plan");
    };
    let total = StreamTotal { bytes: 6, dropped: 0, sha256: digest("pty") };
    vec![
        Decision::Planned {
            plan_digest,
            display,
            verb,
            cwd,
            mode: Mode::Pty,
            tool,
            title: None,
            rationale: None,
            labels: Default::default(),
            session: None,
            principal,
            credential,
            risks: vec![Risk::Interactive],
            audience,
            profile,
            background: false,
            limits: Box::new(Limits { wall_ms: Some(1), output_bytes: Some(2), frames: Some(3), ..Limits::default() }),
            workspace: Some(Text::from_static("/w")),
            on_session_end: OnSessionEnd::Keep,
            idempotency: None,
        },
        Decision::Queued { waits_for: WaitsFor::Slot, position: Some(3) },
        Decision::Expired {
            why: Text::from_static("older than the house keeps"),
            bytes: 9,
            streams: BTreeMap::from([(StreamName::Pty, total)]),
            signed: None,
        },
    ]
}

fn later_frames() -> Vec<Frame> {
    let total = StreamTotal { bytes: 6, dropped: 100, sha256: digest("pty") };
    vec![
        Frame::Resized { rows: 24, cols: 80, by: None },
        Frame::Resized { rows: 30, cols: 90, by: Some(Text::from_static("owner")) },
        Frame::StdinWritten { bytes: 3, input: InputKind::Text, by: Text::from_static("owner") },
        Frame::StdinWritten { bytes: 1, input: InputKind::Keys, by: Text::from_static("owner") },
        Frame::StdinWritten { bytes: 9, input: InputKind::Paste, by: Text::from_static("owner") },
        Frame::StdinWritten { bytes: 0, input: InputKind::Eof, by: Text::from_static("owner") },
        Frame::Echo { on: false },
        Frame::CwdChanged { path: Text::from_static("/p/sub"), claimed: false },
        Frame::Output { stream: StreamName::Pty, offset: 0, len: 4, digest: digest("chunk") },
        Frame::Gap { stream: StreamName::Pty, offset: 4, bytes: 100 },
        Frame::ArtifactStored {
            artifact: Text::from_static("screen.json"),
            what: Text::from_static("the terminal's last screen"),
            bytes: 5,
            sha256: digest("screen"),
        },
        Frame::Closed {
            outcome: Outcome::Limited { limit: LimitReached::Output },
            frames: 13,
            streams: BTreeMap::from([(StreamName::Pty, total)]),
        },
    ]
}

/// Decisions that were added with grants, sessions and credentials.
#[expect(clippy::too_many_lines, reason = "a table")]
fn decisions_of_the_register() -> Vec<Decision> {
    let grant = Grant {
        id: Some(id("gr_01m7h4jys3gnc16m")),
        verb: Text::from_static("git push"),
        directory: Some(Text::from_static("/home/u/repo")),
        repository: true,
        principal: PrincipalId::owner(),
        session: Some(id("se_01m7h4jys3gnc16h")),
        audience: Audience::Personal,
        tool: Tool::Shell,
        risks: Some(vec![Risk::Network, Risk::Destructive]),
        program: Some(Text::from_static("/home/u/repo/bin/git")),
        operands: Some(Operands { digest: digest("operands"), shown: Text::from_static("--force") }),
        assignments: Some(digest("assignments")),
        script: Some(digest("script")),
        confinement: Confinement::None,
        sandbox: countersign_model::GrantSandbox::Open,
        created_at: Some(at()),
        created_by: Some(Text::from_static("owner")),
        surface: Some(Via::Socket),
        expires_at: Some(at()),
        uses_left: Some(3),
    };
    let session = Session {
        id: id("se_01m7h4jys3gnc16h"),
        principal: PrincipalId::owner(),
        credential: CredentialKind::Agent,
        audience: Audience::Team,
        by: Via::from(Text::from_static("token ci")),
        directory: Some(Text::from_static("/p")),
        roots: vec![Text::from_static("/p")],
        folder: Some(Text::from_static("/d/sessions/x")),
        implicit: Some(Text::from_static("socket /p")),
        title: Some(Text::from_static("chat")),
        conversation: None,
        agent: Some(Process { pid: 7, start: 9 }),
        speaker: None,
        opened_at: at(),
        ended_at: None,
    };
    let token = Token {
        id: id("ct_01m7h4jys3gnc16n"),
        name: Text::from_static("ci"),
        principal: PrincipalId::owner(),
        kind: CredentialKind::Agent,
        scopes: vec![CredentialScope::Observe, CredentialScope::Run],
        audience: Audience::Public,
        hash: digest("token"),
        created_at: at(),
        expires_at: Some(at()),
        last_used_at: None,
        revoked_at: None,
    };
    let entered = vec![
        RegisterEntry::GrantSaved { grant: Box::new(grant) },
        RegisterEntry::GrantRevoked { grant: id("gr_01m7h4jys3gnc16m"), by: Text::from_static("owner") },
        RegisterEntry::SessionOpened { session: Box::new(session) },
        RegisterEntry::SessionMoved {
            session: id("se_01m7h4jys3gnc16h"),
            directory: Text::from_static("/q"),
            root: Some(Text::from_static("/q")),
        },
        RegisterEntry::SessionEnded { session: id("se_01m7h4jys3gnc16h"), by: Text::from_static("owner") },
        RegisterEntry::PrincipalAdded {
            principal: id("pr_01m7h4jys3gnc16p"),
            name: Text::from_static("alice"),
            uid: None,
        },
        RegisterEntry::TokenCreated { token: Box::new(token) },
        RegisterEntry::TokenUsed { token: id("ct_01m7h4jys3gnc16n") },
        RegisterEntry::TokenRevoked { token: id("ct_01m7h4jys3gnc16n"), by: Text::from_static("owner") },
        RegisterEntry::GrantUsed { grant: id("gr_01m7h4jys3gnc16m") },
    ];
    let person = DecidedBy::Person { principal: PrincipalId::owner(), surface: Via::Socket, channel: Channel::Person };
    let mut all = vec![
        Decision::PermissionRequested {
            approval: id("ap_01m7h4jys3gnc16j"),
            uncovered: vec![Text::from_static("git push --force")],
            options: Choice::ALL.to_vec(),
            about: vec![UncoveredCommand {
                verb: Text::from_static("git push"),
                directories: vec![Text::from_static("/home/u/repo")],
                risks: vec![Risk::Network, Risk::Destructive],
            }],
        },
        Decision::PermissionGranted {
            permit: id("pm_01m7h4jys3gnc16k"),
            by: person,
            scope: Scope::Here,
            confinement: Confinement::None,
            sandbox: None,
            saved: vec![SavedGrant {
                grant: id("gr_01m7h4jys3gnc16m"),
                label: Text::from_static("git push in /home/u/repo"),
            }],
            policy: None,
        },
        Decision::PermissionGranted {
            permit: id("pm_01m7h4jys3gnc16k"),
            by: DecidedBy::Grants(vec![id("gr_01m7h4jys3gnc16m")]),
            scope: Scope::Anywhere,
            confinement: Confinement::None,
            sandbox: None,
            saved: vec![],
            policy: None,
        },
    ];
    all.extend(entered.into_iter().map(Decision::Entered));
    all
}

/// Decisions that were added with receipts.
fn sealed_decisions() -> Vec<Decision> {
    let person = DecidedBy::Person { principal: PrincipalId::owner(), surface: Via::Socket, channel: Channel::Person };
    let mut all = decisions();
    if let Some(Decision::Planned { labels, .. }) = all.first_mut() {
        labels.insert("client".to_owned(), Text::from_static("codex 1.0"));
    }
    all.truncate(1);
    all.extend([
        Decision::PermissionGranted {
            permit: id("pm_01m7h4jys3gnc16k"),
            by: person.clone(),
            scope: Scope::Once,
            confinement: Confinement::Shield,
            sandbox: None,
            saved: vec![],
            policy: Some(digest("policy")),
        },
        Decision::PermissionDenied {
            by: person,
            reason: DenialReason::Code(RefusalCode::DeniedByPerson),
            hint: None,
            words: None,
            policy: Some(digest("policy")),
        },
        Decision::Settled { outcome: Outcome::Exited { code: 0 }, journal_head: Some(digest("head")), recovered: true },
        Decision::DaemonStateChanged {
            state: DaemonState::Boot,
            reason: None,
            boot: Some(Text::from_static("4d08f92b")),
        },
        Decision::Touched(TouchedFiles {
            observed: FileObservation::Scan,
            roots: vec![],
            complete: false,
            files: vec![TouchedFile {
                path: Text::from_static("/p/Makefile"),
                change: FileChange::Modified,
                escape: true,
                before: None,
                after: Some(digest("after")),
            }],
            more: 3,
        }),
        Decision::Sealed(SealedReceipt {
            receipt: id("rc_01m7h4jys3gnc16k"),
            number: 17,
            digest: digest("statement"),
            key: digest("key"),
        }),
        Decision::Key(KeyAnnounced {
            key: digest("key"),
            public: digest("public"),
            by: Some(digest("old")),
            signature: Some("AAAA".to_owned()),
        }),
        Decision::Shutdown(ShutdownStep {
            step: StopStep::Receipts,
            done: false,
            took_ms: 10,
            deadline_ms: 9,
            says: Some(Text::from_static("late")),
        }),
    ]);
    all
}

/// Frames that were added with receipts.
fn digested_frames() -> Vec<Frame> {
    let (before, after) = (Some(digest("before")), Some(digest("after")));
    vec![Frame::WriteDetected {
        path: Text::from_static("/p/a"),
        change: FileChange::Modified,
        escape: false,
        before,
        after,
    }]
}

/// Records that were added with the system service.
fn records_of_the_system_service() -> (Vec<Decision>, Vec<Frame>) {
    let (principal, name) = (id("pr_01m7h4jys3gnc16q"), Text::from_static("ann"));
    let added = Decision::Entered(RegisterEntry::PrincipalAdded { principal, name, uid: Some(1000) });
    let Some(Frame::Spawned { pid, pgid, sid, argv_digest, executable, dev, inode, confinement, enforced, .. }) =
        confined_frames().into_iter().next()
    else {
        panic!("the first one is spawned")
    };
    let uid = Some(1000);
    let spawned = Frame::Spawned { pid, pgid, sid, argv_digest, executable, dev, inode, confinement, enforced, uid };
    let word = KeySignature { key: digest("key"), signature: "c2lnbmF0dXJl".to_owned() };
    let expired =
        Decision::Expired { why: Text::from_static("old"), bytes: 7, streams: BTreeMap::new(), signed: Some(word) };
    let touched = Decision::Touched(TouchedFiles {
        observed: FileObservation::Scan,
        roots: vec![Text::from_static("/p")],
        complete: true,
        files: vec![],
        more: 0,
    });
    (vec![added, expired, touched], vec![spawned])
}

/// Frames that were added with confinement.
fn confined_frames() -> Vec<Frame> {
    let spawned = |confinement, enforced| Frame::Spawned {
        pid: 43,
        pgid: 43,
        sid: 42,
        argv_digest: digest("argv"),
        executable: Text::from_static("/usr/bin/bash"),
        dev: 1,
        inode: 2,
        confinement,
        enforced,
        uid: None,
    };
    let whole = EnforcedSandbox { landlock: 7, seccomp: true, own_network: false, missing: vec![] };
    let partial = EnforcedSandbox {
        landlock: 4,
        seccomp: false,
        own_network: false,
        missing: vec![Text::from_static("signals"), Text::from_static("tracing")],
    };
    let limited = |limit| Frame::Closed { outcome: Outcome::Limited { limit }, frames: 5, streams: BTreeMap::new() };
    vec![
        spawned(Confinement::ReadOnly, Some(whole.clone())),
        spawned(Confinement::Workspace, Some(whole)),
        spawned(Confinement::Shield, Some(partial)),
        Frame::ConfinementMet { note: Text::from_static("it ran confined") },
        Frame::WriteDetected {
            path: Text::from_static("/p/Makefile"),
            change: FileChange::Modified,
            escape: true,
            before: None,
            after: None,
        },
        Frame::WriteDetected {
            path: Text::from_static("/p/a"),
            change: FileChange::Created,
            escape: false,
            before: None,
            after: None,
        },
        Frame::WriteDetected {
            path: Text::from_static("/p/b"),
            change: FileChange::Deleted,
            escape: false,
            before: None,
            after: None,
        },
        limited(LimitReached::Memory),
        limited(LimitReached::Processes),
        limited(LimitReached::Temporary),
    ]
}

fn records() -> Vec<(String, Record)> {
    let decided = |(d, seq): (Decision, u64)| {
        (Record::decision_line(seq, at(), &d), Record { seq, at: at(), t_us: None, what: RecordContent::Decision(d) })
    };
    let happened = |(f, seq): (Frame, u64)| {
        let record = Record { seq, at: at(), t_us: Some(seq * 10), what: RecordContent::Frame(f.clone()) };
        (Record::frame_line(seq, at(), seq * 10, &f), record)
    };
    // New kinds are appended: written lines never change.
    let first = decisions().into_iter().zip(0..).map(decided).chain(frames().into_iter().zip(100..).map(happened));
    let later = later_decisions().into_iter().zip(200..).map(decided);
    let register = decisions_of_the_register().into_iter().zip(400..).map(decided);
    let confined = confined_frames().into_iter().zip(500..).map(happened);
    let sealed = sealed_decisions().into_iter().zip(600..).map(decided);
    let (machine, spawned) = records_of_the_system_service();
    first
        .chain(later)
        .chain(later_frames().into_iter().zip(300..).map(happened))
        .chain(register)
        .chain(confined)
        .chain(sealed)
        .chain(digested_frames().into_iter().zip(700..).map(happened))
        .chain(machine.into_iter().zip(800..).map(decided))
        .chain(spawned.into_iter().zip(900..).map(happened))
        .chain(decisions_with_agents().into_iter().zip(1000..).map(decided))
        .chain(claims_of_programs().into_iter().zip(1100..).map(happened))
        .chain([(Decision::HomeNamed { home_id: id(HOME) }, 1200)].map(decided))
        .collect()
}

const HOME: &str = "hm_01m7h4jys3gnc16m";

fn decisions_with_agents() -> Vec<Decision> {
    let in_band = DecidedBy::Person { principal: PrincipalId::owner(), surface: Via::Mcp, channel: Channel::InBand };
    let session = Session {
        id: id("se_01m7h4jys3gnc16r"),
        principal: PrincipalId::owner(),
        credential: CredentialKind::Agent,
        audience: Audience::Personal,
        by: Via::Agent,
        directory: Some(Text::from_static("/p")),
        roots: vec![Text::from_static("/p")],
        folder: None,
        implicit: None,
        title: None,
        conversation: Some(Text::from_static("claude-code abc")),
        agent: Some(Process { pid: 7, start: 9 }),
        speaker: None,
        opened_at: at(),
        ended_at: None,
    };
    vec![
        Decision::PermissionGranted {
            permit: id("pm_01m7h4jys3gnc16k"),
            by: in_band,
            scope: Scope::Once,
            confinement: Confinement::None,
            sandbox: None,
            saved: vec![],
            policy: None,
        },
        Decision::Observing { by: Text::from_static("claude-code") },
        Decision::Entered(RegisterEntry::SessionOpened { session: Box::new(session) }),
    ]
}

fn claims_of_programs() -> Vec<Frame> {
    vec![Frame::CwdChanged { path: Text::from_static("/p/elsewhere"), claimed: true }]
}

const GOLDEN: &str = include_str!("golden/records-v1.jsonl");

/// Records are written byte for byte as the first version wrote them, because lines are hashed as written.
#[test]
fn every_record_keeps_its_written_form() {
    let written: Vec<String> = records().into_iter().map(|(line, _)| line).collect();
    assert_eq!(written, GOLDEN.lines().collect::<Vec<_>>());
}

#[test]
fn the_register_is_a_fold_of_its_entries() {
    let mut register = Register::default();
    let mut grants = Vec::new();
    for decision in decisions_of_the_register() {
        if let Decision::Entered(entered) = decision {
            register.enter(at(), &entered);
            grants.push(register.grants.len());
        }
    }
    assert_eq!(grants, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let roster = &register.roster;
    let session = roster.session(id("se_01m7h4jys3gnc16h")).unwrap();
    assert_eq!(session.directory.as_ref().unwrap().as_str(), "/q");
    assert_eq!(session.roots.len(), 2);
    assert!(
        session.ended_at.is_some() && roster.implicit(PrincipalId::owner(), &Text::from_static("socket /p")).is_none()
    );
    assert_eq!(roster.principal("alice"), Some(id("pr_01m7h4jys3gnc16p")));
    let token = roster.token(id("ct_01m7h4jys3gnc16n")).unwrap();
    assert!(token.last_used_at.is_some() && !token.is_valid_at(at()));
}

#[test]
fn records_of_every_version_can_be_read() {
    for (line, (_, record)) in GOLDEN.lines().zip(records()) {
        assert_eq!(Record::parse(line).unwrap(), record);
    }
}

#[test]
fn newer_and_unknown_records_are_told_apart_from_malformed_ones() {
    let newer = GOLDEN.lines().next().unwrap().replace("\"v\":1", "\"v\":2");
    assert!(matches!(Record::parse(&newer), Err(RecordError::Newer(2))));
    let unknown = r#"{"v":1,"seq":9,"at":"2026-11-16T02:57:08.903195Z","kind":"moon.rose","id":"x"}"#;
    assert_eq!(Record::parse(unknown).unwrap().what, RecordContent::Unknown("moon.rose".to_owned()));
    for broken in ["", "{", "[]", r#"{"v":1}"#, r#"{"v":1,"seq":0,"at":"yesterday","kind":"task.queued"}"#] {
        assert!(matches!(Record::parse(broken), Err(RecordError::Malformed(_))), "{broken}");
    }
}

#[test]
fn every_prefix_of_a_stream_has_a_state() {
    let records: Vec<Record> = records().into_iter().map(|(_, r)| r).collect();
    for end in 1..=records.len() {
        let state = TaskState::fold(task(), &records[..end]).unwrap();
        let json = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<TaskState>(&json).unwrap(), state);
    }
    assert!(TaskState::fold(task(), &records[1..]).is_none(), "a task begins with its plan");
}

/// A receipt of the first version, byte for byte, because these bytes were signed.
#[test]
fn a_receipt_keeps_its_signed_form() {
    let payload = statement().payload();
    assert_eq!(payload, RECEIPT.trim_end());
    let read: Statement = serde_json::from_str(RECEIPT).unwrap();
    assert_eq!(read, statement());
    assert!(payload.contains(r#""seq":"18446744073709551615""#), "large numbers are texts");
}

const RECEIPT: &str = include_str!("golden/receipt-v1.json");

/// Receipts of earlier versions name no home. That is the only difference.
#[test]
fn a_receipt_names_its_home() {
    let named = statement_with_home(Some(id(HOME))).payload();
    let field = format!(r#""home_id":"{HOME}","#);
    assert!(named.contains(&field), "{named}");
    assert_eq!(named.replace(&field, ""), RECEIPT.trim_end());
}

fn statement() -> Statement {
    statement_with_home(None)
}

fn statement_with_home(home: Option<HomeId>) -> Statement {
    // Only of the records that existed when the golden receipt was written.
    let mut all: Vec<Record> = records().into_iter().map(|(_, r)| r).filter(|r| r.seq < 1000).collect();
    all.sort_by_key(|r| match &r.what {
        RecordContent::Decision(Decision::Planned { labels, .. }) => u64::from(labels.is_empty()),
        _ => 2 + r.seq,
    });
    // Without the denial.
    all.retain(|r| !matches!(&r.what, RecordContent::Decision(Decision::PermissionDenied { .. })));
    let mut records = all.into_iter();
    let mut account = TaskAccount::begin(task(), &records.next().unwrap()).unwrap();
    records.for_each(|r| account.apply(&r));
    let journal = SealedJournal {
        frames: DecimalCount(12),
        head: digest("head"),
        prologue_head: digest("prologue"),
        closed: true,
        damage: None,
    };
    let digests = TaskFileDigests {
        decisions: digest("decisions"),
        journal: Some((digest("journal"), journal)),
        streams: BTreeMap::from([(StreamName::Pty, digest("pty"))]),
    };
    let ledger_head = LedgerHead { decision: DecimalCount(99), sha256: digest("ledger") };
    let receipt = id("rc_01m7h4jys3gnc16k");
    let position = ReceiptPosition {
        receipt,
        home,
        number: u64::MAX,
        prev: Some(digest("prev")),
        ledger_head,
        at: at(),
        late: false,
    };
    Statement::from_account(&account, &digests, position).unwrap()
}

#[test]
fn labels_of_a_caller_are_marked_as_untrusted() {
    let statement = statement();
    let caller = &statement.predicate.request.caller;
    assert!(!caller.trusted);
    assert_eq!(caller.labels["client"].as_str(), "codex 1.0");
}

#[test]
fn outcomes_have_the_status_and_exit_code_of_the_contract() {
    let t = Text::from_static;
    for (outcome, status, code) in [
        (Outcome::Exited { code: 7 }, Status::Exited, 7),
        (Outcome::Signalled { signal: 9, core: false }, Status::Exited, 137),
        (Outcome::TimedOut { limit: TimeLimit::Wall }, Status::Failed, 124),
        (Outcome::Limited { limit: LimitReached::Disk }, Status::Failed, 124),
        (Outcome::Cancelled { by: t("x"), reason: None }, Status::Cancelled, 130),
        (Outcome::Withdrawn { by: t("x") }, Status::Cancelled, 130),
        (Outcome::Denied { reason: DenialReason::Unknown(t("x")) }, Status::Failed, 77),
        (Outcome::Failed { error: t("x"), code: 127 }, Status::Failed, 127),
        (Outcome::Lost { why: t("x") }, Status::Failed, 125),
    ] {
        assert_eq!((outcome.status(), outcome.exit_code()), (status, code), "{outcome:?}");
    }
}

#[test]
fn every_refusal_has_its_own_code() {
    let names: std::collections::BTreeSet<_> = RefusalCode::ALL.iter().map(|c| c.as_str()).collect();
    assert_eq!(names.len(), RefusalCode::ALL.len());
    assert!(RefusalCode::ALL.iter().all(|c| (400..600).contains(&c.http_status()) && c.exit_code() != 0));
}

#[test]
fn an_order_needs_a_permit_for_exactly_its_request() {
    #[expect(clippy::disallowed_methods, reason = "a test of the permit itself")]
    let permit = |task, digest| {
        let (id, by) = (id("pm_01m7h4jys3gnc16k"), DecidedBy::Rule(Text::from_static("t")));
        Permit::issue(id, task, digest, by, Scope::Once, Confinement::None, at())
    };
    let path = PathFact { path: "/p".into(), resolved: "/p".into(), dev: 1, inode: 1 };
    let what = ResolvedRequest {
        task: task(),
        plan_digest: digest("plan"),
        exec: Exec { program: path.clone(), argv: vec![], argv_digest: digest("argv") },
        cwd: path,
        env: vec![],
        exposure: Exposure { class: EnvClass::Base, names: vec![], withheld: vec![] },
        mode: Mode::Pipes,
        limits: Limits::default(),
        leftovers: Leftovers::Kill,
        on_output_limit: OnOutputLimit::Tail,
        stdin: false,
        tell_directory: false,
        rows: 24,
        cols: 80,
        task_dir: "/t".into(),
        run_dir: "/r".into(),
        first_seq: 3,
        prologue_head: digest("head"),
        secret: digest("secret"),
        mask_key: digest("mask"),
        known_secrets: Vec::new(),
        redaction: Vec::new(),
        builtin: None,
        sandbox: SandboxSpec {
            roots: vec!["/p".into()],
            read_all: false,
            homes: "/h".into(),
            home: "/h".into(),
            protected: vec![],
            programs: vec![],
            network: Network::Open,
            unix_sockets: true,
            reads: vec!["/var/log".to_owned()],
            writes: vec!["/tmp".to_owned()],
            keys: vec!["/home/u/.ssh".to_owned()],
            kernel: Kernel::FULL,
        },
        user: None,
    };
    assert!(Order::new(permit(task(), digest("plan")), what.clone()).is_ok());
    assert!(Order::new(permit(task(), digest("another")), what.clone()).is_err());
    assert!(Order::new(permit(id("tk_01m7h4jys3gnc16z"), digest("plan")), what).is_err());
}

#[test]
fn a_plan_digest_changes_with_everything_that_matters() {
    let key = HomeKey::new([1; 32]);
    let request = |args: serde_json::Value| -> Request {
        serde_json::from_value(serde_json::json!({"tool": "shell", "args": args})).unwrap()
    };
    let digests: Vec<Digest> = [
        serde_json::json!({"command": "a b"}),
        serde_json::json!({"argv": ["a b"]}),
        serde_json::json!({"argv": ["a", "b"]}),
        serde_json::json!({"command": "a b", "env": {"A": "1"}}),
        serde_json::json!({"command": "a b", "inherit": {"A": "1"}}),
    ]
    .into_iter()
    .map(|args| Plan::digest(&key, &request(args), "/p"))
    .chain([Plan::digest(&key, &request(serde_json::json!({"command": "a b"})), "/q")])
    .collect();
    let distinct: std::collections::HashSet<_> = digests.iter().collect();
    assert_eq!(distinct.len(), digests.len());
}

/// Prints the samples that the golden file lacks: `cargo test -p countersign-model --test model new_samples --
/// --nocapture`.
#[test]
fn new_samples_are_appended_never_changed() {
    let written: Vec<String> = records().into_iter().map(|(line, _)| line).collect();
    let golden = GOLDEN.lines().count();
    for line in written.iter().skip(golden) {
        println!("{line}");
    }
    assert_eq!(written.len(), golden);
}
