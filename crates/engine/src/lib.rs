//! The reconcile engine: `observe -> decide -> act -> report`, once, for every controller. Knows no storage.
//!
//! - A family needs what is exported at the end of this file (the folder `contract`) and [`runtime`].
//! - A family with a server also needs [`serve`] and [`process::Context`]; one whose decisions are made elsewhere, [`remote`].
//! - The binary needs [`process`], [`lease`], [`live`] and [`metrics`].
//! - Tests need `model` and `simulation` (a feature), [`cluster`], and for a server's caches [`store`] and [`stores`].
//! - Nobody needs the rest: `pass` is one pass over one key, `run` decides when it happens and keeps the caches, `api` is the
//!   way to Kubernetes. ARCHITECTURE.md at the root explains them by an example.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests hand their own clocks in"))]

mod api;
mod contract;
pub mod lease;
#[cfg(any(test, feature = "simulation"))]
pub mod model;
mod pass;
mod run;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;

pub use api::{cluster, live};
pub(crate) use api::{compare, merge, versions, writer};
pub(crate) use contract::bounds;
pub use contract::{
    controller, failure, intent, object, plan, question, secret, seen, status, subject, supply, view, watch,
};
pub(crate) use run::{
    contact, events, health, http, kept, latest, lock, outside, panic_text, polls, queue, readiness, runner,
    standstill, streams,
};
pub use run::{metrics, process, remote, runtime, serve, store, stores};

pub use controller::{Controller, SubjectOf};
pub use failure::{Class, Failure, FailureReason};
pub use intent::{Intent, OWNER, OWNER_UID, PAUSED, owner_key};
pub use object::{Identity, Key, Kind, Object, ObjectRef};
pub use plan::{Amend, Child, Deletion, Effect, Expect, Mint, Plan, Record, Recreate, Seal, Step};
pub use question::{Answers, Question};
pub use secret::{Composition, SecretContent};
pub use seen::{Group, Seen, Why};
pub use status::{
    Condition, EventType, ObservedGeneration, PauseReason, Report, Shape, State, Urgency, reason_in, state_in,
};
pub use subject::{Marks, Present, Subject, Unreadable};
pub use view::View;
pub use watch::{Wakes, Watch};
