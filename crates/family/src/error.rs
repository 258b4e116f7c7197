//! Why a cluster could not be asked or changed. One grammar: "cannot do this: why".

/// A request to the cluster that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}: {source}")]
pub struct Error {
    doing: String,
    source: Box<kube::Error>,
}

/// Makes an [`Error`] of a client's error. `doing` continues the word "cannot".
pub fn cannot(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> Error {
    let doing = doing.into();
    move |source| Error { doing, source: Box::new(source) }
}
