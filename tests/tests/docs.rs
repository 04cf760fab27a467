// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that are generated must be what the code says. `UNILITH_UPDATE_DOCS=1 ./unilith test --system docs` writes them anew.

use std::fs;
use syscall_table::{ROWS, Status};
use unilith_tests::{Unilith, root};

#[track_caller]
fn is_up_to_date(page: &str, text: &str) {
    let path = root().join("docs/reference").join(page);
    if std::env::var_os("UNILITH_UPDATE_DOCS").is_some() {
        fs::write(&path, text).expect("docs/ can be written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "docs/reference/{page} is stale: UNILITH_UPDATE_DOCS=1 ./unilith test --system docs"
    );
}

#[test]
fn the_page_of_system_calls_is_the_table() {
    let count = |status| ROWS.iter().filter(|row| row.status == status).count();
    let mut text = format!(
        "# System calls of the micro-library OS\n\n\
         Generated from `micro/posix/table`, which also generates the kernel's dispatch. Of {} calls {} are there in full and {} \
         in part, {} are refused on purpose and {} are missing. A call that is missing answers ENOSYS and shows in \
         `unilith inspect`.\n\n| number | call | status | |\n| --- | --- | --- | --- |\n",
        ROWS.len(),
        count(Status::Full),
        count(Status::Partial),
        count(Status::Refused),
        count(Status::Missing),
    );
    for row in ROWS {
        let status = match row.status {
            Status::Full => "full",
            Status::Partial => "partial",
            Status::Refused => "refused",
            Status::Missing => "missing",
        };
        text.push_str(&format!("| {} | `{}` | {status} | {} |\n", row.number, row.name, row.note));
    }
    is_up_to_date("system-calls.md", &text);
}

#[test]
fn the_page_of_the_command_is_its_help() {
    let unilith = Unilith::new();
    // Help is as wide as the terminal; a page has one width.
    let help = |verb: &[&str]| {
        let mut command = unilith.command(&[verb, &["--help"]].concat());
        unilith_tests::finish(command.env("COLUMNS", "100"), unilith_tests::PATIENCE).ok().out
    };
    let mut text = String::from("# The command\n\nGenerated from `--help`.\n");
    let overview = help(&[]);
    text.push_str(&format!("\n```text\n{}\n```\n", overview.trim_end()));
    let verbs =
        overview.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| l.starts_with("  "));
    let verbs: Vec<&str> =
        verbs.filter(|l| !l.starts_with("   ")).filter_map(|l| l.split_whitespace().next()).collect();
    for verb in verbs {
        text.push_str(&format!("\n## {verb}\n\n```text\n{}\n```\n", help(&[verb]).trim_end()));
    }
    is_up_to_date("command.md", &text);
}
