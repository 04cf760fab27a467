// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects that are wrong: each is refused in one line, and no file whatsoever ends in a panic or in a program that
//! leaves its place.

mod support;

use overlay_link::{Definition, IMAGE_MAX, Input, OBJECT_MAX, OBJECTS_MAX, Place, Plan};
use support::{compile, link, refusal};

const PIC: [&str; 2] = ["-O1", "-fPIC"];

fn good() -> Vec<u8> {
    compile("int data = 3; int main(void) { return data; }", &PIC)
}

#[test]
fn missing_symbols_are_named_with_the_object_and_the_section() {
    let source = "extern int lost_one; int lost_two(void); int main(void) { return lost_one + lost_two(); }";
    let object = compile(source, &PIC);
    assert_eq!(
        refusal(&[("prog.o", &object)]),
        "prog.o: no symbol lost_one (used in .text), lost_two (used in .text) in the application or the kernel"
    );
}

#[test]
fn what_is_no_object_for_this_machine_is_said_with_what_to_do() {
    let object = good();
    let with = |at: usize, bytes: &[u8]| {
        let mut object = object.clone();
        object[at..at + bytes.len()].copy_from_slice(bytes);
        refusal(&[("x.o", &object)])
    };
    assert_eq!(with(18, &[183, 0]), "x.o: an object for AArch64: compile it for x86-64");
    assert_eq!(with(18, &[247, 0]), "x.o: an eBPF object: attach it with the bpf commands");
    assert_eq!(with(18, &[3, 0]), "x.o: an object for another processor: compile it for x86-64");
    assert_eq!(with(4, &[1]), "x.o: not a 64-bit little-endian object: compile it for x86-64");
    assert!(with(16, &[3, 0]).contains("compile it with -c"));
    assert!(with(40, &[0xff; 8]).contains("truncated"));
    assert!(refusal(&[("x.o", b"#!/bin/sh")]).contains("not an ELF object"));
    assert!(refusal(&[("x.o", b"")]).contains("not an ELF object"));
    assert!(refusal(&[("x.o", &vec![0; OBJECT_MAX + 1])]).contains("larger than"));
    assert!(refusal(&[]).contains("no object"));
    let many = vec![("x.o", &object[..]); OBJECTS_MAX + 1];
    assert!(refusal(&many).contains("more than 64 objects"));
    for length in 0..object.len() {
        refusal(&[("cut.o", &object[..length])]);
    }
}

#[test]
fn a_relocation_that_nobody_knows_is_named_with_its_place() {
    let mut object = compile("extern int data; int main(void) { return data; }", &PIC);
    let word = |at: usize| u64::from_le_bytes(object[at..at + 8].try_into().unwrap()) as usize;
    // The first section of relocations (SHT_RELA), and in it the type of the first (ELF-64, Elf64_Rela.r_info).
    let mut sections = (word(40)..object.len()).step_by(64);
    let first = word(sections.find(|at| object[at + 4] == 4).expect("there are some") + 24);
    let at = word(first);
    object[first + 8..first + 12].copy_from_slice(&200u32.to_le_bytes());
    assert_eq!(
        refusal(&[("x.o", &object)]),
        format!("x.o: relocation of type 200 in section .text at {at:#x} is not supported")
    );
}

#[test]
fn programs_that_cannot_be_are_refused() {
    let refused = |source: &str| refusal(&[("x.o", &compile(source, &PIC))]);
    assert!(refused("int f(void) { return 1; }").contains("no function main"));
    assert!(
        refused("__asm__(\".section .evil,\\\"awx\\\"\\n.byte 1\\n.text\"); int main(void) { return 0; }")
            .contains("section .evil is writable and executable")
    );
    assert!(refused("char room[8 << 20]; int main(void) { return room[5]; }").contains("too large"));
    assert!(
        refused("char a[3 << 20], b[3 << 20]; int main(void) { return a[1] + b[1]; }").contains("too large")
            || IMAGE_MAX < 6 << 20
    );
    assert!(
        refused("__attribute__((aligned(8192))) char a[3] = \"a\"; int main(void) { return a[0]; }")
            .contains("aligned to 8192")
    );
    let (one, two) = (good(), good());
    assert_eq!(refusal(&[("a.o", &one), ("b.o", &two)]), "b.o: symbol data is defined in a.o as well");
}

#[test]
fn what_an_instruction_cannot_reach_is_named() {
    let far = |name: &[u8]| (name == b"far").then_some(Definition::Data(0x5555_0000_0000));
    let object = compile("extern int far; int main(void) { return far; }", &["-O1", "-fPIE"]);
    let linked = link(&[("x.o", &object)], &far);
    // Compilers that reach data of others through the table anyway have nothing to complain about.
    if let Err(error) = linked {
        assert!(error.to_string().contains("does not reach far: compile with -fPIC"), "{error}");
    }
    let object = compile("extern int far; int main(void) { return far; }", &["-O1", "-fno-pic"]);
    let error = link(&[("x.o", &object)], &far).unwrap_err().to_string();
    assert!(error.contains("does not reach far: compile with -fPIC"), "{error}");
    let thread = |name: &[u8]| (name == b"far").then_some(Definition::ThreadLocal);
    let object = compile("extern __thread int far; int main(void) { return far; }", &PIC);
    let error = link(&[("x.o", &object)], &thread).unwrap_err().to_string();
    assert!(error.contains("thread-local variable of the application"), "{error}");
}

/// Deterministic mutation of good objects; `UNILITH_FUZZ_ROUNDS` says how many, 30,000 otherwise.
#[test]
fn no_object_whatsoever_makes_the_linker_panic() {
    let rich = "#include <stdarg.h>\nextern int f(int); extern int data; static __thread int t = 3; int common[9];
        static int one(int x) { return x; } static int (*resolve(void))(int) { return one; }
        int indirect(int) __attribute__((ifunc(\"resolve\"))); static int (*p)(int) = indirect;
        __attribute__((constructor)) static void c(void) { t++; } __attribute__((destructor)) static void d(void) { t--; }
        __asm__(\".section .text.g,\\\"axG\\\",@progbits,g,comdat\\n.weak g\\ng: ret\\n.text\\n\");
        int main(void) { return f(data) + t + common[1] + p(2); }";
    let seeds = [
        good(),
        compile(rich, &["-O1", "-fPIC", "-fcommon"]),
        compile(rich, &["-O1", "-fPIE", "-mtls-dialect=gnu2", "-fcommon"]),
        compile(rich, &["-O2", "-fPIC", "-mcmodel=large", "-g"]),
    ];
    let resolver = |name: &[u8]| match name {
        b"f" => Some(Definition::Indirect(0x40_0000)),
        b"data" => Some(Definition::Data(0x40_2000)),
        _ => None,
    };
    let rounds: u64 = std::env::var("UNILITH_FUZZ_ROUNDS").map_or(30_000, |n| n.parse().unwrap());
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut random = move |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    let interesting = [0, 1, 2, 7, 0x7f, 0xff, 0xfff1, 0xfff2, 0x1000, 1 << 31, 1 << 32, 1 << 63, u64::MAX];
    let mut linked = 0;
    for _ in 0..rounds {
        let mut bytes = seeds[random(4) as usize].clone();
        let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
        for _ in 0..=random(3) {
            // Headers, section headers and the small tables before those matter more than code.
            let at = match random(4) {
                0 => random(64) as usize,
                1 => table + random((bytes.len() - table) as u64) as usize,
                _ => random(bytes.len() as u64) as usize,
            };
            match random(4) {
                0 => bytes[at] = random(256) as u8,
                1 => bytes[at] ^= 1 << random(8),
                width => {
                    let word = interesting[random(13) as usize].wrapping_add(random(3)).to_le_bytes();
                    let width = if width == 2 { 4 } else { 8 };
                    let at = at & !(width - 1);
                    let n = (bytes.len() - at).min(width);
                    bytes[at..at + n].copy_from_slice(&word[..n]);
                }
            }
        }
        if random(16) == 0 {
            bytes.truncate(random(bytes.len() as u64) as usize);
        }
        let inputs = [Input { name: "x.o", bytes: &bytes }];
        let base = 0xffff_ffff_4000_0000;
        let result = Plan::new(&inputs, &resolver)
            .and_then(|plan| plan.place(Place { base, canary: 1 }).map(|image| (plan.size(), image)));
        match result {
            Ok((size, image)) => {
                linked += 1;
                assert!(size <= IMAGE_MAX);
                assert!(base + image.text.len() as u64 <= image.rodata_address);
                assert!(image.rodata_address + image.rodata.len() as u64 <= image.data_address);
                assert!(image.data_address + image.data_size <= base + size);
                assert!(image.data.len() as u64 <= image.data_size);
            }
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
    }
    assert!(linked > rounds / 100, "the mutations leave nothing to link: {linked}");
}
