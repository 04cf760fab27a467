// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel is told. Firecracker's command line is short, and so is what Cloud Hypervisor's API takes at once; a program's
//! environment may be long. What does not fit goes
//! behind the root archive, in an initial RAM disk that is made for this machine alone.

use crate::{MachineError, boot::BootFiles};
use api_boot::BootConfig;
use std::{
    fs::{self, File, Permissions},
    io::{Seek, SeekFrom, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
};

/// The command line, of `most` bytes, and an initial RAM disk: the root archive itself, or a copy of it in `own`.
pub fn files(root: &Path, own: &Path, config: &BootConfig, most: usize) -> Result<BootFiles, MachineError> {
    let config = BootConfig { status_on_console: true, ..config.clone() };
    let append = config.encode();
    if append.len() <= most {
        return Ok(BootFiles { initrd: root.to_path_buf(), append, sites: None, pod: Vec::new() });
    }
    let offset =
        append_to_copy(root, own, append.as_bytes()).map_err(MachineError::file("cannot write", own))?;
    let more = Some((offset, append.len() as u64));
    let front = BootConfig { status_on_console: true, more, ..BootConfig::default() }.encode();
    // Nothing is behind the dashes, and Firecracker wants something there or no dashes.
    let append = front.trim_end_matches("--").trim_end().to_string();
    Ok(BootFiles { initrd: own.to_path_buf(), append, sites: None, pod: Vec::new() })
}

/// Where in the copy the text begins.
fn append_to_copy(root: &Path, own: &Path, text: &[u8]) -> std::io::Result<u64> {
    // The cache's files are read-only, and the environment may hold passwords.
    drop(crate::private::create(own)?);
    fs::copy(root, own)?;
    fs::set_permissions(own, Permissions::from_mode(0o600))?;
    let mut file = File::options().write(true).open(own)?;
    let offset = file.seek(SeekFrom::End(0))?;
    file.write_all(text)?;
    Ok(offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firecracker::config::MAX_BOOT_ARGS;

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
