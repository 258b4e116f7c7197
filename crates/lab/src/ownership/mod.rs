//! Nothing survives its owner: the supervisor that ends a cluster's programs, the directory that says whose they are, and what a crash
//! leaves behind. Knows nothing of Kubernetes.

pub(crate) mod directory;
pub(crate) mod leftovers;
pub(crate) mod processes;
pub(crate) mod supervisor;
