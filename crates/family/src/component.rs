//! How Components are judged by commands that look at a cluster once. The kind belongs to no family.

use aquifer_api::Reason;
use aquifer_api::component::{Component, ComponentObject, ComponentReason, Desired, ObjectState};
use kube::ResourceExt;

/// Why a component still needs the operator: it is wanted, or it is not gone yet. None when nothing of ours is left, because the
/// component is removed or managed by another tool.
pub fn still_needed(component: &Component) -> Option<String> {
    let status = component.status.as_ref();
    let ready = status.and_then(|status| status.conditions.iter().find(|one| one.type_ == "Ready"));
    let reason = ready.and_then(|ready| ComponentReason::parse(&ready.reason));
    let current = status.is_some_and(|status| status.observed_generation == component.metadata.generation);
    let ours =
        |object: &ComponentObject| matches!(object.state, ObjectState::Current | ObjectState::Deleting);
    let leaves = status.is_some_and(|status| status.objects.iter().any(ours));
    let why = match component.spec.desired() {
        Desired::Removed if current && reason == Some(ComponentReason::Removed) => return None,
        Desired::Installed if current && reason == Some(ComponentReason::External) && !leaves => return None,
        Desired::Installed if reason == Some(ComponentReason::External) && leaves => {
            "is managed by another tool, but objects of Aquifer are left"
        }
        Desired::Removed => "is not removed yet",
        Desired::Installed => "is installed",
    };
    Some(format!("Component {} {why}", component.name_any()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        assert_eq!(still_needed(&component("Removed", "Removed", 2)), None);
        assert!(still_needed(&component("Removed", "Removed", 1)).unwrap().contains("not removed yet"));
        assert!(still_needed(&component("Removed", "Removing", 2)).unwrap().contains("not removed yet"));
        assert!(still_needed(&component("Installed", "Ready", 2)).unwrap().contains("is installed"));
        assert_eq!(still_needed(&component("Installed", "External", 2)), None);
        let mut external = component("Installed", "External", 2);
        let left = json!({ "kind": "CSIDriver", "name": "efs.csi.aws.com", "state": "Current" });
        external.status.as_mut().unwrap().objects.push(serde_json::from_value(left).unwrap());
        assert!(still_needed(&external).unwrap().contains("objects of Aquifer are left"));
    }

    #[test]
    fn what_a_supply_reserves_fits_into_the_status_of_a_component() {
        let reserved = json!([{ "uid": "a", "amount": 7 }]);
        let status: aquifer_api::component::ComponentStatus =
            serde_json::from_value(json!({ "reserved": reserved })).unwrap();
        let kept = serde_json::to_value(&status).unwrap();
        let read: Vec<aquifer_engine::supply::Reservation> =
            serde_json::from_value(kept["reserved"].clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), reserved);
    }
}
