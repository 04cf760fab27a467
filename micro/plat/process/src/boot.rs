// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the first Rust code to the kernel's main function.

use crate::arguments::Arguments;
use crate::memory::Shares;
use crate::{clock, host, host_processes, idle, memory, power, signals, stack, template};
use abi::errno::{EINTR, EINVAL};
use alloc::string::String;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_plat::{Boot, BootConfig, KernelStack, upcall};
use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use core::ffi::CStr;
use plat_x86::cpu;
use plat_x86::crash;
use plat_x86::features::{self, Features};

const AT_HWCAP2: u64 = 26;
/// The host lets programs use RDFSBASE and its like (arch/x86/include/uapi/asm/hwcap2.h).
const HWCAP2_FSGSBASE: u64 = 2;

static ARGUMENTS: SpinLock<Option<Arguments<'static>>> = SpinLock::new(None);

/// What the tender gave.
pub fn arguments() -> Option<Arguments<'static>> {
    *ARGUMENTS.lock()
}

/// What the host put on the stack (psABI 3.4.1).
struct Start {
    start: *const u64,
    count: usize,
}

impl Start {
    fn word(&self, index: usize) -> u64 {
        // SAFETY: callers stay before the end of the auxiliary vector, which the host wrote.
        unsafe { self.start.add(index).read() }
    }

    fn argument(&self, index: usize) -> Option<&'static str> {
        if index >= self.count {
            return None;
        }
        // SAFETY: the host put a string there, which nobody changes.
        let text = unsafe { CStr::from_ptr(self.word(1 + index) as *const core::ffi::c_char) };
        Some(text.to_str().unwrap_or("\u{fffd}"))
    }

    fn auxiliary(&self, kind: u64) -> u64 {
        let mut at = 2 + self.count;
        while self.word(at) != 0 {
            at += 1;
        }
        at += 1;
        while self.word(at) != 0 {
            if self.word(at) == kind {
                return self.word(at + 1);
            }
            at += 2;
        }
        0
    }
}

fn find_features(hwcap2: u64) {
    let one = __cpuid(1);
    let seven = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
    // OSXSAVE: the host uses XSAVE.
    let xsave = one.ecx & 1 << 27 != 0;
    // SAFETY: XGETBV is there with OSXSAVE.
    let xcr0 = if xsave { unsafe { xcr0() } } else { 0 };
    features::set(Features {
        xcr0,
        xsave_size: if xsave { __cpuid_count(0xd, 0).ebx as usize } else { 512 },
        fsgsbase: hwcap2 & HWCAP2_FSGSBASE != 0,
        tsc_deadline: false,
        rdrand: one.ecx & 1 << 30 != 0,
        rdseed: seven & 1 << 18 != 0,
    });
}

#[target_feature(enable = "xsave")]
unsafe fn xcr0() -> u64 {
    // SAFETY: by the caller's word.
    unsafe { _xgetbv(0) }
}

const ARCH_SET_GS: u64 = 0x1001;
const ARCH_SET_FS: u64 = 0x1002;
const ARCH_GET_FS: u64 = 0x1003;

#[unsafe(no_mangle)]
fn unilith_machine_fs_base() -> u64 {
    let mut base = 0u64;
    // SAFETY: the host writes our variable.
    let _ = unsafe { host::call(host::ARCH_PRCTL, [ARCH_GET_FS, &raw mut base as u64, 0, 0, 0, 0]) };
    base
}

#[unsafe(no_mangle)]
fn unilith_machine_set_fs_base(base: u64) {
    // SAFETY: the kernel does not use FS.
    let _ = unsafe { host::call(host::ARCH_PRCTL, [ARCH_SET_FS, base, 0, 0, 0, 0]) };
}

/// Called by `start.s` on the stack the host made.
#[unsafe(no_mangle)]
extern "C" fn unilith_process_main(stack: *const u64, first_tsc: u64) -> ! {
    // SAFETY: the first word is the count of arguments.
    let start = Start { start: stack, count: unsafe { stack.read() } as usize };
    let _ = set_gs_base(0);
    let words = (1..start.count).filter_map(|i| start.argument(i));
    let arguments = match Arguments::parse(words) {
        Ok(arguments) => arguments,
        Err((word, expected)) => {
            for part in ["unilith: argument `", word, "`: expected ", expected] {
                host::write_all(2, part.as_bytes());
            }
            crash::fail("an argument of the kernel is wrong: this file is run by the unilith command")
        }
    };
    let shares = match make_memory(&arguments) {
        Ok(shares) => shares,
        Err(reason) => crash::fail(reason),
    };
    find_features(start.auxiliary(AT_HWCAP2));
    *ARGUMENTS.lock() = Some(arguments);
    if let Some(fd) = arguments.status {
        power::set_status(fd);
    }
    let initrd = match prepare(&shares, stack as u64) {
        Ok(initrd) => initrd,
        Err(reason) => crash::fail(reason),
    };
    clock::begin(first_tsc);
    upcall::unilith_kernel_memory(&[memory::free()]);
    let mut seed = [0u8; 32];
    // SAFETY: the host fills our array.
    if unsafe { host::call(host::GETRANDOM, [seed.as_mut_ptr() as u64, 32, 0, 0, 0, 0]) }.is_ok() {
        plat_x86::entropy::add_entropy(&seed);
    }
    let Ok(line) = read_all(arguments.boot) else {
        crash::fail("the boot command line cannot be read: boot= is not a descriptor for reading")
    };
    let config = match BootConfig::decode(&line) {
        Ok(config) => config,
        Err(e) => crash::fail(&alloc::format!("{e}")),
    };
    clock::finish();
    let memory = arguments.memory;
    *BOOT.lock() = Some(Boot { config, initrd, memory, initrd_physical: memory::ARCHIVE });
    let kernel_stack = match host_processes::initialize(arguments.cpus).and_then(|()| first_stack()) {
        Ok(kernel_stack) => kernel_stack,
        Err(reason) => crash::fail(reason),
    };
    // The stack of the host's making is this process' alone; the kernel goes on in others.
    // SAFETY: the new stack is nobody else's, and nothing comes back to this one.
    unsafe { unilith_on_stack(kernel_stack, run) }
}

static BOOT: SpinLock<Option<Boot>> = SpinLock::new(None);

unsafe extern "C" {
    fn unilith_on_stack(top: u64, run: extern "C" fn() -> !) -> !;
}

extern "C" fn run() -> ! {
    let boot = BOOT.lock().take();
    match boot {
        Some(boot) => upcall::unilith_kernel_main(boot),
        None => crash::fail("the kernel begins twice"),
    }
}

/// Where a kernel stack begins that is never given back.
fn first_stack() -> Result<u64, &'static str> {
    let stack = KernelStack::new().map_err(|_| "no memory for a kernel stack: try more with -m")?;
    let top = stack.top();
    core::mem::forget(stack);
    Ok(top)
}

/// Makes the machine's memory, the template of host processes, and the kernel's variables a part of that memory. None of them
/// was written before.
fn make_memory(arguments: &Arguments<'_>) -> Result<Shares, &'static str> {
    let Arguments { memory: bytes, root, .. } = *arguments;
    template::make_private(0).map_err(|_| "the host refuses memory for a stack")?;
    let memory = memory::create(bytes, root)?;
    limit_disks(arguments).map_err(|_| "the host does not let the sizes of the disks be limited")?;
    let sockets = template::start(arguments, memory);
    memory::move_variables(memory, bytes)
        .map_err(|_| "the host refuses to map the kernel's variables: is RLIMIT_AS set?")?;
    memory::note(memory, bytes, root);
    template::note(sockets);
    Shares::new(memory, bytes, root)
}

/// A kernel that was taken over does not fill the host's file system: its disks stay as large as they are, or as the largest of them.
fn limit_disks(arguments: &Arguments<'_>) -> abi::Result<()> {
    let mut largest = None;
    for disk in arguments.disks.iter().flatten() {
        largest = largest.max(Some(host::size(disk.fd)?));
    }
    largest.map_or(Ok(()), host::limit_file_size)
}

/// Lets GS base lead to the block of processor `index`, whose layout the assembly shares.
pub fn set_gs_base(index: usize) -> abi::Result<()> {
    // SAFETY: by the comment above.
    unsafe { host::call(host::ARCH_PRCTL, [ARCH_SET_GS, cpu::block(index), 0, 0, 0, 0]) }.map(|_| ())
}

/// What a descriptor gives up to its end.
fn read_all(fd: i32) -> abi::Result<String> {
    const PIECE: usize = 4096;
    let mut bytes = Vec::new();
    loop {
        let length = bytes.len();
        bytes.resize(length + PIECE, 0);
        let n = match host::read(fd, &mut bytes[length..]) {
            Err(EINTR) => 0,
            Ok(0) => {
                bytes.truncate(length);
                break;
            }
            other => other?,
        };
        bytes.truncate(length + n);
    }
    String::from_utf8(bytes).map_err(|_| EINVAL)
}

fn prepare(shares: &Shares, stack: u64) -> Result<&'static [u8], &'static str> {
    let initrd = memory::initialize(shares)?;
    stack::initialize(stack);
    signals::initialize().map_err(|_| "the host refuses signal handlers")?;
    idle::initialize()?;
    Ok(initrd)
}
