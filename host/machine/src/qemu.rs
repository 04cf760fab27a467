// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The QEMU command line of a machine. One function for what `run` starts and what `build` writes into `run.sh`.

use crate::record::{Accel, KernelKind, Mount, Platform};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};
use unilith_network::ports::Publish;

/// The emulator's name.
pub const QEMU: &str = "qemu-system-x86_64";

/// Where a stream of the machine goes on the host.
#[derive(Clone, Debug)]
pub enum Stream {
    /// A connected socket that QEMU inherits.
    Socket(i32),
    /// QEMU's own standard input and output.
    Stdio,
    /// A file.
    File(PathBuf),
}

/// A block device.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The file, or where QEMU finds a descriptor that it inherits ([`Disk::inherited`]).
    pub file: PathBuf,
    pub descriptor: Option<i32>,
    pub read_only: bool,
}

impl Disk {
    /// The `n`-th disk, of which the file is open already: QEMU needs no rights of its own for it.
    pub fn inherited(n: usize, descriptor: i32, read_only: bool) -> Disk {
        Disk { file: format!("/dev/fdset/{n}").into(), descriptor: Some(descriptor), read_only }
    }
}

/// The network device's other side.
#[derive(Clone, Debug)]
pub enum Link {
    None,
    /// A tap device by a descriptor that QEMU inherits.
    Tap(i32),
    /// Frames behind their lengths on a stream socket that QEMU inherits: what passt speaks.
    Frames(i32),
    /// QEMU's own user-mode networking with these ports forwarded.
    User(Vec<Publish>),
}

/// The overlay's side of the machine.
#[derive(Clone, Debug)]
pub struct OverlayLine {
    /// What of the kernel the machine asks for when a command first comes, if there is such a part.
    pub tools: Option<PathBuf>,
    /// A connected socket that QEMU inherits.
    pub socket: i32,
    /// Where the program's output goes once the kernel has found it: more than a byte at a time, which is what the console takes.
    pub output: Option<i32>,
    /// The directory the machine may see at /overlay.
    pub files: PathBuf,
    /// Files there may have extended attributes.
    pub attributes: bool,
}

/// The name of the overlay's console port, which the kernel looks for.
const OVERLAY_PORT: &str = "unilith.overlay";
/// The same of the program's output.
const OUTPUT_PORT: &str = "unilith.output";
/// The 9p tag of the overlay's directory, which the kernel looks for.
pub const OVERLAY_TAG: &str = "overlay";

/// All that the command line says.
#[derive(Clone, Debug)]
pub struct Line<'a> {
    pub platform: Platform,
    pub accel: Accel,
    /// QEMU's name of the processor; `None`: one with all that the accelerator can give.
    pub processor: Option<String>,
    /// Bytes.
    pub memory: u64,
    pub cpus: u32,
    pub kernel_kind: KernelKind,
    pub kernel: &'a Path,
    pub initrd: &'a Path,
    /// The kernel's command line.
    pub append: String,
    /// The file that is put to [`api_boot::SETTINGS_ADDRESS`] in the machine's memory, inherited.
    pub settings: Option<i32>,
    pub volumes: &'a [Mount],
    pub disks: Vec<Disk>,
    pub link: Link,
    /// /dev/vhost-net, inherited: the host's kernel moves packets between a tap device and the machine, without QEMU.
    pub vhost: Option<i32>,
    /// The network device's address.
    pub mac: [u8; 6],
    /// The MTU that the device names; `None`: it names none.
    pub mtu: Option<u16>,
    pub console: Stream,
    pub status: Stream,
    /// QEMU's own control channel (QMP), if wanted.
    pub control: Option<i32>,
    /// The overlay's line, if the machine is to have one.
    pub overlay: Option<OverlayLine>,
}

/// The processor that `UNILITH_CPU` asks for, in QEMU's words (`max,-pks`): machines can be tried on one that lacks
/// something.
pub fn processor() -> Option<String> {
    std::env::var("UNILITH_CPU").ok()
}

/// Where the part of a kernel is that its machine asks for when it needs it: beside the kernel.
pub fn tools_of(kernel: &Path) -> PathBuf {
    kernel.with_extension("overlay")
}

/// The 9p tag of the n-th volume.
pub fn volume_tag(n: usize) -> String {
    format!("v{n}")
}

impl Line<'_> {
    /// The arguments after the emulator's name.
    pub fn arguments(&self) -> Vec<OsString> {
        let mut out: Vec<OsString> = Vec::new();
        let mut put = |words: &[&str]| out.extend(words.iter().map(OsString::from));
        put(&["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        put(&["-M", &format!("{},memory-backend=memory", machine(self.platform, self.kernel_kind))]);
        if self.platform == Platform::Q35 && self.kernel_kind == KernelKind::Micro {
            // Half the time of the PC firmware to the kernel's first instruction.
            put(&["-bios", "qboot.rom"]);
        }
        let (accelerator, all): (&[&str], _) = match self.accel {
            Accel::Kvm => (&["kvm"], "host"),
            Accel::Tcg => (&["tcg"], "max"),
            Accel::Icount => (&["tcg", "-icount", "shift=0,sleep=off"], "max"),
        };
        put(&["-accel"]);
        put(accelerator);
        put(&["-cpu", self.processor.as_deref().unwrap_or(all)]);
        let memory = format!("{}k", self.memory >> 10);
        put(&["-m", &memory, "-smp", &self.cpus.to_string()]);
        // `-m` is a limit, as a container's is: the host promises no page before the machine touches it, so a machine may
        // be given more than the host has free.
        put(&["-object", &format!("memory-backend-ram,id=memory,size={memory},reserve=off")]);
        put(&["-kernel"]);
        out.push(self.kernel.into());
        out.push("-initrd".into());
        out.push(escape_commas(self.initrd));
        let mut put = |words: &[&str]| out.extend(words.iter().map(OsString::from));
        put(&["-append", &self.append]);
        if let Some(fd) = self.settings {
            let address = api_boot::SETTINGS_ADDRESS;
            put(&["-device", &format!("loader,file=/proc/self/fd/{fd},addr={address:#x},force-raw=on")]);
        }
        put(&["-chardev", &chardev("console", &self.console), "-serial", "chardev:console"]);
        put(&["-chardev", &chardev("status", &self.status)]);
        put(&["-device", &format!("isa-debugcon,iobase={:#x},chardev=status", api_boot::STATUS_PORT)]);
        put(&["-device", &format!("isa-debug-exit,iobase={:#x},iosize=0x04", api_boot::EXIT_PORT)]);
        if let Some(fd) = self.control {
            put(&["-chardev", &format!("socket,id=control,fd={fd}"), "-mon", "chardev=control,mode=control"]);
        }
        let virtio = |device: &str| match self.platform {
            Platform::Microvm => format!("{device}-device"),
            Platform::Q35 | Platform::Process | Platform::Firecracker | Platform::CloudHypervisor => {
                format!("{device}-pci")
            }
        };
        // Settings in memory have random bytes of this computer's.
        if self.settings.is_none() {
            put(&["-device", &virtio("virtio-rng")]);
        }
        let netdev = match &self.link {
            Link::None => None,
            Link::Tap(fd) => {
                let vhost = self.vhost.map_or(String::new(), |fd| format!(",vhost=on,vhostfd={fd}"));
                Some(format!("tap,id=net0,fd={fd}{vhost}"))
            }
            // Understood by every QEMU; `stream` is its name since 7.2 only.
            Link::Frames(fd) => Some(format!("socket,id=net0,fd={fd}")),
            Link::User(ports) => {
                let forward =
                    |p: &Publish| format!(",hostfwd={}:{}:{}-:{}", p.protocol, p.address, p.host, p.guest);
                Some(format!("user,id=net0{}", ports.iter().map(forward).collect::<String>()))
            }
        };
        if let Some(netdev) = netdev {
            let mtu = self.mtu.map_or(String::new(), |mtu| format!(",host_mtu={mtu}"));
            put(&[
                "-netdev",
                &netdev,
                "-device",
                &format!("{},netdev=net0,mac={}{mtu}", virtio("virtio-net"), show_mac(self.mac)),
            ]);
        }
        if let Some(overlay) = &self.overlay {
            put(&["-chardev", &format!("socket,id=line,fd={}", overlay.socket)]);
            put(&["-device", &format!("{},id=lines,max_ports=3", virtio("virtio-serial"))]);
            // The first one is named first: the kernel, which waits for the overlay's, has heard of it then.
            if let Some(output) = overlay.output {
                put(&["-chardev", &format!("socket,id=output,fd={output}")]);
                put(&[
                    "-device",
                    &format!("virtserialport,bus=lines.0,nr=1,chardev=output,name={OUTPUT_PORT}"),
                ]);
            }
            put(&["-device", &format!("virtserialport,bus=lines.0,nr=2,chardev=line,name={OVERLAY_PORT}")]);
            if let Some(tools) = &overlay.tools {
                out.push("-fw_cfg".into());
                let mut file = OsString::from("name=opt/unilith/overlay,file=");
                file.push(escape_commas(tools));
                out.push(file);
            }
            // The machine does not touch it before somebody asks for a file.
            let files = Files::Plain { attributes: overlay.attributes };
            share(&mut out, OVERLAY_TAG, &overlay.files, files, &virtio("virtio-9p"));
        }
        for (n, volume) in self.volumes.iter().enumerate() {
            let tag = volume_tag(n);
            let files = if volume.read_only { Files::ReadOnly } else { Files::All };
            share(&mut out, &tag, &volume.host, files, &virtio("virtio-9p"));
        }
        for (n, disk) in self.disks.iter().enumerate() {
            attach(&mut out, n, disk, &virtio("virtio-blk"));
        }
        out
    }
}

/// Adds a block device.
fn attach(out: &mut Vec<OsString>, n: usize, disk: &Disk, device: &str) {
    if let Some(descriptor) = disk.descriptor {
        out.extend(["-add-fd".into(), format!("fd={descriptor},set={n}").into()]);
    }
    let access = if disk.read_only { "on" } else { "off" };
    let mut node = OsString::from(format!(
        "driver=raw,node-name=disk{n},read-only={access},file.driver=file,file.read-only={access},file.filename="
    ));
    node.push(escape_commas(&disk.file));
    out.push("-blockdev".into());
    out.push(node);
    // The program hears of errors; by default a full file system of the host stops the machine.
    out.push("-device".into());
    out.push(format!("{device},drive=disk{n},rerror=report,werror=report").into());
}

/// What the machine may do in a directory.
enum Files {
    ReadOnly,
    All,
    /// Links, special files and modes are data of regular files, so that no program of the host that follows a name there is
    /// led elsewhere. QEMU keeps what they would be in attributes of these files, else in a folder beside them.
    Plain {
        attributes: bool,
    },
}

/// Adds a directory of the host that the machine sees over 9p.
fn share(out: &mut Vec<OsString>, tag: &str, path: &Path, files: Files, device: &str) {
    // `none`: the files belong to whom the machine's program says where this user may do that, and to this user
    // otherwise, as with a bind mount.
    let (model, more) = match files {
        Files::ReadOnly => ("none", ",readonly=on"),
        Files::All => ("none", ""),
        Files::Plain { attributes: true } => ("mapped-xattr", ""),
        Files::Plain { attributes: false } => ("mapped-file", ""),
    };
    let mut fsdev = OsString::from(format!("local,id={tag},security_model={model},multidevs=remap{more}"));
    fsdev.push(",path=");
    fsdev.push(escape_commas(path));
    out.push("-fsdev".into());
    out.push(fsdev);
    out.push("-device".into());
    out.push(format!("{device},fsdev={tag},mount_tag={tag}").into());
}

/// QEMU's machine type and its options.
fn machine(platform: Platform, kernel: KernelKind) -> &'static str {
    match (platform, kernel) {
        // Nothing that firmware would have to set up; the kernel finds the virtio-mmio slots itself, and reads the clock
        // where no hypervisor tells the time.
        (Platform::Microvm, KernelKind::Micro) => {
            "microvm,x-option-roms=off,pit=off,pic=off,rtc=on,isa-serial=on,auto-kernel-cmdline=off"
        }
        // Linux wants the old devices, and is told of the virtio-mmio slots by its command line.
        (Platform::Microvm, KernelKind::Linux) => {
            "microvm,x-option-roms=off,isa-serial=on,acpi=off,rtc=on,pit=on,pic=on,auto-kernel-cmdline=on"
        }
        // Process machines, Firecracker's and Cloud Hypervisor's have no QEMU; their images boot there as well.
        (
            Platform::Q35 | Platform::Process | Platform::Firecracker | Platform::CloudHypervisor,
            KernelKind::Micro,
        ) => "q35",
        (
            Platform::Q35 | Platform::Process | Platform::Firecracker | Platform::CloudHypervisor,
            KernelKind::Linux,
        ) => "q35,smbus=off,sata=off",
    }
}

fn chardev(id: &str, stream: &Stream) -> String {
    match stream {
        Stream::Socket(fd) => format!("socket,id={id},fd={fd}"),
        Stream::Stdio => format!("stdio,id={id},signal=off"),
        Stream::File(path) => format!("file,id={id},path={}", escape_commas(path).to_string_lossy()),
    }
}

/// In QEMU's option strings a comma inside a value is written twice.
fn escape_commas(path: &Path) -> OsString {
    match path.to_str() {
        Some(text) if text.contains(',') => text.replace(',', ",,").into(),
        _ => path.into(),
    }
}

/// A locally administered address that is the machine's own (IEEE 802, second least bit of the first octet).
pub fn mac_of(id: &str) -> [u8; 6] {
    let mut digits = id.chars().filter_map(|c| c.to_digit(16)).chain(std::iter::repeat(0));
    let mut octet = || (digits.next().unwrap_or(0) << 4 | digits.next().unwrap_or(0)) as u8;
    [0x52, 0x55, octet(), octet(), octet(), octet()]
}

/// A hardware address as monitors read it.
pub(crate) fn show_mac(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;
    use unilith_network::ports::Protocol;

    fn line(platform: Platform, volumes: &[Mount]) -> Line<'_> {
        let publish =
            Publish { address: [127, 0, 0, 1].into(), host: 8080, guest: 80, protocol: Protocol::Tcp };
        Line {
            platform,
            accel: Accel::Tcg,
            processor: None,
            memory: 64 << 20,
            cpus: 1,
            kernel_kind: KernelKind::Micro,
            kernel: Path::new("/k"),
            initrd: Path::new("/a,b.cpio"),
            append: "settings=300 --".into(),
            settings: Some(4),
            volumes,
            disks: Vec::new(),
            link: Link::User(vec![publish]),
            vhost: None,
            mac: mac_of("0123456789ab"),
            mtu: None,
            console: Stream::Socket(5),
            status: Stream::File("/tmp,x".into()),
            control: None,
            overlay: None,
        }
    }

    fn text(line: &Line) -> String {
        let words = line.arguments();
        words.iter().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_tap_device_may_have_the_hosts_kernel_behind_it() {
        let mut line = line(Platform::Microvm, &[]);
        line.link = Link::Tap(7);
        assert!(text(&line).contains("-netdev tap,id=net0,fd=7 "), "{}", text(&line));
        line.vhost = Some(9);
        assert!(text(&line).contains("-netdev tap,id=net0,fd=7,vhost=on,vhostfd=9 "), "{}", text(&line));
    }

    #[test]
    fn devices_fit_the_bus_of_the_machine() {
        let microvm = text(&line(Platform::Microvm, &[]));
        assert!(microvm.contains("virtio-net-device,netdev=net0,mac=52:55:01:23:45:67"), "{microvm}");
        let q35 = text(&line(Platform::Q35, &[]));
        assert!(q35.contains("virtio-net-pci,netdev=net0") && q35.contains("-bios qboot.rom"), "{q35}");
    }

    #[test]
    fn commas_in_paths_reach_qemu_as_commas() {
        let volume = Mount::new("/my,data", "/data", true);
        let text = text(&line(Platform::Microvm, &[volume]));
        assert!(text.contains("readonly=on,path=/my,,data"), "{text}");
        assert!(text.contains("-initrd /a,,b.cpio") && text.contains("path=/tmp,,x"), "{text}");
    }

    #[test]
    fn disks_report_errors_to_the_program_and_keep_their_order() {
        let named = Disk { file: "/a,b".into(), descriptor: None, read_only: true };
        let line = Line { disks: vec![Disk::inherited(0, 7, false), named], ..line(Platform::Microvm, &[]) };
        let text = text(&line);
        let first = "-add-fd fd=7,set=0 -blockdev driver=raw,node-name=disk0,read-only=off,file.driver=file,file.read-only=off,\
            file.filename=/dev/fdset/0 -device virtio-blk-device,drive=disk0,rerror=report,werror=report";
        assert!(text.contains(first), "{text}");
        let (_, rest) = text.split_once(first).unwrap();
        assert!(
            rest.contains("read-only=on,file.filename=/a,,b -device virtio-blk-device,drive=disk1"),
            "{text}"
        );
    }

    #[test]
    fn the_overlay_has_a_port_and_a_directory_on_either_bus() {
        for (platform, device) in
            [(Platform::Microvm, "virtio-serial-device"), (Platform::Q35, "virtio-serial-pci")]
        {
            let tools = Some("/k/kernel.overlay".into());
            let overlay = Some(OverlayLine {
                tools,
                socket: 9,
                output: Some(10),
                files: "/m/overlay".into(),
                attributes: true,
            });
            let text = text(&Line { overlay, ..line(platform, &[]) });
            assert!(text.contains(device) && text.contains("name=unilith.overlay"), "{text}");
            assert!(text.find("name=unilith.output") < text.find("name=unilith.overlay"), "{text}");
            assert!(text.contains("path=/m/overlay") && text.contains("mount_tag=overlay"), "{text}");
            assert!(text.contains("id=overlay,security_model=mapped-xattr"), "{text}");
        }
    }

    #[test]
    fn processor_that_was_asked_for_is_used_by_every_accelerator() {
        for (accel, all) in [(Accel::Kvm, "host"), (Accel::Tcg, "max"), (Accel::Icount, "max")] {
            let line = Line { accel, ..line(Platform::Microvm, &[]) };
            assert!(text(&line).contains(&format!("-cpu {all} ")), "{}", text(&line));
            let line = Line { processor: Some("max,-xsave".into()), ..line };
            assert!(text(&line).contains("-cpu max,-xsave "), "{}", text(&line));
        }
    }

    #[test]
    fn user_mode_ports_are_forwarded() {
        assert!(text(&line(Platform::Microvm, &[])).contains("user,id=net0,hostfwd=tcp:127.0.0.1:8080-:80"));
    }
}
