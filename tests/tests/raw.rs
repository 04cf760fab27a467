// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Raw APIs: programs in C that are linked with the kernel and drive the network device themselves (`unilith/netdev.h`,
//! `examples/raw`), asked by clients of the host.

use std::{
    net::{SocketAddr, UdpSocket},
    process::Command,
    time::Duration,
};
use unilith_tests::{
    BUILD_KERNEL, Machine, NETWORKS, PATIENCE, Unilith, compile_to_link as compile, eventually, finish,
    is_skipped, is_skipped_without_micro, root, tested_machine,
};

/// What these tests are about.
const STATIC: &str = "--static is for the micro kernel";

/// Starts a program as one image with its kernel; it serves when this returns.
fn start<'a>(unilith: &'a Unilith, name: &str, program: &str) -> Machine<'a> {
    let flags = ["run", "-d", "--static", "--name", name, "--machine", &tested_machine(), program];
    // The first one builds the kernel.
    finish(&mut unilith.command(&flags), BUILD_KERNEL).ok();
    unilith.machine(name)
}

/// After this long a datagram is lost, not late: a busy computer must not make two requests of one.
const LOST: Duration = Duration::from_secs(20);

/// What a server answers to a request. Datagrams may be lost, and these requests may be made again.
fn ask(socket: &UdpSocket, request: &[u8]) -> Vec<u8> {
    let mut answer = [0; 2048];
    for _ in 0..3 {
        socket.send(request).expect("the machine can be reached");
        if let Ok(length) = socket.recv(&mut answer) {
            return answer[..length].to_vec();
        }
    }
    panic!("no answer to {:?}", String::from_utf8_lossy(request));
}

fn client(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect(to).expect("the machine's address");
    socket.set_read_timeout(Some(LOST)).expect("a socket has a time-out");
    socket
}

#[test]
fn an_echo_server_without_a_stack_answers_clients_of_the_host() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    if unilith.is_skipped_without(&NETWORKS) {
        return;
    }
    let machine = start(&unilith, "echo", &compile(&unilith, "examples/raw/echo.c", &[]));
    let socket = client(machine.at(7));
    for length in [0, 1, 2, 17, 1000, 1472] {
        let bytes: Vec<u8> = (0..length).map(|n| n as u8 ^ length as u8).collect();
        assert_eq!(ask(&socket, &bytes), bytes, "{length} bytes");
    }
    // More at once than a burst: they come back in order.
    for burst in 0..20u32 {
        let numbers: Vec<u32> = (0..100).map(|n| burst * 100 + n).collect();
        numbers.iter().for_each(|n| drop(socket.send(&n.to_le_bytes())));
        let mut answer = [0; 4];
        let mut came = Vec::new();
        while came.last() != numbers.last() && socket.recv(&mut answer).is_ok() {
            came.push(u32::from_le_bytes(answer));
        }
        assert!(!came.is_empty() && came.is_sorted() && came.iter().all(|n| numbers.contains(n)), "{came:?}");
    }
    // An ordinary address: ARP is answered, and nothing else (there is no ICMP here).
    assert!(unilith.run(&["ps"]).ok().out.contains("ready"));
}

/// Compiles a program in Rust of `examples/raw` as docs/how-to/raw.md does.
fn compile_rust(unilith: &Unilith, name: &str) -> String {
    let path = |name: &str| unilith.path(name).display().to_string();
    let (library, archive, program) = (path("libunilith_raw.rlib"), path("libprogram.a"), path(name));
    let source = |name: &str| root().join(name).display().to_string();
    let common = ["--edition", "2024", "-O", "-C", "panic=abort"];
    let rustc = |words: &[&str]| finish(Command::new("rustc").args(common).args(words), BUILD_KERNEL).ok();
    let kind = ["--crate-type", "rlib", "--crate-name", "unilith_raw", "-o", &library];
    rustc(&[&kind[..], &[&source("micro/raw/rust/src/lib.rs")]].concat());
    let place = ["-C", "relocation-model=static", "-C", "lto", "--crate-type", "staticlib", "-o", &archive];
    let with = format!("unilith_raw={library}");
    rustc(&[&place[..], &["--extern", &with, &source(&format!("examples/raw/{name}.rs"))]].concat());
    finish(&mut unilith.command(&["cc", "-o", &program, &archive]), BUILD_KERNEL).ok();
    program
}

#[test]
fn an_echo_server_in_rust_answers_clients_of_the_host() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    if unilith.is_skipped_without(&NETWORKS) {
        return;
    }
    let program = compile_rust(&unilith, "echo");
    finish(&mut Command::new(&program), PATIENCE).code(78).complains("its kernel must be linked to it");
    let machine = start(&unilith, "echo", &program);
    let socket = client(machine.at(7));
    for length in [0, 1, 2, 17, 1000, 1472] {
        let bytes: Vec<u8> = (0..length).map(|n| n as u8 ^ length as u8).collect();
        assert_eq!(ask(&socket, &bytes), bytes, "{length} bytes");
    }
    // Its packets go back: more than the device has buffers for.
    for n in 0..2000u32 {
        assert_eq!(ask(&socket, &n.to_le_bytes()), n.to_le_bytes());
    }
}

#[test]
fn a_generator_sends_every_frame_and_a_sink_counts_every_one() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    if unilith.is_skipped_without(&NETWORKS) {
        return;
    }
    let machine = start(&unilith, "traffic", &compile(&unilith, "examples/raw/traffic.c", &[]));
    let socket = client(machine.at(9));
    for n in 1..=50 {
        // One at a time: no queue is full, so none is lost.
        socket.send(b"to be dropped").expect("the machine can be reached");
        assert_eq!(ask(&socket, b"count"), n.to_string().as_bytes());
    }
    let first = ask(&socket, b"send 200");
    let mut frames = vec![first];
    let mut frame = [0; 64];
    while frames.len() < 200 {
        let length = socket.recv(&mut frame).expect("a queue for 200 small frames");
        frames.push(frame[..length].to_vec());
    }
    let number = |frame: &[u8]| String::from_utf8_lossy(frame).trim_end_matches('\0').parse::<usize>().ok();
    assert!(
        frames.iter().enumerate().all(|(n, frame)| number(frame) == Some(n) && frame.len() == 18),
        "{frames:?}"
    );
    eventually("the machine says what they took", || machine.log().contains("sent 200 frames, "));
}

#[test]
fn the_store_answers_the_same_by_sockets_in_batches_and_raw() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    if unilith.is_skipped_without(&NETWORKS) {
        return;
    }
    let mut requests: Vec<Vec<u8>> = [
        "g nobody", "s", "", "x y", "g ", "s key", "s a b", "g a", "s a ", "g a", "s  a", "g a b", "s a b c",
        "g a",
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    for n in 0..300u32 {
        let key = n.wrapping_mul(2_654_435_761) % 120;
        requests.push(format!("s key-{key} {n} {}", "v".repeat((n % 80) as usize)).into_bytes());
        requests.push(format!("g key-{}", key / 2).into_bytes());
    }
    requests.push([b"s ", &[b'k'; 31][..], b" ", &[b'v'; 91]].concat());
    requests.push([b"g ", &[b'k'; 31][..]].concat());
    requests.push([b"s ", &[b'k'; 32][..], b" v"].concat());
    requests.push([b"s k ", &[b'v'; 92][..]].concat());
    requests.push(vec![b's'; 1472]);
    let mut all = Vec::new();
    for stage in ["store_sockets", "store_batches", "store_raw"] {
        let program = compile(&unilith, &format!("examples/raw/{stage}.c"), &[]);
        let machine = start(&unilith, &stage.replace('_', "-"), &program);
        let socket = client(machine.at(7000));
        all.push(requests.iter().map(|request| ask(&socket, request)).collect::<Vec<_>>());
    }
    assert!(all[0].contains(&b"ok".to_vec()) && all[0].contains(&b"v b c".to_vec()), "{:?}", all[0]);
    assert!(all.iter().all(|answers| answers == &all[0]));
}

#[test]
fn bad_calls_are_answered_and_a_packet_belongs_to_one() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, "tests/programs/netdev.c", &[]);
    let run = |more: &[&str], program: &str| {
        let flags = ["run", "--rm", "--static", "--machine", &tested_machine()];
        finish(&mut unilith.command(&[&flags[..], more, &[program]].concat()), BUILD_KERNEL)
    };
    run(&[], &program).ok().says("all of it\n");
    // Beside a stack that has the device: said when it is linked, and when it runs.
    let program = compile(&unilith, "tests/programs/netdev.c", &["-DWITH_SOCKET"]);
    let ran = run(&[], &program).ok().says("open: Resource busy\n");
    ran.complains("main calls socket: so the kernel's TCP/IP has the first network device")
        .complains("--set net=none");
    // Without a device there is none.
    let text = "#include <stdio.h>\n#include <unilith/netdev.h>\n\
        int main(void) { struct unilith_netdev_info i; printf(\"%d %d\\n\", unilith_netdev_count(), unilith_netdev_open(0, &i)); }\n";
    let source = unilith.path("none.c");
    std::fs::write(&source, text).expect("a file");
    let program = compile(&unilith, &source.display().to_string(), &[]);
    run(&["--network", "none"], &program).ok().says("0 -19\n");
}

/// A file of this size.
fn disk(unilith: &Unilith, name: &str, bytes: u64) -> String {
    let path = unilith.path(name);
    std::fs::File::create(&path)
        .and_then(|file| file.set_len(bytes))
        .expect("the scratch directory can be written");
    path.display().to_string()
}

/// `run` of a program that is linked with its kernel, without a network.
fn linked(unilith: &Unilith, words: &[&str]) -> Command {
    let machine = tested_machine();
    let first = ["run", "--rm", "--static", "--network", "none", "--machine", &machine];
    unilith.command(&[&first[..], words].concat())
}

#[test]
fn a_disk_has_what_was_written_to_it_in_any_order() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, "examples/raw/disk.c", &[]);
    let file = disk(&unilith, "disk.img", 4 << 20);
    let run = |words: &[&str]| {
        finish(&mut linked(&unilith, &[&["--drive", &file, &program, "--"], words].concat()), BUILD_KERNEL)
    };
    run(&["write", "random", "4k"]).ok().says("written: 1024 blocks of 4096 bytes, random");
    // Another machine finds it, in the other order.
    run(&["read", "sequential", "4k"]).ok().says("read and compared: 1024 blocks");
    run(&["verify", "sequential", "64k"]).ok().says("read and compared: 64 blocks of 65536 bytes");
    run(&["verify", "random", "512", "1"]).ok().says("read and compared: 2048 blocks of 512 bytes");
    run(&["read", "random", "64k"]).code(1).complains("has other bytes than were written");
    // One bit, by another program.
    run(&["write", "sequential", "4k"]).ok();
    let mut bytes = std::fs::read(&file).expect("the disk is a file");
    bytes[1_000_000] ^= 1;
    std::fs::write(&file, bytes).expect("the disk is a file");
    run(&["read", "random", "4k"]).code(1).complains("block 244 has other bytes");
    let ran = finish(
        &mut linked(&unilith, &["--drive", &format!("{file}:ro"), &program, "--", "write", "random"]),
        BUILD_KERNEL,
    );
    ran.code(1).complains("submit: Read-only file system");
    finish(&mut linked(&unilith, &[&program]), BUILD_KERNEL).code(1).complains("there is no disk; give");
}

#[test]
fn a_machine_that_was_taken_over_cannot_make_its_disk_longer() {
    if is_skipped_without_micro(STATIC) || tested_machine() != "process" {
        return;
    }
    const WAITS: &str = "#include <unilith/blockdev.h>\n#include <unistd.h>\n\
        int main(void) { struct unilith_blockdev_info i; unilith_blockdev_open(0, &i); for (;;) sleep(1000); }\n";
    let unilith = Unilith::new();
    let source = unilith.path("wait.c");
    std::fs::write(&source, WAITS).expect("the scratch directory can be written");
    let program = compile(&unilith, &source.display().to_string(), &[]);
    let file = disk(&unilith, "disk.img", 3 << 20);
    let flags = ["--static", "--network", "none", "--machine", "process", "--drive", &file];
    let machine = unilith.start(&[&flags[..], &[&program]].concat());
    let pid = unilith.inspect(&machine.id)["state"]["process"]["pid"].as_u64().expect("it runs");
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("it runs");
    let size = limits.lines().find(|line| line.starts_with("Max file size")).expect("Linux tells it");
    let words: Vec<&str> = size.split_whitespace().skip(3).collect();
    assert_eq!(words, ["3145728", "3145728", "bytes"]);
}

#[test]
fn requests_that_are_none_are_refused_and_a_full_queue_takes_no_more() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, "tests/programs/blockdev.c", &[]);
    let (first, second) = (disk(&unilith, "first", 1 << 20), disk(&unilith, "second", 4096));
    let mut bytes = vec![0; 4096];
    bytes[7 * 512..][..11].copy_from_slice(b"last sector");
    std::fs::write(&second, bytes).expect("the scratch directory can be written");
    let second = format!("{second}:ro");
    let ran = finish(&mut linked(&unilith, &["--drive", &first, "--drive", &second, &program]), BUILD_KERNEL);
    ran.ok().says("all of it\n");
}

/// The host's file system has room for a part of the disk.
#[test]
fn a_disk_that_the_host_has_no_room_for_fails_its_writes_and_goes_on() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    if is_skipped(!rustix::process::geteuid().is_root(), "root mounts a file system that is full") {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, "tests/programs/blockdev.c", &[]);
    let folder = unilith.path("small");
    std::fs::create_dir(&folder).expect("the scratch directory can be written");
    let words = linked(&unilith, &["--drive", "small/disk", &program, "--", "full"]);
    let words: Vec<String> = std::iter::once(words.get_program())
        .chain(words.get_args())
        .map(|w| w.to_string_lossy().into())
        .collect();
    let script = format!(
        "mount -t tmpfs -o size=512k none small && trap 'umount small' EXIT && truncate -s 1M small/disk && {}",
        words.join(" ")
    );
    let mut all = unilith_tests::with_own_mounts();
    all.push(script);
    let mut command = Command::new(&all[0]);
    let as_before = unilith.command::<&str>(&[]);
    command.args(&all[1..]).current_dir(unilith.path("")).stdin(std::process::Stdio::null());
    command.envs(as_before.get_envs().filter_map(|(key, value)| Some((key, value?))));
    finish(&mut command, BUILD_KERNEL).ok().says("some done, some failed\n");
}

#[test]
fn what_cannot_be_a_disk_is_refused_before_anything_starts() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, "examples/raw/disk.c", &[]);
    let (good, odd, empty) =
        (disk(&unilith, "good", 1 << 20), disk(&unilith, "odd", 1000), disk(&unilith, "empty", 0));
    let refused = |drive: &str, says: &str| {
        finish(&mut linked(&unilith, &["--drive", drive, &program]), BUILD_KERNEL).code(125).complains(says);
    };
    refused("missing.img", "--drive missing.img: it does not exist; make it first: truncate -s 64M FILE");
    refused(&odd, "its 1000 bytes are not a multiple of a sector's 512");
    refused(&empty, "it is empty");
    refused(".", "it is a directory");
    let five: Vec<&str> =
        std::iter::repeat_n(["--drive", &good], 5).flatten().chain([program.as_str()]).collect();
    finish(&mut linked(&unilith, &five), BUILD_KERNEL).code(125).complains("4 at most");
    let machine = tested_machine();
    let unlinked = ["run", "--rm", "--machine", &machine, "--drive", &good, &program];
    finish(&mut unilith.command(&unlinked), PATIENCE).code(125).complains("add --static");
    let other = compile(&unilith, "examples/raw/echo.c", &[]);
    finish(&mut linked(&unilith, &["--drive", &good, &other]), BUILD_KERNEL)
        .code(125)
        .complains("calls neither unilith_blockdev_open nor unilith_shfs_mount");

    // A disk that is written to is one machine's.
    let holder = compile(&unilith, "tests/programs/blockdev.c", &[]);
    let hold = [
        "run",
        "-d",
        "--static",
        "--network",
        "none",
        "--machine",
        &machine,
        "--name",
        "holder",
        "--drive",
        &good,
    ];
    finish(&mut unilith.command(&[&hold[..], &[&holder, "--", "hold"]].concat()), BUILD_KERNEL).ok();
    let held = unilith.machine("holder");
    refused(&good, "another machine has it");
    refused(&format!("{good}:ro"), "another machine has it");
    drop(held);
    finish(&mut linked(&unilith, &["--drive", &good, &program]), BUILD_KERNEL).ok();
}

/// A directory with files of sizes around blocks and sectors, some below others, and two with the same bytes.
fn tree(unilith: &Unilith, name: &str, count: usize) -> String {
    let folder = unilith.path(name);
    std::fs::create_dir(&folder).expect("the scratch directory can be written");
    let sizes = [0, 1, 511, 512, 513, 4095, 4096, 4097, 70_000, 300_001];
    for n in 0..count {
        let bytes: Vec<u8> =
            (0..sizes[n % sizes.len()]).map(|at| (at * 7 + n / 20 + at / 251) as u8).collect();
        std::fs::write(folder.join(format!("file-{n}")), bytes)
            .expect("the scratch directory can be written");
    }
    folder.display().to_string()
}

#[test]
fn files_of_an_image_are_those_of_its_directory() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, "examples/raw/files.c", &[]);
    let folder = tree(&unilith, "tree", 60);
    let image = unilith.path("files.shfs").display().to_string();
    unilith.run(&["shfs", "make", &image, &folder]).ok().says("60 files");
    unilith.run(&["shfs", "check", &image]).ok().says("60 files");
    let listed = unilith.run(&["shfs", "ls", &image]).ok();
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  file-0";
    assert!(listed.out.lines().count() == 60 && listed.out.contains(empty), "{listed}");
    // The same directory makes the same image.
    let again = unilith.path("again.shfs").display().to_string();
    unilith.run(&["shfs", "make", &again, &folder]).ok();
    assert!(std::fs::read(&image).expect("an image") == std::fs::read(&again).expect("an image"));
    let volume = format!("{folder}:/files:ro");
    let run = |image: &str| {
        let drive = format!("{image}:ro");
        let words = ["--drive", &drive, "-v", &volume, &program, "--", "/files"];
        finish(&mut linked(&unilith, &words), BUILD_KERNEL)
    };
    let ran = run(&image).ok();
    assert!(ran.out.contains("60 of 60 files compared") && ran.out.contains("SHFS of no file: "), "{ran}");

    // Damaged, cut off, and none at all.
    let bytes = std::fs::read(&image).expect("an image");
    let with = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        std::fs::write(unilith.path(name), bytes).expect("the scratch directory can be written");
        unilith.path(name).display().to_string()
    };
    for (name, change, why) in [
        ("superblock", &(|b: &mut Vec<u8>| b[24] ^= 1) as &dyn Fn(&mut Vec<u8>), "its superblock is damaged"),
        ("table", &|b| b[5000] ^= 1, "its table has another checksum"),
        ("short", &|b| b.truncate(b.len() - 4096), "shorter than its superblock says"),
        ("zeros", &|b| b.fill(0), "it is no SHFS image"),
    ] {
        let damaged = with(name, change);
        unilith.run(&["shfs", "ls", &damaged]).code(1).complains(why);
        let ran = run(&damaged).code(1);
        assert!(ran.err.contains("mount: disk 0 has no sound image"), "{ran}");
        assert!(format!("{}{}", ran.out, ran.err).contains(why), "{ran}");
    }
    // Contents are the check's business, and a comparison's.
    let changed = with("contents", &|b| {
        let last = b.len() - 8192;
        b[last] ^= 1;
    });
    unilith.run(&["shfs", "ls", &changed]).ok();
    unilith.run(&["shfs", "check", &changed]).code(1).complains("has other bytes than its digest says");
    run(&changed).code(1).complains("SHFS: other bytes in");
}

#[test]
fn bytes_of_an_image_are_read_from_any_offset_by_several_threads() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, "tests/programs/shfs.c", &[]);
    let folder = unilith.path("folder");
    std::fs::create_dir_all(folder.join("css")).expect("the scratch directory can be written");
    let bytes: Vec<u8> = (0..10_000).map(|n| (n % 251) as u8).collect();
    std::fs::write(folder.join("css/site.css"), bytes).expect("the scratch directory can be written");
    std::fs::write(folder.join("empty"), "").expect("the scratch directory can be written");
    unilith.run(&["shfs", "make", "image", "folder"]).ok();
    finish(&mut linked(&unilith, &["--drive", "image:ro", &program]), BUILD_KERNEL).ok().says("all of it\n");
    if tested_machine() == "process" {
        let words = ["--cpus", "2", "--drive", "image:ro", &program];
        finish(&mut linked(&unilith, &words), BUILD_KERNEL).ok().says("all of it\n");
    }
}

#[test]
fn directories_that_make_no_image_are_refused_with_the_reason() {
    let unilith = Unilith::new();
    let folder = unilith.path("folder");
    std::fs::create_dir_all(folder.join("css")).expect("the scratch directory can be written");
    std::fs::write(folder.join("css/site.css"), "x").expect("the scratch directory can be written");
    unilith.run(&["shfs", "make", "a.shfs", "folder"]).ok();
    unilith.run(&["shfs", "ls", "a.shfs"]).ok().says("  css/site.css\n");
    std::fs::write(folder.join("n".repeat(199)), "x").expect("the scratch directory can be written");
    unilith.run(&["shfs", "make", "b.shfs", "folder"]).code(1).complains("a name has 1 to 198 bytes");
    std::os::unix::fs::symlink("nowhere", folder.join("broken")).expect("a link");
    unilith.run(&["shfs", "make", "b.shfs", "folder"]).code(1).complains("an image has files alone");
    unilith.run(&["shfs", "make", "b.shfs", "missing"]).code(1).complains("cannot read missing");
    assert!(!unilith.path("b.shfs").exists());
}

#[test]
fn a_raw_program_that_has_no_kernel_in_it_says_how_to_run_it() {
    let unilith = Unilith::new();
    let program = compile(&unilith, "examples/raw/echo.c", &[]);
    let reason = "its kernel must be linked to it: unilith run --static";
    finish(&mut Command::new(&program), PATIENCE).code(78).complains(reason);
    let ran = unilith.program(&["--network", "none", &program]).code(78);
    assert!(ran.err.contains(reason), "{ran}");
}

#[test]
fn a_raw_program_has_no_stack_in_its_image() {
    if is_skipped_without_micro(STATIC) || tested_machine() == "process" {
        eprintln!("build writes images of virtual machines; those of a process machine have the same names");
        return;
    }
    let unilith = Unilith::new();
    let names = |source: &str| {
        let program = compile(&unilith, source, &[]);
        let folder = unilith.path("image").display().to_string();
        finish(&mut unilith.command(&["build", "--static", "-o", &folder, &program]), BUILD_KERNEL).ok();
        unilith.run(&["size", "--json", &folder]).ok().out
    };
    let (raw, sockets) = (names("examples/raw/echo.c"), names("examples/raw/store_sockets.c"));
    for part in ["tcpip::tcp", "tcpip::udp", "tcpip::ip"] {
        assert!(sockets.contains(part) && !raw.contains(part), "{part}: {raw}");
    }
    assert!(raw.contains("raw::port") && !sockets.contains("raw::port"), "{sockets}");
    // And nothing of disks where there is no program for them.
    let (disk, files) = (names("examples/raw/disk.c"), names("examples/raw/files.c"));
    // Machines have virtio's disks alone.
    assert!(!disk.contains("nvme::"), "{disk}");
    for part in ["raw::blockdev", "virtio::block"] {
        assert!(disk.contains(part) && files.contains(part), "{part}: {disk}");
        assert!(!raw.contains(part) && !sockets.contains(part), "{part}: {sockets}");
    }
    assert!(files.contains("shfs::") && !disk.contains("shfs::") && !disk.contains("tcpip::tcp"), "{disk}");
}
