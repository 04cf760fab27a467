// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith system df` and `unilith system prune`: what the cache takes, and giving it back.

use crate::{
    fault::{Fault, Result},
    output::say,
    prepare,
    verbs::stats::bytes,
};
use serde::Serialize;
use std::{
    collections::BTreeSet,
    fs,
    io::{self, BufRead, IsTerminal, Write},
};
use unilith_image::Size;
use unilith_machine::{
    record::Phase,
    store::{Machine, Store},
};

/// Bytes of images and packages that the cache keeps; what was used longest ago goes first.
const BUDGET: u64 = 10 << 30;
/// The variable that names another budget.
const BUDGET_VARIABLE: &str = "UNILITH_CACHE_BUDGET";

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum What {
    /// Show what the cache and machines take of the disk
    Df {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove machines that have ended, and images that no machine uses
    Prune {
        /// Also packages and pulled images that no machine has: they are fetched again when they are needed
        #[arg(short, long)]
        all: bool,
        /// Do not ask
        #[arg(short, long)]
        force: bool,
    },
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    match args.what {
        What::Df { json } => df(store, json),
        What::Prune { all, force } => prune(store, all, force),
    }
}

#[derive(Serialize)]
struct Row {
    what: String,
    count: u64,
    bytes: u64,
    /// What `prune` would free.
    reclaimable: u64,
}

fn df(store: &Store, json: bool) -> Result<u8> {
    let cache = prepare::cache()?;
    let in_use = super::images::in_use(store)?;
    let unused: u64 = cache.images().iter().filter(|i| !in_use.contains(&i.path)).map(|i| i.size).sum();
    let pulled = crate::registries::registries()?.store;
    let (_, not_used) = pulled.sizes(&manifests_in_use(store)?);
    let mut rows: Vec<Row> = cache
        .parts()
        .into_iter()
        .map(|part| {
            let reclaimable = match part.name {
                "images" => unused.min(part.size),
                "packages" => part.size,
                "registry images" => not_used.min(part.size),
                _ => 0,
            };
            Row { what: part.name.into(), count: part.files, bytes: part.size, reclaimable }
        })
        .collect();
    let machines = store.list()?;
    let ended = |m: &&Machine| m.state.phase == Phase::Exited;
    rows.push(Row {
        what: "machines".into(),
        count: machines.len() as u64,
        bytes: machines.iter().map(size).sum(),
        reclaimable: machines.iter().filter(ended).map(size).sum(),
    });
    if json {
        super::print_json(&rows)?;
        return Ok(0);
    }
    let header = ["WHAT", "FILES", "SIZE", "RECLAIMABLE"].map(String::from).to_vec();
    let line = |r: &Row| vec![r.what.clone(), r.count.to_string(), bytes(r.bytes), bytes(r.reclaimable)];
    super::print_table(&std::iter::once(header).chain(rows.iter().map(line)).collect::<Vec<_>>());
    Ok(0)
}

/// Bytes of a machine's records and logs.
fn size(machine: &Machine) -> u64 {
    let entries = fs::read_dir(&machine.folder).into_iter().flatten().flatten();
    entries.filter_map(|e| e.metadata().ok()).filter(fs::Metadata::is_file).map(|m| m.len()).sum()
}

fn prune(store: &Store, all: bool, force: bool) -> Result<u8> {
    if !force && !agreed(all)? {
        return Ok(1);
    }
    let mut freed = 0;
    for machine in store.list()?.iter().filter(|m| m.state.phase == Phase::Exited) {
        // One that is started again at this moment is held by its supervisor.
        if let Some(held) = machine.try_hold()?.filter(|held| held.state.phase == Phase::Exited) {
            freed += size(machine);
            held.remove()?;
            say!("{}", machine.spec.name);
        }
    }
    let cache = prepare::cache()?;
    let in_use = super::images::in_use(store)?;
    freed += cache.sweep();
    freed += cache.trim_images(&in_use);
    let pulled = crate::registries::registries()?.store;
    if all {
        freed += cache.trim(0, &in_use);
        let manifests = manifests_in_use(store)?;
        for record in pulled.list().iter().filter(|r| !manifests.contains(&r.manifest)) {
            pulled.forget(&record.name)?;
            say!("{}", record.name);
        }
    }
    freed += pulled.collect();
    say!("{} freed", bytes(freed));
    Ok(0)
}

/// Manifests of pulled images that machines have, also those that have ended.
fn manifests_in_use(store: &Store) -> Result<BTreeSet<String>> {
    Ok(store.list()?.into_iter().filter_map(|m| m.spec.image).collect())
}

fn agreed(all: bool) -> Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(Fault::new("there is nobody to ask: add -f"));
    }
    let more = if all { ", and all packages and pulled images that no machine has" } else { "" };
    eprint!(
        "unilith: removes machines that have ended, and images that no machine uses{more}. Go on? [y/N] "
    );
    let mut line = String::new();
    let read = io::stderr().flush().and_then(|()| io::stdin().lock().read_line(&mut line));
    read.map_err(|e| Fault::new(format!("cannot ask: {e}")))?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Keeps the cache within its budget, after something was added. A terminal is told: it is no error of the program, whose
/// standard error a script may read.
pub fn keep_budget(store: &Store) -> Result<()> {
    let budget = match std::env::var(BUDGET_VARIABLE) {
        Err(_) => BUDGET,
        Ok(text) => text.parse::<Size>().map_err(|e| Fault::new(format!("{BUDGET_VARIABLE}: {e}")))?.0,
    };
    let freed = prepare::cache()?.trim(budget, &super::images::in_use(store)?);
    if freed > 0 && io::stderr().is_terminal() {
        eprintln!(
            "unilith: the cache was over its budget of {}: {} of what was used longest ago are gone",
            bytes(budget),
            bytes(freed)
        );
    }
    Ok(())
}
