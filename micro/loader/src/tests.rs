// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs put together byte by byte, the host's own programs, and broken ones.

use super::*;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_mem::{PageFrame, PageSource};
use mem::{Layout, Limits, MappedFile, Prot, Space, USER_END};
use std::collections::HashMap;
use std::vec;

struct Bytes {
    pages: Vec<PageFrame>,
    length: u64,
}

impl PageSource for Bytes {
    fn page(&self, index: u64, _: bool) -> Result<PageFrame> {
        self.pages.get(index as usize).cloned().ok_or(EIO)
    }

    fn resident_page(&self, index: u64) -> Option<PageFrame> {
        self.pages.get(index as usize).cloned()
    }

    fn length(&self) -> u64 {
        self.length
    }
}

fn file(path: &str, bytes: &[u8]) -> Arc<MappedFile> {
    let pages = bytes.chunks(4096).map(|chunk| {
        let frame = PageFrame::new().unwrap();
        frame.write(0, chunk);
        frame
    });
    let source = Arc::new(Bytes { pages: pages.collect(), length: bytes.len() as u64 });
    Arc::new(MappedFile { source, path: path.into(), device: 1, inode: 1, place: None, is_writable: false })
}

#[derive(Clone)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    file_size: u64,
    memory_size: u64,
}

fn elf(kind: u16, entry: u64, headers: &[Header], length: usize) -> Vec<u8> {
    let mut out = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&62u16.to_le_bytes());
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&entry.to_le_bytes());
    out.extend_from_slice(&64u64.to_le_bytes());
    out.extend_from_slice(&[0; 12]);
    for half in [64u16, 56, headers.len() as u16, 0, 0, 0] {
        out.extend_from_slice(&half.to_le_bytes());
    }
    for h in headers {
        out.extend_from_slice(&h.kind.to_le_bytes());
        out.extend_from_slice(&h.flags.to_le_bytes());
        for word in [h.offset, h.address, h.address, h.file_size, h.memory_size, 4096] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
    out.resize(length, 0xaa);
    out
}

fn text_and_data(base: u64) -> [Header; 2] {
    [
        Header { kind: 1, flags: 5, offset: 0, address: base, file_size: 0x1800, memory_size: 0x1800 },
        Header {
            kind: 1,
            flags: 6,
            offset: 0x1800,
            address: base + 0x2800,
            file_size: 0x900,
            memory_size: 0x3000,
        },
    ]
}

fn space() -> Arc<Space> {
    Space::new(Layout::new([0; 4], 8 << 20), Limits::default()).unwrap()
}

fn run(
    space: &Space,
    main: Arc<MappedFile>,
    files: &HashMap<Vec<u8>, Arc<MappedFile>>,
) -> core::result::Result<Loaded, Failure> {
    let mut open = |path: &[u8], _: Interpreter| files.get(path).cloned().ok_or(ENOENT);
    let program = Executable {
        name: main.path.clone(),
        file: main,
        arguments: vec![b"prog".to_vec(), b"a b".to_vec()],
        environment: vec![b"X=1".to_vec()],
        is_closed: false,
        identity: &mut || Ok(Identity::default()),
        machine: &mut || Ok(Machine { hwcap: 5, hwcap2: 2, signal_stack: 3000, vdso: 0 }),
        random: *b"0123456789abcdef",
        limits: Limits::default(),
        open: &mut open,
    };
    load(space, program)
}

fn start(bytes: &[u8]) -> core::result::Result<(Arc<Space>, Loaded), Failure> {
    let space = space();
    run(&space, file("/prog", bytes), &HashMap::new()).map(|loaded| (space, loaded))
}

fn read(space: &Space, address: u64, length: usize) -> Vec<u8> {
    let mut out = vec![0; length];
    space.read(address, &mut out).unwrap();
    out
}

fn word(space: &Space, address: u64) -> u64 {
    u64::from_le_bytes(read(space, address, 8).try_into().unwrap())
}

fn string(space: &Space, address: u64) -> Vec<u8> {
    (address..).map(|a| read(space, a, 1)[0]).take_while(|b| *b != 0).collect()
}

#[test]
fn a_static_program_has_its_segments_bss_and_stack() {
    let (s, loaded) = start(&elf(2, 0x40_1000, &text_and_data(0x40_0000), 0x2100)).unwrap();
    assert_eq!(loaded.entry, 0x40_1000);
    assert_eq!(read(&s, 0x40_0000, 4), b"\x7fELF");
    assert_eq!(read(&s, 0x40_30ff, 2), [0xaa, 0], "the bss starts inside a page");
    assert_eq!(read(&s, 0x40_57ff, 1), [0]);
    let lines = s.mappings().unwrap();
    let rights: Vec<_> = lines.iter().map(|l| (l.start, l.end, l.rights)).collect();
    let (rw, rx) = (Prot::READ.with(Prot::WRITE), Prot::READ.with(Prot::EXECUTE));
    assert_eq!(
        rights[..3],
        [(0x40_0000, 0x40_2000, rx), (0x40_2000, 0x40_4000, rw), (0x40_4000, 0x40_6000, rw)]
    );
    assert_eq!(lines.last().unwrap().name, b"[stack]");

    let sp = loaded.stack;
    assert_eq!(sp % 16, 0);
    assert_eq!(word(&s, sp), 2);
    assert_eq!(string(&s, word(&s, sp + 8)), b"prog");
    assert_eq!(string(&s, word(&s, sp + 16)), b"a b");
    assert_eq!((word(&s, sp + 24), word(&s, sp + 40)), (0, 0));
    assert_eq!(string(&s, word(&s, sp + 32)), b"X=1");
    let mut auxv = HashMap::new();
    let mut at = sp + 48;
    while word(&s, at) != 0 {
        auxv.insert(word(&s, at), word(&s, at + 8));
        at += 16;
    }
    assert_eq!((auxv[&3], auxv[&5], auxv[&9], auxv[&7]), (0x40_0040, 2, 0x40_1000, 0));
    assert_eq!((auxv[&16], auxv[&26], auxv[&51], auxv[&6]), (5, 2, 3000, 4096));
    assert_eq!(read(&s, auxv[&25], 16), b"0123456789abcdef");
    assert_eq!((string(&s, auxv[&31]), string(&s, auxv[&15])), (b"/prog".to_vec(), b"x86_64".to_vec()));
    assert_eq!(s.set_brk(0), 0x40_6000);
}

#[test]
fn a_dynamic_program_starts_in_its_interpreter() {
    let mut headers = text_and_data(0).to_vec();
    headers.push(Header { kind: 3, flags: 4, offset: 0x400, address: 0x400, file_size: 7, memory_size: 7 });
    let mut bytes = elf(3, 0x1000, &headers, 0x2100);
    bytes[0x400..0x407].copy_from_slice(b"/ld.so\0");
    let linker = file("/ld.so", &elf(3, 0x500, &text_and_data(0), 0x2100));
    let s = space();
    let files = HashMap::from([(b"/ld.so".to_vec(), linker)]);
    let loaded = run(&s, file("/prog", &bytes), &files).unwrap();
    let base = s.layout().pie_base;
    let value = |key| loaded.auxv.chunks(2).find(|p| p[0] == key).unwrap()[1];
    assert_eq!((value(9), value(3)), (base + 0x1000, base + 0x40));
    assert_eq!(loaded.entry, value(7) + 0x500);
    assert_ne!(value(7), 0);
    assert_eq!(run(&space(), file("/prog", &bytes), &HashMap::new()).unwrap_err(), Failure::Refused(ENOENT));
    let with = |linker: &[u8]| {
        let files = HashMap::from([(b"/ld.so".to_vec(), file("/ld.so", linker))]);
        run(&space(), file("/prog", &bytes), &files).unwrap_err()
    };
    assert_eq!(with(b"#!/bin/sh\n"), Failure::Refused(EIO), "shorter than a header");
    assert_eq!(with(&[b'#'; 64]), Failure::Refused(ELIBBAD));
    assert_eq!(with(&elf(3, 0x500, &[], 0x2100)), Failure::Refused(ELIBBAD));
    assert_eq!(with(&elf(1, 0x500, &text_and_data(0), 0x2100)), Failure::TooLate(EINVAL), "an object file");
}

#[test]
fn scripts_run_their_interpreter_with_their_own_path() {
    let shell = file("/bin/sh", &elf(2, 0x40_1000, &text_and_data(0x40_0000), 0x2100));
    let files =
        HashMap::from([(b"/bin/sh".to_vec(), shell), (b"/self".to_vec(), file("/self", b"#!/self\n"))]);
    let s = space();
    let loaded = run(&s, file("/script", b"#!/bin/sh -e x\necho\n"), &files).unwrap();
    let expected: Vec<Vec<u8>> = ["/bin/sh", "-e x", "/script", "a b"].map(|s| s.as_bytes().to_vec()).into();
    assert_eq!((loaded.arguments, loaded.path), (expected, b"/bin/sh".to_vec()));
    assert_eq!(run(&space(), file("/x", b"#!/none\n"), &files).unwrap_err(), Failure::Refused(ENOENT));
    assert_eq!(run(&space(), file("/x", b"#!/self\n"), &files).unwrap_err(), Failure::Refused(ELOOP));
    assert_eq!(run(&space(), file("/x", b"echo\n"), &files).unwrap_err(), Failure::Refused(ENOEXEC));
}

#[test]
fn malformed_programs_get_linux_errors() {
    // One of them is of more memory than there is.
    mem::OVERCOMMIT[0].set(0);
    let good = text_and_data(0x40_0000);
    let with = |change: &dyn Fn(&mut Vec<Header>)| {
        let mut headers = good.to_vec();
        change(&mut headers);
        start(&elf(2, 0x40_1000, &headers, 0x2100)).map(|_| ()).unwrap_err()
    };
    let late = |change: &dyn Fn(&mut Vec<Header>)| match with(change) {
        Failure::TooLate(error) => error,
        Failure::Refused(error) => panic!("{error:?}"),
    };
    assert_eq!(with(&|h| h.clear()), Failure::Refused(ENOEXEC));
    assert_eq!(late(&|h| h[0].file_size = 0x1801), EINVAL);
    assert_eq!(late(&|h| h[0].offset = 1), EINVAL);
    assert_eq!(late(&|h| h[0].address = USER_END), EINVAL);
    assert_eq!(late(&|h| h[0].address = 0xffff_8000_0000_0000), EINVAL);
    assert_eq!(late(&|h| h[0].memory_size = u64::MAX), EINVAL);
    assert_eq!(late(&|h| h[1].memory_size = 1 << 46), ENOMEM);
    assert_eq!(late(&|h| h[0].address = 0), EPERM);
    let bytes = elf(2, 0x40_1000, &good, 0x2100);
    let patched = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        start(&bytes).map(|_| ())
    };
    let refused = Err(Failure::Refused(ENOEXEC));
    assert_eq!(patched(0, 0), refused);
    assert_eq!(patched(18, 183), refused, "a file for AArch64");
    assert_eq!(patched(16, 1), refused, "an object file");
    assert_eq!(patched(54, 55), refused);
    assert_eq!(patched(39, 0x40), refused, "headers outside of the file");
    assert_eq!(patched(4, 1), Ok(()), "nobody looks at the class");
    let outside = start(&elf(2, USER_END, &good, 0x2100)).map(|_| ());
    assert_eq!(outside, Err(Failure::TooLate(EINVAL)));
    for length in 0..64 {
        assert_eq!(start(&bytes[..length]).map(|_| ()), refused);
    }
}

#[test]
fn a_program_of_fixed_addresses_needs_no_segments() {
    let with = |kind| {
        let headers = text_and_data(0x40_0000).map(|header| Header { kind: 4, ..header });
        start(&elf(kind, 0x40_1000, &headers, 0x2100)).map(|(_, loaded)| loaded.entry)
    };
    assert_eq!(with(2), Ok(0x40_1000));
    assert_eq!(with(3), Err(Failure::TooLate(EINVAL)));
}

#[test]
fn a_bss_can_be_written_whatever_its_segment_says() {
    let [text, data] = text_and_data(0x40_0000);
    let (s, _) = start(&elf(2, 0x40_1000, &[text, Header { flags: 4, ..data }], 0x2200)).unwrap();
    let lines: Vec<_> = s.mappings().unwrap().iter().map(|l| (l.start, l.rights)).collect();
    assert_eq!(lines[1..3], [(0x40_2000, Prot::READ), (0x40_4000, Prot::READ.with(Prot::WRITE))]);
    assert_eq!(read(&s, 0x40_30ff, 2), [0xaa; 2], "what may not be written is not zeroed");
}

#[test]
fn too_many_arguments_are_refused() {
    let s = space();
    let load = |arguments| {
        let program = Executable {
            file: file("/prog", &elf(2, 0x40_1000, &text_and_data(0x40_0000), 0x2100)),
            name: b"/prog".to_vec(),
            arguments,
            environment: Vec::new(),
            is_closed: false,
            identity: &mut || Ok(Identity::default()),
            machine: &mut || Ok(Machine::default()),
            random: [0; 16],
            limits: Limits::default(),
            open: &mut |_, _| Err(ENOENT),
        };
        load(&s, program).map(|_| ()).unwrap_err()
    };
    assert_eq!(load(vec![vec![b'x'; 131_072]]), Failure::Refused(E2BIG));
    assert_eq!(load(vec![vec![b'x'; 100_000]; 21]), Failure::Refused(E2BIG));
}

#[test]
fn this_very_test_program_can_be_loaded() {
    let path = std::env::current_exe().unwrap();
    let linker = "/lib64/ld-linux-x86-64.so.2";
    let Ok(bytes) = std::fs::read(linker) else {
        std::eprintln!("skipped: needs {linker}, which a Linux with glibc has");
        return;
    };
    let files = HashMap::from([(linker.into(), file(linker, &bytes))]);
    let s = space();
    run(&s, file("/test", &std::fs::read(path).unwrap()), &files).unwrap();
    assert!(s.mappings().unwrap().iter().all(|l| !l.rights.contains(Prot::WRITE.with(Prot::EXECUTE))));
}

/// Mutates headers of good programs; `UNILITH_FUZZ_SECONDS=600` runs that long instead of 10^5 cases.
#[test]
fn no_file_whatsoever_makes_the_loader_panic_or_leave_the_programs_half() {
    let mut headers = text_and_data(0).to_vec();
    headers.push(Header { kind: 3, flags: 4, offset: 0x400, address: 0x400, file_size: 7, memory_size: 7 });
    let mut dynamic = elf(3, 0x1000, &headers, 0x2100);
    dynamic[0x400..0x407].copy_from_slice(b"/ld.so\0");
    let seeds = [dynamic, elf(2, 0x40_1000, &text_and_data(0x40_0000), 0x2100), b"#!/ld.so -x y\n".to_vec()];
    let files =
        HashMap::from([(b"/ld.so".to_vec(), file("/ld.so", &elf(3, 0x500, &text_and_data(0), 0x2100)))]);
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut random = move |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    let interesting =
        [0, 1, 0x7f, 0xfff, 0x1000, 0x7fff_ffff_f000, 0x8000_0000_0000, u64::MAX, 1 << 63, 1 << 40];
    let seconds = std::env::var("UNILITH_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok());
    let begin = std::time::Instant::now();
    let mut loaded = 0;
    for case in 0u64.. {
        let enough = match seconds {
            Some(s) => begin.elapsed().as_secs() >= s,
            None => case == 100_000,
        };
        if enough {
            std::println!("{case} cases, {loaded} of them loaded");
            break;
        }
        let mut bytes = seeds[random(3) as usize].clone();
        for _ in 0..=random(4) {
            let at = random((bytes.len() as u64).min(240)) as usize;
            match random(3) {
                0 => bytes[at] = random(256) as u8,
                1 => bytes[at] ^= 1 << random(8),
                _ => {
                    let word = interesting[random(10) as usize].wrapping_add(random(3)).to_le_bytes();
                    let at = at & !7;
                    let n = (bytes.len() - at).min(8);
                    bytes[at..at + n].copy_from_slice(&word[..n]);
                }
            }
        }
        if random(8) == 0 {
            bytes.truncate(random(bytes.len() as u64) as usize);
        }
        let s = space();
        if let Ok(result) = run(&s, file("/x", &bytes), &files) {
            loaded += 1;
            assert!(result.entry < USER_END && result.stack < USER_END);
        }
        for line in s.mappings().unwrap() {
            assert!(line.start >= 0x1_0000 && line.end <= USER_END && line.start < line.end);
        }
    }
    assert!(loaded > 100 || seconds.is_some());
}
