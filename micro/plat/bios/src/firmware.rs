// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Calls of the BIOS. They take their buffers below 1 MiB, so each buffer is one of this module's own.

use bios::{
    drive,
    memory::{ENTRY, LONG_ENTRY, MAX_ENTRIES, Memory},
    vbe,
};
use core::{arch::asm, arch::global_asm, cell::UnsafeCell, ptr, slice};
use pvh::Framebuffer;

global_asm!(
    include_str!("mbr.s"),
    loader = const bios::ADDRESS,
    first_block = const bios::FIRST_BLOCK,
    options(att_syntax)
);
global_asm!(include_str!("start.s"), options(att_syntax));
global_asm!(include_str!("../../pc/src/memory_functions.s"));
global_asm!(include_str!("../../x86/src/memory_functions.s"));

/// "SMAP", in registers of the call for memory.
const SMAP: u32 = u32::from_be_bytes(*b"SMAP");
const CARRY: u16 = 1;
/// What a VBE call answers that did what it was asked for, and the flag of a mode with linear memory.
const VBE_DONE: u32 = 0x4f;
const LINEAR: u16 = 1 << 14;
/// The first serial port, and how often it is looked whether it takes a byte.
const SERIAL: u16 = 0x3f8;
const PATIENCE: u32 = 100_000;
/// Bytes of what calls for disks read and write.
const PACKET: usize = 32;
const _: () = assert!(drive::PARAMETERS <= PACKET);
/// How long an error can be read before firmware goes on to its next choice.
const ERROR_MICROSECONDS: u32 = 10_000_000;
/// Where the segment of the screen's interrupt is written, and segments from which on it is no video ROM's.
const SCREEN_SEGMENT: u64 = 0x10 * 4 + 2;
const BEHIND_VIDEO: u16 = 0xe000;
/// Where the BIOS is, and tables of its own.
const BIOS: core::ops::Range<usize> = 0xf_0000..0x10_0000;

/// Registers of a call and of its answer, as `start.s` has them.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Registers {
    es: u16,
    /// Of the answer.
    flags: u16,
    edi: u32,
    esi: u32,
    ebp: u32,
    esp: u32,
    ebx: u32,
    edx: u32,
    ecx: u32,
    eax: u32,
}

unsafe extern "C" {
    static mut unilith_bios_registers: Registers;
    static mut unilith_bios_packet: [u8; PACKET];
}
unsafe extern "sysv64" {
    fn unilith_bios_call(interrupt: u32);
}

/// Memory below 1 MiB for one kind of call, which nobody refers to from one call to the next.
#[repr(C, align(32768))]
struct Buffer([u8; drive::BUFFER]);

struct Shared(UnsafeCell<Buffer>);
// SAFETY: there is one thread.
unsafe impl Sync for Shared {}
static BUFFER: Shared = Shared(UnsafeCell::new(Buffer([0; drive::BUFFER])));

/// The BIOS, of which there is one: whoever has it makes calls.
pub struct Firmware {
    registers: Registers,
}

impl Firmware {
    /// # Safety
    ///
    /// The code runs as `start.s` enters it, and this is called once.
    pub unsafe fn new() -> Firmware {
        Firmware { registers: Registers::default() }
    }

    /// Where the buffer is.
    fn address() -> u32 {
        BUFFER.0.get() as u32
    }

    fn buffer(&mut self) -> &mut [u8; drive::BUFFER] {
        // SAFETY: `self` is the only one, and calls that write the buffer borrow it as this does.
        unsafe { &mut (*BUFFER.0.get()).0 }
    }

    fn pointer(&mut self) {
        self.registers.es = (Firmware::address() >> 4) as u16;
        self.registers.edi = Firmware::address() & 15;
    }

    /// Calls an interrupt with the registers of `self`, where the answer's are then.
    fn call(&mut self, interrupt: u8) {
        // SAFETY: the registers are read and written by this call alone. Firmware reads and writes the buffer, which nobody refers
        // to now, and memory that is its own.
        unsafe {
            ptr::write(&raw mut unilith_bios_registers, self.registers);
            unilith_bios_call(interrupt.into());
            self.registers = ptr::read(&raw const unilith_bios_registers);
        }
    }

    fn with(&mut self, registers: Registers) -> &mut Firmware {
        self.registers = registers;
        self
    }

    /// Reads the memory map.
    pub fn memory(&mut self) -> Memory {
        let mut memory = Memory::default();
        let mut next = 0;
        for _ in 0..MAX_ENTRIES {
            // What a BIOS without attributes leaves as it was: "enabled".
            self.buffer()[..LONG_ENTRY].fill(0);
            self.buffer()[ENTRY] = 1;
            self.with(Registers {
                eax: 0xe820,
                ebx: next,
                ecx: LONG_ENTRY as u32,
                edx: SMAP,
                ..Registers::default()
            });
            self.pointer();
            self.call(0x15);
            if self.registers.flags & CARRY != 0 || self.registers.eax != SMAP {
                break;
            }
            let length = self.registers.ecx as usize;
            if let Some(entry) = self.buffer().first_chunk().copied() {
                memory.add(&entry, length);
            }
            next = self.registers.ebx;
            if next == 0 {
                break;
            }
        }
        memory
    }

    /// Bytes of a disk's blocks; `None`: there is no such disk, or it is one that is not read.
    pub fn block(&mut self, disk: u8) -> Option<usize> {
        let mut asked = [0; PACKET];
        asked[..2].copy_from_slice(&(drive::PARAMETERS as u16).to_le_bytes());
        let told = self.disk(0x48, disk, asked)?;
        drive::block(told.first_chunk()?)
    }

    /// Reads blocks of a disk; `None`: it cannot be read.
    pub fn read(&mut self, disk: u8, first: u64, blocks: u16) -> Option<&[u8; drive::BUFFER]> {
        let mut packet = [0; PACKET];
        packet[..16].copy_from_slice(&drive::packet(blocks, Firmware::address(), first));
        self.disk(0x42, disk, packet)?;
        Some(self.buffer())
    }

    /// A call of INT 13h with a packet; answers what is there then.
    fn disk(&mut self, function: u32, disk: u8, packet: [u8; PACKET]) -> Option<[u8; PACKET]> {
        let at = &raw mut unilith_bios_packet;
        let registers =
            Registers { eax: function << 8, edx: disk.into(), esi: at as u32, ..Registers::default() };
        // SAFETY: the packet is read and written by this call alone.
        unsafe { at.write(packet) };
        self.with(registers).call(0x13);
        // SAFETY: as above.
        let told = unsafe { at.read() };
        (self.registers.flags & CARRY == 0).then_some(told)
    }

    /// Puts the screen into the best mode in which the kernel can draw.
    pub fn screen(&mut self) -> Option<Framebuffer> {
        self.buffer()[..4].copy_from_slice(b"VBE2");
        self.vbe(0x4f00, 0, 0)?;
        let (list, version) = vbe::modes(self.buffer().first_chunk()?)?;
        let mut modes = [0u16; vbe::MAX_MODES];
        let mut count = 0;
        while let Some(to) = modes.get_mut(count) {
            // SAFETY: a real mode's pointer leads to memory below 1 MiB and 64 KiB, which the BIOS says is its list.
            *to = unsafe { ptr::read_unaligned((list as *const u16).add(count)) };
            if *to == 0xffff {
                break;
            }
            count += 1;
        }
        let mut best: Option<(u16, Framebuffer)> = None;
        for mode in modes.into_iter().take(count) {
            self.buffer()[..vbe::MODE].fill(0);
            if self.vbe(0x4f01, 0, mode.into()).is_none() {
                continue;
            }
            let found = self.buffer().first_chunk().and_then(|told| vbe::framebuffer(told, version));
            if let Some(found) = found
                && best.as_ref().is_none_or(|(_, best)| vbe::is_better(&found, best))
            {
                best = Some((mode, found));
            }
        }
        let (mode, found) = best?;
        self.vbe(0x4f02, (mode | LINEAR).into(), 0)?;
        Some(found)
    }

    fn vbe(&mut self, function: u32, ebx: u32, ecx: u32) -> Option<()> {
        self.with(Registers { eax: function, ebx, ecx, ..Registers::default() });
        self.pointer();
        self.call(0x10);
        (self.registers.eax & 0xffff == VBE_DONE).then_some(())
    }

    /// Memory in which the BIOS has its tables.
    pub fn tables(&self) -> &'static [u8] {
        // SAFETY: memory of firmware that nobody writes to.
        unsafe { slice::from_raw_parts(BIOS.start as *const u8, BIOS.len()) }
    }

    /// Shows ASCII on the screen and at the first serial port, if there is one.
    pub fn say(&mut self, text: &str) {
        // Without a video ROM there is no screen, or SeaBIOS shows it at the serial port itself.
        // SAFETY: the interrupt vectors of 16 bits, which are at address 0.
        let segment = unsafe { (SCREEN_SEGMENT as *const u16).read_volatile() };
        for byte in text.bytes() {
            if segment < BEHIND_VIDEO {
                self.with(Registers { eax: 0x0e00 | u32::from(byte), ebx: 7, ..Registers::default() })
                    .call(0x10);
            }
            // A port that is not there reads as all ones.
            if inb(SERIAL + 5) == 0xff {
                continue;
            }
            let _ = (0..PATIENCE).find(|_| inb(SERIAL + 5) & 0x20 != 0);
            // SAFETY: the port's data register.
            unsafe { asm!("out dx, al", in("dx") SERIAL, in("al") byte, options(nomem, nostack)) };
        }
    }

    /// Leaves the computer to firmware's next choice after a while, in which what was said can be read.
    pub fn give_up(&mut self) -> ! {
        let registers = Registers {
            eax: 0x8600,
            ecx: ERROR_MICROSECONDS >> 16,
            edx: ERROR_MICROSECONDS & 0xffff,
            ..Registers::default()
        };
        self.with(registers).call(0x15);
        loop {
            self.with(Registers::default()).call(0x18);
        }
    }
}

fn inb(port: u16) -> u8 {
    let value: u8;
    // SAFETY: reading a serial port's status changes nothing that anybody waits for.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nomem, nostack)) };
    value
}
