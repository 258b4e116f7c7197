//! While the driver is being removed: who comes late says so and holds nothing up, and nobody hears of other tenants.

use anyhow::Result;
use aquifer_lab::kit::TestCluster;
use kube::ResourceExt;
use serde_json::json;

use super::harness::{condition, edit, installed_operator};
use super::objects::Objects;
use super::tenant::{ACCESS_POINT, OTHER_ACCESS_POINT, Tenant};
use aquifer_efs::names::driver;

#[tokio::test]
async fn while_the_driver_goes_newcomers_hold_nothing_up_and_no_status_names_another_tenants_objects()
-> Result<()> {
    let test = TestCluster::start().await?;
    let operator = installed_operator(&test);
    let objects = Objects::on(&test)?;
    objects.installed().await?;
    let (one, other) = (Tenant::on(&test.cluster).await?, Tenant::on(&test.cluster).await?);
    one.create("old", Some(ACCESS_POINT)).await?;
    other.create("secret-project", Some(ACCESS_POINT)).await?;
    one.pair("old").await?;
    other.pair("secret-project").await?;
    edit(&objects.components(), driver::COMPONENT, &json!({"spec": {"desired": "Removed"}})).await?;
    let said = |reason: &'static str, word: &'static str| {
        move |shared: &_| {
            let driver = condition(shared, "DriverReady").unwrap_or_default();
            driver["reason"] == reason && driver["message"].to_string().contains(word)
        }
    };
    one.until("old", "knows that the driver goes", said("DriverNotReady", "being removed")).await?;
    test.settled().await?;

    // Somebody else's SharedVolume that comes and goes is no news for this one.
    let before = one.ready("old").await?;
    let mark = test.cluster.audit().mark()?;
    other.create("late", Some(OTHER_ACCESS_POINT)).await?;
    let message = other.not_ready("late", "DriverRemoved").await?;
    assert!(message.contains("ask an administrator"), "{message}");
    let late = other.shared_volumes().get("late").await?;
    assert!(late.finalizers().is_empty(), "it holds nothing: {late:?}");
    assert_eq!(other.volumes_here().await?.len(), 1, "nothing was made for it");
    other.delete("late").await?;
    other.delete("secret-project").await?;
    for name in ["late", "secret-project"] {
        other.gone(name).await?;
    }
    test.settled().await?;
    let writes: Vec<_> = test.writes_since(mark)?.into_iter().filter(|call| call.name == "old").collect();
    assert!(writes.is_empty(), "{writes:?}");
    let after = one.ready("old").await?;
    assert_eq!(before.resource_version(), after.resource_version());
    let status = serde_json::to_string(&after.status)?;
    assert!(!status.contains("secret-project") && !status.contains(&other.name), "{status}");
    one.delete("old").await?;
    one.gone("old").await?;
    objects.reason("Removed").await?;
    operator.crash();
    Ok(())
}
