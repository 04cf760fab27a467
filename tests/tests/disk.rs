// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks of `unilith build --disk`: firmware boots them without anything of Unilith, on a computer that QEMU plays.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use unilith_tests::{
    BUILD_KERNEL, PATIENCE, Ran, Unilith, client, eventually_within, finish, free_port, is_skipped,
    tested_kernel, tested_machine,
};

const FIRMWARE: &str = "/usr/share/OVMF";
/// Firmware under software emulation takes its time.
const BOOT: Duration = Duration::from_secs(120);

fn is_left_out() -> bool {
    let other = tested_kernel() != "micro" || tested_machine() == "process";
    is_skipped(other, "a disk holds the micro kernel of virtual machines, whatever machine is tested")
}

fn build(unilith: &Unilith, disk: &Path, words: &[&str]) -> Ran {
    let flags = ["build", "--disk", &disk.display().to_string()].map(str::to_string);
    let words: Vec<String> = flags.into_iter().chain(words.iter().map(|w| w.to_string())).collect();
    finish(&mut unilith.command(&words), BUILD_KERNEL)
}

/// A computer whose firmware finds this disk, and what its serial port says.
struct Computer {
    qemu: Child,
    serial: PathBuf,
}

impl Computer {
    /// `firmware`: QEMU's words for it.
    fn start(unilith: &Unilith, disk: &Path, firmware: &[String], network: &[&str]) -> Computer {
        let format = match disk.extension().and_then(|e| e.to_str()) {
            Some("img") => "raw",
            Some(other) => other,
            None => panic!("a disk without a format"),
        };
        let serial = unilith.path("serial");
        let qemu = Command::new("qemu-system-x86_64")
            .args([
                "-M",
                "q35,graphics=off,smm=on",
                "-accel",
                "tcg",
                "-cpu",
                "max",
                "-m",
                "256",
                "-nodefaults",
                "-no-reboot",
            ])
            .args(["-display", "none", "-serial", &format!("file:{}", serial.display())])
            .args(firmware)
            .args(["-drive", &format!("file={},format={format},if=none,id=disk,snapshot=on", disk.display())])
            .args(["-device", "virtio-blk-pci,drive=disk"])
            .args(network)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("QEMU starts");
        Computer { qemu, serial }
    }

    fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.serial).unwrap_or_default()).into_owned()
    }

    /// Waits until it has switched itself off.
    fn end(mut self) -> String {
        eventually_within(BOOT, "the computer switches itself off", || {
            self.qemu.try_wait().expect("a child").is_some()
        });
        self.said()
    }
}

impl Drop for Computer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- what its serial port said\n{}", self.said());
        }
        // It may have ended.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

fn uefi(unilith: &Unilith) -> Vec<String> {
    pflash(unilith, "OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd")
}

/// Firmware with variables of its own.
fn pflash(unilith: &Unilith, code: &str, variables: &str) -> Vec<String> {
    let own = unilith.path("variables");
    fs::copy(Path::new(FIRMWARE).join(variables), &own).expect("the package ovmf is installed");
    let drive = |file: String, more: &str| format!("if=pflash,format=raw,{more}file={file}");
    vec![
        "-drive".into(),
        drive(format!("{FIRMWARE}/{code}"), "readonly=on,"),
        "-drive".into(),
        drive(own.display().to_string(), ""),
    ]
}

#[test]
fn a_server_on_a_disk_gets_its_address_from_the_network_and_serves() {
    if is_left_out() {
        return;
    }
    let unilith = Unilith::new();
    let disk = unilith.path("redis.img");
    build(&unilith, &disk, &["redis"]).ok().complains("DHCP");
    let port = free_port();
    let user =
        format!("user,id=net,hostfwd=tcp:127.0.0.1:{port}-:6379,net=10.77.5.0/24,dhcpstart=10.77.5.77");
    let network = ["-netdev", &user, "-device", "virtio-net-pci,netdev=net"];
    let computer = Computer::start(&unilith, &disk, &uefi(&unilith), &network);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    eventually_within(BOOT, "Redis is ready", || computer.said().contains("Ready to accept connections"));
    // QEMU takes connections before the machine does.
    TcpStream::connect(address).expect("a forwarded port");
    let port = port.to_string();
    let ask =
        |words: &[&str]| client("timeout", &[&["60", "redis-cli", "-p", &port], words].concat()).ok().out;
    assert_eq!(ask(&["ping"]), "PONG\n");
    assert_eq!(ask(&["set", "greeting", "hello"]), "OK\n");
    assert_eq!(ask(&["get", "greeting"]), "hello\n");
}

#[test]
fn a_program_on_a_disk_runs_to_its_end_in_every_format() {
    if is_left_out() {
        return;
    }
    let unilith = Unilith::new();
    let script = "echo hello from a disk; ip -4 -o addr; cat /etc/resolv.conf; hostname; exit 3";
    for format in ["img", "qcow2", "vmdk", "vhd"] {
        let disk = unilith.path(&format!("disk.{format}"));
        build(&unilith, &disk, &["--hostname", "box", "--log", "info", "busybox", "sh", "-c", script]).ok();
        let said = finish(Command::new("qemu-img").arg("info").arg(&disk), PATIENCE).ok().out;
        let name = match format {
            "img" => "raw",
            "vhd" => "vpc",
            same => same,
        };
        assert!(said.contains(&format!("file format: {name}")), "{said}");
    }
    let network = ["-netdev", "user,id=net,net=10.77.6.0/24", "-device", "virtio-net-pci,netdev=net"];
    let disk = unilith.path("disk.qcow2");
    let said = Computer::start(&unilith, &disk, &uefi(&unilith), &network).end();
    for text in [
        "the address is 10.77.6.15/24 by DHCP",
        "hello from a disk",
        "inet 10.77.6.15/24",
        "nameserver 10.77.6.3",
        "\nbox\n",
    ] {
        assert!(said.contains(text), "{text:?} is missing: {said}");
    }
    // Scratch files are gone.
    let left = fs::read_dir(unilith.path("")).expect("a folder").flatten();
    let left: Vec<_> =
        left.map(|e| e.file_name()).filter(|n| n.to_string_lossy().starts_with(".disk")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_bios_and_a_damaged_disk_say_what_is_wrong() {
    if is_left_out() {
        return;
    }
    let unilith = Unilith::new();
    let disk = unilith.path("disk.img");
    build(&unilith, &disk, &["--network", "none", "busybox", "true"]).ok();
    let bios = Computer::start(&unilith, &disk, &[], &[]);
    eventually_within(BOOT, "the BIOS shows the sentence", || {
        bios.said().contains("This disk boots by UEFI.")
    });
    drop(bios);

    let mut bytes = fs::read(&disk).expect("a disk");
    let at =
        bytes.windows(8).position(|w| w == b"1htilinu" || w == b"unilith1").expect("the kernel's section");
    bytes[at] ^= 1;
    fs::write(&disk, bytes).expect("a disk");
    let computer = Computer::start(&unilith, &disk, &uefi(&unilith), &[]);
    eventually_within(BOOT, "the stub says that the file is damaged", || {
        computer.said().contains("unilith: this file is damaged: it has no kernel that can be read")
    });
}

#[test]
fn secure_boot_starts_what_its_key_signed_and_nothing_else() {
    if is_left_out() {
        return;
    }
    let unilith = Unilith::new();
    // The key that the package's firmware with this name knows; its words are public.
    let key = unilith.path("key.pem").display().to_string();
    let from = "/usr/share/ovmf/PkKek-1-snakeoil";
    let words = ["rsa", "-in", &format!("{from}.key"), "-passin", "pass:snakeoil", "-out", &key];
    finish(Command::new("openssl").args(words), PATIENCE).ok();
    let certificate = format!("{from}.pem");
    let firmware = || pflash(&unilith, "OVMF_CODE_4M.secboot.fd", "OVMF_VARS_4M.snakeoil.fd");
    let program = ["--network", "none", "busybox", "echo", "signed and started"];

    let disk = unilith.path("disk.img");
    let signed = [&["--sign-key", &key, "--sign-cert", &certificate], &program[..]].concat();
    build(&unilith, &disk, &signed).ok();
    let said = Computer::start(&unilith, &disk, &firmware(), &[]).end();
    assert!(said.contains("signed and started"), "{said}");

    build(&unilith, &disk, &program).ok();
    let computer = Computer::start(&unilith, &disk, &firmware(), &[]);
    eventually_within(BOOT, "the firmware refuses it", || computer.said().contains("Access Denied"));
    assert!(!computer.said().contains("signed and started"));
}

#[test]
fn what_a_disk_cannot_have_is_refused_with_advice() {
    if is_left_out() {
        return;
    }
    let unilith = Unilith::new();
    let disk = unilith.path("disk.img").display().to_string();
    for (words, says) in [
        (
            &["--disk", "disk.iso", "busybox"][..],
            "the name's end says the format: .img or .raw, .qcow2, .vmdk, .vhd",
        ),
        (&["--disk", &disk, "-v", "/tmp:/data", "busybox"], "put files into the image"),
        (&["--disk", &disk, "-p", "80:80", "busybox"], "leave it out"),
        (&["--disk", &disk, "--machine", "process", "busybox"], "any computer with UEFI firmware"),
        (&["--disk", &disk, "--network", "tap", "busybox"], "by DHCP, or `none`"),
        (&["--disk", &disk, "--set", "overlay=on", "busybox"], "channels to the host"),
        (&["--disk", &disk, "--kernel", "linux", "busybox"], "build --kernel linux is not there yet"),
        (&["--disk", &disk, "-o", "out", "busybox"], "cannot be used with"),
        (&["--disk", &disk, "--sign-key", "key", "busybox"], "--sign-cert"),
        (&["--disk", "/nowhere/disk.img", "--network", "none", "busybox"], "cannot write the disk /nowhere"),
    ] {
        let ran = finish(&mut unilith.command(&[&["build"], words].concat()), BUILD_KERNEL);
        assert!(ran.code != Some(0) && ran.err.contains(says), "{words:?}: {ran}");
    }
    assert!(!Path::new(&disk).exists());
    let missing = unilith.path("no-key").display().to_string();
    let words = ["--sign-key", &missing, "--sign-cert", &missing, "--network", "none", "busybox"];
    build(&unilith, Path::new(&disk), &words).complains("sbsign: ");
    assert!(!Path::new(&disk).exists());
}
