// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Medians, spreads, and the table they are printed in.

/// Measurements of one figure on one side.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The middle value; of an even number the mean of the two in the middle.
    pub fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => None,
            n if n % 2 == 1 => Some(sorted[middle]),
            _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
        }
    }

    /// The least and the most.
    pub fn spread(&self) -> Option<(f64, f64)> {
        let least = self.0.iter().copied().min_by(f64::total_cmp)?;
        Some((least, self.0.iter().copied().max_by(f64::total_cmp)?))
    }

    /// `median (least to most)`.
    pub fn brief(&self) -> String {
        self.show().split_once(", ").map_or_else(|| self.show(), |(values, _)| format!("{values})"))
    }

    /// `median (least to most, n)`.
    pub fn show(&self) -> String {
        match self.median().zip(self.spread()) {
            Some((median, (least, most))) => {
                format!("{} ({} to {}, {} runs)", number(median), number(least), number(most), self.0.len())
            }
            None => "not measured".into(),
        }
    }
}

/// As [`Samples::show`], with the ratio of the median to that of another side.
pub fn against(samples: &Samples, base: &Samples) -> String {
    match (samples.median(), base.median()) {
        (Some(value), Some(base)) if base != 0.0 => format!("{}: {:.3}", samples.show(), value / base),
        _ => samples.show(),
    }
}

/// Three significant digits at least, no more decimals than make sense.
fn number(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// One line of a table: a figure on all sides, with the ratio of the first two medians.
pub fn row(figure: &str, unit: &str, sides: &[Samples]) {
    let ratio = match sides {
        [first, second, ..] => match (first.median(), second.median()) {
            (Some(first), Some(second)) if second != 0.0 => format!("{:.2}", first / second),
            _ => "–".into(),
        },
        _ => "–".into(),
    };
    let shown: Vec<String> = sides.iter().map(Samples::show).collect();
    println!("| {figure} | {unit} | {} | {ratio} |", shown.join(" | "));
}

/// The head of a table of [`row`]s.
pub fn head(sides: &[&str]) {
    let ratio = sides.iter().take(2).copied().collect::<Vec<_>>().join(" / ");
    println!("| figure | unit | {} | {ratio} |", sides.join(" | "));
    println!("| --- | --- |{} --- |", " --- |".repeat(sides.len()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        let mut samples = Samples::default();
        assert_eq!(samples.median(), None);
        for value in [3.0, 1.0, 100.0] {
            samples.add(value);
        }
        assert_eq!(samples.median(), Some(3.0));
        samples.add(5.0);
        assert_eq!(samples.median(), Some(4.0));
        assert_eq!(samples.show(), "4.00 (1.00 to 100, 4 runs)");
        assert_eq!(samples.brief(), "4.00 (1.00 to 100)");
        assert_eq!(Samples::default().brief(), "not measured");
    }
}
