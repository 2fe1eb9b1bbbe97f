//! Which system calls a confined task may not make. Landlock knows files; this is for the rest: sockets, modes and owners,
//! other processes, namespaces, and the doors of the kernel that lead around everything.

use crate::sys::confine::FilterInstruction;
use countersign_model::Confinement;
use libc::c_long;
use std::{collections::BTreeMap, sync::OnceLock};

/// Calls from this number on were made after this list: to a confined program they do not exist. So do not those of
/// x32, which have a bit above all others.
const UNKNOWN: u32 = 470;
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;

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
const NAMESPACES: &[u32] = &[0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
/// The only requests that a read-only program makes of a device or a file: about terminals, and questions.
const IOCTLS: &[u32] = &[
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
const TYPING: &[u32] = &[0x5412, 0x541C];

/// Which kinds of sockets a task in a workspace may make, beside pairs of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SocketFamilies {
    /// Of the internet: where the network is open, or the task's own.
    pub(crate) inet: bool,
    /// By path: Landlock does not stop connecting to these, so making one is what is refused.
    pub(crate) unix: bool,
}

/// The filter for a confinement, if it has one. Built once; a fork has it, too.
pub(crate) fn filter(
    confinement: Confinement,
    may: SocketFamilies,
    scoped: bool,
) -> Option<&'static [FilterInstruction]> {
    static READ_ONLY: OnceLock<Vec<FilterInstruction>> = OnceLock::new();
    static READ_ONLY_UNSCOPED: OnceLock<Vec<FilterInstruction>> = OnceLock::new();
    static WORKSPACES: [OnceLock<Vec<FilterInstruction>>; 4] = [const { OnceLock::new() }; 4];
    let program = match confinement {
        Confinement::None | Confinement::Shield => return None,
        Confinement::ReadOnly if scoped => READ_ONLY.get_or_init(|| compile(&read_only())),
        Confinement::ReadOnly => READ_ONLY_UNSCOPED.get_or_init(|| {
            let mut rules = read_only();
            deny(&mut rules, SIGNALS);
            // Where to send a signal when something can be read.
            for command in [libc::F_SETOWN, 15, 10] {
                when(&mut rules, libc::SYS_fcntl, &[Is(1, command as u32)]);
            }
            compile(&rules)
        }),
        Confinement::Workspace => {
            WORKSPACES[usize::from(may.inet) * 2 + usize::from(may.unix)].get_or_init(|| compile(&workspace(may)))
        }
    };
    Some(program)
}

/// Has everything built that a task may need.
pub(crate) fn warm_up() {
    for may in SocketFamilies::ALL {
        let _ = filter(Confinement::Workspace, may, true);
    }
    for scoped in [true, false] {
        let _ = filter(Confinement::ReadOnly, SocketFamilies::NONE, scoped);
    }
}

/// What is refused of each call: when all conditions of one of these hold. One without conditions always does.
type CallRules = BTreeMap<c_long, Vec<Vec<Condition>>>;

/// Something about an argument of a call. The kernel looks at 32 bits of most of them, and so does a filter.
#[derive(Debug, Clone, Copy)]
enum Condition {
    Is(u32, u32),
    IsNot(u32, u32),
    /// These bits are exactly so.
    Bits(u32, u32, u32),
    NotBits(u32, u32, u32),
    /// All 64 bits: a pointer that is given.
    Given(u32),
}

use Condition::{Bits, Given, Is, IsNot, NotBits};

impl SocketFamilies {
    pub(crate) const NONE: Self = Self { inet: false, unix: false };
    const ALL: [Self; 4] = [
        Self::NONE,
        Self { inet: false, unix: true },
        Self { inet: true, unix: false },
        Self { inet: true, unix: true },
    ];

    /// The families that a socket may be of. The kernel's own messages tell of interfaces and routes, and reach nobody.
    fn families(self) -> impl Iterator<Item = u32> {
        let inet = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].into_iter().filter(move |_| self.inet);
        inet.chain([libc::AF_UNIX].into_iter().filter(move |_| self.unix)).map(|f| f as u32)
    }
}

fn workspace(may: SocketFamilies) -> CallRules {
    let mut rules = CallRules::new();
    deny(&mut rules, KERNEL);
    others(&mut rules);
    if may == SocketFamilies::NONE {
        sockets(&mut rules);
    } else {
        when(&mut rules, libc::SYS_socket, &may.families().map(|f| IsNot(0, f)).collect::<Vec<_>>());
        if !may.unix {
            pairs(&mut rules);
        }
    }
    for request in TYPING {
        when(&mut rules, libc::SYS_ioctl, &[Is(1, *request)]);
    }
    rules
}

fn read_only() -> CallRules {
    let mut rules = CallRules::new();
    deny(&mut rules, KERNEL);
    deny(&mut rules, CHANGES);
    deny(&mut rules, OLDER);
    sockets(&mut rules);
    when(&mut rules, libc::SYS_ioctl, &IOCTLS.iter().map(|request| IsNot(1, *request)).collect::<Vec<_>>());
    for flag in NAMESPACES {
        when(&mut rules, libc::SYS_clone, &[Bits(0, *flag, *flag)]);
    }
    others(&mut rules);
    // Memory that is shared with nobody is counted; what is shared stays when nobody looks at it.
    when(&mut rules, libc::SYS_mmap, &[Bits(3, 0x21, 0x21)]);
    // Holding up whoever opens a file to write.
    when(&mut rules, libc::SYS_fcntl, &[Is(1, libc::F_SETLEASE as u32)]);
    rules
}

/// Its own limits and priority, not those of others: a limit can end a process as well as a signal.
fn others(rules: &mut CallRules) {
    when(rules, libc::SYS_prlimit64, &[IsNot(0, 0), Given(1)]);
    for call in [
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
        libc::SYS_move_pages,
    ] {
        when(rules, call, &[IsNot(0, 0)]);
    }
    for (call, process) in [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)] {
        when(rules, call, &[IsNot(0, process)]);
        when(rules, call, &[IsNot(1, 0)]);
    }
}

/// None but pairs, which lead nowhere; and of those none that can be sent elsewhere by an address.
fn sockets(rules: &mut CallRules) {
    deny(rules, SOCKETS);
    pairs(rules);
}

/// Pairs of sockets that keep to themselves: a datagram of one can be sent to any path.
fn pairs(rules: &mut CallRules) {
    when(rules, libc::SYS_socketpair, &[IsNot(0, libc::AF_UNIX as u32)]);
    // The kernel makes datagrams of more than one kind: only those that keep to their pair are let through.
    let (stream, packets) = (libc::SOCK_STREAM as u32, libc::SOCK_SEQPACKET as u32);
    when(rules, libc::SYS_socketpair, &[NotBits(1, 0xf, stream), NotBits(1, 0xf, packets)]);
}

fn deny(rules: &mut CallRules, calls: &[c_long]) {
    calls.iter().for_each(|call| when(rules, *call, &[]));
}

fn when(rules: &mut CallRules, call: c_long, conditions: &[Condition]) {
    rules.entry(call).or_default().push(conditions.to_vec());
}

const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const AND: u16 = 0x54;
const RETURN: u16 = 0x06;
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const NOT_PERMITTED: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
const NO_SUCH_CALL: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

fn step(code: u16, value: u32, then: usize, otherwise: usize) -> FilterInstruction {
    let near = |n: usize| u8::try_from(n).expect("jumps of this file are short, or made in another way");
    FilterInstruction { code, then: near(then), otherwise: near(otherwise), value }
}

fn end(answer: u32) -> Vec<FilterInstruction> {
    vec![step(RETURN, answer, 0, 0)]
}

/// What is done about a stretch of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RangeAction {
    Allowed,
    Refused,
    Unknown,
    /// That depends on its arguments: by its number among those that do.
    Depends(usize),
}

/// What is not known does not exist; what is listed is not permitted; everything else is as ever.
///
/// The kernel walks through a filter for every call there is when it is installed, and on each call whose arguments count.
/// So calls are found by halving, not one after another: the same rules in a row took half a millisecond to install.
fn compile(rules: &CallRules) -> Vec<FilterInstruction> {
    let mut bodies: Vec<Vec<FilterInstruction>> = Vec::new();
    // Where each stretch of numbers begins, and what is done there.
    let mut stretches: Vec<(u32, RangeAction)> = vec![(0, RangeAction::Allowed)];
    for (call, refused) in rules {
        let fate = match refused.iter().any(Vec::is_empty) {
            true => RangeAction::Refused,
            false => {
                bodies.push(arguments(refused));
                RangeAction::Depends(bodies.len() - 1)
            }
        };
        stretches.extend([(*call as u32, fate), (*call as u32 + 1, RangeAction::Allowed)]);
    }
    stretches.push((UNKNOWN, RangeAction::Unknown));
    // The last word on a number counts, and neighbours with the same fate are one.
    let mut last: Vec<(u32, RangeAction)> = Vec::new();
    for (begins, fate) in stretches {
        last.pop_if(|(before, _)| *before == begins);
        if last.last().is_none_or(|(_, before)| *before != fate) {
            last.push((begins, fate));
        }
    }
    let mut tree = Vec::new();
    halves(&last, &mut tree);
    let fates = [NO_SUCH_CALL, ALLOW, NOT_PERMITTED].map(|answer| step(RETURN, answer, 0, 0));
    let mut program = vec![
        step(LOAD, 4, 0, 0),
        step(EQUAL, ARCH, 1, 0),
        fates[0],
        step(LOAD, 0, 0, 0),
        // Its flags are in memory, where they cannot be seen; libraries go back to `clone`.
        step(EQUAL, libc::SYS_clone3 as u32, 0, 1),
        fates[0],
    ];
    let first = tree.len();
    let place = |fate: RangeAction| match fate {
        RangeAction::Unknown => first,
        RangeAction::Allowed => first + 1,
        RangeAction::Refused => first + 2,
        RangeAction::Depends(n) => first + 3 + bodies[..n].iter().map(Vec::len).sum::<usize>(),
    };
    for (at, (begins, then, otherwise)) in tree.iter().enumerate() {
        let to = |next: &JumpTarget| match next {
            JumpTarget::Node(node) => node - at - 1,
            JumpTarget::Fate(fate) => place(*fate) - at - 1,
        };
        program.push(step(AT_LEAST, *begins, to(then), to(otherwise)));
    }
    program.extend(fates);
    program.extend(bodies.concat());
    program
}

/// Where a comparison leads.
#[derive(Debug, Clone, Copy)]
enum JumpTarget {
    Node(usize),
    Fate(RangeAction),
}

/// A tree of comparisons, each with where it leads when it holds and when it does not.
fn halves(stretches: &[(u32, RangeAction)], tree: &mut Vec<(u32, JumpTarget, JumpTarget)>) -> JumpTarget {
    if let [(_, fate)] = stretches {
        return JumpTarget::Fate(*fate);
    }
    let (left, right) = stretches.split_at(stretches.len() / 2);
    let at = tree.len();
    tree.push((right[0].0, JumpTarget::Fate(RangeAction::Unknown), JumpTarget::Fate(RangeAction::Unknown)));
    let otherwise = halves(left, tree);
    let then = halves(right, tree);
    (tree[at].1, tree[at].2) = (then, otherwise);
    JumpTarget::Node(at)
}

/// Refused when all conditions of one of these hold.
fn arguments(refused: &[Vec<Condition>]) -> Vec<FilterInstruction> {
    let mut program = end(ALLOW);
    for conditions in refused.iter().rev() {
        let mut rule = end(NOT_PERMITTED);
        for condition in conditions.iter().rev() {
            // Past what is left of this rule.
            let past = rule.len();
            let at = |argument: u32| 16 + 8 * argument;
            let (argument, test) = match *condition {
                Is(argument, value) => (argument, vec![step(EQUAL, value, 0, past)]),
                IsNot(argument, value) => (argument, vec![step(EQUAL, value, past, 0)]),
                Bits(argument, mask, value) => (argument, vec![step(AND, mask, 0, 0), step(EQUAL, value, 0, past)]),
                NotBits(argument, mask, value) => (argument, vec![step(AND, mask, 0, 0), step(EQUAL, value, past, 0)]),
                Given(argument) => {
                    let high = [step(LOAD, at(argument) + 4, 0, 0), step(EQUAL, 0, past, 0)];
                    (argument, [vec![step(EQUAL, 0, 0, 2)], high.to_vec()].concat())
                }
            };
            rule.splice(0..0, [vec![step(LOAD, at(argument), 0, 0)], test].concat());
        }
        program.splice(0..0, rule);
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would answer: a program is a few instructions, and so is a machine for them.
    fn answer(program: &[FilterInstruction], arch: u32, call: u32, arguments: [u64; 6]) -> u32 {
        let mut data = Vec::new();
        data.extend(call.to_le_bytes());
        data.extend(arch.to_le_bytes());
        data.extend(0u64.to_le_bytes());
        arguments.iter().for_each(|a| data.extend(a.to_le_bytes()));
        let (mut at, mut a) = (0usize, 0u32);
        loop {
            let s = &program[at];
            at += 1;
            let jump = |holds: bool| usize::from(if holds { s.then } else { s.otherwise });
            match s.code {
                0x20 => a = u32::from_le_bytes(data[s.value as usize..s.value as usize + 4].try_into().unwrap()),
                0x15 => at += jump(a == s.value),
                0x25 => at += jump(a > s.value),
                0x35 => at += jump(a >= s.value),
                0x05 => at += s.value as usize,
                0x54 => a &= s.value,
                0x06 => return s.value,
                other => panic!("an instruction that this machine does not have: {other:#x}"),
            }
        }
    }

    const EPERM: u32 = 0x0005_0001;
    const ENOSYS: u32 = 0x0005_0026;

    #[test]
    fn a_read_only_task_gets_files_and_pipes_and_nothing_else() {
        let program = filter(Confinement::ReadOnly, SocketFamilies::NONE, true).unwrap();
        let native = ARCH;
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
        for kind in 0..16 {
            let pair = if [1, 5].contains(&kind) { ALLOW } else { EPERM };
            assert_eq!(ask(libc::SYS_socketpair, 1, kind | libc::SOCK_CLOEXEC as u64), pair, "{kind}");
        }
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

    /// Every call there is, with arguments that matter: what is compiled says what the rules say.
    #[test]
    fn a_filter_is_its_rules() {
        let values = [0, 1, 2, 3, 9, 0x5401, 0x5412, 0x11, 0x1000_0011, u64::from(u32::MAX), 1 << 32, (1 << 40) | 1];
        for rules in SocketFamilies::ALL.map(workspace).into_iter().chain([read_only()]) {
            let program = compile(&rules);
            assert!(program.len() < 500, "{}", program.len());
            for call in 0..UNKNOWN + 40 {
                for first in values {
                    for second in values {
                        let low = |n: u32| [first, second, 0, 0][n as usize] as u32;
                        let holds = |c: &Condition| match *c {
                            Is(n, v) => low(n) == v,
                            IsNot(n, v) => low(n) != v,
                            Bits(n, mask, v) => low(n) & mask == v,
                            NotBits(n, mask, v) => low(n) & mask != v,
                            Given(n) => (if n == 0 { first } else { second }) != 0,
                        };
                        let refused =
                            rules.get(&c_long::from(call)).is_some_and(|r| r.iter().any(|r| r.iter().all(holds)));
                        let expect = match (call, refused) {
                            (call, _) if call >= UNKNOWN || call == libc::SYS_clone3 as u32 => ENOSYS,
                            (_, true) => EPERM,
                            (_, false) => ALLOW,
                        };
                        assert_eq!(
                            answer(&program, ARCH, call, [first, second, 0, 0, 0, 0]),
                            expect,
                            "{call} {first:#x} {second:#x}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn other_ways_to_call_the_kernel_do_not_exist() {
        for may in SocketFamilies::ALL {
            for confinement in [Confinement::ReadOnly, Confinement::Workspace] {
                let program = filter(confinement, may, true).unwrap();
                assert_eq!(answer(program, ARCH, 0x4000_0000 + 41, [2, 1, 0, 0, 0, 0]), ENOSYS, "x32");
                assert_eq!(answer(program, 0x4000_0003, 102, [1, 0, 0, 0, 0, 0]), ENOSYS, "i386");
                assert_eq!(answer(program, ARCH, UNKNOWN, [0; 6]), ENOSYS, "not made yet");
            }
        }
    }

    #[test]
    fn without_scopes_nobody_is_signalled() {
        let program = filter(Confinement::ReadOnly, SocketFamilies::NONE, false).unwrap();
        for call in SIGNALS {
            assert_eq!(answer(program, ARCH, *call as u32, [0; 6]), EPERM, "{call}");
        }
        assert_eq!(answer(program, ARCH, libc::SYS_fcntl as u32, [0, 8, 0, 0, 0, 0]), EPERM);
        assert_eq!(answer(program, ARCH, libc::SYS_fcntl as u32, [0, 4, 0, 0, 0, 0]), ALLOW);
    }

    #[test]
    fn a_workspace_makes_the_sockets_that_were_accepted_and_no_others() {
        let of = |inet, unix| filter(Confinement::Workspace, SocketFamilies { inet, unix }, true).unwrap();
        let (open, alone) = (of(true, false), of(false, false));
        for call in [libc::SYS_fchmodat, libc::SYS_ptrace, libc::SYS_linkat] {
            assert_eq!(answer(open, ARCH, call as u32, [0; 6]), ALLOW);
            assert_eq!(answer(alone, ARCH, call as u32, [0; 6]), ALLOW);
        }
        const VSOCK: i32 = 40;
        for (inet, unix) in [(false, false), (false, true), (true, false), (true, true)] {
            let makes =
                |family: i32| answer(of(inet, unix), ARCH, libc::SYS_socket as u32, [family as u64, 1, 0, 0, 0, 0]);
            let expect = |yes| if yes { ALLOW } else { EPERM };
            assert_eq!((makes(libc::AF_INET), makes(libc::AF_INET6)), (expect(inet), expect(inet)));
            assert_eq!(makes(libc::AF_UNIX), expect(unix));
            assert_eq!((makes(VSOCK), makes(libc::AF_PACKET), makes(libc::AF_ALG)), (EPERM, EPERM, EPERM));
            let high = (1u64 << 32) | libc::AF_UNIX as u64;
            let made = answer(of(inet, unix), ARCH, libc::SYS_socket as u32, [high, 1, 0, 0, 0, 0]);
            assert_eq!(made, expect(unix), "the kernel looks at 32 bits");
            let pair = answer(of(inet, unix), ARCH, libc::SYS_socketpair as u32, [libc::AF_UNIX as u64, 1, 0, 0, 0, 0]);
            assert_eq!(pair, ALLOW);
            let datagrams = [libc::AF_UNIX as u64, libc::SOCK_DGRAM as u64, 0, 0, 0, 0];
            let pair = answer(of(inet, unix), ARCH, libc::SYS_socketpair as u32, datagrams);
            assert_eq!(pair, expect(unix), "a datagram can be sent to a path");
        }
        assert_eq!(answer(open, ARCH, libc::SYS_ioctl as u32, [0, 0x5412, 0, 0, 0, 0]), EPERM);
    }
}
