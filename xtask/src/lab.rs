//! A cluster for people: up, down, status, kubectl, ceph. All of it is the lab crate's work; this only talks.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use aquifer_lab::{Lab, Programs, eventually};
use clap::Subcommand;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use crate::{host, process};

/// Flags of `cargo xtask lab`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    /// Start a cluster and keep it until Ctrl-C
    Up {
        /// Its name
        #[arg(default_value = "play")]
        name: String,
        /// How many nodes that run pods it shall have, 1 to 5; needs root
        #[arg(long, value_parser = clap::value_parser!(u8).range(1..=5))]
        nodes: Option<u8>,
        /// Zones for the nodes, in turn
        #[arg(long, value_delimiter = ',', requires = "nodes")]
        zones: Vec<String>,
        /// Give it the real Rook with a Ceph cluster and a file system; 3 nodes unless said otherwise; takes minutes
        #[arg(long)]
        rook: bool,
    },
    /// End a cluster that was started elsewhere
    Down {
        /// Its name
        #[arg(default_value = "play")]
        name: String,
    },
    /// Run the shared cluster with Rook of a test run until standard input ends
    #[command(hide = true)]
    Hold {
        /// Its name
        name: String,
    },
    /// List the clusters that run
    Status,
    /// Run kubectl against a cluster, for example: cargo xtask lab kubectl play -- get ns
    Kubectl {
        /// The name of the cluster
        name: String,
        /// What kubectl shall do
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Run ceph as the administrator of a cluster's Ceph, for example: cargo xtask lab ceph play -- status
    Ceph {
        /// The name of the cluster
        name: String,
        /// What ceph shall do
        #[arg(last = true)]
        args: Vec<String>,
    },
}

/// Runs a lab command.
pub async fn run(args: Args) -> Result<()> {
    match args.command {
        LabCommand::Up { name, nodes, zones, rook } => {
            up(&name, nodes.or(rook.then_some(3)), zones, rook).await
        }
        LabCommand::Down { name } => down(&name).await,
        LabCommand::Hold { name } => {
            aquifer_lab::hold::hold(aquifer_lab::rook::shared_builder(&name), |_| println!("ready")).await
        }
        LabCommand::Status => status(),
        LabCommand::Kubectl { name, args } => kubectl(&name, &args),
        LabCommand::Ceph { name, args } => ceph(&name, &args).await,
    }
}

/// Gets the Kubernetes programs, which takes minutes the first time.
pub async fn prepare() -> Result<()> {
    tokio::task::spawn_blocking(Programs::find).await.context("the preparation was interrupted")??;
    Ok(())
}

/// Gets what nodes need: the machine's packages, and images that take a few minutes the first time.
pub async fn prepare_nodes() -> Result<()> {
    host::ensure_for_nodes()?;
    tokio::task::spawn_blocking(aquifer_lab::nodes::prepare)
        .await
        .context("the preparation was interrupted")?
}

/// Gets what Rook and Ceph need: the machine's packages, and an image that takes minutes the first time.
pub async fn prepare_rook() -> Result<()> {
    host::ensure_for_rook()?;
    tokio::task::spawn_blocking(aquifer_lab::rook::prepare)
        .await
        .context("the preparation was interrupted")?
}

/// Gets the image of the EFS driver's stand-in, which takes a minute the first time.
pub async fn prepare_efs() -> Result<()> {
    tokio::task::spawn_blocking(aquifer_lab::efs::prepare).await.context("the preparation was interrupted")?
}

/// Waits for Ctrl-C, or for a signal that asks us to end.
pub async fn interrupted() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut stream) => {
                stream.recv().await;
            }
            // Then Ctrl-C has to do.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
    println!();
}

async fn up(name: &str, nodes: Option<u8>, zones: Vec<String>, rook: bool) -> Result<()> {
    host::ensure()?;
    prepare().await?;
    if nodes.is_some() {
        prepare_nodes().await?;
    }
    if rook {
        prepare_rook().await?;
    }
    println!("starting cluster {name}");
    let start = Instant::now();
    let mut builder = Lab::cluster(name).zones(zones);
    if let Some(count) = nodes {
        builder = builder.nodes(count);
    }
    if rook {
        builder = builder.rook();
    }
    let cluster = tokio::select! {
        cluster = builder.start() => cluster?,
        () = interrupted() => bail!("interrupted before cluster {name} was ready"),
    };
    println!("ready after {}", process::took(start.elapsed()));
    println!("kubeconfig: {}", cluster.kubeconfig().display());
    println!("logs:       {}", cluster.dir().display());
    if nodes.is_some() {
        println!("An image that its nodes have, to try pods with: {}", cluster.probe_image()?);
        println!("Try, in another terminal:");
        println!("  cargo xtask lab kubectl {name} -- get nodes -o wide");
        if rook {
            println!("  cargo xtask lab ceph {name} -- status");
        }
    } else {
        println!("The cluster has no nodes, so pods are accepted but never run. Try, in another terminal:");
        println!("  cargo xtask lab kubectl {name} -- get namespaces");
    }
    println!("Ctrl-C, or `cargo xtask lab down {name}`, ends it.");
    interrupted().await;
    println!("stopping cluster {name}");
    cluster.stop().await
}

async fn down(name: &str) -> Result<()> {
    let Some(owner) = Lab::owner(name) else {
        // What a crash left is still to be removed.
        tokio::task::spawn_blocking(Lab::sweep).await.context("the sweep was interrupted")??;
        println!("no cluster {name} is running");
        return Ok(());
    };
    let program = program_of(owner);
    if program != "xtask" {
        bail!(
            "cluster {name} belongs to process {owner} ({program}), not to `cargo xtask`: end that process instead"
        );
    }
    let pid = i32::try_from(owner).ok().and_then(Pid::from_raw).context("a bad process id")?;
    println!("asking process {owner} to stop cluster {name}");
    kill_process(pid, Signal::TERM).with_context(|| format!("cannot reach process {owner}"))?;
    eventually(Duration::from_mins(1), &format!("cluster {name} has stopped"), || async {
        Ok(Lab::owner(name).is_none().then_some(()))
    })
    .await?;
    println!("cluster {name} has stopped");
    Ok(())
}

fn status() -> Result<()> {
    let root = Lab::root();
    let mut names: Vec<String> = Vec::new();
    if root.exists() {
        for entry in fs::read_dir(&root).with_context(|| format!("cannot read {}", root.display()))? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    let mut running = 0;
    for name in names {
        if let Some(owner) = Lab::owner(&name) {
            running += 1;
            let kubeconfig = root.join(&name).join("kubeconfig");
            let nodes = match Lab::nodes_of(&name) {
                0 => "no nodes".to_owned(),
                1 => "1 node".to_owned(),
                count => format!("{count} nodes"),
            };
            let storage = if Lab::has_rook(&name) { ", Ceph" } else { "" };
            println!(
                "{name:<20} {:<15} process {owner:<8} ({})  {}",
                format!("{nodes}{storage}"),
                program_of(owner),
                kubeconfig.display()
            );
        }
    }
    if running == 0 {
        println!("no cluster is running");
    }
    Ok(())
}

fn kubectl(name: &str, args: &[String]) -> Result<()> {
    let (program, kubeconfig) = kubectl_of(name)?;
    // kubectl takes our place, so that pipes, terminals and the exit code are its own.
    let error = Command::new(&program).args(args).env("KUBECONFIG", kubeconfig).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

async fn ceph(name: &str, args: &[String]) -> Result<()> {
    let (program, kubeconfig) = kubectl_of(name)?;
    if !Lab::has_rook(name) {
        bail!("cluster {name} has no Ceph; start one with `cargo xtask lab up {name} --rook`");
    }
    let client = Client::try_from(
        Config::from_custom_kubeconfig(Kubeconfig::read_from(&kubeconfig)?, &KubeConfigOptions::default())
            .await?,
    )?;
    let command = aquifer_lab::rook::admin_command(&client, "ceph", args).await?;
    let error = Command::new(&program).args(command).env("KUBECONFIG", kubeconfig).exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}

/// kubectl, and the kubeconfig of a cluster that runs.
fn kubectl_of(name: &str) -> Result<(PathBuf, PathBuf)> {
    if Lab::owner(name).is_none() {
        bail!("no cluster {name} is running; start one with `cargo xtask lab up {name}`");
    }
    Ok((Programs::find()?.path("kubectl"), Lab::root().join(name).join("kubeconfig")))
}

fn program_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .map_or_else(|_| "ended".to_owned(), |name| name.trim().to_owned())
}
