// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith network`: networks, whose machines reach each other by name.

use crate::{
    fault::{Fault, Result},
    names,
    output::say,
    template::Template,
};
use serde::Serialize;
use std::collections::BTreeMap;
use unilith_machine::{
    networks::{self, Named},
    store::{Machine, Store},
};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum What {
    /// List networks
    #[command(alias = "list")]
    Ls {
        /// Only names
        #[arg(short, long)]
        quiet: bool,
        /// Only these fields, e.g. {{.Name}} {{.Id}} {{.Machines}}; `table` before them prints a header
        #[arg(long, value_name = "TEMPLATE")]
        format: Option<String>,
    },
    /// Make a network
    Create {
        /// Words of yours; may repeat
        #[arg(long, value_name = "KEY=VALUE")]
        label: Vec<String>,
        /// Accepted for docker's users: there is one kind
        #[arg(short, long, hide = true, value_parser = ["bridge"])]
        driver: Option<String>,
        name: String,
    },
    /// Which machines networks have, with their addresses and names, as JSON
    Inspect {
        /// Only these fields, e.g. {{.Name}} {{.Id}}
        #[arg(short, long, value_name = "TEMPLATE")]
        format: Option<String>,
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Remove networks
    #[command(alias = "remove")]
    Rm {
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Remove the networks that no machine is in, not even one that has ended
    Prune {
        /// Accepted for docker's users: nothing is asked
        #[arg(short, long, hide = true)]
        force: bool,
    },
    /// Make a machine a member of a network: at once if it runs, else when it is started
    Connect {
        /// A further name of the machine in this network; may repeat
        #[arg(long, value_name = "NAME")]
        alias: Vec<String>,
        network: String,
        machine: String,
    },
    /// Take a machine out of a network, with the connections that it has there
    Disconnect {
        /// Accepted for docker's users: nothing keeps a machine in a network
        #[arg(short, long, hide = true)]
        force: bool,
        network: String,
        machine: String,
    },
}

#[derive(Serialize)]
struct Entry {
    name: String,
    id: String,
    created_ms: u64,
    labels: BTreeMap<String, String>,
    machines: Vec<Member>,
}

#[derive(Serialize)]
struct Member {
    name: String,
    id: String,
    /// None: it has ended.
    address: Option<String>,
    /// Its further names in this network.
    aliases: Vec<String>,
}

fn entry(network: Named, members: &[Machine]) -> Entry {
    let member = |m: &Machine| Member {
        name: m.spec.name.clone(),
        id: m.spec.id.clone(),
        address: m.state.address().filter(|_| m.state.phase.is_alive()).map(|a| a.to_string()),
        aliases: m
            .spec
            .networks
            .iter()
            .filter(|n| n.id == network.id)
            .flat_map(|n| n.aliases.clone())
            .collect(),
    };
    let machines = members.iter().map(member).collect();
    let Named { id, name, created_ms, labels } = network;
    Entry { name, id, created_ms, labels, machines }
}

/// What `{{.Machines}}` and the others are.
#[derive(Serialize)]
struct Fields {
    name: String,
    id: String,
    machines: String,
    labels: String,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    match &args.what {
        What::Ls { quiet: true, .. } => store.networks()?.iter().for_each(|n| say!("{}", n.name)),
        What::Ls { format, .. } => list(store, format.as_deref())?,
        What::Connect { alias, network, machine } => {
            let (machine, network) = (store.find(machine)?, store.network(network)?);
            store.connect(&machine, &network, crate::connect::aliases(alias, &machine.spec)?)?;
        }
        What::Disconnect { network, machine, .. } => {
            let machine = store.find(machine)?;
            // One that was removed while the machine had ended is still in its record.
            let name = store.network(network).map_or_else(|_| network.clone(), |network| network.name);
            store.disconnect(&machine, &name)?;
        }
        What::Create { label, name, .. } => say!("{}", create(store, name, label)?.id),
        What::Inspect { format, names } => {
            let mut found = Vec::new();
            let code = super::for_each_name(names, |name| {
                let network = store.network(name)?;
                let members = store.members(&network)?;
                found.push(entry(network, &members));
                Ok(())
            });
            match format {
                Some(format) => super::print_formatted(&found, &Template::parse(format)?)?,
                None => super::print_json(&found)?,
            }
            return code;
        }
        What::Rm { names } => {
            return super::for_each_name(names, |name| {
                store.remove_network(&store.network(name)?)?;
                say!("{name}");
                Ok(())
            });
        }
        What::Prune { .. } => {
            for network in store.networks()? {
                if store.members(&network)?.is_empty() {
                    store.remove_network(&network)?;
                    say!("{}", network.name);
                }
            }
        }
    }
    Ok(0)
}

/// Makes a network whose name is free and no word of `--network`.
pub fn create(store: &Store, name: &str, labels: &[String]) -> Result<Named> {
    let wrong = |why: &str| Fault::new(format!("network {name}: {why}"));
    if !names::is_valid(name) {
        return Err(wrong("a name begins with a letter or digit and has letters, digits, _ . - only"));
    }
    if networks::is_reserved(name) {
        return Err(wrong("the word means something else after --network; choose another name"));
    }
    let label = |label: &String| {
        let (key, value) = label.split_once('=').unwrap_or((label, ""));
        (key.to_string(), value.to_string())
    };
    Ok(store.create_network(names::id(), name, labels.iter().map(label).collect())?)
}

fn list(store: &Store, format: Option<&str>) -> Result<()> {
    let mut fields = Vec::new();
    for network in store.networks()? {
        let members = store.members(&network)?;
        let machines: Vec<&str> = members.iter().map(|m| m.spec.name.as_str()).collect();
        let labels = network.labels.iter().map(|(k, v)| format!("{k}={v}"));
        fields.push(Fields {
            machines: machines.join(", "),
            labels: labels.collect::<Vec<_>>().join(","),
            id: network.id,
            name: network.name,
        });
    }
    if let Some(format) = format {
        return super::print_formatted(&fields, &Template::parse(format)?);
    }
    let header = ["ID", "NAME", "MACHINES"].map(String::from).to_vec();
    let rows = fields.into_iter().map(|f| vec![f.id, f.name, f.machines]);
    super::print_table(&std::iter::once(header).chain(rows).collect::<Vec<_>>());
    Ok(())
}
