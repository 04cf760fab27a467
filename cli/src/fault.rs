// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why the command failed: one line and an exit code.

use std::fmt;
use unilith_machine::{MachineError, record::Outcome};

/// Printed as `unilith: MESSAGE`.
#[derive(Debug)]
pub struct Fault {
    pub code: u8,
    pub message: String,
}

pub type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    pub fn new(message: impl Into<String>) -> Fault {
        Fault { code: 1, message: message.into() }
    }

    /// The same, with the code that `run` uses when not the program but Unilith failed (docker's and podman's).
    pub fn of_run(self) -> Fault {
        Fault { code: if self.code == 1 { Outcome::FAILED } else { self.code }, ..self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<MachineError> for Fault {
    fn from(error: MachineError) -> Fault {
        Fault::new(error.to_string())
    }
}

impl From<unilith_overlay::LineError> for Fault {
    fn from(error: unilith_overlay::LineError) -> Fault {
        Fault::new(error.to_string())
    }
}

impl From<unilith_image::ImageError> for Fault {
    fn from(error: unilith_image::ImageError) -> Fault {
        Fault::new(error.to_string())
    }
}

impl From<unilith_registry::RegistryError> for Fault {
    fn from(error: unilith_registry::RegistryError) -> Fault {
        Fault::new(error.to_string())
    }
}

/// For `map_err` after an operation on a file: `cannot read /x: no such file`.
pub fn file(doing: &str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Fault {
    let text = format!("cannot {doing} {}", path.display());
    move |error| Fault::new(format!("{text}: {error}"))
}
