//! Starting shims (from the daemon) and the daemon itself (from a client). Both without `pre_exec`, so that std uses
//! posix_spawn: forking a daemon would cost more the more memory it has.

use crate::wire::{self, FromShim, PROTOCOL, ToShim};
use countersign_model::Order;
use countersign_store::clock;
use rustix::{
    fd::AsFd as _,
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
};
use std::{
    io::{self, IoSlice, Read, Write as _},
    mem::MaybeUninit,
    os::unix::{
        net::UnixStream,
        process::{CommandExt as _, ExitStatusExt as _},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    time::Duration,
};

/// How long a nursery or a shim that has been stopped may hold up the house.
const PATIENCE: Duration = Duration::from_secs(5);

/// The process that shims are forked from. One per daemon; started again when it is gone.
pub struct Nursery {
    shim: PathBuf,
    process: Option<(Child, UnixStream)>,
}

impl Nursery {
    #[must_use]
    pub fn new(shim: PathBuf) -> Self {
        Self { shim, process: None }
    }

    #[must_use]
    pub fn program(&self) -> &Path {
        &self.shim
    }

    /// A new shim, from a nursery that was started for it if need be.
    pub fn shim(&mut self) -> io::Result<Spare> {
        if let Some((_, nursery)) = &mut self.process
            && let Ok(spare) = bear(nursery)
        {
            return Ok(spare);
        }
        self.dismiss();
        let (_, nursery) = self.process.insert(start(&self.shim)?);
        bear(nursery)
    }

    /// Ends the nursery; the shims that came from it go on.
    pub fn dismiss(&mut self) {
        if let Some((mut child, nursery)) = self.process.take() {
            drop(nursery);
            // It ends by itself when nobody is there, unless it was stopped.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that starts csn-shim")]
fn start(shim: &Path) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut command = Command::new(shim);
    command.env_clear().stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)));
    if let Some(file) = std::env::var_os("COUNTERSIGN_CRASH_FILE").filter(|_| cfg!(feature = "crash-points")) {
        command.env("COUNTERSIGN_CRASH_FILE", file);
    }
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    // Before it is asked for anything: what it forks inherits this.
    crate::descriptors::restore_limit(&child);
    ours.set_read_timeout(Some(PATIENCE))?;
    Ok((child, ours))
}

fn bear(nursery: &mut UnixStream) -> io::Result<Spare> {
    let (ours, theirs) = UnixStream::pair()?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [theirs.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(&*nursery, &[IoSlice::new(&[1])], &mut ancillary, SendFlags::NOSIGNAL)?;
    let mut pid = [0; 4];
    nursery.read_exact(&mut pid)?;
    match u32::from_le_bytes(pid) {
        0 => Err(io::Error::other("no more processes")),
        pid => {
            ours.set_read_timeout(Some(PATIENCE))?;
            ours.set_write_timeout(Some(PATIENCE))?;
            Ok(Spare { pid, channel: ours })
        }
    }
}

/// A shim that runs and waits for its order. Dropped without one, it ends by itself.
pub struct Spare {
    pid: u32,
    channel: UnixStream,
}

impl Spare {
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Hears the shim's hello, hands the order over, and gives the channel to keep.
    pub fn hand_over(mut self, order: Order) -> io::Result<UnixStream> {
        match wire::receive(&mut self.channel)? {
            FromShim::Hello { protocol: PROTOCOL, version, .. } if version == env!("CARGO_PKG_VERSION") => {}
            _ => {
                return Err(io::Error::other(
                    "csn-shim is of another version than csn: install both from one build (see `csn doctor`)",
                ));
            }
        }
        wire::send(&mut self.channel, &ToShim::Order(Box::new(order)))?;
        self.channel.set_read_timeout(None)?;
        self.channel.set_write_timeout(None)?;
        Ok(self.channel)
    }
}

/// What `csn-shim --probe` says.
#[expect(clippy::disallowed_methods, reason = "the one place that starts csn-shim")]
pub fn probe(shim: &Path) -> io::Result<String> {
    let output = Command::new(shim).arg("--probe").env_clear().stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => String::from_utf8(output.stdout).map_err(io::Error::other),
        false => Err(io::Error::other("csn-shim does not know --probe: it is of another version than csn")),
    }
}

/// Has a program of the service manager do something: whether it did, and what it said.
#[expect(clippy::disallowed_methods, reason = "the one place that talks to a service manager")]
pub fn manage(program: &str, args: &[&str]) -> io::Result<(bool, String)> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output()?;
    let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// What a program said, and what it ended with; none when it had to be killed.
pub struct Answered {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub timed_out: bool,
}

/// Whether what was heard is all that was wanted.
pub type Enough = dyn Fn(&[u8]) -> bool;

/// No answer is read further.
const LONGEST_ANSWER: usize = 4 * 1024 * 1024;
/// How long somebody may still write after the program itself has ended.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Tells a program something and hears what it says. Its input stays open until `until` has heard enough, if that is
/// given. It and what it started are killed when the time is over.
#[expect(clippy::disallowed_methods, reason = "the one place that puts a question to a program")]
pub fn converse(
    program: &str,
    args: &[&str],
    input: &[u8],
    env: &[(&str, &str)],
    timeout: Duration,
    until: Option<&Enough>,
) -> io::Result<Answered> {
    let mut command = Command::new(program);
    command.args(args).envs(env.iter().copied()).process_group(0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (say, heard) = mpsc::channel();
    if let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) {
        listen(out, 0, say.clone());
        listen(err, 1, say);
    }
    let (hang_up, hung_up) = mpsc::channel::<()>();
    let mut hang_up = until.is_some().then_some(hang_up);
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_vec();
        std::thread::spawn(move || {
            // Whoever does not listen may still answer.
            let _ = stdin.write_all(&input).and_then(|()| stdin.flush());
            let _ = hung_up.recv();
        });
    }
    let mut said = [Vec::new(), Vec::new()];
    let mut deadline = clock::steady() + timeout;
    let (mut status, mut timed_out) = (None, false);
    loop {
        let left = deadline.saturating_duration_since(clock::steady());
        if left.is_zero() {
            break;
        }
        match heard.recv_timeout(left.min(Duration::from_millis(20))) {
            Ok((which, bytes)) => {
                let kept: &mut Vec<u8> = &mut said[which];
                kept.extend(bytes.into_iter().take(LONGEST_ANSWER.saturating_sub(kept.len())));
            }
            Err(RecvTimeoutError::Disconnected) if status.is_some() => break,
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(5)),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if hang_up.is_some() && until.is_some_and(|enough| enough(&said[0])) {
            hang_up = None;
            deadline = deadline.min(clock::steady() + PATIENCE);
        }
        if status.is_none() {
            status = child.try_wait()?;
            if status.is_some() {
                deadline = deadline.min(clock::steady() + LAST_WORDS);
            }
        }
    }
    if status.is_none() {
        // Having heard enough, one that does not go by itself has answered all the same.
        timed_out = until.is_none() || hang_up.is_some();
        if let Some(group) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = child.kill();
        child.wait()?;
    }
    let [stdout, stderr] = said;
    Ok(Answered { code: status.and_then(|s| s.code()), stdout, stderr, timed_out })
}

fn listen(mut from: impl Read + Send + 'static, which: usize, to: Sender<(usize, Vec<u8>)>) {
    std::thread::spawn(move || {
        let mut space = [0; 16 * 1024];
        while let Ok(n @ 1..) = from.read(&mut space) {
            if to.send((which, space[..n].to_vec())).is_err() {
                break;
            }
        }
    });
}

/// What a daemon exits with when another holds the house.
pub const HELD: u8 = 75;

/// Starts `csn up` as a process of its own, with nothing of ours but the named variables, and waits until it says
/// that it serves. Gives what it said; where another daemon holds the house the error is `ResourceBusy`.
#[expect(clippy::disallowed_methods, reason = "the one place that starts a house")]
pub fn start_house(csn: &Path, env: &[(String, String)]) -> io::Result<String> {
    let mut child = Command::new(csn)
        .args(["up", "--detached"])
        .env_clear()
        .envs(env.iter().map(|(k, v)| (k, v)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut said = String::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_string(&mut said)?;
    }
    if said.starts_with("ready") {
        return Ok(said);
    }
    let mut why = String::new();
    if let Some(mut err) = child.stderr.take() {
        let _ = err.read_to_string(&mut why);
    }
    let kind = match child.wait() {
        Ok(status) if status.code() == Some(i32::from(HELD)) => io::ErrorKind::ResourceBusy,
        // Killed while it started: the next one may not be.
        Ok(status) if status.signal().is_some() => io::ErrorKind::Interrupted,
        _ => io::ErrorKind::Other,
    };
    let why = why.trim().trim_start_matches("csn: ");
    Err(io::Error::new(kind, if why.is_empty() { "the daemon ended without a word" } else { why }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, input: &[u8], timeout: Duration, until: Option<&Enough>) -> Answered {
        converse("/bin/sh", &["-c", script], input, &[("WORD", "hey")], timeout, until).unwrap()
    }

    #[test]
    fn a_program_is_told_and_heard() {
        let said = sh("cat; echo $WORD >&2; exit 3", b"hello", Duration::from_secs(20), None);
        assert_eq!(
            (said.code, said.stdout.as_slice(), said.stderr.as_slice()),
            (Some(3), &b"hello"[..], &b"hey\n"[..])
        );
        assert!(!said.timed_out);
    }

    #[test]
    fn one_that_does_not_end_is_killed_with_what_it_started() {
        let said = sh("sleep 600 & echo on; wait", b"", Duration::from_millis(200), None);
        assert!(said.timed_out && said.code.is_none());
        assert_eq!(said.stdout, b"on\n");
    }

    #[test]
    fn its_input_stays_open_until_enough_is_heard() {
        let script = "read a; echo got $a; cat >/dev/null; echo bye";
        let said = sh(script, b"x\n", Duration::from_secs(20), Some(&|out| out.starts_with(b"got x\n")));
        assert_eq!(said.stdout, b"got x\nbye\n");
        let flood = sh("yes | head -c 9000000", b"", Duration::from_secs(20), None);
        assert_eq!(flood.stdout.len(), LONGEST_ANSWER);
    }
}
