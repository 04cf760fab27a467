// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans of probes: the moved instructions do what the original ones did, and what cannot be moved is refused in words.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod common;

use api_probes::Plan;
use common::{BASE, CODE, assemble_at, elf};
use iced_x86::code_asm::*;
use iced_x86::{Decoder, DecoderOptions, IcedError};
use unilith_rewrite::probe::Prober;

const START: u64 = BASE + CODE;

fn plan(build: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>) -> Result<Plan, String> {
    let file = elf(&assemble_at(START, build));
    Prober::new(&file)?.plan(START)
}

/// The text of the moved instructions, at a place far away.
fn moved(plan: &Plan) -> Vec<String> {
    let place = START + 0x10_0000;
    let code = plan.code_at(START, place).unwrap();
    let decoder = Decoder::with_ip(64, &code, place, DecoderOptions::NONE);
    decoder.into_iter().map(|i| format!("{:?} {:#x}", i.mnemonic(), target(&i))).collect()
}

fn target(i: &iced_x86::Instruction) -> u64 {
    match i.is_ip_rel_memory_operand() {
        true => i.ip_rel_memory_address(),
        false => i.near_branch_target(),
    }
}

#[test]
fn whole_instructions_move_and_operands_lead_where_they_did() {
    let plan = plan(|a| {
        let mut data = a.create_label();
        a.push(rbp)?;
        a.lea(rax, ptr(data))?;
        a.ret()?;
        a.set_label(&mut data)?;
        a.nop()
    });
    let plan = plan.unwrap();
    assert_eq!(plan.original.len(), 8);
    assert_eq!(plan.boundaries, [(1, 1)]);
    assert_eq!(moved(&plan), ["Push 0x0".to_string(), format!("Lea {:#x}", START + 9)]);
}

#[test]
fn short_jumps_become_near_ones() {
    let plan = plan(|a| {
        let mut away = a.create_label();
        a.test(edi, edi)?;
        a.je(away)?;
        a.cmp(edi, 3)?;
        a.ret()?;
        a.set_label(&mut away)?;
        a.ret()
    });
    let plan = plan.unwrap();
    assert_eq!(plan.original.len(), 7);
    assert_eq!(plan.moved.len(), 11);
    assert_eq!(plan.boundaries, [(2, 2), (4, 8)]);
    assert_eq!(moved(&plan), ["Test 0x0".into(), format!("Je {:#x}", START + 8), "Cmp 0x0".to_string()]);
}

#[test]
fn a_function_that_is_only_a_jump_moves_whole() {
    let plan = plan(|a| {
        a.jmp(START + 0x4000)?;
        a.nop()
    });
    assert_eq!(moved(&plan.unwrap()), [format!("Jmp {:#x}", START + 0x4000)]);
}

#[test]
fn what_cannot_be_probed_is_refused_in_words() {
    let short = plan(|a| {
        a.mov(eax, edi)?;
        a.ret()?;
        a.nops_with_size(16)
    });
    assert!(short.unwrap_err().contains("it ends after 3 bytes, and a jump takes 5"));
    let call = plan(|a| {
        a.call(START + 0x40)?;
        a.ret()
    });
    assert!(call.unwrap_err().contains("hold a call"));
    let loop_start = plan(|a| {
        a.push(rbx)?;
        let mut again = a.create_label();
        a.set_label(&mut again)?;
        a.dec(edi)?;
        a.mov(eax, 7)?;
        a.jne(again)?;
        a.ret()
    });
    assert!(loop_start.unwrap_err().contains("leads into its first 5 bytes"));
    let counted = plan(|a| {
        let mut here = a.create_label();
        a.mov(ecx, edi)?;
        a.set_label(&mut here)?;
        a.loop_(here)?;
        a.nops_with_size(9)
    });
    assert!(counted.unwrap_err().contains("cannot be moved"));
    let nothing = elf(&[0x06, 0x06, 0x06, 0x06, 0x06, 0x06]);
    assert!(Prober::new(&nothing).unwrap().plan(START).unwrap_err().contains("no instructions"));
    assert!(Prober::new(&nothing).unwrap().plan(7).unwrap_err().contains("not in the code"));
}

#[test]
fn every_function_of_a_real_library_is_planned_or_refused_and_plans_are_sound() {
    let file = std::fs::read("/lib/x86_64-linux-gnu/libm.so.6").unwrap();
    let prober = Prober::new(&file).unwrap();
    use object::{Object, ObjectSymbol};
    let symbols = object::File::parse(&*file).unwrap();
    let (mut planned, mut refused) = (0, 0);
    for symbol in
        symbols.dynamic_symbols().filter(|s| s.is_definition() && s.kind() == object::SymbolKind::Text)
    {
        match prober.plan(symbol.address()) {
            Ok(plan) => {
                planned += 1;
                let package = api_probes::Package {
                    bundle: Vec::new(),
                    attachments: vec![api_probes::Attachment {
                        program: 0,
                        kind: api_probes::Kind::Entry,
                        name: "f".into(),
                        address: symbol.address(),
                        plan,
                    }],
                };
                // Decoding checks that a plan is sound.
                assert_eq!(api_probes::Package::decode(&package.encode()), Some(package));
            }
            Err(_) => refused += 1,
        }
    }
    assert!(planned > 4 * refused, "{planned} functions can be probed and {refused} cannot");
}
