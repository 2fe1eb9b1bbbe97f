//! Limits the number of open connections by class: unauthenticated connections cannot keep out authenticated ones.
//!
//! Connections on loopback look alike until they authenticate. So unauthenticated ones are a class of their own: when
//! it is full, its oldest connection is dropped for the new one. Agents leave some slots to persons.

use countersign_model::{CredentialKind, Refusal, RefusalCode};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::sync::Notify;

/// The limits of a listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// Unauthenticated connections.
    pub(crate) unrecognised: usize,
    /// Authenticated connections.
    pub(crate) recognised: usize,
}

impl ConnectionLimits {
    /// How many of the authenticated connections may be agents'.
    fn max_agents(self) -> usize {
        self.recognised - self.recognised / 4
    }
}

/// The connections of one listener, or of one user on it.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    limits: ConnectionLimits,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    /// By age, each with its notification that it is dropped.
    unrecognised: BTreeMap<u64, Arc<Notify>>,
    agents: usize,
    persons: usize,
}

/// The slot of one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    id: u64,
    recognised_as: Mutex<Option<CredentialKind>>,
    dropped: Arc<Notify>,
}

impl ConnectionSlots {
    pub(crate) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, open: Mutex::default() })
    }

    /// A slot for a new connection. It displaces the oldest unauthenticated one if there is no other room.
    pub(crate) fn enter(self: &Arc<Self>) -> ConnectionSlot {
        let mut open = self.open();
        while open.unrecognised.len() >= self.limits.unrecognised.max(1) {
            drop_oldest(&mut open);
        }
        let (id, dropped) = (open.next, Arc::new(Notify::new()));
        open.next += 1;
        open.unrecognised.insert(id, Arc::clone(&dropped));
        ConnectionSlot { slots: Arc::clone(self), id, recognised_as: Mutex::default(), dropped }
    }

    /// Drops the oldest unauthenticated connection. False if there is none.
    pub(crate) fn drop_oldest(&self) -> bool {
        drop_oldest(&mut self.open())
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        crate::lock(&self.open)
    }
}

fn drop_oldest(open: &mut OpenConnections) -> bool {
    let oldest = open.unrecognised.pop_first();
    // The notification is stored if the connection does not wait for it yet.
    oldest.map(|(_, dropped)| dropped.notify_one()).is_some()
}

impl ConnectionSlot {
    /// Counts the connection as one of a recognised caller.
    pub(crate) fn recognise(&self, kind: CredentialKind) -> Result<(), Refusal> {
        let mut recognised_as = crate::lock(&self.recognised_as);
        if *recognised_as == Some(kind) {
            return Ok(());
        }
        let mut open = self.slots.open();
        release(&mut open, self.id, recognised_as.take());
        let limits = self.slots.limits;
        let full = open.agents + open.persons >= limits.recognised
            || kind == CredentialKind::Agent && open.agents >= limits.max_agents();
        if full {
            // It gets its response and counts as unauthenticated again.
            open.unrecognised.insert(self.id, Arc::clone(&self.dropped));
            return Err(Refusal::new(RefusalCode::TooMany, "too many connections are open")
                .hint("close some of your connections, or raise `connections` below [http] in config.toml"));
        }
        *recognised_as = Some(kind);
        match kind {
            CredentialKind::Agent => open.agents += 1,
            CredentialKind::Person => open.persons += 1,
        }
        Ok(())
    }

    /// Returns when this connection must make room for another.
    pub(crate) async fn wait_until_dropped(&self) {
        self.dropped.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let recognised_as = self.recognised_as.get_mut().ok().and_then(Option::take);
        release(&mut self.slots.open(), self.id, recognised_as);
    }
}

fn release(open: &mut OpenConnections, id: u64, held: Option<CredentialKind>) {
    match held {
        None => drop(open.unrecognised.remove(&id)),
        Some(CredentialKind::Agent) => open.agents -= 1,
        Some(CredentialKind::Person) => open.persons -= 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CredentialKind::{Agent, Person};

    const FEW: ConnectionLimits = ConnectionLimits { unrecognised: 2, recognised: 4 };

    async fn is_dropped(slot: &ConnectionSlot) -> bool {
        tokio::select! {
            biased;
            () = slot.wait_until_dropped() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn the_oldest_unrecognised_connection_is_dropped_first() {
        let slots = ConnectionSlots::new(FEW);
        let (first, second) = (slots.enter(), slots.enter());
        first.recognise(Person).unwrap();
        let third = slots.enter();
        assert!(!is_dropped(&second).await, "a recognised connection does not count");
        let fourth = slots.enter();
        assert!(is_dropped(&second).await && !is_dropped(&first).await);
        assert!(!is_dropped(&third).await && !is_dropped(&fourth).await);
        assert!(slots.drop_oldest() && is_dropped(&third).await && !is_dropped(&fourth).await);
        assert!(slots.drop_oldest() && !slots.drop_oldest(), "a recognised connection is not dropped");
    }

    #[test]
    fn agents_leave_slots_to_persons_and_slots_are_released() {
        let slots = ConnectionSlots::new(FEW);
        let mut agents: Vec<ConnectionSlot> = Vec::new();
        for _ in 0..3 {
            let slot = slots.enter();
            slot.recognise(Agent).unwrap();
            slot.recognise(Agent).unwrap();
            agents.push(slot);
        }
        let one_more = slots.enter();
        assert_eq!(one_more.recognise(Agent).unwrap_err().code, RefusalCode::TooMany);
        let person = slots.enter();
        person.recognise(Person).unwrap();
        let another = slots.enter();
        assert_eq!(another.recognise(Person).unwrap_err().code, RefusalCode::TooMany);
        drop(agents.pop());
        one_more.recognise(Agent).unwrap();
        drop((agents, person, one_more, another));
        let open = slots.open();
        assert_eq!((open.unrecognised.len(), open.agents, open.persons), (0, 0, 0));
    }
}
