//! System calls that Rust's libraries do not wrap. This module holds the only unsafe code of the workspace.
#![allow(unsafe_code)]

pub(crate) mod confine;
pub(crate) mod network;
mod spawn;
pub(crate) mod user;

use countersign_model::ExitStatus;
use rustix::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
pub(crate) use spawn::{ChildSpec, ChildStdio, spawn};
use std::io;

/// Prevents other processes of the same user from reading this process's memory, and the kernel from writing core
/// dumps.
pub fn forbid_dumping() {
    // SAFETY: changes one attribute of this process; no pointers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
}

/// Makes the allocator return large buffers to the kernel as soon as they are free. By default the C library keeps one
/// for every thread that ever had one.
pub fn configure_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets parameters of the allocator; no pointers.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 2 * 1024 * 1024);
        // Smaller buffers are reused often: returning their pages each time costs more than it saves.
        libc::mallopt(libc::M_TRIM_THRESHOLD, 4 * 1024 * 1024);
        // Few arenas, so that threads share freed memory: the daemon has many threads that are mostly idle.
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Returns all free memory to the kernel, including pages between allocations that are in use.
pub fn release_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: works on the allocator's own free lists, under its own locks; no pointers.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Closes all inherited descriptors but the standard three. A daemon that is started from a script must not keep the
/// script's pipes open for as long as it lives. To be called first, before anything else is open.
pub fn close_inherited_descriptors() {
    // SAFETY: at the start of the program no object of this process owns a descriptor beyond 2.
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, 0u32) };
}

/// A pidfd of the process that connected the other end of a unix socket. None before Linux 6.5.
pub fn peer_pidfd(socket: impl AsFd) -> io::Result<Option<OwnedFd>> {
    let (mut fd, mut len): (RawFd, libc::socklen_t) = (-1, size_of::<RawFd>() as libc::socklen_t);
    // SAFETY: the kernel writes one descriptor into `fd`, which has the size that `len` says.
    let got = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &raw mut len,
        )
    };
    if got != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => Err(error),
            // An older kernel, or a peer that has ended.
            _ => Ok(None),
        };
    }
    // SAFETY: the kernel has just created the descriptor for this call, and nothing else owns it.
    Ok((fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Whether this process may run tasks as other users.
#[must_use]
pub fn can_act_for_other_users() -> bool {
    confine::can_act_for_other_users()
}

/// Makes this process the parent of every orphan among its descendants.
pub fn become_subreaper() -> io::Result<()> {
    // SAFETY: changes one attribute of this process; no pointers.
    let result = unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets every signal to its default action: ignored signals are inherited through exec, by this process and by the
/// child.
pub(crate) fn reset_signals() {
    // The kernel's own structure: no handler, no flags, an empty mask. The C library does not change two signals that
    // it reserves, but the process that started this one may have ignored them.
    let default = [0u64; 4];
    for signal in (1..=64).filter(|s| *s != libc::SIGKILL && *s != libc::SIGSTOP) {
        // SAFETY: the kernel reads at most the 32 bytes that `default` has; no handler is installed.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null::<u64>(), 8usize) };
    }
    // Writing to a closed pipe must be an error and not end this process. std resets the action in the child.
    // SAFETY: no handler is installed, so nothing can run in signal context.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Blocks SIGCHLD and the signals that would end this process, and returns a descriptor that reports them.
pub(crate) fn open_signal_fd() -> io::Result<OwnedFd> {
    // SAFETY: the set lives on the stack and is initialised by sigemptyset before it is read; the returned descriptor
    // is new, and nothing else owns it.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGCHLD, libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT] {
            libc::sigaddset(&mut set, signal);
        }
        if libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        match libc::signalfd(-1, &set, libc::SFD_NONBLOCK | libc::SFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Duplicates standard input.
pub(crate) fn duplicate_stdin() -> io::Result<OwnedFd> {
    io::stdin().as_fd().try_clone_to_owned()
}

/// Forks. Returns none in the child. The caller must have one thread, so that the child may run any code.
pub(crate) fn fork() -> io::Result<Option<u32>> {
    debug_assert!(countersign_store::proc::children(std::process::id()).is_ok_and(|(_, threads)| threads == 1));
    // SAFETY: with a single thread no lock can be held by a thread that does not exist in the child.
    let forked = unsafe { libc::fork() };
    match forked {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        pid => Ok(Some(pid as u32)),
    }
}

/// Makes the kernel reap ended children.
pub(crate) fn discard_ended_children() {
    // SAFETY: no handler is installed, so nothing can run in signal context.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// A child that has ended.
pub(crate) struct ExitedChild {
    pub pid: u32,
    pub status: ExitStatus,
    pub cpu_us: u64,
    pub max_rss_kb: u64,
}

/// Reaps one ended child, if there is one.
pub(crate) fn reap_child() -> Option<ExitedChild> {
    let mut status = 0;
    // SAFETY: both out-pointers are to live locals; rusage is plain data for which zero is valid.
    let (pid, usage) = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        (libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage), usage)
    };
    let pid = u32::try_from(pid).ok().filter(|pid| *pid > 0)?;
    let status = if libc::WIFSIGNALED(status) {
        ExitStatus::Signal { signal: libc::WTERMSIG(status), core: libc::WCOREDUMP(status) }
    } else {
        ExitStatus::Code { code: libc::WEXITSTATUS(status) }
    };
    let micros = |t: libc::timeval| (t.tv_sec as u64) * 1_000_000 + t.tv_usec as u64;
    Some(ExitedChild {
        pid,
        status,
        cpu_us: micros(usage.ru_utime) + micros(usage.ru_stime),
        max_rss_kb: usage.ru_maxrss as u64,
    })
}
