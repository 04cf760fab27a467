// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What NETLINK_SOCK_DIAG (sock_diag(7)) tells of sockets: who knows those of all programs answers, and netlink asks.

use abi::Result;
use alloc::vec::Vec;
use api_lock::SpinLock;

/// How an AF_UNIX socket stands to others.
#[derive(Clone, Debug, Default)]
pub struct Relations {
    /// Device and inode number of the file that it is bound to.
    pub file: Option<(u64, u64)>,
    /// The peer's number; 0 for one that nobody has accepted yet.
    pub peer: Option<u32>,
    /// Of a listener: who waits to be accepted, by the numbers of the sockets that asked.
    pub waiting: Option<Vec<u32>>,
    /// Bytes to be read and on their way; of a listener who waits, and how many may.
    pub queues: [u32; 2],
    /// It receives no more, it sends no more.
    pub shut: [bool; 2],
}

/// Answers requests (SOCK_DIAG_BY_FAMILY). `request` is what follows the request's `struct nlmsghdr`, and an answer is what follows its own.
pub trait Diagnosis: Sync {
    /// Whether a dump can be begun: `EINVAL` for a request that is too short or whose filter makes no sense, `ENOENT` for a family that is
    /// not told of.
    fn check(&self, request: &[u8]) -> Result<()>;

    /// The sockets that a request wants, in the order of their inode numbers from the first that is greater than `after`, to the last or
    /// to where `put` says that there is no room for one, and takes nothing. `ENOENT` for a protocol that is not told of.
    fn dump(&self, request: &[u8], after: u64, put: &mut dyn FnMut(u64, &[u8]) -> Result<bool>)
    -> Result<()>;

    /// The one socket that a request names: `ENOENT` where there is none, `ESTALE` where another one has its place.
    fn find(&self, request: &[u8]) -> Result<Vec<u8>>;
}

static DIAGNOSIS: SpinLock<Option<&'static dyn Diagnosis>> = SpinLock::new(None);

/// Makes known who answers.
pub fn register_diagnosis(diagnosis: &'static dyn Diagnosis) {
    *DIAGNOSIS.lock() = Some(diagnosis);
}

/// Who answers; `None` in a kernel that shows nobody's sockets.
pub fn diagnosis() -> Option<&'static dyn Diagnosis> {
    *DIAGNOSIS.lock()
}
