// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The heap libraries of the kernel as a program's malloc: linked (`--set alloc.program=NAME`) and before the C library of an
//! unmodified program (`--malloc NAME`). `tests/programs/malloc.c` has what malloc(3) promises; it passes on Linux.

use std::{fs, process::Command};
use unilith_tests::{
    BUILD_KERNEL, Machine, PATIENCE, Ran, Unilith, client, compile, compile_to_link, finish, is_skipped,
    is_skipped_without_micro, tested_machine,
};

const ALLOCATORS: [&str; 6] = ["tlsf", "buddy", "mimalloc", "tiny", "region", "guard"];
/// What is freed stays used in one of them, and one keeps it for a while.
const MEMORY: &str = "256M";
/// The program misuses memory on purpose, which compilers see.
const UNWARNED: [&str; 2] = ["-Wno-use-after-free", "-Wno-free-nonheap-object"];
const AS_IT_SHOULD_BE: &str = "memory is as it should be";

/// What these tests are about.
const MICRO: &str = "--malloc and alloc.program are for the micro kernel";

/// Runs a program to its end; the first one builds the kernel and the allocator.
fn run(unilith: &Unilith, words: &[&str]) -> Ran {
    let flags = ["run", "--rm", "--network", "none", "-m", MEMORY, "--machine", &tested_machine()];
    finish(&mut unilith.command(&[&flags[..], words].concat()), BUILD_KERNEL)
}

/// How many bytes a block for one byte has tells whose it is.
fn is_served_by(ran: Ran, name: &str) {
    let size = if name == "guard" { 1 } else { 16 };
    ran.ok().says(&format!("a block for one byte has {size}\n{AS_IT_SHOULD_BE}\n"));
}

/// Each misuse with what is said of it.
const MISUSES: [(&str, &str); 6] = [
    ("overflow", "a block of 40 bytes at 0x"),
    ("grown", "written to beyond its end; found by realloc, called by 0x"),
    ("underflow", "was written to before its beginning; found by free, called by 0x"),
    ("twice", "was freed already"),
    ("late", "was written to after it was freed; found by exit"),
    ("wild", "is no block of memory"),
];

#[test]
fn a_linked_program_has_the_allocator_that_is_chosen() {
    if is_skipped_without_micro(MICRO) {
        return;
    }
    let unilith = Unilith::new();
    let program = compile_to_link(&unilith, "tests/programs/malloc.c", &UNWARNED);
    finish(&mut Command::new(&program), PATIENCE).ok().says(AS_IT_SHOULD_BE);
    run(&unilith, &["--static", &program]).ok().says(AS_IT_SHOULD_BE);
    for name in ALLOCATORS {
        let set = format!("alloc.program={name}");
        is_served_by(run(&unilith, &["--static", "--set", &set, &program]), name);
    }
    for (how, says) in MISUSES {
        let ran = run(&unilith, &["--static", "--malloc", "guard", &program, how]).code(134);
        ran.complains("unilith: malloc: ").complains(says);
    }
    run(&unilith, &["--static", "--malloc", "tlsf", &program, "twice"])
        .code(134)
        .complains("was freed already");
}

#[test]
fn an_unmodified_program_has_the_allocator_that_is_chosen() {
    if is_skipped_without_micro(MICRO) {
        return;
    }
    let unilith = Unilith::new();
    let compiler = [&["gcc", "-O2", "-pthread"][..], &UNWARNED].concat();
    let program = compile(&unilith, &compiler, "malloc.c", &[]);
    finish(&mut Command::new(&program), PATIENCE).ok().says(AS_IT_SHOULD_BE);
    run(&unilith, &[&program]).ok().says(AS_IT_SHOULD_BE);
    for name in ALLOCATORS {
        is_served_by(run(&unilith, &["--malloc", name, &program]), name);
    }
    for (how, says) in MISUSES {
        let ran = run(&unilith, &["--malloc", "guard", &program, how]).code(134);
        ran.complains("unilith: malloc: ").complains(says);
    }
    // One that the user names is loaded as well.
    let ran = run(&unilith, &["--malloc", "tlsf", "-e", "LD_PRELOAD=/none.so", &program]);
    is_served_by(ran.complains("/none.so"), "tlsf");
}

#[test]
fn musl_loads_it_as_well() {
    const MUSL: &str = "/usr/bin/musl-gcc";
    let is_there = fs::exists(MUSL).is_ok_and(|is| is);
    if is_skipped_without_micro(MICRO)
        || is_skipped(!is_there, "musl-gcc (package musl-tools) is not installed")
    {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, &[&[MUSL, "-O2"][..], &UNWARNED].concat(), "malloc.c", &[]);
    for name in ["tlsf", "mimalloc", "guard"] {
        is_served_by(run(&unilith, &["--malloc", name, &program]), name);
    }
    run(&unilith, &["--malloc", "guard", &program, "twice"]).code(134).complains("called by 0x");
}

fn redis(machine: &Machine, words: &[&str]) -> Ran {
    let at = machine.at(6379);
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    client("redis-cli", &[&["-h", &host, "-p", &port], words].concat())
}

#[test]
fn programs_of_debian_run_with_them() {
    if is_skipped_without_micro(MICRO) {
        return;
    }
    let unilith = Unilith::new();
    let machine = unilith.start(&["--malloc", "tlsf", "redis"]);
    let ran = redis(
        &machine,
        &["eval", "for i=1,20000 do redis.call('set', i, string.rep('x', i % 900)) end", "0"],
    );
    ran.ok();
    redis(&machine, &["dbsize"]).ok().says("20000");
    // A process of its own writes while blocks come and go.
    redis(&machine, &["bgsave"]).ok().says("started");
    redis(&machine, &["eval", "for i=1,20000,2 do redis.call('del', i) end", "0"]).ok();
    redis(&machine, &["get", "18"]).ok().says("xxxxxxxxxxxxxxxxxx");
    let query = "create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) \
        insert into t select i, hex(randomblob(50)) from n; create index x on t(b); select count(distinct b) from t;";
    for name in ["mimalloc", "guard"] {
        let ran = run(&unilith, &["--malloc", name, "sqlite", "--", ":memory:", query]);
        ran.ok().says("20000");
    }
    let script = "import threading, json\nt = [threading.Thread(target=lambda: [json.loads(json.dumps(list(range(500)))) for _ in range(20)]) \
        for _ in range(3)]\n[x.start() for x in t]; [x.join() for x in t]\nprint(len([str(i) * 200 for i in range(5000)]))";
    run(&unilith, &["--malloc", "buddy", "python", "--", "-c", script]).ok().says("5000");
}

#[test]
fn what_cannot_have_another_allocator_is_refused_with_the_reason() {
    let unilith = Unilith::new();
    let refused = |words: &[&str], says: &[&str]| {
        unilith.run(&[&["run", "--rm", "--network", "none"], words].concat()).fails_with(says);
    };
    refused(&["--set", "alloc.program=tlsf", "/bin/true"], &["add --static", "--malloc tlsf"]);
    refused(
        &["--set", "alloc.program=jemalloc", "/bin/true"],
        &["musl, tlsf, buddy, mimalloc, tiny, region, guard"],
    );
    refused(
        &["--static", "--malloc", "tlsf", "--set", "alloc.program=tiny", "/bin/true"],
        &["says another one"],
    );
    refused(
        &["--malloc", "tlsf", "--kernel", "linux", "/bin/true"],
        &["--malloc tlsf", "for the micro kernel"],
    );
    refused(
        &["--malloc", "tlsf", "--set", "volumes=off", "--set", "overlay=off", "/bin/true"],
        &["is a volume"],
    );
    unilith.run(&["build", "--malloc", "tlsf", "/bin/true"]).fails_with(&["build --malloc", "--static"]);
    if is_skipped_without_micro(MICRO) {
        return;
    }
    // A static program has no loader, and one with a malloc of its own would have two.
    let alone = compile(&unilith, &["gcc", "-static"], "left_out.c", &[]);
    refused(&["--malloc", "tlsf", &alone], &["linked statically", "CC='unilith cc'"]);
    let source = unilith.path("own.c");
    let text = "#include <stddef.h>\nstatic char all[4096]; static size_t at;\n\
        void *malloc(size_t size) { at += size; return all + at - size; }\nvoid free(void *block) { (void)block; }\n\
        int main(void) { free(malloc(10)); }\n";
    fs::write(&source, text).expect("the scratch directory can be written");
    let own = compile_to_link(&unilith, &source.display().to_string(), &["-fno-builtin"]);
    let ran = run(&unilith, &["--static", "--set", "alloc.program=tlsf", &own]);
    ran.fails_with(&["alloc.program=tlsf", "an allocator of its own (malloc, free)", "MALLOC=libc"]);
    run(&unilith, &["--static", &own]).ok();
}

#[test]
fn what_an_image_is_made_of_names_the_programs_allocator() {
    if is_skipped_without_micro(MICRO)
        || is_skipped(tested_machine() == "process", "build writes images of virtual machines")
    {
        return;
    }
    let unilith = Unilith::new();
    let program = compile_to_link(&unilith, "tests/programs/malloc.c", &UNWARNED);
    let folder = unilith.path("image").display().to_string();
    let flags =
        ["build", "--static", "--set", "alloc.program=buddy", "--network", "none", "-o", &folder, &program];
    finish(&mut unilith.command(&flags), BUILD_KERNEL).ok();
    let listed = unilith.run(&["size", "--functions", "--library", "libc_malloc", &folder]).ok().out;
    assert!(listed.contains("alloc_buddy::Buddy") && listed.contains("libc_malloc::blocks"), "{listed}");
    let edges = unilith.run(&["graph", "--format", "{{.From}} {{.To}}", &folder]).ok().out;
    assert!(edges.contains("(program) libc_malloc") && edges.contains("libc_malloc (C library)"), "{edges}");
}
