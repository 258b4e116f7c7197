//! What of ours a cluster holds that only a running operator can take away in order. Changes nothing.

use std::time::Duration;

use anyhow::{Context as _, bail};
use aquifer_api::component::{Component, ComponentObject, ComponentReason, Desired, ObjectState};
use aquifer_api::efs::SharedVolume;
use aquifer_api::{Reason, labels};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_millis(200);
/// How long a busy API server may put us off.
const PATIENCE: Duration = Duration::from_secs(15);

/// Fails, with a list, while there are objects that only a running operator can take away in order.
pub async fn refuse(client: &Client) -> anyhow::Result<()> {
    let needed = all(client).await?;
    if needed.is_empty() {
        return Ok(());
    }
    bail!(
        "these still need the operator:\n  {}\ntake them away first, while it runs: aquifer efs uninstall\nor leave them for the next installation: aquifer uninstall --keep-objects",
        needed.join("\n  ")
    );
}

async fn all(client: &Client) -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    let everything = ListParams::default();
    for volume in list::<SharedVolume>(client, &everything).await? {
        all.push(format!("SharedVolume {}", place(&volume)));
    }
    let components = list::<Component>(client, &everything).await?;
    all.extend(components.iter().filter_map(still_there));
    if components.is_empty() {
        // Somebody has deleted the component while no operator ran to make it again.
        let made = ListParams::default().labels(&format!("{}={}", labels::MANAGED_BY, labels::MANAGER));
        let plugins = list::<DaemonSet>(client, &made).await?;
        all.extend(plugins.iter().map(|plugin| format!("DaemonSet {} of a driver", place(plugin))));
    }
    Ok(all)
}

fn place(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// Names of the components that an administrator has removed.
pub async fn unwanted(client: &Client) -> anyhow::Result<Vec<String>> {
    let components = list::<Component>(client, &ListParams::default()).await?;
    Ok(components
        .iter()
        .filter(|one| one.spec.desired() == Desired::Removed)
        .map(ResourceExt::name_any)
        .collect())
}

/// The components that are removed to the end. What is left of them is the wish, and the next installation would keep to it.
pub async fn finished(client: &Client) -> anyhow::Result<Vec<Component>> {
    let mut components = list::<Component>(client, &ListParams::default()).await?;
    components.retain(|one| one.spec.desired() == Desired::Removed && still_there(one).is_none());
    Ok(components)
}

/// Why a component keeps the operator: it is wanted, or not gone yet. One that somebody else manages does not.
fn still_there(component: &Component) -> Option<String> {
    let status = component.status.as_ref();
    let ready = status.and_then(|status| status.conditions.iter().find(|one| one.type_ == "Ready"));
    let reason = ready.and_then(|ready| ComponentReason::parse(&ready.reason));
    let current = status.is_some_and(|status| status.observed_generation == component.metadata.generation);
    let left =
        |object: &ComponentObject| matches!(object.state, ObjectState::Current | ObjectState::Deleting);
    let leaves = status.is_some_and(|status| status.objects.iter().any(left));
    let why = match component.spec.desired() {
        Desired::Removed if current && reason == Some(ComponentReason::Removed) => return None,
        Desired::Installed if current && reason == Some(ComponentReason::External) && !leaves => return None,
        Desired::Installed if reason == Some(ComponentReason::External) && leaves => {
            "is managed by somebody else, but objects of ours are left"
        }
        Desired::Removed => "is not removed yet",
        Desired::Installed => "is installed",
    };
    Some(format!("Component {} {why}", component.name_any()))
}

/// All such objects of a kind; none when the kind is not served.
async fn list<K>(client: &Client, which: &ListParams) -> anyhow::Result<Vec<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let (api, deadline) = (Api::<K>::all(client.clone()), Instant::now() + PATIENCE);
    loop {
        match api.list(which).await {
            Ok(list) => return Ok(list.items),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            // A kind that was just installed is not ready to be listed for a moment.
            Err(kube::Error::Api(status)) if status.code == 429 && Instant::now() < deadline => {
                tokio::time::sleep(INTERVAL).await;
            }
            Err(error) => return Err(error).with_context(|| format!("cannot list {}", K::plural(&()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn component(desired: &str, reason: &str, seen: i64) -> Component {
        serde_json::from_value(json!({
            "apiVersion": "aquifer.storage/v1alpha1", "kind": "Component",
            "metadata": { "name": "efs-driver", "generation": 2 },
            "spec": { "desired": desired },
            "status": { "observedGeneration": seen, "conditions": [{ "type": "Ready", "status": "True",
                "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }] },
        }))
        .unwrap()
    }

    #[test]
    fn a_component_needs_the_operator_until_it_is_known_to_be_removed() {
        assert_eq!(still_there(&component("Removed", "Removed", 2)), None);
        assert!(still_there(&component("Removed", "Removed", 1)).unwrap().contains("not removed yet"));
        assert!(still_there(&component("Removed", "Removing", 2)).unwrap().contains("not removed yet"));
        assert!(still_there(&component("Installed", "Ready", 2)).unwrap().contains("is installed"));
        assert_eq!(still_there(&component("Installed", "External", 2)), None);
        let mut external = component("Installed", "External", 2);
        let left = json!({ "kind": "CSIDriver", "name": "efs.csi.aws.com", "state": "Current" });
        external.status.as_mut().unwrap().objects.push(serde_json::from_value(left).unwrap());
        assert!(still_there(&external).unwrap().contains("objects of ours are left"));
    }
}
