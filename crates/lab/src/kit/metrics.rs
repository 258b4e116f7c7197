//! Reads numbers out of the text that `/metrics` serves. Knows no metric.

/// The sum of a metric over all series that have these labels.
pub fn sum(text: &str, name: &str, labels: &[(&str, &str)]) -> u64 {
    let series = text.lines().filter_map(|line| {
        let (series, value) = line.rsplit_once(' ')?;
        let (found, given) = series.split_once('{').unwrap_or((series, ""));
        let has = |(key, value): &(&str, &str)| given.contains(&format!("{key}=\"{value}\""));
        (found == name && labels.iter().all(has)).then_some(value)
    });
    series.filter_map(|value| value.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE passes counter\npasses_total{controller=\"a\",outcome=\"ok\"} 3\n\
        passes_total{controller=\"a\",outcome=\"failed\"} 2\npasses_total{controller=\"b\",outcome=\"ok\"} 10\nleader 1\n";

    #[test]
    fn a_sum_is_over_the_series_that_have_all_labels() {
        assert_eq!(sum(TEXT, "passes_total", &[]), 15);
        assert_eq!(sum(TEXT, "passes_total", &[("controller", "a")]), 5);
        assert_eq!(sum(TEXT, "passes_total", &[("outcome", "ok"), ("controller", "a")]), 3);
        assert_eq!(sum(TEXT, "leader", &[]), 1);
        assert_eq!(sum(TEXT, "passes", &[]), 0);
    }
}
