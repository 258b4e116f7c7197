//! The binary `aquifer`: commands, and what they do to a cluster. What a family does is in its own crate.
#![allow(clippy::disallowed_methods, reason = "never simulated: real clocks, tasks and threads")]

/// Prints a line. A reader that has seen enough and closed the pipe ends nothing that is under way.
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}

mod completions;
mod confirm;
mod connection;
mod crds;
mod families;
mod install;
mod logs;
mod reference;
mod run;
mod version;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

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
    /// Removes the operator, unless something still needs it
    Uninstall(install::UninstallArgs),
    /// Runs the operator
    Run(Box<run::Args>),
    /// Prints the definitions of the kinds as YAML, for kubectl apply
    Crds(crds::Args),
    /// Prints the versions of this program, the operator and Kubernetes
    Version(version::Args),
    /// Prints the script with which your shell completes commands and flags
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Prints what docs/reference is made of
    #[command(hide = true)]
    Reference,
}

/// The whole command line, with what families bring.
fn command() -> clap::Command {
    families::extend(Cli::command())
}

fn main() -> ExitCode {
    let matches = parse();
    let result = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(dispatch(&matches)));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("aquifer: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// As `kubectl-aquifer` on the PATH we are `kubectl aquifer`, and the help says so.
fn parse() -> ArgMatches {
    let mut command = command();
    let name = std::env::args_os().next().map(PathBuf::from);
    if name.as_deref().and_then(Path::file_name).is_some_and(|name| name == "kubectl-aquifer") {
        command = command.bin_name("kubectl aquifer");
    }
    command.get_matches()
}

async fn dispatch(matches: &ArgMatches) -> anyhow::Result<()> {
    if let Some(result) = families::dispatch(matches).await {
        return result;
    }
    let cli = Cli::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
    match cli.command {
        Command::Run(args) => {
            let flags = matches.subcommand_matches("run").unwrap_or(matches);
            run::run(*args, flags).await
        }
        Command::Crds(args) => crds::print(&args),
        Command::Install(args) => install::run(*args).await,
        Command::Uninstall(args) => install::uninstall(args).await,
        Command::Version(args) => {
            version::print(args).await;
            Ok(())
        }
        Command::Completions { shell } => {
            completions::print(shell);
            Ok(())
        }
        Command::Reference => reference::print(&command()),
    }
}
