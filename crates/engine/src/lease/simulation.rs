//! Replicas that compete under paused time while clocks, network and processes misbehave. Tests only.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::*;

/// A small seeded generator: the same seed gives the same run.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// The API server: one record, and the handles of all processes that ever ran.
struct World {
    start: Instant,
    stored: Mutex<(Option<Record>, u64)>,
    processes: Mutex<Vec<(String, Leadership)>>,
    chance: Mutex<Chance>,
    /// No faults from here on.
    calm_from: Instant,
    /// Requests get no answer at all.
    silent: AtomicBool,
}

impl World {
    fn new(seed: u64, trouble: Duration) -> Arc<Self> {
        let start = Instant::now();
        Arc::new(Self {
            start,
            stored: Mutex::new((None, 0)),
            processes: Mutex::new(Vec::new()),
            chance: Mutex::new(Chance(seed)),
            calm_from: start + trouble,
            silent: AtomicBool::new(false),
        })
    }

    fn calm(&self) -> bool {
        Instant::now() >= self.calm_from
    }

    fn chance<T>(&self, draw: impl FnOnce(&mut Chance) -> T) -> T {
        draw(&mut self.chance.lock().unwrap())
    }

    fn leaders(&self) -> Vec<String> {
        let processes = self.processes.lock().unwrap();
        processes.iter().filter(|(_, leadership)| leadership.is_current()).map(|(name, _)| name.clone()).collect()
    }

    fn check(&self, seed: u64) -> usize {
        let leaders = self.leaders();
        assert!(
            leaders.len() <= 1,
            "seed {seed}: after {:?} there are two leaders {leaders:?}; record {:?}",
            self.start.elapsed(),
            self.stored.lock().unwrap(),
        );
        leaders.len()
    }

    fn holder(&self) -> Option<String> {
        self.stored.lock().unwrap().0.clone().and_then(|record| record.holder)
    }

    fn start_process(self: &Arc<Self>, name: &str, clock: Clock, cut_off: Instant) -> Elector<Remote> {
        let timing = clock.timing();
        let config = Config { namespace: "ns".into(), name: "lease".into(), identity: name.into(), timing };
        let elector = Elector::new(Remote { world: self.clone(), clock, cut_off }, config);
        self.processes.lock().unwrap().push((name.to_owned(), elector.leadership()));
        elector
    }
}

/// A machine's clocks: the wall clock is off by any amount, the monotonic clock runs too fast or too slow.
#[derive(Clone, Copy)]
struct Clock {
    wall_off: SignedDuration,
    /// Real time for a hundred local seconds.
    speed: u32,
}

impl Clock {
    const EXACT: Self = Self { wall_off: SignedDuration::ZERO, speed: 100 };

    /// What this machine takes for `real`; all durations it uses are stretched instead of its clock.
    fn stretched(self, local: Duration) -> Duration {
        local * self.speed / 100
    }

    fn timing(self) -> Timing {
        let base = Timing::default();
        let [lease, deadline, retry] = [base.lease(), base.renew_deadline(), base.retry()].map(|d| self.stretched(d));
        Timing::new(lease, deadline, retry).unwrap()
    }
}

/// The way from one process to the server.
struct Remote {
    world: Arc<World>,
    clock: Clock,
    /// Until then the network of this process is cut.
    cut_off: Instant,
}

impl Remote {
    /// Runs `effect` at the server, which happens even if the caller stops waiting or is frozen.
    async fn call<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&mut (Option<Record>, u64)) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        let world = self.world.clone();
        let trouble = !world.calm();
        let (there, back, fate) = world.chance(|c| {
            let mut way = || match c.below(100) {
                0..80 => c.millis(0, 30),
                80..97 => c.millis(30, 3_000),
                _ => c.millis(3_000, 30_000),
            };
            let (there, back) = (way(), way());
            if trouble { (there, back, c.below(100)) } else { (c.millis(0, 30), c.millis(0, 30), 99) }
        });
        let cut = Instant::now() < self.cut_off || world.silent.load(Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        tokio::spawn(async move {
            sleep(there).await;
            // 0..6 never arrives, 6..12 is refused, 12..18 is done without a reply, 18..24 done but reported as failed.
            let refused = || StorageError::Failed("503".to_owned());
            let result = match fate {
                _ if cut => None,
                0..6 => None,
                6..12 => Some(Err(refused())),
                _ => {
                    let done = effect(&mut world.stored.lock().unwrap());
                    match fate {
                        12..18 => None,
                        18..24 => Some(Err(refused())),
                        _ => Some(done),
                    }
                }
            };
            sleep(back).await;
            match result {
                Some(result) => drop(reply.send(result)),
                // Silence: the caller's own patience has to end this.
                None => sleep(Duration::from_secs(3_600)).await,
            }
        });
        answer.await.unwrap_or_else(|_| Err(StorageError::Failed("connection closed".to_owned())))
    }

    /// A duration in a record is a number of local seconds for whoever reads it.
    fn localised(&self, (record, version): (Record, u64)) -> Stored {
        let duration = self.clock.stretched(record.duration);
        Stored { record: Record { duration, ..record }, version: version.to_string() }
    }

    fn global(&self, record: &Record) -> Record {
        let duration = Duration::from_secs((record.duration * 100 / self.clock.speed).as_secs_f64().round() as u64);
        Record { duration, ..record.clone() }
    }
}

impl Storage for Remote {
    async fn read(&self) -> Result<Option<Stored>, StorageError> {
        let found = self.call(|(record, version)| Ok(record.clone().map(|record| (record, *version)))).await?;
        Ok(found.map(|found| self.localised(found)))
    }

    async fn create(&self, record: &Record) -> Result<Stored, StorageError> {
        let new = self.global(record);
        let put = move |stored: &mut (Option<Record>, u64)| match stored.0 {
            Some(_) => Err(StorageError::Conflict),
            None => {
                *stored = (Some(new.clone()), stored.1 + 1);
                Ok((new, stored.1))
            }
        };
        self.call(put).await.map(|stored| self.localised(stored))
    }

    async fn swap(&self, version: &str, record: &Record) -> Result<Stored, StorageError> {
        let (new, version) = (self.global(record), version.to_owned());
        let put = move |stored: &mut (Option<Record>, u64)| {
            if stored.0.is_none() || stored.1.to_string() != version {
                return Err(StorageError::Conflict);
            }
            *stored = (Some(new.clone()), stored.1 + 1);
            Ok((new, stored.1))
        };
        self.call(put).await.map(|stored| self.localised(stored))
    }

    fn wall_clock(&self) -> Timestamp {
        let since = SignedDuration::try_from(self.world.start.elapsed()).unwrap();
        Timestamp::from_second(1_700_000_000).unwrap() + since + self.clock.wall_off
    }
}

/// A process that can be stopped and continued as by signals: while stopped it is not polled, but time goes on.
struct Stoppable<F> {
    inner: Pin<Box<F>>,
    stops: Vec<(Instant, Instant)>,
    stopped: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Future for Stoppable<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let now = Instant::now();
        let stop = self.stops.iter().find(|(from, to)| (*from..*to).contains(&now)).copied();
        if let Some((_, end)) = stop {
            let sleep = self.stopped.get_or_insert_with(|| Box::pin(sleep_until(end)));
            if sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
        self.stopped = None;
        self.inner.as_mut().poll(cx)
    }
}

/// One replica: its processes live, are stopped, cut off, killed or ended, and are started again.
async fn replica(world: Arc<World>, number: usize) {
    for life in 0.. {
        let name = format!("replica-{number}-{life}");
        let speed = world.chance(|c| u32::try_from(c.below(41)).unwrap()) + 80;
        let wall_off = SignedDuration::from_secs(world.chance(|c| c.below(200_000)).cast_signed() - 100_000);
        let now = Instant::now();
        let mut cut_off = now;
        let trouble = !world.calm();
        let mut stops = Vec::new();
        let (mut kill, mut end) = (None, None);
        if trouble {
            let mut at = now;
            for _ in 0..4 {
                let from = at + world.chance(|c| c.millis(0, 15_000));
                at = from + world.chance(|c| c.millis(1, 20_000));
                stops.push((from, at.min(world.calm_from)));
            }
            if world.chance(|c| c.percent(40)) {
                cut_off = (now + world.chance(|c| c.millis(0, 20_000))).min(world.calm_from);
            }
            if world.chance(|c| c.percent(30)) {
                kill = Some(now + world.chance(|c| c.millis(0, 30_000))).filter(|at| *at < world.calm_from);
            }
            if world.chance(|c| c.percent(30)) {
                end = Some(now + world.chance(|c| c.millis(0, 30_000))).filter(|at| *at < world.calm_from);
            }
        }
        let cancel = CancellationToken::new();
        if let Some(end) = end {
            let cancel = cancel.clone();
            tokio::spawn(async move {
                sleep_until(end).await;
                cancel.cancel();
            });
        }
        let elector = world.start_process(&name, Clock { wall_off, speed }, cut_off);
        let far = now + Duration::from_secs(1_000_000);
        let process = Stoppable { inner: Box::pin(elector.run(cancel)), stops, stopped: None };
        tokio::select! {
            _ = process => {}
            () = sleep_until(kill.unwrap_or(far)) => {}
        }
        sleep(world.chance(|c| c.millis(100, 3_000))).await;
    }
}

async fn one_seed(seed: u64) -> (usize, usize) {
    let world = World::new(seed, Duration::from_secs(120));
    for number in 0..3 {
        tokio::spawn(replica(world.clone(), number));
    }
    let step = Duration::from_millis(10);
    let (mut led, mut looks) = (0, 0);
    while !world.calm() {
        led += world.check(seed);
        looks += 1;
        sleep(step).await;
    }
    // Late requests of the bad time may still land for half a minute; then one leads, and goes on leading.
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut steady_since = None;
    loop {
        let leads = world.check(seed) == 1;
        steady_since = if leads { steady_since.or(Some(Instant::now())) } else { None };
        if steady_since.is_some_and(|since| since.elapsed() >= Duration::from_secs(20)) {
            return (led, looks);
        }
        assert!(Instant::now() < deadline, "seed {seed}: nobody leads steadily; holder {:?}", world.holder());
        sleep(step).await;
    }
}

#[test]
fn at_most_one_replica_leads_at_any_instant_and_in_the_end_one_does() {
    let (mut led, mut looks) = (0, 0);
    for seed in 0..60 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let (a, b) = runtime.block_on(one_seed(seed));
        led += a;
        looks += b;
    }
    // A simulation in which nobody ever leads would prove nothing.
    assert!(led * 4 > looks, "somebody led in only {led} of {looks} looks");
}

/// Waits under paused time; says what it saw when that takes too long.
async fn until(world: &World, limit: f64, what: &str, mut done: impl FnMut(&World) -> bool) -> f64 {
    let start = Instant::now();
    while !done(world) {
        assert!(start.elapsed().as_secs_f64() < limit, "not after {limit} s: {what}; leaders {:?}", world.leaders());
        world.check(0);
        sleep(Duration::from_millis(10)).await;
    }
    start.elapsed().as_secs_f64()
}

fn leads(world: &World, name: &str) -> bool {
    world.leaders() == [name]
}

/// A calm world in which `a` leads and `b` stands by.
async fn pair() -> (Arc<World>, [CancellationToken; 2], [JoinHandle<Result<(), LostLease>>; 2]) {
    let world = World::new(1, Duration::ZERO);
    let cancels = [CancellationToken::new(), CancellationToken::new()];
    let a = tokio::spawn(world.start_process("a", Clock::EXACT, Instant::now()).run(cancels[0].clone()));
    until(&world, 1.0, "a leads", |w| leads(w, "a")).await;
    let b = tokio::spawn(world.start_process("b", Clock::EXACT, Instant::now()).run(cancels[1].clone()));
    sleep(Duration::from_secs(5)).await;
    assert!(leads(&world, "a"));
    (world, cancels, [a, b])
}

#[tokio::test(start_paused = true)]
async fn a_clean_exit_hands_over_at_once() {
    let (world, [cancel, _], [a, _b]) = pair().await;
    cancel.cancel();
    let took = until(&world, 5.0, "b leads", |w| leads(w, "b")).await;
    assert!(took < 2.5, "the hand-over took {took} s");
    assert_eq!(a.await.unwrap(), Ok(()));
    let record = world.stored.lock().unwrap().0.clone().unwrap();
    assert_eq!((record.holder.as_deref(), record.transitions), (Some("b"), 1));
    assert!(record.acquired > Some(Timestamp::from_second(1_700_000_000).unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_replaced_after_the_lease_and_not_before() {
    let (world, _, [a, _b]) = pair().await;
    a.abort();
    let took = until(&world, 20.0, "b leads", |w| leads(w, "b")).await;
    assert!((8.0..12.5).contains(&took), "the take-over took {took} s");
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_an_api_server_ends_at_its_renew_deadline() {
    let world = World::new(1, Duration::ZERO);
    let elector = world.start_process("a", Clock::EXACT, Instant::now());
    let task = tokio::spawn(elector.run(CancellationToken::new()));
    until(&world, 1.0, "a leads", |w| leads(w, "a")).await;
    let mut changes = world.processes.lock().unwrap()[0].1.changes();
    world.silent.store(true, Ordering::Relaxed);
    let start = Instant::now();
    changes.wait_for(|leads| !*leads).await.unwrap();
    let took = start.elapsed().as_secs_f64();
    assert!((4.0..=6.0).contains(&took), "it led on for {took} s");
    let error = task.await.unwrap().unwrap_err();
    assert!(matches!(error, LostLease::NotRenewed { .. }), "{error}");
    assert!(error.to_string().contains("no answer within"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_leader_is_not_current_when_it_continues() {
    let world = World::new(1, Duration::ZERO);
    let elector = world.start_process("a", Clock::EXACT, Instant::now());
    let now = Instant::now();
    let stops = vec![(now + Duration::from_secs(3), now + Duration::from_secs(30))];
    let process = Stoppable { inner: Box::pin(elector.run(CancellationToken::new())), stops, stopped: None };
    let a = tokio::spawn(process);
    until(&world, 1.0, "a leads", |w| leads(w, "a")).await;
    sleep_until(now + Duration::from_secs(3)).await;
    let _b = tokio::spawn(world.start_process("b", Clock::EXACT, Instant::now()).run(CancellationToken::new()));
    until(&world, 20.0, "b leads", |w| leads(w, "b")).await;
    let error = a.await.unwrap().unwrap_err();
    assert!(leads(&world, "b"), "{:?}", world.leaders());
    assert!(error.to_string().contains("must restart"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_overwritten_ends_and_names_the_new_holder() {
    let (world, _, [a, _b]) = pair().await;
    {
        let mut stored = world.stored.lock().unwrap();
        let version = stored.1 + 1;
        let forced = stored.0.clone().map(|record| Record { holder: Some("intruder".into()), ..record });
        *stored = (forced, version);
    }
    let error = a.await.unwrap().unwrap_err();
    assert_eq!(error, LostLease::TakenOver { lease: "ns/lease".into(), holder: "intruder".into() });
    assert!(world.leaders().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_foreign_touch_of_the_lease_does_not_end_leadership() {
    let (world, _, _tasks) = pair().await;
    for _ in 0..20 {
        world.stored.lock().unwrap().1 += 1;
        sleep(Duration::from_secs(1)).await;
        assert!(leads(&world, "a"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_is_made_again_by_its_leader() {
    let (world, _, _tasks) = pair().await;
    world.stored.lock().unwrap().0 = None;
    until(&world, 3.0, "the lease is back", |w| w.holder().as_deref() == Some("a")).await;
    sleep(Duration::from_secs(20)).await;
    assert!(leads(&world, "a"));
    assert_eq!(world.stored.lock().unwrap().0.as_ref().unwrap().transitions, 0);
}
