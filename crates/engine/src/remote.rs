//! Decisions over HTTP: the same `decide`, in another process. World and Plan are data, so nothing changes but the distance.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::controller::{Controller, SubjectOf};
use crate::fault::{Class, Fault};
use crate::plan::Plan;
use crate::subject::Subject;

/// A decision that takes longer is given up.
const DEADLINE: Duration = Duration::from_secs(10);
/// A plan larger than this is nobody's honest answer.
const LARGEST: usize = 4 << 20;

#[derive(Serialize, Deserialize)]
struct Asked<S, W> {
    subject: S,
    world: W,
    now: Timestamp,
}

/// Serves a controller's decisions at `POST /decide`.
pub fn router<C: Controller>(controller: Arc<C>) -> Router {
    async fn decide<C: Controller>(
        State(controller): State<Arc<C>>,
        Json(asked): Json<Asked<SubjectOf<C>, C::World>>,
    ) -> Json<Plan> {
        Json(controller.decide(&asked.subject, &asked.world, asked.now))
    }
    Router::new().route("/decide", post(decide::<C>)).with_state(controller)
}

/// Another process that decides.
#[derive(Clone)]
pub struct Remote {
    url: Uri,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Remote {
    /// The process whose decisions are at this URL.
    pub fn new(url: Uri) -> Self {
        Self { url, client: Client::builder(TokioExecutor::new()).build_http() }
    }

    /// Asks for a decision. No answer is transient trouble: nothing is done without one.
    pub async fn decide<Spec: Serialize, Status: Serialize, W: Serialize>(
        &self,
        subject: &Subject<Spec, Status>,
        world: &W,
        now: Timestamp,
    ) -> Result<Plan, Fault> {
        let asked = Asked { subject, world, now };
        let body =
            serde_json::to_vec(&asked).map_err(|e| Fault::bug(format!("failed to encode a world: {e}")))?;
        tokio::time::timeout(DEADLINE, self.post(body))
            .await
            .unwrap_or_else(|_| Err(self.trouble(&format!("no answer within {} s", DEADLINE.as_secs()))))
    }

    async fn post(&self, body: Vec<u8>) -> Result<Plan, Fault> {
        let request = Request::post(self.url.clone())
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::from(body))
            .map_err(|error| self.trouble(&error))?;
        let answer = self.client.request(request).await.map_err(|error| self.trouble(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), LARGEST)
            .collect()
            .await
            .map_err(|error| self.trouble(&error))?;
        if status != StatusCode::OK {
            return Err(self.trouble(&format!("it answered {status}")));
        }
        serde_json::from_slice(&body.to_bytes())
            .map_err(|error| self.trouble(&format!("not a plan: {error}")))
    }

    fn trouble(&self, what: &impl ToString) -> Fault {
        Fault::new(
            Class::Transient,
            format!("failed to get a decision from {}: {}", self.url, what.to_string()),
        )
    }
}
