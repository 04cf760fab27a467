// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith pull`: images from registries into the store of this user.

use crate::{fault::Result, output::say, progress::Progress, registries, verbs::stats::bytes};

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
`unilith run` gets what it lacks by itself; this gets what a name stands for now. Names are docker's: without a registry they are \
Docker Hub's, without a tag `latest`. Credentials are those of `unilith login`, docker and podman; mirrors and registries without TLS \
are read from registries.conf. Of images for several architectures linux/amd64 is taken.

Examples:
  unilith pull redis:7
  unilith pull quay.io/team/tool@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  unilith run --pull always localhost:5000/redis:7")]
pub struct Args {
    /// Print only the names
    #[arg(short, long)]
    quiet: bool,
    #[arg(required = true, value_name = "IMAGE")]
    images: Vec<String>,
}

pub fn act(args: &Args) -> Result<u8> {
    super::for_each_name(&args.images, |text| {
        let progress = Progress::new();
        let pulled = registries::pull(text, &progress)?;
        drop(progress);
        for note in &pulled.notes {
            eprintln!("unilith: {note}");
        }
        let record = &pulled.record;
        if !args.quiet {
            eprintln!("unilith: {} of {} fetched", bytes(pulled.fetched), bytes(record.size()));
            say!("{}", record.digest);
        }
        say!("{}", record.name);
        Ok(())
    })
}
