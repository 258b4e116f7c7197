//! The project's own commands. They start programs and show progress; they hold no logic of the product.
#![allow(clippy::disallowed_methods, reason = "never simulated: real clocks, tasks and threads")]

mod bench;
mod chart;
mod crds;
mod decisions;
mod docs;
mod families;
mod fixture;
mod follow;
mod generated;
mod host;
mod image;
mod lab;
mod lint;
mod mutants;
mod mutate;
mod operator;
mod process;
mod rights;
mod simulate;
mod test;
mod up;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The commands of the Aquifer project. Each one installs what it needs and can be repeated.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run Aquifer: a private cluster, the operator, and the examples until each is Ready
    Up(up::Args),
    /// Run the tests; the last line is "N passed, N failed"
    Test(test::Args),
    /// Play histories in which everything goes wrong that can
    Simulate(simulate::Args),
    /// Change decisions and engine in many small ways, one by one, and look whether a unit test notices
    Mutants(mutants::Args),
    /// Put known defects back into a copy, one by one, and check that the simulation or the named unit test finds each
    Mutate(mutate::Args),
    /// Show which of the operator's rights the last tests used; `cargo xtask test` keeps the record
    Rights,
    /// Check format, decisions, clippy, licences and bans of dependencies, and that generated files are current
    Lint,
    /// Write the CRDs as YAML files
    Crds(generated::Args),
    /// Write the generated parts of the Helm chart: CRDs and rules
    Chart(generated::Args),
    /// Write the reference: commands, kinds, metrics, values of the chart
    Docs(generated::Args),
    /// Build the operator's image, an archive under target/image
    Image(image::Args),
    /// Measure, next to the least work that could give the same result
    Bench(bench::Args),
    /// Record what an earlier version leaves in etcd, for the tests that take it over
    Fixture(fixture::Args),
    /// A bare cluster to play with
    Lab(lab::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        // For a person: what happened and why, without a backtrace.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<()> {
    // Two libraries of the tree could pick different defaults; choose once, before the first connection.
    // An error only says that a choice was made already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match cli.command {
        Command::Up(args) => up::run(args).await,
        Command::Test(args) => test::run(&args).await,
        Command::Simulate(args) => simulate::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Mutate(args) => mutate::run(&args),
        Command::Rights => rights::run(),
        Command::Lint => lint::run(),
        Command::Crds(args) => crds::run(args),
        Command::Chart(args) => chart::run(args),
        Command::Docs(args) => docs::run(args),
        Command::Image(args) => image::run(&args),
        Command::Bench(args) => bench::run(args).await,
        Command::Fixture(args) => fixture::run(args).await,
        Command::Lab(args) => lab::run(args).await,
    }
}
