//! Decisions made by another process of this machine: the same `decide`, behind a Unix socket. World and Plan are data, so nothing
//! changes but the distance. Both sides must be processes of the same user: the socket's file is nobody else's to open, and whoever
//! listens there is asked only if the kernel says that it is ours.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::routing::post;
use axum::{Json, Router};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::net::{UnixListener, UnixStream};

use crate::controller::{Controller, SubjectOf};
use crate::failure::{Class, Failure};
use crate::panic_text::panic_text;
use crate::plan::Plan;
use crate::status::cut;
use crate::subject::Subject;

/// A decision that takes longer is given up.
const DEADLINE: Duration = Duration::from_secs(10);
/// What is larger, a world or a plan, is not sent.
const LARGEST: usize = 32 << 20;

/// The version of all paths. It changes with every change of what subjects and plans look like as JSON: two releases that understand
/// each other only half must not decide for each other.
const VERSION: u32 = 4;

#[derive(Serialize, Deserialize)]
struct Asked<S, W> {
    subject: S,
    world: W,
    now: Timestamp,
}

/// With the release: what a family's worlds look like may change with any.
fn path(controller: &str) -> String {
    format!("/v{VERSION}/{}/{controller}/decide", env!("CARGO_PKG_VERSION"))
}

/// The decisions of several controllers, to be made for another process.
#[derive(Default)]
#[must_use]
pub struct Decisions(Router);

impl Decisions {
    /// Those of one more controller.
    pub fn of<C: Controller>(self, controller: Arc<C>) -> Self {
        async fn decide<C: Controller>(
            State(controller): State<Arc<C>>,
            body: Bytes,
        ) -> Result<Json<Plan>, (StatusCode, String)> {
            let asked: Asked<SubjectOf<C>, C::World> = serde_json::from_slice(&body)
                .map_err(|why| (StatusCode::BAD_REQUEST, format!("cannot read the question: {why}")))?;
            let decided = AssertUnwindSafe(|| controller.decide(&asked.subject, &asked.world, asked.now));
            std::panic::catch_unwind(decided).map(Json).map_err(|panic| {
                let said = format!("a decision of {} panicked: {}", controller.name(), panic_text(&*panic));
                (StatusCode::INTERNAL_SERVER_ERROR, said)
            })
        }
        let path = path(controller.name());
        Self(self.0.route(&path, post(decide::<C>).with_state(controller)))
    }

    /// Makes them for whoever opens this socket, unless somebody serves it already. Nobody but the user of this process can.
    pub async fn serve(self, socket: &Path) -> io::Result<()> {
        if let Err(error) = UnixStream::connect(socket).await {
            // Left by a process that has ended.
            let is_socket = || std::fs::metadata(socket).is_ok_and(|found| found.file_type().is_socket());
            if error.kind() == io::ErrorKind::ConnectionRefused && is_socket() {
                std::fs::remove_file(socket)?;
            }
        }
        let listener = UnixListener::bind(socket)?;
        std::fs::set_permissions(socket, Permissions::from_mode(0o600))?;
        let unknown = async || {
            let said = format!(
                "only decisions of version {VERSION} and release {} are made here, for certain controllers",
                env!("CARGO_PKG_VERSION")
            );
            (StatusCode::NOT_FOUND, said)
        };
        let router = self.0.fallback(unknown).layer(DefaultBodyLimit::max(LARGEST));
        axum::serve(listener, router).await
    }
}

/// What to do when two processes do not understand each other.
const SAME_RELEASE: &str = "; both sides must run the same release";

/// Another process that decides.
#[derive(Clone, Debug)]
pub struct Remote {
    socket: PathBuf,
}

impl Remote {
    /// The process that makes decisions at this socket.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Asks for a decision of a controller. No answer is transient trouble: nothing is done without one.
    pub async fn decide<Spec: Serialize, Status: Serialize, W: Serialize>(
        &self,
        controller: &str,
        subject: &Subject<Spec, Status>,
        world: &W,
        now: Timestamp,
    ) -> Result<Plan, Failure> {
        let asked = Asked { subject, world, now };
        let body =
            serde_json::to_vec(&asked).map_err(|e| Failure::bug(format!("cannot encode a world: {e}")))?;
        if body.len() > LARGEST {
            return Err(too_large(&format!("what is known of {}", subject.key)));
        }
        tokio::time::timeout(DEADLINE, self.post(controller, body))
            .await
            .unwrap_or_else(|_| Err(self.trouble(&format!("no answer within {} s", DEADLINE.as_secs()))))
    }

    async fn post(&self, controller: &str, body: Vec<u8>) -> Result<Plan, Failure> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| self.trouble(&error))?;
        let peer = stream.peer_cred().map_err(|error| self.trouble(&error))?;
        if peer.uid() != rustix::process::geteuid().as_raw() {
            return Err(self.trouble(&"the process that listens there belongs to another user"));
        }
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.trouble(&error))?;
        let request = Request::post(path(controller))
            .header(HOST, "localhost")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::<Bytes>::from(body))
            .map_err(|error| self.trouble(&error))?;
        let asked = async {
            let answer = sender.send_request(request).await.map_err(|error| self.trouble(&error))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), LARGEST).collect().await.map_err(|error| {
                if error.is::<LengthLimitError>() { too_large("the plan") } else { self.trouble(&error) }
            })?;
            Ok::<_, Failure>((status, body.to_bytes()))
        };
        // The connection moves only while it is polled, and ends with this request.
        let mut connection = std::pin::pin!(connection);
        let mut asked = std::pin::pin!(asked);
        let (status, body) = tokio::select! {
            biased;
            answered = &mut asked => answered?,
            ended = &mut connection => match ended {
                Ok(()) => asked.await?,
                Err(error) => return Err(self.trouble(&error)),
            },
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            return Err(Failure::bug(cut(&String::from_utf8_lossy(&body), 500)));
        }
        if status != StatusCode::OK {
            let said = String::from_utf8_lossy(&body);
            let why = if status == StatusCode::NOT_FOUND { SAME_RELEASE } else { "" };
            return Err(self.trouble(&format!("it answered {status}: {}{why}", cut(&said, 500))));
        }
        serde_json::from_slice(&body)
            .map_err(|why| self.trouble(&format!("cannot read the answer: {why}{SAME_RELEASE}")))
    }

    fn trouble(&self, what: &impl ToString) -> Failure {
        let socket = self.socket.display();
        Failure::new(Class::Transient, format!("cannot get a decision from {socket}: {}", what.to_string()))
    }
}

/// Trying again would not help.
fn too_large(what: &str) -> Failure {
    let most = LARGEST >> 20;
    Failure::new(
        Class::Invalid,
        format!("{what} is larger than the {most} MiB that can be sent to the process that decides"),
    )
}

#[cfg(test)]
mod tests {
    use axum::routing::any;
    use serde_json::json;

    use super::*;
    use crate::object::{Key, Kind};
    use crate::status::Shape;
    use crate::view::View;
    use crate::watch::Watch;

    /// A process that answers everything like this.
    async fn answering(status: StatusCode, body: Bytes) -> (PathBuf, tokio::task::JoinHandle<()>) {
        let router = Router::new().route(&path("wells"), any(async move || (status, body)));
        serving(Decisions(router)).await
    }

    async fn serving(decisions: Decisions) -> (PathBuf, tokio::task::JoinHandle<()>) {
        let socket = std::env::temp_dir().join(format!("aquifer-decides-{:x}.socket", fastrand::u64(..)));
        let at = socket.clone();
        let task = tokio::spawn(async move { decisions.serve(&at).await.unwrap() });
        while UnixStream::connect(&socket).await.is_err() {
            tokio::task::yield_now().await;
        }
        (socket, task)
    }

    async fn ask(socket: &Path, world: &impl Serialize) -> Result<Plan, Failure> {
        let subject: Subject<(), ()> = Subject { key: Key::cluster("x"), object: None };
        Remote::new(socket).decide("wells", &subject, world, Timestamp::UNIX_EPOCH).await
    }

    #[tokio::test]
    async fn only_a_plan_is_taken_for_one() {
        let cases = [
            (StatusCode::OK, json!(Plan::none()).to_string(), None),
            (StatusCode::OK, "3".into(), Some("cannot read the answer")),
            (StatusCode::NOT_FOUND, "only version 9".into(), Some("only version 9")),
            (StatusCode::PAYLOAD_TOO_LARGE, String::new(), Some("413")),
        ];
        for (status, body, expected) in cases {
            let (socket, task) = answering(status, body.into()).await;
            match (ask(&socket, &()).await, expected) {
                (Ok(plan), None) => assert_eq!(plan, Plan::none()),
                (Err(failure), Some(said)) => {
                    assert!(failure.message.contains(said) && failure.class == Class::Transient, "{failure}");
                }
                (got, expected) => panic!("{got:?} instead of {expected:?}"),
            }
            task.abort();
            std::fs::remove_file(socket).unwrap();
        }
    }

    /// Makes a mistake when the world says so.
    struct Mistaken;

    impl Controller for Mistaken {
        type Spec = ();
        type Status = ();
        type World = bool;

        fn name(&self) -> &'static str {
            "wells"
        }
        fn kind(&self) -> Kind {
            Kind::cluster("proving.aquifer.storage", "v1", "Well", "wells")
        }
        fn watches(&self) -> Vec<Watch> {
            Vec::new()
        }
        fn shape(&self) -> Shape {
            Shape::default()
        }
        fn observe(&self, _: &SubjectOf<Self>, _: &View<'_>) -> bool {
            false
        }
        fn decide(&self, _: &SubjectOf<Self>, world: &bool, _: Timestamp) -> Plan {
            assert!(!world, "a mistake in a decision");
            Plan::none()
        }
    }

    #[tokio::test]
    async fn a_decision_that_panics_is_a_mistake_and_the_next_one_is_made() {
        let (socket, task) = serving(Decisions::default().of(Arc::new(Mistaken))).await;
        let failure = ask(&socket, &true).await.unwrap_err();
        assert!(
            failure.class == Class::Bug && failure.message.contains("a mistake in a decision"),
            "{failure}"
        );
        assert_eq!(ask(&socket, &false).await, Ok(Plan::none()));
        task.abort();
        std::fs::remove_file(socket).unwrap();
    }

    #[tokio::test]
    async fn what_is_too_large_either_way_is_not_tried_again() {
        let large = "x".repeat(LARGEST + 1);
        let refused = ask(Path::new("/nowhere"), &large).await.unwrap_err();
        assert!(refused.class == Class::Invalid && refused.message.contains("32 MiB"), "{refused}");
        let (socket, task) = answering(StatusCode::OK, large.into()).await;
        let refused = ask(&socket, &()).await.unwrap_err();
        assert!(refused.class == Class::Invalid && refused.message.contains("the plan"), "{refused}");
        task.abort();
        std::fs::remove_file(socket).unwrap();
    }

    #[tokio::test]
    async fn a_socket_that_somebody_serves_is_not_taken_away_and_one_that_was_left_is_made_anew() {
        let (socket, task) = answering(StatusCode::OK, json!(Plan::none()).to_string().into()).await;
        let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let taken = Decisions::default().serve(&socket).await.unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        task.abort();
        let _ = task.await;
        let at = socket.clone();
        let next = tokio::spawn(async move { Decisions::default().serve(&at).await.unwrap() });
        let failure = loop {
            let failure = ask(&socket, &()).await.unwrap_err();
            if !failure.message.contains("refused") {
                break failure;
            }
            tokio::task::yield_now().await;
        };
        assert!(failure.message.contains(&format!("only decisions of version {VERSION}")), "{failure}");
        next.abort();
        std::fs::remove_file(socket).unwrap();
    }
}
