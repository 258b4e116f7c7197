//! What kube-controller-manager does with volumes and claims, in the model. Tests only.

use std::sync::atomic::{AtomicU64, Ordering};

use aquifer_engine::model::Model;
use aquifer_engine::{Object, ObjectRef};
use serde_json::json;

use crate::kinds::{CLAIM, POD, VOLUME};

const PV_PROTECTION: &str = "kubernetes.io/pv-protection";
pub(crate) const PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";

/// What kube-controller-manager does with a pair: binds it, protects it, and lets it go when nobody holds it.
pub(crate) fn binder(model: &Model) {
    for claim in model.objects(&CLAIM) {
        bind(model, &claim);
    }
    for volume in model.objects(&VOLUME) {
        let_go(model, &volume);
    }
}

/// The same, for what has changed since it was last called.
pub(crate) fn quick_binder() -> impl Fn(&Model) + Send + 'static {
    let seen = AtomicU64::new(0);
    move |model| {
        let changes = model.changes_since(seen.load(Ordering::SeqCst));
        if let Some(last) = changes.last() {
            seen.store(last.version, Ordering::SeqCst);
        }
        for change in changes {
            match (change.target.kind == CLAIM, model.object(&change.target)) {
                (true, Some(claim)) => bind(model, &claim),
                (true, None) => {
                    let volume = change.before().map(|claim| VOLUME.at("", claim.text("/spec/volumeName")));
                    volume.and_then(|at| model.object(&at)).iter().for_each(|volume| let_go(model, volume));
                }
                (false, Some(volume)) if change.target.kind == VOLUME => {
                    let_go(model, &volume);
                    model.object(&claim_of(&volume)).iter().for_each(|claim| bind(model, claim));
                }
                _ => {}
            }
        }
    }
}

fn protect(model: &Model, target: &ObjectRef, name: &str) {
    if model.object(target).is_some_and(|o| !o.deleting() && !o.finalizers().contains(&name)) {
        model.edit(target, |doc| doc["metadata"]["finalizers"] = json!([name]));
    }
}

fn bind(model: &Model, claim: &Object) {
    let target = CLAIM.key(&claim.key());
    protect(model, &target, PVC_PROTECTION);
    let held = model.objects(&POD).iter().any(|pod| {
        pod.at("/spec/volumes/0/persistentVolumeClaim/claimName").is_some_and(|name| name == claim.name())
    });
    if claim.deleting() && !held {
        model.unfinalize(&target, PVC_PROTECTION);
        return;
    }
    let named = claim.text("/spec/volumeName").to_owned();
    // A claim that names no volume gets one of its class that is reserved for its name.
    let class = |object: &Object| object.text("/spec/storageClassName").to_owned();
    let fits = |volume: &Object| claim_of(volume) == target && class(volume) == class(claim);
    let reserved = || model.objects(&VOLUME).into_iter().find(fits);
    let found = if named.is_empty() { reserved() } else { model.object(&VOLUME.at("", &named)) };
    let Some(volume) = found else { return };
    let at = VOLUME.key(&volume.key());
    let bound_to = volume.text("/spec/claimRef/uid").to_owned();
    let reserved_for = claim_of(&volume);
    if !reserved_for.key.name.is_empty() && reserved_for != target {
        return;
    }
    if !claim.deleting() && bound_to == claim.uid() && volume.text("/status/phase") != "Bound" {
        // Kubernetes notices the volume now, and binds the claim when it looks at that again.
        model.edit(&at, |doc| doc["status"]["phase"] = json!("Bound"));
        return;
    }
    if !claim.deleting() && (bound_to.is_empty() || bound_to == claim.uid()) {
        let bound = json!({"namespace": claim.namespace(), "name": claim.name(), "uid": claim.uid(),
            "resourceVersion": claim.resource_version()});
        model.edit(&at, |doc| {
            if bound_to.is_empty() {
                doc["spec"]["claimRef"] = bound;
            }
            doc["status"]["phase"] = json!("Bound");
        });
        model.edit(&target, |doc| {
            doc["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
            if named.is_empty() {
                doc["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] = json!("yes");
            }
            doc["spec"]["volumeName"] = json!(volume.name());
            doc["status"] = json!({"phase": "Bound"});
        });
    }
}

fn claim_of(volume: &Object) -> ObjectRef {
    CLAIM.at(volume.text("/spec/claimRef/namespace"), volume.text("/spec/claimRef/name"))
}

fn let_go(model: &Model, volume: &Object) {
    let target = VOLUME.key(&volume.key());
    protect(model, &target, PV_PROTECTION);
    let uid = volume.text("/spec/claimRef/uid");
    let claim = model.object(&claim_of(volume));
    let bound = claim.is_some_and(|claim| !uid.is_empty() && claim.uid() == uid);
    if volume.deleting() && !bound {
        model.unfinalize(&target, PV_PROTECTION);
    }
}
