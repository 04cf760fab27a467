// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith version`.

use crate::{fault::Result, output::say, template::Template};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Only these fields, e.g. {{.Version}}
    #[arg(long, value_name = "TEMPLATE")]
    format: Option<String>,
}

pub fn act(args: &Args) -> Result<u8> {
    let version = env!("CARGO_PKG_VERSION");
    match &args.format {
        None => say!("unilith {version}"),
        Some(text) => {
            let value = serde_json::json!({"version": version, "client": {"version": version}});
            say!("{}", Template::parse(text)?.fill(&value)?);
        }
    }
    Ok(0)
}
