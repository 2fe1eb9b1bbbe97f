//! Acts for another user: accesses files with their rights, or becomes them for good.
//!
//! Only the system service does either. It has the capabilities to change its IDs and none over files, so that it can
//! do with files what the other user can, and nothing more.
#![allow(unsafe_code)]

use super::confine;
use countersign_model::TaskUser;
use std::io;

/// Runs a closure with the file rights of a user. None is the user of this process.
///
/// The rights apply to the calling thread only: the closure may not hand work to another thread.
pub fn with_user_ids<T>(user: Option<&TaskUser>, work: impl FnOnce() -> T) -> io::Result<T> {
    let Some(user) = user else { return Ok(work()) };
    let _identity = FsIdentity::switch_to_user(user)?;
    Ok(work())
}

/// Runs a closure that reads `/proc` files of a process that only its owner may read. If this process cannot act as the
/// owner, the closure runs with the process's own rights.
pub fn with_owner_ids<T>(pid: u32, read: impl FnOnce() -> T) -> T {
    let owner = countersign_store::proc::owner(pid).ok();
    // SAFETY: takes no argument and returns one number.
    let me = unsafe { libc::geteuid() };
    let _identity = match owner {
        Some((uid, gid)) if me != 0 && uid != me => FsIdentity::switch_to(uid, gid, &[gid]).ok(),
        _ => None,
    };
    read()
}

/// The identity to restore. Until it is dropped, this thread has the file rights of another user.
struct FsIdentity {
    uid: u32,
    gid: u32,
    groups: Vec<libc::gid_t>,
}

impl FsIdentity {
    fn switch_to_user(user: &TaskUser) -> io::Result<Self> {
        Self::switch_to(user.uid, user.gid, &user.groups)
    }

    fn switch_to(uid: u32, gid: u32, as_groups: &[u32]) -> io::Result<Self> {
        // SAFETY: the kernel writes at most as many groups as it has reported; the other calls take only integers.
        let own = unsafe {
            let many = libc::getgroups(0, std::ptr::null_mut());
            let mut groups = vec![0; usize::try_from(many).map_err(|_| io::Error::last_os_error())?];
            if libc::getgroups(many, groups.as_mut_ptr()) != many {
                return Err(io::Error::last_os_error());
            }
            Self { uid: libc::geteuid(), gid: libc::getegid(), groups }
        };
        // The groups are the first change: if it fails, there is nothing to restore.
        if let Err(e) = set_groups(as_groups) {
            std::mem::forget(own);
            return Err(e);
        }
        set_file_ids(uid, gid).map(|()| own)
    }
}

impl Drop for FsIdentity {
    fn drop(&mut self) {
        let restored = set_file_ids(self.uid, self.gid).and_then(|()| set_groups(&self.groups));
        if restored.is_err() {
            // The process must not continue with the rights of another user.
            std::process::abort();
        }
    }
}

/// Sets the groups of this thread. The C library would set those of all threads.
fn set_groups(groups: &[u32]) -> io::Result<()> {
    // SAFETY: the kernel reads as many numbers as the passed length says.
    let result = unsafe { libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the file IDs of this thread. The calls report no errors, so the IDs are read back.
fn set_file_ids(uid: u32, gid: u32) -> io::Result<()> {
    // An invalid ID changes nothing; the calls return the current one.
    const INVALID_ID: u32 = u32::MAX;
    // SAFETY: plain calls on integers.
    let now = unsafe {
        libc::syscall(libc::SYS_setfsgid, gid);
        libc::syscall(libc::SYS_setfsuid, uid);
        (libc::syscall(libc::SYS_setfsuid, INVALID_ID), libc::syscall(libc::SYS_setfsgid, INVALID_ID))
    };
    if now == (libc::c_long::from(uid), libc::c_long::from(gid)) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }
}

/// The user that a child becomes. The child keeps none of this process's capabilities.
pub(crate) struct ChildUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

impl ChildUser {
    pub(crate) fn from_task_user(login: &TaskUser) -> Self {
        Self { uid: login.uid, gid: login.gid, groups: login.groups.clone() }
    }

    /// Runs between fork and exec: only system calls on values that were made before the fork.
    pub(super) fn apply(&self) -> io::Result<()> {
        // Whatever the order says: never root, and never the user of the daemon.
        // SAFETY: takes no argument and returns one number.
        if self.uid == 0 || self.uid == unsafe { libc::geteuid() } {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        set_groups(&self.groups)?;
        // SAFETY: plain calls on integers.
        let changed = unsafe {
            libc::syscall(libc::SYS_setresgid, self.gid, self.gid, self.gid) == 0
                && libc::syscall(libc::SYS_setresuid, self.uid, self.uid, self.uid) == 0
        };
        if !changed {
            return Err(io::Error::last_os_error());
        }
        // The inherited session keyring is the daemon's, and would be shared by the tasks of all users.
        const JOIN_SESSION_KEYRING: libc::c_long = 1;
        // SAFETY: a null name makes a new keyring that is not shared; the kernel reads no memory.
        let joined = unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<u8>()) };
        if joined == -1 && io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS) {
            return Err(io::Error::last_os_error());
        }
        confine::drop_all_capabilities()
    }
}
