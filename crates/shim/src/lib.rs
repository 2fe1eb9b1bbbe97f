//! Runs one order: the child process, its journal, its output and the control socket. Only this crate starts tasks.
//!
//! # Theory of operation
//!
//! The daemon starts one `csn-shim` as its fork server, with one end of a socket pair as standard input. For every
//! channel that the daemon sends, the fork server forks a shim. The shim sends a hello and waits for an order; the
//! daemon keeps a few idle shims, so that a task does not wait for a process to start. The order permits the shim to
//! run one task. The shim creates the journal, spawns the child, and from then on is a single loop around `poll`:
//! output, control sockets, ended children, deadlines. When the daemon dies, the shim sees a closed socket and keeps
//! running; a new daemon connects through the control socket.
//!
//! `lifecycle` decides what happens when and does no I/O; `supervise` carries it out. `run` is one shim from its hello
//! to its end.

mod budget;
mod builtin;
mod close;
pub mod control;
pub mod descriptors;
mod directories;
mod disk;
mod feeder;
mod final_cwd;
mod fork_server;
mod gitconfig;
mod input;
mod input_queue;
mod launch;
mod lifecycle;
mod limits;
mod main_process;
mod notify;
mod operate;
mod operations;
mod output_stream;
mod post_run;
mod prepared_record;
mod probe;
mod recording;
mod run;
mod sandbox;
mod seccomp;
mod start;
mod supervise;
mod sys;
mod task_sandbox;
mod terminal;
mod terminal_watch;
pub mod tree;
mod typed_secrets;
mod vt_modes;
pub mod wire;

pub use close::SCREEN_ARTIFACT;
pub use fork_server::main;
pub use launch::{ForkServer, IdleShim};
pub use prepared_record::remove_left_records;
pub use probe::features;

pub use sandbox::{clear_temporary, detect_kernel, is_escape};
pub use sys::user::{with_owner_ids, with_user_ids};
pub use sys::{
    become_subreaper, can_act_for_other_users, close_inherited_descriptors, configure_allocator, forbid_dumping,
    peer_pidfd, release_free_memory,
};
pub use terminal::{Screen, ScreenSnapshot};
