//! Counts open connections, and returns memory to the system when many of them have closed.

use std::sync::Mutex;

/// Returning memory walks through all free memory: not worth it for fewer connections.
const MIN_CLOSED_CONNECTIONS: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct UserLimits(Mutex<UserCount>);

#[derive(Debug, Default)]
struct UserCount {
    open: usize,
    /// The highest count since memory was last returned.
    peak: usize,
}

impl UserCount {
    /// Counts a closed connection. True if half of many connections have closed.
    fn goes(&mut self) -> bool {
        self.open -= 1;
        let gone = self.peak - self.open;
        let much = gone >= MIN_CLOSED_CONNECTIONS && gone >= self.peak / 2;
        if much {
            self.peak = self.open;
        }
        much
    }
}

impl UserLimits {
    pub(crate) fn comes(&self) {
        let mut count = crate::lock(&self.0);
        count.open += 1;
        count.peak = count.peak.max(count.open);
    }

    pub(crate) fn goes(&self) {
        let much = crate::lock(&self.0).goes();
        if much && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // It locks the allocator: not on a thread that serves connections.
            runtime.spawn_blocking(countersign_shim::give_back_free_memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_when_half_of_a_crowd_has_gone() {
        let mut count = UserCount { open: 2000, peak: 2000 };
        let mut given_back = Vec::new();
        while count.open > 0 {
            if count.goes() {
                given_back.push(count.open);
            }
        }
        assert_eq!(given_back, [1000, 500, 250, 125, 61]);
        let mut few = UserCount { open: MIN_CLOSED_CONNECTIONS - 1, peak: MIN_CLOSED_CONNECTIONS - 1 };
        assert!((1..MIN_CLOSED_CONNECTIONS).all(|_| !few.goes()));
    }
}
