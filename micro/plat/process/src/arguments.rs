// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The words that the tender starts the machine with. Read before there is a heap. They are visible to every user of the
//! host, so they say nothing of the program: its boot command line comes by a descriptor.

/// How frames travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// A tap device with virtio-net headers.
    Tap,
    /// A packet socket with virtio-net headers, bound to a device of the host.
    Packet,
    /// A stream socket with a length of four bytes (big-endian) before each frame.
    Stream,
}

/// The network device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    pub link: Link,
    pub fd: i32,
    pub mac: Option<[u8; 6]>,
    pub mtu: usize,
}

/// A block device: a regular file of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    pub fd: i32,
    pub read_only: bool,
}

/// Most volumes.
pub const VOLUMES: usize = 16;
/// Most network devices.
pub const NETWORKS: usize = 1 + api_boot::MAX_FURTHER;
/// Most block devices.
pub const DISKS: usize = api_boot::MAX_DRIVES;

/// What the tender gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arguments<'a> {
    /// Bytes.
    pub memory: u64,
    pub root: i32,
    /// Where the boot command line is read from, up to its end.
    pub boot: i32,
    /// Virtual processors.
    pub cpus: u32,
    pub status: Option<i32>,
    /// `None` behind the last.
    pub networks: [Option<Network>; NETWORKS],
    /// The overlay's line: a stream socket.
    pub line: Option<i32>,
    /// Mount tag and socket of each volume; `None` behind the last.
    pub volumes: [Option<(&'a str, i32)>; VOLUMES],
    /// Where changes of the host's in volumes are read from (inotify(7)).
    pub changes: Option<i32>,
    /// `None` behind the last.
    pub disks: [Option<Disk>; DISKS],
}

/// Least memory: the kernel alone wants 2 MiB.
const LEAST: u64 = 8 << 20;
const _: () =
    assert!(api_boot::MAX_MEMORY == api_plat::MAX_MEMORY, "the command and the kernel have one limit");

impl<'a> Arguments<'a> {
    /// Reads `key=value` words; the error is the word, and what was expected instead.
    pub fn parse(words: impl Iterator<Item = &'a str>) -> Result<Arguments<'a>, (&'a str, &'static str)> {
        let mut out = Arguments {
            memory: 0,
            root: -1,
            boot: -1,
            cpus: 1,
            status: None,
            networks: [None; NETWORKS],
            line: None,
            volumes: [None; VOLUMES],
            changes: None,
            disks: [None; DISKS],
        };
        let (mut count, mut disks, mut networks) = (0, 0, 0);
        for word in words {
            let bad = |expected| (word, expected);
            let (key, value) = word.split_once('=').ok_or(bad("KEY=VALUE"))?;
            let descriptor = |text: &str| text.parse().ok().filter(|fd: &i32| *fd >= 0);
            match key {
                "memory" => {
                    let range = LEAST..=api_boot::MAX_MEMORY;
                    let bytes =
                        value.parse().ok().filter(|n: &u64| n.is_multiple_of(4096) && range.contains(n));
                    out.memory = bytes.ok_or(bad("pages of 4096 bytes, 8 MiB to 512 GiB"))?;
                }
                "cpus" => {
                    let count = value.parse().ok().filter(|n| (1..=api_plat::MAX_CPUS as u32).contains(n));
                    out.cpus = count.ok_or(bad("1 to 16 processors"))?;
                }
                "root" => out.root = descriptor(value).ok_or(bad("a descriptor"))?,
                "boot" => out.boot = descriptor(value).ok_or(bad("a descriptor"))?,
                "status" => out.status = Some(descriptor(value).ok_or(bad("a descriptor"))?),
                "changes" => out.changes = Some(descriptor(value).ok_or(bad("a descriptor"))?),
                "line" => out.line = Some(descriptor(value).ok_or(bad("a descriptor"))?),
                "tap" | "packet" | "stream" => {
                    let link = match key {
                        "tap" => Link::Tap,
                        "packet" => Link::Packet,
                        _ => Link::Stream,
                    };
                    let network = network(link, value).ok_or(bad("FD[,MAC[,MTU]]"))?;
                    let slot = out.networks.get_mut(networks).ok_or(bad("8 network devices at most"))?;
                    *slot = Some(network);
                    networks += 1;
                }
                "9p" => {
                    let volume = value.split_once(':').and_then(|(tag, fd)| Some((tag, descriptor(fd)?)));
                    let slot = out.volumes.get_mut(count).ok_or(bad("16 volumes at most"))?;
                    *slot = Some(volume.ok_or(bad("TAG:FD"))?);
                    count += 1;
                }
                "disk" => {
                    let (text, read_only) = match value.strip_suffix(",ro") {
                        Some(text) => (text, true),
                        None => (value, false),
                    };
                    let fd = descriptor(text).ok_or(bad("FD[,ro]"))?;
                    let slot = out.disks.get_mut(disks).ok_or(bad("4 disks at most"))?;
                    *slot = Some(Disk { fd, read_only });
                    disks += 1;
                }
                _ => {
                    return Err(bad(
                        "memory, root, boot, cpus, status, tap, packet, stream, line, 9p, changes or disk",
                    ));
                }
            }
        }
        match out {
            Arguments { memory: 0, .. } => Err(("memory", "memory=BYTES")),
            Arguments { root: -1, .. } => Err(("root", "root=FD")),
            Arguments { boot: -1, .. } => Err(("boot", "boot=FD")),
            _ => Ok(out),
        }
    }
}

fn network(link: Link, text: &str) -> Option<Network> {
    let mut parts = text.split(',');
    let fd = parts.next()?.parse().ok().filter(|fd| *fd >= 0)?;
    let mac = match parts.next() {
        Some("") | None => None,
        Some(text) => {
            let mut mac = [0; 6];
            let mut bytes = text.split(':');
            for byte in &mut mac {
                *byte = u8::from_str_radix(bytes.next()?, 16).ok()?;
            }
            bytes.next().is_none().then_some(Some(mac))?
        }
    };
    let mtu = match parts.next() {
        Some(text) => text.parse().ok().filter(|mtu| (576..=65_535).contains(mtu))?,
        None => 1500,
    };
    parts.next().is_none().then_some(Network { link, fd, mac, mtu })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments<'_>, (&str, &'static str)> {
        Arguments::parse(line.split(' '))
    }

    #[test]
    fn every_word_is_understood() {
        let line = "memory=268435456 root=3 boot=10 status=4 tap=5,02:00:00:00:00:0a,9000 9p=v0:7 9p=v1:8 line=9 cpus=2 \
            disk=11 disk=12,ro";
        let a = parse(line).unwrap();
        assert_eq!((a.memory, a.root, a.status, a.line), (256 << 20, 3, Some(4), Some(9)));
        assert_eq!((a.boot, a.cpus, parse("memory=8388608 root=3 boot=4").unwrap().cpus), (10, 2, 1));
        let network = Network { link: Link::Tap, fd: 5, mac: Some([2, 0, 0, 0, 0, 10]), mtu: 9000 };
        assert_eq!(a.networks[0], Some(network));
        let disk = |fd, read_only| Some(Disk { fd, read_only });
        assert_eq!(a.disks, [disk(11, false), disk(12, true), None, None]);
        assert_eq!(a.volumes[..3], [Some(("v0", 7)), Some(("v1", 8)), None]);
        assert_eq!(
            parse("memory=8388608 root=3 boot=4 packet=6").unwrap().networks[0].unwrap().link,
            Link::Packet
        );
        let network = parse("memory=8388608 root=3 boot=4 stream=6").unwrap().networks[0];
        assert_eq!(network, Some(Network { link: Link::Stream, fd: 6, mac: None, mtu: 1500 }));
    }

    #[test]
    fn devices_behind_the_first_are_in_their_order() {
        let line = "memory=8388608 root=3 boot=4 packet=6 packet=9,02:00:00:00:00:0b,1400 packet=7";
        let given = parse(line).unwrap();
        assert_eq!(given.networks[0].map(|network| network.fd), Some(6));
        let second = Network { link: Link::Packet, fd: 9, mac: Some([2, 0, 0, 0, 0, 11]), mtu: 1400 };
        assert_eq!(given.networks[1], Some(second));
        assert_eq!((given.networks[2].map(|network| network.fd), given.networks[3]), (Some(7), None));
    }

    #[test]
    fn bad_words_are_named() {
        for word in [
            "memory=1",
            "memory=x",
            "root=-1",
            "boot=x",
            "status=x",
            "tap=x",
            "line=",
            "cpus=0",
            "cpus=17",
            "tap=1,02",
            "tap=1,,70000",
            "9p=v0",
            "disk=,ro",
            "disk=3,rw",
            "what=1",
            "x",
        ] {
            let line = std::format!("memory=8388608 root=3 boot=4 {word}");
            assert_eq!(parse(&line).unwrap_err().0, word);
        }
        assert_eq!(parse("root=3 boot=4").unwrap_err().0, "memory");
        assert_eq!(parse("memory=8388608 boot=4").unwrap_err().0, "root");
        assert_eq!(parse("memory=8388608 root=3").unwrap_err().0, "boot");
        let devices: std::string::String = (5..14).map(|fd| std::format!(" packet={fd}")).collect();
        assert!(parse(&std::format!("memory=8388608 root=3 boot=4{devices}")).is_err());
        assert!(parse("memory=8388608 root=3 boot=4 disk=5 disk=6 disk=7 disk=8 disk=9").is_err());
    }
}
