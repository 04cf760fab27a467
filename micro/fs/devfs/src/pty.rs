// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pseudo-terminals (pty(7), ioctl_tty(2)): opening /dev/ptmx makes a pair, whose other side is /dev/pts/N.
//!
//! What is written to the master is input of the line discipline, which the slave reads; what the slave writes, and
//! the echo, is read from the master. The slave is locked until TIOCSPTLCK opens it, and gone with its master.

mod outside;

use api_alloc::Reserve;
pub use outside::Outside;

use crate::control::{Control, read_group, shown};
use crate::line::{Effect, FLUSHWRITE, Line, SIGINT, SIGQUIT, SIGTSTP, START, STOP};
use crate::terminal::{
    FIONREAD, SIGWINCH, TCFLSH, TCIOFF, TCION, TCOOFF, TCOON, TCSBRK, TCXONC, TIOCGPGRP, TIOCGSID, TIOCNOTTY,
    TIOCOUTQ, TIOCSCTTY, TIOCSPGRP, TIOCSTI, Terminal, changes_settings,
};
use crate::{TTY_GROUP, device, machine};
use abi::{Errno, Events, Result, errno::*};
use alloc::collections::VecDeque;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_fs::{DirEntry, File, FileType, Inode, SetAttr, Sink, Source, Stat, StatFs, Timespec};
use api_lock::SpinLock;
use api_sched::WaitQueue;
use api_user::UserPtr;
use core::any::Any;
use ordered::Map;

/// Most pairs (Linux' NR_UNIX98_PTY_MAX).
pub const MAX_PAIRS: u32 = 4096;
/// What one side wrote and the other has no room for (Linux' tty_buffer_set_limit of ptys).
const PENDING: usize = 8192;
/// What the master can read at once.
const READ: usize = 4095;
/// What the slave wrote and nobody read.
const OUTPUT: usize = READ + PENDING;
const CHUNK: usize = 256;
/// Bytes that the terminal shows for one that a program writes: a tab's.
const MAX_SHOWN: usize = 8;
/// Device number of the first slave.
const SLAVES: u64 = 136;
const DEVPTS_SUPER_MAGIC: u64 = 0x1cd1;

const O_ACCMODE: u32 = 0o3;
const O_WRONLY: u32 = 0o1;
const O_NOCTTY: u32 = 0o400;
const TIOCPKT: u32 = 0x5420;
/// The master's own keys, which nobody changes.
const MASTER_STOP: u8 = 19;
const MASTER_START: u8 = 17;
const TIOCGETD: u32 = 0x5424;
const TCSBRKP: u32 = 0x5425;
/// Whether another open(2) of the terminal is refused.
const TIOCEXCL: u32 = 0x540c;
const TIOCNXCL: u32 = 0x540d;
const TIOCGEXCL: u32 = 0x8004_5440;
/// A signal for the foreground, by the master.
const TIOCSIG: u32 = 0x4004_5436;
const TIOCGPTN: u32 = 0x8004_5430;
const TIOCSPTLCK: u32 = 0x4004_5431;
const TIOCGDEV: u32 = 0x8004_5432;
const TIOCGPKT: u32 = 0x8004_5438;
const TIOCGPTLCK: u32 = 0x8004_5439;

struct State {
    line: Line,
    /// What the master wrote and the line has no room for.
    pending: VecDeque<u8>,
    /// tcflow(3) of the master stops what it writes.
    master_held: bool,
    /// From the slave to the master.
    output: VecDeque<u8>,
    locked: bool,
    /// TIOCPKT: each read of the master begins with a byte of status.
    packets: bool,
    /// What the master has not read yet of the slave's flushes (TIOCPKT_*).
    status: u8,
    /// TIOCEXCL of the master, which nobody else opens anyway, and of the slave.
    exclusive: [bool; 2],
    slaves: usize,
    /// The last slave was closed, and none opened since.
    slave_gone: bool,
    master_gone: bool,
    control: Control,
    permissions: u32,
    owner: (u32, u32),
    accessed: Timespec,
    modified: Timespec,
}

impl State {
    /// What the master may write before the slave reads.
    fn room(&self) -> usize {
        PENDING.saturating_sub(self.pending.len())
    }

    /// Of packets, if the master reads them.
    fn tell(&mut self, status: u8, over: u8) {
        if self.packets {
            self.status = self.status & !over | status;
        }
    }
}

/// Both sides.
struct Pair {
    number: u32,
    /// Of the file system /dev/pts.
    device: u64,
    state: SpinLock<State>,
    /// Whoever waits at the master, and at the slave.
    master: WaitQueue,
    slave: WaitQueue,
}

/// Which side an ioctl(2) is made of.
#[derive(Clone, Copy)]
enum Side {
    Master,
    Slave,
}

struct Pairs {
    device: u64,
    all: Map<u32, Arc<Pair>>,
}

static PAIRS: SpinLock<Pairs> = SpinLock::new(Pairs { device: 0, all: Map::new() });

fn number_of(pair: &Pair) -> u64 {
    device(SLAVES + u64::from(pair.number >> 8), u64::from(pair.number & 0xff))
}

impl Pair {
    /// Bytes for the line discipline, [`CHUNK`] at most; what of them was taken.
    fn input(&self, bytes: &[u8]) -> Result<usize> {
        let mut effect = Effect::default();
        let taken = {
            let mut state = self.state.lock();
            state.line.reserve(bytes.len()).map_err(|_| ENOMEM)?;
            state.pending.reserve_fallibly(bytes.len()).map_err(|_| ENOMEM)?;
            let now = if state.pending.is_empty() { state.line.receive(bytes, &mut effect) } else { 0 };
            let later = state.room().min(bytes.len() - now);
            state.pending.extend(&bytes[now..now + later]);
            now + later
        };
        self.changed(effect);
        Ok(taken)
    }

    /// Hands the line what it had no room for before.
    fn feed(&self) {
        let mut effect = Effect::default();
        {
            let mut state = self.state.lock();
            let State { line, pending, .. } = &mut *state;
            loop {
                let mut piece = [0; CHUNK];
                let n = pending.len().min(CHUNK);
                piece.iter_mut().zip(pending.iter()).for_each(|(to, byte)| *to = *byte);
                if n == 0 || line.reserve(n).is_err() {
                    break;
                }
                let taken = line.receive(&piece[..n], &mut effect);
                pending.drain(..taken);
                if taken < n {
                    break;
                }
            }
        }
        self.changed(effect);
    }

    /// TCFLSH of the master or the slave: TCIFLUSH (0) is what it would read, TCOFLUSH (1) what it wrote: of the slave what is
    /// not read (Linux hands it to the master a moment later, and keeps it then), of the master what the line has no room for.
    /// TCIOFLUSH (2) is both.
    fn flush(&self, side: Side, what: u64) -> Result<usize> {
        let (reads, writes) = match what {
            0 => (true, false),
            1 => (false, true),
            2 => (true, true),
            _ => return Err(EINVAL),
        };
        {
            let mut state = self.state.lock();
            match side {
                Side::Master => {
                    if reads {
                        let n = state.output.len().min(READ);
                        state.output.drain(..n);
                    }
                    if writes {
                        state.pending.clear();
                    }
                }
                Side::Slave => {
                    if reads {
                        let effect = state.line.flush();
                        state.tell(effect.status, 0);
                    }
                    if writes {
                        state.output.clear();
                        state.tell(FLUSHWRITE, 0);
                    }
                }
            }
        }
        self.feed();
        // There is room again for what waits to be written, and perhaps a status to be read.
        self.master.wake_all(Events::WRITABLE | Events::READABLE | Events::PRI);
        self.slave.wake_all(Events::WRITABLE);
        Ok(0)
    }

    /// TCXONC, tcflow(3).
    fn flow(&self, side: Side, what: u64) -> Result<usize> {
        match (side, what) {
            (Side::Slave, TCOOFF | TCOON) => {
                self.changed(self.with_line(|line| line.hold(what == TCOOFF)));
            }
            (Side::Master, TCOOFF | TCOON) => {
                self.state.lock().master_held = what == TCOOFF;
                self.master.wake_all(Events::WRITABLE);
            }
            // The key that stops or starts goes where output does.
            (Side::Slave, TCIOFF | TCION) => {
                let mut state = self.state.lock();
                let key = state.line.flow_key(what == TCIOFF);
                if let Some(key) = key.filter(|_| state.output.len() < OUTPUT)
                    && state.output.reserve_fallibly(1).is_ok()
                {
                    state.output.push_back(key);
                }
                if state.line.is_stopped() {
                    // The output was started for it, and stopped again.
                    state.tell(STOP, START);
                }
                drop(state);
                self.master.wake(Events::READABLE);
            }
            (Side::Master, TCIOFF | TCION) => {
                self.input(&[if what == TCIOFF { MASTER_STOP } else { MASTER_START }])?;
            }
            _ => return Err(EINVAL),
        }
        Ok(0)
    }

    /// What both sides answer alike; `None`: something else.
    fn ioctl(&self, side: Side, command: u32, argument: u64) -> Option<Result<usize>> {
        let answer = |value: i32| api_fs::write_user_int(argument, value).map(|()| 0);
        Some(match command {
            TIOCEXCL | TIOCNXCL => {
                self.state.lock().exclusive[side as usize] = command == TIOCEXCL;
                Ok(0)
            }
            TIOCGEXCL => answer(self.state.lock().exclusive[side as usize].into()),
            TIOCGETD => answer(0),
            TIOCSPGRP => read_group(argument).and_then(|group| {
                let new = self.control().with_foreground(group)?;
                self.state.lock().control = new;
                Ok(0)
            }),
            TCSBRK | TCSBRKP => Ok(0),
            TCXONC => self.flow(side, argument),
            TIOCSTI => Err(EIO),
            _ => return self.settings(command, argument),
        })
    }

    fn control(&self) -> Control {
        self.state.lock().control
    }

    /// TIOCSCTTY: the terminal controls the caller's session, unless another one does.
    fn take_control(&self) -> Result<usize> {
        let has_terminal = crate::terminal_of((machine().caller)().session).is_some();
        let new = self.control().taken(has_terminal)?;
        self.state.lock().control = new;
        Ok(0)
    }

    /// The master is gone: whoever has the slave hears of it.
    fn end(&self) {
        PAIRS.lock().all.remove(&self.number);
        self.state.lock().master_gone = true;
        self.release_control().hang_up();
        self.slave.wake_all(Events::READABLE | Events::WRITABLE | Events::HUP | Events::ERR);
    }

    /// It controls nothing any more; what it controlled.
    fn release_control(&self) -> Control {
        core::mem::replace(&mut self.state.lock().control, Control::NOTHING)
    }
}

/// The terminal that controls a session.
pub fn terminal_of(session: i32) -> Option<(u64, Control)> {
    if session == 0 {
        return None;
    }
    let found = controlling(session)?;
    Some((number_of(&found), found.control()))
}

fn controlling(session: i32) -> Option<Arc<Pair>> {
    PAIRS.lock().all.values().find(|pair| pair.control().session == session).cloned()
}

/// The leader of a session ends.
pub fn session_ends(session: i32) {
    if let Some(pair) = controlling(session) {
        pair.release_control();
    }
}

impl Terminal for Pair {
    fn with_line<R>(&self, act: impl FnOnce(&mut Line) -> R) -> R {
        act(&mut self.state.lock().line)
    }

    /// An echo that nobody reads has a limit: what is beyond it is lost, as on Linux.
    fn changed(&self, effect: Effect) {
        let (control, has_status) = {
            let mut state = self.state.lock();
            let room = OUTPUT.saturating_sub(state.output.len()).min(effect.shown.len());
            if state.output.reserve_fallibly(room).is_ok() {
                state.output.extend(&effect.shown[..room]);
            }
            state.tell(effect.status, effect.status_over);
            (state.control, state.packets && state.status != 0)
        };
        effect.signals.iter().for_each(|signal| control.signal(*signal));
        self.slave.wake(Events::READABLE.with(Events::WRITABLE, effect.has_started));
        if has_status || !effect.shown.is_empty() {
            self.master.wake(Events::READABLE | Events::PRI);
        }
    }

    fn resized(&self) {
        self.control().signal(SIGWINCH);
    }
}

/// Hands what the program writes to `put`, a piece at a time, for as long as there is room; `put` says what it took.
fn in_pieces(
    from: &mut Source<'_>,
    room: impl Fn() -> Result<usize>,
    put: impl Fn(&[u8]) -> Result<usize>,
) -> Result<usize> {
    let mut done = 0;
    let mut chunk = [0; CHUNK];
    while from.remaining() > 0 {
        let room = room().and_then(|room| if room == 0 { Err(EAGAIN) } else { Ok(room.min(CHUNK)) });
        let taken = room.and_then(|room| from.take(&mut chunk[..room]));
        match taken.and_then(|n| if n == 0 { Ok(0) } else { put(&chunk[..n]) }) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// A new pair; the slave belongs to that user, and to the group of terminals as with the option `gid=5` of devpts, which every
/// distribution and container engine mounts it with.
fn new_pair((user, _): (u32, u32), size: [u16; 4], locked: bool) -> Result<Arc<Pair>> {
    let mut pairs = PAIRS.lock();
    let number = (0..MAX_PAIRS).find(|n| !pairs.all.contains_key(n)).ok_or(ENOSPC)?;
    let now = Timespec::now();
    let pair = Arc::new(Pair {
        number,
        device: pairs.device,
        state: SpinLock::new(State {
            line: Line::of_pair(size),
            pending: VecDeque::new(),
            master_held: false,
            output: VecDeque::new(),
            locked,
            packets: false,
            status: 0,
            exclusive: [false; 2],
            slaves: 0,
            slave_gone: false,
            master_gone: false,
            control: Control::NOTHING,
            permissions: 0o620,
            owner: (user, TTY_GROUP),
            accessed: now,
            modified: now,
        }),
        master: WaitQueue::new(),
        slave: WaitQueue::new(),
    });
    pairs.all.insert(number, pair.clone());
    Ok(pair)
}

/// A new pair: its master.
pub fn open_master(inode: &Arc<dyn Inode>) -> Result<Arc<dyn File>> {
    let pair = new_pair((machine().owner)(), [0; 4], true)?;
    Ok(Arc::new(Master { pair, inode: inode.clone() }))
}

/// TIOCGPTPEER: the slave of a master, opened without its name, and the number in that name. `EIO` for a
/// slave, `ENOTTY` for what is no terminal.
pub fn open_peer(master: &dyn File, flags: u32) -> Result<(u32, Arc<dyn File>)> {
    let file = master.as_any();
    let Some(Master { pair, .. }) = file.downcast_ref::<Master>() else {
        return Err(if file.is::<Slave>() { EIO } else { ENOTTY });
    };
    let node: Arc<dyn Inode> = Arc::new(Node(pair.clone()));
    Ok((pair.number, node.open(&node, flags)?))
}

/// /dev/tty of a program whose session a pseudo-terminal controls; `ENXIO` when none does.
pub fn open_controlling() -> Result<Arc<dyn File>> {
    let pair = controlling((machine().caller)().session).ok_or(ENXIO)?;
    let node: Arc<dyn Inode> = Arc::new(Node(pair));
    node.open(&node, 0)
}

struct Master {
    pair: Arc<Pair>,
    inode: Arc<dyn Inode>,
}

impl File for Master {
    fn read(&self, _: u64, to: &mut Sink<'_>) -> Result<usize> {
        let most = to.remaining().min(READ);
        if most == 0 {
            return Ok(0);
        }
        let bytes: Vec<u8> = {
            let mut state = self.pair.state.lock();
            if state.packets && state.status != 0 {
                let status = core::mem::take(&mut state.status);
                drop(state);
                return to.put(&[status]);
            }
            if state.output.is_empty() {
                // What was written before the last slave went is read first.
                return Err(if state.slave_gone { EIO } else { EAGAIN });
            }
            let status = usize::from(state.packets).min(most);
            let n = state.output.len().min(most - status);
            core::iter::repeat_n(0, status).chain(state.output.drain(..n)).collect()
        };
        self.pair.slave.wake(Events::WRITABLE);
        to.put(&bytes)
    }

    fn write(&self, _: u64, from: &mut Source<'_>) -> Result<usize> {
        let room = || {
            let state = self.pair.state.lock();
            match () {
                () if state.slave_gone => Err(EIO),
                () if state.master_held => Ok(0),
                () => Ok(state.room()),
            }
        };
        in_pieces(from, room, |bytes| self.pair.input(bytes))
    }

    fn stat(&self) -> Result<Stat> {
        self.inode.stat()
    }

    fn poll(&self) -> Events {
        let state = self.pair.state.lock();
        let has_status = state.packets && state.status != 0;
        Events::NONE
            .with(Events::READABLE, has_status || !state.output.is_empty())
            .with(Events::PRI, has_status)
            .with(Events::WRITABLE, state.room() > 0 && !state.master_held)
            .with(Events::HUP, state.slave_gone)
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.pair.master)
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        let answer = |value: i32| api_fs::write_user_int(argument, value).map(|()| 0);
        let flag = || UserPtr::<i32>::new(argument).read().map(|value| value != 0);
        match command {
            TIOCGPTN => answer(self.pair.number as i32),
            TIOCSPTLCK => {
                let locked = flag()?;
                self.pair.state.lock().locked = locked;
                Ok(0)
            }
            TIOCGPTLCK => answer(self.pair.state.lock().locked.into()),
            TIOCPKT => {
                let packets = flag()?;
                let mut state = self.pair.state.lock();
                if !state.packets {
                    state.status = 0;
                }
                state.packets = packets;
                Ok(0)
            }
            TIOCGPKT => answer(self.pair.state.lock().packets.into()),
            TIOCGDEV => answer(device(5, 2) as i32),
            FIONREAD => answer(self.pair.state.lock().output.len().min(READ) as i32),
            TIOCOUTQ => answer(0),
            TIOCGPGRP => answer(shown(self.pair.control().group)),
            TIOCGSID => match self.pair.control().session {
                0 => Err(ENOTTY),
                session => answer(shown(session)),
            },
            // As with a key, but whatever the settings are; the number is the argument.
            TIOCSIG => match argument as i32 {
                signal @ (SIGINT | SIGQUIT | SIGTSTP) => {
                    self.pair.control().signal(signal);
                    Ok(0)
                }
                _ => Err(EINVAL),
            },
            TCFLSH => self.pair.flush(Side::Master, argument),
            _ => self.pair.ioctl(Side::Master, command, argument).unwrap_or(Err(ENOTTY)),
        }
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.inode)
    }

    fn close(&self) -> Result<()> {
        self.pair.end();
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

struct Slave {
    pair: Arc<Pair>,
    inode: Arc<dyn Inode>,
}

impl Slave {
    /// Bytes that were taken out of the line: there is room again for what the master wrote.
    fn hand_out(&self, bytes: &[u8], to: &mut Sink<'_>) -> Result<usize> {
        self.pair.feed();
        self.pair.master.wake(Events::WRITABLE);
        to.put(bytes)
    }
}

impl File for Slave {
    fn read(&self, _: u64, to: &mut Sink<'_>) -> Result<usize> {
        let most = to.remaining().min(CHUNK * 16);
        self.pair.control().check_read()?;
        if most == 0 {
            return Ok(0);
        }
        let bytes = {
            let mut state = self.pair.state.lock();
            match state.line.readable() {
                Some(_) => state.line.take(most),
                None if state.master_gone => return Ok(0),
                None => return Err(EAGAIN),
            }
        };
        self.hand_out(&bytes, to)
    }

    fn read_limit_ns(&self) -> Option<u64> {
        self.pair.with_line(|line| line.read_limit_ns())
    }

    fn read_rest(&self, to: &mut Sink<'_>, has_waited: bool) -> Result<usize> {
        let most = to.remaining().min(CHUNK * 16);
        let Some(bytes) = self.pair.with_line(|line| line.take_rest(most)) else {
            return if has_waited { Ok(0) } else { Err(EAGAIN) };
        };
        self.hand_out(&bytes, to)
    }

    fn write(&self, _: u64, from: &mut Source<'_>) -> Result<usize> {
        if self.pair.with_line(|line| line.stops_background()) {
            self.pair.control().check_change()?;
        }
        let room = || {
            let state = self.pair.state.lock();
            match () {
                () if state.master_gone => Err(EIO),
                () if state.line.is_stopped() => Ok(0),
                () => Ok(OUTPUT.saturating_sub(state.output.len())),
            }
        };
        in_pieces(from, room, |bytes| {
            let mut state = self.pair.state.lock();
            let State { line, output, .. } = &mut *state;
            output.reserve_fallibly(bytes.len() * MAX_SHOWN).map_err(|_| ENOMEM)?;
            bytes.iter().for_each(|byte| line.output(*byte, &mut |shown| output.push_back(shown)));
            drop(state);
            self.pair.master.wake(Events::READABLE);
            Ok(bytes.len())
        })
    }

    fn stat(&self) -> Result<Stat> {
        self.inode.stat()
    }

    fn poll(&self) -> Events {
        let state = self.pair.state.lock();
        let gone = state.master_gone;
        Events::NONE
            .with(Events::READABLE, gone || state.line.has_input())
            .with(Events::WRITABLE, gone || state.output.len() < OUTPUT && !state.line.is_stopped())
            .with(Events::HUP | Events::ERR, gone)
    }

    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.pair.slave)
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        let answer = |value: i32| api_fs::write_user_int(argument, value).map(|()| 0);
        let (gone, control) = {
            let state = self.pair.state.lock();
            (state.master_gone, state.control)
        };
        match command {
            _ if gone => Err(EIO),
            FIONREAD => answer(self.pair.state.lock().line.unread() as i32),
            // What is written is the master's at once.
            TIOCOUTQ => answer(0),
            TIOCGDEV => answer(number_of(&self.pair) as i32),
            TIOCGPGRP => answer(shown(control.foreground()?)),
            TIOCGSID => answer(shown(control.session()?)),
            TIOCNOTTY => {
                control.session()?;
                if (machine().caller)().leads {
                    self.pair.release_control().hang_up();
                }
                Ok(0)
            }
            TIOCSCTTY => self.pair.take_control(),
            _ if changes_settings(command) => {
                control.check_change()?;
                self.pair.ioctl(Side::Slave, command, argument).unwrap_or(Err(ENOTTY))
            }
            TCFLSH | TCXONC => {
                control.check_change()?;
                match command {
                    TCFLSH => self.pair.flush(Side::Slave, argument),
                    _ => self.pair.flow(Side::Slave, argument),
                }
            }
            _ => self.pair.ioctl(Side::Slave, command, argument).unwrap_or(Err(ENOTTY)),
        }
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.inode)
    }

    fn close(&self) -> Result<()> {
        let mut state = self.pair.state.lock();
        state.slaves -= 1;
        state.slave_gone = state.slaves == 0;
        drop(state);
        self.pair.master.wake_all(Events::READABLE | Events::HUP);
        Ok(())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// /dev/pts/N.
struct Node(Arc<Pair>);

impl Inode for Node {
    fn stat(&self) -> Result<Stat> {
        let state = self.0.state.lock();
        let mut stat = Stat::new(FileType::CharDevice, state.permissions);
        (stat.uid, stat.gid) = state.owner;
        (stat.accessed, stat.modified, stat.changed) = (state.accessed, state.modified, state.modified);
        stat.device = self.0.device;
        stat.inode = u64::from(self.0.number) + FIRST_INODE;
        stat.rdev = number_of(&self.0);
        stat.block_size = 1024;
        Ok(stat)
    }

    fn open(&self, this: &Arc<dyn Inode>, flags: u32) -> Result<Arc<dyn File>> {
        {
            let mut state = self.0.state.lock();
            if state.locked || state.master_gone {
                return Err(EIO);
            }
            if state.exclusive[Side::Slave as usize] && !(machine().caller)().administers {
                return Err(EBUSY);
            }
            state.slaves += 1;
            state.slave_gone = false;
        }
        if flags & O_NOCTTY == 0 && flags & O_ACCMODE != O_WRONLY && self.0.control().session == 0 {
            // A session that has a terminal keeps it, and who leads none gets none: the file is opened all the same.
            let _ = self.0.take_control();
        }
        Ok(Arc::new(Slave { pair: self.0.clone(), inode: this.clone() }))
    }

    fn set_attr(&self, change: &SetAttr) -> Result<()> {
        let mut state = self.0.state.lock();
        let s = &mut *state;
        s.permissions = change.permissions.unwrap_or(s.permissions);
        s.owner = (change.uid.unwrap_or(s.owner.0), change.gid.unwrap_or(s.owner.1));
        s.accessed = change.accessed.unwrap_or(s.accessed);
        s.modified = change.modified.unwrap_or(s.modified);
        Ok(())
    }

    fn stat_fs(&self) -> Result<StatFs> {
        statistics()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn statistics() -> Result<StatFs> {
    Ok(StatFs { magic: DEVPTS_SUPER_MAGIC, block_size: 4096, name_max: 255, ..StatFs::default() })
}

/// Opening it makes a pair.
const MULTIPLEXER: &[u8] = b"ptmx";
/// As devpts numbers them: the root is 1.
const MULTIPLEXER_INODE: u64 = 2;
const FIRST_INODE: u64 = 3;

/// /dev/pts/ptmx, of the file system with that number.
struct Multiplexer(u64);

impl Inode for Multiplexer {
    fn stat(&self) -> Result<Stat> {
        let mut stat = Stat::new(FileType::CharDevice, 0o666);
        (stat.device, stat.inode, stat.rdev, stat.block_size) =
            (self.0, MULTIPLEXER_INODE, crate::PTMX, 1024);
        Ok(stat)
    }

    fn open(&self, this: &Arc<dyn Inode>, _flags: u32) -> Result<Arc<dyn File>> {
        open_master(this)
    }

    fn stat_fs(&self) -> Result<StatFs> {
        statistics()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// /dev/pts.
struct Directory(u64);

/// The file system of /dev/pts; once.
pub fn root(number: u64) -> Arc<dyn Inode> {
    PAIRS.lock().device = number;
    Arc::new(Directory(number))
}

impl Inode for Directory {
    fn stat(&self) -> Result<Stat> {
        let mut stat = Stat::new(FileType::Directory, 0o755);
        (stat.device, stat.inode, stat.links) = (self.0, 1, 2);
        Ok(stat)
    }

    fn open(&self, this: &Arc<dyn Inode>, _flags: u32) -> Result<Arc<dyn File>> {
        Ok(Arc::new(Listing(this.clone())))
    }

    fn lookup(&self, name: &[u8]) -> Result<Arc<dyn Inode>> {
        if name == MULTIPLEXER {
            return Ok(Arc::new(Multiplexer(self.0)));
        }
        let number = core::str::from_utf8(name).ok().and_then(|name| name.parse().ok()).ok_or(ENOENT)?;
        // One name each: no signs, no leading zeros.
        if format!("{number}").as_bytes() != name {
            return Err(ENOENT);
        }
        let pair = PAIRS.lock().all.get(&number).cloned().ok_or(ENOENT)?;
        Ok(Arc::new(Node(pair)))
    }

    fn refusal(&self) -> Errno {
        EPERM
    }

    fn list(&self, from: u64, most: usize) -> Result<Vec<DirEntry>> {
        let pairs = PAIRS.lock();
        let entry = |name: Vec<u8>, inode: u64| DirEntry {
            name,
            inode,
            kind: FileType::CharDevice,
            // The multiplexer is the first one, then come the terminals by their numbers.
            next: inode - MULTIPLEXER_INODE + 1,
        };
        let multiplexer = (from == 0).then(|| entry(MULTIPLEXER.to_vec(), MULTIPLEXER_INODE));
        let behind = u32::try_from(from.saturating_sub(1)).unwrap_or(MAX_PAIRS);
        let terminal =
            |number: &u32| entry(format!("{number}").into_bytes(), u64::from(*number) + FIRST_INODE);
        let terminals = pairs.all.range(behind..).map(|(number, _)| terminal(number));
        Ok(multiplexer.into_iter().chain(terminals).take(most).collect())
    }

    fn stat_fs(&self) -> Result<StatFs> {
        statistics()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// /dev/pts opened.
struct Listing(Arc<dyn Inode>);

impl File for Listing {
    fn stat(&self) -> Result<Stat> {
        self.0.stat()
    }

    fn inode(&self) -> Option<&Arc<dyn Inode>> {
        Some(&self.0)
    }

    fn is_seekable(&self) -> bool {
        true
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
