// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Snippets as compilers make them, assembled, changed and looked at with a decoder; and all of Debian's glibc.

use super::*;
use crate::archive::{Member, rewrite};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, Register};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget};
use std::process::Command;

/// A function `f` with this body as an object.
fn assembled(body: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("f.s"), folder.path().join("f.o"));
    let text = format!(".text\n.globl f\n.type f,@function\nf:\n{body}\nret\n.size f,.-f\n");
    std::fs::write(&source, text).unwrap();
    assert!(Command::new("gcc").arg("-c").arg(&source).arg("-o").arg(&object).status().unwrap().success());
    std::fs::read(object).unwrap()
}

fn changed(body: &str) -> (Connected, Vec<u8>) {
    let done = connect(&assembled(body), "f.o", ANY).unwrap();
    let object = done.object.clone().expect("it makes a call");
    (done, object)
}

/// The names of the kernel's functions that an object refers to, in the order of their places.
fn functions(object: &[u8]) -> Vec<String> {
    let file = object::File::parse(object).unwrap();
    let text = file.section_by_name(".text").unwrap();
    let name = |target| match target {
        RelocationTarget::Symbol(index) => file.symbol_by_index(index).unwrap().name().unwrap().to_string(),
        other => panic!("{other:?}"),
    };
    text.relocations().map(|(_, r)| name(r.target())).filter(|name| name.starts_with(KEPT)).collect()
}

/// What is executed from the beginning of `f` on, with jumps followed, up to where the kernel is entered and behind it to `ret`.
fn executed(object: &[u8]) -> Vec<Instruction> {
    let file = object::File::parse(object).unwrap();
    let text = file.section_by_name(".text").unwrap().data().unwrap().to_vec();
    let (mut at, mut next, mut out) = (0, None, Vec::new());
    for _ in 0..100 {
        let i = Decoder::with_ip(64, &text[at as usize..], at, DecoderOptions::NONE).decode();
        out.push(i);
        at = match i.mnemonic() {
            Mnemonic::Ret => return out,
            Mnemonic::Lea if i.op0_register() == Register::RCX => {
                next = Some(i.ip_rel_memory_address());
                i.next_ip()
            }
            Mnemonic::Jmp if i.op0_register() == Register::R11 => next.take().expect("a return address"),
            Mnemonic::Jmp => i.near_branch_target(),
            Mnemonic::Int3 | Mnemonic::Syscall => panic!("{:?} at {at:#x}", i.mnemonic()),
            _ => i.next_ip(),
        };
    }
    panic!("no end");
}

#[test]
fn a_call_becomes_a_jump_that_comes_back_behind_it() {
    let (done, object) = changed("push %rbx\nmov $39,%eax\nsyscall\nmov %rax,%rbx\npop %rbx");
    assert_eq!((done.calls, done.unknown.len(), done.left.len()), (1, 0, 0));
    assert_eq!(functions(&object), ["unilith_kept_39"]);
    let seen: Vec<Mnemonic> = executed(&object).iter().map(|i| i.mnemonic()).collect();
    use Mnemonic::{Jmp, Lea, Mov, Pop, Push, Ret};
    assert_eq!(seen, [Push, Jmp, Mov, Lea, Mov, Jmp, Mov, Pop, Ret]);
}

#[test]
fn a_call_without_room_before_it_takes_what_is_behind_along() {
    // Something jumps to the call itself.
    let body =
        "mov $1,%eax\ntest %edi,%edi\njz 1f\nmov $1,%eax\n1: syscall\ncmp $-4096,%rax\nlea 1(%rax),%rbx";
    let (done, object) = changed(body);
    assert_eq!((done.calls, done.left.len()), (1, 0));
    assert_eq!(functions(&object), ["unilith_kept_1"]);
    let seen: Vec<Mnemonic> = executed(&object).iter().map(|i| i.mnemonic()).collect();
    use Mnemonic::{Cmp, Je, Jmp, Lea, Mov, Ret, Test};
    // The decoder follows no condition: it is the way that does not branch.
    assert_eq!(seen, [Mov, Test, Je, Mov, Jmp, Lea, Mov, Jmp, Cmp, Jmp, Lea, Ret]);
}

#[test]
fn a_number_is_found_through_copies_branches_and_loops_and_never_guessed() {
    let one = |body: &str| functions(&changed(body).1);
    // Out of a loop, in another register, kept by a call.
    let body = "mov $202,%r12d\n1: xor %edx,%edx\nmov %r12d,%eax\nsyscall\ncall g\ntest %eax,%eax\njnz 1b";
    assert_eq!(one(body), ["unilith_kept_202"]);
    // A call loses it.
    let body = "mov $202,%r9d\n1: xor %edx,%edx\nmov %r9d,%eax\nsyscall\ncall g\ntest %eax,%eax\njnz 1b";
    assert_eq!(one(body), ["unilith_kept_any"]);
    // One that does not return loses nothing.
    let body = "mov $202,%r9d\njmp 1f\ncall abort\n1: xor %edx,%edx\nmov %r9d,%eax\nsyscall";
    assert_eq!(one(body), ["unilith_kept_202"]);
    // What aligns a target of branches is executed by nobody, also behind a call that does not return.
    let body = "mov $202,%r9d\njmp 1f\nnopw 0(%rax,%rax,1)\n1: mov %r9d,%eax\nsyscall\njz 2f\njmp 1b\ncall abort\nxchg %ax,%ax\n\
        2: mov %r9d,%eax\nxor %esi,%esi\nsyscall\njmp 2b";
    assert_eq!(one(body), ["unilith_kept_202", "unilith_kept_202"]);
    // A NOP that is reached is a way like any other.
    let body = "mov $1,%r9d\njz 1f\nmov $2,%r9d\nnop\n1: mov %r9d,%eax\nsyscall";
    assert_eq!(one(body), ["unilith_kept_any"]);
    // Two ways, two numbers.
    let body = "mov $1,%edx\ntest %edi,%edi\njz 1f\nmov $2,%edx\n1: mov %edx,%eax\nxor %esi,%esi\nsyscall";
    assert_eq!(one(body), ["unilith_kept_any"]);
    // An argument; one that there is no call of; a part of a register.
    for body in [
        "mov %rdi,%rax\nmov %rsi,%rdi\nsyscall",
        "mov $99999,%eax\nsyscall",
        "mov $1,%eax\nmov %dil,%al\nsyscall",
    ] {
        assert_eq!(one(body), ["unilith_kept_any"], "{body}");
    }
}

#[test]
fn a_call_of_syscall_with_a_constant_gets_a_function_for_that_call_alone() {
    let of = |body: &str| {
        let done = connect(&assembled(body), "f.o", ANY).unwrap();
        let object = done.object.clone().unwrap_or_else(|| assembled(body));
        let file = object::File::parse(&object[..]).unwrap();
        let text = file.section_by_name(".text").unwrap();
        let name = |target| match target {
            RelocationTarget::Symbol(index) => {
                file.symbol_by_index(index).unwrap().name().unwrap().to_string()
            }
            other => panic!("{other:?}"),
        };
        let names: Vec<String> = text.relocations().map(|(_, r)| name(r.target())).collect();
        (done.functions, names)
    };
    assert_eq!(
        of("mov $202,%edi\nxor %eax,%eax\ncall syscall@PLT"),
        (1, vec!["unilith_libc_syscall_202".into()])
    );
    // The last call of a function, beside a call by the instruction and one of another function.
    let body = "mov $39,%eax\nsyscall\ncall syscalls\nmov $186,%edi\njmp syscall";
    let names = ["unilith_kept_39", "syscalls", "unilith_libc_syscall_186"];
    let (count, mut seen) = of(body);
    seen.sort_by_key(|name| names.iter().position(|known| known == name));
    assert_eq!((count, seen), (1, names.map(String::from).to_vec()));
    for body in ["call syscall", "mov $99999,%edi\ncall syscall", "lea syscall(%rip),%rax"] {
        assert_eq!(of(body), (0, vec!["syscall".into()]), "{body}");
    }
}

#[test]
fn a_relocation_moves_with_its_instruction() {
    let (_, object) = changed("mov $14,%eax\nlea message(%rip),%rsi\nsyscall");
    let file = object::File::parse(&object[..]).unwrap();
    let text = file.section_by_name(".text").unwrap();
    let code = text.data().unwrap();
    let mut seen = 0;
    for (place, relocation) in text.relocations() {
        let RelocationTarget::Symbol(index) = relocation.target() else { panic!("{relocation:?}") };
        if file.symbol_by_index(index).unwrap().name() == Ok("message") {
            // The instruction's first bytes are before its displacement.
            assert_eq!(code[place as usize - 3..place as usize], [0x48, 0x8d, 0x35]);
            seen += 1;
        }
    }
    assert_eq!(seen, 1);
}

#[test]
fn the_bytes_of_a_call_in_an_immediate_or_in_data_stay() {
    let object = assembled("mov $0x050f,%eax");
    assert_eq!(connect(&object, "f.o", ANY).unwrap().object, None);
    let object = assembled("jmp 1f\n.size f,.-f\ntable: .byte 0x0f,0x05\n.type g,@object\n1:");
    assert_eq!(connect(&object, "f.o", ANY).unwrap().calls, 0);
}

#[test]
fn damage_is_an_error_and_no_panic() {
    let object = assembled("mov $39,%eax\nsyscall\nmov $1,%eax\nsyscall");
    for end in 0..object.len() {
        let _ = connect(&object[..end], "damaged", ANY);
    }
    for at in 0..object.len() {
        for value in [0, 0xff] {
            let mut damaged = object.clone();
            damaged[at] = value;
            let _ = connect(&damaged, "damaged", ANY);
        }
    }
}

#[test]
fn all_calls_of_debians_glibc_are_connected_and_nearly_all_by_number() {
    let ask = Command::new("gcc").arg("-print-file-name=libc.a").output().unwrap();
    let path = String::from_utf8(ask.stdout).unwrap();
    let bytes = std::fs::read(path.trim()).expect("libc6-dev is installed");
    let folder = tempfile::tempdir().unwrap();
    let to = folder.path().join("libc.a");
    let (mut calls, mut unknown) = (0, Vec::new());
    rewrite(&bytes, &to, Vec::new(), |name, data| {
        let done = connect(data, name, ANY)?;
        assert!(done.left.is_empty(), "{name}: {:?}", done.left);
        calls += done.calls;
        unknown.extend(done.unknown.iter().map(|function| format!("{name}: {function}")));
        Ok(done.object.map_or(Member::Kept, Member::Changed))
    })
    .unwrap();
    assert!(calls > 500, "{calls}");
    let is_known = |place: &str| place == "syscall.o: syscall" || place.starts_with("nptl_setxid.o: ");
    assert!(unknown.iter().all(|place| is_known(place)), "{unknown:#?}");
    // Every tool can read it: none says anything.
    let listed = Command::new("objdump").arg("-dr").arg(&to).output().unwrap();
    assert!(
        listed.status.success() && listed.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&listed.stderr)
    );
    let text = String::from_utf8_lossy(&listed.stdout);
    assert!(!text.contains("\tsyscall"), "a call is left");
}

/// The kernel's functions as a program of Linux can have them: each makes the call, and keeps what it keeps.
fn stand_ins() -> String {
    /// clone, munmap, exit, clone3: RSP is another afterwards, or leads nowhere. vfork: the parent's stack is the child's.
    const WITHOUT_STACK: [u32; 5] = [56, 11, 60, 435, 58];
    const RT_SIGRETURN: u32 = 15;
    let mut text = String::from(".section .note.GNU-stack,\"\",@progbits\n.text\n");
    for row in syscall_table::ROWS {
        let number = row.number;
        // A vector register that compilers take last.
        let (before, after) = match number {
            RT_SIGRETURN => ("", "hlt"),
            _ if WITHOUT_STACK.contains(&number) => ("movq %rcx,%xmm15", "movq %xmm15,%rcx"),
            _ => ("lea -128(%rsp),%rsp\n push %rcx", "pop %rcx\n lea 128(%rsp),%rsp"),
        };
        text += &format!(
            ".globl {KEPT}{number}, unilith_syscall_{number}\n{KEPT}{number}:\nunilith_syscall_{number}:\n {before}\n mov ${number},%eax\n syscall\n {after}\n jmp *%rcx\n"
        );
    }
    text + &format!(
        ".globl {KEPT}any\n{KEPT}any:\n lea -128(%rsp),%rsp\n push %rcx\n syscall\n pop %rcx\n lea 128(%rsp),%rsp\n jmp *%rcx\n"
    )
}

#[test]
fn a_program_of_changed_glibc_does_on_linux_what_it_does_with_debians() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let gcc = |words: &[&str]| {
        let ran = Command::new("gcc").current_dir(folder.path()).args(words).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    };
    let archive = std::fs::read(gcc(&["-print-file-name=libc.a"]).trim()).expect("libc6-dev is installed");
    crate::glibc::connect_libc(&archive, folder.path()).unwrap();
    std::fs::write(path("kept.s"), stand_ins()).unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs/glibc.c");
    gcc(&["-O2", "-fno-pie", "-c", "-o", "program.o", source]);
    let own = connect(&std::fs::read(path("program.o")).unwrap(), "program.o", ANY).unwrap();
    assert!(own.calls >= 2 && own.functions == 4 && own.unknown.is_empty(), "{own:?}");
    std::fs::write(path("changed.o"), own.object.unwrap()).unwrap();
    gcc(&["-static", "-no-pie", "-o", "debians", "program.o", "-lm"]);
    let link = "-static -no-pie -nodefaultlibs -o changed changed.o kept.s -lm -Wl,--start-group libc.a -lgcc -lgcc_eh -Wl,--end-group";
    gcc(&link.split(' ').collect::<Vec<_>>());
    let run = |name: &str| {
        let ran = Command::new("timeout").arg("120").arg(path(name)).arg("words").output().unwrap();
        (ran.status.code(), String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    let (debians, changed) = (run("debians"), run("changed"));
    assert!(debians.0 == Some(5) && debians.1.contains("cancelled: 1\n"), "{debians:?}");
    assert_eq!(changed, debians);
}
