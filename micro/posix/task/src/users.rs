// SPDX-License-Identifier: Apache-2.0 OR MIT
//! User namespaces (user_namespaces(7)). The kernel keeps ids of the machine's own namespace; programs see them through the maps of
//! theirs. What has no id there is shown as [`OVERFLOW`].

use crate::thread;
use abi::{Result, errno::*};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use core::any::Any;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vfs::{Ids, Owner, Scope};

/// Shown for an id that is not mapped (kernel.overflowuid and kernel.overflowgid).
pub const OVERFLOW: u32 = 65_534;
/// One at this depth may have another one inside (Linux' `create_user_ns`).
const MAX_LEVEL: u32 = 32;
/// Lines of a map (Linux' UID_GID_MAP_MAX_EXTENTS).
const MAX_EXTENTS: usize = 340;

/// Ids of users, groups, or projects: each kind has a map of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    User,
    Group,
    Project,
}

/// `count` ids from `inside` on are those from `outside` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub inside: u32,
    pub outside: u32,
    pub count: u32,
}

impl Extent {
    fn to_outside(self, id: u32) -> Option<u32> {
        let offset = id.checked_sub(self.inside).filter(|offset| *offset < self.count)?;
        self.outside.checked_add(offset)
    }

    fn to_inside(self, id: u32) -> Option<u32> {
        let offset = id.checked_sub(self.outside).filter(|offset| *offset < self.count)?;
        self.inside.checked_add(offset)
    }

    fn overlaps(self, other: Extent) -> bool {
        let meet = |a: u32, b: u32| {
            u64::from(a) < u64::from(b) + u64::from(other.count)
                && u64::from(b) < u64::from(a) + u64::from(self.count)
        };
        meet(self.inside, other.inside) || meet(self.outside, other.outside)
    }
}

/// The maps of the machine's own namespace where that is a container's: its ids are those inside of it, and whoever serves its files
/// translates them. Set once, before there is a program.
static FIRST: SpinLock<[Vec<Extent>; 2]> = SpinLock::new([const { Vec::new() }; 2]);
static FIRST_IS_MAPPED: AtomicBool = AtomicBool::new(false);

/// From now on there are the users and groups only that these lines have.
pub fn limit_first(users: &[Extent], groups: &[Extent]) -> Result<()> {
    let mut first = FIRST.lock();
    for (map, lines) in first.iter_mut().zip([users, groups]) {
        map.clear();
        map.reserve_exact_fallibly(lines.len()).map_err(|_| ENOMEM)?;
        map.extend_from_slice(lines);
    }
    FIRST_IS_MAPPED.store(true, Ordering::Release);
    Ok(())
}

/// Whether the machine's own namespace has the id.
#[inline]
fn first_has(kind: Kind, id: u32) -> bool {
    !FIRST_IS_MAPPED.load(Ordering::Acquire)
        || kind == Kind::Project
        || FIRST.lock()[kind as usize].iter().any(|extent| extent.to_outside(id).is_some())
}

/// A user namespace. The machine's own maps every id to itself.
#[derive(Clone, Default)]
pub struct UserNamespace(Option<Arc<Nested>>);

struct Nested {
    level: u32,
    parent: UserNamespace,
    number: u64,
    /// Who made it, by the ids of the machine's own namespace.
    owner: u32,
    /// Its maker had CAP_SETFCAP, so root of the parent may be mapped.
    maker_could_set_capabilities: bool,
    state: SpinLock<State>,
}

struct State {
    /// To ids of the machine's own namespace.
    maps: [Vec<Extent>; 3],
    allows_setgroups: bool,
}

impl PartialEq for UserNamespace {
    fn eq(&self, other: &UserNamespace) -> bool {
        self.number() == other.number()
    }
}

impl Eq for UserNamespace {}

impl core::fmt::Debug for UserNamespace {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "UserNamespace({})", self.number())
    }
}

impl UserNamespace {
    /// The machine's own.
    pub const FIRST: UserNamespace = UserNamespace(None);

    /// A new one inside of this one, of the user with that id. `ENOSPC` when too many are inside of each other.
    pub fn nest(&self, owner: u32, maker_could_set_capabilities: bool) -> Result<UserNamespace> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if self.level() > MAX_LEVEL {
            return Err(ENOSPC);
        }
        if api_alloc::is_low() {
            return Err(ENOMEM);
        }
        let state = State { maps: [const { Vec::new() }; 3], allows_setgroups: self.allows_setgroups() };
        Ok(UserNamespace(Some(Arc::new(Nested {
            level: self.level() + 1,
            parent: self.clone(),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            owner,
            maker_could_set_capabilities,
            state: SpinLock::new(state),
        }))))
    }

    #[inline]
    pub fn is_first(&self) -> bool {
        self.0.is_none()
    }

    /// Counts from 0, the machine's own.
    pub fn number(&self) -> u64 {
        self.0.as_ref().map_or(0, |nested| nested.number)
    }

    pub fn level(&self) -> u32 {
        self.0.as_ref().map_or(0, |nested| nested.level)
    }

    /// Where capabilities that a process has in it count for files.
    pub fn scope(&self) -> Scope {
        match &self.0 {
            None => Scope::EVERYWHERE,
            Some(nested) => Scope::of(nested.clone()),
        }
    }

    /// As crates keep it that know of no user namespaces: what it owns says so.
    pub fn to_owner(&self) -> Owner {
        self.0.clone().map(|nested| -> Arc<dyn Any + Send + Sync> { nested })
    }

    /// Whose such a thing is.
    pub fn of_owner(owner: &Owner) -> UserNamespace {
        UserNamespace(owner.clone().and_then(|owner| owner.downcast().ok()))
    }

    /// The one that it is inside of; `None` for the machine's own.
    pub fn parent(&self) -> Option<UserNamespace> {
        self.0.as_ref().map(|nested| nested.parent.clone())
    }

    /// That one is this one or inside of it.
    pub fn includes(&self, other: &UserNamespace) -> bool {
        let mut at = other.clone();
        while at.level() > self.level() {
            at = at.parent().unwrap_or_default();
        }
        at == *self
    }

    /// Whose it is, by the ids of the machine's own namespace.
    pub fn owner(&self) -> u32 {
        self.0.as_ref().map_or(0, |nested| nested.owner)
    }

    pub fn allows_setgroups(&self) -> bool {
        self.0.as_ref().is_none_or(|nested| nested.state.lock().allows_setgroups)
    }

    /// Writes to /proc/PID/setgroups: `EPERM` for what can be changed no more.
    pub fn set_allows_setgroups(&self, allows: bool) -> Result<()> {
        let Some(nested) = &self.0 else { return if allows { Ok(()) } else { Err(EPERM) } };
        let mut state = nested.state.lock();
        let may = if allows { state.allows_setgroups } else { state.maps[Kind::Group as usize].is_empty() };
        if !may {
            return Err(EPERM);
        }
        state.allows_setgroups = allows;
        Ok(())
    }

    /// The machine's id of one of this namespace.
    #[inline]
    pub fn to_machine(&self, kind: Kind, id: u32) -> Option<u32> {
        match &self.0 {
            // Nobody has the id that stands for none.
            None => (id != u32::MAX && first_has(kind, id)).then_some(id),
            Some(nested) => nested.find(kind, |extent| extent.to_outside(id)),
        }
    }

    /// What one of the machine's ids is in this namespace.
    #[inline]
    pub fn from_machine(&self, kind: Kind, id: u32) -> Option<u32> {
        match &self.0 {
            None => Some(id),
            Some(nested) => nested.find(kind, |extent| extent.to_inside(id)),
        }
    }

    /// The same for showing it.
    #[inline]
    pub fn shown(&self, kind: Kind, id: u32) -> u32 {
        match &self.0 {
            None => id,
            Some(_) => self.from_machine(kind, id).unwrap_or(OVERFLOW),
        }
    }

    pub fn shown_user(&self, uid: u32) -> u32 {
        self.shown(Kind::User, uid)
    }

    pub fn shown_group(&self, gid: u32) -> u32 {
        self.shown(Kind::Group, gid)
    }

    /// The user, by the machine's id, is root in it or in one around it: files' capabilities that root of a namespace gave count in
    /// that and inside of it (capabilities(7), "Namespaced file capabilities").
    pub fn is_of_root(&self, uid: u32) -> bool {
        let mut at = Some(self.clone());
        while let Some(namespace) = at {
            if namespace.from_machine(Kind::User, uid) == Some(0) {
                return true;
            }
            at = namespace.parent();
        }
        false
    }

    pub fn is_mapped(&self, kind: Kind) -> bool {
        self.0.as_ref().is_none_or(|nested| !nested.state.lock().maps[kind as usize].is_empty())
    }

    /// Sees its own ids and the machine's: lines for a reader in another namespace.
    pub fn extents(&self, kind: Kind) -> Vec<Extent> {
        match &self.0 {
            None if FIRST_IS_MAPPED.load(Ordering::Acquire) && kind != Kind::Project => {
                FIRST.lock()[kind as usize].clone()
            }
            None => alloc::vec![Extent { inside: 0, outside: 0, count: u32::MAX }],
            Some(nested) => nested.state.lock().maps[kind as usize].clone(),
        }
    }

    /// Sets the map: lines with the first id inside, the first in the parent, and how many. `EPERM` when there is one, or when ids are
    /// not the parent's.
    pub fn set_map(&self, kind: Kind, lines: &[Extent]) -> Result<()> {
        /// UID_GID_MAP_MAX_BASE_EXTENTS.
        const UNSORTED: usize = 5;
        let nested = self.0.as_ref().ok_or(EPERM)?;
        let mut map = Vec::new();
        map.reserve_exact_fallibly(lines.len()).map_err(|_| ENOMEM)?;
        for line in lines {
            let first = nested.parent.to_machine(kind, line.outside).ok_or(EPERM)?;
            let last = nested.parent.to_machine(kind, line.outside + (line.count - 1)).ok_or(EPERM)?;
            // The parent's map has to have all of them in one line.
            if last.checked_sub(first) != Some(line.count - 1) {
                return Err(EPERM);
            }
            map.push(Extent { outside: first, ..*line });
        }
        // Linux sorts what does not fit the object itself.
        if map.len() > UNSORTED {
            map.sort_unstable_by_key(|extent| extent.inside);
        }
        let mut state = nested.state.lock();
        if !state.maps[kind as usize].is_empty() {
            return Err(EPERM);
        }
        state.maps[kind as usize] = map;
        Ok(())
    }

    /// A line maps root of the parent, whose file capabilities hold for it then: that takes CAP_SETFCAP of its maker.
    pub fn maker_could_set_capabilities(&self) -> bool {
        self.0.as_ref().is_none_or(|nested| nested.maker_could_set_capabilities)
    }
}

impl Nested {
    fn find(&self, kind: Kind, map: impl Fn(Extent) -> Option<u32>) -> Option<u32> {
        self.state.lock().maps[kind as usize].iter().find_map(|extent| map(*extent))
    }
}

#[cfg(feature = "keys")]
impl Drop for Nested {
    fn drop(&mut self) {
        keys::namespace_ends(self.number);
    }
}

impl Ids for Nested {
    fn has_user(&self, uid: u32) -> bool {
        self.find(Kind::User, |extent| extent.to_inside(uid)).is_some()
    }

    fn has_group(&self, gid: u32) -> bool {
        self.find(Kind::Group, |extent| extent.to_inside(gid)).is_some()
    }
}

/// The user namespace of the calling thread.
pub fn here() -> UserNamespace {
    thread::current().credentials().lock().users.clone()
}

/// Whom the calling thread means by an id; `EINVAL` for one that its user namespace does not have.
pub fn named(kind: Kind, id: u32) -> Result<u32> {
    here().to_machine(kind, id).ok_or(EINVAL)
}

/// What was written to a map file. `EINVAL` for anything but lines of three numbers that map something, fit, and do not overlap.
pub fn parse_map(text: &[u8]) -> Result<Vec<Extent>> {
    let text = core::str::from_utf8(text).map_err(|_| EINVAL)?;
    let mut lines: Vec<Extent> = Vec::new();
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        let mut words = line.split_ascii_whitespace();
        let mut number = || words.next().and_then(|word| word.parse::<u32>().ok()).ok_or(EINVAL);
        let extent = Extent { inside: number()?, outside: number()?, count: number()? };
        let fits = |first: u32| first.checked_add(extent.count).is_some();
        let is_valid = words.next().is_none()
            && extent.inside != u32::MAX
            && extent.outside != u32::MAX
            && extent.count != 0
            && fits(extent.inside)
            && fits(extent.outside);
        if !is_valid || lines.len() == MAX_EXTENTS || lines.iter().any(|other| extent.overlaps(*other)) {
            return Err(EINVAL);
        }
        lines.reserve_fallibly(1).map_err(|_| ENOMEM)?;
        lines.push(extent);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_through_the_maps_of_all_namespaces_between() {
        let outer = UserNamespace::FIRST.nest(1000, false).unwrap();
        assert_eq!((outer.shown_user(1000), outer.to_machine(Kind::User, 0)), (OVERFLOW, None));
        outer.set_map(Kind::User, &parse_map(b"0 1000 1\n1 100000 1000").unwrap()).unwrap();
        assert_eq!(outer.set_map(Kind::User, &parse_map(b"0 1 1").unwrap()), Err(EPERM), "a map is set once");
        let inner = outer.nest(1000, false).unwrap();
        assert_eq!(inner.set_map(Kind::User, &parse_map(b"5 0 2").unwrap()), Err(EPERM), "of two lines");
        inner.set_map(Kind::User, &parse_map(b"5 1 2").unwrap()).unwrap();
        assert_eq!((inner.to_machine(Kind::User, 6), inner.shown_user(100_001)), (Some(100_001), 6));
        assert_eq!((inner.to_machine(Kind::User, 7), inner.shown_user(1000)), (None, OVERFLOW));
        assert_eq!(UserNamespace::FIRST.shown_user(7), 7);
    }

    #[test]
    fn lines_that_are_no_map_are_refused() {
        for bad in [
            "",
            "0",
            "0 0",
            "0 0 0",
            "0 0 1 1",
            "0 0 2\n1 5 1",
            "0 5 1\n1 5 1",
            "a 0 1",
            "4294967295 0 1",
            "1 0 4294967295",
        ] {
            assert_eq!(parse_map(bad.as_bytes()), Err(EINVAL), "{bad:?}");
        }
        assert_eq!(parse_map(b"  0   1000 1 \n").unwrap(), [Extent { inside: 0, outside: 1000, count: 1 }]);
        assert_eq!(parse_map(b"0 0 4294967295").unwrap().len(), 1);
    }

    #[test]
    fn setgroups_is_refused_for_good_and_only_before_the_map() {
        let users = UserNamespace::FIRST.nest(1000, false).unwrap();
        users.set_allows_setgroups(true).unwrap();
        users.set_allows_setgroups(false).unwrap();
        assert_eq!(users.set_allows_setgroups(true), Err(EPERM));
        assert!(!users.nest(1, false).unwrap().allows_setgroups());
        let mapped = UserNamespace::FIRST.nest(1000, false).unwrap();
        mapped.set_map(Kind::Group, &parse_map(b"0 5 1").unwrap()).unwrap();
        assert_eq!(mapped.set_allows_setgroups(false), Err(EPERM));
    }
}
