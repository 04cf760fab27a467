// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Namespaces that a descriptor keeps, and what ioctl_ns(2) tells of them (namespaces(7)). The first ones' numbers are those of Linux'.

use crate::cgroup::Cgroup;
use crate::files;
use crate::ipc::Ipc;
use crate::network::NetworkNamespace;
use crate::pids::PidNamespace;
use crate::thread::{self, Task};
use crate::time::namespace::TimeNamespace;
use crate::users::UserNamespace;
use crate::uts::Uts;
use abi::{Result, errno::*};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use api_fs::{File, FileType, Stat};
use api_user::UserPtr;
use core::any::Any;
use vfs::Namespace;

/// Namespaces that are entered together, or the one that a descriptor keeps.
#[derive(Clone, Default)]
pub struct Entered {
    pub users: Option<UserNamespace>,
    pub mounts: Option<Arc<Namespace>>,
    pub pids: Option<PidNamespace>,
    pub uts: Option<Arc<Uts>>,
    pub ipc: Option<Arc<Ipc>>,
    pub cgroup: Option<Arc<Cgroup>>,
    pub network: Option<Arc<NetworkNamespace>>,
    pub time: Option<Arc<TimeNamespace>>,
}

/// The file system of such files where they are bound.
pub const NSFS: &str = "nsfs";
const NSFS_MAGIC: u64 = 0x6e73_6673;

const NS_GET_USERNS: u32 = 0xb701;

const NS_GET_PARENT: u32 = 0xb702;

const NS_GET_NSTYPE: u32 = 0xb703;

const NS_GET_OWNER_UID: u32 = 0xb704;

/// Linux numbers those that are made later from here on.
const FIRST_NUMBER: u64 = 0xf000_0000;

/// What a kind of namespace is called, the inode number of the machine's own (Linux' PROC_CGROUP_INIT_INO and its like), the CLONE_NEW
/// flag, and the one that a thread is in.
pub struct Kind {
    name: &'static str,
    first: u64,
    flag: u32,
    of: fn(&Task) -> Result<Entered>,
}

const fn kind(name: &'static str, first: u64, flag: u32, of: fn(&Task) -> Result<Entered>) -> Kind {
    Kind { name, first, flag, of }
}

pub static CGROUP: Kind = kind("cgroup", 0xefff_fffb, 0x0200_0000, |task| {
    Ok(Entered { cgroup: Some(task.nsproxy().cgroup.clone()), ..Entered::default() })
});

pub static IPC: Kind = kind("ipc", 0xefff_ffff, 0x0800_0000, |task| {
    Ok(Entered { ipc: Some(task.nsproxy().ipc.clone()), ..Entered::default() })
});

pub static NET: Kind = kind("net", 0xefff_fff9, 0x4000_0000, |task| {
    Ok(Entered { network: Some(task.network()), ..Entered::default() })
});

pub static TIME: Kind = kind("time", 0xefff_fffa, 0x80, |task| {
    Ok(Entered { time: Some(task.nsproxy().time.clone()), ..Entered::default() })
});

pub static TIME_FOR_CHILDREN: Kind = kind("time", 0xefff_fffa, 0x80, |task| {
    Ok(Entered { time: Some(task.nsproxy().time_for_children.clone()), ..Entered::default() })
});

pub static MNT: Kind = kind("mnt", 0xefff_fff8, 0x0002_0000, |task| {
    Ok(Entered { mounts: Some(task.files().namespace()), ..Entered::default() })
});

pub static PID: Kind = kind("pid", 0xefff_fffc, 0x2000_0000, |task| {
    Ok(Entered { pids: Some(task.process.pids.clone()), ..Entered::default() })
});

pub static PID_FOR_CHILDREN: Kind = kind("pid", 0xefff_fffc, 0x2000_0000, |task| {
    let pids = task.pids_for_children.lock().clone();
    // Nobody can enter one that has had no first process yet.
    if pids.has_begun() { Ok(Entered { pids: Some(pids), ..Entered::default() }) } else { Err(ENOENT) }
});

pub static USER: Kind = kind("user", 0xefff_fffd, 0x1000_0000, |task| {
    Ok(Entered { users: Some(task.credentials().lock().users.clone()), ..Entered::default() })
});

pub static UTS: Kind = kind("uts", 0xefff_fffe, 0x0400_0000, |task| {
    Ok(Entered { uts: Some(task.nsproxy().uts.clone()), ..Entered::default() })
});

/// A namespace that a descriptor keeps.
pub struct NamespaceFile {
    kind: &'static Kind,
    pub of: Entered,
}

impl NamespaceFile {
    /// The one that the thread is in. `ENOENT`: nobody can enter it yet.
    pub fn of_thread(task: &Task, kind: &'static Kind) -> Result<NamespaceFile> {
        Ok(NamespaceFile { kind, of: (kind.of)(task)? })
    }

    /// The CLONE_NEW flag of its kind.
    pub fn flag(&self) -> u64 {
        u64::from(self.kind.flag)
    }

    /// As readlink(2) of its file in /proc tells it.
    pub fn shown(&self) -> String {
        format!("{}:[{}]", self.kind.name, self.inode())
    }

    /// No two namespaces of any kind have the same.
    fn inode(&self) -> u64 {
        let Entered { users, mounts, pids, uts, ipc, cgroup, network, time } = &self.of;
        let numbers = [
            mounts.as_ref().map(|mounts| mounts.number()),
            uts.as_ref().map(|uts| uts.number),
            pids.as_ref().map(|pids| pids.id().into()),
            users.as_ref().map(|users| users.number()),
            ipc.as_ref().map(|ipc| ipc.number),
            cgroup.as_ref().map(|cgroup| cgroup.number),
            network.as_ref().map(|namespace| namespace.network.number),
            time.as_ref().map(|time| time.number),
        ];
        let found = (0..).zip(numbers).find_map(|(index, number)| Some((index, number?)));
        match found {
            Some((index, number @ 1..)) => FIRST_NUMBER + 8 * number + index,
            _ => self.kind.first,
        }
    }

    /// The user namespace whose capabilities count for it; of a user namespace, the one around it.
    fn owner(&self) -> Option<UserNamespace> {
        let Entered { users, mounts, pids, uts, ipc, cgroup, network, time } = &self.of;
        if let Some(users) = users {
            return users.parent();
        }
        let mounts = mounts.as_ref().map(|mounts| UserNamespace::of_owner(mounts.owner()));
        let uts = || uts.as_ref().map(|uts| uts.owner.clone());
        let pids = || pids.as_ref().map(|pids| pids.owner());
        let ipc = || ipc.as_ref().map(|ipc| ipc.owner.clone());
        let cgroup = || cgroup.as_ref().map(|cgroup| cgroup.owner.clone());
        let network = || network.as_ref().map(|network| network.owner.clone());
        let time = || time.as_ref().map(|time| time.owner.clone());
        let owner = mounts.or_else(uts).or_else(pids).or_else(ipc).or_else(cgroup).or_else(network);
        let owner = owner.or_else(time);
        Some(owner.unwrap_or_default())
    }

    /// The user namespace around it, as a descriptor. `EPERM` when it is not the caller's, or inside of that.
    fn open_owner(&self) -> Result<usize> {
        let owner = self.owner().ok_or(EPERM)?;
        let own = thread::current().credentials().lock().users.clone();
        if !own.includes(&owner) {
            return Err(EPERM);
        }
        install(&USER, Entered { users: Some(owner), ..Entered::default() })
    }

    /// NS_GET_PARENT: only kinds that are inside of each other have one.
    fn open_parent(&self) -> Result<usize> {
        match &self.of {
            Entered { users: Some(_), .. } => self.open_owner(),
            Entered { pids: Some(pids), .. } => {
                let own = &thread::current().process.pids;
                let parent = pids.parent().filter(|parent| own.includes(parent)).ok_or(EPERM)?;
                install(&PID, Entered { pids: Some(parent), ..Entered::default() })
            }
            _ => Err(EINVAL),
        }
    }
}

/// A descriptor of a namespace, closed on exec.
fn install(kind: &'static Kind, of: Entered) -> Result<usize> {
    files::current().install(Arc::new(NamespaceFile { kind, of }), files::O_CLOEXEC).map(|fd| fd as usize)
}

impl File for NamespaceFile {
    fn can_read(&self) -> bool {
        false
    }

    fn can_write(&self) -> bool {
        false
    }

    fn set_attr(&self, _: &api_fs::SetAttr) -> Result<()> {
        Err(EPERM)
    }

    fn stat(&self) -> Result<Stat> {
        let mut stat = Stat::new(FileType::Regular, 0o444);
        stat.inode = self.inode();
        Ok(stat)
    }

    fn file_system(&self) -> Result<u64> {
        Ok(NSFS_MAGIC)
    }

    fn ioctl(&self, command: u32, argument: u64) -> Result<usize> {
        match command {
            NS_GET_NSTYPE => Ok(self.kind.flag as usize),
            NS_GET_USERNS => self.open_owner(),
            NS_GET_PARENT => self.open_parent(),
            NS_GET_OWNER_UID => {
                let users = self.of.users.as_ref().ok_or(EINVAL)?;
                let own = thread::current().credentials().lock().users.clone();
                UserPtr::<u32>::new(argument).write(own.shown_user(users.owner())).map(|()| 0)
            }
            _ => Err(ENOTTY),
        }
    }

    fn open_anew(self: Arc<Self>, flags: u32) -> Result<Arc<dyn File>> {
        // It cannot be opened for writing.
        let again = || NamespaceFile { kind: self.kind, of: self.of.clone() };
        if flags & 3 != 0 { Err(EPERM) } else { Ok(Arc::new(again())) }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
