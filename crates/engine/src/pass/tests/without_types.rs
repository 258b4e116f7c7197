//! A controller without its types says what it says with them.

use super::*;

#[derive(Default, serde::Serialize, serde::Deserialize)]
struct Status {
    phase: Option<String>,
    note: Option<String>,
}

/// Sums up in `phase` whether it is ready, and clears `note`.
struct Summing;

impl Controller for Summing {
    type Spec = Spec;
    type Status = Status;
    type World = ();

    fn name(&self) -> &'static str {
        "summing"
    }
    fn kind(&self) -> Kind {
        SUBJECT
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(SUBJECT)]
    }
    fn shape(&self) -> Shape {
        Shape { fields: vec!["phase", "note"], conditions: vec!["Ready"], ..Shape::default() }
    }
    fn observe(&self, _: &SubjectOf<Self>, _: &View<'_>) {}
    fn decide(&self, _: &SubjectOf<Self>, (): &(), _: Timestamp) -> Plan {
        Plan::none()
    }
    fn summarize(&self, report: &Report, deleting: bool, status: &mut Status) {
        let ready = report.get("Ready").is_some_and(|ready| ready.state == State::True);
        status.phase = Some(
            if ready {
                "Ready"
            } else if deleting {
                "Going"
            } else {
                "Pending"
            }
            .to_owned(),
        );
        status.note = None;
    }
    fn bootstrap(&self) -> Vec<Intent> {
        vec![Intent::of(&json!({"metadata": {"name": "x"}}))]
    }
    fn longest_backoff(&self) -> Option<Duration> {
        Some(Duration::from_secs(7))
    }
    fn resync(&self) -> Duration {
        Duration::from_secs(8)
    }
}

#[test]
fn a_summary_changes_and_clears_what_it_sums_up_and_leaves_all_else_as_it_was_reported() {
    let report = |ready: State| {
        let fields = json!({"phase": "Old", "note": "old", "unknown": {"kept": 1}});
        Report::new(&fields).condition(Condition::new("Ready", ready, R, "m"))
    };
    for (ready, deleting, phase) in
        [(State::True, true, "Ready"), (State::False, true, "Going"), (State::False, false, "Pending")]
    {
        let mut summed = report(ready);
        Erased::summarize(&Summing, &mut summed, deleting);
        let wanted = json!({"phase": phase, "unknown": {"kept": 1}});
        assert_eq!(Value::Object(summed.fields), wanted, "{phase}");
    }
}

#[test]
fn what_a_controller_wishes_for_reaches_the_engine() {
    let erased: &dyn Erased = &Summing;
    assert_eq!(erased.longest_backoff(), Some(Duration::from_secs(7)));
    assert_eq!(erased.resync(), Duration::from_secs(8));
    assert_eq!(erased.bootstrap(), [json!({"metadata": {"name": "x"}})]);
}
