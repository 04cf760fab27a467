// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks of the machine: their nodes in /dev, the file systems that the host wants mounted, and the thread that writes what was
//! changed. Without the part `ext4` there are none.

use abi::Result;
use alloc::string::String;
use alloc::sync::Arc;
use api_boot::BootConfig;
use api_fs::{File, Inode};
use vfs::Namespace;

#[cfg(feature = "ext4")]
pub use with_disks::*;
#[cfg(not(feature = "ext4"))]
pub use without::*;

#[cfg(feature = "ext4")]
mod with_disks {
    use super::*;
    use abi::errno::*;
    use alloc::format;
    use api_fs::FileType;
    use vfs::{MountFlags, ops};

    pub use disks::{add, end, sync_all, sync_one};

    /// As Linux: root, and the group `disk` of Debian.
    const OWNER: (u32, u32) = (0, 6);

    /// Makes the nodes, mounts what the host says, and starts the thread that writes.
    pub fn start(
        namespace: &Namespace,
        dev: &Arc<dyn Inode>,
        config: &BootConfig,
    ) -> core::result::Result<(), String> {
        let count = disks::count();
        for index in 0..count {
            let name = format!("vd{}", char::from(b'a' + index as u8 % 26));
            dev.create(name.as_bytes(), FileType::BlockDevice, 0o660, OWNER, disks::number(index))
                .map_err(|e| format!("/dev/{name}: {e:?}"))?;
        }
        for disk in &config.disks {
            let index = usize::from(disk.index);
            let failed = |e| {
                let why = if e == EINVAL || e == EUCLEAN { "; the kernel's log says why" } else { "" };
                format!("the disk at {} cannot be mounted: {e:?}{why}", disk.path)
            };
            if index >= count {
                return Err(format!("{}: the machine has no disk {index}", disk.path));
            }
            let root = disks::mount(disks::number(index), disk.read_only, false).map_err(failed)?;
            let flags = MountFlags(if disk.read_only { MountFlags::READ_ONLY } else { 0 });
            let source = format!("/dev/vd{}", char::from(b'a' + index as u8 % 26));
            let point = ops::directory(namespace, &disk.path, 0o755)?;
            namespace.mount(&point, root, "ext4", &source, flags).map_err(failed)?;
        }
        if count > 0 {
            let started = sched::spawn(false, sched::Start::Kernel(write_back));
            started.map_err(|_| String::from("not enough memory for the disks' thread: try more with -m"))?;
        }
        Ok(())
    }

    /// Writes what was changed, again and again.
    fn write_back() {
        loop {
            let next = api_plat::now_ns().saturating_add(disks::COMMIT_NS);
            while api_plat::now_ns() < next {
                sched::park(next);
            }
            if disks::has_work() {
                // An error is in the log, and what fsync(2) answers from then on.
                let _ = disks::sync_all().and(disks::unmount_unused());
            }
        }
    }

    pub fn open(inode: &Arc<dyn Inode>, flags: u32) -> Result<Arc<dyn File>> {
        disks::open(inode.stat()?.rdev, inode, flags)
    }

    /// Parameters of mount(2) that say what is so in any case.
    const OPTIONS: [&[u8]; 6] =
        [b"errors=remount-ro", b"data=ordered", b"barrier", b"barrier=1", b"acl", b"user_xattr"];

    /// Whether one of that name is known.
    pub fn is_option(key: &[u8]) -> bool {
        OPTIONS.iter().any(|word| word.split(|b| *b == b'=').next() == Some(key))
    }

    /// The root directory of the file system on a disk. `options` are those of mount(2).
    pub fn mount(number: u64, flags: MountFlags, options: &[u8]) -> Result<Arc<dyn Inode>> {
        let mut words = options.split(|b| *b == b',').filter(|word| !word.is_empty());
        if words.any(|word| !OPTIONS.contains(&word)) {
            return Err(EINVAL);
        }
        disks::mount(number, flags.has(MountFlags::READ_ONLY), flags.has(MountFlags::NOATIME))
    }

    /// Something was unmounted.
    pub fn unmounted() -> Result<()> {
        disks::unmount_unused()
    }
}

#[cfg(not(feature = "ext4"))]
mod without {
    use super::*;
    use abi::errno::*;
    use alloc::format;

    pub fn start(_: &Namespace, _: &Arc<dyn Inode>, config: &BootConfig) -> core::result::Result<(), String> {
        match config.disks.first() {
            Some(disk) => Err(format!("{}: this kernel was built with --set ext4=off", disk.path)),
            None => Ok(()),
        }
    }

    pub fn open(_: &Arc<dyn Inode>, _: u32) -> Result<Arc<dyn File>> {
        Err(ENXIO)
    }

    pub fn is_option(_: &[u8]) -> bool {
        false
    }

    pub fn mount(_: u64, _: vfs::MountFlags, _: &[u8]) -> Result<Arc<dyn Inode>> {
        Err(ENODEV)
    }

    pub fn unmounted() -> Result<()> {
        Ok(())
    }

    pub fn sync_all() -> Result<()> {
        Ok(())
    }

    pub fn sync_one(_: u64) -> Result<bool> {
        Ok(false)
    }

    pub fn end() {}
}
