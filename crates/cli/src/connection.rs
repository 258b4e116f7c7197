//! How a cluster is reached: the flags for it, and the client that follows from them.

use std::path::PathBuf;

use anyhow::Context as _;
use aquifer_engine::live::client_config;
use clap::Args;
use kube::config::{KubeConfigOptions, Kubeconfig};

/// How the cluster is reached.
#[derive(Args)]
#[command(next_help_heading = "Cluster")]
pub struct Connection {
    /// Kubeconfig file; by default $KUBECONFIG, ~/.kube/config or the pod's service account
    #[arg(long, env = "AQUIFER_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; by default the current one
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
                .with_context(|| format!("cannot use the context {name}"))?,
            (None, None) => kube::Config::infer()
                .await
                .context("cannot find a cluster (give --kubeconfig, or run in a pod)")?,
        };
        kube::Client::try_from(client_config(config)).context("cannot make a client for the cluster")
    }
}
