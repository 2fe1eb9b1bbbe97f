//! Makes receipts, on a thread of its own: syncs the files of settled tasks, scans for changes, signs and records.
//!
//! One thread, so that the receipt chain has one writer. Tasks that settle while it works are sealed together in its
//! next round, with one sync of the ledger.

use crate::{
    calls::{self, CommitHandle},
    case,
    desk::DeskEvent,
    facts::GateSettings,
    receipts::touched::{RootScans, RunWindow},
    users::Users,
};
use countersign_model::{
    DecimalCount, Decision, Digest, FileObservation, HomeId, IdMint, KeyAnnounced, KeySignature, LedgerHead, ReceiptId,
    ReceiptPosition, Record, RecordContent, Refusal, RefusalCode, Roster, SealedReceipt, Statement, TaskId, Text,
    Timestamp, TouchedFile, TouchedFiles,
};
use countersign_redact::{KnownSecrets, Mask, text, text_by_shape};
use countersign_store::{
    Envelope, HEAD_TYPE, Home, RECEIPT_TYPE, SignedReceipt, SigningKey, adopt_signing_key, clock,
    closing::{self, SettledTask},
    crash,
    ledger::{Ledger, LedgerError, LedgerReader},
    prepare_signing_key, random, signing_key,
    stream::StreamError,
};
use serde::Serialize;
use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};
use tokio::sync::{oneshot, watch};

/// How many tasks are sealed in one round.
const MAX_ROUND_TASKS: usize = 256;
/// How long the sealer waits for more settled tasks: each round syncs files and commits, and running tasks wait for the
/// same disk.
const SEAL_BATCH_WINDOW: Duration = Duration::from_millis(50);
/// Scanning directories takes at most one part in this many of the time, at this priority.
const SCAN_TIME_DIVISOR: u32 = 10;
const SEALER_NICE: i32 = 5;
/// How often a task that cannot be sealed is tried.
const MAX_SEAL_ATTEMPTS: u32 = 3;
/// How often the sealer looks for a missing key.
const KEY_POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How long after a failed round the next one is tried.
const ROUND_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A call to the sealer.
pub(crate) enum SealerCall {
    /// Seals a settled task.
    Seal(TaskId),
    /// Replies when every earlier task has its receipt.
    Barrier(oneshot::Sender<()>),
    /// Signs the ledger head.
    Head(oneshot::Sender<Result<Envelope, Refusal>>),
    /// Signs that the daemon removes the files of a task.
    Expiry { task: TaskId, reply: oneshot::Sender<Result<KeySignature, Refusal>> },
    /// Rotates the signing key. `lost`: the current key cannot sign for the next one.
    Rotate { lost: bool, reply: oneshot::Sender<Result<KeyAnnounced, Refusal>> },
}

/// Sends calls to the sealer and awaits their replies.
#[derive(Clone)]
pub(crate) struct SealerHandle {
    work: mpsc::Sender<SealerCall>,
}

impl SealerHandle {
    /// Queues a settled task for its receipt.
    pub(crate) fn queue_task(&self, task: TaskId) {
        let _ = self.work.send(SealerCall::Seal(task));
    }

    /// Waits until every earlier task has its receipt. Refused if the sealer cannot sign.
    pub(crate) async fn barrier(&self) -> Result<(), Refusal> {
        calls::send_call(&self.work, SealerCall::Barrier).await
    }

    /// A signed ledger head.
    pub(crate) async fn signed_head(&self) -> Result<Envelope, Refusal> {
        calls::send_call(&self.work, SealerCall::Head).await?
    }

    /// The signed statement that the daemon removes the files of a task.
    pub(crate) async fn signed_expiry(&self, task: TaskId) -> Result<KeySignature, Refusal> {
        calls::send_call(&self.work, |reply| SealerCall::Expiry { task, reply }).await?
    }

    /// Rotates the signing key. `lost`: the current key cannot sign for the next one.
    pub(crate) async fn rotate_key(&self, lost: bool) -> Result<KeyAnnounced, Refusal> {
        calls::send_call(&self.work, |reply| SealerCall::Rotate { lost, reply }).await?
    }
}

/// Why a task, or any task, has no receipt.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    /// The ledger cannot be used, for this reason.
    #[error("{0}")]
    ReadingOnly(String),
    #[error("there is no signing key")]
    NoKey,
    #[error(transparent)]
    Key(io::Error),
    #[error("the ledger is empty")]
    EmptyLedger,
    #[error("the task has not settled")]
    NotSettled,
    #[error("the files of tasks cannot be synced: {0}")]
    Sync(io::Error),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The commit loop refused the receipts.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The first of the tasks that cannot be sealed, and how many more there are.
#[derive(Debug, thiserror::Error)]
#[error("{task} has no receipt: {why}{}; the next daemon tries again", describe_more(*.more))]
pub(crate) struct UnsealableTask {
    task: TaskId,
    why: Arc<SealError>,
    more: usize,
}

fn describe_more(more: usize) -> String {
    match more {
        0 => String::new(),
        1 => ", and 1 more task".to_owned(),
        _ => format!(", and {more} more tasks"),
    }
}

/// Whether receipts are made, and why not.
#[derive(Debug, Clone)]
pub(crate) enum SealingState {
    Works,
    /// Some tasks cannot be sealed; they do not delay the others.
    Stuck(Arc<UnsealableTask>),
    /// No receipts can be made; settled tasks wait.
    Fails(Arc<SealError>),
}

impl SealingState {
    pub(crate) fn can_seal(&self) -> bool {
        !matches!(self, Self::Fails(_))
    }

    /// The problem, for people.
    pub(crate) fn problem(&self) -> Option<Text> {
        self.reason().map(|why| text_by_shape(&why))
    }

    fn reason(&self) -> Option<String> {
        match self {
            Self::Works => None,
            Self::Stuck(why) => Some(why.to_string()),
            Self::Fails(why) => Some(why.to_string()),
        }
    }
}

/// A signed checkpoint of the ledger: it proves later that no earlier entry was removed.
#[derive(Debug, Serialize)]
struct SignedLedgerHead {
    v: u32,
    receipts: DecimalCount,
    /// Digest of the last receipt.
    receipt: Option<Digest>,
    ledger_head: LedgerHead,
    #[serde(skip_serializing_if = "Option::is_none")]
    home_id: Option<HomeId>,
    at: Timestamp,
}

/// Everything that a sealer is made from.
pub(crate) struct SealerParts<'a> {
    pub(crate) home: &'a Home,
    /// The home id in receipts; none if the home has no id.
    pub(crate) home_id: Option<HomeId>,
    pub(crate) users: &'a Users,
    pub(crate) gate: &'a GateSettings,
    pub(crate) ledger: &'a Ledger,
    pub(crate) commit: &'a CommitHandle,
    pub(crate) roster: watch::Receiver<Arc<Roster>>,
    pub(crate) launch_secrets: LaunchSecrets,
    /// The previous daemon crashed.
    pub(crate) after_a_crash: bool,
    /// The ledger cannot be used, for this reason.
    pub(crate) reading_only: Option<&'a str>,
}

pub(crate) struct Sealer {
    home: Home,
    home_id: Option<HomeId>,
    reader: LedgerReader,
    commit: CommitHandle,
    work: mpsc::Receiver<SealerCall>,
    roster: watch::Receiver<Arc<Roster>>,
    users: Users,
    sealing: watch::Sender<SealingState>,
    /// The key for digests of file contents.
    file_key: Digest,
    /// Directories that tasks do not write to.
    skip: Vec<PathBuf>,
    /// The tasks without a receipt that settled before this daemon started, and whether the previous daemon crashed.
    settled_before_start: HashSet<TaskId>,
    after_a_crash: bool,
    /// Whether the ledger is usable, so that a key is needed.
    ledger_usable: bool,
    /// Whether the ledger contains the key.
    announced: bool,
    key: Option<SigningKey>,
    mint: IdMint,
    launch_secrets: LaunchSecrets,
    /// Tasks that wait for their receipt.
    backlog: VecDeque<TaskId>,
    /// Callers that wait until the backlog is empty.
    waiting: Vec<oneshot::Sender<()>>,
    /// Something failed in the last round and is tried again.
    retry: bool,
    /// Tasks that could not be sealed: the number of attempts, and the reason.
    failed_tasks: HashMap<TaskId, (u32, Arc<SealError>)>,
    /// When the sealer continues.
    paused_until: Option<Instant>,
}

/// The signing key that the ledger announced last.
fn load_key(home: &Home, reader: &LedgerReader) -> Result<SigningKey, SealError> {
    let announced = reader.keys()?.last().map(|(_, k)| k.key);
    signing_key(home, announced).map_err(SealError::Key)
}

impl Sealer {
    /// A sealer, its handle, and its state.
    pub(crate) fn new(
        parts: SealerParts<'_>,
    ) -> Result<(Self, SealerHandle, watch::Receiver<SealingState>), LedgerError> {
        let SealerParts {
            home,
            home_id,
            users,
            gate,
            ledger,
            commit,
            roster,
            launch_secrets,
            after_a_crash,
            reading_only,
        } = parts;
        let reader = ledger.reader()?;
        let key = match reading_only {
            None => load_key(home, &reader).inspect_err(|e| crate::log!("no receipts can be made: {e}")),
            Some(why) => Err(SealError::ReadingOnly(why.to_owned())),
        };
        let (key, state) = match key {
            Ok(key) => (Some(key), SealingState::Works),
            Err(e) => (None, SealingState::Fails(Arc::new(e))),
        };
        let (sealing, known) = watch::channel(state);
        let (work, asked) = mpsc::channel();
        let sealer = Self {
            home: home.clone(),
            home_id,
            commit: commit.clone(),
            work: asked,
            roster,
            users: users.clone(),
            sealing,
            file_key: case::mask_key(&gate.key),
            skip: gate.protected.iter().map(PathBuf::from).collect(),
            settled_before_start: reader.unsealed_tasks().unwrap_or_default().into_iter().collect(),
            after_a_crash,
            ledger_usable: reading_only.is_none(),
            announced: !reader.keys()?.is_empty(),
            reader,
            key,
            mint: IdMint::default(),
            launch_secrets,
            backlog: VecDeque::new(),
            waiting: Vec::new(),
            retry: false,
            failed_tasks: HashMap::new(),
            paused_until: None,
        };
        Ok((sealer, SealerHandle { work }, known))
    }

    /// Works until all handles are dropped.
    pub(crate) fn run(mut self) {
        self.backlog = self.reader.unsealed_tasks().unwrap_or_default().into();
        // Sealing must not take the processor from running tasks.
        let _ = rustix::process::setpriority_process(None, SEALER_NICE);
        // The key must be in the ledger before it signs anything; if this fails, the first receipt tries again.
        let _ = self.announce_key();
        while let Ok(first) = self.next_call() {
            let mut asked = first;
            while let Some(work) = asked {
                self.handle_call(work);
                asked = self.work.try_recv().ok();
            }
            if self.key.is_none() && self.ledger_usable {
                self.find_key();
            }
            if self.key.is_none() {
                // There is nothing to wait for. The ledger lists the settled tasks when there is a key again.
                self.waiting.clear();
                self.backlog.drain(..).for_each(|task| self.launch_secrets.forget(task));
                continue;
            }
            if self.backlog.is_empty() {
                let unsealed = self.reader.unsealed_tasks().unwrap_or_default();
                self.backlog = unsealed.into_iter().filter(|task| !self.has_given_up(*task)).collect();
            }
            if self.waiting.is_empty() && self.remaining_pause() > Duration::ZERO {
                continue;
            }
            self.seal_backlog();
        }
    }

    /// The next call; none when it is time to continue without one. An error if all handles are dropped.
    fn next_call(&self) -> Result<Option<SealerCall>, mpsc::RecvError> {
        if self.key.is_none() {
            // The key may be put back.
            return match self.work.recv_timeout(KEY_POLL_INTERVAL) {
                Ok(first) => Ok(Some(first)),
                Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
                Err(mpsc::RecvTimeoutError::Disconnected) => Err(mpsc::RecvError),
            };
        }
        if self.backlog.is_empty() {
            return self.work.recv().map(Some);
        }
        Ok(if self.retry {
            // Nothing notifies the sealer when a full disk has space again.
            self.work.recv_timeout(ROUND_RETRY_INTERVAL).ok()
        } else if self.waiting.is_empty() && self.remaining_pause() > Duration::ZERO {
            // Tasks that settle meanwhile are sealed together. A caller of `barrier` does not wait for that.
            self.work.recv_timeout(self.remaining_pause()).ok()
        } else {
            self.work.try_recv().ok()
        })
    }

    fn handle_call(&mut self, work: SealerCall) {
        match work {
            SealerCall::Seal(task) => {
                if self.backlog.is_empty() {
                    self.pause_for(SEAL_BATCH_WINDOW);
                }
                self.backlog.push_back(task);
            }
            SealerCall::Barrier(reply) => self.waiting.push(reply),
            SealerCall::Head(reply) => drop(reply.send(self.sign_head())),
            SealerCall::Expiry { task, reply } => drop(reply.send(self.sign_expiry(task))),
            SealerCall::Rotate { lost, reply } => drop(reply.send(self.rotate_key(lost))),
        }
    }

    /// Seals one round and updates the state.
    fn seal_backlog(&mut self) {
        let round: Vec<TaskId> = self.backlog.drain(..self.backlog.len().min(MAX_ROUND_TASKS)).collect();
        let now = match self.seal_round(&round) {
            Ok(failed) => {
                self.retry = !failed.is_empty();
                for (task, why) in failed {
                    self.note_failure(task, why);
                }
                self.current_state()
            }
            Err(why) => {
                self.retry = true;
                self.backlog.extend(round);
                SealingState::Fails(Arc::new(why))
            }
        };
        let why = now.reason();
        let before = self.sealing.send_replace(now);
        if let Some(why) = why.filter(|why| before.reason().as_ref() != Some(why)) {
            crate::log!("receipts: {why}");
        }
        if self.backlog.is_empty() {
            for reply in self.waiting.drain(..) {
                let _ = reply.send(());
            }
        }
    }

    /// Looks whether the key has been put back.
    fn find_key(&mut self) {
        if let Ok(key) = load_key(&self.home, &self.reader) {
            self.announced = self.reader.keys().is_ok_and(|keys| !keys.is_empty());
            self.key = Some(key);
            self.sealing.send_replace(SealingState::Works);
            crate::log!("receipts: the signing key is available again");
        }
    }

    /// Pauses sealing for this time at least.
    fn pause_for(&mut self, time: Duration) {
        let until = clock::steady() + time;
        self.paused_until = Some(self.paused_until.map_or(until, |later| later.max(until)));
    }

    /// How long sealing still pauses.
    fn remaining_pause(&self) -> Duration {
        self.paused_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(clock::steady()))
    }

    /// Notes that a task could not be sealed. After a few attempts it does not delay others any more.
    fn note_failure(&mut self, task: TaskId, why: SealError) {
        let tries = self.failed_tasks.get(&task).map_or(0, |(tries, _)| *tries) + 1;
        self.failed_tasks.insert(task, (tries, Arc::new(why)));
        if tries < MAX_SEAL_ATTEMPTS {
            self.backlog.push_back(task);
        }
    }

    fn has_given_up(&self, task: TaskId) -> bool {
        self.failed_tasks.get(&task).is_some_and(|(tries, _)| *tries >= MAX_SEAL_ATTEMPTS)
    }

    fn current_state(&self) -> SealingState {
        let mut stuck = self.failed_tasks.iter().filter(|(_, (tries, _))| *tries >= MAX_SEAL_ATTEMPTS);
        match stuck.next() {
            None => SealingState::Works,
            Some((task, (_, why))) => {
                SealingState::Stuck(Arc::new(UnsealableTask { task: *task, why: Arc::clone(why), more: stuck.count() }))
            }
        }
    }

    /// Seals tasks in one commit. Returns the tasks that cannot be sealed with the reasons; they do not delay the
    /// others.
    fn seal_round(&mut self, tasks: &[TaskId]) -> Result<Vec<(TaskId, SealError)>, SealError> {
        self.announce_key()?;
        let (mut open, mut failed, mut seen) = (Vec::with_capacity(tasks.len()), Vec::new(), HashSet::new());
        let tasks: Vec<TaskId> = tasks.iter().copied().filter(|task| seen.insert(*task)).collect();
        closing::sync_tasks(&self.home, &tasks).map_err(SealError::Sync)?;
        for task in tasks {
            match self.read_unsealed(task) {
                Ok(closed) => open.extend(closed),
                Err(e) => failed.push((task, e)),
            }
        }
        if open.is_empty() {
            return Ok(failed);
        }
        let ran = open.iter().filter_map(|c| c.account.state.launched_at()).min().unwrap_or_else(clock::now);
        let mut scans = RootScans::since(ran, self.skip.clone(), self.file_key);
        let (n, head) = self.reader.head()?;
        let ledger_head = LedgerHead {
            decision: DecimalCount(u64::try_from(n).unwrap_or(0)),
            sha256: head.ok_or(SealError::EmptyLedger)?,
        };
        let last = self.reader.last_receipt()?;
        let (mut number, mut prev) = last.map_or((0, None), |(n, digest)| (n, Some(digest)));
        let (mut events, mut sealed_now) = (Vec::with_capacity(open.len()), Vec::with_capacity(open.len()));
        for mut closed in open {
            let task = closed.account.state.task_id;
            match self.make_receipt(&mut closed, &mut scans, number + 1, prev, ledger_head) {
                Ok((event, digest)) => {
                    (number, prev) = (number + 1, Some(digest));
                    events.push(event);
                    sealed_now.push(task);
                }
                Err(e) => failed.push((task, e)),
            }
        }
        // Scanning takes a small part of the time, however much there is.
        self.pause_for(scans.total_time() * SCAN_TIME_DIVISOR);
        crash::point("seal.before_commit");
        self.commit.decide_blocking(events)?;
        crash::point("seal.after_commit");
        for task in sealed_now {
            self.launch_secrets.forget(task);
            self.failed_tasks.remove(&task);
            self.settled_before_start.remove(&task);
        }
        Ok(failed)
    }

    /// The records of a settled task; none if it has its receipt.
    fn read_unsealed(&self, task: TaskId) -> Result<Option<SettledTask>, SealError> {
        Ok(SettledTask::read(&self.home, &self.reader, task)?)
    }

    fn make_receipt(
        &mut self,
        closed: &mut SettledTask,
        scans: &mut RootScans,
        number: u64,
        prev: Option<Digest>,
        ledger_head: LedgerHead,
    ) -> Result<(DeskEvent, Digest), SealError> {
        let (task, seq, at) = (closed.account.state.task_id, closed.next_seq, clock::now());
        let key = self.key.as_ref().ok_or(SealError::NoKey)?;
        let late = self.settled_before_start.contains(&task)
            && (self.after_a_crash
                || match self.reader.settling_decision(task)? {
                    Some(n) => self.reader.crashed_since(n)?,
                    None => false,
                });
        let touched = self.scan_touched(closed, scans);
        if let Some(touched) = &touched {
            let decision = Decision::Touched(touched.clone());
            let line = Record::decision_line(seq, at, &decision);
            closed.apply_decision(&line, &Record { seq, at, t_us: None, what: RecordContent::Decision(decision) });
        }
        let receipt = ReceiptId::mint(&mut self.mint, at.millis(), u32::from_le_bytes(random()));
        let seal = ReceiptPosition { receipt, home: self.home_id, number, prev, ledger_head, at, late };
        let statement =
            Statement::from_account(&closed.account, &closed.file_digests(), seal).ok_or(SealError::NotSettled)?;
        let payload = statement.payload();
        let signature = key.sign(RECEIPT_TYPE, payload.as_bytes()).to_vec();
        let signed = Box::new(SignedReceipt { number, receipt, task, payload, key: key.public().id(), signature });
        let sealed = SealedReceipt { receipt, number, digest: signed.digest(), key: signed.key };
        Ok((DeskEvent::Sealed { seq, at, touched, sealed, signed }, sealed.digest))
    }

    /// Records the key in the ledger, before anything is signed with it.
    fn announce_key(&mut self) -> Result<(), SealError> {
        let Some(key) = &self.key else { return Err(SealError::NoKey) };
        if self.announced {
            return Ok(());
        }
        let public = key.public();
        let first = KeyAnnounced { key: public.id(), public: public.bytes(), by: None, signature: None };
        self.commit.decide_blocking(vec![DeskEvent::Key(first)])?;
        self.announced = true;
        Ok(())
    }

    fn sign_head(&self) -> Result<Envelope, Refusal> {
        let key = self.key.as_ref().ok_or_else(|| no_key_refusal(&self.sealing))?;
        let internal = |e: &dyn std::fmt::Display| Refusal::new(RefusalCode::Internal, e.to_string());
        let (n, sha256) = self.reader.head().map_err(|e| internal(&e))?;
        let last = self.reader.last_receipt().map_err(|e| internal(&e))?;
        let sha256 = sha256.ok_or_else(|| internal(&"the ledger is empty"))?;
        let head = SignedLedgerHead {
            v: 1,
            receipts: DecimalCount(last.map_or(0, |(number, _)| number)),
            receipt: last.map(|(_, digest)| digest),
            ledger_head: LedgerHead { decision: DecimalCount(u64::try_from(n).unwrap_or(0)), sha256 },
            home_id: self.home_id,
            at: clock::now(),
        };
        let body = serde_json::to_string(&head).map_err(|e| internal(&e))?;
        Ok(Envelope::new(HEAD_TYPE, &body, key.public().id(), &key.sign(HEAD_TYPE, body.as_bytes())))
    }

    fn sign_expiry(&self, task: TaskId) -> Result<KeySignature, Refusal> {
        let key = self.key.as_ref().ok_or_else(|| no_key_refusal(&self.sealing))?;
        let signed =
            self.reader.receipt_of_task(task).map_err(|e| Refusal::new(RefusalCode::Internal, e.to_string()))?;
        let signed = signed.ok_or_else(|| Refusal::new(RefusalCode::NotSealed, format!("{task} has no receipt")))?;
        Ok(key.sign_expiry(task, signed.digest()))
    }

    /// Rotates to a new key. The old key signs for the new one, unless it is lost.
    fn rotate_key(&mut self, lost: bool) -> Result<KeyAnnounced, Refusal> {
        let internal = |e: &dyn std::fmt::Display| Refusal::new(RefusalCode::Internal, e.to_string());
        let before = match (&self.key, lost) {
            (None, false) => return Err(no_key_refusal(&self.sealing)),
            (Some(_), true) => {
                let refusal = Refusal::new(RefusalCode::BadRequest, "the signing key is not lost; it works");
                return Err(refusal.hint("rotate without `lost` (csn keys rotate, without --lost)"));
            }
            (key, _) => key.as_ref(),
        };
        let next = prepare_signing_key(&self.home, before.map(|k| k.public().id())).map_err(|e| internal(&e))?;
        let public = next.public();
        let announced = match before {
            Some(old) => old.announce_key(public),
            None => KeyAnnounced { key: public.id(), public: public.bytes(), by: None, signature: None },
        };
        self.commit.decide_blocking(vec![DeskEvent::Key(announced.clone())])?;
        crash::point("seal.before_adopt");
        // If this fails, the next daemon finds the key where it was prepared: the ledger names it.
        if let Err(e) = adopt_signing_key(&self.home) {
            crate::log!("the new signing key is in use, but its file was not moved into place: {e}");
        }
        (self.key, self.announced) = (Some(next), true);
        self.sealing.send_replace(SealingState::Works);
        Ok(announced)
    }
}

fn no_key_refusal(sealing: &watch::Sender<SealingState>) -> Refusal {
    let why = sealing.borrow().reason().unwrap_or_else(|| SealError::NoKey.to_string());
    Refusal::new(RefusalCode::SealerUnavailable, why).hint("`csn doctor` shows details")
}

/// The environment and arguments of the tasks that this daemon launched, until they have their receipt: a secret among
/// them must not appear in file names either. Never written to disk.
#[derive(Clone, Default)]
pub(crate) struct LaunchSecrets(Arc<Mutex<HashMap<TaskId, TaskSecrets>>>);

struct TaskSecrets {
    env: Vec<(String, String)>,
    argv: Vec<String>,
}

/// For how many tasks they are kept. The files of further tasks are counted, not named.
const MAX_REMEMBERED_TASKS: usize = 4096;

impl LaunchSecrets {
    pub(crate) fn remember(&self, task: TaskId, env: &[(String, String)], argv: &[String]) {
        let mut all = crate::lock(&self.0);
        if all.len() < MAX_REMEMBERED_TASKS {
            all.insert(task, TaskSecrets { env: env.to_vec(), argv: argv.to_vec() });
        }
    }

    fn forget(&self, task: TaskId) {
        crate::lock(&self.0).remove(&task);
    }

    /// The mask that redacts the secrets of a task; none if they are not known.
    fn mask(&self, task: TaskId, key: Digest) -> Option<Mask> {
        let all = crate::lock(&self.0);
        let words = all.get(&task)?;
        Some(Mask::new(key, KnownSecrets::from_task(&words.env, &words.argv)))
    }
}

impl Sealer {
    fn can_be_root(&self, root: &Path, home: &str) -> bool {
        let protected: Vec<String> = self.skip.iter().map(|p| p.to_string_lossy().into_owned()).collect();
        countersign_policy::can_be_root(&root.to_string_lossy(), home, &protected, root.join(".git").exists())
    }

    /// Scans for files that a task changed, if it could have and its supervisor did not observe them.
    fn scan_touched(&self, closed: &SettledTask, scans: &mut RootScans) -> Option<TouchedFiles> {
        let state = &closed.account.state;
        let known = closed.account.files();
        // From its launch: the task may have run for a while before `spawned` was recorded.
        let (from, to) = (state.launched_at().filter(|_| state.spawned_at().is_some())?, state.ended_at()?);
        if known.observed != FileObservation::None {
            return None;
        }
        let roster = self.roster.borrow().clone();
        let session = state.request.session_id.and_then(|s| roster.session(s));
        // A user that does not exist any more has no files that can be read.
        let run_as = self.users.run_as(roster.uid(state.request.principal)).ok()?;
        // For an implicit session, the directory that it stands for.
        let place = session.filter(|s| s.implicit.is_some()).and_then(|s| s.directory.as_ref());
        let roots = session.iter().flat_map(|s| s.roots.iter().chain(&s.folder)).chain(place);
        let mut roots: Vec<PathBuf> = roots.map(|r| PathBuf::from(r.as_str())).collect();
        roots.dedup();
        // Not a whole home or disk: that says nothing about a task and takes long.
        roots.retain(|root| self.can_be_root(root, run_as.home()));
        if roots.is_empty() {
            return None;
        }
        let user = run_as.user;
        let found = scans.scan_roots(&roots, RunWindow { from, to }, user.as_ref());
        let prepared = roots.iter().map(|root| text_by_shape(&root.to_string_lossy())).collect();
        let mut touched =
            TouchedFiles { observed: FileObservation::Scan, roots: prepared, complete: found.complete, ..known };
        // Without the task's secrets, or with hidden input, a file name may contain a secret.
        let mask =
            self.launch_secrets.mask(state.task_id, self.file_key).filter(|_| !closed.account.has_hidden_input());
        let Some(mask) = mask else {
            touched.complete &= found.files.is_empty();
            touched.more = found.files.len() as u64 + found.more;
            return Some(touched);
        };
        touched.more = found.more;
        for file in found.files {
            let path = text(&mask, &file.path.to_string_lossy());
            // The supervisor's observation is more exact than the scan.
            if !touched.files.iter().any(|known| known.path == path) {
                let (change, escape, after) = (file.change, file.escape, file.after);
                touched.files.push(TouchedFile { path, change, escape, before: None, after });
            }
        }
        Some(touched)
    }
}
