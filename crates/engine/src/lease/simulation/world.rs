//! A server, machines with wrong clocks, a bad network and processes that freeze. Tests only.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use crate::lease::{Config, Elector, Leadership, Record, Storage, StorageError, Stored, Timing};
use crate::runtime::Runtime;

/// A small seeded generator: the same seed gives the same run.
pub(super) struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

/// The API server: one record, and the handles of all processes that ever ran.
pub(super) struct World {
    pub(super) start: Instant,
    pub(super) stored: Mutex<(Option<Record>, u64)>,
    pub(super) processes: Mutex<Vec<(String, Leadership)>>,
    chance: Mutex<Chance>,
    /// No faults from here on.
    pub(super) calm_from: Instant,
    /// Requests get no answer at all.
    pub(super) silent: AtomicBool,
}

impl World {
    pub(super) fn new(seed: u64, trouble: Duration) -> Arc<Self> {
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

    pub(super) fn calm(&self) -> bool {
        Instant::now() >= self.calm_from
    }

    pub(super) fn chance<T>(&self, draw: impl FnOnce(&mut Chance) -> T) -> T {
        draw(&mut self.chance.lock().unwrap())
    }

    pub(super) fn leaders(&self) -> Vec<String> {
        let processes = self.processes.lock().unwrap();
        processes
            .iter()
            .filter(|(_, leadership)| leadership.is_current())
            .map(|(name, _)| name.clone())
            .collect()
    }

    pub(super) fn check(&self, seed: u64) -> usize {
        let leaders = self.leaders();
        assert!(
            leaders.len() <= 1,
            "seed {seed}: after {:?} there are two leaders {leaders:?}; record {:?}",
            self.start.elapsed(),
            self.stored.lock().unwrap(),
        );
        leaders.len()
    }

    pub(super) fn holder(&self) -> Option<String> {
        self.stored.lock().unwrap().0.clone().and_then(|record| record.holder)
    }

    pub(super) fn start_process(
        self: &Arc<Self>,
        name: &str,
        clock: Clock,
        cut_off: Instant,
    ) -> Elector<Remote> {
        let timing = clock.timing();
        let config = Config { namespace: "ns".into(), name: "lease".into(), identity: name.into(), timing };
        let wall = Timestamp::from_second(1_700_000_000).unwrap() + clock.wall_off;
        let runtime = Runtime::simulated(wall, self.chance(|c| c.below(u64::MAX)));
        let elector = Elector::new(Remote { world: self.clone(), clock, cut_off }, config, runtime);
        self.processes.lock().unwrap().push((name.to_owned(), elector.leadership()));
        elector
    }
}

/// A machine's clocks: the wall clock is off by any amount, the monotonic clock runs too fast or too slow.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    pub(super) wall_off: SignedDuration,
    /// Real time for a hundred local seconds.
    pub(super) speed: u32,
}

impl Clock {
    pub(super) const EXACT: Self = Self { wall_off: SignedDuration::ZERO, speed: 100 };

    /// What this machine takes for `real`; all durations it uses are stretched instead of its clock.
    fn stretched(self, local: Duration) -> Duration {
        local * self.speed / 100
    }

    fn timing(self) -> Timing {
        let base = Timing::default();
        let [lease, deadline, retry] =
            [base.lease(), base.renew_deadline(), base.retry()].map(|d| self.stretched(d));
        Timing::new(lease, deadline, retry).unwrap()
    }
}

/// The way from one process to the server.
pub(super) struct Remote {
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
                None => sleep(Duration::from_hours(1)).await,
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
        let local = record.duration * 100 / self.clock.speed;
        // To the nearest second, as the Lease keeps it.
        let duration = Duration::from_secs((local + Duration::from_millis(500)).as_secs());
        Record { duration, ..record.clone() }
    }
}

impl Storage for Remote {
    async fn read(&self) -> Result<Option<Stored>, StorageError> {
        let found =
            self.call(|(record, version)| Ok(record.clone().map(|record| (record, *version)))).await?;
        Ok(found.map(|found| self.localised(found)))
    }

    async fn create(&self, record: &Record) -> Result<Stored, StorageError> {
        let new = self.global(record);
        let put = move |stored: &mut (Option<Record>, u64)| {
            if stored.0.is_some() {
                return Err(StorageError::Conflict);
            }
            *stored = (Some(new.clone()), stored.1 + 1);
            Ok((new, stored.1))
        };
        self.call(put).await.map(|stored| self.localised(stored))
    }

    async fn swap(&self, version: &str, record: &Record) -> Result<Stored, StorageError> {
        let (new, version, world) = (self.global(record), version.to_owned(), self.world.clone());
        let put = move |stored: &mut (Option<Record>, u64)| {
            if stored.0.is_none() || stored.1.to_string() != version {
                return Err(StorageError::Conflict);
            }
            if new.holder.is_none() {
                let holder = stored.0.take().and_then(|record| record.holder).unwrap_or_default();
                assert!(
                    !world.leaders().contains(&holder),
                    "{holder} gives the lease back while it still leads"
                );
            }
            *stored = (Some(new.clone()), stored.1 + 1);
            Ok((new, stored.1))
        };
        self.call(put).await.map(|stored| self.localised(stored))
    }
}

/// A process that can be stopped and continued as by signals: while stopped it is not polled, but time goes on.
pub(super) struct Stoppable<F> {
    pub(super) inner: Pin<Box<F>>,
    pub(super) stops: Vec<(Instant, Instant)>,
    pub(super) stopped: Option<Pin<Box<Sleep>>>,
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
