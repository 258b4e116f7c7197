//! Runs a cluster until its standard input ends: `aquifer-lab-hold NAME [--nodes N] [--rook]`. Prints the cluster's directory once it is ready.
//!
//! Tests kill it to see what outlives the owner of a cluster.
#![allow(clippy::disallowed_methods, reason = "never simulated: real clocks, tasks and threads")]

use anyhow::{Context, Result, bail};
use aquifer_lab::Lab;

const USAGE: &str = "usage: aquifer-lab-hold NAME [--nodes N] [--rook]";

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut cluster = Lab::cluster(&args.next().context(USAGE)?);
    while let Some(flag) = args.next() {
        cluster = match flag.as_str() {
            "--nodes" => cluster.nodes(args.next().context(USAGE)?.parse().context(USAGE)?),
            "--rook" => cluster.rook(),
            _ => bail!(USAGE),
        };
    }
    aquifer_lab::hold::hold(cluster, |cluster| println!("{}", cluster.dir().display())).await
}
