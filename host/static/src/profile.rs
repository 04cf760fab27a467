// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Profiles: how often the branches of an image were taken, as a file that users keep between two links.
//!
//! The file is LLVM's text format of a profile ("llvm-profdata", IR instrumentation), behind lines that say what it was taken of. It may come
//! from anywhere, so it is read strictly, and what LLVM gets to see is written anew from what was read.

use crate::{Result, StaticError, Workshop, command, key, libc::need, run, write};
use std::{fmt::Write as _, path::Path};
use unilith_image::Progress;

/// Of a file: that of Python with its kernel has 3 MB.
pub const MAX_BYTES: u64 = 256 << 20;
/// Of one function. LLVM gives a counter to a branch.
pub(crate) const MAX_COUNTERS: usize = 1 << 16;
/// LLVM adds counts of many functions in 64 bits, and the largest numbers have meanings of their own there. A branch that is taken
/// each nanosecond gets here in two years.
const MAX_COUNT: u64 = 1 << 56;
/// Names of Rust are long, and those with all types of a closure longer.
const MAX_NAME: usize = 1 << 16;
/// What each line begins with that says what a profile is of. LLVM takes it for a comment.
const OF: &str = "# unilith, ";
/// Counts of LLVM's intermediate representation, in place of those of a language.
const KIND: &str = ":ir";
const INDEX: [(&str, &str); 1] = [("/usr/bin/llvm-profdata", "llvm")];

/// What a profile is of: the inputs of the two optimisers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    program: String,
    kernel: String,
}

impl Identity {
    /// `modules`: the program's bitcode.
    pub fn new(modules: &[Vec<u8>], kernel: &[u8]) -> Identity {
        let recipe = include_bytes!("lto.rs");
        Identity { program: key(modules.iter().map(Vec::as_slice)), kernel: key([kernel, recipe]) }
    }

    fn lines(&self) -> String {
        format!("{OF}program: {}\n{OF}kernel: {}\n", self.program, self.kernel)
    }

    /// The section in which an image says it.
    pub(crate) fn assembly(&self) -> String {
        let lines = self.lines();
        let lines = lines.lines().map(|line| format!(".ascii \"{line}\\n\"\n"));
        format!(".section {},\"\",@progbits\n{}", crate::counts::IDENTITY, lines.collect::<String>())
    }

    pub(crate) fn read<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Option<Identity> {
        Some(Identity { program: said(lines, "program: ")?.into(), kernel: said(lines, "kernel: ")?.into() })
    }
}

/// What the next line says, if it says that.
fn said<'a>(lines: &mut impl Iterator<Item = &'a str>, what: &str) -> Option<&'a str> {
    lines.next()?.strip_prefix(OF)?.strip_prefix(what)
}

/// A function's counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    name: String,
    /// LLVM's hash of its control flow.
    shape: u64,
    counts: Vec<u64>,
}

impl Counted {
    /// Counts beyond what a profile may have are the most that it may have.
    pub(crate) fn new(name: &str, shape: u64, counts: impl Iterator<Item = u64>) -> Counted {
        Counted { name: name.into(), shape, counts: counts.map(|count| count.min(MAX_COUNT)).collect() }
    }
}

/// What an image has counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    pub(crate) of: Identity,
    pub(crate) functions: Vec<Counted>,
}

impl Profile {
    /// How many functions count.
    pub fn functions(&self) -> usize {
        self.functions.len()
    }

    /// How many of them have run.
    pub fn ran(&self) -> usize {
        self.functions.iter().filter(|function| function.counts.iter().any(|count| *count > 0)).count()
    }

    pub fn sum(&self) -> u64 {
        let counts = self.functions.iter().flat_map(|function| &function.counts);
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The file.
    pub fn text(&self) -> String {
        let mut text = format!("{}{OF}functions: {}\n{KIND}\n", self.of.lines(), self.functions.len());
        for Counted { name, shape, counts } in &self.functions {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name}\n{shape}\n{}", counts.len());
            text.extend(counts.iter().map(|count| format!("{count}\n")));
            text.push('\n');
        }
        text
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// It is no profile, or a damaged one: the line where that shows.
    pub fn read(file: &[u8]) -> Result<Profile> {
        let none = || StaticError::new("it is no profile of `unilith profile --format counts`");
        let text = std::str::from_utf8(file).map_err(|_| none())?;
        let mut lines = text.lines().enumerate();
        let mut line = 0;
        let mut next = || {
            let (index, text) = lines.next()?;
            line = index + 1;
            Some(text)
        };
        let of = Identity::read(&mut std::iter::from_fn(&mut next)).ok_or_else(none)?;
        let functions = functions(&mut std::iter::from_fn(&mut next));
        match (functions, next()) {
            (Some(functions), None) => Ok(Profile { of, functions }),
            _ => Err(StaticError::new(format!("it is damaged at line {line}; take it again"))),
        }
    }

    /// Refuses a profile of anything else than this.
    pub fn check(&self, own: &Identity) -> Result<()> {
        let what = match (self.of.program == own.program, self.of.kernel == own.kernel) {
            (true, true) => return Ok(()),
            (false, _) => "another build of the program",
            (true, false) => "another build of the kernel: other sources, choices (--set) or --machine",
        };
        Err(StaticError::new(format!(
            "it was taken of {what}; take it again, from a machine of the same command with --lto=count"
        )))
    }
}

fn functions<'a>(lines: &mut impl Iterator<Item = &'a str>) -> Option<Vec<Counted>> {
    let announced: usize = said(lines, "functions: ")?.parse().ok()?;
    lines.next().filter(|line| *line == KIND)?;
    let mut all = Vec::new();
    while all.len() < announced {
        let name = lines.next().filter(|name| is_name(name))?.to_string();
        let shape = lines.next()?.parse().ok()?;
        let length: usize = lines.next()?.parse().ok().filter(|length| *length <= MAX_COUNTERS)?;
        let mut counts = Vec::new();
        while counts.len() < length {
            counts.push(lines.next()?.parse().ok().filter(|count| *count <= MAX_COUNT)?);
        }
        lines.next().filter(|line| line.is_empty())?;
        all.push(Counted { name, shape, counts });
    }
    Some(all)
}

/// The name of a function, with its file before it if others may have the same: nothing that LLVM takes for a number or a comment.
pub(crate) fn is_name(name: &str) -> bool {
    let begins = |first: u8| first.is_ascii_alphabetic() || b"_./<".contains(&first);
    name.len() <= MAX_NAME
        && name.bytes().next().is_some_and(begins)
        && name.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
}

impl Workshop {
    /// Writes a profile in the form that optimisers read.
    pub fn indexed(profile: &Profile, to: &Path, progress: &dyn Progress) -> Result<()> {
        need(&INDEX, "--profile-use", progress)?;
        let text = to.with_extension("text");
        write(&text, profile.text())?;
        let mut merge = command("llvm-profdata");
        run("reading the profile", merge.args(["merge", "-o"]).arg(to).arg(&text)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn own() -> Identity {
        Identity::new(&[b"one".to_vec(), b"two".to_vec()], b"kernel")
    }

    fn profile() -> Profile {
        let functions = vec![
            Counted::new("main", 5, [3, 4].into_iter()),
            Counted::new("ld-temp.o;work", u64::MAX, [0].into_iter()),
            Counted::new("_ZN4core3ptrE", 7, [u64::MAX].into_iter()),
        ];
        Profile { of: own(), functions }
    }

    #[test]
    fn a_profile_is_read_as_it_was_written() {
        let whole = profile();
        let text = whole.text();
        assert!(text.contains(":ir\nmain\n5\n2\n3\n4\n\nld-temp.o;work\n"), "{text}");
        assert_eq!(Profile::read(text.as_bytes()), Ok(whole.clone()));
        assert_eq!((whole.functions(), whole.ran(), whole.sum()), (3, 2, 7 + MAX_COUNT));
    }

    #[test]
    fn a_profile_of_anything_else_is_refused_with_what_differs() {
        assert_eq!(profile().check(&own()), Ok(()));
        let says = |other: Identity, what: &str| {
            let said = profile().check(&other).unwrap_err().to_string();
            assert!(said.contains(what), "{said}");
        };
        says(Identity::new(&[b"onetwo".to_vec()], b"kernel"), "another build of the program");
        says(Identity::new(&[b"one".to_vec(), b"two".to_vec()], b"other"), "another build of the kernel");
    }

    #[test]
    fn what_is_cut_off_or_no_profile_is_refused() {
        let text = profile().text();
        for length in 0..text.len() - 1 {
            assert!(Profile::read(&text.as_bytes()[..length]).is_err(), "{length} bytes");
        }
        for other in [&b"<svg>"[..], &[0xff, 0xfe], b":ir\nmain\n5\n0\n\n"] {
            let said = Profile::read(other).unwrap_err().to_string();
            assert!(said.contains("no profile of `unilith profile"), "{said}");
        }
        let longer = text + "more\n";
        assert!(Profile::read(longer.as_bytes()).unwrap_err().to_string().contains("damaged at line 21"));
    }

    /// A change at a place: bytes that are taken away, and others that come there.
    fn changed() -> impl Strategy<Value = Vec<u8>> {
        let words =
            ["#", "$1", ":entry_first", "18446744073709551615", "99999999999999999999", "-1", "\n", "\r\n"];
        let piece = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..4),
            proptest::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        ];
        let text = profile().text().into_bytes();
        proptest::collection::vec((0..text.len(), 0..12usize, piece), 0..5).prop_map(move |changes| {
            let mut bytes = text.clone();
            for (at, gone, new) in changes {
                let begin = at.min(bytes.len());
                bytes.splice(begin..(begin + gone).min(bytes.len()), new);
            }
            bytes
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]

        #[test]
        fn a_changed_file_is_refused_in_a_line_or_is_a_profile_that_llvm_reads_the_same_way(file in changed()) {
            match Profile::read(&file) {
                Ok(read) => {
                    prop_assert_eq!(Profile::read(read.text().as_bytes()), Ok(read.clone()));
                    for function in &read.functions {
                        prop_assert!(function.name.parse::<i128>().is_err() && !function.name.starts_with(['#', '$', ':']));
                        prop_assert!(function.counts.iter().all(|count| *count <= MAX_COUNT));
                    }
                }
                Err(e) => prop_assert!(e.to_string().lines().count() == 1),
            }
        }
    }
}
