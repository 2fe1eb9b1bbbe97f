//! One shim, from its hello to its end: it waits for an order, begins the record, runs the order, closes the record.

use crate::{
    control::{self, ControlSocket},
    disk::DiskWait,
    lifecycle::{Lifecycle, TimeLimits},
    limits::LimitWatch,
    main_process::MainProcess,
    notify::Notifier,
    operations::Operations,
    sandbox::BaseRuleset,
    supervise::Shim,
    sys,
    task_sandbox::TaskSandbox,
    typed_secrets::TypedSecrets,
    wire::{self, FromShim, ToShim},
};
use countersign_model::{Limits, Order, ResolvedRequest, Text};
use countersign_redact::{Known, Mask, User, text, text_by_shape};
use countersign_store::{crash, journal::JournalWriter};
use rustix::fd::OwnedFd;
use std::{
    fs::DirBuilder,
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

/// One shim, from its hello to its end.
pub(crate) fn shim(channel: OwnedFd) -> ExitCode {
    sys::default_signals();
    let _ = rustix::process::setsid();
    match wait_for_order(channel) {
        Ok(Some((order, channel, base_ruleset))) => run(&order, channel, base_ruleset),
        Ok(None) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Says hello and waits. A daemon that goes away without an order needs us no more.
fn wait_for_order(channel: OwnedFd) -> io::Result<Option<(Order, OwnedFd, Option<BaseRuleset>)>> {
    let mut stream = std::os::unix::net::UnixStream::from(channel);
    wire::send(&mut stream, &control::hello(None))?;
    let base_ruleset = BaseRuleset::prepare();
    match wire::receive(&mut stream) {
        Ok(ToShim::Order(order)) => Ok(Some((*order, stream.into(), base_ruleset))),
        Ok(_) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e),
    }
}

/// Nothing was started: say so and go.
fn not_started(channel: OwnedFd, error: Text, code: i32) -> ExitCode {
    let _ = wire::send(&mut std::os::unix::net::UnixStream::from(channel), &FromShim::NotStarted { error, code });
    ExitCode::FAILURE
}

fn run(order: &Order, channel: OwnedFd, base_ruleset: Option<BaseRuleset>) -> ExitCode {
    let what = order.request();
    // Checked by the daemon when it read them; a rule that does not compile here cannot let anything through unseen.
    match User::new(&what.redaction) {
        Ok(user) => countersign_redact::install(user),
        Err(fault) => return not_started(channel, text_by_shape(&fault.message), 125),
    }
    let mut known = Known::of_env(what.env.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    known.add_found(what.exec.argv.iter().map(String::as_str));
    let mask = Arc::new(Mask::new(what.mask_key, known));
    crash::point("shim.before_journal");
    // Should the record not begin, this is how the daemon hears of it.
    let Ok(fallback) = channel.try_clone() else { return ExitCode::FAILURE };
    let (control, journal, signals) = match open(what, channel) {
        Ok(opened) => opened,
        Err(e) => return not_started(fallback, text(&mask, &format!("the record could not be begun: {e}")), 125),
    };
    drop(fallback);
    crash::point("shim.after_journal");
    let mut shim = Shim {
        what,
        dir: PathBuf::from(&what.task_dir),
        secrets: TypedSecrets::new(Arc::clone(&mask)),
        mask,
        control,
        journal,
        signals,
        outlets: Vec::new(),
        inlet: None,
        terminal: None,
        operations: Operations::default(),
        life: Lifecycle::new(bounds(what)),
        main: MainProcess::default(),
        disk: DiskWait::default(),
        notify: Notifier::default(),
        limits: LimitWatch::default(),
        sandbox: TaskSandbox::new(order.permit().confinement, base_ruleset),
    };
    let outcome = match &what.builtin {
        Some(builtin) => shim.work(builtin),
        None => match shim.spawn() {
            Ok(()) => shim.supervise(),
            Err(outcome) => outcome,
        },
    };
    shim.close(outcome)
}

fn bounds(what: &ResolvedRequest) -> TimeLimits {
    let ms = Duration::from_millis;
    TimeLimits {
        wall: what.limits.wall_ms.map(ms),
        idle: what.limits.idle_ms.map(ms),
        grace: ms(what.limits.grace_ms.unwrap_or(Limits::GRACE_MS)),
        drain: ms(what.limits.drain_ms.unwrap_or(Limits::DRAIN_MS)),
        leftovers: what.leftovers,
    }
}

/// Everything that must stand before a process is started.
fn open(what: &ResolvedRequest, channel: OwnedFd) -> io::Result<(ControlSocket, JournalWriter, OwnedFd)> {
    let signals = sys::signal_fd()?;
    sys::become_subreaper()?;
    let dir = Path::new(&what.task_dir);
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let control = ControlSocket::open(Path::new(&what.run_dir), what.task, what.secret, channel)?;
    let journal = JournalWriter::create(dir, what.task, what.prologue_head, what.first_seq)?;
    Ok((control, journal, signals))
}
