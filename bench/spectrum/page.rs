// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page of a spectrum: one HTML file that needs no other, a plot (SVG) for each figure and a table below them.

use crate::statistics::Samples;
use std::fmt::Write as _;

/// Columns of a plot, in units of the drawing: names, bars, values.
const NAMES: f64 = 210.0;
const BARS: f64 = 470.0;
const VALUES: f64 = 200.0;
const ROW: f64 = 24.0;
const BAR: f64 = 14.0;

/// Whose clock times of a level are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// The processor of this computer runs the machine's instructions.
    Own,
    /// QEMU's software emulation does, some ten times slower.
    Emulated,
}

impl Clock {
    fn class(self) -> &'static str {
        if self == Clock::Own { "own" } else { "emulated" }
    }
}

/// A level that ran.
pub struct Column {
    pub name: String,
    /// The command, as a reader may type it.
    pub command: String,
    pub clock: Clock,
}

/// A figure at every level that ran.
pub struct Figure {
    pub name: String,
    pub unit: &'static str,
    /// The larger one is the better one.
    pub more_is_better: bool,
    /// It depends on the clock: levels of different clocks are not to be compared.
    pub is_time: bool,
    pub samples: Vec<Samples>,
    /// Why a level has none.
    pub absent: Vec<Option<String>>,
}

pub struct Page {
    pub program: String,
    /// Lines on where and how this was measured.
    pub notes: Vec<String>,
    pub columns: Vec<Column>,
    pub figures: Vec<Figure>,
    /// Levels that did not run, and why.
    pub missing: Vec<(String, String)>,
}

impl Page {
    pub fn html(&self) -> String {
        let title = format!("{} at every level of the spectrum", escape(&self.program));
        let mut out = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>{title}</title>\n<style>{STYLE}</style>\n\
             </head>\n<body>\n<h1>{title}</h1>\n"
        );
        for note in &self.notes {
            let _ = writeln!(out, "<p>{}</p>", escape(note));
        }
        if self.has_both_clocks() {
            out.push_str(
                "<p><span class=\"own\">■</span> run by this computer's processor, <span class=\"emulated\">■</span> by software \
                 emulation (QEMU's TCG): times of the two are not to be compared, so each has a plot of its own where a figure \
                 depends on time.</p>\n",
            );
        }
        for figure in &self.figures {
            let better = if figure.more_is_better { "more is better" } else { "less is better" };
            let _ = writeln!(
                out,
                "<h2>{} <small>{}, {better}</small></h2>",
                escape(&figure.name),
                escape(figure.unit)
            );
            if figure.is_time && self.has_both_clocks() {
                for clock in [Clock::Own, Clock::Emulated] {
                    out.push_str(&self.plot(figure, Some(clock)));
                }
            } else {
                out.push_str(&self.plot(figure, None));
            }
        }
        self.table(&mut out);
        if !self.missing.is_empty() {
            out.push_str(
                "<h2>Levels that did not run here</h2>\n<table>\n<tr><th>level</th><th>why</th></tr>\n",
            );
            for (name, why) in &self.missing {
                let _ = writeln!(out, "<tr><td>{}</td><td>{}</td></tr>", escape(name), escape(why));
            }
            out.push_str("</table>\n");
        }
        out.push_str("<h2>Commands</h2>\n<table>\n<tr><th>level</th><th>command</th></tr>\n");
        for column in &self.columns {
            let _ = writeln!(
                out,
                "<tr><td>{}</td><td><code>{}</code></td></tr>",
                escape(&column.name),
                escape(&column.command)
            );
        }
        out + "</table>\n</body>\n</html>\n"
    }

    fn has_both_clocks(&self) -> bool {
        [Clock::Own, Clock::Emulated]
            .iter()
            .all(|clock| self.columns.iter().any(|column| column.clock == *clock))
    }

    /// A figure's bars: medians, with lines from the least to the most.
    fn plot(&self, figure: &Figure, clock: Option<Clock>) -> String {
        let rows: Vec<usize> = (0..self.columns.len())
            .filter(|n| clock.is_none_or(|clock| self.columns[*n].clock == clock))
            .collect();
        let most =
            rows.iter().filter_map(|n| figure.samples[*n].spread()).map(|(_, most)| most).fold(0.0, f64::max);
        let (width, height) = (NAMES + BARS + VALUES, rows.len() as f64 * ROW + 6.0);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" role=\"img\">\n"
        );
        let x = |value: f64| NAMES + if most > 0.0 { value / most * BARS } else { 0.0 };
        for (row, n) in rows.iter().enumerate() {
            let (column, samples) = (&self.columns[*n], &figure.samples[*n]);
            let y = row as f64 * ROW + 4.0;
            let middle = y + BAR / 2.0;
            let _ = write!(
                out,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                NAMES - 8.0,
                y + 11.0,
                escape(&column.name)
            );
            let Some((median, (least, most))) = samples.median().zip(samples.spread()) else {
                let why = figure.absent[*n].as_deref().unwrap_or("not measured");
                let _ = writeln!(
                    out,
                    "<text x=\"{NAMES}\" y=\"{}\" class=\"absent\">{}</text>",
                    y + 11.0,
                    escape(why)
                );
                continue;
            };
            let _ = writeln!(
                out,
                "<g><title>{}: {} {}</title><rect x=\"{NAMES}\" y=\"{y}\" width=\"{:.1}\" height=\"{BAR}\" class=\"{}\"/>\
                 <path d=\"M{:.1} {middle}H{:.1}\" class=\"spread\"/></g><text x=\"{:.1}\" y=\"{}\">{}</text>",
                escape(&column.name),
                samples.show(),
                escape(figure.unit),
                x(median) - NAMES,
                column.clock.class(),
                x(least),
                x(most),
                x(most) + 6.0,
                y + 11.0,
                samples.brief()
            );
        }
        out + "</svg>\n"
    }

    fn table(&self, out: &mut String) {
        out.push_str("<h2>All figures</h2>\n<p>Medians, with the least and the most of all runs.</p>\n<table>\n<tr><th>figure</th><th>unit</th>");
        for column in &self.columns {
            let _ = write!(out, "<th>{}</th>", escape(&column.name));
        }
        out.push_str("</tr>\n");
        for figure in &self.figures {
            let _ = write!(out, "<tr><td>{}</td><td>{}</td>", escape(&figure.name), escape(figure.unit));
            for samples in &figure.samples {
                let _ = write!(out, "<td>{}</td>", samples.brief());
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</table>\n");
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "body{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}\
                     svg{font-size:12px;max-width:100%;display:block;margin:.3em 0}small{font-weight:normal;color:#666}\
                     table{border-collapse:collapse;font-size:12px}td,th{border:1px solid #ccc;padding:.2em .5em;text-align:left}\
                     .own{fill:#3b7ab8;color:#3b7ab8}.emulated{fill:#d8973c;color:#d8973c}.spread{stroke:#222;stroke-width:1.2}\
                     .absent{fill:#888;font-style:italic}";

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        let mut samples = Samples::default();
        values.iter().for_each(|value| samples.add(*value));
        samples
    }

    fn example() -> Page {
        let column =
            |name: &str, clock| Column { name: name.into(), command: format!("unilith run {name}"), clock };
        Page {
            program: "redis".into(),
            notes: vec!["3 runs".into()],
            columns: vec![column("linux", Clock::Emulated), column("process", Clock::Own)],
            figures: vec![
                Figure {
                    name: "GET <1>".into(),
                    unit: "requests/s",
                    more_is_better: true,
                    is_time: true,
                    samples: vec![samples(&[10.0, 20.0, 30.0]), samples(&[100.0])],
                    absent: vec![None, None],
                },
                Figure {
                    name: "instructions".into(),
                    unit: "a request",
                    more_is_better: false,
                    is_time: false,
                    samples: vec![samples(&[7.0]), samples(&[])],
                    absent: vec![None, Some("nothing counts them".into())],
                },
            ],
            missing: vec![("raw".into(), "no sockets".into())],
        }
    }

    #[test]
    fn the_page_has_every_figure_with_median_spread_and_what_is_missing() {
        let html = example().html();
        for text in [
            "GET &lt;1&gt;",
            "20.00 (10.00 to 30.00)",
            "nothing counts them",
            "<td>raw</td><td>no sockets</td>",
            "unilith run process",
            "not to be compared",
        ] {
            assert!(html.contains(text), "{text}: {html}");
        }
        // Of a time one plot for each clock, each with its own scale; of a count one for both.
        assert_eq!(html.matches("<svg ").count(), 3);
        assert!(
            !html.contains("http://www.w3.org/1999") && !html.contains("src=") && !html.contains("href=")
        );
        // Every tag that is opened is closed.
        for tag in ["svg", "g", "text", "table", "tr", "td", "th", "h2", "p", "title", "code"] {
            let opened =
                html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn bars_are_as_long_as_their_share_of_the_most() {
        let page = example();
        let plot = page.plot(&page.figures[0], Some(Clock::Emulated));
        // 20 of 30.
        assert!(plot.contains(&format!("width=\"{:.1}\" height=\"{BAR}\"", BARS * 2.0 / 3.0)), "{plot}");
        assert!(!plot.contains("process"), "{plot}");
    }
}
