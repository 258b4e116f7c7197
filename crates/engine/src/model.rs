//! An API server in memory and a controller run against it, for tests of decisions: every crash point in milliseconds.
//! It knows what the engine relies on (versions, uids, finalizers, compare-and-swap, field ownership by manager) and no more;
//! the same scenarios run on the real API server, which keeps it honest.

mod api;
mod fault;
mod ownership;
mod sim;

pub use api::{Change, Model, USER};
pub use fault::{Mode, WriteFault};
pub use sim::{Scene, Settled, Sim, WalkReport, walk};
