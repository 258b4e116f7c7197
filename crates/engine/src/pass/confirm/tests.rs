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
