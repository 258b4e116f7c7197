//! Kinds of other projects. Names only; the part of them that we touch is in `aquifer-api`.

/// A kind that another project installs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignKind {
    /// Its API group.
    pub group: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// What the family does while a cluster lacks the kind, as a sentence for administrators.
    pub without: &'static str,
}
