// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith rmi`: names of pulled images, and what nobody has any more with the last one.

use crate::{
    fault::{Fault, Result},
    output::say,
    prepare, registries,
};
use unilith_machine::{record::Phase, store::Store};
use unilith_registry::{Name, Record};

/// Digits of an id that are enough.
const LEAST_DIGITS: usize = 4;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Also images of machines that have ended, which cannot be started from the registry's image again
    #[arg(short, long)]
    force: bool,
    /// The name of a pulled image, or an id of `unilith images`
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    super::for_each_name(&args.images, |text| remove(store, text, args.force))
}

/// The pulled images of a name, or of the beginning of an id.
pub fn matching(all: &[Record], text: &str) -> Vec<Record> {
    if let Ok(name) = Name::parse(text) {
        let name = name.to_string();
        if let Some(found) = all.iter().find(|r| r.name == name) {
            return vec![found.clone()];
        }
    }
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    if digits.len() < LEAST_DIGITS || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Vec::new();
    }
    let begins = |digest: &str| digest.strip_prefix("sha256:").is_some_and(|hex| hex.starts_with(digits));
    let fits = |r: &&Record| begins(&r.config) || begins(&r.manifest) || begins(&r.digest);
    all.iter().filter(fits).cloned().collect()
}

fn remove(store: &Store, text: &str, force: bool) -> Result<()> {
    let registries = registries::registries()?;
    let all = registries.store.list();
    let found = matching(&all, text);
    if found.is_empty() {
        return remove_gathered(store, text);
    }
    if found.iter().any(|r| r.config != found[0].config) {
        return Err(Fault::new(format!("{text}: several images begin so: write more of the id")));
    }
    let machines = store.list()?;
    for record in &found {
        let is_last = all.iter().filter(|r| r.manifest == record.manifest).count() == found.len();
        let uses = |m: &&unilith_machine::store::Machine| m.spec.image.as_deref() == Some(&record.manifest);
        let user = machines.iter().filter(uses).find(|m| !force || m.state.phase != Phase::Exited);
        if let Some(user) = user.filter(|_| is_last) {
            return Err(Fault::new(format!(
                "{}: the machine {} has it: `unilith rm {}` first",
                record.name, user.spec.name, user.spec.name
            )));
        }
    }
    let in_use = super::images::in_use(store)?;
    for record in &found {
        registries.store.forget(&record.name)?;
        say!("Untagged: {}", record.name);
        if registries.store.list().iter().all(|r| r.manifest != record.manifest) {
            let roots = prepare::cache()?.images().into_iter();
            let its = roots.filter(|i| i.manifest.as_ref() == Some(&record.manifest));
            for root in its.filter(|i| !in_use.contains(&i.path)) {
                // A cache that is read-only keeps it; nobody finds it by a name any more.
                let _ = std::fs::remove_file(root.path);
            }
            say!("Deleted: {}", record.config);
        }
    }
    registries.store.collect();
    Ok(())
}

/// An image of the catalogue, of packages or of a directory, which is gathered again when it is run again.
fn remove_gathered(store: &Store, text: &str) -> Result<()> {
    let digits = text.len() >= LEAST_DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit());
    let fits =
        |i: &unilith_image::Cached| i.name.as_deref() == Some(text) || (digits && i.digest.starts_with(text));
    let found: Vec<_> = prepare::cache()?.images().into_iter().filter(fits).collect();
    if found.is_empty() {
        return Err(Fault::new(format!("{text}: no such image; `unilith images` lists them")));
    }
    let machines = store.list()?;
    for image in found {
        if let Some(user) = machines.iter().find(|m| m.spec.initrd == image.path) {
            let name = &user.spec.name;
            return Err(Fault::new(format!("{text}: the machine {name} has it: `unilith rm {name}` first")));
        }
        std::fs::remove_file(&image.path).map_err(crate::fault::file("remove", &image.path))?;
        say!("Deleted: sha256:{}", image.digest);
    }
    Ok(())
}
