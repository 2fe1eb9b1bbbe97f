//! The users whose tasks a daemon runs: its own user, or, for a system service, every user of the machine as
//! themselves.

use countersign_model::{Refusal, RefusalCode, TaskUser};
use std::{collections::BTreeMap, io};

/// The variables of the daemon that tasks of other users inherit.
const INHERITED_VARIABLES: &[&str] = &["LANG", "LANGUAGE", "TZ"];

/// The users that are served.
#[derive(Debug, Clone)]
pub(crate) struct Users {
    /// Every user of the machine is served, by a system service with its own user.
    system_service: bool,
    /// The variables for requests that bring none.
    base: BTreeMap<String, String>,
}

/// The user that files are read as, and that user's base variables.
#[derive(Debug, Clone)]
pub(crate) struct RunAs {
    /// None is the daemon's own user.
    pub(crate) user: Option<TaskUser>,
    pub(crate) base: BTreeMap<String, String>,
}

impl RunAs {
    /// Runs `look` with this user's file access.
    pub(crate) fn with_fs_ids<T>(&self, work: impl FnOnce() -> T) -> Result<T, Refusal> {
        with_user_ids(self.user.as_ref(), work)
    }

    /// The user's home, whatever a request claims.
    pub(crate) fn home(&self) -> &str {
        self.base.get("HOME").map_or("/", String::as_str)
    }
}

/// Runs `work` with this user's file access.
pub(crate) fn with_user_ids<T>(user: Option<&TaskUser>, work: impl FnOnce() -> T) -> Result<T, Refusal> {
    countersign_shim::with_user_ids(user, work).map_err(|e| {
        let name = user.map_or("", |l| l.name.as_str());
        Refusal::new(RefusalCode::Internal, format!("the daemon cannot act as the user {name}: {e}"))
    })
}

impl Users {
    pub(crate) fn for_own_user(base: BTreeMap<String, String>) -> Self {
        Self { system_service: false, base }
    }

    pub(crate) fn for_system_service(base: BTreeMap<String, String>) -> Self {
        let base = base
            .into_iter()
            .filter(|(name, _)| INHERITED_VARIABLES.contains(&name.as_str()) || name.starts_with("LC_"));
        Self { system_service: true, base: base.collect() }
    }

    pub(crate) fn is_system_service(&self) -> bool {
        self.system_service
    }

    /// The user that a principal with this uid runs as. Without a system service this is always the daemon's own user.
    pub(crate) fn run_as(&self, uid: Option<u32>) -> Result<RunAs, Refusal> {
        if !self.system_service {
            return Ok(RunAs { user: None, base: self.base.clone() });
        }
        let user = match uid {
            None => {
                let what = "the system service runs nothing as its owner, nor for a principal that is not a user of this machine";
                let how = "use an account of this machine, or a token of one (csn token create --principal NAME)";
                return Err(Refusal::new(RefusalCode::Forbidden, what).hint(how));
            }
            Some(0) => {
                let refusal = Refusal::new(RefusalCode::Forbidden, "the system service runs nothing as root");
                return Err(refusal.hint("use your own account; sudo inside a command asks for an approval"));
            }
            Some(uid) if uid == rustix::process::geteuid().as_raw() => {
                return Err(Refusal::new(RefusalCode::Forbidden, "the system service runs nothing as its own user"));
            }
            Some(uid) => find_task_user(uid)?,
        };
        let mut base = self.base.clone();
        for (name, value) in
            [("HOME", &user.home), ("USER", &user.name), ("LOGNAME", &user.name), ("SHELL", &user.shell)]
        {
            base.insert(name.to_owned(), value.clone());
        }
        Ok(RunAs { user: Some(user), base })
    }
}

/// A user as listed in the system's tables now.
pub(crate) fn find_task_user(uid: u32) -> Result<TaskUser, Refusal> {
    let (passwd, group) = read_user_tables()?;
    TaskUser::find(uid, &passwd, &group).ok_or_else(|| {
        Refusal::new(RefusalCode::Forbidden, format!("/etc/passwd has no user with the id {uid}"))
            .hint("users from a directory service are not supported")
    })
}

/// The id of the user with this name.
pub(crate) fn find_uid(name: &str) -> Option<u32> {
    let (passwd, _) = read_user_tables().ok()?;
    let mut fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    fields.find(|f| f.len() >= 7 && f[0] == name).and_then(|f| f[2].parse().ok())
}

fn read_user_tables() -> Result<(String, String), Refusal> {
    let read = |path: &str| -> io::Result<String> { Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned()) };
    let failed = |e: io::Error| Refusal::new(RefusalCode::Internal, format!("the list of users cannot be read: {e}"));
    Ok((read("/etc/passwd").map_err(failed)?, read("/etc/group").map_err(failed)?))
}
