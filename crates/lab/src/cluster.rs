//! A cluster: its builder, and what one can do with it while it runs. The flags of its programs are elsewhere.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::access::{Identity, write_private};
use crate::audit::Audit;
use crate::control_plane::{AUDIT_LOG, ControlPlane, Ports, hex, is_port_taken};
use crate::directory::{self, Directory};
use crate::nodes::plan::{NodePlan, node_plans};
use crate::nodes::{NodeParts, Nodes};
use crate::programs::{API_SERVER, ETCD, KUBECTL, Programs};
use crate::recipe::Image;
use crate::rook;
use crate::supervisor::Supervisor;

/// How often a start is tried with other ports.
const PORT_TRIES: u32 = 5;
/// For how long a restarted program waits for its old port.
const PORT_PATIENCE: Duration = Duration::from_secs(30);
const TOKEN_SECONDS: i64 = 24 * 3600;
/// Written into the directory when the cluster is ready: what another process has to know to use it.
const READY: &str = "ready.json";
/// How long another process may take to claim a cluster before its users give up.
const CLAIMED_WITHIN: Duration = Duration::from_mins(1);
/// How long a cluster with everything may take to start on a busy machine.
const SHARED_WITHIN: Duration = Duration::from_mins(15);

/// A cluster that is not started yet.
#[derive(Debug, Clone)]
pub struct ClusterBuilder {
    name: String,
    nodes: Option<u8>,
    zones: Vec<String>,
    rook: bool,
    recorded: bool,
}

impl ClusterBuilder {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), nodes: None, zones: Vec::new(), rook: false, recorded: true }
    }

    /// Gives it nodes, 1 to 5 of them, that run pods. Needs root. See [`crate::nodes`].
    #[must_use]
    pub fn nodes(mut self, count: u8) -> Self {
        self.nodes = Some(count);
        self
    }

    /// Labels the nodes with these zones, in turn.
    #[must_use]
    pub fn zones<Zone: Into<String>>(mut self, zones: impl IntoIterator<Item = Zone>) -> Self {
        self.zones = zones.into_iter().map(Into::into).collect();
        self
    }

    /// Gives it the real Rook and a real Ceph, healthy and with a file system; 1 to 5 nodes, 3 unless said otherwise. See [`crate::rook`].
    #[must_use]
    pub fn rook(mut self) -> Self {
        self.rook = true;
        self.nodes = self.nodes.or(Some(3));
        self
    }

    /// Keeps its audit log out of what shows which rights the operator uses: an operator of another version runs in it.
    #[must_use]
    pub fn unrecorded(mut self) -> Self {
        self.recorded = false;
        self
    }

    /// Starts the cluster and waits until it is ready: a few seconds, or minutes with Rook. The very first start builds what it needs.
    pub async fn start(self) -> Result<Cluster> {
        let name = self.name;
        let claimed = name.clone();
        let published = Published { nodes: self.nodes, zones: self.zones.clone(), rook: self.rook };
        let node_plans = self.nodes.map(|count| node_plans(count, &self.zones)).transpose()?;
        let (programs, directory, nodes, rook) = blocking(move || {
            let programs = Programs::find()?;
            let parts = node_plans.is_some().then(NodeParts::find).transpose()?;
            let rook = self.rook.then(rook::installation::prepare).transpose()?;
            // Later than the builds, which may take minutes and need no directory.
            let directory = Directory::claim(&directory::root(), &claimed)?;
            if !self.recorded {
                directory.forget_audit_log()?;
            }
            Ok((programs, directory, node_plans.zip(parts), rook))
        })
        .await?;
        let mut tries = 1;
        loop {
            match launch(&name, &directory, &programs, nodes.clone()).await {
                Ok((control_plane, nodes, supervisor)) => {
                    let cluster = Cluster {
                        name,
                        programs,
                        control_plane,
                        nodes,
                        rook,
                        supervisor,
                        _directory: Some(directory),
                    };
                    if let Some(image) = &cluster.rook {
                        rook::installation::install(&cluster, image)
                            .await
                            .with_context(|| format!("cannot install Rook in cluster {}", cluster.name))?;
                    }
                    let text = serde_json::to_string(&published)?;
                    // Renamed into its place: who finds it finds all of it.
                    write_private(&cluster.dir().join("ready.tmp"), &text)?;
                    std::fs::rename(cluster.dir().join("ready.tmp"), cluster.dir().join(READY))?;
                    return Ok(cluster);
                }
                Err(error) if tries < PORT_TRIES && is_port_taken(&format!("{error:#}")) => {
                    eprintln!("cluster {name}: another program took a port, trying others");
                    directory.empty()?;
                    tries += 1;
                }
                Err(error) => return Err(error.context(format!("cluster {name} did not start"))),
            }
        }
    }
}

async fn launch(
    name: &str,
    directory: &Directory,
    programs: &Programs,
    nodes: Option<(Vec<NodePlan>, NodeParts)>,
) -> Result<(ControlPlane, Option<Arc<Nodes>>, Arc<Supervisor>)> {
    let dir = directory.dir();
    let nodes =
        nodes.map(|(node_plans, parts)| Nodes::prepare(dir, node_plans, parts, programs)).transpose()?;
    let plan = nodes.as_ref().map(|nodes| &nodes.plan);
    let control_plane = ControlPlane::prepare(name, dir, Ports::choose()?, programs, plan)?;
    let supervisor = Arc::new(Supervisor::start(dir)?);
    let nodes = nodes.map(Arc::new);
    if let Some(nodes) = &nodes {
        crate::nodes::launch(nodes, &control_plane, &supervisor, name).await?;
    } else {
        let began = Instant::now();
        for program in &control_plane.programs {
            supervisor.run(program)?;
        }
        let names: Vec<&str> = control_plane.programs.iter().map(|program| program.name.as_str()).collect();
        control_plane.wait_until_ready(&supervisor, &names).await?;
        eprintln!("cluster {name}: control plane ready after {:.1} s", began.elapsed().as_secs_f64());
    }
    Ok((control_plane, nodes, supervisor))
}

/// A running cluster. It stops when this is dropped and when this process ends, however that happens.
///
/// It belongs to no async runtime and no thread, so a `static` can hold one for all tests of a binary.
#[derive(Debug)]
pub struct Cluster {
    name: String,
    programs: Programs,
    control_plane: ControlPlane,
    nodes: Option<Arc<Nodes>>,
    /// What Rook and Ceph run from, when it has them.
    rook: Option<Image>,
    // Before the directory: fields are dropped in this order, and nothing may run in a directory that is removed.
    supervisor: Arc<Supervisor>,
    /// Absent when another process owns the cluster: that one ends it.
    _directory: Option<Directory>,
}

/// What a cluster has, for processes that do not own it.
#[derive(Debug, Serialize, Deserialize)]
struct Published {
    nodes: Option<u8>,
    zones: Vec<String>,
    rook: bool,
}

impl Cluster {
    /// A cluster that another process starts or has started under this name, once it is ready. That process owns it: it runs on when
    /// this value is dropped, and programs of it can neither be started nor stopped from here.
    pub async fn of_another_process(name: &str) -> Result<Self> {
        let root = directory::root();
        let dir = root.join(name);
        let (began, mut owned) = (Instant::now(), Instant::now());
        let published: Published = loop {
            if let Ok(text) = std::fs::read_to_string(dir.join(READY)) {
                break serde_json::from_str(&text)
                    .with_context(|| format!("cannot read what cluster {name} has"))?;
            }
            if directory::owner_of(&root, name).is_some() {
                owned = Instant::now();
            }
            ensure!(
                owned.elapsed() < CLAIMED_WITHIN,
                "cannot use cluster {name}: the process that was to start it has ended"
            );
            ensure!(
                began.elapsed() < SHARED_WITHIN,
                "cannot use cluster {name}: it is not ready after {SHARED_WITHIN:?}"
            );
            tokio::time::sleep(Duration::from_millis(500)).await;
        };
        let dir = dir.canonicalize()?;
        let name = name.to_owned();
        blocking(move || {
            let nodes = match published.nodes {
                Some(count) => {
                    let node_plans = node_plans(count, &published.zones)?;
                    Some(Arc::new(Nodes::of_another_process(&dir, node_plans, NodeParts::find()?)))
                }
                None => None,
            };
            Ok(Self {
                programs: Programs::find()?,
                control_plane: ControlPlane::of_another_process(&name, &dir)?,
                nodes,
                rook: published.rook.then(rook::installation::prepare).transpose()?,
                supervisor: Arc::new(Supervisor::of_another_process(&dir)),
                _directory: None,
                name,
            })
        })
        .await
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory of everything it has: logs, keys, kubeconfigs, data.
    pub fn dir(&self) -> &Path {
        self.supervisor.dir()
    }

    /// The address of the API server.
    pub fn url(&self) -> &str {
        &self.control_plane.server.url
    }

    /// The certificate that vouches for the API server.
    pub fn ca_pem(&self) -> &str {
        &self.control_plane.authority().pem
    }

    /// The token of a user who may do everything.
    pub fn admin_token(&self) -> &str {
        &self.control_plane.admin.token
    }

    /// The programs that it runs from.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// The calls that its API server got.
    pub fn audit(&self) -> Audit {
        Audit::new(self.dir().join(AUDIT_LOG))
    }

    /// A client that may do everything. It gives up soon and retries nothing. It belongs to the async
    /// runtime that it was made in: make one for each test.
    pub fn client(&self) -> Result<kube::Client> {
        self.control_plane.server.client(&self.control_plane.admin)
    }

    /// A client that acts as this user.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> Result<kube::Client> {
        self.control_plane.server.client(&self.acting_as(user, groups))
    }

    /// A client that shows this token.
    pub fn client_with_token(&self, token: &str) -> Result<kube::Client> {
        self.control_plane.server.client(&Identity { token: token.to_owned(), acting_as: None })
    }

    /// The kubeconfig file of a user who may do everything.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir().join("kubeconfig")
    }

    /// A kubeconfig file to act as this user.
    pub fn kubeconfig_as(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let path = self.kubeconfig_for(&format!("{user} {}", groups.join(" ")));
        self.control_plane.server.write_kubeconfig(&path, &self.acting_as(user, groups))?;
        Ok(path)
    }

    /// A token of a service account and a kubeconfig file with it. The account is made if it is missing.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<(String, PathBuf)> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client()?, namespace);
        let account = ServiceAccount {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            ..ServiceAccount::default()
        };
        match accounts.create(&PostParams::default(), &account).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot make service account {namespace}/{name}"));
            }
        }
        let request = TokenRequest {
            spec: TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() },
            ..TokenRequest::default()
        };
        let token = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await?
            .status
            .with_context(|| format!("no token for service account {namespace}/{name}"))?
            .token;
        let path = self.kubeconfig_for(&format!("system:serviceaccount:{namespace}:{name}"));
        let identity = Identity { token: token.clone(), acting_as: None };
        self.control_plane.server.write_kubeconfig(&path, &identity)?;
        Ok((token, path))
    }

    /// `kubectl` as the user who may do everything. Turn it into a tokio command with `.into()`.
    pub fn kubectl(&self) -> std::process::Command {
        let mut command = std::process::Command::new(self.programs.path(KUBECTL));
        command.env("KUBECONFIG", self.kubeconfig());
        command
    }

    /// The process of `etcd`, `kube-apiserver`, `kube-controller-manager` or `supervisor`, while it lives.
    pub fn pid_of(&self, name: &str) -> Option<u32> {
        self.supervisor.pid(name).and_then(|pid| u32::try_from(pid.as_raw_nonzero().get()).ok())
    }

    /// Kills one program (it gets no chance to tidy up) and waits until it is gone.
    pub async fn stop_program(&self, name: &str) -> Result<()> {
        let name = self.control_plane.program(name)?.name.clone();
        let supervisor = self.supervisor.clone();
        blocking(move || supervisor.kill(&name)).await
    }

    /// Starts a stopped program again, on the same port, and waits until it is ready.
    pub async fn start_program(&self, name: &str) -> Result<()> {
        let program = self.control_plane.program(name)?;
        let began = Instant::now();
        loop {
            let log = self.supervisor.log_length(name);
            self.supervisor.run(program)?;
            let ready = self.wait_for(&program.name).await;
            let Err(error) = ready else { return Ok(()) };
            // The kernel may hold the port for a moment, or an outgoing connection of another program has got it.
            let taken = is_port_taken(&self.supervisor.printed_since(name, log));
            if !taken || began.elapsed() > PORT_PATIENCE {
                return Err(error.context(format!("{name} did not start again")));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn wait_for(&self, name: &str) -> Result<()> {
        let waits_for_answers = [API_SERVER, ETCD].contains(&name)
            && [API_SERVER, ETCD].iter().all(|&other| other == name || self.supervisor.pid(other).is_some());
        if waits_for_answers {
            return self.control_plane.wait_until_ready(&self.supervisor, &[name]).await;
        }
        // The controller manager has no endpoint; and the API server does not answer while etcd is stopped on purpose.
        let lives = || async { Ok(self.supervisor.pid(name).map(drop)) };
        crate::eventually(Duration::from_secs(10), &format!("{name} lives"), lives).await
    }

    /// Stops everything and removes the directory. Dropping does the same, but blocks and reports errors only on standard error.
    pub async fn stop(self) -> Result<()> {
        let supervisor = self.supervisor.clone();
        let ended = blocking(move || supervisor.end()).await;
        blocking(move || {
            drop(self);
            Ok(())
        })
        .await?;
        ended
    }

    /// Its nodes, or an error that says that it has none.
    pub(crate) fn nodes(&self) -> Result<&Arc<Nodes>> {
        let name = &self.name;
        self.nodes.as_ref().with_context(|| format!("cluster {name} was started without nodes"))
    }

    pub(crate) fn rook_image(&self) -> Result<&Image> {
        let name = &self.name;
        self.rook.as_ref().with_context(|| format!("cluster {name} was started without Rook"))
    }

    /// Where etcd answers, or an error that says why it cannot be reached from here.
    pub(crate) fn etcd_url(&self) -> Result<&str> {
        let name = &self.name;
        anyhow::ensure!(self.nodes.is_none(), "etcd of cluster {name} is within the network of its nodes");
        let url = self.control_plane.etcd_url.as_deref();
        url.with_context(|| format!("etcd of cluster {name} belongs to another process"))
    }

    pub(crate) fn supervisor(&self) -> Arc<Supervisor> {
        self.supervisor.clone()
    }

    fn acting_as(&self, user: &str, groups: &[&str]) -> Identity {
        let groups = groups.iter().map(|&group| group.to_owned()).collect();
        Identity { token: self.admin_token().to_owned(), acting_as: Some((user.to_owned(), groups)) }
    }

    /// A file name for an identity: readable, and unlike that of any other.
    fn kubeconfig_for(&self, identity: &str) -> PathBuf {
        let readable: String =
            identity.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(60).collect();
        let hash = hex(&Sha256::digest(identity)[..4]);
        self.dir().join(format!("kubeconfig-{}-{hash}", readable.trim_matches('-')))
    }
}

/// Runs what blocks away from the async runtime's own threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context("the work was interrupted")?
}
