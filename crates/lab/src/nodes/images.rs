//! Images for a node's containerd, from archives. Pulls nothing from anywhere.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::host::run;
use super::machine::{CONTAINERD, CONTAINERD_SOCKET};
use super::node::inside;
use super::plan::NodePlan;
use crate::supervisor::Supervisor;

const PATIENCE: Duration = Duration::from_secs(30);

/// Gives an image to all these nodes, at the same time.
pub(crate) fn import(supervisor: &Supervisor, node_plans: &[NodePlan], archive: &Path) -> Result<()> {
    std::thread::scope(|scope| {
        let import = |node_plan| scope.spawn(move || import_into(supervisor, node_plan, archive));
        let all: Vec<_> = node_plans.iter().map(import).collect();
        for one in all {
            match one.join() {
                Ok(result) => result?,
                Err(_) => bail!("the import of {} was interrupted", archive.display()),
            }
        }
        Ok(())
    })
}

fn import_into(supervisor: &Supervisor, node_plan: &NodePlan, archive: &Path) -> Result<()> {
    wait_for_containerd(supervisor, node_plan)?;
    run(inside(supervisor, node_plan)?
        .args(["ctr", "--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", "images", "import"])
        .arg(archive))
    .with_context(|| format!("node {} did not import {}", node_plan.name, archive.display()))?;
    Ok(())
}

/// Waits until the node's containerd answers.
pub(crate) fn wait_for_containerd(supervisor: &Supervisor, node_plan: &NodePlan) -> Result<()> {
    let started = Instant::now();
    let name = node_plan.program(CONTAINERD);
    loop {
        let answers = inside(supervisor, node_plan)?
            .args(["ctr", "--address", CONTAINERD_SOCKET, "--connect-timeout", "1s", "version"])
            .output()
            .is_ok_and(|output| output.status.success());
        if answers {
            return Ok(());
        }
        if supervisor.has_ended(&name) || started.elapsed() > PATIENCE {
            bail!("{name} does not answer. Its last words:\n{}", supervisor.last_lines(&name));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
