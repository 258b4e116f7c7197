//! A fault at the n-th write point, once. Shared by everything that can be written to.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What happens at the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The process dies before the write.
    CrashBefore,
    /// The write happens, then the process dies.
    CrashAfter,
    /// The write happens, its reply is lost, the process lives.
    LostReply,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::CrashBefore, Self::CrashAfter, Self::LostReply];
}

/// Counts write points; at the chosen one it trips.
#[derive(Debug, Default)]
pub struct Fuse {
    count: AtomicUsize,
    at: AtomicUsize,
    mode: std::sync::Mutex<Option<Mode>>,
    dead: AtomicBool,
}

impl Fuse {
    /// Trips at the n-th point from now on, counted from 1.
    pub fn arm(&self, at: usize, mode: Mode) {
        self.count.store(0, Ordering::SeqCst);
        self.at.store(at, Ordering::SeqCst);
        *self.mode.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(mode);
    }

    /// How many points there were since it was armed, or since the start.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether the process is dead: nothing it does has any effect.
    pub fn dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// The process starts again.
    pub fn revive(&self) {
        self.dead.store(false, Ordering::SeqCst);
    }

    /// Passes a write point: does the write, and hands on the reply or nothing.
    pub fn point<T>(&self, write: impl FnOnce() -> T) -> Option<T> {
        if self.dead() {
            return None;
        }
        let n = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let mode = *self.mode.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if n != self.at.load(Ordering::SeqCst) {
            return Some(write());
        }
        match mode {
            None => Some(write()),
            Some(Mode::CrashBefore) => {
                self.dead.store(true, Ordering::SeqCst);
                None
            }
            Some(Mode::CrashAfter) => {
                write();
                self.dead.store(true, Ordering::SeqCst);
                None
            }
            Some(Mode::LostReply) => {
                write();
                None
            }
        }
    }
}
