// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel is told. Firecracker's command line is short, and so is what Cloud Hypervisor's API takes at once; a program's
//! environment may be long. What does not fit goes
//! behind the root archive, in an initial RAM disk that is made for this machine alone.

use crate::{
    MachineError,
    boot::{BootFiles, settings},
};
use api_boot::BootConfig;
use std::path::Path;

/// The command line, of `most` bytes, and an initial RAM disk: the root archive itself, or a copy of it in `own`.
pub fn files(root: &Path, own: &Path, config: &BootConfig, most: usize) -> Result<BootFiles, MachineError> {
    settings(root, own, &BootConfig { status_on_console: true, ..config.clone() }, most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firecracker::config::MAX_BOOT_ARGS;
    use std::{fs, os::unix::fs::PermissionsExt};

    #[test]
    fn settings_that_do_not_fit_follow_the_root_archive() {
        let folder = tempfile::tempdir().unwrap();
        let (root, own) = (folder.path().join("root"), folder.path().join("own"));
        fs::write(&root, [7; 5000]).unwrap();
        let mut config = BootConfig { args: vec!["/bin/x".into()], ..BootConfig::default() };
        let short = files(&root, &own, &config, MAX_BOOT_ARGS).unwrap();
        assert_eq!((short.initrd, short.append.as_str()), (root.clone(), "status=console -- /bin/x"));
        assert!(!own.exists());
        config.env.push(("LONG".into(), "\u{e4} \"".repeat(1000)));
        let long = files(&root, &own, &config, MAX_BOOT_ARGS).unwrap();
        assert_eq!(long.initrd, own);
        assert!(long.append.len() <= MAX_BOOT_ARGS, "{}", long.append);
        let front = BootConfig::decode(&long.append).unwrap();
        let (offset, length) = front.more.unwrap();
        let bytes = fs::read(&own).unwrap();
        assert_eq!((offset, bytes.len() as u64), (5000, offset + length));
        assert_eq!(bytes[..5000], [7; 5000]);
        let told = BootConfig::decode(std::str::from_utf8(&bytes[5000..]).unwrap()).unwrap();
        assert_eq!(told, BootConfig { status_on_console: true, ..config });
        assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
