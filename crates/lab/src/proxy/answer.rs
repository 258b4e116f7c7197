//! Answers that the proxy gives in the server's place. Only builds them.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use serde_json::json;

pub(super) type Error = Box<dyn std::error::Error + Send + Sync>;
pub(super) type Body = UnsyncBoxBody<Bytes, Error>;

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A Kubernetes `Status` that says why a request failed.
pub(super) fn failure(
    status: StatusCode,
    method: &Method,
    message: &str,
    retry_after: Option<Duration>,
) -> Response<Body> {
    let seconds = retry_after.map(|after| after.as_secs() + u64::from(after.subsec_nanos() > 0));
    let mut object = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason(status, method),
        "code": status.as_u16(),
    });
    if let Some(seconds) = seconds {
        object["details"] = json!({ "retryAfterSeconds": seconds });
    }
    let mut response = json_response(status, object.to_string());
    if let Some(seconds) = seconds {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A watch whose only event says that its resourceVersion is too old.
pub(super) fn gone(version: &str) -> Response<Body> {
    let event = json!({
        "type": "ERROR",
        "object": {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": format!("too old resource version: {version}"),
            "reason": "Expired",
            "code": 410,
        },
    });
    json_response(StatusCode::OK, format!("{event}\n"))
}

fn json_response(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The reason that the API server gives with a status.
fn reason(status: StatusCode, method: &Method) -> &'static str {
    match status.as_u16() {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        409 if *method == Method::POST => "AlreadyExists",
        409 => "Conflict",
        410 => "Expired",
        413 => "RequestEntityTooLarge",
        415 => "UnsupportedMediaType",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    }
}
