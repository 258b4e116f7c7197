//! Objects that an installation makes for a family, by the chart or by `aquifer install`. The operator has no right to make them: it could
//! pass on more than it needs itself. Content only.

use serde::Serialize;
use serde_json::Value;

use crate::When;

/// An object that is made when the operator is installed. It stays when the operator is uninstalled, because what it made may need it.
#[derive(Clone, Debug, PartialEq)]
pub struct InstalledObject {
    /// The object, with its labels.
    pub object: Value,
    /// The setting under which it is needed.
    pub when: Option<When>,
    /// The API that the cluster must serve, such as `security.openshift.io/v1`; elsewhere it is not needed.
    pub needs: Option<&'static str>,
}

impl InstalledObject {
    /// An object that is needed always.
    pub fn new(object: &impl Serialize) -> Self {
        // Only a map with keys that are no texts does not become JSON; the server refuses the null that it becomes here.
        Self { object: serde_json::to_value(object).unwrap_or_default(), when: None, needs: None }
    }

    /// The same, needed under a setting only.
    #[must_use]
    pub fn when(self, when: When) -> Self {
        Self { when: Some(when), ..self }
    }

    /// The same, needed only where this API is served.
    #[must_use]
    pub fn needs(self, api: &'static str) -> Self {
        Self { needs: Some(api), ..self }
    }
}
