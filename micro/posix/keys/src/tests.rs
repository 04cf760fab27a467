// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::key::{Kind, Need, Ref, Serial, Who, permission};
use crate::quota::Quota;
use crate::{Move, Table};
use abi::errno::*;
use alloc::vec::Vec;

fn user(uid: u32) -> Who {
    Who { uid, gid: uid, fsuid: uid, fsgid: uid, ..Who::default() }
}

fn ring(table: &mut Table, who: &Who, name: &str) -> Serial {
    let serial = table.make_keyring(who, name, permission::POSSESSOR_ALL, Quota::Counts).unwrap();
    table.hold(serial);
    serial
}

fn add(table: &mut Table, who: &Who, ring: Serial, name: &str, data: &[u8]) -> abi::Result<Serial> {
    table.add(Ref::possessed(ring), who, Some(Kind::User), Some(name.into()), data.to_vec())
}

fn counted(table: &Table, uid: u32) -> (u64, u64, u64) {
    table.accounts.get(&uid).map_or((0, 0, 0), |a| (a.keys, a.counted_keys, a.counted_bytes))
}

#[test]
fn a_key_lives_while_a_keyring_or_credentials_hold_it() {
    let (mut table, who) = (Table::new(), user(7));
    let session = ring(&mut table, &who, "_ses");
    let key = add(&mut table, &who, session, "name", b"data").unwrap();
    assert_eq!(table.read(key).unwrap(), b"data");
    assert_eq!(add(&mut table, &who, session, "name", b"other data").unwrap(), key, "it is updated");
    // Descriptions with a NUL, the data, and four bytes for the link.
    assert_eq!(counted(&table, 7), (2, 2, 5 + 4 + 5 + 10));
    table.hold(key);
    table.unlink(session, key).unwrap();
    assert_eq!(table.unlink(session, key), Err(ENOENT));
    assert_eq!(table.read(key).unwrap(), b"other data");
    table.release(key);
    assert_eq!(table.read(key), Err(ENOKEY));
    table.release(session);
    assert_eq!(counted(&table, 7), (0, 0, 0));
    assert!(table.accounts.is_empty(), "nothing is left of a user without keys");
}

#[test]
fn a_chain_of_keyrings_of_any_length_is_freed_without_recursion() {
    let (mut table, who) = (Table::new(), user(0));
    let first = ring(&mut table, &who, "first");
    let mut last = first;
    for _ in 0..100_000 {
        let next = table.make_keyring(&who, "next", permission::POSSESSOR_ALL, Quota::Counts).unwrap();
        table.link(last, next).unwrap();
        last = next;
    }
    assert_eq!(table.link(last, first), Err(ELOOP), "too deep to say whether it is a cycle");
    table.release(first);
    assert!(table.keys.is_empty());
}

#[test]
fn keyrings_are_no_cycle() {
    let (mut table, who) = (Table::new(), user(0));
    let rings: Vec<Serial> = (0..8).map(|_| ring(&mut table, &who, "ring")).collect();
    assert_eq!(table.link(rings[0], rings[0]), Err(EDEADLK));
    for pair in rings[..7].windows(2) {
        table.link(pair[0], pair[1]).unwrap();
    }
    assert_eq!(table.link(rings[6], rings[0]), Err(EDEADLK));
    assert_eq!(table.link(rings[7], rings[0]), Ok(()), "six within one another are looked through");
    let above = ring(&mut table, &who, "above");
    assert_eq!(table.link(above, rings[7]), Err(ELOOP));
    // Two ways lead to a keyring, the longer one first: what is below it is looked at in time.
    let (a, b) = (ring(&mut table, &who, "a"), ring(&mut table, &who, "b"));
    table.link(a, b).unwrap();
    assert_eq!(table.link(b, a), Err(EDEADLK));
}

#[test]
fn what_lies_deeper_than_six_keyrings_is_not_found() {
    let (mut table, who) = (Table::new(), user(7));
    let rings: Vec<Serial> = (0..8).map(|i| ring(&mut table, &who, &alloc::format!("r{i}"))).collect();
    for pair in rings.windows(2) {
        table.link(pair[0], pair[1]).unwrap();
    }
    let near = add(&mut table, &who, rings[6], "near", b"x").unwrap();
    let far = add(&mut table, &who, rings[7], "far", b"x").unwrap();
    let who = Who { keyrings: [None, None, Some(rings[0])], ..who };
    assert_eq!(table.request(&who, Kind::User, b"near").map(|at| at.serial), Ok(near));
    assert_eq!(table.request(&who, Kind::User, b"far").map(|at| at.serial), Err(EAGAIN));
    assert!(table.find(&who, near).unwrap().is_possessed && !table.find(&who, far).unwrap().is_possessed);
    table.link(rings[0], rings[5]).unwrap();
    assert_eq!(table.request(&who, Kind::User, b"far").map(|at| at.serial), Ok(far), "by a shorter way");
}

#[test]
fn possessors_have_their_rights_on_top_of_others() {
    let (mut table, who) = (Table::new(), user(7));
    let session = ring(&mut table, &who, "_ses");
    let key = add(&mut table, &who, session, "name", b"x").unwrap();
    let (possessed, found) = (Ref::possessed(key), Ref::other(key));
    let may = |table: &Table, who: &Who, at, need| table.check(who, at, false, need);
    assert_eq!(may(&table, &who, possessed, Need::Read), Ok(()));
    assert_eq!(may(&table, &who, found, Need::Read), Err(EACCES));
    assert_eq!(may(&table, &who, found, Need::View), Ok(()));
    assert_eq!(may(&table, &user(8), found, Need::View), Err(EACCES));
    table.set_permissions(key, 0x3f00_0203).unwrap();
    assert_eq!(may(&table, &user(8), found, Need::Read), Ok(()));
    let member = Who { fsgid: 7, ..user(8) };
    assert_eq!(may(&table, &member, found, Need::Read), Ok(()));
    assert_eq!(may(&table, &member, found, Need::View), Err(EACCES), "a group has its own rights alone");
}

#[test]
fn users_have_so_many_keys_and_bytes_and_no_more() {
    let (mut table, who) = (Table::new(), user(7));
    let session = ring(&mut table, &who, "_ses");
    let refused = (0..).find_map(|i| add(&mut table, &who, session, &alloc::format!("{i}"), b"x").err());
    assert_eq!((refused, counted(&table, 7).1), (Some(EDQUOT), 200));
    table.clear(session).unwrap();
    assert_eq!(counted(&table, 7), (1, 1, 5));
    assert_eq!(add(&mut table, &who, session, "large", &[0; 20_000]), Err(EDQUOT));
    let key = add(&mut table, &who, session, "large", &[0; 19_000]).unwrap();
    assert_eq!(table.update(Ref::possessed(key), &who, alloc::vec![0; 20_000]), Err(EDQUOT));
    assert_eq!(table.read(key).unwrap().len(), 19_000, "a refused update changes nothing");
    table.chown(key, Some(8), None).unwrap();
    assert_eq!((counted(&table, 7), counted(&table, 8)), ((1, 1, 9), (1, 1, 19_006)));
    assert!(table.make_keyring(&who, "more", 0, Quota::No).is_ok());
}

#[test]
fn keys_that_are_revoked_expired_or_invalidated_say_so_and_go() {
    let (mut table, who) = (Table::new(), user(7));
    let session = ring(&mut table, &who, "_ses");
    let keys: Vec<Serial> =
        ["r", "e", "i", "k"].iter().map(|name| add(&mut table, &who, session, name, b"x").unwrap()).collect();
    table.revoke(keys[0]).unwrap();
    table.set_timeout(keys[1], 1).unwrap();
    table.get_mut(keys[1]).unwrap().expires_at = Some(0);
    table.invalidate(keys[2]).unwrap();
    let who = Who { keyrings: [None, None, Some(session)], ..who };
    let check = |table: &Table, i: usize| table.check(&who, Ref::possessed(keys[i]), false, Need::View);
    assert_eq!([check(&table, 0), check(&table, 1)], [Err(EKEYREVOKED), Err(EKEYEXPIRED)]);
    assert_eq!([check(&table, 2), check(&table, 3)], [Err(ENOKEY), Ok(())]);
    let search = |table: &Table, name: &[u8]| table.search(&who, Ref::possessed(session), Kind::User, name);
    assert_eq!(search(&table, b"r").map(|_| ()), Err(EKEYREVOKED));
    assert_eq!(search(&table, b"e").map(|_| ()), Err(EKEYEXPIRED));
    assert_eq!(search(&table, b"i").map(|_| ()), Err(ENOKEY));
    assert_eq!(table.request(&who, Kind::User, b"e").map(|_| ()), Err(EAGAIN));
    table.collect(u64::MAX);
    assert_eq!(table.serials(session).unwrap(), [keys[3]]);
    assert_eq!(counted(&table, 7).0, 2);
}

#[test]
fn a_negative_key_answers_with_its_error() {
    let (mut table, who) = (Table::new(), user(7));
    let session = ring(&mut table, &who, "_ses");
    table.add_negative(session, &who, Kind::User, b"none".to_vec(), ENOKEY).unwrap();
    let who = Who { keyrings: [None, None, Some(session)], ..who };
    assert_eq!(table.request(&who, Kind::User, b"none").map(|_| ()), Err(ENOKEY));
    let key = add(&mut table, &who, session, "none", b"now").unwrap();
    assert_eq!(table.request(&who, Kind::User, b"none").map(|at| at.serial), Ok(key));
}

#[test]
fn keys_are_moved_and_keyrings_are_closed() {
    let (mut table, who) = (Table::new(), user(7));
    let (a, b) = (ring(&mut table, &who, "a"), ring(&mut table, &who, "b"));
    let key = add(&mut table, &who, a, "name", b"1").unwrap();
    let like_it = add(&mut table, &who, b, "name", b"2").unwrap();
    assert_eq!(table.move_key(a, b, key, Move::Exclusive), Err(EEXIST));
    assert_eq!(table.move_key(a, b, key, Move::Replaces), Ok(()));
    assert_eq!((table.serials(b).unwrap(), table.read(like_it)), (alloc::vec![key], Err(ENOKEY)));
    assert_eq!(table.move_key(a, b, key, Move::Replaces), Err(ENOENT));
    table.restrict(a).unwrap();
    assert_eq!((table.restrict(a), table.link(a, key)), (Err(EEXIST), Err(EPERM)));
    assert_eq!(add(&mut table, &who, a, "new", b"x"), Err(EPERM));
    assert_eq!(table.link(key, a), Err(ENOTDIR));
}

#[test]
fn keyrings_of_users_go_with_their_namespace() {
    let (mut table, who) = (Table::new(), Who { namespace: 3, ..user(7) });
    let keyrings = table.of_user(&who, 7).unwrap();
    assert_eq!(table.of_user(&who, 7).unwrap(), keyrings);
    assert_ne!(table.of_user(&user(7), 7).unwrap(), keyrings);
    let session = ring(&mut table, &who, "_ses");
    table.persistent(&who, 7, 7, session).unwrap();
    table.namespace_ends(3);
    assert_eq!(table.get(keyrings.user).err(), Some(ENOKEY));
    table.release(session);
    assert_eq!(counted(&table, 7).0, 2, "those of the other namespace");
}

#[test]
fn big_keys_are_bounded_by_what_all_have() {
    let (mut table, who) = (Table::new(), user(0));
    let session = ring(&mut table, &who, "_ses");
    let mut add = |name: &str| {
        let data = alloc::vec![1; 1 << 20];
        table.add(Ref::possessed(session), &who, Some(Kind::BigKey), Some(name.into()), data)
    };
    let made = (0..100).take_while(|i| add(&alloc::format!("{i}")).is_ok()).count();
    assert_eq!((made, add("more")), (16, Err(ENOMEM)));
    table.clear(session).unwrap();
    assert_eq!(table.big_key_bytes, 0);
}
