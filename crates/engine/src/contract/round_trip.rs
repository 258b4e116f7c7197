//! Subjects and plans can be sent to another process and back: nothing of them is lost in JSON.

use std::time::Duration;

use aquifer_base::{ResourceVersion, Uid};
use jiff::Timestamp;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::intent::Intent;
use crate::object::{Identity, Key, Kind, ObjectRef};
use crate::plan::{
    Amend, Child, Deletion, Effect, Expect, Finalizer, Mint, Plan, Record, Recreate, Seal, Stage, Step,
};
use crate::question::Question;
use crate::seen::{Seen, Why};
use crate::status::{Condition, EventType, Report, State, Urgency};
use crate::subject::{Marks, Present, Subject, Unreadable};

fn round_trips<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    let text = serde_json::to_string(value).expect("it is data");
    let back: T = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(back, *value, "{text}");
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{0,6}", ".{0,4}"]
}

/// Numbers of Kubernetes objects are whole.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |below| {
        prop_oneof![
            prop::collection::vec(below.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(text(), below, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn fields() -> impl Strategy<Value = Map<String, Value>> {
    prop::collection::btree_map(text(), json(), 0..3).prop_map(|map| map.into_iter().collect())
}

fn key() -> impl Strategy<Value = Key> {
    (text(), text()).prop_map(|(namespace, name)| Key::namespaced(namespace, name))
}

fn target() -> impl Strategy<Value = ObjectRef> {
    let kind = (text(), text(), text(), text(), any::<bool>());
    (kind, key()).prop_map(|((group, version, kind, plural, namespaced), key)| ObjectRef {
        kind: Kind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            plural: plural.into(),
            namespaced,
        },
        key,
    })
}

fn identity() -> impl Strategy<Value = Identity> {
    (text(), text())
        .prop_map(|(uid, version)| Identity { uid: Uid::new(uid), version: ResourceVersion::new(version) })
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    (-60_000_000_000_i64..200_000_000_000, 0..1_000_000_000)
        .prop_map(|(second, nanosecond)| Timestamp::new(second, nanosecond).unwrap_or_default())
}

fn child() -> impl Strategy<Value = Child> {
    let expect = prop_oneof![
        Just(Expect::Absent),
        text().prop_map(|uid| Expect::Uid(Uid::new(uid))),
        identity().prop_map(Expect::Version)
    ];
    (target(), json(), expect, fields()).prop_map(|(target, intent, expect, fields)| {
        Child::new(target, Intent::of(&intent), expect).only_at_creation(fields)
    })
}

fn labels() -> impl Strategy<Value = std::collections::BTreeMap<String, String>> {
    prop::collection::btree_map(text(), text(), 0..3)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        child().prop_map(Step::Apply),
        (child(), prop::collection::vec(text(), 0..3), any::<bool>()).prop_map(|(child, tolerate, again)| {
            let recreate = if again { Recreate::Allowed } else { Recreate::Never };
            Step::Replace { child, tolerate, recreate }
        }),
        (target(), identity(), any::<bool>()).prop_map(|(target, seen, with_owner)| Step::Delete(Deletion {
            target,
            seen,
            with_owner
        })),
        (key(), text(), labels()).prop_map(|(secret, recipe, labels)| Step::Mint(Mint {
            secret,
            recipe,
            labels
        })),
        (key(), text(), json(), prop::collection::vec(key(), 0..3), labels(), text()).prop_map(
            |(secret, recipe, arguments, sources, labels, secret_type)| {
                Step::Seal(Seal { secret, recipe, arguments, sources, labels, secret_type })
            }
        ),
        (target(), identity(), fields(), any::<bool>(), any::<bool>()).prop_map(
            |(target, seen, patch, status, optional)| {
                Step::Amend(Amend { target, seen, patch, status, optional })
            }
        ),
        (target(), identity(), fields()).prop_map(|(target, seen, fields)| Step::Record(Record {
            target,
            seen,
            fields
        })),
        (text(), text(), json(), any::<bool>(), text(), any::<Option<u32>>()).prop_map(
            |(operation, key, arguments, destroys, target, seconds)| {
                let outdates = vec![Question::new(&target, &*operation)];
                let deadline = seconds.map(|seconds| Duration::from_secs(seconds.into()));
                Step::Effect(Effect { operation, key, arguments, destroys, outdates, target, deadline })
            }
        ),
    ]
}

fn condition() -> impl Strategy<Value = Condition> {
    let state = prop_oneof![Just(State::True), Just(State::False), Just(State::Unknown)];
    let event = prop_oneof![Just(None), Just(Some(EventType::Normal)), Just(Some(EventType::Warning))];
    (text(), state, text(), text(), event).prop_map(|(kind, state, reason, message, event)| Condition {
        kind,
        state,
        reason,
        message,
        event,
    })
}

fn report() -> impl Strategy<Value = Report> {
    let urgency = prop_oneof![Just(Urgency::Now), Just(Urgency::Soon)];
    (fields(), prop::collection::vec(condition(), 0..3), urgency)
        .prop_map(|(fields, conditions, urgency)| Report { fields, conditions, urgency })
}

fn plan() -> impl Strategy<Value = Plan> {
    let finalizer = prop_oneof![
        Just(Finalizer::Leave),
        Just(Finalizer::Hold),
        Just(Finalizer::Release),
        Just(Finalizer::ReleaseProved)
    ];
    let stage = prop::collection::vec(step(), 0..3).prop_map(|steps| Stage { steps });
    let after = (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos));
    (
        finalizer,
        prop::collection::vec(stage, 0..3),
        prop::collection::vec(target(), 0..3),
        prop::option::of(report()),
        prop::option::of(after),
        any::<bool>(),
    )
        .prop_map(|(finalizer, stages, keep, status, wake_after, looks_again)| Plan {
            finalizer,
            stages,
            keep,
            status,
            wake_after,
            looks_again,
        })
}

fn subject() -> impl Strategy<Value = Subject<Value, Value>> {
    let marks = || prop::collection::btree_map(text(), text(), 0..3);
    let spec = prop_oneof![
        json().prop_map(Ok),
        (text(), text()).prop_map(|(path, why)| Err(Unreadable { path, why })),
    ];
    let finalizers = prop::collection::vec(text(), 0..3);
    let rest = (identity(), any::<i64>(), prop::option::of(timestamp()), finalizers);
    let present = (rest, marks(), marks(), spec, json()).prop_map(
        |((identity, generation, deleting, finalizers), labels, annotations, spec, status)| Present {
            uid: identity.uid,
            version: identity.version,
            generation,
            deleting,
            finalizers,
            marks: Marks { labels, annotations },
            spec,
            status,
        },
    );
    (key(), prop::option::of(present)).prop_map(|(key, object)| Subject { key, object })
}

fn seen() -> impl Strategy<Value = Seen<Option<u64>>> {
    let why = prop_oneof![
        Just(Why::NotSynced),
        Just(Why::NotServed),
        Just(Why::Reading),
        text().prop_map(Why::Unreachable),
    ];
    prop_oneof![
        (prop::option::of(any::<u64>()), timestamp())
            .prop_map(|(value, read_at)| Seen::Known { value, read_at }),
        why.prop_map(Seen::Unknown),
    ]
}

proptest! {
    #[test]
    fn plans_round_trip(plan in plan()) {
        round_trips(&plan);
    }

    #[test]
    fn subjects_round_trip(subject in subject()) {
        round_trips(&subject);
    }

    #[test]
    fn what_is_known_and_what_is_not_round_trips(seen in seen()) {
        round_trips(&seen);
    }
}
