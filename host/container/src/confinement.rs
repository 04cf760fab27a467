// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a bundle keeps a container's programs from, and the machine's kernel holds (config-linux.md, "Seccomp", "Masked Paths", "Readonly
//! Paths", "Sysctl").

use crate::seccomp;
use std::path::Path;

/// Most paths in a list, most settings, and most bytes of all of them: engines name a dozen.
const MAX_CONFINED: usize = 1024;
const MAX_CONFINED_BYTES: usize = 24 << 10;
/// The setting that the host name's domain is (sethostname(2), setdomainname(2)).
const DOMAIN_NAME: &str = "kernel.domainname";

/// What the machine's kernel keeps a container's programs from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Instructions of the filter of system calls (`struct sock_filter`); none: no filter.
    pub filter: Vec<u64>,
    /// Absolute paths that show nothing, and those that may not be written to.
    pub masked: Vec<String>,
    pub read_only: Vec<String>,
    /// Names and values of /proc/sys.
    pub settings: Vec<(String, String)>,
}

impl Confinement {
    pub(crate) fn of(linux: &oci_spec::runtime::Linux) -> std::result::Result<Confinement, String> {
        let filter = linux.seccomp().as_ref().map(seccomp::compile).transpose()?.unwrap_or_default();
        let masked = linux.masked_paths().clone().unwrap_or_default();
        let read_only = linux.readonly_paths().clone().unwrap_or_default();
        for (list, paths) in [("linux.maskedPaths", &masked), ("linux.readonlyPaths", &read_only)] {
            if let Some(wrong) = paths.iter().find(|path| !path.starts_with('/') || path.contains('\0')) {
                return Err(format!("{list}: {wrong:?} is not an absolute path"));
            }
        }
        if let Some(root) = masked.iter().find(|path| Path::new(path) == Path::new("/")) {
            return Err(format!("linux.maskedPaths: {root}: nothing would be left"));
        }
        let mut settings: Vec<(String, String)> = Vec::new();
        for (name, value) in linux.sysctl().iter().flatten() {
            check_setting(name, value)?;
            settings.push((name.clone(), value.clone()));
        }
        settings.sort();
        let count = masked.len().max(read_only.len()).max(settings.len());
        let pairs = settings.iter().flat_map(|(name, value)| [name, value]);
        let bytes: usize = masked.iter().chain(&read_only).chain(pairs).map(String::len).sum();
        if count > MAX_CONFINED || bytes > MAX_CONFINED_BYTES {
            return Err(format!(
                "linux.maskedPaths, readonlyPaths and sysctl: {count} in a list, {bytes} bytes; {MAX_CONFINED} and \
                 {MAX_CONFINED_BYTES} at most"
            ));
        }
        Ok(Confinement { filter, masked, read_only, settings })
    }

    /// `linux.sysctl` has the last word, which names the same thing.
    pub(crate) fn set_domain_name(&mut self, name: &str) -> std::result::Result<(), String> {
        if name.contains('\0') {
            return Err("domainname holds a NUL byte".into());
        }
        if self.settings.iter().all(|(name, _)| name != DOMAIN_NAME) {
            self.settings.push((DOMAIN_NAME.into(), name.into()));
        }
        Ok(())
    }
}

/// What may be set is what belongs to a namespace that the container can have for itself, as runc has it. Whether the kernel of the
/// machine has it is known when that runs.
fn check_setting(name: &str, value: &str) -> std::result::Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name == "kernel.hostname" {
        return Err(format!("linux.sysctl: {name}: the name of a container is its hostname"));
    }
    let namespaced = ["net.", "fs.mqueue.", "kernel.shm", "kernel.msg"];
    let others = ["kernel.sem", DOMAIN_NAME];
    if !name.chars().all(is_plain)
        || !namespaced.iter().any(|prefix| name.starts_with(prefix)) && !others.contains(&name)
    {
        return Err(format!("linux.sysctl: {name:?} is not in a separate kernel namespace"));
    }
    if value.contains('\0') {
        return Err(format!("linux.sysctl: {name}: the value holds a NUL byte"));
    }
    Ok(())
}
