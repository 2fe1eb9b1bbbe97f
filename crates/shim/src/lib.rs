//! Runs one order: child, journal, output, control socket. The only crate that starts tasks.
//!
//! # Theory of operation
//!
//! The daemon starts one `csn-shim` with an end of a socket pair as its standard input and nothing else: the nursery,
//! which forks a shim for every channel that it is sent. The shim says hello and waits; a daemon keeps a few waiting,
//! so that their start costs a task nothing. With the order comes leave to run. The shim takes the journal's name, spawns, and from then on is a single loop around `poll`: output, the
//! control sockets, the end of children, deadlines. When the daemon dies the loop does not notice more than a closed
//! socket; a new daemon comes back through the control socket.
//!
//! What happens when is decided in `life`, which does no I/O; `supervise` does what it says. `run` is a shim from its hello
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

pub use close::SCREEN;
pub use fork_server::main;
pub use launch::{ForkServer, IdleShim};
pub use probe::features;

pub use sandbox::{clear_temporary, is_escape, kernel};
pub use sys::user::{as_owner_of, with_user_ids};
pub use sys::{
    acts_for_others, become_subreaper, close_inherited, give_back_free_memory, give_back_large_buffers, not_dumpable,
    peer_pidfd,
};
pub use terminal::{Screen, ScreenSnapshot};
