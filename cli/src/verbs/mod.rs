// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The verbs, one file each: `Args` is its part of the command line, `act` does it and returns the exit code.

pub mod apps;
pub mod attach;
pub mod bench;
pub mod build;
pub mod cc;
pub mod check;
pub mod commit;
pub mod completions;
pub mod compose;
pub mod cp;
pub mod diff;
pub mod doctor;
pub mod events;
pub mod exec;
pub mod gdb;
pub mod generate;
pub mod graph;
pub mod image;
pub mod images;
pub mod inspect;
pub mod linux;
pub mod login;
pub mod logs;
pub mod menu;
pub mod network;
pub mod oci;
pub mod overlay;
pub mod package;
pub mod pause;
pub mod port;
pub mod profile;
pub mod ps;
pub mod pull;
pub mod rename;
pub mod rm;
pub mod rmi;
pub mod run;
pub mod shfs;
pub mod size;
pub mod start;
pub mod stats;
pub mod stop;
pub mod supervise;
pub mod system;
pub mod test;
pub mod top;
pub mod trace;
pub mod update;
pub mod version;
pub mod volume;
pub mod wait;

use crate::fault::{Fault, Result};
use crate::output::say;
use crate::template::Template;

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

/// One line for each row, as `--format` says.
fn print_formatted(rows: &[impl serde::Serialize], template: &Template) -> Result<()> {
    let mut lines = Vec::new();
    if template.table {
        lines.push(template.header());
    }
    for row in rows {
        let value = serde_json::to_value(row).map_err(|e| Fault::new(format!("cannot write JSON: {e}")))?;
        lines.push(template.fill(&value)?);
    }
    if template.table {
        let cells: Vec<Vec<String>> =
            lines.iter().map(|l| l.split('\t').map(str::to_string).collect()).collect();
        print_table(&cells);
    } else {
        lines.iter().for_each(|line| say!("{line}"));
    }
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
