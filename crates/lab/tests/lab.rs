//! The lab's promises, against real clusters.
#![allow(clippy::disallowed_methods, reason = "never simulated: real clocks, tasks and threads")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "lab/cluster.rs"]
mod cluster;
#[path = "lab/nodes.rs"]
mod nodes;
#[path = "lab/proxy.rs"]
mod proxy;
#[path = "lab/recipe.rs"]
mod recipe;
#[path = "lab/rook.rs"]
mod rook;
#[path = "lab/storage.rs"]
mod storage;
#[path = "lab/supervision.rs"]
mod supervision;
