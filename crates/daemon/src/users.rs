//! Whose tasks a house runs: those of its own user, or those of every user of the machine, each as themselves.

use countersign_model::{Refusal, RefusalCode, TaskUser};
use std::{collections::BTreeMap, io};

/// What is kept of the house's own variables for tasks of others.
const OF_THE_MACHINE: &[&str] = &["LANG", "LANGUAGE", "TZ"];

/// Who is served.
#[derive(Debug, Clone)]
pub(crate) struct Users {
    /// Every user of the machine, by a house that has a user of its own.
    machine: bool,
    /// For requests that bring no variables.
    base: BTreeMap<String, String>,
}

/// Whose eyes the world is looked at with, and what they have by themselves.
#[derive(Debug, Clone)]
pub(crate) struct RunAs {
    /// None is the house's own user.
    pub(crate) user: Option<TaskUser>,
    pub(crate) base: BTreeMap<String, String>,
}

impl RunAs {
    /// Does something with files as they would.
    pub(crate) fn with_fs_ids<T>(&self, look: impl FnOnce() -> T) -> Result<T, Refusal> {
        with_user_ids(self.user.as_ref(), look)
    }

    /// Their home, whatever a request says is theirs.
    pub(crate) fn home(&self) -> &str {
        self.base.get("HOME").map_or("/", String::as_str)
    }
}

/// Does something with files as this user would.
pub(crate) fn with_user_ids<T>(user: Option<&TaskUser>, work: impl FnOnce() -> T) -> Result<T, Refusal> {
    countersign_shim::with_user_ids(user, work).map_err(|e| {
        let name = user.map_or("", |l| l.name.as_str());
        Refusal::new(RefusalCode::Internal, format!("the house cannot act in the name of {name}: {e}"))
    })
}

impl Users {
    pub(crate) fn own(base: BTreeMap<String, String>) -> Self {
        Self { machine: false, base }
    }

    pub(crate) fn of_the_machine(base: BTreeMap<String, String>) -> Self {
        let base =
            base.into_iter().filter(|(name, _)| OF_THE_MACHINE.contains(&name.as_str()) || name.starts_with("LC_"));
        Self { machine: true, base: base.collect() }
    }

    pub(crate) fn is_machine(&self) -> bool {
        self.machine
    }

    /// The eyes of a principal who is this user of the machine. In an ordinary house everybody sees with the house's own.
    pub(crate) fn run_as(&self, uid: Option<u32>) -> Result<RunAs, Refusal> {
        if !self.machine {
            return Ok(RunAs { user: None, base: self.base.clone() });
        }
        let user = match uid {
            None => {
                let what =
                    "the house of the machine runs nothing as its owner, nor as a principal that is no user of it";
                let how = "ask as a user of the machine, or with a token of one (csn token create --principal NAME)";
                return Err(Refusal::new(RefusalCode::Forbidden, what).hint(how));
            }
            Some(0) => {
                let refusal = Refusal::new(RefusalCode::Forbidden, "the house of the machine runs nothing as root");
                return Err(refusal.hint("ask as yourself: sudo inside a command asks a person"));
            }
            Some(uid) if uid == rustix::process::geteuid().as_raw() => {
                return Err(Refusal::new(RefusalCode::Forbidden, "the house of the machine runs nothing as itself"));
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

/// A user as the system's tables have them now.
pub(crate) fn find_task_user(uid: u32) -> Result<TaskUser, Refusal> {
    let (passwd, group) = tables()?;
    TaskUser::find(uid, &passwd, &group).ok_or_else(|| {
        Refusal::new(RefusalCode::Forbidden, format!("the machine has no user with the number {uid} in /etc/passwd"))
            .hint("users that only a directory service knows are not served")
    })
}

/// The number of the user with this name.
pub(crate) fn uid_of(name: &str) -> Option<u32> {
    let (passwd, _) = tables().ok()?;
    let mut fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    fields.find(|f| f.len() >= 7 && f[0] == name).and_then(|f| f[2].parse().ok())
}

fn tables() -> Result<(String, String), Refusal> {
    let read = |path: &str| -> io::Result<String> { Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned()) };
    let failed =
        |e: io::Error| Refusal::new(RefusalCode::Internal, format!("the users of the machine cannot be read: {e}"));
    Ok((read("/etc/passwd").map_err(failed)?, read("/etc/group").map_err(failed)?))
}
