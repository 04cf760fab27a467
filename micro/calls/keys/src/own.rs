// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The keyrings of the calling thread, which are made when they are asked for, and keys by their numbers.

use crate::{MAX_DESCRIPTION, read_string};
use abi::{Result, errno::*};
use alloc::vec::Vec;
use api_user::UserPtr;
use keys::{Held, Need, Quota, Ref, Serial, UserKeyrings, Who, permission, table};
use task::pids::Pid;
use task::process::Credentials;
use task::processes;
use task::users::Kind;

/// KEY_SPEC_…: numbers that stand for keyrings of the caller.
const THREAD: Serial = -1;
const PROCESS: Serial = -2;
const SESSION: Serial = -3;
const USER: Serial = -4;
const USER_SESSION: Serial = -5;
/// What a request under construction has: there is none.
const AUTHORITY: Serial = -7;
const REQUESTOR: Serial = -8;

/// KEY_REQKEY_DEFL_…
const DEFAULT_RING: i32 = 0;
const THREAD_RING: i32 = 1;
const PROCESS_RING: i32 = 2;
const SESSION_RING: i32 = 3;
const USER_RING: i32 = 4;
const USER_SESSION_RING: i32 = 5;
const REQUESTOR_RING: i32 = 7;
const NO_CHANGE: i32 = -1;

/// How a key is looked up.
#[derive(Clone, Copy)]
pub struct How {
    /// A keyring of the caller that is not there yet is made.
    pub creates: bool,
    /// Negative keys as well.
    pub is_partial: bool,
}

impl How {
    pub const USABLE: How = How { creates: false, is_partial: false };
    pub const CREATES: How = How { creates: true, is_partial: false };
    pub const PARTIAL: How = How { creates: false, is_partial: true };
    pub const ANY: How = How { creates: true, is_partial: true };
}

/// The caller.
pub fn who() -> Who {
    who_of(&task::current().credentials().lock())
}

fn who_of(credentials: &Credentials) -> Who {
    Who {
        uid: credentials.uid,
        gid: credentials.gid,
        fsuid: credentials.fsuid,
        fsgid: credentials.fsgid,
        groups: credentials.groups.clone(),
        namespace: credentials.users.number(),
        keyrings: credentials.keyrings.serials(),
    }
}

fn credentials<T>(change: impl FnOnce(&mut Credentials) -> T) -> T {
    change(&mut task::current().credentials().lock())
}

/// What the caller's user namespace calls the user; for names of keyrings.
pub fn name_of_user(uid: u32) -> u32 {
    credentials(|own| own.users.from_machine(Kind::User, uid)).unwrap_or(u32::MAX)
}

fn user_keyrings() -> Result<UserKeyrings> {
    let who = who();
    let shown = name_of_user(who.uid);
    table().of_user(&who, shown)
}

fn thread_keyring() -> Result<Serial> {
    let who = who();
    if let Some(serial) = who.keyrings[0] {
        return Ok(serial);
    }
    let permissions = permission::POSSESSOR_ALL | permission::USER_VIEW;
    let serial = table().make_keyring(&who, "_tid", permissions, Quota::Overruns)?;
    let held = Held::of(serial);
    credentials(|own| own.keyrings.thread = Some(held));
    Ok(serial)
}

fn process_keyring() -> Result<Serial> {
    let who = who();
    if let Some(serial) = who.keyrings[1] {
        return Ok(serial);
    }
    let permissions = permission::POSSESSOR_ALL | permission::USER_VIEW;
    let serial = table().make_keyring(&who, "_pid", permissions, Quota::Overruns)?;
    let held = Held::of(serial);
    credentials(|own| own.keyrings.process = Some(held));
    Ok(serial)
}

/// The keyring is the session's of the calling thread from now on.
fn begin_session(serial: Serial) -> Serial {
    let held = Held::of(serial);
    let old = credentials(|own| own.keyrings.session.replace(held));
    drop(old);
    serial
}

/// A session keyring without a name that could be joined.
fn new_session() -> Result<Serial> {
    let who = who();
    let permissions = permission::POSSESSOR_ALL | permission::USER_VIEW | permission::USER_READ;
    // The first one of a thread is made in any case, as by a program that logs a user in.
    let quota = if who.keyrings[2].is_some() { Quota::Counts } else { Quota::Overruns };
    let serial = table().make_keyring(&who, "_ses", permissions, quota)?;
    Ok(begin_session(serial))
}

fn session_keyring(creates: bool) -> Result<Serial> {
    match who().keyrings[2] {
        Some(serial) if !creates || !table().get(serial)?.is_of_user() => Ok(serial),
        Some(_) => new_session(),
        None => {
            let of_user = user_keyrings()?;
            if creates { new_session() } else { Ok(begin_session(of_user.session)) }
        }
    }
}

/// The key that a number stands for, or that has it. `EINVAL` for numbers that no key has, `ENOKEY`, and why the caller may not do that with
/// it.
pub fn find(id: Serial, how: How, need: Need) -> Result<Ref> {
    let own = match id {
        THREAD if how.creates => Some(thread_keyring()?),
        PROCESS if how.creates => Some(process_keyring()?),
        THREAD => Some(who().keyrings[0].ok_or(ENOKEY)?),
        PROCESS => Some(who().keyrings[1].ok_or(ENOKEY)?),
        SESSION => Some(session_keyring(how.creates)?),
        USER => Some(user_keyrings()?.user),
        USER_SESSION => Some(user_keyrings()?.session),
        AUTHORITY | REQUESTOR => return Err(ENOKEY),
        ..=0 => return Err(EINVAL),
        _ => None,
    };
    let who = who();
    let table = table();
    let at = match own {
        Some(serial) => Ref::possessed(serial),
        None => table.find(&who, id)?,
    };
    table.check(&who, at, how.is_partial, need)?;
    Ok(at)
}

/// KEYCTL_JOIN_SESSION_KEYRING: a new one, or one with a name, which is made if there is none that the caller may search.
pub fn join_session(name: UserPtr<u8>) -> Result<usize> {
    let Some(name) = name.non_null() else { return new_session().map(|serial| serial as usize) };
    let name = read_string(name, MAX_DESCRIPTION)?;
    if name.starts_with(b".") {
        return Err(EPERM);
    }
    let who = who();
    let found = table().named(&who, &name);
    let serial = match found {
        Some(serial) if who.keyrings[2] == Some(serial) => return Ok(0),
        Some(serial) => serial,
        None => make_session(&who, name)?,
    };
    Ok(begin_session(serial) as usize)
}

fn make_session(who: &Who, name: Vec<u8>) -> Result<Serial> {
    let permissions =
        permission::POSSESSOR_ALL | permission::USER_VIEW | permission::USER_READ | permission::USER_LINK;
    table().make_named(who, name, permissions, Quota::Counts)
}

/// KEYCTL_SET_REQKEY_KEYRING.
pub fn set_for_requests(wanted: i32) -> Result<usize> {
    match wanted {
        NO_CHANGE => return Ok(credentials(|own| own.keyrings.for_requests) as usize),
        THREAD_RING => drop(thread_keyring()?),
        PROCESS_RING => drop(process_keyring()?),
        DEFAULT_RING | SESSION_RING | USER_RING | USER_SESSION_RING | REQUESTOR_RING => {}
        _ => return Err(EINVAL),
    }
    Ok(credentials(|own| core::mem::replace(&mut own.keyrings.for_requests, wanted)) as usize)
}

/// Where the key of a request goes that said nothing of it: the nearest keyring that there is, from the one on that was chosen.
pub fn for_requests() -> Result<Serial> {
    let who = who();
    let chosen = credentials(|own| own.keyrings.for_requests);
    let first = match chosen {
        PROCESS_RING => 1,
        SESSION_RING => 2,
        USER_RING | USER_SESSION_RING => 3,
        _ => 0,
    };
    let serial = match who.keyrings.into_iter().skip(first).flatten().next() {
        Some(serial) => serial,
        None if chosen == USER_RING => user_keyrings()?.user,
        None => user_keyrings()?.session,
    };
    table().check(&who, Ref::possessed(serial), true, Need::Write)?;
    Ok(serial)
}

/// KEYCTL_SESSION_TO_PARENT: `EPERM` unless the parent is a process of one thread, not the machine's first, and of the same user and group
/// throughout.
pub fn session_to_parent() -> Result<usize> {
    find(SESSION, How::USABLE, Need::Link)?;
    let own = task::current().credentials().lock().clone();
    let parent = task::current().process.family.parent();
    let parent = processes::find(parent).filter(|parent| parent.pid != Pid::FIRST).ok_or(EPERM)?;
    if parent.thread_count() != 1 {
        return Err(EPERM);
    }
    let of_parent = parent.credentials.lock().clone();
    if own.keyrings.session == of_parent.keyrings.session {
        return Ok(0);
    }
    let session = own.keyrings.session.ok_or(EPERM)?;
    let is_same = of_parent.is_all(own.euid, own.egid);
    let is_own = |held: &Held| table().get(held.serial()).is_ok_and(|key| key.uid == own.euid);
    if !is_same || !is_own(&session) || !of_parent.keyrings.session.as_ref().is_none_or(is_own) {
        return Err(EPERM);
    }
    let old = parent.credentials.lock().keyrings.session.replace(session);
    drop(old);
    Ok(0)
}

/// Credentials of a new thread: it has a keyring of its own where its maker has one.
pub fn own_of_thread(mut of_maker: Credentials) -> Result<Credentials> {
    if of_maker.keyrings.thread.is_some() {
        let permissions = permission::POSSESSOR_ALL | permission::USER_VIEW;
        let who = who_of(&of_maker);
        let serial = table().make_keyring(&who, "_tid", permissions, Quota::Overruns)?;
        of_maker.keyrings.thread = Some(Held::of(serial));
    }
    Ok(of_maker)
}
