// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What CPUID says, and what may be turned on by it. No instruction but CPUID itself is executed here, so that tests can
//! give the answers of any processor.

use core::arch::x86_64::{__cpuid_count, CpuidResult};

/// States the kernel knows how to keep: x87, SSE, AVX, the three of AVX-512, protection keys. (AMX wants a permission
/// protocol of its own, arch_prctl(ARCH_REQ_XCOMP_PERM).)
const XCR0_KNOWN: u64 = X87 | SSE | AVX | AVX_512 | PKRU;
const X87: u64 = 1;
const SSE: u64 = 1 << 1;
const AVX: u64 = 1 << 2;
const AVX_512: u64 = 7 << 5;
const PKRU: u64 = 1 << 9;

pub const CR4_FSGSBASE: u64 = 1 << 16;
pub const CR4_OSXSAVE: u64 = 1 << 18;
pub const CR4_PKE: u64 = 1 << 22;

/// Answers of CPUID.
pub trait Cpuid {
    /// EAX to EDX for this leaf and subleaf; what the processor does with a leaf that it does not have is its business.
    fn ask(&self, leaf: u32, subleaf: u32) -> CpuidResult;
}

/// The processor this runs on.
pub struct Instruction;

impl Cpuid for Instruction {
    fn ask(&self, leaf: u32, subleaf: u32) -> CpuidResult {
        __cpuid_count(leaf, subleaf)
    }
}

/// A processor's answers to the basic leaves. Each question costs an exit to a hypervisor, so each is asked once.
struct Basic<'a, C> {
    cpuid: &'a C,
    last: u32,
}

impl<'a, C: Cpuid> Basic<'a, C> {
    fn of(cpuid: &'a C) -> Basic<'a, C> {
        Basic { cpuid, last: cpuid.ask(0, 0).eax }
    }

    /// The answer, or zeros for a leaf beyond the last one: an Intel processor gives the last leaf's answer then (SDM
    /// volume 2, CPUID), which means something else.
    fn leaf(&self, leaf: u32) -> CpuidResult {
        if leaf > self.last {
            CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 }
        } else {
            self.cpuid.ask(leaf, 0)
        }
    }
}

/// What the kernel uses of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor {
    /// Bits to add to CR4.
    pub cr4: u64,
    /// XCR0; 0 without XSAVE.
    pub xcr0: u64,
    pub fsgsbase: bool,
    pub tsc_deadline: bool,
    pub rdrand: bool,
    pub rdseed: bool,
    /// A hypervisor says that it is one.
    pub is_guest: bool,
    /// KVM's features (Linux Documentation/virt/kvm/x86/cpuid.rst); none where the hypervisor is another.
    pub kvm_features: u32,
    /// The rate of the time-stamp counter, where hypervisor or processor say it in numbers.
    pub tsc_hz: Option<u64>,
}

/// Reads it; the error says what the machine must be given.
pub fn read(cpuid: &impl Cpuid) -> Result<Processor, &'static str> {
    let basic = Basic::of(cpuid);
    let one = basic.leaf(1);
    let has = |register: u32, bit: u32| register & 1 << bit != 0;
    if !has(one.edx, 24) || !has(one.edx, 26) {
        return Err("this processor has no SSE2; give the machine a better one (-cpu max)");
    }
    let seven = basic.leaf(7);
    let xsave = has(one.ecx, 26);
    let fsgsbase = has(seven.ebx, 0);
    let xcr0 = if xsave {
        let states = basic.leaf(0xd);
        usable(u64::from(states.edx) << 32 | u64::from(states.eax))
    } else {
        0
    };
    // The keys' register is kept by XSAVE.
    let keys = has(seven.ecx, 3) && xcr0 & PKRU != 0;
    let bit = |has: bool, bit: u64| if has { bit } else { 0 };
    // The leaves from this one on are the hypervisor's only where CPUID says that there is one.
    let hypervisor = has(one.ecx, 31).then(|| cpuid.ask(HYPERVISOR, 0));
    Ok(Processor {
        cr4: bit(fsgsbase, CR4_FSGSBASE) | bit(xsave, CR4_OSXSAVE) | bit(keys, CR4_PKE),
        xcr0,
        fsgsbase,
        tsc_deadline: has(one.ecx, 24),
        rdrand: has(one.ecx, 30),
        rdseed: has(seven.ebx, 18),
        is_guest: hypervisor.is_some(),
        kvm_features: hypervisor.map_or(0, |h| kvm_features(cpuid, &h)),
        tsc_hz: hypervisor.and_then(|h| told_hz(cpuid, &h)).or_else(|| crystal_hz(&basic.leaf(0x15))),
    })
}

/// The states of `offered` that are known and that XSETBV takes together (SDM volume 1, 13.3): x87 always, AVX with SSE
/// only, AVX-512 with AVX only and all three of its parts.
fn usable(offered: u64) -> u64 {
    let mut xcr0 = offered & XCR0_KNOWN | X87;
    if xcr0 & SSE == 0 {
        xcr0 &= !AVX;
    }
    if xcr0 & AVX == 0 || xcr0 & AVX_512 != AVX_512 {
        xcr0 &= !AVX_512;
    }
    xcr0
}

/// First of a hypervisor's leaves.
const HYPERVISOR: u32 = 0x4000_0000;

fn kvm_features(cpuid: &impl Cpuid, hypervisor: &CpuidResult) -> u32 {
    // "KVMKVMKVM\0\0\0"
    match (hypervisor.ebx, hypervisor.ecx, hypervisor.edx) {
        (0x4b4d_564b, 0x564b_4d56, 0x4d) => cpuid.ask(HYPERVISOR + 1, 0).eax,
        _ => 0,
    }
}

/// What VMware's leaf says, which KVM's users have too (QEMU: `vmware-cpuid-freq`): EAX is in kHz.
fn told_hz(cpuid: &impl Cpuid, hypervisor: &CpuidResult) -> Option<u64> {
    const FREQUENCIES: u32 = HYPERVISOR + 0x10;
    let is_there = hypervisor.eax >= FREQUENCIES && hypervisor.eax & 0xffff_0000 == HYPERVISOR;
    is_there.then(|| u64::from(cpuid.ask(FREQUENCIES, 0).eax) * 1000).filter(|hz| *hz != 0)
}

/// SDM volume 2, CPUID, leaf 0x15: crystal in Hz (ECX) times EBX / EAX; each is 0 where it is not told.
fn crystal_hz(leaf: &CpuidResult) -> Option<u64> {
    let known = leaf.eax != 0 && leaf.ebx != 0 && leaf.ecx != 0;
    known.then(|| u64::from(leaf.ecx) * u64::from(leaf.ebx) / u64::from(leaf.eax))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strict;
    use std::{collections::BTreeMap, vec::Vec};

    /// A processor by its answers; as Intel's do, it gives the last basic leaf's answer beyond it.
    #[derive(Clone, Default)]
    struct Fake(BTreeMap<(u32, u32), [u32; 4]>);

    impl Cpuid for Fake {
        fn ask(&self, leaf: u32, subleaf: u32) -> CpuidResult {
            let last = self.0.get(&(0, 0)).map_or(0, |l| l[0]);
            let found = self.0.get(&(leaf, subleaf)).or_else(|| self.0.get(&(last, 0)));
            let [eax, ebx, ecx, edx] = found.copied().unwrap_or_default();
            CpuidResult { eax, ebx, ecx, edx }
        }
    }

    const SSE2: u32 = 1 << 24 | 1 << 26;

    /// With these features and states.
    fn fake(last: u32, ecx: u32, seven: [u32; 4], states: u64) -> Fake {
        let leaves = [
            ((0, 0), [last, 0, 0, 0]),
            ((1, 0), [0, 0, ecx, SSE2]),
            ((7, 0), seven),
            ((0xd, 0), [states as u32, 0, 0, (states >> 32) as u32]),
        ];
        Fake(leaves.into_iter().filter(|((leaf, _), _)| *leaf <= last).collect())
    }

    #[test]
    fn every_set_of_states_that_a_hypervisor_may_offer_is_cut_to_one_that_xsetbv_takes() {
        for offered in 0..1u64 << 20 {
            let xcr0 = usable(offered);
            assert!(strict::xsetbv(xcr0, offered | X87).is_ok(), "{offered:#x} became {xcr0:#x}");
        }
    }

    #[test]
    fn cr4_gets_only_bits_that_cpuid_offers() {
        for bits in 0..32u32 {
            let on = |n: u32| bits >> n & 1;
            let seven = [0, on(0), on(1) << 3, 0];
            let states = X87 | SSE | (u64::from(on(3)) * PKRU);
            let fake = fake(if on(4) == 1 { 0xd } else { 1 }, on(2) << 26, seven, states);
            let found = read(&fake).unwrap();
            strict::cr4(&fake, found.cr4).unwrap();
            assert_eq!(found.xcr0 == 0, on(2) == 0, "{found:?}");
            // Protection keys are of no use without a place for their register.
            assert!(found.cr4 & CR4_PKE == 0 || found.xcr0 & PKRU != 0);
        }
    }

    #[test]
    fn leaves_beyond_the_last_one_mean_nothing() {
        // An old processor whose last leaf has all bits set.
        let mut old = fake(2, 0, [0; 4], 0);
        old.0.insert((2, 0), [u32::MAX; 4]);
        let found = read(&old).unwrap();
        assert!(!found.fsgsbase && !found.rdseed && found.cr4 == 0, "{found:?}");
        assert_eq!(found.tsc_hz, None);
    }

    /// Counts the questions.
    struct Counted(Fake, std::cell::RefCell<Vec<(u32, u32)>>);

    impl Cpuid for Counted {
        fn ask(&self, leaf: u32, subleaf: u32) -> CpuidResult {
            self.1.borrow_mut().push((leaf, subleaf));
            self.0.ask(leaf, subleaf)
        }
    }

    #[test]
    fn no_leaf_is_asked_for_twice() {
        let leaves = [(1, [8, 0, 0, 0]), (0x10, [2_000_000, 0, 0, 0])];
        let counted = Counted(under(b"KVMKVMKVM\0\0\0", &leaves), Vec::new().into());
        read(&counted).unwrap();
        let mut asked = counted.1.into_inner();
        let all = asked.len();
        asked.sort_unstable();
        asked.dedup();
        assert_eq!(asked.len(), all, "{asked:x?}");
    }

    #[test]
    fn processor_without_sse2_is_refused_in_a_sentence() {
        let none = Fake([((0, 0), [1, 0, 0, 0]), ((1, 0), [0; 4])].into());
        assert!(read(&none).unwrap_err().contains("SSE2"));
    }

    /// With a hypervisor of this signature and these leaves.
    fn under(signature: &[u8; 12], leaves: &[(u32, [u32; 4])]) -> Fake {
        let mut fake = fake(0xd, 1 << 31, [0; 4], 3);
        let words: Vec<u32> =
            signature.chunks(4).map(|c| u32::from_le_bytes(c.try_into().expect("four bytes"))).collect();
        let last = leaves.iter().map(|(n, _)| HYPERVISOR + n).max().unwrap_or(HYPERVISOR);
        fake.0.insert((HYPERVISOR, 0), [last, words[0], words[1], words[2]]);
        for (n, answer) in leaves {
            fake.0.insert((HYPERVISOR + n, 0), *answer);
        }
        fake
    }

    fn kvm_features(fake: &Fake) -> u32 {
        read(fake).unwrap().kvm_features
    }

    fn tsc_hz(fake: &Fake) -> Option<u64> {
        read(fake).unwrap().tsc_hz
    }

    #[test]
    fn features_of_kvm_are_believed_of_kvm_alone() {
        let leaves = [(1, [8, 0, 0, 0])];
        assert_eq!(kvm_features(&under(b"KVMKVMKVM\0\0\0", &leaves)), 8);
        assert_eq!(kvm_features(&under(b"TCGTCGTCGTCG", &leaves)), 0);
        let mut bare = under(b"KVMKVMKVM\0\0\0", &leaves);
        bare.0.insert((1, 0), [0, 0, 0, SSE2]);
        assert_eq!(kvm_features(&bare), 0);
        assert!(read(&under(b"TCGTCGTCGTCG", &leaves)).unwrap().is_guest && !read(&bare).unwrap().is_guest);
    }

    #[test]
    fn rate_is_read_where_it_is_told() {
        let told = under(b"KVMKVMKVM\0\0\0", &[(1, [0; 4]), (0x10, [2_000_000, 1_000_000, 0, 0])]);
        assert_eq!(tsc_hz(&told), Some(2_000_000_000));
        assert_eq!(tsc_hz(&under(b"KVMKVMKVM\0\0\0", &[(1, [1; 4])])), None);
        let mut crystal = fake(0x15, 0, [0; 4], 0);
        crystal.0.insert((0x15, 0), [2, 166, 24_000_000, 0]);
        assert_eq!(tsc_hz(&crystal), Some(1_992_000_000));
        crystal.0.insert((0x15, 0), [2, 166, 0, 0]);
        assert_eq!(tsc_hz(&crystal), None);
    }
}
