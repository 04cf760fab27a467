// SPDX-License-Identifier: Apache-2.0 OR MIT
//! LLVM's bitcode of a program, which `unilith cc --lto` keeps beside the machine code of each object.

use crate::{Result, StaticError};
use object::{Object as _, ObjectSection as _};

/// The section of an object with the bitcode that its code was made of. A linker puts those of several objects behind each other.
pub(crate) const SECTION: &str = ".llvmbc";
/// What a module begins with (LLVM Bitcode File Format, "Magic Numbers").
const MAGIC: [u8; 4] = [b'B', b'C', 0xc0, 0xde];
/// The only word that begins something else at this level: ENTER_SUBBLOCK, which an abbreviation of two bits says.
const ENTER_SUBBLOCK: u8 = 1;
const WORD: usize = 4;

/// The modules in the objects of a program.
pub fn modules(objects: &[u8]) -> Result<Vec<Vec<u8>>> {
    let file = object::File::parse(objects).map_err(|e| StaticError::new(e.to_string()))?;
    let section = file.section_by_name(SECTION).ok_or_else(|| {
        StaticError::new("the program has no bitcode to optimise: build it with CC='unilith cc --lto'")
    })?;
    let bytes = section.data().map_err(|e| StaticError::new(e.to_string()))?;
    split(bytes).ok_or_else(|| {
        StaticError::new("the program's bitcode is damaged: build the program again with `unilith cc --lto`")
    })
}

/// Takes a sequence of modules apart; `None` for anything else.
fn split(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut modules: Vec<Vec<u8>> = Vec::new();
    while let Some(word) = bytes.first_chunk::<WORD>() {
        let length = if *word == MAGIC {
            modules.push(Vec::new());
            WORD
        } else if *word == [0; WORD] {
            // Between two objects.
            bytes = &bytes[WORD..];
            continue;
        } else {
            // A block: its number and the width of its abbreviations, then its length in words.
            if word[0] & 3 != ENTER_SUBBLOCK {
                return None;
            }
            let length = u32::from_le_bytes(*bytes.get(WORD..)?.first_chunk()?) as usize;
            length.checked_mul(WORD)?.checked_add(2 * WORD)?
        };
        modules.last_mut()?.extend_from_slice(bytes.get(..length)?);
        bytes = &bytes[length..];
    }
    (bytes.is_empty() && modules.iter().all(|module| module.len() > WORD)).then_some(modules)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module with a block of so many words.
    fn module(words: u8) -> Vec<u8> {
        let block = [0x35, 0x14, 0, 0, words, 0, 0, 0];
        [&MAGIC[..], &block, &vec![0xee; usize::from(words) * WORD]].concat()
    }

    #[test]
    fn modules_behind_each_other_are_told_apart() {
        let (first, second) = (module(3), [module(1), module(2)[WORD..].to_vec()].concat());
        let padded = [&first[..], &[0; 4], &second].concat();
        assert_eq!(split(&padded), Some(vec![first.clone(), second.clone()]));
        assert_eq!(split(&[]), Some(vec![]));
    }

    #[test]
    fn what_is_cut_off_or_no_bitcode_is_refused() {
        let whole = module(3);
        for length in 1..whole.len() {
            assert_eq!(split(&whole[..length]), None, "{length}");
        }
        assert_eq!(split(b"\x7fELF, not bitcode"), None);
        // A block without a module, and a length beyond all memory.
        assert_eq!(split(&whole[WORD..]), None);
        let endless = [&MAGIC[..], &[0x35, 0x14, 0, 0, 0xff, 0xff, 0xff, 0xff]].concat();
        assert_eq!(split(&endless), None);
    }
}
