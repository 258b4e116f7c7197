//! Images for a node's containerd, from archives. Pulls nothing from anywhere.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::host::run;
use super::machine::{CONTAINERD, CONTAINERD_SOCKET};
use super::node::inside;
use super::plan::Spot;
use crate::keeper::Keeper;

const PATIENCE: Duration = Duration::from_secs(30);

/// Gives an image to all these nodes, at the same time.
pub(crate) fn import(keeper: &Keeper, spots: &[Spot], archive: &Path) -> Result<()> {
    std::thread::scope(|scope| {
        let import = |spot| scope.spawn(move || import_into(keeper, spot, archive));
        let all: Vec<_> = spots.iter().map(import).collect();
        for one in all {
            match one.join() {
                Ok(result) => result?,
                Err(_) => bail!("the import of {} was interrupted", archive.display()),
            }
        }
        Ok(())
    })
}

fn import_into(keeper: &Keeper, spot: &Spot, archive: &Path) -> Result<()> {
    wait_for_containerd(keeper, spot)?;
    run(inside(keeper, spot)?
        .args(["ctr", "--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", "images", "import"])
        .arg(archive))
    .with_context(|| format!("node {} did not import {}", spot.name, archive.display()))?;
    Ok(())
}

/// Waits until the node's containerd answers.
pub(crate) fn wait_for_containerd(keeper: &Keeper, spot: &Spot) -> Result<()> {
    let started = Instant::now();
    let name = spot.program(CONTAINERD);
    loop {
        let answers = inside(keeper, spot)?
            .args(["ctr", "--address", CONTAINERD_SOCKET, "--connect-timeout", "1s", "version"])
            .output()
            .is_ok_and(|output| output.status.success());
        if answers {
            return Ok(());
        }
        if keeper.has_ended(&name) || started.elapsed() > PATIENCE {
            bail!("{name} does not answer. Its last words:\n{}", keeper.last_lines(&name));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
