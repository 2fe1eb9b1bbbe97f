//! Making out receipts, off the way of everything else: what has settled is synced, looked at, signed and entered.
//!
//! One thread, so that the row of receipts has one writer. What settles while it works is sealed together in its next
//! round, with one sync of the ledger.

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
use countersign_redact::{Known, Mask, text, text_by_shape};
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

/// So many are sealed in one round.
const ROUND: usize = 256;
/// What settles within so long of another is sealed with it: each round syncs files and commits, and what runs meanwhile waits
/// for the same disk.
const GATHER: Duration = Duration::from_millis(50);
/// Looking through directories takes one part in so many of the time, and that at this priority.
const RESTS: u32 = 10;
const NICE: i32 = 5;
/// So often a task that cannot be sealed is tried.
const TRIES: u32 = 3;
/// How often a key that is missing is looked for.
const KEY_BACK: Duration = Duration::from_secs(2);
/// How long after a failed round the next one is tried.
const RETRY: Duration = Duration::from_secs(1);

/// What the sealer is asked for.
pub(crate) enum SealerCall {
    /// A task that has settled.
    Seal(TaskId),
    /// Told when everything before this has its receipt.
    Barrier(oneshot::Sender<()>),
    /// A signed head of the ledger.
    Head(oneshot::Sender<Result<Envelope, Refusal>>),
    /// The house's word that it removes what a task has left.
    Expiry { task: TaskId, reply: oneshot::Sender<Result<KeySignature, Refusal>> },
    /// The next key. `lost`: the one before it cannot speak for it.
    Rotate { lost: bool, reply: oneshot::Sender<Result<KeyAnnounced, Refusal>> },
}

/// Sends work to the sealer and awaits what came of it.
#[derive(Clone)]
pub(crate) struct SealerHandle {
    work: mpsc::Sender<SealerCall>,
}

impl SealerHandle {
    /// A task has settled and may have its receipt.
    pub(crate) fn seal(&self, task: TaskId) {
        let _ = self.work.send(SealerCall::Seal(task));
    }

    /// Waits until everything before this has its receipt. Refused when the sealer makes out none.
    pub(crate) async fn barrier(&self) -> Result<(), Refusal> {
        calls::call(&self.work, SealerCall::Barrier).await
    }

    /// A signed head of the ledger.
    pub(crate) async fn head(&self) -> Result<Envelope, Refusal> {
        calls::call(&self.work, SealerCall::Head).await?
    }

    /// The signed statement that the daemon removes what a task has left.
    pub(crate) async fn expiry(&self, task: TaskId) -> Result<KeySignature, Refusal> {
        calls::call(&self.work, |reply| SealerCall::Expiry { task, reply }).await?
    }

    /// Goes over to the next key. `lost`: the one before it cannot sign for it.
    pub(crate) async fn rotate(&self, lost: bool) -> Result<KeyAnnounced, Refusal> {
        calls::call(&self.work, |reply| SealerCall::Rotate { lost, reply }).await?
    }
}

/// Why a task, or any task, has no receipt.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SealError {
    /// The ledger cannot be used, for this reason.
    #[error("{0}")]
    ReadingOnly(String),
    #[error("there is no key")]
    NoKey,
    #[error(transparent)]
    Key(io::Error),
    #[error("the ledger is empty")]
    EmptyLedger,
    #[error("it has not settled")]
    NotSettled,
    #[error("what tasks left cannot be synced: {0}")]
    Sync(io::Error),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The commit loop does not take it.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// A task that cannot be sealed, the first of several.
#[derive(Debug, thiserror::Error)]
#[error("{task} has none: {why}{}; the next daemon tries again", and_more(*.more))]
pub(crate) struct UnsealableTask {
    task: TaskId,
    why: Arc<SealError>,
    more: usize,
}

fn and_more(more: usize) -> String {
    if more == 0 { String::new() } else { format!(", and {more} more") }
}

/// Whether receipts are made out, and why not.
#[derive(Debug, Clone)]
pub(crate) enum SealingState {
    Works,
    /// But not for all: those that cannot be sealed do not keep the others.
    Stuck(Arc<UnsealableTask>),
    /// What has settled waits for its receipt.
    Fails(Arc<SealError>),
}

impl SealingState {
    pub(crate) fn works(&self) -> bool {
        !matches!(self, Self::Fails(_))
    }

    /// What is wrong, for people.
    pub(crate) fn trouble(&self) -> Option<Text> {
        self.why().map(|why| text_by_shape(&why))
    }

    fn why(&self) -> Option<String> {
        match self {
            Self::Works => None,
            Self::Stuck(why) => Some(why.to_string()),
            Self::Fails(why) => Some(why.to_string()),
        }
    }
}

/// How far the ledger goes, for whoever wants to prove later that nothing before this was taken back.
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

/// What a sealer works with.
pub(crate) struct SealerParts<'a> {
    pub(crate) home: &'a Home,
    /// What receipts name; none where the home has no id.
    pub(crate) home_id: Option<HomeId>,
    pub(crate) users: &'a Users,
    pub(crate) gate: &'a GateSettings,
    pub(crate) ledger: &'a Ledger,
    pub(crate) commit: &'a CommitHandle,
    pub(crate) roster: watch::Receiver<Arc<Roster>>,
    pub(crate) given: LaunchSecrets,
    /// The daemon before this one ended without a word.
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
    /// What digests the contents of files.
    file_key: Digest,
    /// Directories that are not a task's doing.
    skip: Vec<PathBuf>,
    /// The last decision of the daemons before this one, and whether the last of them ended without a word.
    began_after: i64,
    after_a_crash: bool,
    /// Whether there is a ledger to seal in, and so a key to look for.
    reads: bool,
    /// Whether the ledger has the key.
    announced: bool,
    key: Option<SigningKey>,
    mint: IdMint,
    given: LaunchSecrets,
    /// Tasks that wait for their receipt.
    backlog: VecDeque<TaskId>,
    /// Those who wait until there are none.
    waiting: Vec<oneshot::Sender<()>>,
    /// Something failed in the last round, and is tried again.
    again: bool,
    /// Tasks that could not be sealed: how often that was tried, and why not.
    troubled: HashMap<TaskId, (u32, Arc<SealError>)>,
    /// Until when nothing is sealed.
    rests_until: Option<Instant>,
}

/// The daemon's key as the ledger has it last.
fn load_key(home: &Home, reader: &LedgerReader) -> Result<SigningKey, SealError> {
    let announced = reader.keys()?.last().map(|(_, k)| k.key);
    signing_key(home, announced).map_err(SealError::Key)
}

impl Sealer {
    /// A sealer, the handle to it, and whether it makes out receipts.
    pub(crate) fn new(
        parts: SealerParts<'_>,
    ) -> Result<(Self, SealerHandle, watch::Receiver<SealingState>), LedgerError> {
        let SealerParts { home, home_id, users, gate, ledger, commit, roster, given, after_a_crash, reading_only } =
            parts;
        let reader = ledger.reader()?;
        let key = match reading_only {
            None => load_key(home, &reader).inspect_err(|e| crate::log!("receipts are not made out: {e}")),
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
            began_after: ledger.last_number(),
            after_a_crash,
            reads: reading_only.is_none(),
            announced: !reader.keys()?.is_empty(),
            reader,
            key,
            mint: IdMint::default(),
            given,
            backlog: VecDeque::new(),
            waiting: Vec::new(),
            again: false,
            troubled: HashMap::new(),
            rests_until: None,
        };
        Ok((sealer, SealerHandle { work }, known))
    }

    /// Works until nobody can ask any more.
    pub(crate) fn run(mut self) {
        self.backlog = self.reader.unsealed_tasks().unwrap_or_default().into();
        // What comes after the end keeps nothing that is still under way from its processor.
        let _ = rustix::process::setpriority_process(None, NICE);
        // Known before anything is signed with it; tried again with the first receipt.
        let _ = self.announce();
        while let Ok(first) = self.next() {
            let mut asked = first;
            while let Some(work) = asked {
                self.take(work);
                asked = self.work.try_recv().ok();
            }
            if self.key.is_none() && self.reads {
                self.find_key();
            }
            if self.key.is_none() {
                // There is nothing to wait for. What has settled is found in the ledger when there is a key again.
                self.waiting.clear();
                self.backlog.drain(..).for_each(|task| self.given.forget(task));
                continue;
            }
            if self.backlog.is_empty() {
                let unsealed = self.reader.unsealed_tasks().unwrap_or_default();
                self.backlog = unsealed.into_iter().filter(|task| !self.gave_up(*task)).collect();
            }
            if self.waiting.is_empty() && self.rests() > Duration::ZERO {
                continue;
            }
            self.seal_some();
        }
    }

    /// What is asked for next; none when it is time to go on without. An error when nobody can ask any more.
    fn next(&self) -> Result<Option<SealerCall>, mpsc::RecvError> {
        if self.key.is_none() {
            // It may be put back.
            return match self.work.recv_timeout(KEY_BACK) {
                Ok(first) => Ok(Some(first)),
                Err(mpsc::RecvTimeoutError::Timeout) => Ok(None),
                Err(mpsc::RecvTimeoutError::Disconnected) => Err(mpsc::RecvError),
            };
        }
        if self.backlog.is_empty() {
            return self.work.recv().map(Some);
        }
        Ok(if self.again {
            // Nothing tells when a full disk has room again.
            self.work.recv_timeout(RETRY).ok()
        } else if self.waiting.is_empty() && self.rests() > Duration::ZERO {
            // Those who settle meanwhile are sealed together. Whoever waits for all of them does not wait for that.
            self.work.recv_timeout(self.rests()).ok()
        } else {
            self.work.try_recv().ok()
        })
    }

    fn take(&mut self, work: SealerCall) {
        match work {
            SealerCall::Seal(task) => {
                if self.backlog.is_empty() {
                    self.rest_for(GATHER);
                }
                self.backlog.push_back(task);
            }
            SealerCall::Barrier(reply) => self.waiting.push(reply),
            SealerCall::Head(reply) => drop(reply.send(self.head())),
            SealerCall::Expiry { task, reply } => drop(reply.send(self.expiry(task))),
            SealerCall::Rotate { lost, reply } => drop(reply.send(self.rotate(lost))),
        }
    }

    /// One round, and what is said about it.
    fn seal_some(&mut self) {
        let round: Vec<TaskId> = self.backlog.drain(..self.backlog.len().min(ROUND)).collect();
        let now = match self.round(&round) {
            Ok(failed) => {
                self.again = !failed.is_empty();
                failed.into_iter().for_each(|(task, why)| self.failed(task, why));
                self.stuck()
            }
            Err(why) => {
                self.again = true;
                self.backlog.extend(round);
                SealingState::Fails(Arc::new(why))
            }
        };
        let why = now.why();
        let before = self.sealing.send_replace(now);
        if let Some(why) = why.filter(|why| before.why().as_ref() != Some(why)) {
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
            crate::log!("receipts: the key is back");
        }
    }

    /// Nothing is sealed for so long, or longer.
    fn rest_for(&mut self, time: Duration) {
        let until = clock::steady() + time;
        self.rests_until = Some(self.rests_until.map_or(until, |later| later.max(until)));
    }

    /// How long nothing is sealed yet.
    fn rests(&self) -> Duration {
        self.rests_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(clock::steady()))
    }

    /// One that could not be sealed is tried a few times; then it keeps nobody up any more.
    fn failed(&mut self, task: TaskId, why: SealError) {
        let tries = self.troubled.get(&task).map_or(0, |(tries, _)| *tries) + 1;
        self.troubled.insert(task, (tries, Arc::new(why)));
        if tries < TRIES {
            self.backlog.push_back(task);
        }
    }

    fn gave_up(&self, task: TaskId) -> bool {
        self.troubled.get(&task).is_some_and(|(tries, _)| *tries >= TRIES)
    }

    fn stuck(&self) -> SealingState {
        let mut stuck = self.troubled.iter().filter(|(_, (tries, _))| *tries >= TRIES);
        match stuck.next() {
            None => SealingState::Works,
            Some((task, (_, why))) => {
                SealingState::Stuck(Arc::new(UnsealableTask { task: *task, why: Arc::clone(why), more: stuck.count() }))
            }
        }
    }

    /// Seals some tasks, in one commit. Those that cannot be, and why, come back: they do not keep the others.
    fn round(&mut self, tasks: &[TaskId]) -> Result<Vec<(TaskId, SealError)>, SealError> {
        self.announce()?;
        let (mut open, mut failed, mut seen) = (Vec::with_capacity(tasks.len()), Vec::new(), HashSet::new());
        let tasks: Vec<TaskId> = tasks.iter().copied().filter(|task| seen.insert(*task)).collect();
        closing::sync_tasks(&self.home, &tasks).map_err(SealError::Sync)?;
        for task in tasks {
            match self.closed(task) {
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
            match self.seal(&mut closed, &mut scans, number + 1, prev, ledger_head) {
                Ok((event, digest)) => {
                    (number, prev) = (number + 1, Some(digest));
                    events.push(event);
                    sealed_now.push(task);
                }
                Err(e) => failed.push((task, e)),
            }
        }
        // So that looking takes a small part of the time, whatever there is.
        self.rest_for(scans.took() * RESTS);
        crash::point("seal.before_commit");
        self.commit.decide_blocking(events)?;
        crash::point("seal.after_commit");
        for task in sealed_now {
            self.given.forget(task);
            self.troubled.remove(&task);
        }
        Ok(failed)
    }

    /// What is known of a settled task; none when it has its receipt already.
    fn closed(&self, task: TaskId) -> Result<Option<SettledTask>, SealError> {
        if self.reader.is_sealed(task)? {
            return Ok(None);
        }
        Ok(SettledTask::read(&self.home, &self.reader, task)?)
    }

    fn seal(
        &mut self,
        closed: &mut SettledTask,
        scans: &mut RootScans,
        number: u64,
        prev: Option<Digest>,
        ledger_head: LedgerHead,
    ) -> Result<(DeskEvent, Digest), SealError> {
        let (task, seq, at) = (closed.account.state.task_id, closed.next_seq, clock::now());
        let key = self.key.as_ref().ok_or(SealError::NoKey)?;
        let settled = self.reader.settling_decision(task)?.filter(|n| *n <= self.began_after);
        let late = match settled {
            Some(n) => self.after_a_crash || self.reader.crashed_since(n)?,
            None => false,
        };
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

    /// Has the key in the ledger, before anything is signed with it.
    fn announce(&mut self) -> Result<(), SealError> {
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

    fn head(&self) -> Result<Envelope, Refusal> {
        let key = self.key.as_ref().ok_or_else(|| no_key(&self.sealing))?;
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

    fn expiry(&self, task: TaskId) -> Result<KeySignature, Refusal> {
        let key = self.key.as_ref().ok_or_else(|| no_key(&self.sealing))?;
        let signed = self.reader.receipt_of_task(task).map_err(|e| Refusal::new(RefusalCode::Internal, e.to_string()))?;
        let signed = signed.ok_or_else(|| Refusal::new(RefusalCode::NotSealed, format!("{task} has no receipt")))?;
        Ok(key.sign_expiry(task, signed.digest()))
    }

    /// Goes over to a new key. The old one speaks for it, unless it is lost.
    fn rotate(&mut self, lost: bool) -> Result<KeyAnnounced, Refusal> {
        let internal = |e: &dyn std::fmt::Display| Refusal::new(RefusalCode::Internal, e.to_string());
        let before = match (&self.key, lost) {
            (None, false) => return Err(no_key(&self.sealing)),
            (Some(_), true) => {
                let refusal = Refusal::new(RefusalCode::BadRequest, "the key is not lost: it signs");
                return Err(refusal.hint("csn keys rotate, without --lost"));
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
        // Should this fail, the next daemon finds it where it was prepared: the ledger has it.
        if let Err(e) = adopt_signing_key(&self.home) {
            crate::log!("the new key is in use, and not in its place yet: {e}");
        }
        (self.key, self.announced) = (Some(next), true);
        self.sealing.send_replace(SealingState::Works);
        Ok(announced)
    }
}

fn no_key(sealing: &watch::Sender<SealingState>) -> Refusal {
    let why = sealing.borrow().why().unwrap_or_else(|| SealError::NoKey.to_string());
    Refusal::new(RefusalCode::SealerUnavailable, why).hint("see `csn doctor`")
}

/// What the tasks that this daemon has launched were given, until they have their receipt: what of it is secret must not
/// stand in the names of files either. Never written anywhere.
#[derive(Clone, Default)]
pub(crate) struct LaunchSecrets(Arc<Mutex<HashMap<TaskId, Words>>>);

struct Words {
    env: Vec<(String, String)>,
    argv: Vec<String>,
}

/// Of more tasks than this it is not kept: their files are counted, and not named.
const MOST_GIVEN: usize = 4096;

impl LaunchSecrets {
    pub(crate) fn remember(&self, task: TaskId, env: &[(String, String)], argv: &[String]) {
        let mut all = crate::lock(&self.0);
        if all.len() < MOST_GIVEN {
            all.insert(task, Words { env: env.to_vec(), argv: argv.to_vec() });
        }
    }

    fn forget(&self, task: TaskId) {
        crate::lock(&self.0).remove(&task);
    }

    /// What takes out the secrets of a task; none when nobody knows them any more.
    fn mask(&self, task: TaskId, key: Digest) -> Option<Mask> {
        let all = crate::lock(&self.0);
        let words = all.get(&task)?;
        Some(Mask::new(key, Known::of_task(&words.env, &words.argv)))
    }
}

impl Sealer {
    fn is_root(&self, root: &Path, home: &str) -> bool {
        let protected: Vec<String> = self.skip.iter().map(|p| p.to_string_lossy().into_owned()).collect();
        countersign_policy::can_be_root(&root.to_string_lossy(), home, &protected, root.join(".git").exists())
    }

    /// Looks for the files that a task changed, where it could have and nobody knows yet.
    fn scan_touched(&self, closed: &SettledTask, scans: &mut RootScans) -> Option<TouchedFiles> {
        let state = &closed.account.state;
        let known = closed.account.files();
        // From its launch on: it may have run for a while before that it did was written down.
        let (from, to) = (state.launched_at().filter(|_| state.spawned_at().is_some())?, state.ended_at()?);
        if known.observed != FileObservation::None {
            return None;
        }
        let roster = self.roster.borrow().clone();
        let session = state.request.session_id.and_then(|s| roster.session(s));
        // Who is no user of the machine any more has left nothing that anybody can look at.
        let run_as = self.users.run_as(roster.uid(state.request.principal)).ok()?;
        // Of a session that nobody opened, the place that it stands for.
        let place = session.filter(|s| s.implicit.is_some()).and_then(|s| s.directory.as_ref());
        let roots = session.iter().flat_map(|s| s.roots.iter().chain(&s.folder)).chain(place);
        let mut roots: Vec<PathBuf> = roots.map(|r| PathBuf::from(r.as_str())).collect();
        roots.dedup();
        // Not all of a home or of a disk: that tells nothing about a task, and takes long.
        roots.retain(|root| self.is_root(root, run_as.home()));
        if roots.is_empty() {
            return None;
        }
        let user = run_as.user;
        let found = scans.of(&roots, RunWindow { from, to }, user.as_ref());
        let prepared = roots.iter().map(|root| text_by_shape(&root.to_string_lossy())).collect();
        let mut touched =
            TouchedFiles { observed: FileObservation::Scan, roots: prepared, complete: found.complete, ..known };
        // Without what the task was given, or with what was typed into it unseen, a name may be a secret.
        let mask = self.given.mask(state.task_id, self.file_key).filter(|_| !closed.account.has_hidden_input());
        let Some(mask) = mask else {
            touched.complete &= found.files.is_empty();
            touched.more = found.files.len() as u64 + found.more;
            return Some(touched);
        };
        touched.more = found.more;
        for file in found.files {
            let path = text(&mask, &file.path.to_string_lossy());
            // What its supervisor saw, it saw at the time.
            if !touched.files.iter().any(|known| known.path == path) {
                let (change, escape, after) = (file.change, file.escape, file.after);
                touched.files.push(TouchedFile { path, change, escape, before: None, after });
            }
        }
        Some(touched)
    }
}
