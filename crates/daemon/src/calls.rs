//! The calls that the commit loop serves, and the handle that sends them.

use crate::{
    case::Case,
    desk::{DeskEvent, FactsAtLaunch},
    facts::{GateSettings, PreparedRequest},
    question::CleanTexts,
    register_command::{RegisterCommand, RegisterReply},
};
use countersign_model::{
    ApprovalId, Assessment, Choice, DecidedBy, Decision, Grants, Idempotency, Process, Refusal, RefusalCode, Register,
    Request, Requester, Session, TaskId, TaskState, Text, Timestamp, Tool,
};
use std::sync::mpsc;
use tokio::sync::oneshot;

pub(crate) type CommitReply<T> = oneshot::Sender<Result<T, Refusal>>;

/// A call to the commit loop.
pub(crate) enum CommitCall {
    Ask {
        asking: Box<AskCall>,
        reply: CommitReply<AskOutcome>,
    },
    Answer {
        answering: Box<AnswerCall>,
        reply: CommitReply<()>,
    },
    Withdraw {
        task: TaskId,
        by: Text,
        reply: CommitReply<()>,
    },
    /// Enters something into the register; replies once that is durable.
    Register {
        command: RegisterCommand,
        reply: CommitReply<RegisterReply>,
    },
    /// Reads the register.
    ReadRegister(Box<dyn FnOnce(&Register) + Send>),
    /// Reports an event that needs no reply.
    Event(Box<DeskEvent>),
    /// Decides about settled tasks or the daemon; replies once that is durable.
    Decide {
        events: Vec<DeskEvent>,
        reply: CommitReply<()>,
    },
    /// Moves decisions from the write-ahead log into the database; replies whether all of them were moved.
    Checkpoint {
        reply: CommitReply<bool>,
    },
    /// The facts of a waiting task, prepared again on a thread of its own: a hanging file system delays the queue and
    /// nothing else.
    Prepared {
        task: TaskId,
        world: FactsAtLaunch,
        prepared: Option<Box<(PreparedRequest, Request)>>,
    },
    /// Settles the tasks that agents run themselves, started before this time, whose outcome was never reported.
    GiveUpUnreported {
        before: Timestamp,
    },
    /// Rebuilds the index over the decisions.
    RebuildIndex {
        reply: CommitReply<()>,
    },
    /// Replies with the launched tasks, once all earlier calls are committed.
    Barrier {
        reply: oneshot::Sender<Vec<TaskId>>,
    },
    /// Ends the loop.
    Halt {
        reply: oneshot::Sender<()>,
    },
}

/// A request that has been read and prepared, with all its texts redacted. The commit loop judges it.
pub(crate) struct AskCall {
    pub(crate) request: Request,
    pub(crate) prepared: PreparedRequest,
    pub(crate) planned: Decision,
    pub(crate) requester: Requester,
    /// The implicit session to open, if the caller found none for this credential and directory.
    pub(crate) opens: Option<Box<Session>>,
    pub(crate) texts: CleanTexts,
    /// A refusal that no verdict can lift.
    pub(crate) refused: Option<Refusal>,
    pub(crate) asker: Option<Process>,
    pub(crate) idempotency: Option<Idempotency>,
    /// The earlier verdict, if the caller judged the request and refused it.
    pub(crate) judged: Option<Box<Assessment>>,
}

impl AskCall {
    /// The case of this request, in this session and with these grants.
    pub(crate) fn case<'a>(
        &'a self,
        settings: &'a GateSettings,
        session: Option<&'a Session>,
        grants: &'a Grants,
        now: Timestamp,
    ) -> Case<'a> {
        let Self { request, prepared, requester, .. } = self;
        Case { request, prepared, settings, requester, session, grants, now }
    }

    /// Records what only the verdict shows: the verbs that matter, and the risks.
    pub(crate) fn record_verdict(&mut self, assessment: &Assessment) {
        if let Decision::Planned { verb, risks, .. } = &mut self.planned {
            *risks = assessment.risk_set();
            if self.request.tool != Tool::SetWorkingDirectory {
                *verb = self.texts.verbs(&self.prepared.plan, assessment);
            }
        }
    }
}

/// An answer to an approval, with the facts prepared again: only what was approved may run.
pub(crate) struct AnswerCall {
    pub(crate) task: TaskId,
    pub(crate) approval: ApprovalId,
    pub(crate) choice: Choice,
    /// Whether a saved grant covers other operands too.
    pub(crate) any_arguments: bool,
    pub(crate) words: Option<Text>,
    pub(crate) by: DecidedBy,
    pub(crate) world: FactsAtLaunch,
    pub(crate) prepared: Option<(PreparedRequest, Request)>,
}

/// The outcome of an ask.
#[derive(Debug, Clone)]
pub(crate) struct AskOutcome {
    pub(crate) task: TaskId,
    pub(crate) denied: Option<Refusal>,
    /// The state after the ask; none for a request that was repeated.
    pub(crate) state: Option<Box<TaskState>>,
    /// An identical request waits already; this is its task.
    pub(crate) joined: bool,
}

/// Sends calls to the commit loop and awaits their replies. If the loop has ended, every call is refused as draining.
#[derive(Clone)]
pub(crate) struct CommitHandle {
    calls: mpsc::Sender<CommitCall>,
}

impl CommitHandle {
    /// A handle, and the receiving end of its calls.
    pub(crate) fn new() -> (Self, mpsc::Receiver<CommitCall>) {
        let (calls, called) = mpsc::channel();
        (Self { calls }, called)
    }

    pub(crate) async fn ask(&self, asking: AskCall) -> Result<AskOutcome, Refusal> {
        send_call(&self.calls, |reply| CommitCall::Ask { asking: Box::new(asking), reply }).await?
    }

    /// Sends a request without waiting for its outcome. The reply is dropped if the loop has ended.
    pub(crate) fn send_ask(&self, asking: AskCall, reply: CommitReply<AskOutcome>) {
        let _ = self.calls.send(CommitCall::Ask { asking: Box::new(asking), reply });
    }

    pub(crate) async fn answer(&self, answering: AnswerCall) -> Result<(), Refusal> {
        send_call(&self.calls, |reply| CommitCall::Answer { answering: Box::new(answering), reply }).await?
    }

    /// Withdraws a task that has not been launched.
    pub(crate) async fn withdraw(&self, task: TaskId, by: Text) -> Result<(), Refusal> {
        send_call(&self.calls, |reply| CommitCall::Withdraw { task, by, reply }).await?
    }

    /// Enters something into the register; returns the reply once that is durable.
    pub(crate) async fn register(&self, command: RegisterCommand) -> Result<RegisterReply, Refusal> {
        send_call(&self.calls, |reply| CommitCall::Register { command, reply }).await?
    }

    /// Enters something into the register without waiting for it.
    pub(crate) fn register_later(&self, command: RegisterCommand) {
        let (reply, _) = oneshot::channel();
        let _ = self.calls.send(CommitCall::Register { command, reply });
    }

    /// Reads the register between two commits.
    pub(crate) async fn read_register<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Register) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let read = |reply: oneshot::Sender<T>| {
            CommitCall::ReadRegister(Box::new(move |register: &Register| drop(reply.send(read(register)))))
        };
        send_call(&self.calls, read).await
    }

    /// Reports an event. If the loop has ended, the event is lost: the next daemon finds the same facts on disk.
    pub(crate) fn send_event(&self, event: DeskEvent) {
        let _ = self.calls.send(CommitCall::Event(Box::new(event)));
    }

    /// Decides about settled tasks or the daemon; returns once that is durable.
    pub(crate) async fn decide(&self, events: Vec<DeskEvent>) -> Result<(), Refusal> {
        send_call(&self.calls, |reply| CommitCall::Decide { events, reply }).await?
    }

    /// Like [`Self::decide`], for a thread outside the runtime.
    pub(crate) fn decide_blocking(&self, events: Vec<DeskEvent>) -> Result<(), Refusal> {
        let (reply, written) = oneshot::channel();
        self.calls.send(CommitCall::Decide { events, reply }).map_err(|_| loop_ended())?;
        written.blocking_recv().map_err(|_| loop_ended())?
    }

    /// Delivers the facts of a task that was prepared again. Returns false if the loop has ended.
    pub(crate) fn finish_preparing(
        &self,
        task: TaskId,
        world: FactsAtLaunch,
        prepared: Option<(PreparedRequest, Request)>,
    ) -> bool {
        self.calls.send(CommitCall::Prepared { task, world, prepared: prepared.map(Box::new) }).is_ok()
    }

    /// Settles unreported tasks of agents that started before this time.
    pub(crate) fn give_up_unreported(&self, before: Timestamp) {
        let _ = self.calls.send(CommitCall::GiveUpUnreported { before });
    }

    /// Moves decisions from the write-ahead log into the database; returns whether all of them were moved.
    pub(crate) async fn checkpoint(&self) -> Result<bool, Refusal> {
        send_call(&self.calls, |reply| CommitCall::Checkpoint { reply }).await?
    }

    /// Rebuilds the index over the decisions.
    pub(crate) async fn rebuild_index(&self) -> Result<(), Refusal> {
        send_call(&self.calls, |reply| CommitCall::RebuildIndex { reply }).await?
    }

    /// Waits until all earlier calls are committed; returns the launched tasks.
    pub(crate) async fn barrier(&self) -> Result<Vec<TaskId>, Refusal> {
        send_call(&self.calls, |reply| CommitCall::Barrier { reply }).await
    }

    /// Ends the loop; returns once it has closed the ledger.
    pub(crate) async fn halt(&self) -> Result<(), Refusal> {
        send_call(&self.calls, |reply| CommitCall::Halt { reply }).await
    }
}

/// Sends one call to a thread that serves calls, and awaits its reply.
pub(crate) async fn send_call<C, T>(
    calls: &mpsc::Sender<C>,
    make: impl FnOnce(oneshot::Sender<T>) -> C,
) -> Result<T, Refusal> {
    let (reply, answer) = oneshot::channel();
    calls.send(make(reply)).map_err(|_| loop_ended())?;
    answer.await.map_err(|_| loop_ended())
}

pub(crate) fn loop_ended() -> Refusal {
    Refusal::new(RefusalCode::Draining, "the daemon is stopping")
}
