// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How keys are found: through keyrings, and those in them.

use crate::key::{Index, Key, Kind, Need, Ref, Serial, Who};
use crate::now;
use crate::table::Table;
use abi::{Errno, Result, errno::*};
use alloc::sync::Arc;
use ordered::Map;

/// Keyrings within keyrings that are looked at (Linux' `KEYRING_SEARCH_MAX_DEPTH`).
const MAX_DEPTH: u8 = 6;

/// What is looked for, and what counts.
struct Search<'a> {
    who: &'a Who,
    index: Index,
    /// This key alone, and not another one with its type and description.
    serial: Option<Serial>,
    is_possessed: bool,
    checks_permissions: bool,
    /// Keys that are no more of use are passed by. The flag says whether of an expired one is told.
    state: State,
    too_deep_is_error: bool,
    now: u64,
    /// Why nothing was found.
    error: Errno,
    /// Keyrings that were looked through, and how deep they were found. In a keyring that is found less deep, more is looked at.
    seen: Map<Serial, u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Any,
    Checked,
    CheckedButExpired,
}

enum Step {
    Found(Ref),
    On,
    /// There is nothing to be found, for this reason.
    Ends(Errno),
}

impl Search<'_> {
    fn permits(&self, key: &Key) -> bool {
        !self.checks_permissions || key.permits(self.who, self.is_possessed, Need::Search).is_ok()
    }

    /// Looks at one key that has the type and description.
    fn look(&mut self, serial: Serial, key: &Key) -> Step {
        if self.state != State::Any {
            if key.is_invalidated || key.revoked_at.is_some() {
                self.error = EKEYREVOKED;
                return Step::On;
            }
            if key.is_expired(self.now) {
                if self.state == State::Checked {
                    self.error = EKEYEXPIRED;
                }
                return Step::On;
            }
        }
        if self.serial.is_some_and(|wanted| wanted != serial) {
            return Step::On;
        }
        if !self.permits(key) {
            self.error = EACCES;
            return Step::On;
        }
        match key.negative {
            Some(error) if self.state != State::Any => {
                self.error = error;
                Step::On
            }
            _ => Step::Found(Ref { serial, is_possessed: self.is_possessed }),
        }
    }
}

impl Table {
    fn begin<'a>(&self, who: &'a Who, index: Index, state: State) -> Search<'a> {
        Search {
            who,
            index,
            serial: None,
            is_possessed: true,
            checks_permissions: true,
            state,
            too_deep_is_error: false,
            now: now(),
            error: EAGAIN,
            seen: Map::new(),
        }
    }

    /// Searches the keyring and those in it. `EAGAIN` where there is no such key, or why the one that there is does not count.
    fn run(&self, root: Ref, search: &mut Search<'_>) -> Result<Ref> {
        search.is_possessed = root.is_possessed;
        search.error = EAGAIN;
        let key = self.get(root.serial)?;
        if key.kind() != Kind::Keyring {
            return Err(ENOTDIR);
        }
        if search.checks_permissions {
            key.permits(search.who, root.is_possessed, Need::Search)?;
        }
        if key.index == search.index {
            match search.look(root.serial, key) {
                Step::Found(found) => return Ok(found),
                // Of the top-level keyring it counts whether it is of use, and one that is only like it is none at all.
                Step::On if search.error != EAGAIN => return Err(search.error),
                _ => {}
            }
        }
        match self.visit(root.serial, 0, search)? {
            Step::Found(found) => Ok(found),
            Step::On => Err(search.error),
            Step::Ends(error) => Err(error),
        }
    }

    /// Looks through one keyring, and then through the keyrings in it.
    fn visit(&self, ring: Serial, depth: u8, search: &mut Search<'_>) -> Result<Step> {
        let Ok(key) = self.get(ring) else { return Ok(Step::On) };
        let Some(links) = key.links().filter(|_| key.revoked_at.is_none() && !key.is_invalidated) else {
            return Ok(Step::On);
        };
        if search.seen.get(&ring).is_some_and(|before| *before <= depth) {
            return Ok(Step::On);
        }
        search.seen.insert_fallibly(ring, depth).map_err(|_| ENOMEM)?;
        if let Some((serial, key)) = links.get(&search.index).and_then(|s| Some((*s, self.get(*s).ok()?)))
            && let Step::Found(found) = search.look(serial, key)
        {
            return Ok(Step::Found(found));
        }
        // Keyrings are the first of all types.
        for (_, serial) in links.iter().take_while(|(index, _)| index.kind == Kind::Keyring) {
            if depth >= MAX_DEPTH {
                match search.too_deep_is_error {
                    true => return Ok(Step::Ends(ELOOP)),
                    false => break,
                }
            }
            if !self.get(*serial).is_ok_and(|key| search.permits(key)) {
                continue;
            }
            match self.visit(*serial, depth + 1, search)? {
                Step::On => {}
                ends => return Ok(ends),
            }
        }
        Ok(Step::On)
    }

    /// Whether `other` is not in the keyring `within`, nor is it: `EDEADLK`, or `ELOOP` where keyrings lie too deep in each other to say.
    pub(crate) fn is_apart_from(&self, within: Serial, other: Serial) -> Result<()> {
        let nobody = Who::default();
        let mut search = self.begin(&nobody, self.get(other)?.index.clone(), State::Any);
        search.serial = Some(other);
        search.checks_permissions = false;
        search.too_deep_is_error = true;
        match self.run(Ref::possessed(within), &mut search) {
            Ok(_) => Err(EDEADLK),
            Err(EAGAIN) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// The keyrings that a caller's searches begin with.
    fn roots(&self, who: &Who) -> [Option<Serial>; 3] {
        let [thread, process, session] = who.keyrings;
        // Who has no session has that of its user, where that was made.
        let session =
            session.or_else(|| self.users.get(&(who.namespace, who.uid)).map(|keyrings| keyrings.session));
        [thread, process, session]
    }

    /// Searches a caller's keyrings. Where nothing is found, keyrings that could be searched count more than those that could not.
    fn run_all(&self, search: &mut Search<'_>) -> Result<Ref> {
        let (mut failed, mut other) = (None, EAGAIN);
        for root in self.roots(search.who).into_iter().flatten() {
            match self.run(Ref::possessed(root), search) {
                Ok(found) => return Ok(found),
                Err(ENOKEY) => failed = Some(ENOKEY),
                Err(EAGAIN) => failed = failed.or(Some(EAGAIN)),
                Err(ENOMEM) => return Err(ENOMEM),
                Err(e) => other = e,
            }
        }
        Err(failed.unwrap_or(other))
    }

    /// Whether the caller finds that key through its own keyrings.
    fn is_possessed(&self, who: &Who, serial: Serial) -> Result<bool> {
        let mut search = self.begin(who, self.get(serial)?.index.clone(), State::Any);
        search.serial = Some(serial);
        match self.run_all(&mut search) {
            Err(ENOMEM) => Err(ENOMEM),
            found => Ok(found.is_ok()),
        }
    }

    /// A key by its number, and whether the caller possesses it. `ENOKEY`.
    pub fn find(&self, who: &Who, serial: Serial) -> Result<Ref> {
        let is_possessed = self.is_possessed(who, serial)?;
        Ok(Ref { serial, is_possessed })
    }

    /// Whether the key is of use, for who takes no other (`is_partial`: a negative one counts as well), and the caller may do that with
    /// it.
    pub fn check(&self, who: &Who, at: Ref, is_partial: bool, need: Need) -> Result<()> {
        let key = self.get(at.serial)?;
        if !matches!(need, Need::Unlink | Need::Later) {
            if let Some(error) = key.negative.filter(|_| !is_partial) {
                return Err(error);
            }
            key.validate(now())?;
        }
        key.permits(who, at.is_possessed, need)
    }

    fn index(kind: Kind, description: &[u8]) -> Index {
        Index { kind, description: Arc::new(description.to_vec()) }
    }

    /// KEYCTL_SEARCH. `ENOKEY` where there is none.
    pub fn search(&self, who: &Who, root: Ref, kind: Kind, description: &[u8]) -> Result<Ref> {
        let mut search = self.begin(who, Table::index(kind, description), State::Checked);
        match self.run(root, &mut search) {
            Err(EAGAIN) => Err(ENOKEY),
            found => found,
        }
    }

    /// request_key(2): in all keyrings of the caller. `EAGAIN` where there is none.
    pub fn request(&self, who: &Who, kind: Kind, description: &[u8]) -> Result<Ref> {
        self.run_all(&mut self.begin(who, Table::index(kind, description), State::CheckedButExpired))
    }

    /// A keyring by its name, that the caller may search (KEYCTL_JOIN_SESSION_KEYRING).
    pub fn named(&self, who: &Who, name: &[u8]) -> Option<Serial> {
        let is_it = |key: &Key| {
            key.kind() == Kind::Keyring
                && key.namespace == who.namespace
                && key.revoked_at.is_none()
                && key.description().as_slice() == name
                && key.permits(who, false, Need::Search).is_ok()
        };
        self.keys.iter().find(|(_, key)| is_it(key)).map(|(serial, _)| *serial)
    }

    /// What the caller sees of a key that lies in the table, for a listing.
    pub(crate) fn is_visible(&self, who: &Who, serial: Serial, key: &Key) -> bool {
        let found = match key.permissions & crate::permission::POSSESSOR_VIEW {
            0 => Ok(Ref::other(serial)),
            _ => self.find(who, serial),
        };
        found.is_ok_and(|at| key.permits(who, at.is_possessed, Need::View).is_ok())
    }

    /// Number of the first key from `serial` on, for a listing.
    pub fn next_from(&self, serial: Serial) -> Option<Serial> {
        self.keys.range(serial..).next().map(|(serial, _)| *serial)
    }
}
