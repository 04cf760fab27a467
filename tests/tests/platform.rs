// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pc platform by itself: `plat-pc-check` is a kernel that checks its ground, booted here on each kind of machine; and
//! what the image of the real kernel must not contain.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpKind};
use object::{Object, ObjectSection, ObjectSymbol};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use unilith_tests::{BUILD_KERNEL, Ran, finish, root};

/// Builds an image and answers where it is.
fn build(package: &str, profile: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["build", "--quiet", "--package", package, "--profile", profile]);
    // Cargo sets this for the test; the images are built where the command builds them.
    finish(cargo.env_remove("CARGO_TARGET_DIR"), BUILD_KERNEL).ok();
    root().join("target").join(profile).join(package)
}

const MICROVM: &[&str] = &[
    "-M",
    "microvm,x-option-roms=off,pit=off,pic=off,rtc=off,isa-serial=on,auto-kernel-cmdline=off",
    "-bios",
    "qboot.rom",
];
const Q35: &[&str] = &["-M", "q35", "-bios", "qboot.rom"];

/// Boots the checking kernel and lets it do `what`.
fn check(machine: &[&str], more: &[&str], what: &str) -> Ran {
    let kernel = build("plat-pc-check", "kernel-dev");
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(["-accel", "tcg", "-cpu", "max", "-m", "64", "-nodefaults", "-no-user-config", "-no-reboot"])
        .args(["-display", "none", "-serial", "stdio"])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"])
        .args(machine)
        .args(more)
        .args(["-append", &format!("-- {what}"), "-kernel"])
        .arg(kernel);
    finish(&mut qemu, unilith_tests::PATIENCE)
}

/// What QEMU's exit device makes of a kernel that ended well, and of one that did not.
const WELL: i32 = 1;
const BADLY: i32 = 3;

#[test]
fn registers_red_zone_and_work_survive_entry_exit_and_interrupts() {
    for machine in [MICROVM, Q35] {
        check(machine, &[], "program").code(WELL).says("ok");
    }
}

#[test]
fn devices_answer_on_every_transport() {
    let folder = tempfile::tempdir().unwrap();
    let export = format!("local,id=v0,security_model=none,path={}", folder.path().display());
    for (machine, suffix, legacy) in
        [(MICROVM, "device", true), (MICROVM, "device", false), (Q35, "pci", false)]
    {
        let (rng, ninep) =
            (format!("virtio-rng-{suffix}"), format!("virtio-9p-{suffix},fsdev=v0,mount_tag=v0"));
        let mut more = vec!["-device", &rng, "-fsdev", &export, "-device", &ninep];
        if !legacy {
            more.extend(["-global", "virtio-mmio.force-legacy=false"]);
        }
        check(machine, &more, "devices").code(WELL).says("9P2000.L").says("ok");
    }
}

#[test]
fn the_timer_wakes_a_processor_that_sleeps() {
    check(MICROVM, &[], "idle").code(WELL).says("ticks a millisecond");
}

#[test]
fn faults_of_the_kernel_are_reported_and_end_the_machine() {
    check(MICROVM, &[], "overflow").code(BADLY).says("a thread's kernel stack overflowed");
    check(MICROVM, &[], "fault").code(BADLY).says("kernel page fault").says("address 0xffffff00dead0000");
    check(MICROVM, &[], "panic").code(BADLY).says("as asked");
}

/// From the oldest with 64-bit mode to the newest, Intel's and AMD's; those that this QEMU does not have are left out.
const PROCESSORS: [&str; 16] = [
    "qemu64",
    "kvm64",
    "Conroe",
    "Nehalem",
    "SandyBridge",
    "Haswell",
    "Skylake-Server",
    "Icelake-Server",
    "SapphireRapids",
    "GraniteRapids",
    "Opteron_G1",
    "phenom",
    "EPYC",
    "EPYC-Milan",
    "EPYC-Genoa",
    "EPYC-Turin",
];

#[test]
fn every_processor_boots() {
    let help = Command::new("qemu-system-x86_64").args(["-cpu", "help"]).output().expect("QEMU is there");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let has = |model: &&&str| help.lines().any(|l| l.split_whitespace().nth(1) == Some(**model));
    let named = PROCESSORS.iter().filter(has).map(|m| (*m).to_string());
    // One thing less at a time.
    let lacking = ["xsave", "avx", "fsgsbase", "pdpe1gb", "smep,-smap", "pku,-pks", "sse4.1,-sse4.2"];
    let lacking = lacking.iter().map(|l| format!("max,-{l}"));
    let mut booted = 0;
    for processor in named.chain(lacking) {
        check(MICROVM, &["-cpu", &processor], "hello").code(WELL).says("wall ");
        booted += 1;
    }
    assert!(booted >= 12, "{booted} processors are few: {help}");
}

#[test]
fn processor_that_will_not_do_is_refused_in_a_sentence() {
    for (processor, lack) in [
        ("qemu32", "no 64-bit mode"),
        ("486", "no 64-bit mode"),
        ("max,-nx", "no execute-disable"),
        ("max,-sse2", "no SSE2"),
    ] {
        check(MICROVM, &["-cpu", processor], "hello")
            .code(BADLY)
            .says("unilith: this processor has")
            .says(lack);
    }
}

#[test]
fn memory_of_any_size_is_taken_and_what_the_physical_map_does_not_reach_is_left_out() {
    // The last has more than the map's 512 GiB, and every one a hole below 4 GiB.
    for size in ["3500M", "5G", "512G", "600G"] {
        // Nothing that is not touched is taken of the host's memory.
        let memory = format!("memory-backend-ram,id=all,size={size},reserve=off");
        for processor in ["max", "qemu64"] {
            let more = ["-cpu", processor, "-m", size, "-object", &memory, "-M", "memory-backend=all"];
            check(Q35, &more, "hello").code(WELL).says("MiB").says("wall ");
        }
    }
}

/// The part of a kernel image that the audit needs.
struct Image {
    text: Vec<u8>,
    start: u64,
    symbols: BTreeMap<u64, String>,
}

impl Image {
    fn read(path: &PathBuf) -> Image {
        let bytes = std::fs::read(path).expect("nm prints address, type and name");
        let file = object::File::parse(&*bytes).expect("nm prints address, type and name");
        let text = file.section_by_name(".text").expect("nm prints address, type and name");
        let symbols = file.symbols().map(|s| (s.address(), s.name().unwrap_or("").to_string()));
        Image {
            text: text.data().expect("nm prints address, type and name").to_vec(),
            start: text.address(),
            symbols: symbols.collect(),
        }
    }

    fn at(&self, address: u64) -> Option<&[u8]> {
        self.text.get(usize::try_from(address.checked_sub(self.start)?).ok()?..)
    }

    fn name(&self, address: u64) -> &str {
        self.symbols.range(..=address).next_back().map_or("?", |(_, name)| name)
    }
}

/// Functions that end the machine: what they do to registers does not matter.
fn ends_the_machine(name: &str) -> bool {
    ["panic", "contended", "unwrap_failed", "expect_failed"].iter().any(|part| name.contains(part))
}

#[test]
fn fast_calls_touch_no_vector_register_and_no_strings() {
    let image = Image::read(&build("kernel", "kernel"));
    let fast = |(_, name): &(&u64, &String)| name.contains("unilith_fast_") && !ends_the_machine(name);
    let labels = ["unilith_fast_check", "unilith_fast_tail"];
    let entries: Vec<u64> = image
        .symbols
        .iter()
        .filter(fast)
        .filter(|(_, n)| !labels.contains(&n.as_str()))
        .map(|(a, _)| *a)
        .collect();
    assert!(entries.len() >= 5, "fast calls not found by name");
    let mut waiting = entries;
    let mut seen = BTreeSet::new();
    let mut factory = InstructionInfoFactory::new();
    while let Some(mut at) = waiting.pop() {
        // One straight line of code.
        while seen.insert(at) {
            let Some(code) = image.at(at) else { panic!("{at:#x} is not in the text") };
            let mut decoder = Decoder::with_ip(64, &code[..code.len().min(16)], at, DecoderOptions::NONE);
            let instruction: Instruction = decoder.decode();
            // The program may have set the direction flag, which nothing clears on this way.
            assert!(
                !instruction.is_string_instruction(),
                "{} has a string instruction at {at:#x}",
                image.name(at)
            );
            for used in factory.info(&instruction).used_registers() {
                let register = used.register();
                assert!(
                    !register.is_vector_register() && !register.is_st() && !register.is_mm(),
                    "{} uses {register:?} at {at:#x}",
                    image.name(at)
                );
            }
            let target = (instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64)
                .then(|| instruction.near_branch64());
            match instruction.flow_control() {
                FlowControl::Next | FlowControl::ConditionalBranch => waiting.extend(target),
                FlowControl::UnconditionalBranch | FlowControl::Return => {
                    waiting.extend(target);
                    break;
                }
                FlowControl::Call => {
                    let target = target.expect("a direct call");
                    if ends_the_machine(image.name(target)) {
                        break;
                    }
                    waiting.push(target);
                }
                FlowControl::Exception => break,
                other => panic!("{}: {other:?} at {at:#x} cannot be followed", image.name(at)),
            }
            at = instruction.next_ip();
        }
    }
}
