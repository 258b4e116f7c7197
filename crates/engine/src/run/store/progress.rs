//! How far a cache must have come before the next pass decides by it.

/// How far a cache must have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// At least this revision.
    Revision(u64),
    /// This uid is gone or going.
    Deleted(String),
    /// The cache no longer holds this uid: it is gone, or the watch does not show it any more.
    Gone(String),
    /// This uid is gone, or newer than the revision in which it still had our finalizer. It was going before, so that tells nothing.
    Released(String, u64),
}
