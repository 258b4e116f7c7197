//! Waits until the operator's replicas are ready, and says what they lack when they are not. Changes nothing.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context as _, bail};
use aquifer_base::NamespaceName;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;

use super::objects::{COMPONENT, NAME, NAME_LABEL};

const INTERVAL: Duration = Duration::from_millis(500);

/// Waits for the Deployment as it is now.
pub async fn wait(client: &Client, namespace: &NamespaceName, patience: Duration) -> anyhow::Result<()> {
    let api = Api::<Deployment>::namespaced(client.clone(), namespace.as_str());
    let deadline = Instant::now() + patience;
    let mut last = String::new();
    loop {
        let live = api.get(NAME).await.context("cannot read the operator's Deployment")?;
        let (done, said) = progress(&live);
        if said != last {
            say!("{said}");
            last = said;
        }
        if done {
            return Ok(());
        }
        if Instant::now() > deadline {
            let reasons = reasons(client, namespace).await?;
            bail!(
                "cannot finish: the operator is not ready after {} s: {last}{}",
                patience.as_secs(),
                reasons
            );
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Whether all replicas are new and ready, and how many are.
fn progress(live: &Deployment) -> (bool, String) {
    let wanted = live.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let status = live.status.clone().unwrap_or_default();
    let seen = status.observed_generation >= live.metadata.generation;
    let (updated, ready, all) = (
        status.updated_replicas.unwrap_or_default(),
        status.available_replicas.unwrap_or_default(),
        status.replicas.unwrap_or_default(),
    );
    let done = seen && updated == wanted && ready == wanted && all == wanted;
    (done, format!("{ready} of {wanted} replicas are ready, {updated} of them new"))
}

/// What the pods wait for, one line each.
async fn reasons(client: &Client, namespace: &NamespaceName) -> anyhow::Result<String> {
    let selector = format!("{NAME_LABEL}={NAME},{}={}", COMPONENT.0, COMPONENT.1);
    let pods = Api::<Pod>::namespaced(client.clone(), namespace.as_str())
        .list(&ListParams::default().labels(&selector))
        .await
        .context("cannot list the operator's pods")?;
    let mut text = String::new();
    for pod in &pods {
        let status = pod.status.clone().unwrap_or_default();
        let waiting = status.container_statuses.into_iter().flatten().find_map(|container| {
            let waiting = container.state?.waiting?;
            Some(format!("{} {}", waiting.reason.unwrap_or_default(), waiting.message.unwrap_or_default()))
        });
        let pending = status
            .conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.status == "False")
            .map(|condition| condition.message.unwrap_or_default());
        let why = waiting.or(pending).or(status.phase).unwrap_or_default();
        let _ = write!(text, "\n  pod {}: {}", pod.name_any(), why.trim());
    }
    if text.is_empty() {
        text += "\n  there are no pods; see: kubectl describe deployment aquifer";
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(generation: i64, seen: i64, counts: [i32; 3]) -> Deployment {
        serde_json::from_value(json!({
            "metadata": { "generation": generation },
            "spec": { "replicas": 2, "selector": {}, "template": {} },
            "status": { "observedGeneration": seen, "replicas": counts[0], "updatedReplicas": counts[1],
                "availableReplicas": counts[2] },
        }))
        .unwrap()
    }

    #[test]
    fn a_rollout_is_done_when_all_replicas_are_new_and_ready_and_no_old_one_is_left() {
        assert!(progress(&deployment(2, 2, [2, 2, 2])).0);
        assert!(!progress(&deployment(2, 1, [2, 2, 2])).0, "the change was not seen yet");
        assert!(!progress(&deployment(2, 2, [3, 2, 2])).0, "an old one is left");
        assert!(!progress(&deployment(2, 2, [2, 1, 2])).0, "one is old");
        assert!(!progress(&deployment(2, 2, [2, 2, 1])).0, "one is not ready");
    }
}
