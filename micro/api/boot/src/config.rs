// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line, in both directions.

use crate::confinement::decode_filter;
use crate::{
    CapabilitySets, Confinement, ControlGroup, Disk, Further, Hook, Ids, Ipv4Prefix, Ipv6, MAX_DRIVES,
    MAX_FURTHER, Rlimit, SEED, Tmpfs, Volume, parse_ipv4, show_ipv4,
};
use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

/// Everything the command line says. See the crate documentation for the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootConfig {
    pub ip: Option<Ipv4Prefix>,
    /// Address, gateway and DNS servers, as far as they are not said here, come from a DHCP server.
    pub dhcp: bool,
    pub gateway: Option<[u8; 4]>,
    /// The devices behind the first, in their order.
    pub further: Vec<Further>,
    pub ipv6: Ipv6,
    pub dns: Vec<[u8; 4]>,
    /// TCP ports whose connections reach a listener on 127.0.0.1 where there is no other.
    pub published: Vec<u16>,
    pub hostname: Option<String>,
    /// The cloud that is asked for the computer's name and user data.
    pub metadata: Option<String>,
    /// In order; later entries win.
    pub env: Vec<(String, String)>,
    pub cwd: Option<String>,
    pub uid: u32,
    pub gid: u32,
    /// File mode creation mask of the program; `None`: 022.
    pub umask: Option<u32>,
    pub limits: Vec<Rlimit>,
    /// Further groups of the program's user.
    pub groups: Vec<u32>,
    /// The program's capabilities; `None`: root has all.
    pub capabilities: Option<CapabilitySets>,
    /// No program gets more rights than it has.
    pub no_new_privileges: bool,
    pub confinement: Confinement,
    /// Programs that run before the machine's own, one after another, and what each of them reads from its standard input.
    pub hooks: Vec<Hook>,
    pub hook_input: String,
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
    /// Bytes of further settings that the monitor put to [`SETTINGS_ADDRESS`](crate::SETTINGS_ADDRESS).
    pub settings: Option<u64>,
    /// Random bytes of the host's.
    pub seed: Option<[u8; SEED]>,
    /// The program's path and its arguments.
    pub args: Vec<String>,
    /// Settings this version does not know, kept so that the kernel can name them in a warning.
    pub unknown: Vec<String>,
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

fn decode_seed(text: &str) -> Option<[u8; SEED]> {
    let mut seed = [0; SEED];
    if text.len() != 2 * SEED || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, at) in seed.iter_mut().zip((0..text.len()).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).ok()?;
    }
    Some(seed)
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
        for Further { name, ip, gateway } in &self.further {
            let gateway = gateway.map_or(String::new(), |gateway| format!(",{}", show_ipv4(&gateway)));
            put("eth", &format!("{}/{}{gateway}:{name}", show_ipv4(&ip.address), ip.length));
        }
        if !self.dns.is_empty() {
            put("dns", &self.dns.iter().map(show_ipv4).collect::<Vec<_>>().join(","));
        }
        self.ipv6.encode(&mut put);
        if !self.published.is_empty() {
            put("published", &self.published.iter().map(u16::to_string).collect::<Vec<_>>().join(","));
        }
        let texts = [
            ("hostname", &self.hostname),
            ("metadata", &self.metadata),
            ("cwd", &self.cwd),
            ("tz", &self.tz),
            ("log", &self.log),
        ];
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
        if let Some(umask) = self.umask {
            put("umask", &format!("{umask:o}"));
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
        for hook in &self.hooks {
            put("hook", &hook.show());
        }
        if !self.hook_input.is_empty() {
            put("hookinput", &self.hook_input);
        }
        if self.status_on_console {
            put("status", "console");
        }
        if let Some((offset, length)) = self.more {
            put("more", &format!("{offset}:{length}"));
        }
        if let Some(length) = self.settings {
            put("settings", &length.to_string());
        }
        if let Some(seed) = self.seed {
            put("seed", &seed.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
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
        let network = |text: &str| {
            let (a, length) = text.split_once('/').ok_or_else(|| bad(word, "ADDRESS/PREFIX"))?;
            let length = length.parse().ok().filter(|n| *n <= 32);
            let length = length.ok_or_else(|| bad(word, "a prefix of 0 to 32 bits"))?;
            Ok(Ipv4Prefix { address: address(a)?, length })
        };
        if let Some(set) = self.ipv6.setting(key, &value) {
            return set.map_err(|wanted| bad(word, wanted));
        }
        match key {
            "ip" if value == "dhcp" => self.dhcp = true,
            "ip" => self.ip = Some(network(&value)?),
            "gw" => self.gateway = Some(address(&value)?),
            "eth" => {
                let wrong = || bad(word, "ADDRESS/PREFIX[,GATEWAY]:NAME");
                let (place, name) =
                    value.split_once(':').filter(|(_, name)| !name.is_empty()).ok_or_else(wrong)?;
                let (ip, gateway) = match place.split_once(',') {
                    Some((ip, gateway)) => (network(ip)?, Some(address(gateway)?)),
                    None => (network(place)?, None),
                };
                if self.further.len() >= MAX_FURTHER {
                    return Err(bad(word, "7 devices behind the first at most"));
                }
                self.further.push(Further { name: name.to_string(), ip, gateway });
            }
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
            "metadata" => self.metadata = Some(value),
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
            "umask" => {
                let umask = u32::from_str_radix(&value, 8).ok().filter(|mask| *mask <= 0o777);
                self.umask = Some(umask.ok_or_else(|| bad(word, "three octal digits"))?);
            }
            "hook" => {
                let hook = Hook::parse(&value);
                self.hooks.push(hook.ok_or_else(|| bad(word, "SECONDS, /PATH, NUMBER, words"))?);
            }
            "hookinput" => self.hook_input = value,
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
            "settings" => self.settings = Some(number()?),
            "seed" => {
                let seed = decode_seed(&value).ok_or_else(|| bad(word, "64 hexadecimal digits"))?;
                self.seed = Some(seed);
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
