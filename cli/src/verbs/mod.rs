// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The verbs, one file each: `Args` is its part of the command line, `act` does it and returns the exit code.

pub mod apps;
pub mod attach;
pub mod bench;
pub mod build;
pub mod check;
pub mod completions;
pub mod doctor;
pub mod exec;
pub mod gdb;
pub mod inspect;
pub mod linux;
pub mod logs;
pub mod overlay;
pub mod profile;
pub mod ps;
pub mod rm;
pub mod run;
pub mod stop;
pub mod supervise;
pub mod test;
pub mod top;
pub mod trace;
pub mod wait;

use crate::fault::{Fault, Result};
use crate::output::say;

/// Does `each` for every name; goes on after an error, prints all of them, and fails with the last.
fn for_each_name(names: &[String], mut each: impl FnMut(&str) -> Result<()>) -> Result<u8> {
    let mut last: Option<Fault> = None;
    for name in names {
        if let Err(fault) = each(name)
            && let Some(earlier) = last.replace(fault)
        {
            eprintln!("unilith: {earlier}");
        }
    }
    last.map_or(Ok(0), Err)
}

/// Prints a value as indented JSON.
fn print_json(value: &impl serde::Serialize) -> Result<()> {
    let text =
        serde_json::to_string_pretty(value).map_err(|e| Fault::new(format!("cannot write JSON: {e}")))?;
    say!("{text}");
    Ok(())
}

/// Columns as wide as they need to be; the last one is not padded.
fn print_table(rows: &[Vec<String>]) {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|r| r[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        say!("{}", cells.collect::<Vec<_>>().join("   ").trim_end());
    }
}
