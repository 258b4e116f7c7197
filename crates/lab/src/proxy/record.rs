//! The record of the writes that arrived, for tests to read. Plain data.

use http::Method;
use serde::Serialize;

use super::target::Target;

/// One counted write: a request that changes an object, and is neither a dry run nor about Leases, Events,
/// access reviews or tokens.
#[derive(Clone, Debug, Serialize)]
pub struct Write {
    /// From 1, in the order of arrival.
    pub n: u64,
    /// HTTP method.
    #[serde(serialize_with = "method")]
    pub method: Method,
    /// Path as the client sent it.
    pub path: String,
    /// Query as the client sent it; empty when there is none.
    pub query: String,
    /// Name of the object, for creates from the body.
    pub object: Option<String>,
    /// SHA-256 of the body, in hexadecimal.
    pub body_digest: String,
    /// Whether it was sent to the server.
    pub forwarded: bool,
    /// What the server answered, or the status of a [`Fail`](super::Fault::Fail); `None` while there is no answer.
    pub status: Option<u16>,
}

impl Write {
    /// The path taken apart.
    pub fn target(&self) -> Option<Target> {
        Target::parse(&self.path)
    }
}

fn method<S: serde::Serializer>(method: &Method, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(method.as_str())
}
