// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith commit`: an image of what a machine's root file system is now, in a file.

use crate::{
    fault::{Fault, Result},
    instructions,
    output::say,
    snapshot::Root,
};
use std::path::PathBuf;
use unilith_machine::{
    record::{Spec, now_ms},
    store::Store,
    times::timestamp,
};
use unilith_snapshot::{Config, Contents, Empty, HealthConfig, Origin};

const SIGTERM: u8 = 15;

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
The image is a file (an OCI archive), not a tag: `unilith run FILE` takes it, and so do `docker load` and `podman load`. \
It has the files of the machine's root with their owners, modes, times and links, and runs the machine's program with its \
arguments, environment, user and directory. What is in volumes is not in it. Programs go on meanwhile: what a program is \
writing at this moment may be half written in the image.

Examples:
  unilith commit web web.tar && unilith run web.tar
  unilith commit -c 'ENV LANG=C.UTF-8' -c 'CMD [\"nginx\", \"-g\", \"daemon off;\"]' web web.tar
  unilith run $(unilith commit web web.tar)")]
pub struct Args {
    /// Change how the image is run: an instruction of a Dockerfile (CMD, ENTRYPOINT, ENV, EXPOSE, LABEL, STOPSIGNAL, USER or
    /// WORKDIR); may repeat
    #[arg(short, long, value_name = "INSTRUCTION")]
    change: Vec<String>,
    /// Who made it
    #[arg(short, long, value_name = "NAME", default_value = "", hide_default_value = true)]
    author: String,
    /// Why
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    message: String,
    machine: String,
    /// The file to write; what was there is replaced
    #[arg(value_name = "FILE")]
    image: PathBuf,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let path = &args.image;
    if path.is_dir() || path.file_name().is_none() {
        let why = "name a file to write, for example web.tar; images have no tags";
        return Err(Fault { code: 2, message: format!("{}: {why}", path.display()) });
    }
    let root = Root::open(store, &args.machine)?;
    let mut config = config(&root.machine.spec);
    instructions::apply(&mut config, &args.change)?;
    let origin =
        Origin { created: timestamp(now_ms()), author: args.author.clone(), comment: args.message.clone() };
    let pending = root.export(Contents::Present, |archive| {
        unilith_snapshot::write(&root.image, archive, &config, &origin, path)
    })?;
    // Only when the machine has said that it told all.
    let made = pending.finish()?;
    if made.left_out > 0 {
        let (count, what) = (made.left_out, "sockets, FIFOs and device files are not in images");
        eprintln!("unilith: {count} left out: {what}");
    }
    say!("oci:{}", path.display());
    Ok(0)
}

/// How the machine runs its program.
fn config(spec: &Spec) -> Config {
    let ports =
        spec.publish.iter().chain(&spec.offer).map(|port| format!("{}/{}", port.guest, port.protocol));
    Config {
        user: if (spec.uid, spec.gid) == (0, 0) {
            String::new()
        } else {
            format!("{}:{}", spec.uid, spec.gid)
        },
        exposed_ports: ports.map(|port| (port, Empty {})).collect(),
        env: spec.env.iter().map(|(key, value)| format!("{key}={value}")).collect(),
        entrypoint: Vec::new(),
        cmd: spec.args.clone(),
        working_dir: spec.cwd.clone().unwrap_or_default(),
        labels: spec.labels.clone(),
        stop_signal: match spec.stop_signal {
            SIGTERM => String::new(),
            signal => signal.to_string(),
        },
        healthcheck: spec.health.as_ref().map(|check| HealthConfig {
            test: [&["CMD".to_string()], check.command.as_slice()].concat(),
            interval: nanoseconds(check.interval),
            timeout: nanoseconds(check.timeout),
            start_period: nanoseconds(check.start_period),
            start_interval: nanoseconds(check.start_interval),
            retries: check.retries,
        }),
    }
}

/// At most what fits Go's duration.
fn nanoseconds(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000).min(i64::MAX as u64)
}
