//! The one way to write. Children, finalizers, statuses, records, bootstrap objects and events all go through here, so that
//! leadership is asked and the log says what was written in one place. (A Lease itself is written by `lease`: it is what
//! leadership comes from.)

use crate::cluster::{ApiError, Cluster, Verb, Write};
use crate::lease::Leadership;
use crate::object::{Object, ObjectRef};

/// Writes in the name of one controller or server.
#[derive(Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub cluster: &'a dyn Cluster,
    /// Without it nothing is sent.
    pub leadership: &'a Leadership,
    /// The name that fields are written under.
    pub manager: &'static str,
}

impl Writer<'_> {
    /// Writes, unless this replica no longer leads. `why` is for people who read the log: it names fields, never their values.
    pub async fn write(&self, target: &ObjectRef, verb: Verb, why: &str) -> Result<Option<Object>, ApiError> {
        self.may_write()?;
        let word = verb.as_str();
        let write = Write { target: target.clone(), verb, manager: self.manager.to_owned() };
        let written = self.cluster.write(&write).await;
        if written.is_ok() {
            tracing::info!(verb = word, object = %target, why, "Wrote");
        }
        written
    }

    /// Refuses when this replica no longer leads. For what is done outside Kubernetes.
    pub fn may_write(&self) -> Result<(), ApiError> {
        if self.leadership.is_current() { Ok(()) } else { Err(ApiError::NotLeader) }
    }
}
