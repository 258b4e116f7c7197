//! The controller of tides in one namespace: reports of each that it has seen it.

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
    type World = ();

    fn name(&self) -> &'static str {
        NAME
    }
    fn kind(&self) -> Kind {
        TIDE
    }
    fn watches(&self) -> Vec<Watch> {
        vec![Watch::subjects(TIDE).in_namespace(&self.namespace)]
    }
    fn shape(&self) -> Shape {
        Shape::of(FIELDS, "Tide", NAME)
    }
    fn observe(&self, _: &Subject<TideSpec, TideStatus>, _: &View<'_>) {}
    fn decide(&self, _: &Subject<TideSpec, TideStatus>, (): &(), _: Timestamp) -> Plan {
        let ready = Condition::new("Ready", State::True, TideReason::Seen, "");
        Plan::none().status(Report::new(&TideStatus::default()).condition(ready))
    }
}
