//! The objects of an installation. Must stay the same as what `charts/aquifer` renders with its default values; only the label
//! that says who manages them differs. Talks to nobody.

use anyhow::Context as _;
use aquifer_api::{driver, labels, roles};
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::run::Family;

/// Name of nearly all objects. Fixed, because one Aquifer serves a cluster.
pub const NAME: &str = "aquifer";
/// Where the operator runs unless told otherwise.
pub const NAMESPACE: &str = "aquifer-system";
/// Label with [`NAME`].
pub const NAME_LABEL: &str = "app.kubernetes.io/name";
/// Label and value that tell the operator from other parts.
pub const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "operator");
/// Label with the version of the operator.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";
/// Label with [`NAME`], by which our objects are known.
pub const PART_OF: &str = "app.kubernetes.io/part-of";
/// The image that `cargo xtask image` makes.
pub const DEFAULT_IMAGE: &str = concat!("localhost/aquifer:", env!("CARGO_PKG_VERSION"));

/// The variable that names the families to run.
pub const FAMILIES: &str = "AQUIFER_CONTROLLERS";

const RBAC: &str = "rbac.authorization.k8s.io";
const RBAC_V1: &str = "rbac.authorization.k8s.io/v1";

/// What a user can choose.
pub struct Wanted {
    pub image: String,
    pub namespace: String,
    pub replicas: i32,
    pub families: Vec<Family>,
}

impl Wanted {
    /// All objects, in the order in which they are made.
    pub fn objects(&self) -> anyhow::Result<Vec<DynamicObject>> {
        let mut all = vec![self.home()];
        all.extend(kinds()?);
        all.push(json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.here(NAME),
            "automountServiceAccountToken": false,
        }));
        all.extend(self.rights());
        all.extend(self.user_roles()?);
        all.push(self.service());
        all.push(self.deployment());
        all.into_iter().map(|object| serde_json::from_value(object).context("not an object")).collect()
    }

    fn here(&self, name: &str) -> Value {
        json!({ "name": name, "namespace": self.namespace, "labels": all_labels() })
    }

    /// The one object that the chart does not have: Helm makes the namespace itself.
    fn home(&self) -> Value {
        let mut labels = all_labels();
        labels["pod-security.kubernetes.io/enforce"] = "restricted".into();
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.namespace, "labels": labels } })
    }

    fn rights(&self) -> [Value; 4] {
        let mut rules: Vec<_> = roles::shared_grants();
        for family in &self.families {
            rules.extend(match family {
                Family::Efs => roles::efs_grants(driver::DEFAULT_NAMESPACE),
            });
        }
        let rules: Vec<_> = rules.into_iter().map(|grant| grant.rule).collect();
        let wide = json!({ "name": NAME, "labels": all_labels() });
        let role = |kind: &str| json!({ "apiGroup": RBAC, "kind": kind, "name": NAME });
        let subjects = json!([{ "kind": "ServiceAccount", "name": NAME, "namespace": self.namespace }]);
        [
            json!({ "apiVersion": RBAC_V1, "kind": "ClusterRole", "metadata": wide, "rules": rules }),
            json!({ "apiVersion": RBAC_V1, "kind": "ClusterRoleBinding", "metadata": wide,
                "roleRef": role("ClusterRole"), "subjects": subjects }),
            json!({ "apiVersion": RBAC_V1, "kind": "Role", "metadata": self.here(NAME),
                "rules": roles::operator_namespace_rules() }),
            json!({ "apiVersion": RBAC_V1, "kind": "RoleBinding", "metadata": self.here(NAME),
                "roleRef": role("Role"), "subjects": subjects }),
        ]
    }

    fn user_roles(&self) -> anyhow::Result<Vec<Value>> {
        let mut all = Vec::new();
        for family in &self.families {
            all.extend(match family {
                Family::Efs => roles::user_roles(),
            });
        }
        all.into_iter().map(|role| labelled(serde_json::to_value(role)?)).collect()
    }

    fn service(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": self.here("aquifer-metrics"),
            "spec": {
                "type": "ClusterIP",
                "selector": selector(),
                "ports": [{ "name": "http", "port": 8080, "targetPort": "http", "protocol": "TCP" }],
            },
        })
    }

    fn deployment(&self) -> Value {
        let probe = |path: &str| json!({ "path": path, "port": "http" });
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": self.here(NAME),
            "spec": {
                "replicas": self.replicas,
                "selector": { "matchLabels": selector() },
                // The old replicas stay until the new ones have warm caches.
                "strategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } },
                "template": {
                    "metadata": { "labels": selector() },
                    "spec": {
                        "serviceAccountName": NAME,
                        "automountServiceAccountToken": true,
                        "terminationGracePeriodSeconds": 30,
                        // The image names a user that is not root. None is set here: OpenShift gives each namespace its own.
                        "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
                        "containers": [{
                            "name": NAME,
                            "image": self.image,
                            "imagePullPolicy": "IfNotPresent",
                            "args": ["run"],
                            "env": self.environment(),
                            "ports": [{ "name": "http", "containerPort": 8080, "protocol": "TCP" }],
                            "startupProbe": { "httpGet": probe("/livez"), "periodSeconds": 1, "failureThreshold": 30 },
                            "livenessProbe": { "httpGet": probe("/livez"), "periodSeconds": 10, "timeoutSeconds": 5 },
                            "readinessProbe": { "httpGet": probe("/readyz"), "periodSeconds": 2, "timeoutSeconds": 2 },
                            "resources": { "requests": { "cpu": "50m", "memory": "64Mi" }, "limits": { "memory": "512Mi" } },
                            "securityContext": {
                                "allowPrivilegeEscalation": false,
                                "readOnlyRootFilesystem": true,
                                "capabilities": { "drop": ["ALL"] },
                            },
                        }],
                        "topologySpreadConstraints": [{
                            "maxSkew": 1,
                            "topologyKey": "kubernetes.io/hostname",
                            "whenUnsatisfiable": "ScheduleAnyway",
                            "labelSelector": { "matchLabels": selector() },
                        }],
                    },
                },
            },
        })
    }

    fn environment(&self) -> Vec<Value> {
        let is = |name: &str, value: &str| json!({ "name": name, "value": value });
        let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "apiVersion": "v1", "fieldPath": path } } });
        let families: Vec<&str> = self.families.iter().map(|family| family.name()).collect();
        let mut all = vec![
            is(FAMILIES, &families.join(",")),
            is("AQUIFER_HTTP_LISTEN", "0.0.0.0:8080"),
            is("AQUIFER_LOG_FORMAT", "json"),
            is("AQUIFER_LOG_LEVEL", "info"),
            field("AQUIFER_LEASE_NAMESPACE", "metadata.namespace"),
            field("AQUIFER_IDENTITY", "metadata.name"),
        ];
        for family in &self.families {
            match family {
                Family::Efs => all.extend([
                    is("AQUIFER_EFS_STATICS", "managed"),
                    is("AQUIFER_EFS_NAMESPACE", driver::DEFAULT_NAMESPACE),
                    is("AQUIFER_EFS_TOLERATIONS", "*"),
                ]),
            }
        }
        all
    }
}

/// Our kinds. Marked so that Helm keeps them, should it ever own them.
fn kinds() -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    for crd in aquifer_api::crds() {
        let mut crd = labelled(serde_json::to_value(crd)?)?;
        crd["metadata"]["annotations"]["helm.sh/resource-policy"] = "keep".into();
        all.push(crd);
    }
    Ok(all)
}

fn selector() -> Value {
    json!({ NAME_LABEL: NAME, COMPONENT.0: COMPONENT.1 })
}

fn all_labels() -> Value {
    json!({
        NAME_LABEL: NAME,
        COMPONENT.0: COMPONENT.1,
        PART_OF: NAME,
        VERSION_LABEL: env!("CARGO_PKG_VERSION"),
        labels::MANAGED_BY: labels::MANAGER,
    })
}

/// With the labels of all our objects beside its own.
fn labelled(mut object: Value) -> anyhow::Result<Value> {
    let labels = all_labels();
    for (key, value) in labels.as_object().context("labels are a map")? {
        object["metadata"]["labels"][key] = value.clone();
    }
    Ok(object)
}

/// The API that holds the object.
pub fn api_of(client: &Client, object: &DynamicObject) -> anyhow::Result<Api<DynamicObject>> {
    let types = object.types.as_ref().context("an object without a kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
    Ok(match object.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

/// The kind of an object.
pub fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| types.kind.as_str())
}

/// An object as people name it.
pub fn title(object: &DynamicObject) -> String {
    let name = object.name_any();
    match object.namespace() {
        Some(namespace) => format!("{} {namespace}/{name}", kind(object)),
        None => format!("{} {name}", kind(object)),
    }
}
