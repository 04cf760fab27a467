// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The size of the series on each Linux, which `docs/explanation/ukl.md` compares with the papers', is what the patches are.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::RangeInclusive,
    path::Path,
};

const PAGE: &str = "docs/explanation/ukl.md";
/// Rows of its table: what, which patches, and the paper's size of it (UKL, EuroSys '23, section 5.1 and table 1).
const ROWS: [(&str, RangeInclusive<usize>, &str); 5] = [
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

/// The patches of a folder by their names.
fn patches(folder: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let paths = entries.filter(|path| path.extension().is_some_and(|e| e == "patch"));
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_string();
    paths.map(|path| (name(&path), fs::read_to_string(&path).unwrap())).collect()
}

#[test]
fn the_page_gives_the_size_of_the_series() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let folder = root.join("linux/patches");
    let shared = patches(&folder);
    let mut newer = shared.clone();
    newer.extend(patches(&folder.join("6.12")));
    let [all, newer] = [shared, newer].map(|series| series.into_values().collect::<Vec<String>>());
    assert_eq!(all.len(), 14, "a patch was added or is gone: which row of the table is it of?");
    assert_eq!(newer.len(), 14, "a patch of 6.12 has another name than that of 6.1");
    let sum = |series: &[String], which: &RangeInclusive<usize>| {
        let sizes: Vec<_> = series[which.start() - 1..*which.end()].iter().map(|text| size(text)).collect();
        let lines: usize = sizes.iter().map(|(added, _)| added).sum();
        let files: BTreeSet<String> =
            sizes.into_iter().flat_map(|(_, files)| files).map(str::to_string).collect();
        (lines, files.len())
    };
    let mut table = String::from(
        "| | lines added | files changed | on Linux 6.12 | paper |\n| --- | --- | --- | --- | --- |\n",
    );
    for (what, which, paper) in &ROWS {
        let (first, last) = (which.start(), which.end());
        let named =
            if first == last { format!("patch {first}") } else { format!("patches {first} to {last}") };
        let ((lines, files), (of_newer, files_of_newer)) = (sum(&all, which), sum(&newer, which));
        table +=
            &format!("| {what} ({named}) | {lines} | {files} | {of_newer}, {files_of_newer} | {paper} |\n");
    }
    let page = fs::read_to_string(root.join(PAGE)).unwrap();
    assert!(page.contains(&table), "{PAGE} should have this table:\n{table}");
}
