//! `aquifer uninstall`: removes the operator, but never while objects need it. Definitions of kinds stay unless asked for, because all
//! objects of a kind are deleted with its definition.

use std::time::Duration;

use anyhow::{Context as _, bail};
use aquifer_api::component::Component;
use aquifer_base::NamespaceName;
use clap::Args as ClapArgs;
use clap::builder::BoolishValueParser;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Preconditions};
use kube::{Client, CustomResourceExt as _, ResourceExt};
use tokio::time::Instant;

use super::apply::{CRD, is_kept, is_ours, look, release};
use super::objects::{DEFAULT_IMAGE, NAME, Wanted, api_of, kind, title};
use super::{needed, present};
use crate::confirm::confirm;
use crate::connection::Connection;
use crate::families::Choices;

const INTERVAL: Duration = Duration::from_millis(200);

#[derive(ClapArgs)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub struct Args {
    /// Change nothing; fail and say what is left while something still needs the operator. The chart asks this before helm uninstall
    #[arg(long, env = "AQUIFER_UNINSTALL_CHECK", conflicts_with_all = ["crds", "dry_run", "keep_objects", "yes"], value_parser = BoolishValueParser::new())]
    check: bool,
    /// With --check: the release and its revision, as in aquifer/2. What is said fits Helm then
    #[arg(long, env = "AQUIFER_UNINSTALL_HELM_RELEASE", requires = "check", value_name = "NAME/REVISION", value_parser = helm_release)]
    helm_release: Option<(String, u32)>,
    /// Also delete the definitions of our kinds, as far as Aquifer installed them
    #[arg(long, env = "AQUIFER_UNINSTALL_CRDS", value_parser = BoolishValueParser::new())]
    crds: bool,
    /// Print what would be deleted and change nothing
    #[arg(long, env = "AQUIFER_UNINSTALL_DRY_RUN", value_parser = BoolishValueParser::new())]
    dry_run: bool,
    /// Remove the operator although objects still need it; they stay for the next installation
    #[arg(long, env = "AQUIFER_UNINSTALL_KEEP_OBJECTS", conflicts_with = "crds", value_parser = BoolishValueParser::new())]
    keep_objects: bool,
    /// Namespace of the operator; by default where it is installed
    #[arg(long, short, env = "AQUIFER_UNINSTALL_NAMESPACE", value_name = "NAMESPACE", value_parser = super::namespace)]
    namespace: Option<NamespaceName>,
    /// Do not ask for confirmation
    #[arg(long, env = "AQUIFER_UNINSTALL_YES", value_parser = BoolishValueParser::new())]
    yes: bool,
    /// How long to wait until each object is gone, in seconds
    #[arg(long, env = "AQUIFER_UNINSTALL_TIMEOUT", default_value_t = 120, value_name = "SECONDS")]
    timeout: u64,
    #[command(flatten)]
    connection: Connection,
}

/// Uninstalls, unless something still needs the operator. Can be run again at any point.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let client = args.connection.client().await?;
    if args.check {
        let nevertheless = args.helm_release.map_or_else(
            || needed::KEEP_OBJECTS.to_owned(),
            |release| with_helm(release, args.namespace.as_ref()),
        );
        needed::refuse(&client, &nevertheless).await?;
        say!("Nothing needs the operator.");
        return Ok(());
    }
    let installed = present::operator_namespace(&client).await?;
    let namespace = present::choose_namespace(installed, args.namespace.as_ref())?;
    let mut finished = Vec::new();
    if !args.keep_objects {
        needed::refuse(&client, needed::KEEP_OBJECTS).await?;
        finished = needed::finished(&client).await?;
    }
    let found = find(&client, &namespace, &finished, &args).await?;
    if found.is_empty() {
        say!("nothing of Aquifer is installed in namespace {namespace} or in the cluster");
        return Ok(());
    }
    say!("This deletes:");
    for live in &found {
        say!("  {}", title(live));
    }
    if args.dry_run {
        return Ok(());
    }
    confirm(args.yes)?;
    for live in &found {
        if kind(live) == CRD {
            // A user may have made one since we looked, and no operator would look after its end.
            needed::refuse(&client, needed::KEEP_OBJECTS).await?;
        }
        delete(&client, live, Duration::from_secs(args.timeout)).await?;
        say!("deleted   {}", title(live));
    }
    if !args.crds {
        say!("The definitions of the kinds stay; to delete them too: aquifer uninstall --crds");
    }
    say!("Namespace {namespace} stays; to delete it: kubectl delete namespace {namespace}");
    Ok(())
}

/// What people with Helm do instead, and that Helm takes a release whose removal was refused for one that is being removed: it refuses to
/// upgrade that until it is told to stay.
fn with_helm((name, revision): (String, u32), namespace: Option<&NamespaceName>) -> String {
    let namespace = namespace.map(|namespace| format!(" --namespace {namespace}")).unwrap_or_default();
    format!(
        "helm uninstall {name}{namespace} --no-hooks\n\
         The operator goes on. Until it is removed, Helm upgrades it only after: helm rollback {name} {revision}{namespace}"
    )
}

fn helm_release(text: &str) -> anyhow::Result<(String, u32)> {
    let parsed =
        text.split_once('/').and_then(|(name, revision)| Some((name.to_owned(), revision.parse().ok()?)));
    parsed.context("a release and its revision are written like aquifer/2")
}

/// Made by the operator, so without the labels of what was installed.
const MADE: [&str; 2] = ["Lease", "Component"];

/// What is there, in the order in which it goes: the operator first, then what it made for itself, its rights, and the kinds. Of the rights, the
/// binding that shows where the operator is goes at the end, so that an uninstall that was cut short finds the place again.
async fn find(
    client: &Client,
    namespace: &NamespaceName,
    components: &[Component],
    args: &Args,
) -> anyhow::Result<Vec<DynamicObject>> {
    let wanted = Wanted {
        image: DEFAULT_IMAGE.to_owned(),
        namespace: namespace.clone(),
        replicas: 0,
        families: aquifer_families::all(),
        choices: Choices::default(),
        apis: present::apis(client).await?,
    };
    let (kinds, mut others): (Vec<_>, Vec<_>) = wanted
        .objects()?
        .into_iter()
        .filter(|one| kind(one) != "Namespace" || one.name_any() != namespace.as_str())
        .partition(|one| kind(one) == CRD);
    // What the operator made may need what was made for it.
    others.retain(|one| !args.keep_objects || !is_kept(one));
    others.reverse();
    let lease = |name: &String| {
        DynamicObject::new(name, &ApiResource::erase::<Lease>(&())).within(namespace.as_str())
    };
    // Before each family had a Lease of its own, there was one named like the operator.
    others.extend(wanted.leases().iter().chain([&NAME.to_owned()]).map(lease));
    let component = |one: &Component| DynamicObject::new(&one.name_any(), &Component::api_resource());
    others.extend(components.iter().map(component));
    let of_cluster = |one: &DynamicObject| one.namespace().is_none() && !MADE.contains(&kind(one));
    let shows_the_place = |one: &DynamicObject| kind(one) == "ClusterRoleBinding" && one.name_any() == NAME;
    others.sort_by_key(|one| (of_cluster(one), shows_the_place(one)));
    let mut found = Vec::new();
    for object in others.iter().chain(kinds.iter().filter(|_| args.crds)) {
        let Some(mut live) = look(client, object).await? else { continue };
        if !MADE.contains(&kind(object)) {
            // What is kept outlives the release that installed it.
            if let Some(release) = release(&live).filter(|_| !is_kept(object)) {
                bail!(
                    "cannot delete {}: it belongs to the Helm release {release}. Use helm uninstall",
                    title(object)
                );
            }
            if !is_ours(&live) {
                continue;
            }
        }
        live.types.clone_from(&object.types);
        found.push(live);
    }
    Ok(found)
}

/// Deletes this very object and waits until it and what it owns is gone.
async fn delete(client: &Client, live: &DynamicObject, patience: Duration) -> anyhow::Result<()> {
    let (api, name) = (api_of(client, live)?, live.name_any());
    let params = DeleteParams::foreground()
        .preconditions(Preconditions { uid: live.uid(), ..Preconditions::default() });
    match api.delete(&name, &params).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("cannot delete {}", title(live))),
    }
    let deadline = Instant::now() + patience;
    while look(client, live).await?.is_some_and(|now| now.uid() == live.uid()) {
        if Instant::now() > deadline {
            bail!(
                "cannot finish within {} s: {} is still there. Run the command again later",
                patience.as_secs(),
                title(live)
            );
        }
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_to_people_with_helm_names_release_revision_and_namespace() {
        let said = with_helm(helm_release("mine/7").unwrap(), Some(&"storage".into()));
        assert!(said.starts_with("helm uninstall mine --namespace storage --no-hooks\n"), "{said}");
        assert!(said.ends_with("helm rollback mine 7 --namespace storage"), "{said}");
        for bad in ["mine", "mine/last", ""] {
            assert!(helm_release(bad).is_err(), "{bad}");
        }
    }
}
