//! A network of a task's own: nothing in it but its loopback, so that it can serve and test itself and reach nobody.
#![allow(unsafe_code)]

use std::{io, sync::OnceLock};

/// How a process gets a network of its own. Built before the fork.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnNetwork {
    /// It may make one.
    Plain,
    /// It makes a user namespace first, in which its user and group are who they were.
    AsUser { uid_map: Vec<u8>, gid_map: Vec<u8> },
}

/// Which of them this machine has.
#[derive(Debug, Clone, Copy, Default)]
struct NetworkSupport {
    plain: bool,
    as_user: bool,
}

fn ways() -> NetworkSupport {
    static WAYS: OnceLock<NetworkSupport> = OnceLock::new();
    *WAYS.get_or_init(|| NetworkSupport {
        plain: tried(&OwnNetwork::Plain),
        as_user: tried(&OwnNetwork::as_user(effective_ids())),
    })
}

/// Finds out beforehand: those who are forked from here know it then.
pub(crate) fn warm_up() {
    let _ = ways();
}

fn effective_ids() -> (u32, u32) {
    // SAFETY: neither takes an argument, neither fails.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Tries it in a process that ends at once.
fn tried(way: &OwnNetwork) -> bool {
    let mut ends = [0; 2];
    // SAFETY: the kernel fills in two descriptors. The child makes system calls on values made before, writes one byte and
    // ends without running anything of ours; the parent reads that byte, or the end of the pipe.
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
    /// How a child of this process gets one, as its own user or as another whom it becomes; none where it cannot.
    pub(crate) fn available(becomes: Option<(u32, u32)>) -> Option<Self> {
        match ways() {
            NetworkSupport { plain: true, .. } => Some(Self::Plain),
            NetworkSupport { as_user: true, .. } => Some(Self::as_user(becomes.unwrap_or_else(effective_ids))),
            _ => None,
        }
    }

    /// Whether it must be made while the process still is who it was: another user may not.
    pub(super) fn comes_first(&self) -> bool {
        *self == Self::Plain
    }

    fn as_user((uid, gid): (u32, u32)) -> Self {
        let map = |id: u32| format!("{id} {id} 1").into_bytes();
        Self::AsUser { uid_map: map(uid), gid_map: map(gid) }
    }

    /// Only system calls on values that were made before: no allocation, no locks.
    pub(super) fn enter(&self) -> io::Result<()> {
        let done = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        let flags = match self {
            Self::Plain => libc::CLONE_NEWNET,
            Self::AsUser { .. } => libc::CLONE_NEWNET | libc::CLONE_NEWUSER,
        };
        // SAFETY: plain integers.
        done(unsafe { libc::unshare(flags) })?;
        if let Self::AsUser { uid_map, gid_map } = self {
            // What may not be dumped belongs to root in /proc, and its maps could not be written. Nothing but this happens
            // meanwhile, and the program that is started next is dumpable anyway.
            dumpable(true);
            let written = put(c"/proc/self/setgroups", b"deny")
                .and_then(|()| put(c"/proc/self/uid_map", uid_map))
                .and_then(|()| put(c"/proc/self/gid_map", gid_map));
            dumpable(false);
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

fn dumpable(yes: bool) {
    // SAFETY: changes one attribute of this process; no pointers.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, libc::c_ulong::from(yes), 0, 0, 0) };
}

fn put(path: &std::ffi::CStr, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the path ends in a NUL; the kernel reads as many bytes as there are; the descriptor is closed again.
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
