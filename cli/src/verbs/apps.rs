// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith apps`.

use crate::{fault::Result, prepare};
use serde::Serialize;
use unilith_image::Works;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
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

pub fn act(args: &Args) -> Result<u8> {
    let catalogue = prepare::catalogue()?;
    let mut rows = Vec::new();
    for name in catalogue.names() {
        let (entry, _) = catalogue.entry(&name)?;
        let (works, note) = entry.state.map_or((None, String::new()), |s| (Some(s.works), s.note));
        let ports = entry.ports.iter().map(ToString::to_string).collect();
        rows.push(Row { name, about: entry.about.unwrap_or_default(), works, note, ports });
    }
    if args.json {
        super::print_json(&rows)?;
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
        let more = if r.note.is_empty() || r.works == Some(Works::Yes) {
            String::new()
        } else {
            format!(" ({})", r.note)
        };
        vec![r.name.clone(), word(r.works).into(), r.ports.join(", "), format!("{}{more}", r.about)]
    };
    super::print_table(&std::iter::once(header).chain(rows.iter().map(line)).collect::<Vec<_>>());
    Ok(0)
}
