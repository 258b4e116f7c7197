//! What the active faults together want with one request. Pure.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::fault::{Action, Fault};
use super::target::{Call, CallKind};

/// What is done with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Verdict {
    #[default]
    Forward,
    Refuse,
    Silence,
    LandsLater(Duration),
    Fail {
        status: StatusCode,
        retry_after: Option<Duration>,
    },
    Gone,
}

/// What happens to the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum After {
    #[default]
    Deliver,
    Cut,
    Timeout,
    Crash,
}

/// All that the active faults want with one request.
#[derive(Default)]
pub(super) struct Decision {
    pub(super) actions: Vec<Action>,
    pub(super) delay: Duration,
    pub(super) verdict: Verdict,
    pub(super) after: After,
    pub(super) lists_as_of: Option<String>,
}

impl Decision {
    /// Adds one fault; says whether it hit, and whether it stays.
    pub(super) fn apply(
        &mut self,
        fault: &mut Fault,
        call: &Call,
        n: Option<u64>,
        crash_now: &mut bool,
    ) -> (bool, bool) {
        const MISS: (bool, bool) = (false, true);
        const ONCE: (bool, bool) = (true, false);
        const HIT: (bool, bool) = (true, true);
        match fault {
            Fault::CrashBefore(at) if n == Some(*at) => {
                *crash_now = true;
                ONCE
            }
            Fault::CrashAfter(at) if n == Some(*at) => {
                self.after = After::Crash;
                ONCE
            }
            Fault::CutReply(at) if n == Some(*at) => {
                if self.after != After::Crash {
                    self.after = After::Cut;
                }
                ONCE
            }
            Fault::Before(at, action) if n == Some(*at) => {
                self.actions.push(Arc::clone(action));
                ONCE
            }
            Fault::Fail { select, status, times, retry_after }
                if self.verdict == Verdict::Forward && *times != Some(0) && select.matches(call) =>
            {
                self.verdict = Verdict::Fail { status: *status, retry_after: *retry_after };
                (true, !used_up(times))
            }
            Fault::FailAfter { select, times }
                if self.after == After::Deliver && *times != Some(0) && select.matches(call) =>
            {
                self.after = After::Timeout;
                (true, !used_up(times))
            }
            Fault::Delay { select, by } if select.matches(call) => {
                self.delay += *by;
                HIT
            }
            Fault::Refuse { select } if select.matches(call) => {
                self.verdict = Verdict::Refuse;
                HIT
            }
            Fault::Silence { select, times }
                if self.verdict == Verdict::Forward && *times != Some(0) && select.matches(call) =>
            {
                self.verdict = Verdict::Silence;
                (true, !used_up(times))
            }
            Fault::LandsLater { select, by, times }
                if self.verdict == Verdict::Forward
                    && call.kind == CallKind::Write
                    && *times != Some(0)
                    && select.matches(call) =>
            {
                self.verdict = Verdict::LandsLater(*by);
                (true, !used_up(times))
            }
            Fault::Gone { resource }
                if call.kind == CallKind::Watch
                    && call.is_resource(resource)
                    && call
                        .query_value("resourceVersion")
                        .is_some_and(|version| !matches!(version, "" | "0"))
                    && self.verdict == Verdict::Forward =>
            {
                self.verdict = Verdict::Gone;
                ONCE
            }
            Fault::HoldWatch { resource, lists_as_of: Some(version) }
                if call.is_list() && call.is_resource(resource) =>
            {
                self.lists_as_of = Some(version.clone());
                HIT
            }
            _ => MISS,
        }
    }
}

/// Takes one off a count; says whether nothing is left.
fn used_up(times: &mut Option<u32>) -> bool {
    let Some(left) = times else { return false };
    *left = left.saturating_sub(1);
    *left == 0
}
