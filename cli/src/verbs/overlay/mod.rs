// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith overlay`: files and programs for running machines.

mod build;

use crate::output::say;
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
    /// Make a program for running machines: an object for `unilith exec NAME run FILE`
    Build(build::Args),
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    match &args.what {
        What::Build(args) => return build::act(args),
        What::Dir { machine } => {
            let machine = session::find(store, machine)?;
            say!("{}", machine.folder.join(unilith_overlay::socket::FILES).display());
        }
    }
    Ok(0)
}
