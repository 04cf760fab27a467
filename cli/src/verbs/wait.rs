// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith wait`.

use crate::fault::Result;
use crate::output::say;
use unilith_machine::store::Store;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[arg(required = true)]
    machines: Vec<String>,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    super::for_each_name(&args.machines, |name| {
        // Without a deadline there is always an outcome.
        if let Some(outcome) = store.find(name)?.wait(None)? {
            say!("{}", outcome.code);
        }
        Ok(())
    })
}
