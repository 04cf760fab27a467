// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What runs in the firmware. Names and numbers of sections are UEFI 2.10's.

use crate::{
    firmware::{allow_interrupts, call, forbid_interrupts},
    handles, seed,
};
use core::{arch::global_asm, convert::Infallible, ffi::c_void, mem::size_of, panic::PanicInfo, ptr, slice};
use efi::{Kernel, Packed, map::Map};
use pvh::{Framebuffer, MAGIC, MapEntry, Module, StartInfo, VERSION};
use uefi_raw::{
    Guid, Handle, Status, guid,
    protocol::{
        console::{GraphicsOutputModeInformation, GraphicsOutputProtocol, SimpleTextOutputProtocol},
        loaded_image::LoadedImageProtocol,
    },
    table::{
        boot::{AllocateType, BootServices, MemoryDescriptor, MemoryType, PAGE_SIZE},
        configuration::ConfigurationTable,
        system::SystemTable,
    },
};

global_asm!(include_str!("handover.s"), options(att_syntax));
global_asm!(include_str!("../../pc/src/memory_functions.s"));
global_asm!(include_str!("../../x86/src/memory_functions.s"));

unsafe extern "C" {
    static unilith_efi_handover: u8;
    static unilith_efi_handover_end: u8;
}

/// EFI_ACPI_20_TABLE_GUID (4.6.1).
const ACPI_2: Guid = guid!("8868e871-e4f1-11d3-bc22-0080c73c8881");
const FOUR_GIB: u64 = 1 << 32;
/// Pages of what is handed over: the code of the last steps, the start information, and the memory map.
const HANDOVER_PAGES: usize = 3;
const START_INFO: u64 = 4096;
const MODULE: u64 = START_INFO + size_of::<StartInfo>() as u64;
/// Behind the modules: the root file system and, where there is one, the screen.
const SCREEN: u64 = MODULE + 2 * size_of::<Module>() as u64;
const _: () = assert!(SCREEN as usize + size_of::<Framebuffer>() <= 2 * 4096);
const MEMORY_MAP: u64 = 2 * 4096;
const _: () = assert!(efi::map::MAX_ENTRIES * size_of::<MapEntry>() <= 4096);
/// Bytes for the firmware's memory map: real firmware has a few hundred entries of 48 bytes.
const MAP_BYTES: usize = 64 << 10;
/// How often ending boot services is tried: their own events may change the map between two calls (7.4.6).
const TRIES: usize = 8;
/// How long an error can be read before firmware goes on to its next choice.
const ERROR_MICROSECONDS: usize = 10_000_000;

/// Called by firmware (4.1), boot services running.
#[unsafe(no_mangle)]
extern "efiapi" fn unilith_efi_main(handle: Handle, system: *mut SystemTable) -> Status {
    forbid_interrupts();
    // SAFETY: firmware passes its system table, which stays where it is while boot services run.
    let (system, services) = unsafe {
        let system = &*system;
        (system, &*system.boot_services)
    };
    let Err(reason) = start(handle, system, services);
    say(system, "unilith: ");
    say(system, reason);
    say(system, "\r\n");
    // SAFETY: boot services run: every error is from before their end.
    let _ = call(|| unsafe { (services.stall)(ERROR_MICROSECONDS) });
    allow_interrupts();
    Status::LOAD_ERROR
}

fn start(handle: Handle, system: &SystemTable, services: &BootServices) -> Result<Infallible, &'static str> {
    // SAFETY: boot services run. Firmware would reset the machine five minutes after it started this image (7.5).
    let _ = call(|| unsafe { (services.set_watchdog_timer)(0, 0, 0, ptr::null()) });
    let image = image(handle, services)?;
    let section = |name| efi::section(image, name);
    let kernel = section(efi::KERNEL).and_then(Kernel::decode);
    let kernel = kernel.ok_or("this file is damaged: it has no kernel that can be read")?;
    let line = section(efi::LINE).filter(|line| line.last() == Some(&0));
    let line = line.ok_or("this file is damaged: it has no command line")?;
    let packed = section(efi::ROOT).and_then(Packed::decode);
    let packed = packed.ok_or("this file is damaged: it has no root file system")?;

    let (first, end) = kernel.pages();
    let mut at = first;
    let pages = ((end - first) as usize).div_ceil(PAGE_SIZE);
    // SAFETY: boot services run.
    let status = call(|| unsafe {
        (services.allocate_pages)(AllocateType::ADDRESS, MemoryType::LOADER_DATA, pages, &mut at)
    });
    if status.is_error() {
        return Err("the firmware itself uses the memory from 2 MiB on, where the kernel belongs");
    }
    for segment in kernel.segments() {
        // SAFETY: the pages of all segments were just given to nobody else, and firmware maps memory at its physical
        // addresses (2.3.4); any bytes are bytes.
        let memory =
            unsafe { slice::from_raw_parts_mut(segment.physical as *mut u8, segment.memory as usize) };
        if !segment.unpack(memory) {
            return Err("this file is damaged: its kernel is not what was written");
        }
    }
    let line = seed::line(system, services, line)?;
    let line = low(services, line)?;
    let root = allocate(services, packed.size())?;
    if !packed.unpack(root) {
        return Err("this file is damaged: its root file system is not what was written");
    }
    let handover = allocate_low(services, HANDOVER_PAGES)?;
    let buffer = allocate_low(services, MAP_BYTES / PAGE_SIZE)?;
    let screen = screen(services);
    let info = StartInfo {
        magic: MAGIC,
        version: VERSION,
        flags: 0,
        modules: 1 + u32::from(screen.is_some()),
        module_list: handover + MODULE,
        command_line: line,
        rsdp: rsdp(system),
        memory_map: handover + MEMORY_MAP,
        memory_map_entries: 0,
        reserved: 0,
    };
    let module =
        Module { address: root.as_ptr() as u64, size: root.len() as u64, command_line: 0, reserved: 0 };
    // SAFETY: the three pages are ours, and the structures lie in them, apart.
    unsafe {
        let code = &raw const unilith_efi_handover;
        let length = (&raw const unilith_efi_handover_end).offset_from_unsigned(code);
        ptr::copy_nonoverlapping(code, handover as *mut u8, length);
        ((handover + MODULE) as *mut Module).write(module);
        if let Some(screen) = screen {
            let size = size_of::<Framebuffer>() as u64;
            let module = Module { address: handover + SCREEN, size, command_line: 0, reserved: 0 };
            ((handover + MODULE) as *mut Module).add(1).write(module);
            ((handover + SCREEN) as *mut Framebuffer).write(screen);
        }
    }
    let mut map = Map::default();
    leave(handle, services, buffer, &mut map)?;
    // From here on there is no firmware to return to.
    let info = StartInfo { memory_map_entries: map.entries().len() as u32, ..info };
    // SAFETY: as above; the entries fit the page (`MAX_ENTRIES`). The code that is jumped to was copied there from the
    // assembler's symbols and takes two arguments; both are below 4 GiB.
    unsafe {
        ((handover + START_INFO) as *mut StartInfo).write(info);
        let target = (handover + MEMORY_MAP) as *mut MapEntry;
        ptr::copy_nonoverlapping(map.entries().as_ptr(), target, map.entries().len());
        let go: extern "sysv64" fn(u32, u32) -> ! = core::mem::transmute(handover as *const ());
        go(kernel.entry as u32, (handover + START_INFO) as u32)
    }
}

/// The first screen with memory that shows what is in it, in the mode in which firmware shows its own text (12.9).
fn screen(services: &BootServices) -> Option<Framebuffer> {
    let mut found = None;
    handles::any(services, &GraphicsOutputProtocol::GUID, |output: *mut GraphicsOutputProtocol| {
        // SAFETY: firmware's own protocol, boot services run: its mode is null or stays where it is, and so is what that leads to.
        found = unsafe {
            let mode = (*output).mode.as_ref();
            mode.and_then(|mode| {
                let is_whole = mode.size_of_info >= size_of::<GraphicsOutputModeInformation>();
                let info = mode.info.as_ref().filter(|_| is_whole)?;
                efi::screen::framebuffer(info, mode.frame_buffer_base, mode.frame_buffer_size as u64)
            })
        };
        found.is_some()
    });
    found
}

/// The file this code is in, as firmware loaded it (9.1).
fn image(handle: Handle, services: &BootServices) -> Result<&'static [u8], &'static str> {
    let mut found: *mut c_void = ptr::null_mut();
    // SAFETY: boot services run; the pointers are to this call's own.
    let status =
        call(|| unsafe { (services.handle_protocol)(handle, &LoadedImageProtocol::GUID, &mut found) });
    if status.is_error() || found.is_null() {
        return Err("the firmware does not say where it loaded this file");
    }
    // SAFETY: firmware loaded the image there, and nobody writes to the sections that are read.
    unsafe {
        let loaded = &*found.cast::<LoadedImageProtocol>();
        Ok(slice::from_raw_parts(loaded.image_base.cast(), loaded.image_size as usize))
    }
}

/// The physical address of these bytes, or of a copy of them where they are not below 4 GiB: a kernel on a processor
/// without 1 GiB pages reaches no further when it starts.
fn low(services: &BootServices, bytes: &[u8]) -> Result<u64, &'static str> {
    let at = bytes.as_ptr() as u64;
    if at.checked_add(bytes.len() as u64).is_some_and(|end| end <= FOUR_GIB) {
        return Ok(at);
    }
    let copy = allocate(services, bytes.len())?;
    copy.copy_from_slice(bytes);
    Ok(copy.as_ptr() as u64)
}

/// Bytes that stay, below 4 GiB, with anything in them.
pub fn allocate(services: &BootServices, bytes: usize) -> Result<&'static mut [u8], &'static str> {
    let start = allocate_low(services, bytes.div_ceil(PAGE_SIZE))? as *mut u8;
    // SAFETY: as many pages were just given to nobody else, and are never given back; any bytes are bytes.
    Ok(unsafe { slice::from_raw_parts_mut(start, bytes) })
}

/// Pages below 4 GiB whose memory may be executed.
fn allocate_low(services: &BootServices, pages: usize) -> Result<u64, &'static str> {
    let mut at = FOUR_GIB - 1;
    // SAFETY: boot services run. Firmware that keeps data from being executed lets loaders' code be (7.2.1).
    let status = call(|| unsafe {
        (services.allocate_pages)(AllocateType::MAX_ADDRESS, MemoryType::LOADER_CODE, pages, &mut at)
    });
    if status.is_error() {
        return Err("there is not enough memory below 4 GiB");
    }
    Ok(at)
}

/// Ends boot services (7.4.6) and reads the memory map they leave.
fn leave(handle: Handle, services: &BootServices, buffer: u64, map: &mut Map) -> Result<(), &'static str> {
    for _ in 0..TRIES {
        let (mut size, mut key, mut step, mut version) = (MAP_BYTES, 0, 0, 0);
        let target = buffer as *mut MemoryDescriptor;
        // SAFETY: boot services run as far as these two calls may be made; the buffer has `size` bytes.
        let left = unsafe {
            let status =
                call(|| (services.get_memory_map)(&mut size, target, &mut key, &mut step, &mut version));
            if status.is_error() || step < size_of::<MemoryDescriptor>() {
                return Err("the firmware's memory map cannot be read, or has more than 64 KiB");
            }
            call(|| (services.exit_boot_services)(handle, key))
        };
        if left.is_error() {
            continue;
        }
        for n in 0..size.min(MAP_BYTES) / step {
            // SAFETY: firmware wrote that many descriptors, `step` bytes apart.
            let entry = unsafe { target.byte_add(n * step).read_unaligned() };
            map.add(entry.ty.0, entry.phys_start, entry.page_count);
        }
        return Ok(());
    }
    Err("the firmware does not end its boot services")
}

/// ACPI's root pointer, 0 if there is none.
fn rsdp(system: &SystemTable) -> u64 {
    tables(system)
        .iter()
        .find(|table| table.vendor_guid == ACPI_2)
        .map_or(0, |table| table.vendor_table as u64)
}

/// Where firmware's tables are (4.6).
pub fn tables(system: &SystemTable) -> &[ConfigurationTable] {
    if system.configuration_table.is_null() {
        return &[];
    }
    // SAFETY: firmware says how many tables there are.
    unsafe { slice::from_raw_parts(system.configuration_table, system.number_of_configuration_table_entries) }
}

/// Writes ASCII to the firmware's console.
pub fn say(system: &SystemTable, text: &str) {
    let console: *mut SimpleTextOutputProtocol = system.stdout;
    if console.is_null() {
        return;
    }
    for byte in text.bytes() {
        let character = [u16::from(byte), 0];
        // SAFETY: boot services run, and the string ends with a zero.
        let _ = call(|| unsafe { ((*console).output_string)(console, character.as_ptr()) });
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}
