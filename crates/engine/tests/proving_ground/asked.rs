//! What owners of wells were told at the desks of the processes, and whether it was true.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_engine::runtime::Runtime;
use aquifer_engine::simulation::World;
use aquifer_engine::{Key, Object};
use futures::StreamExt;
use tokio::time::Instant;

use crate::desk::{Call, Open, Told, Wish};
use crate::family::{Kinds, well_status};

/// How long an owner waits for a reply that must wait.
const WITHIN: Duration = Duration::from_secs(30);
/// How long somebody listens to a feed.
const FOLLOWS: Duration = Duration::from_mins(3);
/// What a server sees may be so old: a watch that stalls is listed again after less.
const BEHIND: Duration = Duration::from_mins(5);
/// A server remembers so long that something is not there.
const ABSENT: Duration = Duration::from_secs(5);

/// All that was asked.
#[derive(Clone, Default)]
pub struct Asked {
    told: Arc<Mutex<Vec<Reply>>>,
    /// How many wait for a reply.
    waiting: Arc<AtomicUsize>,
}

struct Reply {
    well: Key,
    told: Told,
    asked_at: Instant,
    told_at: Instant,
}

/// Somebody waits; nobody waits any more for a process that has ended.
struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Asked {
    /// Somebody asks at a desk. A failure tells them nothing.
    pub fn ask(&self, desk: &Open, well: Key, wish: Wish) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let (all, waiting, server) =
            (Arc::clone(&self.told), Waiting(Arc::clone(&self.waiting)), Arc::clone(&desk.server));
        desk.runtime.spawn(async move {
            let asked_at = Runtime::instant();
            let replied = server.handle(&Call { well: well.clone(), wish }, WITHIN).await;
            drop(waiting);
            if let Ok(told) = replied {
                all.lock().unwrap().push(Reply { well, told, asked_at, told_at: Runtime::instant() });
            }
        });
    }

    /// Somebody asks at a desk to be told, for a while, whenever the reply is another one.
    pub fn follow(&self, desk: &Open, well: Key, wish: Wish) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let (all, waiting, server) =
            (Arc::clone(&self.told), Waiting(Arc::clone(&self.waiting)), Arc::clone(&desk.server));
        desk.runtime.spawn(async move {
            let mut feed = Box::pin(server.feed(Call { well: well.clone(), wish }));
            let mut asked_at = Runtime::instant();
            let listens = async {
                while let Some(Ok(told)) = feed.next().await {
                    let told_at = Runtime::instant();
                    all.lock().unwrap().push(Reply { well: well.clone(), told, asked_at, told_at });
                    asked_at = told_at;
                }
            };
            let _ = tokio::time::timeout(FOLLOWS, listens).await;
            drop(waiting);
        });
    }

    /// Whether all that was said was so.
    pub fn was_true(&self, world: &World) -> Result<(), String> {
        let waiting = self.waiting.load(Ordering::SeqCst);
        if waiting > 0 {
            return Err(format!("{waiting} owners are still waiting for a reply"));
        }
        let kind = Kinds::new().well;
        let mut versions: BTreeMap<Key, Vec<(Instant, Option<Object>)>> = BTreeMap::new();
        for change in world.model.changes_since(0).iter().filter(|change| change.target.kind == kind) {
            versions.entry(change.target.key.clone()).or_default().push((change.at, change.after()));
        }
        for Reply { well, told, asked_at, told_at } in &*self.told.lock().unwrap() {
            let stored = versions.get(well).map(Vec::as_slice).unwrap_or_default();
            let mut wells = held_within(stored, *asked_at - BEHIND, *told_at);
            let good = match told {
                Told::NotYet => true,
                Told::Granted(amount) => wells.any(|well| well_status(well).allotted == Some(*amount)),
                Told::Noted => wells.any(|well| well.at("/status/leaving").is_some() || well.deleting()),
                Told::NoSuchWell => was_absent(stored, *asked_at - ABSENT, *told_at),
            };
            if !good {
                return Err(format!("the owner of {well} was told {told:?}, which was not so"));
            }
        }
        Ok(())
    }
}

/// What was there at some moment of this time.
fn held_within(
    stored: &[(Instant, Option<Object>)],
    from: Instant,
    to: Instant,
) -> impl Iterator<Item = &Object> {
    stored.iter().enumerate().filter_map(move |(number, (since, well))| {
        let until = stored.get(number + 1).map(|(next, _)| *next);
        let held = *since <= to && until.is_none_or(|until| until >= from);
        well.as_ref().filter(|_| held)
    })
}

/// Whether there was nothing at some moment of this time.
fn was_absent(stored: &[(Instant, Option<Object>)], from: Instant, to: Instant) -> bool {
    let at_first = stored.iter().take_while(|(at, _)| *at <= from).last().and_then(|(_, well)| well.as_ref());
    let mut meanwhile = stored.iter().filter(|(at, _)| (from..=to).contains(at));
    at_first.is_none() || meanwhile.any(|(_, well)| well.is_none())
}
