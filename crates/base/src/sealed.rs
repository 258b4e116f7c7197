//! `Sealed`: secret bytes that cannot be printed, logged or serialised by accident. Not encryption.

use std::fmt;
use std::hint::black_box;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::names::hex;

/// Secret bytes. Prints as a fingerprint, compares in constant time, is wiped from memory when dropped.
///
/// There is no `Serialize` on purpose: whoever sends a secret somewhere has to write [`Sealed::expose`].
#[derive(Clone)]
pub struct Sealed(Zeroizing<Vec<u8>>);

impl Sealed {
    /// Seals these bytes. A `String` is moved, not copied, so no second copy stays behind.
    pub fn new(secret: impl Into<Vec<u8>>) -> Self {
        Self(Zeroizing::new(secret.into()))
    }

    /// The secret itself. Never for logs, events, status, metrics or arguments of a command.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The secret as text, if it is UTF-8.
    pub fn expose_str(&self) -> Option<&str> {
        str::from_utf8(&self.0).ok()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Eight hex characters: enough to distinguish two keys in a log, too few to search for a good key.
    pub fn fingerprint(&self) -> String {
        hex(&Sha256::digest(self.expose())[..4])
    }
}

impl fmt::Display for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sealed:{}", self.fingerprint())
    }
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Sealed {
    /// Takes the same time wherever the first difference is, so that an answer's delay does not help to guess a
    /// secret byte by byte. The length is no secret. `black_box` keeps the compiler from ending the loop early.
    fn eq(&self, other: &Self) -> bool {
        let (left, right) = (self.expose(), other.expose());
        left.len() == right.len()
            && left.iter().zip(right).fold(0u8, |seen, (a, b)| black_box(seen | (a ^ b))) == 0
    }
}

impl Eq for Sealed {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_secret_prints_only_its_fingerprint() {
        let secret = Sealed::new("AQB9dW5jb3Zlcg==".to_owned());
        for text in [format!("{secret}"), format!("{secret:?}"), format!("{:#?}", Some(&secret))] {
            assert!(text.contains("sealed:") && !text.contains("AQB9"), "{text}");
        }
        assert_eq!(format!("{}", Sealed::new("abc")), "sealed:ba7816bf");
        assert_eq!(secret.expose_str(), Some("AQB9dW5jb3Zlcg=="));
        assert_eq!(Sealed::new([0xff]).expose_str(), None);
        assert!(Sealed::new("").is_empty());
    }

    /// Says of a type whether it can be serialised: the constant of the struct itself, which wants `Serialize`, goes before
    /// that of the trait, which wants nothing.
    struct Probe<T>(std::marker::PhantomData<T>);

    trait Otherwise {
        const SERIALISES: bool = false;
    }

    impl<T> Otherwise for Probe<T> {}

    impl<T: serde::Serialize> Probe<T> {
        const SERIALISES: bool = true;
    }

    #[test]
    fn a_secret_cannot_be_serialised() {
        const { assert!(Probe::<String>::SERIALISES && Probe::<Option<String>>::SERIALISES) };
        const { assert!(!Probe::<Sealed>::SERIALISES) };
    }

    proptest! {
        #[test]
        fn sealed_bytes_are_equal_exactly_when_the_bytes_are(
            a in prop::collection::vec(any::<u8>(), 0..4), b in prop::collection::vec(any::<u8>(), 0..4),
        ) {
            let sealed = Sealed::new(a.clone());
            prop_assert_eq!(sealed.expose(), a.as_slice());
            prop_assert_eq!(a == b, sealed == Sealed::new(b));
        }
    }
}
