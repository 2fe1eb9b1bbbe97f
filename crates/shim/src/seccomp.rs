//! The system calls that a confined task may not make. Landlock restricts files; this filter restricts the rest:
//! sockets, modes and owners, other processes, namespaces, and kernel interfaces that bypass the sandbox.

use crate::sys::confine::FilterInstruction;
use countersign_model::Confinement;
use libc::c_long;
use std::{collections::BTreeMap, sync::OnceLock};

/// Calls from this number on are newer than this list and do not exist for a confined program. Nor do the calls of x32,
/// whose numbers have a higher bit set.
const FIRST_UNKNOWN_CALL: u32 = 470;
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;

/// Calls that bypass the sandbox: memory and descriptors of other processes, mounts, and other kernel facilities.
const KERNEL_CALLS: &[c_long] = &[
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
/// Calls that change a file without opening it for writing, or that communicate with other processes.
const CHANGE_CALLS: &[c_long] = &[
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
/// Older calls with the effects of some of these.
#[cfg(target_arch = "x86_64")]
const LEGACY_CALLS: &[c_long] = &[
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
const LEGACY_CALLS: &[c_long] = &[];
/// Newer than the `libc` crate's names; the numbers are the same on every architecture.
const FCHMODAT2: c_long = 452;
const SETXATTRAT: c_long = 463;
const REMOVEXATTRAT: c_long = 466;
const OPEN_TREE_ATTR: c_long = 467;
const FILE_SETATTR: c_long = 469;
/// Calls that make, bind or connect sockets.
const SOCKET_CALLS: &[c_long] =
    &[libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4];
/// Calls that signal processes. A kernel without Landlock scopes cannot tell a task's own processes from others, so the
/// task may not signal any.
const SIGNAL_CALLS: &[c_long] = &[
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_send_signal,
];
/// Flags of `clone` that create namespaces.
const NAMESPACE_FLAGS: u32 =
    0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;
/// The only requests that a read-only task may make of a device or a file: terminal control and queries.
const ALLOWED_IOCTLS: &[u32] = &[
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
/// Requests that insert input into a terminal (TIOCSTI) and paste into it (TIOCLINUX).
const TERMINAL_INPUT_IOCTLS: &[u32] = &[0x5412, 0x541C];

/// The kinds of sockets that a workspace task may make, beside socket pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SocketFamilies {
    /// Internet sockets: allowed if the network is open, or if the task has its own.
    pub(crate) inet: bool,
    /// Unix sockets. Landlock does not restrict connecting to them, so the filter refuses to make them.
    pub(crate) unix: bool,
}

/// The filter for a confinement, if it has one. Built once, and inherited by forked shims.
pub(crate) fn filter_for(
    confinement: Confinement,
    sockets: SocketFamilies,
    scoped: bool,
) -> Option<&'static [FilterInstruction]> {
    static READ_ONLY: OnceLock<Vec<FilterInstruction>> = OnceLock::new();
    static READ_ONLY_UNSCOPED: OnceLock<Vec<FilterInstruction>> = OnceLock::new();
    static WORKSPACES: [OnceLock<Vec<FilterInstruction>>; 4] = [const { OnceLock::new() }; 4];
    let program = match confinement {
        Confinement::None | Confinement::Shield => return None,
        Confinement::ReadOnly if scoped => READ_ONLY.get_or_init(|| compile(&read_only_rules())),
        Confinement::ReadOnly => READ_ONLY_UNSCOPED.get_or_init(|| {
            let mut rules = read_only_rules();
            deny_calls(&mut rules, SIGNAL_CALLS);
            // F_SETOWN, F_SETOWN_EX and F_SETSIG: they make the kernel send signals to a process.
            for command in [libc::F_SETOWN, 15, 10] {
                deny_when(&mut rules, libc::SYS_fcntl, &[Is(1, command as u32)]);
            }
            compile(&rules)
        }),
        Confinement::Workspace => WORKSPACES[usize::from(sockets.inet) * 2 + usize::from(sockets.unix)]
            .get_or_init(|| compile(&workspace_rules(sockets))),
    };
    Some(program)
}

/// Builds all filters in advance.
pub(crate) fn warm_up() {
    for sockets in SocketFamilies::ALL {
        let _ = filter_for(Confinement::Workspace, sockets, true);
    }
    for scoped in [true, false] {
        let _ = filter_for(Confinement::ReadOnly, SocketFamilies::NONE, scoped);
    }
}

/// The rules by call. A call is refused if all conditions of one of its rules hold; a rule without conditions always
/// does.
type CallRules = BTreeMap<c_long, Vec<Vec<Condition>>>;

/// A condition on an argument of a call: the argument's index, then what it is compared with. The kernel reads 32 bits
/// of most arguments, and so does a filter.
#[derive(Debug, Clone, Copy)]
enum Condition {
    Is(u32, u32),
    IsNot(u32, u32),
    /// The bits of the mask have this value.
    Bits(u32, u32, u32),
    NotBits(u32, u32, u32),
    /// The argument is a pointer (64 bits) other than null.
    NotNull(u32),
}

use Condition::{Bits, Is, IsNot, NotBits, NotNull};

impl SocketFamilies {
    pub(crate) const NONE: Self = Self { inet: false, unix: false };
    const ALL: [Self; 4] = [
        Self::NONE,
        Self { inet: false, unix: true },
        Self { inet: true, unix: false },
        Self { inet: true, unix: true },
    ];

    /// The address families that are allowed. Netlink only reports interfaces and routes, and reaches no other host.
    fn families(self) -> impl Iterator<Item = u32> {
        let inet = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].into_iter().filter(move |_| self.inet);
        inet.chain([libc::AF_UNIX].into_iter().filter(move |_| self.unix)).map(|f| f as u32)
    }
}

fn workspace_rules(sockets: SocketFamilies) -> CallRules {
    let mut rules = CallRules::new();
    deny_calls(&mut rules, KERNEL_CALLS);
    deny_changing_other_processes(&mut rules);
    if sockets == SocketFamilies::NONE {
        deny_sockets(&mut rules);
    } else {
        deny_when(&mut rules, libc::SYS_socket, &sockets.families().map(|f| IsNot(0, f)).collect::<Vec<_>>());
        if !sockets.unix {
            restrict_socket_pairs(&mut rules);
        }
    }
    for request in TERMINAL_INPUT_IOCTLS {
        deny_when(&mut rules, libc::SYS_ioctl, &[Is(1, *request)]);
    }
    rules
}

fn read_only_rules() -> CallRules {
    let mut rules = CallRules::new();
    deny_calls(&mut rules, KERNEL_CALLS);
    deny_calls(&mut rules, CHANGE_CALLS);
    deny_calls(&mut rules, LEGACY_CALLS);
    deny_sockets(&mut rules);
    deny_when(
        &mut rules,
        libc::SYS_ioctl,
        &ALLOWED_IOCTLS.iter().map(|request| IsNot(1, *request)).collect::<Vec<_>>(),
    );
    deny_when(&mut rules, libc::SYS_clone, &[NotBits(0, NAMESPACE_FLAGS, 0)]);
    deny_changing_other_processes(&mut rules);
    // Anonymous shared memory, which stays allocated while no process maps it and would escape the memory count.
    deny_when(&mut rules, libc::SYS_mmap, &[Bits(3, 0x21, 0x21)]);
    // A lease blocks other processes that open the file for writing.
    deny_when(&mut rules, libc::SYS_fcntl, &[Is(1, libc::F_SETLEASE as u32)]);
    rules
}

/// Denies changing limits and priorities of other processes: a limit can kill a process as a signal can.
fn deny_changing_other_processes(rules: &mut CallRules) {
    deny_when(rules, libc::SYS_prlimit64, &[IsNot(0, 0), NotNull(1)]);
    for call in [
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
        libc::SYS_move_pages,
    ] {
        deny_when(rules, call, &[IsNot(0, 0)]);
    }
    for (call, process) in [(libc::SYS_setpriority, 0), (libc::SYS_ioprio_set, 1)] {
        deny_when(rules, call, &[IsNot(0, process)]);
        deny_when(rules, call, &[IsNot(1, 0)]);
    }
}

/// Denies all sockets but pairs that are connected to each other only.
fn deny_sockets(rules: &mut CallRules) {
    deny_calls(rules, SOCKET_CALLS);
    restrict_socket_pairs(rules);
}

/// Denies socket pairs other than stream and sequenced-packet pairs: a datagram socket can send to any path.
fn restrict_socket_pairs(rules: &mut CallRules) {
    deny_when(rules, libc::SYS_socketpair, &[IsNot(0, libc::AF_UNIX as u32)]);
    // The kernel treats SOCK_RAW as a datagram socket too, so only these two types are allowed.
    let (stream, packets) = (libc::SOCK_STREAM as u32, libc::SOCK_SEQPACKET as u32);
    deny_when(rules, libc::SYS_socketpair, &[NotBits(1, 0xf, stream), NotBits(1, 0xf, packets)]);
}

fn deny_calls(rules: &mut CallRules, calls: &[c_long]) {
    calls.iter().for_each(|call| deny_when(rules, *call, &[]));
}

fn deny_when(rules: &mut CallRules, call: c_long, conditions: &[Condition]) {
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

fn instruction(code: u16, value: u32, then: usize, otherwise: usize) -> FilterInstruction {
    let near = |n: usize| u8::try_from(n).expect("a jump in these filters spans fewer than 256 instructions");
    FilterInstruction { code, then: near(then), otherwise: near(otherwise), value }
}

fn return_with(answer: u32) -> Vec<FilterInstruction> {
    vec![instruction(RETURN, answer, 0, 0)]
}

/// The action for a range of call numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RangeAction {
    Allowed,
    Refused,
    Unknown,
    /// Depends on the arguments: the index of the compiled conditions.
    Depends(usize),
}

/// Compiles rules: unknown calls do not exist, calls with rules are refused as the rules say, all others are allowed.
///
/// When a filter is installed, the kernel runs it for every call number, and later on each call whose arguments matter.
/// So the filter finds calls by binary search: a linear list of the same rules took half a millisecond to install.
fn compile(rules: &CallRules) -> Vec<FilterInstruction> {
    let mut bodies: Vec<Vec<FilterInstruction>> = Vec::new();
    // The first number of each range, and the action for it.
    let mut ranges: Vec<(u32, RangeAction)> = vec![(0, RangeAction::Allowed)];
    for (call, refused) in rules {
        let action = if refused.iter().any(Vec::is_empty) {
            RangeAction::Refused
        } else {
            bodies.push(compile_conditions(refused));
            RangeAction::Depends(bodies.len() - 1)
        };
        ranges.extend([(*call as u32, action), (*call as u32 + 1, RangeAction::Allowed)]);
    }
    ranges.push((FIRST_UNKNOWN_CALL, RangeAction::Unknown));
    // The last entry for a number counts, and adjacent ranges with the same action are merged.
    let mut merged: Vec<(u32, RangeAction)> = Vec::new();
    for (start, action) in ranges {
        merged.pop_if(|(before, _)| *before == start);
        if merged.last().is_none_or(|(_, before)| *before != action) {
            merged.push((start, action));
        }
    }
    let mut tree = Vec::new();
    build_search_tree(&merged, &mut tree);
    let answers = [NO_SUCH_CALL, ALLOW, NOT_PERMITTED].map(|answer| instruction(RETURN, answer, 0, 0));
    let mut program = vec![
        instruction(LOAD, 4, 0, 0),
        instruction(EQUAL, ARCH, 1, 0),
        answers[0],
        instruction(LOAD, 0, 0, 0),
        // A filter cannot read the flags of `clone3`, which are in memory; libraries fall back to `clone`.
        instruction(EQUAL, libc::SYS_clone3 as u32, 0, 1),
        answers[0],
    ];
    let first = tree.len();
    let position = |action: RangeAction| match action {
        RangeAction::Unknown => first,
        RangeAction::Allowed => first + 1,
        RangeAction::Refused => first + 2,
        RangeAction::Depends(n) => first + 3 + bodies[..n].iter().map(Vec::len).sum::<usize>(),
    };
    for (at, (start, then, otherwise)) in tree.iter().enumerate() {
        let to = |next: &JumpTarget| match next {
            JumpTarget::Node(node) => node - at - 1,
            JumpTarget::Action(action) => position(*action) - at - 1,
        };
        program.push(instruction(AT_LEAST, *start, to(then), to(otherwise)));
    }
    program.extend(answers);
    program.extend(bodies.concat());
    program
}

/// The target of a comparison.
#[derive(Debug, Clone, Copy)]
enum JumpTarget {
    Node(usize),
    Action(RangeAction),
}

/// Builds a tree of comparisons, each with its target when the comparison holds and when it does not. Returns the root.
fn build_search_tree(ranges: &[(u32, RangeAction)], tree: &mut Vec<(u32, JumpTarget, JumpTarget)>) -> JumpTarget {
    if let [(_, action)] = ranges {
        return JumpTarget::Action(*action);
    }
    let (left, right) = ranges.split_at(ranges.len() / 2);
    let at = tree.len();
    tree.push((right[0].0, JumpTarget::Action(RangeAction::Unknown), JumpTarget::Action(RangeAction::Unknown)));
    let otherwise = build_search_tree(left, tree);
    let then = build_search_tree(right, tree);
    (tree[at].1, tree[at].2) = (then, otherwise);
    JumpTarget::Node(at)
}

/// Compiles the rules of one call: refused if all conditions of one rule hold.
fn compile_conditions(refused: &[Vec<Condition>]) -> Vec<FilterInstruction> {
    let mut program = return_with(ALLOW);
    for conditions in refused.iter().rev() {
        let mut rule = return_with(NOT_PERMITTED);
        for (nth, condition) in conditions.iter().enumerate().rev() {
            // The number of instructions to skip to the next rule.
            let past = rule.len();
            let at = |argument: u32| 16 + 8 * argument;
            // The argument that the condition before this one has loaded and left as it is.
            let loaded = match conditions[..nth].last() {
                Some(Is(argument, _) | IsNot(argument, _)) => Some(*argument),
                _ => None,
            };
            let (argument, test) = match *condition {
                Is(argument, value) => (argument, vec![instruction(EQUAL, value, 0, past)]),
                IsNot(argument, value) => (argument, vec![instruction(EQUAL, value, past, 0)]),
                Bits(argument, mask, value) => {
                    (argument, vec![instruction(AND, mask, 0, 0), instruction(EQUAL, value, 0, past)])
                }
                NotBits(argument, mask, value) => {
                    (argument, vec![instruction(AND, mask, 0, 0), instruction(EQUAL, value, past, 0)])
                }
                NotNull(argument) => {
                    let high = [instruction(LOAD, at(argument) + 4, 0, 0), instruction(EQUAL, 0, past, 0)];
                    (argument, [vec![instruction(EQUAL, 0, 0, 2)], high.to_vec()].concat())
                }
            };
            rule.splice(0..0, test);
            if loaded != Some(argument) {
                rule.insert(0, instruction(LOAD, at(argument), 0, 0));
            }
        }
        program.splice(0..0, rule);
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets a filter as the kernel would.
    fn run_filter(program: &[FilterInstruction], arch: u32, call: u32, arguments: [u64; 6]) -> u32 {
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
                other => panic!("an instruction that this interpreter does not know: {other:#x}"),
            }
        }
    }

    const EPERM: u32 = 0x0005_0001;
    const ENOSYS: u32 = 0x0005_0026;

    #[test]
    fn a_read_only_task_cannot_make_sockets_or_changes() {
        let program = filter_for(Confinement::ReadOnly, SocketFamilies::NONE, true).unwrap();
        let native = ARCH;
        let ask = |call: c_long, first: u64, second: u64| {
            run_filter(program, native, call as u32, [first, second, 0, 0, 0, 0])
        };
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
        for call in CHANGE_CALLS.iter().chain(KERNEL_CALLS).chain(LEGACY_CALLS) {
            assert_eq!(ask(*call, 0, 0), EPERM, "{call}");
        }
        assert_eq!(ask(libc::SYS_ioctl, 0, 0x5401), ALLOW);
        assert_eq!(ask(libc::SYS_ioctl, 0, 0xffff_ffff_0000_5401), ALLOW, "the kernel reads 32 bits");
        for request in [0x5412, 0x4008_6602, 0x401C_5820, 0x1_0000_5412] {
            assert_eq!(ask(libc::SYS_ioctl, 0, request), EPERM, "{request:#x}");
        }
        assert_eq!(ask(libc::SYS_clone, 0x0120_0011, 0), ALLOW);
        assert_eq!(ask(libc::SYS_clone, 0x1000_0011, 0), EPERM);
        assert_eq!(ask(libc::SYS_clone3, 0, 0), ENOSYS);
        assert_eq!(ask(libc::SYS_prlimit64, 0, 0), ALLOW);
        assert_eq!(run_filter(program, native, libc::SYS_prlimit64 as u32, [9, 0, 0, 0, 0, 0]), ALLOW);
        assert_eq!(run_filter(program, native, libc::SYS_prlimit64 as u32, [9, 1 << 40, 0, 0, 0, 0]), EPERM);
    }

    /// Tests every call number with arguments that matter.
    #[test]
    fn a_compiled_filter_answers_as_its_rules_do() {
        let values = [0, 1, 2, 3, 9, 0x5401, 0x5412, 0x11, 0x1000_0011, u64::from(u32::MAX), 1 << 32, (1 << 40) | 1];
        for rules in SocketFamilies::ALL.map(workspace_rules).into_iter().chain([read_only_rules()]) {
            let program = compile(&rules);
            assert!(program.len() < 500, "{}", program.len());
            for call in 0..FIRST_UNKNOWN_CALL + 40 {
                for first in values {
                    for second in values {
                        let low = |n: u32| [first, second, 0, 0][n as usize] as u32;
                        let holds = |c: &Condition| match *c {
                            Is(n, v) => low(n) == v,
                            IsNot(n, v) => low(n) != v,
                            Bits(n, mask, v) => low(n) & mask == v,
                            NotBits(n, mask, v) => low(n) & mask != v,
                            NotNull(n) => (if n == 0 { first } else { second }) != 0,
                        };
                        let refused =
                            rules.get(&c_long::from(call)).is_some_and(|r| r.iter().any(|r| r.iter().all(holds)));
                        let expect = match (call, refused) {
                            (call, _) if call >= FIRST_UNKNOWN_CALL || call == libc::SYS_clone3 as u32 => ENOSYS,
                            (_, true) => EPERM,
                            (_, false) => ALLOW,
                        };
                        assert_eq!(
                            run_filter(&program, ARCH, call, [first, second, 0, 0, 0, 0]),
                            expect,
                            "{call} {first:#x} {second:#x}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn other_system_call_interfaces_do_not_exist() {
        for sockets in SocketFamilies::ALL {
            for confinement in [Confinement::ReadOnly, Confinement::Workspace] {
                let program = filter_for(confinement, sockets, true).unwrap();
                assert_eq!(run_filter(program, ARCH, 0x4000_0000 + 41, [2, 1, 0, 0, 0, 0]), ENOSYS, "x32");
                assert_eq!(run_filter(program, 0x4000_0003, 102, [1, 0, 0, 0, 0, 0]), ENOSYS, "i386");
                assert_eq!(run_filter(program, ARCH, FIRST_UNKNOWN_CALL, [0; 6]), ENOSYS, "newer than the list");
            }
        }
    }

    #[test]
    fn without_landlock_scopes_no_signal_is_sent() {
        let program = filter_for(Confinement::ReadOnly, SocketFamilies::NONE, false).unwrap();
        for call in SIGNAL_CALLS {
            assert_eq!(run_filter(program, ARCH, *call as u32, [0; 6]), EPERM, "{call}");
        }
        assert_eq!(run_filter(program, ARCH, libc::SYS_fcntl as u32, [0, 8, 0, 0, 0, 0]), EPERM);
        assert_eq!(run_filter(program, ARCH, libc::SYS_fcntl as u32, [0, 4, 0, 0, 0, 0]), ALLOW);
    }

    #[test]
    fn a_workspace_task_makes_only_the_sockets_that_were_accepted() {
        let filter = |inet, unix| filter_for(Confinement::Workspace, SocketFamilies { inet, unix }, true).unwrap();
        let (open, no_network) = (filter(true, false), filter(false, false));
        for call in [libc::SYS_fchmodat, libc::SYS_ptrace, libc::SYS_linkat] {
            assert_eq!(run_filter(open, ARCH, call as u32, [0; 6]), ALLOW);
            assert_eq!(run_filter(no_network, ARCH, call as u32, [0; 6]), ALLOW);
        }
        const VSOCK: i32 = 40;
        for (inet, unix) in [(false, false), (false, true), (true, false), (true, true)] {
            let makes = |family: i32| {
                run_filter(filter(inet, unix), ARCH, libc::SYS_socket as u32, [family as u64, 1, 0, 0, 0, 0])
            };
            let expect = |yes| if yes { ALLOW } else { EPERM };
            assert_eq!((makes(libc::AF_INET), makes(libc::AF_INET6)), (expect(inet), expect(inet)));
            assert_eq!(makes(libc::AF_UNIX), expect(unix));
            assert_eq!((makes(VSOCK), makes(libc::AF_PACKET), makes(libc::AF_ALG)), (EPERM, EPERM, EPERM));
            let high = (1u64 << 32) | libc::AF_UNIX as u64;
            let allowed = run_filter(filter(inet, unix), ARCH, libc::SYS_socket as u32, [high, 1, 0, 0, 0, 0]);
            assert_eq!(allowed, expect(unix), "the kernel reads 32 bits");
            let pair = run_filter(
                filter(inet, unix),
                ARCH,
                libc::SYS_socketpair as u32,
                [libc::AF_UNIX as u64, 1, 0, 0, 0, 0],
            );
            assert_eq!(pair, ALLOW);
            let datagrams = [libc::AF_UNIX as u64, libc::SOCK_DGRAM as u64, 0, 0, 0, 0];
            let pair = run_filter(filter(inet, unix), ARCH, libc::SYS_socketpair as u32, datagrams);
            assert_eq!(pair, expect(unix), "a datagram can be sent to a path");
        }
        assert_eq!(run_filter(open, ARCH, libc::SYS_ioctl as u32, [0, 0x5412, 0, 0, 0, 0]), EPERM);
    }
}
