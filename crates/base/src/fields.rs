//! Who writes which field of a kind: one entry per field and one writer per entry. The types of the tables only; each table
//! belongs to the family that owns the kinds. A controller's part of a status is computed from its table, so that the two
//! cannot differ.

/// One field with everything below it, and its only writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Kind of the object.
    pub kind: &'static str,
    /// The object that is meant, when families share the kind; none means every object of the kind.
    pub object: Option<&'static str>,
    /// Path of the field in the JSON form; it covers everything below it. A condition is named by its type:
    /// `status.conditions[Ready]`.
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

    /// The type of the condition that this entry is about.
    pub fn condition(&self) -> Option<&'static str> {
        self.path.strip_prefix("status.conditions[")?.strip_suffix(']')
    }

    /// Whether `path` is this field or a part of it. All conditions of a kind are one field in its schema.
    pub fn covers(&self, path: &str) -> bool {
        let own = if self.condition().is_some() { "status.conditions" } else { self.path };
        path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
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
