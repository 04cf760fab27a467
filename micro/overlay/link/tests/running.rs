// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of the host's compiler, linked and run in the test's own address space.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod support;

use overlay_link::{Definition, Image, Input, Place, Plan, Resolver};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use support::{compile, nothing};

/// A program in memory, with the rights it has in the machine.
struct Loaded {
    image: Image,
    memory: *mut c_void,
    size: usize,
}

fn load(objects: &[&[u8]], resolver: &dyn Resolver) -> Loaded {
    let inputs: Vec<Input> = objects.iter().map(|bytes| Input { name: "x.o", bytes }).collect();
    let plan = Plan::new(&inputs, resolver).unwrap();
    let size = plan.size() as usize;
    // SAFETY: new memory at an address of the system's choice; the copies stay inside of it, for the segments follow
    // one another within `size` (asserted).
    unsafe {
        let memory =
            mmap_anonymous(std::ptr::null_mut(), size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
                .unwrap();
        let base = memory as u64;
        let image = plan.place(Place { base, canary: 0x5555_0000_1111_0000 }).unwrap();
        assert!(image.data_address + image.data_size <= base + size as u64);
        for (at, bytes) in
            [(base, &image.text), (image.rodata_address, &image.rodata), (image.data_address, &image.data)]
        {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len());
        }
        let text = (image.rodata_address - base) as usize;
        mprotect(memory, text, MprotectFlags::READ | MprotectFlags::EXEC).unwrap();
        let rodata = (image.data_address - image.rodata_address) as usize;
        if rodata > 0 {
            mprotect(image.rodata_address as *mut c_void, rodata, MprotectFlags::READ).unwrap();
        }
        Loaded { image, memory, size }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: the memory is this value's, and the program does not run any more.
        unsafe { munmap(self.memory, self.size).unwrap() };
    }
}

impl Loaded {
    /// Constructors, main, destructors.
    fn run(&self) -> i32 {
        // SAFETY: `start` is the entry of code linked for this memory; the C under test is well-behaved.
        let start: extern "C" fn(i32, *const *const u8) -> i32 =
            unsafe { std::mem::transmute(self.image.start as usize) };
        start(0, std::ptr::null())
    }

    /// The same with FS at the program's thread control block.
    fn run_with_fs(&self) -> i32 {
        const ARCH_SET_FS: u64 = 0x1002;
        const ARCH_GET_FS: u64 = 0x1003;
        // FS of the test, that of the program, its start, its result.
        let mut words = [0u64, self.image.thread_pointer, self.image.start, 0];
        // SAFETY: FS is the test's own again before anything of the test's runs; the C under test calls nothing
        // outside of itself and keeps R12 and R13, by its calling convention. The stack is aligned for a call.
        unsafe {
            std::arch::asm!(
                "mov edi, {get}", "mov rsi, r12", "mov eax, 158", "syscall",
                "mov edi, {set}", "mov rsi, [r12 + 8]", "mov eax, 158", "syscall",
                "xor edi, edi", "xor esi, esi",
                "mov r13, rsp", "and rsp, -16", "call [r12 + 16]", "mov rsp, r13",
                "mov [r12 + 24], rax",
                "mov edi, {set}", "mov rsi, [r12]", "mov eax, 158", "syscall",
                get = const ARCH_GET_FS, set = const ARCH_SET_FS,
                in("r12") words.as_mut_ptr(), out("r13") _, clobber_abi("C")
            );
        }
        words[3] as i32
    }
}

fn run(source: &str, flags: &[&str]) -> i32 {
    load(&[&compile(source, flags)], &nothing).run()
}

const DATA: &str = r#"
    static int zero[1000]; int set = 40; const char *const words[] = { "a", "bc", "def" };
    static int (*table[2])(int); int common_one; extern int set;
    static int twice(int x) { return 2 * x; }
    __attribute__((noinline)) int length(const char *s) { int n = 0; while (s[n]) { __asm__ volatile(""); n++; } return n; }
    int pick(int x) { switch (x) { case 0: return 5; case 1: return 11; case 2: return 7; case 3: return 100;
        case 4: return 3; case 5: return 8; default: return 0; } }
    static int *pointer = &set;
    int main(void) { table[0] = twice; table[1] = length == 0 ? 0 : twice;
        zero[999] = 1; common_one = 1;
        return *pointer + length(words[2]) - zero[999] + table[1](1) - common_one + pick(1) - 11 + zero[5]; }
"#;

#[test]
fn code_of_every_model_finds_its_data() {
    for flags in [
        &["-O2", "-fPIC"][..],
        &["-O0", "-fPIC"],
        &["-O2", "-fPIE"],
        &["-O0", "-fPIE", "-fcommon"],
        &["-O2", "-fPIC", "-mcmodel=large"],
        &["-O2", "-fPIC", "-mcmodel=medium"],
        &["-O2", "-fno-pic", "-mcmodel=large"],
        &["-O2", "-fPIC", "-fno-plt"],
        &["-Os", "-fPIC", "-ffunction-sections", "-fdata-sections"],
        &["-O2", "-fPIC", "-g"],
    ] {
        assert_eq!(run(DATA, flags), 43, "{flags:?}");
    }
}

#[test]
fn several_objects_share_common_weak_and_strong_symbols() {
    let one = "int shared[4]; __attribute__((weak)) int which(void) { return 1; } int which(void);
        extern int other(void); int late = 7; __attribute__((weak)) extern int absent(void);
        int main(void) { return which() + other() + shared[2] + (absent ? 1000 : 0); }";
    let two = "int shared[8]; int which(void) { return 20; } extern int late;
        int other(void) { shared[2] = 300; return late + (sizeof shared > 16); }";
    let flags = ["-O1", "-fPIC", "-fcommon"];
    let (one, two) = (compile(one, &flags), compile(two, &flags));
    assert_eq!(load(&[&one, &two], &nothing).run(), 20 + 8 + 300);
    assert_eq!(load(&[&two, &one], &nothing).run(), 20 + 8 + 300);
}

#[test]
fn constructors_run_before_main_in_order_and_destructors_after_it_in_reverse() {
    let source = r#"
        static int log_, n; int *seen;
        static void note(int x) { log_ = log_ * 10 + x; if (seen) *seen = log_; }
        __attribute__((constructor(200))) static void b(void) { note(2); }
        __attribute__((constructor(101))) static void a(void) { note(1); }
        __attribute__((constructor)) static void c(void) { note(3); }
        __attribute__((destructor(101))) static void z(void) { note(6); }
        __attribute__((destructor)) static void y(void) { note(5); }
        int main(void) { note(4); return log_; }
        int *get(void) { return &log_; }
    "#;
    let program = load(&[&compile(source, &["-O2", "-fPIC"])], &nothing);
    assert_eq!(program.run(), 1234);
    let get = program.image.address_of("get").unwrap();
    // SAFETY: the address of that function of the program, which is still in memory.
    let get: extern "C" fn() -> *const i32 = unsafe { std::mem::transmute(get as usize) };
    // SAFETY: it answers the address of a variable of the program.
    assert_eq!(unsafe { *get() }, 123_456);
}

#[test]
fn one_copy_of_a_comdat_group_is_kept() {
    let group = |value: u32| {
        format!(
            r#"__asm__(".section .text.inline_one,\"axG\",@progbits,inline_one,comdat\n.weak inline_one\n" "inline_one: mov ${value}, %eax\n ret\n.text\n"); int inline_one(void);"#
        )
    };
    let one =
        compile(&(group(1) + "int f(void); int main(void) { return inline_one() * 10 + f(); }"), &["-fPIC"]);
    let two = compile(&(group(2) + "int f(void) { return inline_one(); }"), &["-fPIC"]);
    assert_eq!(load(&[&one, &two], &nothing).run(), 11);
    assert_eq!(load(&[&two, &one], &nothing).run(), 22);
}

const THREAD: &str = r#"
    static __thread int a = 5; __thread int b[3] = { 1, 2, 3 }; static __thread long zero; extern __thread int c;
    __attribute__((aligned(128))) __thread char wide[7] = "wide";
    __attribute__((noinline)) int touch(int x) { a += x; zero += 1; return a + b[2] + (int)zero + c + wide[0] - 'w'; }
    int main(void) { if ((unsigned long)wide % 128) return -1; touch(1); return touch(1); }
"#;
const THREAD_OTHER: &str = "__thread int c = 1000;";

#[test]
fn thread_local_variables_of_general_and_local_dynamic_code_need_no_fs() {
    for flags in [&["-O2", "-fPIC"][..], &["-O0", "-fPIC"], &["-O2", "-fPIC", "-fno-plt"]] {
        let program = load(&[&compile(THREAD, flags), &compile(THREAD_OTHER, flags)], &nothing);
        assert!(!program.image.uses_fs);
        assert_eq!(program.run(), 7 + 3 + 2 + 1000, "{flags:?}");
    }
}

#[test]
fn thread_local_variables_of_exec_models_and_descriptors_go_through_fs() {
    for flags in [
        &["-O2", "-fPIE"][..],
        &["-O2", "-fPIC", "-ftls-model=initial-exec"],
        &["-O2", "-fPIE", "-ftls-model=local-exec"],
        &["-O2", "-fPIC", "-mtls-dialect=gnu2"],
    ] {
        let program = load(&[&compile(THREAD, flags), &compile(THREAD_OTHER, flags)], &nothing);
        assert!(program.image.uses_fs, "{flags:?}");
        assert_eq!(program.run_with_fs(), 7 + 3 + 2 + 1000, "{flags:?}");
    }
}

#[test]
fn a_stack_protector_finds_its_canary() {
    let source = "extern void use(char *); void use(char *p) { p[3] = 1; }
        int main(void) { char room[64]; use(room); return room[3]; }";
    let program =
        load(&[&compile(source, &["-O1", "-fPIC", "-fstack-protector-all", "-fno-inline"])], &nothing);
    assert_eq!(program.run_with_fs(), 1);
}

extern "C" fn add_three(x: i32) -> i32 {
    x + 3
}
extern "C" fn choose() -> extern "C" fn(i32) -> i32 {
    add_three
}
static OUTSIDE: i32 = 39;

#[test]
fn functions_and_variables_outside_are_reached_wherever_they_lie() {
    let source = "extern int far(int); extern int chosen(int); extern int outside; extern int absent __attribute__((weak));
        static int (*pointer)(int) = far; static int (*second)(int) = chosen; static int *data = &outside;
        int main(void) { return far(1) + pointer(2) + chosen(3) + second(4) + outside + *data + (&absent != 0); }";
    let resolver = |name: &[u8]| {
        Some(match name {
            b"far" => Definition::Function(add_three as extern "C" fn(i32) -> i32 as usize as u64),
            b"chosen" => {
                Definition::Indirect(choose as extern "C" fn() -> extern "C" fn(i32) -> i32 as usize as u64)
            }
            b"outside" => Definition::Data(&raw const OUTSIDE as u64),
            _ => return None,
        })
    };
    for flags in [&["-O2", "-fPIC"][..], &["-O2", "-fPIC", "-fno-plt"], &["-O2", "-fPIC", "-mcmodel=large"]] {
        assert_eq!(load(&[&compile(source, flags)], &resolver).run(), 4 + 5 + 6 + 7 + 78, "{flags:?}");
    }
}

#[test]
fn an_indirect_function_of_the_program_itself_is_asked_at_the_start() {
    let source = "static int one(int x) { return x + 1; } static int (*resolve(void))(int) { return one; }
        int indirect(int) __attribute__((ifunc(\"resolve\"))); static int (*p)(int) = indirect;
        int main(void) { return indirect(1) + p(10); }";
    assert_eq!(run(source, &["-O2", "-fPIC"]), 13);
}
