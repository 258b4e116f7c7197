//! Reading a quantity from text. Exact for any number of digits; must not go through floating point.

use std::str::FromStr;

use thiserror::Error;

use super::{BINARY_MAX, Format, NANOS_PER_UNIT, Quantity};

const EXAMPLES: &str = "examples: 10Gi, 1.5Ti, 500m, 20G, 2, 1e6";

/// Beyond this many places the decimal point cannot matter any more: further left every digit is below a nano,
/// further right the number is too large. Keeps the work bounded for exponents like `e-2000000000`.
const FARTHEST_POINT: i64 = 40;

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ParseQuantityError {
    /// The text is empty.
    #[error("a quantity must not be empty ({EXAMPLES})")]
    Empty,
    /// There is no digit where the number should be.
    #[error("{input:?} is not a quantity: it does not start with a number ({EXAMPLES})")]
    NoDigits {
        /// What was read, shortened.
        input: String,
    },
    /// What follows the number is no known suffix.
    #[error(
        "{input:?} is not a quantity: {suffix:?} is not a unit{hint}; \
         use one of Ki Mi Gi Ti Pi Ei, or n u m k M G T P E, or an exponent like e3 ({EXAMPLES})"
    )]
    Suffix {
        /// What was read, shortened.
        input: String,
        /// The part after the number.
        suffix: String,
        /// What was probably meant, or nothing.
        hint: &'static str,
    },
    /// The exponent is not a whole number of reasonable size.
    #[error(
        "{input:?} is not a quantity: its exponent must be a whole number between -2147483648 and 2147483647 ({EXAMPLES})"
    )]
    Exponent {
        /// What was read, shortened.
        input: String,
    },
    /// The number cannot be held without being changed.
    #[error("{input:?} is too large: the largest quantity {limit}")]
    TooLarge {
        /// What was read, shortened.
        input: String,
        /// What the limit is, as the end of a sentence.
        limit: &'static str,
    },
}

struct Unit {
    format: Format,
    /// The power of two that the suffix stands for.
    binary: u32,
    /// The power of ten that the suffix stands for.
    decimal: i64,
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(input: &str) -> Result<Self, Self::Err> {
        if input.is_empty() {
            return Err(ParseQuantityError::Empty);
        }
        let (negative, rest) = match input.as_bytes()[0] {
            b'-' => (true, &input[1..]),
            b'+' => (false, &input[1..]),
            _ => (false, input),
        };
        let (whole, rest) = split_digits(rest);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), split_digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(ParseQuantityError::NoDigits { input: shown(input) });
        }
        let unit = unit(suffix, input)?;
        let too_large = |limit| ParseQuantityError::TooLarge { input: shown(input), limit };

        let magnitude = nanos(whole, fraction, &unit).ok_or_else(|| too_large("is about 1.7e29"))?;
        if unit.format == Format::BinarySi && magnitude > BINARY_MAX * NANOS_PER_UNIT {
            return Err(too_large("with a suffix Ki to Ei is 9223372036854775807, one byte below 8Ei"));
        }
        // A part of one byte has no binary suffix that could show it.
        let below_one = magnitude > 0 && magnitude < NANOS_PER_UNIT;
        let format =
            if unit.format == Format::BinarySi && below_one { Format::DecimalSi } else { unit.format };
        Ok(Self { nanos: if negative { -magnitude } else { magnitude }, format })
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

fn unit(suffix: &str, input: &str) -> Result<Unit, ParseQuantityError> {
    let decimal = |decimal| Ok(Unit { format: Format::DecimalSi, binary: 0, decimal });
    let binary = |binary| Ok(Unit { format: Format::BinarySi, binary, decimal: 0 });
    match suffix {
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "" => decimal(0),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => exponent(suffix, input),
    }
}

fn exponent(suffix: &str, input: &str) -> Result<Unit, ParseQuantityError> {
    let looks_like_one = suffix.strip_prefix(['e', 'E']).filter(|rest| {
        rest.bytes().any(|b| b.is_ascii_digit()) && !rest.bytes().any(|b| b.is_ascii_alphabetic())
    });
    let Some(digits) = looks_like_one else {
        return Err(ParseQuantityError::Suffix {
            input: shown(input),
            suffix: shown(suffix),
            hint: hint(suffix),
        });
    };
    let decimal: i32 = digits.parse().map_err(|_| ParseQuantityError::Exponent { input: shown(input) })?;
    Ok(Unit { format: Format::DecimalExponent, binary: 0, decimal: decimal.into() })
}

/// What people write who think of bytes rather than of Kubernetes.
fn hint(suffix: &str) -> &'static str {
    if suffix.starts_with(char::is_whitespace) {
        return " (no space before the unit)";
    }
    match suffix {
        "K" | "KB" | "kB" | "kb" | "KiB" | "ki" => " (did you mean Ki or k?)",
        "MB" | "mb" | "MiB" | "mi" => " (did you mean Mi or M?)",
        "g" | "GB" | "gb" | "GiB" | "gi" => " (did you mean Gi or G?)",
        "t" | "TB" | "tb" | "TiB" | "ti" => " (did you mean Ti or T?)",
        "p" | "PB" | "pb" | "PiB" | "pi" => " (did you mean Pi or P?)",
        "e" | "EB" | "eb" | "EiB" | "ei" => " (did you mean Ei or E?)",
        "B" | "b" => " (bytes have no suffix)",
        _ => "",
    }
}

/// The number in nanos, rounded up. `None` when it does not fit.
fn nanos(whole: &str, fraction: &str, unit: &Unit) -> Option<i128> {
    let digits: Vec<i128> = whole.bytes().chain(fraction.bytes()).map(|b| i128::from(b - b'0')).collect();
    let Some(first) = digits.iter().position(|d| *d != 0) else {
        return Some(0);
    };
    // From here on the number is 0.DIGITS · 10^point · 2^binary, and its first digit is not zero.
    let digits = &digits[first..];
    let point = i64::try_from(whole.len()).ok()? - i64::try_from(first).ok()? + unit.decimal;
    if point > FARTHEST_POINT {
        return None;
    }
    let scale = NANOS_PER_UNIT << unit.binary; // at most 2^90

    let before = usize::try_from(point).unwrap_or(0);
    let mut integer = 0i128;
    for place in 0..before {
        let digit = digits.get(place).copied().unwrap_or(0);
        integer = integer.checked_mul(10)?.checked_add(digit)?;
    }

    // The part behind the point, from its last digit to its first: each step adds one digit and divides by ten.
    // Whatever a division drops can only matter for the question "is there a rest?", which `rest` remembers.
    let mut part = 0i128;
    let mut rest = false;
    let mut step = |digit: i128| {
        let sum = digit * scale + part;
        part = sum / 10;
        rest |= sum % 10 != 0;
    };
    for digit in digits.iter().skip(before).rev() {
        step(*digit);
    }
    for _ in point.max(-FARTHEST_POINT)..0 {
        step(0);
    }
    integer.checked_mul(scale)?.checked_add(part)?.checked_add(i128::from(rest))
}

/// The input for an error message; a megabyte of digits helps nobody.
fn shown(input: &str) -> String {
    const LONGEST: usize = 40;
    if input.chars().count() <= LONGEST {
        return input.to_owned();
    }
    input.chars().take(LONGEST).chain("…".chars()).collect()
}
