//! What of this family a cluster holds that only the running operator can take away in order. Changes nothing.

use aquifer_api::component::Component;
use aquifer_api::efs::SharedVolume;
use aquifer_family::{Error, list};
use k8s_openapi::api::apps::v1::DaemonSet;
use kube::api::ListParams;
use kube::{Client, ResourceExt};

use crate::names::{driver, labels};

/// One line for each object.
pub(crate) async fn needed(client: &Client) -> Result<Vec<String>, Error> {
    let everything = ListParams::default();
    let volumes = list::<SharedVolume>(client, &everything).await?;
    // One without a finalizer has nothing, such as one that was made while the driver was removed: it needs nobody to go away.
    let held = |volume: &&SharedVolume| {
        let ours = [labels::SHARED_VOLUME_FINALIZER, labels::UPSTREAM_FINALIZER];
        volume.finalizers().iter().any(|name| ours.contains(&name.as_str()))
    };
    let mut all: Vec<String> =
        volumes.iter().filter(held).map(|volume| format!("SharedVolume {}", place(volume))).collect();
    let components = list::<Component>(client, &everything).await?;
    if !components.iter().any(|component| component.name_any() == driver::COMPONENT) {
        // A user has deleted the component while no operator ran that would have made it again.
        let made = format!("{}={},{}=true", labels::MANAGED_BY, labels::MANAGER, labels::OWNED);
        let plugins = list::<DaemonSet>(client, &ListParams::default().labels(&made)).await?;
        all.extend(plugins.iter().map(|plugin| format!("DaemonSet {} of the EFS driver", place(plugin))));
    }
    Ok(all)
}

/// Namespace and name, as people write them.
pub(crate) fn place(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
