// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith menu --list`: the choices without a terminal.

use crate::{
    fault::Result,
    kernel::choices::{self, CHOICES, Choice},
    verbs::{print_json, print_table},
};
use serde::Serialize;

/// A choice as scripts read it.
#[derive(Serialize)]
struct Row {
    key: &'static str,
    /// The first one is the default.
    values: Vec<&'static str>,
    about: &'static str,
    /// Choices that have to be in the kernel beside this one.
    needs: Vec<&'static str>,
    /// Whether it is about the kernel, or about a program that is linked with it.
    of_kernel: bool,
}

impl Row {
    fn of(choice: &Choice) -> Row {
        Row {
            key: choice.key,
            values: choice.words(),
            about: choice.about,
            needs: choices::needs(choice.key).0,
            of_kernel: choice.is_of_kernel(),
        }
    }
}

pub fn act(json: bool) -> Result<u8> {
    let rows: Vec<Row> = CHOICES.iter().map(Row::of).collect();
    if json {
        print_json(&rows)?;
        return Ok(0);
    }
    let mut table = vec![["CHOICE", "VALUES", "NEEDS", "ABOUT"].map(String::from).to_vec()];
    table.extend(
        rows.iter().map(|row| {
            vec![row.key.into(), row.values.join("|"), row.needs.join(", "), row.about.to_string()]
        }),
    );
    print_table(&table);
    Ok(0)
}
