//! The objects of an installation. Must stay the same as what `charts/aquifer` renders with its default values; only the label
//! that says who manages them differs. Asks no cluster.

use anyhow::Context as _;
use aquifer_api::labels::{self, PART_OF};
use aquifer_base::NamespaceName;
use aquifer_family::rights::{self, RBAC};
use aquifer_family::{Account, Family, InstalledObject, Rights, Settings};
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::families::{self, Choices};

/// Name of nearly all objects. Fixed, because one Aquifer serves a cluster.
pub const NAME: &str = "aquifer";
/// Where the operator runs unless a flag names another namespace.
pub const NAMESPACE: &str = "aquifer-system";
/// Label with [`NAME`].
pub const NAME_LABEL: &str = "app.kubernetes.io/name";
/// Label and value that distinguish the operator from other parts.
pub const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "operator");
/// Label with the version of the operator.
pub const VERSION_LABEL: &str = "app.kubernetes.io/version";
/// The image that `cargo xtask image` makes.
pub const DEFAULT_IMAGE: &str = concat!("localhost/aquifer:", env!("CARGO_PKG_VERSION"));

/// The variable that names the families to run, and its old name.
pub const FAMILIES: [&str; 2] = ["AQUIFER_FAMILIES", "AQUIFER_CONTROLLERS"];

const RBAC_V1: &str = "rbac.authorization.k8s.io/v1";

/// What a user can choose.
pub struct Wanted {
    pub image: String,
    pub namespace: NamespaceName,
    pub replicas: i32,
    pub families: Vec<&'static dyn Family>,
    /// What was chosen for the flags of families.
    pub choices: Choices,
    /// The APIs that the cluster serves, such as `security.openshift.io/v1`, as far as families have objects for them.
    pub apis: Vec<String>,
}

impl Wanted {
    /// All objects, in the order in which they are made.
    pub fn objects(&self) -> anyhow::Result<Vec<DynamicObject>> {
        let mut all = vec![self.namespace_object()];
        all.extend(self.kinds()?);
        all.push(json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.here(NAME),
            "automountServiceAccountToken": false,
        }));
        all.extend(self.of_families());
        all.extend(self.rights());
        all.extend(self.user_roles()?);
        all.push(self.service());
        all.push(self.disruption_budget());
        all.push(self.deployment());
        all.into_iter()
            .map(|object| serde_json::from_value(object).context("cannot make an object"))
            .collect()
    }

    fn here(&self, name: &str) -> Value {
        json!({ "name": name, "namespace": self.namespace, "labels": all_labels() })
    }

    /// The one object that the chart does not have: Helm makes the namespace itself.
    fn namespace_object(&self) -> Value {
        let mut labels = all_labels();
        labels["pod-security.kubernetes.io/enforce"] = "restricted".into();
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": self.namespace, "labels": labels } })
    }

    /// What was chosen for each family.
    fn settings(&self) -> Vec<(&'static dyn Family, Settings)> {
        let of_family = |family: &&'static dyn Family| {
            let mut settings = Settings::defaults(*family, self.namespace.as_str());
            for setting in family.settings() {
                let variable = format!("AQUIFER_{}", setting.value.replace('.', "_").to_uppercase());
                if let Some(chosen) = self.choices.get(&variable) {
                    settings = settings.with(setting.value, chosen);
                }
            }
            (*family, settings)
        };
        self.families.iter().map(of_family).collect()
    }

    /// What families need before the operator runs. Helm keeps it as it keeps our kinds: what the operator made may need it.
    fn of_families(&self) -> Vec<Value> {
        let needed = |one: &InstalledObject, settings: &Settings| {
            let served = |api: &str| self.apis.iter().any(|served| served == api);
            settings.meet(one.when) && one.needs.is_none_or(served)
        };
        let mut all = Vec::new();
        for (family, settings) in self.settings() {
            let objects = family.installed(&settings).into_iter();
            for InstalledObject { mut object, .. } in objects.filter(|one| needed(one, &settings)) {
                keep(&mut object);
                all.push(object);
            }
        }
        all
    }

    /// In the whole cluster, in the operator's namespace, and in each namespace that a family works in.
    fn rights(&self) -> Vec<Value> {
        let rights = Rights::of(Account::Operator, &self.settings());
        let wide = json!({ "name": NAME, "labels": all_labels() });
        let role = |kind: &str, name: &str| json!({ "apiGroup": RBAC, "kind": kind, "name": name });
        let subjects = json!([{ "kind": "ServiceAccount", "name": NAME, "namespace": self.namespace }]);
        let mut all = vec![
            json!({ "apiVersion": RBAC_V1, "kind": "ClusterRole", "metadata": wide, "rules": rights.cluster }),
            json!({ "apiVersion": RBAC_V1, "kind": "ClusterRoleBinding", "metadata": wide,
                "roleRef": role("ClusterRole", NAME), "subjects": subjects }),
        ];
        let own = (NAME.to_owned(), self.namespace.as_str(), &rights.own_namespace);
        let of_families = rights
            .namespaces
            .iter()
            .map(|one| (one.role(Account::Operator), one.namespace.as_str(), &one.rules));
        for (name, namespace, rules) in std::iter::once(own).chain(of_families) {
            let metadata = json!({ "name": name, "namespace": namespace, "labels": all_labels() });
            all.extend([
                json!({ "apiVersion": RBAC_V1, "kind": "Role", "metadata": metadata, "rules": rules }),
                json!({ "apiVersion": RBAC_V1, "kind": "RoleBinding", "metadata": metadata,
                    "roleRef": role("Role", &name), "subjects": subjects }),
            ]);
        }
        all
    }

    fn user_roles(&self) -> anyhow::Result<Vec<Value>> {
        let all = self.families.iter().flat_map(|family| family.user_roles());
        all.map(|role| labelled(serde_json::to_value(role)?)).collect()
    }

    fn service(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": self.here("aquifer-metrics"),
            "spec": {
                "type": "ClusterIP",
                // What a replica counts is wanted above all when it is not ready.
                "publishNotReadyAddresses": true,
                "selector": selector(),
                "ports": [{ "name": "metrics", "port": 8081, "targetPort": "metrics", "protocol": "TCP" }],
            },
        })
    }

    fn disruption_budget(&self) -> Value {
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": self.here(NAME),
            // Not minAvailable: that would block the drain of a single replica for ever.
            "spec": {
                "maxUnavailable": 1,
                "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": { "matchLabels": selector() },
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
                            "ports": [
                                { "name": "http", "containerPort": 8080, "protocol": "TCP" },
                                { "name": "metrics", "containerPort": 8081, "protocol": "TCP" },
                            ],
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
        let mut all = vec![
            is(FAMILIES[0], &families::names(&self.families)),
            is("AQUIFER_IMAGE", &self.image),
            is("AQUIFER_HTTP_LISTEN", "0.0.0.0:8080"),
            is("AQUIFER_METRICS_LISTEN", "0.0.0.0:8081"),
            is("AQUIFER_MAX_WATCH_SILENCE", "5m"),
            is("AQUIFER_LOG_FORMAT", "json"),
            is("AQUIFER_LOG_LEVEL", "info"),
            is("AQUIFER_LEASE_DURATION", "10s"),
            is("AQUIFER_LEASE_RENEW_DEADLINE", "6s"),
            is("AQUIFER_LEASE_RETRY_PERIOD", "1500ms"),
            field("AQUIFER_LEASE_NAMESPACE", "metadata.namespace"),
            field("AQUIFER_IDENTITY", "metadata.name"),
        ];
        let of_families = self.families.iter().flat_map(|family| family.environment());
        all.extend(of_families.map(|(name, value)| is(name, self.choices.get(name).unwrap_or(&value))));
        all
    }

    /// The kinds of the families, and those that families share. Marked so that Helm keeps them, should it ever own them.
    fn kinds(&self) -> anyhow::Result<Vec<Value>> {
        let mut all = Vec::new();
        for crd in aquifer_families::crds(&self.families) {
            let mut crd = labelled(serde_json::to_value(crd)?)?;
            keep(&mut crd);
            all.push(crd);
        }
        Ok(all)
    }

    /// The Leases that replicas of the operator make.
    pub fn leases(&self) -> Vec<String> {
        self.families.iter().map(|family| rights::lease(*family)).collect()
    }
}

/// The annotation of what stays when Helm uninstalls the rest.
pub const KEEP: (&str, &str) = ("helm.sh/resource-policy", "keep");

fn keep(object: &mut Value) {
    object["metadata"]["annotations"][KEEP.0] = KEEP.1.into();
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
    for (key, value) in labels.as_object().context("cannot label an object")? {
        object["metadata"]["labels"][key] = value.clone();
    }
    Ok(object)
}

/// The API that holds the object.
pub fn api_of(client: &Client, object: &DynamicObject) -> anyhow::Result<Api<DynamicObject>> {
    let types = object.types.as_ref().context("cannot find the API of an object without a kind")?;
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
