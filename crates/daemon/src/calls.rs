//! What the commit loop can be asked, and the handle that asks it.

use crate::{
    case::Case,
    desk::{DeskEvent, FactsAtLaunch},
    facts::{GateSettings, Prepared},
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

/// What others want from the commit loop.
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
    /// Something is to be entered into the register; what came of it, once that is durable.
    Wish {
        wish: RegisterCommand,
        reply: CommitReply<RegisterReply>,
    },
    /// Somebody wants to look something up in the register.
    Read(Box<dyn FnOnce(&Register) + Send>),
    /// Something happened that needs no answer.
    Tell(Box<DeskEvent>),
    /// Decisions about settled tasks or the daemon; answered once they are durable.
    Decide {
        events: Vec<DeskEvent>,
        reply: CommitReply<()>,
    },
    /// What has been decided is moved from the log into the database; told whether all of it was.
    Checkpoint {
        reply: CommitReply<bool>,
    },
    /// The world as it is now for a task that has room, looked at apart: a dead file system holds up the line, and
    /// nobody else.
    Prepared {
        task: TaskId,
        world: FactsAtLaunch,
        prepared: Option<Box<(Prepared, Request)>>,
    },
    /// What others were let run before this moment, and have not told the end of, is given up.
    GiveUp {
        before: Timestamp,
    },
    /// The index over the decisions is rebuilt.
    Rebuild {
        reply: CommitReply<()>,
    },
    /// Everything before this has been written; the launched tasks.
    Barrier {
        reply: oneshot::Sender<Vec<TaskId>>,
    },
    /// The last call.
    Halt {
        reply: oneshot::Sender<()>,
    },
}

/// A request that has been read and looked at, with everything that is said about it clean. The commit loop judges.
pub(crate) struct AskCall {
    pub(crate) request: Request,
    pub(crate) prepared: Prepared,
    pub(crate) planned: Decision,
    pub(crate) requester: Requester,
    /// The session of this credential and place, if it seemed that there is none yet.
    pub(crate) opens: Option<Box<Session>>,
    pub(crate) texts: CleanTexts,
    /// It cannot be allowed, for this reason, whatever the judge says.
    pub(crate) refused: Option<Refusal>,
    pub(crate) asker: Option<Process>,
    pub(crate) idempotency: Option<Idempotency>,
    /// How it was judged already, where whoever puts it has done so to refuse it.
    pub(crate) judged: Option<Box<Assessment>>,
}

impl AskCall {
    /// The case that it is, in this session and with these grants.
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

    /// Puts on record what only a judgement tells: the verbs that matter, and the risks.
    pub(crate) fn note(&mut self, assessment: &Assessment) {
        if let Decision::Planned { verb, risks, .. } = &mut self.planned {
            *risks = assessment.risk_set();
            if self.request.tool != Tool::SetWorkingDirectory {
                *verb = self.texts.verbs(&self.prepared.plan, assessment);
            }
        }
    }
}

/// An answer to a question, and the world looked at again: what was approved must be what runs.
pub(crate) struct AnswerCall {
    pub(crate) task: TaskId,
    pub(crate) approval: ApprovalId,
    pub(crate) choice: Choice,
    /// What is saved covers other operands too.
    pub(crate) any_arguments: bool,
    pub(crate) words: Option<Text>,
    pub(crate) by: DecidedBy,
    pub(crate) world: FactsAtLaunch,
    pub(crate) prepared: Option<(Prepared, Request)>,
}

/// What became of an ask.
#[derive(Debug, Clone)]
pub(crate) struct AskOutcome {
    pub(crate) task: TaskId,
    pub(crate) denied: Option<Refusal>,
    /// As it was when it was asked; none for one that had been asked before.
    pub(crate) state: Option<Box<TaskState>>,
    /// The same request waits already: this is its task.
    pub(crate) joined: bool,
}

/// Sends calls to the commit loop and awaits their replies. When the loop is gone, every call is refused as draining.
#[derive(Clone)]
pub(crate) struct CommitHandle {
    calls: mpsc::Sender<CommitCall>,
}

impl CommitHandle {
    /// A handle, and the end at which the loop takes its calls.
    pub(crate) fn new() -> (Self, mpsc::Receiver<CommitCall>) {
        let (calls, called) = mpsc::channel();
        (Self { calls }, called)
    }

    pub(crate) async fn ask(&self, asking: AskCall) -> Result<AskOutcome, Refusal> {
        call(&self.calls, |reply| CommitCall::Ask { asking: Box::new(asking), reply }).await?
    }

    pub(crate) async fn answer(&self, answering: AnswerCall) -> Result<(), Refusal> {
        call(&self.calls, |reply| CommitCall::Answer { answering: Box::new(answering), reply }).await?
    }

    /// Takes back a task that has not been launched.
    pub(crate) async fn withdraw(&self, task: TaskId, by: Text) -> Result<(), Refusal> {
        call(&self.calls, |reply| CommitCall::Withdraw { task, by, reply }).await?
    }

    /// Has something entered into the register; what came of it, once that is durable.
    pub(crate) async fn register(&self, wish: RegisterCommand) -> Result<RegisterReply, Refusal> {
        call(&self.calls, |reply| CommitCall::Wish { wish, reply }).await?
    }

    /// Has something entered into the register, and does not wait for it.
    pub(crate) fn register_later(&self, wish: RegisterCommand) {
        let (reply, _) = oneshot::channel();
        let _ = self.calls.send(CommitCall::Wish { wish, reply });
    }

    /// Looks something up in the register, as it is between two commits.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Register) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let read = |reply: oneshot::Sender<T>| {
            CommitCall::Read(Box::new(move |register: &Register| drop(reply.send(read(register)))))
        };
        call(&self.calls, read).await
    }

    /// Reports what has happened. Without the loop nobody needs to know: the next daemon reads the same from the disk.
    pub(crate) fn send_event(&self, event: DeskEvent) {
        let _ = self.calls.send(CommitCall::Tell(Box::new(event)));
    }

    /// Decides about settled tasks or the daemon; returns once that is durable.
    pub(crate) async fn decide(&self, events: Vec<DeskEvent>) -> Result<(), Refusal> {
        call(&self.calls, |reply| CommitCall::Decide { events, reply }).await?
    }

    /// As [`Self::decide`], for a thread outside the runtime.
    pub(crate) fn decide_blocking(&self, events: Vec<DeskEvent>) -> Result<(), Refusal> {
        let (reply, written) = oneshot::channel();
        self.calls.send(CommitCall::Decide { events, reply }).map_err(|_| gone())?;
        written.blocking_recv().map_err(|_| gone())?
    }

    /// Hands over what was found when the world was looked at again for a task. False when the loop is gone.
    pub(crate) fn finish_preparing(
        &self,
        task: TaskId,
        world: FactsAtLaunch,
        prepared: Option<(Prepared, Request)>,
    ) -> bool {
        self.calls.send(CommitCall::Prepared { task, world, prepared: prepared.map(Box::new) }).is_ok()
    }

    /// Gives up what others were let run before this moment and have not told the end of.
    pub(crate) fn give_up(&self, before: Timestamp) {
        let _ = self.calls.send(CommitCall::GiveUp { before });
    }

    /// Moves what has been decided from the log into the database; whether all of it was moved.
    pub(crate) async fn checkpoint(&self) -> Result<bool, Refusal> {
        call(&self.calls, |reply| CommitCall::Checkpoint { reply }).await?
    }

    /// Rebuilds the index over the decisions.
    pub(crate) async fn rebuild(&self) -> Result<(), Refusal> {
        call(&self.calls, |reply| CommitCall::Rebuild { reply }).await?
    }

    /// Waits until everything before this has been written; the launched tasks.
    pub(crate) async fn barrier(&self) -> Result<Vec<TaskId>, Refusal> {
        call(&self.calls, |reply| CommitCall::Barrier { reply }).await
    }

    /// Ends the loop; returns when it has closed the ledger.
    pub(crate) async fn halt(&self) -> Result<(), Refusal> {
        call(&self.calls, |reply| CommitCall::Halt { reply }).await
    }
}

/// Sends one call to a thread that serves calls, and awaits its reply.
pub(crate) async fn call<C, T>(
    calls: &mpsc::Sender<C>,
    make: impl FnOnce(oneshot::Sender<T>) -> C,
) -> Result<T, Refusal> {
    let (reply, answer) = oneshot::channel();
    calls.send(make(reply)).map_err(|_| gone())?;
    answer.await.map_err(|_| gone())
}

fn gone() -> Refusal {
    Refusal::new(RefusalCode::Draining, "the house is going down")
}
