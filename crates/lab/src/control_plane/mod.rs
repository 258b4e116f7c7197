//! What the control plane is made of: its files, its flags, and when it counts as ready. Starts nothing by itself.

pub(crate) mod access;
pub(crate) mod certificates;

use std::fmt::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;

use self::access::{Identity, Server, write_private};
use self::certificates::Authority;
use crate::nodes::plan::{self, Plan};
use crate::programs::{API_SERVER, CONTROLLER_MANAGER, ETCD, Programs, SCHEDULER};
use crate::supervisor::{Place, Program, Supervisor};

pub(crate) const AUDIT_LOG: &str = "audit.log";
/// What a server says whose port another program took in between.
const PORT_TAKEN: &str = "address already in use";
/// What kube-controller-manager says when the API server took longer than 10 s, as on a busy machine. Started at the same time, it
/// has to be started again then; started afterwards, it would make every start slower.
const GAVE_UP_WAITING: &str = "failed to wait for apiserver being healthy";

const TOKENS: &str = "tokens.csv";
const AUDIT_POLICY: &str = "audit-policy.yaml";
const CONTROLLER_MANAGER_KUBECONFIG: &str = "kube-controller-manager.kubeconfig";
const READY_WITHIN: Duration = Duration::from_secs(90);

/// Loopback ports of one cluster.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    etcd: u16,
    etcd_peer: u16,
    api_server: u16,
}

impl Ports {
    /// Ports that are free now. Another program may still take one before the server does; then the start is tried again.
    pub(crate) fn choose() -> Result<Self> {
        // All held at once, so that they differ.
        let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on loopback");
        let held = [free()?, free()?, free()?];
        let port = |n: usize| -> Result<u16> { Ok(held[n].local_addr()?.port()) };
        Ok(Self { etcd: port(0)?, etcd_peer: port(1)?, api_server: port(2)? })
    }

    pub(crate) fn url(self) -> String {
        format!("https://127.0.0.1:{}", self.api_server)
    }

    fn etcd_url(self) -> String {
        format!("http://127.0.0.1:{}", self.etcd)
    }
}

/// Everything needed to start the programs of one cluster.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    pub(crate) server: Server,
    /// Where etcd answers; none when another process owns it.
    pub(crate) etcd_url: Option<String>,
    pub(crate) admin: Identity,
    pub(crate) programs: Vec<Program>,
}

impl ControlPlane {
    /// Writes the files of a cluster with these ports into `dir`.
    pub(crate) fn prepare(
        cluster: &str,
        dir: &Path,
        ports: Ports,
        programs: &Programs,
        nodes: Option<&Plan>,
    ) -> Result<Self> {
        let authority = certificates::write(dir, nodes.map(|_| plan::CORE_ADDRESS))?;
        let server = Server {
            cluster: cluster.to_owned(),
            url: ports.url(),
            ca_file: dir.join(certificates::CA),
            authority,
        };
        let admin = Identity { token: random_token()?, acting_as: None };
        let manager = Identity { token: random_token()?, acting_as: None };
        let mut tokens = format!(
            "{},admin,lab-admin,\"system:masters\"\n{},system:kube-controller-manager,lab-manager\n",
            admin.token, manager.token
        );
        for user in nodes.into_iter().flat_map(Plan::users) {
            let identity = Identity { token: random_token()?, acting_as: None };
            let _ = writeln!(tokens, "{},{},{},\"{}\"", identity.token, user.name, user.name, user.group);
            let server = Server { url: user.url(ports.api_server), ..server.clone() };
            server.write_kubeconfig(&dir.join(&user.kubeconfig), &identity)?;
        }
        write_private(&dir.join(TOKENS), &tokens)?;
        write_private(&dir.join(AUDIT_POLICY), &audit_policy()?)?;
        // Made here so that it can be marked before the first call.
        write_private(&dir.join(AUDIT_LOG), "")?;
        server.write_kubeconfig(&dir.join("kubeconfig"), &admin)?;
        server.write_kubeconfig(&dir.join(CONTROLLER_MANAGER_KUBECONFIG), &manager)?;

        let mut list = vec![etcd(dir, ports, programs), api_server(dir, ports, programs, nodes.is_some())];
        if programs.has(CONTROLLER_MANAGER) {
            list.push(controller_manager(dir, programs, nodes.is_some()));
        }
        if let Some(plan) = nodes {
            for program in &mut list {
                program.place = Place::Inside(plan::CORE.into());
            }
            list.push(scheduler(dir, programs)?);
            list.push(plan.relay(dir, ports.api_server));
        }
        Ok(Self { server, etcd_url: Some(ports.etcd_url()), admin, programs: list })
    }

    /// The control plane of a cluster that another process owns: it can be asked, its programs cannot be started.
    pub(crate) fn of_another_process(cluster: &str, dir: &Path) -> Result<Self> {
        let file = dir.join("kubeconfig");
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let kubeconfig: serde_json::Value = serde_saphyr::from_str(&text)?;
        let word =
            |pointer: &str| kubeconfig.pointer(pointer).and_then(|value| value.as_str()).map(str::to_owned);
        let (url, token) = (word("/clusters/0/cluster/server"), word("/users/0/user/token"));
        let server = Server {
            cluster: cluster.to_owned(),
            url: url.context("its kubeconfig names no server")?,
            ca_file: dir.join(certificates::CA),
            authority: certificates::read(dir)?,
        };
        let token = token.context("its kubeconfig holds no token")?;
        let admin = Identity { token, acting_as: None };
        Ok(Self { server, etcd_url: None, admin, programs: Vec::new() })
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.server.authority
    }

    pub(crate) fn program(&self, name: &str) -> Result<&Program> {
        let names: Vec<&str> = self.programs.iter().map(|program| program.name.as_str()).collect();
        let found = self.programs.iter().find(|program| program.name == name);
        found.with_context(|| format!("{name} is none of this cluster's programs: {}", names.join(", ")))
    }

    /// Waits until the API server is ready and, where it runs, the controller manager has begun to work. Fails as soon as one of
    /// the programs `in_start` has ended.
    pub(crate) async fn wait_until_ready(&self, supervisor: &Supervisor, in_start: &[&str]) -> Result<()> {
        let started = Instant::now();
        let client = self.server.client(&self.admin)?;
        let mut seen;
        loop {
            match self.look(&client).await {
                Ok(()) => return Ok(()),
                Err(error) => seen = error,
            }
            if let Some(name) = in_start.iter().find(|name| supervisor.has_ended(name)) {
                let words = supervisor.last_lines(name);
                if *name == CONTROLLER_MANAGER && words.contains(GAVE_UP_WAITING) {
                    supervisor.run(self.program(name)?)?;
                } else {
                    bail!("{name} ended. Its last words:\n{words}");
                }
            }
            if started.elapsed() > READY_WITHIN {
                let mut report = String::new();
                for name in in_start {
                    let _ = write!(report, "\n--- {name}:\n{}", supervisor.last_lines(name));
                }
                return Err(seen.context(format!("not ready after {} s{report}", READY_WITHIN.as_secs())));
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    async fn look(&self, client: &kube::Client) -> Result<()> {
        let look = async {
            client.request_text(http::Request::get("/readyz").body(Vec::new())?).await.context("/readyz")?;
            if self.programs.iter().any(|program| program.name == CONTROLLER_MANAGER) {
                // The first thing that a user would miss: pods are refused without it.
                Api::<ServiceAccount>::namespaced(client.clone(), "default")
                    .get("default")
                    .await
                    .context("the ServiceAccount that kube-controller-manager makes")?;
            }
            Ok(())
        };
        tokio::time::timeout(Duration::from_secs(5), look).await.context("no answer within 5 s")?
    }
}

/// Whether the output of a server means that another program has its port.
pub(crate) fn is_port_taken(text: &str) -> bool {
    text.contains(PORT_TAKEN)
}

fn etcd(dir: &Path, ports: Ports, programs: &Programs) -> Program {
    let client = ports.etcd_url();
    let peer = format!("http://127.0.0.1:{}", ports.etcd_peer);
    Program {
        name: ETCD.into(),
        place: Place::Machine,
        path: programs.path(ETCD),
        args: vec![
            "--name=lab".into(),
            format!("--data-dir={}", dir.join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=lab={peer}"),
            // The data never outlives the cluster, so there is no crash that a sync to disk would help with.
            "--unsafe-no-fsync".into(),
            "--log-level=warn".into(),
        ],
    }
}

fn api_server(dir: &Path, ports: Ports, programs: &Programs, nodes: bool) -> Program {
    let file = |name: &str| dir.join(name).display().to_string();
    let reach = if nodes {
        vec![
            // All addresses of a namespace that cannot be reached from outside the lab.
            "--bind-address=0.0.0.0".into(),
            format!("--advertise-address={}", plan::CORE_ADDRESS),
            "--kubelet-preferred-address-types=InternalIP".into(),
            format!("--kubelet-client-certificate={}", file(certificates::KUBELET_CLIENT_CERTIFICATE)),
            format!("--kubelet-client-key={}", file(certificates::KUBELET_CLIENT_KEY)),
            "--enable-admission-plugins=NodeRestriction".into(),
        ]
    } else {
        vec![
            "--bind-address=127.0.0.1".into(),
            "--advertise-address=127.0.0.1".into(),
            // A loopback address is refused in Endpoints; without nodes it has no users.
            "--endpoint-reconciler-type=none".into(),
        ]
    };
    let mut program = Program {
        name: API_SERVER.into(),
        place: Place::Machine,
        path: programs.path(API_SERVER),
        args: vec![
            format!("--etcd-servers={}", ports.etcd_url()),
            "--etcd-compaction-interval=0".into(),
            format!("--secure-port={}", ports.api_server),
            format!("--tls-cert-file={}", file(certificates::SERVING_CERTIFICATE)),
            format!("--tls-private-key-file={}", file(certificates::SERVING_KEY)),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            "--authorization-mode=Node,RBAC".into(),
            format!("--token-auth-file={}", file(TOKENS)),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", file(certificates::SERVICE_ACCOUNT_PUBLIC_KEY)),
            format!("--service-account-signing-key-file={}", file(certificates::SERVICE_ACCOUNT_KEY)),
            "--allow-privileged=true".into(),
            "--max-requests-inflight=1200".into(),
            "--max-mutating-requests-inflight=600".into(),
            format!("--audit-policy-file={}", file(AUDIT_POLICY)),
            format!("--audit-log-path={}", file(AUDIT_LOG)),
            "--audit-log-format=json".into(),
            // Written down before the reply ends, never rotated: counts must be exact.
            "--audit-log-mode=blocking".into(),
            "--audit-log-maxsize=1000000".into(),
        ],
    };
    program.args.extend(reach);
    program
}

fn controller_manager(dir: &Path, programs: &Programs, nodes: bool) -> Program {
    let file = |name: &str| dir.join(name).display().to_string();
    let mut program = Program {
        name: CONTROLLER_MANAGER.into(),
        place: Place::Machine,
        path: programs.path(CONTROLLER_MANAGER),
        args: vec![
            format!("--kubeconfig={}", file(CONTROLLER_MANAGER_KUBECONFIG)),
            "--secure-port=0".into(),
            "--leader-elect=false".into(),
            "--use-service-account-credentials=true".into(),
            format!("--service-account-private-key-file={}", file(certificates::SERVICE_ACCOUNT_KEY)),
            format!("--root-ca-file={}", file(certificates::CA)),
            // With its defaults it needs minutes for a few hundred claims, and benchmarks would measure that.
            "--kube-api-qps=2000".into(),
            "--kube-api-burst=4000".into(),
            // Elsewhere it is 15 seconds. So much shorter that tests do not wait for claims long, and long enough that they would notice a
            // claim that is bound by this only.
            "--pvclaimbinder-sync-period=5s".into(),
        ],
    };
    if nodes {
        // A node is lost after seconds, not after most of a minute: tests wait for it. Kubelets renew as often (see the plan).
        program.args.extend(["--node-monitor-period=1s".into(), "--node-monitor-grace-period=16s".into()]);
    }
    program
}

fn scheduler(dir: &Path, programs: &Programs) -> Result<Program> {
    let config = serde_json::json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": dir.join(plan::SCHEDULER_KUBECONFIG)},
        "leaderElection": {"leaderElect": false},
        // A pod that found no node is tried again soon: tests wait for it, and the cluster is small.
        "podMaxBackoffSeconds": 2,
    });
    let path = dir.join(plan::SCHEDULER_CONFIG);
    let text = serde_saphyr::to_string(&config).context("failed to print the scheduler's configuration")?;
    write_private(&path, &text)?;
    Ok(Program {
        name: SCHEDULER.into(),
        path: programs.path(SCHEDULER),
        args: vec![format!("--config={}", path.display()), "--secure-port=0".into()],
        place: Place::Inside(plan::CORE.into()),
    })
}

fn audit_policy() -> Result<String> {
    let policy = serde_json::json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [{"level": "Metadata"}],
    });
    serde_saphyr::to_string(&policy).context("failed to print the audit policy")
}

fn random_token() -> Result<String> {
    let mut bytes = [0_u8; 16];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(hex(&bytes))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
