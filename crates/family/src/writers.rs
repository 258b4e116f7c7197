//! Who writes which field of our kinds: exactly one writer each. A table to look things up in and to test against; nothing reads
//! it at run time. A test of `aquifer-families` checks it for all families together.

/// One field with everything below it, and its only writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Kind of the object.
    pub kind: &'static str,
    /// The object that is meant, when families share the kind; none means every object of the kind.
    pub object: Option<&'static str>,
    /// Path of the field in the JSON form; it covers everything below it.
    pub path: &'static str,
    /// Who writes it.
    pub writer: Writer,
}

impl Field {
    /// A field of all objects of a kind that one family owns.
    pub const fn of(kind: &'static str, path: &'static str, writer: Writer) -> Self {
        Self { kind, object: None, path, writer }
    }

    /// A field of one object of a kind that families share.
    pub const fn of_object(
        kind: &'static str,
        object: &'static str,
        path: &'static str,
        writer: Writer,
    ) -> Self {
        Self { kind, object: Some(object), path, writer }
    }

    /// Whether `path` is this field or a part of it.
    pub fn covers(&self, path: &str) -> bool {
        path.strip_prefix(self.path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }
}

/// A program or a person that writes fields of our kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// Whoever made the object, a person or a pipeline. We never write these fields.
    User,
    /// The cluster's administrator, by hand or through an `uninstall` of a family.
    Administrator,
    /// A controller of ours, by its name, which is also its field manager.
    Controller(&'static str),
}
