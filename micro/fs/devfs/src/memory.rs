// SPDX-License-Identifier: Apache-2.0 OR MIT
//! /dev/null, zero, full, random and urandom (null(4), full(4), random(4)).

use abi::{PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use api_fs::{File, Inode, Sink, Source, Stat};
use api_lock::SpinLock;
use api_mem::{PageFrame, PageSource};
use core::any::Any;
use ordered::Map;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Null,
    Zero,
    Full,
    Random,
}

pub struct MemoryDevice {
    kind: Kind,
    inode: Arc<dyn Inode>,
}

/// Random bytes made at a time.
const RANDOM_CHUNK: usize = 256;
/// Others may run after so many bytes that are copied or cleared, and after so many random ones, which take longer.
const ZEROS_BETWEEN_OTHERS: usize = 1 << 20;
const RANDOM_BETWEEN_OTHERS: usize = 16 << 10;
const RNDGETENTCNT: u32 = 0x8004_5200;
/// Bits of entropy that are always there, as Linux 5.18 and later report.
const ENTROPY_BITS: i32 = 256;

impl MemoryDevice {
    pub fn new(kind: Kind, inode: Arc<dyn Inode>) -> MemoryDevice {
        MemoryDevice { kind, inode }
    }
}

/// Moves `want` bytes by `step`, which is told how many remain and says how many it moved; 0 ends it. Every `between` bytes others
/// may run, and a signal ends it, as on Linux.
fn in_steps(want: usize, between: usize, mut step: impl FnMut(usize) -> Result<usize>) -> Result<usize> {
    let take_a_break = super::machine().take_a_break;
    let mut done = 0;
    while done < want {
        let moved = match step(want - done) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        };
        done += moved;
        if done / between != (done - moved) / between && take_a_break() {
            break;
        }
    }
    Ok(done)
}

fn swallow(from: &mut Source<'_>) -> Result<usize> {
    let mut chunk = [0; RANDOM_CHUNK];
    in_steps(from.remaining(), ZEROS_BETWEEN_OTHERS, |_| from.take(&mut chunk))
}

impl File for MemoryDevice {
    fn read(&self, _: u64, to: &mut Sink<'_>) -> Result<usize> {
        match self.kind {
            Kind::Null => Ok(0),
            Kind::Zero | Kind::Full => in_steps(to.remaining(), ZEROS_BETWEEN_OTHERS, |rest| {
                to.put_zeros(rest.min(ZEROS_BETWEEN_OTHERS))
            }),
            Kind::Random => in_steps(to.remaining(), RANDOM_BETWEEN_OTHERS, |rest| {
                let mut chunk = [0; RANDOM_CHUNK];
                let n = rest.min(chunk.len());
                (super::machine().entropy)(&mut chunk[..n]);
                to.put_up_to_fault(&chunk[..n])
            }),
        }
    }

    fn write(&self, _: u64, from: &mut Source<'_>) -> Result<usize> {
        match self.kind {
            // The bytes are not even looked at.
            Kind::Null | Kind::Zero => Ok(from.remaining()),
            Kind::Full => Err(ENOSPC),
            Kind::Random => swallow(from),
        }
    }

    fn append(&self, from: &mut Source<'_>) -> Result<(usize, u64)> {
        self.write(0, from).map(|n| (n, 0))
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn has_places(&self) -> bool {
        false
    }

    fn size(&self) -> Result<u64> {
        Ok(0)
    }

    fn stat(&self) -> Result<Stat> {
        self.inode.stat()
    }

    /// A mapping of /dev/zero is anonymous memory, shared where the mapping is.
    fn page_source(&self) -> Result<Arc<dyn PageSource>> {
        match self.kind {
            Kind::Zero => Ok(Arc::new(ZeroPages::default())),
            _ => Err(ENODEV),
        }
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        if self.kind != Kind::Random || command != RNDGETENTCNT {
            return Err(ENOTTY);
        }
        api_fs::write_user_int(argument, ENTROPY_BITS)?;
        Ok(0)
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.inode)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Pages of one mapping of /dev/zero.
#[derive(Default)]
struct ZeroPages(SpinLock<Map<u64, PageFrame>>);

/// Offsets are signed and mappings are whole pages.
const ZERO_LENGTH: u64 = i64::MAX as u64 & !(PAGE_SIZE as u64 - 1);

impl PageSource for ZeroPages {
    fn page(&self, index: u64, _for_write: bool) -> Result<PageFrame> {
        if let Some(frame) = self.0.lock().get(&index) {
            return Ok(frame.clone());
        }
        let frame = PageFrame::new()?;
        Ok(self.0.lock().entry(index).or_insert(frame).clone())
    }

    fn length(&self) -> u64 {
        ZERO_LENGTH
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_devices_behave_as_their_manual_says() {
        let root = crate::root(1, 1 << 20);
        let open = |name: &[u8]| {
            let inode = root.lookup(name).unwrap();
            crate::open(inode.stat().unwrap().rdev, &inode)
        };
        let mut out = [7; 4];
        assert_eq!(open(b"null").unwrap().read(0, &mut Sink::kernel(&mut out)), Ok(0));
        assert_eq!(open(b"null").unwrap().write(0, &mut Source::kernel(b"abc")), Ok(3));
        assert_eq!(open(b"zero").unwrap().read(0, &mut Sink::kernel(&mut out)), Ok(4));
        assert_eq!(out, [0; 4]);
        let pages = open(b"zero").unwrap().page_source().unwrap();
        pages.page(3, true).unwrap().write(0, b"kept");
        pages.page(3, false).unwrap().read(0, &mut out);
        assert_eq!(&out, b"kept");
        assert_eq!(open(b"null").unwrap().page_source().err(), Some(ENODEV));
        assert_eq!(open(b"full").unwrap().write(0, &mut Source::kernel(b"abc")), Err(ENOSPC));
        assert_eq!(open(b"urandom").unwrap().read(0, &mut Sink::kernel(&mut out)), Ok(4));
        assert_eq!(open(b"tty").err(), Some(ENXIO), "there is no controlling terminal");
        assert_eq!(root.lookup(b"stdin").unwrap().read_link().unwrap(), b"/proc/self/fd/0");
        assert_eq!(crate::open(0x9999, &root).err(), Some(ENXIO));
    }
}
