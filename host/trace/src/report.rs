// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From what a machine prints of maps and records to text for people.

use std::collections::BTreeMap;
use std::fmt::Write;

/// What a value of a key or of a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Signed,
    Unsigned,
    /// Nanoseconds since the machine started, as seconds.
    Time,
    /// Nanoseconds that something took.
    Elapsed,
    /// The number of a system call.
    Call,
    /// An address in code: which function it is in.
    Function,
    /// NUL-terminated, in so many bytes.
    Text(usize),
}

impl Part {
    pub fn bytes(self) -> usize {
        if let Part::Text(n) = self { n } else { 8 }
    }
}

/// How to show what one action found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// An array of one number.
    Count { map: String, what: String },
    /// Numbers by key.
    Counts { map: String, what: String, key: Part },
    /// Powers of two: element n counts values of n significant bits.
    Histogram { map: String, what: String, unit: &'static str },
    /// Numbers by stack.
    Stacks { map: String, stacks: String, what: String },
    /// All of a map.
    Table { map: String },
    /// Global variables.
    Variables { map: String, variables: Vec<Variable> },
    /// A line for each record.
    Lines { map: String, parts: Vec<Part> },
}

/// A global variable: where it is in the map of its section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    pub offset: usize,
    pub size: usize,
}

/// What the machine said of one element of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    pub map: String,
    pub key: Vec<u8>,
    /// One for each processor.
    pub values: Vec<Vec<u8>>,
}

/// As hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Reads hexadecimal digits.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect()
}

/// Reads the answer to `bpf map`; what is not understood is left out. The second list is of maps that lost something.
pub fn elements(answer: &str) -> (Vec<Element>, Vec<(String, u64)>) {
    let (mut elements, mut lost) = (Vec::new(), Vec::new());
    for line in answer.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["lost", map, count] => lost.extend(count.parse().ok().map(|n| (map.to_string(), n))),
            [map, key, ref values @ ..] => {
                let values: Option<Vec<Vec<u8>>> = values.iter().map(|v| unhex(v)).collect();
                if let (Some(key), Some(values)) = (unhex(key), values) {
                    elements.push(Element { map: map.into(), key, values });
                }
            }
            _ => {}
        }
    }
    (elements, lost)
}

fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    let n = bytes.len().min(8);
    word[..n].copy_from_slice(&bytes[..n]);
    u64::from_le_bytes(word)
}

/// Up to eight bytes as a number, more in hexadecimal.
fn any(bytes: &[u8]) -> String {
    match bytes.len() {
        0..=8 => number(bytes).to_string(),
        _ => hex(bytes),
    }
}

/// Names an address.
pub type Namer<'a> = dyn Fn(u64) -> String + 'a;

fn text(part: Part, bytes: &[u8], name: &Namer<'_>) -> String {
    match part {
        Part::Signed => (number(bytes) as i64).to_string(),
        Part::Unsigned => number(bytes).to_string(),
        Part::Function => name(number(bytes)),
        Part::Call => match u32::try_from(number(bytes)).ok().and_then(syscall_table::row) {
            Some(row) => row.name.into(),
            None => number(bytes).to_string(),
        },
        Part::Time => {
            let n = number(bytes);
            format!("{}.{:06}", n / 1_000_000_000, n / 1000 % 1_000_000)
        }
        Part::Elapsed => {
            let n = number(bytes);
            format!("{}.{:03} us", n / 1000, n % 1000)
        }
        Part::Text(_) => {
            let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
            String::from_utf8_lossy(&bytes[..end]).escape_debug().to_string()
        }
    }
}

impl Element {
    /// The sum over processors.
    fn total(&self) -> u64 {
        self.values.iter().map(|v| number(v)).fold(0, u64::wrapping_add)
    }
}

impl Report {
    /// The map it is about.
    pub fn map(&self) -> &str {
        match self {
            Report::Count { map, .. }
            | Report::Counts { map, .. }
            | Report::Histogram { map, .. }
            | Report::Stacks { map, .. }
            | Report::Table { map }
            | Report::Variables { map, .. }
            | Report::Lines { map, .. } => map,
        }
    }

    /// One line of a record, if this report is about its map.
    pub fn line(&self, map: &str, record: &[u8], name: &Namer<'_>) -> Option<String> {
        let Report::Lines { map: own, parts } = self else { return None };
        if own != map {
            return None;
        }
        let mut at = 0;
        let words: Vec<String> = parts
            .iter()
            .map(|part| {
                let end = (at + part.bytes()).min(record.len());
                let word = text(*part, &record[at.min(end)..end], name);
                at += part.bytes();
                word
            })
            .collect();
        Some(words.join(" "))
    }

    /// What the maps say in the end; `name` names an address.
    pub fn summary(&self, all: &[Element], name: &Namer<'_>) -> String {
        let own = || all.iter().filter(|e| e.map == self.map());
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = match self {
            Report::Lines { .. } => Ok(()),
            Report::Count { what, .. } => {
                writeln!(out, "{what}: {}", own().map(Element::total).sum::<u64>())
            }
            Report::Table { map } => {
                // Arrays are mostly empty.
                let full = |e: &&Element| e.values.iter().flatten().any(|b| *b != 0);
                let _ = writeln!(out, "{map}:");
                own().filter(full).try_for_each(|e| {
                    let values: Vec<String> = e.values.iter().map(|v| any(v)).collect();
                    writeln!(out, "  {:>20}  {}", any(&e.key), values.join(" "))
                })
            }
            Report::Variables { variables, .. } => {
                let bytes = own().next().and_then(|e| e.values.first()).map_or(&[][..], Vec::as_slice);
                variables.iter().try_for_each(|v| {
                    let own = bytes.get(v.offset..v.offset.saturating_add(v.size)).unwrap_or_default();
                    writeln!(out, "{} = {}", v.name, any(own))
                })
            }
            Report::Counts { what, key, .. } => {
                // Many addresses are one function.
                let mut sums: BTreeMap<String, u64> = BTreeMap::new();
                own().for_each(|e| *sums.entry(text(*key, &e.key, name)).or_default() += e.total());
                let mut rows: Vec<(u64, String)> = sums.into_iter().map(|(key, n)| (n, key)).collect();
                rows.sort_by(|a, b| b.cmp(a));
                let _ = writeln!(out, "{what}:");
                rows.iter().try_for_each(|(n, key)| writeln!(out, "  {n:>12}  {key}"))
            }
            Report::Histogram { what, unit, .. } => {
                let counts: BTreeMap<u64, u64> =
                    own().map(|e| (number(&e.key), e.total())).filter(|e| e.1 > 0).collect();
                let _ = writeln!(out, "{what}:");
                histogram(&mut out, &counts, unit)
            }
            Report::Stacks { stacks, what, .. } => {
                let mut rows: Vec<(u64, Vec<String>)> = Vec::new();
                for e in own() {
                    let stack = all
                        .iter()
                        .find(|s| s.map == *stacks && s.key[..] == e.key[..s.key.len().min(e.key.len())]);
                    let words =
                        stack.and_then(|s| s.values.first()).map(|v| v.chunks(8).map(number).collect());
                    let addresses: Vec<u64> = words.unwrap_or_default();
                    rows.push((
                        e.total(),
                        addresses.iter().take_while(|a| **a != 0).map(|a| name(*a)).collect(),
                    ));
                }
                rows.sort_by(|a, b| b.cmp(a));
                let _ = writeln!(out, "{what}:");
                rows.iter().try_for_each(|(n, frames)| {
                    writeln!(out, "  {n} times")?;
                    frames.iter().try_for_each(|f| writeln!(out, "    {f}"))
                })
            }
        };
        out
    }
}

/// Columns of a histogram's bars.
const BAR: u64 = 40;

fn histogram(out: &mut String, counts: &BTreeMap<u64, u64>, unit: &str) -> std::fmt::Result {
    let (Some((first, _)), Some((last, _))) = (counts.first_key_value(), counts.last_key_value()) else {
        return writeln!(out, "  nothing was seen");
    };
    let most = counts.values().max().copied().unwrap_or(1).max(1);
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    for bits in *first..=*last {
        let n = counts.get(&bits).copied().unwrap_or(0);
        let (low, high) = match bits {
            0 => (0, 0),
            64 => (1u64 << 63, u64::MAX),
            b => (1 << (b - 1), (1 << b) - 1),
        };
        let bar = "#".repeat((u128::from(n) * u128::from(BAR) / u128::from(most)) as usize);
        writeln!(out, "  {:>27}{unit} {n:>10} |{bar:<40}|", format!("{low} to {high}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_a_machine_are_read_and_damage_is_left_out() {
        let (elements, lost) = elements("calls 00000000 0500000000000000\nx zz 00\nlost ring 7\n\nlonely");
        assert_eq!(
            elements,
            [Element { map: "calls".into(), key: vec![0; 4], values: vec![vec![5, 0, 0, 0, 0, 0, 0, 0]] }]
        );
        assert_eq!(lost, [("ring".to_string(), 7)]);
    }

    #[test]
    fn counts_come_with_the_largest_first_and_histograms_without_gaps() {
        let element = |map: &str, key: u32, n: u64| Element {
            map: map.into(),
            key: key.to_le_bytes().to_vec(),
            values: vec![n.to_le_bytes().to_vec(), 1u64.to_le_bytes().to_vec()],
        };
        let all = [element("c", 3, 5), element("c", 4, 9), element("h", 0, 9), element("h", 2, 4)];
        let counts = Report::Counts { map: "c".into(), what: "by pid".into(), key: Part::Unsigned };
        let none = |_: u64| String::new();
        assert_eq!(counts.summary(&all, &none), "by pid:\n            10  4\n             6  3\n");
        let h = Report::Histogram { map: "h".into(), what: "time".into(), unit: "ns" };
        assert_eq!(h.summary(&all, &none).lines().count(), 4);
        assert!(h.summary(&all, &none).contains("2 to 3 ns          5 |####################"));
    }

    #[test]
    fn records_become_lines() {
        let report = Report::Lines { map: "r".into(), parts: vec![Part::Text(4), Part::Signed] };
        let record = [&b"ab\0c"[..], &(-2i64).to_le_bytes()].concat();
        let none = |_: u64| String::new();
        assert_eq!(report.line("r", &record, &none).as_deref(), Some("ab -2"));
        assert_eq!(report.line("r", &record[..5], &none).as_deref(), Some("ab 254"));
        assert_eq!(report.line("q", &record, &none), None);
    }
}
