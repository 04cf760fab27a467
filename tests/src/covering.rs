// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows of choices in which every two values of two choices meet: a covering array of strength two, built greedily as in
//! D. M. Cohen et al., "The AETG System" (IEEE Transactions on Software Engineering 23(7), 1997).

use serde_json::Value;
use std::collections::BTreeSet;

/// A choice of the kernel as `unilith menu --list --json` prints it.
#[derive(Clone, Debug)]
pub struct Choice {
    pub key: String,
    pub values: Vec<String>,
    pub needs: Vec<String>,
}

/// A choice by its place in the list, and a value by its place among the choice's.
type Chosen = (usize, usize);

/// Two choices with their values, the one that is earlier in the list first.
type Pair = (Chosen, Chosen);

/// Key and value of each choice, in the list's order.
pub type Row = Vec<(String, String)>;

pub struct Choices(Vec<Choice>);

impl Choices {
    /// Those that are about the kernel.
    ///
    /// # Panics
    ///
    /// If the JSON is not that of `unilith menu --list`.
    pub fn read(json: &str) -> Choices {
        let rows: Vec<Value> = serde_json::from_str(json).expect("the list is JSON");
        let words = |value: &Value| -> Vec<String> {
            value
                .as_array()
                .expect("a list")
                .iter()
                .map(|word| word.as_str().expect("a word").into())
                .collect()
        };
        let of_kernel = rows.iter().filter(|row| row["of_kernel"] == true).map(|row| Choice {
            key: row["key"].as_str().expect("a choice has a key").into(),
            values: words(&row["values"]),
            needs: words(&row["needs"]),
        });
        Choices(of_kernel.collect())
    }

    /// One more need, which the list does not have because it is of `run` and not of every kernel.
    pub fn add_need(&mut self, key: &str, needs: &str) {
        let choice = self.0.iter_mut().find(|choice| choice.key == key).expect("the choice is there");
        choice.needs.push(needs.into());
    }

    fn place(&self, key: &str) -> usize {
        self.0.iter().position(|choice| choice.key == key).expect("what is needed is a choice")
    }

    fn is_in(&self, (choice, value): Chosen) -> bool {
        !["off", "none"].contains(&self.0[choice].values[value].as_str())
    }

    /// Whether the part cannot be without the other one, directly or through a third.
    fn depends(&self, part: usize, on: usize) -> bool {
        let needs = self.0[part].needs.iter().map(|key| self.place(key));
        needs.into_iter().any(|next| next == on || self.depends(next, on))
    }

    fn can_meet(&self, one: Chosen, other: Chosen) -> bool {
        let breaks = |a: Chosen, b: Chosen| self.is_in(a) && !self.is_in(b) && self.depends(a.0, b.0);
        !breaks(one, other) && !breaks(other, one)
    }

    fn pairs(&self) -> impl Iterator<Item = Pair> {
        let all = |choice: usize| (0..self.0[choice].values.len()).map(move |value| (choice, value));
        (0..self.0.len()).flat_map(move |one| {
            (one + 1..self.0.len())
                .flat_map(move |other| all(one).flat_map(move |a| all(other).map(move |b| (a, b))))
        })
    }

    fn words(&self, (choice, value): Chosen) -> (String, String) {
        (self.0[choice].key.clone(), self.0[choice].values[value].clone())
    }

    /// Pairs that no kernel can have.
    pub fn refused(&self) -> Vec<[(String, String); 2]> {
        let never = self.pairs().filter(|(one, other)| !self.can_meet(*one, *other));
        never.map(|(one, other)| [self.words(one), self.words(other)]).collect()
    }

    /// Rows that have every pair that a kernel can have, the first ones with the most of them; the same ones at each call.
    pub fn rows(&self) -> Vec<Row> {
        let mut left: BTreeSet<Pair> =
            self.pairs().filter(|(one, other)| self.can_meet(*one, *other)).collect();
        let mut rows = Vec::new();
        while let Some(first) = left.first().copied() {
            let row = self.row(first, &left);
            left.retain(|(one, other)| !(row[one.0] == one.1 && row[other.0] == other.1));
            let words = row.iter().enumerate().map(|(choice, value)| self.words((choice, *value)));
            rows.push(words.collect());
        }
        rows
    }

    /// A row with this pair: each further choice gets the value that brings the most pairs that are left.
    fn row(&self, (one, other): Pair, left: &BTreeSet<Pair>) -> Vec<usize> {
        let mut chosen = vec![one, other];
        for choice in (0..self.0.len()).filter(|choice| ![one.0, other.0].contains(choice)) {
            // What two of the chosen ones force is among these: needs go through thirds.
            let fits = (0..self.0[choice].values.len())
                .map(|value| (choice, value))
                .filter(|next| chosen.iter().all(|earlier| self.can_meet(*earlier, *next)));
            let brings = |next: &Chosen| {
                let pair = |earlier: &&Chosen| left.contains(&(**earlier.min(&next), **earlier.max(&next)));
                chosen.iter().filter(pair).count()
            };
            // The first of those that bring as many.
            let best = fits.rev().max_by_key(brings).expect("a part can be left out, or be there");
            chosen.push(best);
        }
        chosen.sort_unstable();
        chosen.into_iter().map(|(_, value)| value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"[
        {"key": "alloc", "values": ["tlsf", "buddy", "tiny"], "about": "", "needs": [], "of_kernel": true},
        {"key": "volumes", "values": ["on", "off"], "about": "", "needs": [], "of_kernel": true},
        {"key": "overlay", "values": ["on", "off", "echo"], "about": "", "needs": ["volumes"], "of_kernel": true},
        {"key": "trace", "values": ["on", "off"], "about": "", "needs": ["overlay"], "of_kernel": true},
        {"key": "malloc", "values": ["musl"], "about": "", "needs": [], "of_kernel": false}
    ]"#;

    fn pair(one: (&str, &str), other: (&str, &str)) -> [(String, String); 2] {
        [one, other].map(|(key, value)| (key.into(), value.into()))
    }

    #[test]
    fn what_cannot_meet_is_told_through_thirds() {
        assert_eq!(
            Choices::read(LIST).refused(),
            [
                pair(("volumes", "off"), ("overlay", "on")),
                pair(("volumes", "off"), ("overlay", "echo")),
                pair(("volumes", "off"), ("trace", "on")),
                pair(("overlay", "off"), ("trace", "on")),
            ]
        );
    }

    #[test]
    fn every_pair_that_can_be_is_in_a_row_and_no_row_has_another_one() {
        let choices = Choices::read(LIST);
        let (rows, refused) = (choices.rows(), choices.refused());
        let has = |row: &Row, pair: &[(String, String); 2]| pair.iter().all(|chosen| row.contains(chosen));
        for (one, other) in choices.pairs() {
            let pair = [choices.words(one), choices.words(other)];
            let found = rows.iter().filter(|row| has(row, &pair)).count();
            assert_eq!(found == 0, refused.contains(&pair), "{pair:?} in {rows:?}");
        }
        // Two choices of three values: no fewer than nine rows.
        assert!((9..=11).contains(&rows.len()), "{rows:?}");
    }
}
