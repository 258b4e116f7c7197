//! `aquifer uninstall`: takes the operator away, but never from under objects that need it. Kinds stay unless asked for, because a
//! kind takes all its objects along.

use std::time::Duration;

use anyhow::{Context as _, bail};
use aquifer_api::component::{Component, Desired};
use aquifer_api::efs::SharedVolume;
use clap::builder::BoolishValueParser;
use clap::{Args as ClapArgs, ValueEnum};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{DeleteParams, DynamicObject, ListParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;

use super::apply::{is_ours, look, release};
use super::objects::{DEFAULT_IMAGE, NAME, NAMESPACE, Wanted, api_of, kind, title};
use crate::run::{Connection, Family};
use crate::uninstall::confirmed;

const INTERVAL: Duration = Duration::from_millis(200);
/// How long a busy API server may put us off.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(ClapArgs)]
pub struct Args {
    /// Also delete the definitions of our kinds
    #[arg(long, env = "AQUIFER_UNINSTALL_CRDS", value_parser = BoolishValueParser::new())]
    crds: bool,
    /// Say what would be deleted and change nothing
    #[arg(long, env = "AQUIFER_UNINSTALL_DRY_RUN", value_parser = BoolishValueParser::new())]
    dry_run: bool,
    /// Namespace of the operator
    #[arg(long, short, env = "AQUIFER_UNINSTALL_NAMESPACE", default_value = NAMESPACE, value_name = "NAMESPACE", value_parser = super::namespace)]
    namespace: String,
    /// Do not ask
    #[arg(long, env = "AQUIFER_UNINSTALL_YES", value_parser = BoolishValueParser::new())]
    yes: bool,
    /// How long to wait for the end of each object, in seconds
    #[arg(long, env = "AQUIFER_UNINSTALL_TIMEOUT", default_value_t = 120, value_name = "SECONDS")]
    timeout: u64,
    #[command(flatten)]
    connection: Connection,
}

/// Uninstalls, unless something still needs the operator. Can be run again at any point.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let client = args.connection.client().await?;
    refuse_while_needed(&client).await?;
    let found = find(&client, &args.namespace, args.crds).await?;
    if found.is_empty() {
        println!("nothing of Aquifer is in namespace {} or around it", args.namespace);
        return Ok(());
    }
    println!("This deletes:");
    for live in &found {
        println!("  {}", title(live));
    }
    if args.dry_run {
        return Ok(());
    }
    if !args.yes && !confirmed()? {
        bail!("nothing was done");
    }
    for live in &found {
        if kind(live) == CRD {
            // Somebody may have made one since we looked, and no operator would look after its end.
            refuse_while_needed(&client).await?;
        }
        delete(&client, live, Duration::from_secs(args.timeout)).await?;
        println!("deleted   {}", title(live));
    }
    forget_lease(&client, &args.namespace).await?;
    if !args.crds {
        println!("The kinds stay; aquifer uninstall --crds deletes them too.");
    }
    println!("Namespace {0} stays; when nothing else is in it: kubectl delete namespace {0}", args.namespace);
    Ok(())
}

const CRD: &str = "CustomResourceDefinition";

/// Fails, with a list, while there are objects that only a running operator can take away in order.
async fn refuse_while_needed(client: &Client) -> anyhow::Result<()> {
    let needed = needed(client).await?;
    if needed.is_empty() {
        return Ok(());
    }
    bail!(
        "these still need the operator:\n  {}\ntake them away first, while it runs: aquifer efs uninstall",
        needed.join("\n  ")
    );
}

async fn needed(client: &Client) -> anyhow::Result<Vec<String>> {
    let mut all = Vec::new();
    for volume in list::<SharedVolume>(client).await? {
        all.push(format!("SharedVolume {}/{}", volume.namespace().unwrap_or_default(), volume.name_any()));
    }
    all.extend(list::<Component>(client).await?.iter().filter_map(still_there));
    Ok(all)
}

/// Why a component keeps the operator: it is wanted, or not gone yet. One that somebody else manages does not.
fn still_there(component: &Component) -> Option<String> {
    let status = component.status.as_ref();
    let ready = status.and_then(|status| status.conditions.iter().find(|one| one.type_ == "Ready"));
    let reason = ready.map_or("", |ready| ready.reason.as_str());
    let current = status.is_some_and(|status| status.observed_generation == component.metadata.generation);
    let why = match component.spec.desired() {
        Desired::Removed if current && reason == "Removed" => return None,
        Desired::Installed if current && reason == "External" => return None,
        Desired::Removed => "is not removed yet",
        Desired::Installed => "is installed",
    };
    Some(format!("Component {} {why}", component.name_any()))
}

/// All objects of a kind of ours; none when the kind is not served.
async fn list<K>(client: &Client) -> anyhow::Result<Vec<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let (api, deadline) = (Api::<K>::all(client.clone()), Instant::now() + PATIENCE);
    loop {
        match api.list(&ListParams::default()).await {
            Ok(list) => return Ok(list.items),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            // A kind that was just installed is not ready to be listed for a moment.
            Err(kube::Error::Api(status)) if status.code == 429 && Instant::now() < deadline => {
                tokio::time::sleep(INTERVAL).await;
            }
            Err(error) => return Err(error).with_context(|| format!("cannot list {}", K::plural(&()))),
        }
    }
}

/// What is there, in the order in which it goes: the operator first, its rights after it, kinds last.
async fn find(client: &Client, namespace: &str, crds: bool) -> anyhow::Result<Vec<DynamicObject>> {
    let wanted = Wanted {
        image: DEFAULT_IMAGE.to_owned(),
        namespace: namespace.to_owned(),
        replicas: 0,
        families: Family::value_variants().to_vec(),
    };
    let (kinds, others): (Vec<_>, Vec<_>) = wanted
        .objects()?
        .into_iter()
        .filter(|one| kind(one) != "Namespace")
        .partition(|one| kind(one) == CRD);
    let mut found = Vec::new();
    for object in others.iter().rev().chain(kinds.iter().filter(|_| crds)) {
        let Some(mut live) = look(client, object).await? else { continue };
        if kind(object) != CRD {
            if let Some(release) = release(&live) {
                bail!("{} belongs to the Helm release {release}: use helm uninstall", title(object));
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
            bail!("{} is still there after {} s; run this again later", title(live), patience.as_secs());
        }
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(())
}

/// The operator made the Lease itself, so nothing else takes it away.
async fn forget_lease(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    match leases.delete(NAME, &DeleteParams::default()).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error).context("cannot delete the operator's Lease"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn component(desired: &str, reason: &str, seen: i64) -> Component {
        serde_json::from_value(json!({
            "apiVersion": "aquifer.storage/v1alpha1", "kind": "Component",
            "metadata": { "name": "efs-driver", "generation": 2 },
            "spec": { "desired": desired },
            "status": { "observedGeneration": seen, "conditions": [{ "type": "Ready", "status": "True",
                "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }] },
        }))
        .unwrap()
    }

    #[test]
    fn a_component_needs_the_operator_until_it_is_known_to_be_removed() {
        assert_eq!(still_there(&component("Removed", "Removed", 2)), None);
        assert!(still_there(&component("Removed", "Removed", 1)).unwrap().contains("not removed yet"));
        assert!(still_there(&component("Removed", "Removing", 2)).unwrap().contains("not removed yet"));
        assert!(still_there(&component("Installed", "Ready", 2)).unwrap().contains("is installed"));
        assert_eq!(still_there(&component("Installed", "External", 2)), None);
    }
}
