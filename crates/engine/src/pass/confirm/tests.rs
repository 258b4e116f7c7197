//! Nothing is destroyed on the word of a cache: caches of two kinds can disagree.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::model::{Model, Sim};
use crate::object::{Key, Kind, Object, ObjectRef};
use crate::{Controller, Plan, Seen, Shape, Step, SubjectOf, View, Watch};

const SUBJECT: Kind = Kind::namespaced("test.aquifer.storage", "v1", "Subject", "subjects");
const LEFT: Kind = Kind::namespaced("test.aquifer.storage", "v1", "Left", "lefts");
const RIGHT: Kind = Kind::namespaced("test.aquifer.storage", "v1", "Right", "rights");

/// Deletes the left half of a pair whose halves say different things.
struct Pairs;

#[async_trait]
impl Controller for Pairs {
    type Spec = Value;
    type Status = Value;
    type World = (Seen<Option<Object>>, Seen<Option<Object>>);

    fn name(&self) -> &'static str {
        "pairs"
    }
    fn kind(&self) -> Kind {
        SUBJECT
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(SUBJECT), Watch::children(LEFT), Watch::children(RIGHT)]
    }
    fn shape(&self) -> Shape {
        Shape { fields: Vec::new(), conditions: Vec::new() }
    }
    fn observe(&self, subject: &SubjectOf<Self>, view: &View<'_>) -> Self::World {
        (view.cached(&LEFT.key(&subject.key)), view.cached(&RIGHT.key(&subject.key)))
    }
    fn decide(&self, subject: &SubjectOf<Self>, (left, right): &Self::World, _: Timestamp) -> Plan {
        match (left.present(), right.present()) {
            (Some(left), Some(right)) if left.text("/says") != right.text("/says") => {
                Plan::none().stage(vec![Step::delete(LEFT.key(&subject.key), left.identity())])
            }
            _ => Plan::none(),
        }
    }
}

fn pair() -> (Sim<Pairs>, ObjectRef, ObjectRef) {
    let key = Key::namespaced("ns", "a");
    let model = Arc::new(Model::default());
    for kind in [SUBJECT, LEFT, RIGHT] {
        model.put(&kind, json!({"metadata": {"namespace": "ns", "name": "a"}, "says": "old"}));
    }
    (Sim::new(Pairs, model), LEFT.key(&key), RIGHT.key(&key))
}

#[tokio::test]
async fn what_only_a_lagging_cache_shows_as_broken_is_left_alone() {
    let (sim, left, right) = pair();
    sim.freeze(&RIGHT);
    for half in [&left, &right] {
        sim.model.edit(half, |doc| doc["says"] = json!("new"));
    }
    sim.settle().await;
    assert!(sim.model.object(&left).is_some(), "{:?}", sim.model.log());
}

#[tokio::test]
async fn what_is_broken_is_taken_away() {
    let (sim, left, right) = pair();
    sim.model.edit(&right, |doc| doc["says"] = json!("new"));
    sim.settle().await;
    assert!(sim.model.object(&left).is_none(), "{:?}", sim.model.log());
}

/// Deletes what stands at the child's name as soon as the subject is being deleted, without a look at whose it is.
struct Careless;

#[async_trait]
impl Controller for Careless {
    type Spec = Value;
    type Status = Value;
    type World = Seen<Option<Object>>;

    fn name(&self) -> &'static str {
        "careless"
    }
    fn kind(&self) -> Kind {
        SUBJECT
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(SUBJECT), Watch::children(LEFT)]
    }
    fn shape(&self) -> Shape {
        Shape { fields: Vec::new(), conditions: Vec::new() }
    }
    fn observe(&self, subject: &SubjectOf<Self>, view: &View<'_>) -> Self::World {
        view.cached(&LEFT.key(&subject.key))
    }
    fn decide(&self, subject: &SubjectOf<Self>, child: &Self::World, _: Timestamp) -> Plan {
        let ends = subject.object.as_ref().is_some_and(|subject| subject.deleting.is_some());
        match child.present().filter(|_| ends) {
            Some(child) => Plan::none().stage(vec![Step::delete(LEFT.key(&subject.key), child.identity())]),
            None => Plan::none(),
        }
    }
}

/// A subject that is being deleted, and a child that carries the uid that `owner` makes of the subject's.
fn ending(owner: impl Fn(&str) -> String) -> (Sim<Careless>, ObjectRef, ObjectRef) {
    let key = Key::namespaced("ns", "a");
    let model = Arc::new(Model::default());
    let body = json!({"metadata": {"namespace": "ns", "name": "a", "finalizers": ["f"]}});
    let uid = model.put(&SUBJECT, body).uid().to_owned();
    let marks = json!({crate::intent::OWNER_UID: owner(&uid)});
    let owner = json!({crate::intent::OWNER: "ns/a"});
    model.put(
        &LEFT,
        json!({"metadata": {"namespace": "ns", "name": "a", "labels": marks, "annotations": owner}}),
    );
    model.delete(&SUBJECT.key(&key));
    (Sim::new(Careless, model), SUBJECT.key(&key), LEFT.key(&key))
}

#[tokio::test]
async fn what_carries_the_uid_of_a_subject_that_is_being_deleted_goes() {
    let (sim, _, child) = ending(str::to_owned);
    sim.settle().await;
    assert!(sim.model.object(&child).is_none(), "{:?}", sim.model.log());
}

#[tokio::test]
async fn the_child_of_a_successor_stays_while_a_cache_still_shows_the_one_that_was_deleted() {
    let (sim, subject, child) = ending(|_| "the-successor".to_owned());
    sim.freeze(&SUBJECT);
    sim.model.edit(&subject, |doc| doc["metadata"]["finalizers"] = json!([]));
    sim.model.put(&SUBJECT, json!({"metadata": {"namespace": "ns", "name": "a"}}));
    sim.settle().await;
    assert!(sim.model.object(&child).is_some(), "{:?}", sim.model.log());
}
