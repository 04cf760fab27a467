// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The size of the series, which `docs/explanation/ukl.md` compares with the papers', is what the patches are.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{collections::BTreeSet, fs, path::Path};

const PAGE: &str = "docs/explanation/ukl.md";
/// Rows of its table: what, which patches, and the paper's size of it (UKL, EuroSys '23, section 5.1 and table 1).
const ROWS: [(&str, std::ops::RangeInclusive<usize>, &str); 5] = [
    ("programs at CPL 0", 1..=5, "base model: 550 lines, 33 files; Kernel Mode Linux: 3177, 70"),
    ("all options", 1..=10, "base and all options: 1250 lines"),
    ("of these, shortcuts to TCP and devices", 9..=9, "a library of the program's, not counted"),
    ("programs that are linked into the kernel", 11..=13, "in the base model"),
    ("changed code under emulation, at every level", 14..=14, "none"),
];

/// Lines that a patch adds and the files it touches.
fn size(text: &str) -> (usize, BTreeSet<&str>) {
    // Before it are the message and a summary.
    let diff = &text[text.find("\ndiff --git ").unwrap()..];
    let added = diff.lines().filter(|l| l.starts_with('+') && !l.starts_with("+++ ")).count();
    let files = diff.lines().filter_map(|l| l.strip_prefix("diff --git ")?.split(' ').next()).collect();
    (added, files)
}

#[test]
fn the_page_gives_the_size_of_the_series() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let entries = fs::read_dir(root.join("linux/patches")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "patch")).collect();
    paths.sort();
    let all: Vec<String> = paths.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    assert_eq!(all.len(), 14, "a patch was added or is gone: which row of the table is it of?");
    let table: String = ROWS.iter().fold(
        "| | lines added | files changed | paper |\n| --- | --- | --- | --- |\n".into(),
        |table, row| {
            let (what, patches, paper) = row.clone();
            let (first, last) = (*patches.start(), *patches.end());
            let sizes: Vec<_> = all[first - 1..last].iter().map(|text| size(text)).collect();
            let lines: usize = sizes.iter().map(|(added, _)| added).sum();
            let files: BTreeSet<&str> = sizes.into_iter().flat_map(|(_, files)| files).collect();
            let which =
                if first == last { format!("patch {first}") } else { format!("patches {first} to {last}") };
            format!("{table}| {what} ({which}) | {lines} | {} | {paper} |\n", files.len())
        },
    );
    let page = fs::read_to_string(root.join(PAGE)).unwrap();
    assert!(page.contains(&table), "{PAGE} should have this table:\n{table}");
}
