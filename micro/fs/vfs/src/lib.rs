// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tree of files the program sees: mounts, directory entries, and the walk along a path.
//!
//! - A [`Dentry`] is a name in the tree with its inode, and knows its parent: `..`, getcwd and the links of /proc
//!   need that. There is at most one for a name, so pointers can be compared. Dentries that were used lately stay
//!   cached ([`Mount`] holds them), and a walk over cached names asks no file system.
//! - A dentry belongs to exactly one [`Mount`], and what is mounted on it hangs on it. So a file system that is mounted twice, by a
//!   bind mount or in two [`Namespace`]s, has two dentries for a name. It knows that ([`api_fs::Mounts`]), and walks ask it
//!   for each name from then on, as they ask a volume of the host.
//! - [`Walk`] resolves paths as path_resolution(7) says, with openat2's restrictions; [`ops`] are the changes of
//!   the tree, with the permission checks of Linux (`fs/namei.c` is the reference for which error comes first).
//! - [`notify`] tells of changes.
//!
//! Nothing here blocks but file systems that do (9p). Locks are leaf locks, none is held over a call of an inode.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod access;
mod covered;
mod dentry;
mod detached;
#[cfg(feature = "landlock")]
pub mod landlock;
mod mount;
mod namespace;
pub mod notify;
mod open_file;
pub mod ops;
mod propagation;
pub mod protection;
mod super_block;
mod tree;
mod walk;

pub use access::{Access, Capability, Credentials, Groups, Ids, Scope};
pub use dentry::Dentry;
pub use detached::{Attributes, Detached, set_group};
pub use mount::{Mount, MountFlags};
pub use namespace::{MAX_MOUNTS, Namespace, Owner, mount_changes};
pub use open_file::OpenFile;
pub use propagation::{Kind as PropagationKind, Propagation};
pub use super_block::SuperBlock;
pub use tree::Copies;
pub use walk::{LINK_LIMIT, Last, Parent, Resolve, Walk};

#[cfg(test)]
#[cfg(feature = "landlock")]
mod landlock_tests;
#[cfg(test)]
mod namespace_tests;
#[cfg(test)]
mod tests;
