// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals that tell of files (fcntl(2): O_ASYNC, F_SETOWN, F_SETSIG; socket(7): SIGURG).
//!
//! A description with O_ASYNC, or a socket with an owner, gets a [`Notifier`] on its file's wait queue, which sends the
//! signal whenever the queue is woken. Nothing is on the queue of a file nobody asked this of.

use abi::{Events, Result, errno::*};
use alloc::sync::{Arc, Weak};
use api_fs::{File, FileType};
use api_lock::SpinLock;
use api_sched::{WaitKey, Waiter};
use api_user::UserPtr;
use descriptors::{Description, Owned, OwnedBy, OwnerKind, Watcher};
use ordered::Map;
use task::Task;
use task::pids::Pid;
use task::process::Process;
use task::processes;
use task::signals::{self, SIGPOLL, SIGURG, SigInfo};

const O_ASYNC: u32 = 0o20000;
const FIOASYNC: u32 = 0x5452;
const FIOSETOWN: u32 = 0x8901;
const SIOCSPGRP: u32 = 0x8902;
const FIOGETOWN: u32 = 0x8903;
const SIOCGPGRP: u32 = 0x8904;
/// `si_code` of SIGPOLL: what is possible now (sigaction(2)).
const POLL_IN: i32 = 1;
const POLL_OUT: i32 = 2;
const POLL_ERR: i32 = 4;
const POLL_PRI: i32 = 5;
const POLL_HUP: i32 = 6;
/// Of signals that have codes of their own.
const SI_SIGIO: i32 = -5;

/// Sends the signals of one description.
struct Notifier {
    description: Weak<Description>,
    file: Arc<dyn File>,
    fd: i32,
    key: SpinLock<Option<WaitKey>>,
}

/// By [`Description::id`].
static NOTIFIERS: SpinLock<Map<usize, Arc<Notifier>>> = SpinLock::new(Map::new());

impl Waiter for Notifier {
    fn wake(&self, events: Events) {
        let Some(description) = self.description.upgrade() else { return };
        if events.intersects(Events::PRI) && api_socket::of_file(&*self.file).is_ok() {
            send_signal(description.owned(), SigInfo::from_kernel(SIGURG));
        }
        if description.flags() & O_ASYNC != 0
            && let Some((reason, band)) = reason(events, || self.file.poll())
        {
            send(&description, self.fd, reason, band);
        }
    }
}

/// Sends SIGIO to the description's owner, or the signal of F_SETSIG with what happened.
pub fn send(description: &Description, fd: i32, reason: i32, band: Events) {
    let owned = description.owned();
    let signal = description.signal();
    if signal != 0 {
        let has_codes = signals::bit(signal) & signals::SPECIFIC_CODES != 0;
        let code = if signal != SIGPOLL && has_codes { SI_SIGIO } else { reason };
        if send_signal(owned, SigInfo::poll(signal, code, band, fd)) {
            return;
        }
        // No room in the queue: the plain signal says at least that something happened.
    }
    send_signal(owned, SigInfo::from_kernel(SIGPOLL));
}

/// An owner in the name of the calling thread.
pub fn owned(kind: OwnerKind, id: Pid) -> Owned {
    let task = task::current();
    let credentials = task.credentials().lock();
    let is_first = task.process.pid == Pid::FIRST;
    let id = id.of_machine();
    let by = OwnedBy { uid: credentials.uid, euid: credentials.euid, is_first };
    Owned { kind, id, since_ns: api_plat::now_ns(), by }
}

/// The thread that was named as the owner; `None` when it has ended.
fn thread(owned: Owned) -> Option<Arc<Task>> {
    processes::task(Pid::from_machine(owned.id)).filter(|task| task.process.born_ns <= owned.since_ns)
}

/// The process that was named as the owner; `None` when it was waited for.
fn process(owned: Owned) -> Option<Arc<Process>> {
    processes::find(Pid::from_machine(owned.id)).filter(|process| process.born_ns <= owned.since_ns)
}

/// Whoever named the process as the owner could send it the signal (Linux' `sigio_perm`). By F_SETSIG it may be any signal.
fn may_be_told(process: &Process, by: OwnedBy, signal: i32) -> bool {
    let may = by.euid == 0 || signals::is_users(process, by.uid, by.euid);
    may && (by.is_first || !signals::is_spared(process, signal))
}

/// False when the signal could not be queued.
fn send_signal(owned: Owned, info: SigInfo) -> bool {
    let may = |process: &Process| may_be_told(process, owned.by, info.signal());
    let send = |process: &Process| !may(process) || signals::send_to_process(process, info).is_ok();
    match owned.kind {
        _ if owned.id == 0 => true,
        OwnerKind::Thread => {
            thread(owned).is_none_or(|task| !may(&task.process) || signals::send_to_task(&task, info).is_ok())
        }
        OwnerKind::Process => process(owned).is_none_or(|process| send(&process)),
        OwnerKind::Group => {
            let mut sent = true;
            processes::of_group(Pid::from_machine(owned.id)).for_each(|process| sent &= send(&process));
            sent
        }
    }
}

impl Notifier {
    fn leave(&self) {
        let key = self.key.lock().take();
        if let (Some(key), Some(queue)) = (key, self.file.wait_queue()) {
            queue.remove(key);
        }
    }
}

impl Watcher for Notifier {
    fn closed(&self, description: usize) {
        self.leave();
        let gone = NOTIFIERS.lock().remove(&description);
        drop(gone);
    }
}

/// Why the signal is sent, and the events of poll(2) that go with it.
fn reason(events: Events, now: impl Fn() -> Events) -> Option<(i32, Events)> {
    let table = [
        (Events::IN, POLL_IN, Events::READABLE),
        (Events::PRI, POLL_PRI, Events::PRI | Events::RDBAND),
        (Events::HUP, POLL_HUP, Events::HUP | Events::ERR),
        (Events::ERR, POLL_ERR, Events::ERR),
        (Events::OUT, POLL_OUT, Events::WRITABLE | Events::WRBAND),
    ];
    let (event, code, band) = table.into_iter().find(|(event, ..)| events.intersects(*event))?;
    // Room is told of before there is enough of it.
    (event != Events::OUT || now().intersects(Events::OUT)).then_some((code, band))
}

/// Files whose changes are told by signals: sockets, pipes and terminals.
fn tells(description: &Description) -> bool {
    let Ok(stat) = description.file().stat() else { return false };
    description.file().wait_queue().is_some()
        && matches!(stat.kind, FileType::Socket | FileType::Fifo | FileType::CharDevice)
}

/// Adds the notifier where there is none yet.
fn watch(fd: i32, description: &Arc<Description>) -> Result<()> {
    let file = description.file();
    let Some(queue) = file.wait_queue() else { return Ok(()) };
    let mut notifiers = NOTIFIERS.lock();
    if notifiers.contains_key(&description.id()) {
        return Ok(());
    }
    let notifier = Arc::new(Notifier {
        description: Arc::downgrade(description),
        file: file.clone(),
        fd,
        key: SpinLock::new(None),
    });
    let watcher: Arc<dyn Watcher> = notifier.clone();
    description.watch(&watcher)?;
    *notifier.key.lock() = Some(queue.try_add(notifier.clone(), Events::ALL, false)?);
    notifiers.insert(description.id(), notifier);
    Ok(())
}

/// The flags F_SETFL is to set: O_ASYNC only where it means something.
pub fn set_async(fd: i32, description: &Arc<Description>, flags: u32) -> Result<u32> {
    if flags & O_ASYNC == 0 {
        return Ok(flags);
    }
    if !tells(description) {
        return Ok(flags & !O_ASYNC);
    }
    if description.owned().id == 0
        && description.file().stat().is_ok_and(|stat| stat.kind == FileType::CharDevice)
    {
        description.set_owned(owned(OwnerKind::Process, task::current().process.pid));
    }
    watch(fd, description)?;
    Ok(flags)
}

/// There is such a process, thread or group; or none is meant.
fn check(id: i32) -> Result<()> {
    let id = Pid::from_machine(id);
    if id == Pid::NONE || processes::of_group(id).next().is_some() || processes::with_thread(id).is_some() {
        Ok(())
    } else {
        Err(ESRCH)
    }
}

fn set_owned(fd: i32, description: &Arc<Description>, owned: Owned) -> Result<usize> {
    check(owned.id)?;
    description.set_owned(owned);
    if owned.id != 0 && api_socket::of_file(&**description.file()).is_ok() {
        watch(fd, description)?;
    }
    Ok(0)
}

/// Whom the caller names as the owner; 0 is nobody.
fn named(number: i32) -> Result<Pid> {
    if number == 0 { Ok(Pid::NONE) } else { Pid::named(number).ok_or(ESRCH) }
}

/// F_SETOWN: a negative number is a process group.
pub fn set_owner(fd: i32, description: &Arc<Description>, who: i32) -> Result<usize> {
    let owned = match who {
        0.. => owned(OwnerKind::Process, named(who)?),
        _ => owned(OwnerKind::Group, named(who.checked_neg().ok_or(EINVAL)?)?),
    };
    set_owned(fd, description, owned)
}

/// The number of an owner for the caller; 0 when it is no more.
fn shown(owned: Owned) -> i32 {
    let id = Pid::from_machine(owned.id);
    let is_there = match owned.kind {
        OwnerKind::Thread => thread(owned).is_some(),
        OwnerKind::Process => process(owned).is_some(),
        OwnerKind::Group => processes::of_group(id).next().is_some(),
    };
    if is_there { id.here() } else { 0 }
}

/// F_GETOWN. (A process group shows as a negative number; the caller knows that it is no error.)
pub fn owner(description: &Description) -> i32 {
    let owned = description.owned();
    let id = shown(owned);
    if owned.kind == OwnerKind::Group { -id } else { id }
}

/// F_SETOWN_EX: `struct f_owner_ex`, type and id.
pub fn set_owner_ex(fd: i32, description: &Arc<Description>, pointer: UserPtr<[i32; 2]>) -> Result<usize> {
    let [kind, id] = pointer.read()?;
    let kind = match kind {
        0 => OwnerKind::Thread,
        1 => OwnerKind::Process,
        2 => OwnerKind::Group,
        _ => return Err(EINVAL),
    };
    set_owned(fd, description, owned(kind, named(id)?))
}

/// F_GETOWN_EX.
pub fn owner_ex(description: &Description, pointer: UserPtr<[i32; 2]>) -> Result<usize> {
    let owned = description.owned();
    pointer.write([owned.kind as i32, shown(owned)])?;
    Ok(0)
}

/// The requests of ioctl(2) that mean the same; `None` for others.
pub fn ioctl(fd: i32, description: &Arc<Description>, command: u32, argument: u64) -> Option<Result<usize>> {
    let pointer = UserPtr::<i32>::new(argument);
    let is_socket = || api_socket::of_file(&**description.file()).is_ok();
    Some(match command {
        FIOASYNC => pointer.read().and_then(|on| {
            let flags = description.flags();
            let wanted = if on != 0 { flags | O_ASYNC } else { flags & !O_ASYNC };
            if wanted != flags && !tells(description) {
                return Err(ENOTTY);
            }
            description.set_flags(set_async(fd, description, wanted)?);
            Ok(0)
        }),
        FIOSETOWN | SIOCSPGRP if is_socket() => {
            pointer.read().and_then(|who| set_owner(fd, description, who))
        }
        FIOGETOWN | SIOCGPGRP if is_socket() => pointer.write(owner(description)).map(|()| 0),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signal_says_what_is_possible() {
        let nothing = || Events::NONE;
        assert_eq!(reason(Events::IN | Events::OUT, nothing).map(|r| r.0), Some(POLL_IN));
        assert_eq!(reason(Events::PRI, nothing).map(|r| r.0), Some(POLL_PRI));
        assert_eq!(reason(Events::OUT, nothing), None);
        assert_eq!(reason(Events::OUT, || Events::OUT).map(|r| r.0), Some(POLL_OUT));
        assert_eq!(reason(Events::NONE, nothing), None);
    }
}
