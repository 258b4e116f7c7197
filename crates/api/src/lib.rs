//! Every Kubernetes type that Aquifer speaks: ours in full, of others only the part that we touch.
//! Types, names and schemas only: no IO, no decisions.

// Two printed columns of the same type look like a repeated attribute to clippy.
#![allow(clippy::duplicated_attributes)]

pub mod component;
pub mod driver;
pub mod efs;
pub mod labels;
pub mod openshift;
pub mod roles;
pub mod writers;

pub use aquifer_base::Reason;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// The definitions of all kinds of ours, sorted by name, so that printed files do not move.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut all = vec![component::Component::crd(), efs::SharedVolume::crd()];
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}

#[cfg(test)]
mod tests;
