//! Report: write the status, also after a failure, if it says something new and if it is time to say it.

use std::time::Duration;

use serde_json::json;

use super::{Outcome, Pass, PassState, StatusOutcome};
use crate::cluster::Verb;
use crate::failure::{Class, Failure, combined};
use crate::object::{Object, ObjectRef, revision};
use crate::plan::{Plan, Step};
use crate::status::{Change, READY, Report, State, Urgency, change, paused};
use crate::store::Progress;

/// When somebody else was faster, and only in case their event got lost.
const SOON: Duration = Duration::from_secs(1);
/// Transient failures in a row that people are not told of: they are probably gone with the next try.
const UNREPORTED: u32 = 2;

impl Pass<'_> {
    /// Writes the status that was decided, together with what failed since.
    pub(super) async fn report(&self, plan: &Plan, state: &mut PassState) -> Result<(), Failure> {
        let (Some(subject), Some(mut report)) = (state.outcome.subject.clone(), plan.status.clone()) else {
            state.outcome.status = StatusOutcome::Reported; // there is nothing to say, or nowhere to say it
            return Ok(());
        };
        keep_records(&mut report, plan, &self.target());
        if let Some(failure) = combined(&state.outcome.failures) {
            if self.is_passing(&failure) {
                return Ok(());
            }
            report.failed(&failure, &subject);
        }
        self.write_status(&subject, report, &mut state.outcome).await
    }

    /// The pass failed before there was a plan: the status stays as it is, except that it says so.
    pub(super) async fn report_undecided(&self, state: &mut PassState) -> Result<(), Failure> {
        let outcome = &mut state.outcome;
        let (Some(subject), Some(failure)) = (outcome.subject.clone(), combined(&outcome.failures)) else {
            return Ok(());
        };
        if self.is_passing(&failure) {
            return Ok(());
        }
        let mut report = Report::of(&subject, &self.controller.shape());
        report.failed(&failure, &subject);
        self.write_status(&subject, report, outcome).await
    }

    /// Says that the user has paused the subject, and leaves everything else in its status alone.
    pub(super) async fn report_paused(&self, subject: &Object, outcome: &mut Outcome) -> Result<(), Failure> {
        if let Some(change) = paused(subject, &self.controller.shape(), self.environment.now()) {
            return self.send_status(subject, change, "paused", outcome).await;
        }
        outcome.status = StatusOutcome::Reported;
        Ok(())
    }

    fn is_passing(&self, failure: &Failure) -> bool {
        failure.class == Class::Transient && self.failures < UNREPORTED
    }

    /// Our last write to an object is the one that the caches must reach, if any of them shows the object.
    pub(super) fn note_write(
        &self,
        outcome: &mut Outcome,
        target: ObjectRef,
        object: Option<&Object>,
        progress: Progress,
    ) {
        if self.stores.shows(&target, object) {
            outcome.seen.remove(&target);
            outcome.written.insert(target, progress);
        } else {
            outcome.unwatched = true;
        }
    }

    async fn write_status(
        &self,
        subject: &Object,
        mut report: Report,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        self.controller.summarize(&mut report, subject.deleting());
        let Some(change) = change(subject, &report, &self.controller.shape(), self.environment.now()) else {
            outcome.status = StatusOutcome::Reported;
            return Ok(());
        };
        if report.urgency == Urgency::Soon && !self.status_due && !stops_being_ready(subject, &report) {
            outcome.status = StatusOutcome::Waits;
            return Ok(());
        }
        let ready = report.get(READY);
        let why = ready.map(|ready| format!("Ready is {}: {}", ready.state.as_str(), ready.reason));
        self.send_status(subject, change, &why.unwrap_or_default(), outcome).await
    }

    async fn send_status(
        &self,
        subject: &Object,
        change: Change,
        why: &str,
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let target = self.target();
        let body = json!({
            "metadata": {"resourceVersion": subject.resource_version(), "uid": subject.uid()},
            "status": change.body,
        });
        let verb = Verb::Merge { body, status: true };
        match self.writer().write(&target, verb, why).await {
            Ok(written) => {
                let version = written.as_ref().map(|o| revision(o.resource_version())).unwrap_or_default();
                self.note_write(outcome, target, written.as_ref(), Progress::Revision(version));
                outcome.news = change.news;
                outcome.subject = written;
                outcome.status = StatusOutcome::Reported;
                Ok(())
            }
            // Somebody wrote to the subject since we looked: its event is on the way and wakes us.
            Err(error) if error.is_stale() => {
                outcome.wake_after = Some(outcome.wake_after.map_or(SOON, |after| after.min(SOON)));
                Ok(())
            }
            Err(error) => Err(Failure::api(&format!("update the status of {target}"), &error)),
        }
    }
}

/// That something no longer serves is never only progress; that it is being deleted shows in its metadata.
fn stops_being_ready(subject: &Object, report: &Report) -> bool {
    let was_ready = subject.condition(READY).is_some_and(|ready| ready["status"] == State::True.as_str());
    let is_ready = report.get(READY).is_some_and(|ready| ready.state == State::True);
    was_ready && !is_ready && !subject.deleting()
}

/// A status never takes back what its own plan has recorded: that is all a crash would leave to go by.
fn keep_records(report: &mut Report, plan: &Plan, subject: &ObjectRef) {
    for step in plan.steps() {
        if let Step::Record(record) = step
            && record.target == *subject
        {
            report.fields.extend(record.fields.clone());
        }
    }
}
