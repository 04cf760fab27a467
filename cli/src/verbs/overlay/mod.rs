// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith overlay`: files and programs for running machines.

use crate::{fault::Result, session};
use unilith_machine::store::Store;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum What {
    /// Print the directory of this host that a machine sees at /overlay
    Dir { machine: String },
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    match &args.what {
        What::Dir { machine } => {
            let machine = session::find(store, machine)?;
            println!("{}", machine.folder.join(unilith_overlay::socket::FILES).display());
        }
    }
    Ok(0)
}
