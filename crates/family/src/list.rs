//! Lists of objects for commands that look at a cluster once.

use std::time::Duration;

use aquifer_engine::runtime::Runtime;
use kube::api::ListParams;
use kube::{Api, Client};

use crate::{Error, cannot};

const INTERVAL: Duration = Duration::from_millis(200);
/// How long a busy API server may refuse to answer.
const PATIENCE: Duration = Duration::from_secs(15);

/// The objects of a kind in all namespaces; none when the cluster does not serve the kind.
pub async fn list<K>(client: &Client, which: &ListParams) -> Result<Vec<K>, Error>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let (api, deadline) = (Api::<K>::all(client.clone()), Runtime::instant() + PATIENCE);
    loop {
        match api.list(which).await {
            Ok(list) => return Ok(list.items),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Vec::new()),
            // A kind that was just installed cannot be listed for a moment.
            Err(kube::Error::Api(status)) if status.code == 429 && Runtime::instant() < deadline => {
                tokio::time::sleep(INTERVAL).await;
            }
            Err(error) => return Err(cannot(format!("list {}", K::plural(&())))(error)),
        }
    }
}
