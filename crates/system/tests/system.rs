//! The product as users install it, on nodes that run its pods.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "system/chart.rs"]
mod chart;
