// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith image`: docker's other way of writing `images`, `pull` and `rmi`, and what is known of a pulled image.

use crate::{
    fault::{Fault, Result},
    registries,
    verbs::{images, pull, rmi},
};
use serde_json::{Value, json};
use unilith_machine::store::Store;

/// Bytes of a configuration.
const MAX_CONFIG: u64 = 8 << 20;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum What {
    /// List images, as `unilith images`
    Ls(images::Args),
    /// Get images, as `unilith pull`
    Pull(pull::Args),
    /// Remove images, as `unilith rmi`
    Rm(rmi::Args),
    /// Everything known about pulled images, as JSON
    Inspect {
        #[arg(required = true, value_name = "IMAGE")]
        images: Vec<String>,
    },
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    match &args.what {
        What::Ls(args) => images::act(store, args),
        What::Pull(args) => pull::act(args),
        What::Rm(args) => rmi::act(store, args),
        What::Inspect { images } => inspect(images),
    }
}

fn inspect(images: &[String]) -> Result<u8> {
    let kept = registries::registries()?.store;
    let all = kept.list();
    let mut out = Vec::new();
    for text in images {
        let found = rmi::matching(&all, text);
        let Some(first) = found.first() else {
            let why = "no such image was pulled; `unilith images` lists them";
            return Err(Fault::new(format!("{text}: {why}")));
        };
        let bytes = kept.read(&first.config, MAX_CONFIG);
        let config: Option<Value> = bytes.and_then(|b| serde_json::from_slice(&b).ok());
        let Some(config) = config else {
            return Err(Fault::new(format!("{text}: damaged: `unilith pull {}` gets it again", first.name)));
        };
        let names: Vec<&str> =
            all.iter().filter(|r| r.config == first.config).map(|r| r.name.as_str()).collect();
        out.push(json!({
            "Id": first.config, "RepoTags": names, "Digest": first.digest, "Manifest": first.manifest,
            "Created": first.created, "Size": first.size(), "Architecture": config["architecture"],
            "Os": config["os"], "Config": config["config"], "RootFS": config["rootfs"]
        }));
    }
    super::print_json(&out)?;
    Ok(0)
}
