//! The latest value of something, for many readers. Like `tokio::sync::watch`, but readers are woken in the order in which they
//! began to wait: tokio draws that order from a random source of its own, and then one seed would not give one history.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::lock::lock;

#[derive(Debug)]
struct Shared<T> {
    /// The value, and how often it has changed.
    state: Mutex<(T, u64)>,
    changed: Notify,
}

/// Sets the value.
#[derive(Debug)]
pub struct Sender<T>(Arc<Shared<T>>);

/// Reads the value and waits for changes. A copy has seen what its original has.
#[derive(Debug)]
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// Both ends, with a first value that counts as seen.
pub fn latest<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender(Arc::new(Shared { state: Mutex::new((value, 0)), changed: Notify::new() }));
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Sender<T> {
    /// A reader that has seen the value as it is now.
    pub fn subscribe(&self) -> Receiver<T> {
        let seen = lock(&self.0.state).1;
        Receiver { shared: Arc::clone(&self.0), seen }
    }

    /// Changes the value; readers hear of it if `change` says that it did.
    pub fn modify(&self, change: impl FnOnce(&mut T) -> bool) {
        {
            let mut state = lock(&self.0.state);
            if !change(&mut state.0) {
                return;
            }
            state.1 += 1;
        }
        self.0.changed.notify_waiters();
    }
}

impl Sender<u64> {
    /// Counts one more.
    pub fn increment(&self) {
        self.modify(|count| {
            *count += 1;
            true
        });
    }
}

impl<T: Copy> Receiver<T> {
    /// The value now.
    pub fn get(&self) -> T {
        lock(&self.shared.state).0
    }

    /// Waits for a change that this reader has not seen, and gives the value after it.
    pub async fn changed(&mut self) -> T {
        loop {
            let mut notified = std::pin::pin!(self.shared.changed.notified());
            notified.as_mut().enable();
            let (value, count) = *lock(&self.shared.state);
            if count != self.seen {
                self.seen = count;
                return value;
            }
            notified.await;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), seen: self.seen }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_is_seen_once_by_every_reader_also_by_one_that_did_not_wait() {
        let (sender, mut first) = latest(0_u64);
        let mut second = first.clone();
        sender.increment();
        assert_eq!((first.changed().await, second.get()), (1, 1));
        assert_eq!(second.changed().await, 1);
        let mut late = sender.subscribe();
        assert!(futures::poll!(std::pin::pin!(late.changed())).is_pending());
        sender.modify(|_| false);
        assert!(futures::poll!(std::pin::pin!(first.changed())).is_pending());
    }

    #[tokio::test]
    async fn readers_are_woken_in_the_order_in_which_they_waited() {
        let (sender, receiver) = latest(0);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut readers = tokio::task::JoinSet::new();
        for number in 0..50 {
            let (mut receiver, order) = (receiver.clone(), Arc::clone(&order));
            readers.spawn(async move {
                receiver.changed().await;
                order.lock().unwrap().push(number);
            });
        }
        tokio::task::yield_now().await;
        sender.modify(|_| true);
        while readers.join_next().await.is_some() {}
        assert!(order.lock().unwrap().is_sorted(), "{order:?}");
    }
}
