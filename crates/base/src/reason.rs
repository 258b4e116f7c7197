//! `Reason`: the one word of a condition, as an enumeration per kind. A reason is written from its variant and read back into
//! it; its text is compared nowhere else.

/// The reasons that the conditions of one kind can have.
pub trait Reason: Copy + Eq + 'static {
    /// Every one of them: the documentation is checked against this list.
    const ALL: &'static [Self];

    /// The word in the condition.
    fn as_str(self) -> &'static str;

    /// Reads back what [`Reason::as_str`] wrote; none for the word of another program or version.
    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
    }
}
