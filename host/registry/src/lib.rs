// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images from registries (OCI distribution-spec 1.1, docker's registry API v2), and where they are kept.
//!
//! [`Registries::pull`] gets what a [`Name`] stands for into a [`Store`]; `unilith-image` makes a root archive of it. What a
//! registry answers is not believed: digests and sizes are verified, every length and time has a limit, and what did not arrive
//! whole has no name. Credentials and mirrors are read where docker and podman have them.
#![forbid(unsafe_code)]

mod challenge;
mod credentials;
mod error;
#[cfg(test)]
mod mutations;
mod name;
mod pull;
mod session;
mod settings;
mod store;

pub use challenge::{Challenge, parse as parse_challenge};
pub use credentials::{CredentialFiles, Credentials};
pub use error::{ErrorKind, RegistryError, Result};
pub use name::{DOCKER_HUB, Name};
pub use pull::{Progress, Pulled, Registries};
pub use settings::Settings;
pub use store::{Lease, Record, Store, hexadecimal};
