//! The driver's objects and its Component as a test sees and damages them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use aquifer_api::component::{Component, ComponentObject, ObjectState};
use aquifer_efs::kinds::{CSI_DRIVER, DAEMON_SET, STORAGE_CLASS};
use aquifer_efs::names::driver;
use aquifer_engine::Kind;
use aquifer_lab::eventually;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::harness::{DEADLINE, Operator, show};
use aquifer_lab::kit::TestCluster;

/// What the operator makes of the driver.
pub const MADE: [Kind; 3] = [DAEMON_SET, CSI_DRIVER, STORAGE_CLASS];

/// The one object of each kind, by kind.
#[derive(Clone)]
pub struct Objects {
    pub client: Client,
}

impl Objects {
    pub fn on(test: &TestCluster) -> Result<Self> {
        Ok(Self { client: test.cluster.client()? })
    }

    pub fn name(kind: &Kind) -> &'static str {
        match kind.kind.as_ref() {
            "Namespace" => driver::DEFAULT_NAMESPACE,
            "ServiceAccount" => driver::SERVICE_ACCOUNT,
            "DaemonSet" => driver::DAEMON_SET,
            "CSIDriver" => driver::DRIVER_NAME,
            "StorageClass" => driver::STORAGE_CLASS,
            other => panic!("the driver has no {other}"),
        }
    }

    pub fn api(&self, kind: &Kind) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, &kind.plural);
        if kind.namespaced {
            Api::namespaced_with(self.client.clone(), driver::DEFAULT_NAMESPACE, &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    pub async fn get(&self, kind: &Kind) -> Result<Option<DynamicObject>> {
        Ok(self.api(kind).get_opt(Self::name(kind)).await?)
    }

    /// The object, once it is there.
    pub async fn there(&self, kind: &Kind) -> Result<DynamicObject> {
        eventually(DEADLINE, &format!("{kind} is there"), || async { self.get(kind).await }).await
    }

    /// Waits until the object is as wanted.
    pub async fn until(&self, kind: &Kind, what: &str, is: impl Fn(&Value) -> bool) -> Result<DynamicObject> {
        eventually(DEADLINE, &format!("{kind} {what}"), || async {
            let object = self.get(kind).await?.with_context(|| format!("there is no {kind}"))?;
            if is(&serde_json::to_value(&object)?) {
                Ok(Some(object))
            } else {
                Err(anyhow!("{}", show(&object)))
            }
        })
        .await
    }

    /// The kinds of those that are there.
    pub async fn present(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for kind in MADE {
            if self.get(&kind).await?.is_some() {
                found.push(kind.to_string());
            }
        }
        Ok(found)
    }

    /// The uid of each of these.
    pub async fn uids(&self, kinds: &[Kind]) -> Result<BTreeMap<String, String>> {
        let mut found = BTreeMap::new();
        for kind in kinds {
            let object = self.get(kind).await?.with_context(|| format!("there is no {kind}"))?;
            found.insert(kind.to_string(), object.metadata.uid.unwrap_or_default());
        }
        Ok(found)
    }

    pub async fn patch(&self, kind: &Kind, patch: &Value) -> Result<DynamicObject> {
        let params = PatchParams { field_manager: Some("stranger".into()), ..PatchParams::default() };
        let patched = self.api(kind).patch(Self::name(kind), &params, &Patch::Merge(patch)).await;
        patched.with_context(|| format!("patch {kind} with {patch}"))
    }

    pub async fn json_patch(&self, kind: &Kind, patch: Value) -> Result<DynamicObject> {
        let params = PatchParams { field_manager: Some("stranger".into()), ..PatchParams::default() };
        let patch: Patch<()> = Patch::Json(serde_json::from_value(patch)?);
        Ok(self.api(kind).patch(Self::name(kind), &params, &patch).await?)
    }

    pub async fn create(&self, kind: &Kind, mut body: Value) -> Result<DynamicObject> {
        body["apiVersion"] = json!(kind.api_version());
        body["kind"] = json!(kind.kind);
        body["metadata"]["name"] = json!(Self::name(kind));
        let body: DynamicObject = serde_json::from_value(body)?;
        self.api(kind)
            .create(&PostParams::default(), &body)
            .await
            .with_context(|| format!("create a foreign {kind}"))
    }

    pub async fn delete(&self, kind: &Kind) -> Result<()> {
        self.api(kind).delete(Self::name(kind), &DeleteParams::default()).await?;
        Ok(())
    }

    pub fn components(&self) -> Api<Component> {
        Api::all(self.client.clone())
    }

    /// Waits until the driver's `Ready` has this reason for its current generation.
    pub async fn reason(&self, reason: &str) -> Result<Component> {
        self.component(&format!("says {reason}"), |component| {
            component.status.as_ref().is_some_and(|s| s.observed_generation == component.metadata.generation)
                && ready(component).is_some_and(|ready| ready.reason == reason)
        })
        .await
    }

    /// Waits until the driver's Component is as wanted.
    pub async fn component(&self, what: &str, is: impl Fn(&Component) -> bool) -> Result<Component> {
        eventually(DEADLINE, &format!("the driver {what}"), || async {
            let component = self.components().get(driver::COMPONENT).await?;
            if is(&component) { Ok(Some(component)) } else { Err(anyhow!("{}", show(&component))) }
        })
        .await
    }

    /// Waits until the driver is installed and says so.
    pub async fn installed(&self) -> Result<Component> {
        let installed = self.reason("Installed").await?;
        assert_eq!(ready(&installed).map(|ready| ready.status.as_str()), Some("True"));
        Ok(installed)
    }
}

pub fn ready(component: &Component) -> Option<&Condition> {
    component.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// What the Component says of an object.
pub fn state(component: &Component, kind: &Kind) -> Option<ObjectState> {
    let listed: &[ComponentObject] = component.status.as_ref().map(|status| status.objects.as_slice())?;
    listed.iter().find(|object| object.kind == kind.kind).map(|object| object.state)
}

/// Everything that a person could have changed about an object: equal before a damage and after its repair.
pub fn content(object: &DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(map) = value.as_object_mut() {
        map.remove("status");
    }
    if let Some(metadata) = value["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
            metadata.remove(field);
        }
    }
    if let Some(annotations) = value["metadata"]["annotations"].as_object_mut() {
        // Counts the changes of the template; the API server's own.
        annotations.remove("deprecated.daemonset.template.generation");
    }
    value
}

/// Waits until an object is what it was, to the last field.
pub async fn restored(
    objects: &Objects,
    kind: &Kind,
    before: &DynamicObject,
    renewed: bool,
) -> Result<DynamicObject> {
    let wanted = content(before);
    eventually(DEADLINE, "it is put back", || async {
        let now = objects.get(kind).await?.ok_or_else(|| anyhow!("it is not there"))?;
        ensure!(!renewed || now.uid() != before.uid(), "it is still the old one");
        if content(&now) == wanted {
            Ok(Some(now))
        } else {
            Err(anyhow!("{}\ninstead of\n{wanted}", show(&now)))
        }
    })
    .await
}

/// How often the driver's controller has looked at the world.
pub fn driver_passes(operator: &Operator) -> u64 {
    operator.passes("aquifer-efs-driver")
}

/// Waits until the operator has not written for two seconds.
pub async fn at_rest(test: &TestCluster) -> Result<()> {
    eventually(DEADLINE, "the operator rests", || async {
        let mark = test.cluster.audit().mark()?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        let writes = test.writes_since(mark)?;
        if writes.is_empty() { Ok(Some(())) } else { Err(anyhow!("{writes:?}")) }
    })
    .await
}
