//! How a quantity travels: JSON, YAML and the schema in a CRD. No arithmetic here.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

use super::{Format, NANOS_PER_UNIT, Quantity};

/// What Kubernetes accepts as the text of a quantity, as an anchored regular expression for schemas.
pub const PATTERN: &str = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";

/// From here on not every whole number has a float of its own.
const FLOAT_EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyForm)
    }
}

/// A string, or a bare number as people write it in YAML.
struct AnyForm;

impl Visitor<'_> for AnyForm {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as \"10Gi\", \"500m\" or 3")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        // Kubernetes forgives spaces around it in JSON.
        text.trim().parse().map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
        Ok(Quantity::whole(number, Format::DecimalSi))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
        Ok(Quantity { nanos: i128::from(number) * NANOS_PER_UNIT, format: Format::DecimalSi })
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
        if number.abs() >= FLOAT_EXACT_BELOW || number.is_nan() {
            return Err(E::custom(format_args!(
                "the number {number} may have lost digits on its way: write such a large quantity as a string"
            )));
        }
        // The shortest text that means this float is the text that was written, and it has no exponent.
        number.to_string().parse().map_err(E::custom)
    }
}

impl JsonSchema for Quantity {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        // A list of types would make the CRD's schema non-structural; this extension is Kubernetes' way to say it.
        json_schema!({ "x-kubernetes-int-or-string": true, "pattern": PATTERN })
    }
}
