//! Benchmarks: programs, not tests. They measure beside the least work that gives the same result, and judge nothing.

mod efs;
mod efs_floor;
mod measure;
mod row;

use anyhow::Result;
use clap::ValueEnum;

use crate::{host, lab, operator};

/// How many requests are on their way at once, in the load and in every floor.
const CONCURRENCY: usize = 32;

/// Flags of `cargo xtask bench`.
#[derive(clap::Args)]
pub struct Args {
    /// Which benchmark
    name: Name,
    /// How many objects; several sizes show how the cost of one object grows
    #[arg(long, value_delimiter = ',', default_values_t = [300, 1000, 3000])]
    n: Vec<usize>,
    /// Print one JSON object a line instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    /// SharedVolumes: create, ready, delete
    Efs,
}

/// Runs a benchmark for each size.
pub async fn run(args: Args) -> Result<()> {
    host::ensure()?;
    lab::prepare().await?;
    let program = operator::build(true)?;
    let mut rows = Vec::new();
    for n in args.n {
        let new = match args.name {
            Name::Efs => efs::run(n, &program).await?,
        };
        if args.json {
            for row in &new {
                println!("{}", serde_json::to_string(row)?);
            }
        }
        rows.extend(new);
    }
    if !args.json {
        println!("\n{}", row::table(&rows));
        println!("{}", row::growth(&rows));
    }
    Ok(())
}

/// Progress, on stderr so that `--json` stays clean.
fn say(text: &str) {
    eprintln!("bench: {text}");
}
