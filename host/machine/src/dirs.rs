// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where things are kept: the XDG base directories (specification 0.8; values that are not absolute are ignored).

use crate::MachineError;
use std::{env, path::PathBuf};

fn absolute(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|p| p.is_absolute())
}

/// Machines and their logs: `$XDG_STATE_HOME/unilith`.
pub fn state() -> Result<PathBuf, MachineError> {
    let base = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Ok(base.ok_or(MachineError::NoHome)?.join("unilith"))
}

/// What can be made again: `$XDG_CACHE_HOME/unilith`.
pub fn cache() -> Result<PathBuf, MachineError> {
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Ok(base.ok_or(MachineError::NoHome)?.join("unilith"))
}

/// What users keep: `$XDG_DATA_HOME/unilith`.
pub fn data() -> Result<PathBuf, MachineError> {
    let base = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")));
    Ok(base.ok_or(MachineError::NoHome)?.join("unilith"))
}
