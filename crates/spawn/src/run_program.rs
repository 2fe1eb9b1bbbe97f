//! Runs one program to its end: input, output, deadline. Everything that it started is killed with it.

use countersign_store::clock;
use std::{
    io::{self, Read, Write as _},
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    time::Duration,
};

/// A program, its input, and how long it may run.
pub struct ProgramRun<'a> {
    pub program: &'a str,
    pub args: &'a [&'a str],
    pub stdin: &'a [u8],
    /// Added to the variables of this process.
    pub env: &'a [(&'a str, &'a str)],
    pub timeout: Duration,
    /// The program's input stays open until its output passes this check. None: it is closed behind `stdin`.
    pub complete: Option<&'a OutputCheck>,
}

/// What a program wrote, bounded, and its exit code; none when a signal ended it.
pub struct ProgramOutput {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub timed_out: bool,
}

/// Whether this output of a program is complete.
pub type OutputCheck = dyn Fn(&[u8]) -> bool;

/// Output beyond this is read and dropped.
const MAX_OUTPUT_BYTES: usize = 4 * 1024 * 1024;
/// How long output is still read after the program has ended: its children may hold the pipe.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a program may take to end once its output is complete and its input is closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Which of the two pipes output came from.
#[derive(Clone, Copy)]
enum OutputPipe {
    Stdout,
    Stderr,
}

/// Runs a program, gives it its input and collects its output. At the deadline it is killed with its process group.
#[expect(clippy::disallowed_methods, reason = "such a program is not a task")]
pub fn run_program(run: &ProgramRun<'_>) -> io::Result<ProgramOutput> {
    let ProgramRun { program, args, stdin: input, env, timeout, complete } = *run;
    let mut command = Command::new(program);
    command.args(args).envs(env.iter().copied()).process_group(0);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (sender, receiver) = mpsc::channel();
    if let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) {
        forward_output(out, OutputPipe::Stdout, sender.clone());
        forward_output(err, OutputPipe::Stderr, sender);
    }
    // Dropping this sender closes the program's input.
    let (close_input, input_closed) = mpsc::channel::<()>();
    let mut close_input = complete.is_some().then_some(close_input);
    if let Some(mut stdin) = child.stdin.take() {
        let input = input.to_vec();
        std::thread::spawn(move || {
            // A program that does not read its input may still answer.
            let _ = stdin.write_all(&input).and_then(|()| stdin.flush());
            let _ = input_closed.recv();
        });
    }
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut deadline = clock::steady() + timeout;
    let (mut status, mut timed_out) = (None, false);
    loop {
        let left = deadline.saturating_duration_since(clock::steady());
        if left.is_zero() {
            break;
        }
        match receiver.recv_timeout(left.min(POLL_INTERVAL)) {
            Ok((pipe, bytes)) => {
                let output: &mut Vec<u8> = match pipe {
                    OutputPipe::Stdout => &mut stdout,
                    OutputPipe::Stderr => &mut stderr,
                };
                output.extend(bytes.into_iter().take(MAX_OUTPUT_BYTES.saturating_sub(output.len())));
            }
            Err(RecvTimeoutError::Disconnected) if status.is_some() => break,
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(5)),
            Err(RecvTimeoutError::Timeout) => {}
        }
        if close_input.is_some() && complete.is_some_and(|complete| complete(&stdout)) {
            close_input = None;
            deadline = deadline.min(clock::steady() + EXIT_TIMEOUT);
        }
        if status.is_none() {
            status = child.try_wait()?;
            if status.is_some() {
                deadline = deadline.min(clock::steady() + DRAIN_TIMEOUT);
            }
        }
    }
    if status.is_none() {
        // A program whose output is complete has answered, even if it has to be killed.
        timed_out = complete.is_none() || close_input.is_some();
        if let Some(group) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = child.kill();
        child.wait()?;
    }
    Ok(ProgramOutput { code: status.and_then(|s| s.code()), stdout, stderr, timed_out })
}

/// Sends what a pipe gives, from a thread of its own, until the pipe ends.
fn forward_output(mut from: impl Read + Send + 'static, pipe: OutputPipe, to: Sender<(OutputPipe, Vec<u8>)>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            if to.send((pipe, buffer[..n].to_vec())).is_err() {
                break;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_sh(script: &str, stdin: &[u8], timeout: Duration, complete: Option<&OutputCheck>) -> ProgramOutput {
        let (program, args) = ("/bin/sh", ["-c", script]);
        run_program(&ProgramRun { program, args: &args, stdin, env: &[("WORD", "hey")], timeout, complete }).unwrap()
    }

    #[test]
    fn a_program_gets_its_input_and_variables_and_returns_output_and_exit_code() {
        let output = run_sh("cat; echo $WORD >&2; exit 3", b"hello", Duration::from_secs(20), None);
        assert_eq!(
            (output.code, output.stdout.as_slice(), output.stderr.as_slice()),
            (Some(3), &b"hello"[..], &b"hey\n"[..])
        );
        assert!(!output.timed_out);
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_with_its_children() {
        let output = run_sh("sleep 600 & echo on; wait", b"", Duration::from_millis(200), None);
        assert!(output.timed_out && output.code.is_none());
        assert_eq!(output.stdout, b"on\n");
    }

    #[test]
    fn the_input_stays_open_until_the_output_is_complete() {
        let script = "read a; echo got $a; cat >/dev/null; echo bye";
        let output = run_sh(script, b"x\n", Duration::from_secs(20), Some(&|out| out.starts_with(b"got x\n")));
        assert_eq!(output.stdout, b"got x\nbye\n");
    }

    #[test]
    fn output_beyond_the_limit_is_dropped() {
        let output = run_sh("yes | head -c 9000000", b"", Duration::from_secs(20), None);
        assert_eq!(output.stdout.len(), MAX_OUTPUT_BYTES);
    }
}
