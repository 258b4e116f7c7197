//! The product as users install it, on nodes that run its pods.
#![allow(clippy::disallowed_methods, reason = "never simulated: real clocks, tasks and threads")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "system/chart.rs"]
mod chart;
#[path = "system/commands.rs"]
mod commands;
#[path = "system/efs.rs"]
mod efs;
