// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are optimised with their kernel at the link (`--static --lto`), and for a profile of a machine (`--profile-use`):
//! they do what they do on Linux.

use std::{fs, process::Command};
use unilith_tests::{
    BUILD_KERNEL, PATIENCE, Ran, Unilith, finish, is_skipped_without_micro, root, tested_machine,
};

/// What these tests are about.
const STATIC: &str = "--static is for the micro kernel";

/// Compiles a program with `unilith cc` and these words.
fn compile(unilith: &Unilith, words: &[&str], source: &str) -> String {
    let target = unilith.path("program").display().to_string();
    let words = [&["cc"][..], words, &["-O2", "-Wall", "-Wextra", "-Werror", "-o", &target, source]].concat();
    // The first one builds the C library.
    finish(&mut unilith.command(&words), BUILD_KERNEL).ok();
    target
}

fn compile_text(unilith: &Unilith, words: &[&str], text: &str) -> String {
    let source = unilith.path("text.c").display().to_string();
    fs::write(&source, text).expect("a file");
    compile(unilith, words, &source)
}

fn run(unilith: &Unilith, words: &[&str]) -> Ran {
    let flags = ["run", "--rm", "--network", "none", "--machine", &tested_machine()];
    finish(&mut unilith.command(&[&flags[..], words].concat()), BUILD_KERNEL)
}

const HELLO: &str = "#include <stdio.h>\nint main(void) { return puts(\"one image\") < 0; }\n";

#[test]
fn what_cannot_be_optimised_with_its_kernel_is_refused_with_the_reason() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let program = compile_text(&unilith, &[], HELLO);
    run(&unilith, &["--lto", &program])
        .fails_with(&["--lto is for a program that is linked", "add --static"]);
    // Machine code alone has nothing to optimise.
    run(&unilith, &["--static", "--lto", &program])
        .fails_with(&["has no bitcode to optimise", "CC='unilith cc --lto'"]);
    // glibc comes as machine code.
    let source = unilith.path("text.c").display().to_string();
    let words = ["cc", "--libc", "glibc", "-o", "/dev/null", &source];
    unilith.run(&[&words[..], &["--lto"]].concat()).fails_with(&["--lto is for programs in C with musl"]);
    let other = unilith.path("other").display().to_string();
    finish(&mut unilith.command(&["cc", "--libc", "glibc", "-o", &other, &source]), BUILD_KERNEL).ok();
    run(&unilith, &["--static", "--lto", &other]).fails_with(&["--lto is for programs in C with musl"]);
}

#[test]
fn what_is_no_profile_is_refused_before_anything_is_built() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let program = compile_text(&unilith, &["--lto"], HELLO);
    let file = |name: &str, text: &str| {
        let path = unilith.path(name).display().to_string();
        fs::write(&path, text).expect("a file");
        path
    };
    let begins = "# unilith, program: 1\n# unilith, kernel: 2\n# unilith, functions: 1\n:ir\n";
    let whole = file("whole", &format!("{begins}main\n5\n1\n3\n\n"));
    run(&unilith, &["--profile-use", &whole, &program]).fails_with(&["--profile-use", "add --static --lto"]);
    let link = |flags: &[&str]| run(&unilith, &[&["--static"][..], flags, &[&program]].concat());
    link(&["--profile-use", &whole]).fails_with(&["--profile-use", "add --static --lto"]);
    link(&["--lto=count", "--profile-use", &whole]).fails_with(&["leave out =count"]);
    let absent = unilith.path("absent").display().to_string();
    link(&["--lto", "--profile-use", &absent]).fails_with(&["cannot read", &absent]);
    let other = file("other", "<svg>");
    link(&["--lto", "--profile-use", &other])
        .fails_with(&[&other, "no profile of `unilith profile --format counts`"]);
    let short = file("short", &format!("{begins}main\n5\n2\n3\n\n"));
    link(&["--lto", "--profile-use", &short]).fails_with(&[&short, "damaged at line 9"]);
    let endless = unilith.path("endless");
    let file = fs::File::create(&endless).expect("a file");
    file.set_len(1 << 40).expect("a file without blocks");
    link(&["--lto", "--profile-use", &endless.display().to_string()])
        .fails_with(&["no profile has more than"]);
    unilith.run(&["profile", "nobody", "--format", "counts"]).fails_with(&["nobody"]);
}

/// A kernel is compiled to bitcode once, in minutes, and each link takes another one.
mod long {
    use super::*;

    #[test]
    #[ignore = "compiles a kernel to bitcode and optimises it anew for each program"]
    fn a_program_with_a_part_in_assembly_is_refused_with_the_parts_name() {
        if is_skipped_without_micro(STATIC) {
            return;
        }
        let unilith = Unilith::new();
        let assembly = unilith.path("part.s").display().to_string();
        fs::write(
            &assembly,
            ".globl part\npart:\n\txor %eax, %eax\n\tret\n.section .note.GNU-stack,\"\",@progbits\n",
        )
        .expect("a file");
        let text = "int part(void);\nint main(void) { return part(); }\n";
        let program = compile_text(&unilith, &["--lto", &assembly], text);
        run(&unilith, &["--static", "--lto", &program])
            .fails_with(&["machine code without bitcode (part)", "leave out --lto"]);
    }

    #[test]
    #[ignore = "compiles a kernel to bitcode and optimises it anew for each program"]
    fn a_program_optimised_with_its_kernel_does_what_it_does_on_linux() {
        if is_skipped_without_micro(STATIC) {
            return;
        }
        let unilith = Unilith::new();
        let source = root().join("tests/programs/linked.c").display().to_string();
        let program = compile(&unilith, &["--lto"], &source);
        let native = finish(Command::new(&program).arg("words").env("HOME", "/"), PATIENCE).code(5);
        let optimised = run(&unilith, &["--static", "--lto", &program, "words"]).code(5);
        assert_eq!(optimised.out, native.out, "{optimised}");
        // The same file without --lto: beside its bitcode it has the machine code of any other.
        let linked = run(&unilith, &["--static", &program, "words"]).code(5);
        assert_eq!(linked.out, native.out, "{linked}");
    }

    #[test]
    #[ignore = "compiles a kernel to bitcode and optimises it anew for each program"]
    fn what_an_optimised_program_cannot_do_is_said_with_who_does_it() {
        if is_skipped_without_micro(STATIC) {
            return;
        }
        let unilith = Unilith::new();
        let text = "#include <errno.h>\n#include <stdio.h>\n#include <string.h>\n#include <sys/inotify.h>\n#include <unistd.h>\n\
            int main(void) { int fd = inotify_init(); puts(fd < 0 ? strerror(errno) : \"watches\"); return 0; }\n";
        let program = compile_text(&unilith, &["--lto"], text);
        // A handler that the kernel has is kept for who calls it.
        let has = run(&unilith, &["--static", "--lto", &program]).ok().says("watches\n");
        assert!(!has.err.contains("ENOSYS"), "{has}");
        let lacks = run(&unilith, &["--static", "--lto", "--set", "inotify=off", &program]).ok();
        lacks
            .says("Function not implemented\n")
            .complains("main calls inotify_init")
            .complains("--set inotify");
        // A number of a system call that is not known before it is made brings the table.
        let text = "#include <stdio.h>\n#include <unistd.h>\n\
            int main(int count, char **words) { (void)words; printf(\"%d\\n\", syscall(38 + count) == getpid()); }\n";
        let program = compile_text(&unilith, &["--lto"], text);
        run(&unilith, &["--static", "--lto", &program])
            .ok()
            .says("1\n")
            .complains("so all system calls are in the image");
    }

    /// Bytes of the image of a program, and the names in it.
    fn image(unilith: &Unilith, name: &str, words: &[&str], program: &str) -> (u64, String) {
        let folder = unilith.path(name).display().to_string();
        let build = [&["build", "--static", "--network", "none", "-o", &folder][..], words, &[program]];
        finish(&mut unilith.command(&build.concat()), BUILD_KERNEL).ok();
        let names = unilith.run(&["size", "--json", &folder]).ok().out;
        (fs::metadata(unilith.path(name).join("kernel")).expect("an image has a kernel").len(), names)
    }

    #[test]
    #[ignore = "compiles a kernel to bitcode and optimises it anew for each program"]
    fn optimisation_brings_nothing_into_an_image_that_nobody_calls() {
        if is_skipped_without_micro(STATIC) || tested_machine() == "process" {
            eprintln!(
                "build writes images of virtual machines; those of a process machine have the same names"
            );
            return;
        }
        let unilith = Unilith::new();
        let program = compile_text(&unilith, &["--lto"], HELLO);
        let (plain, _) = image(&unilith, "plain", &[], &program);
        let (optimised, names) = image(&unilith, "optimised", &["--lto"], &program);
        for name in
            ["HANDLERS", "unilith_call_fork", "unilith_call_wait4", "unilith_call_epoll_wait", "tcpip::tcp"]
        {
            assert!(!names.contains(name), "{name}");
        }
        assert!(optimised * 100 <= plain * 103, "{optimised} bytes with --lto, {plain} without");
    }

    #[test]
    #[ignore = "compiles a kernel to bitcode and optimises it anew for each program"]
    fn a_profile_of_a_running_machine_is_used_by_the_next_link_and_by_no_other() {
        if is_skipped_without_micro(STATIC) {
            return;
        }
        let unilith = Unilith::new();
        // It works, says so, and stays until it is stopped.
        let text = "#include <stdio.h>\n#include <unistd.h>\n\
            static int often(int n) { return n % 7 == 3 ? n * 5 : n + 1; }\n\
            int main(int count, char **words) { long sum = 0; (void)words;\n\
                for (int n = 0; n < 10000; n++) sum += often(n) + (getppid() < 0);\n\
                printf(\"%ld\\n\", sum); fflush(stdout); if (count == 1) pause(); return 0; }\n";
        let program = compile_text(&unilith, &["--lto"], text);
        let machine = tested_machine();
        let start = |how: &[&str]| {
            let words = ["run", "-d", "--static", "--network", "none", "--machine", &machine];
            let words = [&words[..], how, &[&program]].concat();
            let ran = finish(&mut unilith.command(&words), BUILD_KERNEL).ok();
            let started = unilith.machine(ran.out.trim());
            unilith_tests::eventually("the program has worked", || {
                unilith.run(&["logs", &started.id]).out.contains('\n')
            });
            started
        };
        let plain = start(&[]);
        unilith
            .run(&["profile", &plain.id, "--format", "counts"])
            .fails_with(&["counts nothing", "--static --lto=count"]);
        let counting = start(&["--lto=count"]);
        let counts = unilith.run(&["profile", &counting.id, "--format", "counts"]).ok().out;
        let said = unilith.run(&["logs", &counting.id]).out;
        // Of the program and of its kernel.
        let has_run = |name: &str| {
            let mut functions = counts.split("\n\n").filter(|function| function.contains(name));
            functions.any(|function| function.lines().any(|line| line == "10000"))
        };
        assert!(has_run("main\n") && has_run("getppid"), "{counts:.2000}");
        let profile = unilith.path("program.counts").display().to_string();
        fs::write(&profile, &counts).expect("a file");
        let used = ["--static", "--lto", "--profile-use", &profile];
        let link = |words: &[&str]| run(&unilith, &[&used[..], words].concat());
        let optimised = link(&[&program, "end"]).ok();
        assert_eq!(optimised.out.trim(), said.trim(), "{optimised}");
        let other = compile_text(&unilith, &["--lto"], HELLO);
        link(&[&other]).fails_with(&["--profile-use", "another build of the program", "--lto=count"]);
    }
}
