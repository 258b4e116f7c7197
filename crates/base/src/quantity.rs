//! `Quantity`: Kubernetes' fixed-point numbers, exact to the nano. No floating point, no guessing of units.
//!
//! A quantity is a count of *nanos* (10⁻⁹) in an `i128` together with the family of suffixes it was written in. It
//! reads, prints and rounds as Kubernetes' own Go package does; a table of vectors made by that package is part of
//! the tests. Where the Go package is silently wrong we refuse or stay exact instead:
//!
//! | input or operation | Go | here |
//! |---|---|---|
//! | a binary quantity above 2⁶³-1, such as `8Ei` | becomes 2⁶³-1 | [`ParseQuantityError::TooLarge`] |
//! | a sum of binary quantities above 2⁶³-1 | prints `8Ei`, which reads back as 2⁶³-1 | prints in the decimal family |
//! | a decimal quantity from 10²¹ on, such as `1000E` | prints `1` | prints `1000E` |
//! | more than about 1.7·10²⁹ | accepted | [`ParseQuantityError::TooLarge`], or `None` from arithmetic |
//! | an exponent outside of `i32` | wraps around | [`ParseQuantityError::Exponent`] |
//! | no digits, such as `Ki` or `+` | 0 | [`ParseQuantityError::NoDigits`] |
//! | `Value()` that does not fit `int64` | wraps or is 0 | [`Quantity::value`] is exact |
//! | `Value()` of some negative numbers | rounds the wrong way | always away from zero |
//! | `1.500`, `+1`, `1.234k` | echoed unchanged | canonical: `1500m`, `1`, `1234` |

mod parse;
mod print;
#[cfg(test)]
mod tests;
mod wire;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

pub use parse::ParseQuantityError;
pub use wire::PATTERN;

const NANOS_PER_MILLI: i128 = 1_000_000;
const NANOS_PER_UNIT: i128 = 1_000_000_000;

/// The largest number that Kubernetes reads in the binary family: 2⁶³-1.
const BINARY_MAX: i128 = i64::MAX as i128;

/// The family of suffixes in which a quantity is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// `n u m k M G T P E` or no suffix at all.
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`.
    BinarySi,
    /// `e3`, `E-6`.
    DecimalExponent,
}

/// An exact number with a unit suffix, as Kubernetes writes capacities and limits: `10Gi`, `1.5`, `100m`, `2e3`.
///
/// Equality, order and hash look at the number only: `1024Mi == 1Gi` and `1k == 1e3`.
#[derive(Clone, Copy, Default)]
pub struct Quantity {
    // Never `i128::MIN`, so that negation cannot overflow.
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// Nothing, written `0`.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// A whole number in the given family.
    pub const fn whole(value: i64, format: Format) -> Self {
        // No overflow: 2⁶³·10⁹ is about 9·10²⁷, far below 2¹²⁷.
        Self { nanos: value as i128 * NANOS_PER_UNIT, format }
    }

    /// A number of thousandths, such as CPU millis, in the decimal family.
    pub const fn milli(value: i64) -> Self {
        Self { nanos: value as i128 * NANOS_PER_MILLI, format: Format::DecimalSi }
    }

    /// A number of bytes, printed with `Ki`, `Mi`, `Gi`, … where that is exact.
    pub const fn bytes(value: u64) -> Self {
        Self { nanos: value as i128 * NANOS_PER_UNIT, format: Format::BinarySi }
    }

    /// The family in which it prints.
    pub const fn format(self) -> Format {
        self.format
    }

    /// The same number in another family.
    #[must_use]
    pub const fn with_format(self, format: Format) -> Self {
        Self { nanos: self.nanos, format }
    }

    /// The number, rounded away from zero to a whole one: `1.1` is 2, `-1.1` is -2.
    pub const fn value(self) -> i128 {
        away_from_zero(self.nanos, NANOS_PER_UNIT)
    }

    /// The number in thousandths, rounded away from zero.
    pub const fn milli_value(self) -> i128 {
        away_from_zero(self.nanos, NANOS_PER_MILLI)
    }

    /// [`Self::value`] where it is a count of bytes; `None` when it is negative or above 2⁶⁴-1.
    pub fn to_bytes(self) -> Option<u64> {
        u64::try_from(self.value()).ok()
    }

    /// [`Self::value`] for interfaces with 64 bits; `None` when it does not fit.
    pub fn to_i64(self) -> Option<i64> {
        i64::try_from(self.value()).ok()
    }

    /// Whether it is exactly zero.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is below zero.
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The sum; `None` when it is too large to hold. Zero takes over the family of the other one.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        Self::held(self.nanos.checked_add(other.nanos)?, self.format_with(other))
    }

    /// The difference; `None` when it is too large to hold. Zero takes over the family of the other one.
    #[must_use]
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        Self::held(self.nanos.checked_sub(other.nanos)?, self.format_with(other))
    }

    /// The product with a whole number; `None` when it is too large to hold.
    #[must_use]
    pub fn checked_mul(self, factor: i64) -> Option<Self> {
        Self::held(self.nanos.checked_mul(i128::from(factor))?, self.format)
    }

    /// The sum of all; `None` when it is too large to hold. The first that is not zero gives the family.
    pub fn checked_sum(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().try_fold(Self::ZERO, Self::checked_add)
    }

    const fn held(nanos: i128, format: Format) -> Option<Self> {
        if nanos == i128::MIN { None } else { Some(Self { nanos, format }) }
    }

    const fn format_with(self, other: Self) -> Format {
        if self.is_zero() { other.format } else { self.format }
    }
}

const fn away_from_zero(nanos: i128, unit: i128) -> i128 {
    let whole = nanos / unit;
    if nanos % unit == 0 { whole } else { whole + nanos.signum() }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}
