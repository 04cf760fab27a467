// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /proc/cpuinfo: what CPUID tells a program anyhow, by the names that Linux has for it.

use crate::cpu_devices::sizes_by_leaf_4;
use abi::Result;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};

/// Bits of a CPUID register by Linux' names (arch/x86/include/asm/cpufeatures.h), from bit 0; empty ones have none, or say what a
/// program cannot use.
const EDX_1: [&str; 32] = [
    "fpu", "vme", "de", "pse", "tsc", "msr", "pae", "mce", "cx8", "apic", "", "sep", "mtrr", "pge", "mca",
    "cmov", "pat", "pse36", "pn", "clflush", "", "dts", "acpi", "mmx", "fxsr", "sse", "sse2", "ss", "ht",
    "tm", "", "pbe",
];
const ECX_1: [&str; 32] = [
    "pni",
    "pclmulqdq",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "ssse3",
    "",
    "",
    "fma",
    "cx16",
    "",
    "",
    "",
    "pcid",
    "",
    "sse4_1",
    "sse4_2",
    "x2apic",
    "movbe",
    "popcnt",
    "",
    "aes",
    "xsave",
    "",
    "avx",
    "f16c",
    "rdrand",
    "hypervisor",
];
const EBX_7: [&str; 32] = [
    "fsgsbase",
    "",
    "",
    "bmi1",
    "hle",
    "avx2",
    "",
    "smep",
    "bmi2",
    "erms",
    "invpcid",
    "rtm",
    "",
    "",
    "",
    "",
    "avx512f",
    "avx512dq",
    "rdseed",
    "adx",
    "smap",
    "avx512ifma",
    "",
    "clflushopt",
    "clwb",
    "",
    "avx512pf",
    "avx512er",
    "avx512cd",
    "sha_ni",
    "avx512bw",
    "avx512vl",
];
const ECX_7: [&str; 32] = [
    "",
    "avx512vbmi",
    "",
    "",
    "",
    "",
    "avx512_vbmi2",
    "",
    "gfni",
    "vaes",
    "vpclmulqdq",
    "avx512_vnni",
    "avx512_bitalg",
    "",
    "avx512_vpopcntdq",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "rdpid",
    "",
    "",
    "",
    "",
    "movdiri",
    "movdir64b",
    "",
    "",
    "",
];
const EDX_EXTENDED: [&str; 32] = [
    "", "", "", "", "", "", "", "", "", "", "", "syscall", "", "", "", "", "", "", "", "", "nx", "",
    "mmxext", "", "", "fxsr_opt", "pdpe1gb", "rdtscp", "", "lm", "3dnowext", "3dnow",
];
const ECX_EXTENDED: [&str; 32] = [
    "lahf_lm",
    "cmp_legacy",
    "",
    "",
    "",
    "abm",
    "sse4a",
    "misalignsse",
    "3dnowprefetch",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "fma4",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
    "",
];

/// The text of registers: the bytes of each, the lowest first, up to a NUL.
fn ascii(words: impl IntoIterator<Item = u32>) -> String {
    let bytes = words.into_iter().flat_map(u32::to_le_bytes).take_while(|byte| *byte != 0);
    bytes.map(|byte| if byte.is_ascii_graphic() { char::from(byte) } else { ' ' }).collect()
}

fn flags(most: u32, most_extended: u32) -> String {
    let mut out = String::new();
    let mut add = |register: u32, names: &[&str; 32]| {
        for (bit, name) in names.iter().enumerate() {
            if register >> bit & 1 != 0 && !name.is_empty() {
                // Writing to a string cannot fail.
                let _ = write!(out, " {name}");
            }
        }
    };
    let basic = __cpuid(1);
    add(basic.edx, &EDX_1);
    if most_extended >= 0x8000_0001 {
        let extended = __cpuid(0x8000_0001);
        add(extended.edx, &EDX_EXTENDED);
        add(extended.ecx, &ECX_EXTENDED);
    }
    add(basic.ecx, &ECX_1);
    if most >= 7 {
        let structured = __cpuid_count(7, 0);
        add(structured.ebx, &EBX_7);
        add(structured.ecx, &ECX_7);
    }
    out
}

/// Family, model and stepping, whose upper bits are of use in some families alone.
fn signature(eax: u32) -> (u32, u32, u32) {
    let (family, model) = (eax >> 8 & 15, eax >> 4 & 15);
    let whole_family = if family == 15 { family + (eax >> 20 & 255) } else { family };
    let whole_model = if matches!(family, 6 | 15) { (eax >> 16 & 15) << 4 | model } else { model };
    (whole_family, whole_model, eax & 15)
}

/// Bytes of the largest cache of leaf 4, in KiB; of AMD's L2 where there is no such leaf.
fn cache_kib(most: u32, most_extended: u32) -> u64 {
    let largest = if most >= 4 { sizes_by_leaf_4().map(|bytes| bytes / 1024).max() } else { None };
    let second = || if most_extended >= 0x8000_0006 { u64::from(__cpuid(0x8000_0006).ecx >> 16) } else { 0 };
    largest.filter(|size| *size > 0).unwrap_or_else(second)
}

/// The rate of the time stamp counter, measured against the clock for a fifth of a millisecond when it is first asked for.
fn tsc_khz() -> u64 {
    const SPAN_NS: u64 = 200_000;
    static KNOWN: AtomicU64 = AtomicU64::new(0);
    // SAFETY: reads a counter, which programs may as well.
    let now = || (api_plat::now_ns(), unsafe { core::arch::x86_64::_rdtsc() });
    if KNOWN.load(Ordering::Relaxed) == 0 {
        let (start, first) = now();
        let (end, last) =
            core::iter::repeat_with(now).find(|(at, _)| *at >= start + SPAN_NS).unwrap_or((start + 1, first));
        let khz = last.wrapping_sub(first).saturating_mul(1_000_000) / (end - start).max(1);
        KNOWN.store(khz.max(1), Ordering::Relaxed);
    }
    KNOWN.load(Ordering::Relaxed)
}

/// Each processor's lines.
pub fn text() -> Result<Vec<u8>> {
    let vendor = __cpuid(0);
    let (most, most_extended) = (vendor.eax, __cpuid(0x8000_0000).eax);
    let (family, model, stepping) = signature(__cpuid(1).eax);
    let name = if most_extended >= 0x8000_0004 {
        let words = (0x8000_0002..=0x8000_0004).map(__cpuid).flat_map(|r| [r.eax, r.ebx, r.ecx, r.edx]);
        String::from(ascii(words).trim())
    } else {
        String::from("virtual processor")
    };
    let vendor = ascii([vendor.ebx, vendor.edx, vendor.ecx]);
    let (physical, linear) = match most_extended {
        0x8000_0008.. => (__cpuid(0x8000_0008).eax & 255, __cpuid(0x8000_0008).eax >> 8 & 255),
        _ => (36, 48),
    };
    let flush = (__cpuid(1).ebx >> 8 & 255) * 8;
    let khz = tsc_khz();
    let (flags, cache, cpus) = (flags(most, most_extended), cache_kib(most, most_extended), api_plat::cpus());
    let mut out = String::new();
    for cpu in 0..cpus {
        out.push_str(&format!(
            "processor\t: {cpu}\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: {name}\n\
             stepping\t: {stepping}\ncpu MHz\t\t: {}.{:03}\ncache size\t: {cache} KB\nphysical id\t: 0\nsiblings\t: {cpus}\n\
             core id\t\t: {cpu}\ncpu cores\t: {cpus}\napicid\t\t: {cpu}\ninitial apicid\t: {cpu}\nfpu\t\t: yes\n\
             fpu_exception\t: yes\ncpuid level\t: {most}\nwp\t\t: yes\nflags\t\t:{flags}\nbugs\t\t:\nbogomips\t: {}.{:02}\n\
             clflush size\t: {flush}\ncache_alignment\t: {flush}\n\
             address sizes\t: {physical} bits physical, {linear} bits virtual\npower management:\n\n",
            khz / 1000,
            khz % 1000,
            khz / 500,
            khz / 5 % 100,
        ));
    }
    Ok(out.into_bytes())
}
