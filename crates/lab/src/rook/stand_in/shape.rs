//! What Rook writes into its objects: statuses, conditions, specs as its types print them, and refusals. Pure.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::kind::Kind;
use crate::control_plane::hex;

/// The failure domains that a new Ceph cluster knows.
const DOMAINS: [&str; 12] =
    ["osd", "host", "chassis", "rack", "row", "pdu", "pod", "room", "datacenter", "zone", "region", "root"];

/// The spec as it is after Rook has added its finalizer. Its types print empty parts that the user left out,
/// which gives the object a new generation; `observedGeneration` stays at the one that Rook had read.
pub(super) fn written_back(kind: Kind, spec: &Value) -> Value {
    let mut spec = spec.clone();
    match kind {
        Kind::CephBlockPool => pool_parts(&mut spec),
        Kind::CephFilesystem => {
            if let Some(pool) = spec.get_mut("metadataPool") {
                pool_parts(pool);
            }
            for pool in spec.get_mut("dataPools").and_then(Value::as_array_mut).into_iter().flatten() {
                pool_parts(pool);
            }
            fill(&mut spec, "statusCheck", json!({ "mirror": {} }));
            if let Some(server) = spec.get_mut("metadataServer") {
                fill(server, "placement", json!({}));
                fill(server, "resources", json!({}));
            }
        }
        Kind::CephFilesystemSubVolumeGroup => fill(&mut spec, "pinning", json!({})),
        Kind::CephCluster | Kind::CephClient | Kind::CephBlockPoolRadosNamespace => {}
    }
    spec
}

fn pool_parts(spec: &mut Value) {
    fill(spec, "replicated", json!({ "size": 0 }));
    fill(spec, "erasureCoded", json!({ "codingChunks": 0, "dataChunks": 0 }));
    fill(spec, "mirroring", json!({}));
    fill(spec, "statusCheck", json!({ "mirror": {} }));
    fill(spec, "quotas", json!({}));
    fill(spec, "application", json!(""));
}

fn fill(object: &mut Value, field: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.entry(field).or_insert(value);
    }
}

/// The status of an object in a phase. `observed` comes with Ready only.
pub(super) fn status(
    kind: Kind,
    namespace: &str,
    name: &str,
    spec: &Value,
    phase: &str,
    observed: Option<i64>,
) -> Value {
    let mut status = Map::from_iter([("phase".to_owned(), json!(phase))]);
    let info = match kind {
        Kind::CephBlockPool => Some(json!({
            "type": if replicas(spec) > 0 { "Replicated" } else { "Erasure Coded" },
            "failureDomain": text(spec, "failureDomain").unwrap_or("host"),
        })),
        Kind::CephClient => (phase == "Ready").then(|| json!({ "secretName": secret_name(name) })),
        Kind::CephBlockPoolRadosNamespace | Kind::CephFilesystemSubVolumeGroup => {
            Some(json!({ "clusterID": cluster_id(kind, namespace, name, spec) }))
        }
        Kind::CephFilesystem | Kind::CephCluster => None,
    };
    status.extend(info.map(|info| ("info".to_owned(), info)));
    // Rook records no generation for rados namespaces.
    let observed = observed.filter(|_| kind != Kind::CephBlockPoolRadosNamespace);
    status.extend(observed.map(|generation| ("observedGeneration".to_owned(), json!(generation))));
    Value::Object(status)
}

/// The name of a user's Secret.
pub(super) fn secret_name(client: &str) -> String {
    format!("rook-ceph-client-{client}")
}

/// The name under which the CSI driver finds a group or a rados namespace.
pub(super) fn cluster_id(kind: Kind, namespace: &str, name: &str, spec: &Value) -> String {
    let (owner, middle) = match kind {
        Kind::CephBlockPoolRadosNamespace => ("blockPoolName", "block"),
        _ => ("filesystemName", "file"),
    };
    let owner = text(spec, owner).unwrap_or_default();
    let name = inner_name(name, spec);
    hex(&Sha256::digest(format!("{namespace}-{owner}-{middle}-{name}"))[..16])
}

/// The name inside Ceph, which may differ from the object's.
pub(super) fn inner_name<'a>(name: &'a str, spec: &'a Value) -> &'a str {
    text(spec, "name").unwrap_or(name)
}

/// The conditions with one more, or with one changed.
pub(super) fn with_condition(
    conditions: &Value,
    kind: &str,
    status: bool,
    reason: &str,
    message: &str,
) -> Value {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let status = if status { "True" } else { "False" };
    let mut conditions = conditions.as_array().cloned().unwrap_or_default();
    let place = conditions.iter().position(|is| is["type"] == kind);
    let since = place
        .map(|place| &conditions[place])
        .filter(|is| is["status"] == status)
        .and_then(|is| is["lastTransitionTime"].as_str())
        .unwrap_or(&now);
    let condition = json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": now, "lastTransitionTime": since,
    });
    match place {
        Some(place) => conditions[place] = condition,
        None => conditions.push(condition),
    }
    Value::Array(conditions)
}

/// Why Rook refuses a spec without a change of the phase: the reason is in an event only.
pub(super) fn refusal(kind: Kind, name: &str, spec: &Value) -> Option<String> {
    match kind {
        Kind::CephBlockPool => {
            pool_refusal(spec).map(|why| format!("invalid pool CR \"{name}\" spec: {why}"))
        }
        Kind::CephClient => client_refusal(name, spec)
            .map(|why| format!("failed to validate client \"{name}\" arguments: {why}")),
        _ => None,
    }
}

fn pool_refusal(spec: &Value) -> Option<String> {
    let size = replicas(spec);
    let replicated = &spec["replicated"];
    if size > 0 && coded(spec) {
        return Some("both replication and erasure code settings cannot be specified".to_owned());
    }
    if let Some(domain) = text(spec, "failureDomain").filter(|domain| !DOMAINS.contains(domain)) {
        return Some(format!("unrecognized failure domain {domain}"));
    }
    if size == 1 && replicated["requireSafeReplicaSize"] == true {
        return Some("error pool size is 1 and requireSafeReplicaSize is true, must be false".to_owned());
    }
    let each = replicated["replicasPerFailureDomain"].as_u64().unwrap_or_default();
    (size > 0 && size <= each).then(|| {
        format!("error pool size is {size} and replicasPerFailureDomain is {each}, size must be greater")
    })
}

fn client_refusal(name: &str, spec: &Value) -> Option<String> {
    let digits = |text: &str| text.chars().all(|is| is.is_ascii_digit());
    let reserved = matches!(
        name,
        "admin"
            | "rbd-mirror"
            | "bootstrap-mds"
            | "bootstrap-mgr"
            | "bootstrap-mon"
            | "bootstrap-osd"
            | "bootstrap-rgw"
    ) || name.starts_with("rgw")
        || name.strip_prefix("osd").is_some_and(|rest| rest.len() > 1 && digits(&rest[1..]));
    if reserved {
        return Some(format!("ignoring reserved name \"{name}\""));
    }
    let caps = spec["caps"].as_object();
    let empty = caps.is_none_or(|caps| caps.values().any(|cap| cap == ""));
    empty.then(|| "no caps specified".to_owned())
}

/// Why Ceph itself would refuse to make it: this gives the phase Failure.
pub(super) fn impossible(kind: Kind, name: &str, spec: &Value) -> Option<String> {
    let neither = kind == Kind::CephBlockPool && replicas(spec) == 0 && !coded(spec);
    neither.then(|| format!("pool \"{name}\" type is not defined as replicated or erasure coded"))
}

/// The words that Rook puts around an error of Ceph when it makes something.
pub(super) fn making_failed(kind: Kind, name: &str, why: &str) -> String {
    match kind {
        Kind::CephBlockPool => {
            let failed = format!("failed to create pool \"{name}\"");
            format!("{failed}.: {failed}.: {failed}: {why}")
        }
        Kind::CephClient => {
            format!("failed to create or update client \"{name}\": failed to create client \"{name}\": {why}")
        }
        _ => why.to_owned(),
    }
}

/// The words that Rook puts around an error of Ceph when it deletes something.
pub(super) fn deleting_failed(kind: Kind, name: &str, why: &str) -> String {
    match kind {
        Kind::CephBlockPool => {
            format!("failed to delete pool \"{name}\". : failed to delete pool \"{name}\": {why}")
        }
        Kind::CephClient => {
            format!("failed to delete ceph client \"{name}\": failed to delete client \"{name}\": {why}")
        }
        _ => why.to_owned(),
    }
}

fn replicas(spec: &Value) -> u64 {
    spec["replicated"]["size"].as_u64().unwrap_or_default()
}

fn coded(spec: &Value) -> bool {
    let chunks = |field: &str| spec["erasureCoded"][field].as_u64().unwrap_or_default();
    chunks("codingChunks") > 0 || chunks("dataChunks") > 0
}

/// A text field that is there and not empty.
pub(super) fn text<'a>(spec: &'a Value, field: &str) -> Option<&'a str> {
    spec[field].as_str().filter(|text| !text.is_empty())
}
