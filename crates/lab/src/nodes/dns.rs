//! The cluster's DNS server: CoreDNS as a pod behind the usual service. Answers for the cluster only and asks no other server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::{Value, json};

use super::plan::DNS_ADDRESS;
use crate::eventually;
use crate::install::apply;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "coredns";
const COREFILE: &str = "\
.:53 {
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        ttl 5
    }
    cache 5
    loadbalance
    reload 2s
}
";

/// Makes all its objects.
pub(super) async fn install(client: &kube::Client, image: &str) -> Result<()> {
    for object in objects(image) {
        apply(client, object).await.context("cannot install the DNS server")?;
    }
    Ok(())
}

/// Waits until a pod of it is ready.
pub(super) async fn wait_until_ready(client: &kube::Client) -> Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    eventually(Duration::from_mins(2), "the DNS server is ready", || async {
        let status = deployments.get(NAME).await?.status.unwrap_or_default();
        ensure!(
            status.ready_replicas.unwrap_or(0) > 0,
            "its deployment says {}",
            serde_json::to_string(&status)?
        );
        Ok(Some(()))
    })
    .await
}

fn objects(image: &str) -> Vec<Value> {
    let rbac = "rbac.authorization.k8s.io/v1";
    let role = "system:coredns";
    let labels = json!({"k8s-app": "kube-dns"});
    vec![
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": NAMESPACE}}),
        json!({"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": role}, "rules": [
            {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
        ]}),
        json!({"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}]}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME, "namespace": NAMESPACE},
            "data": {"Corefile": COREFILE}}),
        json!({"apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": NAMESPACE, "labels": labels},
        "spec": {"clusterIP": DNS_ADDRESS, "selector": labels, "ports": [
            {"name": "dns", "port": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
        ]}}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "serviceAccountName": NAME,
                "priorityClassName": "system-cluster-critical",
                "dnsPolicy": "Default",
                // A lost node must not keep the only server for five minutes.
                "tolerations": [
                    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2},
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2},
                ],
                "containers": [{
                    "name": NAME,
                    "image": image,
                    "imagePullPolicy": "Never",
                    "args": ["-conf", "/etc/coredns/Corefile"],
                    "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": true}],
                    "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
                    "securityContext": {
                        "allowPrivilegeEscalation": false,
                        "readOnlyRootFilesystem": true,
                        "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
                    },
                }],
                "volumes": [{"name": "config", "configMap": {"name": NAME}}],
            }},
        }}),
    ]
}
