//! The controller of the EFS driver: the objects of [`crate::manifests`] are made, kept exactly as they should be, and taken away
//! when the driver is no longer wanted. Its subject is the [`Component`] `efs-driver`,
//! which says what is wanted and what is there.

mod conditions;
mod decide;
mod facts;
#[cfg(test)]
mod tests;
mod wanted;
mod world;

use std::time::Duration;

use aquifer_api::component::{Component, ComponentSpec, ComponentStatus};
use aquifer_engine::{Controller, Intent, Key, Kind, Plan, Report, Shape, View, Wakes, Watch};
use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use crate::fields::FIELDS;
use crate::kinds::{
    CLUSTER_ROLE, CLUSTER_ROLE_BINDING, COMPONENT, CRD, CSI_DRIVER, DAEMON_SET, NAMESPACE,
    SECURITY_CONTEXT_CONSTRAINTS, SERVICE_ACCOUNT, STORAGE_CLASS,
};
use crate::manifests::DriverConfig;
use crate::names::driver;
pub use facts::{DefinitionFacts, NodeCounts, PartFacts};
pub use world::World;

type Subject = aquifer_engine::Subject<ComponentSpec, ComponentStatus>;

/// Field manager and name in logs and metrics.
pub const NAME: &str = "aquifer-efs-driver";
/// The CRD whose end is the end of the driver.
pub const SHARED_VOLUME_CRD: &str = aquifer_api::efs::CRD_NAME;

/// Who looks after the driver's objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Management {
    /// We do.
    #[default]
    Managed,
    /// Another owner does; we make nothing.
    External,
}

/// The controller.
#[derive(Clone, Debug, Default)]
pub struct Driver {
    /// What the driver's objects depend on; what the cluster is like is filled in by looking.
    pub config: DriverConfig,
    /// Who looks after them.
    pub management: Management,
}

#[async_trait]
impl Controller for Driver {
    type Spec = ComponentSpec;
    type Status = ComponentStatus;
    type World = World;

    fn name(&self) -> &'static str {
        NAME
    }

    fn kind(&self) -> Kind {
        COMPONENT
    }

    fn watches(&self) -> Vec<Watch> {
        let one =
            |kind: Kind, name: &str| Watch::new(kind, |_| Wakes::Keys(vec![key()])).named(name).replaced();
        vec![
            Watch::subjects(COMPONENT).named(driver::COMPONENT),
            Watch::new(CRD, |_| Wakes::Keys(vec![key()])).named(SHARED_VOLUME_CRD).facts(|_| Value::Null),
            one(NAMESPACE, self.config.namespace.as_str()),
            one(SERVICE_ACCOUNT, driver::SERVICE_ACCOUNT).in_namespace(self.config.namespace.as_str()),
            one(CLUSTER_ROLE, driver::CLUSTER_ROLE),
            one(CLUSTER_ROLE_BINDING, driver::CLUSTER_ROLE_BINDING),
            one(SECURITY_CONTEXT_CONSTRAINTS, driver::SECURITY_CONTEXT_CONSTRAINTS),
            one(DAEMON_SET, driver::DAEMON_SET).in_namespace(self.config.namespace.as_str()),
            one(CSI_DRIVER, driver::DRIVER_NAME),
            one(STORAGE_CLASS, driver::STORAGE_CLASS),
        ]
    }

    fn shape(&self) -> Shape {
        Shape::of(FIELDS, &COMPONENT.kind, NAME)
    }

    fn observe(&self, subject: &Subject, view: &View<'_>) -> World {
        world::observe(self, subject, view)
    }

    fn decide(&self, subject: &Subject, world: &World, _now: Timestamp) -> Plan {
        decide::decide(self, subject, world)
    }

    fn summarize(&self, report: &Report, _deleting: bool, status: &mut ComponentStatus) {
        conditions::summarize(report, status);
    }

    fn longest_backoff(&self) -> Option<Duration> {
        Some(Duration::from_secs(10)) // one object that cannot be written must not delay the repair of the others
    }

    fn bootstrap(&self) -> Vec<Intent> {
        vec![Intent::of(&Component::new(driver::COMPONENT, ComponentSpec::default()))]
    }
}

/// The key of the one subject.
fn key() -> Key {
    Key::cluster(driver::COMPONENT)
}
