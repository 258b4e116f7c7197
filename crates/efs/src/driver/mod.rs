//! The controller of the EFS driver: the objects of [`crate::manifests`] are made, kept exactly as they should be, and taken away
//! when the driver is no longer wanted. Its subject is the [`Component`] `efs-driver`,
//! which says what is wanted and what is there.

mod conditions;
mod decide;
mod facts;
mod place;
#[cfg(test)]
mod tests;
mod wanted;
mod world;

use std::time::Duration;

use aquifer_api::component::{Component, ComponentSpec, ComponentStatus};
use aquifer_engine::{Controller, Intent, Key, Kind, Object, Plan, Report, Shape, View, Wakes, Watch};
use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

use crate::fields::FIELDS;
use crate::kinds::{COMPONENT, CRD, CSI_DRIVER, DAEMON_SET, NAMESPACE, SERVICE_ACCOUNT, STORAGE_CLASS};
use crate::manifests::DriverConfig;
use crate::names::driver;
pub use facts::{DefinitionFacts, PartFacts};
pub use place::{Place, PlaceFacts};
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
    /// What the driver's objects depend on.
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
        let wake = |_: &Object| Wakes::Keys(vec![key()]);
        let mut all = vec![
            Watch::subjects(COMPONENT).named(driver::COMPONENT),
            Watch::new(CRD, wake).named(SHARED_VOLUME_CRD).facts(|_| Value::Null),
        ];
        if self.management == Management::External {
            return all; // there are no rights to more
        }
        let namespace = self.config.namespace.as_str();
        let look = |kind: Kind, name: &str| Watch::new(kind, wake).named(name).facts(PlaceFacts::kept);
        let make = |kind: Kind, name: &str| Watch::new(kind, wake).named(name).replaced();
        all.extend([
            look(NAMESPACE, namespace),
            look(SERVICE_ACCOUNT, driver::SERVICE_ACCOUNT).in_namespace(namespace),
            make(DAEMON_SET, driver::DAEMON_SET).in_namespace(namespace),
            make(CSI_DRIVER, driver::DRIVER_NAME),
            make(STORAGE_CLASS, driver::STORAGE_CLASS),
        ]);
        all
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
