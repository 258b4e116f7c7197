//! What runs: the process with its families, the runner and queue of each controller, the watches and the caches that they fill,
//! servers, and what people see of it all.

pub(crate) mod contact;
pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod http;
pub(crate) mod kept;
pub(crate) mod latest;
pub(crate) mod lock;
pub mod metrics;
pub(crate) mod outside;
pub(crate) mod panic_text;
pub(crate) mod polls;
pub mod process;
pub(crate) mod queue;
pub(crate) mod readiness;
pub mod remote;
pub(crate) mod runner;
pub mod runtime;
pub mod serve;
pub(crate) mod standstill;
pub mod store;
pub mod stores;
pub(crate) mod streams;
