//! The way between a process and the API server: how long each request, reply and watch event takes, and what gets lost.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::SignedDuration;

use super::faults::{Fault, Faults};
use super::tape::Tape;
use crate::runtime::EVEN;

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
    /// Watches lag by more than the Lease lasts.
    pub const BLIND: Self = Self { request: 0..200, reply: 0..200, event: 0..40_000, reaction: 1..3_000 };

    /// Those of one history.
    pub(super) fn draw(tape: &Tape) -> Self {
        match tape.below(4) {
            0 => Self::NONE,
            1 | 2 => Self::LONG,
            _ => Self::BLIND,
        }
    }
}

/// What becomes of any request.
const OF_ALL: [Fault; 4] = [Fault::TooManyRequests, Fault::ServerError, Fault::RequestLost, Fault::Silence];
/// What becomes of a read of one object, beside that.
const OF_READS: &[Fault] = &[Fault::ReplyLost, Fault::DoneButTimeout];
/// The same of a write.
const OF_WRITES: &[Fault] =
    &[Fault::Conflict, Fault::LandsLater, Fault::ReplyLost, Fault::DoneButTimeout, Fault::CrashAtWrite];
/// The same of a list.
const OF_LISTS: &[Fault] = &[Fault::NotServed, Fault::Denied];
/// The same of a watch when it begins.
const OF_WATCHES: &[Fault] = &[Fault::NotServed, Fault::Denied, Fault::Expired];

/// What is asked of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Read,
    Write,
    List,
    Watch,
}

impl Asked {
    /// What can become of it.
    pub fn faults(self) -> Vec<Fault> {
        let own = match self {
            Self::Read => OF_READS,
            Self::Write => OF_WRITES,
            Self::List => OF_LISTS,
            Self::Watch => OF_WATCHES,
        };
        own.iter().chain(&OF_ALL).copied().collect()
    }
}

/// What happens to a watch while it runs.
pub(super) const OF_EVENTS: &[Fault] = &[Fault::WatchEnds, Fault::WatchStalls];

/// How late a write lands whose caller has given it up, in milliseconds.
const LATE: u64 = 60_000;

/// By how much the clock of a process is too fast or too slow at most, in thousandths.
const SKEW: u64 = 100;
/// By how much it is ahead or behind at most when the process starts, in milliseconds.
const OFFSET: u64 = 2_000;

/// The clock of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Skew {
    /// How fast it goes, in thousandths.
    pub rate: u32,
    /// How far it is ahead when the process starts.
    pub offset: SignedDuration,
}

/// Draws delays and faults. The order in which things happen is given by the simulation, so the draws are too.
pub struct Network {
    delays: Delays,
    faults: Faults,
    tape: Tape,
    silent: AtomicBool,
    /// Whether each process has a clock of its own.
    skewed: bool,
}

impl Network {
    /// Nothing gets lost, but things take their time.
    pub(super) fn without_faults(delays: Delays, seed: u64) -> Self {
        let silent = AtomicBool::default();
        Self { delays, faults: Faults::default(), tape: Tape::from_seed(seed), silent, skewed: false }
    }

    /// Everything is drawn from a tape.
    pub(super) fn with_faults(tape: Tape, faults: Faults) -> Self {
        let silent = AtomicBool::default();
        Self { delays: Delays::draw(&tape), faults, tape, silent, skewed: true }
    }

    pub(super) fn tape(&self) -> &Tape {
        &self.tape
    }

    pub(super) fn end_faults(&self) {
        self.faults.end();
    }

    pub(super) fn are_faults_over(&self) -> bool {
        self.faults.are_over()
    }

    pub(super) fn struck(&self) -> BTreeMap<Fault, usize> {
        self.faults.struck()
    }

    pub(super) fn strike(&self, of: &[Fault]) -> Option<Fault> {
        self.faults.strike(&self.tape, of)
    }

    /// Whether the API server says nothing to anybody.
    pub(super) fn silent(&self) -> bool {
        self.silent.load(Ordering::SeqCst)
    }

    pub(super) fn set_silent(&self, silent: bool) {
        self.silent.store(silent, Ordering::SeqCst);
    }

    pub(super) fn request(&self) -> Duration {
        self.draw(&self.delays.request)
    }

    pub(super) fn reply(&self) -> Duration {
        self.draw(&self.delays.reply)
    }

    pub(super) fn event(&self) -> Duration {
        self.draw(&self.delays.event)
    }

    pub(super) fn reaction(&self) -> Duration {
        self.draw(&self.delays.reaction)
    }

    /// The clock of a process that starts.
    pub(super) fn skew(&self) -> Skew {
        if !self.skewed {
            return Skew { rate: EVEN, offset: SignedDuration::ZERO };
        }
        let rate = i64::from(EVEN) + self.either_way(SKEW);
        Skew {
            rate: u32::try_from(rate).unwrap_or(EVEN),
            offset: SignedDuration::from_millis(self.either_way(OFFSET)),
        }
    }

    /// A number up to `most`, above or below 0.
    fn either_way(&self, most: u64) -> i64 {
        let drawn = i64::try_from(self.tape.below(2 * most + 1)).unwrap_or_default();
        if drawn % 2 == 0 { drawn / 2 } else { -(drawn + 1) / 2 }
    }

    pub(super) fn late(&self) -> Duration {
        Duration::from_millis(self.tape.below(LATE))
    }

    fn draw(&self, range: &Range<u64>) -> Duration {
        Duration::from_millis(range.start + self.tape.below(range.end - range.start))
    }
}
