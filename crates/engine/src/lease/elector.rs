//! The loop that competes for the lease: asks `evaluate`, carries out its verdict, keeps `Leadership` honest.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    Candidate, Config, Leadership, LostLease, Record, Storage, StorageError, Stored, Verdict, evaluate,
};
use crate::runtime::Runtime;

/// So many attempts in a row may fail before a standby asks less often.
const UNANSWERED: u32 = 3;
/// How long a standby rests at most.
const IDLE_MOST: Duration = Duration::from_secs(10);
/// Conflicts that are worth a new look at once; after that others are busy with it and waiting is better.
const LOOKS_PER_ROUND: usize = 3;

/// Competes for one lease. [`super::elect`] runs it against Kubernetes.
pub struct Elector<S> {
    storage: S,
    config: Config,
    leadership: Leadership,
    seen: Seen,
    /// When the last successful write of ours started, while we lead.
    leading_since: Option<Instant>,
    last_error: Option<String>,
    /// Attempts in a row that failed.
    unanswered: u32,
    runtime: Runtime,
}

/// What is known of the record.
struct Seen {
    /// The last record that was read, also after the Lease was deleted.
    latest: Option<Record>,
    /// The version to swap; `None` when there is no Lease.
    version: Option<String>,
    /// When `latest` was first seen, on our monotonic clock.
    since: Instant,
    /// Whether that is all we did and saw: false before the first read and after a write whose outcome is unknown.
    fresh: bool,
}

impl<S: Storage> Elector<S> {
    /// An elector that does nothing before it is run. The identity must be unique.
    pub fn new(storage: S, config: Config, runtime: Runtime) -> Self {
        let seen = Seen { latest: None, version: None, since: Runtime::instant(), fresh: false };
        let leadership = Leadership::none_yet();
        Self {
            storage,
            config,
            leadership,
            seen,
            leading_since: None,
            last_error: None,
            unanswered: 0,
            runtime,
        }
    }

    /// The handle to ask whether this process leads.
    pub fn leadership(&self) -> Leadership {
        self.leadership.clone()
    }

    /// Competes until cancelled (the lease is then given back) or until a lease that was held is lost.
    pub async fn run(mut self, cancel: CancellationToken) -> Result<(), LostLease> {
        loop {
            let next = tokio::select! {
                biased;
                // Dropping a request in flight is safe: should it still land, it only delays the next leader.
                () = cancel.cancelled() => break,
                next = self.round() => next?,
            };
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                () = sleep_until(next) => {}
            }
        }
        self.leadership.end();
        let patience = self.config.timing.renew_deadline();
        if timeout(patience, self.release()).await.is_err() {
            warn!(lease = %self.lease(), "could not give the lease back in time; a standby has to wait for its end");
        }
        Ok(())
    }

    /// One attempt. Says when the next one is due.
    async fn round(&mut self) -> Result<Instant, LostLease> {
        let retry = Runtime::instant() + self.spread(self.config.timing.retry());
        for _ in 0..LOOKS_PER_ROUND {
            // Only the leader may trust what it remembers: a conflict tells it when that is outdated.
            if (self.leading_since.is_none() || !self.seen.fresh) && !self.look().await {
                break;
            }
            let wall = self.runtime.now();
            let latest = self.seen.latest.as_ref();
            let record = match (self.verdict(), latest) {
                (Verdict::StepDown, _) => return Err(self.lost()),
                (Verdict::Wait { until }, _) => return Ok(retry.min(until)),
                (Verdict::Renew, Some(mine)) => mine.renewed(&self.config.timing, wall),
                (Verdict::Renew | Verdict::Acquire, _) => {
                    Record::taken_by(latest, &self.config.identity, &self.config.timing, wall)
                }
            };
            match self.write(&record).await {
                Err(StorageError::Conflict) => {}
                Ok(()) | Err(StorageError::Failed(_)) => break,
            }
        }
        match self.deadline() {
            Some(deadline) if Runtime::instant() >= deadline => Err(self.lost()),
            Some(deadline) => Ok(retry.min(deadline)),
            None => Ok(retry.max(Runtime::instant() + self.spread(self.idle()))),
        }
    }

    /// How long a standby rests after attempts to which nothing came: a server that is away need not be asked every second.
    fn idle(&self) -> Duration {
        let doublings = self.unanswered.saturating_sub(UNANSWERED);
        if doublings == 0 {
            return Duration::ZERO;
        }
        self.config.timing.retry().saturating_mul(2_u32.saturating_pow(doublings)).min(IDLE_MOST)
    }

    fn verdict(&self) -> Verdict {
        let me = Candidate { identity: &self.config.identity, leading_since: self.leading_since };
        let Seen { latest, version, since, .. } = &self.seen;
        evaluate(latest.as_ref(), version.is_none(), *since, Runtime::instant(), &self.config.timing, &me)
    }

    /// When our leadership ends unless it is renewed.
    fn deadline(&self) -> Option<Instant> {
        self.leading_since.map(|since| since + self.config.timing.renew_deadline())
    }

    /// Reads the record. False when that failed.
    async fn look(&mut self) -> bool {
        match limited(self.patience(), self.storage.read()).await {
            Ok(stored) => {
                self.saw(stored);
                true
            }
            Err(error) => {
                self.failed("read", &error);
                false
            }
        }
    }

    /// Writes our record over the one we know, or creates it.
    async fn write(&mut self, record: &Record) -> Result<(), StorageError> {
        // Before the request leaves: nobody can see it, and count from it, earlier than this.
        let started = Runtime::instant();
        self.seen.fresh = false;
        let answer = match &self.seen.version {
            Some(version) => limited(self.patience(), self.storage.swap(version, record)).await,
            None => limited(self.patience(), self.storage.create(record)).await,
        };
        match answer {
            Ok(stored) => {
                self.saw(Some(stored));
                self.leads_since(started);
                Ok(())
            }
            Err(error) => {
                self.failed("write", &error);
                Err(error)
            }
        }
    }

    fn leads_since(&mut self, started: Instant) {
        let deadline = started + self.config.timing.renew_deadline();
        // An acquisition whose reply comes after its own deadline is no leadership yet: the next round confirms it.
        if self.leading_since.is_none() && Runtime::instant() >= deadline {
            return;
        }
        if self.leading_since.is_none() {
            info!(lease = %self.lease(), identity = self.config.identity, "leading");
        }
        self.last_error = None;
        self.leading_since = Some(started);
        self.leadership.lead_until(deadline);
    }

    fn saw(&mut self, stored: Option<Stored>) {
        // When the answer arrived, which is never before the record was written.
        let now = Runtime::instant();
        self.unanswered = 0;
        self.seen.fresh = true;
        let Some(Stored { record, version }) = stored else {
            self.seen.version = None;
            return;
        };
        self.seen.version = Some(version);
        if self.seen.latest.as_ref() == Some(&record) {
            return;
        }
        let holder = record.holder.as_deref();
        if self.seen.latest.as_ref().is_none_or(|before| before.holder.as_deref() != holder)
            && holder != Some(self.config.identity.as_str())
        {
            info!(lease = %self.lease(), holder = holder.unwrap_or("nobody"), "the lease has another holder");
        }
        self.seen.latest = Some(record);
        self.seen.since = now;
    }

    fn failed(&mut self, what: &str, error: &StorageError) {
        self.unanswered = self.unanswered.saturating_add(1);
        let text = format!("cannot {what} the lease: {error}");
        // Once per kind of trouble; a broken connection would else fill the log.
        if *error == StorageError::Conflict || self.last_error.as_ref() == Some(&text) {
            debug!(lease = %self.lease(), "{text}");
        } else {
            warn!(lease = %self.lease(), "{text}");
        }
        self.last_error = Some(text);
    }

    /// How long a request may take: a leader must hear of its failure before its deadline.
    fn patience(&self) -> Duration {
        let request = self.config.timing.request();
        self.deadline().map_or(request, |end| request.min(end.saturating_duration_since(Runtime::instant())))
    }

    fn lost(&self) -> LostLease {
        let lease = self.lease();
        let record = self.seen.latest.as_ref().filter(|_| self.seen.fresh && self.seen.version.is_some());
        match record.map(|record| record.holder.as_deref()) {
            Some(Some(holder)) if holder != self.config.identity => {
                LostLease::TakenOver { lease, holder: holder.to_owned() }
            }
            Some(None) => LostLease::Cleared { lease },
            _ => LostLease::NotRenewed {
                lease,
                within: self.config.timing.renew_deadline(),
                last: self
                    .last_error
                    .clone()
                    .unwrap_or_else(|| "none, this process was not running".to_owned()),
            },
        }
    }

    /// Clears the holder, if it is us, so that a standby need not wait.
    async fn release(&mut self) {
        // Our deadline no longer limits requests: we do not lead any more.
        self.leading_since = None;
        for _ in 0..LOOKS_PER_ROUND {
            if !self.seen.fresh && !self.look().await {
                continue;
            }
            let Seen { latest: Some(record), version: Some(version), .. } = &self.seen else { return };
            if record.holder.as_deref() != Some(self.config.identity.as_str()) {
                return;
            }
            let released = record.released(self.runtime.now());
            match limited(self.patience(), self.storage.swap(version, &released)).await {
                Ok(_) => {
                    info!(lease = %self.lease(), "gave the lease back");
                    return;
                }
                Err(error) => {
                    self.seen.fresh = false;
                    self.failed("give back", &error);
                }
            }
        }
    }

    /// Between 0.8 and 1.2 times `period`: spreads the attempts of replicas that started together.
    fn spread(&self, period: Duration) -> Duration {
        period.mul_f64(0.8 + 0.4 * self.runtime.fraction())
    }

    fn lease(&self) -> String {
        format!("{}/{}", self.config.namespace, self.config.name)
    }
}

impl<S> Drop for Elector<S> {
    /// However the task ends, also by a panic or an abort: nobody renews any more.
    fn drop(&mut self) {
        self.leadership.end();
    }
}

async fn limited<T>(
    limit: Duration,
    request: impl Future<Output = Result<T, StorageError>>,
) -> Result<T, StorageError> {
    let late = || StorageError::Failed(format!("no answer within {limit:.1?}"));
    timeout(limit, request).await.unwrap_or_else(|_| Err(late()))
}
