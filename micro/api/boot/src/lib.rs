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
//! | `dns` | DNS servers, separated by commas |
//! | `ip6` | IPv6 addresses and prefixes of the first network device, separated by commas; `auto` among them: what routers of its link say, too. Without it the device has no IPv6 |
//! | `gw6` | default IPv6 gateway |
//! | `dns6` | DNS servers with IPv6 addresses, separated by commas |
//! | `published` | TCP ports that the host publishes, separated by commas: their connections reach listeners on 127.0.0.1 as well |
//! | `hostname` | host name |
//! | `env.KEY` | one environment variable |
//! | `cwd` | working directory of the program |
//! | `uid`, `gid` | user and group of the program |
//! | `rlimit` | `NUMBER:SOFT` or `NUMBER:SOFT:HARD`: a resource limit of the program (getrlimit(2)) by Linux' number; may repeat |
//! | `groups` | its further groups, separated by commas |
//! | `caps` | the program's capabilities (capabilities(7)): bounding, permitted, effective, inheritable and ambient set in hexadecimal digits, with colons between them; without it root has all |
//! | `nnp` | `1`: no program gets more rights than it has (PR_SET_NO_NEW_PRIVS) |
//! | `ids` | `USERS/GROUPS`: the users and groups that there are, lines `INSIDE:OUTSIDE:COUNT` of a map with commas between them (user_namespaces(7)); whoever serves the files translates |
//! | `seccomp` | the program's filter of system calls (seccomp(2)): 16 hexadecimal digits an instruction, `struct sock_filter` as a number |
//! | `sysctl` | `NAME=VALUE`: written below /proc/sys before the program starts, which fails if it cannot be; may repeat |
//! | `masked` | an absolute path that shows nothing: a file is /dev/null, a directory empty; one that is not there is passed over; may repeat |
//! | `readonly` | an absolute path that may not be written to, as `masked`; may repeat |
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

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

mod input;
mod ipv6;
mod output;
mod port;

pub use input::{INPUT_END, Input, InputDecoder, encode_input, escape_line_feeds};
pub use ipv6::Ipv6;
pub use output::{OutputDecoder, Stream, encode_output, encoded_output_size};
pub use port::{PortDecoder, STATUS_BEGIN, STATUS_END, encode_port};

/// The I/O port of the status line (QEMU `isa-debugcon,iobase=0xe9`).
pub const STATUS_PORT: u16 = 0xe9;
/// The I/O port that ends QEMU (`isa-debug-exit,iobase=0xf4,iosize=0x04`). The exit code travels as [`Status::Exit`].
pub const EXIT_PORT: u16 = 0xf4;

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

/// The name of the only file in the export of a volume that is a file.
pub const VOLUME_FILE: &str = "file";

/// A host directory mounted over 9p, or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The 9p mount tag of the virtio device.
    pub tag: String,
    /// Absolute path in the machine.
    pub path: String,
    pub read_only: bool,
    /// The export is a directory, and [`VOLUME_FILE`] in it is what is mounted: QEMU exports directories only.
    pub file: bool,
}

/// A disk with a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Its place among the machine's block devices.
    pub index: u8,
    /// Absolute path in the machine.
    pub path: String,
    pub read_only: bool,
}

/// A file system in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tmpfs {
    /// Absolute path in the machine.
    pub path: String,
    /// Bytes it may hold; 0: half of the memory.
    pub size: u64,
    /// Files and directories that it may have; 0: one for each page of its size.
    pub inodes: u64,
    /// Permissions of its root.
    pub mode: u32,
    /// Programs on it may be executed.
    pub exec: bool,
}

impl Tmpfs {
    /// `PATH:SIZE[/INODES]:MODE[:exec]`.
    pub fn show(&self) -> String {
        let exec = if self.exec { ":exec" } else { "" };
        let inodes = if self.inodes == 0 { String::new() } else { format!("/{}", self.inodes) };
        format!("{}:{}{inodes}:{:o}{exec}", self.path, self.size, self.mode)
    }

    /// What [`Tmpfs::show`] wrote.
    pub fn parse(text: &str) -> Option<Tmpfs> {
        let (rest, exec) = text.strip_suffix(":exec").map_or((text, false), |rest| (rest, true));
        let mut parts = rest.rsplitn(3, ':');
        let mode = u32::from_str_radix(parts.next()?, 8).ok().filter(|mode| *mode <= 0o7777)?;
        let size = parts.next()?;
        let (size, inodes) = size.split_once('/').unwrap_or((size, "0"));
        let path = parts.next().filter(|path| path.starts_with('/'))?.to_string();
        Some(Tmpfs { path, size: size.parse().ok()?, inodes: inodes.parse().ok()?, mode, exec })
    }
}

/// A resource limit (getrlimit(2)); `u64::MAX` is none (RLIM_INFINITY).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rlimit {
    /// Linux' number, below [`Rlimit::RESOURCES`].
    pub resource: u8,
    pub soft: u64,
    /// `None`: the kernel's, or the soft one where that is higher.
    pub hard: Option<u64>,
}

impl Rlimit {
    /// Linux' RLIM_NLIMITS.
    pub const RESOURCES: u8 = 16;

    fn decode(text: &str) -> Option<Rlimit> {
        let mut numbers = text.split(':');
        let resource = numbers.next()?.parse().ok().filter(|n| *n < Rlimit::RESOURCES)?;
        let soft = numbers.next()?.parse().ok()?;
        let hard = numbers.next().map(str::parse).transpose().ok()?;
        numbers.next().is_none().then_some(Rlimit { resource, soft, hard })
    }
}

/// Everything the command line says. See the crate documentation for the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootConfig {
    pub ip: Option<Ipv4Prefix>,
    /// Address, gateway and DNS servers, as far as they are not said here, come from a DHCP server.
    pub dhcp: bool,
    pub gateway: Option<[u8; 4]>,
    pub ipv6: Ipv6,
    pub dns: Vec<[u8; 4]>,
    /// TCP ports whose connections reach a listener on 127.0.0.1 where there is no other.
    pub published: Vec<u16>,
    pub hostname: Option<String>,
    /// In order; later entries win.
    pub env: Vec<(String, String)>,
    pub cwd: Option<String>,
    pub uid: u32,
    pub gid: u32,
    pub limits: Vec<Rlimit>,
    /// Further groups of the program's user.
    pub groups: Vec<u32>,
    /// The program's capabilities; `None`: root has all.
    pub capabilities: Option<CapabilitySets>,
    /// No program gets more rights than it has.
    pub no_new_privileges: bool,
    pub confinement: Confinement,
    /// The control group of the machine's own processes, where it is a container's.
    pub group: Option<ControlGroup>,
    /// `None`: every user and group that there can be, as itself.
    pub ids: Option<Ids>,
    pub volumes: Vec<Volume>,
    pub disks: Vec<Disk>,
    pub tmpfs: Vec<Tmpfs>,
    /// The program may not write to the root file system.
    pub read_only: bool,
    /// Lines for /etc/hosts.
    pub hosts: Vec<String>,
    pub epoch_ns: Option<u64>,
    pub tz: Option<String>,
    pub log: Option<String>,
    pub trace: bool,
    /// The signal that a break on the console sends; `None`: SIGTERM.
    pub stop_signal: Option<u8>,
    /// Processors that are used; `None`: one.
    pub cpus: Option<u32>,
    /// The program's standard streams are a terminal.
    pub tty: bool,
    /// Without a terminal, the program's standard input is /dev/null; else it is what comes from the console.
    pub null_input: bool,
    /// Without a terminal, the program's standard error is marked on the console.
    pub own_error: bool,
    /// Status lines go over the console.
    pub status_on_console: bool,
    /// Where in the initial RAM disk further settings are: offset and length in bytes.
    pub more: Option<(u64, u64)>,
    /// The program's path and its arguments.
    pub args: Vec<String>,
    /// Settings this version does not know, kept so that the kernel can name them in a warning.
    pub unknown: Vec<String>,
}

/// What the program, and all that it starts, is kept from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// Instructions of its filter of system calls, each as `struct sock_filter` is in memory (little-endian); none: no filter.
    pub filter: Vec<u64>,
    /// Values of /proc/sys, whose names have dots (sysctl(8)).
    pub settings: Vec<(String, String)>,
    /// Absolute paths that show nothing.
    pub masked: Vec<String>,
    /// Absolute paths that may not be written to.
    pub read_only: Vec<String>,
}

/// The users and groups that there are (user_namespaces(7)): first id, what that is for who made the machine, and how many follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    pub users: Vec<(u32, u32, u32)>,
    pub groups: Vec<(u32, u32, u32)>,
}

impl Ids {
    /// Lines of one map (Linux' UID_GID_MAP_MAX_EXTENTS).
    pub const MAX_EXTENTS: usize = 340;

    /// `INSIDE:OUTSIDE:COUNT,...`
    fn show(map: &[(u32, u32, u32)]) -> String {
        let lines = map.iter().map(|(inside, outside, count)| format!("{inside}:{outside}:{count}"));
        lines.collect::<Vec<_>>().join(",")
    }

    fn parse(text: &str) -> Option<Vec<(u32, u32, u32)>> {
        let line = |text: &str| {
            let mut numbers = text.split(':').map(|number| number.parse::<u32>().ok());
            let line = (numbers.next()??, numbers.next()??, numbers.next()??);
            let fits = line.0.checked_add(line.2).is_some() && line.1.checked_add(line.2).is_some();
            (numbers.next().is_none() && line.2 > 0 && fits).then_some(line)
        };
        let lines = text.split(',').map(line).collect::<Option<Vec<_>>>()?;
        (lines.len() <= Ids::MAX_EXTENTS).then_some(lines)
    }
}

/// A control group: what its files say (cgroup-v2.rst). `u64::MAX` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    /// Bytes.
    pub memory: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Microseconds of processor time, in a period of so many.
    pub cpu: (u64, u64),
    /// Its files are at /sys/fs/cgroup; `true`: to be read only.
    pub files: Option<bool>,
}

impl ControlGroup {
    /// Memory, processes, processor time and its period, and how its files are seen, with colons between them.
    fn show(&self) -> String {
        let ControlGroup { memory, pids, cpu: (quota, period), files } = self;
        let files = files.map_or("none", |is_read_only| if is_read_only { "ro" } else { "rw" });
        format!("{memory}:{pids}:{quota}:{period}:{files}")
    }

    fn parse(text: &str) -> Option<ControlGroup> {
        let mut words = text.split(':');
        let mut number = || words.next()?.parse::<u64>().ok();
        let (memory, pids, cpu) = (number()?, number()?, (number()?, number()?));
        let files = match words.next()? {
            "none" => None,
            "ro" => Some(true),
            "rw" => Some(false),
            _ => return None,
        };
        words.next().is_none().then_some(ControlGroup { memory, pids, cpu, files })
    }
}

/// Digits of an instruction of a filter.
const INSTRUCTION_DIGITS: usize = 16;

fn decode_filter(text: &str) -> Option<Vec<u64>> {
    let digits = text.as_bytes().chunks(INSTRUCTION_DIGITS);
    let number = |chunk: &[u8]| {
        let digits = core::str::from_utf8(chunk).ok().filter(|digits| digits.len() == INSTRUCTION_DIGITS)?;
        u64::from_str_radix(digits, 16).ok()
    };
    digits.map(number).collect()
}

/// The sets of capabilities(7), a bit for each capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapabilitySets {
    pub bounding: u64,
    pub permitted: u64,
    pub effective: u64,
    pub inheritable: u64,
    pub ambient: u64,
}

impl CapabilitySets {
    fn parse(text: &str) -> Option<CapabilitySets> {
        let mut sets = text.split(':').map(|set| u64::from_str_radix(set, 16).ok());
        let mut next = || sets.next().flatten();
        let [bounding, permitted, effective, inheritable, ambient] =
            [next()?, next()?, next()?, next()?, next()?];
        let all = CapabilitySets { bounding, permitted, effective, inheritable, ambient };
        sets.next().is_none().then_some(all)
    }
}

impl fmt::Display for CapabilitySets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CapabilitySets { bounding, permitted, effective, inheritable, ambient } = self;
        write!(f, "{bounding:x}:{permitted:x}:{effective:x}:{inheritable:x}:{ambient:x}")
    }
}

/// Why a command line could not be read: the word, and what was expected instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadWord {
    pub word: String,
    pub expected: &'static str,
}

impl fmt::Display for BadWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot command line: `{}`: expected {}", self.word, self.expected)
    }
}

fn encode(out: &mut String, value: &str) {
    for b in value.bytes() {
        match b {
            // Monitors look for quotes.
            b'!' | b'#'..=b'$' | b'&'..=b'~' => out.push(b as char),
            _ => out.push_str(&format!("%{b:02x}")),
        }
    }
}

fn decode(word: &str) -> Option<String> {
    let mut out = Vec::with_capacity(word.len());
    let mut bytes = word.bytes();
    while let Some(b) = bytes.next() {
        if b == b'%' {
            let digit = |b: Option<u8>| (b? as char).to_digit(16);
            let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
            out.push((high * 16 + low) as u8);
        } else {
            out.push(b);
        }
    }
    String::from_utf8(out).ok()
}

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

impl BootConfig {
    /// The command line that [`BootConfig::decode`] reads back.
    pub fn encode(&self) -> String {
        let mut out = String::new();
        let mut put = |key: &str, value: &str| {
            out.push_str(key);
            out.push('=');
            encode(&mut out, value);
            out.push(' ');
        };
        if self.dhcp {
            put("ip", "dhcp");
        }
        if let Some(ip) = &self.ip {
            put("ip", &format!("{}/{}", show_ipv4(&ip.address), ip.length));
        }
        if let Some(gateway) = &self.gateway {
            put("gw", &show_ipv4(gateway));
        }
        if !self.dns.is_empty() {
            put("dns", &self.dns.iter().map(show_ipv4).collect::<Vec<_>>().join(","));
        }
        self.ipv6.encode(&mut put);
        if !self.published.is_empty() {
            put("published", &self.published.iter().map(u16::to_string).collect::<Vec<_>>().join(","));
        }
        let texts = [("hostname", &self.hostname), ("cwd", &self.cwd), ("tz", &self.tz), ("log", &self.log)];
        for (key, value) in texts {
            if let Some(value) = value {
                put(key, value);
            }
        }
        for (key, value) in [("uid", self.uid), ("gid", self.gid)] {
            if value != 0 {
                put(key, &value.to_string());
            }
        }
        for Rlimit { resource, soft, hard } in &self.limits {
            let hard = hard.map(|hard| format!(":{hard}")).unwrap_or_default();
            put("rlimit", &format!("{resource}:{soft}{hard}"));
        }
        if !self.groups.is_empty() {
            put("groups", &self.groups.iter().map(u32::to_string).collect::<Vec<_>>().join(","));
        }
        for v in &self.volumes {
            let (file, ro) = (if v.file { "/file" } else { "" }, if v.read_only { ":ro" } else { "" });
            put("vol", &format!("{}{file}:{}{ro}", v.tag, v.path));
        }
        for d in &self.disks {
            put("disk", &format!("{}:{}{}", d.index, d.path, if d.read_only { ":ro" } else { "" }));
        }
        for tmpfs in &self.tmpfs {
            put("tmpfs", &tmpfs.show());
        }
        if self.read_only {
            put("root", "ro");
        }
        for line in &self.hosts {
            put("host", line);
        }
        if let Some(epoch) = self.epoch_ns {
            put("epoch", &epoch.to_string());
        }
        if self.trace {
            put("trace", "1");
        }
        if let Some(signal) = self.stop_signal {
            put("stop", &signal.to_string());
        }
        if let Some(cpus) = self.cpus {
            put("cpus", &cpus.to_string());
        }
        if self.tty {
            put("tty", "1");
        }
        if self.null_input {
            put("input", "null");
        }
        if self.own_error {
            put("stderr", "own");
        }
        if let Some(sets) = self.capabilities {
            put("caps", &sets.to_string());
        }
        if self.no_new_privileges {
            put("nnp", "1");
        }
        if let Some(group) = &self.group {
            put("group", &group.show());
        }
        if let Some(Ids { users, groups }) = &self.ids {
            put("ids", &format!("{}/{}", Ids::show(users), Ids::show(groups)));
        }
        let Confinement { filter, settings, masked, read_only } = &self.confinement;
        if !filter.is_empty() {
            put("seccomp", &filter.iter().map(|word| format!("{word:016x}")).collect::<String>());
        }
        for (name, value) in settings {
            put("sysctl", &format!("{name}={value}"));
        }
        for (key, paths) in [("masked", masked), ("readonly", read_only)] {
            paths.iter().for_each(|path| put(key, path));
        }
        if self.status_on_console {
            put("status", "console");
        }
        if let Some((offset, length)) = self.more {
            put("more", &format!("{offset}:{length}"));
        }
        for (key, value) in &self.env {
            let mut name = String::from("env.");
            encode(&mut name, key);
            put(&name, value);
        }
        out.push_str("--");
        for arg in &self.args {
            out.push(' ');
            // An empty argument would vanish between two spaces.
            if arg.is_empty() {
                out.push('%');
            } else {
                encode(&mut out, arg);
            }
        }
        out
    }

    /// Reads a command line. Unknown keys are kept in `unknown`; a known key with a bad value is an error.
    pub fn decode(line: &str) -> Result<BootConfig, BadWord> {
        let mut config = BootConfig::default();
        let mut words = line.split_ascii_whitespace();
        for word in words.by_ref() {
            if word == "--" {
                break;
            }
            config.setting(word)?;
        }
        for word in words {
            let arg = if word == "%" { Some(String::new()) } else { decode(word) };
            config.args.push(arg.ok_or_else(|| bad(word, "percent-encoded UTF-8"))?);
        }
        Ok(config)
    }

    fn setting(&mut self, word: &str) -> Result<(), BadWord> {
        let Some((key, raw)) = word.split_once('=') else {
            self.unknown.push(word.to_string());
            return Ok(());
        };
        let value = decode(raw).ok_or_else(|| bad(word, "percent-encoded UTF-8"))?;
        let number = || value.parse::<u64>().map_err(|_| bad(word, "a number"));
        let address = |text: &str| parse_ipv4(text).ok_or_else(|| bad(word, "an IPv4 address"));
        if let Some(set) = self.ipv6.setting(key, &value) {
            return set.map_err(|wanted| bad(word, wanted));
        }
        match key {
            "ip" if value == "dhcp" => self.dhcp = true,
            "ip" => {
                let (a, length) = value.split_once('/').ok_or_else(|| bad(word, "ADDRESS/PREFIX"))?;
                let length = length.parse().ok().filter(|n| *n <= 32);
                let length = length.ok_or_else(|| bad(word, "a prefix of 0 to 32 bits"))?;
                self.ip = Some(Ipv4Prefix { address: address(a)?, length });
            }
            "gw" => self.gateway = Some(address(&value)?),
            "dns" => {
                for server in value.split(',').filter(|s| !s.is_empty()) {
                    self.dns.push(address(server)?);
                }
            }
            "published" => {
                for port in value.split(',') {
                    self.published.push(port.parse().map_err(|_| bad(word, "ports"))?);
                }
            }
            "hostname" => self.hostname = Some(value),
            "cwd" => self.cwd = Some(value),
            "tz" => self.tz = Some(value),
            "log" => self.log = Some(value),
            "cpus" => {
                let cpus = u32::try_from(number()?).ok().filter(|n| *n > 0);
                self.cpus = Some(cpus.ok_or_else(|| bad(word, "a number of processors"))?);
            }
            "uid" => self.uid = u32::try_from(number()?).map_err(|_| bad(word, "a user id"))?,
            "gid" => self.gid = u32::try_from(number()?).map_err(|_| bad(word, "a group id"))?,
            "groups" => {
                for group in value.split(',') {
                    self.groups.push(group.parse().map_err(|_| bad(word, "group ids"))?);
                }
            }
            "epoch" => self.epoch_ns = Some(number()?),
            "rlimit" => {
                let limit = Rlimit::decode(&value);
                self.limits.push(limit.ok_or_else(|| bad(word, "NUMBER:SOFT or NUMBER:SOFT:HARD"))?);
            }
            "trace" => self.trace = value == "1",
            "tty" => self.tty = value == "1",
            "input" => self.null_input = value == "null",
            "stderr" => self.own_error = value == "own",
            "caps" => {
                let sets = CapabilitySets::parse(&value);
                self.capabilities = Some(sets.ok_or_else(|| bad(word, "five sets in hexadecimal digits"))?);
            }
            "nnp" => self.no_new_privileges = value == "1",
            "group" => {
                let group = ControlGroup::parse(&value);
                self.group = Some(group.ok_or_else(|| bad(word, "MEMORY:PIDS:QUOTA:PERIOD:FILES"))?);
            }
            "ids" => {
                let maps = value.split_once('/');
                let maps = maps.and_then(|(users, groups)| {
                    Some(Ids { users: Ids::parse(users)?, groups: Ids::parse(groups)? })
                });
                self.ids =
                    Some(maps.ok_or_else(|| bad(word, "INSIDE:OUTSIDE:COUNT,.../INSIDE:OUTSIDE:COUNT,..."))?);
            }
            "seccomp" => {
                let filter = decode_filter(&value);
                self.confinement.filter =
                    filter.ok_or_else(|| bad(word, "16 hexadecimal digits an instruction"))?;
            }
            "sysctl" => {
                let (name, value) = value.split_once('=').ok_or_else(|| bad(word, "NAME=VALUE"))?;
                self.confinement.settings.push((name.to_string(), value.to_string()));
            }
            "masked" | "readonly" if !value.starts_with('/') => return Err(bad(word, "an absolute path")),
            "masked" => self.confinement.masked.push(value),
            "readonly" => self.confinement.read_only.push(value),
            "status" => self.status_on_console = value == "console",
            "more" => {
                let parts = value.split_once(':');
                let parts =
                    parts.and_then(|(offset, length)| Some((offset.parse().ok()?, length.parse().ok()?)));
                self.more = Some(parts.ok_or_else(|| bad(word, "OFFSET:LENGTH"))?);
            }
            "stop" => {
                let signal = value.parse().ok().filter(|n| (1..=64).contains(n));
                self.stop_signal = Some(signal.ok_or_else(|| bad(word, "a signal number of 1 to 64"))?);
            }
            "vol" => {
                let (rest, read_only) =
                    value.strip_suffix(":ro").map_or((value.as_str(), false), |r| (r, true));
                let (tag, path) = rest.split_once(':').ok_or_else(|| bad(word, "TAG:PATH or TAG:PATH:ro"))?;
                let (tag, file) = tag.strip_suffix("/file").map_or((tag, false), |tag| (tag, true));
                if !path.starts_with('/') {
                    return Err(bad(word, "an absolute path in the machine"));
                }
                self.volumes.push(Volume { tag: tag.to_string(), path: path.to_string(), read_only, file });
            }
            "disk" => {
                let (rest, read_only) =
                    value.strip_suffix(":ro").map_or((value.as_str(), false), |r| (r, true));
                let parts = rest.split_once(':').and_then(|(n, path)| Some((n.parse().ok()?, path)));
                let parts = parts.filter(|(n, path)| usize::from(*n) < MAX_DRIVES && path.starts_with('/'));
                let (index, path) = parts.ok_or_else(|| bad(word, "N:PATH or N:PATH:ro"))?;
                self.disks.push(Disk { index, path: path.to_string(), read_only });
            }
            "tmpfs" => {
                let tmpfs = Tmpfs::parse(&value);
                self.tmpfs.push(tmpfs.ok_or_else(|| bad(word, "PATH:SIZE:MODE"))?);
            }
            "root" if value == "ro" => self.read_only = true,
            "root" => return Err(bad(word, "ro")),
            "host" => self.hosts.push(value),
            _ => match key.strip_prefix("env.") {
                Some(name) => {
                    let name = decode(name).ok_or_else(|| bad(word, "percent-encoded UTF-8"))?;
                    self.env.push((name, value));
                }
                None => self.unknown.push(word.to_string()),
            },
        }
        Ok(())
    }
}

fn bad(word: &str, expected: &'static str) -> BadWord {
    BadWord { word: word.to_string(), expected }
}

/// One line on the status port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The kernel is about to jump to the program's first instruction; nanoseconds since the kernel's first.
    Started { kernel_ns: u64 },
    /// A server socket of the program listens (TCP) or is bound to a non-ephemeral port (UDP).
    Listening { udp: bool, port: u16 },
    /// The program asked for a system call the kernel does not have; sent at the first time for each number.
    Missing { number: u32 },
    /// The program ended of its own will.
    Exit { code: u8 },
    /// The program was killed by a signal (Linux numbering).
    Signal { number: u8 },
    /// The machine ran out of memory; bytes it was given.
    OutOfMemory { given: u64 },
    /// Process machines, at the end: how many calls came by a signal (Syscall User Dispatch) instead of a patched site.
    Trapped { count: u64 },
    /// Process machines: a file of the image that the program has mapped to be executed, for debuggers.
    Mapped { address: u64, offset: u64, path: String },
    /// A line of the kernel's log, which would otherwise stand among what the program prints.
    Log { text: String },
    /// The kernel could not start the program or hit a fault of its own; one line for the user.
    Failed { reason: String },
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Started { kernel_ns } => write!(f, "started {kernel_ns}"),
            Status::Listening { udp, port } => {
                write!(f, "listening {} {port}", if *udp { "udp" } else { "tcp" })
            }
            Status::Missing { number } => write!(f, "missing {number}"),
            Status::Exit { code } => write!(f, "exit {code}"),
            Status::Signal { number } => write!(f, "signal {number}"),
            Status::OutOfMemory { given } => write!(f, "out-of-memory {given}"),
            Status::Trapped { count } => write!(f, "trapped {count}"),
            Status::Mapped { address, offset, path } => {
                one_line(f, &format!("mapped {address:#x} {offset:#x} "), path)
            }
            Status::Log { text } => one_line(f, "log ", text),
            Status::Failed { reason } => one_line(f, "failed ", reason),
        }
    }
}

fn one_line(f: &mut fmt::Formatter<'_>, word: &str, text: &str) -> fmt::Result {
    f.write_str(word)?;
    text.chars().try_for_each(|c| write!(f, "{}", if c == '\n' { ' ' } else { c }))
}

impl Status {
    /// Reads one line without its newline; `None` for anything else than what [`Status`] prints.
    pub fn parse(line: &str) -> Option<Status> {
        let (word, rest) = line.split_once(' ')?;
        Some(match word {
            "started" => Status::Started { kernel_ns: rest.parse().ok()? },
            "listening" => {
                let (protocol, port) = rest.split_once(' ')?;
                let udp = match protocol {
                    "udp" => true,
                    "tcp" => false,
                    _ => return None,
                };
                Status::Listening { udp, port: port.parse().ok()? }
            }
            "missing" => Status::Missing { number: rest.parse().ok()? },
            "exit" => Status::Exit { code: rest.parse().ok()? },
            "signal" => Status::Signal { number: rest.parse().ok()? },
            "out-of-memory" => Status::OutOfMemory { given: rest.parse().ok()? },
            "trapped" => Status::Trapped { count: rest.parse().ok()? },
            "mapped" => {
                let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
                let (address, rest) = rest.split_once(' ')?;
                let (offset, path) = rest.split_once(' ')?;
                Status::Mapped { address: hex(address)?, offset: hex(offset)?, path: path.to_string() }
            }
            "log" => Status::Log { text: rest.to_string() },
            "failed" => Status::Failed { reason: rest.to_string() },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> BootConfig {
        BootConfig {
            ip: Some(Ipv4Prefix { address: [10, 0, 2, 15], length: 24 }),
            dhcp: true,
            gateway: Some([10, 0, 2, 2]),
            ipv6: Ipv6 {
                addresses: alloc::vec![("fd00::2".parse().unwrap(), 64)],
                is_automatic: true,
                gateway: Some("fe80::1".parse().unwrap()),
                dns: alloc::vec!["fd00::53".parse().unwrap()],
            },
            dns: alloc::vec![[10, 0, 2, 3], [1, 1, 1, 1]],
            published: alloc::vec![80, 443],
            hostname: Some("red is".into()),
            env: alloc::vec![("A".into(), "b c=%\n".into()), ("Ä".into(), "".into())],
            cwd: Some("/data dir".into()),
            uid: 33,
            gid: 34,
            limits: alloc::vec![
                Rlimit { resource: 7, soft: 4096, hard: Some(8192) },
                Rlimit { resource: 8, soft: u64::MAX, hard: None },
            ],
            groups: alloc::vec![35, 0],
            volumes: alloc::vec![Volume {
                tag: "v0".into(),
                path: "/da:ta".into(),
                read_only: true,
                file: true
            }],
            disks: alloc::vec![Disk { index: 1, path: "/da:ta".into(), read_only: true }],
            tmpfs: alloc::vec![Tmpfs {
                path: "/a:b".into(),
                size: 1 << 20,
                inodes: 77,
                mode: 0o1777,
                exec: true,
            }],
            read_only: true,
            hosts: alloc::vec!["10.0.0.1\tdb db.local".into()],
            epoch_ns: Some(1 << 60),
            tz: Some("UTC".into()),
            log: Some("debug".into()),
            trace: true,
            stop_signal: Some(3),
            cpus: Some(4),
            tty: true,
            null_input: true,
            own_error: true,
            capabilities: Some(CapabilitySets {
                bounding: 0x1ff,
                permitted: 3,
                effective: 2,
                inheritable: 1,
                ambient: 0,
            }),
            no_new_privileges: true,
            group: Some(ControlGroup {
                memory: 64 << 20,
                pids: u64::MAX,
                cpu: (50_000, 100_000),
                files: Some(true),
            }),
            ids: Some(Ids {
                users: alloc::vec![(0, 100_000, 1000), (1000, 7, 1)],
                groups: alloc::vec![(0, 200_000, 65_536)],
            }),
            confinement: Confinement {
                filter: alloc::vec![0x0000_0004_0000_0020, u64::MAX, 6],
                settings: alloc::vec![("net.ipv4.ping_group_range".into(), "0 2147483647".into())],
                masked: alloc::vec!["/proc/kcore".into(), "/sys/a b".into()],
                read_only: alloc::vec!["/proc/sys".into()],
            },
            status_on_console: true,
            more: Some((4096, 300)),
            args: alloc::vec!["/bin/x".into(), "".into(), "--".into(), "a b".into(), "%".into()],
            unknown: Vec::new(),
        }
    }

    #[test]
    fn every_setting_survives_the_round_trip() {
        assert_eq!(BootConfig::decode(&full().encode()), Ok(full()));
        assert_eq!(
            BootConfig::decode(&BootConfig::default().encode()),
            Ok(BootConfig { args: Vec::new(), ..Default::default() })
        );
    }

    #[test]
    fn bad_values_are_named() {
        for line in [
            "ip=1.2.3.4 --",
            "ip=1.2.3/8 --",
            "gw=x --",
            "uid=-1 --",
            "groups=1,x --",
            "stop=65 --",
            "published=x --",
            "caps=1:2:3:4 --",
            "caps=1:2:3:4:5:6 --",
            "caps=1:2:3:4:g --",
            "rlimit=7:1:x --",
            "rlimit=16:1 --",
            "rlimit=7 --",
            "vol=x --",
            "cwd=%zz --",
        ] {
            let word = line.split(' ').next().unwrap();
            assert_eq!(BootConfig::decode(line).unwrap_err().word, word);
        }
    }

    #[test]
    fn unknown_settings_are_kept_for_a_warning() {
        assert_eq!(BootConfig::decode("quiet x=1 -- /a").unwrap().unknown, ["quiet", "x=1"]);
    }

    #[test]
    fn status_lines_survive_the_round_trip() {
        for status in [
            Status::Started { kernel_ns: 5 },
            Status::Listening { udp: true, port: 53 },
            Status::Missing { number: 425 },
            Status::Exit { code: 255 },
            Status::Signal { number: 11 },
            Status::OutOfMemory { given: 1 << 24 },
            Status::Trapped { count: 12 },
            Status::Mapped { address: 0x7f00_0000_1000, offset: 0x1000, path: "/lib/a b.so".into() },
            Status::Log { text: "[    0.1] warning: x".into() },
            Status::Failed { reason: "no such file: /x y".into() },
        ] {
            assert_eq!(Status::parse(&format!("{status}")), Some(status));
        }
        assert_eq!(Status::parse("hello"), None);
    }
}
