//! Starts the child of a task. The child shares the memory of the shim until it executes its program: copying the page
//! tables of the shim, and the faults that follow in both, would take as long as all the rest of the start. Only a child
//! that others may look into for a moment has a copy.
#![allow(unsafe_code)]

use super::{confine::Restrictions, network::OwnNetwork, user::ChildUser};
use rustix::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::{
    collections::BTreeMap,
    ffi::{CString, c_char, c_int, c_void},
    io,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    ptr,
};

/// The stack of the child until it executes its program. Besides these bytes it needs room for a copy of the arguments:
/// the C library makes one for a script that does not name its interpreter.
const STACK_BYTES: usize = 64 * 1024;

/// The child to start. Everything that it needs is built before it starts.
pub(crate) struct ChildSpec<'a> {
    pub program: &'a Path,
    pub argv: &'a [String],
    pub env: &'a BTreeMap<String, String>,
    pub cwd: OwnedFd,
    pub stdio: ChildStdio,
    /// More descriptors: the number here, and the number in the child.
    pub extra_descriptors: Option<[(RawFd, RawFd); 2]>,
    /// The restrictions that the child applies to itself before exec.
    pub restrictions: Restrictions,
    /// The user that the child becomes, if not the shim's.
    pub user: Option<ChildUser>,
}

/// The standard streams of the child.
pub(crate) enum ChildStdio {
    Pipes {
        /// None is an empty standard input.
        stdin: Option<OwnedFd>,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    /// A terminal, which becomes the controlling terminal of a new session.
    Terminal(OwnedFd),
}

/// Starts the child in its own process group, or with a terminal in its own session. The child is killed when the shim
/// dies, and inherits no other descriptors.
pub(crate) fn spawn(child: ChildSpec<'_>) -> io::Result<u32> {
    let ChildSpec { program, argv, env, cwd, stdio, extra_descriptors, restrictions, user } = child;
    let program = c_string(program.as_os_str().as_bytes())?;
    let argv = argv.iter().map(|word| c_string(word.as_bytes())).collect::<io::Result<Vec<_>>>()?;
    let variable = |(name, value): (&String, &String)| c_string([name, "=", value].concat().as_bytes());
    let env = env.iter().map(variable).collect::<io::Result<Vec<_>>>()?;
    let terminal = matches!(stdio, ChildStdio::Terminal(_));
    let streams = match stdio {
        ChildStdio::Pipes { stdin: Some(stdin), stdout, stderr } => [stdin, stdout, stderr],
        ChildStdio::Pipes { stdin: None, stdout, stderr } => [std::fs::File::open("/dev/null")?.into(), stdout, stderr],
        ChildStdio::Terminal(slave) => [slave.try_clone()?, slave.try_clone()?, slave],
    };
    let (argv_pointers, env_pointers) = (pointers(&argv), pointers(&env));
    let start = ChildStart {
        program: program.as_ptr(),
        argv: argv_pointers.as_ptr(),
        env: env_pointers.as_ptr(),
        streams: streams.each_ref().map(|stream| stream.as_raw_fd()),
        cwd: cwd.as_raw_fd(),
        parent: std::process::id(),
        terminal,
        extra_descriptors,
        user: user.as_ref(),
        restrictions: &restrictions,
        error: SharedError::new()?,
    };
    // A file of its memory that someone else opens while it is dumpable stays open: it must not be the shim's memory.
    let shared =
        if restrictions.own_network.as_ref().is_some_and(OwnNetwork::becomes_dumpable) { 0 } else { libc::CLONE_VM };
    let mut stack = Vec::<u128>::with_capacity(STACK_BYTES / size_of::<u128>() + argv.len());
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    // SAFETY: this thread waits until the child has executed its program or ended, so that everything that the child uses
    // stays as it is. The child has a stack of its own and makes only system calls there; it
    // returns through none of this process's frames.
    let pid = unsafe {
        libc::clone(
            run_child,
            top.cast(),
            shared | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw const start).cast_mut().cast::<c_void>(),
        )
    };
    match (pid, start.error.get()) {
        (-1, _) => Err(io::Error::last_os_error()),
        (pid, Some(error)) => {
            // SAFETY: the child has ended; no pointers.
            unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
            Err(error)
        }
        (pid, None) => Ok(pid.unsigned_abs()),
    }
}

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "an argument contains a NUL byte"))
}

/// The pointers to some texts, and a null pointer.
fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// Everything that the child uses before it executes its program.
struct ChildStart<'a> {
    program: *const c_char,
    argv: *const *const c_char,
    env: *const *const c_char,
    streams: [RawFd; 3],
    cwd: RawFd,
    parent: u32,
    terminal: bool,
    extra_descriptors: Option<[(RawFd, RawFd); 2]>,
    user: Option<&'a ChildUser>,
    restrictions: &'a Restrictions,
    /// Why the program was not executed. The child writes it, and the shim reads it afterwards.
    error: SharedError,
}

/// The number of an error, in memory that the child shares in any case.
struct SharedError(*mut c_int);

impl SharedError {
    fn new() -> io::Result<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, which nothing else uses.
        let page = unsafe { libc::mmap(ptr::null_mut(), size_of::<c_int>(), access, kind, -1, 0) };
        if page == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Self(page.cast())) }
    }

    fn set(&self, error: &io::Error) {
        // SAFETY: the mapping lives as long as this; the shim waits while the child writes.
        unsafe { self.0.write(error.raw_os_error().unwrap_or(libc::EIO)) };
    }

    fn get(&self) -> Option<io::Error> {
        // SAFETY: as above; a new mapping is zero.
        let number = unsafe { self.0.read_volatile() };
        (number != 0).then(|| io::Error::from_raw_os_error(number))
    }
}

impl Drop for SharedError {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.0.cast(), size_of::<c_int>()) };
    }
}

/// The child.
extern "C" fn run_child(start: *mut c_void) -> c_int {
    // SAFETY: the shim passes a `ChildStart` and waits, so that nothing else uses it.
    let start = unsafe { &*start.cast::<ChildStart<'_>>() };
    let prepared = start.prepare();
    // SAFETY: all three point to texts, and to lists of them that end with a null pointer. On success it does not
    // return; `_exit` runs no code of this process.
    unsafe {
        if prepared.is_ok() {
            libc::execvpe(start.program, start.argv, start.env);
        }
        start.error.set(&prepared.err().unwrap_or_else(io::Error::last_os_error));
        libc::_exit(127)
    }
}

impl ChildStart<'_> {
    /// Only system calls, no allocation, no locks: the memory is the shim's.
    fn prepare(&self) -> io::Result<()> {
        // SAFETY: plain system calls on integers, and on a set that lives on the stack. The child has its own table of
        // descriptors and of signal actions.
        unsafe {
            for (fd, stream) in (0..).zip(self.streams) {
                // The shim has all three open, so none of its own descriptors has such a number.
                check(libc::dup2(stream, fd))?;
            }
            if self.terminal {
                // Standard input is the terminal by now.
                check(libc::setsid())?;
                check(libc::ioctl(0, libc::TIOCSCTTY as _, 0))?;
            } else {
                check(libc::setpgid(0, 0))?;
            }
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
        let own_network = self.restrictions.own_network.as_ref();
        if let Some(own) = own_network.filter(|own| own.precedes_user_change()) {
            own.enter()?;
        }
        // Before the rest: changing the user resets some of it.
        if let Some(user) = self.user {
            user.apply()?;
        }
        if let Some(own) = own_network.filter(|own| !own.precedes_user_change()) {
            own.enter()?;
        }
        // SAFETY: as above.
        unsafe {
            check(libc::fchdir(self.cwd))?;
            let empty = std::mem::zeroed::<libc::sigset_t>();
            libc::sigprocmask(libc::SIG_SETMASK, &empty, ptr::null_mut());
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            // The parent may have died before the call above took effect.
            if libc::getppid() as u32 != self.parent {
                libc::_exit(125);
            }
            // A library may have opened descriptors without the flag: none beyond the standard three survives the exec.
            libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
            for (number, child_number) in self.extra_descriptors.into_iter().flatten() {
                check(libc::dup2(number, child_number))?;
            }
        }
        // Last, since the restrictions apply to the calls above too.
        self.restrictions.apply()
    }
}

fn check(result: c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
