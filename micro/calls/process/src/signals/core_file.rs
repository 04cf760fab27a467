// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Core files (core(5)): what is left of a process that a signal ended, as an ELF file whose path `core_name` tells. It has
//! the registers of the thread that got the signal; other threads are only in its memory.

use super::core_name;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::{File, FileType};
use api_plat::TrapFrame;
use api_user::Source;
use calls_files::open::open_inode;
use mem::{Listed, Prot, Space};
use task::Task;
use task::files::{self, AT_FDCWD};
use task::limits::RLIMIT_CORE;
use task::prctl::{CORE_ANONYMOUS, CORE_ELF_HEADERS, CORE_FILES};
use task::signals::{SIGKILL, SigInfo, bit};
use vfs::{Resolve, Walk, ops};

const PAGE: u64 = PAGE_SIZE as u64;
/// Linux' `min_coredump` of ELF: a smaller limit is none.
const SMALLEST: u64 = PAGE;
const O_WRONLY: u32 = 1;
const O_CREAT: u32 = 0o100;
const O_NONBLOCK: u32 = 0o4000;
const O_NOFOLLOW: u32 = 0o400000;

const HEADER: u64 = 64;
const PROGRAM_HEADER: u64 = 56;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const NT_PRSTATUS: u32 = 1;
const NT_PRPSINFO: u32 = 3;
const NT_AUXV: u32 = 6;
const NT_FILE: u32 = 0x4649_4c45;
const NT_SIGINFO: u32 = 0x5349_4749;
/// The selectors that programs of Linux have; here they share the kernel's.
const LINUX_CS: u64 = 0x33;
const LINUX_SS: u64 = 0x2b;

/// Writes the file; false when there is none: RLIMIT_CORE and PR_SET_DUMPABLE forbid it, or it cannot be opened.
pub fn dump(task: &Task, frame: &TrapFrame, info: &SigInfo) -> bool {
    let limit = task.process.limits.soft(RLIMIT_CORE);
    if limit < SMALLEST || !task.process.settings.lock().may_be_dumped() {
        return false;
    }
    let (Ok(file), Some(space)) = (open(task, info), task.process.space()) else {
        return false;
    };
    // A file that is full, or at its limit, is one all the same.
    let _ = write(&Output { file: &file, limit, task }, &space, frame, info);
    true
}

/// A regular file of the user's that has no other name, empty.
fn open(task: &Task, info: &SigInfo) -> Result<Arc<dyn File>> {
    let name = &core_name::path(task, info.signal())?[..];
    let files = files::current();
    let (root, start, who) = (files.root(), files.start(AT_FDCWD, name)?, files::credentials());
    let walk = Walk { root: &root, start: &start, who: &who, resolve: Resolve::default() };
    let flags = O_WRONLY | O_CREAT | O_NONBLOCK | O_NOFOLLOW;
    let dentry = ops::open(&walk, name, flags, 0o600)?.dentry;
    let stat = dentry.inode().stat()?;
    if stat.kind != FileType::Regular || stat.links != 1 || stat.uid != who.uid {
        return Err(EPERM);
    }
    let file = open_inode(&dentry, flags)?;
    file.truncate(0)?;
    Ok(file)
}

struct Output<'a> {
    file: &'a Arc<dyn File>,
    limit: u64,
    task: &'a Task,
}

impl Output<'_> {
    /// `EFBIG` beyond RLIMIT_CORE; `EINTR` once the process is to be gone at once.
    fn put(&self, mut offset: u64, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let signals = self.task.signals.pending() | self.task.process.signals.pending();
            if signals & bit(SIGKILL) != 0 {
                return Err(EINTR);
            }
            let room = usize::try_from(self.limit.saturating_sub(offset)).unwrap_or(usize::MAX);
            if room == 0 {
                return Err(EFBIG);
            }
            let n = self.file.write(offset, &mut Source::kernel(&bytes[..bytes.len().min(room)]))?;
            if n == 0 {
                return Err(ENOSPC);
            }
            offset += n as u64;
            bytes = &bytes[n..];
        }
        Ok(())
    }
}

/// How much of a mapping is in the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Nothing,
    /// Where a program or library begins: its ELF header names it.
    FirstPage,
    Everything,
}

/// By /proc/PID/coredump_filter (core(5)).
fn part_of(space: &Space, mapping: &Listed, filter: u32) -> Part {
    let wanted = |kinds: [u32; 2]| filter & kinds[usize::from(mapping.shared)] != 0;
    let is_anonymous = mapping.inode == 0 && (mapping.device == 0 || mapping.shared);
    if mapping.no_dump {
        return Part::Nothing;
    }
    // What a program wrote to its own copy of a file is its memory.
    let is_own = is_anonymous || !mapping.shared && mapping.rights.contains(Prot::WRITE);
    if is_own && wanted(CORE_ANONYMOUS) || !is_anonymous && wanted(CORE_FILES) {
        return Part::Everything;
    }
    if is_own || mapping.shared || filter & CORE_ELF_HEADERS == 0 {
        return Part::Nothing;
    }
    let mut magic = [0; 4];
    match space.read(mapping.start, &mut magic) {
        Ok(()) if mapping.offset == 0 && magic == *b"\x7fELF" => Part::FirstPage,
        _ => Part::Nothing,
    }
}

fn write(output: &Output<'_>, space: &Space, frame: &TrapFrame, info: &SigInfo) -> Result<()> {
    let mappings = space.mappings()?;
    let filter = output.task.process.settings.lock().core_filter;
    let notes = notes(output.task, frame, info, &mappings)?;
    let count = u16::try_from(mappings.len() + 1).map_err(|_| EFBIG)?;
    let at_notes = HEADER + PROGRAM_HEADER * u64::from(count);
    let mut at = (at_notes + notes.len() as u64).next_multiple_of(PAGE);
    let mut headers = Bytes(Vec::new());
    headers.elf(count)?;
    headers.program(PT_NOTE, 0, at_notes, 0, [notes.len() as u64, 0], 4)?;
    let mut parts = Vec::new();
    parts.reserve_exact_fallibly(mappings.len()).map_err(|_| ENOMEM)?;
    for mapping in &mappings {
        let part = part_of(space, mapping, filter);
        let length = mapping.end - mapping.start;
        let in_file = match part {
            Part::Nothing => 0,
            Part::FirstPage => PAGE,
            Part::Everything => length,
        };
        let flag = |right, flag| if mapping.rights.contains(right) { flag } else { 0 };
        let flags = flag(Prot::READ, 4) | flag(Prot::WRITE, 2) | flag(Prot::EXECUTE, 1);
        headers.program(PT_LOAD, flags, at, mapping.start, [in_file, length], PAGE)?;
        parts.push((at, mapping, in_file));
        at += in_file;
    }
    output.put(0, &headers.0)?;
    output.put(at_notes, &notes)?;
    for (at, mapping, length) in parts {
        pages(output, space, mapping, at, length)?;
    }
    // What follows the last page that there is reads as zeros, too.
    output.file.truncate(at.min(output.limit))
}

/// Pages that were never touched stay holes, as in memory; those of a private mapping of a file are the file's.
fn pages(output: &Output<'_>, space: &Space, mapping: &Listed, at: u64, length: u64) -> Result<()> {
    /// As much is looked at or copied at a time.
    const STEP: u64 = 64 * PAGE;
    let mut page = [0; PAGE_SIZE];
    let mut done = 0;
    while done < length {
        let step = (length - done).min(STEP);
        let here = mapping.start + done;
        let resident = space.resident(here, step)?;
        for (i, there) in (0..).zip(resident) {
            if there & 1 == 0 && mapping.inode == 0 {
                continue;
            }
            // Behind the end of a file there is nothing.
            if space.read(here + i * PAGE, &mut page).is_ok() {
                output.put(at + done + i * PAGE, &page)?;
            }
        }
        done += step;
    }
    Ok(())
}

/// Bytes of the file; memory that is short ends the dump.
struct Bytes(Vec<u8>);

impl Bytes {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.reserve_fallibly(bytes.len()).map_err(|_| ENOMEM)?;
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn halves(&mut self, values: &[u16]) -> Result<()> {
        values.iter().try_for_each(|value| self.put(&value.to_le_bytes()))
    }

    fn words(&mut self, values: &[u32]) -> Result<()> {
        values.iter().try_for_each(|value| self.put(&value.to_le_bytes()))
    }

    fn longs(&mut self, values: &[u64]) -> Result<()> {
        values.iter().try_for_each(|value| self.put(&value.to_le_bytes()))
    }

    /// `Elf64_Ehdr` of a core file for x86-64.
    fn elf(&mut self, headers: u16) -> Result<()> {
        const CORE: u16 = 4;
        const X86_64: u16 = 62;
        self.put(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0")?;
        self.halves(&[CORE, X86_64])?;
        self.words(&[1])?;
        self.longs(&[0, HEADER, 0])?;
        self.words(&[0])?;
        self.halves(&[HEADER as u16, PROGRAM_HEADER as u16, headers, 0, 0, 0])
    }

    /// `Elf64_Phdr`; the sizes are those in the file and in memory.
    fn program(
        &mut self,
        kind: u32,
        flags: u32,
        at: u64,
        address: u64,
        [file, memory]: [u64; 2],
        align: u64,
    ) -> Result<()> {
        self.words(&[kind, flags])?;
        self.longs(&[at, address, 0, file, memory, align])
    }

    /// `Elf64_Nhdr`, the name `CORE` and what `body` writes.
    fn note(&mut self, kind: u32, body: impl FnOnce(&mut Bytes) -> Result<()>) -> Result<()> {
        let mut inner = Bytes(Vec::new());
        body(&mut inner)?;
        self.words(&[5, inner.0.len() as u32, kind])?;
        self.put(b"CORE\0\0\0\0")?;
        self.put(&inner.0)?;
        let padding = self.0.len().next_multiple_of(4) - self.0.len();
        self.put(&[0; 4][..padding])
    }
}

fn notes(task: &Task, frame: &TrapFrame, info: &SigInfo, mappings: &[Listed]) -> Result<Vec<u8>> {
    let mut out = Bytes(Vec::new());
    out.note(NT_PRSTATUS, |out| status(out, task, frame, info))?;
    out.note(NT_PRPSINFO, |out| process_info(out, task))?;
    out.note(NT_SIGINFO, |out| out.longs(&info.to_user()))?;
    if let Some(program) = task.process.program() {
        out.note(NT_AUXV, |out| out.longs(&program.auxv))?;
    }
    out.note(NT_FILE, |out| {
        let named = || mappings.iter().filter(|mapping| mapping.inode != 0);
        out.longs(&[named().count() as u64, PAGE])?;
        named().try_for_each(|m| out.longs(&[m.start, m.end, m.offset / PAGE]))?;
        named().try_for_each(|m| out.put(&m.name).and_then(|()| out.put(&[0])))
    })?;
    Ok(out.0)
}

/// `struct elf_prstatus`.
fn status(out: &mut Bytes, task: &Task, f: &TrapFrame, info: &SigInfo) -> Result<()> {
    let signal = info.signal() as u32;
    let sessions = *task.process.sessions.lock();
    out.words(&[signal, info.code() as u32, info.errno() as u32, signal])?;
    out.longs(&[task.signals.pending(), task.signals.blocked()])?;
    let ids =
        [task.number, task.process.family.parent_number(), sessions.group.here(), sessions.session.here()];
    out.words(&ids.map(|id| id as u32))?;
    let used = task.usage();
    for ns in [used.user_ns, used.system_ns, 0, 0] {
        out.longs(&[ns / 1_000_000_000, ns % 1_000_000_000 / 1000])?;
    }
    // `struct user_regs_struct`.
    out.longs(&[
        f.r15, f.r14, f.r13, f.r12, f.rbp, f.rbx, f.r11, f.r10, f.r9, f.r8, f.rax, f.rcx, f.rdx, f.rsi, f.rdi,
    ])?;
    out.longs(&[f.orig_rax, f.rip, LINUX_CS, f.rflags, f.rsp, LINUX_SS, api_plat::fs_base(), 0, 0, 0, 0, 0])?;
    // No floating-point registers follow.
    out.words(&[0, 0])
}

/// `struct elf_prpsinfo`.
fn process_info(out: &mut Bytes, task: &Task) -> Result<()> {
    const ARGUMENTS: usize = 80;
    let process = &task.process;
    let sessions = *process.sessions.lock();
    let (uid, gid) = {
        let who = task.credentials().lock();
        (who.uid, who.gid)
    };
    out.put(&[0, b'R', 0, 0, 0, 0, 0, 0])?;
    out.longs(&[0])?;
    out.words(&[uid, gid])?;
    let ids =
        [process.number, process.family.parent_number(), sessions.group.here(), sessions.session.here()];
    out.words(&ids.map(|id| id as u32))?;
    out.put(&*task.name.lock())?;
    let mut arguments = [0; ARGUMENTS];
    if let Some(space) = process.space() {
        let map = space.mm_map();
        let (start, end) = (map.arg_start, map.arg_end);
        let length = usize::try_from(end - start).unwrap_or(0).min(ARGUMENTS - 1);
        if space.read(start, &mut arguments[..length]).is_err() {
            arguments = [0; ARGUMENTS];
        }
        // One line, as ps shows it.
        arguments[..length.saturating_sub(1)]
            .iter_mut()
            .filter(|byte| **byte == 0)
            .for_each(|byte| *byte = b' ');
    }
    out.put(&arguments)
}
