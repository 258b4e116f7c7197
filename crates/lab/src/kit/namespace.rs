//! A namespace for one test, with pods that hold claims as if a node ran them. Knows no kind of ours.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, Resource};
use serde_json::json;

use super::DEADLINE;
use crate::{Cluster, eventually};

/// A namespace and the client of a person who may do everything in it.
pub struct TestNamespace {
    /// Belongs to the runtime of the test that made it.
    pub client: Client,
    /// Its name.
    pub name: String,
}

impl TestNamespace {
    /// A namespace with a name that no other test of this process has; `purpose` is for the people who read it. The name has no dash
    /// (names that are derived from it then have no hash) and is no prefix of another, so that it can be masked.
    pub async fn new(cluster: &Cluster, purpose: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        Self::named(cluster, &format!("{purpose}{:04}", COUNT.fetch_add(1, Ordering::SeqCst))).await
    }

    /// A namespace whose name matters.
    pub async fn named(cluster: &Cluster, name: &str) -> Result<Self> {
        let client = cluster.client()?;
        let body: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &body).await?;
        Ok(Self { client, name: name.to_owned() })
    }

    /// The objects of a kind in it.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Deletes the namespace; does not wait until it is gone.
    pub async fn delete_namespace(&self) -> Result<()> {
        Api::<Namespace>::all(self.client.clone()).delete(&self.name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// A pod that uses a claim, as if it ran on a node.
    pub async fn pod(&self, name: &str, claim: &str) -> Result<()> {
        let body: Pod = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": "somewhere",
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": "example.com/none"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
            },
        }))?;
        // The namespace's service account comes a moment after the namespace.
        eventually(DEADLINE, "a pod can be made", || async {
            Ok(Some(self.api::<Pod>().create(&PostParams::default(), &body).await?))
        })
        .await?;
        Ok(())
    }

    /// Ends a pod at once, as its node would.
    pub async fn end_pod(&self, name: &str) -> Result<()> {
        self.api::<Pod>().delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }
}
