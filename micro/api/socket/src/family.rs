// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of address families.

use super::{Caller, Credentials, Names, Socket, Type};
use abi::{Result, errno::*};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};

/// An address family: a micro-library's entry point.
pub trait Family: Send + Sync {
    /// AF_* number.
    fn number(&self) -> u16;

    /// `ESOCKTNOSUPPORT` or `EPROTONOSUPPORT` for what the family lacks.
    fn create(&self, creator: Credentials, kind: Type, protocol: u32) -> Result<Arc<dyn Socket>>;

    /// socketpair(2).
    fn pair(
        &self,
        creator: Credentials,
        kind: Type,
        protocol: u32,
    ) -> Result<(Arc<dyn Socket>, Arc<dyn Socket>)> {
        // What there is no socket for is that error, as of socket(2).
        self.create(creator, kind, protocol)?;
        Err(EOPNOTSUPP)
    }

    /// A request about network interfaces (netdevice(7)), which a socket of any family may make; `ENOTTY`: it is none.
    fn interfaces(&self, command: u32, argument: u64) -> Result<usize> {
        let _ = (command, argument);
        Err(ENOTTY)
    }

    /// The stack, which the caller knows by its type, of a family that has one.
    fn stack(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Changes a setting of the stack below /proc/sys/net; `ENOENT`: the family has none of this name.
    fn set(&self, name: &str, value: i64) -> Result<()> {
        let _ = (name, value);
        Err(ENOENT)
    }

    /// The same for one that is no number.
    fn set_text(&self, name: &str, text: &str) -> Result<()> {
        let _ = (name, text);
        Err(ENOENT)
    }

    /// A table of /proc/net (proc(5)) that is about the whole stack; `None`: the family has none of this name.
    fn table(&self, name: &str) -> Option<String> {
        let _ = name;
        None
    }
}

static CALLER: SpinLock<Option<&'static dyn Names>> = SpinLock::new(None);

/// Makes known who calls, for calls that have no place for it: write(2).
pub fn register_caller(names: &'static dyn Names) {
    *CALLER.lock() = Some(names);
}

/// Who calls; `None` before there is anybody.
pub fn caller() -> Option<Caller<'static>> {
    CALLER.lock().map(|names| Caller { names })
}

static FAMILIES: SpinLock<Vec<Arc<dyn Family>>> = SpinLock::new(Vec::new());

/// AF_UNIX: sockets with paths for names are of no network.
const UNIX: u32 = 1;

/// A network namespace (network_namespaces(7)).
pub struct Network {
    /// Counts from 0, the machine's own.
    pub number: u64,
    /// Those of its own stack; of the machine's own network those that are registered.
    families: Vec<Arc<dyn Family>>,
}

/// Makes the families of another network, which has a stack of its own.
pub type Maker = fn() -> Result<Vec<Arc<dyn Family>>>;

static MAKER: SpinLock<Option<Maker>> = SpinLock::new(None);

/// Makes known how another network is made; without it there is the machine's own only.
pub fn register_maker(maker: Maker) {
    *MAKER.lock() = Some(maker);
}

impl Network {
    /// The machine's own.
    pub fn first() -> Arc<Network> {
        Arc::new(Network { number: 0, families: Vec::new() })
    }

    /// A new one (CLONE_NEWNET). `EINVAL` where there is only one, as from a Linux without them.
    pub fn another() -> Result<Arc<Network>> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let maker = MAKER.lock().ok_or(EINVAL)?;
        let families = maker()?;
        Ok(Arc::new(Network { number: NEXT.fetch_add(1, Ordering::Relaxed), families }))
    }
}

impl Network {
    /// The stack of a network, which the caller knows by its type.
    pub fn stack(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        let find = |all: &[Arc<dyn Family>]| all.iter().find_map(|family| family.stack());
        if self.number == 0 { find(&FAMILIES.lock()) } else { find(&self.families) }
    }
}

/// Whether the caller may change its network (CAP_NET_ADMIN).
pub fn may_administer() -> bool {
    caller().is_some_and(|caller| caller.names.may_administer())
}

/// Process and effective ids of the caller.
pub fn credentials() -> Option<Credentials> {
    caller().map(|caller| caller.names.credentials())
}

/// The stack of the caller's network.
pub fn stack() -> Option<Arc<dyn Any + Send + Sync>> {
    families().iter().find_map(|family| family.stack())
}

/// Changes a setting of the caller's network.
pub fn set(name: &str, value: i64) -> Result<()> {
    let families = families();
    let mut answers = families.iter().map(|family| family.set(name, value));
    answers.find(|answer| *answer != Err(ENOENT)).unwrap_or(Err(ENOENT))
}

/// The same for one that is no number.
pub fn set_text(name: &str, text: &str) -> Result<()> {
    let families = families();
    let mut answers = families.iter().map(|family| family.set_text(name, text));
    answers.find(|answer| *answer != Err(ENOENT)).unwrap_or(Err(ENOENT))
}

fn network() -> Option<Arc<Network>> {
    caller().and_then(|caller| caller.names.network()).filter(|network| network.number != 0)
}

/// The number of the caller's network.
pub fn network_number() -> u64 {
    network().map_or(0, |network| network.number)
}

/// The families of the caller's network.
fn families() -> Vec<Arc<dyn Family>> {
    network().map_or_else(|| FAMILIES.lock().clone(), |network| network.families.clone())
}

/// Makes a family known; one registered later with the same number replaces it.
pub fn register(family: Arc<dyn Family>) {
    let mut families = FAMILIES.lock();
    families.retain(|f| f.number() != family.number());
    families.push(family);
}

fn find(number: u32) -> Result<Arc<dyn Family>> {
    let all = if number == UNIX { FAMILIES.lock().clone() } else { families() };
    all.into_iter().find(|f| u32::from(f.number()) == number).ok_or(EAFNOSUPPORT)
}

/// Asks the family that has the interfaces; `ENOTTY` when none does, or the request is about something else.
pub(crate) fn interfaces(command: u32, argument: u64) -> Result<usize> {
    let families = families();
    let mut answers = families.iter().map(|family| family.interfaces(command, argument));
    answers.find(|answer| *answer != Err(ENOTTY)).unwrap_or(Err(ENOTTY))
}

/// The table of this name from the family that has it; `ENOENT` without one.
pub fn table(name: &str) -> Result<String> {
    families().iter().find_map(|family| family.table(name)).ok_or(ENOENT)
}

/// Family and type: a number that no family and no type has is told before what is not there, and both but for AF_UNIX before the protocol.
fn find_kind(family: u32, kind: u32, protocol: u32) -> Result<(Arc<dyn Family>, Type)> {
    /// One above the highest family and the highest type that Linux knows.
    const AF_MAX: u32 = 46;
    const SOCK_MAX: u32 = 11;
    if family < AF_MAX && kind >= SOCK_MAX {
        return Err(EINVAL);
    }
    let found = find(family)?;
    // AF_UNIX looks at the protocol before the type: there is one.
    if family == UNIX && ![0, UNIX].contains(&protocol) {
        return Err(EPROTONOSUPPORT);
    }
    Ok((found, Type::from_number(kind).ok_or(ESOCKTNOSUPPORT)?))
}

/// socket(2) without the flags.
pub fn create(creator: Credentials, family: u32, kind: u32, protocol: u32) -> Result<Arc<dyn Socket>> {
    let (found, kind) = find_kind(family, kind, protocol)?;
    found.create(creator, kind, protocol)
}

/// socketpair(2) without the flags.
pub fn pair(
    creator: Credentials,
    family: u32,
    kind: u32,
    protocol: u32,
) -> Result<(Arc<dyn Socket>, Arc<dyn Socket>)> {
    let (found, kind) = find_kind(family, kind, protocol)?;
    found.pair(creator, kind, protocol)
}
