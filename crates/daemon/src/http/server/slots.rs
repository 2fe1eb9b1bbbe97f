//! How many connections may be open at once, by how far each has come: nobody who has not shown a credential keeps out
//! those who have one.
//!
//! Connections on loopback all look alike until they ask. So those that have not been recognised yet are a class of
//! their own: when it is full, the oldest of it is dropped and the new one comes in. Agents leave some room to persons.

use countersign_model::{CredentialKind, Refusal, RefusalCode};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::sync::Notify;

/// What a door has room for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionLimits {
    /// Connections that have not been recognised.
    pub(crate) unrecognised: usize,
    /// Connections that have.
    pub(crate) recognised: usize,
}

impl ConnectionLimits {
    /// As many of the recognised ones may be agents'.
    fn agents(self) -> usize {
        self.recognised - self.recognised / 4
    }
}

/// The connections of one door, or of one user at it.
#[derive(Debug)]
pub(crate) struct ConnectionSlots {
    bounds: ConnectionLimits,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    /// By age, and how to tell each that it is dropped.
    unrecognised: BTreeMap<u64, Arc<Notify>>,
    agents: usize,
    persons: usize,
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    slots: Arc<ConnectionSlots>,
    id: u64,
    holds: Mutex<Option<CredentialKind>>,
    dropped: Arc<Notify>,
}

impl ConnectionSlots {
    pub(crate) fn new(bounds: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { bounds, open: Mutex::default() })
    }

    /// A place for a connection that has just come, at the cost of the oldest unrecognised one if need be.
    pub(crate) fn enter(self: &Arc<Self>) -> ConnectionSlot {
        let mut open = self.open();
        while open.unrecognised.len() >= self.bounds.unrecognised.max(1) {
            drop_oldest(&mut open);
        }
        let (id, dropped) = (open.next, Arc::new(Notify::new()));
        open.next += 1;
        open.unrecognised.insert(id, Arc::clone(&dropped));
        ConnectionSlot { slots: Arc::clone(self), id, holds: Mutex::default(), dropped }
    }

    /// Makes room, whatever for. False when there is nobody left to drop.
    pub(crate) fn drop_oldest(&self) -> bool {
        drop_oldest(&mut self.open())
    }

    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        crate::lock(&self.open)
    }
}

fn drop_oldest(open: &mut OpenConnections) -> bool {
    let oldest = open.unrecognised.pop_first();
    // Kept until it is waited for: it may not be waiting yet.
    oldest.map(|(_, dropped)| dropped.notify_one()).is_some()
}

impl ConnectionSlot {
    /// Who has this connection is known from now on.
    pub(crate) fn recognise(&self, kind: CredentialKind) -> Result<(), Refusal> {
        let mut holds = crate::lock(&self.holds);
        if *holds == Some(kind) {
            return Ok(());
        }
        let mut open = self.slots.open();
        leave(&mut open, self.id, holds.take());
        let bounds = self.slots.bounds;
        let full = open.agents + open.persons >= bounds.recognised
            || kind == CredentialKind::Agent && open.agents >= bounds.agents();
        if full {
            // It is answered, and hangs up like any other that has not been recognised.
            open.unrecognised.insert(self.id, Arc::clone(&self.dropped));
            return Err(Refusal::new(RefusalCode::TooMany, "too many connections are open already")
                .hint("close some of yours, or raise `connections` below [http] in config.toml"));
        }
        *holds = Some(kind);
        match kind {
            CredentialKind::Agent => open.agents += 1,
            CredentialKind::Person => open.persons += 1,
        }
        Ok(())
    }

    /// Until this connection has to make room for another.
    pub(crate) async fn dropped(&self) {
        self.dropped.notified().await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let holds = self.holds.get_mut().ok().and_then(Option::take);
        leave(&mut self.slots.open(), self.id, holds);
    }
}

fn leave(open: &mut OpenConnections, id: u64, held: Option<CredentialKind>) {
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
            () = slot.dropped() => true,
            () = std::future::ready(()) => false,
        }
    }

    #[tokio::test]
    async fn the_oldest_that_was_not_recognised_makes_room() {
        let slots = ConnectionSlots::new(FEW);
        let (first, second) = (slots.enter(), slots.enter());
        first.recognise(Person).unwrap();
        let third = slots.enter();
        assert!(!is_dropped(&second).await, "one was recognised, so there is room");
        let fourth = slots.enter();
        assert!(is_dropped(&second).await && !is_dropped(&first).await);
        assert!(!is_dropped(&third).await && !is_dropped(&fourth).await);
        assert!(slots.drop_oldest() && is_dropped(&third).await && !is_dropped(&fourth).await);
        assert!(slots.drop_oldest() && !slots.drop_oldest(), "the recognised one is not dropped");
    }

    #[test]
    fn agents_leave_room_to_persons_and_places_are_given_back() {
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
