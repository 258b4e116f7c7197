//! Who waits for a change of what, in a server: requests and feeds wait by the key in whose name they are answered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::latest::{Receiver, Sender, latest};
use crate::lock::lock;
use crate::object::Key;
use crate::store::Woken;

/// Those who wait, by key.
#[derive(Default)]
pub(super) struct Changes {
    waiting: Mutex<BTreeMap<Key, Waiting>>,
}

struct Waiting {
    changed: Sender<u64>,
    /// How many.
    number: usize,
}

/// Waits for changes of one key from when it was made.
pub(super) struct Following {
    changes: Arc<Changes>,
    key: Key,
    receiver: Receiver<u64>,
}

impl Changes {
    /// Something has changed.
    pub fn tell(&self, woken: &Woken) {
        let waiting = lock(&self.waiting);
        // Who waits is not known by topic.
        if woken.all || !woken.topics.is_empty() {
            waiting.values().for_each(|waiting| waiting.changed.increment());
            return;
        }
        for waiting in woken.keys.iter().filter_map(|key| waiting.get(key)) {
            waiting.changed.increment();
        }
    }

    /// Waits for changes of a key from now on.
    pub fn follow(self: &Arc<Self>, key: &Key) -> Following {
        let mut waiting = lock(&self.waiting);
        let entry = waiting.entry(key.clone()).or_insert_with(|| Waiting { changed: latest(0).0, number: 0 });
        entry.number += 1;
        Following { changes: Arc::clone(self), key: key.clone(), receiver: entry.changed.subscribe() }
    }
}

impl Following {
    /// Waits until something has changed since the last call.
    pub async fn changed(&mut self) {
        self.receiver.changed().await;
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let mut waiting = lock(&self.changes.waiting);
        if let Some(entry) = waiting.get_mut(&self.key) {
            entry.number -= 1;
            if entry.number == 0 {
                waiting.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[tokio::test]
    async fn a_change_reaches_those_who_wait_for_its_key_and_nobody_is_kept_afterwards() {
        let changes = Arc::new(Changes::default());
        let [one, two] = ["one", "two"].map(|name| Key::namespaced("ns", name));
        let mut waits = [changes.follow(&one), changes.follow(&one), changes.follow(&two)];
        changes.tell(&Woken { keys: BTreeSet::from([one]), ..Woken::default() });
        let mut reached = Vec::new();
        for wait in &mut waits {
            reached.push(futures::poll!(std::pin::pin!(wait.changed())).is_ready());
        }
        assert_eq!(reached, [true, true, false]);
        changes.tell(&Woken { all: true, ..Woken::default() });
        waits[2].changed().await;
        drop(waits);
        assert!(lock(&changes.waiting).is_empty());
    }
}
