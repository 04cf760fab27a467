// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One end of a pipe.

use crate::buffer::Segment;
use crate::{PIPE_BUF, Pipe, State};
use abi::{Events, PAGE_SIZE, Result, errno::*};
use alloc::sync::Arc;
use api_fs::{File, FileType, Inode, SetAttr, Sink, Source, Stat};
use api_mem::PageFrame;
use api_sched::WaitQueue;
use core::any::Any;
use core::sync::atomic::{AtomicBool, Ordering};

/// Device number of pipes, as an anonymous file system has it.
const DEVICE: u64 = 0x0e;
const FIONREAD: u32 = 0x541b;
const O_ACCMODE: u32 = 3;
const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
const O_DIRECT: u32 = 0o40000;

/// Where the next bytes of a write go, and how many may.
struct Reserved {
    tail: Option<(PageFrame, usize)>,
    room: usize,
}

/// An open end; a FIFO may be open for both directions.
pub struct PipeEnd {
    pipe: Arc<Pipe>,
    reads: bool,
    writes: bool,
    /// O_DIRECT: what is written arrives in packets.
    packets: AtomicBool,
    /// Of a FIFO.
    inode: Option<Arc<dyn Inode>>,
    /// Of a FIFO that nobody had open at the other side: how often that had been opened.
    alone_since: Option<usize>,
    /// The last descriptor is gone. Handles may live on, in an epoll instance for one: they are no readers or writers.
    closed: AtomicBool,
}

impl PipeEnd {
    pub(crate) fn new(
        pipe: Arc<Pipe>,
        reads: bool,
        writes: bool,
        inode: Option<Arc<dyn Inode>>,
    ) -> Arc<PipeEnd> {
        let alone_since = {
            let mut state = pipe.state.lock();
            state.readers += reads as usize;
            state.writers += writes as usize;
            state.reader_opens = state.reader_opens.wrapping_add(reads as usize);
            state.writer_opens = state.writer_opens.wrapping_add(writes as usize);
            let (there, opens) = state.other_side(reads);
            (inode.is_some() && there == 0).then_some(opens)
        };
        // Who waits for the other side of a FIFO to come.
        pipe.queue.wake_all(Events::ALL);
        let (packets, closed) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(PipeEnd { pipe, reads, writes, packets, inode, alone_since, closed })
    }

    pub fn pipe(&self) -> &Arc<Pipe> {
        &self.pipe
    }

    pub fn reads(&self) -> bool {
        self.reads
    }

    pub fn writes(&self) -> bool {
        self.writes
    }

    /// Whether the other side is open or was so once, since this end is.
    pub(crate) fn had_company(&self, state: &State) -> bool {
        self.alone_since.is_none_or(|opens| state.other_side(self.reads).1 != opens)
    }

    /// The other side sees that this end is gone.
    fn leave(&self) {
        if self.closed.swap(true, Ordering::Relaxed) {
            return;
        }
        let (last_reader, last_writer) = {
            let mut state = self.pipe.state.lock();
            state.readers -= self.reads as usize;
            state.writers -= self.writes as usize;
            (self.reads && state.readers == 0, self.writes && state.writers == 0)
        };
        if last_writer {
            self.pipe.queue.wake_all(Events::READABLE | Events::HUP);
        }
        if last_reader {
            self.pipe.queue.wake_all(Events::WRITABLE | Events::ERR);
        }
    }

    /// Gives a turn back and wakes the other side, and whoever found the turn taken.
    fn finish(&self, end_turn: fn(&mut State), moved: bool, other_side: Events) {
        let wanted = {
            let mut state = self.pipe.state.lock();
            end_turn(&mut state);
            core::mem::take(&mut state.turn_wanted)
        };
        if wanted {
            self.pipe.queue.wake_all(Events::ALL);
        } else if moved {
            self.pipe.queue.wake(other_side);
        }
    }

    /// Copies what is in the pipe to `to` without taking it out (tee(2)); `EAGAIN` when it is empty, 0 when there is
    /// nobody to write.
    pub fn peek(&self, to: &mut Sink<'_>) -> Result<usize> {
        let mut done = 0;
        let mut run = 0;
        loop {
            let segment = {
                let state = self.pipe.state.lock();
                if state.buffer.length() == 0 {
                    return if state.writers == 0 { Ok(0) } else { Err(EAGAIN) };
                }
                state.buffer.at(run)
            };
            let Some(segment) = segment else { return Ok(done) };
            let n = (segment.end - segment.start).min(to.remaining());
            if n == 0 {
                return Ok(done);
            }
            done += segment.frame.send(segment.start, n, to)?;
            run += 1;
        }
    }

    fn room(state: &State) -> usize {
        state.charge.capacity().saturating_sub(state.buffer.length())
    }

    /// Room for `n` bytes of one page and the page; `None` when the pipe is full.
    fn reserve(&self, left: usize, is_first: bool) -> Result<Option<Reserved>> {
        let mut state = self.pipe.state.lock();
        if state.readers == 0 {
            return Err(EPIPE);
        }
        let room = PipeEnd::room(&state);
        if room == 0 || (is_first && left <= PIPE_BUF && room < left) {
            return Ok(None);
        }
        let packets = self.packets.load(Ordering::Relaxed);
        let tail = if packets { state.buffer.spare() } else { state.buffer.tail() };
        Ok(Some(Reserved { tail, room }))
    }

    fn write_turn(&self, from: &mut Source<'_>) -> Result<usize> {
        let want = from.remaining();
        let packets = self.packets.load(Ordering::Relaxed);
        let mut done = 0;
        while done < want {
            let Reserved { tail, room } = match self.reserve(want - done, done == 0) {
                Ok(Some(reserved)) => reserved,
                Ok(None) if done == 0 => return Err(EAGAIN),
                Err(e) if done == 0 => return Err(e),
                _ => break,
            };
            let (frame, start) = match tail {
                Some(tail) => tail,
                None => (PageFrame::new()?, 0),
            };
            let n = (PAGE_SIZE - start).min(room).min(want - done);
            match frame.receive(start, n, from) {
                Ok(n) if n > 0 => {
                    self.pipe.state.lock().buffer.push(frame, start, n, packets)?;
                    done += n;
                }
                failed => {
                    self.pipe.state.lock().buffer.keep(frame);
                    if done == 0 {
                        return failed;
                    }
                    break;
                }
            }
        }
        Ok(done)
    }
}

impl File for PipeEnd {
    fn read(&self, _: u64, to: &mut Sink<'_>) -> Result<usize> {
        if !self.reads {
            return Err(EBADF);
        }
        let want = to.remaining();
        if want == 0 {
            return Ok(0);
        }
        {
            let mut state = self.pipe.state.lock();
            if state.reading {
                state.turn_wanted = true;
                return Err(EAGAIN);
            }
            if state.buffer.length() == 0 {
                return if state.writers == 0 { Ok(0) } else { Err(EAGAIN) };
            }
            state.reading = true;
        }
        let mut done = 0;
        let mut failed = None;
        while done < want {
            let Some(segment) = self.pipe.state.lock().buffer.front() else { break };
            let Segment { frame, start, end, packet } = segment;
            if packet && done > 0 {
                break;
            }
            match frame.send(start, (end - start).min(want - done), to) {
                Ok(n) => {
                    // The handle goes first, so that the emptied page can be kept for the next write.
                    drop(frame);
                    self.pipe.state.lock().buffer.consume(if packet { end - start } else { n });
                    done += n;
                    if n == 0 || packet {
                        break;
                    }
                }
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
        }
        self.finish(|state| state.reading = false, done > 0, Events::WRITABLE);
        match failed {
            Some(e) if done == 0 => Err(e),
            _ => Ok(done),
        }
    }

    fn write(&self, _: u64, from: &mut Source<'_>) -> Result<usize> {
        if !self.writes {
            return Err(EBADF);
        }
        if from.remaining() == 0 {
            return Ok(0);
        }
        {
            let mut state = self.pipe.state.lock();
            if state.readers == 0 {
                return Err(EPIPE);
            }
            if state.writing {
                state.turn_wanted = true;
                return Err(EAGAIN);
            }
            state.writing = true;
        }
        let result = self.write_turn(from);
        self.finish(|state| state.writing = false, result.is_ok(), Events::READABLE);
        result
    }

    fn stat(&self) -> Result<Stat> {
        if let Some(inode) = &self.inode {
            return inode.stat();
        }
        let stat = Stat { device: DEVICE, inode: self.pipe.number, ..Stat::new(FileType::Fifo, 0) };
        Ok(self.pipe.attributes.show(stat))
    }

    fn set_attr(&self, change: &SetAttr) -> Result<()> {
        match &self.inode {
            Some(inode) => inode.set_attr(change),
            None => {
                self.pipe.attributes.change(change);
                Ok(())
            }
        }
    }

    fn poll(&self) -> Events {
        let state = self.pipe.state.lock();
        let mut events = Events::NONE;
        if self.reads {
            // Not before a writer was there: who opens a FIFO without waiting would spin (pipe_poll() of Linux).
            let hung_up = state.writers == 0 && self.had_company(&state);
            events = events.with(Events::READABLE, state.buffer.length() > 0).with(Events::HUP, hung_up);
        }
        if self.writes {
            let room = PipeEnd::room(&state) >= PIPE_BUF;
            events = events.with(Events::WRITABLE, room).with(Events::ERR, state.readers == 0);
        }
        events
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.pipe.queue)
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        if command != FIONREAD {
            return Err(ENOTTY);
        }
        api_fs::write_user_int(argument, self.pipe.length() as i32)?;
        Ok(0)
    }

    fn flags_changed(&self, flags: u32) {
        self.packets.store(flags & O_DIRECT != 0, Ordering::Relaxed);
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        self.inode.as_ref()
    }

    /// As an end of the same pipe, for whatever direction is asked for; it never waits for the other side (fifo_open() of Linux for
    /// pipes without a name).
    fn open_anew(self: Arc<Self>, flags: u32) -> Result<Arc<dyn File>> {
        if flags & O_ACCMODE == O_ACCMODE {
            return Err(EINVAL);
        }
        let (reads, writes) = (flags & O_ACCMODE != O_WRONLY, flags & O_ACCMODE != O_RDONLY);
        let end = PipeEnd::new(self.pipe.clone(), reads, writes, None);
        end.flags_changed(flags);
        Ok(end)
    }

    fn close(&self) -> Result<()> {
        self.leave();
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use crate::{Fifo, User, fifo, pipe};
    use abi::{Events, errno::*};
    use alloc::sync::Arc;
    use alloc::vec;
    use api_fs::{File, Inode, Sink, Source};

    fn read(end: &dyn File, n: usize) -> abi::Result<vec::Vec<u8>> {
        let mut out = vec![0; n];
        let n = end.read(0, &mut Sink::kernel(&mut out))?;
        out.truncate(n);
        Ok(out)
    }

    fn write(end: &dyn File, bytes: &[u8]) -> abi::Result<usize> {
        end.write(0, &mut Source::kernel(bytes))
    }

    #[test]
    fn bytes_come_out_in_order_and_the_end_is_seen() {
        let (r, w) = pipe().unwrap();
        assert_eq!(read(&*r, 5), Err(EAGAIN));
        let mut sent = vec![];
        let mut got = vec![];
        for i in 0..2000u32 {
            let piece: vec::Vec<u8> = (0..i % 97).map(|j| (i + j) as u8).collect();
            write(&*w, &piece).unwrap();
            sent.extend_from_slice(&piece);
            if i % 3 == 0 {
                got.extend(read(&*r, (i % 200) as usize).unwrap_or_default());
            }
            while r.pipe().length() > 50_000 {
                got.extend(read(&*r, 7777).unwrap());
            }
        }
        drop(w);
        loop {
            let piece = read(&*r, 4000).unwrap();
            if piece.is_empty() {
                break;
            }
            got.extend(piece);
        }
        assert_eq!(got, sent);
        assert!(r.poll().contains(Events::HUP));
    }

    #[test]
    fn small_writes_are_whole_or_not_at_all_and_large_ones_may_be_short() {
        let user = User { largest: 1 << 20, ..User::KERNEL };
        let (r, w) = pipe().unwrap();
        assert_eq!(write(&*w, &vec![1; 65_000]), Ok(65_000));
        assert_eq!(write(&*w, &vec![1; 600]), Err(EAGAIN));
        assert!(!w.poll().intersects(Events::OUT));
        assert_eq!(write(&*w, &vec![1; 5000]), Ok(536));
        assert_eq!(write(&*w, &vec![1; 5000]), Err(EAGAIN));
        assert_eq!(w.pipe().set_capacity(4096, &User::KERNEL), Err(EBUSY));
        assert_eq!(read(&*r, 4095).unwrap().len(), 4095);
        assert!(!w.poll().intersects(Events::OUT));
        assert_eq!(read(&*r, 1).unwrap().len(), 1);
        assert!(w.poll().contains(Events::OUT));
        assert_eq!(w.pipe().set_capacity(100_000, &user), Ok(131_072));
        assert_eq!(w.pipe().set_capacity(2 << 20, &user), Err(EPERM));
        assert_eq!(w.pipe().set_capacity(2 << 20, &User::KERNEL), Ok(2 << 20));
    }

    #[test]
    fn nobody_to_read_is_a_broken_pipe() {
        let (r, w) = pipe().unwrap();
        assert_eq!(write(&*r, b"x"), Err(EBADF));
        assert_eq!(read(&*w, 1), Err(EBADF));
        drop(r);
        assert_eq!(write(&*w, b"x"), Err(EPIPE));
        assert!(w.poll().contains(Events::ERR));
        let (r, w) = pipe().unwrap();
        let handle = w.clone();
        w.close().unwrap();
        assert_eq!(read(&*r, 1).unwrap(), b"", "a handle that is left is no writer");
        drop((w, handle));
        assert!(r.poll().contains(Events::HUP));
    }

    #[test]
    fn packets_are_read_one_by_one_and_lose_what_is_not_taken() {
        let (r, w) = pipe().unwrap();
        w.flags_changed(super::O_DIRECT);
        write(&*w, b"first").unwrap();
        write(&*w, b"second").unwrap();
        w.flags_changed(0);
        write(&*w, b"stream").unwrap();
        write(&*w, b"ing").unwrap();
        assert_eq!(read(&*r, 100).unwrap(), b"first");
        assert_eq!(read(&*r, 3).unwrap(), b"sec");
        assert_eq!(r.pipe().length(), 9);
        assert_eq!(read(&*r, 100).unwrap(), b"streaming");
    }

    #[test]
    fn peeking_leaves_the_bytes() {
        let (r, w) = pipe().unwrap();
        write(&*w, b"hello").unwrap();
        let mut out = [0; 3];
        assert_eq!(r.peek(&mut Sink::kernel(&mut out)), Ok(3));
        assert_eq!(&out, b"hel");
        assert_eq!(read(&*r, 10).unwrap(), b"hello");
    }

    #[test]
    fn a_fifo_connects_those_who_open_it() {
        let root = ramfs::tmpfs(1, 1 << 20, 0o777, (0, 0));
        let inode: Arc<dyn Inode> = root.create(b"f", api_fs::FileType::Fifo, 0o600, (0, 0), 0).unwrap();
        let Fifo { end: reader, .. } = fifo(&inode, true, false, &User::KERNEL).unwrap();
        let Fifo { end: writer, .. } = fifo(&inode, false, true, &User::KERNEL).unwrap();
        write(&*writer, b"through").unwrap();
        assert_eq!(read(&*reader, 100).unwrap(), b"through");
        drop(writer);
        assert_eq!(read(&*reader, 100).unwrap(), b"");
        assert_eq!(reader.stat().unwrap().permissions, 0o600);
    }
}
