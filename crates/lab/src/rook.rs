//! Rook for the lab: its definitions from the Go module. Copies nothing of Rook into this repository.

pub mod module;

pub use module::install_crds;
