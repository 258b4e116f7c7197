//! Rook for the lab: its definitions from the Go module, and a stand-in. Copies nothing of Rook into this repository.

pub mod module;
pub mod stand_in;

pub use module::install_crds;
pub use stand_in::{Health, Kind, StandIn};
