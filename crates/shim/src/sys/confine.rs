//! The system calls with which a process restricts itself: Landlock, seccomp, capabilities, limits.
#![allow(unsafe_code)]

use super::network::OwnNetwork;
use rustix::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::io;

/// Rights to files, as Landlock numbers them.
pub(crate) mod right {
    pub(crate) const EXECUTE: u64 = 1;
    pub(crate) const WRITE_FILE: u64 = 1 << 1;
    pub(crate) const READ_FILE: u64 = 1 << 2;
    pub(crate) const READ_DIR: u64 = 1 << 3;
    pub(crate) const REMOVE_DIR: u64 = 1 << 4;
    pub(crate) const REMOVE_FILE: u64 = 1 << 5;
    pub(crate) const MAKE_DIR: u64 = 1 << 7;
    pub(crate) const MAKE_REG: u64 = 1 << 8;
    pub(crate) const MAKE_SOCK: u64 = 1 << 9;
    pub(crate) const MAKE_FIFO: u64 = 1 << 10;
    pub(crate) const MAKE_SYM: u64 = 1 << 12;
    pub(crate) const REFER: u64 = 1 << 13;
    pub(crate) const TRUNCATE: u64 = 1 << 14;
    pub(crate) const IOCTL_DEV: u64 = 1 << 15;
    /// The rights that apply to files; the others apply to directories only.
    pub(crate) const FILE_RIGHTS: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

    /// All rights of a Landlock version, including those that no rule grants, such as making devices: a ruleset denies
    /// every right that it handles.
    pub(crate) fn all(version: u32) -> u64 {
        match version {
            0 => 0,
            1 => (1 << 13) - 1,
            2 => (1 << 14) - 1,
            3 | 4 => (1 << 15) - 1,
            _ => (1 << 16) - 1,
        }
    }
}

/// Resource limits, as the kernel numbers them.
pub(crate) mod limit {
    pub(crate) const FSIZE: u32 = 1;
    pub(crate) const DATA: u32 = 2;
    pub(crate) const CORE: u32 = 4;
    pub(crate) const NPROC: u32 = 6;
    pub(crate) const NOFILE: u32 = 7;
}

/// Binding and connecting TCP sockets.
const ALL_TCP_RIGHTS: u64 = 0b11;
/// Abstract sockets and signals.
const ALL_SCOPES: u64 = 0b11;

/// The Landlock version of the kernel; 0 if it has none.
pub(crate) fn landlock_version() -> u32 {
    const VERSION: libc::c_ulong = 1;
    // SAFETY: with this flag the kernel reads no pointer and creates nothing.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, VERSION) };
    u32::try_from(version).unwrap_or(0)
}

/// Whether the kernel supports system call filters.
pub(crate) fn has_seccomp() -> bool {
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the kernel reads one action, which lives on the stack, and changes nothing.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0u32, &raw const action) == 0 }
}

#[repr(C)]
struct RulesetAttr {
    handled_fs: u64,
    handled_net: u64,
    scoped: u64,
}

#[repr(C, packed)]
struct BeneathAttr {
    allowed: u64,
    parent: RawFd,
}

/// Creates a ruleset that handles files and TCP as asked, and scopes. Parts that this Landlock version does not know
/// must be empty.
pub(crate) fn create_ruleset(version: u32, files: bool, net: bool) -> io::Result<OwnedFd> {
    let attr = RulesetAttr {
        handled_fs: if files { right::all(version) } else { 0 },
        handled_net: if net && version >= 4 { ALL_TCP_RIGHTS } else { 0 },
        scoped: if version >= 6 { ALL_SCOPES } else { 0 },
    };
    // SAFETY: the kernel reads the structure, whose size is passed; the returned descriptor is new, and nothing else
    // owns it.
    unsafe {
        match libc::syscall(libc::SYS_landlock_create_ruleset, &raw const attr, size_of::<RulesetAttr>(), 0u32) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd as RawFd)),
        }
    }
}

/// Allows rights to a file, or to a directory and everything below it.
pub(crate) fn add_path_rule(ruleset: impl AsFd, beneath: impl AsFd, rights: u64) -> io::Result<()> {
    const PATH_BENEATH: u32 = 1;
    let attr = BeneathAttr { allowed: rights, parent: beneath.as_fd().as_raw_fd() };
    let ruleset = ruleset.as_fd().as_raw_fd();
    // SAFETY: the kernel reads the structure, which lives on the stack.
    let result = unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset, PATH_BENEATH, &raw const attr, 0u32) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// One instruction of a system call filter, in the kernel's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct FilterInstruction {
    pub(crate) code: u16,
    /// How many instructions are skipped when a comparison holds, and when it does not.
    pub(crate) then: u8,
    pub(crate) otherwise: u8,
    pub(crate) value: u32,
}

/// The restrictions that a child applies to itself between fork and exec. All values are built before the fork.
#[derive(Default)]
pub(crate) struct Restrictions {
    /// A network of its own instead of the machine's.
    pub(crate) own_network: Option<OwnNetwork>,
    /// The child cannot gain privileges by starting a program.
    pub(crate) no_new_privileges: bool,
    pub(crate) ruleset: Option<OwnedFd>,
    pub(crate) filter: Option<&'static [FilterInstruction]>,
    /// The capabilities to keep; none changes nothing.
    pub(crate) keep_capabilities: Option<u64>,
    /// Resource limits by number.
    pub(crate) limits: Vec<(u32, u64)>,
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAP_VERSION_3: u32 = 0x2008_0522;
/// SECBIT_NOROOT and its lock: user ID 0 brings no capabilities, and the process cannot undo that.
const SECUREBITS_NO_ROOT: libc::c_ulong = 0b11;

/// Whether this process has any capability.
pub(crate) fn has_capabilities() -> bool {
    let header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let mut data = [CapData { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: the kernel reads the header and fills in both halves of the data, which live on the stack.
    let got = unsafe { libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()) };
    got != 0 || data.iter().any(|half| half.permitted != 0 || half.inheritable != 0)
}

impl Restrictions {
    /// Runs between fork and exec: only system calls on values that were made before the fork; no allocation, no locks.
    pub(super) fn apply(&self) -> io::Result<()> {
        let check = |result: libc::c_long| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        for (resource, max) in &self.limits {
            let (mut now, none) = ([0u64; 2], std::ptr::null::<u64>());
            // A limit that is already lower stays.
            // SAFETY: the kernel reads and writes two numbers, soft and hard, which live on the stack.
            unsafe {
                check(libc::syscall(libc::SYS_prlimit64, 0, *resource, none, now.as_mut_ptr()))?;
                let new = now.map(|limit| limit.min(*max));
                check(libc::syscall(libc::SYS_prlimit64, 0, *resource, new.as_ptr(), none))?;
            }
        }
        if self.no_new_privileges {
            // SAFETY: changes one attribute of this process; no pointers.
            check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }.into())?;
        }
        if let Some(keep) = self.keep_capabilities {
            drop_capabilities(keep)?;
        }
        if let Some(ruleset) = &self.ruleset {
            // SAFETY: plain integers.
            check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0u32) })?;
        }
        if let Some(filter) = self.filter {
            let program = libc::sock_fprog {
                len: u16::try_from(filter.len()).unwrap_or(u16::MAX),
                filter: filter.as_ptr().cast_mut().cast(),
            };
            // SAFETY: the kernel copies the program, which lives as long as the process; an instruction has the
            // kernel's layout.
            check(unsafe {
                libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0u32, &raw const program)
            })?;
        }
        Ok(())
    }
}

/// Drops all capabilities of this process. A program that it starts may gain some, unless gaining privileges is
/// forbidden.
pub(super) fn drop_all_capabilities() -> io::Result<()> {
    let header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let none = [CapData { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: plain integers, and two structures on the stack that the kernel reads.
    let dropped = unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr())
    };
    if dropped == 0 && !has_capabilities() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EPERM)) }
}

/// Whether this process may act for other users: change its IDs, and signal their processes.
pub(crate) fn can_act_for_other_users() -> bool {
    const KILL: u32 = 5;
    const SETGID: u32 = 6;
    const SETUID: u32 = 7;
    let wanted = 1 << KILL | 1 << SETGID | 1 << SETUID;
    let header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    let mut data = [CapData { effective: 0, permitted: 0, inheritable: 0 }; 2];
    // SAFETY: the kernel reads the header and fills in both halves of the data, which live on the stack.
    let got = unsafe { libc::syscall(libc::SYS_capget, &raw const header, data.as_mut_ptr()) };
    got == 0 && data[0].effective & wanted == wanted
}

/// Drops all capabilities but these. The process can gain no privileges, so its bounding set does not matter.
fn drop_capabilities(keep: u64) -> io::Result<()> {
    let failed = || Err(io::Error::last_os_error());
    let half = |n: u32| {
        let bits = (keep >> (32 * n)) as u32;
        CapData { effective: bits, permitted: bits, inheritable: 0 }
    };
    let header = CapHeader { version: CAP_VERSION_3, pid: 0 };
    // SAFETY: plain integers, and two structures on the stack that the kernel reads.
    unsafe {
        libc::prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        if keep == 0 {
            libc::prctl(libc::PR_SET_SECUREBITS, SECUREBITS_NO_ROOT, 0, 0, 0);
        }
        let data = [half(0), half(1)];
        if libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) != 0 {
            return failed();
        }
        let mut now = data;
        if libc::syscall(libc::SYS_capget, &raw const header, now.as_mut_ptr()) != 0 {
            return failed();
        }
        let beyond = |n: usize| now[n].permitted & !data[n].permitted;
        if beyond(0) != 0 || beyond(1) != 0 {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
    }
    Ok(())
}
