// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith rename`.

use crate::{
    fault::{Fault, Result},
    names,
};
use unilith_machine::store::Store;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    machine: String,
    name: String,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    if !names::is_valid(&args.name) {
        return Err(Fault::new(format!(
            "{}: a name begins with a letter or digit and has letters, digits, _ . - only",
            args.name
        )));
    }
    store.rename(&store.find(&args.machine)?, &args.name)?;
    Ok(0)
}
