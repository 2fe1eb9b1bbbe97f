//! Access to `/proc`. Only this module knows its paths and formats.
//!
//! Each function reads once and returns the kernel's own error, so that a caller can tell a process that has ended from
//! a machine without free file descriptors. Malformed content is `InvalidData`. The caller must have the rights to
//! read.
//!
//! A process may have any name, also one that is not UTF-8; no name may prevent reading the fields beside it.
//!
//! Other code reads `/proc` itself only for a reason: between fork and exec (`shim/src/sys/network.rs`), where only raw
//! calls are allowed; in the client, which does not link the store; in tests and trials, which observe from outside.

use countersign_model::Process;
use std::{
    fs,
    io::{self, Read as _},
    net::{IpAddr, SocketAddr},
    os::{
        fd::{AsFd, AsRawFd as _},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
};

fn path_of(pid: u32, file: &str) -> String {
    format!("/proc/{pid}/{file}")
}

/// Reads a whole file. The kernel states no length for it, so the bound avoids two calls that ask for one; a buffer that
/// begins small would be read into in pieces.
fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(4096);
    fs::File::open(path)?.take(u64::MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_text(path: &str) -> io::Result<String> {
    read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn malformed(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{file} has an unexpected format"))
}

/// The pids of all processes.
pub fn all_pids() -> io::Result<impl Iterator<Item = u32>> {
    Ok(fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// The fields of a process's `stat` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStat {
    pub process: Process,
    pub state: char,
    pub parent: u32,
    /// None for a process that is being removed from the process table.
    pub group: Option<u32>,
    pub session: Option<u32>,
}

impl ProcessStat {
    /// Whether it has not ended yet.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X')
    }
}

pub fn stat(pid: u32) -> io::Result<ProcessStat> {
    let line = read(path_of(pid, "stat"))?;
    parse_stat(pid, &line).ok_or_else(|| malformed("stat"))
}

fn parse_stat(pid: u32, line: &[u8]) -> Option<ProcessStat> {
    // The name is in parentheses and may contain anything.
    let end = line.iter().rposition(|b| *b == b')')?;
    let rest = String::from_utf8_lossy(&line[end + 1..]);
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let (group, session) = (fields.next()?.parse().ok(), fields.next()?.parse().ok());
    let start = fields.nth(15)?.parse().ok()?;
    Some(ProcessStat { process: Process { pid, start }, state, parent, group, session })
}

/// The kernel's name of a process.
pub fn comm(pid: u32) -> io::Result<Vec<u8>> {
    let mut name = read(path_of(pid, "comm"))?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    Ok(name)
}

/// Whether a process is a shim, by its name: only root could read which program it runs.
pub fn is_shim(pid: u32) -> io::Result<bool> {
    Ok(comm(pid)? == b"csn-shim")
}

/// The arguments that a program was started with, without empty ones.
pub fn arguments(pid: u32) -> io::Result<Vec<String>> {
    let line = read(path_of(pid, "cmdline"))?;
    let words = line.split(|b| *b == 0).filter(|word| !word.is_empty());
    Ok(words.map(|word| String::from_utf8_lossy(word).into_owned()).collect())
}

/// The environment that a program was started with.
pub struct ProcessEnvironment(Vec<u8>);

impl ProcessEnvironment {
    fn variables(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|b| *b == 0)
    }

    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.variables().any(|variable| variable.split(|b| *b == b'=').next() == Some(name.as_bytes()))
    }

    /// The first value of a variable; a program may have been started with several.
    #[must_use]
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        self.variables().find_map(|variable| variable.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }

    /// Whether a variable has this value, possibly among others.
    #[must_use]
    pub fn has_value(&self, name: &str, value: &str) -> bool {
        let wanted = format!("{name}={value}");
        self.variables().any(|variable| variable == wanted.as_bytes())
    }
}

pub fn environ(pid: u32) -> io::Result<ProcessEnvironment> {
    read(path_of(pid, "environ")).map(ProcessEnvironment)
}

/// The path of a process in the cgroup v2 hierarchy; none if there is no such hierarchy.
pub fn control_group(pid: u32) -> io::Result<Option<String>> {
    let groups = fs::read_to_string(path_of(pid, "cgroup"))?;
    Ok(groups.lines().find_map(|line| line.strip_prefix("0::")).map(str::to_owned))
}

pub fn working_directory(pid: u32) -> io::Result<PathBuf> {
    fs::read_link(path_of(pid, "cwd"))
}

/// The user and the group of a process.
pub fn owner(pid: u32) -> io::Result<(u32, u32)> {
    fs::metadata(path_of(pid, "")).map(|at| (at.uid(), at.gid()))
}

/// The file that a process has open under this descriptor number.
pub fn open_file(pid: u32, number: u32) -> io::Result<PathBuf> {
    fs::read_link(path_of(pid, &format!("fd/{number}")))
}

/// All files that a process has open, as far as they can be read.
pub fn open_files(pid: u32) -> io::Result<impl Iterator<Item = PathBuf>> {
    Ok(fs::read_dir(path_of(pid, "fd"))?.flatten().filter_map(|entry| fs::read_link(entry.path()).ok()))
}

/// The path of a file that this process has open, to open, link or change the same file again.
pub fn own_file(file: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()))
}

/// The children of a process, and its number of threads.
pub fn children(pid: u32) -> io::Result<(Vec<u32>, usize)> {
    let (mut found, mut threads) = (Vec::new(), 0);
    for thread in fs::read_dir(path_of(pid, "task"))?.flatten() {
        threads += 1;
        if let Ok(list) = fs::read_to_string(thread.path().join("children")) {
            found.extend(list.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    Ok((found, threads))
}

/// Whether this kernel lists the children of a process.
#[must_use]
pub fn lists_children() -> bool {
    fs::metadata(format!("/proc/self/task/{}/children", std::process::id())).is_ok()
}

/// Lines of a name, a colon and values.
pub struct StatusFields(String);

impl StatusFields {
    /// The first value of this name.
    #[must_use]
    pub fn first(&self, name: &str) -> Option<&str> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_ascii_whitespace().next()
    }

    /// A value in KiB, as bytes; zero if it is missing.
    #[must_use]
    pub fn bytes(&self, name: &str) -> u64 {
        self.first(name).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0).saturating_mul(1024)
    }
}

pub fn status(pid: u32) -> io::Result<StatusFields> {
    read_text(&path_of(pid, "status")).map(StatusFields)
}

/// Whether a process runs as this user.
pub fn runs_as(pid: u32, uid: u32) -> io::Result<bool> {
    Ok(status(pid)?.first("Uid") == Some(uid.to_string().as_str()))
}

/// The memory of the machine.
pub fn memory() -> io::Result<StatusFields> {
    read_text("/proc/meminfo").map(StatusFields)
}

/// The number of threads on the whole machine.
pub fn thread_count() -> io::Result<u64> {
    // The fourth field of `0.00 0.01 0.05 1/123 4567` is: runnable threads / all threads.
    let load = read_text("/proc/loadavg")?;
    let all = load.split_ascii_whitespace().nth(3).and_then(|both| both.split_once('/')?.1.parse().ok());
    all.ok_or_else(|| malformed("loadavg"))
}

/// The id of this boot of the machine.
pub fn boot_id() -> io::Result<String> {
    Ok(read_text("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// A TCP socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSocket {
    pub owner: u32,
    /// Identifies it among the open files of a process; zero if no process has it open any more.
    pub inode: u64,
}

/// The socket with these two addresses.
pub fn tcp_socket(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<TcpSocket>> {
    let table = read_text(if local.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" })?;
    let (local, remote) = (table_address(local), table_address(remote));
    Ok(table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let same = *fields.get(1)? == local && *fields.get(2)? == remote;
        let socket = || Some(TcpSocket { owner: fields.get(7)?.parse().ok()?, inode: fields.get(9)?.parse().ok()? });
        same.then(socket)?
    }))
}

/// An address in the format of that table.
fn table_address(address: SocketAddr) -> String {
    let hex = |four: &[u8]| four.iter().rev().map(|b| format!("{b:02X}")).collect::<String>();
    let ip: String = match address.ip() {
        IpAddr::V4(ip) => hex(&ip.octets()),
        IpAddr::V6(ip) => ip.octets().chunks(4).map(hex).collect(),
    };
    format!("{ip}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_cannot_forge_the_fields_after_it() {
        let line = b"7 (a) Z 1 (b\xff)) S 3 40 50 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 200\n";
        let stat = parse_stat(7, line).unwrap();
        assert_eq!((stat.state, stat.parent, stat.group, stat.session), ('S', 3, Some(40), Some(50)));
        assert_eq!(stat.process, Process { pid: 7, start: 987_654 });
        let going = b"7 (a) X 0 -1 -1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 200\n";
        let stat = parse_stat(7, going).unwrap();
        assert_eq!((stat.is_alive(), stat.group, stat.session), (false, None, None));
        assert_eq!(parse_stat(7, b"7 (a S 3"), None);
        assert_eq!(parse_stat(7, b"7 (a) S 3 40"), None);
    }

    #[test]
    fn the_own_process_is_read_correctly() {
        let me = std::process::id();
        let own = stat(me).unwrap();
        assert!(own.is_alive() && own.process.pid == me && own.process.start > 0);
        assert!(all_pids().unwrap().any(|pid| pid == me));
        assert_eq!(i32::try_from(own.parent).unwrap(), rustix::process::getppid().unwrap().as_raw_nonzero().get());
        assert_eq!(owner(me).unwrap().0, rustix::process::geteuid().as_raw());
        assert!(runs_as(me, rustix::process::getuid().as_raw()).unwrap());
        assert_eq!(working_directory(me).unwrap(), std::env::current_dir().unwrap());
        assert!(status(me).unwrap().bytes("VmRSS") > 0 && memory().unwrap().bytes("MemTotal") > 0);
        assert!(thread_count().unwrap() > 0 && boot_id().unwrap().len() == 36);
        assert!(!arguments(me).unwrap().is_empty() && !is_shim(me).unwrap());
        assert!(children(me).unwrap().1 > 0);
    }

    #[test]
    fn a_process_that_has_ended_is_reported_with_the_kernels_error() {
        let nobody = u32::MAX / 2;
        assert_eq!(stat(nobody).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(environ(nobody).err().map(|e| e.kind()), Some(io::ErrorKind::NotFound));
        assert_eq!(owner(nobody).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let environ = ProcessEnvironment(b"AB=1\0A=2\0A=3\0EMPTY=\0ALONE\0".to_vec());
        assert_eq!(
            (environ.value("A"), environ.value("B"), environ.value("EMPTY")),
            (Some(&b"2"[..]), None, Some(&b""[..]))
        );
        assert!(environ.has("AB") && environ.has("ALONE") && !environ.has("B"));
        assert!(environ.has_value("A", "3") && !environ.has_value("A", "1") && !environ.has_value("B", "1"));
    }

    /// A task could hide its memory use behind such a name.
    #[test]
    fn a_name_that_is_not_utf8_hides_no_other_field() {
        let (memory, user) = std::thread::spawn(|| {
            fs::write("/proc/thread-self/comm", b"\xff\xfe").unwrap();
            let own = fs::read_link("/proc/thread-self").unwrap();
            let thread: u32 = own.file_name().unwrap().to_str().unwrap().parse().unwrap();
            assert_eq!(comm(thread).unwrap(), b"\xff\xfe");
            (status(thread).unwrap().bytes("RssAnon"), runs_as(thread, rustix::process::getuid().as_raw()).unwrap())
        })
        .join()
        .unwrap();
        assert!(memory > 0 && user);
    }

    #[test]
    fn a_socket_is_found_by_its_two_addresses() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(address) else { continue };
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (theirs, ours) = (client.local_addr().unwrap(), listener.local_addr().unwrap());
            let socket = tcp_socket(theirs, ours).unwrap().unwrap();
            assert_eq!(socket.owner, rustix::process::geteuid().as_raw());
            let name = PathBuf::from(format!("socket:[{}]", socket.inode));
            assert!(open_files(std::process::id()).unwrap().any(|file| file == name));
            assert_eq!(open_file(std::process::id(), u32::try_from(client.as_raw_fd()).unwrap()).unwrap(), name);
            assert_eq!(fs::read_link(own_file(&client)).unwrap(), name);
            assert_eq!(tcp_socket(theirs, theirs).unwrap(), None);
        }
    }
}
