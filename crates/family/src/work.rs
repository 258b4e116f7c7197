//! What a family runs in the operator's process: controllers under the family's Lease, and servers without one.

use aquifer_base::NamespaceName;
use aquifer_engine::process::Runnable;

/// What a family may need to know about the process that runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operator {
    /// The namespace of the operator.
    pub namespace: NamespaceName,
    /// The image of the operator, from which it can run servers; none when nobody said it.
    pub image: Option<String>,
}

/// What runs.
#[derive(Default)]
pub struct Work {
    /// Run by the one replica that holds the family's Lease.
    pub controllers: Vec<Box<dyn Runnable>>,
    /// Run by every replica.
    pub servers: Vec<Box<dyn Runnable>>,
}
