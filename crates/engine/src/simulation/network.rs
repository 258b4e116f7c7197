//! The way between a process and the API server: how long each request, reply and watch event takes.

use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use crate::lock::lock;

/// How long things take, as ranges in milliseconds from which each delay is drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delays {
    /// From the process to the server.
    pub request: Range<u64>,
    /// From the server back.
    pub reply: Range<u64>,
    /// Until a watch shows a change. Events of one watch stay in order.
    pub event: Range<u64>,
    /// Until another program in the cluster reacts.
    pub reaction: Range<u64>,
}

impl Delays {
    /// Everything takes the least possible time.
    pub const NONE: Self = Self { request: 0..1, reply: 0..1, event: 0..1, reaction: 1..2 };
    /// Requests take up to half a second, watches lag by up to eight seconds.
    pub const LONG: Self = Self { request: 0..500, reply: 0..500, event: 0..8_000, reaction: 1..3_000 };
}

/// Draws delays. The order in which things happen is given by the simulation, so the draws are too.
pub(super) struct Network {
    delays: Delays,
    random: Mutex<fastrand::Rng>,
}

impl Network {
    pub fn new(delays: Delays, seed: u64) -> Self {
        Self { delays, random: Mutex::new(fastrand::Rng::with_seed(seed)) }
    }

    pub fn request(&self) -> Duration {
        self.draw(&self.delays.request)
    }

    pub fn reply(&self) -> Duration {
        self.draw(&self.delays.reply)
    }

    pub fn event(&self) -> Duration {
        self.draw(&self.delays.event)
    }

    pub fn reaction(&self) -> Duration {
        self.draw(&self.delays.reaction)
    }

    fn draw(&self, range: &Range<u64>) -> Duration {
        let mut random = lock(&self.random);
        Duration::from_millis(random.u64(range.clone()))
    }
}
