//! The part of the project's commands that tests use as well: how the operator's image is built, and what alerts and dashboard ask.

pub mod operator_image;
pub mod queries;
mod sbom;
