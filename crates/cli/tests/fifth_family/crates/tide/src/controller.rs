//! The controller of tides: says of each that it is there.

use aquifer_engine::{
    ChildKind, Condition, Controller, Kind, Plan, Shape, State, Status, Subject, View, Watch,
};
use async_trait::async_trait;
use jiff::Timestamp;

pub(crate) const NAME: &str = "aquifer-tide-tides";
const TIDE: Kind = Kind::namespaced(aquifer_api::tide::GROUP, "v1alpha1", "Tide", "tides");

pub(crate) struct Tides {
    pub namespace: String,
}

#[async_trait]
impl Controller for Tides {
    type World = bool;

    fn name(&self) -> &'static str {
        NAME
    }
    fn kind(&self) -> Kind {
        TIDE
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(TIDE)]
    }
    fn children(&self) -> Vec<ChildKind> {
        Vec::new()
    }
    fn shape(&self) -> Shape {
        Shape { fields: &[], conditions: &["Ready"] }
    }
    fn observe(&self, subject: &Subject, _: &View<'_>) -> bool {
        *subject.key.namespace == *self.namespace
    }
    fn decide(&self, _: &Subject, here: &bool, _: Timestamp) -> Plan {
        let ready = if *here { State::True } else { State::False };
        Plan::none().status(Status::default().condition(Condition::new("Ready", ready, "Seen", "")))
    }
}
