//! What a cluster needs before the operator runs: CRDs, roles, and an identity for it. Writes nothing else.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use aquifer_family::{Account as RightsOf, InstalledObject, Rights, Settings};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams, PostParams},
    core::{GroupVersionKind, TypeMeta},
    discovery::{self, Scope},
};
use serde_json::{Value, json};

pub use crate::access::write_private;
use crate::proxy::Proxy;
use crate::{Cluster, eventually};

const MANAGER: &str = "aquifer-lab";
/// Where the operator's identity lives.
pub const NAMESPACE: &str = "aquifer-system";
const ACCOUNT: &str = "aquifer";

/// The user that the operator is to the API server.
pub const USER: &str = "system:serviceaccount:aquifer-system:aquifer";

/// How the operator shows who it is. Only this module makes one; of what is shipped, none is an administrator's.
#[non_exhaustive]
pub struct Account {
    /// What it sends with each call.
    pub token: String,
    /// The same as a file.
    pub kubeconfig: PathBuf,
}

impl Account {
    /// The administrator, for made-up families of tests: what is shipped never runs as one.
    pub fn administrator(cluster: &Cluster) -> Self {
        Self { token: cluster.admin_token().to_owned(), kubeconfig: cluster.kubeconfig() }
    }

    /// The same account for an operator that connects through a proxy.
    pub fn behind(&self, proxy: &Proxy, file: &Path) -> Result<Self> {
        proxy.kubeconfig(&self.token, file)?;
        Ok(Self { token: self.token.clone(), kubeconfig: file.to_path_buf() })
    }
}

/// Installs the CRDs and waits until they are served.
pub async fn crds(client: &Client) -> Result<()> {
    let crds = aquifer_families::crds(&aquifer_families::all());
    for definition in &crds {
        crd(client, definition).await?;
    }
    for definition in &crds {
        served(client, definition.metadata.name.as_deref().context("a CRD without a name")?).await?;
    }
    Ok(())
}

/// Installs one CRD.
pub(crate) async fn crd(client: &Client, crd: &CustomResourceDefinition) -> Result<()> {
    apply(client, typed("apiextensions.k8s.io/v1", "CustomResourceDefinition", crd)?).await?;
    Ok(())
}

/// Waits until the API server serves the kind of a CRD.
pub(crate) async fn served(client: &Client, name: &str) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    eventually(Duration::from_secs(30), &format!("CRD {name} is Established"), || async {
        let conditions = api.get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
        let established = conditions.iter().any(|is| is.type_ == "Established" && is.status == "True");
        Ok(established.then_some(()))
    })
    .await
}

/// Makes what an installation makes for the families before the operator runs, as far as the cluster has the APIs for it.
pub async fn for_families(client: &Client) -> Result<()> {
    let groups = client.list_api_groups().await?.groups;
    let served: Vec<String> =
        groups.into_iter().flat_map(|group| group.versions).map(|version| version.group_version).collect();
    for InstalledObject { object, needs, .. } in objects_for_families() {
        if needs.is_none_or(|api| served.iter().any(|served| served == api)) {
            apply(client, object).await?;
        }
    }
    Ok(())
}

/// What an installation with default settings makes for the families.
pub fn objects_for_families() -> Vec<InstalledObject> {
    let of_family = |family: &'static dyn aquifer_family::Family| {
        let settings = Settings::defaults(family, NAMESPACE);
        family.installed(&settings).into_iter().filter(move |one| settings.meet(one.when))
    };
    aquifer_families::all().into_iter().flat_map(of_family).collect()
}

/// Installs the roles that let users work with our kinds.
pub async fn user_roles(client: &Client) -> Result<()> {
    for role in aquifer_families::all().iter().flat_map(|family| family.user_roles()) {
        apply(client, typed("rbac.authorization.k8s.io/v1", "ClusterRole", &role)?).await?;
    }
    Ok(())
}

/// Gives the operator an account with the rights of a real installation, and gives its key.
pub async fn identity(cluster: &Cluster) -> Result<Account> {
    account(cluster, ACCOUNT, &rights()).await
}

/// An account of another name that keeps only a part of each rule. What it does is not taken for what the operator does.
pub async fn lesser_identity(
    cluster: &Cluster,
    name: &str,
    keeps: impl Fn(&PolicyRule) -> Vec<PolicyRule>,
) -> Result<Account> {
    ensure!(name != ACCOUNT, "{name} is the account with all rights");
    let all = rights();
    let cluster_wide: Vec<PolicyRule> = all.cluster.iter().flat_map(keeps).collect();
    ensure!(cluster_wide != all.cluster, "nothing was taken away from {name}");
    account(cluster, name, &Rights { cluster: cluster_wide, ..all }).await
}

/// What a real installation of all families grants to the operator.
fn rights() -> Rights {
    Rights::by_default(RightsOf::Operator, &aquifer_families::all(), NAMESPACE)
}

async fn account(cluster: &Cluster, name: &str, rights: &Rights) -> Result<Account> {
    let client = cluster.client()?;
    for_families(&client).await?;
    let api_version = "rbac.authorization.k8s.io/v1";
    let subjects = json!([{ "kind": "ServiceAccount", "name": name, "namespace": NAMESPACE }]);
    let role_ref =
        |kind: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name });
    let wide = json!({ "name": name });
    let mut objects = vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
        json!({ "apiVersion": api_version, "kind": "ClusterRole", "metadata": wide, "rules": rights.cluster }),
        json!({ "apiVersion": api_version, "kind": "ClusterRoleBinding", "metadata": wide,
            "roleRef": role_ref("ClusterRole"), "subjects": subjects }),
    ];
    let narrow = rights.namespaces.iter().map(|one| (one.namespace.as_str(), &one.rules));
    for (namespace, rules) in std::iter::once((NAMESPACE, &rights.own_namespace)).chain(narrow) {
        let metadata = json!({ "name": name, "namespace": namespace });
        objects.extend([
            json!({ "apiVersion": api_version, "kind": "Role", "metadata": metadata, "rules": rules }),
            json!({ "apiVersion": api_version, "kind": "RoleBinding", "metadata": metadata,
                "roleRef": role_ref("Role"), "subjects": subjects }),
        ]);
    }
    for object in objects {
        apply(&client, object).await?;
    }
    let (token, kubeconfig) = cluster.service_account(NAMESPACE, name).await?;
    in_effect(&client, &format!("system:serviceaccount:{NAMESPACE}:{name}"), rights).await?;
    Ok(Account { token, kubeconfig })
}

/// Waits until the server knows all bindings: a refusal in its first moments would look like a missing rule.
async fn in_effect(client: &Client, user: &str, rights: &Rights) -> Result<()> {
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let narrow = rights.namespaces.iter().map(|one| (one.rules.first(), one.namespace.as_str()));
    let wide = [(rights.cluster.first(), ""), (rights.own_namespace.first(), NAMESPACE)];
    for (rule, namespace) in wide.into_iter().chain(narrow) {
        let rule = rule.with_context(|| format!("{user} has no rights at all"))?;
        let first = |words: &Option<Vec<String>>| words.iter().flatten().next().cloned();
        let asked = json!({
            "verb": rule.verbs.first(), "group": first(&rule.api_groups), "resource": first(&rule.resources),
            "name": first(&rule.resource_names), "namespace": namespace,
        });
        let spec = json!({ "user": user, "resourceAttributes": asked });
        let review: SubjectAccessReview = serde_json::from_value(json!({ "metadata": {}, "spec": spec }))?;
        eventually(Duration::from_secs(30), &format!("{user} has its rights"), || async {
            let status = reviews.create(&PostParams::default(), &review).await?.status;
            Ok(status.is_some_and(|status| status.allowed).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// Applies one object whatever its kind, and gives it as the server has it now.
pub async fn apply(client: &Client, object: Value) -> Result<DynamicObject> {
    let object: DynamicObject = serde_json::from_value(object).context("not a Kubernetes object")?;
    let types = object.types.clone().context("an object without apiVersion and kind")?;
    let name = object.metadata.name.clone().with_context(|| format!("a {} without a name", types.kind))?;
    let api = api_of(client, &types, object.metadata.namespace.as_deref()).await?;
    api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(&object))
        .await
        .with_context(|| format!("cannot apply {} {name}", types.kind))
}

/// The API of a kind, in the given namespace when it has namespaces.
pub async fn api_of(
    client: &Client,
    types: &TypeMeta,
    namespace: Option<&str>,
) -> Result<Api<DynamicObject>> {
    let gvk = GroupVersionKind::try_from(types).context("a bad apiVersion")?;
    let (resource, capabilities) = discovery::pinned_kind(client, &gvk)
        .await
        .with_context(|| format!("the cluster does not serve {} {}", types.api_version, types.kind))?;
    Ok(match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let Some(namespace) = namespace else { bail!("a {} needs metadata.namespace", types.kind) };
            Api::namespaced_with(client.clone(), namespace, &resource)
        }
    })
}

/// An object of a known type with its apiVersion and kind spelled out, as apply needs it.
fn typed(api_version: &str, kind: &str, object: &impl serde::Serialize) -> Result<Value> {
    let mut value = serde_json::to_value(object)?;
    value["apiVersion"] = api_version.into();
    value["kind"] = kind.into();
    // A definition that came from a type carries an empty status, which is the server's to write.
    if let Some(map) = value.as_object_mut() {
        map.remove("status");
    }
    Ok(value)
}
