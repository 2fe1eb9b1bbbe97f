//! The daemon's reserve of file descriptors. When none are left, the daemon can still accept its owner, recognise the
//! caller and report the problem.

use countersign_model::{Refusal, RefusalCode};
use rustix::{fd::OwnedFd, io::Errno};
use std::{
    fs::File,
    io,
    sync::{Arc, Mutex},
};

/// How many descriptors the reserve holds.
const RESERVED_DESCRIPTORS: usize = 16;
/// How many descriptors one caller needs: the connection, the pidfd of its process, and a file or two to read.
const DESCRIPTORS_PER_LOAN: usize = 4;

/// The kernel has no file descriptor left, for this process or for the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("out of descriptors")]
pub(crate) struct OutOfDescriptors;

impl OutOfDescriptors {
    /// Whether this error is the reason.
    pub(crate) fn matches(e: &io::Error) -> bool {
        matches!(Errno::from_io_error(e), Some(Errno::MFILE | Errno::NFILE))
    }
}

impl From<OutOfDescriptors> for Refusal {
    fn from(_: OutOfDescriptors) -> Self {
        Refusal::new(RefusalCode::OutOfDescriptors, "the daemon has no file descriptors left").hint(
            "close connections that follow events or tasks, or start the daemon with a higher limit (ulimit -n, LimitNOFILE=)",
        )
    }
}

#[derive(Debug, Default)]
pub(crate) struct DescriptorReserve {
    reserved: Mutex<Vec<OwnedFd>>,
}

/// Descriptors that the reserve released for one caller. Dropping the loan fills the reserve again.
#[derive(Debug)]
pub(crate) struct DescriptorLoan(Arc<DescriptorReserve>);

impl DescriptorReserve {
    pub(crate) fn reserve() -> Arc<Self> {
        let descriptors = Arc::new(Self::default());
        descriptors.fill();
        descriptors
    }

    /// Fills the reserve as far as descriptors are available.
    pub(crate) fn fill(&self) {
        let mut reserved = crate::lock(&self.reserved);
        while reserved.len() < RESERVED_DESCRIPTORS
            && let Ok(file) = File::open("/dev/null")
        {
            reserved.push(file.into());
        }
    }

    /// Releases descriptors for a caller. None if the reserve is used up.
    pub(crate) fn lend(self: &Arc<Self>) -> Option<DescriptorLoan> {
        let mut reserved = crate::lock(&self.reserved);
        let left = reserved.len().checked_sub(DESCRIPTORS_PER_LOAN)?;
        reserved.truncate(left);
        Some(DescriptorLoan(Arc::clone(self)))
    }

    /// Runs `look`, and again with descriptors of the reserve if there were no others.
    pub(crate) fn with_reserve<T>(
        self: &Arc<Self>,
        mut work: impl FnMut() -> Result<T, OutOfDescriptors>,
    ) -> Result<T, OutOfDescriptors> {
        match work() {
            Err(OutOfDescriptors) => {
                let _loan = self.lend().ok_or(OutOfDescriptors)?;
                work()
            }
            prepared => prepared,
        }
    }
}

impl DescriptorLoan {
    /// Whether enough descriptors are free again to fill the whole reserve.
    pub(crate) fn is_repaid(&self) -> bool {
        self.0.fill();
        crate::lock(&self.0.reserved).len() == RESERVED_DESCRIPTORS
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
    fn lent_descriptors_come_back_and_the_reserve_is_bounded() {
        let descriptors = DescriptorReserve::reserve();
        let reserved = || descriptors.reserved.lock().unwrap().len();
        assert_eq!(reserved(), RESERVED_DESCRIPTORS);
        let loans: Vec<DescriptorLoan> = std::iter::from_fn(|| descriptors.lend()).collect();
        assert_eq!((loans.len(), reserved()), (RESERVED_DESCRIPTORS / DESCRIPTORS_PER_LOAN, 0));
        assert_eq!(descriptors.with_reserve(|| Err::<(), _>(OutOfDescriptors)), Err(OutOfDescriptors));
        drop(loans);
        assert_eq!(reserved(), RESERVED_DESCRIPTORS);
        let mut tries = 0;
        let found = descriptors.with_reserve(|| {
            tries += 1;
            if tries == 1 { Err(OutOfDescriptors) } else { Ok(descriptors.reserved.lock().unwrap().len()) }
        });
        assert_eq!((found, reserved()), (Ok(RESERVED_DESCRIPTORS - DESCRIPTORS_PER_LOAN), RESERVED_DESCRIPTORS));
        assert!(OutOfDescriptors::matches(&Errno::MFILE.into()) && OutOfDescriptors::matches(&Errno::NFILE.into()));
        assert!(!OutOfDescriptors::matches(&Errno::ACCESS.into()));
    }
}
