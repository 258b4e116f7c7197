//! What users may do with SharedVolumes by their built-in roles, on a real API server.

use anyhow::Result;
use aquifer_api::efs::SharedVolume;
use aquifer_api::shared_file_system::SharedFileSystem;
use aquifer_lab::eventually;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::json;

use super::harness::{DEADLINE, shared};
use super::tenant::FILE_SYSTEM;

#[tokio::test]
async fn the_built_in_roles_are_enough_to_use_shared_volumes_and_make_nothing_that_is_believed() -> Result<()>
{
    let test = shared().await;
    let client = test.cluster.client()?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "user-roles"}}))?;
    namespaces.create(&PostParams::default(), &namespace).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "user-roles");
    for role in ["admin", "edit", "view"] {
        let binding = serde_json::from_value(json!({
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": role}],
        }))?;
        bindings.create(&PostParams::default(), &binding).await?;
    }
    let volume = SharedVolume::new("sv", serde_json::from_value(json!({"fileSystemID": FILE_SYSTEM}))?);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    for role in ["admin", "edit", "view"] {
        let user = test.cluster.client_as(role, &["system:authenticated"])?;
        let api: Api<SharedVolume> = Api::namespaced(user.clone(), "user-roles");
        eventually(DEADLINE, &format!("{role} may list SharedVolumes"), || async {
            Ok(Some(api.list(&kube::api::ListParams::default()).await?))
        })
        .await?;
        if role == "view" {
            let error = api.create(&dry_run, &volume).await.unwrap_err().to_string();
            assert!(error.contains("forbidden"), "{error}");
        } else {
            eventually(DEADLINE, &format!("{role} may create SharedVolumes"), || async {
                Ok(Some(api.create(&dry_run, &volume).await?))
            })
            .await?;
        }
        let status = Patch::Merge(json!({"status": {"phase": "Ready"}}));
        let error = api.patch_status("sv", &PatchParams::default(), &status).await.unwrap_err().to_string();
        assert!(error.contains("forbidden"), "{role}: {error}");
        let elsewhere: Api<SharedVolume> = Api::namespaced(user, "default");
        assert!(
            elsewhere.list(&kube::api::ListParams::default()).await.is_err(),
            "{role} sees another namespace"
        );
        let policies: Api<SharedFileSystem> =
            Api::all(test.cluster.client_as(role, &["system:authenticated"])?);
        let error = policies.list(&kube::api::ListParams::default()).await.unwrap_err().to_string();
        assert!(error.contains("forbidden"), "{role} sees what administrators allow: {error}");
        let spec = serde_json::from_value(json!({"fileSystemID": FILE_SYSTEM}))?;
        let made = policies.create(&dry_run, &SharedFileSystem::new("mine", spec)).await;
        assert!(made.unwrap_err().to_string().contains("forbidden"), "{role} says who is allowed");
        // What these say is believed, because only administrators write them.
        let user = test.cluster.client_as(role, &["system:authenticated"])?;
        for (group, kind, plural) in [
            ("", "PersistentVolume", "persistentvolumes"),
            ("storage.k8s.io", "CSIDriver", "csidrivers"),
            ("storage.k8s.io", "StorageClass", "storageclasses"),
        ] {
            let resource =
                ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural);
            let api: Api<DynamicObject> = Api::all_with(user.clone(), &resource);
            let forged = DynamicObject::new("forged", &resource).data(json!({}));
            let made = api.create(&dry_run, &forged).await.unwrap_err().to_string();
            let marks = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
            let marked = api.patch("forged", &PatchParams::default(), &marks).await.unwrap_err().to_string();
            assert!(made.contains("forbidden") && marked.contains("forbidden"), "{role}: {made}, {marked}");
        }
    }
    Ok(())
}
