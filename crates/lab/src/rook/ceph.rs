//! Ceph's own commands against a cluster's Ceph, as its administrator or as a client in any namespace. Interprets none of them but health.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use serde_json::{Value, json};

use super::Kind;
use super::objects::{self, NAMESPACE};
use crate::cluster::Cluster;
use crate::eventually;
use crate::install;

/// The name of Ceph's administrator.
const ADMIN: &str = "admin";
const POD_WITHIN: Duration = Duration::from_mins(3);

/// A user of Ceph in a pod of its own.
#[derive(Debug)]
pub struct CephClient<'a> {
    cluster: &'a Cluster,
    namespace: String,
    name: String,
}

impl Cluster {
    /// Runs `ceph` with these arguments as Ceph's administrator and gives what it printed.
    pub async fn ceph(&self, args: &[&str]) -> Result<String> {
        self.ceph_program("ceph", args).await
    }

    /// The same for another program of Ceph, such as `rados` or `rbd`.
    pub async fn ceph_program(&self, program: &str, args: &[&str]) -> Result<String> {
        run(self, NAMESPACE, ADMIN, program, args).await
    }

    /// A new user of Ceph with these capabilities (such as `("osd", "allow rw pool=x")`), in a pod in the given namespace, which is made when
    /// it is missing.
    pub async fn ceph_client(
        &self,
        namespace: &str,
        name: &str,
        caps: &[(&str, &str)],
    ) -> Result<CephClient<'_>> {
        let (image, pod) = (&self.rook_image()?.name, pod_of(name));
        let client = self.client()?;
        let caps: Value = caps
            .iter()
            .map(|&(daemon, may)| (daemon.to_owned(), json!(may)))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let user = json!({"apiVersion": "ceph.rook.io/v1", "kind": "CephClient",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"caps": caps}});
        install::apply(&client, user).await?;
        let users = Kind::CephClient.api(&client, NAMESPACE);
        let secret = eventually(POD_WITHIN, &format!("CephClient {name} is Ready"), || async {
            let status = users.get(name).await?.data["status"].take();
            let secret = status["info"]["secretName"].as_str().map(str::to_owned);
            match secret.filter(|_| status["phase"] == "Ready") {
                Some(secret) => Ok(Some(secret)),
                None => bail!("its status is {status}"),
            }
        })
        .await?;
        let keys: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        let data = keys.get(&secret).await?.data.with_context(|| format!("Secret {secret} is empty"))?;
        let objects = [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
            json!({"apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": pod, "namespace": namespace}, "data": data}),
            objects::tools(namespace, &pod, image, &pod, name),
        ];
        for object in objects {
            install::apply(&client, object).await?;
        }
        let found = CephClient { cluster: self, namespace: namespace.to_owned(), name: name.to_owned() };
        eventually(POD_WITHIN, &format!("the pod of {name} in {namespace} answers"), || async {
            self.exec(namespace, &pod, &["true"]).await.map(Some)
        })
        .await?;
        Ok(found)
    }
}

impl CephClient<'_> {
    /// Runs any command in the user's pod.
    pub async fn exec(&self, command: &[&str]) -> Result<String> {
        self.cluster.exec(&self.namespace, &pod_of(&self.name), command).await
    }

    /// Runs a program of Ceph (`rados`, `rbd`, `ceph`) as this user.
    pub async fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        run(self.cluster, &self.namespace, &self.name, program, args).await
    }
}

/// The pod of a user, and the Secret with its key.
fn pod_of(user: &str) -> String {
    format!("ceph-{user}")
}

async fn run(cluster: &Cluster, namespace: &str, user: &str, program: &str, args: &[&str]) -> Result<String> {
    let pod = if namespace == NAMESPACE && user == ADMIN { objects::TOOLS.to_owned() } else { pod_of(user) };
    let mut command = vec![program.to_owned()];
    command.extend(connection(&cluster.client()?, user).await?);
    command.extend(args.iter().map(|&arg| arg.to_owned()));
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    cluster.exec(namespace, &pod, &command).await
}

/// The arguments for kubectl that run a program of Ceph as its administrator.
pub async fn admin_command(client: &kube::Client, program: &str, args: &[String]) -> Result<Vec<String>> {
    let words = ["exec", "--namespace", NAMESPACE, objects::TOOLS, "--", program];
    let mut command: Vec<String> = words.map(str::to_owned).to_vec();
    command.extend(connection(client, ADMIN).await?);
    command.extend_from_slice(args);
    Ok(command)
}

/// The arguments that every program of Ceph needs, because there is no configuration file.
async fn connection(client: &kube::Client, user: &str) -> Result<Vec<String>> {
    let mons = mons(client).await?;
    let words = ["-c", "/dev/null", "-m", &mons, "--id", user, "--keyfile", "/etc/ceph-key/key"];
    Ok(words.map(str::to_owned).to_vec())
}

/// The addresses of the mons, as Rook has them now.
async fn mons(client: &kube::Client) -> Result<String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let map = maps.get("rook-ceph-mon-endpoints").await?;
    let named = map.data.and_then(|mut data| data.remove("data")).unwrap_or_default();
    let addresses: Vec<&str> =
        named.split(',').filter_map(|mon| mon.split_once('=')).map(|(_, address)| address).collect();
    if addresses.is_empty() {
        bail!("Rook knows no mon yet");
    }
    Ok(addresses.join(","))
}

/// One module of the manager, which nothing here needs, fails in Debian's build.
pub(crate) async fn leave_out_what_fails(cluster: &Cluster) -> Result<()> {
    cluster.ceph(&["--connect-timeout=5", "mgr", "module", "disable", "restful"]).await.map(drop)
}

/// What Ceph says when it is healthy, or warns of nothing but what a lab cannot help; else an error.
pub(crate) async fn healthy(cluster: &Cluster) -> Result<String> {
    /// The lab's mons share the machine's disk, and its clocks.
    const NO_MATTER: [&str; 3] = ["MON_DISK_LOW", "MON_DISK_CRIT", "MON_CLOCK_SKEW"];
    let health: Value = serde_json::from_str(&cluster.ceph(&["health", "detail", "--format=json"]).await?)?;
    let mut says = health["status"].as_str().unwrap_or_default().to_owned();
    for name in health["checks"].as_object().into_iter().flat_map(serde_json::Map::keys) {
        if !NO_MATTER.contains(&name.as_str()) {
            bail!("Ceph says {health}");
        }
        says = format!("{says}, {name}");
    }
    Ok(says)
}
