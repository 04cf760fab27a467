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

/// Reads `#!interpreter argument` from the start of a file; `None` when it does not start with `#!`.
pub(crate) fn first_line(start: &[u8]) -> Result<Option<FirstLine>> {
    let Some(rest) = start.strip_prefix(b"#!") else { return Ok(None) };
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let whole = rest.iter().position(|b| *b == b'\n');
    let line = &rest[..whole.unwrap_or(rest.len())];
    let line = line.split(|b| *b == 0).next().unwrap_or(line);
    let skip = line.iter().position(|b| !blank(b)).ok_or(ENOEXEC)?;
    let line = &line[skip..];
    let end = line.iter().position(blank);
    // Without an end of line the path itself might have been cut.
    if whole.is_none() && end.is_none() && start.len() >= LOOKED_AT {
        return Err(ENOEXEC);
    }
    let (path, argument) = line.split_at(end.unwrap_or(line.len()));
    let argument = argument.trim_ascii();
    let argument = (!argument.is_empty()).then(|| argument.to_vec());
    Ok(Some(FirstLine { interpreter: path.to_vec(), argument }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        first_line(text).unwrap().map(|l| (l.interpreter, l.argument))
    }

    #[test]
    fn an_interpreter_has_at_most_one_argument() {
        assert_eq!(read(b"#!/bin/sh\nx"), Some((b"/bin/sh".to_vec(), None)));
        assert_eq!(read(b"#! /bin/sh"), Some((b"/bin/sh".to_vec(), None)));
        let env = (b"/usr/bin/env".to_vec(), Some(b"-S python3 -u".to_vec()));
        assert_eq!(read(b"#!/usr/bin/env  -S python3 -u \t\n"), Some(env));
        assert_eq!(read(b"echo"), None);
        assert_eq!(first_line(b"#!  \n/bin/sh"), Err(ENOEXEC));
        assert_eq!(first_line(b"#!"), Err(ENOEXEC));
        let mut long = [b'x'; LOOKED_AT];
        long[..2].copy_from_slice(b"#!");
        assert_eq!(first_line(&long), Err(ENOEXEC));
    }
}
