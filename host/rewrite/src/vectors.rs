// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which vector registers code uses: a kernel that saves only some of the program's must not touch the others.

use iced_x86::{CpuidFeature, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Register};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind};

/// True for XMM `first` and those above it, and for all state that is not an XMM register: upper halves, masks, MMX.
fn is_beyond(register: Register, first: usize) -> bool {
    if register.is_xmm() {
        register.number() >= first
    } else {
        register.is_vector_register() || register.is_mm() || register.is_k()
    }
}

/// The first use of a vector register from XMM `first` on, as one line, in any function of a linked file but those named.
/// Everything executable is decoded; what is no instruction counts as a use, for it says nothing.
pub fn vector_use(elf: &[u8], first: u8, except: &[&str]) -> Result<Option<String>, String> {
    let file = object::File::parse(elf).map_err(|e| format!("not an ELF file: {e}"))?;
    let mut symbols: Vec<(u64, &str)> = file
        .symbols()
        .filter_map(|s| Some((s.address(), s.name().ok()?)))
        .filter(|s| !s.1.is_empty())
        .collect();
    symbols.sort_unstable();
    let mut factory = InstructionInfoFactory::new();
    let mut instruction = Instruction::default();
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
        let (start, bytes) = (section.address(), section.data().map_err(|e| format!("no code: {e}"))?);
        let end = start + bytes.len() as u64;
        let inside = symbols.iter().filter(|s| (start..end).contains(&s.0));
        let mut pieces: Vec<(u64, &str)> = inside.copied().collect();
        if pieces.first().is_none_or(|p| p.0 > start) {
            pieces.insert(0, (start, "the beginning"));
        }
        for (i, &(from, name)) in pieces.iter().enumerate() {
            let to = pieces.get(i + 1).map_or(end, |next| next.0);
            // Several names of one place: all must be excepted, and the last one has the code.
            if from == to || except.contains(&name) {
                continue;
            }
            let code = &bytes[(from - start) as usize..(to - start) as usize];
            let mut decoder = Decoder::with_ip(64, code, from, DecoderOptions::NONE);
            while decoder.can_decode() {
                decoder.decode_out(&mut instruction);
                let at = instruction.ip();
                if instruction.is_invalid() {
                    return Ok(Some(format!("{name}: no instruction at {at:#x}")));
                }
                // The register stack of x87 is not among the registers an instruction names.
                if instruction.cpuid_features().contains(&CpuidFeature::FPU) {
                    return Ok(Some(format!("{name}: x87 at {at:#x}")));
                }
                let used = factory.info(&instruction).used_registers();
                if let Some(used) = used.iter().find(|u| is_beyond(u.register(), first.into())) {
                    return Ok(Some(format!("{name}: {:?} at {at:#x}", used.register())));
                }
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A file with this code.
    fn assemble(name: &str, source: &str) -> Vec<u8> {
        let base = std::env::temp_dir().join(format!("unilith-vectors-{}-{name}", std::process::id()));
        let (input, output) = (base.with_extension("s"), base.with_extension("o"));
        std::fs::write(&input, source).unwrap();
        let status = Command::new("cc").arg("-c").arg(&input).arg("-o").arg(&output).status();
        assert!(status.expect("a C compiler runs").success());
        let bytes = std::fs::read(&output).unwrap();
        for path in [&input, &output] {
            std::fs::remove_file(path).unwrap();
        }
        bytes
    }

    #[test]
    fn a_register_beyond_the_first_is_found_wherever_it_is() {
        for (name, used, line) in [
            ("high", true, "movups %xmm6, (%rdi)"),
            ("last", true, "pxor %xmm0, %xmm15"),
            ("low", false, "movaps %xmm5, %xmm0"),
            ("wide", true, "vpxor %ymm0, %ymm0, %ymm0"),
            ("upper", true, "vzeroupper"),
            ("mask", true, "kmovq %rax, %k1"),
            ("x87", true, "fld1"),
            ("none", false, "rep movsq"),
        ] {
            let elf = assemble(name, &format!("f:\nnop\nret\ng:\n{line}\nret\n"));
            let found = vector_use(&elf, 6, &[]).unwrap();
            assert_eq!(found.is_some(), used, "{line}: {found:?}");
            assert!(found.is_none_or(|f| f.starts_with("g: ")));
            assert_eq!(vector_use(&elf, 6, &["g"]).unwrap(), None, "{line}");
        }
    }

    #[test]
    fn what_is_no_instruction_is_not_passed_over() {
        let elf = assemble("broken", "f:\nret\n.byte 0x06\n");
        assert!(vector_use(&elf, 6, &[]).unwrap().is_some());
        assert!(vector_use(b"nothing", 6, &[]).is_err());
    }
}
