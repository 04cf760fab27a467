// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of Debian's glibc, in C and in C++, that are linked with the micro kernel into one image (`--static`): they do what
//! they do on Linux, and say what they cannot.

use std::{fs, process::Command};
use unilith_tests::{
    BUILD_KERNEL, PATIENCE, Ran, Unilith, finish, is_skipped_without_micro, root, tested_machine,
};

/// What these tests are about.
const STATIC: &str = "--static is for the micro kernel";
const C: [&str; 3] = ["cc", "--libc", "glibc"];

fn compile(unilith: &Unilith, compiler: &[&str], words: &[&str]) -> Ran {
    let flags = [compiler, &["-O2", "-Wall", "-Wextra", "-Werror"], words].concat();
    finish(&mut unilith.command(&flags), BUILD_KERNEL)
}

/// A program of `tests/programs`.
fn program(unilith: &Unilith, compiler: &[&str], source: &str) -> String {
    let target = unilith.path("program").display().to_string();
    let source = root().join("tests/programs").join(source).display().to_string();
    compile(unilith, compiler, &["-o", &target, &source]).ok();
    target
}

fn program_of(unilith: &Unilith, compiler: &[&str], name: &str, text: &str) -> String {
    let source = unilith.path(name);
    fs::write(&source, text).expect("a file");
    let target = unilith.path("program").display().to_string();
    compile(unilith, compiler, &["-o", &target, &source.display().to_string()]).ok();
    target
}

/// Runs a program as one image.
fn linked(unilith: &Unilith, words: &[&str]) -> Ran {
    let flags = ["run", "--rm", "--static", "--network", "none", "--machine", &tested_machine()];
    // The first one builds the kernel.
    finish(&mut unilith.command(&[&flags[..], words].concat()), BUILD_KERNEL)
}

/// Runs it on Linux and as one image, and compares.
fn does_the_same(unilith: &Unilith, flags: &[&str], program: &str, code: i32) -> Ran {
    let native = finish(Command::new(program).arg("words").env("HOME", "/"), PATIENCE).code(code);
    let alone = linked(unilith, &[flags, &[program, "words"]].concat()).code(code);
    assert_eq!(alone.out, native.out, "{alone}");
    assert!(!alone.err.contains("by the instruction"), "{alone}");
    alone
}

#[test]
fn a_program_of_glibc_linked_with_the_kernel_does_what_it_does_on_linux() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let program = program(&unilith, &C, "glibc.c");
    let locales = ["-v", "/usr/lib/locale:/usr/lib/locale:ro"];
    let ran = does_the_same(&unilith, &locales, &program, 5);
    ran.says("locale: C.UTF-8, 6 bytes of a character, 4 characters\n");
}

#[test]
fn a_program_in_cpp_linked_with_the_kernel_does_what_it_does_on_linux() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let program = program(&unilith, &["c++"], "several.cpp");
    let ran = does_the_same(&unilith, &[], &program, 6);
    // The last thing that it prints.
    assert!(ran.out.ends_with("the program's destroyed\n"), "{ran}");
}

#[test]
fn what_a_program_of_glibc_cannot_do_is_said_with_who_does_it() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let text = "#include <dlfcn.h>\n#include <stdio.h>\n#include <unistd.h>\n\
        int main(int count, char **words) { (void)words; void *library = dlopen(\"libm.so.6\", RTLD_NOW);\n\
        printf(\"%s\\n%d\\n\", library ? \"loaded\" : dlerror(), syscall(38 + count) == getpid()); }\n";
    let program = program_of(&unilith, &C, "loads.c", text);
    let ran = linked(&unilith, &[&program]).ok();
    let ran = ran.says(
        "libm.so.6: a program that is linked with its kernel loads no libraries; leave out --static\n1\n",
    );
    ran.complains("main: dlopen fails").complains("so all system calls are in the image");
    let ran = finish(
        &mut unilith.command(&["run", "--rm", "--static", "--set", "alloc.program=tlsf", &program]),
        BUILD_KERNEL,
    );
    ran.fails_with(&["alloc.program=tlsf", "for programs with musl"]);
}

#[test]
fn an_exception_that_nobody_catches_ends_the_program_with_its_name() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let text = "#include <stdexcept>\nint main() { throw std::runtime_error(\"nobody catches this\"); }\n";
    let program = program_of(&unilith, &["c++"], "throws.cpp", text);
    let ran = linked(&unilith, &[&program]);
    assert_eq!(ran.code, Some(134), "{ran}");
    assert!(format!("{ran}").contains("what():  nobody catches this"), "{ran}");
}

#[test]
fn objects_of_two_c_libraries_are_not_linked_together() {
    let unilith = Unilith::new();
    let (source, object) = (unilith.path("part.c"), unilith.path("part.o"));
    fs::write(&source, "int part(void) { return 0; }\n").expect("a file");
    let (source, object) = (source.display().to_string(), object.display().to_string());
    compile(&unilith, &C, &["-c", "-o", &object, &source]).ok();
    let main = unilith.path("main.c");
    fs::write(&main, "int part(void);\nint main(void) { return part(); }\n").expect("a file");
    let words = ["-o", "program", &main.display().to_string(), &object];
    compile(&unilith, &["cc"], &words).fails_with(&["part.o was compiled for glibc", "the same --libc"]);
    compile(&unilith, &["c++", "--libc", "musl"], &words).fails_with(&["no C++ library for musl"]);
}

#[test]
fn a_system_call_that_cannot_be_connected_is_refused_with_its_object_and_function() {
    let unilith = Unilith::new();
    let (source, object) = (unilith.path("tight.s"), unilith.path("tight.o"));
    // A jump needs five bytes: this function has three, and what follows is another one.
    let text = ".text\n.globl tight\n.type tight,@function\ntight: syscall\nret\n.size tight,.-tight\n\
        .section .note.GNU-stack,\"\",@progbits\n";
    fs::write(&source, text).expect("a file");
    let (source, object) = (source.display().to_string(), object.display().to_string());
    compile(&unilith, &C, &["-c", "-o", &object, &source]).ok();
    let main = unilith.path("main.c");
    fs::write(&main, "int tight(void);\nint main(void) { return tight(); }\n").expect("a file");
    let words = ["-o", "program", &main.display().to_string(), &object];
    compile(&unilith, &C, &words).fails_with(&["tight.o: tight", "no room", "syscall(2)"]);
}

#[test]
fn a_c_library_that_is_unknown_is_refused_with_those_that_are_known() {
    let ran = compile(&Unilith::new(), &["cc", "--libc", "uclibc"], &["-o", "program", "program.c"]);
    assert_eq!(ran.code, Some(2), "{ran}");
    ran.complains("uclibc").complains("glibc, musl");
}
