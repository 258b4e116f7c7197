//! What of each family needs the lab: what `up` shows, and benchmarks. One file for each family; everything else that a family says of
//! itself is in its own crate.

mod efs;

use std::path::Path;

use anyhow::{Context, Result};
use aquifer_family::Family;
use async_trait::async_trait;
use kube::Client;
use serde_json::Value;

use crate::bench::Row;

/// One line for each family.
const LIST: &[&dyn InLab] = &[
    &efs::Efs, //
];

/// A family in the lab.
#[async_trait(?Send)]
pub trait InLab: Sync {
    /// The family's name.
    fn name(&self) -> &'static str;

    /// What the family does to a cluster beyond the objects that users make, as a sentence for `up --context`.
    fn warning(&self) -> &'static str;

    /// kubectl commands that show something worth seeing after the examples are Ready.
    fn try_next(&self, examples: &[Value]) -> Vec<String>;

    /// What a person should know about the cluster when the examples are Ready; one line each.
    async fn remarks(&self, client: &Client) -> Result<Vec<String>>;

    /// What its benchmark measures; none when there is no benchmark.
    fn bench_about(&self) -> Option<&'static str> {
        None
    }

    /// Lets `n` objects be as they are for a while; says what that cost.
    async fn bench_idle(&self, _n: usize, _program: &Path) -> Result<String> {
        anyhow::bail!("{} has no such case", self.name())
    }

    /// Lets one tenant do its worst with `n` objects; says what others notice of it.
    async fn bench_attack(&self, _n: usize, _program: &Path) -> Result<String> {
        anyhow::bail!("{} has no such case", self.name())
    }

    /// Runs its benchmark with `n` objects.
    async fn bench(&self, _n: usize, _program: &Path) -> Result<Vec<Row>> {
        Ok(Vec::new())
    }
}

/// All families.
pub fn all() -> &'static [&'static dyn InLab] {
    LIST
}

/// What a family says of itself.
pub fn described(family: &dyn InLab) -> Result<&'static dyn Family> {
    let name = family.name();
    aquifer_families::named(name).with_context(|| format!("cannot find {name} in the list of families"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_its_file_here() {
        let here: Vec<&str> = all().iter().map(|family| family.name()).collect();
        let listed: Vec<&str> = aquifer_families::all().iter().map(|family| family.name()).collect();
        assert_eq!(here, listed);
    }
}
