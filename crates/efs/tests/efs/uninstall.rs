//! Taking everything away: nothing is repaired any more, users' volumes go first, the driver last, and an interruption
//! anywhere only means to go on later.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use aquifer_efs::driver::{Driver, SHARED_VOLUME_CRD};
use aquifer_efs::kinds::{CSI_DRIVER, DAEMON_SET, STORAGE_CLASS};
use aquifer_efs::names::driver::{self, DRIVER_NAME};
use aquifer_efs::uninstall::{Progress, Uninstall};
use aquifer_efs::volumes::Volumes;
use aquifer_lab::install::USER;
use aquifer_lab::proxy::{Fault, Proxy};
use aquifer_lab::{Call, Lab, eventually};
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};

use super::harness::{DEADLINE, Operator, absent, client_of, installed_operator, proxied};
use super::objects::{MADE, Objects, driver_passes, ready};
use super::tenant::{ACCESS_POINT, OTHER_ACCESS_POINT, Tenant};
use aquifer_lab::kit::TestCluster;

const PATIENCE: Duration = Duration::from_mins(1);

#[tokio::test]
async fn an_uninstall_waits_for_users_names_what_holds_it_and_leaves_nothing() -> Result<()> {
    let test = TestCluster::start().await?;
    let objects = Objects::on(&test)?;
    let operator = installed_operator(&test);
    let tenant = Tenant::on(&test.cluster).await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    tenant.create("more", Some(OTHER_ACCESS_POINT)).await?;
    tenant.pair("data").await?;
    tenant.pair("more").await?;
    tenant.pod("reader", "pvc-data").await?;
    let volumes: Api<PersistentVolume> = Api::all(objects.client.clone());
    volumes.create(&PostParams::default(), &by_hand()?).await?;
    objects.installed().await?;

    let uninstall = Uninstall::new(test.cluster.client()?);
    let found = uninstall.shared_volumes().await?;
    assert_eq!(found, [format!("{}/data", tenant.name), format!("{}/more", tenant.name)]);
    let reported = Arc::new(Mutex::new(Vec::new()));
    let report = Arc::clone(&reported);
    let running = tokio::spawn(async move {
        uninstall.run(PATIENCE, |progress| report.lock().unwrap().push(progress.to_string())).await
    });

    // Everything that holds is named: the pod on its SharedVolume, the SharedVolume and the foreign volume on the driver.
    let message = tenant.not_ready("data", "InUse").await?;
    assert!(message.contains("reader"), "{message}");
    tenant.gone("more").await?;
    let holders = ["SharedVolume", "/data", "PersistentVolume by-hand"];
    removing(&objects, &holders).await?;
    assert_eq!(objects.present().await?.len(), MADE.len(), "the driver goes last");

    // The marker stops repair: what a user takes away now stays away.
    objects.delete(&STORAGE_CLASS).await?;
    operator.resync();
    looked_again(&operator).await?;
    assert!(objects.get(&STORAGE_CLASS).await?.is_none(), "repaired in spite of the marker");

    // It goes on by itself as the holders go.
    tenant.end_pod("reader").await?;
    tenant.gone("data").await?;
    let alone = "it is still needed by PersistentVolume by-hand";
    let message = removing(&objects, &[alone]).await?;
    assert!(message.ends_with(alone), "{message}");
    assert!(objects.get(&DAEMON_SET).await?.is_some(), "still needed by a volume");
    let mark = test.cluster.audit().mark()?;
    volumes.delete("by-hand", &DeleteParams::default()).await?;
    assert_eq!(running.await??, Progress::Done);
    let reported = reported.lock().unwrap().clone();
    assert!(reported.iter().any(|line| line.contains("PersistentVolume by-hand")), "{reported:?}");

    nothing_is_left(&objects).await?;
    let deleted: Vec<String> = deletions(&test.writes_since(mark)?);
    let at = |resource: &str| {
        deleted.iter().position(|one| one == resource).with_context(|| format!("{resource} in {deleted:?}"))
    };
    assert!(at("csidrivers")? < at("daemonsets")?, "{deleted:?}");
    assert_eq!(deleted.last().map(String::as_str), Some("daemonsets"), "{deleted:?}");

    // Nothing comes back, not by a look at everything and not by a restart; running it again changes nothing.
    let mark = test.cluster.audit().mark()?;
    operator.resync();
    looked_again(&operator).await?;
    operator.crash();
    let operator = installed_operator(&test);
    looked_again(&operator).await?;
    assert_eq!(test.writes_since(mark)?, Vec::<Call>::new());
    let again = Uninstall::new(test.cluster.client()?).run(PATIENCE, |_| ()).await?;
    assert_eq!(again, Progress::Done);
    nothing_is_left(&objects).await?;

    // Whoever wants the driver again takes the marker away.
    objects.components().delete(driver::COMPONENT, &DeleteParams::default()).await?;
    objects.installed().await?;
    Ok(())
}

#[tokio::test]
async fn an_uninstall_that_is_cut_off_anywhere_is_simply_run_again() -> Result<()> {
    let test = TestCluster::start().await?;
    let objects = Objects::on(&test)?;
    let (client_proxy, proxied) = (Lab::proxy(&test.cluster).await?, proxied(&test).await?);
    let operator_proxy = &proxied.proxy;
    let client_file = test.cluster.dir().join("kubeconfig-uninstall");
    client_proxy.kubeconfig(test.cluster.admin_token(), &client_file)?;
    let start = || {
        proxied.operator(|controllers| {
            controllers.run(Volumes::default());
            controllers.run(Driver::default());
        })
    };
    let tenant = Tenant::on(&test.cluster).await?;
    let mut operator = start();
    // Where the one who asks is cut off (its writes are the marker and one deletion for each SharedVolume), and where the
    // operator dies.
    let cuts = [Fault::CrashBefore(1), Fault::CrashAfter(1), Fault::CrashBefore(2), Fault::CrashAfter(2)];
    let crashes = [Fault::CrashAfter(2), Fault::CrashBefore(4), Fault::CrashAfter(6), Fault::CrashBefore(8)];
    for (round, (cut, crash)) in cuts.into_iter().zip(crashes).enumerate() {
        objects.installed().await?;
        tenant.create("data", Some(ACCESS_POINT)).await?;
        tenant.pair("data").await?;
        rested(operator_proxy).await?;

        operator_proxy.reset();
        operator_proxy.inject(crash);
        client_proxy.reset();
        client_proxy.inject(cut);
        let cut_off = Uninstall::new(client_of(&client_file).await?).run(PATIENCE, |_| ()).await;
        assert!(cut_off.is_err(), "round {round}: {cut_off:?}");
        client_proxy.revive().await?;
        client_proxy.clear();
        let run = Uninstall::new(client_of(&client_file).await?);
        let running = tokio::spawn(async move { run.run(PATIENCE, |_| ()).await });
        operator_proxy.wait_crash(DEADLINE).await.with_context(|| format!("round {round}"))?;
        operator.crash();
        operator_proxy.revive().await?;
        operator_proxy.clear();
        operator = start();
        assert_eq!(running.await??, Progress::Done, "round {round}");
        assert_eq!(objects.present().await?, Vec::<String>::new(), "round {round}");
        no_volume_is_left(&objects).await?;
        objects.components().delete(driver::COMPONENT, &DeleteParams::default()).await?;
    }
    Ok(())
}

#[tokio::test]
async fn deleting_the_definition_of_shared_volumes_uninstalls() -> Result<()> {
    let test = TestCluster::start().await?;
    let objects = Objects::on(&test)?;
    let operator = installed_operator(&test);
    let tenant = Tenant::on(&test.cluster).await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    tenant.pair("data").await?;
    tenant.pod("reader", "pvc-data").await?;
    objects.installed().await?;

    let definitions: Api<CustomResourceDefinition> = Api::all(objects.client.clone());
    definitions.delete(SHARED_VOLUME_CRD, &DeleteParams::default()).await?;
    removing(&objects, &["SharedVolume", "/data"]).await?;
    // A static that goes while the definition is going is not resurrected.
    objects.delete(&CSI_DRIVER).await?;
    looked_again(&operator).await?;
    assert!(objects.get(&CSI_DRIVER).await?.is_none(), "resurrected");
    tenant.end_pod("reader").await?;
    let gone =
        || async { Ok(definitions.get_opt(SHARED_VOLUME_CRD).await?.map(|crd| format!("{:?}", crd.status))) };
    absent("the definition", gone).await?;
    objects.reason("Removed").await?;
    nothing_is_left(&objects).await?;
    let component = objects.components().get(driver::COMPONENT).await?;
    assert_eq!(component.spec.desired, None, "nobody wrote a marker");

    // A person who asks for an uninstall on top is answered that it is done, and with the definition the driver is back.
    let uninstall = Uninstall::new(test.cluster.client()?);
    assert_eq!(uninstall.shared_volumes().await?, Vec::<String>::new());
    aquifer_lab::install::crds(&objects.client).await?;
    objects.installed().await?;
    tenant.create("data", Some(ACCESS_POINT)).await?;
    tenant.pair("data").await?;
    Ok(())
}

fn by_hand() -> Result<PersistentVolume> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": "by-hand"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": DRIVER_NAME, "volumeHandle": "fs-0123456789abcdef1"}},
    }))?)
}

async fn rested(proxy: &Proxy) -> Result<()> {
    ensure!(
        proxy.wait_idle(Duration::from_secs(2), DEADLINE).await,
        "the operator never rests: {:?}",
        proxy.writes()
    );
    Ok(())
}

/// Waits until the driver says that it waits for all of these; gives the whole message.
async fn removing(objects: &Objects, holders: &[&str]) -> Result<String> {
    let component = objects
        .component(&format!("waits for {holders:?}"), |component| {
            ready(component).is_some_and(|ready| {
                ready.reason == "Removing" && holders.iter().all(|holder| ready.message.contains(holder))
            })
        })
        .await?;
    Ok(ready(&component).map(|ready| ready.message.clone()).unwrap_or_default())
}

/// Waits until the driver's controller has looked at the world twice from now on.
async fn looked_again(operator: &Operator) -> Result<()> {
    let before = driver_passes(operator);
    eventually(DEADLINE, "two more looks", || async {
        let looks = driver_passes(operator) - before;
        if looks >= 2 {
            return Ok(Some(()));
        }
        operator.resync();
        Err(anyhow!("{looks} looks"))
    })
    .await
}

async fn nothing_is_left(objects: &Objects) -> Result<()> {
    let component = objects.reason("Removed").await?;
    let listed =
        component.status.map(|status| serde_json::to_value(status.objects)).transpose()?.unwrap_or_default();
    // What the installation made stays until the operator is uninstalled.
    let gone = |object: &&Value| object["state"] == "Missing" || object["state"] == "Provided";
    let still: Vec<&Value> = listed.as_array().into_iter().flatten().filter(|one| !gone(one)).collect();
    assert!(still.is_empty(), "{still:?}");
    assert_eq!(objects.present().await?, Vec::<String>::new());
    no_volume_is_left(objects).await
}

async fn no_volume_is_left(objects: &Objects) -> Result<()> {
    let volumes = Api::<PersistentVolume>::all(objects.client.clone()).list(&ListParams::default()).await?;
    let names: Vec<_> = volumes.iter().filter_map(|volume| volume.metadata.name.clone()).collect();
    assert!(names.is_empty(), "{names:?}");
    Ok(())
}

/// The kinds that the operator deleted, in order.
fn deletions(writes: &[Call]) -> Vec<String> {
    let deleted = writes.iter().filter(|call| call.user == USER && call.verb == "delete" && call.succeeded());
    deleted.map(|call| call.resource.clone()).collect()
}
