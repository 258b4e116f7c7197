//! `aquifer run`: the operators, from flags to running tasks.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use aquifer_efs::driver::{Driver, Management};
use aquifer_efs::statics::{DriverConfig, Images, parse_node_selector, parse_tolerations};
use aquifer_efs::volumes::Volumes;
use aquifer_engine::lease::Timing;
use aquifer_engine::live::client_config;
use aquifer_engine::process::{self, Signal};
use aquifer_engine::runtime::Runtime;
use clap::{Args as ClapArgs, ValueEnum};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::logs;

/// How the cluster is reached.
#[derive(ClapArgs)]
#[command(next_help_heading = "Cluster")]
pub struct Connection {
    /// Kubeconfig file; without it $KUBECONFIG, ~/.kube/config or the pod's service account
    #[arg(long, env = "AQUIFER_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; without it the current one
    #[arg(long, env = "AQUIFER_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
}

impl Connection {
    /// A client that neither retries for minutes nor waits for ever.
    pub async fn client(&self) -> anyhow::Result<kube::Client> {
        // One provider for the whole process; a second call finds it installed.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let config = match (&self.kubeconfig, &self.context) {
            (Some(path), _) => {
                let file =
                    Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
                kube::Config::from_custom_kubeconfig(file, &options)
                    .await
                    .with_context(|| format!("cannot use {}", path.display()))?
            }
            (None, Some(name)) => kube::Config::from_kubeconfig(&options)
                .await
                .with_context(|| format!("cannot use context {name}"))?,
            (None, None) => {
                kube::Config::infer().await.context("no cluster: give --kubeconfig, or run in a pod")?
            }
        };
        kube::Client::try_from(client_config(config)).context("cannot make a client")
    }
}

/// The families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Family {
    /// SharedVolumes on AWS EFS, and the driver that mounts them
    Efs,
}

impl Family {
    /// As flags and variables name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Efs => "efs",
        }
    }
}

/// Who looks after the EFS driver.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Statics {
    /// Aquifer installs and repairs it
    Managed,
    /// Somebody else does
    External,
}

#[derive(ClapArgs)]
pub struct Args {
    /// Families to run
    #[arg(long, env = "AQUIFER_CONTROLLERS", value_enum, value_delimiter = ',', default_value = "efs")]
    controllers: Vec<Family>,
    /// Address of /livez, /readyz and /metrics
    #[arg(long, env = "AQUIFER_HTTP_LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    http_listen: SocketAddr,
    /// Log lines for machines or for people
    #[arg(long, env = "AQUIFER_LOG_FORMAT", value_enum, default_value = "pretty")]
    log_format: logs::Format,
    /// What is logged: error, warn, info, debug, trace, or per module
    #[arg(long, env = "AQUIFER_LOG_LEVEL", default_value = "info", value_name = "FILTER")]
    log_level: String,

    // A flattened group passes its heading on to what follows it, so what has none of its own comes first.
    #[command(flatten)]
    connection: Connection,

    /// Namespace of the Lease by which replicas agree who works
    #[arg(
        long,
        env = "AQUIFER_LEASE_NAMESPACE",
        default_value = "aquifer-system",
        value_name = "NAMESPACE",
        help_heading = "Leader election"
    )]
    lease_namespace: String,
    /// Who we are in it; without it the host's name
    #[arg(long, env = "AQUIFER_IDENTITY", value_name = "NAME", help_heading = "Leader election")]
    identity: Option<String>,

    #[command(flatten)]
    efs: EfsArgs,
}

#[derive(ClapArgs)]
#[command(next_help_heading = "EFS")]
struct EfsArgs {
    /// Who looks after the EFS driver
    #[arg(long = "efs-statics", env = "AQUIFER_EFS_STATICS", value_enum, default_value = "managed")]
    statics: Statics,
    /// Namespace of the driver's node plugin
    #[arg(long = "efs-namespace", env = "AQUIFER_EFS_NAMESPACE", default_value = aquifer_api::driver::DEFAULT_NAMESPACE, value_name = "NAMESPACE")]
    namespace: String,
    /// Nodes that the node plugin runs on, as key=value,...; without it all workers
    #[arg(long = "efs-node-selector", env = "AQUIFER_EFS_NODE_SELECTOR", value_name = "LABELS")]
    node_selector: Option<String>,
    /// Taints that it runs in spite of, as key[=value][:effect],...; * for all
    #[arg(
        long = "efs-tolerations",
        env = "AQUIFER_EFS_TOLERATIONS",
        default_value = "*",
        value_name = "TAINTS"
    )]
    tolerations: String,
    /// Image of the driver
    #[arg(long = "efs-plugin-image", env = "AQUIFER_EFS_PLUGIN_IMAGE", default_value_t = Images::default().plugin, value_name = "IMAGE")]
    plugin_image: String,
    /// Image of the node driver registrar
    #[arg(long = "efs-registrar-image", env = "AQUIFER_EFS_REGISTRAR_IMAGE", default_value_t = Images::default().registrar, value_name = "IMAGE")]
    registrar_image: String,
    /// Image of the liveness probe
    #[arg(long = "efs-liveness-image", env = "AQUIFER_EFS_LIVENESS_IMAGE", default_value_t = Images::default().liveness, value_name = "IMAGE")]
    liveness_image: String,
}

impl EfsArgs {
    fn driver(self) -> anyhow::Result<Driver> {
        let config = DriverConfig {
            namespace: self.namespace,
            images: Images {
                plugin: self.plugin_image,
                registrar: self.registrar_image,
                liveness: self.liveness_image,
            },
            node_selector: self
                .node_selector
                .as_deref()
                .map(parse_node_selector)
                .transpose()
                .context("--efs-node-selector")?,
            tolerations: parse_tolerations(&self.tolerations).context("--efs-tolerations")?,
            ..DriverConfig::default()
        };
        let management = match self.statics {
            Statics::Managed => Management::Managed,
            Statics::External => Management::External,
        };
        Ok(Driver { config, management })
    }
}

/// Runs until a signal, or until leadership is lost.
pub async fn run(args: Args) -> anyhow::Result<()> {
    logs::start(args.log_format, &args.log_level)?;
    let driver = args.efs.driver()?;
    let client = args.connection.client().await?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), controllers = ?args.controllers, "Aquifer starts");
    let families = args.controllers.iter().map(|family| match family {
        Family::Efs => process::Family {
            name: family.name().to_owned(),
            controllers: vec![Box::new(Volumes), Box::new(driver.clone())],
            servers: Vec::new(),
        },
    });
    let settings = process::Settings {
        client,
        runtime: Runtime::system(),
        http_listen: Some(args.http_listen),
        lease: process::LeaseSettings {
            namespace: args.lease_namespace,
            identity: args.identity.unwrap_or_else(host_name),
            timing: Timing::default(),
        },
        families: families.collect(),
    };
    Ok(process::run(settings, signals()?).await?)
}

/// What the operating system tells us, in the engine's words.
fn signals() -> anyhow::Result<mpsc::UnboundedReceiver<Signal>> {
    let (send, receive) = mpsc::unbounded_channel();
    let (mut hangup, mut terminate, mut interrupt) =
        (signal(SignalKind::hangup())?, signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        loop {
            let told = tokio::select! {
                Some(()) = hangup.recv() => Signal::Resync,
                _ = terminate.recv() => Signal::Stop,
                _ = interrupt.recv() => Signal::Stop,
            };
            if send.send(told).is_err() {
                return;
            }
        }
    });
    Ok(receive)
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Some(name.trim().to_owned()).filter(|name| !name.is_empty()).unwrap_or_else(|| "aquifer".into())
}
