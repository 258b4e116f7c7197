//! The part of the project's commands that tests use as well: how the operator's image is built.

pub mod operator_image;
