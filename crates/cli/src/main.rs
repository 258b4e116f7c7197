//! The binary `aquifer`: flags, wiring, run. No logic of its own.
#![allow(clippy::disallowed_methods, reason = "never simulated: real clocks, tasks and threads")]

/// Prints a line. A reader that has seen enough and closed the pipe ends nothing that is under way.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}

mod completions;
mod crds;
mod install;
mod logs;
mod reference;
mod run;
mod uninstall;
mod version;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// Storage operators for Kubernetes in one binary.
#[derive(Parser)]
#[command(name = "aquifer", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Installs the operator in a cluster, or brings it up to date
    Install(Box<install::Args>),
    /// Takes the operator away, unless something still needs it
    Uninstall(install::RemoveArgs),
    /// Runs the operators
    Run(Box<run::Args>),
    /// Prints the definitions of our kinds as YAML, for kubectl apply
    Crds,
    /// Prints the versions of this program, the operator and Kubernetes
    Version(version::Args),
    /// Prints the script by which your shell completes commands and flags
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Prints what docs/reference is made of
    #[command(hide = true)]
    Reference,
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
    let cli = parse();
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

/// As `kubectl-aquifer` on the PATH we are `kubectl aquifer`, and the help says so.
fn parse() -> Cli {
    let mut command = Cli::command();
    let name = std::env::args_os().next().map(PathBuf::from);
    if name.as_deref().and_then(Path::file_name).is_some_and(|name| name == "kubectl-aquifer") {
        command = command.bin_name("kubectl aquifer");
    }
    Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
}

async fn dispatch(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => run::run(*args).await,
        Command::Crds => crds::print(),
        Command::Install(args) => install::run(*args).await,
        Command::Uninstall(args) => install::remove(args).await,
        Command::Version(args) => {
            version::print(args).await;
            Ok(())
        }
        Command::Completions { shell } => {
            completions::print(shell);
            Ok(())
        }
        Command::Reference => reference::print(&Cli::command()),
        Command::Efs(Efs::Uninstall(args)) => uninstall::run(args).await,
    }
}
