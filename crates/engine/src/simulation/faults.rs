//! What goes wrong in a history. Each history has a few kinds of faults, and those often: a little of everything would hide what
//! only many of one kind bring about.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::tape::Tape;
use crate::lock::lock;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A write is refused as if somebody had been faster.
    Conflict,
    /// 429.
    TooManyRequests,
    /// 500.
    ServerError,
    /// The connection breaks before the request arrives.
    RequestLost,
    /// The request is carried out, and the connection breaks.
    ReplyLost,
    /// The request is carried out, and the answer is 504.
    DoneButTimeout,
    /// No answer, ever.
    Silence,
    /// The connection breaks, and the request is carried out later.
    LandsLater,
    /// A watch or list is answered with 404.
    NotServed,
    /// A watch or list is answered with 403.
    Denied,
    /// A watch is answered with 410.
    Expired,
    /// A watch ends.
    WatchEnds,
    /// A watch shows nothing for minutes.
    WatchStalls,
    /// The API server does not know a kind for minutes: 404 to everything about it.
    KindVanishes,
    /// The API server refuses everything about a kind for minutes: 403.
    KindDenied,
    /// A process ends where it is.
    Crash,
    /// A process ends when one of its writes has been carried out, before it learns of that.
    CrashAtWrite,
    /// A process is told to stop.
    Stop,
    /// The outside takes long.
    OutsideSlow,
    /// The outside refuses to do what it is told; it answers questions.
    OutsideRefuses,
    /// The outside does what it is told and does not say so.
    OutsideReplyLost,
    /// The outside says that it failed, and does what it was told later.
    OutsideLandsLater,
    /// The outside answers with what was true a moment ago.
    OutsideStale,
    /// The code of a family panics.
    FamilyPanics,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::Conflict,
        Self::TooManyRequests,
        Self::ServerError,
        Self::RequestLost,
        Self::ReplyLost,
        Self::DoneButTimeout,
        Self::Silence,
        Self::LandsLater,
        Self::NotServed,
        Self::Denied,
        Self::Expired,
        Self::WatchEnds,
        Self::WatchStalls,
        Self::KindVanishes,
        Self::KindDenied,
        Self::Crash,
        Self::CrashAtWrite,
        Self::Stop,
        Self::OutsideSlow,
        Self::OutsideRefuses,
        Self::OutsideReplyLost,
        Self::OutsideLandsLater,
        Self::OutsideStale,
        Self::FamilyPanics,
    ];
}

/// The chances, in a thousand, of a fault that a history has.
const CHANCES: [u64; 3] = [10, 50, 200];
/// The chances of each in a history that has all of them.
const SELDOM: u64 = 20;
const OFTEN: u64 = 150;
/// How many histories in a thousand have a kind of fault.
const COMMON: u64 = 300;

/// The faults of one history.
#[derive(Debug, Default)]
pub struct Faults {
    chances: BTreeMap<Fault, u64>,
    over: AtomicBool,
    struck: Mutex<BTreeMap<Fault, usize>>,
}

impl Faults {
    /// Draws the kinds of a history.
    pub fn draw(tape: &Tape) -> Self {
        let draw = |fault: Fault| {
            let (has, chance) = (tape.chance(COMMON), tape.below(CHANCES.len() as u64));
            let chance = usize::try_from(chance).ok().and_then(|at| CHANCES.get(at));
            has.then_some((fault, *chance?))
        };
        let chances = Fault::ALL.into_iter().filter_map(draw).collect();
        Self { chances, ..Self::default() }
    }

    /// Every kind: seldom what may become of each request, and often what there is less occasion for.
    pub fn all() -> Self {
        let chance = |fault: Fault| match fault {
            Fault::KindVanishes
            | Fault::KindDenied
            | Fault::OutsideSlow
            | Fault::OutsideRefuses
            | Fault::OutsideReplyLost
            | Fault::OutsideLandsLater
            | Fault::OutsideStale => OFTEN,
            _ => SELDOM,
        };
        Self { chances: Fault::ALL.map(|fault| (fault, chance(fault))).into(), ..Self::default() }
    }

    /// Whether one of these happens now; mostly none.
    pub fn strike(&self, tape: &Tape, of: &[Fault]) -> Option<Fault> {
        if self.are_over() {
            return None;
        }
        let chances: Vec<_> =
            of.iter().filter_map(|fault| Some((*fault, *self.chances.get(fault)?))).collect();
        if chances.is_empty() {
            return None;
        }
        let fault = tape.one_of(&chances)?;
        *lock(&self.struck).entry(fault).or_default() += 1;
        Some(fault)
    }

    /// From now on nothing goes wrong.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Whether nothing goes wrong any more.
    pub fn are_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// How often each kind has happened.
    pub fn struck(&self) -> BTreeMap<Fault, usize> {
        lock(&self.struck).clone()
    }
}
