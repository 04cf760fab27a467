// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith apps`: the catalogue, and the packages that were tried as anybody would type them.

use super::say;
use crate::{fault::Result, prepare};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use unilith_image::Works;

/// Results of tests/tests/trial.rs: what was typed, the day, what came of it. The first line has the oldest day.
const TRIALS: [(&str, &str); 2] = [
    ("process", include_str!("../../../tests/trial/results-process.txt")),
    ("microvm", include_str!("../../../tests/trial/results-microvm.txt")),
];

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Packages of Debian's too, with what came of trying each
    #[arg(short, long)]
    all: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    name: String,
    about: String,
    works: Option<Works>,
    note: String,
    ports: Vec<String>,
}

#[derive(Serialize)]
struct Trial {
    machine: &'static str,
    /// When the first of them was tried, as YYYY-MM-DD.
    date: &'static str,
    /// By what is typed behind `unilith run`: `works`, or why not.
    results: BTreeMap<&'static str, &'static str>,
}

impl Trial {
    fn works(&self) -> usize {
        self.results.values().filter(|result| **result == "works").count()
    }
}

fn trials() -> Vec<Trial> {
    let result = |line: &'static str| {
        let (words, rest) = line.split_once('\t')?;
        Some((words, rest.split_once('\t')?.1))
    };
    let trial = |(machine, text): (&'static str, &'static str)| Trial {
        machine,
        date: text.split(' ').nth(1).unwrap_or_default(),
        results: text.lines().filter_map(result).collect(),
    };
    TRIALS.map(trial).into()
}

pub fn act(args: &Args) -> Result<u8> {
    let catalogue = prepare::catalogue()?;
    let mut rows = Vec::new();
    for name in catalogue.names() {
        let (entry, _) = catalogue.entry(&name)?;
        let (works, note) = entry.state.map_or((None, String::new()), |s| (Some(s.works), s.note));
        let ports = entry.ports.iter().map(ToString::to_string).collect();
        rows.push(Row { name, about: entry.about.unwrap_or_default(), works, note, ports });
    }
    let trials = trials();
    if args.json {
        #[derive(Serialize)]
        struct All {
            catalogue: Vec<Row>,
            trials: Vec<Trial>,
        }
        if args.all {
            super::print_json(&All { catalogue: rows, trials })?;
        } else {
            super::print_json(&rows)?;
        }
        return Ok(0);
    }
    let word = |works| match works {
        Some(Works::Yes) => "yes",
        Some(Works::Partly) => "partly",
        Some(Works::No) => "not yet",
        None => "?",
    };
    let header = ["NAME", "WORKS", "PORTS", "WHAT IT IS"].map(String::from).to_vec();
    let line = |r: &Row| {
        let more = if r.note.is_empty() { String::new() } else { format!(" (tested: {})", r.note) };
        vec![r.name.clone(), word(r.works).into(), r.ports.join(", "), format!("{}{more}", r.about)]
    };
    super::print_table(&std::iter::once(header).chain(rows.iter().map(line)).collect::<Vec<_>>());
    if args.all {
        let header = std::iter::once("RUN").chain(trials.iter().map(|trial| trial.machine));
        let mut table = vec![header.map(str::to_uppercase).collect::<Vec<_>>()];
        for words in trials.iter().flat_map(|trial| trial.results.keys()).collect::<BTreeSet<_>>() {
            let result =
                |trial: &Trial| trial.results.get(words).map_or("not tried", |result| result).to_string();
            table.push(std::iter::once(words.to_string()).chain(trials.iter().map(result)).collect());
        }
        say!("");
        super::print_table(&table);
    }
    say!("");
    for trial in &trials {
        let (works, all) = (trial.works(), trial.results.len());
        say!(
            "Packages of Debian's, `unilith run debian:NAME`: {works} of {all} that were tried work as typed ({}, {})",
            trial.machine,
            trial.date
        );
    }
    if !args.all {
        say!("`unilith apps --all` lists them");
    }
    Ok(0)
}
