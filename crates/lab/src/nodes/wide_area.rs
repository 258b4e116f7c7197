//! The wide area: a line between clusters that cannot reach each other otherwise, with delay, loss and a cut on request. Connects
//! nothing by itself but the addresses that it gives out.
//!
//! Each cluster gets one address on the line, in a range that no cluster uses, and the rest of it hides behind that address: both
//! sides may have the same pods, services and nodes. What the others can reach there is what a test has
//! [exposed](WideArea::expose), and nothing else.
//!
//! The line is a process that holds the ends of two tunnels, each made in the core of its cluster, and passes packets between them.
//! So it needs no link and no forwarding between namespaces, and delay and loss need no module of the kernel.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use serde_json::json;

use super::host::{network_of, run};
use super::linux_namespaces::{BRIDGE, CORE_NETWORK, ip_batch};
use super::node::enter;
use super::plan::{CORE, NODE_RANGE, POD_RANGE, WIDE_AREA_RANGE};
use crate::cluster::{Cluster, blocking};
use crate::directory::{self, Directory};
use crate::install::apply;
use crate::supervisor::{Place, Program, Supervisor};
use crate::{Lab, eventually, processes};

const TUNNEL: &str = "wan0";
const LINE: &str = "line";
const SETTINGS: &str = "line.json";
const APPLIED: &str = "line.applied";

/// How the line is. What is not named is perfect.
#[derive(Debug, Clone, Copy, Default, PartialEq, serde::Serialize)]
pub struct LineState {
    /// How much longer each packet takes, one way.
    #[serde(serialize_with = "milliseconds", rename = "delay_ms")]
    pub delay: Duration,
    /// The part of packets that is lost, from 0 to 1.
    pub loss: f64,
    /// Whether nothing passes at all.
    pub cut: bool,
}

fn milliseconds<S: serde::Serializer>(delay: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(delay.as_secs_f64() * 1000.0)
}

/// A service that other clusters can reach, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposed {
    /// The address of its cluster on the line.
    pub address: String,
    /// The service's port.
    pub port: i32,
}

impl std::fmt::Display for Exposed {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.address, self.port)
    }
}

/// The line between some clusters. Dropping it disconnects them.
#[derive(Debug)]
pub struct WideArea {
    ends: Vec<End>,
    state: Mutex<(u64, LineState)>,
    // Before the directory, as in a cluster.
    supervisor: Supervisor,
    directory: Directory,
}

#[derive(Debug, Clone)]
struct End {
    cluster: PathBuf,
    address: String,
    core: rustix::process::Pid,
}

impl Lab {
    /// Connects clusters with nodes by a line that is perfect at first.
    pub async fn wide_area(clusters: &[&Cluster]) -> Result<WideArea> {
        static COUNTER: AtomicU32 = AtomicU32::new(1);
        ensure!((2..=9).contains(&clusters.len()), "a wide area is between 2 to 9 clusters");
        let mut ends = Vec::new();
        for (n, cluster) in clusters.iter().enumerate() {
            ends.push(End::of(cluster, n + 1)?);
        }
        let tools = clusters[0].nodes()?.plan.tools.clone();
        let n = COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("wide-area-{}-{n}", std::process::id());
        let (directory, supervisor) = blocking(move || {
            let directory = Directory::claim(&directory::root(), &name)?;
            let supervisor = Supervisor::start(directory.dir())?;
            Ok((directory, supervisor))
        })
        .await?;
        let area = WideArea { ends, state: Mutex::default(), supervisor, directory };
        area.start(tools).await?;
        Ok(area)
    }
}

impl End {
    fn of(cluster: &Cluster, number: usize) -> Result<Self> {
        cluster.nodes()?;
        Ok(Self {
            cluster: cluster.dir().to_path_buf(),
            address: format!("100.64.0.{number}"),
            core: cluster
                .supervisor()
                .pid(CORE)
                .with_context(|| format!("cluster {} is not running any more", cluster.name()))?,
        })
    }

    /// Gives the tunnel its address; the nodes know the way. Only between the nodes and the line is anything forwarded.
    fn connect(&self) -> Result<()> {
        let address = &self.address;
        ip_batch(
            self.core,
            &format!(
                "address add {address}/32 dev {TUNNEL}\nlink set {TUNNEL} mtu 1400 up\nroute add {WIDE_AREA_RANGE} dev {TUNNEL} src {address}\n"
            ),
        )?;
        self.nft(&format!(
            "table ip wide-area {{
                chain forward {{
                    type filter hook forward priority 0; policy drop;
                    iifname {BRIDGE} oifname {TUNNEL} accept
                    iifname {TUNNEL} oifname {BRIDGE} accept
                }}
                chain postrouting {{
                    type nat hook postrouting priority 100;
                    ip saddr {{ {NODE_RANGE}, {POD_RANGE} }} oifname {TUNNEL} masquerade
                }}
            }}"
        ))?;
        self.forward(true)
    }

    /// What the end of the tunnel does not take along.
    fn disconnect(&self) -> Result<()> {
        // The cluster may have ended before, and its process id may belong to another process by now.
        if !processes::lives(self.core, &self.cluster) {
            return Ok(());
        }
        self.forward(false)?;
        self.nft("delete table ip wide-area")
    }

    fn nft(&self, rules: &str) -> Result<()> {
        let mut net = std::ffi::OsString::from("--net=");
        net.push(network_of(self.core));
        run(std::process::Command::new("nsenter").arg(net).args(["--", "nft", rules])).map(drop)
    }

    fn forward(&self, on: bool) -> Result<()> {
        let value = u8::from(on);
        run(enter(self.core).args(["sh", "-c", &format!("echo {value} > /proc/sys/net/ipv4/ip_forward")]))
            .map(drop)
    }
}

impl WideArea {
    async fn start(&self, tools: PathBuf) -> Result<()> {
        let file = |name: &str| self.directory.dir().join(name).display().to_string();
        self.write_settings()?;
        let mut args = vec!["wide-area".into(), file(SETTINGS), file(APPLIED), "0".into()];
        for end in &self.ends {
            args.push(format!("{}={}", end.cluster.join(CORE_NETWORK).display(), end.address));
        }
        self.supervisor.run(&Program { name: LINE.into(), path: tools, args, place: Place::Machine })?;
        self.wait_until_applied().await?;
        let ends = self.ends.clone();
        blocking(move || ends.iter().try_for_each(End::connect)).await
    }

    /// How the line is now.
    pub fn state(&self) -> LineState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// Makes the line so, and waits until it is.
    pub async fn set(&self, state: LineState) -> Result<()> {
        ensure!((0.0..=1.0).contains(&state.loss), "a loss is a part, from 0 to 1, not {}", state.loss);
        self.state.lock().unwrap_or_else(PoisonError::into_inner).1 = state;
        self.write_settings()?;
        self.wait_until_applied().await
    }

    /// Lets nothing pass.
    pub async fn cut(&self) -> Result<()> {
        self.set(LineState { cut: true, ..self.state() }).await
    }

    /// Makes the line perfect again.
    pub async fn restore(&self) -> Result<()> {
        self.set(LineState::default()).await
    }

    /// The address of a cluster on the line.
    pub fn address_of(&self, cluster: &Cluster) -> Result<&str> {
        let end = self.ends.iter().find(|end| end.cluster == cluster.dir());
        Ok(&end.with_context(|| format!("cluster {} is not connected", cluster.name()))?.address)
    }

    /// Lets the others reach a port of a service. It gets a second Service beside it, `<name>-wide-area`, with the cluster's address
    /// on the line; whoever owns the first one sees no change.
    pub async fn expose(
        &self,
        cluster: &Cluster,
        namespace: &str,
        service: &str,
        port: i32,
    ) -> Result<Exposed> {
        let address = self.address_of(cluster)?.to_owned();
        let client = cluster.client()?;
        let services: Api<Service> = Api::namespaced(client.clone(), namespace);
        let spec = services.get(service).await?.spec.unwrap_or_default();
        let ports = spec.ports.unwrap_or_default();
        let Some(found) = ports.iter().find(|candidate| candidate.port == port) else {
            bail!(
                "service {namespace}/{service} has no port {port}, but {:?}",
                ports.iter().map(|port| port.port).collect::<Vec<_>>()
            );
        };
        let selector = spec.selector.with_context(|| {
            format!("service {namespace}/{service} selects no pods, so there is nothing to reach")
        })?;
        let target = found.target_port.as_ref().map_or(json!(port), |target| json!(target));
        let name = format!("{service}-wide-area");
        apply(
            &client,
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
                "spec": {"selector": selector, "externalIPs": [address],
                    "ports": [{"name": format!("port-{port}"), "port": port, "targetPort": target, "protocol": found.protocol}]}}),
        )
        .await?;
        Ok(Exposed { address, port })
    }

    fn write_settings(&self) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 += 1;
        let mut text = serde_json::to_value(state.1)?;
        text["number"] = json!(state.0);
        let path = self.directory.dir().join(SETTINGS);
        let new = path.with_extension("new");
        std::fs::write(&new, text.to_string())?;
        // At once: the reader never sees half of it.
        std::fs::rename(&new, &path).with_context(|| format!("cannot write {}", path.display()))
    }

    async fn wait_until_applied(&self) -> Result<()> {
        let number = self.state.lock().unwrap_or_else(PoisonError::into_inner).0.to_string();
        eventually(Duration::from_secs(10), "the line has its new settings", || async {
            ensure!(
                !self.supervisor.has_ended(LINE),
                "its process ended: {}",
                self.supervisor.last_lines(LINE)
            );
            Ok((std::fs::read_to_string(self.directory.dir().join(APPLIED)).ok() == Some(number.clone()))
                .then_some(()))
        })
        .await
    }
}

impl Drop for WideArea {
    fn drop(&mut self) {
        for end in &self.ends {
            if let Err(error) = end.disconnect() {
                eprintln!("{error:#}");
            }
        }
    }
}
