// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine of `--lto=count` has counted, read from its memory from outside: nothing runs in the machine for it, and it goes on.

use crate::fault::{Fault, Result, file};
use object::{Object as _, ObjectSymbol as _};
use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
};
use unilith_machine::{MachineError, store::Machine};
use unilith_static::{counts::Counters, profile::Profile};

/// The profile of a running machine.
pub fn take(machine: &Machine) -> Result<Profile> {
    let name = &machine.spec.name;
    if !machine.state.phase.is_alive() {
        return Err(MachineError::NotRunning(name.clone()).into());
    }
    let counts_nothing = || {
        Fault::new(format!(
            "machine {name} counts nothing: run it with --static --lto=count; any other machine is sampled by --format svg or folded"
        ))
    };
    let symbols = machine.spec.symbols.as_deref().ok_or_else(counts_nothing)?;
    let image = fs::read(symbols).map_err(file("read", symbols))?;
    let counters = Counters::of(&image).map_err(|e| Fault::new(e.to_string()))?.ok_or_else(counts_nothing)?;
    let process =
        machine.state.process.ok_or_else(|| Fault::new(format!("machine {name} has no process")))?;
    let memory = Memory::of(process.pid)?;
    let profile = if machine.spec.platform.is_process() {
        counters.profile(|address, length| memory.read_process(address, length))?
    } else {
        let guest = Guest::find(&memory, machine.spec.memory, &image)?;
        let mut most: Option<Profile> = None;
        // Of several processes, the one that did most: a child began with the counts of its parent.
        for root in guest.address_spaces()? {
            let profile = counters.profile(|address, length| guest.read(root, address, length))?;
            if most.as_ref().is_none_or(|most| profile.sum() > most.sum()) {
                most = Some(profile);
            }
        }
        most.ok_or_else(|| Fault::new(format!("machine {name} runs no program yet")))?
    };
    if profile.sum() == 0 {
        return Err(Fault::new(format!(
            "machine {name} has counted nothing yet; give it something to do first"
        )));
    }
    Ok(profile)
}

/// The memory of a process of this computer.
struct Memory {
    pid: u32,
    file: File,
}

impl Memory {
    fn of(pid: u32) -> Result<Memory> {
        let path = format!("/proc/{pid}/mem");
        let file = File::open(&path).map_err(|e| {
            Fault::new(format!(
                "cannot read the machine's memory ({path}): {e}; root may, and whoever may debug the process"
            ))
        })?;
        Ok(Memory { pid, file })
    }

    fn read(&self, address: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, address).map(|()| bytes)
    }

    /// Of a process machine, whose addresses are those of the process.
    fn read_process(&self, address: u64, length: usize) -> Result<Vec<u8>> {
        /// Of the program (`micro/kernel/linked-process.ld`).
        const END: u64 = 0x7000_0000_0000;
        match self.read(address, length) {
            Ok(bytes) => Ok(bytes),
            // A page that the program has not touched yet has its first contents.
            Err(e) if address < END && e.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                Ok(vec![0; length])
            }
            Err(e) => Err(Fault::new(format!("cannot read the machine's memory at {address:#x}: {e}"))),
        }
    }
}

const PAGE: u64 = 4096;
/// Each is some ten thousand reads: a second or less.
const MAX_PROCESSES: usize = 256;
/// Where the kernel's image sees physical memory (`micro/kernel/linked-pc.ld`).
const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;
/// Memory of a virtual machine lies in one piece up to here.
const ONE_PIECE: u64 = 2 << 30;

/// The memory of a virtual machine, in that of its monitor.
struct Guest<'a> {
    memory: &'a Memory,
    begin: u64,
    length: u64,
    /// The physical address of the page table that all others begin as.
    first_table: u64,
}

impl Guest<'_> {
    fn find<'a>(memory: &'a Memory, length: u64, image: &[u8]) -> Result<Guest<'a>> {
        if length > ONE_PIECE {
            return Err(Fault::new(
                "the counters of a virtual machine with more than 2 GiB cannot be read: run it with -m 2G or less for its profile",
            ));
        }
        let path = format!("/proc/{}/maps", memory.pid);
        let maps = fs::read_to_string(&path).map_err(|e| Fault::new(format!("cannot read {path}: {e}")))?;
        let begin = maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
            (rest.starts_with("rw") && to - from == length).then_some(from)
        });
        let begin = begin.ok_or_else(|| {
            Fault::new("the machine's memory cannot be found in its monitor: take the profile of --machine process, or of microvm")
        })?;
        let unreadable = || Fault::new("the machine's kernel has no page table: link it again");
        let elf = object::File::parse(image).map_err(|_| unreadable())?;
        let table =
            elf.symbols().find(|symbol| symbol.name() == Ok("unilith_pml4")).ok_or_else(unreadable)?;
        let first_table = table.address().checked_sub(KERNEL_BASE).ok_or_else(unreadable)?;
        Ok(Guest { memory, begin, length, first_table })
    }

    fn physical(&self, address: u64, length: usize) -> Result<Vec<u8>> {
        let inside = address.checked_add(length as u64).is_some_and(|end| end <= self.length);
        let bytes = inside.then(|| self.memory.read(self.begin + address, length));
        let bytes = bytes.unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()));
        bytes.map_err(|e| Fault::new(format!("cannot read the machine's memory at {address:#x}: {e}")))
    }

    fn entry(&self, table: u64, index: u64) -> Result<u64> {
        let bytes = self.physical(table + index * 8, 8)?;
        Ok(bytes.try_into().map_or(0, u64::from_le_bytes))
    }

    /// The page tables of the processes: the kernel's half is the same in each. A machine may write what it likes into its memory, so
    /// there are [`MAX_PROCESSES`] of them at most.
    fn address_spaces(&self) -> Result<Vec<u64>> {
        const LAST: u64 = 511;
        let kernels = self.entry(self.first_table, LAST)?;
        let mut found = Vec::new();
        for page in (0..self.length / PAGE).map(|page| page * PAGE) {
            if page != self.first_table && self.entry(page, LAST)? == kernels {
                found.push(page);
            }
            if found.len() == MAX_PROCESSES {
                break;
            }
        }
        Ok(found)
    }

    /// By an address of the kernel's, or of the program's in this address space.
    fn read(&self, root: u64, address: u64, length: usize) -> Result<Vec<u8>> {
        if address >= KERNEL_BASE {
            return self.physical(address - KERNEL_BASE, length);
        }
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let at = address + bytes.len() as u64;
            let part = (length - bytes.len()).min((PAGE - at % PAGE) as usize);
            match self.translate(root, at)? {
                Some(physical) => bytes.extend(self.physical(physical, part)?),
                // A page that the program has not touched yet has its first contents.
                None => bytes.resize(bytes.len() + part, 0),
            }
        }
        Ok(bytes)
    }

    /// Through four levels of tables (Intel SDM volume 3, 4.5).
    fn translate(&self, root: u64, address: u64) -> Result<Option<u64>> {
        const PRESENT: u64 = 1;
        const LARGE: u64 = 1 << 7;
        const FRAME: u64 = 0x000f_ffff_ffff_f000;
        let mut table = root;
        for shift in [39, 30, 21, 12] {
            let entry = self.entry(table, address >> shift & 0x1ff)?;
            if entry & PRESENT == 0 {
                return Ok(None);
            }
            table = entry & FRAME;
            if shift == 12 || entry & LARGE != 0 && shift < 39 {
                let within = (1 << shift) - 1;
                return Ok(Some(table & !within | address & within));
            }
        }
        Ok(None)
    }
}
