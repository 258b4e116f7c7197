//! The installation that a cluster has already: where it is, and what was chosen for it. Changes nothing.

use anyhow::{Context as _, bail};
use aquifer_api::labels::PART_OF;
use aquifer_base::NamespaceName;
use aquifer_family::Family;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::{Api, Client, ResourceExt as _};

use crate::families::Choices;

use super::objects::{FAMILIES, NAME, NAMESPACE};

/// What was chosen for the operator that is there.
#[derive(Default)]
pub struct Present {
    pub image: Option<String>,
    pub replicas: Option<i32>,
    /// Their names. Another version of this program may have chosen them, so some may be unknown here.
    families: Option<Vec<String>>,
    /// What was chosen for the flags of families.
    pub choices: Choices,
}

impl Present {
    /// Reads it from the operator's Deployment.
    pub async fn read(client: &Client, namespace: &NamespaceName) -> anyhow::Result<Self> {
        let api = Api::<Deployment>::namespaced(client.clone(), namespace.as_str());
        let live = api.get_opt(NAME).await.context("cannot read the operator's Deployment")?;
        Ok(live.map_or_else(Self::default, |live| Self::of(&live)))
    }

    fn of(live: &Deployment) -> Self {
        let spec = live.spec.as_ref();
        let pod = spec.and_then(|spec| spec.template.spec.as_ref());
        let container = pod.and_then(|pod| pod.containers.iter().find(|one| one.name == NAME));
        let variables = container.and_then(|container| container.env.as_deref()).unwrap_or_default();
        let variable = |name: &str| variables.iter().find(|one| one.name == name)?.value.as_deref();
        let families = FAMILIES.into_iter().find_map(variable).filter(|names| !names.is_empty());
        Self {
            image: container.and_then(|container| container.image.clone()),
            replicas: spec.and_then(|spec| spec.replicas),
            families: families.map(|names| names.split(',').map(str::to_owned).collect()),
            choices: Choices::of(variable),
        }
    }

    /// The families that the operator runs; none when nothing was chosen. Fails when one is unknown to this program: to go on without it would
    /// take its kinds and rights away from an operator that uses them.
    pub fn families(&self) -> anyhow::Result<Option<Vec<&'static dyn Family>>> {
        let known = |name: &String| {
            aquifer_families::named(name).with_context(|| {
                format!(
                    "cannot keep the family {name} of the installed operator: this version of aquifer does not know it. Use a version that does, or name the families to run with --families"
                )
            })
        };
        self.families.as_ref().map(|names| names.iter().map(known).collect()).transpose()
    }
}

/// The APIs that the cluster serves, as group and version. Some objects are for clusters with a certain one only.
pub async fn apis(client: &Client) -> anyhow::Result<Vec<String>> {
    let groups = client.list_api_groups().await.context("cannot ask which APIs the cluster serves")?;
    let versions = groups.groups.into_iter().flat_map(|group| group.versions);
    Ok(versions.map(|version| version.group_version).collect())
}

/// The namespace of the installed operator. Only one account has the operator's rights, so their binding shows it.
pub async fn operator_namespace(client: &Client) -> anyhow::Result<Option<NamespaceName>> {
    let api = Api::<ClusterRoleBinding>::all(client.clone());
    let binding =
        api.get_opt(NAME).await.with_context(|| format!("cannot read ClusterRoleBinding {NAME}"))?;
    let ours = binding.filter(|one| one.labels().get(PART_OF).is_some_and(|part_of| part_of == NAME));
    let subjects = ours.and_then(|binding| binding.subjects).unwrap_or_default();
    Ok(subjects
        .into_iter()
        .find(|one| one.kind == "ServiceAccount" && one.name == NAME)
        .and_then(|one| one.namespace)
        .map(NamespaceName::from))
}

/// The namespace to use. There is one operator in a cluster, so it cannot be another one than that of the installed operator.
pub fn choose_namespace(
    installed: Option<NamespaceName>,
    asked: Option<&NamespaceName>,
) -> anyhow::Result<NamespaceName> {
    if let (Some(installed), Some(asked)) = (&installed, asked)
        && installed != asked
    {
        bail!(
            "cannot use namespace {asked}: Aquifer is installed in namespace {installed}, and one installation serves the whole cluster. Leave --namespace out"
        );
    }
    Ok(installed.or_else(|| asked.cloned()).unwrap_or_else(|| NAMESPACE.into()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_installation_is_found_where_it_is_and_nowhere_else() {
        let choose = |installed: Option<&str>, asked: Option<&str>| {
            choose_namespace(installed.map(Into::into), asked.map(Into::into).as_ref())
        };
        assert_eq!(choose(None, None).unwrap().as_str(), NAMESPACE);
        assert_eq!(choose(None, Some("storage")).unwrap().as_str(), "storage");
        assert_eq!(choose(Some("storage"), None).unwrap().as_str(), "storage");
        assert_eq!(choose(Some("storage"), Some("storage")).unwrap().as_str(), "storage");
        let refused = choose(Some("storage"), Some("other")).unwrap_err().to_string();
        assert!(refused.contains("installed in namespace storage"), "{refused}");
    }

    fn present(variable: &str, families: &str) -> Present {
        let live = json!({ "spec": { "replicas": 3, "selector": {}, "template": { "spec": {
            "containers": [{ "name": "aquifer", "image": "registry.example/a:v9",
                "env": [{ "name": variable, "value": families }] }] } } } });
        Present::of(&serde_json::from_value(live).unwrap())
    }

    fn names(present: &Present) -> Option<String> {
        present.families().unwrap().map(|all| crate::families::names(&all))
    }

    #[test]
    fn what_was_chosen_is_read_back() {
        let found = present("AQUIFER_FAMILIES", "efs");
        assert_eq!(found.image.as_deref(), Some("registry.example/a:v9"));
        assert_eq!((found.replicas, names(&found).as_deref()), (Some(3), Some("efs")));
        assert_eq!(names(&present("AQUIFER_CONTROLLERS", "efs")).as_deref(), Some("efs"));
        assert_eq!(names(&present("AQUIFER_FAMILIES", "")), None);
        assert_eq!(names(&Present::default()), None);
    }

    #[test]
    fn what_was_chosen_for_a_family_stays_until_it_is_chosen_anew() {
        let tenancy = |arguments: &[&str], installed: Present| {
            let arguments = ["install"].iter().chain(arguments);
            let command = <super::super::Args as clap::Args>::augment_args(clap::Command::new("install"));
            let matches = command.get_matches_from(arguments);
            let args = <super::super::Args as clap::FromArgMatches>::from_arg_matches(&matches).unwrap();
            let objects = args.wanted(NAMESPACE.into(), installed, Vec::new()).unwrap().objects().unwrap();
            let deployment = serde_json::to_value(objects.last().unwrap()).unwrap();
            let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].clone();
            let of = variables.as_array().unwrap().iter().find(|one| one["name"] == "AQUIFER_EFS_TENANCY");
            of.unwrap()["value"].as_str().unwrap().to_owned()
        };
        let restricted = || present("AQUIFER_EFS_TENANCY", "Restricted");
        assert_eq!(tenancy(&[], Present::default()), "Open");
        assert_eq!(tenancy(&["--efs-tenancy=Restricted"], Present::default()), "Restricted");
        assert_eq!(tenancy(&[], restricted()), "Restricted");
        assert_eq!(tenancy(&["--efs-tenancy=Open"], restricted()), "Open");
    }

    #[test]
    fn a_family_that_this_version_does_not_know_is_an_error_that_names_it() {
        let refused = present("AQUIFER_FAMILIES", "efs,tape").families().map(drop).unwrap_err().to_string();
        assert!(refused.starts_with("cannot keep the family tape of the installed operator: "), "{refused}");
        assert!(refused.contains("--families"), "{refused}");
    }
}
