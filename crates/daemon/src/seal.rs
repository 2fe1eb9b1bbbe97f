//! Making out receipts, off the way of everything else: what has settled is synced, looked at, signed and entered.
//!
//! One thread, so that the row of receipts has one writer. What settles while it works is sealed together in its next
//! round, with one sync of the ledger.

use crate::{
    desk::Event,
    office::Call,
    people::People,
    touched::{Scans, Window},
};
use countersign_model::{
    At, Code, Count, Decision, Digest, IdMint, KeyAnnounced, LedgerHead, Observed, ReceiptId, Record, Refusal, Roster,
    Seal, SealedReceipt, SignedWord, Statement, TaskId, Text, TouchedFile, TouchedFiles, What,
};
use countersign_redact::{Known, Mask, text, text_by_shape};
use countersign_store::{
    Envelope, HEAD_TYPE, Home, RECEIPT_TYPE, Signed, SigningKey, adopt_signing_key, clock,
    closing::{self, Closed},
    crash,
    ledger::Reader,
    prepare_signing_key, random, signing_key,
};
use serde::Serialize;
use std::{
    collections::{HashMap, HashSet, VecDeque},
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
pub(crate) enum Work {
    /// A task that has settled.
    Seal(TaskId),
    /// Told when everything before this has its receipt.
    Barrier(oneshot::Sender<()>),
    /// A signed head of the ledger.
    Head(oneshot::Sender<Result<Envelope, Refusal>>),
    /// The house's word that it removes what a task has left.
    Expiry { task: TaskId, reply: oneshot::Sender<Result<SignedWord, Refusal>> },
    /// The next key. `lost`: the one before it cannot speak for it.
    Rotate { lost: bool, reply: oneshot::Sender<Result<KeyAnnounced, Refusal>> },
}

/// Whether receipts are made out, and why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sealing {
    Works,
    /// But not for all: those that cannot be sealed do not keep the others.
    Stuck(String),
    /// What has settled waits for its receipt.
    Fails(String),
}

impl Sealing {
    pub(crate) fn works(&self) -> bool {
        !matches!(self, Self::Fails(_))
    }

    /// What is wrong, for people.
    pub(crate) fn trouble(&self) -> Option<Text> {
        match self {
            Self::Works => None,
            Self::Stuck(why) | Self::Fails(why) => Some(text_by_shape(why)),
        }
    }
}

/// How far the ledger goes, for whoever wants to prove later that nothing before this was taken back.
#[derive(Debug, Serialize)]
struct Head {
    v: u32,
    receipts: Count,
    /// Digest of the last receipt.
    receipt: Option<Digest>,
    ledger_head: LedgerHead,
    at: At,
}

pub(crate) struct Sealer {
    pub(crate) home: Home,
    pub(crate) reader: Reader,
    pub(crate) calls: mpsc::Sender<Call>,
    pub(crate) roster: watch::Receiver<Arc<Roster>>,
    pub(crate) people: People,
    pub(crate) sealing: watch::Sender<Sealing>,
    /// What digests the contents of files.
    pub(crate) file_key: Digest,
    /// Directories that are not a task's doing.
    pub(crate) skip: Vec<PathBuf>,
    /// The last decision of the daemons before this one, and whether the last of them ended without a word.
    pub(crate) began_after: i64,
    pub(crate) after_a_crash: bool,
    /// Whether there is a ledger to seal in, and so a key to look for.
    pub(crate) reads: bool,
    /// Whether the ledger has the key.
    pub(crate) announced: bool,
    pub(crate) key: Option<SigningKey>,
    pub(crate) mint: IdMint,
    pub(crate) given: Given,
    /// Tasks that could not be sealed: how often that was tried, and why not.
    pub(crate) troubled: HashMap<TaskId, (u32, String)>,
    /// Until when nothing is sealed.
    pub(crate) rests_until: Option<Instant>,
}

/// The house's key as the ledger has it last.
pub(crate) fn load_key(home: &Home, reader: &Reader) -> Result<SigningKey, String> {
    let announced = reader.keys().map_err(|e| e.to_string())?.last().map(|(_, k)| k.key);
    signing_key(home, announced).map_err(|e| e.to_string())
}

impl Sealer {
    /// Works until nobody can ask any more.
    pub(crate) fn run(mut self, work: &mpsc::Receiver<Work>) {
        let mut backlog: VecDeque<TaskId> = self.reader.unsealed().unwrap_or_default().into();
        let mut waiting: Vec<oneshot::Sender<()>> = Vec::new();
        let mut again = false;
        // What comes after the end keeps nothing that is still under way from its processor.
        let _ = rustix::process::setpriority_process(None, NICE);
        // Known before anything is signed with it; tried again with the first receipt.
        let _ = self.announce();
        loop {
            let first = match backlog.is_empty() || self.key.is_none() {
                // It may be put back.
                true if self.key.is_none() => match work.recv_timeout(KEY_BACK) {
                    Ok(first) => Some(first),
                    Err(mpsc::RecvTimeoutError::Timeout) => None,
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                },
                true => match work.recv() {
                    Ok(first) => Some(first),
                    Err(_) => return,
                },
                // Nothing tells when a full disk has room again.
                false if again => work.recv_timeout(RETRY).ok(),
                // Those who settle meanwhile are sealed together. Whoever waits for all of them does not wait for that.
                false if waiting.is_empty() && self.rests() > Duration::ZERO => work.recv_timeout(self.rests()).ok(),
                false => work.try_recv().ok(),
            };
            for asked in first.into_iter().chain(std::iter::from_fn(|| work.try_recv().ok())) {
                match asked {
                    Work::Seal(task) => {
                        if backlog.is_empty() {
                            self.rest_for(GATHER);
                        }
                        backlog.push_back(task);
                    }
                    Work::Barrier(reply) => waiting.push(reply),
                    Work::Head(reply) => drop(reply.send(self.head())),
                    Work::Expiry { task, reply } => drop(reply.send(self.expiry(task))),
                    Work::Rotate { lost, reply } => drop(reply.send(self.rotate(lost))),
                }
            }
            if self.key.is_none() && self.reads {
                self.find_key();
            }
            if self.key.is_none() {
                // There is nothing to wait for. What has settled is found in the ledger when there is a key again.
                waiting.clear();
                backlog.drain(..).for_each(|task| self.given.forget(task));
                continue;
            }
            if backlog.is_empty() {
                let unsealed = self.reader.unsealed().unwrap_or_default();
                backlog = unsealed.into_iter().filter(|task| !self.gave_up(*task)).collect();
            }
            if waiting.is_empty() && self.rests() > Duration::ZERO {
                continue;
            }
            let round: Vec<TaskId> = backlog.drain(..backlog.len().min(ROUND)).collect();
            let now = match self.round(&round) {
                Ok(failed) => {
                    again = !failed.is_empty();
                    failed.into_iter().for_each(|(task, why)| self.failed(task, why, &mut backlog));
                    self.stuck()
                }
                Err(why) => {
                    again = true;
                    backlog.extend(round);
                    Sealing::Fails(why)
                }
            };
            let before = self.sealing.send_replace(now.clone());
            if let (Sealing::Fails(why) | Sealing::Stuck(why), true) = (&now, before != now) {
                crate::log!("receipts: {why}");
            }
            if backlog.is_empty() {
                for reply in waiting.drain(..) {
                    let _ = reply.send(());
                }
            }
        }
    }

    /// Looks whether the key has been put back.
    fn find_key(&mut self) {
        if let Ok(key) = load_key(&self.home, &self.reader) {
            self.announced = self.reader.keys().is_ok_and(|keys| !keys.is_empty());
            self.key = Some(key);
            self.sealing.send_replace(Sealing::Works);
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
    fn failed(&mut self, task: TaskId, why: String, backlog: &mut VecDeque<TaskId>) {
        let (tries, last) = self.troubled.entry(task).or_default();
        (*tries, *last) = (*tries + 1, why);
        if *tries < TRIES {
            backlog.push_back(task);
        }
    }

    fn gave_up(&self, task: TaskId) -> bool {
        self.troubled.get(&task).is_some_and(|(tries, _)| *tries >= TRIES)
    }

    fn stuck(&self) -> Sealing {
        let mut stuck = self.troubled.iter().filter(|(_, (tries, _))| *tries >= TRIES);
        match stuck.next() {
            None => Sealing::Works,
            Some((task, (_, why))) => {
                let more = stuck.count();
                let more = if more == 0 { String::new() } else { format!(", and {more} more") };
                Sealing::Stuck(format!("{task} has none: {why}{more}; the next daemon tries again"))
            }
        }
    }

    /// Seals some tasks, in one commit. Those that cannot be, and why, come back: they do not keep the others.
    fn round(&mut self, tasks: &[TaskId]) -> Result<Vec<(TaskId, String)>, String> {
        self.announce()?;
        let (mut open, mut failed, mut seen) = (Vec::with_capacity(tasks.len()), Vec::new(), HashSet::new());
        let tasks: Vec<TaskId> = tasks.iter().copied().filter(|task| seen.insert(*task)).collect();
        closing::sync(&self.home, &tasks).map_err(|e| format!("what tasks left cannot be synced: {e}"))?;
        for task in tasks {
            match self.closed(task) {
                Ok(closed) => open.extend(closed),
                Err(e) => failed.push((task, e)),
            }
        }
        if open.is_empty() {
            return Ok(failed);
        }
        let ran = open.iter().filter_map(|c| c.account.state.launched_at).min().unwrap_or_else(clock::now);
        let mut scans = Scans::since(ran, self.skip.clone(), self.file_key);
        let (n, head) = self.reader.head().map_err(|e| e.to_string())?;
        let ledger_head =
            LedgerHead { decision: Count(u64::try_from(n).unwrap_or(0)), sha256: head.ok_or("the ledger is empty")? };
        let last = self.reader.last_receipt().map_err(|e| e.to_string())?;
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
        self.decide(events).map_err(|e| e.to_string())?;
        crash::point("seal.after_commit");
        for task in sealed_now {
            self.given.forget(task);
            self.troubled.remove(&task);
        }
        Ok(failed)
    }

    /// What is known of a settled task; none when it has its receipt already.
    fn closed(&self, task: TaskId) -> Result<Option<Closed>, String> {
        if self.reader.is_sealed(task).map_err(|e| e.to_string())? {
            return Ok(None);
        }
        Closed::read(&self.home, &self.reader, task).map_err(|e| e.to_string())
    }

    fn seal(
        &mut self,
        closed: &mut Closed,
        scans: &mut Scans,
        number: u64,
        prev: Option<Digest>,
        ledger_head: LedgerHead,
    ) -> Result<(Event, Digest), String> {
        let (task, seq, at) = (closed.account.state.task_id, closed.next_seq, clock::now());
        let key = self.key.as_ref().ok_or("there is no key")?;
        let settled = self.reader.settled_by(task).map_err(|e| e.to_string())?.filter(|n| *n <= self.began_after);
        let late = match settled {
            Some(n) => self.after_a_crash || self.reader.crashed_since(n).map_err(|e| e.to_string())?,
            None => false,
        };
        let touched = self.look(closed, scans);
        if let Some(touched) = &touched {
            let decision = Decision::Touched(touched.clone());
            let line = Record::decision_line(seq, at, &decision);
            closed.add(&line, &Record { seq, at, t_us: None, what: What::Decision(decision) });
        }
        let receipt = ReceiptId::mint(&mut self.mint, at.millis(), u32::from_le_bytes(random()));
        let seal = Seal { receipt, number, prev, ledger_head, at, late };
        let statement = Statement::of(&closed.account, &closed.kept(), seal).ok_or("it has not settled")?;
        let payload = statement.payload();
        let signature = key.sign(RECEIPT_TYPE, payload.as_bytes()).to_vec();
        let signed = Box::new(Signed { number, receipt, task, payload, key: key.public().id(), signature });
        let sealed = SealedReceipt { receipt, number, digest: signed.digest(), key: signed.key };
        Ok((Event::Sealed { seq, at, touched, sealed, signed }, sealed.digest))
    }

    /// Has the key in the ledger, before anything is signed with it.
    fn announce(&mut self) -> Result<(), String> {
        let Some(key) = &self.key else { return Err("there is no key".to_owned()) };
        if self.announced {
            return Ok(());
        }
        let public = key.public();
        let first = KeyAnnounced { key: public.id(), public: public.bytes(), by: None, signature: None };
        self.decide(vec![Event::Key(first)]).map_err(|e| e.to_string())?;
        self.announced = true;
        Ok(())
    }

    fn decide(&self, events: Vec<Event>) -> Result<(), Refusal> {
        let gone = || Refusal::new(Code::Draining, "the house is going down");
        let (reply, written) = oneshot::channel();
        self.calls.send(Call::Decide { events, reply }).map_err(|_| gone())?;
        written.blocking_recv().map_err(|_| gone())?
    }

    fn head(&self) -> Result<Envelope, Refusal> {
        let key = self.key.as_ref().ok_or_else(|| no_key(&self.sealing))?;
        let internal = |e: &dyn std::fmt::Display| Refusal::new(Code::Internal, e.to_string());
        let (n, sha256) = self.reader.head().map_err(|e| internal(&e))?;
        let last = self.reader.last_receipt().map_err(|e| internal(&e))?;
        let sha256 = sha256.ok_or_else(|| internal(&"the ledger is empty"))?;
        let head = Head {
            v: 1,
            receipts: Count(last.map_or(0, |(number, _)| number)),
            receipt: last.map(|(_, digest)| digest),
            ledger_head: LedgerHead { decision: Count(u64::try_from(n).unwrap_or(0)), sha256 },
            at: clock::now(),
        };
        let body = serde_json::to_string(&head).map_err(|e| internal(&e))?;
        Ok(Envelope::new(HEAD_TYPE, &body, key.public().id(), &key.sign(HEAD_TYPE, body.as_bytes())))
    }

    fn expiry(&self, task: TaskId) -> Result<SignedWord, Refusal> {
        let key = self.key.as_ref().ok_or_else(|| no_key(&self.sealing))?;
        let signed = self.reader.receipt_of(task).map_err(|e| Refusal::new(Code::Internal, e.to_string()))?;
        let signed = signed.ok_or_else(|| Refusal::new(Code::NotSealed, format!("{task} has no receipt")))?;
        Ok(key.expiry(task, signed.digest()))
    }

    /// Goes over to a new key. The old one speaks for it, unless it is lost.
    fn rotate(&mut self, lost: bool) -> Result<KeyAnnounced, Refusal> {
        let internal = |e: &dyn std::fmt::Display| Refusal::new(Code::Internal, e.to_string());
        let before = match (&self.key, lost) {
            (None, false) => return Err(no_key(&self.sealing)),
            (Some(_), true) => {
                let refusal = Refusal::new(Code::BadRequest, "the key is not lost: it signs");
                return Err(refusal.hint("csn keys rotate, without --lost"));
            }
            (key, _) => key.as_ref(),
        };
        let next = prepare_signing_key(&self.home, before.map(|k| k.public().id())).map_err(|e| internal(&e))?;
        let public = next.public();
        let announced = match before {
            Some(old) => old.announce(public),
            None => KeyAnnounced { key: public.id(), public: public.bytes(), by: None, signature: None },
        };
        self.decide(vec![Event::Key(announced.clone())])?;
        crash::point("seal.before_adopt");
        // Should this fail, the next daemon finds it where it was prepared: the ledger has it.
        if let Err(e) = adopt_signing_key(&self.home) {
            crate::log!("the new key is in use, and not in its place yet: {e}");
        }
        (self.key, self.announced) = (Some(next), true);
        self.sealing.send_replace(Sealing::Works);
        Ok(announced)
    }
}

fn no_key(sealing: &watch::Sender<Sealing>) -> Refusal {
    let why = match &*sealing.borrow() {
        Sealing::Fails(why) | Sealing::Stuck(why) => why.clone(),
        Sealing::Works => "there is no key".to_owned(),
    };
    Refusal::new(Code::SealerUnavailable, why).hint("see `csn doctor`")
}

/// What the tasks that this daemon has launched were given, until they have their receipt: what of it is secret must not
/// stand in the names of files either. Never written anywhere.
#[derive(Clone, Default)]
pub(crate) struct Given(Arc<Mutex<HashMap<TaskId, Words>>>);

struct Words {
    env: Vec<(String, String)>,
    argv: Vec<String>,
}

/// Of more tasks than this it is not kept: their files are counted, and not named.
const MOST_GIVEN: usize = 4096;

impl Given {
    pub(crate) fn keep(&self, task: TaskId, env: &[(String, String)], argv: &[String]) {
        let mut all = self.0.lock().expect("nothing panics while it holds this lock");
        if all.len() < MOST_GIVEN {
            all.insert(task, Words { env: env.to_vec(), argv: argv.to_vec() });
        }
    }

    fn forget(&self, task: TaskId) {
        self.0.lock().expect("nothing panics while it holds this lock").remove(&task);
    }

    /// What takes out the secrets of a task; none when nobody knows them any more.
    fn mask(&self, task: TaskId, key: Digest) -> Option<Mask> {
        let all = self.0.lock().expect("nothing panics while it holds this lock");
        let words = all.get(&task)?;
        let mut known = Known::of_env(words.env.iter().map(|(k, v)| (k.as_str(), v.as_str())));
        known.add_found(words.argv.iter().map(String::as_str));
        Some(Mask::new(key, known))
    }
}

impl Sealer {
    fn is_root(&self, root: &Path, home: &str) -> bool {
        let protected: Vec<String> = self.skip.iter().map(|p| p.to_string_lossy().into_owned()).collect();
        countersign_policy::can_be_root(&root.to_string_lossy(), home, &protected, root.join(".git").exists())
    }

    /// Looks for the files that a task changed, where it could have and nobody knows yet.
    fn look(&self, closed: &Closed, scans: &mut Scans) -> Option<TouchedFiles> {
        let state = &closed.account.state;
        let known = closed.account.files();
        // From its launch on: it may have run for a while before that it did was written down.
        let (from, to) = (state.launched_at.filter(|_| state.spawned_at.is_some())?, state.ended_at?);
        if known.observed != Observed::None {
            return None;
        }
        let roster = self.roster.borrow().clone();
        let session = state.session_id.and_then(|s| roster.session(s));
        // Who is no user of the machine any more has left nothing that anybody can look at.
        let eyes = self.people.eyes(roster.uid(state.principal)).ok()?;
        // Of a session that nobody opened, the place that it stands for.
        let place = session.filter(|s| s.implicit.is_some()).and_then(|s| s.directory.as_ref());
        let roots = session.iter().flat_map(|s| s.roots.iter().chain(&s.folder)).chain(place);
        let mut roots: Vec<PathBuf> = roots.map(|r| PathBuf::from(r.as_str())).collect();
        roots.dedup();
        // Not all of a home or of a disk: that tells nothing about a task, and takes long.
        roots.retain(|root| self.is_root(root, eyes.home()));
        if roots.is_empty() {
            return None;
        }
        let login = eyes.login;
        let found = scans.of(&roots, Window { from, to }, login.as_ref());
        let looked = roots.iter().map(|root| text_by_shape(&root.to_string_lossy())).collect();
        let mut touched = TouchedFiles { observed: Observed::Scan, roots: looked, complete: found.complete, ..known };
        // Without what the task was given, or with what was typed into it unseen, a name may be a secret.
        let mask = self.given.mask(state.task_id, self.file_key).filter(|_| !closed.account.typed_unseen());
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
