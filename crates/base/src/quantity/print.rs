//! Printing a quantity in its canonical form: no fraction, the largest suffix that stays exact. Must never round.

use std::fmt;

use super::{BINARY_MAX, Format, NANOS_PER_UNIT, Quantity};

/// Powers of ten from -9 in steps of three.
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `pad` rather than `write!` so that `{:>10}` works in tables.
        f.pad(&self.canonical())
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.canonical())
    }
}

impl Quantity {
    fn canonical(self) -> String {
        if self.is_zero() {
            return "0".to_owned();
        }
        if self.format == Format::BinarySi && self.prints_as_binary() {
            let (number, suffix) = strip(self.nanos / NANOS_PER_UNIT, 1024, BINARY_SUFFIXES.len() - 1);
            return format!("{number}{}", BINARY_SUFFIXES[suffix]);
        }
        if self.format == Format::DecimalExponent {
            // Thousands without a limit: there is no largest exponent as there is a largest suffix.
            let (number, thousands) = strip(self.nanos, 1000, usize::MAX);
            return match thousands {
                3 => number.to_string(),
                below @ 0..3 => format!("{number}e-{}", 9 - 3 * below),
                above => format!("{number}e{}", 3 * above - 9),
            };
        }
        let (number, suffix) = strip(self.nanos, 1000, DECIMAL_SUFFIXES.len() - 1);
        format!("{number}{}", DECIMAL_SUFFIXES[suffix])
    }

    /// Below 1024, with a fraction, or above what Kubernetes reads, the decimal family says it better.
    fn prints_as_binary(self) -> bool {
        let magnitude = self.nanos.unsigned_abs();
        let unit = NANOS_PER_UNIT.unsigned_abs();
        magnitude >= 1024 * unit
            && magnitude.is_multiple_of(unit)
            && magnitude <= BINARY_MAX.unsigned_abs() * unit
    }
}

/// Divides by `step` as often as that is exact, at most `limit` times. `number` is not zero, so this ends.
fn strip(mut number: i128, step: i128, limit: usize) -> (i128, usize) {
    let mut times = 0;
    while times < limit && number % step == 0 {
        number /= step;
        times += 1;
    }
    (number, times)
}
