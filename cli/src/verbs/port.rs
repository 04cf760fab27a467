// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith port`: where a machine's ports are on this host.

use crate::{
    fault::{Fault, Result},
    output::say,
};
use unilith_machine::{MachineError, store::Store};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    machine: String,
    /// Only this one: PORT, PORT/tcp or PORT/udp
    port: Option<unilith_image::Port>,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let machine = store.find(&args.machine)?;
    if !machine.state.phase.is_alive() {
        return Err(MachineError::NotRunning(machine.spec.name).into());
    }
    let udp = |p: &unilith_network::ports::Publish| p.protocol == unilith_network::ports::Protocol::Udp;
    match args.port {
        None => machine.state.published.iter().for_each(|p| say!("{}/{} -> {}", p.guest, p.protocol, p.at())),
        Some(wanted) => {
            let found =
                machine.state.published.iter().filter(|p| p.guest == wanted.number && udp(p) == wanted.udp);
            let lines: Vec<String> = found.map(|p| p.at().to_string()).collect();
            if lines.is_empty() {
                return Err(Fault::new(format!(
                    "port {wanted} of machine {} is not published; `run -p {wanted}` does that",
                    machine.spec.name
                )));
            }
            lines.iter().for_each(|line| say!("{line}"));
        }
    }
    Ok(0)
}
