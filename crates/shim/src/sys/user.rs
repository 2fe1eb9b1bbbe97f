//! Acting for another user: looking at the world with their rights, and becoming them for good.
//!
//! Only a house of several users does either. It has the capabilities to change its ids and no others over files, so that
//! in another's name it can do with files what they can, and nothing more.
#![allow(unsafe_code)]

use super::confine;
use countersign_model::TaskUser;
use std::io;

/// Does something with files as this user would. None is whoever we are.
///
/// The rights are the calling thread's alone: nothing here may wait for another one to do the work.
pub fn with_user_ids<T>(user: Option<&TaskUser>, work: impl FnOnce() -> T) -> io::Result<T> {
    let Some(user) = user else { return Ok(work()) };
    let _back = FsIdentity::begin(user)?;
    Ok(work())
}

/// Reads what `/proc` tells of a process to its own user alone. Where that cannot be had, it is read as whom we are.
pub fn as_owner_of<T>(pid: u32, read: impl FnOnce() -> T) -> T {
    let owner = countersign_store::proc::owner(pid).ok();
    // SAFETY: asks for one number.
    let me = unsafe { libc::geteuid() };
    let _acting = match owner {
        Some((uid, gid)) if me != 0 && uid != me => FsIdentity::begin_as(uid, gid, &[gid]).ok(),
        _ => None,
    };
    read()
}

/// Until dropped, this thread has the rights of somebody else over files.
struct FsIdentity {
    uid: u32,
    gid: u32,
    groups: Vec<libc::gid_t>,
}

impl FsIdentity {
    fn begin(user: &TaskUser) -> io::Result<Self> {
        Self::begin_as(user.uid, user.gid, &user.groups)
    }

    fn begin_as(uid: u32, gid: u32, as_groups: &[u32]) -> io::Result<Self> {
        // SAFETY: the kernel writes at most as many as it has said there are; the rest are plain calls on integers.
        let own = unsafe {
            let many = libc::getgroups(0, std::ptr::null_mut());
            let mut groups = vec![0; usize::try_from(many).map_err(|_| io::Error::last_os_error())?];
            if libc::getgroups(many, groups.as_mut_ptr()) != many {
                return Err(io::Error::last_os_error());
            }
            Self { uid: libc::geteuid(), gid: libc::getegid(), groups }
        };
        // Who may not change the first has changed nothing.
        if let Err(e) = set_groups(as_groups) {
            std::mem::forget(own);
            return Err(e);
        }
        set_file_ids(uid, gid).map(|()| own)
    }
}

impl Drop for FsIdentity {
    fn drop(&mut self) {
        let back = set_file_ids(self.uid, self.gid).and_then(|()| set_groups(&self.groups));
        if back.is_err() {
            // Going on with somebody else's rights is worse than not going on.
            std::process::abort();
        }
    }
}

/// Of this thread, whatever the C library thinks of the others.
fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the kernel reads as many numbers as it is told there are.
    match unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// These calls tell nobody whether they worked but by what is there afterwards.
fn set_file_ids(uid: u32, gid: u32) -> io::Result<()> {
    const ASK: u32 = u32::MAX;
    // SAFETY: plain calls on integers.
    let now = unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        (libc::syscall(libc::SYS_setfsuid, ASK), libc::syscall(libc::SYS_setfsgid, ASK))
    };
    match now == (libc::c_long::from(uid), libc::c_long::from(gid)) {
        true => Ok(()),
        false => Err(io::Error::from_raw_os_error(libc::EPERM)),
    }
}

/// Who a child becomes, before it is anything else. Nothing that we can do is left to it.
pub(crate) struct ChildUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

impl ChildUser {
    pub(crate) fn of(login: &TaskUser) -> Self {
        Self { uid: login.uid, gid: login.gid, groups: login.groups.clone() }
    }

    /// Between fork and exec: only system calls on values that were made before.
    pub(super) fn apply(&self) -> io::Result<()> {
        // Whoever decided otherwise: never root, and never us.
        // SAFETY: asks for one number.
        if self.uid == 0 || self.uid == unsafe { libc::geteuid() } {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        set_groups(&self.groups)?;
        // SAFETY: plain calls on integers.
        let done = unsafe {
            libc::syscall(libc::SYS_setresgid, self.gid, self.gid, self.gid) == 0
                && libc::syscall(libc::SYS_setresuid, self.uid, self.uid, self.uid) == 0
        };
        if !done {
            return Err(io::Error::last_os_error());
        }
        // Keys of the session that we came from are the house's, and were every other user's, too.
        const JOIN_SESSION_KEYRING: libc::c_long = 1;
        // SAFETY: no name, so that nothing is shared; the kernel reads nothing.
        let joined = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<u8>()) };
        if joined == -1 && io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS) {
            return Err(io::Error::last_os_error());
        }
        confine::drop_all_capabilities()
    }
}
