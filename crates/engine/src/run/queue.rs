//! When each key has its next pass. A pure state machine over a clock that is handed in: no tasks, no IO.
//!
//! One pass per key at a time. A key whose last pass has written or read something that the caches do not show yet stays queued,
//! holding no worker, until they do. A key that failed waits out its backoff; only news from the user shortens that.
//! A key that has just had a pass rests a moment, so that a burst of events costs one pass more and not ten. A status that only
//! shows progress waits: at least a second, and then for its turn among the others. Then it is due: its key is woken, and the
//! next pass over it writes it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::object::{Key, ObjectRef};
use crate::pass::StatusOutcome;
use crate::store::Progress;

/// How long a pass waits for the caches before it reads live.
const GATE: Duration = Duration::from_secs(5);
/// How long each later pass waits for the same before it reads that live again. Else each event would cost these reads.
const GATE_AGAIN: Duration = Duration::from_secs(1);
/// How often it looks meanwhile whether they have come far enough.
const GATE_LOOK: Duration = Duration::from_millis(500);
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_CAP: Duration = Duration::from_mins(5);
/// So often in a row a failure does not count when the pass has come further all the same.
const PROGRESSED: u32 = 5;
/// How soon something that was waited for is looked at again.
const WAITING_FIRST: Duration = Duration::from_secs(30);
/// A plan that wants to look again even later is a mistake, and must not be one that a sum cannot hold.
const LATEST: Duration = Duration::from_hours(24);
/// How long a key rests after a pass. News from the user does not wait for it.
const REST: Duration = Duration::from_millis(100);
/// How long a status that only shows progress waits at least.
const STATUS_LEAST: Duration = Duration::from_secs(1);
/// Between two such statuses that become due. While thousands of objects are under way, the API server has more important things
/// to do, and most of the objects will soon have something better to say.
const STATUS_INTERVAL: Duration = Duration::from_millis(200);
/// A status that has waited this long goes by a shorter interval.
const STATUS_LONG: Duration = Duration::from_mins(2);
const STATUS_INTERVAL_SHORT: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(crate) struct Queue {
    slots: BTreeMap<Key, Slot>,
    /// Keys that may be ready, in the order in which they became so.
    ready: VecDeque<Key>,
    timers: BTreeSet<(Instant, Key)>,
    /// Keys whose status waits, the one that has waited longest first.
    waiting_statuses: BTreeSet<(Instant, Key)>,
    /// When a status became due last.
    last_due: Option<Instant>,
    /// Shorter than the usual cap of a backoff.
    longest_backoff: Option<Duration>,
}

#[derive(Default)]
struct Slot {
    running: bool,
    /// Something happened since the last pass began.
    dirty: bool,
    /// It stands in `ready`.
    queued: bool,
    gate: Vec<(ObjectRef, Progress)>,
    gate_until: Option<Instant>,
    /// The end of its backoff.
    not_before: Option<Instant>,
    /// The end of its rest.
    rests_until: Option<Instant>,
    /// When the last pass wanted to look again.
    wake_at: Option<Instant>,
    failures: u32,
    /// How often in a row it has failed and come further all the same.
    progressed: u32,
    /// How often in a row it has waited for something that nobody tells us of.
    waits: u32,
    /// What the user has said last; none until it is known.
    news: Option<u64>,
    /// What the user had said when the pass that runs began.
    ran_news: Option<u64>,
    status: StatusWait,
    timer: Option<Instant>,
}

/// What has become of a status that only shows progress.
#[derive(Clone, Copy, Default, PartialEq)]
enum StatusWait {
    /// There is none.
    #[default]
    None,
    /// It waits since then; `waiting_statuses` has the key.
    Since(Instant),
    /// The next pass writes it.
    Due,
}

/// A pass to run now.
#[derive(Debug, PartialEq)]
pub(crate) struct Turn {
    pub key: Key,
    /// What the pass before has written or read and the caches do not show yet: to be read live.
    pub lagging: Vec<ObjectRef>,
    pub failures: u32,
    pub status_due: bool,
}

/// How a pass ended, as far as the queue cares.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools)] // independent facts, not a state
pub(crate) struct PassEnd {
    /// How far the caches must come before the next pass.
    pub gate: BTreeMap<ObjectRef, Progress>,
    pub failed: bool,
    /// It failed by something that will pass, and has written or done something all the same.
    pub progressed: bool,
    /// A failure that only somebody's action heals: retry rarely.
    pub slow: bool,
    /// It waits for something that is to happen by itself.
    pub waits: bool,
    pub wake_after: Option<Duration>,
    pub status: StatusOutcome,
    /// It waits for an answer from outside, which is looked at as soon as it comes.
    pub parked: bool,
    /// The object is gone and nothing wakes this key any more.
    pub forget: bool,
    /// Between 0 and 1: spreads retries.
    pub jitter: f64,
}

impl Queue {
    /// A queue whose keys wait this long at most after a failure.
    pub fn with_longest_backoff(longest_backoff: Option<Duration>) -> Self {
        Self { longest_backoff, ..Self::default() }
    }

    /// Something happened to a key.
    pub fn wake(&mut self, key: &Key) {
        let slot = self.slots.entry(key.clone()).or_default();
        slot.dirty = true;
        self.enqueue(key);
    }

    /// What the user has said of a key, as a number; another one than before ends its backoff.
    pub fn news(&mut self, key: &Key, mark: u64) {
        let slot = self.slots.entry(key.clone()).or_default();
        let old = slot.news.replace(mark);
        if old.is_some_and(|old| old != mark) {
            slot.failures = 0;
            slot.not_before = None;
            slot.rests_until = None;
        }
    }

    /// The next key to run. `reached` tells whether the caches have come as far as something that was written or read.
    pub fn next(&mut self, now: Instant, reached: impl Fn(&ObjectRef, &Progress) -> bool) -> Option<Turn> {
        while let Some((at, key)) = self.timers.first().cloned() {
            if at > now {
                break;
            }
            self.timers.pop_first();
            self.timer_fired(&key, now);
        }
        while self.status_deadline().is_some_and(|due| due <= now) {
            self.make_oldest_status_due(now);
        }
        for _ in 0..self.ready.len() {
            let key = self.ready.pop_front()?;
            let Some(slot) = self.slots.get_mut(&key) else { continue };
            slot.queued = false;
            if slot.running || !slot.dirty {
                continue; // its end, or its next event, brings it back
            }
            if let Some(until) = slot.not_before.max(slot.rests_until).filter(|until| *until > now) {
                self.set_timer(&key, until);
                continue;
            }
            // One that is not reached is enough: each of thousands of writes has an event that comes by here.
            while slot.gate.last().is_some_and(|(target, progress)| reached(target, progress)) {
                slot.gate.pop();
            }
            if let Some(until) = slot.gate_until.filter(|until| !slot.gate.is_empty() && *until > now) {
                // Not every event of what is waited for wakes this key.
                self.set_timer(&key, until.min(now + GATE_LOOK));
                continue;
            }
            if slot.gate.is_empty() {
                slot.gate = Vec::new(); // thousands of keys rest; each would keep the room that it once needed
            }
            slot.gate.retain(|(target, progress)| !reached(target, progress));
            // What the caches still lack stays at the gate: later passes read it live too, and wait only `GATE_AGAIN` before that.
            let lagging = slot.gate.iter().map(|(target, _)| target.clone()).collect();
            slot.gate_until = None;
            slot.running = true;
            slot.ran_news = slot.news;
            slot.dirty = false;
            let (failures, status_due) = (slot.failures, slot.status == StatusWait::Due);
            return Some(Turn { key, lagging, failures, status_due });
        }
        None
    }

    /// A pass has ended.
    pub fn ended(&mut self, key: &Key, now: Instant, ended: PassEnd) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.running = false;
        if !ended.gate.is_empty() {
            let before: BTreeMap<ObjectRef, Progress> = slot.gate.drain(..).collect();
            // The long wait begins again only when there is something new to wait for; what the caches still lack then waits with it.
            let is_new = ended.gate.iter().any(|(target, progress)| before.get(target) != Some(progress));
            let still_missing = before.into_iter().filter(|(target, _)| !ended.gate.contains_key(target));
            slot.gate = still_missing.collect();
            slot.gate.extend(ended.gate);
            if is_new {
                slot.gate_until = Some(now + GATE);
            }
        }
        if !slot.gate.is_empty() && slot.gate_until.is_none() {
            slot.gate_until = Some(now + GATE_AGAIN);
        }
        let status = match (ended.status, slot.status) {
            (StatusOutcome::Reported, _) => StatusWait::None,
            (StatusOutcome::Waits, StatusWait::None) => StatusWait::Since(now),
            // What is due and could not be written stays due: whatever wakes the key next writes it.
            (StatusOutcome::Waits | StatusOutcome::Unreported, as_before) => as_before,
        };
        self.set_status(key, status);
        let Some(slot) = self.slots.get_mut(key) else { return };
        // What failed was decided before the user's last word, which came meanwhile and must not wait for a backoff.
        let outdated = slot.ran_news.is_some() && slot.news != slot.ran_news;
        if ended.parked && !ended.failed {
            // It goes on when the answer comes: nothing has succeeded and nothing has failed.
        } else if ended.failed && !outdated && ended.progressed && slot.progressed < PROGRESSED {
            // A conflict or an overloaded server in the midst of work: the rest is done soon.
            slot.progressed += 1;
            slot.not_before = Some(now + backoff(1, false, ended.jitter));
            slot.dirty = true;
        } else if ended.failed && !outdated {
            slot.failures = slot.failures.saturating_add(1);
            let pause = backoff(slot.failures, ended.slow, ended.jitter);
            slot.not_before = Some(now + self.longest_backoff.map_or(pause, |longest| pause.min(longest)));
            slot.dirty = true;
        } else {
            (slot.failures, slot.progressed) = (0, 0);
            slot.not_before = None;
        }
        if !ended.parked {
            slot.waits = if ended.waits { slot.waits.saturating_add(1) } else { 0 };
        }
        slot.rests_until = (!ended.parked && !outdated).then(|| now + REST);
        // Mostly an event ends the waiting; where none can come, this does.
        let waiting = ended.waits.then(|| growing(WAITING_FIRST, slot.waits));
        let after = [ended.wake_after, waiting].into_iter().flatten().min().map(|after| after.min(LATEST));
        slot.wake_at = after.map(|after| now + after.mul_f64(1.0 + 0.1 * ended.jitter));
        let timer = [slot.wake_at, slot.not_before].into_iter().flatten().min();
        if ended.forget && !slot.dirty {
            let timer = slot.timer;
            self.set_status(key, StatusWait::None);
            self.slots.remove(key);
            if let Some(at) = timer {
                self.timers.remove(&(at, key.clone()));
            }
            return;
        }
        // A timer of an earlier pass is void: this pass has looked at the same world and asked for its own.
        if let Some(old) = slot.timer.take() {
            self.timers.remove(&(old, key.clone()));
        }
        if let Some(at) = timer {
            self.set_timer(key, at);
        }
        self.enqueue(key);
    }

    /// When something may become ready although nothing happens.
    pub fn deadline(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|(at, _)| *at);
        [timer, self.status_deadline()].into_iter().flatten().min()
    }

    /// Keys that wait for their turn. Those that wait for a time, or for the caches, are not among them.
    pub fn depth(&self) -> usize {
        self.ready.len()
    }

    /// What it keeps: so many of each.
    #[cfg(any(test, feature = "simulation"))]
    pub fn kept(&self) -> [(&'static str, usize); 4] {
        [
            ("slots", self.slots.len()),
            ("gates", self.slots.values().filter(|slot| !slot.gate.is_empty()).count()),
            ("ready", self.ready.len()),
            ("waiting statuses", self.waiting_statuses.len()),
        ]
    }

    /// The time has come that a key waited for: the end of its backoff, rest or gate, or a second look.
    fn timer_fired(&mut self, key: &Key, now: Instant) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        slot.timer = None;
        slot.dirty |= slot.wake_at.is_some_and(|at| at <= now);
        self.enqueue(key);
    }

    /// When the status that has waited longest becomes due.
    fn status_deadline(&self) -> Option<Instant> {
        let (since, _) = self.waiting_statuses.first()?;
        let since = *since;
        let at = |least: Duration, interval: Duration| {
            (since + least).max(self.last_due.map_or(since, |last| last + interval))
        };
        Some(at(STATUS_LEAST, STATUS_INTERVAL).min(at(STATUS_LONG, STATUS_INTERVAL_SHORT)))
    }

    fn make_oldest_status_due(&mut self, now: Instant) {
        let Some((_, key)) = self.waiting_statuses.first().cloned() else { return };
        self.last_due = Some(now);
        self.set_status(&key, StatusWait::Due);
        self.wake(&key);
    }

    fn set_status(&mut self, key: &Key, status: StatusWait) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if let StatusWait::Since(since) = std::mem::replace(&mut slot.status, status) {
            self.waiting_statuses.remove(&(since, key.clone()));
        }
        if let StatusWait::Since(since) = status {
            self.waiting_statuses.insert((since, key.clone()));
        }
    }

    fn enqueue(&mut self, key: &Key) {
        if let Some(slot) = self.slots.get_mut(key)
            && slot.dirty
            && !slot.queued
            && !slot.running
        {
            slot.queued = true;
            self.ready.push_back(key.clone());
        }
    }

    fn set_timer(&mut self, key: &Key, at: Instant) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        if slot.timer.is_some_and(|old| old <= at) {
            return;
        }
        if let Some(old) = slot.timer.replace(at) {
            self.timers.remove(&(old, key.clone()));
        }
        self.timers.insert((at, key.clone()));
    }
}

fn backoff(failures: u32, slow: bool, jitter: f64) -> Duration {
    let base = if slow { BACKOFF_CAP } else { growing(BACKOFF_FIRST, failures) };
    base.mul_f64(0.8 + 0.4 * jitter)
}

/// Twice as long each time, up to a cap.
fn growing(first: Duration, times: u32) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times.saturating_sub(1).min(16))).min(BACKOFF_CAP)
}

#[cfg(test)]
mod tests;
