// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an OCI runtime needs around a machine: the bundle and what of it a machine can be (runtime-spec 1.2), the control
//! group and network namespace it belongs to, its terminal, hooks, and the records that one call leaves for the next.
//!
//! - [`bundle`]: `config.json`, checked: what is wrong or cannot be honoured is refused by its name
//! - [`administrator`]: the file that says what containers may choose
//! - [`beneath`]: names in the container's root, none of which leads out of it
//! - [`cgroup`]: control groups, version 1 and 2
//! - [`confinement`]: what its programs are kept from
//! - [`descriptors`]: open files that the container must not get
//! - [`mounted`]: what is mounted on the host
//! - [`namespace`]: the network namespace
//! - [`scope`]: control groups that systemd makes
//! - [`scratch`]: mounts of the type tmpfs
//! - [`users`]: whom its users are on the host
//! - [`terminal`]: the pseudo-terminal, given to the engine over its console socket
//! - [`view`]: the container's files, where engines look for them
//! - [`fields`]: what becomes of each field of the bundle
//! - [`priority`]: how the host treats it beside others
//! - [`hooks`]: programs of the engine's that are run at points of the container's life
//! - [`seccomp`]: the profile of system calls, as a program for the machine's kernel
//! - [`record`]: the containers below `--root`
//!
//! It knows nothing of machines; the command's `oci` joins the two.

pub mod administrator;
pub mod beneath;
pub mod bundle;
pub mod cgroup;
pub mod confinement;
pub mod descriptors;
pub mod fields;
pub mod hooks;
pub mod mounted;
pub mod namespace;
pub mod priority;
pub mod record;
pub mod scope;
pub mod scratch;
pub mod seccomp;
pub mod terminal;
pub mod users;
pub mod view;

/// Hooks, limits, and a process as `exec --process` describes it.
pub use oci_spec::runtime::{Hook, LinuxResources, Process, User};

use std::path::PathBuf;

/// Why a container cannot be made or handled, in one line. The words are runc's where engines look for them.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    #[error("{doing} {path}: {source}", path = path.display())]
    File { doing: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{0}: {1}")]
    Config(PathBuf, String),
    #[error("annotation unilith.{key}={word}: {path} allows {allowed}", path = path.display())]
    Forbidden { key: &'static str, word: String, path: PathBuf, allowed: String },
    #[error("exec: \"{0}\": executable file not found in $PATH")]
    NoProgram(String),
    #[error("exec: \"{0}\": permission denied")]
    NotExecutable(String),
    #[error("container \"{0}\" does not exist")]
    NotFound(String),
    #[error("container with id exists: {0}")]
    Exists(String),
    #[error("invalid id format: {0:?}: an id has letters, digits, and _ + - . only, and is neither . nor ..")]
    BadId(String),
    #[error("{0}")]
    Hook(String),
    #[error("the {0} namespace: {1}")]
    Namespace(&'static str, std::io::Error),
    #[error(
        "another container has the interface of this network namespace, and a machine has it alone: leave the pod's annotation \
        dev.unilith.pod: separate out, or name those containers that need no network in dev.unilith.offline"
    )]
    InterfaceTaken,
    #[error(
        "no control group of the container has {0}: the group above it does not give that controller to groups below \
        (cgroup.subtree_control), or the host's kernel does not have it"
    )]
    NoController(&'static str),
    #[error("the control group {path} is frozen: thaw it, or give the container another one", path = .0.display())]
    Frozen(PathBuf),
    #[error("linux.resources.unified: {0}: the container's control group of version 2 has no such file")]
    NoUnified(String),
    #[error("the scope {0}: {1}")]
    Scope(String, String),
    #[error("systemd, {0}: {1}; without systemd as process 1, have the engine use cgroupfs")]
    Systemd(String, String),
    #[error("{0}: the host's kernel refuses it: {1}")]
    Priority(&'static str, std::io::Error),
    #[error("the terminal: {0}")]
    Terminal(std::io::Error),
}

pub type Result<T> = std::result::Result<T, ContainerError>;

/// For `map_err` after an operation on a file.
fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> ContainerError {
    let path = path.into();
    move |source| ContainerError::File { doing, path, source }
}
