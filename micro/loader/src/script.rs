// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first line of a script (fs/binfmt_script.c).

use abi::{Result, errno::ENOEXEC};
use alloc::vec::Vec;

/// Bytes of a file that are looked at (BINPRM_BUF_SIZE).
pub(crate) const LOOKED_AT: usize = 256;

/// Interpreter and its one optional argument.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FirstLine {
    pub interpreter: Vec<u8>,
    pub argument: Option<Vec<u8>>,
}

/// Reads `#!interpreter argument` from the start of a file, which ends in zeros when the file is shorter; `None` when it does not start
/// with `#!`. `ENOEXEC` when there is no interpreter, or its name may go on behind what was read.
pub(crate) fn first_line(start: &[u8; LOOKED_AT]) -> Result<Option<FirstLine>> {
    if !start.starts_with(b"#!") {
        return Ok(None);
    }
    let last = LOOKED_AT - 1;
    let is_blank = |at: &usize| matches!(start[*at], b' ' | b'\t');
    let word_from = |first: usize, last: usize| (first..=last).find(|at| !is_blank(at));
    let end_from = |first: usize, last: usize| (first..=last).find(|at| is_blank(at) || start[*at] == 0);
    // A line ends with its newline. One that is not there, or stands behind a NUL, lets all that was read be the line.
    let mut end = match start.iter().position(|byte| matches!(byte, 0 | b'\n')) {
        Some(at) if start[at] == b'\n' => at,
        _ => {
            let name = word_from(2, last).ok_or(ENOEXEC)?;
            end_from(name, last).ok_or(ENOEXEC)?;
            last
        }
    };
    while is_blank(&(end - 1)) {
        end -= 1;
    }
    let name = word_from(2, end).filter(|name| *name != end).ok_or(ENOEXEC)?;
    let behind = end_from(name, end).filter(|at| start[*at] != 0);
    // That of a line without a newline begins even at the zeros behind the blanks: it is empty then.
    let argument = behind.and_then(|at| word_from(at, end));
    let text =
        |from: usize, to: usize| start[from..to].split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
    let name_end = behind.filter(|_| argument.is_some()).unwrap_or(end);
    Ok(Some(FirstLine { interpreter: text(name, name_end), argument: argument.map(|from| text(from, end)) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn padded(text: &[u8]) -> [u8; LOOKED_AT] {
        core::array::from_fn(|at| text.get(at).copied().unwrap_or(0))
    }

    fn read(text: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        first_line(&padded(text)).unwrap().map(|l| (l.interpreter, l.argument))
    }

    #[test]
    fn an_interpreter_has_at_most_one_argument() {
        assert_eq!(read(b"#!/bin/sh\nx"), Some((b"/bin/sh".to_vec(), None)));
        assert_eq!(read(b"#! /bin/sh"), Some((b"/bin/sh".to_vec(), None)));
        let env = (b"/usr/bin/env".to_vec(), Some(b"-S python3 -u".to_vec()));
        assert_eq!(read(b"#!/usr/bin/env  -S python3 -u \t\n"), Some(env));
        assert_eq!(read(b"#!/bin/sh -e\r\n"), Some((b"/bin/sh".to_vec(), Some(b"-e\r".to_vec()))));
        assert_eq!(read(b"echo"), None);
        assert_eq!(first_line(&padded(b"#!  \n/bin/sh")), Err(ENOEXEC));
        assert_eq!(first_line(&padded(b"#!\n")), Err(ENOEXEC));
        assert_eq!(first_line(&[b' '; LOOKED_AT]), Ok(None));
        let mut long = [b'x'; LOOKED_AT];
        long[..2].copy_from_slice(b"#!");
        assert_eq!(first_line(&long), Err(ENOEXEC));
        long[LOOKED_AT - 1] = b' ';
        assert_eq!(read(&long).unwrap().0.len(), LOOKED_AT - 3);
    }

    #[test]
    fn a_line_without_its_newline_goes_on_to_the_end_of_what_was_read() {
        assert_eq!(read(b"#!"), Some((Vec::new(), None)), "a file without a name is looked for");
        assert_eq!(read(b"#!/bin/sh "), Some((b"/bin/sh".to_vec(), Some(Vec::new()))));
        assert_eq!(read(b"#!/bin/sh -e  "), Some((b"/bin/sh".to_vec(), Some(b"-e  ".to_vec()))));
        assert_eq!(read(b"#!/bin/sh\0 -e\n"), Some((b"/bin/sh".to_vec(), None)));
        assert_eq!(read(b"#!/bin/sh -e\0x\n"), Some((b"/bin/sh".to_vec(), Some(b"-e".to_vec()))));
    }
}
