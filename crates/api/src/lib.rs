//! Every Kubernetes type that Aquifer uses: ours in full, of others only the part that we touch.
//! Types, names and schemas only: no IO, no decisions.

// Two printed columns of the same type look like a repeated attribute to clippy.
#![allow(clippy::duplicated_attributes)]

pub mod component;
pub mod efs;
pub mod labels;
pub mod openshift;

pub use aquifer_base::Reason;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// The definitions of all kinds of ours, sorted by name, so that printed files do not move.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut all = shared_crds();
    all.push(efs::SharedVolume::crd());
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}

/// The definitions of the kinds that families share. They belong to no family and are always installed.
pub fn shared_crds() -> Vec<CustomResourceDefinition> {
    vec![component::Component::crd()]
}

#[cfg(test)]
mod tests;
