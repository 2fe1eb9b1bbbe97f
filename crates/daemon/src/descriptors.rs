//! The daemon's reserve of descriptors: with none left it still lets its owner in, tells who asks, and says what is
//! wrong.

use countersign_model::{Refusal, RefusalCode};
use rustix::{fd::OwnedFd, io::Errno};
use std::{
    fs::File,
    io,
    sync::{Arc, Mutex},
};

/// How many are kept.
const RESERVE: usize = 16;
/// How many one visitor takes: the connection, what pins its process, and a file or two to read.
const LOAN: usize = 4;

/// The kernel has no descriptor left, for this process or at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("out of descriptors")]
pub(crate) struct OutOfDescriptors;

impl OutOfDescriptors {
    /// Whether this is what went wrong.
    pub(crate) fn is_it(e: &io::Error) -> bool {
        matches!(Errno::from_io_error(e), Some(Errno::MFILE | Errno::NFILE))
    }
}

impl From<OutOfDescriptors> for Refusal {
    fn from(_: OutOfDescriptors) -> Self {
        Refusal::new(RefusalCode::OutOfDescriptors, "the daemon is out of descriptors").hint(
            "close connections that follow events or tasks, or start the daemon with a higher limit (ulimit -n, LimitNOFILE=)",
        )
    }
}

#[derive(Debug, Default)]
pub(crate) struct DescriptorReserve {
    kept: Mutex<Vec<OwnedFd>>,
}

/// Descriptors that were let go of for one visitor; the reserve is filled again when this is dropped.
#[derive(Debug)]
pub(crate) struct DescriptorLoan(Arc<DescriptorReserve>);

impl DescriptorReserve {
    pub(crate) fn reserve() -> Arc<Self> {
        let descriptors = Arc::new(Self::default());
        descriptors.fill();
        descriptors
    }

    /// Keeps as many as it should, if there are any to be had.
    pub(crate) fn fill(&self) {
        let mut kept = crate::lock(&self.kept);
        while kept.len() < RESERVE
            && let Ok(file) = File::open("/dev/null")
        {
            kept.push(file.into());
        }
    }

    /// Lets go of some for a visitor. None when nothing is left of the reserve.
    pub(crate) fn lend(self: &Arc<Self>) -> Option<DescriptorLoan> {
        let mut kept = crate::lock(&self.kept);
        let left = kept.len().checked_sub(LOAN)?;
        kept.truncate(left);
        Some(DescriptorLoan(Arc::clone(self)))
    }

    /// Does something that needs descriptors for a moment, with some of the reserve if there are no others.
    pub(crate) fn with<T>(
        self: &Arc<Self>,
        mut look: impl FnMut() -> Result<T, OutOfDescriptors>,
    ) -> Result<T, OutOfDescriptors> {
        match look() {
            Err(OutOfDescriptors) => {
                let _loan = self.lend().ok_or(OutOfDescriptors)?;
                look()
            }
            prepared => prepared,
        }
    }
}

impl DescriptorLoan {
    /// Whether there are descriptors enough to have the whole reserve back already.
    pub(crate) fn is_repaid(&self) -> bool {
        self.0.fill();
        crate::lock(&self.0.kept).len() == RESERVE
    }
}

impl Drop for DescriptorLoan {
    fn drop(&mut self) {
        self.0.fill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_comes_back_and_there_is_no_more_than_there_is() {
        let descriptors = DescriptorReserve::reserve();
        let kept = || descriptors.kept.lock().unwrap().len();
        assert_eq!(kept(), RESERVE);
        let loans: Vec<DescriptorLoan> = std::iter::from_fn(|| descriptors.lend()).collect();
        assert_eq!((loans.len(), kept()), (RESERVE / LOAN, 0));
        assert_eq!(descriptors.with(|| Err::<(), _>(OutOfDescriptors)), Err(OutOfDescriptors));
        drop(loans);
        assert_eq!(kept(), RESERVE);
        let mut tries = 0;
        let found = descriptors.with(|| {
            tries += 1;
            if tries == 1 { Err(OutOfDescriptors) } else { Ok(descriptors.kept.lock().unwrap().len()) }
        });
        assert_eq!((found, kept()), (Ok(RESERVE - LOAN), RESERVE));
        assert!(OutOfDescriptors::is_it(&Errno::MFILE.into()) && OutOfDescriptors::is_it(&Errno::NFILE.into()));
        assert!(!OutOfDescriptors::is_it(&Errno::ACCESS.into()));
    }
}
