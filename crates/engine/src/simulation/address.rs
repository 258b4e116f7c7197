//! What a request to the API server is about, read from its path and query.

use crate::object::{Key, Kind, ObjectRef};

/// The parts of a path such as `/apis/group/v1/namespaces/ns/plural/name/status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub group: String,
    pub version: String,
    pub plural: String,
    pub namespace: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl Address {
    /// Reads a path; none when it is not that of objects.
    pub fn parse(path: &str) -> Option<Self> {
        let mut parts = path.split('/').skip(1).map(decode);
        let group = match parts.next()?.as_str() {
            "api" => String::new(),
            "apis" => parts.next()?,
            _ => return None,
        };
        let version = parts.next()?;
        let mut plural = parts.next()?;
        let mut namespace = String::new();
        let mut rest: Vec<String> = parts.collect();
        // `namespaces/x` alone is the namespace itself; with more behind it, it is a place.
        if plural == "namespaces" && rest.len() >= 2 && rest[1] != "status" {
            namespace = rest.remove(0);
            plural = rest.remove(0);
        }
        let mut rest = rest.into_iter();
        Some(Self { group, version, plural, namespace, name: rest.next(), subresource: rest.next() })
    }

    /// The object of this kind that is meant; none for a whole collection.
    pub fn object(&self, kind: &Kind) -> Option<ObjectRef> {
        let name = self.name.as_deref()?;
        let key = if kind.namespaced { Key::namespaced(&self.namespace, name) } else { Key::cluster(name) };
        Some(kind.key(&key))
    }
}

/// The query of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(query: &str) -> Self {
        let pair = |text: &str| text.split_once('=').map(|(name, value)| (decode(name), decode(value)));
        Self(query.split('&').filter_map(pair).collect())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    pub fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match (first, code.and_then(|code| u8::from_str_radix(code, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(path: &str) -> (String, String, String, Option<String>, Option<String>) {
        let Address { group, plural, namespace, name, subresource, .. } = Address::parse(path).unwrap();
        (group, plural, namespace, name, subresource)
    }

    #[test]
    fn paths_name_collections_objects_and_their_status() {
        let some = |text: &str| Some(text.to_owned());
        let is = |text: &str| text.to_owned();
        assert_eq!(parsed("/api/v1/namespaces"), (is(""), is("namespaces"), is(""), None, None));
        assert_eq!(parsed("/api/v1/namespaces/a"), (is(""), is("namespaces"), is(""), some("a"), None));
        assert_eq!(
            parsed("/apis/g.io/v1/namespaces/a/wells/w%3A1/status"),
            (is("g.io"), is("wells"), is("a"), some("w:1"), some("status"))
        );
        assert_eq!(
            parsed("/apis/g.io/v1/namespaces/a/wells"),
            (is("g.io"), is("wells"), is("a"), None, None)
        );
        assert_eq!(Address::parse("/version"), None);
    }

    #[test]
    fn queries_are_decoded_and_empty_values_are_absent() {
        let query = Query::parse("labelSelector=a%2Fb%3Dc&limit=5&continue=&watch=true");
        assert_eq!(query.get("labelSelector"), Some("a/b=c"));
        assert_eq!((query.number("limit"), query.get("continue")), (Some(5), None));
        assert!(query.is_true("watch"));
    }
}
