// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine is given when it starts.

use crate::{
    MachineError, qemu, record,
    record::{Capabilities, Connection, Rlimit, Spec, now_ms},
    store::Held,
};
use api_boot::{BootConfig, CapabilitySets, Tmpfs, Volume};
use std::{
    fs::{self, File, Permissions},
    io::{Seek, SeekFrom, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use unilith_network::ports::Protocol;
use unilith_ninep::{
    Forest, SiteTables,
    ids::{Ids, Map},
};

/// What docker calls this host's address in `--add-host`.
pub const HOST_GATEWAY: &str = "host-gateway";

/// What depends on the kernel: made when the machine's connection is known.
pub struct BootFiles {
    /// The initial RAM disk. One that is made for this machine alone goes into [`Held::initrd`].
    pub initrd: PathBuf,
    /// The kernel's command line.
    pub append: String,
    /// What the monitor puts into the machine's memory, to [`api_boot::SETTINGS_ADDRESS`].
    pub settings: Option<String>,
    /// For process machines: finds the system-call sites of programs that are not in the initial RAM disk.
    pub sites: Option<SiteTables>,
    /// For process machines: the files of containers that join the machine, on a channel each ([`pod_tag`]).
    pub pod: Vec<Forest>,
}

impl BootFiles {
    pub fn new(initrd: &Path, append: String) -> BootFiles {
        BootFiles { initrd: initrd.to_path_buf(), append, settings: None, sites: None, pod: Vec::new() }
    }
}

/// The mount tag of the channel to forest `n` of a pod.
pub fn pod_tag(n: usize) -> String {
    format!("pod{n}")
}

/// Makes the [`BootFiles`]; the error is one line.
pub type Boot<'a> = &'a dyn Fn(&Held, &BootConfig) -> Result<BootFiles, String>;

/// A command line of `most` bytes and an initial RAM disk, the root archive itself. What does not fit, a program's environment or a filter of
/// system calls, follows the archive, in a copy of it that is made in `own` for this machine alone.
pub fn settings(
    root: &Path,
    own: &Path,
    config: &BootConfig,
    most: usize,
) -> Result<BootFiles, MachineError> {
    let append = config.encode();
    if append.len() <= most {
        return Ok(BootFiles::new(root, append));
    }
    let offset =
        append_to_copy(root, own, append.as_bytes()).map_err(MachineError::file("cannot write", own))?;
    let more = Some((offset, append.len() as u64));
    let status_on_console = config.status_on_console;
    let front = BootConfig { status_on_console, more, ..BootConfig::default() }.encode();
    // Nothing is behind the dashes, and Firecracker wants something there or no dashes.
    let append = front.trim_end_matches("--").trim_end().to_string();
    Ok(BootFiles::new(own, append))
}

/// As [`settings`], for QEMU, whose arguments every user of this computer may read, and the environment may hold passwords: its command
/// line says where in the machine's memory they are. The machine's random numbers begin with bytes of this computer's.
pub fn settings_in_memory(root: &Path, own: &Path, config: &BootConfig) -> Result<BootFiles, MachineError> {
    let mut seed = [0; api_boot::SEED];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())
        .map_err(|e| MachineError::Qemu(format!("no random bytes for the machine: {e}")))?;
    let config = BootConfig { seed: Some(seed), ..config.clone() };
    let text = config.encode();
    if text.len() as u64 > api_boot::MAX_SETTINGS {
        return settings(root, own, &config, 0);
    }
    let front = BootConfig { settings: Some(text.len() as u64), ..BootConfig::default() }.encode();
    Ok(BootFiles { settings: Some(text), ..BootFiles::new(root, front) })
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

/// What the kernel is told about a machine.
pub fn boot_config(spec: &Spec, connection: &Connection) -> BootConfig {
    let volume = |(n, mount): (usize, &crate::record::Mount)| Volume {
        tag: qemu::volume_tag(n),
        path: mount.guest.clone(),
        read_only: mount.is_read_only_throughout(),
        // Our own server exports files as well as directories.
        file: !spec.platform.is_served_files() && mount.host.is_file(),
    };
    let tmpfs = |t: &crate::record::Memory| Tmpfs {
        path: t.guest.clone(),
        size: t.size.unwrap_or(0),
        inodes: t.inodes.unwrap_or(0),
        mode: t.mode,
        exec: t.exec,
    };
    let disk = |(n, drive): (usize, &crate::record::Drive)| {
        let path = drive.guest.clone()?;
        Some(api_boot::Disk { index: n as u8, path, read_only: drive.read_only })
    };
    let rlimit = |l: &Rlimit| api_boot::Rlimit { resource: l.resource, soft: l.soft, hard: l.hard };
    let mut boot = BootConfig {
        hostname: Some(spec.hostname.clone()),
        published: published(spec),
        env: spec.env.clone(),
        cwd: spec.cwd.clone(),
        uid: spec.uid,
        gid: spec.gid,
        limits: spec.limits.iter().map(rlimit).collect(),
        groups: spec.groups.clone(),
        umask: spec.umask,
        hooks: spec.hooks.iter().cloned().map(hook).collect(),
        hook_input: spec.hook_input.clone(),
        capabilities: spec.capabilities.map(sets),
        no_new_privileges: spec.no_new_privileges,
        confinement: confinement(&spec.confinement),
        group: spec.group.map(group),
        ids: spec.ids.as_ref().map(ids),
        volumes: spec.volumes.iter().enumerate().map(volume).collect(),
        disks: spec.drives.iter().enumerate().filter_map(disk).collect(),
        tmpfs: spec.tmpfs.iter().map(tmpfs).collect(),
        read_only: spec.read_only,
        epoch_ns: Some(now_ms() * 1_000_000),
        log: spec.log.clone(),
        trace: spec.trace,
        stop_signal: (spec.stop_signal != 15).then_some(spec.stop_signal),
        cpus: (spec.cpus > 1 && !spec.platform.is_process()).then_some(spec.cpus),
        tty: spec.tty,
        null_input: spec.null_input,
        args: spec.args.clone(),
        ..BootConfig::default()
    };
    crate::link::describe(connection, &mut boot);
    // On a tap device the relay at the machine's gateway asks these servers.
    if !spec.dns.is_empty() && !matches!(connection, Connection::Tap { .. }) {
        boot.dns = spec.dns.iter().map(std::net::Ipv4Addr::octets).collect();
    }
    boot.hosts = hosts(spec, boot.gateway);
    boot
}

fn confinement(of: &record::Confinement) -> api_boot::Confinement {
    let record::Confinement { filter, settings, masked, read_only } = of.clone();
    api_boot::Confinement { filter, settings, masked, read_only }
}

fn hook(of: record::Hook) -> api_boot::Hook {
    let record::Hook { path, arguments, environment, timeout } = of;
    api_boot::Hook { path, arguments, environment, timeout }
}

fn ids(of: &Ids) -> api_boot::Ids {
    let extents = |map: &Map| map.0.iter().map(|e| (e.inside, e.outside, e.count)).collect();
    api_boot::Ids { users: extents(&of.users), groups: extents(&of.groups) }
}

fn group(of: record::ControlGroup) -> api_boot::ControlGroup {
    let record::ControlGroup { memory, pids, cpu, files } = of;
    api_boot::ControlGroup { memory, pids, cpu, files }
}

fn sets(of: Capabilities) -> CapabilitySets {
    let Capabilities { bounding, permitted, effective, inheritable, ambient } = of;
    CapabilitySets { bounding, permitted, effective, inheritable, ambient }
}

/// Lines for /etc/hosts. The host itself is the machine's gateway.
fn hosts(spec: &Spec, gateway: Option<[u8; 4]>) -> Vec<String> {
    let address = |text: &str| match (text, gateway) {
        (HOST_GATEWAY, gateway) => gateway.map(|octets| std::net::Ipv4Addr::from(octets).to_string()),
        (address, _) => Some(address.to_string()),
    };
    let line = |(name, to): &(String, String)| Some(format!("{}\t{name}", address(to)?));
    spec.hosts.iter().filter_map(line).collect()
}

/// TCP ports of the machine that clients of this host are let through to.
fn published(spec: &Spec) -> Vec<u16> {
    let all = spec.publish.iter().chain(&spec.offer).filter(|p| p.protocol == Protocol::Tcp);
    let mut ports: Vec<u16> = all.map(|p| p.guest).collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}
