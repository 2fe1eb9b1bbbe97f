//! The most frequent calls as methods. Each one sends a call of [`crate::calls`].

use crate::{Body, Client, ClientError, Events, Result, calls};
use countersign_model::{
    Approval, ApprovalId, Choice, Digest, KeyAnnounced, Request, Session, SessionId, SignalName, StreamName, TaskId,
    TaskState,
    api::{
        AnswerBody, ApprovalQuery, GcBody, GcReport, GrantBody, GrantQuery, GrantView, HookAfterBody,
        HookAfterResponse, HookBeforeBody, HookBeforeResponse, KeyView, Lifecycle, McpSessionBody, NewToken,
        OpenSessionBody, OutputQuery, ReceiptPage, ReceiptQuery, RedeemBody, RedeemResponse, ScreenView, SearchPage,
        SearchQuery, SessionMove, SessionQuery, StdinBody, StopTasks, TaskPage, TaskQuery, TokenBody, TokenView,
    },
    cast::Version,
};
use std::{fmt::Display, net::SocketAddr};

/// The page size for methods that fetch all pages.
const PAGE_ROWS: usize = 500;

/// Tasks.
impl Client {
    /// Requests a command. A denial is a refusal that names its task.
    pub fn ask(&self, request: &Request) -> Result<TaskState> {
        Ok(self.send(&calls::tasks::ask(request))?.task)
    }

    pub fn tasks(&self, query: &TaskQuery) -> Result<TaskPage> {
        self.send(&calls::tasks::list(query))
    }

    /// A task by its id or a prefix of it.
    pub fn task(&self, id: &str) -> Result<TaskState> {
        self.send(&calls::tasks::show(id))
    }

    /// A task after it has settled, or as it is after `wait_ms`.
    pub fn wait(&self, task: TaskId, wait_ms: u64) -> Result<TaskState> {
        self.send(&calls::tasks::wait(task, wait_ms))
    }

    /// The records of a task after number `after`.
    #[must_use]
    pub fn events(&self, task: TaskId, after: Option<u64>) -> Events {
        let call = calls::tasks::events(task);
        self.follow(match after {
            Some(seq) => call.after(seq),
            None => call,
        })
    }

    pub fn cancel(&self, task: TaskId, reason: Option<&str>) -> Result<()> {
        self.send(&calls::control::cancel(task, reason)).map(drop)
    }

    pub fn signal(&self, task: TaskId, signal: SignalName) -> Result<()> {
        self.send(&calls::control::signal(task, signal)).map(drop)
    }

    /// Sends input to a task; returns the number of the record that documents it.
    pub fn stdin(&self, task: TaskId, body: &StdinBody) -> Result<u64> {
        Ok(self.send(&calls::control::stdin(task, body))?.seq)
    }

    /// Sends input to a task with a key: if it is sent again, it is applied once.
    pub fn stdin_with_key(&self, task: TaskId, body: &StdinBody, key: &str) -> Result<u64> {
        Ok(self.send(&calls::control::stdin(task, body).with_key(key))?.seq)
    }

    /// Resizes the terminal of a task; returns the number of the record that documents it.
    pub fn resize(&self, task: TaskId, rows: u16, cols: u16) -> Result<u64> {
        Ok(self.send(&calls::control::resize(task, rows, cols))?.seq)
    }
}

/// Output of tasks.
impl Client {
    /// Stored bytes from `offset` on, at most `max`; empty at the end.
    pub fn output(&self, task: TaskId, stream: StreamName, offset: u64, max: u64) -> Result<Vec<u8>> {
        let (offset_bytes, max_bytes) = (Some(offset), Some(max));
        let query = OutputQuery { stream: Some(stream), offset_bytes, max_bytes, ..OutputQuery::default() };
        self.send(&calls::output::bytes(task, &query))
    }

    /// The offset at which the last `lines` lines of a stream begin.
    pub fn tail(&self, task: TaskId, stream: StreamName, lines: u64) -> Result<u64> {
        let query =
            OutputQuery { stream: Some(stream), tail_lines: Some(lines), max_bytes: Some(0), ..Default::default() };
        Ok(self.send(&calls::output::page(task, &query))?.offset_bytes)
    }

    /// The offsets at which the lines `line` to `line + lines` of a stream begin and end.
    pub fn lines(&self, task: TaskId, stream: StreamName, line: u64, lines: u64) -> Result<(u64, u64)> {
        let (line, lines, max_bytes) = (Some(line), Some(lines), Some(0));
        let query = OutputQuery { stream: Some(stream), line, lines, max_bytes, ..OutputQuery::default() };
        let page = self.send(&calls::output::page(task, &query))?;
        Ok((page.offset_bytes, page.end_offset))
    }

    /// A page of matches.
    pub fn search(&self, task: TaskId, query: &SearchQuery) -> Result<SearchPage> {
        self.send(&calls::output::search(task, query))
    }

    /// The recording as asciicast, as it arrives.
    pub fn cast(&self, task: TaskId, version: Version) -> Result<Body> {
        self.open(&calls::output::cast(task, Some(version)))
    }

    /// What a terminal shows.
    pub fn screen(&self, task: TaskId) -> Result<ScreenView> {
        self.send(&calls::output::screen(task))
    }
}

/// Approvals and grants.
impl Client {
    /// All pages of approvals: those that wait and have a card, oldest first; or all, newest first.
    pub fn approvals(&self, all: bool) -> Result<Vec<Approval>> {
        Ok(self.approvals_with_hidden_count(all)?.0)
    }

    /// All pages of approvals, and the number of approvals that wait without a card.
    pub fn approvals_with_hidden_count(&self, all: bool) -> Result<(Vec<Approval>, usize)> {
        let mut query = ApprovalQuery { all, cursor: None, limit: Some(PAGE_ROWS) };
        let mut found = Vec::new();
        loop {
            let page = self.send(&calls::approvals::list(&query))?;
            found.extend(page.approvals);
            query.cursor = page.next;
            if query.cursor.is_none() {
                return Ok((found, page.without_card));
            }
        }
    }

    /// Approvals as they are opened and resolved, beginning with the waiting ones.
    #[must_use]
    pub fn approval_events(&self) -> Events<Approval> {
        self.follow(calls::approvals::events())
    }

    /// An approval by its id or a prefix of it.
    pub fn approval(&self, id: &str) -> Result<Approval> {
        self.send(&calls::approvals::show(id))
    }

    pub fn answer(&self, id: ApprovalId, choice: Choice, words: Option<&str>) -> Result<Approval> {
        self.answer_with(id, choice, words, false)
    }

    /// Answers an approval; with `any_arguments`, the saved grant covers other operands too.
    pub fn answer_with(
        &self,
        id: ApprovalId,
        choice: Choice,
        words: Option<&str>,
        any_arguments: bool,
    ) -> Result<Approval> {
        let body = AnswerBody { choice, words: words.map(str::to_owned), any_arguments };
        self.send(&calls::approvals::answer(id, &body))
    }

    /// Every valid grant, newest first.
    pub fn grants(&self) -> Result<Vec<GrantView>> {
        let mut query = GrantQuery { limit: Some(PAGE_ROWS), ..GrantQuery::default() };
        let mut found = Vec::new();
        loop {
            let page = self.send(&calls::grants::list(&query))?;
            found.extend(page.grants);
            query.cursor = page.next;
            if query.cursor.is_none() {
                return Ok(found);
            }
        }
    }

    pub fn grant(&self, body: &GrantBody) -> Result<GrantView> {
        self.send(&calls::grants::add(body))
    }

    pub fn revoke_grant(&self, id: impl Display) -> Result<GrantView> {
        self.send(&calls::grants::revoke(id))
    }

    /// From now on, commands that the grant covers run in the narrowest sandbox for their risks.
    pub fn narrow_grant(&self, id: impl Display) -> Result<GrantView> {
        self.send(&calls::grants::narrow(id))
    }
}

/// Sessions and tokens.
impl Client {
    pub fn open_session(&self, body: &OpenSessionBody) -> Result<Session> {
        self.send(&calls::sessions::open(body))
    }

    pub fn session(&self, id: &str) -> Result<Session> {
        self.send(&calls::sessions::show(id))
    }

    /// Every open session, or all sessions, newest first.
    pub fn sessions(&self, all: bool) -> Result<Vec<Session>> {
        let mut query = SessionQuery { all, cursor: None, limit: Some(PAGE_ROWS) };
        let mut found = Vec::new();
        loop {
            let page = self.send(&calls::sessions::list(&query))?;
            found.extend(page.sessions);
            query.cursor = page.next;
            if query.cursor.is_none() {
                return Ok(found);
            }
        }
    }

    /// Moves a session to another directory: returns the session, or the task that waits for a person's approval.
    pub fn set_directory(&self, id: &str, directory: &str) -> Result<SessionMove> {
        self.send(&calls::sessions::set_directory(id, directory))
    }

    /// Ends a session; returns the tasks that were stopped with it.
    pub fn end_session(&self, id: &str) -> Result<Vec<TaskId>> {
        Ok(self.send(&calls::sessions::end(id))?.stopped)
    }

    /// Creates a token; only this answer contains it.
    pub fn create_token(&self, body: &TokenBody) -> Result<NewToken> {
        self.send(&calls::tokens::create(body))
    }

    pub fn tokens(&self) -> Result<Vec<TokenView>> {
        Ok(self.send(&calls::tokens::list())?.tokens)
    }

    pub fn revoke_token(&self, id: &str) -> Result<TokenView> {
        self.send(&calls::tokens::revoke(id))
    }
}

/// Receipts and keys.
impl Client {
    /// The signed envelope of a receipt, by task, id or number. Waits for a receipt that is about to be sealed.
    pub fn receipt(&self, id: &str, wait_ms: u64) -> Result<Vec<u8>> {
        self.send(&calls::receipts::show(id, wait_ms))
    }

    /// A page of receipts, newest first.
    pub fn receipts(&self, limit: usize, cursor: Option<u64>) -> Result<ReceiptPage> {
        self.send(&calls::receipts::list(&ReceiptQuery { cursor, limit: Some(limit) }))
    }

    /// A signed ledger head.
    pub fn signed_head(&self) -> Result<Vec<u8>> {
        self.send(&calls::receipts::signed_head())
    }

    /// Every key that receipts were signed with, oldest first.
    pub fn keys(&self) -> Result<Vec<KeyView>> {
        Ok(self.send(&calls::receipts::keys())?.keys)
    }

    /// Switches to a new key; returns its announcement.
    pub fn rotate_key(&self, lost: bool) -> Result<KeyAnnounced> {
        self.send(&calls::receipts::rotate_key(lost))
    }

    /// A file by its digest, as it arrives, and its length.
    pub fn artifact(&self, sha256: Digest) -> Result<(u64, Body)> {
        let body = self.open(&calls::receipts::artifact(sha256))?;
        let length = body.length().ok_or_else(|| ClientError::unreadable("an artifact without a length"))?;
        Ok((length, body))
    }
}

/// The daemon itself.
impl Client {
    /// The state of the daemon. A daemon that does not answer within seconds counts as gone.
    pub fn lifecycle(&self) -> Result<Lifecycle> {
        self.send(&calls::lifecycle::show())
    }

    /// Stops the daemon, with or without its tasks; without an argument, the configuration decides.
    pub fn stop(&self, tasks: Option<StopTasks>) -> Result<()> {
        self.send(&calls::lifecycle::stop(tasks)).map(drop)
    }

    /// Makes the daemon listen on loopback too; returns the address.
    pub fn listen(&self, tcp: Option<SocketAddr>) -> Result<SocketAddr> {
        Ok(self.send(&calls::lifecycle::listen(tcp))?.tcp)
    }

    /// Removes old tasks; returns what was removed.
    pub fn gc(&self, body: &GcBody) -> Result<GcReport> {
        self.send(&calls::lifecycle::gc(body))
    }

    /// Rebuilds the index of the ledger.
    pub fn rebuild(&self) -> Result<()> {
        self.send(&calls::lifecycle::rebuild()).map(drop)
    }
}

/// Agents.
impl Client {
    /// Asks before an agent runs a command.
    pub fn hook(&self, body: &HookBeforeBody) -> Result<HookBeforeResponse> {
        self.send(&calls::hooks::before(body))
    }

    /// Reports the result of a command that the agent ran itself.
    pub fn hook_after(&self, body: &HookAfterBody) -> Result<HookAfterResponse> {
        self.send(&calls::hooks::after(body))
    }

    /// Runs the command of a ticket.
    pub fn redeem(&self, ticket: &str, body: &RedeemBody) -> Result<RedeemResponse> {
        self.send(&calls::hooks::redeem(ticket, body))
    }

    /// The task of a redeemed ticket.
    pub fn ticket(&self, ticket: &str) -> Result<TaskState> {
        self.send(&calls::hooks::ticket_task(ticket))
    }

    /// Opens the session of an MCP connection.
    pub fn mcp_session(&self, body: &McpSessionBody) -> Result<SessionId> {
        Ok(self.send(&calls::mcp::session(body))?.session_id)
    }

    /// An MCP connection with one message per line; [`Body::writer`] is the sending side.
    pub fn mcp(&self, session: SessionId) -> Result<Body> {
        let body = self.open(&calls::mcp::stdio(session))?;
        match body.status() {
            101 => Ok(body),
            status => Err(ClientError::unreadable(format!("status {status} instead of a conversation"))),
        }
    }
}
