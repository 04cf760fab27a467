// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every request for memory is refused in turn: an operation that fails for it has changed nothing. In a program of its own, since the
//! refusals are a program's.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use abi::Result;
use api_alloc::fault::fail_after;
use api_fs::{FileType, Timespec};
use ext4::{Core, Disk, New, Options, ROOT};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

struct MemoryDisk(Mutex<Vec<u8>>);

impl Disk for MemoryDisk {
    fn bytes(&self) -> u64 {
        self.0.lock().unwrap().len() as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let start = offset as usize;
        to.copy_from_slice(&self.0.lock().unwrap()[start..start + to.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        let start = offset as usize;
        self.0.lock().unwrap()[start..start + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}

fn tool(name: &str, arguments: &[&str], file: &Path) {
    // Debian has them where only root's shells look.
    let path = std::env::var("PATH").unwrap_or_default() + ":/sbin:/usr/sbin";
    let ran = Command::new(name).env("PATH", path).args(arguments).arg(file).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
}

fn now() -> Timespec {
    Timespec { seconds: 1_700_000_000, nanoseconds: 0 }
}

fn operations(core: &mut Core, n: usize) -> Result<()> {
    let new = |kind| New { kind, permissions: 0o755, owner: (0, 0), device: 0, now: now() };
    let name = format!("a directory {n}");
    let below = core.create(ROOT, name.as_bytes(), new(FileType::Directory))?;
    let file = core.create(below, b"file", new(FileType::Regular))?;
    for i in 0..6 {
        core.write(file, i * 20_000, &[n as u8; 5000], now())?;
    }
    core.allocate_range(file, 3, 40_000, 5000, now())?;
    core.symlink(below, b"link", &[b'x'; 100], new(FileType::Symlink))?;
    core.rename((below, b"file"), (ROOT, format!("moved {n}").as_bytes()), 0, now())?;
    core.truncate(file, 30_000, now())?;
    core.link(below, b"again", file, now())?;
    core.unlink(below, b"link", false, now())
}

#[test]
fn what_fails_for_want_of_memory_has_changed_nothing() {
    let file = std::env::temp_dir().join(format!("unilith-ext4-memory-{}", std::process::id()));
    std::fs::write(&file, vec![0; 32 << 20]).unwrap();
    tool("mkfs.ext4", &["-q", "-F", "-b", "1024"], &file);
    let disk = Arc::new(MemoryDisk(Mutex::new(std::fs::read(&file).unwrap())));
    let mount = || Core::mount(disk.clone(), Options::default(), now()).map_err(|refusal| refusal.0).unwrap();
    let mut core = mount();
    let mut failed = 0;
    for n in 0..600 {
        fail_after(n);
        failed += usize::from(operations(&mut core, n).is_err());
        fail_after(usize::MAX);
        if n % 50 == 49 {
            core.unmount().unwrap();
            std::fs::write(&file, &*disk.0.lock().unwrap()).unwrap();
            tool("e2fsck", &["-fn"], &file);
            core = mount();
        }
    }
    assert!(failed > 200, "{failed}");
    core.unmount().unwrap();
    let _ = std::fs::remove_file(&file);
}
