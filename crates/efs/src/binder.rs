//! What kube-controller-manager does with volumes and claims, in the model. Tests only.

use aquifer_engine::ObjectRef;
use aquifer_engine::model::Model;
use serde_json::json;

use crate::kinds::{CLAIM, POD, VOLUME};

const PV_PROTECTION: &str = "kubernetes.io/pv-protection";
pub(crate) const PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";

/// What kube-controller-manager does with a pair: binds it, protects it, and lets it go when nobody holds it.
pub(crate) fn binder(model: &Model) {
    let protect = |target: &ObjectRef, name: &str| {
        if model.object(target).is_some_and(|o| !o.deleting() && !o.finalizers().contains(&name)) {
            model.edit(target, |doc| doc["metadata"]["finalizers"] = json!([name]));
        }
    };
    for found in model.objects(&CLAIM) {
        let target = CLAIM.key(&found.key());
        protect(&target, PVC_PROTECTION);
        let held = model.objects(&POD).iter().any(|pod| {
            pod.at("/spec/volumes/0/persistentVolumeClaim/claimName").is_some_and(|name| name == found.name())
        });
        if found.deleting() && !held {
            model.unfinalize(&target, PVC_PROTECTION);
            continue;
        }
        let at = VOLUME.at("", found.text("/spec/volumeName"));
        let Some(volume) = model.object(&at) else { continue };
        let bound_to = volume.text("/spec/claimRef/uid").to_owned();
        if !found.deleting() && (bound_to.is_empty() || bound_to == found.uid()) {
            let bound = json!({"namespace": found.namespace(), "name": found.name(), "uid": found.uid()});
            model.edit(&at, |doc| doc["spec"]["claimRef"] = bound);
            model.edit(&target, |doc| {
                doc["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
                doc["status"] = json!({"phase": "Bound"});
            });
        }
    }
    for found in model.objects(&VOLUME) {
        let target = VOLUME.key(&found.key());
        protect(&target, PV_PROTECTION);
        let uid = found.text("/spec/claimRef/uid");
        let bound = model.objects(&CLAIM).iter().any(|claim| !uid.is_empty() && claim.uid() == uid);
        if found.deleting() && !bound {
            model.unfinalize(&target, PV_PROTECTION);
        }
    }
}
