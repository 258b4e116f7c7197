//! `aquifer run`: the operator, from flags to what its process runs.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use aquifer_base::NamespaceName;
use aquifer_engine::lease::Timing;
use aquifer_engine::metrics::Metrics;
use aquifer_engine::process::{self, Signal};
use aquifer_engine::runtime::Runtime;
use aquifer_family::flags::renamed;
use aquifer_family::{Family, Operator};
use clap::{ArgMatches, Args as ClapArgs};
use jiff::SignedDuration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::connection::Connection;
use crate::{families, logs};

// Both names of the families are read by `renamed`, which knows which one was given.
#[derive(ClapArgs)]
pub struct Args {
    /// Families to run
    #[arg(
        id = "families",
        long = "families",
        env = "AQUIFER_FAMILIES",
        value_parser = families::parser(),
        value_delimiter = ',',
        default_values = aquifer_families::DEFAULT,
        value_name = "FAMILIES"
    )]
    _families: Vec<&'static dyn Family>,
    /// The old name of --families
    #[arg(
        id = "controllers",
        long = "controllers",
        env = "AQUIFER_CONTROLLERS",
        value_parser = families::parser(),
        value_delimiter = ',',
        value_name = "FAMILIES",
        hide = true
    )]
    _controllers: Option<Vec<&'static dyn Family>>,
    /// Address of /livez and /readyz
    #[arg(long, env = "AQUIFER_HTTP_LISTEN", default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    http_listen: SocketAddr,
    /// Address of /metrics; another one than that of /livez and /readyz
    #[arg(long, env = "AQUIFER_METRICS_LISTEN", default_value = "0.0.0.0:8081", value_name = "ADDRESS")]
    metrics_listen: SocketAddr,
    /// How long nothing may be heard on a watch before /readyz says so; at least 2m
    #[arg(long, env = "AQUIFER_MAX_WATCH_SILENCE", default_value = "5m", value_name = "DURATION", value_parser = silence)]
    max_watch_silence: Duration,
    /// Image of this operator, for the servers that it deploys
    #[arg(long, env = "AQUIFER_IMAGE", value_name = "IMAGE")]
    image: Option<String>,
    /// Format of log lines
    #[arg(long, env = "AQUIFER_LOG_FORMAT", value_enum, default_value = "pretty")]
    log_format: logs::Format,
    /// What is logged: error, warn, info, debug, trace, or a level for each module
    #[arg(long, env = "AQUIFER_LOG_LEVEL", default_value = "info", value_name = "FILTER")]
    log_level: String,

    // A flattened group passes its heading on to what follows it, so what has none of its own comes first.
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    election: Election,
}

/// How replicas agree who acts.
#[derive(ClapArgs)]
#[command(next_help_heading = "Leader election")]
struct Election {
    /// Namespace of the operator, where the Lease of each family is: aquifer-FAMILY
    #[arg(
        long,
        env = "AQUIFER_LEASE_NAMESPACE",
        default_value = crate::install::NAMESPACE,
        value_name = "NAMESPACE"
    )]
    lease_namespace: NamespaceName,
    /// Without effect: each family has a Lease of its own. Still accepted, because older manifests give it
    #[arg(long, env = "AQUIFER_LEASE_NAME", value_name = "NAME", hide = true)]
    lease_name: Option<String>,
    /// Name of this replica in the Leases; by default the name of the host
    #[arg(long, env = "AQUIFER_IDENTITY", value_name = "NAME")]
    identity: Option<String>,
    /// How long a Lease must be without renewal before another replica takes it
    #[arg(long, env = "AQUIFER_LEASE_DURATION", default_value = "10s", value_name = "DURATION", value_parser = duration)]
    lease_duration: Duration,
    /// How long a replica acts without a renewal; at most four fifths of the lease duration
    #[arg(long, env = "AQUIFER_LEASE_RENEW_DEADLINE", default_value = "6s", value_name = "DURATION", value_parser = duration)]
    lease_renew_deadline: Duration,
    /// Time between attempts to get or renew a Lease; at most half of the renew deadline
    #[arg(long, env = "AQUIFER_LEASE_RETRY_PERIOD", default_value = "1500ms", value_name = "DURATION", value_parser = duration)]
    lease_retry_period: Duration,
}

impl Election {
    fn timing(&self) -> anyhow::Result<Timing> {
        Timing::new(self.lease_duration, self.lease_renew_deadline, self.lease_retry_period)
            .context("cannot use --lease-duration, --lease-renew-deadline and --lease-retry-period together")
    }
}

fn duration(text: &str) -> anyhow::Result<Duration> {
    let parsed: SignedDuration =
        text.parse().map_err(|_| anyhow::anyhow!("a duration is written like 10s or 1500ms"))?;
    Duration::try_from(parsed).map_err(|_| anyhow::anyhow!("a duration cannot be negative"))
}

/// A quiet watch is heard about once a minute: less than two minutes would call a healthy one silent.
fn silence(text: &str) -> anyhow::Result<Duration> {
    let silence = duration(text)?;
    anyhow::ensure!(silence >= Duration::from_mins(2), "it must be at least 2m");
    Ok(silence)
}

/// Runs until a signal, or until a Lease is lost.
pub async fn run(args: Args, flags: &ArgMatches) -> anyhow::Result<()> {
    logs::start(args.log_format, &args.log_level)?;
    let timing = args.election.timing()?;
    anyhow::ensure!(
        args.http_listen != args.metrics_listen || args.http_listen.port() == 0,
        "cannot use {} for both --http-listen and --metrics-listen: give the metrics a port of their own",
        args.http_listen
    );
    if let Some(name) = &args.election.lease_name {
        tracing::warn!(name, "--lease-name has no effect: each family has the Lease aquifer-FAMILY");
    }
    let operator = Operator { namespace: args.election.lease_namespace.clone(), image: args.image };
    let chosen = families::in_order(&renamed(flags, "families", "controllers"));
    let mut units = Vec::new();
    for &family in &chosen {
        let work = family.work(flags, &operator).unwrap_or_else(|error| error.exit());
        units.push(process::Family {
            name: family.name().to_owned(),
            controllers: work.controllers,
            servers: work.servers,
        });
    }
    let client = args.connection.client().await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        families = families::names(&chosen),
        "Aquifer starts"
    );
    let settings = process::Settings {
        client,
        runtime: Runtime::system(),
        http_listen: Some(args.http_listen),
        metrics_listen: Some(args.metrics_listen),
        lease: Some(process::LeaseSettings {
            namespace: args.election.lease_namespace.to_string(),
            identity: args.election.identity.unwrap_or_else(host_name),
            timing,
        }),
        families: units,
        metrics: Metrics::default(),
        health: process::Health::new(args.max_watch_silence),
    };
    Ok(process::run(settings, signals()?).await?)
}

/// What the operating system's signals mean to the process.
fn signals() -> anyhow::Result<mpsc::UnboundedReceiver<Signal>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let (mut hangup, mut terminate, mut interrupt) =
        (signal(SignalKind::hangup())?, signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        loop {
            let meaning = tokio::select! {
                biased;
                _ = hangup.recv() => Signal::Resync,
                _ = terminate.recv() => Signal::Stop,
                _ = interrupt.recv() => Signal::Stop,
            };
            if sender.send(meaning).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Some(name.trim().to_owned()).filter(|name| !name.is_empty()).unwrap_or_else(|| "aquifer".into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        election: Election,
    }

    fn timing(arguments: &[&str]) -> anyhow::Result<Timing> {
        let arguments = std::iter::once(&"run").chain(arguments);
        Only::try_parse_from(arguments)?.election.timing()
    }

    #[test]
    fn the_default_durations_are_the_engines() {
        assert_eq!(timing(&[]).unwrap(), Timing::default());
    }

    #[test]
    fn a_silence_that_a_healthy_watch_can_have_is_refused() {
        assert_eq!(silence("5m").unwrap(), process::MAX_WATCH_SILENCE);
        for bad in ["119s", "0s", "-5m", "soon"] {
            assert!(silence(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_that_are_not_safe_together_are_refused() {
        assert_eq!(
            timing(&["--lease-duration=30s", "--lease-renew-deadline=20s"]).unwrap().lease().as_secs(),
            30
        );
        for (bad, word) in [
            (["--lease-duration=6s", "--lease-retry-period=1s"], "--lease-renew-deadline"),
            (["--lease-duration=soon", "--lease-retry-period=1s"], "10s or 1500ms"),
            (["--lease-duration=10s", "--lease-retry-period=-1s"], "negative"),
        ] {
            let refused = format!("{:#}", timing(&bad).unwrap_err());
            assert!(refused.contains(word), "{refused}");
        }
    }
}
