//! The address of a task across homes: `<home>/<task>`. Within one home the task id is enough.

use crate::{DisplaySafe, HomeId, IdError, TaskId};
use std::{fmt, str::FromStr};

/// A task of a home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskAddress {
    pub home: HomeId,
    pub task: TaskId,
}

/// Why a text does not name a task of this home.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("`{}` names no home: use <home>/<task>", DisplaySafe::bounded(.0, 80))]
    NoHome(String),
    #[error(transparent)]
    Id(#[from] IdError),
    #[error("the task belongs to home {named}; this home is {ours}")]
    OtherHome { named: HomeId, ours: HomeId },
    #[error("this home has no id yet, so {named} cannot be compared with it; use the task id alone")]
    Unnamed { named: HomeId },
}

impl TaskAddress {
    /// The part of `text` that names a task in the home `ours`: the part after the home, or the whole text if it names
    /// no home. It may be a prefix of an id, so it is not parsed here.
    pub fn within(text: &str, ours: Option<HomeId>) -> Result<&str, AddressError> {
        let Some((home, task)) = text.split_once('/') else { return Ok(text) };
        let named: HomeId = home.parse()?;
        match ours {
            Some(ours) if ours == named => Ok(task),
            Some(ours) => Err(AddressError::OtherHome { named, ours }),
            None => Err(AddressError::Unnamed { named }),
        }
    }
}

impl fmt::Display for TaskAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.home, self.task)
    }
}

impl FromStr for TaskAddress {
    type Err = AddressError;
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (home, task) = text.split_once('/').ok_or_else(|| AddressError::NoHome(text.to_owned()))?;
        Ok(Self { home: home.parse()?, task: task.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: &str = "hm_01jcx3v9q8k2m4tz";
    const TASK: &str = "tk_01jcx3v9q8k2m4ty";

    #[test]
    fn an_address_parses_back() {
        let text = format!("{HOME}/{TASK}");
        let address: TaskAddress = text.parse().unwrap();
        assert_eq!((address.home.to_string(), address.task.to_string()), (HOME.to_owned(), TASK.to_owned()));
        assert_eq!(address.to_string(), text);
    }

    #[test]
    fn a_malformed_address_is_refused_with_a_reason() {
        let refused = |text: &str| text.parse::<TaskAddress>().unwrap_err().to_string();
        assert_eq!(refused(TASK), format!("`{TASK}` names no home: use <home>/<task>"));
        for bad in ["", "/", &format!("{TASK}/{HOME}"), &format!("{HOME}/"), &format!("{HOME}/{TASK}/x"), "hm_1/tk_1"] {
            assert!(bad.parse::<TaskAddress>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_task_of_this_home_is_found_with_and_without_its_home() {
        let ours: HomeId = HOME.parse().unwrap();
        assert_eq!(TaskAddress::within(TASK, Some(ours)), Ok(TASK));
        assert_eq!(TaskAddress::within(TASK, None), Ok(TASK));
        assert_eq!(TaskAddress::within("01jcx", Some(ours)), Ok("01jcx"), "the beginning of an id");
        assert_eq!(TaskAddress::within(&format!("{HOME}/{TASK}"), Some(ours)), Ok(TASK));
        assert_eq!(TaskAddress::within(&format!("{HOME}/01jcx"), Some(ours)), Ok("01jcx"));
        let others = "hm_01jcx3v9q8k2m4t0";
        let refused = TaskAddress::within(&format!("{others}/{TASK}"), Some(ours)).unwrap_err();
        assert_eq!(refused.to_string(), format!("the task belongs to home {others}; this home is {HOME}"));
        assert!(TaskAddress::within(&format!("{HOME}/{TASK}"), None).is_err());
        assert!(TaskAddress::within("a/b", Some(ours)).is_err());
    }
}
