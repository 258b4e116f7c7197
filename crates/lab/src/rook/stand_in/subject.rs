//! One object that the stand-in works on, and all writes to it. Decides nothing.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Event;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::kind::Kind;
use super::shape;
use super::state::State;
use crate::control_plane::hex;

/// The name under which Rook writes.
pub(super) const MANAGER: &str = "rook";

/// One object, and what is needed to write to it.
pub(super) struct Subject<'a> {
    pub(super) client: &'a Client,
    pub(super) state: &'a State,
    pub(super) kind: Kind,
    pub(super) object: DynamicObject,
}

impl Subject<'_> {
    pub(super) fn name(&self) -> String {
        self.object.name_any()
    }

    pub(super) fn namespace(&self) -> String {
        self.object.namespace().unwrap_or_default()
    }

    pub(super) fn uid(&self) -> String {
        self.object.uid().unwrap_or_default()
    }

    pub(super) fn generation(&self) -> i64 {
        self.object.metadata.generation.unwrap_or_default()
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.object.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn spec(&self) -> &Value {
        &self.object.data["spec"]
    }

    pub(super) fn status(&self) -> &Value {
        &self.object.data["status"]
    }

    pub(super) fn api(&self) -> Api<DynamicObject> {
        self.kind.api(self.client, &self.namespace())
    }

    /// The reference that makes something belong to this object.
    pub(super) fn owner_reference(&self) -> Value {
        json!({
            "apiVersion": "ceph.rook.io/v1", "kind": self.kind.name(), "name": self.name(), "uid": self.uid(),
            "controller": true, "blockOwnerDeletion": true,
        })
    }

    /// Puts Rook's finalizer on the object, and with it the spec as Rook's types print it.
    pub(super) async fn add_finalizer(&mut self) -> Result<()> {
        let ours = self.kind.finalizer();
        if self.object.finalizers().contains(&ours) {
            return Ok(());
        }
        let mut finalizers = self.object.finalizers().to_vec();
        finalizers.push(ours);
        let spec = shape::written_back(self.kind, self.spec());
        self.patch(json!({ "metadata": { "finalizers": finalizers }, "spec": spec })).await
    }

    pub(super) async fn remove_finalizer(&mut self) -> Result<()> {
        let ours = self.kind.finalizer();
        let finalizers: Vec<&String> = self.object.finalizers().iter().filter(|is| **is != ours).collect();
        self.patch(json!({ "metadata": { "finalizers": finalizers } })).await
    }

    async fn patch(&mut self, mut patch: Value) -> Result<()> {
        patch["metadata"]["resourceVersion"] = json!(self.object.resource_version());
        let name = self.name();
        self.object = self.api().patch(&name, &params(), &Patch::Merge(&patch)).await?;
        Ok(())
    }

    /// Writes status fields; those that are left out stay as they are.
    pub(super) async fn write_status(&mut self, status: Value) -> Result<()> {
        let mut patch = json!({ "status": status });
        for (kind, pointer, value) in &self.state.lock().faults.distortions {
            if let Some(field) = patch["status"].pointer_mut(pointer).filter(|_| *kind == self.kind) {
                *field = value.clone();
            }
        }
        let name = self.name();
        self.object = self
            .api()
            .patch_status(&name, &params(), &Patch::Merge(&patch))
            .await
            .with_context(|| format!("cannot write the status of {} {name}", self.kind.name()))?;
        Ok(())
    }

    pub(super) async fn write_phase(&mut self, phase: &str, observed: Option<i64>) -> Result<()> {
        let status = shape::status(self.kind, &self.namespace(), &self.name(), self.spec(), phase, observed);
        self.write_status(status).await
    }

    pub(super) async fn report_success(&self) -> Result<()> {
        let message =
            format!("successfully configured {} \"{}/{}\"", self.kind.name(), self.namespace(), self.name());
        self.event("Normal", "ReconcileSucceeded", &message).await
    }

    pub(super) async fn report_failure(&self, why: &str) -> Result<()> {
        let message = format!(
            "failed to reconcile {} \"{}/{}\". {why}",
            self.kind.name(),
            self.namespace(),
            self.name()
        );
        self.event("Warning", "ReconcileFailed", &message).await
    }

    /// One event for each thing that happens, however often it happens.
    async fn event(&self, kind: &str, reason: &str, message: &str) -> Result<()> {
        let Some(reporter) = self.kind.reporter() else { return Ok(()) };
        let id = hex(&Sha256::digest(format!("{}{reason}{message}", self.uid()))[..8]);
        let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let event: Event = serde_json::from_value(json!({
            "metadata": { "name": format!("{}.{id}", self.name()), "namespace": self.namespace() },
            "involvedObject": {
                "apiVersion": "ceph.rook.io/v1", "kind": self.kind.name(), "name": self.name(),
                "namespace": self.namespace(), "uid": self.uid(), "resourceVersion": self.object.resource_version(),
            },
            "type": kind, "reason": reason, "message": message, "count": 1,
            "firstTimestamp": now, "lastTimestamp": now, "source": { "component": reporter },
            "reportingComponent": reporter,
        }))?;
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace());
        match events.create(&PostParams::default(), &event).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            written => written.map(drop).context("cannot write an event"),
        }
    }
}

/// The parameters of a patch, with the name under which Rook writes.
pub(super) fn params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}
