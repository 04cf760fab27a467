// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run FILE` and `load FILE...`, where the files are objects of this host. A small one travels in the command when a session
//! first has to do with it, which saves a round trip; else the machine asks for it, if it needs to, in front of the standard
//! input.

use crate::fault::{Result, file};
use std::{collections::HashSet, ffi::OsStr, fs, os::unix::ffi::OsStrExt, path::Path};

/// Longest command with objects in it: it comes in a frame, of at most four times this.
const IN_COMMAND: usize = 16 << 10;

/// A command, and what its standard input begins with.
pub struct Sent {
    pub command: Vec<Vec<u8>>,
    pub input: Vec<u8>,
}

/// The keys of objects that a session has sent: the machine may still have them.
#[derive(Debug, Default)]
pub struct Known(HashSet<u64>);

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
pub fn send(command: &[impl AsRef<[u8]>], known: &mut Known) -> Result<Sent> {
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
    let key = key(&sent.input);
    options.push(format!("-k{key:016x}").into_bytes());
    let length = sent.command.iter().map(Vec::len).sum::<usize>() + sent.input.len();
    // An empty value would be no value: whoever is asked for no bytes sends none.
    if !sent.input.is_empty() && length <= IN_COMMAND && known.0.insert(key) {
        options.push([b"-b", sent.input.as_slice()].concat());
        sent.input.clear();
    }
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
        let mut known = Known::default();
        let first = send(&["run", "-t", "5", name, "-v"], &mut known).unwrap();
        let words = |sent: &Sent| -> Vec<String> {
            sent.command.iter().map(|w| String::from_utf8(w.clone()).unwrap()).collect()
        };
        let of_first = words(&first);
        assert_eq!((&*of_first[1], &*of_first[3]), ("-s5", "-bbytes"));
        assert_eq!(first.input, b"");
        // From then on it waits until it is asked for.
        let again = send(&["run", "-t", "5", name, "-v"], &mut known).unwrap();
        let of_again = words(&again);
        assert_eq!((&*of_again[0], &*of_again[1], &of_again[2]), ("run", "-s5", &of_first[2]));
        assert_eq!(&of_again[3..], ["-t", "5", name, "-v"]);
        assert!(of_again[2].starts_with("-k"));
        assert_eq!(again.input, b"bytes");
        // And so does one that is too large for a command, or empty.
        fs::write(&object, b"").unwrap();
        assert_eq!(send(&["run", name], &mut known).unwrap().command.len(), 4);
        fs::write(&object, vec![b'x'; IN_COMMAND]).unwrap();
        let large = send(&["run", name], &mut known).unwrap();
        assert_eq!((large.command.len(), large.input.len()), (4, IN_COMMAND));
    }

    #[test]
    fn several_objects_travel_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a.o", "b.o"].map(|name| folder.path().join(name));
        fs::write(&paths[0], b"one").unwrap();
        fs::write(&paths[1], b"three").unwrap();
        let names = paths.each_ref().map(|path| path.to_str().unwrap());
        let mut known = Known::default();
        let sent = send(&["load", "-n", "both", names[0], names[1]], &mut known).unwrap();
        assert_eq!((&sent.command[1][..], &sent.command[2][..]), (&b"-s3"[..], &b"-s5"[..]));
        assert_eq!((&sent.command[4][..], sent.command.len()), (&b"-bonethree"[..], 9));
        let again = send(&["load", "-n", "both", names[0], names[1]], &mut known).unwrap();
        assert_eq!((&again.input[..], again.command.len()), (&b"onethree"[..], 8));
        // One that is not here: all are paths of the machine.
        assert_eq!(send(&["load", names[0], "/none.o"], &mut known).unwrap().command.len(), 3);
    }

    #[test]
    fn other_commands_and_names_stay_as_they_are() {
        for command in
            [&["run", "perf"][..], &["run"], &["run", "--"], &["ls", "/"], &["run", "/overlay/none.o"]]
        {
            let sent = send(command, &mut Known::default()).unwrap();
            assert!(sent.input.is_empty());
            assert_eq!(sent.command, command.iter().map(|w| w.as_bytes().to_vec()).collect::<Vec<_>>());
        }
    }
}
