//! A task as it is named across homes: `<home>/<task>`. Inside one home its id alone is enough.

use crate::{DisplaySafe, HomeId, IdError, TaskId};
use std::{fmt, str::FromStr};

/// Which task of which home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskAddress {
    pub home: HomeId,
    pub task: TaskId,
}

/// Why a text does not name a task of this home.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("`{}` has no home: across homes a task is named <home>/<task>", DisplaySafe::bounded(.0, 80))]
    NoHome(String),
    #[error(transparent)]
    Id(#[from] IdError),
    #[error("{named} is another home; this one is {ours}")]
    OtherHome { named: HomeId, ours: HomeId },
    #[error("{named} cannot be compared: this home has no id yet")]
    Unnamed { named: HomeId },
}

impl TaskAddress {
    /// The part of `text` that names a task inside the home `ours`: what follows the home, or all of it where no home is
    /// named. It may be the beginning of an id, so it is not parsed here.
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
    fn an_address_reads_back() {
        let text = format!("{HOME}/{TASK}");
        let address: TaskAddress = text.parse().unwrap();
        assert_eq!((address.home.to_string(), address.task.to_string()), (HOME.to_owned(), TASK.to_owned()));
        assert_eq!(address.to_string(), text);
    }

    #[test]
    fn what_is_no_address_is_refused_in_words() {
        let refused = |text: &str| text.parse::<TaskAddress>().unwrap_err().to_string();
        assert_eq!(refused(TASK), format!("`{TASK}` has no home: across homes a task is named <home>/<task>"));
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
        assert_eq!(refused.to_string(), format!("{others} is another home; this one is {HOME}"));
        assert!(TaskAddress::within(&format!("{HOME}/{TASK}"), None).is_err());
        assert!(TaskAddress::within("a/b", Some(ours)).is_err());
    }
}
