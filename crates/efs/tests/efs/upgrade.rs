//! A cluster where an earlier version of this operator worked: what it left in etcd is taken over without touching the data.
//!
//! The fixtures are made by `cargo xtask fixture CHECKOUT`; see crates/efs/tests/fixtures/README.md.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use aquifer_api::efs::SharedVolume;
use aquifer_lab::kit::TestCluster;
use aquifer_lab::{Lab, etcd, eventually, install};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::harness::{condition, installed_operator, passes, resync_volumes};
use super::objects::{Objects, driver_passes};
use super::tenant::{is_bound, is_ready};

/// With its pairs; one more is not Ready, because a claim of another owner has the name of its claim.
const READY: usize = 300;
const DEADLINE: Duration = Duration::from_mins(1);

/// uid and version of every object of a kind, by place and name.
async fn versions<K>(client: &Client) -> Result<BTreeMap<String, (String, String)>>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let all = Api::<K>::all(client.clone()).list(&ListParams::default()).await?;
    let line = |object: &K| {
        let place = format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any());
        (place, (object.uid().unwrap_or_default(), object.resource_version().unwrap_or_default()))
    };
    Ok(all.iter().map(line).collect())
}

/// Restores a fixture into a new cluster and upgrades what an installation brings: kinds, roles, the operator's account.
async fn upgraded(fixture: &str) -> Result<TestCluster> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(fixture);
    let entries = etcd::load(&file).await?;
    let cluster = Lab::test_cluster().start().await?;
    let began = Instant::now();
    cluster.restore_etcd(&entries).await?;
    let client = cluster.client()?;
    let all: Api<SharedVolume> = Api::all(client.clone());
    eventually(DEADLINE, "the API server serves what was restored", || async {
        let found = all.list(&ListParams::default()).await?.items.len();
        ensure!(found == READY + 1, "{found} SharedVolumes");
        Ok(Some(()))
    })
    .await?;
    println!("{} key-values restored in {:.1} s", entries.len(), began.elapsed().as_secs_f64());
    install::crds(&client).await?;
    install::user_roles(&client).await?;
    let account = install::identity(&cluster).await?;
    Ok(TestCluster { cluster, account })
}

#[tokio::test]
async fn what_f7d08d7_left_is_taken_over_without_a_write_to_volumes_and_claims() -> Result<()> {
    let test = upgraded("f7d08d7.etcd.gz").await?;
    let client = test.cluster.client()?;
    let volumes = versions::<PersistentVolume>(&client).await?;
    let claims = versions::<PersistentVolumeClaim>(&client).await?;
    ensure!(volumes.len() >= READY && claims.len() > READY, "{} and {}", volumes.len(), claims.len());

    let mark = test.cluster.audit().mark()?;
    let began = Instant::now();
    let operator = installed_operator(&test);
    eventually(DEADLINE, "every key has had its pass", || async {
        let (shared, driver) = (passes(&operator), driver_passes(&operator));
        ensure!(shared > READY as u64 && driver > 0, "{shared} of SharedVolumes, {driver} of the driver");
        Ok(Some(()))
    })
    .await?;
    test.settled().await?;
    resync_volumes(&operator, READY as u64 + 1).await?;
    test.settled().await?;

    let writes = test.writes_since(mark)?;
    let calls = test.cluster.audit().since(mark)?;
    // Of anybody: Kubernetes itself has no reason to write either when everything fits together.
    let pairs = ["persistentvolumes", "persistentvolumeclaims"];
    let to_pairs: Vec<_> =
        calls.iter().filter(|call| call.is_write() && pairs.contains(&call.resource.as_str())).collect();
    let deletes: Vec<_> = writes.iter().filter(|call| call.verb.starts_with("delete")).collect();
    let mut by_kind: BTreeMap<String, usize> = BTreeMap::new();
    for call in &writes {
        *by_kind.entry(format!("{} {} {}", call.verb, call.resource, call.subresource)).or_default() += 1;
    }
    println!(
        "{} SharedVolumes, {} volumes, {} claims taken over in {:.1} s: {} writes to volumes and claims, {} deletes, {} writes in all {by_kind:?}",
        READY + 1,
        volumes.len(),
        claims.len(),
        began.elapsed().as_secs_f64(),
        to_pairs.len(),
        deletes.len(),
        writes.len(),
    );
    assert!(to_pairs.is_empty(), "{to_pairs:#?}");
    assert!(deletes.is_empty(), "{deletes:#?}");
    assert_eq!(versions::<PersistentVolume>(&client).await?, volumes);
    assert_eq!(versions::<PersistentVolumeClaim>(&client).await?, claims);

    let mut waiting = Vec::new();
    for shared in Api::<SharedVolume>::all(client.clone()).list(&ListParams::default()).await? {
        if is_ready(&shared) {
            let status = shared.status.clone().unwrap_or_default();
            let claim = status.claim_ref.context("no claimRef")?.name;
            let namespace = shared.namespace().unwrap_or_default();
            let known = claims.get(&format!("{namespace}/{claim}"));
            assert_eq!(known.map(|(uid, _)| uid), status.claim_uid.as_ref(), "{namespace}/{claim}");
        } else {
            let reason = condition(&shared, "Ready").map(|ready| ready["reason"].clone());
            waiting.push((shared.name_any(), reason));
        }
    }
    assert_eq!(waiting, [("taken".to_owned(), Some("Conflict".into()))]);
    let bound = Api::<PersistentVolumeClaim>::all(client.clone()).list(&ListParams::default()).await?;
    assert_eq!(bound.iter().filter(|claim| is_bound(claim)).count(), READY);
    Objects::on(&test)?.installed().await?;
    operator.crash();
    Ok(())
}
