// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith images`: the images in the cache.

use crate::{fault::Result, output::say, prepare, template::Template};
use serde::Serialize;
use std::collections::BTreeSet;
use unilith_machine::{
    record::{Phase, now_ms},
    store::Store,
};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Only digests
    #[arg(short, long)]
    quiet: bool,
    /// Only these fields, e.g. {{.Repository}} {{.Size}}
    #[arg(long, value_name = "TEMPLATE")]
    format: Option<String>,
    /// Accepted for docker's users: nothing is shortened
    #[arg(long, hide = true)]
    no_trunc: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Row {
    repository: String,
    id: String,
    /// When it was used last; of a pulled image: when it was pulled.
    used: String,
    size: String,
    bytes: u64,
    /// Machines that have it, ended ones too.
    machines: Vec<String>,
    running: bool,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let machines = store.list()?;
    let mut rows = Vec::new();
    let pulled = crate::registries::registries()?.store.list();
    let mut roots = prepare::cache()?.images();
    for record in &pulled {
        let its: Vec<_> =
            machines.iter().filter(|m| m.spec.image.as_ref() == Some(&record.manifest)).collect();
        let unpacked = roots.iter().filter(|r| r.manifest.as_ref() == Some(&record.manifest));
        let size = record.size() + unpacked.map(|r| r.size).sum::<u64>();
        let seconds = now_ms().saturating_sub(record.pulled_ms) / 1000;
        rows.push(Row {
            repository: record.name.clone(),
            id: record.config.trim_start_matches("sha256:").chars().take(12).collect(),
            used: format!("{} ago", super::ps::duration(seconds)),
            size: super::stats::bytes(size),
            bytes: size,
            running: its.iter().any(|m| m.state.phase != Phase::Exited),
            machines: its.iter().map(|m| m.spec.name.clone()).collect(),
        });
    }
    // What a pulled image was unpacked to is a part of that.
    roots
        .retain(|r| r.manifest.is_none() || !pulled.iter().any(|p| r.manifest.as_ref() == Some(&p.manifest)));
    for image in roots {
        let its: Vec<_> = machines.iter().filter(|m| m.spec.initrd == image.path).collect();
        let programs: BTreeSet<&str> = its.iter().map(|m| m.spec.program.as_str()).collect();
        let program = programs.first().map(|p| (*p).to_string());
        let seconds = image.used.elapsed().map_or(0, |age| age.as_secs());
        rows.push(Row {
            repository: image.name.or(program).unwrap_or_else(|| "-".into()),
            id: image.digest.chars().take(12).collect(),
            used: format!("{} ago", super::ps::duration(seconds)),
            size: super::stats::bytes(image.size),
            bytes: image.size,
            running: its.iter().any(|m| m.state.phase != Phase::Exited),
            machines: its.iter().map(|m| m.spec.name.clone()).collect(),
        });
    }
    if args.json {
        super::print_json(&rows)?;
    } else if args.quiet {
        rows.iter().for_each(|r| say!("{}", r.id));
    } else if let Some(format) = &args.format {
        super::print_formatted(&rows, &Template::parse(format)?)?;
    } else {
        let header = ["PROGRAM", "ID", "USED", "SIZE", "MACHINES"].map(String::from).to_vec();
        let line = |r: &Row| {
            vec![r.repository.clone(), r.id.clone(), r.used.clone(), r.size.clone(), r.machines.join(", ")]
        };
        super::print_table(&std::iter::once(header).chain(rows.iter().map(line)).collect::<Vec<_>>());
    }
    Ok(0)
}

/// Files of the cache that machines have, also those that have ended: they can be started again.
pub fn in_use(store: &Store) -> Result<BTreeSet<std::path::PathBuf>> {
    let machines = store.list()?;
    Ok(machines.into_iter().map(|m| m.spec.initrd).collect())
}
