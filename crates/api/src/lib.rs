//! Every Kubernetes type that Aquifer uses: ours in full, of others only the part that we touch.
//! Types, names and schemas only: no IO, no decisions.

// Two printed columns of the same type look like a repeated attribute to clippy.
#![allow(clippy::duplicated_attributes)]

pub mod component;
pub mod efs;
pub mod labels;
pub mod openshift;
pub mod shared_file_system;

pub use aquifer_base::Reason;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

/// The definitions of the kinds that families share. They belong to no family and are always installed. The others come from their families.
pub fn shared_crds() -> Vec<CustomResourceDefinition> {
    vec![component::Component::crd()]
}

#[cfg(test)]
mod tests;
