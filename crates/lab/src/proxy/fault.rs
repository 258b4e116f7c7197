//! The faults that a test can ask for, and which requests they hit. Says what; must not carry anything out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Method, StatusCode};

use super::record::Write;
use super::target::{Call, CallKind};

/// Who dies in a crash.
#[derive(Clone)]
pub enum Victim {
    /// A process, killed with SIGKILL. It must be the caller's own child and not yet waited for, so that its
    /// id cannot belong to another process.
    Pid(u32),
    /// Anything else, for example a task that is aborted. Runs on a blocking thread; it must not wait for the
    /// end of the victim's requests, because they are never answered.
    Call(Arc<dyn Fn() + Send + Sync>),
}

impl fmt::Debug for Victim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pid(pid) => write!(f, "Pid({pid})"),
            Self::Call(_) => f.write_str("Call"),
        }
    }
}

/// What a [`Fault::Before`] runs: it gets the write that is about to be forwarded.
pub type Action = Arc<dyn Fn(Write) -> BoxFuture<'static, ()> + Send + Sync>;

/// Which requests a fault hits. Everything that is not set matches.
#[derive(Clone, Debug, Default)]
pub struct Select {
    methods: Vec<Method>,
    resource: Option<String>,
    subresource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    kind: Option<CallKind>,
    lists: bool,
}

impl Select {
    /// Every request.
    pub fn any() -> Self {
        Self::default()
    }

    /// Only counted writes.
    pub fn writes() -> Self {
        Self { kind: Some(CallKind::Write), ..Self::default() }
    }

    /// Only watches.
    pub fn watches() -> Self {
        Self { kind: Some(CallKind::Watch), ..Self::default() }
    }

    /// Only reads that are not watches.
    pub fn reads() -> Self {
        Self { kind: Some(CallKind::Read), ..Self::default() }
    }

    /// Only lists: reads of more than one object.
    pub fn lists() -> Self {
        Self { lists: true, ..Self::reads() }
    }

    /// Only this method; several calls allow several methods.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.methods.push(method);
        self
    }

    /// Only this resource: `plural` or `plural.group`.
    #[must_use]
    pub fn resource(mut self, resource: &str) -> Self {
        self.resource = Some(resource.to_owned());
        self
    }

    /// Only this subresource; the empty text means the object itself.
    #[must_use]
    pub fn subresource(mut self, subresource: &str) -> Self {
        self.subresource = Some(subresource.to_owned());
        self
    }

    /// Only this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = Some(namespace.to_owned());
        self
    }

    /// Only objects whose name contains this text (creates too).
    #[must_use]
    pub fn name_contains(mut self, text: &str) -> Self {
        self.name = Some(text.to_owned());
        self
    }

    pub(super) fn matches(&self, call: &Call) -> bool {
        let target = call.target.as_ref();
        let is = |want: &Option<String>, have: Option<&str>| {
            want.as_deref().is_none_or(|want| want == have.unwrap_or_default())
        };
        (self.methods.is_empty() || self.methods.contains(&call.method))
            && self.kind.is_none_or(|kind| kind == call.kind)
            && (!self.lists || call.is_list())
            && self.resource.as_deref().is_none_or(|resource| call.is_resource(resource))
            && is(&self.subresource, target.and_then(|target| target.subresource.as_deref()))
            && is(&self.namespace, target.and_then(|target| target.namespace.as_deref()))
            && self
                .name
                .as_deref()
                .is_none_or(|text| call.object.as_deref().is_some_and(|name| name.contains(text)))
    }
}

/// Something that goes wrong. Writes are numbered from 1 in the order in which they arrive; what is tied to a
/// number, and what names a count, ends by itself; the rest lasts until it is removed.
#[derive(Clone)]
pub enum Fault {
    /// When write n arrives the victim dies; the write and everything later never reaches the server.
    CrashBefore(u64),
    /// Write n reaches the server; once the server has answered, the victim dies and never hears of it. Writes
    /// that arrive after n are kept back meanwhile and never reach the server, so the end is the same in every run.
    CrashAfter(u64),
    /// Write n reaches the server; instead of the answer the client gets a closed connection. The victim lives.
    CutReply(u64),
    /// Runs an action when write n arrives, before it is forwarded: another client that acts in between.
    Before(u64, Action),
    /// Requests are answered with a Kubernetes `Status`, and not forwarded.
    Fail {
        /// Which requests.
        select: Select,
        /// The HTTP status of the answer.
        status: StatusCode,
        /// How many requests; `None` for all until removed.
        times: Option<u32>,
        /// Tells the client when to try again, rounded up to seconds.
        retry_after: Option<Duration>,
    },
    /// Requests are forwarded and done, but the client hears 504.
    FailAfter {
        /// Which requests.
        select: Select,
        /// How many requests; `None` for all until removed.
        times: Option<u32>,
    },
    /// Requests are forwarded later. One whose client goes away meanwhile is never forwarded.
    Delay {
        /// Which requests.
        select: Select,
        /// How much later.
        by: Duration,
    },
    /// The connection is closed without an answer, and nothing is forwarded.
    Refuse {
        /// Which requests.
        select: Select,
    },
    /// Requests are neither forwarded nor answered.
    Silence {
        /// Which requests.
        select: Select,
        /// How many requests; `None` for all until removed.
        times: Option<u32>,
    },
    /// The connection is closed at once, and the write is forwarded later, when its client has long given it up.
    LandsLater {
        /// Which writes.
        select: Select,
        /// How much later.
        by: Duration,
        /// How many requests; `None` for all until removed.
        times: Option<u32>,
    },
    /// Watch events of a resource are kept back, in order, until [`release`](super::Proxy::release).
    HoldWatch {
        /// `plural` or `plural.group`.
        resource: String,
        /// With a resourceVersion, lists of the resource are answered as of then (the server must still have it).
        lists_as_of: Option<String>,
    },
    /// The n-th event of a resource (bookmarks and errors are not counted) is swallowed, counted from now over
    /// all watches.
    DropWatchEvent {
        /// `plural` or `plural.group`.
        resource: String,
        /// From 1.
        n: u64,
    },
    /// Open watches of a resource end now, as they do when the server closes them.
    CloseWatch {
        /// `plural` or `plural.group`.
        resource: String,
    },
    /// The next watch of a resource that starts at a resourceVersion is answered that it is too old.
    Gone {
        /// `plural` or `plural.group`.
        resource: String,
    },
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CrashBefore(n) => write!(f, "CrashBefore({n})"),
            Self::CrashAfter(n) => write!(f, "CrashAfter({n})"),
            Self::CutReply(n) => write!(f, "CutReply({n})"),
            Self::Before(n, _) => write!(f, "Before({n})"),
            Self::Fail { select, status, times, .. } => {
                write!(f, "Fail({status}, times {times:?}, {select:?})")
            }
            Self::FailAfter { select, times } => write!(f, "FailAfter(times {times:?}, {select:?})"),
            Self::Delay { select, by } => write!(f, "Delay({by:?}, {select:?})"),
            Self::Refuse { select } => write!(f, "Refuse({select:?})"),
            Self::Silence { select, times } => write!(f, "Silence(times {times:?}, {select:?})"),
            Self::LandsLater { select, by, times } => {
                write!(f, "LandsLater({by:?}, times {times:?}, {select:?})")
            }
            Self::HoldWatch { resource, lists_as_of } => {
                write!(f, "HoldWatch({resource}, lists as of {lists_as_of:?})")
            }
            Self::DropWatchEvent { resource, n } => write!(f, "DropWatchEvent({resource}, {n})"),
            Self::CloseWatch { resource } => write!(f, "CloseWatch({resource})"),
            Self::Gone { resource } => write!(f, "Gone({resource})"),
        }
    }
}

/// Names an injected fault, to remove it or to ask how often it has struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FaultId(pub(super) u64);

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &Method, uri: &str) -> Call {
        Call::new(method, &uri.parse().unwrap(), br#"{"metadata":{"name":"new-a"}}"#)
    }

    #[test]
    fn a_selection_matches_only_what_it_names() {
        let status = call(&Method::PATCH, "/apis/x.io/v1/namespaces/ns/things/thing-a/status");
        let create = call(&Method::POST, "/apis/x.io/v1/namespaces/ns/things");
        let watch = call(&Method::GET, "/apis/x.io/v1/things?watch=1");
        let cases = [
            (Select::any(), [true, true, true]),
            (Select::writes(), [true, true, false]),
            (Select::watches(), [false, false, true]),
            (Select::any().resource("things"), [true, true, true]),
            (Select::any().resource("things.y.io"), [false, false, false]),
            (Select::any().subresource("status"), [true, false, false]),
            (Select::writes().subresource(""), [false, true, false]),
            (Select::any().namespace("ns"), [true, true, false]),
            (Select::any().name_contains("-a"), [true, true, false]),
            (Select::any().name_contains("new"), [false, true, false]),
            (Select::any().method(Method::POST).method(Method::GET), [false, true, true]),
        ];
        for (select, want) in cases {
            let have = [&status, &create, &watch].map(|call| select.matches(call));
            assert_eq!(have, want, "{select:?}");
        }
    }
}
