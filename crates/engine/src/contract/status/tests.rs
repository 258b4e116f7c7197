//! Statuses: what is written, what is not, and what people see of failures.

use super::*;

aquifer_base::reasons! {
    enum Why {
        R,
    }
}
use Why::R;

fn shape() -> Shape {
    Shape { fields: vec!["phase", "ref"], conditions: vec!["Ready", "Odd"], ..Shape::default() }
}

fn subject(status: &Value) -> Object {
    Object(json!({"metadata": {"generation": 3}, "status": status}))
}

fn ready(state: State) -> Report {
    Report::new(&json!({"phase": "P"})).condition(Condition::new("Ready", state, R, "m"))
}

fn applied(on: &Object, change: &Change) -> Object {
    let mut doc = on.0.clone();
    crate::merge::merge(&mut doc, &json!({"status": change.body}));
    Object(doc)
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn a_written_status_needs_no_second_write() {
    let before = subject(&json!({}));
    let first = change(&before, &ready(State::False), &shape(), at(0)).unwrap();
    let after = applied(&before, &first);
    assert_eq!(change(&after, &ready(State::False), &shape(), at(99)), None);
}

#[test]
fn a_schema_without_observed_generation_gets_none_and_needs_no_second_write() {
    let cases = [(ObservedGeneration::StatusOnly, Some(3)), (ObservedGeneration::Nowhere, None)];
    for (generation, expected) in cases {
        let shape = shape().observed_generation(generation);
        let before = subject(&json!({}));
        let first = change(&before, &ready(State::False), &shape, at(0)).unwrap();
        assert_eq!(first.body.get(GENERATION).and_then(Value::as_i64), expected);
        assert_eq!(first.body["conditions"][0].get(GENERATION), None);
        let after = applied(&before, &first);
        assert_eq!(change(&after, &ready(State::False), &shape, at(99)), None);
        let paused = paused(&after, &shape, at(99)).unwrap();
        assert!(!paused.body.to_string().contains(GENERATION), "{}", paused.body);
    }
}

#[test]
fn the_transition_time_moves_only_with_the_state() {
    let first = applied(
        &subject(&json!({})),
        &change(&subject(&json!({})), &ready(State::False), &shape(), at(0)).unwrap(),
    );
    let mut reworded = ready(State::False);
    reworded.conditions[0].message = "other".into();
    let second = applied(&first, &change(&first, &reworded, &shape(), at(50)).unwrap());
    assert_eq!(second.text("/status/conditions/0/lastTransitionTime"), "1970-01-01T00:00:00Z");
    let third = applied(&second, &change(&second, &ready(State::True), &shape(), at(50)).unwrap());
    assert_eq!(third.text("/status/conditions/0/lastTransitionTime"), "1970-01-01T00:00:50Z");
}

#[test]
fn fields_and_conditions_of_others_stay_and_ours_go_when_unsaid() {
    let before = subject(&json!({
        "phase": "Old", "theirs": 1, "ref": {"name": "a", "uid": "b"}, "observedGeneration": 3,
        "conditions": [{"type": "Theirs", "status": "True"}, {"type": "Odd", "status": "True"}],
    }));
    let mut wanted = ready(State::True);
    wanted.fields.insert("ref".into(), json!({"name": "a"}));
    let after = applied(&before, &change(&before, &wanted, &shape(), at(0)).unwrap());
    assert_eq!(after.at("/status/theirs"), Some(&json!(1)));
    assert_eq!(after.at("/status/ref"), Some(&json!({"name": "a"})));
    let kinds: Vec<_> =
        after.at("/status/conditions").unwrap().as_array().unwrap().iter().map(|c| text(c, "type")).collect();
    assert_eq!(kinds, ["Theirs", "Ready"]);
}

#[test]
fn a_condition_that_is_not_in_the_shape_is_not_written() {
    let before = subject(&json!({"observedGeneration": 3, "phase": "P"}));
    let status = Report::new(&json!({"phase": "P"})).condition(Condition::new("Theirs", State::True, R, "m"));
    assert_eq!(change(&before, &status, &shape(), at(0)), None);
}

#[test]
fn a_long_message_is_cut_once_and_then_stays() {
    let before = subject(&json!({}));
    let mut status = ready(State::False);
    status.conditions[0].message = "ä".repeat(2000);
    let after = applied(&before, &change(&before, &status, &shape(), at(0)).unwrap());
    assert_eq!(change(&after, &status, &shape(), at(1)), None);
}

#[test]
fn a_typed_status_says_what_is_set_and_nothing_of_the_engines_or_of_others() {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed {
        phase: Option<&'static str>,
        r#ref: Option<&'static str>,
        theirs: u64,
        observed_generation: i64,
        conditions: Vec<u64>,
    }
    let typed =
        Typed { phase: Some("P"), r#ref: None, theirs: 7, observed_generation: 1, conditions: vec![1] };
    let before = subject(&json!({"ref": "old", "theirs": 1, "observedGeneration": 3}));
    let change = change(&before, &Report::new(&typed), &shape(), at(0)).unwrap();
    assert_eq!(change.body, json!({"phase": "P", "ref": null}));
}

#[test]
fn the_shape_comes_from_the_table_of_writers() {
    const US: Writer = Writer::Controller("us");
    let table = [
        Field::of("Thing", "spec.size", Writer::User),
        Field::of("Thing", "metadata.finalizers", US),
        Field::of("Thing", "status.phase", US),
        Field::of("Thing", "status.ref", US),
        Field::of("Thing", "status.observedGeneration", US),
        Field::of("Thing", "status.conditions[Ready]", US),
        Field::of("Thing", "status.conditions[Odd]", US),
        Field::of("Thing", "status.theirs", Writer::Controller("them")),
        Field::of("Other", "status.more", US),
    ];
    assert_eq!(Shape::of(&table, "Thing", "us"), shape());
}
#[test]
fn a_field_that_is_a_map_is_changed_key_by_key() {
    let before = subject(&json!({"phase": "P", "ref": {"a": 1, "b": {"c": 1, "d": 2}, "gone": 3},
        "observedGeneration": 3}));
    let wanted = Report::new(&json!({"phase": "P", "ref": {"a": 1, "b": {"c": 1, "d": 4}, "new": 5}}));
    let change = change(&before, &wanted, &shape(), at(0)).unwrap();
    assert_eq!(change.body, json!({"ref": {"b": {"d": 4}, "gone": null, "new": 5}}));
}

#[test]
fn a_message_is_cut_at_the_limit_and_between_characters() {
    let table =
        [("abc", 3, "abc"), ("abcd", 3, "abc"), ("aäb", 2, "a"), ("aäb", 3, "aä"), ("ä", 1, ""), ("", 3, "")];
    for (text, limit, kept) in table {
        assert_eq!(cut(text, limit), kept, "{text} at {limit}");
    }
}

#[test]
fn a_condition_that_was_read_says_its_state_and_its_reason_where_we_know_it() {
    let condition = |kind: &str, status: &str, reason: &str| meta::Condition {
        type_: kind.into(),
        status: status.into(),
        reason: reason.into(),
        message: String::new(),
        observed_generation: None,
        last_transition_time: meta::Time(at(0)),
    };
    let read = [
        condition("Odd", "False", "Theirs"),
        condition("Ready", "True", "R"),
        condition("Other", "Maybe", "R"),
    ];
    let table = [
        ("Odd", Some(State::False), None),
        ("Ready", Some(State::True), Some(R)),
        ("Other", Some(State::Unknown), Some(R)),
        ("Absent", None, None),
    ];
    for (kind, state, reason) in table {
        assert_eq!((state_in(&read, kind), reason_in::<Why>(&read, kind)), (state, reason), "{kind}");
    }
    let ours = Condition::new("Ready", State::True, R, "m");
    assert_eq!((ours.reason::<Why>(), ours.reason::<crate::FailureReason>()), (Some(R), None));
}

#[test]
fn only_a_condition_that_comes_about_is_news_and_only_if_it_is_worth_an_event() {
    let table = [
        (ready(State::False).conditions.remove(0), 0, "not worth an event"),
        (ready(State::False).conditions.remove(0).warning(), 1, "it comes about"),
    ];
    for (condition, events, what) in table {
        let report = Report::new(&json!({"phase": "P"})).condition(condition);
        let before = subject(&json!({}));
        let first = change(&before, &report, &shape(), at(0)).unwrap();
        assert_eq!(first.news.len(), events, "{what}");
        let mut reworded = report.clone();
        reworded.conditions[0].message = "other".into();
        let second = change(&applied(&before, &first), &reworded, &shape(), at(0)).unwrap();
        assert_eq!(second.news, [], "only its message has changed");
    }
}

#[test]
fn types_of_events_are_the_words_of_kubernetes() {
    assert_eq!([EventType::Normal, EventType::Warning].map(EventType::as_str), ["Normal", "Warning"]);
}

#[test]
fn another_state_for_the_same_reason_is_news() {
    let report = |state| Report::new(&json!({})).condition(Condition::new("Ready", state, R, "m").warning());
    let before = subject(&json!({}));
    let after = applied(&before, &change(&before, &report(State::True), &shape(), at(0)).unwrap());
    assert_eq!(change(&after, &report(State::False), &shape(), at(1)).unwrap().news.len(), 1);
}
