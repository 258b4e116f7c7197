//! The reconcile engine: `observe -> decide -> act -> report`, once, for every controller. Knows no storage.
//!
//! - A family needs what is exported below (`Controller`, `Watch`, `View`, `Plan`, `Report` and their parts: the folder
//!   `contract`) and [`runtime`]; a family with a server needs [`serve`] too.
//! - The binary needs [`process`], [`lease`], [`live`] and [`metrics`].
//! - Tests need `model` and `simulation` (a feature).
//! - Nobody needs the rest: `pass` is one pass over one key, `run` decides when it happens and keeps the caches, `api` speaks to
//!   Kubernetes. ARCHITECTURE.md at the root explains them by an example.
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
pub(crate) use api::{compare, writer};
pub use contract::{
    controller, failure, intent, object, plan, question, remote, seen, status, subject, view, watch,
};
pub(crate) use run::{contact, events, kept, lock, outside, queue};
pub use run::{health, latest, metrics, process, runner, runtime, serve, store, stores, streams};

pub use controller::{Controller, SubjectOf};
pub use failure::{Class, Failure, FailureReason};
pub use intent::Intent;
pub use object::{Identity, Key, Kind, Object, ObjectRef};
pub use plan::{Deletion, Effect, Expect, Mint, Plan, Record, Step};
pub use question::Question;
pub use seen::{Seen, Why};
pub use status::{Condition, EventType, Report, Shape, State, Urgency, reason_in, state_in};
pub use subject::{Marks, Present, Subject, Unreadable};
pub use view::View;
pub use watch::{Wakes, Watch};
