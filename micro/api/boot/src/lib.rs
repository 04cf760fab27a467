// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the host tells a micro machine at boot, and what the machine reports back.
//!
//! **Host to machine**: the kernel command line. Words are separated by single spaces; every value is
//! percent-encoded (`%20` for a space), so a word never holds white space. Words before `--` are `key=value`
//! settings, words after it are the program and its arguments. [`BootConfig`] encodes and decodes it; both sides
//! use this crate and nothing else.
//!
//! | key | value |
//! | --- | --- |
//! | `ip` | IPv4 address and prefix of the first network device, `10.0.2.15/24`; `dhcp`: address, gateway and DNS servers are what a DHCP server says |
//! | `gw` | default IPv4 gateway |
//! | `eth` | `ADDRESS/PREFIX:NAME` or `ADDRESS/PREFIX,GATEWAY:NAME`: the next network device behind the first, its IPv4 address and, if it has one, the gateway that it leads to; may repeat |
//! | `dns` | DNS servers, separated by commas |
//! | `ip6` | IPv6 addresses and prefixes of the first network device, separated by commas; `auto` among them: what routers of its link say, too. Without it the device has no IPv6 |
//! | `gw6` | default IPv6 gateway |
//! | `dns6` | DNS servers with IPv6 addresses, separated by commas |
//! | `published` | TCP ports that the host publishes, separated by commas: their connections reach listeners on 127.0.0.1 as well |
//! | `hostname` | host name |
//! | `env.KEY` | one environment variable |
//! | `cwd` | working directory of the program |
//! | `uid`, `gid` | user and group of the program |
//! | `umask` | the program's file mode creation mask (umask(2)) in octal digits; 022 where it is not given |
//! | `rlimit` | `NUMBER:SOFT` or `NUMBER:SOFT:HARD`: a resource limit of the program (getrlimit(2)) by Linux' number; may repeat |
//! | `groups` | its further groups, separated by commas |
//! | `caps` | the program's capabilities (capabilities(7)): bounding, permitted, effective, inheritable and ambient set in hexadecimal digits, with colons between them; without it root has all |
//! | `nnp` | `1`: no program gets more rights than it has (PR_SET_NO_NEW_PRIVS) |
//! | `ids` | `USERS/GROUPS`: the users and groups that there are, lines `INSIDE:OUTSIDE:COUNT` of a map with commas between them (user_namespaces(7)); whoever serves the files translates |
//! | `seccomp` | the program's filter of system calls (seccomp(2)): 16 hexadecimal digits an instruction, `struct sock_filter` as a number |
//! | `sysctl` | `NAME=VALUE`: written below /proc/sys before the program starts, which fails if it cannot be; may repeat |
//! | `masked` | an absolute path that shows nothing: a file is /dev/null, a directory empty; one that is not there is passed over; may repeat |
//! | `readonly` | an absolute path that may not be written to, as `masked`; may repeat |
//! | `hook` | a program that runs before the machine's own, which starts only if that ends with 0: seconds that it may take, path, number of arguments, arguments, variables, with NUL bytes between them; may repeat |
//! | `hookinput` | what each of them reads from its standard input |
//! | `vol` | `TAG:PATH` or `TAG:PATH:ro`: mount the 9p export TAG at PATH; `TAG/file:PATH`: the file of that name in the export; may repeat |
//! | `disk` | `N:PATH` or `N:PATH:ro`: mount the ext4 file system of the disk N, counted from 0, at PATH; may repeat |
//! | `tmpfs` | `PATH:SIZE:MODE` or `PATH:SIZE:MODE:exec`: mount a file system in memory; SIZE in bytes (0: half of the memory), with `/INODES` behind it how many files and directories it may have, MODE in octal digits; one at `/dev/shm` is that of shared memory; may repeat |
//! | `root` | `ro`: the program may not write to the root file system |
//! | `host` | a line for /etc/hosts; may repeat |
//! | `epoch` | wall clock in nanoseconds since 1970 just before the machine was started, for machines that no hypervisor and no host tells the time |
//! | `tz` | value of TZ where the image has no /etc/localtime |
//! | `log` | kernel log level: error, warn, info, debug |
//! | `trace` | `1`: print every system call |
//! | `stop` | number of the signal that asks the program to end; 15 (SIGTERM) where it is not given |
//! | `cpus` | processors that are used; one where it is not given (a process machine is told by an argument) |
//! | `status` | `console`: status lines go over the console, as [`PortDecoder`] takes them apart |
//! | `more` | `OFFSET:LENGTH`: further settings, the program among them, are these bytes of the initial RAM disk, which ends there; for monitors whose command line is short |
//! | `settings` | LENGTH: further settings, the program among them, are as many bytes of physical memory at [`SETTINGS_ADDRESS`]; for monitors whose arguments everybody may read |
//! | `seed` | 64 hexadecimal digits: random bytes of the host's, for the machine's generator |
//! | `tty` | `1`: the program's standard streams are a terminal; else they are plain streams of bytes (`isatty` is false) |
//! | `stderr` | `own`: as plain streams, standard error is marked on the console |
//!
//! **The console** is the first serial port (COM1): the program's standard streams, and crash reports. As plain
//! streams they are not translated (no CR before LF, no echo). Of their input the byte 16 (DLE) is sent twice, DLE before
//! the byte 4 (EOT) ends it, and DLE before the letter J is a line feed; a terminal's line discipline sees all bytes as they are. With
//! `stderr=own` DLE is sent twice in their output as well, and standard error is between DLE and the byte 2 (STX) and DLE and the
//! byte 3 (ETX); what the kernel itself writes there has no marks. A *break* on that port (16550 LSR
//! bit 4) asks the machine to stop: the program gets the `stop` signal.
//!
//! **Machine to host**: the status port, QEMU's debug console at I/O port 0xe9 (`-device isa-debugcon`), one
//! [`Status`] a line. It works from the first instruction, before any driver. Firecracker and Cloud Hypervisor have no such
//! port: there they share the console from the moment on in which the command line was read. What a break is elsewhere is i8042's
//! keyboard interrupt on the former, and a stream to [`vsock::END_PORT`] on the latter.
//!
//! **The root file system**: one cpio archive ("newc", format 070701) as the initial RAM disk. Files of 4 KiB or
//! more have their data at a multiple of 4096 from the start of the archive (the host pads the file name with NUL
//! bytes; `namesize` counts them), so that the kernel uses the pages in place. For an ELF file at `/P`, the entry
//! `/.unilith/sites/P` (when present) holds its system-call sites in the format of `api-sites`; the kernel hides
//! `/.unilith` from the program. A regular file is no device: `rdevmajor` and the lower bits of `rdevminor` are the capabilities
//! that it permits (capabilities(7)), the upper 32 in the latter, whose bit 31 says that they are in effect.
//!
//! This crate depends on nothing but `alloc` and may be used by host tools and the kernel alike.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

use alloc::{format, string::String};

mod config;
mod confinement;
mod file_systems;
mod hook;
mod input;
mod ipv6;
mod output;
mod port;
mod status;

pub use config::{BadWord, BootConfig};
pub use confinement::{CapabilitySets, Confinement, ControlGroup, Ids, Rlimit};
pub use file_systems::{Disk, Tmpfs, VOLUME_FILE, Volume};
pub use hook::Hook;
pub use input::{INPUT_END, Input, InputDecoder, encode_input, escape_line_feeds};
pub use ipv6::Ipv6;
pub use output::{OutputDecoder, Stream, encode_output, encoded_output_size};
pub use port::{PortDecoder, STATUS_BEGIN, STATUS_END, encode_port};
pub use status::Status;

/// The I/O port of the status line (QEMU `isa-debugcon,iobase=0xe9`).
pub const STATUS_PORT: u16 = 0xe9;
/// The I/O port that ends QEMU (`isa-debug-exit,iobase=0xf4,iosize=0x04`). The exit code travels as [`Status::Exit`].
pub const EXIT_PORT: u16 = 0xf4;
/// Where a monitor puts `settings`: memory below 1 MiB that its firmware does not use, on every machine that it makes.
pub const SETTINGS_ADDRESS: u64 = 0x4_0000;
/// Most bytes of them.
pub const MAX_SETTINGS: u64 = 0x4_0000;
/// Bytes of a seed.
pub const SEED: usize = 32;

/// Ports of stream sockets (virtio-vsock), on monitors that have no console device with ports. The machine connects to
/// them, and the host to [`END_PORT`](vsock::END_PORT) alone.
pub mod vsock {
    /// The overlay's line.
    pub const LINE_PORT: u32 = 1024;
    /// The overlay's part of the kernel, from its first byte to its last one.
    pub const TOOLS_PORT: u32 = 1025;
    /// A connection to it is the request to end; it is closed at once.
    pub const END_PORT: u32 = 1026;
    /// The directory that the machine sees at /overlay, over 9p.
    pub const FILES_PORT: u32 = 1027;
    /// The volumes that are tagged `v0` and so on, over 9p.
    pub const VOLUME_PORT: u32 = 1100;
    pub const VOLUME_PORTS: u32 = 16;
}

/// Most memory of a machine, in bytes: as far as the kernel sees physical memory.
pub const MAX_MEMORY: u64 = 512 << 30;

/// Most block devices of a machine.
pub const MAX_DRIVES: usize = 4;

/// One IPv4 address with its prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Prefix {
    pub address: [u8; 4],
    /// 0 to 32.
    pub length: u8,
}

/// A network device behind the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Further {
    /// As programs see it (`eth1`).
    pub name: String,
    pub ip: Ipv4Prefix,
    /// Of a default route by it.
    pub gateway: Option<[u8; 4]>,
}

/// Most network devices behind the first one.
pub const MAX_FURTHER: usize = 7;

/// Reads `a.b.c.d`.
pub fn parse_ipv4(text: &str) -> Option<[u8; 4]> {
    let mut out = [0; 4];
    let mut parts = text.split('.');
    for byte in &mut out {
        *byte = parts.next()?.parse().ok()?;
    }
    parts.next().is_none().then_some(out)
}

fn show_ipv4(a: &[u8; 4]) -> String {
    format!("{}.{}.{}.{}", a[0], a[1], a[2], a[3])
}

#[cfg(test)]
mod tests;
