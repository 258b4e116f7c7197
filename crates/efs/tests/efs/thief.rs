//! What a thief of the operator's token could do (M4 of the audit): nothing that runs outside of the driver's namespace, nothing to volumes and claims of others.

use anyhow::{Context as _, Result};
use aquifer_efs::kinds::{CLAIM, VOLUME};
use aquifer_engine::Kind;
use aquifer_lab::eventually;
use aquifer_lab::install;
use aquifer_lab::kit::TestCluster;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::harness::{DEADLINE, client_of};
use super::tenant::Tenant;

fn api(client: &Client, kind: &Kind, namespace: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &kind.plural);
    if kind.namespaced {
        Api::namespaced_with(client.clone(), namespace, &resource)
    } else {
        Api::all_with(client.clone(), &resource)
    }
}

/// Tries to make it, and gives what the server says.
async fn refused(client: &Client, object: &Value) -> Result<String> {
    let wanted: DynamicObject = serde_json::from_value(object.clone())?;
    let types = wanted.types.clone().context("an object without a kind")?;
    let api = install::api_of(client, &types, wanted.metadata.namespace.as_deref()).await?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match api.create(&params, &wanted).await {
        Err(kube::Error::Api(status)) => Ok(status.message),
        other => anyhow::bail!("{object} is taken: {other:?}"),
    }
}

fn volume(source: &Value) -> Value {
    let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"]});
    for (name, value) in source.as_object().into_iter().flatten() {
        spec[name] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "stolen"}, "spec": spec})
}

fn claim(namespace: &str, name: &str, class: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": class}})
}

#[tokio::test]
async fn a_stolen_token_makes_nothing_that_runs_outside_of_the_drivers_namespace_and_touches_no_volume_or_claim_of_others()
-> Result<()> {
    let test = TestCluster::unrecorded().await?;
    let tenant = Tenant::on(&test.cluster).await?;
    let thief = client_of(&test.account.kubeconfig).await?;
    let admin = test.cluster.client()?;

    // Rights: nothing that runs outside of the driver's namespace, no rights to pass on, nobody's secrets.
    let pod =
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": pod});
    let place = json!({"name": "x", "namespace": tenant.name});
    let rbac = "rbac.authorization.k8s.io";
    let forbidden = [
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": place, "spec": spec}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": place, "spec": spec}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": place, "spec": pod["spec"]}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": place}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "x"}}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRole", "metadata": {"name": "x"}, "rules": []}),
        json!({"apiVersion": format!("{rbac}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": "x"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "efs-csi-node-role"}, "subjects": []}),
    ];
    for object in &forbidden {
        let said = refused(&thief, object).await?;
        assert!(said.contains("is forbidden"), "{object}: {said}");
    }

    // Policies: volumes of the driver only, claims of its class only.
    let handle = json!({"driver": "efs.csi.aws.com", "volumeHandle": "fs-0123456789abcdef0"});
    let other = json!({"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"});
    let in_effect = || async {
        let said = refused(&thief, &volume(&json!({"hostPath": {"path": "/"}}))).await?;
        Ok(said.contains("only volumes of the driver efs.csi.aws.com").then_some(()))
    };
    eventually(DEADLINE, "the policy for volumes is in effect", in_effect).await?;
    for source in [json!({"csi": other}), json!({"nfs": {"server": "a", "path": "/"}})] {
        let said = refused(&thief, &volume(&source)).await?;
        assert!(said.contains("only volumes of the driver"), "{source}: {said}");
    }
    let in_effect = || async {
        let said = refused(&thief, &claim(&tenant.name, "x", "fast")).await?;
        Ok(said.contains("only claims of the storage class efs-sc").then_some(()))
    };
    eventually(DEADLINE, "the policy for claims is in effect", in_effect).await?;
    // Ours are taken.
    let ours: DynamicObject = serde_json::from_value(volume(&json!({"csi": handle})))?;
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    api(&thief, &VOLUME, "").create(&dry, &ours).await?;

    // What others made can be neither changed nor deleted, also not into one of ours.
    let theirs = volume(&json!({"csi": other}));
    install::apply(&admin, theirs).await?;
    install::apply(&admin, claim(&tenant.name, "theirs", "fast")).await?;
    let targets = [(VOLUME, "", "stolen"), (CLAIM, tenant.name.as_str(), "theirs")];
    for (kind, namespace, name) in targets {
        let api = api(&thief, &kind, namespace);
        let policy = json!({"metadata": {"labels": {"a": "b"}}});
        let changed = api.patch(name, &PatchParams::default(), &Patch::Merge(policy)).await.map(drop);
        let deleted = api.delete(name, &DeleteParams::default()).await.map(drop);
        for done in [changed, deleted] {
            let said = done.expect_err("somebody else's object was touched").to_string();
            assert!(said.contains("Aquifer makes, changes and deletes only"), "{kind}: {said}");
        }
    }
    Ok(())
}
