//! Tries to escape from a sandbox: writes, connects, signals, traces, reads keys, creates namespaces, uses other system
//! call tables. Prints `ESCAPED …` for what succeeds, and at the end how much it tried.
//!
//! It harms no machine, sandboxed or not: dangerous calls get arguments that make no sense, and only whether they were
//! *refused* counts.
//!
//! The tests start it under the names of read-only programs. `escape.targets`, beside the program, names the targets.
#![allow(unsafe_code)]

use std::{
    collections::HashMap,
    ffi::CString,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

fn main() {
    let me = fs::read_link("/proc/self/exe").unwrap_or_default();
    if std::env::args().nth(1).as_deref() == Some("--who") {
        // SAFETY: asks for two numbers.
        let gained = unsafe { libc::geteuid() != libc::getuid() };
        std::process::exit(if gained { 7 } else { 0 });
    }
    let text = fs::read_to_string(me.with_file_name("escape.targets")).unwrap_or_default();
    let targets: HashMap<&str, &str> = text.lines().filter_map(|l| l.split_once('=')).collect();
    let mut probe = Probe { tried: 0, escaped: 0 };
    match targets.get("mode").copied() {
        Some("forks") => return forks(),
        Some("memory") => return memory(),
        Some("output") => return output(),
        Some("disk") => return disk(),
        Some("files") => return files(),
        Some("threads") => return threads(),
        Some("zombies") => return zombies(),
        Some("closed") => return closed(),
        _ => {}
    }
    for (name, directory) in targets.iter().filter(|(name, _)| name.starts_with("write.")) {
        probe.files(name, Path::new(directory));
    }
    for (name, path) in targets.iter().filter(|(name, _)| name.starts_with("read.")) {
        probe.secrets(name, Path::new(path));
    }
    for (name, pid) in targets.iter().filter(|(name, _)| name.starts_with("pid.")) {
        if let Ok(pid) = pid.parse() {
            probe.processes(name, pid);
        }
    }
    // SAFETY: asks for a number.
    probe.processes("parent", unsafe { libc::getppid() });
    probe.sockets();
    probe.kernel();
    probe.other_system_call_tables();
    probe.programs(&targets);
    println!("tried {} escaped {}", probe.tried, probe.escaped);
}

struct Probe {
    tried: u32,
    escaped: u32,
}

fn c(path: &Path) -> CString {
    CString::new(path.as_os_str().as_encoded_bytes()).unwrap_or_default()
}

/// Makes a system call by its number.
fn call(number: libc::c_long, args: &[usize]) -> isize {
    let arg = |n: usize| args.get(n).copied().unwrap_or(0);
    // SAFETY: the callers of this file give pointers to what lives on their stack, or none.
    unsafe { libc::syscall(number, arg(0), arg(1), arg(2), arg(3), arg(4), arg(5)) as isize }
}

impl Probe {
    fn report(&mut self, what: impl AsRef<str>, done: bool) {
        self.tried += 1;
        if done {
            self.escaped += 1;
            println!("ESCAPED {}", what.as_ref());
        }
    }

    /// A call that must not succeed.
    fn must_fail(&mut self, what: impl AsRef<str>, number: libc::c_long, args: &[usize]) {
        let got = call(number, args);
        self.report(what, got >= 0);
    }

    /// A call with arguments that make no sense: the kernel must refuse it before it reads them.
    fn must_be_refused(&mut self, what: impl AsRef<str>, number: libc::c_long, args: &[usize]) {
        let got = call(number, args);
        // SAFETY: reads the error of the call before.
        let error = unsafe { *libc::__errno_location() };
        self.report(what, got >= 0 || ![libc::EPERM, libc::EACCES, libc::ENOSYS].contains(&error));
    }

    /// Everything that changes a file or a directory. `victim` is a file in it, `empty` an empty directory.
    fn files(&mut self, name: &str, directory: &Path) {
        let victim = directory.join("victim");
        let new = directory.join("new");
        let open = |flags: i32, path: &Path| call(libc::SYS_open, &[c(path).as_ptr() as usize, flags as usize, 0o600]);
        for (how, flags) in [
            ("write", libc::O_WRONLY),
            ("read and write", libc::O_RDWR),
            ("append", libc::O_WRONLY | libc::O_APPEND),
            ("truncate", libc::O_RDONLY | libc::O_TRUNC),
        ] {
            self.report(format!("{name}: open to {how}"), open(flags, &victim) >= 0);
        }
        self.report(format!("{name}: create"), open(libc::O_CREAT | libc::O_RDONLY, &new) >= 0);
        self.report(format!("{name}: create unnamed"), open(libc::O_TMPFILE | libc::O_RDWR, directory) >= 0);
        let (v, n, d) = (c(&victim), c(&new), c(directory));
        let (v, n, d) = (v.as_ptr() as usize, n.as_ptr() as usize, d.as_ptr() as usize);
        let at = libc::AT_FDCWD as usize;
        let times = [0i64; 4];
        let attribute = c"user.escape".as_ptr() as usize;
        self.must_fail(format!("{name}: truncate"), libc::SYS_truncate, &[v, 0]);
        self.must_fail(format!("{name}: link"), libc::SYS_link, &[v, n]);
        self.must_fail(format!("{name}: linkat"), libc::SYS_linkat, &[at, v, at, n, 0]);
        self.must_fail(format!("{name}: symlink"), libc::SYS_symlink, &[c"/".as_ptr() as usize, n]);
        self.must_fail(format!("{name}: mkdir"), libc::SYS_mkdir, &[n, 0o700]);
        self.must_fail(format!("{name}: mkfifo"), libc::SYS_mknod, &[n, (libc::S_IFIFO | 0o600) as usize, 0]);
        self.must_fail(
            format!("{name}: make a file node"),
            libc::SYS_mknodat,
            &[at, n, (libc::S_IFREG | 0o600) as usize, 0],
        );
        self.must_fail(format!("{name}: chmod"), libc::SYS_chmod, &[v, 0o777]);
        self.must_fail(format!("{name}: chmod of the directory"), libc::SYS_chmod, &[d, 0o777]);
        self.must_fail(format!("{name}: fchmodat"), libc::SYS_fchmodat, &[at, v, 0o777]);
        self.must_fail(format!("{name}: fchmodat2"), 452, &[at, v, 0o777, 0]);
        // SAFETY: asks for two numbers.
        let (uid, gid) = unsafe { (libc::getuid() as usize, libc::getgid() as usize) };
        self.must_fail(format!("{name}: chown"), libc::SYS_chown, &[v, uid, gid]);
        self.must_fail(format!("{name}: lchown"), libc::SYS_lchown, &[v, uid, gid]);
        self.must_fail(format!("{name}: fchownat"), libc::SYS_fchownat, &[at, v, uid, gid, 0]);
        self.must_fail(format!("{name}: utimensat"), libc::SYS_utimensat, &[at, v, times.as_ptr() as usize, 0]);
        self.must_fail(format!("{name}: utimes"), libc::SYS_utimes, &[v, times.as_ptr() as usize]);
        self.must_fail(format!("{name}: utime"), libc::SYS_utime, &[v, times.as_ptr() as usize]);
        self.must_fail(format!("{name}: setxattr"), libc::SYS_setxattr, &[v, attribute, attribute, 4, 0]);
        let args = [attribute as u64, 4u64 << 32];
        self.must_fail(format!("{name}: setxattrat"), 463, &[at, v, 0, attribute, args.as_ptr() as usize, 16]);
        self.must_fail(format!("{name}: removexattr"), libc::SYS_removexattr, &[v, c"user.there".as_ptr() as usize]);
        // Through a descriptor that is open for reading only.
        let fd = open(libc::O_RDONLY, &victim);
        if fd >= 0 {
            let fd = fd as usize;
            self.must_fail(format!("{name}: fchmod"), libc::SYS_fchmod, &[fd, 0o777]);
            self.must_fail(format!("{name}: fchown"), libc::SYS_fchown, &[fd, uid, gid]);
            self.must_fail(format!("{name}: futimens"), libc::SYS_utimensat, &[fd, 0, times.as_ptr() as usize, 0]);
            self.must_fail(format!("{name}: fsetxattr"), libc::SYS_fsetxattr, &[fd, attribute, attribute, 4, 0]);
            self.must_fail(format!("{name}: ftruncate"), libc::SYS_ftruncate, &[fd, 0]);
            let mut flags = 0i64;
            let flags = (&raw mut flags) as usize;
            self.must_fail(format!("{name}: chattr"), libc::SYS_ioctl, &[fd, 0x4008_6602, flags]);
            let own = PathBuf::from(format!("/proc/self/fd/{fd}"));
            self.report(format!("{name}: opened again"), open(libc::O_RDWR, &own) >= 0);
        }
        let moved = directory.join("moved");
        let moved = c(&moved);
        self.must_fail(format!("{name}: rename"), libc::SYS_rename, &[v, moved.as_ptr() as usize]);
        let temporary = std::env::temp_dir().join("theirs");
        let temporary = c(&temporary);
        self.must_fail(format!("{name}: rename away"), libc::SYS_rename, &[v, temporary.as_ptr() as usize]);
        self.must_fail(format!("{name}: unlink"), libc::SYS_unlink, &[v]);
        let empty = c(&directory.join("empty"));
        self.must_fail(format!("{name}: rmdir"), libc::SYS_rmdir, &[empty.as_ptr() as usize]);
        // A program of its own.
        self.report(format!("{name}: execute"), runs(&directory.join("program"), &["--who"]).is_some());
    }

    /// Reading secrets, by their name and by others.
    fn secrets(&mut self, name: &str, path: &Path) {
        let byte = |path: &Path| fs::File::open(path).and_then(|mut f| std::io::Read::read(&mut f, &mut [0; 1]));
        let mut ways = vec![path.to_owned()];
        if let Ok(below) = path.strip_prefix("/") {
            ways.push(Path::new("/proc/self/root").join(below));
            ways.push(Path::new("/proc/1/root").join(below));
            ways.push(Path::new("/proc/self/cwd/../../../../../../../..").join(below));
            ways.push(Path::new("/usr/..").join(below));
        }
        let link = std::env::temp_dir().join("link");
        let _ = fs::remove_file(&link);
        let _ = std::os::unix::fs::symlink(path, &link);
        ways.push(link);
        for way in ways {
            self.report(format!("{name}: read {}", way.display()), byte(&way).is_ok());
        }
        // By a handle, which needs no path.
        let mut handle = [0u32; 36];
        handle[0] = 128;
        let mut mount = 0i32;
        let (at, path) = (libc::AT_FDCWD as usize, c(path));
        let (handle, mount) = ((&raw mut handle) as usize, (&raw mut mount) as usize);
        if call(libc::SYS_name_to_handle_at, &[at, path.as_ptr() as usize, handle, mount, 0]) == 0 {
            let root = call(libc::SYS_open, &[c"/".as_ptr() as usize, libc::O_RDONLY as usize]);
            let root = if root >= 0 { root as usize } else { at };
            self.must_fail(format!("{name}: open by handle"), libc::SYS_open_by_handle_at, &[root, handle, 0]);
        }
    }

    /// What one process can do to another.
    fn processes(&mut self, name: &str, pid: i32) {
        let p = pid as usize;
        self.must_fail(format!("{name}: kill"), libc::SYS_kill, &[p, libc::SIGCONT as usize]);
        self.must_fail(format!("{name}: kill with nothing"), libc::SYS_kill, &[p, 0]);
        self.must_fail(format!("{name}: tkill"), libc::SYS_tkill, &[p, libc::SIGCONT as usize]);
        self.must_fail(format!("{name}: tgkill"), libc::SYS_tgkill, &[p, p, libc::SIGCONT as usize]);
        let info = [0u64; 16];
        let queue = [p, libc::SIGCONT as usize, info.as_ptr() as usize];
        self.must_fail(format!("{name}: queue a signal"), libc::SYS_rt_sigqueueinfo, &queue);
        let pidfd = call(libc::SYS_pidfd_open, &[p, 0]);
        if pidfd >= 0 {
            let fd = pidfd as usize;
            self.must_fail(format!("{name}: signal by descriptor"), libc::SYS_pidfd_send_signal, &[fd, 18, 0, 0]);
            self.must_fail(format!("{name}: take a descriptor"), libc::SYS_pidfd_getfd, &[fd, 0, 0]);
            self.must_fail(format!("{name}: join its namespaces"), libc::SYS_setns, &[fd, libc::CLONE_NEWUTS as usize]);
        }
        self.must_fail(format!("{name}: trace"), libc::SYS_ptrace, &[libc::PTRACE_SEIZE as usize, p, 0, 0]);
        let mut bytes = [0u8; 8];
        let own = [bytes.as_mut_ptr() as usize, 8usize];
        let theirs = [0x1000usize, 8];
        let got = call(libc::SYS_process_vm_readv, &[p, own.as_ptr() as usize, 1, theirs.as_ptr() as usize, 1, 0]);
        // SAFETY: reads the error of the call before.
        let refused = got < 0 && unsafe { *libc::__errno_location() } == libc::EPERM;
        self.report(format!("{name}: read its memory"), !refused);
        for file in ["mem", "environ", "maps", "auxv", "syscall", "stack"] {
            let path = format!("/proc/{pid}/{file}");
            let read = fs::File::open(path).and_then(|mut f| std::io::Read::read(&mut f, &mut [0; 1]));
            self.report(format!("{name}: /proc/PID/{file}"), read.is_ok_and(|n| n > 0));
        }
        // Which descriptors are open may be seen; what they are may not.
        for dir in ["fd", "map_files", "ns"] {
            let entries = fs::read_dir(format!("/proc/{pid}/{dir}")).into_iter().flatten().flatten();
            let told = entries.into_iter().any(|e| fs::read_link(e.path()).is_ok());
            self.report(format!("{name}: /proc/PID/{dir}"), told);
        }
        for link in ["exe", "cwd", "root"] {
            self.report(format!("{name}: /proc/PID/{link}"), fs::read_link(format!("/proc/{pid}/{link}")).is_ok());
        }
        // A descriptor that it already has.
        let mut limits = [0u64; 2];
        let (core, at) = (libc::RLIMIT_CORE as usize, (&raw mut limits) as usize);
        call(libc::SYS_prlimit64, &[p, core, 0, at]);
        self.must_fail(format!("{name}: set its limits"), libc::SYS_prlimit64, &[p, core, at, 0]);
        self.must_fail(format!("{name}: set its priority"), libc::SYS_setpriority, &[0, p, 0]);
        self.must_fail(format!("{name}: set its io priority"), libc::SYS_ioprio_set, &[1, p, 0]);
        let all = [u64::MAX; 16];
        self.must_fail(
            format!("{name}: choose its processors"),
            libc::SYS_sched_setaffinity,
            &[p, 128, all.as_ptr() as usize],
        );
        // SAFETY: asks for a number.
        let me = unsafe { libc::getpid() } as usize;
        self.must_fail(format!("{name}: compare with it"), libc::SYS_kcmp, &[me, p, 0, 0, 0]);
        for file in ["oom_score_adj", "comm", "coredump_filter"] {
            let wrote = fs::OpenOptions::new().write(true).open(format!("/proc/{pid}/{file}"));
            self.report(format!("{name}: write /proc/PID/{file}"), wrote.is_ok());
        }
    }

    fn sockets(&mut self) {
        for family in 1..46usize {
            for kind in [1usize, 2, 3, 5] {
                let fd = call(libc::SYS_socket, &[family, kind, 0]);
                self.report(format!("socket of family {family}, kind {kind}"), fd >= 0);
            }
            if family != libc::AF_UNIX as usize {
                let mut pair = [0i32; 2];
                let pair = (&raw mut pair) as usize;
                self.must_fail(format!("pair of family {family}"), libc::SYS_socketpair, &[family, 1, 0, pair]);
            }
        }
        let mut pair = [0i32; 2];
        let at = (&raw mut pair) as usize;
        for kind in [2usize, 3, 4] {
            self.must_fail(
                format!("pair of kind {kind}, which takes addresses"),
                libc::SYS_socketpair,
                &[1, kind, 0, at],
            );
        }
        // A socket pair of its own leads nowhere, whatever address it gets.
        if call(libc::SYS_socketpair, &[1, 1, 0, at]) == 0 {
            let address = [1u8, 0, b'/', b'x', 0];
            let (fd, address) = (pair[0] as usize, address.as_ptr() as usize);
            self.must_fail("connect a pair", libc::SYS_connect, &[fd, address, 5]);
            self.must_fail("bind a pair", libc::SYS_bind, &[fd, address, 5]);
            self.must_fail("listen on a pair", libc::SYS_listen, &[fd, 1]);
        }
    }

    fn kernel(&mut self) {
        let nowhere = c"/no/such/place".as_ptr() as usize;
        self.must_be_refused("mount", libc::SYS_mount, &[nowhere, nowhere, c"tmpfs".as_ptr() as usize, 0, 0]);
        self.must_be_refused("bind mount", libc::SYS_mount, &[nowhere, nowhere, 0, libc::MS_BIND as usize, 0]);
        self.must_be_refused("umount", libc::SYS_umount2, &[nowhere, libc::MNT_DETACH as usize]);
        self.must_be_refused("pivot_root", libc::SYS_pivot_root, &[nowhere, nowhere]);
        self.must_be_refused("move_mount", libc::SYS_move_mount, &[usize::MAX, nowhere, usize::MAX, nowhere, 0]);
        self.must_be_refused("open_tree", libc::SYS_open_tree, &[libc::AT_FDCWD as usize, nowhere, 1]);
        self.must_be_refused("fsopen", libc::SYS_fsopen, &[c"no-such-fs".as_ptr() as usize, 0]);
        self.must_be_refused("chroot", libc::SYS_chroot, &[nowhere]);
        for flag in
            [0x0002_0000usize, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000, 0x80]
        {
            // SAFETY: a child that makes one call and ends.
            let done = unsafe {
                let pid = libc::fork();
                if pid == 0 {
                    libc::_exit(if libc::syscall(libc::SYS_unshare, flag) == 0 { 7 } else { 0 });
                }
                let mut status = 0;
                libc::waitpid(pid, &mut status, 0);
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7
            };
            self.report(format!("unshare {flag:#x}"), done);
        }
        // SAFETY: in a child that ends immediately.
        unsafe {
            let pid = libc::syscall(libc::SYS_clone, 0x1000_0000 | libc::SIGCHLD, 0, 0, 0, 0);
            if pid == 0 {
                libc::_exit(0);
            }
            self.report("clone into a new user namespace", pid > 0);
            let args = [0x1000_0000u64, 0, 0, 0, libc::SIGCHLD as u64, 0, 0, 0];
            let pid = libc::syscall(libc::SYS_clone3, args.as_ptr(), size_of_val(&args));
            if pid == 0 {
                libc::_exit(0);
            }
            self.report("clone3 into a new user namespace", pid > 0);
        }
        if let Ok(fd) = fs::File::open("/proc/self/ns/uts") {
            self.must_fail("setns", libc::SYS_setns, &[std::os::fd::AsRawFd::as_raw_fd(&fd) as usize, 0]);
        }
        let mut block = [0u64; 32];
        let block = (&raw mut block) as usize;
        self.must_be_refused("io_uring", libc::SYS_io_uring_setup, &[0, block]);
        self.must_fail("bpf", libc::SYS_bpf, &[0, block, 128]);
        self.must_fail("perf", libc::SYS_perf_event_open, &[block, 0, usize::MAX, usize::MAX, 0]);
        self.must_fail("userfaultfd", libc::SYS_userfaultfd, &[1]);
        self.must_fail("keyctl", libc::SYS_keyctl, &[0, -3isize as usize, 1]);
        let (kind, text) = (c"user".as_ptr() as usize, c"x".as_ptr() as usize);
        self.must_fail("add_key", libc::SYS_add_key, &[kind, text, text, 1, -2isize as usize]);
        const KEY: usize = 0x7ec5_a9e1;
        self.must_be_refused("shmget", libc::SYS_shmget, &[KEY, 0, 0]);
        self.must_be_refused("msgget", libc::SYS_msgget, &[KEY, 0]);
        self.must_be_refused("semget", libc::SYS_semget, &[KEY, 0, 0]);
        self.must_be_refused("mq_open", libc::SYS_mq_open, &[c"no-such-queue".as_ptr() as usize, 0, 0, 0]);
        self.must_fail("memfd", libc::SYS_memfd_create, &[text, 0]);
        self.must_fail("shared memory of nobody", libc::SYS_mmap, &[0, 4096, 3, 0x21, usize::MAX, 0]);
        if let Ok(file) = fs::File::open("/etc/passwd") {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&file) as usize;
            self.must_fail("lease", libc::SYS_fcntl, &[fd, libc::F_SETLEASE as usize, libc::F_RDLCK as usize]);
        }
        self.must_fail("fanotify", libc::SYS_fanotify_init, &[0, 0]);
        self.must_be_refused("sethostname", libc::SYS_sethostname, &[text, 100_000]);
        self.must_be_refused("renice a user", libc::SYS_setpriority, &[2, 4_242_424, 0]);
        // Its capabilities, and those that a program could give it back.
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).map(|v| v.trim().to_owned());
        for name in ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:"] {
            self.report(
                format!("has capabilities, {name}"),
                field(name).is_none_or(|v| !v.trim_start_matches('0').is_empty()),
            );
        }
        self.report("may gain new rights", field("NoNewPrivs:").as_deref() != Some("1"));
        for fd in 0..3usize {
            self.must_fail(format!("type into {fd}"), libc::SYS_ioctl, &[fd, libc::TIOCSTI as usize, text]);
            // SAFETY: the kernel looks at 32 bits of a request only.
            self.must_fail(format!("type into {fd}, disguised"), libc::SYS_ioctl, &[fd, 0xffff_ffff_0000_5412, text]);
        }
    }

    /// System calls by the numbers of other tables.
    fn other_system_call_tables(&mut self) {
        const X32: libc::c_long = 0x4000_0000;
        self.must_fail("socket by x32", X32 | libc::SYS_socket, &[libc::AF_INET as usize, 2, 0]);
        let path = c(&std::env::temp_dir());
        self.must_fail("chmod by x32", X32 | libc::SYS_chmod, &[path.as_ptr() as usize, 0o700]);
        #[cfg(target_arch = "x86_64")]
        {
            // socket is 359 there, getpid 20; a kernel without this table ends the child.
            let in_child = |number: i32, a: i32, b: i32| {
                // SAFETY: a child that makes one call and ends; rbx is put back.
                unsafe {
                    let pid = libc::fork();
                    if pid == 0 {
                        let got: i32;
                        std::arch::asm!(
                            "push rbx", "mov ebx, {a:e}", "int 0x80", "pop rbx",
                            a = in(reg) a, inlateout("eax") number => got, in("ecx") b, in("edx") 0,
                            options(nomem),
                        );
                        libc::_exit(if got >= 0 { 7 } else { 0 });
                    }
                    let mut status = 0;
                    libc::waitpid(pid, &mut status, 0);
                    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7
                }
            };
            let (of_socket, of_pid) = (in_child(359, libc::AF_INET, 2), in_child(20, 0, 0));
            self.report("socket by int 0x80", of_socket);
            self.report("getpid by int 0x80", of_pid);
        }
    }

    /// Programs that give privileges, and programs of its own.
    fn programs(&mut self, targets: &HashMap<&str, &str>) {
        if let Some(program) = targets.get("setuid") {
            self.report("rights from a setuid program", runs(Path::new(program), &["--who"]) == Some(7));
        }
        let own = std::env::temp_dir().join("own-program");
        if fs::copy("/proc/self/exe", &own).is_ok() {
            self.report("a program that it has written", runs(&own, &["--who"]).is_some());
        }
    }
}

/// Starts a program and returns how it ended; none if it could not be started.
#[expect(clippy::disallowed_methods, reason = "whether it can be started is the question")]
fn runs(program: &Path, args: &[&str]) -> Option<i32> {
    std::process::Command::new(program).args(args).status().ok().and_then(|s| s.code())
}

/// Starts waiting processes without end and prints how many it could start.
fn forks() {
    let mut started = 0;
    for _ in 0..10_000 {
        // SAFETY: the child only waits.
        let child = unsafe { libc::fork() };
        match child {
            0 => loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            },
            -1 => break,
            _ => started += 1,
        }
    }
    println!("made {started}");
    let _ = std::io::stdout().flush();
    // SAFETY: waits for a signal.
    unsafe { libc::pause() };
}

/// Allocates memory without end: in this process, and then in many.
fn memory() {
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    let page = vec![1u8; 1 << 20];
    loop {
        let mut block: Vec<u8> = Vec::new();
        if block.try_reserve_exact(64 << 20).is_err() {
            // SAFETY: the child continues as if it had allocated nothing yet.
            let child = unsafe { libc::fork() };
            if child == 0 {
                blocks.clear();
                continue;
            }
            loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            }
        }
        (0..64).for_each(|_| block.extend_from_slice(&page));
        blocks.push(block);
    }
}

/// Prints more than is ever stored.
fn output() {
    let block = vec![b'x'; 1 << 20];
    let mut out = std::io::stdout().lock();
    for _ in 0..2 * 1024 {
        if out.write_all(&block).is_err() {
            return;
        }
    }
}

/// Writes one file that grows without end.
fn disk() {
    let block = vec![b'x'; 1 << 20];
    let Ok(mut file) = fs::File::create(std::env::temp_dir().join("large")) else { return };
    let mut wrote = 0u64;
    while wrote < 4 << 10 && file.write_all(&block).is_ok() {
        wrote += 1;
    }
    println!("wrote {wrote}");
}

/// Writes small files without end.
fn files() {
    let block = vec![b'x'; 64 << 20];
    for n in 0..200 {
        if fs::write(std::env::temp_dir().join(format!("f{n}")), &block).is_err() {
            break;
        }
    }
    println!("wrote them");
}

fn threads() {
    for _ in 0..2_000 {
        if std::thread::Builder::new().stack_size(64 << 10).spawn(std::thread::park).is_err() {
            break;
        }
    }
    std::thread::park();
}

/// Starts children that end and are never reaped.
fn zombies() {
    for _ in 0..2_000 {
        // SAFETY: the child ends at once.
        if unsafe { libc::fork() } == 0 {
            // SAFETY: ends this process.
            unsafe { libc::_exit(0) };
        }
    }
    std::thread::park();
}

/// Leaves directories that are hard to remove.
fn closed() {
    let mut at = std::env::temp_dir();
    let _ = fs::create_dir_all(at.join("open"));
    // SAFETY: plain integers and a path that lives as long as the call.
    unsafe {
        libc::umask(0);
        let inner = c(&at.join("closed"));
        libc::mkdir(inner.as_ptr(), 0o700);
        let _ = fs::write(at.join("closed/left"), "x");
        let deep = c"deep";
        let _ = std::env::set_current_dir(&at);
        for _ in 0..5_000 {
            libc::mkdir(deep.as_ptr(), 0o700);
            libc::chdir(deep.as_ptr());
        }
    }
    at.push("shut");
    // SAFETY: as above.
    unsafe { libc::mkdir(c(&at).as_ptr(), 0o300) };
    println!("left");
}
