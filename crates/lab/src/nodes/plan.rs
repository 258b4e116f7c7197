//! Who is where: names, addresses and identities of a cluster with nodes. The same for every cluster, so that any two overlap.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::programs::{KUBE_PROXY, SCHEDULER};
use crate::supervisor::{Place, Program};

/// The namespaces that hold the control plane and the bridge between the nodes.
pub(crate) const CORE: &str = "core";
/// The control plane's address on the bridge.
pub(crate) const CORE_ADDRESS: &str = "10.90.0.1";
/// The range of the nodes' own addresses.
pub(crate) const NODE_RANGE: &str = "10.90.0.0/24";
/// The range that all pods' addresses are in; each node has a part of it.
pub(crate) const POD_RANGE: &str = "10.244.0.0/16";
/// The range of services.
pub(crate) const SERVICE_RANGE: &str = "10.96.0.0/16";
/// The range of the wide area's addresses. Reserved for carriers' own networks, so no cluster uses it.
pub(crate) const WIDE_AREA_RANGE: &str = "100.64.0.0/24";
/// The address of the cluster's DNS server.
pub(crate) const DNS_ADDRESS: &str = "10.96.0.10";
pub(crate) const SCHEDULER_CONFIG: &str = "kube-scheduler.yaml";
pub(crate) const SCHEDULER_KUBECONFIG: &str = "kube-scheduler.kubeconfig";
pub(crate) const CORE_PROXY_KUBECONFIG: &str = "core-kube-proxy.kubeconfig";
/// The way from the machine to the API server.
pub(crate) const RELAY: &str = "relay";

const MOST: u8 = 5;

/// What was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) node_plans: Vec<NodePlan>,
    /// The lab's tools, which hold the relay.
    pub(crate) tools: PathBuf,
}

/// One node's name, addresses and zone.
#[derive(Debug, Clone)]
pub(crate) struct NodePlan {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) pods: String,
    pub(crate) zone: Option<String>,
}

/// A user whom the API server knows by a token.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) group: &'static str,
    pub(crate) kubeconfig: String,
    host: &'static str,
}

impl User {
    /// Where it finds the API server.
    pub(crate) fn url(&self, port: u16) -> String {
        format!("https://{}:{port}", self.host)
    }
}

impl NodePlan {
    pub(crate) fn kubelet_kubeconfig(&self) -> String {
        format!("{}-kubelet.kubeconfig", self.name)
    }

    pub(crate) fn proxy_kubeconfig(&self) -> String {
        format!("{}-kube-proxy.kubeconfig", self.name)
    }

    /// The name of one of its programs, for the supervisor.
    pub(crate) fn program(&self, program: &str) -> String {
        format!("{}-{program}", self.name)
    }
}

fn name(n: u8) -> String {
    format!("n{n}")
}

/// The names of all nodes that a cluster can have.
pub(crate) fn all_names() -> impl Iterator<Item = String> {
    (1..=MOST).map(name)
}

/// Names and addresses of `count` nodes, with the zones given to them in turn.
pub(crate) fn node_plans(count: u8, zones: &[String]) -> Result<Vec<NodePlan>> {
    ensure!((1..=MOST).contains(&count), "a cluster can have 1 to {MOST} nodes, not {count}");
    let node_plan = |n: u8| NodePlan {
        name: name(n),
        address: format!("10.90.0.{}", 10 + n),
        pods: format!("10.244.{n}.0/24"),
        zone: zones.get(usize::from(n - 1) % zones.len().max(1)).cloned(),
    };
    Ok((1..=count).map(node_plan).collect())
}

impl Plan {
    /// All users who need a token, beside those of a cluster without nodes.
    pub(crate) fn users(&self) -> Vec<User> {
        let mut users = vec![
            User {
                name: format!("system:{SCHEDULER}"),
                group: "system:authenticated",
                kubeconfig: SCHEDULER_KUBECONFIG.into(),
                host: "127.0.0.1",
            },
            User {
                name: format!("system:{KUBE_PROXY}"),
                group: "system:authenticated",
                kubeconfig: CORE_PROXY_KUBECONFIG.into(),
                host: "127.0.0.1",
            },
        ];
        for node_plan in &self.node_plans {
            users.push(User {
                name: format!("system:node:{}", node_plan.name),
                group: "system:nodes",
                kubeconfig: node_plan.kubelet_kubeconfig(),
                host: CORE_ADDRESS,
            });
            users.push(User {
                name: format!("system:{KUBE_PROXY}"),
                group: "system:authenticated",
                kubeconfig: node_plan.proxy_kubeconfig(),
                host: CORE_ADDRESS,
            });
        }
        users
    }

    /// Accepts on the machine's loopback and connects within the core. The port is the same on both sides, and so is the URL.
    pub(crate) fn relay(&self, dir: &Path, port: u16) -> Program {
        Program {
            name: RELAY.into(),
            path: self.tools.clone(),
            args: vec![
                "relay".into(),
                format!("127.0.0.1:{port}"),
                dir.join(super::linux_namespaces::CORE_NETWORK).display().to_string(),
                format!("127.0.0.1:{port}"),
                dir.join(RELAY).display().to_string(),
            ],
            place: Place::Machine,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn nodes_get_zones_in_turn_and_ranges_of_their_own() {
        let zones = ["a".to_owned(), "b".to_owned()];
        let node_plans = node_plans(3, &zones).unwrap();
        let seen: Vec<_> = node_plans
            .iter()
            .map(|node_plan| {
                (node_plan.name.as_str(), node_plan.pods.as_str(), node_plan.zone.as_deref().unwrap())
            })
            .collect();
        assert_eq!(
            seen,
            [("n1", "10.244.1.0/24", "a"), ("n2", "10.244.2.0/24", "b"), ("n3", "10.244.3.0/24", "a")]
        );
        assert_eq!(super::node_plans(1, &[]).unwrap()[0].zone, None);
    }

    #[test]
    fn a_cluster_has_one_to_five_nodes() {
        assert!(node_plans(0, &[]).is_err());
        assert!(node_plans(6, &[]).is_err());
        assert_eq!(node_plans(5, &[]).unwrap().len(), all_names().count());
    }
}
