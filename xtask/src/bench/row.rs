//! One line of a result, as JSON and as a table. Only form: what is measured is decided elsewhere.

use std::{collections::BTreeMap, fmt::Write};

use serde::Serialize;

/// One case at one size.
#[derive(Serialize, Clone)]
pub struct Row {
    /// Name of the benchmark.
    pub bench: &'static str,
    /// What was done.
    pub case: &'static str,
    /// How many objects.
    pub n: usize,
    /// How long it took.
    pub seconds: f64,
    /// How long the least work took.
    pub floor_seconds: f64,
    /// `seconds / floor_seconds`.
    pub ratio: f64,
    /// Writes of the user under test, for each object.
    pub writes_per_object: Writes,
    /// Reads of the user under test, for each object.
    pub reads_per_object: f64,
    /// Processor time of the operator.
    pub cpu_seconds: f64,
    /// Processor time of the bare client.
    pub floor_cpu_seconds: f64,
    /// Peak memory of the operator up to the end of the case.
    pub rss_mib: f64,
    /// What only this benchmark measures.
    #[serde(flatten)]
    pub more: BTreeMap<&'static str, f64>,
}

/// Writes by verb; those to a status are counted apart whatever their verb.
#[derive(Serialize, Clone, Default, Debug, PartialEq)]
pub struct Writes {
    /// Objects made.
    pub create: f64,
    /// Patches, applies included.
    pub patch: f64,
    /// Whole replacements.
    pub update: f64,
    /// Deletions.
    pub delete: f64,
    /// Anything to a status.
    pub status: f64,
}

/// All rows for people.
pub fn table(rows: &[Row]) -> String {
    let extra: Vec<&str> = rows.first().map(|row| row.more.keys().copied().collect()).unwrap_or_default();
    let mut lines = vec![header(&extra)];
    for row in rows {
        let writes = &row.writes_per_object;
        let mut cells = vec![row.case.to_owned(), row.n.to_string()];
        let numbers = [row.seconds, row.floor_seconds, row.ratio];
        cells.extend(numbers.map(|number| format!("{number:.2}")));
        let counts =
            [writes.create, writes.patch, writes.update, writes.delete, writes.status, row.reads_per_object];
        cells.extend(counts.map(|number| format!("{number:.2}")));
        cells.extend([row.cpu_seconds, row.floor_cpu_seconds].map(|number| format!("{number:.2}")));
        cells.push(format!("{:.1}", row.rss_mib));
        cells.extend(
            extra
                .iter()
                .map(|name| row.more.get(name).map_or_else(String::new, |value| format!("{value:.2}"))),
        );
        lines.push(cells);
    }
    align(&lines)
}

fn header(extra: &[&str]) -> Vec<String> {
    let fixed = [
        "case",
        "n",
        "seconds",
        "floor",
        "ratio",
        "create",
        "patch",
        "update",
        "delete",
        "status",
        "reads",
        "cpu_s",
        "floor_cpu_s",
        "rss_mib",
    ];
    fixed.iter().chain(extra).map(|name| (*name).to_owned()).collect()
}

/// What one object costs at each size, compared with the smallest size of the same case.
pub fn growth(rows: &[Row]) -> String {
    let mut lines: Vec<Vec<String>> =
        vec![["case", "n", "ms_per_object", "against_smallest"].map(str::to_owned).to_vec()];
    for row in rows {
        let smallest = rows.iter().filter(|other| other.case == row.case).min_by_key(|other| other.n);
        let against = smallest.map_or(1.0, |smallest| per_object(row) / per_object(smallest));
        lines.push(vec![
            row.case.to_owned(),
            row.n.to_string(),
            format!("{:.2}", per_object(row)),
            format!("{against:.2}"),
        ]);
    }
    align(&lines)
}

fn per_object(row: &Row) -> f64 {
    row.seconds * 1000.0 / float(row.n)
}

/// A count as a number to divide by. Counts here are far below 2^52.
#[allow(clippy::cast_precision_loss)]
pub fn float(count: usize) -> f64 {
    count as f64
}

fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| lines.iter().filter_map(|line| line.get(column)).map(String::len).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in lines {
        for (cell, width) in line.iter().zip(&widths) {
            // Writing to a String cannot fail.
            let _ = write!(text, "{cell:>width$}  ");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: usize, seconds: f64) -> Row {
        Row {
            bench: "efs",
            case: "create",
            n,
            seconds,
            floor_seconds: 1.0,
            ratio: seconds,
            writes_per_object: Writes { create: 2.0, patch: 1.0, ..Writes::default() },
            reads_per_object: 0.0,
            cpu_seconds: 0.5,
            floor_cpu_seconds: 0.25,
            rss_mib: 12.0,
            more: BTreeMap::from([("per_second", float(n) / seconds)]),
        }
    }

    #[test]
    fn a_row_has_exactly_the_agreed_keys() {
        let value = serde_json::to_value(row(300, 2.0)).unwrap();
        let mut keys: Vec<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(
            keys,
            [
                "bench",
                "case",
                "cpu_seconds",
                "floor_cpu_seconds",
                "floor_seconds",
                "n",
                "per_second",
                "ratio",
                "reads_per_object",
                "rss_mib",
                "seconds",
                "writes_per_object"
            ]
        );
        let mut writes: Vec<String> =
            value["writes_per_object"].as_object().unwrap().keys().cloned().collect();
        writes.sort();
        assert_eq!(writes, ["create", "delete", "patch", "status", "update"]);
    }

    #[test]
    fn growth_compares_with_the_smallest_size() {
        let text = growth(&[row(100, 1.0), row(1000, 12.0)]);
        let last: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(last, ["create", "1000", "12.00", "1.20"]);
    }

    #[test]
    fn a_table_has_one_line_for_each_row_and_a_header() {
        assert_eq!(table(&[row(100, 1.0), row(1000, 12.0)]).lines().count(), 3);
    }
}
