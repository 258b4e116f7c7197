//! A stand-in for Rook: small controllers that show what a user of Rook 1.14 sees, for scale and for faults on
//! request. Stores no data; whatever it says about Ceph comes from the test.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use std::time::Duration;
//! use aquifer_lab::Lab;
//!
//! let cluster = Lab::test_cluster().start().await?;
//! let rook = Lab::rook_stand_in(&cluster).await?;
//! rook.slow(Duration::from_secs(5));
//! rook.fail("pool-x", "the OSDs are full");
//! # Ok(()) }
//! ```

mod ceph;
mod cluster;
mod csi;
mod kind;
mod reconcile;
mod shape;
mod state;
mod subject;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use kube::runtime::Controller;
use kube::runtime::controller::{Action, Config};
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinSet;

pub use ceph::Health;
pub use kind::Kind;

use super::{CLUSTER, FILE_SYSTEM, NAMESPACE};
use crate::{eventually, install};
use reconcile::{Next, RETRY};
use state::State;
use subject::Subject;

/// How many objects of a kind are worked on at a time.
const WORKERS: u16 = 16;
/// A watch begins anew after so many seconds: one that the API server has dropped brings no news for no longer than this.
const WATCH: u32 = 15;

/// So often it looks at everything, whatever its watches have shown.
const RESYNC: Duration = Duration::from_secs(10);

/// A running stand-in. Dropping it ends it, as if Rook's pod were gone: what it made stays.
pub struct StandIn {
    client: Client,
    state: Arc<State>,
    controllers: JoinSet<()>,
}

impl std::fmt::Debug for StandIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StandIn").field("state", &self.state).finish_non_exhaustive()
    }
}

impl StandIn {
    /// Installs Rook's CRDs, makes a CephCluster and a CephFilesystem, and waits until both are Ready.
    pub async fn start(client: Client) -> Result<Self> {
        super::install_crds(&client).await?;
        let mut rook = Self { client, state: Arc::new(State::new()), controllers: JoinSet::new() };
        rook.start_again();
        install::apply(
            &rook.client,
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
        )
        .await?;
        for (kind, name, spec) in [
            (Kind::CephCluster, CLUSTER, cluster_spec()),
            (Kind::CephFilesystem, FILE_SYSTEM, filesystem_spec()),
        ] {
            install::apply(
                &rook.client,
                json!({
                    "apiVersion": "ceph.rook.io/v1", "kind": kind.name(),
                    "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
                }),
            )
            .await?;
        }
        for (kind, name) in [(Kind::CephCluster, CLUSTER), (Kind::CephFilesystem, FILE_SYSTEM)] {
            let api = kind.api(&rook.client, NAMESPACE);
            eventually(Duration::from_secs(30), &format!("{} {name} is Ready", kind.name()), || async {
                let phase = api.get(name).await?.data["status"]["phase"].clone();
                ensure!(phase == "Ready", "its phase is {phase}");
                Ok(Some(()))
            })
            .await?;
        }
        Ok(rook)
    }

    /// Ends the stand-in: from now on there are no answers, and no finalizer comes or goes. Ceph itself goes on.
    pub async fn stop(&mut self) {
        self.controllers.shutdown().await;
    }

    /// Starts it after [`StandIn::stop`]. Like a new pod of Rook, it looks at every object.
    pub fn start_again(&mut self) {
        self.state.lock().drop_all_jobs();
        for kind in Kind::ALL {
            self.controllers.spawn(control(kind, self.client.clone(), self.state.clone()));
        }
    }

    /// What the CephCluster says about Ceph, with the reasons: code and message. With [`Health::Err`] nothing is made,
    /// changed or deleted.
    pub fn set_health(&self, health: Health, checks: &[(&str, &str)]) {
        let checks =
            checks.iter().map(|(code, message)| ((*code).to_owned(), (*message).to_owned())).collect();
        self.state.change(|inner| (inner.ceph.health, inner.ceph.checks) = (health, checks));
    }

    /// How large the CephCluster says Ceph is, in bytes.
    pub fn set_capacity(&self, total: u64, used: u64) {
        self.state.change(|inner| (inner.ceph.bytes_total, inner.ceph.bytes_used) = (total, used));
    }

    /// Lets everything that Rook does to one object take so long, except to a CephCluster. Objects do not wait for
    /// each other.
    pub fn slow(&self, delay: Duration) {
        self.state.change(|inner| inner.faults.delay = delay);
    }

    /// Lets Ceph refuse whatever Rook does to objects of this name: the phase becomes Failure, and an event has
    /// the reason. What is Ready stays so until its spec changes; what is deleted stays.
    pub fn fail(&self, name: &str, why: &str) {
        self.state.change(|inner| {
            inner.faults.failing.insert(name.to_owned(), why.to_owned());
        });
    }

    /// Ends [`StandIn::fail`].
    pub fn mend(&self, name: &str) {
        self.state.change(|inner| {
            inner.faults.failing.remove(name);
        });
    }

    /// Ceph answers no command any more: new objects get their finalizer and the phase Progressing, and that is all.
    pub fn hang(&self) {
        self.state.change(|inner| inner.faults.hanging = true);
    }

    /// Ends [`StandIn::hang`].
    pub fn resume(&self) {
        self.state.change(|inner| inner.faults.hanging = false);
    }

    /// Puts images into a pool; a pool with images is not deleted.
    pub fn set_images(&self, pool: &str, count: u64) {
        self.state.change(|inner| {
            inner.ceph.images.insert(pool.to_owned(), count);
        });
    }

    /// Puts sub-volumes into a group; a group with sub-volumes is not deleted.
    pub fn set_subvolumes(&self, group: &str, count: u64) {
        self.state.change(|inner| {
            inner.ceph.subvolumes.insert(group.to_owned(), count);
        });
    }

    /// Writes one status field of a kind wrong from now on, as `/info/type`. Only for tests that show that a
    /// comparison with the real Rook can fail.
    pub fn distort(&self, kind: Kind, field: &str, value: Value) {
        self.state.change(|inner| inner.faults.distortions.push((kind, field.to_owned(), value)));
    }
}

/// Watches all objects of a kind, for ever.
async fn control(kind: Kind, client: Client, state: Arc<State>) {
    let objects: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource());
    let changes = stream::unfold(state.changes(), |mut changes| async {
        match tokio::time::timeout(RESYNC, changes.changed()).await {
            Ok(Err(_)) => None,
            Ok(Ok(())) | Err(_) => Some(((), changes)),
        }
    });
    // In one page: when the list is read again, kube's Controller forgets objects of all pages but the last, because it looks for
    // them in a store that gets them only with the end of the list.
    let watching = watcher::Config { page_size: None, ..watcher::Config::default().timeout(WATCH) };
    let mut controller = Controller::new_with(objects, watching.clone(), kind.resource())
        .with_config(Config::default().concurrency(WORKERS))
        .reconcile_all_on(changes);
    if kind == Kind::CephClient {
        controller = controller.owns(Api::<Secret>::all(client.clone()), watching);
    }
    let context = Arc::new((kind, client, state));
    controller
        .run(look, |_, _, _| Action::requeue(RETRY), context)
        .for_each(|looked| async {
            if let Err(error) = looked {
                tracing::debug!(kind = kind.name(), %error, "a look of the Rook stand-in failed");
            }
        })
        .await;
}

/// An error in the form that the runtime asks for.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
struct Failed(anyhow::Error);

async fn look(
    object: Arc<DynamicObject>,
    context: Arc<(Kind, Client, Arc<State>)>,
) -> Result<Action, Failed> {
    let (kind, client, state) = &*context;
    let subject = Subject { client, state, kind: *kind, object: (*object).clone() };
    match reconcile::reconcile(subject).await {
        Ok(Next::Change) => Ok(Action::await_change()),
        Ok(Next::After(pause)) => Ok(Action::requeue(pause)),
        Err(error) => match error.downcast_ref::<kube::Error>() {
            // It was deleted, or another client wrote at the same time: the next look sees it.
            Some(kube::Error::Api(status)) if status.is_not_found() => Ok(Action::await_change()),
            Some(kube::Error::Api(status)) if status.is_conflict() => Ok(Action::requeue(RETRY / 10)),
            _ => Err(Failed(error)),
        },
    }
}

fn cluster_spec() -> Value {
    json!({
        "cephVersion": { "image": "localhost/aquifer-lab/ceph:stand-in" }, "dataDirHostPath": "/var/lib/rook",
        "mon": { "count": 3 }, "mgr": { "count": 1 }, "storage": {},
    })
}

fn filesystem_spec() -> Value {
    json!({
        "metadataPool": { "replicated": { "size": 3 } },
        "dataPools": [{ "name": "data0", "replicated": { "size": 3 } }],
        "metadataServer": { "activeCount": 1, "activeStandby": true },
    })
}
