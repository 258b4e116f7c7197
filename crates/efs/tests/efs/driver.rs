//! The driver's objects: made on start, fitted to the cluster, and never at the cost of what others own.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use aquifer_api::component::ObjectState;
use aquifer_efs::driver::{Driver, Management};
use aquifer_efs::kinds::{CSI_DRIVER, DAEMON_SET, NAMESPACE, SERVICE_ACCOUNT, STORAGE_CLASS};
use aquifer_efs::names::driver::{self, DRIVER_NAME, STORAGE_CLASS as CLASS_NAME};
use aquifer_lab::{Call, eventually};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::harness::{DEADLINE, condition, installed_operator, shared, start};
use super::objects::{MADE, Objects, at_rest, content, ready, restored, state};
use super::tenant::{ACCESS_POINT, Tenant};
use aquifer_lab::kit::TestCluster;

#[tokio::test]
async fn on_start_every_object_of_the_driver_is_made_and_reported() -> Result<()> {
    let objects = Objects::on(shared().await)?;
    let component = objects.installed().await?;
    let status = component.status.clone().unwrap_or_default();
    let listed: Vec<&str> = status.objects.iter().map(|object| object.kind.as_str()).collect();
    let all = [&[NAMESPACE, SERVICE_ACCOUNT], &MADE[..]].concat();
    let expected: Vec<String> = all.iter().map(ToString::to_string).collect();
    assert_eq!(listed, expected);
    for object in &status.objects {
        let kind = all.iter().find(|kind| kind.kind == object.kind).context("an unknown kind")?.clone();
        let made = MADE.contains(&kind);
        let wanted = if made { ObjectState::Current } else { ObjectState::Provided };
        assert_eq!(object.state, wanted, "{object:?}");
        let live = objects.get(&kind).await?.with_context(|| format!("there is no {kind}"))?;
        assert_eq!(object.uid, live.metadata.uid, "{kind}");
    }
    // The part that mounts is reported apart: there is no node here that could run it.
    let nodes = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == "NodesReady")
        .context("no NodesReady")?;
    assert_eq!((nodes.status.as_str(), nodes.reason.as_str()), ("Unknown", "NoNodes"), "{nodes:?}");

    let tenant = Tenant::new().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    // There is no node that could run it.
    let is = |shared: &_| {
        condition(shared, "DriverReady").is_some_and(|driver| {
            driver["reason"] == "DriverNotReady" && driver["message"].to_string().contains("no node")
        })
    };
    tenant.until("data", "knows that no node serves", is).await?;
    tenant.delete("data").await?;
    tenant.gone("data").await
}

#[tokio::test]
async fn the_driver_follows_what_the_cluster_is_like() -> Result<()> {
    let test = TestCluster::start().await?;
    let objects = Objects::on(&test)?;
    let operator = installed_operator(&test);
    objects.installed().await?;
    // A label on one node takes the plugin from no other: the terms stay as they are.
    let before = objects.there(&DAEMON_SET).await?;
    let nodes: Api<Node> = Api::all(test.cluster.client()?);
    let node = |name: &str, labels: Value| {
        serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))
    };
    nodes.create(&PostParams::default(), &node("plain", json!({}))?).await?;
    nodes
        .create(&PostParams::default(), &node("worker", json!({"node-role.kubernetes.io/worker": ""}))?)
        .await?;
    at_rest(&test).await?;
    let after = objects.there(&DAEMON_SET).await?;
    assert_eq!(after.data["spec"], before.data["spec"]);
    let affinity = &after.data["spec"]["template"]["spec"]["affinity"]["nodeAffinity"];
    let terms = &affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
    let firsts: Vec<&Value> =
        terms.as_array().into_iter().flatten().map(|term| &term["matchExpressions"][0]["key"]).collect();
    assert_eq!(firsts, ["node-role.kubernetes.io/worker", "node-role.kubernetes.io/control-plane"]);

    // A Component that another user deletes comes back, and nothing of the driver is made anew.
    let before = objects.uids(&MADE).await?;
    let old = objects.installed().await?;
    objects.components().delete(driver::COMPONENT, &DeleteParams::default()).await?;
    objects.component("has a new Component", |component| component.uid() != old.uid()).await?;
    objects.installed().await?;
    at_rest(&test).await?;
    assert_eq!(objects.uids(&MADE).await?, before);
    assert!(operator.health.missing().is_empty(), "{:?}", operator.health.missing());
    Ok(())
}

#[tokio::test]
async fn one_object_that_cannot_be_made_degrades_and_keeps_no_other_away() -> Result<()> {
    let test = TestCluster::start().await?;
    let objects = Objects::on(&test)?;
    let roles: Api<ClusterRole> = Api::all(test.cluster.client()?);
    let full = roles.get("aquifer").await?;
    let mut less = full.clone();
    let granted = less.rules.get_or_insert_default();
    for rule in granted.iter_mut().filter(|rule| rule.verbs.iter().any(|verb| verb == "create")) {
        rule.resources.iter_mut().for_each(|resources| resources.retain(|one| one != "storageclasses"));
    }
    roles.replace("aquifer", &PostParams::default(), &less).await?;

    let operator = installed_operator(&test);
    let component = objects.reason("AccessDenied").await?;
    let said = ready(&component).context("no Ready")?;
    assert_eq!(said.status, "False");
    assert!(said.message.contains("StorageClass") && said.message.contains(CLASS_NAME), "{}", said.message);
    assert_eq!(component.status.clone().unwrap_or_default().message.as_deref(), Some(said.message.as_str()));
    for kind in MADE.iter().filter(|kind| **kind != STORAGE_CLASS) {
        objects.there(kind).await?;
    }
    objects
        .component("lists what is there", |component| {
            state(component, &DAEMON_SET) == Some(ObjectState::Current)
        })
        .await?;
    // While one thing fails, and has failed for a while, the others are still looked after.
    let denied =
        |log: &[Call]| log.iter().filter(|c| c.resource == "storageclasses" && c.code == 403).count();
    eventually(DEADLINE, "several tries", || async {
        let tries = denied(&test.writes_since(test.cluster.audit().beginning())?);
        if tries >= 4 { Ok(Some(())) } else { Err(anyhow!("{tries} tries")) }
    })
    .await?;
    let before = objects.there(&CSI_DRIVER).await?;
    let began = Instant::now();
    objects.delete(&CSI_DRIVER).await?;
    restored(&objects, &CSI_DRIVER, &before, true).await?;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());

    let mut again = roles.get("aquifer").await?;
    again.rules = full.rules;
    roles.replace("aquifer", &PostParams::default(), &again).await?;
    let began = Instant::now();
    objects.installed().await?;
    println!("healed {:.1} s after the right was given back", began.elapsed().as_secs_f64());
    drop(operator);
    Ok(())
}

#[tokio::test]
async fn what_others_own_is_left_alone_and_reported() -> Result<()> {
    let test = TestCluster::start().await?;
    let objects = Objects::on(&test)?;

    // Told to keep out, it makes nothing and says so.
    let outside = Driver { management: Management::External, ..Driver::default() };
    let operator = start(&test.account, outside);
    let component = objects.reason("External").await?;
    let said = ready(&component).context("no Ready")?;
    assert!(said.status == "Unknown" && said.message.contains("--efs-driver=external"), "{said:?}");
    assert_eq!(objects.present().await?, Vec::<String>::new());
    operator.crash();

    // A CSIDriver of another owner: the whole driver belongs to that owner. When it goes, ours comes by itself.
    let theirs = objects.create(&CSI_DRIVER, json!({"spec": {"attachRequired": false}})).await?;
    let operator = installed_operator(&test);
    let component = objects
        .component("names the foreign CSIDriver", |component| {
            ready(component)
                .is_some_and(|ready| ready.reason == "External" && ready.message.contains(DRIVER_NAME))
        })
        .await?;
    assert_eq!(state(&component, &CSI_DRIVER), Some(ObjectState::Foreign));
    assert_eq!(objects.present().await?, ["CSIDriver"]);
    assert_eq!(content(&objects.there(&CSI_DRIVER).await?), content(&theirs));
    objects.delete(&CSI_DRIVER).await?;
    objects.installed().await?;
    operator.crash();

    // A StorageClass that another user put in the place of ours.
    objects.delete(&STORAGE_CLASS).await?;
    let theirs =
        objects.create(&STORAGE_CLASS, json!({"provisioner": "theirs", "parameters": {"a": "b"}})).await?;
    let operator = installed_operator(&test);
    let component = objects.reason("Conflict").await?;
    let said = ready(&component).context("no Ready")?;
    assert!(
        said.status == "False" && said.message.contains(&format!("StorageClass {CLASS_NAME}")),
        "{said:?}"
    );
    assert_eq!(state(&component, &STORAGE_CLASS), Some(ObjectState::Foreign));
    at_rest(&test).await?;
    assert_eq!(content(&objects.there(&STORAGE_CLASS).await?), content(&theirs));
    objects.delete(&STORAGE_CLASS).await?;
    objects.installed().await?;
    drop(operator);
    Ok(())
}
