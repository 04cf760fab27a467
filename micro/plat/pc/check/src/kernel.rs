// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel half: the upcalls of `api-plat`.

use alloc_frames::{add_range, heap_give, heap_take};
use alloc_tlsf::Tlsf;
use api_alloc::{KernelHeap, Pages};
use api_plat::{Access, Boot, Exception, FaultOutcome, Frame, MemoryRange, Status};
use core::fmt::Write;
use core::panic::PanicInfo;

#[global_allocator]
static HEAP: KernelHeap<Tlsf> = KernelHeap::new(Tlsf::new(), Pages { take: heap_take, give: heap_give });

pub struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        api_plat::console_write(text.as_bytes());
        Ok(())
    }
}

#[macro_export]
macro_rules! say {
    ($($a:tt)*) => {{
        use core::fmt::Write;
        let _ = writeln!($crate::kernel::Console, $($a)*);
    }};
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    plat_pc::panic(info)
}

/// Only builds without link-time optimisation ask for it.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> ! {
    unreachable!("the kernel does not unwind")
}

#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    unreachable!("the kernel does not unwind")
}

#[unsafe(no_mangle)]
fn unilith_kernel_memory(free: &[MemoryRange]) {
    for range in free {
        // SAFETY: RAM that nobody uses, by the platform's word.
        assert!(unsafe { add_range(range.start, range.end) });
    }
}

#[unsafe(no_mangle)]
fn unilith_kernel_main(boot: Boot) -> ! {
    let now = api_plat::now_ns();
    say!("main after {now} ns, wall {}", api_plat::wall_ns());
    let mut random = [0; 16];
    api_plat::entropy(&mut random);
    say!("random {random:x?}, {} ns", api_plat::now_ns() - now);
    say!("hello: {} MiB, initrd {} bytes, args {:?}", boot.memory >> 20, boot.initrd.len(), boot.config.args);
    api_plat::power_off(&Status::Exit { code: 0 })
}

#[unsafe(no_mangle)]
fn unilith_kernel_syscall(_frame: &mut Frame) {}
#[unsafe(no_mangle)]
fn unilith_kernel_exception(_frame: &mut Frame, e: Exception) {
    panic!("{e:x?}")
}
#[unsafe(no_mangle)]
fn unilith_kernel_page_fault(_address: u64, _access: Access) -> FaultOutcome {
    FaultOutcome::Segv { mapped: false }
}
#[unsafe(no_mangle)]
fn unilith_kernel_work(_frame: &mut Frame) {}
#[unsafe(no_mangle)]
fn unilith_kernel_timer() {}
