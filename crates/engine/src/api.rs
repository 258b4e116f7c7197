//! The Kubernetes API as the engine uses it: what can be asked and written, the client that does it, and the one writer.

pub mod cluster;
pub(crate) mod compare;
pub mod live;
pub(crate) mod merge;
pub(crate) mod versions;
pub(crate) mod writer;
