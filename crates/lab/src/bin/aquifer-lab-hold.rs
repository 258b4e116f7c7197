//! Runs a bare cluster until its standard input ends: `aquifer-lab-hold NAME`. Prints the cluster's directory once it is ready.
//!
//! Tests kill it to see what outlives the owner of a cluster.

use std::io::Read;

use anyhow::{Context, Result};
use aquifer_lab::Lab;

#[tokio::main]
async fn main() -> Result<()> {
    let name = std::env::args().nth(1).context("usage: aquifer-lab-hold NAME")?;
    let cluster = Lab::cluster(&name).start().await?;
    println!("{}", cluster.dir().display());
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
    cluster.stop().await
}
