//! The part of the project's commands that tests use as well: how the operator's image is built, of this checkout and of earlier
//! versions, and what alerts and dashboard ask.

pub mod earlier;
pub mod operator_image;
pub mod queries;
mod sbom;
