//! What people see when a rule of the operator is missing: that a right is missing, which one, and for what. Each test takes one away
//! from an account of its own, so the others keep all of theirs.

use std::time::Instant;

use anyhow::{Context as _, Result};
use aquifer_efs::driver::Driver;
use aquifer_family::{Account as RightsOf, Rights};
use aquifer_lab::install::{self, Account};
use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::json;

use super::harness::{exclusive, installed_operator, start, until};
use super::tenant::{ACCESS_POINT, Tenant};
use aquifer_lab::kit::TestCluster;

/// An account of the operator without one verb on one resource.
async fn without(test: &TestCluster, verb: &str, resource: &str) -> Result<Account> {
    let keeps = |rule: &PolicyRule| {
        let resources = rule.resources.clone().unwrap_or_default();
        if !resources.iter().any(|one| one == resource) {
            return vec![rule.clone()];
        }
        // The other resources of the rule keep the verb.
        let (this, others): (Vec<_>, Vec<_>) = resources.into_iter().partition(|one| one == resource);
        let mut verbs = rule.verbs.clone();
        verbs.retain(|one| one != verb);
        let less = PolicyRule { resources: Some(this), verbs, ..rule.clone() };
        let rest = PolicyRule { resources: Some(others), ..rule.clone() };
        let keeps = |rule: &PolicyRule| {
            !rule.verbs.is_empty() && rule.resources.as_ref().is_some_and(|some| !some.is_empty())
        };
        [less, rest].into_iter().filter(keeps).collect()
    };
    let name = format!("aquifer-cannot-{verb}-{resource}").replace('/', "-");
    install::lesser_identity(&test.cluster, &name, keeps).await
}

#[tokio::test]
async fn without_the_right_to_make_claims_a_shared_volume_says_so_and_heals_when_it_is_granted() -> Result<()>
{
    let test = exclusive().await?;
    let operator = start(&without(&test, "create", "persistentvolumeclaims").await?, Driver::default());
    let tenant = Tenant::on(&test.cluster).await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let said = tenant.not_ready("data", "AccessDenied").await?;
    println!("{said}");
    assert!(said.contains("cannot create resource \"persistentvolumeclaims\""), "{said}");
    let shared = tenant.shared_volumes().get("data").await?;
    let status = shared.status.clone().unwrap_or_default();
    assert_eq!(status.message.as_deref(), Some(said.as_str()));

    let rules = Rights::by_default(RightsOf::Operator, &[aquifer_efs::family()], "aquifer-system").cluster;
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "aquifer-cannot-create-persistentvolumeclaims"}, "rules": rules});
    install::apply(&tenant.client, role).await?;
    let began = Instant::now();
    tenant.pair("data").await?;
    println!("healed {:.1} s after the right was granted", began.elapsed().as_secs_f64());
    tenant.delete("data").await?;
    tenant.gone("data").await?;
    operator.crash();
    Ok(())
}

#[tokio::test]
async fn without_the_right_to_delete_volumes_a_deletion_says_what_it_waits_for() -> Result<()> {
    let test = exclusive().await?;
    let operator = start(&without(&test, "delete", "persistentvolumes").await?, Driver::default());
    let tenant = Tenant::on(&test.cluster).await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    let (volume, claim) = tenant.pair("data").await?;
    tenant.delete("data").await?;
    let said = tenant.not_ready("data", "AccessDenied").await?;
    println!("{said}");
    assert!(said.contains("cannot delete resource \"persistentvolumes\""), "{said}");
    let volume = volume.metadata.name.context("a volume without a name")?;
    assert!(said.contains(&volume), "{said}");
    let claim = claim.metadata.name.context("a claim without a name")?;
    until(&tenant.claims(), &claim, "is still there", |claim| claim.metadata.deletion_timestamp.is_none())
        .await?;
    operator.crash();

    let operator = installed_operator(&test);
    tenant.gone("data").await?;
    tenant.empty().await?;
    operator.crash();
    Ok(())
}
