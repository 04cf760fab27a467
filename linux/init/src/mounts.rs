// SPDX-License-Identifier: Apache-2.0 OR MIT
//! File systems, clock and the machine's end.

use api_boot::{BootConfig, Tmpfs, VOLUME_FILE};
use rustix::{
    mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount},
    system::{RebootCommand, reboot},
    time::{ClockId, Timespec, clock_gettime, clock_settime},
};
use std::{ffi::CString, fs, os::unix::fs::PermissionsExt, path::Path, process, thread, time::Duration};

const NANOSECONDS: u64 = 1_000_000_000;
/// Bytes a 9p request may carry. The largest the virtio transport takes is 125 pages (net/9p/trans_virtio.c).
const NINEP_MESSAGE: u32 = 500 * 1024;

/// /proc, /sys, /dev and what programs expect below them.
pub fn kernel_file_systems() -> Result<(), String> {
    let plain = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    let table: [(&str, &str, u32, MountFlags, &str); 6] = [
        ("devtmpfs", "/dev", 0o755, MountFlags::NOSUID, ""),
        ("proc", "/proc", 0o555, plain, ""),
        ("sysfs", "/sys", 0o555, plain, ""),
        ("devpts", "/dev/pts", 0o755, MountFlags::NOSUID | MountFlags::NOEXEC, "ptmxmode=666,mode=620"),
        ("tmpfs", "/dev/shm", 0o1777, MountFlags::NOSUID | MountFlags::NODEV, "mode=1777"),
        ("tmpfs", "/run", 0o755, MountFlags::NOSUID | MountFlags::NODEV, "mode=755"),
    ];
    for (kind, path, mode, flags, data) in table {
        // The root file system of the program may bring files in /run: mount nothing over them.
        if path == "/run" && fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some()) {
            continue;
        }
        folder(path, mode)?;
        let data = CString::new(data).map_err(|e| e.to_string())?;
        mount(kind, path, kind, flags, data.as_c_str()).map_err(|e| format!("{path}: {e}"))?;
    }
    folder("/tmp", 0o1777)?;
    for (link, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ] {
        std::os::unix::fs::symlink(target, link).map_err(|e| format!("{link}: {e}"))?;
    }
    Ok(())
}

/// Makes a directory and its parents where they are missing; one that is there keeps its mode.
pub fn folder(path: &str, mode: u32) -> Result<(), String> {
    if fs::metadata(path).is_ok_and(|m| m.is_dir()) {
        return Ok(());
    }
    fs::create_dir_all(path)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .map_err(|e| format!("{path}: {e}"))
}

/// Sets the wall clock where the machine has no clock device: Linux starts at 1970 then.
pub fn wall_clock(config: &BootConfig) -> Result<(), String> {
    let Some(epoch) = config.epoch_ns else { return Ok(()) };
    if clock_gettime(ClockId::Realtime).tv_sec >= (epoch / NANOSECONDS) as i64 {
        return Ok(());
    }
    let at_boot = Duration::from_nanos(epoch.saturating_add(since_boot()));
    let now = Timespec { tv_sec: at_boot.as_secs() as i64, tv_nsec: at_boot.subsec_nanos().into() };
    clock_settime(ClockId::Realtime, now).map_err(|e| format!("setting the clock: {e}"))
}

/// Nanoseconds since the kernel started its clock, which is within its first milliseconds.
pub fn since_boot() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * NANOSECONDS + now.tv_nsec as u64
}

/// Where an export is mounted for a moment whose file is the volume.
const EXPORT: &str = "/.unilith-export";

/// The host's directories and files, over 9p.
pub fn volumes(config: &BootConfig) -> Result<(), String> {
    for volume in &config.volumes {
        let failed = |e: std::io::Error| format!("the volume {} at {}: {e}", volume.tag, volume.path);
        let at = if volume.file { EXPORT } else { volume.path.as_str() };
        folder(at, 0o755)?;
        let flags = if volume.read_only { MountFlags::RDONLY } else { MountFlags::empty() };
        // cache=mmap: programs map files shared (databases do), which 9p without any cache refuses.
        let data = format!("trans=virtio,version=9p2000.L,cache=mmap,msize={NINEP_MESSAGE}");
        let data = CString::new(data).map_err(|e| e.to_string())?;
        mount(volume.tag.as_str(), at, "9p", flags, data.as_c_str()).map_err(|e| failed(e.into()))?;
        if !volume.file {
            continue;
        }
        if fs::metadata(&volume.path).is_err() {
            if let Some(above) = Path::new(&volume.path).parent().and_then(Path::to_str) {
                folder(above, 0o755)?;
            }
            fs::write(&volume.path, b"").map_err(failed)?;
        }
        mount_bind(format!("{EXPORT}/{VOLUME_FILE}"), volume.path.as_str()).map_err(|e| failed(e.into()))?;
        // The bind mount keeps the file.
        unmount(EXPORT, UnmountFlags::DETACH).map_err(|e| failed(e.into()))?;
        fs::remove_dir(EXPORT).map_err(failed)?;
    }
    Ok(())
}

/// File systems in memory that the user asked for.
pub fn tmpfs(config: &BootConfig) -> Result<(), String> {
    for Tmpfs { path, size, inodes, mode, exec } in &config.tmpfs {
        folder(path, 0o755)?;
        let mut data = format!("mode={mode:o}");
        for (word, limit) in [("size", size), ("nr_inodes", inodes)].iter().filter(|(_, limit)| **limit != 0)
        {
            data.push_str(&format!(",{word}={limit}"));
        }
        let data = CString::new(data).map_err(|e| e.to_string())?;
        let noexec = if *exec { MountFlags::empty() } else { MountFlags::NOEXEC };
        let flags = MountFlags::NOSUID | MountFlags::NODEV | noexec;
        mount("tmpfs", path.as_str(), "tmpfs", flags, data.as_c_str()).map_err(|e| format!("{path}: {e}"))?;
    }
    Ok(())
}

/// Makes the root file system read-only, after everything that is made in it.
pub fn seal_root(config: &BootConfig) -> Result<(), String> {
    if !config.read_only {
        return Ok(());
    }
    mount_remount("/", MountFlags::BIND | MountFlags::RDONLY, c"").map_err(|e| format!("/: {e}"))
}

/// The machine's end where no device ends it at once.
pub fn end_machine() -> ! {
    if let Err(e) = reboot(RebootCommand::PowerOff) {
        eprintln!("unilith: power off: {e}");
    }
    // Powering off takes its time on some machines; as process 1, returning would be a kernel panic.
    thread::sleep(Duration::from_secs(5));
    process::exit(0)
}
