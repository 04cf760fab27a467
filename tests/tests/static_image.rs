// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are linked with the micro kernel into one image (`--static`): they do what they do on Linux, and what they do
//! not call is not there.

use std::{fs, process::Command};
use unilith_tests::{
    BUILD_KERNEL, PATIENCE, Ran, Unilith, finish, is_skipped_without_micro, root, tested_machine,
};

/// Compiles a program of `tests/programs` with `unilith cc`.
fn compile(unilith: &Unilith, source: &str) -> String {
    compile_file(unilith, &root().join("tests/programs").join(source).display().to_string())
}

fn compile_text(unilith: &Unilith, text: &str) -> String {
    let source = unilith.path("text.c");
    fs::write(&source, text).expect("a file");
    compile_file(unilith, &source.display().to_string())
}

fn compile_file(unilith: &Unilith, source: &str) -> String {
    let target = unilith.path("program").display().to_string();
    let words = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", &target, source];
    // The first one builds the C library.
    finish(&mut unilith.command(&words), BUILD_KERNEL).ok();
    target
}

/// Runs a program as one image.
fn linked(unilith: &Unilith, words: &[&str]) -> Ran {
    let flags = ["run", "--rm", "--static", "--network", "none", "--machine", &tested_machine()];
    // The first one builds the kernel.
    finish(&mut unilith.command(&[&flags[..], words].concat()), BUILD_KERNEL)
}

/// What these tests are about.
const STATIC: &str = "--static is for the micro kernel";

#[test]
fn a_program_linked_with_the_kernel_does_what_it_does_on_linux() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, "linked.c");
    let native = finish(Command::new(&program).arg("words").env("HOME", "/"), PATIENCE).code(5);
    let alone = linked(&unilith, &[&program, "words"]).code(5);
    assert_eq!(alone.out, native.out, "{alone}");
    assert!(!alone.err.contains("by the instruction"), "{alone}");
    // The same file, unmodified: the kernel turns its system calls into calls when it loads it.
    let unmodified = unilith.program(&["--network", "none", &program, "words"]).code(5);
    assert_eq!(unmodified.out, native.out, "{unmodified}");
}

/// The names in an image of this program.
fn names(unilith: &Unilith, text: &str) -> String {
    let program = compile_text(unilith, text);
    let folder = unilith.path("image").display().to_string();
    let build = ["build", "--static", "--network", "none", "-o", &folder, &program];
    finish(&mut unilith.command(&build), BUILD_KERNEL).ok();
    unilith.run(&["size", "--json", &folder]).ok().out
}

#[test]
fn what_nobody_calls_is_not_in_the_image() {
    if is_skipped_without_micro(STATIC) || tested_machine() == "process" {
        eprintln!("build writes images of virtual machines; those of a process machine have the same names");
        return;
    }
    let unilith = Unilith::new();
    let quiet = names(&unilith, "#include <stdio.h>\nint main(void) { return puts(\"hello\") < 0; }\n");
    let watches = names(
        &unilith,
        "#include <sys/inotify.h>\n#include <stdio.h>\nint main(void) { return printf(\"%d\\n\", inotify_init()) < 0; }\n",
    );
    let serves = names(
        &unilith,
        "#include <sys/socket.h>\nint main(void) { return socket(AF_INET, SOCK_STREAM, 0) < 0; }\n",
    );
    // Its settings are files of /proc/sys, whoever uses it.
    let code = |names: &str| {
        names.replace("\"library\": \"inotify\"", "").replace("inotify::MAX_", "").contains("inotify")
    };
    assert!(code(&watches) && !code(&quiet), "{quiet}");
    // An empty function may go by the name of any other that is empty as well, so the crate's name alone says nothing.
    for part in ["tcpip::tcp", "tcpip::udp", "tcpip::ip"] {
        assert!(serves.contains(part) && !quiet.contains(part), "{part}: {quiet}");
    }
    // No table of calls, and none of these: nobody forks, waits or polls here.
    for name in ["HANDLERS", "unilith_call_fork", "unilith_call_wait4", "unilith_call_epoll_wait"] {
        assert!(!quiet.contains(name), "{name}");
    }
}

#[test]
fn what_a_linked_program_cannot_do_is_said_with_who_does_it() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let text = "#include <dlfcn.h>\n#include <errno.h>\n#include <stdio.h>\n#include <string.h>\n#include <unistd.h>\n\
        #include <fcntl.h>\n\
        static void run_child(void) { int fd = open(\"/tmp/other\", O_CREAT | O_WRONLY, 0755);\n\
            if (write(fd, \"\\177ELF, another program\", 21) == 21 && close(fd) == 0) execl(\"/tmp/other\", \"other\", (char *)0); }\n\
        int main(void) { run_child(); puts(strerror(errno)); puts(dlopen(\"libm.so\", RTLD_NOW) ? \"loaded\" : \"not loaded\"); }\n";
    let program = compile_text(&unilith, text);
    let ran = linked(&unilith, &[&program]).ok().says("Function not implemented\nnot loaded\n");
    let ran =
        ran.complains("execve answers ENOSYS for other programs").complains("without --static it has all");
    let ran = ran.complains("execve of /tmp/other answers ENOSYS");
    ran.complains("calls execl").complains("main: dlopen fails");
    // A number of a system call that is not known before it is made brings the table.
    let text = "#include <stdio.h>\n#include <unistd.h>\n\
        int main(int count, char **words) { (void)words; printf(\"%d\\n\", syscall(38 + count) == getpid()); }\n";
    let program = compile_text(&unilith, text);
    linked(&unilith, &[&program]).ok().says("1\n").complains("so all system calls are in the image");
}

#[test]
fn what_cannot_be_one_image_is_refused_with_the_reason() {
    let unilith = Unilith::new();
    let run = |words: &[&str]| unilith.run(&[&["run", "--rm", "--static"], words].concat());
    run(&["--kernel", "linux", "/bin/true"]).fails_with(&["--static", "--ukl base"]);
    run(&["--set", "overlay=on", "/bin/true"]).fails_with(&["no overlay"]);
    run(&["--trace", "/bin/true"]).fails_with(&["--trace", "by number"]);
    run(&["--network", "none", "/bin/true"]).fails_with(&["/true", "CC='unilith cc'"]);
}
