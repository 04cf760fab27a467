// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Object files of clang (package clang), as a user compiles them with the SDK's header.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use api_probes::Kind;
use bpf::context::Context;
use bpf::maps;
use std::{fs, path::Path, process::Command};
use unilith_trace::{Script, objects, report::Report};

/// Compiles with these words behind the usual ones.
fn compile(name: &str, source: &str, more: &[&str]) -> Vec<u8> {
    let folder = std::env::temp_dir().join(format!("unilith-objects-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (from, to) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.o")));
    fs::write(&from, source).unwrap();
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../overlay/include");
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-g", "-O2", "-Wall", "-Werror", "-I"]).arg(include).args(more);
    let status = clang.arg("-c").arg(&from).arg("-o").arg(&to).status();
    assert!(status.is_ok_and(|s| s.success()), "clang (package clang) does not compile {name}.c");
    let bytes = fs::read(&to).unwrap();
    fs::remove_file(to).unwrap();
    fs::remove_file(from).unwrap();
    bytes
}

fn read(name: &str, source: &str) -> Result<Script, String> {
    let address = |name: &str| (name == "server").then_some(0x5555_5555_0000);
    let script = objects::read(&compile(name, source, &[]), &address)?;
    script.verify()?;
    Ok(script)
}

const COUNTING: &str = r#"
#include <unilith/bpf.h>
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, __u64);
    __type(value, __u64);
} lengths SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} events SEC(".maps");
__u64 calls;
int most = 7;
extern int server __ksym;

static __attribute__((noinline)) void count(__u64 key) {
    __u64 one = 1, *seen = bpf_map_lookup_elem(&lengths, &key);
    if (seen)
        __sync_fetch_and_add(seen, 1);
    else
        bpf_map_update_elem(&lengths, &key, &one, BPF_ANY);
}

SEC("entry/createStringObject") int on_string(struct pt_regs *ctx) {
    calls++;
    if (ARG1(ctx) > most)
        most = ARG1(ctx);
    count(ARG1(ctx));
    bpf_printk("len %d of %s", ARG1(ctx), ARG0(ctx));
    return 0;
}

SEC("return/kernel:alloc") int on_return(struct pt_regs *ctx) {
    int port = 0;
    bpf_probe_read(&port, sizeof(port), &server);
    __u64 *record = bpf_ringbuf_reserve(&events, 8, 0);
    if (record) {
        *record = RESULT(ctx) + port;
        bpf_ringbuf_submit(record, 0);
    }
    return 0;
}

SEC("tp/raw_syscalls/sys_enter") int on_call(struct trace_event_raw_sys_enter *ctx) {
    count(ctx->args[1]);
    return 0;
}

SEC("tp/net/receive") int on_frame(struct unilith_packet *ctx) {
    unsigned char *bytes = ctx->data;
    if (bytes + 14 > (unsigned char *)ctx->data_end)
        return 0;
    count(bytes[12] << 8 | bytes[13]);
    return 0;
}
"#;

#[test]
fn programs_maps_globals_functions_and_symbols_are_read_and_verified() {
    let script = read("counting", COUNTING).unwrap_or_else(|e| panic!("{e}"));
    let places: Vec<(Kind, &str)> = script.places.iter().map(|p| (p.kind, p.name.as_str())).collect();
    assert_eq!(
        places,
        [
            (Kind::Entry, "createStringObject"),
            (Kind::Return, "kernel:alloc"),
            (Kind::Tracepoint, "raw_syscalls:sys_enter"),
            (Kind::Tracepoint, "net:receive"),
        ]
    );
    let contexts: Vec<Context> = script.bundle.programs.iter().map(|p| p.context).collect();
    assert_eq!(contexts, [Context::Registers, Context::Registers, Context::CallEntry, Context::Packet]);
    let map = |name: &str| script.bundle.maps.iter().find(|m| m.name == name).unwrap();
    assert_eq!((map("lengths").key, map("lengths").value, map("lengths").entries), (8, 8, 1024));
    assert_eq!(map("events").kind, maps::Kind::RingBuffer);
    assert_eq!(map(".data").initial, 7i32.to_le_bytes());
    let variables = script.reports.iter().find_map(|r| match r {
        Report::Variables { map, variables } if map == ".bss" => Some(variables),
        _ => None,
    });
    assert_eq!(variables.unwrap()[0].name, "calls");
    assert_eq!(bpf::Bundle::decode(&script.bundle.encode()), Ok(script.bundle));
}

/// A program for Linux, with a structure of its own whose members lie elsewhere: names decide (CO-RE).
#[test]
fn members_of_contexts_are_found_by_their_names() {
    let source = r#"
#define SEC(name) __attribute__((section(name), used))
struct trace_event_raw_sys_exit {
    long ret; /* not where the machine has it */
    long nowhere;
} __attribute__((preserve_access_index));
SEC("tp/raw_syscalls/sys_exit") int on(struct trace_event_raw_sys_exit *ctx) {
    if (__builtin_preserve_field_info(ctx->nowhere, 2))
        return ctx->nowhere;
    return ctx->ret;
}
"#;
    let script = read("moved", source).unwrap_or_else(|e| panic!("{e}"));
    // As the offset of a load, or added to the pointer before it.
    let insns = &script.bundle.programs[0].insns;
    assert!(insns.iter().any(|i| i.off == 16 || i.imm == 16), "{insns:?}");
    let unasked = source.replace("if (__builtin_preserve_field_info(ctx->nowhere, 2))", "if (ctx->ret == 3)");
    let why = read("unasked", &unasked).unwrap_err();
    assert!(why.contains("a member that the context has not"), "{why}");
}

#[test]
fn what_cannot_be_used_is_refused_in_words() {
    let program = |section: &str, body: &str| {
        format!(
            "#include <unilith/bpf.h>\nextern int nowhere __ksym; extern void elsewhere(void);\n\
             SEC(\"{section}\") int on(struct pt_regs *ctx) {{ {body} }}"
        )
    };
    let map = "#include <unilith/bpf.h>\nstruct { __uint(type, 4); __uint(max_entries, 4); __type(key, int); \
               __type(value, int); } m SEC(\".maps\");\nSEC(\"entry/f\") int on(void *c) \
               { int k = 0; return bpf_map_lookup_elem(&m, &k) != 0; }";
    for (name, source, why) in [
        ("where", program("entry", "return 0;"), "does not say where"),
        ("what", program("xdp/f", "return 0;"), "SEC(\"xdp/f\") has no meaning here"),
        ("point", program("tp/a/b", "return 0;"), "there is no tracepoint a:b"),
        ("symbol", program("entry/f", "return (long)&nowhere;"), "there is no symbol nowhere"),
        ("call", program("entry/f", "elsewhere(); return 0;"), "it calls elsewhere"),
        ("null", program("entry/f", "return *(volatile int *)0;"), "not a pointer"),
        ("kind", map.to_string(), "map m has type 4"),
        ("none", "int x;".to_string(), "no programs are in it"),
    ] {
        let error = read(name, &source).unwrap_err();
        assert!(error.contains(why), "{name}: {error}");
    }
    let other = compile("other", "int f(void) { return 0; }", &["-target", "x86_64-linux-gnu"]);
    assert!(objects::read(&other, &|_| None).unwrap_err().contains("not for eBPF"));
    assert!(objects::read(b"#!/bin/sh", &|_| None).unwrap_err().contains("not an object file"));
}

/// What the verifier says of programs that a user of clang gets wrong: where, and what could happen.
#[test]
fn programs_that_are_not_safe_are_refused_with_the_instruction_and_the_danger() {
    let program = |body: &str| {
        format!(
            "#include <unilith/bpf.h>\n\
             struct {{ __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 8); __type(key, __u64); __type(value, __u64); }} m \
             SEC(\".maps\");\n\
             struct {{ __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); }} ring SEC(\".maps\");\n\
             __u64 table[4]; volatile int turn;\n\
             SEC(\"entry/f\") int on(struct pt_regs *ctx) {{ __u64 key = ARG1(ctx), *value = 0; (void)key, (void)value; {body} return 0; }}"
        )
    };
    for (name, body, why) in [
        ("endless", "for (;;) turn++;", "a loop without end"),
        ("unbounded", "for (__u64 i = 0; i < key; i++) turn++;", "not proved to end within"),
        ("spinning", "for (;;) {}", "a loop without end"),
        ("bounds", "table[key] = 1;", "check its bounds before"),
        ("behind", "table[key & 7] = 1;", "would touch bytes 0 to 63"),
        ("null", "value = bpf_map_lookup_elem(&m, &key); return *value;", "may be null"),
        (
            "leak",
            "value = bpf_map_lookup_elem(&m, &key); if (value) *value = (__u64)ctx;",
            "where others can see it",
        ),
        ("context", "*(volatile __u64 *)ctx = 1;", "the context, which is read-only"),
        (
            "size",
            "char to[16]; bpf_probe_read(to, key, (void *)key);",
            "check its upper bound before the call",
        ),
        ("record", "if (bpf_ringbuf_reserve(&ring, 8, 0)) turn++;", "neither submitted nor discarded"),
        ("number", "return *(volatile int *)key;", "not a pointer"),
    ] {
        let error = read(name, &program(body)).unwrap_err();
        assert!(error.contains("instruction ") && error.contains(why), "{name}: {error}");
    }
}

/// `UNILITH_FUZZ_ROUNDS` damaged files, a few thousand without it.
#[test]
fn any_damage_is_refused_or_leads_to_programs_that_are_verified_or_refused() {
    let good = compile("damaged", COUNTING, &[]);
    let rounds = std::env::var("UNILITH_FUZZ_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3000u64);
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize % below
    };
    for _ in 0..rounds {
        let mut bad = good.clone();
        for _ in 0..=random(6) {
            let at = random(bad.len());
            bad[at] = random(256) as u8;
        }
        if random(8) == 0 {
            bad.truncate(random(bad.len()));
        }
        if let Ok(script) = objects::read(&bad, &|_| Some(0x1000)) {
            // Whether it passes or not, it comes to an end.
            let _ = script.verify();
        }
    }
}
