//! `Reason`: the one word of a condition, as an enumeration per kind. A reason is written from its variant and read back into
//! it; its text is compared nowhere else.

/// The reasons that the conditions of one kind can have. [`reasons!`](crate::reasons) makes such an enumeration.
pub trait Reason: Copy + Eq + 'static {
    /// Every one of them: the documentation is made from this list, and checked against it.
    const ALL: &'static [Self];

    /// The word in the condition.
    fn as_str(self) -> &'static str;

    /// What it means, for the reference.
    fn meaning(self) -> &'static str;

    /// Reads back what [`Reason::as_str`] wrote; none for the word of another program or version.
    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
    }
}

/// An enumeration of reasons. The word of each is its name, and its comment is what the reference says of it.
#[macro_export]
macro_rules! reasons {
    ($(#[$outer:meta])* $visible:vis enum $name:ident { $($(#[doc = $meaning:literal])* $variant:ident,)+ }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visible enum $name {
            $($(#[doc = $meaning])* $variant,)+
        }

        impl $crate::Reason for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];

            fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }

            fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($meaning),*).trim_ascii(),)+
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::Reason as _;

    crate::reasons! {
        /// Why.
        enum Why {
            /// Nobody knows,
            /// yet.
            Unknown,
            /// It rains.
            Rain,
        }
    }

    #[test]
    fn the_word_is_the_name_and_the_meaning_is_the_comment() {
        let all: Vec<(&str, &str)> = Why::ALL.iter().map(|why| (why.as_str(), why.meaning())).collect();
        assert_eq!(all, [("Unknown", "Nobody knows, yet."), ("Rain", "It rains.")]);
        assert_eq!((Why::parse("Rain"), Why::parse("rain")), (Some(Why::Rain), None));
    }
}
