//! One shim from its hello to its end: it waits for an order, creates the record, runs the order and closes the record.

use crate::{
    control::{self, ControlSocket},
    disk::DiskWait,
    lifecycle::{Lifecycle, TimeLimits},
    limits::LimitWatch,
    main_process::MainProcess,
    notify::Notifier,
    operations::Operations,
    prepared_record::PreparedRecord,
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
    fs::{DirBuilder, File},
    io,
    os::unix::{fs::DirBuilderExt as _, net::UnixStream},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

/// What a shim makes while it is idle, for a task that it does not know yet.
struct IdleWork {
    base_ruleset: Option<BaseRuleset>,
    record: Option<PreparedRecord>,
}

/// Runs one shim from its hello to its end. `place`: where idle shims prepare the records of tasks.
pub(crate) fn run_shim(channel: OwnedFd, place: Option<&Path>) -> ExitCode {
    sys::reset_signals();
    let _ = rustix::process::setsid();
    let mut stream = UnixStream::from(channel);
    if wire::send(&mut stream, &control::hello(None)).is_err() {
        return ExitCode::FAILURE;
    }
    let idle_work = IdleWork { base_ruleset: BaseRuleset::prepare(), record: place.and_then(PreparedRecord::make) };
    match wire::receive(&mut stream) {
        Ok(ToShim::Order(order)) => run_order(&order, stream.into(), idle_work),
        Ok(_) => ExitCode::SUCCESS,
        // The daemon has closed the channel without an order.
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Reports to the daemon that nothing was started.
fn report_not_started(channel: OwnedFd, error: Text, code: i32) -> ExitCode {
    let _ = wire::send(&mut UnixStream::from(channel), &FromShim::NotStarted { error, code });
    ExitCode::FAILURE
}

fn run_order(order: &Order, channel: OwnedFd, idle_work: IdleWork) -> ExitCode {
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
    let IdleWork { base_ruleset, record } = idle_work;
    let dir = PathBuf::from(&request.task_dir);
    let prepared_journal = record.and_then(|record| record.name(&dir));
    let has_temporary = prepared_journal.is_some();
    let (control, journal, signals) = match open_record(request, &dir, channel, prepared_journal) {
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
        dir,
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
        sandbox: TaskSandbox::new(order.permit().confinement, base_ruleset, has_temporary),
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
fn open_record(
    request: &ResolvedRequest,
    dir: &Path,
    channel: OwnedFd,
    prepared_journal: Option<File>,
) -> io::Result<(ControlSocket, JournalWriter, OwnedFd)> {
    let signals = sys::open_signal_fd()?;
    sys::become_subreaper()?;
    let control = ControlSocket::open(Path::new(&request.run_dir), request.task, request.secret, channel)?;
    let (task, prologue, first_seq) = (request.task, request.prologue_head, request.first_seq);
    let journal = match prepared_journal {
        Some(file) => JournalWriter::create_from(file, dir, task, prologue, first_seq)?,
        None => {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
            JournalWriter::create(dir, task, prologue, first_seq)?
        }
    };
    Ok((control, journal, signals))
}
