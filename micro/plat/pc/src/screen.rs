// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The console on a screen: memory of a graphics card that firmware set up and a loader tells of. `framebuffer` says what is drawn,
//! this module where.

use crate::serial::unilith_machine_write_raw;
use crate::x86::{IA32_PAT, rdmsr, wrmsr};
use crate::{paging, pvh};
use api_lock::SpinLock;
use core::arch::x86_64::{__cpuid, _mm_sfence};
use framebuffer::{Console, Mode, Surface, mode};

/// Entry 4 of IA32_PAT, which nothing else uses, and the type that puts writes together (Intel SDM volume 3, 12.12.2). The other
/// processors are given the same value (`memory_types.rs`).
const ENTRY_4: u64 = 0xff << 32;
const WRITE_COMBINING: u64 = 1 << 32;
/// CPUID leaf 1, EDX.
const HAS_PAT: u32 = 1 << 16;

/// The mapped memory.
struct Memory {
    start: *mut u32,
    bytes: usize,
}

// SAFETY: the memory is reached through the lock around this alone, and is the same on every processor.
unsafe impl Send for Memory {}

impl Surface for Memory {
    fn put(&mut self, offset: usize, pixels: &[u32]) {
        if offset.checked_add(size_of_val(pixels)).is_none_or(|end| end > self.bytes) {
            return;
        }
        for (n, pixel) in pixels.iter().enumerate() {
            // SAFETY: within the mapped memory, as was just seen; `framebuffer` begins at multiples of a pixel.
            unsafe { self.start.byte_add(offset).add(n).write_volatile(*pixel) };
        }
    }
}

struct Screen {
    console: Console,
    memory: Option<Memory>,
}

static SCREEN: SpinLock<Screen> = SpinLock::new(Screen { console: Console::none(), memory: None });

/// Looks for a screen, and begins with an empty one. What is wrong with it is said on the serial port, and the machine goes on.
///
/// # Safety
///
/// As for [`pvh::read_machine`]; called once, by the boot processor alone.
pub unsafe fn begin(start_info: u64) {
    // SAFETY: by the caller's word.
    let Some((said, ram)) = (unsafe { pvh::read_screen(start_info) }) else { return };
    let found = Mode::read(&said).and_then(|mode| Ok((mode, mode::place(&said, &mode, ram)?)));
    let (mode, place) = match found {
        Ok(found) => found,
        Err(why) => return refuse(why),
    };
    // SAFETY: the memory is no memory of the computer, and firmware showed its own text in it; nothing else uses it.
    let start = unsafe { paging::map_screen(place.start, place.end - place.start, combine_writes()) };
    let Some(start) = start else { return refuse("its memory cannot be mapped") };
    let mut screen = SCREEN.lock();
    let mut memory = Memory { start, bytes: mode.bytes() };
    screen.console.begin(mode, &mut memory);
    screen.memory = Some(memory);
}

fn refuse(why: &str) {
    for part in ["unilith: the screen is left alone: ", why, "\n"] {
        unilith_machine_write_raw(part.as_bytes());
    }
}

/// Makes entry 4 of the page attribute table one that puts writes together; false where there is no such table.
fn combine_writes() -> bool {
    if __cpuid(1).edx & HAS_PAT == 0 {
        return false;
    }
    // SAFETY: the processor has the register, and no page uses that entry yet.
    unsafe { wrmsr(IA32_PAT, rdmsr(IA32_PAT) & !ENTRY_4 | WRITE_COMBINING) };
    true
}

/// Shows what is written. Not what is written while the screen is drawn: that is the report of a crash in the middle of it.
pub fn write(bytes: &[u8]) {
    let Some(mut screen) = SCREEN.try_lock() else { return };
    let Screen { console, memory: Some(memory) } = &mut *screen else { return };
    console.write(bytes, memory);
    // SAFETY: the processor has SSE. What is still being put together is written now.
    unsafe { _mm_sfence() };
}
