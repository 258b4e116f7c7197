//! Where the record is kept, as the elector sees it: read, create, compare-and-swap. No policy.

use std::future::Future;

use thiserror::Error;

use super::Record;

/// A record as it was read, with the version that a swap must name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The record.
    pub record: Record,
    /// Opaque; changes with every write.
    pub version: String,
}

/// Why a request did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StorageError {
    /// Somebody else was faster: created it first, changed it since, or removed it. Read again.
    #[error("the lease was changed by somebody else")]
    Conflict,
    /// Anything else. Whether a write took effect is not known.
    #[error("{0}")]
    Failed(String),
}

/// One record under compare-and-swap. Reads must see every write that was acknowledged before.
pub trait Storage: Send + Sync + 'static {
    /// The current record, or `None` if there is none.
    fn read(&self) -> impl Future<Output = Result<Option<Stored>, StorageError>> + Send;

    /// Makes the record; a conflict if there is one already.
    fn create(&self, record: &Record) -> impl Future<Output = Result<Stored, StorageError>> + Send;

    /// Puts the record in place of the one with this version; a conflict if that is not the current one.
    fn swap(
        &self,
        version: &str,
        record: &Record,
    ) -> impl Future<Output = Result<Stored, StorageError>> + Send;
}
