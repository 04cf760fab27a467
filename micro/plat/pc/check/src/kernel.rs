// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel half: the upcalls of `api-plat`.

use crate::program::LAZY;
use alloc_frames::{add_range, heap_give, heap_take};
use alloc_tlsf::Tlsf;
use api_alloc::{KernelHeap, Pages};
use api_plat::{Access, Boot, Context, Exception, FaultOutcome, KernelStack, MemoryRange, Status, TrapFrame};
use core::fmt::Write;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[global_allocator]
static HEAP: KernelHeap<Tlsf> = KernelHeap::new(Tlsf::new(), Pages { take: heap_take, give: heap_give });

pub struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for piece in text.as_bytes().chunks(api_plat::CONSOLE_PIECE) {
            while api_plat::console_write(piece).is_err() {
                api_plat::console_has_room();
            }
        }
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
fn unilith_heap_reclaim() -> bool {
    HEAP.reclaim() > 0
}

#[unsafe(no_mangle)]
fn unilith_kernel_main(boot: Boot) -> ! {
    say!("main after {} ns, {} MiB", api_plat::now_ns(), boot.memory >> 20);
    let what = boot.config.args.first().map_or("hello", |s| s.as_str());
    match what {
        "hello" => {
            let now = api_plat::now_ns();
            let mut random = [0; 16];
            api_plat::entropy(&mut random);
            say!("random {random:x?}, {} ns", api_plat::now_ns() - now);
            say!("wall {}", api_plat::wall_ns());
            api_plat::power_off(&Status::Exit { code: 0 })
        }
        "program" => run_program(),
        "idle" => idle(),
        "devices" => devices(),
        "console" => console(),
        "overflow" => {
            let stack = KernelStack::new().expect("a stack");
            let (mut here, mut there) = (Context::default(), Context::default());
            // SAFETY: the stack lives until the machine ends.
            unsafe {
                api_plat::start_thread(&mut there, &stack, overflow, 1);
                api_plat::activate(stack.top(), 0);
                api_plat::switch(&raw mut here, &raw const there)
            }
            unreachable!()
        }
        "fault" => {
            // SAFETY: none: the fault is what is wanted.
            unsafe { (0xffff_ff00_dead_0000 as *const u8).read_volatile() };
            unreachable!()
        }
        "panic" => panic!("as asked"),
        other => panic!("no such check: {other}"),
    }
}

#[allow(unconditional_recursion)]
extern "C" fn overflow(n: usize) -> ! {
    let space = core::hint::black_box([n; 64]);
    overflow(space[3] + 1)
}

/// Sleeps ten times for 20 ms.
fn idle() -> ! {
    let mut wakes = 0;
    for i in 0..10 {
        let end = api_plat::now_ns() + 20_000_000;
        api_plat::set_timer(end);
        while api_plat::now_ns() < end {
            api_plat::idle();
            api_plat::take_work();
            wakes += 1;
        }
        say!("{i}: {} us late, {wakes} wakes", (api_plat::now_ns() - end) / 1000);
    }
    let (tsc, ns) = (plat_pc::x86::rdtsc(), api_plat::now_ns());
    let end = ns + 500_000_000;
    api_plat::set_timer(end);
    while api_plat::now_ns() < end {
        api_plat::idle();
        api_plat::take_work();
    }
    let (tsc, ns) = (plat_pc::x86::rdtsc() - tsc, api_plat::now_ns() - ns);
    say!("{} ticks a millisecond", tsc * 1_000_000 / ns);
    api_plat::power_off(&Status::Exit { code: 0 })
}

/// Starts all devices, waits for the entropy to come, and asks a 9p server for its version.
fn devices() -> ! {
    let start = api_plat::now_ns();
    let rest = virtio::start();
    say!("devices after {} ns", api_plat::now_ns() - start);
    for device in &rest {
        say!("device of kind {}", device.kind().0);
    }
    if let Some(channel) = virtio::ninep::start().into_iter().find(|c| c.tag() == "v0") {
        // Tversion (100), NOTAG, msize 8192, "9P2000.L"
        let request = *b"\x15\0\0\0\x64\xff\xff\0\x20\0\0\x08\x009P2000.L";
        for _ in 0..3 {
            let start = api_plat::now_ns();
            let (_, reply) =
                channel.call(request.to_vec(), alloc::vec::Vec::with_capacity(8192)).expect("reply");
            let took = api_plat::now_ns() - start;
            say!("{took} ns: {}", core::str::from_utf8(&reply[13..]).unwrap_or("?"));
        }
    }
    let end = api_plat::now_ns() + 20_000_000;
    api_plat::set_timer(end);
    while api_plat::now_ns() < end {
        crate::waiting::wait();
    }
    say!("deferred work ran {} times", crate::waiting::RUNS.load(Relaxed));
    end_ok()
}

/// Repeats what is typed, until a break.
fn console() -> ! {
    api_plat::on_console(api_plat::request_work);
    say!("type");
    loop {
        let mut line = [0; 4];
        let n = api_plat::console_read(&mut line);
        say!("{:?}", &line[..n]);
        if api_plat::console_break() {
            say!("break");
            end_ok()
        }
        if n == 0 {
            api_plat::idle();
            api_plat::take_work();
        }
    }
}

fn end_ok() -> ! {
    say!("ok");
    end(0)
}

extern "C" fn audited() -> u64 {
    4321
}

fn run_program() -> ! {
    crate::program::load();
    let stack = core::mem::ManuallyDrop::new(KernelStack::new().expect("a stack"));
    // SAFETY: the stack is never freed; `audited` has no instruction but a move and a return; the frame is that of a
    // fresh program.
    unsafe {
        let audited = audited as extern "C" fn() -> u64;
        api_plat::set_fast_call(
            39,
            core::mem::transmute::<extern "C" fn() -> u64, api_plat::FastCall>(audited),
        );
        api_plat::activate(stack.top(), 0x1234_5000);
        let mut frame: TrapFrame = core::mem::zeroed();
        frame.rip = crate::program::CODE;
        frame.rsp = crate::program::STACK_TOP - 1024;
        api_plat::set_timer(api_plat::now_ns() + 50_000);
        api_plat::enter_program(&frame)
    }
}

static TICKS: AtomicU64 = AtomicU64::new(0);
static WORK: AtomicU64 = AtomicU64::new(0);

fn end(code: u8) -> ! {
    api_plat::power_off(&Status::Exit { code })
}

#[unsafe(no_mangle)]
fn unilith_kernel_overlay_call(_: &mut TrapFrame) {
    unreachable!("there is no overlay");
}

#[unsafe(no_mangle)]
fn unilith_kernel_syscall(frame: &mut TrapFrame) {
    // SAFETY: the kernel may use vector registers as it likes: they are in the frame.
    unsafe {
        core::arch::asm!("pcmpeqd xmm0, xmm0", "pxor xmm3, xmm3", "pxor xmm7, xmm7", "pxor xmm15, xmm15")
    };
    if api_plat::take_work() {
        unilith_kernel_work(frame);
    }
    assert_eq!(frame.orig_rax, frame.rax);
    match frame.rax {
        500 => {
            say!("check {} failed", frame.rdi);
            end(1)
        }
        501 => {
            let (ticks, work) = (TICKS.load(Relaxed), WORK.load(Relaxed));
            say!("{ticks} timer interrupts, {work} times work");
            assert!(ticks > 10 && work >= ticks - 1);
            assert_eq!(api_plat::fs_base(), 0x1234_5000);
            copies();
            // The kernel calls code in the program's half below, which an interrupt would take for the program.
            api_plat::set_timer(u64::MAX);
            api_plat::take_work();
            clocks();
            say!("ok");
            end(0)
        }
        502 => frame.rax = 1234,
        503 => {
            let (tsc, ns) = (plat_pc::x86::rdtsc(), api_plat::now_ns());
            while api_plat::now_ns() < ns + 1_000_000 {}
            let hz = (plat_pc::x86::rdtsc() - tsc) * 1000;
            say!("call {}: {} ns", frame.rsi, frame.rdi * 1000 / (hz / 1_000_000));
        }
        n => panic!("call {n}"),
    }
}

/// The vDSO's clocks are the kernel's, and read quickly.
fn clocks() {
    let gettime = crate::program::vdso_symbol(b"__vdso_clock_gettime");
    let time = crate::program::vdso_symbol(b"__vdso_time");
    // SAFETY: Linux' prototypes.
    let (gettime, time) = unsafe {
        (
            core::mem::transmute::<u64, extern "C" fn(i32, *mut [u64; 2]) -> i32>(gettime),
            core::mem::transmute::<u64, extern "C" fn(*mut u64) -> u64>(time),
        )
    };
    let read = |clock| {
        let mut t = [0; 2];
        assert_eq!(gettime(clock, &mut t), 0);
        assert!(t[1] < 1_000_000_000);
        t[0] * 1_000_000_000 + t[1]
    };
    for _ in 0..1000 {
        let before = api_plat::now_ns();
        let between = read(1);
        let after = api_plat::now_ns();
        assert!(before <= between && between <= after, "{before} {between} {after}");
    }
    assert_eq!((read(0) - api_plat::wall_ns()) / 1_000_000_000, api_plat::now_ns() / 1_000_000_000);
    let mut seconds = 0;
    assert_eq!(time(&mut seconds), read(5) / 1_000_000_000);
    assert_eq!(seconds, time(core::ptr::null_mut()));
    let start = api_plat::now_ns();
    for _ in 0..100_000 {
        read(1);
    }
    say!("clock_gettime: {} ns", (api_plat::now_ns() - start) / 100_000);
}

/// Copies to and from the program's memory: over a page that comes with the fault, and into nothing.
fn copies() {
    assert_eq!(api_user::write_bytes(LAZY + 0x1ffc, &[1, 2, 3, 4, 5, 6, 7, 8]), Ok(()));
    let mut back = [0; 8];
    assert_eq!(api_user::read_bytes(LAZY + 0x1ffc, &mut back), Ok(()));
    assert_eq!(back, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(api_user::read_bytes(0x10_0000, &mut back), Err(abi::errno::EFAULT));
    assert_eq!(api_user::write_bytes(LAZY + 0xf_fffc, &back), Err(abi::errno::EFAULT));
}

#[unsafe(no_mangle)]
fn unilith_kernel_exception(frame: &mut TrapFrame, e: Exception) {
    panic!("{e:x?} at {:#x} {frame:x?}", frame.rip)
}

#[unsafe(no_mangle)]
fn unilith_kernel_page_fault(address: u64, access: Access) -> FaultOutcome {
    // SAFETY: kernel code may use them.
    unsafe { core::arch::asm!("pcmpeqd xmm0, xmm0", "pxor xmm7, xmm7", "pxor xmm15, xmm15") };
    if (LAZY..LAZY + 0x10_0000).contains(&address) {
        assert_eq!(access, Access::Write);
        crate::program::map(address & !0xfff);
        return FaultOutcome::Resolved;
    }
    FaultOutcome::Segv { mapped: false }
}

#[unsafe(no_mangle)]
fn unilith_kernel_work(_frame: &mut TrapFrame) {
    WORK.fetch_add(1, Relaxed);
    // SAFETY: as above.
    unsafe { core::arch::asm!("pcmpeqd xmm3, xmm3") };
    api_plat::set_timer(api_plat::now_ns() + 20_000);
}

#[unsafe(no_mangle)]
fn unilith_kernel_sample(_: &TrapFrame) {}

#[unsafe(no_mangle)]
fn unilith_kernel_timer() {
    TICKS.fetch_add(1, Relaxed);
    api_plat::request_work();
}
