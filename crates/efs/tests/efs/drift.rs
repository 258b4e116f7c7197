//! Drift: whatever is changed about the driver's objects, or taken away, is put back; what others may write stays.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use aquifer_efs::driver::Driver;
use aquifer_efs::kinds::{CSI_DRIVER, DAEMON_SET, STORAGE_CLASS};
use aquifer_efs::names::driver;
use aquifer_engine::Kind;
use aquifer_engine::OWNER;
use aquifer_lab::{Mark, eventually};
use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use super::harness::{DEADLINE, installed_operator};
use super::objects::{Objects, at_rest, content, driver_passes, restored};
use aquifer_lab::kit::TestCluster;

#[tokio::test]
async fn whatever_is_changed_or_deleted_is_put_back_and_then_nothing_more_is_written() -> Result<()> {
    let test = TestCluster::start().await?;
    let objects = Objects::on(&test)?;
    let operator = installed_operator(&test);
    objects.installed().await?;

    let mut slowest = (Duration::ZERO, String::new());
    for (what, kind, damage) in damages() {
        let before = objects.there(&kind).await?;
        let began = Instant::now();
        let renewed = matches!(damage, Damage::Delete | Damage::Swap(_));
        apply_damage(&objects, &kind, &before, damage).await.with_context(|| format!("{kind}: {what}"))?;
        let after =
            restored(&objects, &kind, &before, renewed).await.with_context(|| format!("{kind}: {what}"))?;
        if !renewed {
            assert_eq!(after.uid(), before.uid(), "{kind}: {what}: repaired in place");
        }
        if began.elapsed() > slowest.0 {
            slowest = (began.elapsed(), format!("{kind}: {what}"));
        }
    }
    println!(
        "{} damages repaired, the slowest in {:.1} s ({})",
        damages().len(),
        slowest.0.as_secs_f64(),
        slowest.1
    );
    objects.installed().await?;

    tolerated_writers_keep_what_they_wrote(&objects).await?;
    others_may_share_a_field_and_hold_an_object(&objects).await?;

    // At rest: neither a look at everything nor a restart writes anything.
    at_rest(&test).await?;
    let mark = test.cluster.audit().mark()?;
    let passes = driver_passes(&operator);
    operator.resync();
    eventually(DEADLINE, "the resync", || async { Ok((driver_passes(&operator) > passes).then_some(())) })
        .await?;
    no_writes(&test, mark).await?;
    operator.crash();
    let mark = test.cluster.audit().mark()?;
    let operator = installed_operator(&test);
    eventually(DEADLINE, "the pass of the new operator", || async {
        Ok((driver_passes(&operator) > 0).then_some(()))
    })
    .await?;
    no_writes(&test, mark).await
}

/// What another user does to an object.
enum Damage {
    Merge(Value),
    Json(Value),
    Delete,
    /// Another object of the same name, with our mark, that differs where nothing can be changed in place.
    Swap(Value),
}

fn damages() -> Vec<(&'static str, Kind, Damage)> {
    let container = "/spec/template/spec/containers/0";
    let patch = |op: &str, path: String, value: Value| {
        Damage::Json(json!([{"op": op, "path": path, "value": value}]))
    };
    let labels_gone = json!({"metadata": {"labels": null}});
    vec![
        (
            "the image is changed",
            DAEMON_SET,
            patch("replace", format!("{container}/image"), json!("other:1")),
        ),
        (
            "a variable is added",
            DAEMON_SET,
            patch("add", format!("{container}/env/-"), json!({"name": "X", "value": "1"})),
        ),
        (
            "a toleration is added",
            DAEMON_SET,
            patch(
                "add",
                "/spec/template/spec/tolerations/-".into(),
                json!({"key": "x", "operator": "Exists"}),
            ),
        ),
        (
            "a node selector is added",
            DAEMON_SET,
            Damage::Merge(json!({"spec": {"template": {"spec": {"nodeSelector": {"x": "y"}}}}})),
        ),
        (
            "a container is added",
            DAEMON_SET,
            patch("add", "/spec/template/spec/containers/-".into(), json!({"name": "x", "image": "x"})),
        ),
        ("a label is added", DAEMON_SET, Damage::Merge(json!({"metadata": {"labels": {"theirs": "x"}}}))),
        ("our labels are removed", DAEMON_SET, Damage::Merge(labels_gone)),
        ("it is deleted", DAEMON_SET, Damage::Delete),
        (
            "an annotation is added",
            STORAGE_CLASS,
            Damage::Merge(
                json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
            ),
        ),
        (
            "all our marks are removed",
            STORAGE_CLASS,
            Damage::Merge(json!({"metadata": {"labels": null, "annotations": null}})),
        ),
        ("it is deleted", STORAGE_CLASS, Damage::Delete),
        (
            "it is swapped",
            STORAGE_CLASS,
            Damage::Swap(json!({"provisioner": "other", "parameters": {"a": "b"}})),
        ),
        ("it is deleted", CSI_DRIVER, Damage::Delete),
        ("its flag is changed", CSI_DRIVER, Damage::Merge(json!({"spec": {"podInfoOnMount": true}}))),
        (
            "its marks are removed",
            CSI_DRIVER,
            Damage::Merge(json!({"metadata": {"labels": null, "annotations": null}})),
        ),
    ]
}

async fn apply_damage(objects: &Objects, kind: &Kind, before: &DynamicObject, damage: Damage) -> Result<()> {
    match damage {
        Damage::Merge(patch) => drop(objects.patch(kind, &patch).await?),
        Damage::Json(patch) => drop(objects.json_patch(kind, patch).await?),
        Damage::Delete => objects.delete(kind).await?,
        Damage::Swap(other) => {
            // The operator may be faster than the swap; then it is tried again.
            eventually(DEADLINE, "the swap", || async {
                let mut body = content(before);
                for (field, value) in other.as_object().into_iter().flatten() {
                    body[field] = value.clone();
                }
                body["metadata"]["annotations"] = json!({OWNER: driver::COMPONENT});
                objects.delete(kind).await?;
                objects.create(kind, body).await.map(Some)
            })
            .await?;
        }
    }
    Ok(())
}

async fn tolerated_writers_keep_what_they_wrote(objects: &Objects) -> Result<()> {
    let restarted = json!({"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"});
    objects
        .patch(&DAEMON_SET, &json!({"spec": {"template": {"metadata": {"annotations": restarted}}}}))
        .await?;
    // Something else that is wrong makes it be replaced.
    for kind in [DAEMON_SET] {
        objects.patch(&kind, &json!({"metadata": {"labels": {"theirs": "x"}}})).await?;
        objects
            .until(&kind, "has lost the foreign label", |object| {
                object.pointer("/metadata/labels/theirs").is_none()
            })
            .await?;
    }
    let at = |object: &DynamicObject, pointer: &str| {
        serde_json::to_value(object).unwrap().pointer(pointer).cloned()
    };
    let plugin = objects.there(&DAEMON_SET).await?;
    assert_eq!(at(&plugin, "/spec/template/metadata/annotations"), Some(restarted));
    Ok(())
}

/// A manager that says the same as we do adds nothing; a finalizer is a promise of another owner that we must not break.
async fn others_may_share_a_field_and_hold_an_object(objects: &Objects) -> Result<()> {
    let image = Driver::default().config.images.plugin;
    let same = [(
        DAEMON_SET,
        json!({"spec": {"template": {"spec": {"containers": [{"name": "efs-plugin", "image": image}]}}}}),
    )];
    for (kind, mut body) in same {
        body["apiVersion"] = json!(kind.api_version());
        body["kind"] = json!(kind.kind);
        body["metadata"]["name"] = json!(Objects::name(&kind));
        let params = PatchParams::apply("another-stranger").force();
        objects.api(&kind).patch(Objects::name(&kind), &params, &Patch::Apply(body)).await?;
    }
    objects.patch(&CSI_DRIVER, &json!({"metadata": {"finalizers": ["example.com/theirs"]}})).await?;
    Ok(())
}

/// Nothing was written since the mark, and nothing is for two more seconds.
async fn no_writes(test: &TestCluster, mark: Mark) -> Result<()> {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let writes = test.writes_since(mark)?;
    assert!(writes.is_empty(), "{writes:?}");
    Ok(())
}
