//! Which system calls a confined task may not make. Landlock knows files; this is for the rest: sockets, modes and owners,
//! other processes, namespaces, and the doors of the kernel that lead around everything.

use countersign_model::{Confinement, Network};
use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition as Condition,
    SeccompFilter, SeccompRule as Rule, TargetArch, sock_filter,
};
use std::{collections::BTreeMap, sync::OnceLock};

/// Calls from this number on were made after this list: to a confined program they do not exist. So do not those of
/// x32, which have a bit above all others.
const UNKNOWN: u32 = 470;
#[cfg(target_arch = "x86_64")]
const ARCH: (TargetArch, u32) = (TargetArch::x86_64, 0xC000_003E);
#[cfg(target_arch = "aarch64")]
const ARCH: (TargetArch, u32) = (TargetArch::aarch64, 0xC000_00B7);

/// The doors around everything: tracing, other processes' memory and descriptors, the kernel's own facilities.
const KERNEL: &[c_long] = &[
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_kcmp,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    libc::SYS_setns,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_open_by_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
];
/// What changes something without opening it for writing, or speaks with processes elsewhere.
const CHANGES: &[c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_unshare,
    libc::SYS_chroot,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    FCHMODAT2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    REMOVEXATTRAT,
    FILE_SETATTR,
    libc::SYS_linkat,
    libc::SYS_mknodat,
    libc::SYS_memfd_create,
    libc::SYS_memfd_secret,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_mq_timedsend,
    libc::SYS_mq_timedreceive,
    libc::SYS_mq_notify,
    libc::SYS_migrate_pages,
];
/// The older names of some of these.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_link,
    libc::SYS_mknod,
    libc::SYS_uselib,
    libc::SYS_modify_ldt,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];
/// Younger than the library that names the others; the numbers are the same everywhere.
const FCHMODAT2: c_long = 452;
const SETXATTRAT: c_long = 463;
const REMOVEXATTRAT: c_long = 466;
const OPEN_TREE_ATTR: c_long = 467;
const FILE_SETATTR: c_long = 469;
/// Ways to use a socket that is there already.
const SOCKETS: &[c_long] =
    &[libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4];
/// Where the kernel cannot tell a task's own processes from others, it signals nobody.
const SIGNALS: &[c_long] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];
/// New namespaces, as flags of `clone`.
const NAMESPACES: &[u64] = &[0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
/// The only requests that a read-only program makes of a device or a file: about terminals, and questions.
const IOCTLS: &[u64] = &[
    0x5401,
    0x5402,
    0x5403,
    0x5404,
    0x5405, // TCGETS, TCSETS, TCSETSW, TCSETSF, TCGETA
    0x5409,
    0x540A,
    0x540B, // TCSBRK, TCXONC, TCFLSH
    0x540E,
    0x540F,
    0x5410,
    0x5411,
    0x5413,
    0x5414, // TIOCSCTTY, TIOCGPGRP, TIOCSPGRP, TIOCOUTQ, TIOCGWINSZ, TIOCSWINSZ
    0x541B,
    0x5421,
    0x5422,
    0x5429, // FIONREAD, FIONBIO, TIOCNOTTY, TIOCGSID
    0x802C_542A,
    0x402C_542B,
    0x402C_542C,
    0x402C_542D, // TCGETS2 and its sets
    0x8004_5430,
    0x5450,
    0x5451, // TIOCGPTN, FIONCLEX, FIOCLEX
    0x0002,
    0x8008_6601,
    0xC020_660B, // FIGETBSZ, FS_IOC_GETFLAGS, FS_IOC_FIEMAP
];
/// Typing into a terminal, and pasting into one.
const TYPING: &[u64] = &[0x5412, 0x541C];

/// The filter for a confinement, if it has one. Built once; a fork has it, too.
pub(crate) fn filter(confinement: Confinement, network: Network, scoped: bool) -> Option<&'static [sock_filter]> {
    static READ_ONLY: OnceLock<BpfProgram> = OnceLock::new();
    static READ_ONLY_UNSCOPED: OnceLock<BpfProgram> = OnceLock::new();
    static WORKSPACE: OnceLock<BpfProgram> = OnceLock::new();
    static WORKSPACE_ALONE: OnceLock<BpfProgram> = OnceLock::new();
    let program = match (confinement, network) {
        (Confinement::None | Confinement::Shield, _) => return None,
        (Confinement::ReadOnly, _) if scoped => READ_ONLY.get_or_init(|| compile(read_only())),
        (Confinement::ReadOnly, _) => READ_ONLY_UNSCOPED.get_or_init(|| {
            let mut rules = read_only();
            deny(&mut rules, SIGNALS);
            // Where to send a signal when something can be read.
            for command in [libc::F_SETOWN, 15, 10] {
                when(&mut rules, libc::SYS_fcntl, vec![dword(1, Op::Eq, command as u64)]);
            }
            compile(rules)
        }),
        (Confinement::Workspace, Network::Open) => WORKSPACE.get_or_init(|| compile(workspace())),
        (Confinement::Workspace, Network::None) => WORKSPACE_ALONE.get_or_init(|| {
            let mut rules = workspace();
            sockets(&mut rules);
            compile(rules)
        }),
    };
    Some(program)
}

/// Has everything built that a task may need.
pub(crate) fn warm_up() {
    for network in [Network::Open, Network::None] {
        let _ = filter(Confinement::Workspace, network, true);
    }
    let _ = (filter(Confinement::ReadOnly, Network::None, true), filter(Confinement::ReadOnly, Network::None, false));
}

type Rules = BTreeMap<i64, Vec<Rule>>;

fn workspace() -> Rules {
    let mut rules = Rules::new();
    deny(&mut rules, KERNEL);
    for request in TYPING {
        when(&mut rules, libc::SYS_ioctl, vec![dword(1, Op::Eq, *request)]);
    }
    rules
}

fn read_only() -> Rules {
    let mut rules = Rules::new();
    deny(&mut rules, KERNEL);
    deny(&mut rules, CHANGES);
    deny(&mut rules, OLDER);
    sockets(&mut rules);
    when(&mut rules, libc::SYS_ioctl, IOCTLS.iter().map(|request| dword(1, Op::Ne, *request)).collect());
    for flag in NAMESPACES {
        when(&mut rules, libc::SYS_clone, vec![dword(0, Op::MaskedEq(*flag), *flag)]);
    }
    // Its own limits and priority, not those of others: a limit can end a process as well as a signal.
    let (of_another, given) = (dword(0, Op::Ne, 0), condition(1, Len::Qword, Op::Ne, 0));
    when(&mut rules, libc::SYS_prlimit64, vec![of_another.clone(), given]);
    for call in
        [libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr]
    {
        when(&mut rules, call, vec![of_another.clone()]);
    }
    when(&mut rules, libc::SYS_move_pages, vec![of_another]);
    for (call, process) in [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)] {
        when(&mut rules, call, vec![dword(0, Op::Ne, process)]);
        when(&mut rules, call, vec![dword(1, Op::Ne, 0)]);
    }
    rules
}

/// None but pairs, which lead nowhere; and of those none that can be sent elsewhere by an address.
fn sockets(rules: &mut Rules) {
    deny(rules, SOCKETS);
    when(rules, libc::SYS_socketpair, vec![dword(0, Op::Ne, libc::AF_UNIX as u64)]);
    when(rules, libc::SYS_socketpair, vec![dword(1, Op::MaskedEq(0xf), libc::SOCK_DGRAM as u64)]);
}

fn deny(rules: &mut Rules, calls: &[c_long]) {
    for call in calls {
        // No conditions: always.
        rules.insert(*call, Vec::new());
    }
}

fn when(rules: &mut Rules, call: c_long, conditions: Vec<Condition>) {
    let rule = Rule::new(conditions).expect("a rule of this file has conditions");
    rules.entry(call).or_default().push(rule);
}

fn dword(argument: u8, op: Op, value: u64) -> Condition {
    condition(argument, Len::Dword, op, value)
}

fn condition(argument: u8, len: Len, op: Op, value: u64) -> Condition {
    Condition::new(argument, len, op, value).expect("a call has no more than six arguments")
}

/// What is not known does not exist; what is listed is not permitted; everything else is as ever.
fn compile(rules: Rules) -> BpfProgram {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    let no_such_call = sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32 };
    let step = |code, k, jt, jf| sock_filter { code, jt, jf, k };
    let mut program = vec![
        step(LOAD, 4, 0, 0),
        step(EQUAL, ARCH.1, 0, 3),
        step(LOAD, 0, 0, 0),
        step(AT_LEAST, UNKNOWN, 1, 0),
        // Its flags are in memory, where they cannot be seen; libraries go back to `clone`.
        step(EQUAL, libc::SYS_clone3 as u32, 0, 1),
        no_such_call,
    ];
    let not_permitted = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, not_permitted, ARCH.0).expect("the rules are sound");
    program.extend::<BpfProgram>(filter.try_into().expect("the rules fit into a program"));
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would answer: a program is a few instructions, and so is a machine for them.
    fn answer(program: &[sock_filter], arch: u32, call: u32, arguments: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend(call.to_le_bytes());
        data.extend(arch.to_le_bytes());
        data.extend(0u64.to_le_bytes());
        arguments.iter().for_each(|a| data.extend(a.to_le_bytes()));
        let (mut at, mut a) = (0usize, 0u32);
        loop {
            let s = &program[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { s.jt } else { s.jf });
            match s.code {
                0x20 => a = u32::from_le_bytes(data[s.k as usize..s.k as usize + 4].try_into().unwrap()),
                0x15 => at += jump(a == s.k),
                0x25 => at += jump(a > s.k),
                0x35 => at += jump(a >= s.k),
                0x05 => at += s.k as usize,
                0x54 => a &= s.k,
                0x06 => return s.k,
                other => panic!("an instruction that this machine does not have: {other:#x}"),
            }
        }
    }

    const ALLOW: u32 = 0x7fff_0000;
    const EPERM: u32 = 0x0005_0001;
    const ENOSYS: u32 = 0x0005_0026;

    #[test]
    fn a_read_only_task_gets_files_and_pipes_and_nothing_else() {
        let program = filter(Confinement::ReadOnly, Network::None, true).unwrap();
        let native = ARCH.1;
        let ask =
            |call: c_long, first: u64, second: u64| answer(program, native, call as u32, [first, second, 0, 0, 0, 0]);
        for call in [libc::SYS_openat, libc::SYS_read, libc::SYS_execve, libc::SYS_kill, libc::SYS_statx] {
            assert_eq!(ask(call, 1, 1), ALLOW, "{call}");
        }
        for domain in 0..64 {
            assert_eq!(ask(libc::SYS_socket, domain, 1), EPERM);
            let pair = if domain == libc::AF_UNIX as u64 { ALLOW } else { EPERM };
            assert_eq!(ask(libc::SYS_socketpair, domain, 1), pair);
        }
        assert_eq!(ask(libc::SYS_socketpair, 1, (libc::SOCK_DGRAM | libc::SOCK_CLOEXEC) as u64), EPERM);
        for call in CHANGES.iter().chain(KERNEL).chain(OLDER) {
            assert_eq!(ask(*call, 0, 0), EPERM, "{call}");
        }
        assert_eq!(ask(libc::SYS_ioctl, 0, 0x5401), ALLOW);
        assert_eq!(ask(libc::SYS_ioctl, 0, 0xffff_ffff_0000_5401), ALLOW, "the kernel looks at 32 bits");
        for request in [0x5412, 0x4008_6602, 0x401C_5820, 0x1_0000_5412] {
            assert_eq!(ask(libc::SYS_ioctl, 0, request), EPERM, "{request:#x}");
        }
        assert_eq!(ask(libc::SYS_clone, 0x0120_0011, 0), ALLOW);
        assert_eq!(ask(libc::SYS_clone, 0x1000_0011, 0), EPERM);
        assert_eq!(ask(libc::SYS_clone3, 0, 0), ENOSYS);
        assert_eq!(ask(libc::SYS_prlimit64, 0, 0), ALLOW);
        assert_eq!(answer(program, native, libc::SYS_prlimit64 as u32, [9, 0, 0, 0, 0, 0]), ALLOW);
        assert_eq!(answer(program, native, libc::SYS_prlimit64 as u32, [9, 1 << 40, 0, 0, 0, 0]), EPERM);
    }

    #[test]
    fn other_ways_to_call_the_kernel_do_not_exist() {
        for network in [Network::Open, Network::None] {
            for confinement in [Confinement::ReadOnly, Confinement::Workspace] {
                let program = filter(confinement, network, true).unwrap();
                assert_eq!(answer(program, ARCH.1, 0x4000_0000 + 41, [2, 1, 0, 0, 0, 0]), ENOSYS, "x32");
                assert_eq!(answer(program, 0x4000_0003, 102, [1, 0, 0, 0, 0, 0]), ENOSYS, "i386");
                assert_eq!(answer(program, ARCH.1, UNKNOWN, [0; 6]), ENOSYS, "not made yet");
            }
        }
    }

    #[test]
    fn without_scopes_nobody_is_signalled() {
        let program = filter(Confinement::ReadOnly, Network::None, false).unwrap();
        for call in SIGNALS {
            assert_eq!(answer(program, ARCH.1, *call as u32, [0; 6]), EPERM, "{call}");
        }
        assert_eq!(answer(program, ARCH.1, libc::SYS_fcntl as u32, [0, 8, 0, 0, 0, 0]), EPERM);
        assert_eq!(answer(program, ARCH.1, libc::SYS_fcntl as u32, [0, 4, 0, 0, 0, 0]), ALLOW);
    }

    #[test]
    fn a_workspace_builds_and_talks_unless_it_shall_not() {
        let open = filter(Confinement::Workspace, Network::Open, true).unwrap();
        let alone = filter(Confinement::Workspace, Network::None, true).unwrap();
        for call in [libc::SYS_fchmodat, libc::SYS_ptrace, libc::SYS_linkat] {
            assert_eq!(answer(open, ARCH.1, call as u32, [0; 6]), ALLOW);
            assert_eq!(answer(alone, ARCH.1, call as u32, [0; 6]), ALLOW);
        }
        assert_eq!(answer(open, ARCH.1, libc::SYS_socket as u32, [2, 1, 0, 0, 0, 0]), ALLOW);
        assert_eq!(answer(alone, ARCH.1, libc::SYS_socket as u32, [2, 1, 0, 0, 0, 0]), EPERM);
        assert_eq!(answer(open, ARCH.1, libc::SYS_ioctl as u32, [0, 0x5412, 0, 0, 0, 0]), EPERM);
    }
}
