// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of descriptors.

use crate::Description;
use abi::setting::Setting;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use core::sync::atomic::{AtomicU32, Ordering};

/// Most descriptors of a process, whatever its RLIMIT_NOFILE (fs.nr_open).
pub static NR_OPEN: [Setting; 1] = [Setting::new(1 << 20, 64, 0x7fff_ffc0)];

#[derive(Clone)]
struct Slot {
    description: Arc<Description>,
    close_on_exec: bool,
}

#[derive(Default)]
struct Table {
    slots: Vec<Option<Slot>>,
    /// One bit a descriptor that is open: the lowest free number is found a word at a time.
    open: Vec<u64>,
    /// No number below is free.
    lowest: usize,
}

/// The descriptors of a process.
pub struct Descriptors {
    table: SpinLock<Table>,
    /// RLIMIT_NOFILE.
    limit: AtomicU32,
}

impl Table {
    fn free_from(&self, from: usize) -> usize {
        let mut word = from / 64;
        let mut taken = (1u64 << (from % 64)) - 1;
        loop {
            match self.open.get(word) {
                None => return from.max(word * 64),
                Some(bits) => {
                    let bits = bits | taken;
                    if bits != u64::MAX {
                        return word * 64 + bits.trailing_ones() as usize;
                    }
                }
            }
            taken = 0;
            word += 1;
        }
    }

    fn put(&mut self, index: usize, slot: Slot) -> Result<Option<Slot>> {
        if index >= self.slots.len() {
            if index as u64 >= NR_OPEN[0].get() {
                return Err(EMFILE);
            }
            let more = (index + 1).next_multiple_of(64) - self.slots.len();
            self.slots.reserve_fallibly(more).map_err(|_| ENOMEM)?;
            self.open.reserve_fallibly(more / 64).map_err(|_| ENOMEM)?;
            self.slots.resize(self.slots.len() + more, None);
            self.open.resize(self.slots.len() / 64, 0);
        }
        self.open[index / 64] |= 1 << (index % 64);
        if index == self.lowest {
            self.lowest += 1;
        }
        Ok(self.slots[index].replace(slot))
    }

    fn take(&mut self, index: usize) -> Option<Slot> {
        let slot = self.slots.get_mut(index)?.take()?;
        self.open[index / 64] &= !(1 << (index % 64));
        self.lowest = self.lowest.min(index);
        Some(slot)
    }
}

impl Descriptors {
    pub fn new(limit: u32) -> Descriptors {
        Descriptors { table: SpinLock::new(Table::default()), limit: AtomicU32::new(limit) }
    }

    /// RLIMIT_NOFILE changed.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit.min(u32::MAX.into()) as u32, Ordering::Relaxed);
    }

    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// What a descriptor stands for; `EBADF` for numbers that are not open and for O_PATH descriptors.
    #[inline]
    pub fn get(&self, fd: i32) -> Result<Arc<Description>> {
        let description = self.get_any(fd)?;
        if description.is_path_only() { Err(EBADF) } else { Ok(description) }
    }

    /// As [`Descriptors::get`], O_PATH descriptors included.
    #[inline]
    pub fn get_any(&self, fd: i32) -> Result<Arc<Description>> {
        let table = self.table.lock();
        match table.slots.get(fd as u32 as usize) {
            Some(Some(slot)) => Ok(slot.description.clone()),
            _ => Err(EBADF),
        }
    }

    /// Whether there is a free number: `EMFILE` when not. For calls that take something which they cannot give back.
    pub fn check_room(&self) -> Result<()> {
        let table = self.table.lock();
        if table.free_from(table.lowest) >= self.limit() as usize { Err(EMFILE) } else { Ok(()) }
    }

    /// The lowest free number for `description`; `EMFILE` at the limit.
    pub fn insert(&self, description: Arc<Description>, close_on_exec: bool) -> Result<i32> {
        self.insert_from(description, close_on_exec, 0)
    }

    /// The lowest free number not below `least` (F_DUPFD): `EINVAL` when `least` is at the limit.
    pub fn insert_from(&self, description: Arc<Description>, close_on_exec: bool, least: u32) -> Result<i32> {
        let limit = self.limit();
        if least >= limit {
            return Err(if least == 0 { EMFILE } else { EINVAL });
        }
        let mut table = self.table.lock();
        let index = table.free_from(table.lowest.max(least as usize));
        if index >= limit as usize {
            return Err(EMFILE);
        }
        table.put(index, Slot { description, close_on_exec })?;
        if least as usize <= table.lowest {
            table.lowest = table.lowest.max(index + 1);
        }
        Ok(index as i32)
    }

    /// dup2 and dup3: `fd` becomes `description`; what it was is returned to be closed.
    pub fn replace(
        &self,
        fd: i32,
        description: Arc<Description>,
        close_on_exec: bool,
    ) -> Result<Option<Arc<Description>>> {
        if fd as u32 >= self.limit() {
            return Err(EBADF);
        }
        let put = self.table.lock().put(fd as usize, Slot { description, close_on_exec });
        let old = put.map_err(|e| if e == EMFILE { EBADF } else { e })?;
        Ok(old.map(|slot| slot.description))
    }

    /// Takes a descriptor away; the caller closes the description.
    pub fn remove(&self, fd: i32) -> Result<Arc<Description>> {
        self.table.lock().take(fd as u32 as usize).map(|slot| slot.description).ok_or(EBADF)
    }

    pub fn close_on_exec(&self, fd: i32) -> Result<bool> {
        match self.table.lock().slots.get(fd as u32 as usize) {
            Some(Some(slot)) => Ok(slot.close_on_exec),
            _ => Err(EBADF),
        }
    }

    pub fn set_close_on_exec(&self, fd: i32, on: bool) -> Result<()> {
        match self.table.lock().slots.get_mut(fd as u32 as usize) {
            Some(Some(slot)) => {
                slot.close_on_exec = on;
                Ok(())
            }
            _ => Err(EBADF),
        }
    }

    /// The first open number at or behind `fd`.
    pub fn next_open(&self, fd: u32) -> Option<i32> {
        let table = self.table.lock();
        let rest = table.slots.get(fd as usize..)?;
        rest.iter().position(Option::is_some).map(|i| fd as i32 + i as i32)
    }

    /// For execve: takes away the first descriptor at or behind `fd` that is marked close-on-exec.
    pub fn remove_marked(&self, fd: u32) -> Option<(i32, Arc<Description>)> {
        let mut table = self.table.lock();
        let rest = table.slots.get(fd as usize..)?;
        let marked = rest.iter().position(|s| s.as_ref().is_some_and(|s| s.close_on_exec))?;
        let index = fd as usize + marked;
        table.take(index).map(|slot| (index as i32, slot.description))
    }

    /// How many numbers are open.
    pub fn count(&self) -> usize {
        self.table.lock().open.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// A copy for a process of its own (CLONE_FILES absent, unshare); `EMFILE` when a number is open that fs.nr_open no longer allows,
    /// `ENOMEM` when there is no block as long as the table.
    pub fn duplicate(&self) -> Result<Descriptors> {
        let table = self.table.lock();
        let open = table.open.iter().rposition(|word| *word != 0).map_or(0, |last| (last as u64 + 1) * 64);
        if open > NR_OPEN[0].get().next_multiple_of(64) {
            return Err(EMFILE);
        }
        let mut copy = Table { lowest: table.lowest, ..Table::default() };
        copy.slots.reserve_exact_fallibly(table.slots.len()).map_err(|_| ENOMEM)?;
        copy.open.reserve_exact_fallibly(table.open.len()).map_err(|_| ENOMEM)?;
        copy.slots.extend_from_slice(&table.slots);
        copy.open.extend_from_slice(&table.open);
        Ok(Descriptors { table: SpinLock::new(copy), limit: AtomicU32::new(self.limit()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Watcher;
    use api_fs::{File, FileType, Sink, Source, Stat};
    use core::any::Any;
    use std::vec::Vec;

    #[derive(Default)]
    struct Closes(AtomicU32);

    impl File for Closes {
        fn stat(&self) -> Result<Stat> {
            Ok(Stat::new(FileType::Regular, 0o600))
        }
        fn read(&self, offset: u64, to: &mut Sink<'_>) -> Result<usize> {
            to.put(&[offset as u8])
        }
        fn write(&self, _: u64, from: &mut Source<'_>) -> Result<usize> {
            from.take(&mut [0; 100])
        }
        fn is_seekable(&self) -> bool {
            true
        }
        fn close(&self) -> Result<()> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(EIO)
        }
        fn as_any(&self) -> &dyn Any {
            self
        }
    }

    fn description(flags: u32) -> (Arc<Closes>, Arc<Description>) {
        let file: Arc<Closes> = Arc::default();
        (file.clone(), Description::new(file, flags, None))
    }

    #[test]
    fn the_lowest_free_number_is_used_up_to_the_limit() {
        let table = Descriptors::new(130);
        let (_, d) = description(2);
        for i in 0..130 {
            assert_eq!(table.insert(d.clone(), false), Ok(i));
        }
        assert_eq!(table.insert(d.clone(), false), Err(EMFILE));
        assert_eq!(table.check_room(), Err(EMFILE));
        for fd in [100, 7, 64] {
            table.remove(fd).unwrap();
        }
        assert_eq!(table.check_room(), Ok(()));
        assert_eq!(table.insert_from(d.clone(), false, 65), Ok(100));
        assert_eq!(table.insert(d.clone(), true), Ok(7));
        assert_eq!(table.insert(d.clone(), false), Ok(64));
        assert_eq!(table.insert(d.clone(), false), Err(EMFILE));
        assert_eq!(table.insert_from(d.clone(), false, 130), Err(EINVAL));
        assert_eq!(table.close_on_exec(7), Ok(true));
        assert_eq!(table.count(), 130);
        assert!(table.remove_marked(8).is_none());
        assert_eq!(table.remove_marked(0).map(|(fd, _)| fd), Some(7));
        assert!(table.remove_marked(0).is_none());
        let copy = table.duplicate().unwrap();
        assert_eq!((copy.count(), copy.limit()), (129, 130));
        for fd in [-1, 7, 130, i32::MAX] {
            assert_eq!(table.get(fd).err(), Some(EBADF));
        }
    }

    #[test]
    fn file_is_closed_when_last_descriptor_goes() {
        let table = Descriptors::new(10);
        let (file, d) = description(2);
        table.insert(d.clone(), false).unwrap();
        assert!(table.replace(5, d, false).unwrap().is_none());
        assert_eq!(table.remove(0).unwrap().close(), Ok(()));
        assert_eq!(file.0.load(Ordering::Relaxed), 0);
        assert_eq!(table.remove(5).unwrap().close(), Err(EIO));
        assert_eq!(file.0.load(Ordering::Relaxed), 1);
        assert_eq!(table.replace(10, description(0).1, false).err(), Some(EBADF));
    }

    #[test]
    fn access_modes_and_positions_are_the_descriptions() {
        let (_, read_only) = description(0);
        assert_eq!(read_only.write(&mut Source::kernel(b"x")), Err(EBADF));
        let mut byte = [0];
        read_only.set_position(40);
        assert_eq!(read_only.read(&mut Sink::kernel(&mut byte)), Ok(1));
        assert_eq!((byte[0], read_only.position()), (40, 41));
        let (_, write_only) = description(1);
        assert_eq!(write_only.read(&mut Sink::kernel(&mut byte)), Err(EBADF));
        let (_, path) = description(0o10000000);
        assert_eq!(path.read(&mut Sink::kernel(&mut byte)), Err(EBADF));
        let table = Descriptors::new(10);
        let fd = table.insert(path, false).unwrap();
        assert_eq!(table.get(fd).err(), Some(EBADF));
        assert!(table.get_any(fd).is_ok());
    }

    #[test]
    fn a_watcher_hears_of_the_close() {
        struct Ear(SpinLock<Vec<usize>>);
        impl Watcher for Ear {
            fn closed(&self, description: usize) {
                self.0.lock().push(description);
            }
        }
        let ear = Arc::new(Ear(SpinLock::new(Vec::new())));
        let (_, d) = description(0);
        let id = d.id();
        let watcher: Arc<dyn Watcher> = ear.clone();
        d.watch(&watcher).unwrap();
        d.watch(&watcher).unwrap();
        let second = d.clone();
        drop(d);
        assert!(ear.0.lock().is_empty());
        let _ = second.close();
        assert_eq!(*ear.0.lock(), [id]);
    }
}
