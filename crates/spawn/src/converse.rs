//! A question put to a program: input, answer, deadline.

use countersign_store::clock;
use std::{
    io::{self, Read, Write as _},
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    time::Duration,
};

/// What a program is told, and how long it may take to answer.
pub struct Question<'a> {
    pub program: &'a str,
    pub args: &'a [&'a str],
    pub stdin: &'a [u8],
    /// Beside the variables of this process.
    pub env: &'a [(&'a str, &'a str)],
    pub timeout: Duration,
    /// The program's input stays open until this has heard enough.
    pub until: Option<&'a Enough>,
}

/// What a program said, bounded, and what it ended with; none when it had to be killed.
pub struct Reply {
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
/// How long a program may take to end once enough was heard and its input was closed.
const LEAVE: Duration = Duration::from_secs(5);

/// Tells a program something and hears what it says. It and what it started are killed when the time is over.
#[expect(clippy::disallowed_methods, reason = "a program that is asked something is not a task")]
pub fn converse(question: &Question<'_>) -> io::Result<Reply> {
    let Question { program, args, stdin: input, env, timeout, until } = *question;
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
            deadline = deadline.min(clock::steady() + LEAVE);
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
    Ok(Reply { code: status.and_then(|s| s.code()), stdout, stderr, timed_out })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, stdin: &[u8], timeout: Duration, until: Option<&Enough>) -> Reply {
        let (program, args) = ("/bin/sh", ["-c", script]);
        converse(&Question { program, args: &args, stdin, env: &[("WORD", "hey")], timeout, until }).unwrap()
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
