// SPDX-License-Identifier: Apache-2.0 OR MIT
//! POSIX access control lists (acl(5), POSIX 1003.1e draft 17), in the form that the extended attributes
//! `system.posix_acl_access` and `system.posix_acl_default` have: a version, and entries of tag, permissions and id.

use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;

/// Which of a file's two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclKind {
    Access = 0,
    /// Of a directory: what files made in it get.
    Default = 1,
}

const VERSION: u32 = 2;
const HEADER: usize = 4;
const ENTRY: usize = 8;
const USER_OBJ: u16 = 1;
const USER: u16 = 2;
const GROUP_OBJ: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    permissions: u16,
    /// Of [`USER`] and [`GROUP`]; of others, `u32::MAX`.
    id: u32,
}

/// A valid list: its entries are in order, and it has a mask where it names users or groups.
#[derive(Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

/// A list as somebody wants to have it set, which may not make sense.
#[derive(Debug, PartialEq, Eq)]
pub struct UncheckedAcl(Vec<Entry>);

impl UncheckedAcl {
    /// Reads an attribute's value; `None` for a list without entries. `EOPNOTSUPP` for another version, `EINVAL` for
    /// what is no list.
    pub fn parse(value: &[u8]) -> Result<Option<UncheckedAcl>> {
        if value.is_empty() {
            return Ok(None);
        }
        let (header, rest) = value.split_first_chunk::<HEADER>().ok_or(EINVAL)?;
        if u32::from_le_bytes(*header) != VERSION {
            return Err(EOPNOTSUPP);
        }
        let (entries, []) = rest.as_chunks::<ENTRY>() else { return Err(EINVAL) };
        if entries.is_empty() {
            return Ok(None);
        }
        let mut list = Vec::new();
        list.reserve_exact_fallibly(entries.len()).map_err(|_| ENOMEM)?;
        for &[t0, t1, p0, p1, i0, i1, i2, i3] in entries {
            let (tag, id) = (u16::from_le_bytes([t0, t1]), u32::from_le_bytes([i0, i1, i2, i3]));
            let is_named = matches!(tag, USER | GROUP);
            if !is_named && !matches!(tag, USER_OBJ | GROUP_OBJ | MASK | OTHER) || is_named && id == u32::MAX
            {
                return Err(EINVAL);
            }
            let id = if is_named { id } else { u32::MAX };
            list.push(Entry { tag, permissions: u16::from_le_bytes([p0, p1]), id });
        }
        Ok(Some(UncheckedAcl(list)))
    }

    /// `EINVAL` when entries are missing, twice there or out of order.
    pub fn check(self) -> Result<Acl> {
        if is_valid(&self.0) { Ok(Acl(self.0)) } else { Err(EINVAL) }
    }
}

impl Acl {
    /// The attribute's value.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        out.reserve_exact_fallibly(HEADER + self.0.len() * ENTRY).map_err(|_| ENOMEM)?;
        out.extend_from_slice(&VERSION.to_le_bytes());
        for entry in &self.0 {
            out.extend_from_slice(&entry.tag.to_le_bytes());
            out.extend_from_slice(&entry.permissions.to_le_bytes());
            out.extend_from_slice(&entry.id.to_le_bytes());
        }
        Ok(out)
    }

    fn copy(&self) -> Result<Acl> {
        let mut list = Vec::new();
        list.reserve_exact_fallibly(self.0.len()).map_err(|_| ENOMEM)?;
        list.extend_from_slice(&self.0);
        Ok(Acl(list))
    }

    fn permissions(&self, tag: u16) -> Option<u32> {
        self.0.iter().find(|e| e.tag == tag).map(|e| u32::from(e.permissions))
    }

    /// Permission bits say all that the list says.
    pub fn is_trivial(&self) -> bool {
        self.0.iter().all(|e| matches!(e.tag, USER_OBJ | GROUP_OBJ | OTHER))
    }

    /// The nine permission bits of a file with this list: the group's are the mask, where there is one.
    pub fn mode(&self) -> u32 {
        let group = self.permissions(MASK).or(self.permissions(GROUP_OBJ));
        let of = |tag| self.permissions(tag).unwrap_or(0);
        of(USER_OBJ) << 6 | group.unwrap_or(0) << 3 | of(OTHER)
    }

    /// Whether somebody who does not own the file may do all of `want` (bits of access(2)).
    pub fn allows(&self, uid: u32, is_in_group: impl Fn(u32) -> bool, file_gid: u32, want: u32) -> bool {
        let want = want & 7;
        let has = |permissions: u16| u32::from(permissions) & want == want;
        let masked = |entry: &Entry| {
            has(entry.permissions) && self.permissions(MASK).is_none_or(|mask| mask & want == want)
        };
        if let Some(entry) = self.0.iter().find(|e| e.tag == USER && e.id == uid) {
            return masked(entry);
        }
        let is_of_group =
            |e: &&Entry| e.tag == GROUP_OBJ && is_in_group(file_gid) || e.tag == GROUP && is_in_group(e.id);
        let mut groups = self.0.iter().filter(is_of_group).peekable();
        if groups.peek().is_none() {
            return self.permissions(OTHER).is_some_and(|other| other & want == want);
        }
        // Any of the groups that allows it does.
        groups.any(masked)
    }

    fn set(&mut self, tag: u16, bits: u32) {
        self.0.iter_mut().filter(|e| e.tag == tag).for_each(|e| e.permissions = bits as u16 & 7);
    }

    fn group_class(&self) -> u16 {
        if self.permissions(MASK).is_some() { MASK } else { GROUP_OBJ }
    }

    /// The list after chmod(2): the group's bits go to the mask, where there is one.
    pub fn changed_to(&self, mode: u32) -> Result<Acl> {
        let mut new = self.copy()?;
        new.set(USER_OBJ, mode >> 6);
        new.set(self.group_class(), mode >> 3);
        new.set(OTHER, mode);
        Ok(new)
    }

    /// What a file that is made with `mode` in a directory with this default list gets: its permission bits, and its access list
    /// where those do not say all.
    pub fn for_new_file(&self, mode: u32) -> Result<(u32, Option<Acl>)> {
        let bits = mode & self.mode();
        let new = self.changed_to(bits)?;
        Ok((mode & !0o777 | bits, (!new.is_trivial()).then_some(new)))
    }
}

/// Linux' `posix_acl_valid`: each kind of entry in its turn, and a mask with named users or groups.
fn is_valid(list: &[Entry]) -> bool {
    let mut last = 0;
    let in_order = list.iter().all(|entry| {
        let may_repeat = matches!(entry.tag, USER | GROUP);
        let follows = entry.tag > last || may_repeat && entry.tag == last;
        last = entry.tag;
        follows && entry.permissions <= 7
    });
    let has = |tag| list.iter().any(|e| e.tag == tag);
    let names = has(USER) || has(GROUP);
    in_order && has(USER_OBJ) && has(GROUP_OBJ) && has(OTHER) && (!names || has(MASK))
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::vec::Vec;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            out.extend(tag.to_le_bytes());
            out.extend(permissions.to_le_bytes());
            out.extend(id.to_le_bytes());
        }
        out
    }

    fn parse(value: &[u8]) -> Result<Option<Acl>> {
        UncheckedAcl::parse(value)?.map(UncheckedAcl::check).transpose()
    }

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        parse(&value(entries)).unwrap().unwrap()
    }

    const NONE: u32 = u32::MAX;

    #[test]
    fn lists_are_checked_as_linux_does() {
        let good = [(1, 6, NONE), (2, 4, 7), (4, 4, NONE), (8, 6, 9), (0x10, 6, NONE), (0x20, 0, NONE)];
        let bytes = value(&good);
        assert_eq!(parse(&bytes).unwrap().unwrap().to_bytes().unwrap(), bytes);
        assert_eq!(parse(&[]), Ok(None));
        assert_eq!(parse(&bytes[..4]), Ok(None));
        assert_eq!(parse(&bytes[..3]), Err(EINVAL));
        assert_eq!(parse(&bytes[..11]), Err(EINVAL));
        assert_eq!(parse(&[1, 0, 0, 0]), Err(EOPNOTSUPP));
        for left_out in [0, 2, 4, 5] {
            let list: Vec<_> = (0..6).filter(|i| *i != left_out).map(|i| good[i]).collect();
            assert_eq!(parse(&value(&list)), Err(EINVAL), "{left_out}");
        }
        for (at, entry) in [(1, (2, 8, 7)), (1, (2, 4, NONE)), (3, (2, 4, 7)), (5, (3, 0, NONE))] {
            let mut list = good;
            list[at] = entry;
            assert_eq!(parse(&value(&list)), Err(EINVAL), "{entry:?}");
        }
    }

    #[test]
    fn entries_apply_in_order_under_the_mask() {
        let list = acl(&[(1, 7, NONE), (2, 6, 7), (4, 4, NONE), (8, 3, 9), (0x10, 5, NONE), (0x20, 1, NONE)]);
        let may = |uid, groups: &[u32], want| list.allows(uid, |gid| groups.contains(&gid), 50, want);
        assert!(may(7, &[], 4) && !may(7, &[], 2), "the mask takes writing away");
        assert!(!may(7, &[9], 1), "who is named is in no group");
        assert!(may(8, &[50], 4) && may(8, &[50, 9], 1) && !may(8, &[50, 9], 5), "one group must allow all");
        assert!(may(8, &[], 1) && !may(8, &[50], 1), "others are in none of the groups");
        assert_eq!(list.mode(), 0o751);
        assert_eq!(list.changed_to(0o640).unwrap().mode(), 0o640);
    }

    #[test]
    fn new_files_get_what_their_mode_leaves_of_the_default() {
        let named = acl(&[(1, 7, NONE), (2, 7, 7), (4, 5, NONE), (0x10, 7, NONE), (0x20, 4, NONE)]);
        let (mode, list) = named.for_new_file(0o2666).unwrap();
        let expected = acl(&[(1, 6, NONE), (2, 7, 7), (4, 5, NONE), (0x10, 6, NONE), (0x20, 4, NONE)]);
        assert_eq!((mode, list), (0o2664, Some(expected)));
        let trivial = acl(&[(1, 7, NONE), (4, 5, NONE), (0x20, 0, NONE)]);
        assert_eq!(trivial.for_new_file(0o777), Ok((0o750, None)));
    }
}
