//! `aquifer version`: of this program, of the operator in the cluster, and of the cluster. Never fails because of a cluster.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args as ClapArgs;
use clap::builder::BoolishValueParser;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::connection::Connection;
use crate::install::{COMPONENT, NAME, NAME_LABEL, NAMESPACE, VERSION_LABEL};

/// A version is asked for in passing; nobody waits long for it.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(ClapArgs)]
pub struct Args {
    /// Print only the version of this program, without asking a cluster
    #[arg(long, env = "AQUIFER_VERSION_CLIENT", value_parser = BoolishValueParser::new())]
    client: bool,
    #[command(flatten)]
    connection: Connection,
}

/// Prints what is known.
pub async fn print(args: Args) {
    say!("aquifer {}", env!("CARGO_PKG_VERSION"));
    if args.client {
        return;
    }
    let client = match args.connection.client().await {
        Ok(client) => client,
        Err(error) => {
            say!("operator: unknown ({error:#})");
            say!("kubernetes: unknown");
            return;
        }
    };
    say!("operator: {}", in_time(operator(&client)).await);
    say!("kubernetes: {}", in_time(kubernetes(&client)).await);
}

async fn in_time(answer: impl Future<Output = anyhow::Result<String>>) -> String {
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => format!("unknown ({error:#})"),
        Err(_) => format!("unknown (no answer within {} s)", PATIENCE.as_secs()),
    }
}

async fn kubernetes(client: &Client) -> anyhow::Result<String> {
    Ok(client.apiserver_version().await.context("cannot ask the cluster")?.git_version)
}

async fn operator(client: &Client) -> anyhow::Result<String> {
    let params =
        ListParams::default().labels(&format!("{NAME_LABEL}={NAME},{}={}", COMPONENT.0, COMPONENT.1));
    let everywhere = Api::<Deployment>::all(client.clone()).list(&params).await;
    let found = match everywhere {
        // Whoever may not look everywhere may still look where it usually is.
        Err(kube::Error::Api(status)) if status.code == 403 => {
            Api::<Deployment>::namespaced(client.clone(), NAMESPACE).list(&params).await
        }
        other => other,
    };
    let found = found.context("cannot look for the operator's Deployment")?;
    if found.items.is_empty() {
        return Ok("not installed".to_owned());
    }
    Ok(found.iter().map(described).collect::<Vec<_>>().join("; "))
}

fn described(deployment: &Deployment) -> String {
    let version = deployment.labels().get(VERSION_LABEL).map_or("unknown", String::as_str);
    let spec = deployment.spec.as_ref();
    let pod = spec.and_then(|spec| spec.template.spec.as_ref());
    let image = pod.and_then(|pod| pod.containers.first()?.image.clone()).unwrap_or_default();
    let ready = deployment.status.as_ref().and_then(|status| status.ready_replicas).unwrap_or_default();
    let wanted = spec.and_then(|spec| spec.replicas).unwrap_or(1);
    let namespace = deployment.namespace().unwrap_or_default();
    format!("{version} (image {image}, {ready} of {wanted} replicas ready in namespace {namespace})")
}
