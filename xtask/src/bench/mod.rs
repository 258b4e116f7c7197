//! Benchmarks: programs, not tests. They measure beside the least work that gives the same result, and judge nothing.

mod engine;
pub mod measure;
pub mod row;

use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser};

pub use row::Row;

use crate::families::{self, InLab};
use crate::{host, lab, operator};

/// How many requests are on their way at once, in the load and in every floor.
pub const CONCURRENCY: usize = 32;

const ENGINE: &str = "engine";
/// Sizes when none are given.
const SIZES: [usize; 3] = [300, 1000, 3000];

/// Flags of `cargo xtask bench`.
#[derive(clap::Args)]
pub struct Args {
    /// Which benchmark: the engine in the simulation, or a family on a cluster
    #[arg(value_parser = known())]
    name: String,
    /// How many objects; several sizes show how the cost of one object grows
    #[arg(long, value_delimiter = ',')]
    n: Vec<usize>,
    /// What is measured of a family
    #[arg(long, value_enum, default_value_t = Case::Life)]
    case: Case,
    /// Print one JSON object a line instead of a table
    #[arg(long)]
    json: bool,
}

/// What is measured of a family.
#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
enum Case {
    /// Objects are made, become Ready, and are deleted
    Life,
    /// Objects that are Ready are left alone for ten minutes; of several sizes the last counts
    Idle,
    /// One tenant does its worst with so many objects, and another one waits for its own; of several sizes the last counts
    Attack,
}

/// The engine, and the families that have a benchmark.
fn known() -> PossibleValuesParser {
    let named = |family: &&dyn InLab| Some(PossibleValue::new(family.name()).help(family.bench_about()?));
    let engine = PossibleValue::new(ENGINE)
        .help("One supply with many claimants, and many equal SharedVolumes, without a cluster");
    PossibleValuesParser::new(
        [engine].into_iter().chain(families::all().iter().filter_map(named)).collect::<Vec<_>>(),
    )
}

/// Runs a benchmark for each size.
pub async fn run(args: Args) -> Result<()> {
    if args.name == ENGINE {
        return engine::run(&args.n, args.json);
    }
    host::ensure()?;
    lab::prepare().await?;
    let program = operator::build(true)?;
    let mut rows = Vec::new();
    if args.case != Case::Life {
        let n = args.n.last().or(SIZES.last()).copied().unwrap_or_default();
        for family in families::all().iter().filter(|family| family.name() == args.name) {
            let measured = match args.case {
                Case::Attack => family.bench_attack(n, &program).await?,
                _ => family.bench_idle(n, &program).await?,
            };
            println!("{measured}");
        }
        return Ok(());
    }
    let sizes = if args.n.is_empty() { SIZES.to_vec() } else { args.n };
    for n in sizes {
        let mut new = Vec::new();
        for family in families::all().iter().filter(|family| family.name() == args.name) {
            new.extend(family.bench(n, &program).await?);
        }
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
pub fn say(text: &str) {
    eprintln!("bench: {text}");
}
