//! Taking a lock. One that a panic has poisoned is taken all the same: what it guards is changed in one step everywhere in this
//! crate, so that it is whole.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
