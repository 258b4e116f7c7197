//! What must hold for every definition of ours, read from the schema itself.

use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use crate::component::{ComponentSpec, Desired};
use crate::efs::{ClaimRef, Phase, SharedVolume, SharedVolumeSpec, SharedVolumeStatus, VolumeRef};
use crate::openshift;

fn schemas() -> Vec<(String, Value)> {
    let schema = |crd| serde_json::to_value::<_>(crd).unwrap()["spec"]["versions"][0]["schema"].clone();
    aquifer_families::crds(&aquifer_families::all())
        .into_iter()
        .map(|crd| (crd.spec.names.kind.clone(), schema(crd)))
        .collect()
}

/// Calls `see` for every object inside `value`, with its path.
fn walk(value: &Value, path: &str, see: &mut impl FnMut(&str, &Value)) {
    see(path, value);
    match value {
        Value::Object(map) => map.iter().for_each(|(key, below)| walk(below, &format!("{path}/{key}"), see)),
        Value::Array(list) => list.iter().for_each(|below| walk(below, path, see)),
        _ => {}
    }
}

#[test]
fn integers_have_only_the_formats_that_kubernetes_knows() {
    for (kind, schema) in schemas() {
        walk(&schema, "", &mut |path, at| {
            if at["type"] == "integer" {
                assert!(
                    ["int32", "int64"].contains(&at["format"].as_str().unwrap_or("none")),
                    "{kind} {path}: {at}"
                );
            }
        });
    }
}

#[test]
fn no_schema_has_a_default_because_wishes_are_never_rewritten() {
    for (kind, schema) in schemas() {
        walk(&schema, "", &mut |path, _| assert!(!path.ends_with("/default"), "{kind} {path}"));
    }
}

/// Server-side apply leaves a null behind where the last entry of a list or map was taken away that is not atomic.
#[test]
fn what_a_shared_file_system_allows_is_never_what_a_merge_left_behind() {
    let (_, schema) = schemas().into_iter().find(|(kind, _)| kind == "SharedFileSystem").unwrap();
    let spec = &schema["openAPIV3Schema"]["properties"]["spec"]["properties"];
    for field in ["allowedNamespaces", "allowedAccessPoints"] {
        assert_eq!(spec[field]["x-kubernetes-map-type"], "atomic", "{field}");
        walk(&spec[field], field, &mut |path, at| {
            let list = at["x-kubernetes-list-type"].as_str().unwrap_or("atomic");
            assert_eq!(list, "atomic", "{path}");
        });
    }
}

/// Every rule that a cluster test must try from both sides; see tests/schema.rs.
#[test]
fn the_rules_and_enumerations_are_the_known_ones() {
    let mut found = Vec::new();
    for (kind, schema) in schemas() {
        walk(&schema["openAPIV3Schema"], "", &mut |path, at| {
            let path = path.replace("/properties", "").replace('/', ".");
            for rule in at["x-kubernetes-validations"].as_array().into_iter().flatten() {
                let bounded = match at["type"].as_str() {
                    Some("array") => at["maxItems"].is_i64() && at["items"]["maxLength"].is_i64(),
                    Some("object") => !rule["rule"].as_str().unwrap().contains("matches"),
                    _ => at["maxLength"].is_i64(),
                };
                assert!(bounded, "{kind}{path}: a rule without a bound on its cost");
                assert!(rule["message"].is_string(), "{kind}{path}: a rule without a message");
                found.push(format!("{kind}{path}: rule {}", rule["rule"].as_str().unwrap()));
            }
            if let Some(pattern) = at["pattern"].as_str() {
                found.push(format!("{kind}{path}: pattern {pattern}"));
            }
            if at["enum"].is_array() {
                found.push(format!("{kind}{path}: enum {}", at["enum"]));
            }
            if at["required"].is_array() && !path.contains("conditions") {
                found.push(format!("{kind}{path}: required {}", at["required"]));
            }
        });
    }
    insta::assert_snapshot!(found.join("\n"), @r#"
    Component: required ["spec"]
    Component.spec.desired: enum ["Installed","Removed"]
    Component.status.nodes: required ["ready","wanted"]
    Component.status.objects.items: required ["kind","name","state"]
    Component.status.objects.items.state: enum ["Current","Provided","Missing","Foreign","Deleting"]
    Component.status.reserved.items: required ["amount","uid"]
    SharedFileSystem: required ["spec"]
    SharedFileSystem.spec: required ["fileSystemID"]
    SharedFileSystem.spec.allowedAccessPoints: rule !has(self.all) || !self.all || !has(self.perNamespace)
    SharedFileSystem.spec.allowedAccessPoints.perNamespace.items: required ["namespace"]
    SharedFileSystem.spec.allowedAccessPoints.perNamespace.items.accessPoints: rule self.all(id, id.matches('^fsap-[0-9a-f]{8,40}$'))
    SharedFileSystem.spec.allowedAccessPoints.perNamespace.items.namespace: rule self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')
    SharedFileSystem.spec.allowedNamespaces.names: rule self.all(name, name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))
    SharedFileSystem.spec.allowedNamespaces.selector.matchExpressions.items: required ["key","operator"]
    SharedFileSystem.spec.fileSystemID: rule self.matches('^fs-[0-9a-f]{8,40}$')
    SharedFileSystem.status.namespaces.items: required ["namespace","sharedVolumes"]
    SharedVolume: required ["spec"]
    SharedVolume.spec: required ["fileSystemID"]
    SharedVolume.spec.accessPointID: rule self.matches('^fsap-[0-9a-f]{8,40}$')
    SharedVolume.spec.claimName: rule self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')
    SharedVolume.spec.fileSystemID: rule self.matches('^fs-[0-9a-f]{8,40}$')
    SharedVolume.spec.mountOptions: rule self.all(one, one.matches('^(tls|hard|noresvport|noatime|nodiratime|relatime|nosuid|nodev|noexec|sync|noac|nocto|lookupcache=(all|none|pos|positive)|(rsize|wsize|timeo|retrans|actimeo|acregmin|acregmax|acdirmin|acdirmax)=[0-9]{1,7})$'))
    SharedVolume.spec.mountOptions: rule self.all(one, self.exists_one(other, other.split('=')[0] == one.split('=')[0]))
    SharedVolume.status.claimRef: required ["kind","name"]
    SharedVolume.status.volumeRef: required ["name"]
    "#);
}

#[test]
fn columns_are_upstreams_in_upstreams_order_with_ready_and_age_added() {
    let crd = serde_json::to_value(SharedVolume::crd()).unwrap();
    let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap();
    let names: Vec<_> = columns.iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["File System", "Access Point", "Phase", "Claim", "Ready", "Message", "Age"]);
}

#[test]
fn an_object_as_upstream_wrote_it_is_understood() {
    let upstream = json!({
        "apiVersion": "aws-efs.managed.openshift.io/v1alpha1", "kind": "SharedVolume",
        "metadata": {"name": "sv", "namespace": "ns", "finalizers": ["finalizer.awsefs.managed.openshift.io"]},
        "spec": {"fileSystemID": "fs-484648c8", "accessPointID": "fsap-097bd0daaba932e64"},
        "status": {"claimRef": {"apiGroup": "", "kind": "PersistentVolumeClaim", "name": ""}, "phase": "Strange"},
    });
    let sv: SharedVolume = serde_json::from_value(upstream).unwrap();
    assert_eq!(sv.spec.file_system_id, "fs-484648c8");
    assert_eq!(sv.spec.access_point_id.as_deref(), Some("fsap-097bd0daaba932e64"));
    assert_eq!(sv.status.as_ref().unwrap().phase, Some(Phase::Unknown));
}

#[test]
fn an_absent_field_is_absent_on_the_wire() {
    let mut sv =
        SharedVolume::new("sv", SharedVolumeSpec { file_system_id: "fs-1".into(), ..Default::default() });
    sv.status = Some(SharedVolumeStatus::default());
    let wire = serde_json::to_value(&sv).unwrap();
    assert_eq!(wire["spec"], json!({"fileSystemID": "fs-1"}));
    assert_eq!(wire["status"], json!({}));
    assert_eq!(serde_json::to_value(ComponentSpec::default()).unwrap(), json!({}));
    assert_eq!(ComponentSpec::default().desired(), Desired::Installed);
}

#[test]
fn a_status_names_its_claim_as_upstream_does() {
    let status = SharedVolumeStatus {
        claim_ref: Some(ClaimRef::to("pvc-sv")),
        claim_uid: Some("c1".into()),
        volume_ref: Some(VolumeRef { name: "pv-ns-sv".into(), uid: Some("v1".into()) }),
        ..Default::default()
    };
    let wire = serde_json::to_value(status).unwrap();
    assert_eq!(wire["claimRef"], json!({"apiGroup": "", "kind": "PersistentVolumeClaim", "name": "pvc-sv"}));
    assert_eq!((&wire["claimUID"], &wire["volumeRef"]["uid"]), (&json!("c1"), &json!("v1")));
}

#[test]
fn security_context_constraints_have_their_fields_at_the_top() {
    let scc = openshift::SecurityContextConstraints::new("scc", openshift::Constraints::default());
    let wire = serde_json::to_value(scc).unwrap();
    assert_eq!(wire["apiVersion"], "security.openshift.io/v1");
    assert_eq!(wire["allowHostPID"], false);
    assert_eq!(
        openshift::test_crd().metadata.name.as_deref(),
        Some("securitycontextconstraints.security.openshift.io")
    );
}

fn assert_reasons<R: aquifer_base::Reason + std::fmt::Debug>() {
    for reason in R::ALL {
        assert_eq!(reason.as_str(), format!("{reason:?}"), "the word is the name of the variant");
        assert_eq!(R::parse(reason.as_str()), Some(*reason));
    }
    assert_eq!(R::parse("SomebodyElses"), None);
}

#[test]
fn every_reason_is_read_back_into_its_variant() {
    assert_reasons::<crate::efs::SharedVolumeReason>();
    assert_reasons::<crate::shared_file_system::SharedFileSystemReason>();
    assert_reasons::<crate::component::ComponentReason>();
}
