// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks of `unilith build --disk`: firmware boots them without anything of Unilith, on a computer that QEMU plays.

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use unilith_tests::{
    BUILD_KERNEL, PATIENCE, Ran, Unilith, client, compile_to_link, eventually_within, finish, free_port,
    is_skipped, tested_kernel, tested_machine,
};

#[path = "disk/screen.rs"]
mod screen;

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
    /// With a virtio disk. `firmware`: QEMU's words for it.
    fn start(unilith: &Unilith, disk: &Path, firmware: &[String], more: &[&str]) -> Computer {
        let machine = ["-M", "q35,graphics=off,smm=on", "-device", "virtio-blk-pci,drive=disk,bootindex=1"];
        Computer::start_of_kind(unilith, disk, firmware, &[&machine, more].concat())
    }

    /// `kind`: what the computer is made of beside its firmware; `disk` is the drive of that name. It has a serial port where `kind`
    /// says nothing of one.
    fn start_of_kind(unilith: &Unilith, disk: &Path, firmware: &[String], kind: &[&str]) -> Computer {
        Computer::start_by(Command::new("qemu-system-x86_64"), unilith, disk, firmware, kind)
    }

    fn start_by(
        mut emulator: Command,
        unilith: &Unilith,
        disk: &Path,
        firmware: &[String],
        kind: &[&str],
    ) -> Computer {
        let format = match disk.extension().and_then(|e| e.to_str()) {
            Some("img") => "raw",
            Some(other) => other,
            None => panic!("a disk without a format"),
        };
        let serial = unilith.path("serial");
        // What a computer before this one said.
        fs::write(&serial, "").expect("a file");
        let qemu = emulator
            .args(["-accel", "tcg", "-cpu", "max", "-m", "256", "-nodefaults", "-no-reboot"])
            .args(["-display", "none"])
            .args(firmware)
            .args(["-drive", &format!("file={},format={format},if=none,id=disk,snapshot=on", disk.display())])
            .args(match kind.contains(&"-serial") {
                true => vec![],
                false => vec!["-serial".to_string(), format!("file:{}", serial.display())],
            })
            .args(kind)
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

/// Gives QEMU a command over its own line (QMP), and waits for its answer; fails until it listens.
fn tell_qemu(qmp: &Path, command: &str) -> io::Result<()> {
    let mut line = UnixStream::connect(qmp)?;
    line.set_read_timeout(Some(BOOT))?;
    let mut answers = BufReader::new(line.try_clone()?);
    let mut answer = || -> io::Result<String> {
        let mut text = String::new();
        match answers.read_line(&mut text)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(text),
        }
    };
    assert!(answer()?.contains("QMP"));
    for command in [r#"{"execute": "qmp_capabilities"}"#, command] {
        writeln!(line, "{command}")?;
        while !answer()?.contains(r#""return""#) {}
    }
    Ok(())
}

/// Sends so many bytes to a server that sends them back; how many came back right.
fn echo(port: u16, count: usize) -> io::Result<usize> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    let bytes: Vec<u8> = (0..count).map(|n| (n * 31 + n / 256) as u8).collect();
    let (mut sender, sent) = (stream.try_clone()?, bytes.clone());
    let sender = std::thread::spawn(move || {
        sender.write_all(&sent)?;
        sender.shutdown(Shutdown::Write)
    });
    let mut back = Vec::new();
    stream.set_read_timeout(Some(BOOT))?;
    stream.read_to_end(&mut back)?;
    sender.join().expect("no panic")?;
    Ok(back.iter().zip(&bytes).take_while(|(a, b)| a == b).count())
}

/// A CD (ECMA-119) labelled `cidata` with these files, each of at most a sector, under names of Rock Ridge, and with a `network-config`
/// behind its end.
fn cd(files: &[(&str, &str)]) -> Vec<u8> {
    const SECTOR: usize = 2048;
    let record = |name: &[u8], long: &str, sector: usize, bytes: usize, flags: u8| {
        let mut record = vec![0; 33];
        record[2..6].copy_from_slice(&(sector as u32).to_le_bytes());
        record[10..14].copy_from_slice(&(bytes as u32).to_le_bytes());
        record[25] = flags;
        record[32] = name.len() as u8;
        record.extend(name);
        record.resize(record.len().next_multiple_of(2), 0);
        record.extend([b'N', b'M', 5 + long.len() as u8, 1, 0]);
        record.extend(long.as_bytes());
        record.resize(record.len().next_multiple_of(2), 0);
        record[0] = record.len() as u8;
        record
    };
    let mut cd = vec![0; 64 * SECTOR];
    let mut put = |sector: usize, offset: usize, bytes: &[u8]| {
        cd[sector * SECTOR + offset..][..bytes.len()].copy_from_slice(bytes);
    };
    put(16, 0, b"\x01CD001\x01");
    put(16, 40, format!("{:32}", "cidata").as_bytes());
    put(16, 156, &record(b"\0", "", 18, SECTOR, 2)[..34]);
    put(17, 0, b"\xffCD001\x01");
    let mut directory = record(b"\0", ".", 18, SECTOR, 2);
    for (n, (name, text)) in files.iter().enumerate() {
        put(20 + n, 0, text.as_bytes());
        directory.extend(record(format!("FILE{n}.;1").as_bytes(), name, 20 + n, text.len(), 0));
    }
    directory.extend(record(b"LOST.;1", "network-config", 9000, 100, 0));
    put(18, 0, &directory);
    cd
}

fn uefi(unilith: &Unilith) -> Vec<String> {
    pflash(unilith, "OVMF_CODE_4M.fd", "OVMF_VARS_4M.fd")
}

/// QEMU's words for the firmware of one computer, with variables as nobody has changed them.
type Firmware = fn(&Unilith) -> Vec<String>;

/// SeaBIOS, which is what QEMU has by itself.
fn bios(_: &Unilith) -> Vec<String> {
    Vec::new()
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

/// Redis on this computer gets ready and answers at this port, to long questions as well.
fn serves(computer: &Computer, port: u16) {
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
    // More packets than a ring has descriptors, both ways.
    let long = "x".repeat(100_000);
    for _ in 0..5 {
        assert_eq!(ask(&["set", "long", &long]), "OK\n");
    }
    let all = ask(&["mget", "long", "long", "long", "long", "long"]);
    assert!(all.lines().count() == 5 && all.lines().all(|line| line == long));
}

#[test]
fn a_server_on_a_disk_gets_its_address_from_the_network_and_serves() {
    if is_left_out() {
        return;
    }
    let unilith = Unilith::new();
    let disk = unilith.path("redis.img");
    build(&unilith, &disk, &["redis"]).ok().complains("DHCP");
    // As a cloud takes it: longer than what is on it.
    let file = fs::File::options().write(true).open(&disk).expect("a disk");
    file.set_len(1 << 30).expect("a disk of a gigabyte");
    // Two of the computers have a FAT disk with an address in it.
    let seed = unilith.path("seed");
    fs::create_dir(&seed).expect("a folder");
    let network =
        "version: 2\nethernets:\n  eth0:\n    addresses: [10.77.5.99/24]\n    gateway4: 10.77.5.2\n";
    fs::write(seed.join("network-config"), network).expect("a file");
    let seed = format!(
        "file.driver=vvfat,file.label=cidata,format=raw,snapshot=on,if=none,id=seed,file.dir={}",
        seed.display()
    );
    let seeded = ["-drive", &seed, "-device", "ide-hd,drive=seed"];
    let computers: [(Firmware, &str, &str, &[&str]); 4] = [
        (uefi, "virtio-net-pci", "10.77.5.77", &[]),
        (bios, "e1000", "10.77.5.77", &[]),
        (uefi, "e1000e", "10.77.5.99", &seeded),
        (bios, "virtio-net-pci", "10.77.5.99", &seeded),
    ];
    for (firmware, card, address, more) in computers {
        let port = free_port();
        let user = format!(
            "user,id=net,hostfwd=tcp:127.0.0.1:{port}-{address}:6379,net=10.77.5.0/24,dhcpstart=10.77.5.77"
        );
        let network = ["-netdev", &user, "-device", &format!("{card},netdev=net")];
        let computer = Computer::start(&unilith, &disk, &firmware(&unilith), &[&network, more].concat());
        serves(&computer, port);
    }
}

#[test]
fn a_program_on_a_disk_runs_to_its_end_in_every_format() {
    if is_left_out() {
        return;
    }
    let unilith = Unilith::new();
    // Sends back what somebody sends, and goes on.
    let script =
        "echo hello from a disk; ip -4 -o addr; cat /etc/resolv.conf; hostname; nc -l -p 7 -e cat; exit 3";
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
    // Made of what VMware gives its guests: an IDE disk, and a card behind a bridge. With a CD of cloud-init's.
    let port = free_port();
    let user = format!("user,id=net,net=10.77.6.0/24,hostfwd=tcp:127.0.0.1:{port}-:7");
    let seed = unilith.path("seed.iso");
    let told = "#cloud-config\nusers:\n- default\nunilith:\n  env:\n    GREETING: hello\n";
    fs::write(&seed, cd(&[("meta-data", "local-hostname: less\n"), ("user-data", told)])).expect("a file");
    let seed = format!("file={},format=raw,if=ide,index=2,media=cdrom", seed.display());
    let vmware = [
        &["-M", "pc,graphics=off", "-device", "ide-hd,drive=disk", "-drive", &seed][..],
        &["-device", "pci-bridge,id=bridge,chassis_nr=1", "-netdev", &user],
        &["-device", "e1000-82545em,netdev=net,bus=bridge,addr=3"],
        // Which says more than the meta-data.
        &["-smbios", "type=1,serial=ds=nocloud;h=seeded"],
    ];
    let disk = unilith.path("disk.vmdk");
    for firmware in [uefi(&unilith), bios(&unilith)] {
        let computer = Computer::start_of_kind(&unilith, &disk, &firmware, &vmware.concat());
        eventually_within(BOOT, "the program listens", || computer.said().contains("\nseeded\n"));
        // QEMU takes connections before the program does.
        eventually_within(BOOT, "the program sends back what it got", || {
            echo(port, 1 << 20).is_ok_and(|back| back == 1 << 20)
        });
        let said = computer.end();
        for text in [
            "the network card is an Intel 82545EM",
            "the address is 10.77.6.15/24 by DHCP",
            "hello from a disk",
            "inet 10.77.6.15/24",
            "nameserver 10.77.6.3",
            "\nseeded\n",
            "unilith: cidata: user-data: `users` is left out",
            "unilith: cidata: network-config is left out: it cannot be read",
        ] {
            assert!(said.contains(text), "{text:?} is missing: {said}");
        }
    }
    // Scratch files are gone.
    let left = fs::read_dir(unilith.path("")).expect("a folder").flatten();
    let left: Vec<_> =
        left.map(|e| e.file_name()).filter(|n| n.to_string_lossy().starts_with(".disk")).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// What EC2 and most computers without a hypervisor have.
#[test]
fn a_linked_program_drives_nvme_disks_of_both_kinds_of_blocks() {
    if is_left_out() {
        return;
    }
    let unilith = Unilith::new();
    let program = |source: &str, words: &[&str]| {
        let program = compile_to_link(&unilith, source, &[]);
        let disk = unilith.path("boot.img");
        let flags = ["--network", "none", "--log", "info", "--static", &program];
        build(&unilith, &disk, &[&flags, words].concat()).ok();
        disk
    };
    let file = |name: &str, bytes: &[u8]| {
        let file = unilith.path(name);
        fs::write(&file, bytes).expect("a file");
        file
    };
    let data = file("data", &[0; 8 << 20]);
    let drive = |id: &str, file: &Path| format!("file={},format=raw,if=none,id={id}", file.display());
    let data_drive = drive("data", &data);
    // Firmware boots from an NVMe disk, and finds settings on one.
    let seed = unilith.path("seed");
    fs::create_dir(&seed).expect("a folder");
    fs::write(seed.join("user-data"), "#cloud-config\nusers:\n- default\n").expect("a file");
    let seed = format!(
        "file.driver=vvfat,file.label=cidata,format=raw,snapshot=on,if=none,id=seed,file.dir={}",
        seed.display()
    );
    let all_nvme = [
        &["-M", "q35,graphics=off,smm=on", "-drive", &data_drive, "-drive", &seed][..],
        &["-device", "nvme,serial=data,id=controller,addr=3", "-device"],
        &["nvme-ns,bus=controller,drive=data,logical_block_size=4096,physical_block_size=4096"],
        &[
            "-device",
            "nvme,serial=boot,drive=disk,addr=4,bootindex=1",
            "-device",
            "nvme,serial=seed,drive=seed,addr=5",
        ],
    ];
    let boot = program("examples/raw/disk.c", &["--", "verify", "random", "12k"]);
    for firmware in [uefi(&unilith), bios(&unilith)] {
        let said = Computer::start_of_kind(&unilith, &boot, &firmware, &all_nvme.concat()).end();
        for text in [
            "nvme: namespace 1 has 2048 blocks of 4096 bytes",
            "unilith: cidata: user-data: `users` is left out",
            "read and compared: 682 blocks of 12288 bytes, random",
        ] {
            assert!(said.contains(text), "{text:?} is missing: {said}");
        }
    }
    let written = fs::read(&data).expect("a file");
    assert!(written[..682 * 12288].chunks(512).all(|sector| sector.iter().any(|byte| *byte != 0)));
    assert!(written[682 * 12288..].iter().all(|byte| *byte == 0));

    // Small blocks, one message, one queue, transfers of two pages.
    let small = [
        &["-M", "q35,graphics=off,smm=on", "-device", "ide-hd,drive=disk", "-drive", &data_drive][..],
        &["-device", "nvme,serial=data,drive=data,addr=3,mdts=1,msix_qsize=1,max_ioqpairs=1"],
    ];
    let boot = program("examples/raw/disk.c", &["--", "verify", "sequential", "8k", "2"]);
    let said = Computer::start_of_kind(&unilith, &boot, &uefi(&unilith), &small.concat()).end();
    for text in [
        "nvme: namespace 1 has 16384 blocks of 512 bytes",
        "read and compared: 256 blocks of 8192 bytes, sequential",
    ] {
        assert!(said.contains(text), "{text:?} is missing: {said}");
    }

    // A file system on one.
    let folder = unilith.path("folder");
    fs::create_dir_all(folder.join("css")).expect("a folder");
    let bytes: Vec<u8> = (0..10_000).map(|n| (n % 251) as u8).collect();
    fs::write(folder.join("css/site.css"), bytes).expect("a file");
    fs::write(folder.join("empty"), "").expect("a file");
    unilith.run(&["shfs", "make", "image", "folder"]).ok();
    let image = drive("data", &unilith.path("image"));
    let files = [
        &["-M", "q35,graphics=off,smm=on", "-device", "ide-hd,drive=disk", "-drive", &image][..],
        &["-device", "nvme,serial=data,id=controller", "-device"],
        &["nvme-ns,bus=controller,drive=data,logical_block_size=4096,physical_block_size=4096"],
    ];
    let boot = program("tests/programs/shfs.c", &[]);
    let said = Computer::start_of_kind(&unilith, &boot, &uefi(&unilith), &files.concat()).end();
    assert!(said.contains("all of it"), "{said}");
}

/// Answers as the clouds' documentation shows them, and others: a program that QEMU starts for each connection to the address of the
/// clouds' servers.
const CLOUDS: &str = r#"#!/bin/bash
read -r method path _
header=
while read -r line; do
  line=${line%$'\r'}
  [[ -n $line ]] || break
  header+=$line$'\n'
done
answer() { printf 'HTTP/1.1 %s\r\nServer: x\r\nContent-Length: %s\r\n\r\n%s' "$1" "${#2}" "$2"; exit; }
user=$'#cloud-config\nunilith:\n  env:\n    GREETING: hello from the cloud\n'
echo "$method $path" >>asked
case $method$path in
PUT/latest/api/token)
  [[ $header == *"X-aws-ec2-metadata-token-ttl-seconds: "* ]] && answer '200 OK' AQAAA==
  answer '400 Bad Request' ;;
GET/latest/*)
  [[ $header == *"X-aws-ec2-metadata-token: AQAAA=="* ]] || answer '401 Unauthorized'
  [[ $path == /latest/user-data ]] && answer '200 OK' "$user"
  [[ $path == */local-hostname ]] && answer '200 OK' ip-10-0-0-7.ec2.internal ;;
GET/computeMetadata/*)
  [[ $header == *"Metadata-Flavor: Google"* ]] || answer '403 Forbidden'
  # It is not ready at first.
  [[ $(grep -c computeMetadata asked) -gt 1 ]] || answer '503 Service Unavailable'
  [[ $path == */hostname ]] && answer '200 OK' vm.c.project.internal ;;
GET/metadata/v1/*)
  # Without an end, and more than anybody reads.
  printf 'HTTP/1.1 200 OK\r\n\r\n'
  exec yes ;;
GET/hetzner/*)
  exec sleep 1000 ;;
esac
answer '404 Not Found'
"#;

#[test]
fn a_computer_in_a_cloud_is_told_its_name_and_environment() {
    if is_left_out() {
        return;
    }
    let unilith = Unilith::new();
    let disk = unilith.path("disk.img");
    let script = "echo \"name $(hostname), greeting $GREETING\"";
    build(&unilith, &disk, &["--log", "info", "busybox", "sh", "-c", script]).ok();
    let server = unilith.path("server");
    fs::write(&server, CLOUDS).expect("a file");
    let clouds: [(Firmware, &str, &str, &[&str]); 5] = [
        (
            uefi,
            "manufacturer=Amazon EC2",
            "name ip-10-0-0-7.ec2.internal, greeting hello from the cloud",
            &[],
        ),
        (
            bios,
            "manufacturer=Amazon EC2",
            "name ip-10-0-0-7.ec2.internal, greeting hello from the cloud",
            &[],
        ),
        (bios, "product=Google Compute Engine", "name vm.c.project.internal, greeting \n", &[]),
        (
            bios,
            "manufacturer=DigitalOcean",
            "greeting \n",
            &["metadata of digitalocean: the answer is longer"],
        ),
        (bios, "manufacturer=Hetzner", "greeting \n", &["metadata of hetzner: the server does not answer"]),
    ];
    for (firmware, kind, says, more) in clouds {
        fs::write(unilith.path("asked"), "").expect("a file");
        let user = format!(
            "user,id=net,net=169.254.0.0/16,guestfwd=tcp:169.254.169.254:80-cmd:env -C {} bash {}",
            unilith.path("").display(),
            server.display()
        );
        let smbios = format!("type=1,{kind}");
        let kind = ["-netdev", &user, "-device", "virtio-net-pci,netdev=net", "-smbios", &smbios];
        let said = Computer::start(&unilith, &disk, &firmware(&unilith), &kind).end();
        let said = said.replace('\r', "");
        for text in [says].iter().chain(more) {
            assert!(said.contains(text), "{text:?} is missing: {said}");
        }
    }
}

#[test]
fn the_power_button_asks_for_the_end_and_the_computer_switches_itself_off() {
    if is_left_out() {
        return;
    }
    let unilith = Unilith::new();
    let disk = unilith.path("disk.img");
    let script = "trap 'echo asked; exit 5' TERM; echo ready; sleep 1000 & wait $!";
    build(&unilith, &disk, &["--network", "none", "--cpus", "2", "busybox", "sh", "-c", script]).ok();
    let qmp = unilith.path("qmp");
    let line = format!("unix:{},server=on,wait=off", qmp.display());
    let computers: [(Firmware, &str); 4] = [
        (uefi, "q35,graphics=off,smm=on"),
        (uefi, "pc,graphics=off"),
        (bios, "q35,graphics=off"),
        (bios, "pc,graphics=off"),
    ];
    for (firmware, machine) in computers {
        // One that starts anew instead would do so for ever.
        let kind = ["-M", machine, "-device", "virtio-blk-pci,drive=disk", "-smp", "2", "-qmp", &line];
        let kind = [&kind[..], &["-action", "reboot=reset"]].concat();
        let computer = Computer::start_of_kind(&unilith, &disk, &firmware(&unilith), &kind);
        eventually_within(BOOT, "the program waits", || computer.said().contains("ready"));
        tell_qemu(&qmp, r#"{"execute": "system_powerdown"}"#).expect("QEMU listens");
        let said = computer.end();
        assert!(said.contains("asked") && said.matches("ready").count() == 1, "{said}");
    }
}

#[test]
fn a_damaged_disk_says_what_is_wrong() {
    if is_left_out() {
        return;
    }
    let unilith = Unilith::new();
    let disk = unilith.path("disk.img");
    build(&unilith, &disk, &["--network", "none", "busybox", "true"]).ok();
    let says = |disk: &Path, firmware: &[String], more: &[&str], sentence: &str| {
        let computer = Computer::start(&unilith, disk, firmware, more);
        eventually_within(BOOT, "the loader says what is wrong", || computer.said().contains(sentence));
    };
    says(&disk, &bios(&unilith), &["-cpu", "qemu32"], "unilith: this processor has no 64-bit mode");
    says(&disk, &bios(&unilith), &["-m", "6"], "unilith: there is not enough memory below 4 GiB");

    let good = fs::read(&disk).expect("a disk");
    // A copy that ended early.
    let cut = unilith.path("cut.img");
    fs::write(&cut, &good[..2 << 20]).expect("a disk");
    says(&cut, &bios(&unilith), &[], "unilith: the disk cannot be read");
    let mut bytes = good;
    // The root file system is the last of the file, before the second partition table. What is packed has a sum.
    let end = bytes.len() - (1 << 20);
    let root = bytes[..end].iter().rposition(|byte| *byte != 0).expect("a disk with a file") - (64 << 10);
    bytes[root] ^= 1;
    fs::write(&disk, &bytes).expect("a disk");
    let damaged = "is damaged: its root file system is not what was written";
    says(&disk, &uefi(&unilith), &[], &format!("unilith: this file {damaged}"));
    says(&disk, &bios(&unilith), &[], &format!("unilith: the file on this disk {damaged}"));
    // The stub and the loader have the word, too; a section begins at a block.
    let at = bytes.chunks(512).position(|block| &block[..8] == b"unilith2").expect("the kernel's section");
    bytes[at * 512] ^= 1;
    fs::write(&disk, bytes).expect("a disk");
    let damaged = "is damaged: it has no kernel that can be read";
    says(&disk, &uefi(&unilith), &[], &format!("unilith: this file {damaged}"));
    says(&disk, &bios(&unilith), &[], &format!("unilith: the file on this disk {damaged}"));
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
        (&["--disk", &disk, "--machine", "process", "busybox"], "a disk is for any computer"),
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

mod long {
    use super::*;

    /// A card that Debian's QEMU does not have, with the one that `./unilith test --kvm` gathers.
    #[test]
    #[ignore = "takes minutes"]
    fn a_server_on_a_disk_serves_by_a_card_of_intels_82576() {
        let caches = std::env::var_os("XDG_CACHE_HOME").map_or_else(
            || Path::new(&std::env::var_os("HOME").expect("a home")).join(".cache"),
            PathBuf::from,
        );
        let gathered = caches.join("unilith/kvm-rig/emulator/usr");
        let reason = "only newer emulators have the card: ./unilith test --kvm gathers one";
        if is_left_out() || is_skipped(!gathered.exists(), reason) {
            return;
        }
        let unilith = Unilith::new();
        let disk = unilith.path("redis.img");
        build(&unilith, &disk, &["--log", "info", "redis"]).ok();
        let port = free_port();
        let user = format!("user,id=net,hostfwd=tcp:127.0.0.1:{port}-:6379");
        let mut emulator = Command::new(gathered.join("bin/qemu-system-x86_64"));
        emulator.env("LD_LIBRARY_PATH", gathered.join("lib/x86_64-linux-gnu"));
        for folder in ["share/qemu", "share/seabios"] {
            emulator.arg("-L").arg(gathered.join(folder));
        }
        let kind = ["-M", "q35,graphics=off,smm=on", "-device", "virtio-blk-pci,drive=disk"];
        let card = ["-netdev", &user, "-device", "igb,netdev=net,romfile="];
        let all = [&kind[..], &card].concat();
        let computer = Computer::start_by(emulator, &unilith, &disk, &uefi(&unilith), &all);
        serves(&computer, port);
        assert!(computer.said().contains("the network card is an Intel 82576"), "{}", computer.said());
    }
}
