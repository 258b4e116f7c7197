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
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::controller::{Controller, SubjectOf};
use crate::failure::{Class, Failure};
use crate::plan::Plan;
use crate::status::cut;
use crate::subject::Subject;

/// A decision that takes longer is given up.
const DEADLINE: Duration = Duration::from_secs(10);
/// A plan larger than this is nobody's honest answer.
const LARGEST: usize = 4 << 20;

/// The version of the envelope. It changes with every change of what subjects and plans look like as JSON: two releases that
/// understand each other only half must not decide for each other.
const VERSION: u32 = 2;

/// What is sent, either way.
#[derive(Serialize, Deserialize)]
struct Envelope<T> {
    version: u32,
    content: T,
}

#[derive(Serialize, Deserialize)]
struct Asked<S, W> {
    subject: S,
    world: W,
    now: Timestamp,
}

fn wrap<T>(content: T) -> Envelope<T> {
    Envelope { version: VERSION, content }
}

/// Reads an envelope: the version first, because the content of another version may be anything.
fn unwrap_envelope<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let Version { version } =
        serde_json::from_slice(body).map_err(|error| format!("not an envelope: {error}"))?;
    if version != VERSION {
        return Err(format!(
            "it has version {version}, and this process speaks version {VERSION}; run the same release on both sides"
        ));
    }
    let envelope: Envelope<T> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    Ok(envelope.content)
}

/// Serves a controller's decisions at `POST /decide`.
pub fn router<C: Controller>(controller: Arc<C>) -> Router {
    async fn decide<C: Controller>(
        State(controller): State<Arc<C>>,
        body: Bytes,
    ) -> Result<Json<Envelope<Plan>>, (StatusCode, String)> {
        let asked: Asked<SubjectOf<C>, C::World> = unwrap_envelope(&body)
            .map_err(|why| (StatusCode::BAD_REQUEST, format!("cannot read the question: {why}")))?;
        Ok(Json(wrap(controller.decide(&asked.subject, &asked.world, asked.now))))
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
    ) -> Result<Plan, Failure> {
        let asked = wrap(Asked { subject, world, now });
        let body =
            serde_json::to_vec(&asked).map_err(|e| Failure::bug(format!("cannot encode a world: {e}")))?;
        tokio::time::timeout(DEADLINE, self.post(body))
            .await
            .unwrap_or_else(|_| Err(self.trouble(&format!("no answer within {} s", DEADLINE.as_secs()))))
    }

    async fn post(&self, body: Vec<u8>) -> Result<Plan, Failure> {
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
        let body = body.to_bytes();
        if status != StatusCode::OK {
            let said = String::from_utf8_lossy(&body);
            return Err(self.trouble(&format!("it answered {status}: {}", cut(&said, 500))));
        }
        unwrap_envelope(&body).map_err(|why| self.trouble(&format!("cannot read the answer: {why}")))
    }

    fn trouble(&self, what: &impl ToString) -> Failure {
        Failure::new(
            Class::Transient,
            format!("cannot get a decision from {}: {}", self.url, what.to_string()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn open(body: &serde_json::Value) -> Result<Plan, String> {
        unwrap_envelope(body.to_string().as_bytes())
    }

    #[test]
    fn an_envelope_of_another_version_is_refused_before_its_content_is_read() {
        let content = json!(Plan::none());
        assert_eq!(open(&json!({"version": VERSION, "content": content})), Ok(Plan::none()));
        for body in [json!({"version": 7, "content": content}), json!({"version": 7, "other": true})] {
            let refused = open(&body).unwrap_err();
            assert!(refused.contains("version 7") && refused.contains("the same release"), "{refused}");
        }
    }

    #[test]
    fn what_has_no_version_is_refused() {
        assert!(open(&json!(Plan::none())).unwrap_err().contains("not an envelope"));
        assert!(open(&json!({"version": VERSION, "content": 3})).is_err());
    }
}
