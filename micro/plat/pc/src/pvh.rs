// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the PVH start information.

use crate::{physical_to_virtual, ranges::Ranges};
use api_boot::{MAX_SETTINGS, SETTINGS_ADDRESS};
use core::mem::size_of;
use pvh::{MAGIC, MapEntry, Module, RAM, StartInfo};

/// Most bytes of a command line that are read: programs' arguments and environment are in it.
const COMMAND_LINE_MAX: usize = 64 << 10;
/// Most entries of the memory map that are read.
const MAP_MAX: u32 = 128;

/// What the start information says.
pub struct Machine {
    pub command_line: &'static [u8],
    /// What the monitor put to [`SETTINGS_ADDRESS`], if the command line says so; nothing on a computer of its own.
    pub settings: &'static [u8],
    pub initrd: &'static [u8],
    pub initrd_physical: u64,
    /// Free memory: without what firmware may have below 1 MiB, and without what the start information itself uses.
    pub free: Ranges,
    /// Bytes of memory in all.
    pub memory: u64,
    /// Physical address of ACPI's root pointer; 0 where it is not told.
    pub acpi_root: u64,
    /// There is memory where processors start.
    pub has_start_pages: bool,
}

/// Two pages below 1 MiB where processors start; their contents are put back. The first one is for the code, the second one for
/// the root of its page tables.
pub const START_PAGES: core::ops::Range<u64> = START_PAGE..START_PAGE + START_BYTES as u64;
pub const START_PAGE: u64 = 0x8000;
pub const START_BYTES: usize = 0x2000;

/// Memory below 1 MiB that is used in guests: neither what firmware keeps at its beginning (vectors, its own data; Linux leaves out
/// as much) nor where tables of processors are searched at its end.
const BASE_MEMORY: core::ops::Range<u64> = 0x1_0000..0x9_0000;
const _: () = assert!(START_PAGES.end <= BASE_MEMORY.start);
const _: () =
    assert!(BASE_MEMORY.start <= SETTINGS_ADDRESS && SETTINGS_ADDRESS + MAX_SETTINGS <= BASE_MEMORY.end);

/// How many bytes of settings are in memory, by a command line that nobody has decoded yet: they are no free memory.
fn settings_length(command_line: &[u8]) -> Option<usize> {
    let words = command_line.split(u8::is_ascii_whitespace).take_while(|word| *word != b"--");
    let text = words.filter_map(|word| word.strip_prefix(b"settings=")).last()?;
    let length: u64 = core::str::from_utf8(text).ok()?.parse().ok()?;
    (length <= MAX_SETTINGS).then_some(length as usize)
}

/// Reads a structure the boot loader left.
///
/// # Safety
///
/// `physical` is inside the physical map, and any bit pattern is a `T`.
unsafe fn read<T: Copy>(physical: u64) -> T {
    // SAFETY: by the caller's word; it need not be aligned.
    unsafe { physical_to_virtual::<T>(physical).read_unaligned() }
}

/// Most modules that are looked at.
#[cfg(feature = "framebuffer")]
const MODULES_MAX: u32 = 16;

/// What the boot loader says of the screen, and the memory that its map knows.
///
/// # Safety
///
/// As for [`read_machine`].
#[cfg(feature = "framebuffer")]
pub unsafe fn read_screen(
    physical: u64,
) -> Option<(pvh::Framebuffer, impl Iterator<Item = core::ops::Range<u64>>)> {
    // SAFETY: by the caller's word, as in `read_machine`.
    unsafe {
        let info: StartInfo = read(physical);
        if info.magic != MAGIC || info.version == 0 || info.memory_map == 0 {
            return None;
        }
        // The first one is the initial RAM disk.
        let screen = (1..info.modules.min(MODULES_MAX)).find_map(|n| {
            let module: Module = read(info.module_list + u64::from(n) * size_of::<Module>() as u64);
            if module.size != size_of::<pvh::Framebuffer>() as u64 {
                return None;
            }
            let said: pvh::Framebuffer = read(module.address);
            (said.magic == pvh::FRAMEBUFFER).then_some(said)
        })?;
        let memory = (0..info.memory_map_entries.min(MAP_MAX)).filter_map(move |n| {
            let entry: MapEntry = read(info.memory_map + u64::from(n) * size_of::<MapEntry>() as u64);
            (entry.kind == RAM).then(|| entry.address..entry.address.saturating_add(entry.size))
        });
        Some((screen, memory))
    }
}

/// Reads the start information at `physical`; the error says what is wrong with it. A computer's own firmware goes on writing below
/// 1 MiB, whatever its map says, a guest's (`is_guest`) does not.
///
/// # Safety
///
/// `physical` came from the boot loader in EBX, nothing has written to memory outside of the kernel image yet, and
/// physical memory that holds start information is mapped.
pub unsafe fn read_machine(physical: u64, is_guest: bool) -> Result<Machine, &'static str> {
    // SAFETY: by the caller's word. These are plain integers, and lengths are bounded before they are used.
    unsafe {
        let info: StartInfo = read(physical);
        if info.magic != MAGIC {
            return Err("started without PVH start information");
        }
        if info.version == 0 || info.memory_map == 0 {
            return Err("the PVH start information has no memory map (version 0)");
        }
        let mut free = Ranges::new();
        let mut memory = 0;
        let mut has_start_pages = false;
        let entry_size = size_of::<MapEntry>() as u64;
        let entries = u64::from(info.memory_map_entries.min(MAP_MAX));
        for i in 0..entries {
            let entry: MapEntry = read(info.memory_map + i * entry_size);
            if entry.kind == RAM {
                memory += entry.size;
                has_start_pages |= entry.address <= START_PAGES.start
                    && entry.address.saturating_add(entry.size) >= START_PAGES.end;
                free.add(entry.address, entry.address.saturating_add(entry.size));
            }
        }
        let base = if is_guest { BASE_MEMORY } else { 0..0 };
        free.remove(0, base.start);
        free.remove(base.end, 1 << 20);
        free.remove(physical, physical + size_of::<StartInfo>() as u64);
        free.remove(info.memory_map, info.memory_map + entries * entry_size);

        let mut initrd: &[u8] = &[];
        let mut initrd_physical = 0;
        if info.modules > 0 {
            let module: Module = read(info.module_list);
            if !module.address.is_multiple_of(4096) {
                return Err("the initial RAM disk does not begin at a page boundary");
            }
            initrd = core::slice::from_raw_parts(physical_to_virtual(module.address), module.size as usize);
            initrd_physical = module.address;
            free.remove(module.address, module.address + module.size);
            free.remove(info.module_list, info.module_list + size_of::<Module>() as u64);
        }

        let mut command_line: &[u8] = &[];
        if info.command_line != 0 {
            let start: *const u8 = physical_to_virtual(info.command_line);
            let length = (0..COMMAND_LINE_MAX)
                .find(|i| start.add(*i).read() == 0)
                .ok_or("the command line is longer than 64 KiB")?;
            command_line = core::slice::from_raw_parts(start, length);
            free.remove(info.command_line, info.command_line + length as u64);
        }
        let settings: &[u8] = match settings_length(command_line) {
            Some(length) if is_guest => {
                free.remove(SETTINGS_ADDRESS, SETTINGS_ADDRESS + length as u64);
                core::slice::from_raw_parts(physical_to_virtual(SETTINGS_ADDRESS), length)
            }
            _ => &[],
        };
        let acpi_root = info.rsdp;
        Ok(Machine {
            command_line,
            settings,
            initrd,
            initrd_physical,
            free,
            memory,
            acpi_root,
            has_start_pages,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_those_of_the_command_line_and_not_of_the_program() {
        assert_eq!(settings_length(b"log=info settings=300 --"), Some(300));
        assert_eq!(settings_length(b"settings=300"), Some(300));
        assert_eq!(settings_length(b"-- /bin/x settings=300"), None);
        assert_eq!(settings_length(b"settings=x --"), None);
        let (most, more) =
            (std::format!("settings={MAX_SETTINGS}"), std::format!("settings={}", MAX_SETTINGS + 1));
        assert_eq!(settings_length(most.as_bytes()), Some(MAX_SETTINGS as usize));
        assert_eq!(settings_length(more.as_bytes()), None);
    }
}
