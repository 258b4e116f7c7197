//! The installation that a cluster has already: where it is, and what was chosen for it. Changes nothing.

use anyhow::{Context as _, bail};
use aquifer_api::labels::PART_OF;
use aquifer_family::Family;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::{Api, Client, ResourceExt as _};

use super::objects::{FAMILIES, NAME, NAMESPACE};

/// What was chosen for the operator that is there.
#[derive(Default)]
pub struct Present {
    pub image: Option<String>,
    pub replicas: Option<i32>,
    pub families: Option<Vec<&'static dyn Family>>,
}

impl Present {
    /// Reads it from the operator's Deployment.
    pub async fn read(client: &Client, namespace: &str) -> anyhow::Result<Self> {
        let api = Api::<Deployment>::namespaced(client.clone(), namespace);
        let live = api.get_opt(NAME).await.context("cannot read the operator's Deployment")?;
        Ok(live.map_or_else(Self::default, |live| Self::of(&live)))
    }

    fn of(live: &Deployment) -> Self {
        let spec = live.spec.as_ref();
        let pod = spec.and_then(|spec| spec.template.spec.as_ref());
        let container = pod.and_then(|pod| pod.containers.iter().find(|one| one.name == NAME));
        let variables = container.and_then(|container| container.env.as_deref()).unwrap_or_default();
        let variable = |name| variables.iter().find(|one| one.name == name)?.value.as_deref();
        let families = FAMILIES.into_iter().find_map(variable);
        Self {
            image: container.and_then(|container| container.image.clone()),
            replicas: spec.and_then(|spec| spec.replicas),
            // One that this program does not know cannot be kept.
            families: families.and_then(|names| names.split(',').map(aquifer_families::named).collect()),
        }
    }
}

/// The namespace of the operator. One account alone has its rights, so the binding of these tells.
pub async fn home(client: &Client) -> anyhow::Result<Option<String>> {
    let api = Api::<ClusterRoleBinding>::all(client.clone());
    let binding =
        api.get_opt(NAME).await.with_context(|| format!("cannot read ClusterRoleBinding {NAME}"))?;
    let ours = binding.filter(|one| one.labels().get(PART_OF).is_some_and(|part_of| part_of == NAME));
    let subjects = ours.and_then(|binding| binding.subjects).unwrap_or_default();
    Ok(subjects
        .into_iter()
        .find(|one| one.kind == "ServiceAccount" && one.name == NAME)
        .and_then(|one| one.namespace))
}

/// The namespace that is meant. There is one operator in a cluster, so it cannot be another one than its home.
pub fn place(home: Option<&str>, asked: Option<&str>) -> anyhow::Result<String> {
    if let (Some(home), Some(asked)) = (home, asked)
        && home != asked
    {
        bail!(
            "cannot use namespace {asked}: Aquifer is installed in namespace {home}, and one installation serves the whole cluster. Leave --namespace out"
        );
    }
    Ok(home.or(asked).unwrap_or(NAMESPACE).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_installation_is_found_where_it_is_and_nowhere_else() {
        assert_eq!(place(None, None).unwrap(), NAMESPACE);
        assert_eq!(place(None, Some("storage")).unwrap(), "storage");
        assert_eq!(place(Some("storage"), None).unwrap(), "storage");
        assert_eq!(place(Some("storage"), Some("storage")).unwrap(), "storage");
        let refused = place(Some("storage"), Some("other")).unwrap_err().to_string();
        assert!(refused.contains("installed in namespace storage"), "{refused}");
    }

    #[test]
    fn what_was_chosen_is_read_back() {
        let live = |variable: &str, families: &str| -> Deployment {
            serde_json::from_value(json!({ "spec": { "replicas": 3, "selector": {}, "template": { "spec": {
                "containers": [{ "name": "aquifer", "image": "registry.example/a:v9",
                    "env": [{ "name": variable, "value": families }] }] } } } }))
            .unwrap()
        };
        let names = |found: Present| found.families.map(|all| crate::families::names(&all));
        let found = Present::of(&live("AQUIFER_FAMILIES", "efs"));
        assert_eq!(found.image.as_deref(), Some("registry.example/a:v9"));
        assert_eq!((found.replicas, names(found).as_deref()), (Some(3), Some("efs")));
        assert_eq!(names(Present::of(&live("AQUIFER_CONTROLLERS", "efs"))).as_deref(), Some("efs"));
        assert_eq!(names(Present::of(&live("AQUIFER_FAMILIES", "tape"))), None);
    }
}
