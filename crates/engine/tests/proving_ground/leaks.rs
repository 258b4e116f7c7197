//! The content of Secrets is in nothing but Secrets. Every Secret of a history holds the same words; here is where they are looked
//! for: in the log, in every world, plan and answer, in every version of every object but Secrets, and in the history itself.

use std::fmt::{self, Write as _};
use std::sync::{Arc, LazyLock, Mutex};

use aquifer_base::Sealed;
use aquifer_engine::runtime::Runtime;
use aquifer_engine::simulation::World;
use k8s_openapi::ByteString;
use serde::Serialize;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::family::SECRET;

/// In every Secret.
const CANARY: &str = "canary-bytes-of-a-secret";

/// The canary as it could be written somewhere: as text, as numbers, and in base64 at any place.
static FORMS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let numbers: Vec<String> = CANARY.bytes().map(|byte| byte.to_string()).collect();
    let mut forms = vec![CANARY.to_owned(), numbers.join(", "), numbers.join(",")];
    for before in 0..3 {
        let bytes = [vec![0; before], CANARY.into()].concat();
        let encoded = json!(ByteString(bytes)).as_str().unwrap_or_default().to_owned();
        // The first and the last group also depend on what is beside it.
        forms.push(encoded[4..encoded.len() - 4].to_owned());
    }
    forms
});

/// New content for a Secret.
pub fn bytes(runtime: &Runtime) -> Sealed {
    Sealed::new(format!("{CANARY}-{:016x}", runtime.random()))
}

/// Where secret content was seen that should not be there.
#[derive(Clone, Default)]
pub struct Leaks(Arc<Mutex<Vec<String>>>);

impl Leaks {
    fn look(&self, place: &str, text: &str) {
        if FORMS.iter().any(|form| text.contains(form.as_str())) {
            self.0.lock().unwrap().push(format!("{place}: {text}"));
        }
    }

    pub fn look_in(&self, place: &str, value: &impl Serialize) {
        self.look(place, &serde_json::to_string(value).unwrap_or_default());
    }

    /// Looks at all that has happened, and says where secret content was seen.
    pub fn none_in(&self, world: &World) -> Result<(), String> {
        for change in world.model.changes_since(0) {
            if change.target.kind != SECRET
                && let Some(object) = change.after()
            {
                self.look_in(&format!("{} after a write of {}", change.target, change.by), &object.0);
            }
        }
        world.history().iter().for_each(|line| self.look("the history", line));
        match self.0.lock().unwrap().first() {
            None => Ok(()),
            Some(leak) => Err(format!("the content of a Secret is in {leak}")),
        }
    }
}

/// Reads what is logged.
pub struct Log(pub Leaks);

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("aquifer") || *metadata.level() <= Level::INFO
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut said = Said::default();
        span.record(&mut said);
        self.0.look("a span of the log", &said.0);
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        let mut said = Said::default();
        values.record(&mut said);
        self.0.look("a span of the log", &said.0);
    }
    fn event(&self, event: &Event<'_>) {
        let mut said = Said::default();
        event.record(&mut said);
        self.0.look("the log", &said.0);
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The text of a line of the log.
#[derive(Default)]
struct Said(String);

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

#[test]
fn secret_content_is_found_in_whatever_form_it_is_written() {
    let leaks = Leaks::default();
    let finds = |text: &str| {
        leaks.0.lock().unwrap().clear();
        leaks.look("a test", text);
        leaks.0.lock().unwrap().len() == 1
    };
    let runtime = Runtime::system();
    let content = bytes(&runtime);
    assert!(finds(content.expose_str().unwrap()));
    assert!(finds(&format!("{:?}", content.expose())));
    for before in ["", "a", "ab", "abc"] {
        let inside = [before.as_bytes(), content.expose(), b"after"].concat();
        assert!(finds(&json!({"data": ByteString(inside)}).to_string()), "after {before:?}");
    }
    assert!(!finds(&format!("{content} {content:?}")), "what is sealed may be printed");
    let logged = || {
        leaks.0.lock().unwrap().clear();
        tracing::subscriber::with_default(Log(leaks.clone()), || {
            tracing::debug!(target: "aquifer", key = content.expose_str(), "it is said");
        });
        leaks.0.lock().unwrap().len()
    };
    assert_eq!(logged(), 1);
}
