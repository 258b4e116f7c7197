//! The place of the node plugin in somebody else's hands: nothing privileged is put there (H1 of the audit).

use anyhow::{Context as _, Result};
use aquifer_api::component::ObjectState;
use aquifer_efs::kinds::{DAEMON_SET, NAMESPACE, SERVICE_ACCOUNT};
use aquifer_efs::names::driver;
use aquifer_lab::install;
use aquifer_lab::kit::TestCluster;
use kube::api::DeleteParams;
use serde_json::json;

use super::harness::{absent, installed_operator};
use super::objects::{Objects, at_rest, ready, state};

/// Takes the namespace that the installation made away, with all that is in it.
async fn without_namespace(objects: &Objects) -> Result<()> {
    objects.delete(&NAMESPACE).await?;
    let gone = || async { Ok(objects.get(&NAMESPACE).await?.map(|left| format!("{:?}", left.metadata))) };
    absent("the namespace of the installation", gone).await
}

/// Makes it again, with all marks and with the operator's rights in it, as somebody who repeats an installation does.
async fn rights_again(test: &TestCluster) -> Result<()> {
    install::identity(&test.cluster).await.map(drop)
}

async fn says(objects: &Objects, reason: &str, words: &[&str]) -> Result<()> {
    let component = objects.reason(reason).await?;
    let said = &ready(&component).context("no Ready")?.message;
    println!("{said}");
    for word in words {
        assert!(said.contains(word), "no `{word}` in {said}");
    }
    Ok(())
}

#[tokio::test]
async fn in_a_namespace_that_a_tenant_made_first_no_node_plugin_is_made() -> Result<()> {
    let test = TestCluster::start().await?;
    let objects = Objects::on(&test)?;
    without_namespace(&objects).await?;
    let squatted = objects.create(&NAMESPACE, json!({})).await?;
    objects.create(&SERVICE_ACCOUNT, json!({})).await?;

    let operator = installed_operator(&test);
    says(&objects, "Conflict", &["Namespace aquifer-efs was not made by an installation", "--take-over"])
        .await?;
    at_rest(&test).await?;
    assert_eq!(objects.present().await?, ["CSIDriver", "StorageClass"], "nothing that runs");
    let component = objects.components().get(driver::COMPONENT).await?;
    assert_eq!(state(&component, &NAMESPACE), Some(ObjectState::Foreign));
    let now = objects.there(&NAMESPACE).await?;
    assert_eq!(now.metadata.labels, squatted.metadata.labels, "it is not labelled privileged");
    operator.crash();
    Ok(())
}

#[tokio::test]
async fn a_namespace_that_was_made_again_is_not_trusted_until_an_administrator_says_so() -> Result<()> {
    let test = TestCluster::start().await?;
    let objects = Objects::on(&test)?;
    let operator = installed_operator(&test);
    objects.installed().await?;

    // With all marks of an installation, the account, and the operator's rights in it.
    without_namespace(&objects).await?;
    says(&objects, "NotPrepared", &["Namespace aquifer-efs is missing", "helm upgrade, or aquifer install"])
        .await?;
    rights_again(&test).await?;
    says(&objects, "Conflict", &["deleted and made again", "kubectl delete component efs-driver"]).await?;
    operator.resync();
    at_rest(&test).await?;
    assert!(
        objects.get(&DAEMON_SET).await?.is_none(),
        "a node plugin in a namespace that nobody vouches for"
    );
    // A restart forgets nothing.
    operator.crash();
    let operator = installed_operator(&test);
    at_rest(&test).await?;
    assert!(objects.get(&DAEMON_SET).await?.is_none());
    says(&objects, "Conflict", &["deleted and made again"]).await?;

    objects.components().delete(driver::COMPONENT, &DeleteParams::default()).await?;
    objects.installed().await?;
    objects.there(&DAEMON_SET).await?;
    operator.crash();
    Ok(())
}
