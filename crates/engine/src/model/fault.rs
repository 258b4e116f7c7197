//! A fault at the n-th write point, once. Shared by everything that can be written to.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::lock::lock;

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

/// Counts write points; at the chosen one the fault happens.
#[derive(Debug, Default)]
pub struct WriteFault {
    count: AtomicUsize,
    at: AtomicUsize,
    mode: Mutex<Option<Mode>>,
    crashed: AtomicBool,
}

impl WriteFault {
    /// The fault shall happen at the n-th point from now on, counted from 1.
    pub fn set(&self, at: usize, mode: Mode) {
        self.count.store(0, Ordering::SeqCst);
        self.at.store(at, Ordering::SeqCst);
        *lock(&self.mode) = Some(mode);
    }

    /// How many points there were since it was set, or since the start.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether the process has crashed: nothing it does has any effect.
    pub fn crashed(&self) -> bool {
        self.crashed.load(Ordering::SeqCst)
    }

    /// The process starts again.
    pub fn restart(&self) {
        self.crashed.store(false, Ordering::SeqCst);
    }

    /// Passes a write point: does the write, and hands on the reply or nothing.
    pub fn point<T>(&self, write: impl FnOnce() -> T) -> Option<T> {
        if self.crashed() {
            return None;
        }
        let n = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let mode = *lock(&self.mode);
        if n != self.at.load(Ordering::SeqCst) {
            return Some(write());
        }
        match mode {
            None => Some(write()),
            Some(Mode::CrashBefore) => {
                self.crashed.store(true, Ordering::SeqCst);
                None
            }
            Some(Mode::CrashAfter) => {
                write();
                self.crashed.store(true, Ordering::SeqCst);
                None
            }
            Some(Mode::LostReply) => {
                write();
                None
            }
        }
    }
}
