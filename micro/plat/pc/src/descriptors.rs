// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The task-state segment with the IST stacks, and the interrupt descriptor table.

use crate::asm;
use crate::interrupt::VECTORS;
use alloc::boxed::Box;
use api_plat::{MAX_CPUS, TrapFrame};
use core::arch::asm;
use core::mem::size_of;
use core::sync::atomic::{AtomicPtr, Ordering};
use plat_x86::cpu;

/// Intel SDM volume 3, figure 8-11.
#[repr(C, packed)]
struct TaskState {
    reserved0: u32,
    rsp: [u64; 3],
    reserved1: u64,
    ist: [u64; 7],
    reserved2: u64,
    reserved3: u16,
    io_map: u16,
}

impl TaskState {
    const fn new(ist: [u64; 7]) -> TaskState {
        TaskState {
            reserved0: 0,
            rsp: [0; 3],
            reserved1: 0,
            ist,
            reserved2: 0,
            reserved3: 0,
            io_map: size_of::<TaskState>() as u16,
        }
    }

    /// Of processor `index`: the stacks of interrupts, exceptions, and what ends the machine, by where they end. Behind each
    /// frame on them is where the processor's block is, for GS base is the program's to change ([`block`]).
    ///
    /// # Safety
    ///
    /// They are the caller's, and nothing is on them.
    unsafe fn with_stacks(index: usize, stacks: [u64; 3]) -> TaskState {
        let [interrupt, exception, fatal] = stacks.map(|end| {
            let frames = end - STACK_ALIGNMENT;
            // SAFETY: it lies on the stack, by the caller's word.
            unsafe { (frames as *mut u64).write(cpu::block(index)) };
            frames
        });
        TaskState::new([interrupt, exception, fatal, 0, 0, 0, 0])
    }
}

/// The processor pushes at a multiple of this.
const STACK_ALIGNMENT: u64 = 16;

/// Where the block of the processor is that was hit, from the frame of what hit it.
#[inline(always)]
pub fn block(frame: *const TrapFrame) -> u64 {
    // SAFETY: the frame begins each of the stacks of `with_stacks`.
    unsafe { frame.add(1).cast::<u64>().read() }
}

static mut TASK_STATE: TaskState = TaskState::new([0; 7]);
static mut TABLE: [[u64; 2]; VECTORS] = [[0; 2]; VECTORS];

const IST_INTERRUPT: u64 = 1;
const IST_EXCEPTION: u64 = 2;
const IST_FATAL: u64 = 3;

#[repr(C, packed)]
struct Pointer {
    limit: u16,
    base: u64,
}

type Segments = [u64; 5];

/// What a processor but the first has for itself. The task-state segment's descriptor is marked busy by the processor.
struct Own {
    segments: Segments,
    task_state: TaskState,
}

/// By the number of the processor.
static OWN: [AtomicPtr<Own>; MAX_CPUS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_CPUS];

/// Makes them for processor `index`, whose stacks of interrupts, exceptions and what ends the machine end there.
pub fn prepare(index: usize, stacks: [u64; 3]) {
    // SAFETY: the boot processor's segments, which do not change any more.
    let segments = unsafe { asm::unilith_gdt };
    // SAFETY: the caller made them for this.
    let task_state = unsafe { TaskState::with_stacks(index, stacks) };
    let own = Box::new(Own { segments, task_state });
    OWN[index].store(Box::into_raw(own), Ordering::Relaxed);
}

/// The running processor, which is the one that [`prepare`] was told of, uses its tables, and that of interrupts.
pub fn load(index: usize) {
    let own = OWN[index].load(Ordering::Acquire);
    // SAFETY: `prepare` made them, and they stay for ever.
    unsafe { use_segments(&raw mut (*own).segments, &raw const (*own).task_state) };
    use_table();
}

/// # Safety
///
/// Both stay as they are, but for the bit that says busy.
unsafe fn use_segments(segments: *mut Segments, task_state: *const TaskState) {
    // SAFETY: by the caller's word; the first three descriptors are those in use.
    unsafe {
        let base = task_state as u64;
        let limit = size_of::<TaskState>() as u64 - 1;
        (*segments)[3] = limit | (base & 0xff_ffff) << 16 | 0x89 << 40 | (base >> 24 & 0xff) << 56;
        (*segments)[4] = base >> 32;
        let pointer = Pointer { limit: size_of::<Segments>() as u16 - 1, base: segments as u64 };
        asm!("lgdt [{}]", in(reg) &raw const pointer, options(readonly, nostack, preserves_flags));
        asm!("ltr {:x}", in(reg) 0x18u16, options(nostack, preserves_flags));
    }
}

/// Exceptions are reported from here on.
fn use_table() {
    // SAFETY: the table was filled by the boot processor and does not change any more.
    unsafe {
        let base = (&raw const TABLE) as u64;
        let pointer = Pointer { limit: size_of::<[[u64; 2]; VECTORS]>() as u16 - 1, base };
        asm!("lidt [{}]", in(reg) &raw const pointer, options(readonly, nostack, preserves_flags));
    }
}

/// Loads both on the boot processor.
pub fn initialize() {
    // SAFETY: runs once, on the boot processor, before anything else could use the tables, which live for ever.
    unsafe {
        let task_state = &raw mut TASK_STATE;
        let stacks = [
            asm::unilith_stack_interrupt_top.address(),
            asm::unilith_stack_exception_top.address(),
            asm::unilith_stack_fatal_top.address(),
        ];
        *task_state = TaskState::with_stacks(0, stacks);
        use_segments(&raw mut asm::unilith_gdt, task_state);

        let table = &raw mut TABLE;
        for vector in 0..VECTORS {
            let stub = asm::unilith_vectors.address() + vector as u64 * 16;
            let ist = match vector {
                // Double fault, NMI and machine check may hit anywhere, the exception stack included.
                2 | 8 | 18 => IST_FATAL,
                0..=31 => IST_EXCEPTION,
                _ => IST_INTERRUPT,
            };
            let gate = (stub & 0xffff) | 8 << 16 | ist << 32 | 0x8e << 40 | (stub >> 16 & 0xffff) << 48;
            (*table)[vector] = [gate, stub >> 32];
        }
    }
    use_table();
}
