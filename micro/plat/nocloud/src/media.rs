// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The files of one disk as a loader read them.

use crate::{Files, MAX_FILE, NAMES, Say, smbios, words};

/// The length of a file that cannot be read.
pub const UNREADABLE: usize = usize::MAX;

/// Memory for the files of [`NAMES`], and how long each is on its disk: 0 for one that is not there, [`UNREADABLE`] for one whose bytes
/// firmware does not get. Of what is longer than [`MAX_FILE`] the beginning is there.
pub struct Media<'m> {
    pub files: [&'m mut [u8; MAX_FILE]; 3],
    pub lengths: [usize; 3],
}

impl<'m> Media<'m> {
    /// Files that are not there yet, in memory of three times [`MAX_FILE`]; and what is left of that memory. `None`: it is less.
    pub fn new(memory: &'m mut [u8]) -> Option<(Media<'m>, &'m mut [u8])> {
        let (meta, rest) = memory.split_first_chunk_mut()?;
        let (network, rest) = rest.split_first_chunk_mut()?;
        let (user, rest) = rest.split_first_chunk_mut()?;
        Some((Media { files: [meta, network, user], lengths: [0; 3] }, rest))
    }

    /// Writes `line`, the kernel's command line, to `out` with what the files and the computer's serial number say; answers its length.
    /// `None`: the line stays as it is. `say` is told what was left out.
    pub fn add_to(&self, line: &str, serial: &str, out: &mut [u8], say: &mut Say<'_>) -> Option<usize> {
        let mut texts = [""; 3];
        let files = self.files.iter().zip(self.lengths).zip(NAMES);
        for (text, ((file, length), name)) in texts.iter_mut().zip(files) {
            match core::str::from_utf8(&file[..length.min(MAX_FILE)]) {
                _ if length == UNREADABLE => say(format_args!("{name} is left out: it cannot be read")),
                _ if length > MAX_FILE => say(format_args!("{name} is left out: it is longer than 16 KiB")),
                Ok(read) => *text = read,
                Err(_) => say(format_args!("{name} is left out: it is not UTF-8")),
            }
        }
        let files = Files { meta: texts[0], network: texts[1], user: texts[2], serial };
        if texts.iter().all(|text| text.is_empty()) && smbios::hostname(serial).is_none() {
            return None;
        }
        let length = words(&files, line, out, say);
        if length.is_none() {
            say(format_args!("all of it is left out: it makes a command line that is too long"));
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{format, string::String, vec, vec::Vec};

    fn added(files: [(&[u8], usize); 3], room: usize) -> (Option<String>, Vec<String>) {
        let mut memory = [[0; MAX_FILE]; 3];
        for (to, (bytes, _)) in memory.iter_mut().zip(&files) {
            to[..bytes.len()].copy_from_slice(bytes);
        }
        let [a, b, c] = &mut memory;
        let media = Media { files: [a, b, c], lengths: files.map(|(_, length)| length) };
        let (mut out, mut said) = (vec![0; room], Vec::new());
        let length =
            media.add_to("log=info -- /bin/x", "", &mut out, &mut |text| said.push(format!("{text}")));
        (length.map(|length| String::from_utf8(out[..length].to_vec()).unwrap()), said)
    }

    #[test]
    fn files_that_cannot_be_used_are_left_out_with_a_sentence() {
        let meta = b"local-hostname: web\n".as_slice();
        let none = (b"".as_slice(), 0);
        let (line, said) = added([(meta, meta.len()), none, none], 100);
        assert_eq!((line.as_deref(), said.len()), (Some("log=info hostname=web -- /bin/x"), 0));
        let user = b"\xff\xfe".as_slice();
        let (line, said) = added([(meta, UNREADABLE), (meta, MAX_FILE + 1), (user, 2)], 100);
        assert_eq!(line, None);
        assert_eq!(
            said,
            [
                "meta-data is left out: it cannot be read",
                "network-config is left out: it is longer than 16 KiB",
                "user-data is left out: it is not UTF-8"
            ]
        );
        let (line, said) = added([(meta, meta.len()), none, none], 20);
        assert_eq!((line, said.len()), (None, 1));
        assert_eq!(added([none; 3], 100), (None, vec![]));
    }
}
