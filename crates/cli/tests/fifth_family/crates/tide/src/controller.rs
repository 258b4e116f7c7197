//! The controller of tides: says of each that it is there.

use aquifer_api::tide::{TideReason, TideSpec, TideStatus};
use aquifer_engine::{Condition, Controller, Kind, Plan, Report, Shape, State, Subject, View, Watch};
use async_trait::async_trait;
use jiff::Timestamp;

use crate::FIELDS;

pub(crate) const NAME: &str = "aquifer-tide-tides";
const TIDE: Kind = Kind::namespaced(aquifer_api::tide::GROUP, "v1alpha1", "Tide", "tides");

pub(crate) struct Tides {
    pub namespace: String,
}

#[async_trait]
impl Controller for Tides {
    type Spec = TideSpec;
    type Status = TideStatus;
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
    fn shape(&self) -> Shape {
        Shape::of(FIELDS, "Tide", NAME)
    }
    fn observe(&self, subject: &Subject<TideSpec, TideStatus>, _: &View<'_>) -> bool {
        *subject.key.namespace == *self.namespace
    }
    fn decide(&self, _: &Subject<TideSpec, TideStatus>, here: &bool, _: Timestamp) -> Plan {
        let state = if *here { State::True } else { State::False };
        let ready = Condition::new("Ready", state, TideReason::Seen, "");
        Plan::none().status(Report::new(&TideStatus::default()).condition(ready))
    }
}
