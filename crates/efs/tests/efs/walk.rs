//! The crash walk: a SharedVolume is created, changed and deleted while the operator dies before or after every single write, or does
//! not get its reply. The end is always that of an undisturbed run.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use aquifer_lab::kit::disturbed::Disturbed;
use aquifer_lab::kit::mask::{State, mask};
use aquifer_lab::kit::walk::{Run, Story, Walk};
use aquifer_lab::kit::{Proxied, TestCluster, is_full, show};
use aquifer_lab::proxy::Proxy;
use kube::ResourceExt;
use kube::api::ListParams;

use super::harness::{Operator, proxied, resync_volumes, volumes_operator};
use super::tenant::{ACCESS_POINT, OTHER_ACCESS_POINT, Tenant, is_ready};

/// One cluster and one operator for all runs: an operator works on the SharedVolumes of all namespaces, so no two run side by side.
struct Life<'a> {
    test: &'a TestCluster,
    proxied: &'a Proxied,
    operator: &'a Mutex<Option<Operator>>,
}

struct OneLife<'a> {
    life: &'a Life<'a>,
    tenant: Tenant,
}

impl<'a> Story for &'a Life<'a> {
    type Run = OneLife<'a>;

    fn steps(&self) -> usize {
        3
    }

    async fn begin(&self) -> Result<OneLife<'a>> {
        Ok(OneLife { life: self, tenant: Tenant::on(&self.test.cluster).await? })
    }
}

impl Run for OneLife<'_> {
    fn proxy(&self) -> &Proxy {
        &self.life.proxied.proxy
    }

    fn name(&self) -> &str {
        &self.tenant.name
    }

    async fn act(&self, step: usize) -> Result<()> {
        match step {
            0 => self.tenant.create("data", Some(ACCESS_POINT)).await.map(drop),
            1 => self.tenant.change("data", OTHER_ACCESS_POINT).await.map(drop),
            _ => self.tenant.delete("data").await,
        }
    }

    async fn arrived(&self, step: usize) -> Result<()> {
        let found = self.tenant.shared_volumes().get_opt("data").await?;
        let done = if step < 2 { found.as_ref().is_some_and(is_ready) } else { found.is_none() };
        ensure!(done, "{}", found.as_ref().map(show).unwrap_or_default());
        Ok(())
    }

    /// Everything that there is of a SharedVolume.
    async fn state(&self) -> Result<State> {
        let (all, tenant) = (ListParams::default(), &self.tenant);
        let mut objects = Vec::new();
        for shared in tenant.shared_volumes().list(&all).await? {
            objects.push((format!("SharedVolume {}", shared.name_any()), serde_json::to_value(shared)?));
        }
        for mut claim in tenant.claims().list(&all).await? {
            // It is noted only while Kubernetes has not bound the two, and that may be faster.
            claim.annotations_mut().remove("aquifer.storage/volume-made");
            objects.push((format!("claim {}", claim.name_any()), serde_json::to_value(claim)?));
        }
        for volume in tenant.volumes_here().await? {
            objects.push((format!("volume {}", volume.name_any()), serde_json::to_value(volume)?));
        }
        Ok(mask(objects, &[(&tenant.name, "NS")]))
    }

    async fn restart(&self) -> Result<()> {
        let dead = self.life.operator.lock().unwrap().take().context("no operator")?;
        dead.crash();
        self.proxy().revive().await?;
        *self.life.operator.lock().unwrap() = Some(volumes_operator(self.life.proxied));
        Ok(())
    }

    async fn resync(&self, step: usize) -> Result<()> {
        if step == 2 {
            return Ok(()); // There is nothing to look at any more.
        }
        let operator = self.life.operator.lock().unwrap().take().context("no operator")?;
        let looked = resync_volumes(&operator, 1).await;
        *self.life.operator.lock().unwrap() = Some(operator);
        looked
    }

    async fn end(self) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_goes_wrong_with_requests_a_volumes_life_ends_the_same() -> Result<()> {
    let test = TestCluster::start().await?;
    let proxied = proxied(&test).await?;
    let operator = Mutex::new(Some(volumes_operator(&proxied)));
    proxied.quiet(Duration::from_secs(2)).await?;
    let life = Life { test: &test, proxied: &proxied, operator: &operator };
    let resources =
        ["sharedvolumes.aws-efs.managed.openshift.io", "persistentvolumes", "persistentvolumeclaims"];
    // One after the other: an operator works on the SharedVolumes of all namespaces.
    Disturbed { side_by_side: 1, resources: &resources, most: 1 }.run(&&life).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_write_of_a_volumes_life_changes_nothing_about_its_end() -> Result<()> {
    let test = TestCluster::start().await?;
    let proxied = proxied(&test).await?;
    let operator = Mutex::new(Some(volumes_operator(&proxied)));
    proxied.quiet(Duration::from_secs(2)).await?;
    let walk = Walk {
        side_by_side: 1,
        settle: Duration::from_millis(150),
        quiet: Duration::from_millis(150),
        most_runs: 12,
        least_points: if is_full() { 36 } else { 15 },
    };
    let life = Life { test: &test, proxied: &proxied, operator: &operator };
    walk.run(&&life).await?;
    Ok(())
}
