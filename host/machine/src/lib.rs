// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Start, watch and stop machines.
//!
//! A machine is one QEMU process, or one contained process that is the kernel itself, and one *supervisor*: the `unilith run` in the foreground, or a detached copy of the
//! command. The supervisor holds a file lock for as long as it lives; whoever finds a machine without its lock held knows
//! that nobody looks after it any more and cleans up ([`store::Store::sweep`]). Either asks the host's kernel to be killed when its
//! supervisor dies, and the tap device goes with it, so even `kill -9` leaves nothing running.
//!
//! - [`record`]: what a machine is (`machine.json`) and how it does (`state.json`)
//! - [`store`]: where machines are kept, found by name or prefix, and cleaned up
//! - [`accel`]: is there a KVM that really works
//! - [`qemu`]: the QEMU command line
//! - [`contained`]: a process with nothing around it
//! - [`engine`]: the process under a machine, of either kind
//! - [`support`]: what process machines need of this computer
//! - [`boot`]: what the kernel is given
//! - [`output`]: what a machine sends, read without bound on time and with bounds on memory
//! - [`lines`], [`console_log`]: lines of a sender that is not trusted, and where output is kept
//! - [`supervisor`]: one machine from start to end
//!
//! May be used by the command; knows nothing of images or kernels beyond their paths.

pub mod accel;
pub mod accounts;
mod backlog;
pub mod boot;
pub mod cloud_hypervisor;
pub mod console_log;
mod console_times;
pub mod contained;
mod descriptors;
pub mod dirs;
pub mod drives;
pub mod engine;
pub mod events;
pub mod file_volumes;
pub mod firecracker;
pub mod lines;
pub mod link;
pub mod networks;
pub mod output;
mod private;
mod private_mounts;
mod privileges;
pub mod process;
pub mod qemu;
pub mod record;
pub mod store;
pub mod supervisor;
pub mod support;
pub mod times;
mod turns;
pub mod vsock;

/// Why a machine could not be started, found or stopped. One line each.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    #[error("{doing} {path}: {source}", path = path.display())]
    File { doing: &'static str, path: std::path::PathBuf, source: std::io::Error },
    #[error(
        "neither HOME nor XDG_STATE_HOME is set; set one, so that there is a place for the machine's state"
    )]
    NoHome,
    #[error(
        "the name {0} is in use by machine {1} ({2}); remove it with `unilith rm {0}` or choose another name"
    )]
    NameInUse(String, String, &'static str),
    #[error("no machine is called `{0}`, and no id begins with it; `unilith ps -a` lists them")]
    NotFound(String),
    #[error("`{0}` fits several machines ({1}); write more of the id")]
    Ambiguous(String, String),
    #[error("machine {0} is running; stop it first or use `unilith rm -f {0}`")]
    Running(String),
    #[error(
        "no network is called `{0}`; `unilith network ls` lists them, `unilith network create {0}` makes it"
    )]
    NoNetwork(String),
    #[error("there is a network `{0}` already")]
    NetworkInUse(String),
    #[error("network {0} is used by {1}: stop that first")]
    NetworkHasMachines(String, String),
    #[error("the machine cannot be in a network: {0}")]
    CannotJoin(String),
    #[error("machine {0} was started with --rm and is removed when it ends: it cannot be started again")]
    IsRemoved(String),
    #[error("machine {0} is in network {1} already")]
    IsMember(String, String),
    #[error("machine {0} is in no network called `{1}`; `unilith inspect {0}` lists its networks")]
    IsNoMember(String, String),
    #[error("machine {0} cannot change its networks: {1}")]
    CannotBeMember(String, &'static str),
    #[error("machine {0} is not running")]
    NotRunning(String),
    #[error("qemu-system-x86_64 is not installed; as root: apt-get install -y qemu-system-x86")]
    NoQemu,
    #[error("{0}")]
    Port(#[from] unilith_network::ports::PortError),
    #[error("cannot take over the interface of the network namespace: {0}")]
    Interface(std::io::Error),
    #[error("{0}")]
    Tap(#[from] unilith_network::tap::TapError),
    #[error(
        "a process machine without the right to make a tap device needs passt, but {0}; run it as root, with --network none, or with --machine qemu"
    )]
    NoUserNetwork(String),
    #[error(
        "{0} has tap devices only here, and this user may make none: run it as root, with --network none, or with another --machine"
    )]
    NoUserNetworkOf(&'static str),
    #[error("cannot start the machine's process: {0}")]
    Process(String),
    #[error("{0}")]
    Boot(String),
    #[error("{0}")]
    Qemu(String),
    #[error("{0}")]
    Drive(String),
    #[error("{0}")]
    Monitor(String),
    #[error("{0}")]
    FileVolume(String),
    #[error("{0}")]
    Overlay(#[from] unilith_overlay::LineError),
    #[error("cannot serve the published ports: {0}")]
    Proxy(std::io::Error),
}

impl MachineError {
    /// For `map_err` after an operation on a file.
    pub fn file(doing: &'static str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> MachineError {
        let path = path.to_path_buf();
        move |source| MachineError::File { doing, path, source }
    }
}
