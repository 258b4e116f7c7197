//! The one list of all families. The command line, the chart, `install`, the proof of rights, `cargo xtask up` and `bench` go
//! through it. Knows nothing about any family but its place in the list.

#[cfg(test)]
mod tests;

use aquifer_family::Family;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

// Each family's crate, for what needs more of it than its description: tests, and the lab's examples and benchmarks.
pub use aquifer_efs as efs;

/// One line for each family, in the order in which they are shown.
const LIST: &[fn() -> &'static dyn Family] = &[
    aquifer_efs::family, //
];

/// The families that run when nobody chooses.
pub const DEFAULT: &[&str] = &["efs"];

/// All families.
pub fn all() -> Vec<&'static dyn Family> {
    LIST.iter().map(|family| family()).collect()
}

/// The family of this name.
pub fn named(name: &str) -> Option<&'static dyn Family> {
    all().into_iter().find(|family| family.name() == name)
}

/// The families that run when nobody chooses.
pub fn default() -> Vec<&'static dyn Family> {
    DEFAULT.iter().filter_map(|name| named(name)).collect()
}

/// The definitions that these families need: the kinds that families share, and their own; sorted by name, so that printed files do not move.
pub fn crds(families: &[&dyn Family]) -> Vec<CustomResourceDefinition> {
    let mut all = aquifer_api::shared_crds();
    all.extend(families.iter().flat_map(|family| family.kinds()));
    all.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    all
}
