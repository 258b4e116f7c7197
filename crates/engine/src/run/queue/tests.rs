//! When each key has its pass, over a clock that stands still.

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
    let gate = [(KIND.at("ns", "child"), Progress::Revision(7))].into();
    queue.ended(&key(), now, PassEnd { gate, ..PassEnd::default() });
    queue.wake(&key());
    assert_eq!(turn(&mut queue, now), None, "gated");
    assert_eq!(turn(&mut queue, now + REST), None, "still gated");
    assert_eq!(queue.deadline(), Some(now + REST + GATE_LOOK), "not every event of a child wakes the key");
    let later = turn(&mut queue, now + GATE).expect("the gate opens by itself");
    assert_eq!(later.lagging, [KIND.at("ns", "child")]);
    queue.wake(&key());
    let as_before = [(KIND.at("ns", "child"), Progress::Revision(7))].into();
    queue.ended(&key(), now + GATE, PassEnd { gate: as_before, ..PassEnd::default() });
    assert_eq!(
        turn(&mut queue, now + GATE + REST),
        None,
        "each pass reads live: events must not make it many"
    );
    let next =
        turn(&mut queue, now + GATE + GATE_AGAIN).expect("it does not wait so long again for the same");
    assert_eq!(next.lagging, [KIND.at("ns", "child")], "and still knows what the caches lack");
}

#[test]
fn what_is_gone_is_not_waited_for_any_more() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let child = KIND.at("ns", "child");
    queue.wake(&key());
    turn(&mut queue, now);
    let gate = [(child.clone(), Progress::Revision(7))].into();
    queue.ended(&key(), now, PassEnd { gate, ..PassEnd::default() });
    queue.wake(&key());
    turn(&mut queue, now + GATE).expect("the gate opens by itself");
    let gone = [(child, Progress::Revision(0))].into();
    queue.ended(&key(), now + GATE, PassEnd { gate: gone, ..PassEnd::default() });
    queue.wake(&key());
    let reached = |_: &ObjectRef, progress: &Progress| *progress == Progress::Revision(0);
    let next = queue.next(now + GATE + REST, reached).expect("nothing is in the way");
    assert_eq!(next.lagging, []);
}

#[test]
fn when_the_caches_have_reached_a_write_its_event_lets_the_pass_through() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    queue.wake(&key());
    turn(&mut queue, now);
    let gate = [(KIND.at("ns", "child"), Progress::Revision(7))].into();
    queue.ended(&key(), now, PassEnd { gate, ..PassEnd::default() });
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
    queue.ended(&key(), now, PassEnd { wake_after: Some(Duration::MAX), jitter: 1.0, ..PassEnd::default() });
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

#[test]
fn a_pass_that_has_come_further_is_repeated_soon_and_its_failure_does_not_count_at_first() {
    let (mut queue, mut now) = (Queue::default(), Instant::now());
    queue.wake(&key());
    let fail = |queue: &mut Queue, now: &mut Instant, progressed: bool| {
        *now = queue.deadline().unwrap_or(*now).max(*now);
        let turn = turn(queue, *now).expect("its turn");
        queue.ended(&key(), *now, PassEnd { failed: true, progressed, jitter: 0.5, ..PassEnd::default() });
        turn.failures
    };
    for _ in 0..5 {
        let begun = now;
        assert_eq!(fail(&mut queue, &mut now, true), 0);
        assert!(now - begun <= BACKOFF_FIRST);
    }
    assert_eq!(fail(&mut queue, &mut now, true), 0);
    assert_eq!(fail(&mut queue, &mut now, true), 1, "but not for ever");
    assert_eq!(fail(&mut queue, &mut now, false), 2);
}

#[test]
fn a_key_waits_for_its_turn_once_and_only_when_something_happened() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let other = Key::namespaced("ns", "b");
    for key in [&key(), &other, &key()] {
        queue.wake(key);
    }
    assert_eq!(queue.depth(), 2);
    assert_eq!(turn(&mut queue, now).map(|turn| turn.key), Some(key()), "in the order of what happened");
    queue.wake(&key());
    assert_eq!(queue.depth(), 1, "its pass runs");
    queue.ended(&key(), now, PassEnd::default());
    assert_eq!(queue.depth(), 2, "something happened meanwhile");
    turn(&mut queue, now);
    queue.ended(&other, now, PassEnd::default());
    assert_eq!(queue.depth(), 1, "nothing happened to the other");
}

#[test]
fn what_an_earlier_pass_wrote_is_still_lagging_after_a_write_to_something_else() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let (one, other) = (KIND.at("ns", "one"), KIND.at("ns", "other"));
    for (at, writes) in (0..).zip([&one, &other, &other]) {
        let now = now + at * GATE;
        queue.wake(&key());
        turn(&mut queue, now).expect("its turn");
        let gate = [(writes.clone(), Progress::Revision(at.into()))].into();
        queue.ended(&key(), now, PassEnd { gate, ..PassEnd::default() });
    }
    queue.wake(&key());
    let mut lagging = turn(&mut queue, now + 3 * GATE).expect("the gate is open").lagging;
    lagging.sort();
    assert_eq!(lagging, [one, other], "each once");
}

#[test]
fn of_several_times_the_earliest_counts() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    queue.wake(&key());
    turn(&mut queue, now);
    let gate = [(KIND.at("ns", "child"), Progress::Revision(7))].into();
    let wake_after = Some(Duration::from_mins(1));
    queue.ended(&key(), now, PassEnd { gate, wake_after, ..PassEnd::default() });
    assert_eq!(queue.deadline(), Some(now + Duration::from_mins(1)));
    queue.wake(&key());
    assert_eq!(turn(&mut queue, now + REST), None);
    assert_eq!(queue.deadline(), Some(now + REST + GATE_LOOK));
}

#[test]
fn a_success_ends_the_count_of_failures() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    let mut pass = |at: Instant, failed: bool| {
        queue.wake(&key());
        let turn = turn(&mut queue, at).expect("its turn");
        queue.ended(&key(), at, PassEnd { failed, jitter: 0.5, ..PassEnd::default() });
        turn.failures
    };
    let minute = |n: u32| now + n * Duration::from_mins(1);
    assert_eq!([pass(now, true), pass(minute(1), true)], [0, 1]);
    assert_eq!([pass(minute(2), false), pass(minute(3), false)], [2, 0]);
}

#[test]
fn a_second_look_is_spread_later_and_never_comes_early() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    for (jitter, seconds) in [(0.0, 10), (1.0, 11)] {
        queue.wake(&key());
        turn(&mut queue, now);
        let wake_after = Some(Duration::from_secs(10));
        queue.ended(&key(), now, PassEnd { parked: true, wake_after, jitter, ..PassEnd::default() });
        assert_eq!(queue.deadline(), Some(now + Duration::from_secs(seconds)));
    }
}

#[test]
fn a_key_that_something_happens_to_while_its_last_pass_runs_is_not_forgotten() {
    let (mut queue, now) = (Queue::default(), Instant::now());
    queue.wake(&key());
    turn(&mut queue, now);
    queue.wake(&key());
    queue.ended(&key(), now, PassEnd { forget: true, ..PassEnd::default() });
    assert!(turn(&mut queue, now + REST).is_some());
}
