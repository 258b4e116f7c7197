//! What the stand-in knows and what tests have asked of it, under one lock. No IO.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::watch;

use super::ceph::Ceph;
use super::kind::Kind;

/// Faults on request.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// How long each object takes.
    pub(super) delay: Duration,
    /// Names of objects that fail, with the reason.
    pub(super) failing: HashMap<String, String>,
    /// Ceph never answers.
    pub(super) hanging: bool,
    /// Status fields that are written wrong on purpose.
    pub(super) distortions: Vec<(Kind, String, Value)>,
}

/// One piece of work on one object: from the moment when its spec was read until it is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    /// The generation that was read in the beginning. Rook reports this one.
    pub(super) observed: i64,
    /// The newest generation that this job covers: Rook's own write gives the object another one.
    pub(super) generation: i64,
    /// The phase Progressing has been written.
    pub(super) announced: bool,
    pub(super) finished: bool,
    since: Instant,
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) ceph: Ceph,
    pub(super) faults: Faults,
    jobs: HashMap<String, Job>,
}

impl Inner {
    /// The job for an object at a generation: the one that is under way, or a new one.
    pub(super) fn job(&mut self, uid: &str, generation: i64) -> Job {
        if let Some(job) = self.jobs.get(uid).filter(|job| generation <= job.generation) {
            return *job;
        }
        let since = Instant::now();
        let job = Job { observed: generation, generation, announced: false, finished: false, since };
        self.jobs.insert(uid.to_owned(), job);
        job
    }

    pub(super) fn keep(&mut self, uid: &str, job: Job) {
        self.jobs.insert(uid.to_owned(), job);
    }

    /// The next look at the object begins anew.
    pub(super) fn drop_job(&mut self, uid: &str) {
        self.jobs.remove(uid);
    }

    /// The object is gone: nothing is left to do for it.
    pub(super) fn end_job(&mut self, uid: &str) {
        if let Some(job) = self.jobs.get_mut(uid) {
            job.finished = true;
        }
    }

    /// A new process of Rook looks at everything again.
    pub(super) fn drop_all_jobs(&mut self) {
        self.jobs.clear();
    }

    /// How long this job has to wait before Ceph answers.
    pub(super) fn left(&self, job: Job) -> Option<Duration> {
        self.faults.delay.checked_sub(job.since.elapsed()).filter(|left| !left.is_zero())
    }
}

#[derive(Debug)]
pub(super) struct State {
    inner: Mutex<Inner>,
    changed: watch::Sender<()>,
}

impl State {
    pub(super) fn new() -> Self {
        let inner = Inner { ceph: Ceph::new(), faults: Faults::default(), jobs: HashMap::new() };
        Self { inner: Mutex::new(inner), changed: watch::Sender::new(()) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is asked, and lets the stand-in look at all objects again.
    pub(super) fn change(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.lock());
        self.changed.send_replace(());
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }
}
