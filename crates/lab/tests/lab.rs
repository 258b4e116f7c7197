//! The lab's promises, against real clusters.
#![allow(clippy::disallowed_methods, reason = "never simulated: real clocks, tasks and threads")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

// Tests run in the order of their names. This one, alone, comes first: it waits for Rook while all the others go on.
#[path = "lab/chart.rs"]
mod chart;
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
