// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sampled profiles: the program that a machine runs at each sample, and what its records say.
//!
//! The machine sends registers and the top of the stack; frames are found here, by the unwind tables of the files that
//! are mapped there, so programs need no frame pointers. What lies deeper than the bytes that came, or behind code without
//! tables, is [`UNKNOWN`] and not guessed.

use crate::emit::Writer;
use crate::language::SAMPLE;
use crate::symbols::{Module, Names};
use crate::{Place, Script};
use api_probes::Kind;
use bpf::bundle::Program;
use bpf::context::Context;
use bpf::helpers::id;
use bpf::insn::jump;
use bpf::maps::{Kind as MapKind, Spec};
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Unwinder};
use object::{Object, ObjectSection, ObjectSegment};
use std::collections::BTreeMap;

/// Stands for the callers that are not known.
pub const UNKNOWN: &str = "[callers unknown]";
/// Marks functions of the kernel, as `perf` does in folded stacks.
pub const KERNEL: &str = "_[k]";
/// Samples a second that a machine takes.
pub const RATES: std::ops::RangeInclusive<u32> = 1..=5000;

const MAP: &str = "samples";
const RING: u32 = 1 << 20;
/// `struct pt_regs`, and where it has RIP, RSP and RBP.
const REGISTERS: usize = 168;
const IP: usize = 128;
const SP: usize = 152;
const BP: usize = 32;
/// Layout of a record: the registers that were hit, those of the program, 0 if there is one, name of the thread, and the
/// stacks that are asked for.
const PROGRAM: usize = REGISTERS;
const THERE: usize = 2 * REGISTERS;
const COMM: usize = THERE + 8;
const HEAD: usize = COMM + 16;
/// Bytes of the program's stack, and of the kernel's, which is shallower.
const USER_STACK: usize = 8 << 10;
const KERNEL_STACK: usize = 4 << 10;
/// What is read at once: a page that is not there costs no more than this.
const PIECE: usize = 512;
/// Where kernels of virtual machines are, at least.
const UPPER_HALF: u64 = 1 << 63;

/// What samples of a machine are taken with.
#[derive(Clone, Copy, Debug)]
pub struct Sampler {
    /// Samples a second.
    rate: u32,
    /// The kernel is there and above, the program below.
    kernel: u64,
}

impl Sampler {
    /// For a machine with this kernel, where it is known.
    pub fn new(rate: u32, kernel: Option<&Module>) -> Sampler {
        let start = |module: &Module| {
            let file = object::File::parse(&*module.elf).ok()?;
            file.segments().filter(|s| s.size() > 0).map(|s| s.address()).min()
        };
        Sampler { rate, kernel: kernel.and_then(start).unwrap_or(UPPER_HALF) }
    }

    /// The program at each sample: a record with stacks, or with nothing but the registers.
    pub fn script(&self, with_stacks: bool) -> Script {
        let mut script = Script::default();
        script.bundle.maps.push(Spec {
            name: MAP.into(),
            kind: MapKind::RingBuffer,
            key: 0,
            value: 0,
            entries: RING,
            flags: 0,
            initial: Vec::new(),
        });
        let mut w = Writer::default();
        w.copy(6, 1);
        if with_stacks {
            w.load(8, 1, 6, IP as i16);
            w.wide(2, self.kernel);
            let in_kernel = w.jump_reg(jump::JGE, 1, 2);
            record(&mut w, USER_STACK, 0);
            w.mov(0, 0);
            w.exit();
            w.land(in_kernel);
            record(&mut w, USER_STACK, KERNEL_STACK);
        } else {
            record(&mut w, 0, 0);
        }
        w.mov(0, 0);
        w.exit();
        let program = Program { name: "sample".into(), context: Context::Registers, insns: w.insns };
        script.bundle.programs.push(program);
        let interval_ns = 1_000_000_000 / u64::from(self.rate.max(1));
        script.places.push(Place { program: 0, kind: Kind::Tracepoint, name: SAMPLE.into(), interval_ns });
        script
    }

    /// Reads a record of the program.
    pub fn read(&self, map: &str, record: &[u8]) -> Option<Sample> {
        if map != MAP || record.len() < HEAD {
            return None;
        }
        let user_end = record.len().min(HEAD + USER_STACK);
        let (user, kernel) = (&record[HEAD..user_end], &record[user_end..]);
        let code = |at: usize, stack: &[u8]| {
            let stack = stack.to_vec();
            Some(Code {
                ip: word(record, at + IP)?,
                sp: word(record, at + SP)?,
                bp: word(record, at + BP)?,
                stack,
            })
        };
        let in_kernel = word(record, IP)? >= self.kernel;
        let there = word(record, THERE)? == 0;
        let name = &record[COMM..COMM + 16];
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        Some(Sample {
            thread: String::from_utf8_lossy(&name[..end]).into_owned(),
            in_kernel,
            hit: code(0, if in_kernel { kernel } else { user })?,
            program: if in_kernel && there { code(PROGRAM, user) } else { None },
        })
    }
}

/// Sends one record with so many bytes of each stack; R6 is the context.
fn record(w: &mut Writer, user: usize, kernel: usize) {
    w.map(1, 0);
    w.mov(2, (HEAD + user + kernel) as i32);
    w.mov(3, 0);
    w.call(id::RINGBUF_RESERVE);
    let full = w.jump(jump::JEQ, 0, 0);
    w.copy(7, 0);
    for at in (0..REGISTERS as i16).step_by(8) {
        w.load(8, 1, 6, at);
        w.store(8, 7, at, 1);
    }
    w.copy(1, 6);
    w.copy(2, 7);
    w.op(bpf::insn::alu::ADD, 2, PROGRAM as i32);
    w.mov(3, REGISTERS as i32);
    w.call(id::PROGRAM_REGS);
    w.store(8, 7, THERE as i16, 0);
    w.copy(1, 7);
    w.op(bpf::insn::alu::ADD, 1, COMM as i32);
    w.mov(2, 16);
    w.call(id::GET_CURRENT_COMM);
    copy_stack(w, PROGRAM + SP, HEAD, user);
    copy_stack(w, SP, HEAD + user, kernel);
    w.copy(1, 7);
    w.mov(2, 0);
    w.call(id::RINGBUF_SUBMIT);
    w.land(full);
}

/// Copies `size` bytes from where the word of the record at `from` points to; what is not there is zeros.
fn copy_stack(w: &mut Writer, from: usize, to: usize, size: usize) {
    for at in (0..size).step_by(PIECE) {
        w.copy(1, 7);
        w.op(bpf::insn::alu::ADD, 1, (to + at) as i32);
        w.mov(2, PIECE as i32);
        w.load(8, 3, 7, from as i16);
        w.op(bpf::insn::alu::ADD, 3, at as i32);
        w.call(id::PROBE_READ);
    }
}

/// One sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Name of the thread.
    pub thread: String,
    /// The kernel was hit.
    pub in_kernel: bool,
    /// What was hit.
    hit: Code,
    /// The program, where the kernel was hit and works for one.
    program: Option<Code>,
}

/// Where code is, and the stack below it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Code {
    ip: u64,
    sp: u64,
    bp: u64,
    stack: Vec<u8>,
}

impl Code {
    fn read(&self, address: u64) -> Result<u64, ()> {
        let at = usize::try_from(address.wrapping_sub(self.sp)).map_err(|_| ())?;
        word(&self.stack, at).ok_or(())
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

impl Sample {
    /// The address that was hit.
    pub fn address(&self) -> u64 {
        self.hit.ip
    }
}

/// Finds the callers.
pub struct Stacks<'a> {
    names: &'a Names,
    unwinder: UnwinderX86_64<Vec<u8>>,
    cache: CacheX86_64<MayAllocateDuringUnwind>,
}

/// More frames are a loop.
const MAX_FRAMES: usize = 256;

impl<'a> Stacks<'a> {
    pub fn new<'m>(modules: impl Iterator<Item = &'m Module>, names: &'a Names) -> Stacks<'a> {
        let mut unwinder = UnwinderX86_64::new();
        for module in modules {
            if let Some(module) = tables(module) {
                unwinder.add_module(module);
            }
        }
        Stacks { names, unwinder, cache: CacheX86_64::new_in() }
    }

    /// Functions from the outermost to what was hit; the thread's name is the first.
    pub fn frames(&mut self, sample: &Sample) -> Vec<String> {
        let mut out = self.walk(&sample.hit, sample.in_kernel);
        if let Some(program) = &sample.program {
            out.extend(self.walk(program, false));
        }
        // The name may have been changed in this moment.
        out.push(if sample.thread.is_empty() { "[no name]".into() } else { sample.thread.clone() });
        out.reverse();
        out
    }

    /// From the inside out.
    fn walk(&mut self, code: &Code, in_kernel: bool) -> Vec<String> {
        let registers = UnwindRegsX86_64::new(code.ip, code.sp, code.bp);
        let mut read = |address| code.read(address);
        let mut frames = self.unwinder.iter_frames(code.ip, registers, &mut self.cache, &mut read);
        let mut out = Vec::new();
        loop {
            match frames.next() {
                Ok(Some(frame)) if out.len() < MAX_FRAMES => {
                    let at = frame.address_for_lookup();
                    // The ways into the kernel are assembly without tables: there its stack begins.
                    let is_entry = in_kernel && !self.names.is_function(at);
                    if is_entry && !out.is_empty() {
                        return out;
                    }
                    let name = self.names.name(at).unwrap_or_else(|| "[no file]".into());
                    out.push(if in_kernel { format!("{name}{KERNEL}") } else { name });
                    if is_entry {
                        return out;
                    }
                }
                Ok(None) => return out,
                Ok(Some(_)) | Err(_) => {
                    out.push(if in_kernel { format!("{UNKNOWN}{KERNEL}") } else { UNKNOWN.into() });
                    return out;
                }
            }
        }
    }
}

/// The unwind tables of a file.
fn tables(module: &Module) -> Option<framehop::Module<Vec<u8>>> {
    let file = object::File::parse(&*module.elf).ok()?;
    let range = |name: &str| {
        let section = file.section_by_name(name)?;
        Some(section.address()..section.address().checked_add(section.size())?)
    };
    let bytes = |name: &str| Some(file.section_by_name(name)?.uncompressed_data().ok()?.into_owned());
    let start = file.segments().map(|s| s.address()).min()?;
    let end = file.segments().map(|s| s.address().saturating_add(s.size())).max()?;
    let sections = ExplicitModuleSectionInfo {
        base_svma: start,
        text_svma: range(".text"),
        text: bytes(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: bytes(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: bytes(".eh_frame_hdr"),
        debug_frame: bytes(".debug_frame"),
        ..Default::default()
    };
    let at = |address: u64| address.wrapping_add(module.bias);
    Some(framehop::Module::new(module.path.clone(), at(start)..at(end), at(start), sections))
}

/// Stacks and how often each was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    stacks: BTreeMap<Vec<String>, u64>,
    pub samples: u64,
}

impl Profile {
    pub fn add(&mut self, frames: Vec<String>) {
        *self.stacks.entry(frames).or_default() += 1;
        self.samples += 1;
    }

    /// One line for each stack: frames from the outermost on with `;` between, and how often, as flamegraph.pl and
    /// others read it.
    pub fn folded(&self) -> String {
        let mut out = String::new();
        for (frames, count) in &self.stacks {
            let frames: Vec<String> = frames.iter().map(|f| f.replace([';', '\n'], ":")).collect();
            out.push_str(&format!("{} {count}\n", frames.join(";")));
        }
        out
    }

    /// A flame graph: one SVG file that needs nothing else.
    pub fn flame_graph(&self, title: &str, subtitle: &str) -> Result<Vec<u8>, String> {
        let mut options = inferno::flamegraph::Options::default();
        options.title = title.into();
        options.subtitle = Some(subtitle.into());
        options.count_name = "samples".into();
        // Kernel and program in different colours, the same in every picture.
        options.colors =
            inferno::flamegraph::color::Palette::Multi(inferno::flamegraph::color::MultiPalette::Java);
        options.hash = true;
        let folded = self.folded();
        let mut out = Vec::new();
        inferno::flamegraph::from_lines(&mut options, folded.lines(), &mut out).map_err(|e| e.to_string())?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_of_samplers_are_verified() {
        for kernel in [UPPER_HALF, 0x7000_0020_0000] {
            for with_stacks in [false, true] {
                let script = Sampler { rate: 99, kernel }.script(with_stacks);
                script.verify().unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }

    /// What a machine would send of this process, with a stack of `length` bytes.
    #[inline(never)]
    fn sample_here(length: usize) -> Sample {
        let (ip, sp, bp): (u64, u64, u64);
        // SAFETY: reads registers.
        unsafe {
            std::arch::asm!("lea {}, [rip]", "mov {}, rsp", "mov {}, rbp", out(reg) ip, out(reg) sp, out(reg) bp);
        }
        // SAFETY: the running stack, which is that deep in a test.
        let stack = unsafe { std::slice::from_raw_parts(sp as *const u8, length) }.to_vec();
        let hit = Code { ip, sp, bp, stack };
        Sample { thread: "test".into(), in_kernel: false, hit, program: None }
    }

    #[inline(never)]
    #[unsafe(no_mangle)]
    extern "C" fn caller_for_this_test(length: usize) -> Box<Sample> {
        Box::new(sample_here(length))
    }

    #[test]
    fn callers_are_found_by_the_unwind_tables_and_missing_ones_are_said_to_be() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let modules = crate::symbols::modules(&maps, &mut |path| std::fs::read(path).ok());
        let names = Names::new(modules.iter());
        let mut stacks = Stacks::new(modules.iter(), &names);
        let frames = stacks.frames(&caller_for_this_test(4096));
        assert_eq!(frames[0], "test");
        let at = |name: &str| frames.iter().position(|f| f.contains(name));
        let (here, caller) = (at("sample_here"), at("caller_for_this_test"));
        assert!(caller.is_some() && here > caller && caller > at("callers_are_found"), "{frames:?}");
        let frames = stacks.frames(&caller_for_this_test(8));
        assert_eq!(frames[1], UNKNOWN, "{frames:?}");
    }

    #[test]
    fn records_of_any_length_are_read_or_refused() {
        let sampler = Sampler { rate: 1, kernel: UPPER_HALF };
        for length in 0..HEAD + USER_STACK + 64 {
            let sample = sampler.read(MAP, &vec![0xa5; length]);
            assert_eq!(sample.is_some(), length >= HEAD);
        }
        assert_eq!(sampler.read("other", &[0; 9000]), None);
    }

    #[test]
    fn a_flame_graph_is_drawn_of_folded_stacks() {
        let mut profile = Profile::default();
        for last in ["work", "work", "a;b_[k]"] {
            profile.add(vec!["thread".into(), "main".into(), last.into()]);
        }
        assert_eq!(profile.folded(), "thread;main;a:b_[k] 1\nthread;main;work 2\n");
        let svg = profile.flame_graph("title", "below").map(|s| String::from_utf8_lossy(&s).into_owned());
        assert!(
            svg.is_ok_and(|s| s.contains("</svg>") && s.contains("title") && s.contains("work (2 samples"))
        );
    }
}
