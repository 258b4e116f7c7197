//! The pump house: the outside system of the family. It gives ids, counts what it makes, and is not idempotent unless asked to be.
//! The same house stands in memory for the model, and behind loopback HTTP for the control plane.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aquifer_engine::model::WriteFault;
use aquifer_engine::{Class, Failure};
use async_trait::async_trait;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pump {
    pub id: String,
    pub order: String,
    pub size: u64,
    /// Grows with every change.
    pub version: u64,
    /// Fingerprint of the key that it was ordered with.
    pub key: String,
}

/// What can be said to the house.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Call {
    Order { buyer: String, number: String, size: u64, key: String },
    Resize { id: String, version: u64, size: u64 },
    Scrap { id: String },
    FindOrder(String),
    FindPump(String),
}

/// The reply was lost, or whoever called is dead.
pub struct NoReply;

/// The house itself.
#[derive(Default)]
pub struct House {
    /// Trips at one of its writes.
    pub fault: Arc<WriteFault>,
    /// Whether a repeated order number gives the same pump, as better outside systems do.
    pub idempotent: bool,
    /// Whether it takes no orders; it answers questions.
    refuses: AtomicBool,
    state: Mutex<Contents>,
}

#[derive(Default)]
struct Contents {
    /// How many orders of each buyer it did not take.
    refused: BTreeMap<String, usize>,
    pumps: BTreeMap<String, Pump>,
    made: BTreeMap<String, usize>,
    /// How many pumps each order number has brought.
    sold: BTreeMap<String, usize>,
    /// The largest sum of sizes that ever ran at the same time.
    most: u64,
}

impl House {
    pub fn new(fault: Arc<WriteFault>, idempotent: bool) -> Arc<Self> {
        Arc::new(Self { fault, idempotent, ..Self::default() })
    }

    /// Handles a call.
    pub fn handle(&self, call: &Call) -> Result<Option<Pump>, NoReply> {
        match call {
            Call::FindOrder(number) => {
                Ok(self.contents(|contents| contents.pumps.values().find(|p| p.order == *number).cloned()))
            }
            Call::FindPump(id) => Ok(self.contents(|contents| contents.pumps.get(id).cloned())),
            Call::Order { buyer, .. } if self.refuses.load(Ordering::SeqCst) => {
                self.contents(|contents| *contents.refused.entry(buyer.clone()).or_default() += 1);
                Err(NoReply)
            }
            write => self
                .fault
                .point(|| self.contents(|contents| contents.write(write, self.idempotent)))
                .ok_or(NoReply),
        }
    }

    fn contents<T>(&self, work: impl FnOnce(&mut Contents) -> T) -> T {
        work(&mut self.state.lock().unwrap())
    }

    /// How many pumps each buyer was ever sold.
    pub fn made(&self) -> BTreeMap<String, usize> {
        self.contents(|contents| contents.made.clone())
    }

    /// From now on it takes no orders, or takes them again. Gives how many of each buyer it has not taken since the last time.
    pub fn refuse(&self, refuses: bool) -> BTreeMap<String, usize> {
        self.refuses.store(refuses, Ordering::SeqCst);
        self.contents(|contents| std::mem::take(&mut contents.refused))
    }

    /// How many orders of each buyer it has not taken, while it takes none.
    pub fn refused(&self) -> BTreeMap<String, usize> {
        self.contents(|contents| contents.refused.clone())
    }

    /// How many pumps each order number has brought.
    pub fn sold(&self) -> BTreeMap<String, usize> {
        self.contents(|contents| contents.sold.clone())
    }

    pub fn pumps(&self) -> Vec<Pump> {
        self.contents(|contents| contents.pumps.values().cloned().collect())
    }

    pub fn most(&self) -> u64 {
        self.contents(|contents| contents.most)
    }
}

impl Contents {
    fn write(&mut self, call: &Call, idempotent: bool) -> Option<Pump> {
        let touched = match call {
            Call::Order { buyer, number, size, key } => {
                let known = self.pumps.values().find(|p| p.order == *number).cloned();
                if let Some(known) = known.filter(|_| idempotent) {
                    return Some(known);
                }
                let count = self.made.entry(buyer.clone()).or_default();
                *count += 1;
                *self.sold.entry(number.clone()).or_default() += 1;
                let id = format!("pump-{buyer}-{count}");
                let pump =
                    Pump { id: id.clone(), order: number.clone(), size: *size, version: 1, key: key.clone() };
                self.pumps.insert(id, pump.clone());
                Some(pump)
            }
            Call::Resize { id, version, size } => self.pumps.get_mut(id).map(|pump| {
                if pump.version == *version {
                    (pump.size, pump.version) = (*size, version + 1);
                }
                pump.clone()
            }),
            Call::Scrap { id } => self.pumps.remove(id),
            Call::FindOrder(_) | Call::FindPump(_) => None,
        };
        self.most = self.most.max(self.pumps.values().map(|p| p.size).sum());
        touched
    }
}

/// How a controller reaches the house.
#[async_trait]
pub trait Phone: Send + Sync {
    /// How long after a call it may still arrive at the house.
    fn arrives_within(&self) -> Duration {
        Duration::ZERO
    }

    async fn call(&self, call: Call) -> Result<Option<Pump>, Failure>;
}

pub fn lost() -> Failure {
    Failure::new(Class::Transient, "the pump house did not answer")
}

#[async_trait]
impl Phone for Arc<House> {
    async fn call(&self, call: Call) -> Result<Option<Pump>, Failure> {
        self.handle(&call).map_err(|NoReply| lost())
    }
}

/// The house behind loopback HTTP, for processes that can really be killed.
pub struct HouseServer {
    pub house: Arc<House>,
    pub url: String,
    task: tokio::task::JoinHandle<()>,
}

/// Called when the fault kills whoever called.
pub type Killer = Arc<Mutex<Option<Box<dyn Fn() + Send + Sync>>>>;

impl HouseServer {
    pub async fn start(house: Arc<House>, killer: Killer) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let router = Router::new().route("/", post(answer)).with_state((Arc::clone(&house), killer));
        #[allow(clippy::disallowed_methods, reason = "it runs in a real process, never in a simulation")]
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { house, url, task }
    }
}

impl Drop for HouseServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(
    State((house, killer)): State<(Arc<House>, Killer)>,
    Json(call): Json<Call>,
) -> Result<Json<Option<Pump>>, StatusCode> {
    house.handle(&call).map(Json).map_err(|NoReply| {
        if house.fault.crashed()
            && let Some(kill) = killer.lock().unwrap().as_ref()
        {
            kill();
        }
        StatusCode::GATEWAY_TIMEOUT
    })
}

/// A caller over HTTP. The dead do not call.
pub struct Line {
    pub url: String,
    pub alive: Arc<AtomicBool>,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Line {
    pub fn new(url: &str, alive: Arc<AtomicBool>) -> Self {
        Self { url: url.to_owned(), alive, client: Client::builder(TokioExecutor::new()).build_http() }
    }
}

#[async_trait]
impl Phone for Line {
    fn arrives_within(&self) -> Duration {
        Duration::from_secs(2)
    }

    async fn call(&self, call: Call) -> Result<Option<Pump>, Failure> {
        if !self.alive.load(Ordering::SeqCst) {
            return Err(lost());
        }
        let request = http::Request::post(&self.url)
            .header("content-type", "application/json")
            .body(Full::from(serde_json::to_vec(&call).unwrap()))
            .unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(5), self.client.request(request)).await;
        let answer = answer.map_err(|_| lost())?.map_err(|_| lost())?;
        if answer.status() != StatusCode::OK {
            return Err(lost());
        }
        let body = answer.into_body().collect().await.map_err(|_| lost())?.to_bytes();
        serde_json::from_slice(&body).map_err(|_| lost())
    }
}
