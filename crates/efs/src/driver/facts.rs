//! What decisions need to know of the driver's objects and of the definition of SharedVolumes. Reads, does not judge.

use aquifer_api::component::NodeCounts;
use aquifer_engine::{Identity, OWNER, OWNER_UID, Object};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One object of the driver as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartFacts {
    /// Its uid and version.
    pub identity: Identity,
    /// The owner that its mark names.
    pub owner: Option<String>,
    /// The uid of that owner, by another mark.
    pub owner_uid: Option<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// On how many nodes it should run and does; 0 for what does not run on nodes.
    pub nodes: NodeCounts,
}

/// The definition of SharedVolumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefinitionFacts {
    /// Whether it is being deleted, and all SharedVolumes with it.
    pub deleting: bool,
}

impl PartFacts {
    /// Reads an object of the driver.
    pub(super) fn of(object: &Object) -> Self {
        let number = |pointer: &str| object.at(pointer).and_then(Value::as_i64).unwrap_or_default();
        Self {
            identity: object.identity(),
            owner: object.annotation(OWNER).map(str::to_owned),
            owner_uid: object.label(OWNER_UID).map(str::to_owned),
            deleting: object.deleting(),
            nodes: NodeCounts {
                wanted: number("/status/desiredNumberScheduled"),
                ready: number("/status/numberReady"),
            },
        }
    }
}

impl DefinitionFacts {
    /// Reads the definition.
    pub(super) fn of(object: &Object) -> Self {
        Self { deleting: object.deleting() }
    }
}
