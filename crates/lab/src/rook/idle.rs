//! Whether Rook is at work on its Ceph cluster, seen from outside. Changes nothing.
//!
//! The phase alone does not show it: Rook's health check calls the cluster Ready in the midst of a pass. The condition Progressing alone does not
//! either: when the health check's write meets the last write of a pass, the condition stays for ever. But each pass writes the condition anew
//! and ends with an event, so the later of the two counts.

use anyhow::{Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::ListParams;
use kube::{Api, Client};
use serde_json::Value;

use super::Kind;
use super::objects::{CLUSTER, NAMESPACE};

const DONE: &str = "ReconcileSucceeded";

/// When the last pass ended; an error that says what is going on when Rook is at work, or has not begun.
pub(crate) async fn since(client: &Client) -> Result<Timestamp> {
    let status = Kind::CephCluster.api(client, NAMESPACE).get(CLUSTER).await?.data["status"].take();
    ensure!(status["phase"] == "Ready", "its status is {status}");
    let events: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    let of_cluster = format!("involvedObject.kind=CephCluster,involvedObject.name={CLUSTER},reason={DONE}");
    let ended = events.list(&ListParams::default().fields(&of_cluster)).await?;
    let ended = ended.items.into_iter().filter_map(|event| event.last_timestamp).map(|time| time.0).max();
    at_rest(&status, ended)
}

fn at_rest(status: &Value, ended: Option<Timestamp>) -> Result<Timestamp> {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let began = conditions
        .filter(|is| is["type"] == "Progressing")
        .filter_map(|is| is["lastHeartbeatTime"].as_str()?.parse::<Timestamp>().ok())
        .max();
    match ended {
        Some(ended) if began <= Some(ended) => Ok(ended),
        _ => anyhow::bail!("its last pass ended at {ended:?} and its status is {status}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn progressing_at(second: i64) -> Value {
        json!({"conditions": [
            {"type": "Ready", "lastHeartbeatTime": time(second + 100).to_string()},
            {"type": "Progressing", "lastHeartbeatTime": time(second).to_string()},
        ]})
    }

    #[test]
    fn the_later_of_event_and_condition_counts() {
        assert_eq!(at_rest(&json!({}), Some(time(5))).unwrap(), time(5), "nothing in progress");
        assert_eq!(at_rest(&progressing_at(4), Some(time(5))).unwrap(), time(5), "left behind");
        assert!(at_rest(&progressing_at(6), Some(time(5))).is_err(), "the next pass has begun");
        assert!(at_rest(&json!({}), None).is_err(), "no pass has ended");
    }
}
