//! Our definitions on a real API server: each rule from both sides.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aquifer_api::component::Component;
use aquifer_api::efs::SharedVolume;
use aquifer_api::shared_file_system::SharedFileSystem;
use aquifer_lab::{Cluster, Lab, eventually};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, CustomResourceExt};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

const DEADLINE: Duration = Duration::from_secs(30);
const FS: &str = "fs-0123456789abcdef0";
const AP: &str = "fsap-0123456789abcdef0";

/// One cluster with our definitions for all tests that leave them alone.
async fn shared() -> Result<(&'static Cluster, Client)> {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    let cluster = CLUSTER
        .get_or_try_init(|| async {
            let cluster = Lab::test_cluster().start().await?;
            install(&cluster.client()?, aquifer_families::crds(&aquifer_families::all())).await?;
            anyhow::Ok(cluster)
        })
        .await?;
    Ok((cluster, cluster.client()?))
}

async fn install(client: &Client, definitions: Vec<CustomResourceDefinition>) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in definitions {
        let name = crd.metadata.name.clone().context("a definition without a name")?;
        api.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&crd)).await?;
        eventually(DEADLINE, &format!("{name} is served"), || async {
            let status = serde_json::to_value(api.get_status(&name).await?.status)?;
            let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
            for bad in ["NonStructuralSchema", "NamesAccepted"] {
                let wrong = if bad == "NamesAccepted" { "False" } else { "True" };
                ensure!(!conditions.iter().any(|c| c["type"] == bad && c["status"] == wrong), "{status}");
            }
            ensure!(
                conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True"),
                "{status}"
            );
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

/// What the API server says to a SharedVolume with this content, without keeping it.
async fn try_volume(client: &Client, name: &str, content: Value) -> Result<DynamicObject, String> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), "default", &SharedVolume::api_resource());
    try_create(&api, &SharedVolume::api_resource(), name, content).await
}

async fn try_create(
    api: &Api<DynamicObject>,
    resource: &ApiResource,
    name: &str,
    content: Value,
) -> Result<DynamicObject, String> {
    let object = DynamicObject::new(name, resource).data(content);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    api.create(&dry_run, &object).await.map_err(|error| error.to_string())
}

#[tokio::test]
async fn good_ids_are_accepted_and_kept_as_they_are() -> Result<()> {
    let (_cluster, client) = shared().await?;
    let longest = "0123456789abcdef0123456789abcdef01234567";
    for spec in [
        json!({"fileSystemID": FS, "accessPointID": AP}),
        json!({"fileSystemID": FS}),
        json!({"fileSystemID": "fs-484648c8", "accessPointID": "fsap-097bd0da"}),
        json!({"fileSystemID": format!("fs-{longest}"), "accessPointID": format!("fsap-{longest}")}),
    ] {
        let made = try_volume(&client, "good", json!({"spec": spec})).await.map_err(anyhow::Error::msg)?;
        assert_eq!(made.data["spec"], spec);
    }
    Ok(())
}

#[tokio::test]
async fn bad_ids_are_refused_with_a_sentence_that_says_what_a_good_one_looks_like() -> Result<()> {
    let (_cluster, client) = shared().await?;
    let digits = "0123456789abcdef0123456789abcdef012345678";
    let bad = ["", "fs-", "fs-1234567", "FS-01234567", "fs-0123456G", "fs-01234567 ", "xfs-01234567", AP];
    for id in bad.map(String::from).into_iter().chain([format!("fs-{digits}"), "fs-01234567\n".into()]) {
        let error = try_volume(&client, "bad", json!({"spec": {"fileSystemID": id}})).await.unwrap_err();
        assert!(
            error.contains("spec.fileSystemID") && error.contains("must be an EFS file system ID"),
            "{error}"
        );
    }
    let bad = ["", "fsap-", "fsap-1234567", "fsap-0123456Z", FS, "fsap-01234567:"];
    for id in bad.map(String::from).into_iter().chain([format!("fsap-{digits}")]) {
        let spec = json!({"fileSystemID": FS, "accessPointID": id});
        let error = try_volume(&client, "bad", json!({"spec": spec})).await.unwrap_err();
        assert!(
            error.contains("spec.accessPointID") && error.contains("must be an EFS access point ID"),
            "{error}"
        );
    }
    let huge = "f".repeat(100_000);
    let error = try_volume(&client, "bad", json!({"spec": {"fileSystemID": huge}})).await.unwrap_err();
    assert!(error.contains("Too long"), "{error}");
    Ok(())
}

#[tokio::test]
async fn mount_options_are_a_list_of_safe_ones() -> Result<()> {
    let (_cluster, client) = shared().await?;
    let tried = async |options: Value| {
        let spec = json!({"fileSystemID": FS, "mountOptions": options});
        try_volume(&client, "options", json!({"spec": spec})).await
    };
    let every = [
        "tls",
        "hard",
        "noresvport",
        "noatime",
        "nodiratime",
        "relatime",
        "nosuid",
        "nodev",
        "noexec",
        "sync",
        "noac",
        "nocto",
    ];
    let numbers = ["rsize=1048576", "wsize=1", "timeo=600", "retrans=2", "actimeo=0", "acregmin=3"];
    let more = ["acregmax=60", "acdirmin=30", "acdirmax=60", "lookupcache=positive"];
    for good in [json!([]), json!(every), json!(numbers), json!(more), json!(["lookupcache=none"])] {
        let made = tried(good.clone()).await.map_err(anyhow::Error::msg)?;
        assert_eq!(made.data["spec"]["mountOptions"], good);
    }
    for bad in [
        "",
        "ro",
        "rw",
        "suid",
        "dev",
        "exec",
        "defaults",
        "soft",
        "nolock",
        "nconnect=16",
        "fsc",
        "iam",
        "notls",
        "accesspoint=fsap-0123456789abcdef0",
        "mounttargetip=10.0.0.1",
        "az=us-east-1a",
        "awsprofile=admin",
        "awscredsuri=/x",
        "rolearn=x",
        "jwtpath=/x",
        "port=2049",
        "tlsport=1",
        "verify=0",
        "cafile=/x",
        "netns=/x",
        "region=x",
        "crossaccount",
        "nfsvers=4.0",
        "timeo",
        "timeo=",
        "timeo=x",
        "timeo=-1",
        "timeo=12345678",
        "noatime,suid",
        "noatime ",
        " noatime",
        "noatime\n",
        "NOATIME",
        "lookupcache=some",
        "timeo=1=2",
    ] {
        let error = tried(json!(["noatime", bad])).await.unwrap_err();
        assert!(
            error.contains("spec.mountOptions") && error.contains("may hold only: tls, hard"),
            "{bad:?}: {error}"
        );
    }
    let error = tried(json!(["timeo=1", "timeo=2"])).await.unwrap_err();
    assert!(error.contains("must name each option once"), "{error}");
    let error = tried(json!(vec!["noatime"; 21])).await.unwrap_err();
    assert!(error.contains("Too many"), "{error}");
    Ok(())
}

#[tokio::test]
async fn the_name_of_a_claim_is_one_that_a_claim_can_have() -> Result<()> {
    let (_cluster, client) = shared().await?;
    let tried = async |more: Value| {
        let mut spec = json!({"fileSystemID": FS});
        for (name, value) in more.as_object().cloned().unwrap_or_default() {
            spec[name] = value;
        }
        try_volume(&client, "named", json!({"spec": spec})).await
    };
    let long = "n".repeat(253);
    for good in ["data", "0", "data-www-0", "a.b", &long] {
        let made = tried(json!({"claimName": good})).await.map_err(anyhow::Error::msg)?;
        assert_eq!(made.data["spec"]["claimName"], good);
    }
    for bad in ["", "Data", "-data", "data-", "a..b", "a/b", "a_b", "data\n"] {
        let error = tried(json!({"claimName": bad})).await.unwrap_err();
        assert!(
            error.contains("spec.claimName") && error.contains("must be a name that a PersistentVolumeClaim"),
            "{bad:?}: {error}"
        );
    }
    let error = tried(json!({"claimName": "n".repeat(254)})).await.unwrap_err();
    assert!(error.contains("Too long"), "{error}");
    for good in [json!(true), json!(false)] {
        tried(json!({"readOnly": good})).await.map_err(anyhow::Error::msg)?;
    }
    assert!(tried(json!({"readOnly": "yes"})).await.unwrap_err().contains("spec.readOnly"));
    Ok(())
}

#[tokio::test]
async fn what_is_required_is_asked_for_by_name() -> Result<()> {
    let (_cluster, client) = shared().await?;
    let error = try_volume(&client, "bad", json!({})).await.unwrap_err();
    assert!(error.contains("spec: Required value"), "{error}");
    let error = try_volume(&client, "bad", json!({"spec": {"accessPointID": AP}})).await.unwrap_err();
    assert!(error.contains("spec.fileSystemID: Required value"), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_null_access_point_is_no_access_point() -> Result<()> {
    let (_cluster, client) = shared().await?;
    let spec = json!({"fileSystemID": FS, "accessPointID": null});
    let made = try_volume(&client, "null", json!({"spec": spec})).await.map_err(anyhow::Error::msg)?;
    let typed: SharedVolume = made.try_parse()?;
    assert_eq!(typed.spec.access_point_id, None);
    Ok(())
}

#[tokio::test]
async fn names_may_be_as_long_as_kubernetes_allows() -> Result<()> {
    let (_cluster, client) = shared().await?;
    let spec = json!({"spec": {"fileSystemID": FS}});
    try_volume(&client, &"n".repeat(253), spec.clone()).await.map_err(anyhow::Error::msg)?;
    assert!(try_volume(&client, &"n".repeat(254), spec).await.is_err());
    Ok(())
}

#[tokio::test]
async fn a_status_as_upstream_or_we_write_it_is_accepted_and_a_broken_one_is_not() -> Result<()> {
    let (_cluster, client) = shared().await?;
    let api: Api<SharedVolume> = Api::namespaced(client.clone(), "default");
    let spec = serde_json::from_value(json!({"fileSystemID": FS, "accessPointID": AP}))?;
    api.create(&PostParams::default(), &SharedVolume::new("status", spec)).await?;
    let write = async |status: Value| {
        api.patch_status("status", &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await
    };
    let claim = |name: &str| json!({"apiGroup": "", "kind": "PersistentVolumeClaim", "name": name});
    write(json!({"phase": "Pending", "claimRef": claim("")})).await?;
    let ready = json!({"type": "Ready", "status": "True", "reason": "Bound", "message": "",
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let full = json!({"phase": "Ready", "message": "", "claimRef": claim("pvc-status"), "claimUID": "c",
        "volumeRef": {"name": "pv", "uid": "v"}, "observedGeneration": 1, "conditions": [ready]});
    let written = write(full.clone()).await?;
    assert_eq!(serde_json::to_value(&written.status)?, full);

    for (broken, field) in [
        (json!({"volumeRef": {"name": null, "uid": "v"}}), "volumeRef.name"),
        (json!({"claimRef": {"kind": null}}), "claimRef.kind"),
        (json!({"conditions": [ready, ready]}), "conditions"),
        (json!({"observedGeneration": "one"}), "observedGeneration"),
    ] {
        let error = write(broken).await.unwrap_err().to_string();
        assert!(error.contains(field), "{field}: {error}");
    }
    Ok(())
}

/// What the API server says to a SharedFileSystem with this spec besides its file system, without keeping it.
async fn try_file_system(client: &Client, mut spec: Value) -> Result<DynamicObject, String> {
    let resource = SharedFileSystem::api_resource();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    spec["fileSystemID"] = json!(FS);
    try_create(&api, &resource, "tried", json!({"spec": spec})).await
}

#[tokio::test]
async fn what_a_shared_file_system_allows_is_well_formed() -> Result<()> {
    let (_cluster, client) = shared().await?;
    let points = |namespace: &str, points: Value| json!({"allowedAccessPoints": {"perNamespace": [{"namespace": namespace, "accessPoints": points}]}});
    let good = [
        json!({}),
        json!({"allowedNamespaces": {}, "allowedAccessPoints": {}}),
        json!({"allowedNamespaces": {"names": ["team-a", "0", "n".repeat(63)]}}),
        json!({"allowedNamespaces": {"names": []}, "allowedAccessPoints": null}),
        json!({"allowedAccessPoints": {"all": true}}),
        json!({"allowedAccessPoints": {"all": false, "perNamespace": []}}),
        points("team-a", json!([AP, "fsap-01234567"])),
        points("team-a", json!([])),
    ];
    for spec in good {
        try_file_system(&client, spec).await.map_err(anyhow::Error::msg)?;
    }
    let many: Vec<String> = (0..51).map(|number| format!("fsap-{number:08x}")).collect();
    let bad = [
        (json!({"allowedNamespaces": {"names": ["Team"]}}), "must be names of namespaces"),
        (json!({"allowedNamespaces": {"names": [""]}}), "must be names of namespaces"),
        (json!({"allowedNamespaces": {"names": ["team-"]}}), "must be names of namespaces"),
        (json!({"allowedNamespaces": {"names": ["n".repeat(64)]}}), "Too long"),
        (json!({"allowedAccessPoints": {"all": true, "perNamespace": []}}), "set either all or perNamespace"),
        (json!({"allowedAccessPoints": []}), "spec.allowedAccessPoints"),
        (points("team_a", json!([AP])), "must be the name of a namespace"),
        (points("team-a", json!([FS])), "must be EFS access point IDs"),
        (points("team-a", json!(["fsap-1234567"])), "must be EFS access point IDs"),
        (points("team-a", json!([AP, ""])), "must be EFS access point IDs"),
        (points("team-a", json!([format!("{AP} ")])), "must be EFS access point IDs"),
        (points("team-a", json!(many)), "Too many"),
        (json!({"allowedAccessPoints": {"perNamespace": [{"accessPoints": [AP]}]}}), "Required value"),
    ];
    for (spec, said) in bad {
        let error = try_file_system(&client, spec.clone()).await.unwrap_err();
        assert!(error.contains(said), "{spec}: {error}");
    }
    Ok(())
}

/// An entry that is taken away by server-side apply must not leave behind what allows more.
#[tokio::test]
async fn applying_a_shared_file_system_without_its_last_entries_allows_nothing() -> Result<()> {
    let (_cluster, client) = shared().await?;
    let resource = SharedFileSystem::api_resource();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let full = json!({"fileSystemID": FS,
        "allowedNamespaces": {"names": ["team-a"], "selector": {"matchLabels": {"storage": "yes"}}},
        "allowedAccessPoints": {"perNamespace": [{"namespace": "team-a", "accessPoints": [AP]}]}});
    let lists = json!({"fileSystemID": FS, "allowedNamespaces": {"names": []}, "allowedAccessPoints": {"perNamespace": []}});
    let objects = json!({"fileSystemID": FS, "allowedNamespaces": {}, "allowedAccessPoints": {}});
    for less in [lists, objects, json!({"fileSystemID": FS})] {
        for spec in [&full, &less] {
            let object = DynamicObject::new("applied", &resource).data(json!({"spec": spec}));
            let applied = api.patch("applied", &PatchParams::apply("test"), &Patch::Apply(&object)).await?;
            assert_eq!(applied.data["spec"], *spec);
        }
    }
    api.delete("applied", &kube::api::DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn a_component_is_installed_or_removed_and_nothing_else() -> Result<()> {
    let (_cluster, client) = shared().await?;
    let resource = Component::api_resource();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    for spec in [json!({}), json!({"desired": "Installed"}), json!({"desired": "Removed"})] {
        let made =
            try_create(&api, &resource, "c", json!({"spec": spec})).await.map_err(anyhow::Error::msg)?;
        assert_eq!(made.data["spec"], spec);
    }
    let error = try_create(&api, &resource, "c", json!({"spec": {"desired": "removed"}})).await.unwrap_err();
    assert!(error.contains("Removed"), "{error}");
    let error = try_create(&api, &resource, "c", json!({})).await.unwrap_err();
    assert!(error.contains("spec: Required value"), "{error}");

    api.create(&PostParams::default(), &DynamicObject::new("states", &resource).data(json!({"spec": {}})))
        .await?;
    let write = async |object: Value| {
        let status = Patch::Merge(json!({"status": {"objects": [object]}}));
        api.patch_status("states", &PatchParams::default(), &status).await
    };
    for state in ["Current", "Missing", "Foreign", "Deleting"] {
        write(json!({"kind": "DaemonSet", "name": "a", "state": state})).await?;
    }
    for (broken, field) in [
        (json!({"kind": "DaemonSet", "name": "a", "state": "Fine"}), "state"),
        (json!({"kind": "DaemonSet", "state": "Current"}), "name"),
        (json!({"name": "a", "state": "Current"}), "kind"),
    ] {
        let error = write(broken).await.unwrap_err().to_string();
        assert!(error.contains(field), "{field}: {error}");
    }
    let count = async |nodes: Value| {
        let status = Patch::Merge(json!({"status": {"nodes": nodes}}));
        api.patch_status("states", &PatchParams::default(), &status).await
    };
    assert!(count(json!({"wanted": 3})).await.unwrap_err().to_string().contains("nodes.ready"));
    assert!(count(json!({"ready": 3})).await.unwrap_err().to_string().contains("nodes.wanted"));
    count(json!({"wanted": 3, "ready": 2})).await?;
    Ok(())
}

/// Upstream's definition asked for less. What it let in must not be stuck under ours.
#[tokio::test]
async fn an_object_from_before_our_rules_can_still_be_reported_on_and_deleted() -> Result<()> {
    let cluster = Lab::test_cluster().start().await?;
    let client = cluster.client()?;
    let mut loose = serde_json::to_value(SharedVolume::crd())?;
    let properties =
        &mut loose["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    *properties = json!({"fileSystemID": {"type": "string"}, "accessPointID": {"type": "string"}});
    install(&client, vec![serde_json::from_value(loose)?]).await?;

    let api: Api<SharedVolume> = Api::namespaced(client.clone(), "default");
    let spec = serde_json::from_value(json!({"fileSystemID": "fs-1", "accessPointID": "fsap-1"}))?;
    let mut old = SharedVolume::new("old", spec);
    old.metadata.finalizers = Some(vec!["finalizer.awsefs.managed.openshift.io".into()]);
    api.create(&PostParams::default(), &old).await?;
    install(&client, aquifer_families::crds(&aquifer_families::all())).await?;
    eventually(DEADLINE, "our rules hold", || async {
        let refused = try_volume(&client, "new", json!({"spec": {"fileSystemID": "fs-1"}})).await;
        Ok(refused.is_err().then_some(()))
    })
    .await?;

    let merge = PatchParams::default();
    let finalizers = json!({"metadata": {"finalizers": ["aquifer.storage/shared-volume"]}});
    api.patch("old", &merge, &Patch::Merge(finalizers)).await?;
    api.patch_status("old", &merge, &Patch::Merge(json!({"status": {"phase": "Failed"}}))).await?;
    let fixed = json!({"spec": {"fileSystemID": FS, "accessPointID": AP}});
    api.patch("old", &merge.clone().dry_run(), &Patch::Merge(fixed)).await?;
    api.delete("old", &kube::api::DeleteParams::default()).await?;
    api.patch("old", &merge, &Patch::Merge(json!({"metadata": {"finalizers": null}}))).await?;
    eventually(DEADLINE, "the old object is gone", || async {
        Ok(api.get_opt("old").await?.is_none().then_some(()))
    })
    .await?;
    cluster.stop().await
}
