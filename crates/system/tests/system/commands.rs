//! The commands that users give. Judges nothing.

use std::process::{Command, Output};

use anyhow::{Result, ensure};
use aquifer_lab::{Cluster, recipe};

/// Where the operator runs.
pub const OPERATOR: &str = "aquifer-system";
/// The folder of the chart.
pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/aquifer");

pub fn kubectl(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    succeeded(&cluster.kubectl().args(arguments).output()?)
}

pub fn helm(cluster: &Cluster, arguments: &[&str]) -> Result<String> {
    let home = cluster.dir().join("helm");
    let mut command = Command::new(recipe::program("helm")?);
    command.args(arguments);
    command.args(["--namespace", OPERATOR, "--kubeconfig"]).arg(cluster.kubeconfig());
    command.envs(["CACHE", "CONFIG", "DATA"].map(|what| (format!("HELM_{what}_HOME"), home.join(what))));
    succeeded(&command.output()?)
}

pub fn succeeded(done: &Output) -> Result<String> {
    let said = String::from_utf8_lossy(&done.stdout);
    ensure!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    Ok(said.into_owned())
}
