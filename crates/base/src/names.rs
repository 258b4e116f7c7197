//! Names of Kubernetes objects: what is valid, and how a child's name is made. Must not depend on time or chance.

use sha2::{Digest, Sha256};

/// The longest DNS-1123 label: names of Services and Namespaces, label values.
pub const LABEL_MAX: usize = 63;
/// The longest DNS-1123 subdomain: names of most objects.
pub const SUBDOMAIN_MAX: usize = 253;

/// Characters of the hash at the end of a hashed name: 50 bits.
const HASH_LEN: usize = 10;
/// Lower-case base32 without the letters that look like digits or make words.
const BASE32: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Whether `name` is a DNS-1123 label: letters a-z, digits and `-`, an alphanumeric at both ends, at most 63 long.
pub fn is_label(name: &str) -> bool {
    name.len() <= LABEL_MAX && is_label_shaped(name)
}

/// Whether `name` is a DNS-1123 subdomain: labels of any length joined by `.`, together at most 253 long.
pub fn is_subdomain(name: &str) -> bool {
    name.len() <= SUBDOMAIN_MAX && name.split('.').all(is_label_shaped)
}

fn is_label_shaped(name: &str) -> bool {
    let bytes = name.as_bytes();
    let ends_well = |b: Option<&u8>| b.is_some_and(|b| is_alphanumeric(*b));
    ends_well(bytes.first())
        && ends_well(bytes.last())
        && bytes.iter().all(|b| is_alphanumeric(*b) || *b == b'-')
}

fn is_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// The parts joined by `-`, if that is a valid name of at most `max` characters; up to 63 it has to be a label.
///
/// Different parts can give the same plain name (`a-b`, `c` and `a`, `b-c`). Where that is possible use [`hashed`].
pub fn plain(parts: &[&str], max: usize) -> Option<String> {
    let name = parts.join("-");
    let valid = if max <= LABEL_MAX { is_label(&name) } else { is_subdomain(&name) };
    (valid && name.len() <= max).then_some(name)
}

/// The parts joined by `-`, cut to fit, and a hash over all of them: a valid name that other parts do not get.
///
/// Characters that no name may hold become `-`; up to a `max` of 63 also the dots, so that the result is a label.
/// A `max` below 12 leaves room for the hash only, below 10 not even for that.
pub fn hashed(parts: &[&str], max: usize) -> String {
    let hash = hash_of(parts);
    let max = max.min(SUBDOMAIN_MAX);
    let room = max.saturating_sub(HASH_LEN + 1);
    let head = readable(&parts.join("-"), room, max > LABEL_MAX);
    if head.is_empty() {
        return hash.chars().take(max).collect();
    }
    format!("{head}-{hash}")
}

/// The [`plain`] name where there is one, else the [`hashed`] one. For parts that cannot be confused when joined.
pub fn child(parts: &[&str], max: usize) -> String {
    plain(parts, max).unwrap_or_else(|| hashed(parts, max))
}

/// Sixteen hex characters that stand for these bytes, for recognising an intent that was written before.
pub fn short_hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes)[..8])
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn hash_of(parts: &[&str]) -> String {
    let mut sha = Sha256::new();
    for part in parts {
        // The length first, so that moving a character from one part to the next changes the hash.
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part.as_bytes());
    }
    let digest = sha.finalize();
    let bits = digest.iter().take(8).fold(0u64, |n, byte| n << 8 | u64::from(*byte));
    (0..HASH_LEN).map(|place| char::from(BASE32[(bits >> (59 - 5 * place) & 31) as usize])).collect()
}

/// At most `room` characters of `text` as the start of a valid name; ends with an alphanumeric, may be empty.
fn readable(text: &str, room: usize, dots: bool) -> String {
    let clean: Vec<u8> = text
        .chars()
        .map(|c| match u8::try_from(c.to_ascii_lowercase()) {
            Ok(byte) if is_alphanumeric(byte) || (dots && byte == b'.') => byte,
            _ => b'-',
        })
        .skip_while(|byte| !is_alphanumeric(*byte))
        .collect();
    let joins = |i: usize| {
        i > 0 && [clean.get(i - 1), clean.get(i + 1)].iter().all(|b| b.is_some_and(|b| is_alphanumeric(*b)))
    };
    let head: String = (0..clean.len())
        .take(room)
        // A dot is only allowed between two alphanumerics.
        .map(|i| if clean[i] == b'.' && !joins(i) { '-' } else { char::from(clean[i]) })
        .collect();
    head.trim_end_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn labels_and_subdomains_are_distinguished() {
        for name in ["a", "0", "a-b", "a--b", &"a".repeat(63)] {
            assert!(is_label(name) && is_subdomain(name), "{name}");
        }
        for name in ["", "-a", "a-", "A", "a_b", "a b", "ä"] {
            assert!(!is_label(name) && !is_subdomain(name), "{name}");
        }
        for name in ["a.b", "1.2.3", &"a".repeat(64), &"a".repeat(253)] {
            assert!(!is_label(name) && is_subdomain(name), "{name}");
        }
        for name in [".a", "a.", "a..b", "a.-b", "a-.b", &"a".repeat(254)] {
            assert!(!is_subdomain(name), "{name}");
        }
    }

    #[test]
    fn a_plain_name_is_the_joined_parts_or_nothing() {
        assert_eq!(plain(&["pvc", "data"], 253).as_deref(), Some("pvc-data"));
        assert_eq!(plain(&["pvc", "my.data"], 253).as_deref(), Some("pvc-my.data"));
        assert_eq!(plain(&["pvc", "my.data"], 63), None);
        assert_eq!(plain(&["pvc", "Data"], 253), None);
        assert_eq!(plain(&["pvc", "data"], 7), None);
        assert_eq!(plain(&[], 63), None);
    }

    #[test]
    fn hashed_names_are_stable_across_versions() {
        // Objects in clusters carry these names: changing the scheme would orphan them.
        assert_eq!(hashed(&["pv", "team-a", "data"], 253), "pv-team-a-data-r5d212cks2");
        assert_eq!(hashed(&["pv", "team", "a-data"], 253), "pv-team-a-data-ahmb0jrtvq");
        assert_eq!(hashed(&["pv", "team-a", "data"], 17), "pv-tea-r5d212cks2");
        assert_eq!(short_hash(b"intent"), "282bcbc3f0a34a8a");
    }

    #[test]
    fn a_cut_never_leaves_a_dash_or_a_dot_before_the_hash() {
        for max in 12..30 {
            let name = hashed(&["ab-.cd", "-", "..", "ef.gh"], max);
            let head = &name[..name.len() - HASH_LEN - 1];
            assert!(is_subdomain(head) && name.len() <= max, "{name}");
        }
        assert_eq!(hashed(&["--", "..."], 63).len(), HASH_LEN);
        assert_eq!(hashed(&["name"], 5).len(), 5);
    }

    #[test]
    fn a_child_is_hashed_only_when_it_must_be() {
        assert_eq!(child(&["pvc", "data"], 63), "pvc-data");
        assert!(child(&["pvc", &"d".repeat(80)], 63).starts_with("pvc-ddd"));
        assert_eq!(child(&["pvc", &"d".repeat(80)], 63).len(), 63);
    }

    fn any_parts() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec(prop_oneof!["[a-z0-9.-]{0,80}", "[a-c-]{0,3}", ".{0,20}"], 0..4)
    }

    fn refs(parts: &[String]) -> Vec<&str> {
        parts.iter().map(String::as_str).collect()
    }

    proptest! {
        #[test]
        fn every_made_name_is_valid_and_fits(parts in any_parts(), max in 10usize..=300) {
            for name in [hashed(&refs(&parts), max), child(&refs(&parts), max)] {
                prop_assert!(name.len() <= max);
                prop_assert!(if max <= LABEL_MAX { is_label(&name) } else { is_subdomain(&name) }, "{}", name);
                prop_assert_eq!(child(&refs(&parts), max), child(&refs(&parts), max));
            }
        }

        #[test]
        fn different_parts_get_different_hashed_names(a in any_parts(), b in any_parts(), max in 10usize..=253) {
            prop_assert_eq!(a == b, hashed(&refs(&a), max) == hashed(&refs(&b), max));
        }

        #[test]
        fn moving_the_border_between_parts_changes_the_hashed_name(text in "[a-z-]{2,40}", at in 0usize..40, to in 0usize..40) {
            let (at, to) = (at % text.len(), to % text.len());
            let (a, b) = (text.split_at(at), text.split_at(to));
            prop_assert_eq!(at == to, hashed(&[a.0, a.1], 63) == hashed(&[b.0, b.1], 63));
        }
    }
}
