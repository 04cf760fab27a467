// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's side of the line to a running machine.
//!
//! - [`client`]: a session: commands and programs of the image, their streams, their ends. What `unilith exec` and `attach`
//!   stand on.
//! - [`multiplexer`]: many clients at one machine's port; the machine's supervisor runs it.
//! - [`socket`]: the socket in the machine's directory, which nobody but its owner may open.
//!
//! The protocol is in the crate `overlay-wire`. Bytes from the machine are untrusted here as bytes from the host are
//! there.
#![forbid(unsafe_code)]

pub mod client;
pub mod multiplexer;
pub mod socket;

pub use client::{Client, Event, Failure, Input, Running};
pub use overlay_wire::{
    Container, ControlGroup, Exit, How, Limit, Namespaces, Origin, Privileges, Program, Size, Tree,
};

/// Why there is no answer. One line each.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("cannot reach the machine at {path}: {source}", path = path.display())]
    Unreachable { path: std::path::PathBuf, source: std::io::Error },
    #[error("the machine does not answer: its kernel has no overlay, or has not started yet")]
    Silent,
    #[error("the machine refuses the session: {0}")]
    Refused(String),
    #[error("the connection to the machine ended")]
    Ended,
    #[error("the command line is {0} bytes long; at most {1} fit: give files instead")]
    TooLong(usize, usize),
    #[error("a command has at most {0} arguments")]
    TooMany(u32),
    #[error("the machine was started by an older unilith, which starts no programs: start it again")]
    NoPrograms,
    #[error("the machine was started by an older unilith, which takes no containers in: start its pod again")]
    NoContainers,
    #[error("cannot make {path}: {source}", path = path.display())]
    File { path: std::path::PathBuf, source: std::io::Error },
}

/// What the library answers.
pub type Result<T> = std::result::Result<T, LineError>;
