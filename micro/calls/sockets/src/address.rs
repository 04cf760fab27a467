// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Socket addresses between the program and the kernel, and the paths of AF_UNIX.

use abi::{Result, errno::*};
use alloc::sync::Arc;
use api_fs::{FileType, Inode};
use api_socket::{Address, Credentials, Names, Network};
use api_user::UserPtr;
use task::identity::capabilities::CAP_NET_ADMIN;
use task::network::NetworkNamespace;
use task::nsfs::NamespaceFile;
use task::{files, processes};
use vfs::{Access, Walk, ops};

/// Reads an address of `length` bytes.
pub fn read_address(at: u64, length: i32) -> Result<Address> {
    let length = usize::try_from(length).ok().filter(|n| *n <= Address::MAX).ok_or(EINVAL)?;
    let mut bytes = [0; Address::MAX];
    api_user::read_bytes(at, &mut bytes[..length])?;
    Address::from_bytes(&bytes[..length])
}

/// Writes as much of an address as the program has room for, and its full length.
pub fn write_address(address: &Address, to: u64, length_at: u64) -> Result<()> {
    let length_at = UserPtr::<i32>::new(length_at);
    let room = usize::try_from(length_at.read()?).map_err(|_| EINVAL)?;
    let bytes = address.bytes();
    api_user::write_bytes(to, &bytes[..bytes.len().min(room)])?;
    length_at.write(bytes.len() as i32)
}

/// Paths of the calling process.
pub struct Paths {
    /// Of a socket that is given a name: what fchmod(2) made of its own, before the umask.
    pub permissions: u32,
}

fn with_walk<T>(path: &[u8], f: impl FnOnce(&Walk<'_>, &vfs::Credentials) -> Result<T>) -> Result<T> {
    let files = files::current();
    let (root, start, who) = (files.root(), files.start(files::AT_FDCWD, path)?, files::credentials());
    f(&Walk::new(&root, &start, &who), &who)
}

/// `EPERM` where the caller may not administer that network.
fn administered(namespace: &Arc<NetworkNamespace>) -> Result<Arc<Network>> {
    let can = task::current().credentials().lock().can_in(&namespace.owner, CAP_NET_ADMIN);
    if can { Ok(namespace.network.clone()) } else { Err(EPERM) }
}

impl Names for Paths {
    fn credentials(&self) -> Credentials {
        super::credentials()
    }

    fn sender(&self) -> Credentials {
        super::sender()
    }

    fn may_administer(&self) -> bool {
        super::may_administer()
    }

    fn network(&self) -> Option<Arc<Network>> {
        task::running().map(|task| task.network().network.clone())
    }

    fn network_of_descriptor(&self, fd: i32) -> Result<Arc<Network>> {
        let description = files::get(fd)?;
        let file = description.file().as_any().downcast_ref::<NamespaceFile>().ok_or(EINVAL)?;
        administered(file.of.network.as_ref().ok_or(EINVAL)?)
    }

    fn network_of_process(&self, pid: i32) -> Result<Arc<Network>> {
        let process = processes::named(pid).ok_or(ESRCH)?;
        administered(&process.network())
    }

    fn create(&self, path: &[u8]) -> Result<Arc<dyn Inode>> {
        // Cut by the umask even where the directory has a default access control list (Linux' unix_bind_bsd).
        let permissions = self.permissions & 0o777 & !files::current().umask();
        let made = with_walk(path, |walk, _| ops::create(walk, path, FileType::Socket, permissions, 0));
        match made {
            Ok(dentry) => Ok(dentry.inode().clone()),
            Err(EEXIST) => Err(EADDRINUSE),
            Err(e) => Err(e),
        }
    }

    fn find(&self, path: &[u8]) -> Result<Arc<dyn Inode>> {
        with_walk(path, |walk, who| {
            let dentry = walk.lookup(path, true)?;
            let inode = dentry.inode().clone();
            who.check_file(&inode, &inode.stat()?, Access::WRITE)?;
            Ok(inode)
        })
    }
}
