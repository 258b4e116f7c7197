//! Texts of Kubernetes that must not be mixed up with other texts, each with a type of its own. Compared and printed, never taken apart.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Makes a type for one kind of text. As JSON and when it is printed it is the text alone.
macro_rules! text {
    ($(#[$about:meta])* $name:ident) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Box<str>);

        impl $name {
            /// The one with this text.
            pub fn new(text: impl Into<Box<str>>) -> Self {
                Self(text.into())
            }

            /// Its text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self::new(text)
            }
        }
    };
}

text! {
    /// `metadata.uid`: two objects of one name, one after the other, have different ones.
    Uid
}

text! {
    /// `metadata.resourceVersion`: changes with every write to the object.
    ResourceVersion
}

text! {
    /// The name of a namespace.
    NamespaceName
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_text_when_printed_and_as_json() {
        let name = NamespaceName::from("storage");
        assert_eq!((name.as_str(), name.to_string().as_str()), ("storage", "storage"));
        assert_eq!(name, NamespaceName::from(String::from("storage")));
        let json = serde_json::to_string(&name).unwrap();
        assert_eq!(json, "\"storage\"");
        assert_eq!(serde_json::from_str::<NamespaceName>(&json).unwrap(), name);
    }
}
