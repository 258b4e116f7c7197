//! Taking everything away: a durable marker first, so that nothing is repaired any more; then the SharedVolumes; then the
//! operator removes the driver when nothing needs it. Every step can be repeated, so an uninstall that was cut off is simply
//! run again.

use std::fmt;
use std::time::Duration;

use aquifer_api::component::{Component, ComponentReason, ComponentSpec, Desired};
use aquifer_api::efs::SharedVolume;
use aquifer_base::Reason;
use aquifer_engine::runtime::Runtime;
use aquifer_family::{Error, Outcome, cannot, list};
use async_trait::async_trait;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use crate::names::driver;
use crate::needed::place;

const MANAGER: &str = "aquifer-uninstall";
const INTERVAL: Duration = Duration::from_millis(500);
/// How long the operator may take to notice the marker before we say that none seems to run.
const NOTICE: Duration = Duration::from_secs(15);

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The marker is written; no operator has seen it yet.
    Unnoticed {
        /// Whether it is time to worry.
        late: bool,
    },
    /// The operator works on it; what it says.
    Removing(String),
    /// All is gone.
    Done,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unnoticed { late: false } => f.write_str("waiting for the operator to see the request"),
            Self::Unnoticed { late: true } => {
                f.write_str("no operator has seen the request; check that the operator runs")
            }
            Self::Removing(said) => f.write_str(said),
            Self::Done => f.write_str("all SharedVolumes and the driver are gone"),
        }
    }
}

/// An uninstall, with the rights of whoever asks for it.
pub struct Uninstall {
    client: Client,
}

impl Uninstall {
    /// On the cluster of this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// What would be deleted.
    pub async fn shared_volumes(&self) -> Result<Vec<String>, Error> {
        let all = list::<SharedVolume>(&self.client, &ListParams::default()).await?;
        Ok(all.iter().map(place).collect())
    }

    /// Does it, and reports how far it is until it is done or the time is over.
    pub async fn run(
        &self,
        patience: Duration,
        mut report: impl FnMut(&Progress),
    ) -> Result<Progress, Error> {
        self.mark().await?;
        self.delete_volumes().await?;
        let started = Runtime::instant();
        loop {
            let progress = self.progress(started.elapsed() > NOTICE).await?;
            report(&progress);
            if progress == Progress::Done || started.elapsed() > patience {
                return Ok(progress);
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// The marker. It stays until a user takes it back.
    async fn mark(&self) -> Result<(), Error> {
        let components = Api::<Component>::all(self.client.clone());
        let spec = ComponentSpec { desired: Some(Desired::Removed) };
        let body = json!({"apiVersion": "aquifer.storage/v1alpha1", "kind": "Component",
            "metadata": {"name": driver::COMPONENT}, "spec": spec});
        let params = PatchParams::apply(MANAGER).force();
        components
            .patch(driver::COMPONENT, &params, &Patch::Apply(body))
            .await
            .map_err(cannot("mark the driver as unwanted"))?;
        Ok(())
    }

    async fn delete_volumes(&self) -> Result<(), Error> {
        let all = list::<SharedVolume>(&self.client, &ListParams::default()).await?;
        for one in all.iter().filter(|one| one.metadata.deletion_timestamp.is_none()) {
            let api =
                Api::<SharedVolume>::namespaced(self.client.clone(), &one.namespace().unwrap_or_default());
            let deleted = api.delete(&one.name_any(), &DeleteParams::default()).await;
            match deleted {
                Ok(_) => {}
                Err(error) if is_not_found(&error) => {}
                Err(error) => return Err(cannot("delete a SharedVolume")(error)),
            }
        }
        Ok(())
    }

    async fn progress(&self, late: bool) -> Result<Progress, Error> {
        let components = Api::<Component>::all(self.client.clone());
        let component =
            components.get(driver::COMPONENT).await.map_err(cannot("read the driver's status"))?;
        let status = component.status.clone().unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        Ok(match ready {
            Some(ready) if status.observed_generation == component.metadata.generation => {
                match ComponentReason::parse(&ready.reason) {
                    Some(ComponentReason::Removed) => Progress::Done,
                    _ => Progress::Removing(ready.message.clone()),
                }
            }
            _ => Progress::Unnoticed { late },
        })
    }
}

#[async_trait]
impl aquifer_family::Uninstall for Uninstall {
    async fn announcement(&self) -> Result<Vec<String>, Error> {
        let volumes = self.shared_volumes().await?;
        let count = volumes.len();
        let mut lines = vec![format!(
            "This deletes {count} SharedVolume(s), their claims and volumes, and then the EFS driver:"
        )];
        lines.extend(volumes.into_iter().map(|name| format!("  SharedVolume {name}")));
        lines.push("The data at AWS stays.".to_owned());
        Ok(lines)
    }

    async fn run(
        &self,
        patience: Duration,
        report: &mut (dyn FnMut(String) + Send),
    ) -> Result<Outcome, Error> {
        Ok(match self.run(patience, |progress| report(progress.to_string())).await? {
            Progress::Done => Outcome::Done(format!(
                "To install the driver again, while the operator runs: kubectl delete component {}",
                driver::COMPONENT
            )),
            left => Outcome::Unfinished(left.to_string()),
        })
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}
