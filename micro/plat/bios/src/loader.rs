// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the disk to the kernel.

use crate::{firmware::Firmware, seed};
use bios::{BLOCK, PLACE, Place, drive, memory::Memory};
use core::{arch::global_asm, convert::Infallible, mem::size_of, panic::PanicInfo, slice};
use efi::{Kernel, Packed};
use pvh::{Framebuffer, MAGIC, MapEntry, Module, StartInfo, VERSION};

// The way from 64 bits to the kernel's entry is that of the UEFI stub.
global_asm!(include_str!("../../efi/src/handover.s"), options(att_syntax));

unsafe extern "C" {
    static unilith_bios_place: [u8; 32];
}
unsafe extern "sysv64" {
    fn unilith_efi_handover(entry: u32, start: u32) -> !;
}
const _: () = assert!(PLACE == 8, "as in start.s");

/// What the kernel is handed.
#[repr(C)]
struct Handover {
    start: StartInfo,
    /// The root file system and, where there is one, the screen.
    modules: [Module; 2],
    screen: Framebuffer,
    map: [MapEntry; bios::memory::MAX_ENTRIES],
}

/// Entered once, by `start.s`, with the number of the disk that was booted.
#[unsafe(no_mangle)]
extern "sysv64" fn unilith_bios_main(disk: u32) -> ! {
    // SAFETY: `start.s` comes here once.
    let mut firmware = unsafe { Firmware::new() };
    let Err(reason) = start(&mut firmware, disk as u8);
    for text in ["unilith: ", reason, "\r\n"] {
        firmware.say(text);
    }
    firmware.give_up()
}

fn start(firmware: &mut Firmware, disk: u8) -> Result<Infallible, &'static str> {
    if !reaches_odd_megabytes() {
        return Err("the 21st address line (A20) cannot be switched on");
    }
    // SAFETY: the host wrote it to the file, and nobody does now; volatile, for the compiler knows zeros.
    let place = unsafe { (&raw const unilith_bios_place).read_volatile() };
    let place = Place::decode(&place).ok_or("this loader does not know where its kernel is")?;
    let mut memory = firmware.memory();
    let file = take(&mut memory, place.bytes)?;
    read_file(firmware, disk, &place, file)?;
    let section = |name| efi::section(file, name);
    let kernel = section(efi::KERNEL).and_then(Kernel::decode);
    let kernel = kernel.ok_or("the file on this disk is damaged: it has no kernel that can be read")?;
    let line = section(efi::LINE).filter(|line| line.last() == Some(&0));
    let line = line.ok_or("the file on this disk is damaged: it has no command line")?;
    let packed = section(efi::ROOT).and_then(Packed::decode);
    let packed = packed.ok_or("the file on this disk is damaged: it has no root file system")?;

    let (first, end) = kernel.pages();
    if !memory.take_at(first, end) {
        return Err("there is no memory from 2 MiB on, where the kernel belongs");
    }
    for segment in kernel.segments() {
        // SAFETY: the pages of all segments were just given to nobody else; any bytes are bytes.
        let to = unsafe { slice::from_raw_parts_mut(segment.physical as *mut u8, segment.memory as usize) };
        if !segment.unpack(to) {
            return Err("the file on this disk is damaged: its kernel is not what was written");
        }
    }
    let root = take(&mut memory, packed.size() as u64)?;
    if !packed.unpack(root) {
        return Err("the file on this disk is damaged: its root file system is not what was written");
    }
    let line = seed::line(firmware, &mut memory, line)?;
    let handover = take(&mut memory, size_of::<Handover>() as u64)?.as_mut_ptr().cast::<Handover>();
    let screen = if place.has_screen { firmware.screen() } else { None };
    let none = Module { address: 0, size: 0, command_line: 0, reserved: 0 };
    let module = |address: u64, size: usize| Module { address, size: size as u64, ..none };
    // SAFETY: the memory is this function's own, of enough zeros, at the beginning of a page; addresses are physical ones.
    let handover = unsafe { &mut *handover };
    let shown = module((&raw const handover.screen) as u64, size_of::<Framebuffer>());
    handover.modules = [module(root.as_ptr() as u64, root.len()), screen.map_or(none, |_| shown)];
    if let Some(screen) = screen {
        handover.screen = screen;
    }
    let entries = memory.map(&mut handover.map);
    handover.start = StartInfo {
        magic: MAGIC,
        version: VERSION,
        flags: 0,
        modules: 1 + u32::from(screen.is_some()),
        module_list: (&raw const handover.modules) as u64,
        command_line: line.as_ptr() as u64,
        // The kernel looks for it where a BIOS has it.
        rsdp: 0,
        memory_map: (&raw const handover.map) as u64,
        memory_map_entries: entries as u32,
        reserved: 0,
    };
    let start = (&raw const handover.start) as u32;
    // SAFETY: the kernel is where it belongs, and all that it is told of is below 4 GiB.
    unsafe { unilith_efi_handover(kernel.entry as u32, start) }
}

/// Whether addresses with bit 20 are memory of their own.
fn reaches_odd_megabytes() -> bool {
    let mark = &raw const unilith_bios_place;
    // SAFETY: both are memory; the second one belongs to nobody yet. What is there is not code.
    unsafe {
        let low = mark.cast::<u64>();
        let high = low.byte_add(1 << 20).cast_mut();
        high.write_volatile(!low.read_volatile());
        low.read_volatile() != high.read_volatile()
    }
}

/// Zeroed memory below 4 GiB that stays, from the beginning of a page on.
pub fn take(memory: &mut Memory, bytes: u64) -> Result<&'static mut [u8], &'static str> {
    let start = memory.take(bytes).ok_or("there is not enough memory below 4 GiB")? as *mut u8;
    // SAFETY: it was just given to nobody else, and is never given back.
    unsafe {
        start.write_bytes(0, bytes as usize);
        Ok(slice::from_raw_parts_mut(start, bytes as usize))
    }
}

/// Reads the file.
fn read_file(firmware: &mut Firmware, disk: u8, place: &Place, to: &mut [u8]) -> Result<(), &'static str> {
    const UNREAD: &str = "the disk cannot be read";
    // What a BIOS does not tell is what it boots from: blocks of 512 bytes.
    let bytes = firmware.block(disk).unwrap_or(BLOCK);
    if bytes != BLOCK {
        return Err("this disk has blocks of another size than 512 bytes");
    }
    let step = drive::BUFFER / BLOCK;
    for (n, piece) in to.chunks_mut(drive::BUFFER).enumerate() {
        let first = place.block + (n * step) as u64;
        let read = firmware.read(disk, first, piece.len().div_ceil(BLOCK) as u16).ok_or(UNREAD)?;
        piece.copy_from_slice(&read[..piece.len()]);
    }
    Ok(())
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
