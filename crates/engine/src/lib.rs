//! The reconcile engine: `observe -> decide -> act -> report`, once, for every controller. Knows no storage.
//!
//! A family implements [`Controller`]: what it looks at and what it decides. Everything else is here: caches fed by watches
//! ([`store`]), when a key has its turn (`queue`), what one pass does (`pass`, `act`), what is written and when nothing is
//! (`intent`, [`compare`], [`status`]), who may write ([`lease`]), and what people see of it ([`health`], [`metrics`]).
//! ARCHITECTURE.md at the root explains it by an example.
//!
//! A family needs what is exported below (`Controller`, `Watch`, `View`, `Plan`, `Report` and their parts) and [`runtime`].
//! The binary needs [`process`], [`lease`], [`live`] and [`metrics`]. Tests need `model` and `simulation` (a feature).
//! Nothing else needs the rest.
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests hand their own clocks in"))]

mod act;
pub mod cluster;
pub mod compare;
pub mod controller;
mod erased;
mod events;
pub mod failure;
pub mod health;
pub mod intent;
mod kept;
pub mod latest;
pub mod lease;
pub mod live;
#[cfg(any(test, feature = "simulation"))]
mod merge;
pub mod metrics;
#[cfg(any(test, feature = "simulation"))]
pub mod model;
pub mod object;
pub mod outside;
mod pass;
pub mod plan;
pub mod process;
mod queue;
pub mod remote;
#[cfg(test)]
mod round_trip;
pub mod runner;
pub mod runtime;
pub mod seen;
pub mod serve;
#[cfg(any(test, feature = "simulation"))]
pub mod simulation;
pub mod status;
pub mod store;
pub mod stores;
pub mod streams;
pub mod subject;
pub mod view;

pub use controller::{Controller, SubjectOf};
pub use failure::{Class, Failure, FailureReason};
pub use intent::Intent;
pub use object::{Identity, Key, Kind, Object, ObjectRef};
pub use outside::Question;
pub use plan::{Deletion, Effect, Expect, Mint, Plan, Record, Step};
pub use seen::{Seen, Why};
pub use status::{Condition, Report, Shape, State, Urgency, reason_in};
pub use store::{Wakes, Watch};
pub use subject::{Marks, Present, Subject, Unreadable};
pub use view::View;
