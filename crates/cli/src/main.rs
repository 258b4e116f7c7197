//! The binary `aquifer`: flags, wiring, run. No logic of its own.

mod crds;
mod logs;
mod run;
mod uninstall;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Storage operators for Kubernetes in one binary.
#[derive(Parser)]
#[command(name = "aquifer", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the operators
    Run(Box<run::Args>),
    /// Prints the definitions of our kinds as YAML, for kubectl apply
    Crds,
    /// Prints the version
    Version,
    /// Shared volumes on AWS EFS
    #[command(subcommand)]
    Efs(Efs),
}

#[derive(Subcommand)]
enum Efs {
    /// Deletes every SharedVolume, then the driver; asks first, and can be run again at any point
    Uninstall(uninstall::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(dispatch(cli.command)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("aquifer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn dispatch(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => run::run(*args).await,
        Command::Crds => crds::print(),
        Command::Version => {
            version::print();
            Ok(())
        }
        Command::Efs(Efs::Uninstall(args)) => uninstall::run(args).await,
    }
}
