//! Counts open connections, and returns memory to the system when many of them have closed.

use std::sync::Mutex;

/// Returning memory walks through all free memory: not worth it for fewer connections.
const MIN_CLOSED_CONNECTIONS: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct ConnectionCounter(Mutex<ConnectionCount>);

#[derive(Debug, Default)]
struct ConnectionCount {
    open: usize,
    /// The highest count since memory was last returned.
    peak: usize,
}

impl ConnectionCount {
    /// Counts a closed connection. True if half of many connections have closed.
    fn close_one(&mut self) -> bool {
        self.open -= 1;
        let closed = self.peak - self.open;
        let returns_memory = closed >= MIN_CLOSED_CONNECTIONS && closed >= self.peak / 2;
        if returns_memory {
            self.peak = self.open;
        }
        returns_memory
    }
}

impl ConnectionCounter {
    pub(crate) fn count_opened(&self) {
        let mut count = crate::lock(&self.0);
        count.open += 1;
        count.peak = count.peak.max(count.open);
    }

    pub(crate) fn count_closed(&self) {
        let returns_memory = crate::lock(&self.0).close_one();
        if returns_memory && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // It locks the allocator: not on a thread that serves connections.
            runtime.spawn_blocking(countersign_shim::release_free_memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_when_half_of_many_connections_have_closed() {
        let mut count = ConnectionCount { open: 2000, peak: 2000 };
        let mut given_back = Vec::new();
        while count.open > 0 {
            if count.close_one() {
                given_back.push(count.open);
            }
        }
        assert_eq!(given_back, [1000, 500, 250, 125, 61]);
        let mut few = ConnectionCount { open: MIN_CLOSED_CONNECTIONS - 1, peak: MIN_CLOSED_CONNECTIONS - 1 };
        assert!((1..MIN_CLOSED_CONNECTIONS).all(|_| !few.close_one()));
    }
}
