// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PE file that UEFI firmware starts: the stub of `micro/plat/efi`, which the linker made an ELF file, with what it
//! boots in further sections.

use crate::{DiskError, Result};
use efi::Segment;
use object::{
    Object as _, ObjectSegment as _, RelocationFlags, elf, pe,
    read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _},
    write::pe::{NtHeaders, Writer},
};

const PAGE: u32 = 4096;
/// Sections are where they are in memory: the BIOS loader reads the file as it is.
const FILE_ALIGNMENT: u32 = PAGE;
/// Most bytes of all, before they are packed.
const MAX_BYTES: u64 = 2 << 30;

/// The file, to be stored as `/EFI/BOOT/BOOTX64.EFI`. `stub` and `kernel` are ELF files, `line` is the kernel's command
/// line, `root` its initial RAM disk.
pub fn efi_file(stub: &[u8], kernel: &[u8], line: &str, root: &[u8]) -> Result<Vec<u8>> {
    if (kernel.len() + line.len() + root.len()) as u64 > MAX_BYTES {
        return Err(DiskError::TooLarge { what: "the root file system" });
    }
    let kernel = kernel_section(kernel)?;
    let line: Vec<u8> = line.bytes().chain([0]).collect();
    let root = efi::pack(root);
    let stub = Stub::read(stub)?;
    let wrong = |e: object::write::Error| DiskError::Pe(e.to_string());

    let mut out = Vec::new();
    let mut file = Writer::new(true, PAGE, FILE_ALIGNMENT, &mut out);
    file.reserve_dos_header();
    file.reserve_nt_headers(16);
    let data = pe::IMAGE_SCN_CNT_INITIALIZED_DATA | pe::IMAGE_SCN_MEM_READ;
    let payload: [(&str, &[u8]); 3] = [(efi::KERNEL, &kernel), (efi::LINE, &line), (efi::ROOT, &root)];
    let sections = stub.parts.len() + payload.len() + usize::from(!stub.relocations.is_empty());
    file.reserve_section_headers(sections as u16);

    let mut placed = Vec::new();
    for (name, part) in [".text", ".rodata", ".data"].into_iter().zip(&stub.parts) {
        let kind = match part.flags & (elf::PF_W | elf::PF_X) {
            elf::PF_X => pe::IMAGE_SCN_CNT_CODE | pe::IMAGE_SCN_MEM_EXECUTE | pe::IMAGE_SCN_MEM_READ,
            elf::PF_W => data | pe::IMAGE_SCN_MEM_WRITE,
            _ => data,
        };
        let length = part.bytes.len() as u32;
        let range = file.reserve_section(padded(name), kind, length, length);
        if range.virtual_address != part.address {
            return Err(DiskError::Pe(format!("the stub's {name} is not where it was linked to")));
        }
        placed.push((range.file_offset, part.bytes.as_slice()));
    }
    for (name, bytes) in payload {
        // A section has at least a byte.
        let length = bytes.len() as u32;
        let range = file.reserve_section(padded(name), data, length.max(1), length.max(1));
        placed.push((range.file_offset, bytes));
    }
    for address in &stub.relocations {
        file.add_reloc(*address, pe::IMAGE_REL_BASED_DIR64);
    }
    if file.has_relocs() {
        file.reserve_reloc_section();
    }
    file.write_empty_dos_header().map_err(wrong)?;
    file.write_nt_headers(headers(stub.entry));
    file.write_section_headers();
    for (offset, bytes) in placed {
        file.write_section(offset, bytes);
    }
    file.write_reloc_section();
    Ok(out)
}

fn headers(entry: u32) -> NtHeaders {
    NtHeaders {
        machine: pe::IMAGE_FILE_MACHINE_AMD64,
        // The same input makes the same file.
        time_date_stamp: 0,
        characteristics: pe::IMAGE_FILE_EXECUTABLE_IMAGE | pe::IMAGE_FILE_LARGE_ADDRESS_AWARE,
        major_linker_version: 0,
        minor_linker_version: 0,
        address_of_entry_point: entry,
        image_base: 0,
        major_operating_system_version: 0,
        minor_operating_system_version: 0,
        major_image_version: 0,
        minor_image_version: 0,
        major_subsystem_version: 0,
        minor_subsystem_version: 0,
        subsystem: pe::IMAGE_SUBSYSTEM_EFI_APPLICATION,
        dll_characteristics: pe::IMAGE_DLLCHARACTERISTICS_DYNAMIC_BASE
            | pe::IMAGE_DLLCHARACTERISTICS_HIGH_ENTROPY_VA,
        size_of_stack_reserve: 0,
        size_of_stack_commit: 0,
        size_of_heap_reserve: 0,
        size_of_heap_commit: 0,
    }
}

fn padded(name: &str) -> [u8; 8] {
    let mut out = [0; 8];
    for (to, from) in out.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    out
}

/// A segment of the stub.
struct Part {
    address: u32,
    flags: u32,
    bytes: Vec<u8>,
}

struct Stub {
    entry: u32,
    parts: Vec<Part>,
    /// Where addresses are that depend on where the file is loaded.
    relocations: Vec<u32>,
}

impl Stub {
    fn read(elf: &[u8]) -> Result<Stub> {
        let unreadable = |why: String| DiskError::Elf { what: "UEFI stub", why };
        let file: ElfFile64 = ElfFile64::parse(elf).map_err(|e| unreadable(e.to_string()))?;
        let small =
            |value: u64| u32::try_from(value).map_err(|_| unreadable("an address is too large".into()));
        let mut parts = Vec::new();
        for segment in file.segments() {
            let object::SegmentFlags::Elf { p_flags: flags } = segment.flags() else { continue };
            let mut bytes = segment.data().map_err(|e| unreadable(e.to_string()))?.to_vec();
            bytes.resize(segment.size() as usize, 0);
            parts.push(Part { address: small(segment.address())?, flags, bytes });
        }
        if parts.len() != 3 {
            return Err(unreadable(format!("{} segments instead of three", parts.len())));
        }
        let mut relocations = Vec::new();
        for (address, relocation) in file.dynamic_relocations().into_iter().flatten() {
            let RelocationFlags::Elf { r_type: elf::R_X86_64_RELATIVE } = relocation.flags() else {
                return Err(unreadable("it wants a dynamic linker".into()));
            };
            let address = small(address)?;
            // What is there is the address in a file that is loaded at 0.
            let value = relocation.addend().to_le_bytes();
            let place = parts.iter_mut().find_map(|part| {
                let at = address.checked_sub(part.address)? as usize;
                part.bytes.get_mut(at..at + value.len())
            });
            place.ok_or_else(|| unreadable("a relocation is in no segment".into()))?.copy_from_slice(&value);
            relocations.push(address);
        }
        relocations.sort_unstable();
        Ok(Stub { entry: small(file.entry())?, parts, relocations })
    }
}

/// The kernel's segments at their physical addresses.
fn kernel_section(kernel: &[u8]) -> Result<Vec<u8>> {
    let unreadable = |why: String| DiskError::Elf { what: "kernel", why };
    let file: ElfFile64 = ElfFile64::parse(kernel).map_err(|e| unreadable(e.to_string()))?;
    let endian = file.endian();
    let headers = file.elf_header().program_headers(endian, kernel).map_err(|e| unreadable(e.to_string()))?;
    let mut segments = Vec::new();
    let mut entry = None;
    for header in headers.iter().filter(|h| h.p_type(endian) == elf::PT_LOAD && h.p_memsz(endian) > 0) {
        let bytes = header.data(endian, kernel).map_err(|()| unreadable("it is cut off".into()))?;
        let (physical, start, memory) =
            (header.p_paddr(endian), header.p_vaddr(endian), header.p_memsz(endian));
        if let Some(into) = file.entry().checked_sub(start).filter(|into| *into < memory) {
            entry = Some(physical + into);
        }
        segments.push(Segment { physical, memory, bytes });
    }
    let entry = entry.ok_or_else(|| unreadable("its entry is in no segment".into()))?;
    let section = efi::encode(entry, &segments);
    if efi::Kernel::decode(&section).is_none() {
        return Err(unreadable("it does not fit below 4 GiB".into()));
    }
    Ok(section)
}
