//! `Tide`: a kind that exists only in a test.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// API group of [`Tide`].
pub const GROUP: &str = "tides.example";

/// What the user asks for.
#[derive(CustomResource, Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
#[kube(group = "tides.example", version = "v1alpha1", kind = "Tide", plural = "tides", namespaced, status = "TideStatus")]
pub struct TideSpec {
    /// How high.
    pub height: i64,
}

/// What the world shows.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default)]
#[serde(rename_all = "camelCase")]
pub struct TideStatus {
    /// Ready.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status is about.
    pub observed_generation: Option<i64>,
}

aquifer_base::reasons! {
    /// The reasons in the conditions of a tide.
    pub enum TideReason {
        /// It was looked at.
        Seen,
    }
}
