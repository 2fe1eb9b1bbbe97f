//! A network namespace for a task. It contains only a loopback interface, so that the task can run servers and test
//! them, but reaches no other host.
#![allow(unsafe_code)]

use std::{io, sync::OnceLock};

/// How a process creates a network of its own. Built before the fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnNetwork {
    /// The process has the privilege to create one.
    Plain,
    /// The process creates a user namespace first, which maps its user and group to themselves.
    AsUser { uid_map: Vec<u8>, gid_map: Vec<u8> },
}

/// Which ways work on this machine.
#[derive(Debug, Clone, Copy, Default)]
struct NetworkSupport {
    plain: bool,
    as_user: bool,
}

fn network_support() -> NetworkSupport {
    static WAYS: OnceLock<NetworkSupport> = OnceLock::new();
    *WAYS.get_or_init(|| NetworkSupport {
        plain: try_enter(&OwnNetwork::Plain),
        as_user: try_enter(&OwnNetwork::as_user(effective_ids())),
    })
}

/// Detects the ways in advance, so that forked shims know them.
pub(crate) fn warm_up() {
    let _ = network_support();
}

fn effective_ids() -> (u32, u32) {
    // SAFETY: neither call takes an argument, and neither fails.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Tries one way in a child process that exits immediately.
fn try_enter(way: &OwnNetwork) -> bool {
    let mut ends = [0; 2];
    // SAFETY: the kernel fills in two descriptors. The child makes system calls on values made before the fork, writes
    // one byte and exits without running other code of this process; the parent reads that byte, or the end of the
    // pipe.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return false;
        }
        let child = libc::fork();
        if child == 0 {
            let answer = [u8::from(way.enter().is_ok())];
            libc::write(ends[1], answer.as_ptr().cast(), 1);
            libc::_exit(0);
        }
        libc::close(ends[1]);
        let mut answer = [0u8];
        let read = if child > 0 { libc::read(ends[0], answer.as_mut_ptr().cast(), 1) } else { 0 };
        libc::close(ends[0]);
        if child > 0 {
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
        read == 1 && answer[0] == 1
    }
}

#[repr(C)]
struct Interface {
    name: [u8; 16],
    flags: libc::c_short,
    rest: [u8; 22],
}

impl OwnNetwork {
    /// The way for a child of this process, which runs as the same user or becomes another one. None if no way works.
    pub(crate) fn available(other_user: Option<(u32, u32)>) -> Option<Self> {
        match network_support() {
            NetworkSupport { plain: true, .. } => Some(Self::Plain),
            NetworkSupport { as_user: true, .. } => Some(Self::as_user(other_user.unwrap_or_else(effective_ids))),
            _ => None,
        }
    }

    /// Whether it must be entered before the child changes its user: the new user has no privilege to.
    pub(super) fn precedes_user_change(&self) -> bool {
        *self == Self::Plain
    }

    /// Whether the child is dumpable for a moment while it enters.
    pub(super) fn becomes_dumpable(&self) -> bool {
        matches!(self, Self::AsUser { .. })
    }

    fn as_user((uid, gid): (u32, u32)) -> Self {
        let map = |id: u32| format!("{id} {id} 1").into_bytes();
        Self::AsUser { uid_map: map(uid), gid_map: map(gid) }
    }

    /// Enters the network. Makes only system calls on values that were made before the fork: no allocation, no locks.
    pub(super) fn enter(&self) -> io::Result<()> {
        let check = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        let flags = match self {
            Self::Plain => libc::CLONE_NEWNET,
            Self::AsUser { .. } => libc::CLONE_NEWNET | libc::CLONE_NEWUSER,
        };
        // SAFETY: plain integers.
        check(unsafe { libc::unshare(flags) })?;
        if let Self::AsUser { uid_map, gid_map } = self {
            // The /proc files of a process that is not dumpable belong to root, and it could not write its own maps. It
            // is dumpable only for these three writes, and the program that is started next is dumpable anyway.
            set_dumpable(true);
            let written = write_file(c"/proc/self/setgroups", b"deny")
                .and_then(|()| write_file(c"/proc/self/uid_map", uid_map))
                .and_then(|()| write_file(c"/proc/self/gid_map", gid_map));
            set_dumpable(false);
            written?;
        }
        let mut name = [0; 16];
        name[..2].copy_from_slice(b"lo");
        let up = Interface { name, flags: libc::IFF_UP as libc::c_short, rest: [0; 22] };
        // SAFETY: the kernel reads the structure, which has the size of an `ifreq`; the socket is closed again.
        unsafe {
            let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            if socket < 0 {
                return Err(io::Error::last_os_error());
            }
            let set = libc::ioctl(socket, libc::SIOCSIFFLAGS as _, &raw const up);
            let failed = io::Error::last_os_error();
            libc::close(socket);
            if set == 0 { Ok(()) } else { Err(failed) }
        }
    }
}

fn set_dumpable(yes: bool) {
    // SAFETY: changes one attribute of this process; no pointers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, libc::c_ulong::from(yes), 0, 0, 0) };
}

fn write_file(path: &std::ffi::CStr, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the path ends in a NUL; the kernel reads exactly the bytes of the slice; the descriptor is closed again.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let written = libc::write(fd, bytes.as_ptr().cast(), bytes.len());
        let failed = io::Error::last_os_error();
        libc::close(fd);
        if usize::try_from(written) == Ok(bytes.len()) { Ok(()) } else { Err(failed) }
    }
}
