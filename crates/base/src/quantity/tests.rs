//! The table of Go's own results, and properties that hold for every number.

use std::collections::HashSet;

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::*;

const VECTORS: &str = include_str!("../../tests/quantity_vectors.txt");

fn q(text: &str) -> Quantity {
    text.parse().unwrap_or_else(|e| panic!("{e}"))
}

fn refused(text: &str) -> String {
    match text.parse::<Quantity>() {
        Ok(q) => panic!("{text:?} was read as {q}"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn every_vector_of_the_go_package_agrees() {
    let mut count = 0;
    for line in VECTORS.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split(" | ").collect();
        let [input, format, canonical, go_string, value, milli, go_value, go_milli] = columns[..] else {
            panic!("a vector has eight columns: {line}");
        };
        let quantity = q(input);
        let expected_format = match format {
            "BinarySI" => Format::BinarySi,
            "DecimalSI" => Format::DecimalSi,
            "DecimalExponent" => Format::DecimalExponent,
            other => panic!("unknown format {other}"),
        };
        assert_eq!(quantity.format(), expected_format, "{line}");
        assert_eq!(quantity.to_string(), canonical, "{line}");
        assert_eq!(quantity.value().to_string(), value, "{line}");
        assert_eq!(quantity.milli_value().to_string(), milli, "{line}");
        // The documented differences, and no others.
        assert!(go_string == canonical || go_string == input, "{line}");
        for (exact, go) in [(quantity.value(), go_value), (quantity.milli_value(), go_milli)] {
            let go_is_wrong = quantity.is_negative() || i64::try_from(exact).is_err();
            assert!(exact.to_string() == go || go_is_wrong, "{line}");
        }
        count += 1;
    }
    assert!(count >= 100, "the table has only {count} vectors");
}

#[test]
fn bad_input_is_refused_with_a_reason_and_examples() {
    for (input, reason) in [
        ("", "must not be empty"),
        ("+", "does not start with a number"),
        ("-", "does not start with a number"),
        (".", "does not start with a number"),
        ("Ki", "does not start with a number"),
        ("e3", "does not start with a number"),
        ("--1", "does not start with a number"),
        (" 1", "does not start with a number"),
        ("10GB", "did you mean Gi or G?"),
        ("10 Gi", "no space before the unit"),
        ("1K", "did you mean Ki or k?"),
        ("1,5", "\",5\" is not a unit"),
        ("1.2.3", "\".3\" is not a unit"),
        ("0x10", "is not a unit"),
        ("1e", "did you mean Ei or E?"),
        ("1Ki1", "is not a unit"),
        ("1mm", "is not a unit"),
        ("٣", "does not start with a number"),
        ("1е3", "is not a unit"), // a Cyrillic letter
        ("1e1.5", "exponent must be a whole number"),
        ("1e4294967296", "exponent must be a whole number"),
        ("1e--3", "exponent must be a whole number"),
    ] {
        let message = refused(input);
        assert!(message.contains(reason), "{input:?}: {message}");
        assert!(message.contains("examples: 10Gi"), "{input:?}: {message}");
    }
}

#[test]
fn what_cannot_be_held_exactly_is_an_error_and_never_a_smaller_number() {
    for input in ["8Ei", "-8Ei", "16Ei", "9007199254740992Ki", "9223372036854775807.5Ki"] {
        assert!(refused(input).contains("one byte below 8Ei"), "{input}");
    }
    for input in ["1e30", "1e2000000000", "200000000000E", &"9".repeat(10_000)] {
        assert!(refused(input).contains("too large"), "{input}");
    }
    assert_eq!(q("170141183460469231731687303715.884105727").nanos, i128::MAX);
    assert!(refused("170141183460469231731687303715.884105728").contains("too large"));
    assert!(q("170141183460469231731687303715").checked_add(q("1")).is_none());
    assert!(q("-170141183460469231731687303715.884105727").checked_sub(q("1n")).is_none());
    assert!(q("1e29").checked_mul(2).is_none());
}

#[test]
fn a_tiny_or_zero_number_with_a_huge_exponent_is_cheap() {
    assert_eq!(q("1e-2147483648"), q("1n"));
    assert_eq!(q("0e2147483647"), Quantity::ZERO);
    assert_eq!(q(&format!("0.{}1", "0".repeat(100_000))), q("1n"));
}

#[test]
fn large_results_print_so_that_they_read_back() {
    let sum = q("7Ei").checked_add(q("7Ei")).unwrap();
    assert_eq!(sum.to_string(), "16140901064495857664");
    assert_eq!(q(&sum.to_string()), sum);
    assert_eq!(q("1000E").to_string(), "1000E");
    assert_eq!(Quantity::bytes(u64::MAX).to_string(), "18446744073709551615");
}

#[test]
fn equality_order_and_hash_ignore_the_family() {
    assert_eq!(q("1Gi"), q("1024Mi"));
    assert_eq!(q("1k"), q("1e3"));
    assert!(q("1G") < q("1Gi"));
    assert!(q("-1Gi") < q("0"));
    let set: HashSet<Quantity> = [q("1Ki"), q("1024"), q("1.024k"), q("1024e0")].into();
    assert_eq!(set.len(), 1);
}

#[test]
fn arithmetic_keeps_the_family_of_the_first_that_is_not_zero() {
    assert_eq!(q("1Gi").checked_add(q("1073741824")).unwrap().to_string(), "2Gi");
    assert_eq!(q("0").checked_add(q("1024Ki")).unwrap().to_string(), "1Mi");
    assert_eq!(q("0").checked_sub(q("1Gi")).unwrap().to_string(), "-1Gi");
    assert_eq!(q("1.5Gi").checked_mul(4).unwrap().to_string(), "6Gi");
    assert_eq!(Quantity::checked_sum([q("0"), q("512Mi"), q("512Mi")]).unwrap().to_string(), "1Gi");
    assert_eq!(Quantity::checked_sum([]).unwrap(), Quantity::ZERO);
}

#[test]
fn constructors_say_what_they_count() {
    assert_eq!(Quantity::bytes(1_610_612_736).to_string(), "1536Mi");
    assert_eq!(Quantity::milli(250).to_string(), "250m");
    assert_eq!(Quantity::whole(-3000, Format::DecimalExponent).to_string(), "-3e3");
    assert_eq!(q("10Gi").with_format(Format::DecimalSi).to_string(), "10737418240");
    assert_eq!(q("1.1").to_bytes(), Some(2));
    assert_eq!(q("-1").to_bytes(), None);
    assert_eq!(q("10E").to_i64(), None);
    assert_eq!(format!("[{:>6}]", q("1Gi")), "[   1Gi]");
}

#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Spec {
    size: Quantity,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quota: Option<Quantity>,
}

#[test]
fn json_takes_strings_integers_and_floats_and_gives_strings() {
    let read = |json: &str| serde_json::from_str::<Spec>(json).map(|spec| spec.size.to_string());
    assert_eq!(read(r#"{"size": "1024Mi"}"#).unwrap(), "1Gi");
    assert_eq!(read(r#"{"size": " 1Gi "}"#).unwrap(), "1Gi");
    assert_eq!(read(r#"{"size": 3}"#).unwrap(), "3");
    assert_eq!(read(r#"{"size": -3}"#).unwrap(), "-3");
    assert_eq!(read(r#"{"size": 18446744073709551615}"#).unwrap(), "18446744073709551615");
    assert_eq!(read(r#"{"size": 0.1}"#).unwrap(), "100m");
    assert_eq!(read(r#"{"size": 1e3}"#).unwrap(), "1k");
    assert!(read(r#"{"size": 1e20}"#).unwrap_err().to_string().contains("as a string"));
    assert!(read(r#"{"size": true}"#).unwrap_err().to_string().contains("a quantity such as"));
    assert!(read(r#"{"size": "10GB"}"#).unwrap_err().to_string().contains("did you mean Gi or G?"));
    let spec = Spec { size: q("1.5Gi"), quota: None };
    assert_eq!(serde_json::to_string(&spec).unwrap(), r#"{"size":"1536Mi"}"#);
}

#[test]
fn the_schema_is_structural_also_when_the_field_is_optional() {
    let schema = serde_json::to_value(schemars::schema_for!(Spec)).unwrap();
    for field in ["size", "quota"] {
        let found = &schema["properties"][field];
        assert_eq!(found["x-kubernetes-int-or-string"], true, "{found}");
        assert_eq!(found["pattern"], PATTERN);
        assert!(found.get("type").is_none() && found.get("anyOf").is_none(), "{found}");
    }
}

fn any_format() -> impl Strategy<Value = Format> {
    prop_oneof![Just(Format::DecimalSi), Just(Format::BinarySi), Just(Format::DecimalExponent)]
}

/// Numbers of every size, and often round ones.
fn any_quantity() -> impl Strategy<Value = Quantity> {
    let nanos = prop_oneof![
        (-i128::MAX..=i128::MAX, 0u32..=126).prop_map(|(n, shift)| n >> shift),
        (-1_000_000i128..1_000_000, 0u32..=28).prop_map(|(n, power)| n * 10i128.pow(power)),
        (-2048i128..2048, 0u32..=6).prop_map(|(n, power)| n * NANOS_PER_UNIT * 1024i128.pow(power)),
    ];
    (nanos, any_format()).prop_map(|(nanos, format)| Quantity { nanos, format })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn printing_and_reading_gives_the_same_number_and_text(quantity in any_quantity()) {
        let text = quantity.to_string();
        let back: Quantity = text.parse().unwrap();
        prop_assert_eq!(back, quantity, "{}", text);
        // A text without a suffix does not show its family: 2000 bytes print `2000`, which reads as decimal.
        prop_assert_eq!(back.with_format(quantity.format()).to_string(), text);
    }

    #[test]
    fn what_is_printed_has_no_fraction_and_no_plus(quantity in any_quantity()) {
        let text = quantity.to_string();
        let number = text.strip_prefix('-').unwrap_or(&text);
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        prop_assert!(digits > 0 && !number.contains(['.', '+']), "{}", text);
    }

    #[test]
    fn order_agrees_with_exact_arithmetic(
        a in -1_000_000i64..1_000_000, b in -1_000_000i64..1_000_000, x in 0usize..10, y in 0usize..10,
    ) {
        let suffixes = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let exact = |n: i64, i: usize| i128::from(n) * 1000i128.pow(u32::try_from(i).unwrap());
        let left = q(&format!("{a}{}", suffixes[x]));
        let right = q(&format!("{b}{}", suffixes[y]));
        prop_assert_eq!(left.cmp(&right), exact(a, x).cmp(&exact(b, y)));
    }

    #[test]
    fn adding_is_commutative_and_associative(a in any_quantity(), b in any_quantity(), c in any_quantity()) {
        // Thirds, so that no order of adding overflows.
        let [a, b, c] = [a, b, c].map(|q| Quantity { nanos: q.nanos / 3, ..q });
        prop_assert_eq!(a.checked_add(b), b.checked_add(a));
        prop_assert_eq!(a.checked_add(b).unwrap().checked_add(c), b.checked_add(c).unwrap().checked_add(a));
        prop_assert_eq!(a.checked_add(b).unwrap().checked_sub(b), Some(a));
    }

    #[test]
    fn multiplying_is_repeated_adding(a in any_quantity(), n in 0i64..20) {
        let a = Quantity { nanos: a.nanos / 20, ..a };
        let sum = Quantity::checked_sum((0..n).map(|_| a));
        prop_assert_eq!(a.checked_mul(n), sum);
    }

    #[test]
    fn the_value_is_the_nearest_whole_number_away_from_zero(quantity in any_quantity()) {
        let value = quantity.value();
        let over = value.unsigned_abs() * NANOS_PER_UNIT.unsigned_abs() - quantity.nanos.unsigned_abs();
        prop_assert!(over < NANOS_PER_UNIT.unsigned_abs());
        prop_assert!(value == 0 || value.signum() == quantity.nanos.signum());
    }

    #[test]
    fn fractions_round_up_exactly(
        whole in 0u64..1000, fraction in "[0-9]{0,60}", suffix in prop::sample::select(vec!["", "Ki", "Gi", "m", "E"]),
    ) {
        // The same number by long multiplication on decimal digits, without any fixed width.
        let (two, ten) = match suffix { "Ki" => (10, 9), "Gi" => (30, 9), "m" => (0, 6), "E" => (0, 27), _ => (0, 9) };
        let text = format!("{whole}{fraction}{}", "0".repeat(ten));
        let mut digits: Vec<u64> = text.bytes().map(|b| u64::from(b - b'0')).collect();
        for _ in 0..two {
            let mut carry = 0;
            for digit in digits.iter_mut().rev() {
                let sum = *digit * 2 + carry;
                (*digit, carry) = (sum % 10, sum / 10);
            }
            if carry > 0 { digits.insert(0, carry); }
        }
        let cut = digits.len() - fraction.len();
        let floor = digits[..cut].iter().fold(0i128, |n, d| n * 10 + i128::from(*d));
        let rest = i128::from(digits[cut..].iter().any(|d| *d != 0));
        prop_assert_eq!(q(&format!("{whole}.{fraction}{suffix}")).nanos, floor + rest);
    }

    #[test]
    fn any_text_is_read_or_refused_without_a_panic(text in ".*") {
        let _ = text.parse::<Quantity>().map_err(|e| e.to_string());
    }

    #[test]
    fn any_text_of_quantity_letters_is_read_or_refused_without_a_panic(text in "[-+.0-9eEinumkKMGTP]{0,50}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            prop_assert_eq!(quantity.to_string().parse::<Quantity>().unwrap(), quantity);
        }
    }
}
