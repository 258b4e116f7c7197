//! Brings one object to the cluster, and says what that changed. Takes over nothing that is not ours, unless asked to.

use std::time::Duration;

use anyhow::{Context as _, bail};
use aquifer_api::labels::{self, PART_OF};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;

use super::objects::{KEEP, NAME, api_of, kind, title};

const MANAGER: &str = "aquifer-install";
pub const CRD: &str = "CustomResourceDefinition";
/// How long the API server may take to serve a new kind.
const PATIENCE: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(200);

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Created,
    Changed,
    Unchanged,
    /// It is not ours, and is left as it is.
    Left,
}

impl Change {
    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Left => "left",
        }
    }
}

/// The object as the cluster has it.
pub async fn look(client: &Client, object: &DynamicObject) -> anyhow::Result<Option<DynamicObject>> {
    api_of(client, object)?
        .get_opt(&object.name_any())
        .await
        .with_context(|| format!("cannot read {}", title(object)))
}

/// Fails when the object that is there must not be changed by us.
pub fn may_change(object: &DynamicObject, live: &DynamicObject, take_over: bool) -> anyhow::Result<()> {
    if is_kept(object) && kind(object) != CRD {
        // A user may have made it, to get what it gives to the pods in it: it is used only when an administrator says so.
        if !is_ours(live) && !take_over {
            bail!(
                "cannot use {}: it is not Aquifer's (it has no label {PART_OF}={NAME}), and whoever made it would get the power of what runs there. Delete it first; if it is yours, --take-over uses it",
                title(object)
            );
        }
        return Ok(());
    }
    // Definitions, and the operator's namespace, are used as they are when they are not ours.
    if [CRD, "Namespace"].contains(&kind(object)) {
        return Ok(());
    }
    if let Some(release) = release(live) {
        bail!(
            "cannot change {}: it belongs to the Helm release {release}. Use helm upgrade, or helm uninstall first",
            title(object)
        );
    }
    if !is_ours(live) {
        bail!(
            "cannot change {}: it is not Aquifer's (it has no label {PART_OF}={NAME}). Delete or rename it first",
            title(object)
        );
    }
    Ok(())
}

/// The Helm release that an object belongs to.
pub fn release(live: &DynamicObject) -> Option<String> {
    let by_helm = live.labels().get(labels::MANAGED_BY).is_some_and(|manager| manager == "Helm");
    let name = || live.annotations().get("meta.helm.sh/release-name").cloned().unwrap_or_default();
    by_helm.then(name)
}

/// Whether an object outlives the installation that made it, and so the Helm release that it says it belongs to.
pub fn is_kept(object: &DynamicObject) -> bool {
    object.annotations().get(KEEP.0).is_some_and(|policy| policy == KEEP.1)
}

/// Whether an object is part of Aquifer.
pub fn is_ours(live: &DynamicObject) -> bool {
    live.labels().get(PART_OF).is_some_and(|part_of| part_of == NAME)
}

/// Asks the server whether it would take the object.
pub async fn try_out(
    client: &Client,
    object: &DynamicObject,
    live: Option<&DynamicObject>,
    take_over: bool,
) -> anyhow::Result<()> {
    if left_alone(object, live, take_over) {
        return Ok(());
    }
    patch(client, object, &PatchParams::apply(MANAGER).force().dry_run()).await.map(drop)
}

/// Writes the object. The version that the server answers shows whether that changed anything.
pub async fn apply(
    client: &Client,
    object: &DynamicObject,
    live: Option<&DynamicObject>,
    take_over: bool,
) -> anyhow::Result<Change> {
    if left_alone(object, live, take_over) {
        return Ok(Change::Left);
    }
    let written = patch(client, object, &PatchParams::apply(MANAGER).force()).await?;
    Ok(match live {
        None => Change::Created,
        Some(live) if live.resource_version() == written.resource_version() => Change::Unchanged,
        Some(_) => Change::Changed,
    })
}

fn left_alone(object: &DynamicObject, live: Option<&DynamicObject>, take_over: bool) -> bool {
    let own_namespace = kind(object) == "Namespace" && !is_kept(object);
    let may_be_foreign = own_namespace || (kind(object) == CRD && !take_over);
    may_be_foreign && live.is_some_and(|live| !is_ours(live))
}

async fn patch(
    client: &Client,
    object: &DynamicObject,
    params: &PatchParams,
) -> anyhow::Result<DynamicObject> {
    api_of(client, object)?
        .patch(&object.name_any(), params, &Patch::Apply(object))
        .await
        .with_context(|| format!("cannot apply {}", title(object)))
}

/// Waits until our kinds are served.
pub async fn wait_until_served(client: &Client, objects: &[DynamicObject]) -> anyhow::Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let deadline = Instant::now() + PATIENCE;
    for object in objects.iter().filter(|object| kind(object) == CRD) {
        let name = object.name_any();
        loop {
            let live = api.get(&name).await.with_context(|| format!("cannot read {}", title(object)))?;
            let conditions = live.status.and_then(|status| status.conditions).unwrap_or_default();
            if conditions.iter().any(|is| is.type_ == "Established" && is.status == "True") {
                break;
            }
            if Instant::now() > deadline {
                let said: Vec<_> = conditions.iter().filter_map(|is| is.message.clone()).collect();
                bail!(
                    "cannot use {}: the cluster does not serve it after {} s: {}",
                    title(object),
                    PATIENCE.as_secs(),
                    said.join("; ")
                );
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }
    Ok(())
}
