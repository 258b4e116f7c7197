//! When each key has its next pass. A pure state machine over a clock that is handed in: no tasks, no IO.
//!
//! One pass per key at a time. A key whose last pass wrote something stays queued, holding no worker, until the caches
//! have reached those writes. A key that failed waits out its backoff; only news from the user shortens that.
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
const BACKOFF_FIRST: Duration = Duration::from_secs(1);
const BACKOFF_CAP: Duration = Duration::from_mins(5);
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
    /// Own writes that the caches have not reached in time: to be read live.
    pub lagging: Vec<ObjectRef>,
    pub failures: u32,
    pub status_due: bool,
}

/// How a pass ended, as far as the queue cares.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools)] // independent facts, not a state
pub(crate) struct PassEnd {
    pub written: Vec<(ObjectRef, Progress)>,
    pub failed: bool,
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

    /// The next key to run. `reached` tells whether the caches have come as far as a write.
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
            slot.gate.retain(|(target, progress)| !reached(target, progress));
            if let Some(until) = slot.gate_until.filter(|until| !slot.gate.is_empty() && *until > now) {
                self.set_timer(&key, until);
                continue;
            }
            if slot.gate.is_empty() {
                slot.gate = Vec::new(); // thousands of keys rest; each would keep the room that it once needed
            }
            // What the caches still lack stays at the gate: later passes read it live too, without waiting again.
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
        if !ended.written.is_empty() {
            slot.gate.retain(|(target, _)| ended.written.iter().all(|(written, _)| written != target));
            slot.gate.extend(ended.written);
            slot.gate_until = Some(now + GATE);
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
        } else if ended.failed && !outdated {
            slot.failures = slot.failures.saturating_add(1);
            let pause = backoff(slot.failures, ended.slow, ended.jitter);
            slot.not_before = Some(now + self.longest_backoff.map_or(pause, |longest| pause.min(longest)));
            slot.dirty = true;
        } else {
            slot.failures = 0;
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
mod tests {
    use super::*;
    use crate::object::Kind;

    const KIND: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");

    fn key() -> Key {
        Key::namespaced("ns", "a")
    }

    fn turn(queue: &mut Queue, at: Instant) -> Option<Turn> {
        queue.next(at, |_, _| false)
    }

    #[test]
    fn one_pass_per_key_and_an_event_during_it_brings_another() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.wake(&key());
        queue.wake(&key());
        assert!(turn(&mut queue, now).is_some());
        assert_eq!(turn(&mut queue, now), None);
        queue.wake(&key());
        assert_eq!(turn(&mut queue, now), None);
        queue.ended(&key(), now, PassEnd::default());
        let now = now + REST;
        assert!(turn(&mut queue, now).is_some());
        queue.ended(&key(), now, PassEnd::default());
        assert_eq!(turn(&mut queue, now + REST), None);
    }

    #[test]
    fn a_key_rests_after_a_pass_unless_the_user_has_news_or_an_answer_came() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.news(&key(), 1);
        let pass = |queue: &mut Queue, at: Instant, parked: bool| {
            queue.wake(&key());
            let turn = turn(queue, at);
            queue.ended(&key(), at, PassEnd { parked, ..PassEnd::default() });
            turn.is_some()
        };
        assert!(pass(&mut queue, now, false));
        queue.wake(&key());
        assert_eq!(turn(&mut queue, now), None, "it rests");
        assert_eq!((queue.deadline(), queue.depth()), (Some(now + REST), 0));
        queue.news(&key(), 2);
        assert!(pass(&mut queue, now, true), "news from the user");
        assert!(pass(&mut queue, now, false), "an answer from outside");
        queue.wake(&key());
        assert_eq!(turn(&mut queue, now), None);
        assert!(turn(&mut queue, now + REST).is_some(), "it wakes by itself");
    }

    #[test]
    fn after_a_write_the_next_pass_waits_for_the_caches_and_then_reads_live() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.wake(&key());
        turn(&mut queue, now);
        let written = vec![(KIND.at("ns", "child"), Progress::Revision(7))];
        queue.ended(&key(), now, PassEnd { written, ..PassEnd::default() });
        queue.wake(&key());
        assert_eq!(turn(&mut queue, now), None, "gated");
        assert_eq!(turn(&mut queue, now + REST), None, "still gated");
        assert_eq!(queue.deadline(), Some(now + GATE));
        let later = turn(&mut queue, now + GATE).expect("the gate opens by itself");
        assert_eq!(later.lagging, [KIND.at("ns", "child")]);
        queue.wake(&key());
        queue.ended(&key(), now + GATE, PassEnd::default());
        let next = turn(&mut queue, now + GATE + REST).expect("it does not wait twice for the same write");
        assert_eq!(next.lagging, [KIND.at("ns", "child")], "and still knows what the caches lack");
    }

    #[test]
    fn when_the_caches_have_reached_a_write_its_event_lets_the_pass_through() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.wake(&key());
        turn(&mut queue, now);
        let written = vec![(KIND.at("ns", "child"), Progress::Revision(7))];
        queue.ended(&key(), now, PassEnd { written, ..PassEnd::default() });
        queue.wake(&key());
        let next = queue.next(now + REST, |_, _| true).expect("reached");
        assert_eq!(next.lagging, []);
    }

    #[test]
    fn only_a_new_generation_shortens_a_backoff() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.news(&key(), 1);
        queue.wake(&key());
        turn(&mut queue, now);
        queue.ended(&key(), now, PassEnd { failed: true, jitter: 0.5, ..PassEnd::default() });
        queue.wake(&key());
        queue.news(&key(), 1);
        assert_eq!(turn(&mut queue, now), None);
        queue.news(&key(), 2);
        queue.wake(&key());
        assert!(turn(&mut queue, now).is_some());
    }

    #[test]
    fn a_new_generation_during_a_pass_that_fails_does_not_wait_for_its_backoff() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.news(&key(), 1);
        queue.wake(&key());
        turn(&mut queue, now);
        queue.news(&key(), 2);
        queue.wake(&key());
        queue.ended(&key(), now, PassEnd { failed: true, slow: true, jitter: 0.5, ..PassEnd::default() });
        assert!(turn(&mut queue, now).is_some());
    }

    #[test]
    fn an_impatient_queue_never_waits_longer_than_it_may() {
        let mut queue = Queue::with_longest_backoff(Some(Duration::from_secs(3)));
        let mut now = Instant::now();
        for _ in 0..6 {
            queue.wake(&key());
            now += Duration::from_secs(3);
            assert!(turn(&mut queue, now).is_some());
            queue.ended(&key(), now, PassEnd { failed: true, slow: true, jitter: 0.5, ..PassEnd::default() });
        }
    }

    #[test]
    fn backoff_doubles_to_a_cap_and_comes_by_itself() {
        assert_eq!(backoff(1, false, 0.5), Duration::from_secs(1));
        assert_eq!(backoff(4, false, 0.5), Duration::from_secs(8));
        assert_eq!(backoff(40, false, 0.5), Duration::from_mins(5));
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.wake(&key());
        turn(&mut queue, now);
        queue.ended(&key(), now, PassEnd { failed: true, jitter: 0.5, ..PassEnd::default() });
        assert_eq!(turn(&mut queue, now), None);
        assert_eq!(turn(&mut queue, now + Duration::from_secs(2)).map(|t| t.failures), Some(1));
    }

    #[test]
    fn a_status_that_can_wait_is_due_after_its_patience() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.wake(&key());
        turn(&mut queue, now);
        queue.ended(&key(), now, PassEnd { status: StatusOutcome::Waits, ..PassEnd::default() });
        assert_eq!(turn(&mut queue, now), None);
        assert!(turn(&mut queue, now + STATUS_LEAST).expect("due").status_due);
    }

    fn waits() -> PassEnd {
        PassEnd { status: StatusOutcome::Waits, ..PassEnd::default() }
    }

    fn reported() -> PassEnd {
        PassEnd { status: StatusOutcome::Reported, ..PassEnd::default() }
    }

    /// How many statuses become due, and are written, before a time; and whether the oldest came first.
    fn written_until(queue: &mut Queue, end: Instant, order: &mut Vec<Key>) -> usize {
        let before = order.len();
        while let Some(now) = queue.deadline().filter(|at| *at < end) {
            while let Some(turn) = turn(queue, now) {
                assert!(turn.status_due, "{} had a pass for nothing", turn.key);
                queue.ended(&turn.key, now, reported());
                order.push(turn.key);
            }
        }
        order.len() - before
    }

    #[test]
    fn while_many_objects_are_under_way_a_few_of_their_statuses_a_second_show_it_the_oldest_first() {
        let (mut queue, start) = (Queue::default(), Instant::now());
        let keys: Vec<Key> = (0..1000).map(|number| Key::namespaced("ns", format!("{number:04}"))).collect();
        for (age, key) in keys.iter().rev().enumerate() {
            let at = start + Duration::from_millis(age as u64);
            queue.wake(key);
            turn(&mut queue, at).expect("its first pass");
            queue.ended(key, at, waits());
        }
        let mut order = Vec::new();
        let minute = start + Duration::from_mins(1);
        assert_eq!(written_until(&mut queue, minute, &mut order), 295, "in the first minute");
        let rest = written_until(&mut queue, start + STATUS_LONG, &mut order);
        assert_eq!(rest, 300, "in the second minute");
        let long = start + STATUS_LONG + Duration::from_secs(1);
        written_until(&mut queue, long, &mut order);
        let fast = written_until(&mut queue, long + Duration::from_secs(1), &mut order);
        assert_eq!(fast, 50, "in a second when they have waited for long");
        written_until(&mut queue, start + Duration::from_mins(3), &mut order);
        assert!(order.iter().eq(keys.iter().rev()), "all of them, the oldest first");
    }

    #[test]
    fn a_status_that_is_reported_or_forgotten_no_longer_waits() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        let mut pass = |at: Instant, end: PassEnd| {
            queue.wake(&key());
            let turn = turn(&mut queue, at).expect("woken");
            queue.ended(&key(), at, end);
            (turn.status_due, queue.waiting_statuses.len(), queue.slots.len())
        };
        assert_eq!(pass(now, waits()), (false, 1, 1));
        assert_eq!(pass(now + REST, reported()), (false, 0, 1));
        assert_eq!(pass(now + 2 * REST, waits()), (false, 1, 1));
        assert_eq!(pass(now + 3 * REST, PassEnd { forget: true, ..PassEnd::default() }), (false, 0, 0));
    }

    #[test]
    fn a_status_that_becomes_due_while_a_pass_runs_is_written_by_the_next() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.wake(&key());
        turn(&mut queue, now);
        queue.ended(&key(), now, waits());
        queue.wake(&key());
        assert!(!turn(&mut queue, now + REST).expect("an event").status_due);
        assert_eq!(turn(&mut queue, now + STATUS_LEAST), None, "the pass runs");
        queue.ended(&key(), now + STATUS_LEAST, waits());
        assert!(turn(&mut queue, now + STATUS_LEAST + REST).expect("due").status_due);
    }

    #[test]
    fn a_status_that_is_due_and_could_not_be_written_stays_due_and_makes_no_passes_of_its_own() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.wake(&key());
        turn(&mut queue, now);
        queue.ended(&key(), now, waits());
        let due = now + STATUS_LEAST;
        assert!(turn(&mut queue, due).expect("due").status_due);
        queue.ended(&key(), due, PassEnd { parked: true, ..PassEnd::default() });
        assert_eq!((turn(&mut queue, due), queue.deadline()), (None, None), "the answer is on its way");
        queue.wake(&key());
        assert!(turn(&mut queue, due).expect("the answer").status_due);
    }

    #[test]
    fn a_wish_to_look_again_in_a_million_years_is_no_panic() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.wake(&key());
        turn(&mut queue, now);
        queue.ended(
            &key(),
            now,
            PassEnd { wake_after: Some(Duration::MAX), jitter: 1.0, ..PassEnd::default() },
        );
        assert!(queue.deadline() <= Some(now + 2 * LATEST));
    }

    #[test]
    fn a_forgotten_key_leaves_nothing_behind() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.wake(&key());
        turn(&mut queue, now);
        queue.ended(&key(), now, PassEnd { forget: true, wake_after: Some(GATE), ..PassEnd::default() });
        assert_eq!((queue.slots.len(), queue.timers.len(), queue.deadline()), (0, 0, None));
    }

    #[test]
    fn waiting_for_an_answer_neither_ends_a_backoff_nor_begins_one() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        for failures in 1..=5 {
            queue.wake(&key());
            let turn = turn(&mut queue, now).expect("its turn");
            assert_eq!(turn.failures, failures - 1);
            queue.ended(&key(), now, PassEnd { parked: true, ..PassEnd::default() });
            queue.wake(&key());
            queue.next(now, |_, _| true).expect("the answer");
            queue.ended(&key(), now, PassEnd { failed: true, jitter: 0.5, ..PassEnd::default() });
            assert_eq!(queue.deadline(), Some(now + backoff(failures, false, 0.5)));
            now += backoff(failures, false, 0.5);
        }
    }

    #[test]
    fn what_waits_for_something_looks_again_by_itself_ever_later() {
        let (mut queue, mut now) = (Queue::default(), Instant::now());
        queue.wake(&key());
        for seconds in [30, 60, 120, 240, 300, 300] {
            turn(&mut queue, now).expect("its turn");
            queue.ended(&key(), now, PassEnd { waits: true, ..PassEnd::default() });
            assert_eq!(queue.deadline(), Some(now + Duration::from_secs(seconds)));
            now += Duration::from_secs(seconds);
        }
    }
}
