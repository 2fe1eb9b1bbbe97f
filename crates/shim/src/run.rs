//! One shim from its hello to its end: it waits for an order, creates the record, runs the order and closes the record.

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
use countersign_redact::{KnownSecrets, Mask, UserRules, text, text_by_shape};
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

/// Runs one shim from its hello to its end.
pub(crate) fn run_shim(channel: OwnedFd) -> ExitCode {
    sys::reset_signals();
    let _ = rustix::process::setsid();
    match wait_for_order(channel) {
        Ok(Some((order, channel, base_ruleset))) => run_order(&order, channel, base_ruleset),
        Ok(None) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Sends the hello and waits for the order. None if the daemon closes the channel without one.
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

/// Reports to the daemon that nothing was started.
fn report_not_started(channel: OwnedFd, error: Text, code: i32) -> ExitCode {
    let _ = wire::send(&mut std::os::unix::net::UnixStream::from(channel), &FromShim::NotStarted { error, code });
    ExitCode::FAILURE
}

fn run_order(order: &Order, channel: OwnedFd, base_ruleset: Option<BaseRuleset>) -> ExitCode {
    let request = order.request();
    // The daemon has checked these rules. If one does not compile here, the task does not start without it.
    match UserRules::new(&request.redaction) {
        Ok(user) => countersign_redact::set_user_rules(user),
        Err(fault) => return report_not_started(channel, text_by_shape(&fault.message), 125),
    }
    let mut known = KnownSecrets::from_env(request.env.iter().map(|(k, v)| (k.as_str(), v.as_str())));
    known.add_found_in(request.exec.argv.iter().map(String::as_str));
    request.known_secrets.iter().for_each(|secret| known.add(secret));
    let mask = Arc::new(Mask::new(request.mask_key, known));
    crash::point("shim.before_journal");
    // If the record cannot be created, the failure is reported over this copy.
    let Ok(fallback) = channel.try_clone() else { return ExitCode::FAILURE };
    let (control, journal, signals) = match open_record(request, channel) {
        Ok(opened) => opened,
        Err(e) => {
            let error = text(&mask, &format!("the record of the task could not be created: {e}"));
            return report_not_started(fallback, error, 125);
        }
    };
    drop(fallback);
    crash::point("shim.after_journal");
    let mut shim = Shim {
        request,
        dir: PathBuf::from(&request.task_dir),
        secrets: TypedSecrets::new(Arc::clone(&mask)),
        mask,
        control,
        journal,
        signals,
        outputs: Vec::new(),
        input_queue: None,
        terminal: None,
        operations: Operations::default(),
        lifecycle: Lifecycle::new(time_limits(request)),
        main: MainProcess::default(),
        disk: DiskWait::default(),
        notify: Notifier::default(),
        limits: LimitWatch::default(),
        sandbox: TaskSandbox::new(order.permit().confinement, base_ruleset),
    };
    let outcome = match &request.builtin {
        Some(builtin) => shim.run_builtin(builtin),
        None => match shim.spawn() {
            Ok(()) => shim.supervise(),
            Err(outcome) => outcome,
        },
    };
    shim.close(outcome)
}

fn time_limits(request: &ResolvedRequest) -> TimeLimits {
    let ms = Duration::from_millis;
    TimeLimits {
        wall: request.limits.wall_ms.map(ms),
        idle: request.limits.idle_ms.map(ms),
        grace: ms(request.limits.grace_ms.unwrap_or(Limits::GRACE_MS)),
        drain: ms(request.limits.drain_ms.unwrap_or(Limits::DRAIN_MS)),
        leftovers: request.leftovers,
    }
}

/// Opens everything that must exist before a process is started.
fn open_record(request: &ResolvedRequest, channel: OwnedFd) -> io::Result<(ControlSocket, JournalWriter, OwnedFd)> {
    let signals = sys::open_signal_fd()?;
    sys::become_subreaper()?;
    let dir = Path::new(&request.task_dir);
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let control = ControlSocket::open(Path::new(&request.run_dir), request.task, request.secret, channel)?;
    let journal = JournalWriter::create(dir, request.task, request.prologue_head, request.first_seq)?;
    Ok((control, journal, signals))
}
