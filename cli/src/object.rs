// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run FILE` and `load FILE...`, where the files are objects of this host: they travel with the command, in front of the
//! standard input.

use crate::fault::{Result, file};
use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, path::Path};

/// A command, and what its standard input begins with.
pub struct Sent {
    pub command: Vec<Vec<u8>>,
    pub input: Vec<u8>,
}

/// FNV-1a of the bytes: names an object, so that a machine links the same one once.
fn key(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Where the program stands in the words of `run`: behind the options.
fn operand(words: &[Vec<u8>]) -> Option<usize> {
    let mut at = 1;
    loop {
        match words.get(at)?.as_slice() {
            b"--" => return Some(at + 1),
            [b'-', _] => at += 2,
            [b'-', ..] => at += 1,
            _ => return Some(at),
        }
    }
}

/// A bare name is a program that is loaded, and what is not here may be a path of the machine.
fn is_here(word: &[u8]) -> bool {
    (word.contains(&b'/') || word.ends_with(b".o")) && Path::new(OsStr::from_bytes(word)).is_file()
}

/// The command as it is sent.
pub fn send(command: &[impl AsRef<[u8]>]) -> Result<Sent> {
    let mut sent = Sent { command: command.iter().map(|w| w.as_ref().to_vec()).collect(), input: Vec::new() };
    let last = |at: usize| match sent.command.first().map(Vec::as_slice) {
        Some(b"run") => at + 1,
        Some(b"load") => sent.command.len(),
        _ => at,
    };
    let Some(at) = operand(&sent.command).filter(|at| *at < sent.command.len()) else { return Ok(sent) };
    let files = &sent.command[at..last(at)];
    if files.is_empty() || !files.iter().all(|word| is_here(word)) {
        return Ok(sent);
    }
    let mut options = Vec::new();
    for word in files {
        let path = Path::new(OsStr::from_bytes(word));
        let bytes = fs::read(path).map_err(file("read", path))?;
        options.push(format!("-s{}", bytes.len()).into_bytes());
        sent.input.extend(bytes);
    }
    options.push(format!("-k{:016x}", key(&sent.input)).into_bytes());
    sent.command.splice(1..1, options);
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_of_this_host_travels_with_the_command() {
        let folder = tempfile::tempdir().unwrap();
        let object = folder.path().join("x.o");
        fs::write(&object, b"bytes").unwrap();
        let name = object.to_str().unwrap();
        let sent = send(&["run", "-t", "5", name, "-v"]).unwrap();
        let words: Vec<&str> = sent.command.iter().map(|w| std::str::from_utf8(w).unwrap()).collect();
        assert_eq!((words[0], words[1], &words[3..]), ("run", "-s5", &["-t", "5", name, "-v"][..]));
        assert!(words[2].starts_with("-k"));
        assert_eq!(sent.input, b"bytes");
    }

    #[test]
    fn several_objects_travel_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a.o", "b.o"].map(|name| folder.path().join(name));
        fs::write(&paths[0], b"one").unwrap();
        fs::write(&paths[1], b"three").unwrap();
        let names = paths.each_ref().map(|path| path.to_str().unwrap());
        let sent = send(&["load", "-n", "both", names[0], names[1]]).unwrap();
        assert_eq!(sent.input, b"onethree");
        assert_eq!((&sent.command[1][..], &sent.command[2][..]), (&b"-s3"[..], &b"-s5"[..]));
        assert_eq!(sent.command.len(), 8);
        // One that is not here: all are paths of the machine.
        assert_eq!(send(&["load", names[0], "/none.o"]).unwrap().command.len(), 3);
    }

    #[test]
    fn other_commands_and_names_stay_as_they_are() {
        for command in
            [&["run", "perf"][..], &["run"], &["run", "--"], &["ls", "/"], &["run", "/overlay/none.o"]]
        {
            let sent = send(command).unwrap();
            assert!(sent.input.is_empty());
            assert_eq!(sent.command, command.iter().map(|w| w.as_bytes().to_vec()).collect::<Vec<_>>());
        }
    }
}
