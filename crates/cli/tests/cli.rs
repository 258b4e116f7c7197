//! The real binary: what a person reads, what a script gets, and what a cluster sees of its processes.
#![allow(clippy::disallowed_methods, reason = "never simulated: real clocks, tasks and threads")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "cli/admission.rs"]
mod admission;
#[path = "cli/chart.rs"]
mod chart;
#[path = "cli/fifth_family.rs"]
mod fifth_family;
#[path = "cli/install.rs"]
mod install;
#[path = "cli/process.rs"]
mod process;
#[path = "cli/running.rs"]
mod running;
#[path = "cli/words.rs"]
mod words;
