//! What of ours a cluster holds that only a running operator can take away in order. Changes nothing.

use anyhow::bail;
use aquifer_api::component::{Component, Desired};
use aquifer_family::{component, list};
use kube::api::ListParams;
use kube::{Client, ResourceExt};

/// So many objects are named; the others are counted.
const NAMED: usize = 50;

/// How to remove the operator nevertheless.
pub const KEEP_OBJECTS: &str = "aquifer uninstall --keep-objects";

/// Fails, with a list, while there are objects that only a running operator can take away in order.
pub async fn refuse(client: &Client, nevertheless: &str) -> anyhow::Result<()> {
    let mut needed = Vec::new();
    let mut commands = Vec::new();
    for family in aquifer_families::all() {
        let of_family = family.needed(client).await?;
        needed.extend(of_family);
        if family.uninstall(client.clone()).is_some() {
            commands.push(format!("aquifer {} uninstall", family.name()));
        }
    }
    needed.extend(components(client).await?.iter().filter_map(component::still_needed));
    if needed.is_empty() {
        return Ok(());
    }
    bail!(
        "cannot remove the operator while these objects need it:\n  {}\nDelete them first, while the operator runs: {}\nOr leave them for the next installation: {nevertheless}",
        listed(&needed),
        commands.join("; ")
    );
}

fn listed(needed: &[String]) -> String {
    let mut lines = needed.iter().take(NAMED).cloned().collect::<Vec<_>>();
    if needed.len() > NAMED {
        lines.push(format!("and {} more", needed.len() - NAMED));
    }
    lines.join("\n  ")
}

/// Names of the components that an administrator has removed.
pub async fn unwanted(client: &Client) -> anyhow::Result<Vec<String>> {
    let components = components(client).await?;
    let removed = components.iter().filter(|one| one.spec.desired() == Desired::Removed);
    Ok(removed.map(ResourceExt::name_any).collect())
}

/// The components that are removed completely. What is left of them is the wish, and the next installation would follow it.
pub async fn finished(client: &Client) -> anyhow::Result<Vec<Component>> {
    let mut components = components(client).await?;
    components.retain(|one| one.spec.desired() == Desired::Removed && component::still_needed(one).is_none());
    Ok(components)
}

/// All components. The kind belongs to no family, so this is asked once for all.
async fn components(client: &Client) -> anyhow::Result<Vec<Component>> {
    Ok(list(client, &ListParams::default()).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_objects_some_are_named_and_the_others_are_counted() {
        let all =
            |count: usize| (0..count).map(|number| format!("SharedVolume a/{number}")).collect::<Vec<_>>();
        assert_eq!(listed(&all(2)), "SharedVolume a/0\n  SharedVolume a/1");
        assert_eq!(listed(&all(NAMED)).lines().count(), NAMED);
        let many = listed(&all(NAMED + 7));
        assert!(many.ends_with("SharedVolume a/49\n  and 7 more"), "{many}");
    }
}
