//! What clusters are built from: the Kubernetes programs, and programs and images from `lab/`. Each is built once and kept in the user's cache.

pub(crate) mod building;
pub mod programs;
pub mod recipe;
