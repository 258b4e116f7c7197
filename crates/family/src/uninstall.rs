//! How everything that a family made is taken away. The work is done by the running operator; here it is asked for and followed.

use std::time::Duration;

use async_trait::async_trait;

use crate::Error;

/// How an uninstall ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left. What a person may want to know now.
    Done(String),
    /// The time is over; what is left, and why. The operator goes on with it.
    Unfinished(String),
}

/// One uninstall of a family, with the rights of the client that it was made with. Every step can be repeated.
#[async_trait]
pub trait Uninstall: Send + Sync {
    /// What would be deleted and what stays, as lines for a person who is about to agree.
    async fn announcement(&self) -> Result<Vec<String>, Error>;

    /// Does it. Reports how far it is, until it is done or `patience` is over.
    async fn run(
        &self,
        patience: Duration,
        report: &mut (dyn FnMut(String) + Send),
    ) -> Result<Outcome, Error>;
}
