// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The client against a server on the host, which answers by the protocol, late, wrongly, or with any bytes.

use super::*;
use crate::message::{DIRECTORY, READ};
use abi::errno::ENOENT;
use proptest::prelude::*;
use std::boxed::Box;
use std::string::ToString;
use std::sync::Mutex;

type Answer = Box<dyn FnMut(Header, &[u8]) -> Vec<u8> + Send>;

/// What is at the other end; it answers when it is waited for.
struct Server {
    ring: &'static StoreRing,
    answer: Mutex<Answer>,
    left: Mutex<Vec<u8>>,
    now: AtomicU32,
}

impl Server {
    fn say(&self) {
        let mut left = self.left.lock().unwrap();
        let mut produced = self.ring.replies_produced.load(Ordering::Relaxed);
        while !left.is_empty() && count(&self.ring.replies_produced, &self.ring.replies_consumed) < RING {
            put(&self.ring.replies, produced, left.remove(0));
            produced = produced.wrapping_add(1);
            self.ring.replies_produced.store(produced, Ordering::Relaxed);
        }
    }

    fn take(&self) -> Vec<u8> {
        let mut consumed = self.ring.requests_consumed.load(Ordering::Relaxed);
        let mut bytes = Vec::new();
        while consumed != self.ring.requests_produced.load(Ordering::Relaxed) {
            bytes.push(self.ring.requests[consumed as usize % RING].load(Ordering::Relaxed));
            consumed = consumed.wrapping_add(1);
        }
        self.ring.requests_consumed.store(consumed, Ordering::Relaxed);
        bytes
    }
}

impl Channel for &'static Server {
    fn notify(&self) {
        let bytes = self.take();
        if let Some(header) = bytes.first_chunk().and_then(Header::decode) {
            let said = (self.answer.lock().unwrap())(header, &bytes[HEADER..]);
            self.left.lock().unwrap().extend(said);
        }
        self.say();
    }

    fn wait(&self, most_ns: u64) {
        // A time-out passes at once.
        if self.left.lock().unwrap().is_empty() {
            self.now.fetch_add((most_ns / 1_000_000) as u32 + 1, Ordering::Relaxed);
        }
        self.say();
    }

    fn now_ns(&self) -> u64 {
        u64::from(self.now.load(Ordering::Relaxed)) * 1_000_000
    }
}

fn store(
    start: u32,
    answer: impl FnMut(Header, &[u8]) -> Vec<u8> + Send + 'static,
) -> Store<&'static Server> {
    let counter = || AtomicU32::new(start);
    let ring = Box::leak(Box::new(StoreRing {
        requests: [const { AtomicU8::new(0) }; RING],
        replies: [const { AtomicU8::new(0) }; RING],
        requests_consumed: counter(),
        requests_produced: counter(),
        replies_consumed: counter(),
        replies_produced: counter(),
    }));
    let (answer, left): (Mutex<Answer>, _) = (Mutex::new(Box::new(answer)), Mutex::default());
    Store::new(ring, Box::leak(Box::new(Server { ring, answer, left, now: AtomicU32::new(0) })))
}

fn reply(kind: u32, id: u32, text: &[u8]) -> Vec<u8> {
    [&Header { kind, id, length: text.len() }.encode()[..], text].concat()
}

#[test]
fn value_is_read_and_an_error_has_its_name() {
    // The counters wrap in the middle of a message.
    let store = store(u32::MAX - 20, |header, path| match path {
        b"a\0" => reply(READ, header.id, b"value"),
        b"n\0" => reply(READ, header.id, b"42"),
        _ => reply(ERROR, header.id, b"ENOENT\0"),
    });
    assert_eq!(store.read("a").unwrap(), "value");
    assert_eq!(store.number::<u16>("n"), Ok(42));
    assert_eq!(store.number::<u16>("a"), Err(EIO));
    assert_eq!(store.read("b"), Err(ENOENT));
}

#[test]
fn reply_that_is_longer_than_the_ring_arrives_whole() {
    let store = store(5, |header, _| reply(DIRECTORY, header.id, &[b'x'; 4000]));
    assert_eq!(store.list("a").unwrap().len(), 4000);
}

#[test]
fn watch_that_fires_meanwhile_is_kept_and_old_replies_are_left_out() {
    let store = store(0, |header, _| {
        [reply(WATCH_EVENT, 0, b"p\0w\0"), reply(READ, header.id - 1, b"old"), reply(READ, header.id, b"new")]
            .concat()
    });
    assert_eq!(store.read("a").unwrap(), "new");
    assert!(store.has_fired() && !store.has_fired());
}

#[test]
fn silence_ends_in_a_time_out_and_is_the_end() {
    let store = store(0, |_, _| Vec::new());
    assert_eq!(store.read("a"), Err(ETIMEDOUT));
    assert_eq!(store.read("a"), Err(EIO));
}

#[test]
fn reply_longer_than_any_may_be_is_refused() {
    let store = store(0, |header, _| {
        let mut long = reply(READ, header.id, b"");
        long[12..].copy_from_slice(&u32::MAX.to_le_bytes());
        long
    });
    assert_eq!(store.read("a"), Err(EIO));
}

#[test]
fn watches_without_end_are_not_listened_to_for_ever() {
    let store = store(0, |_, _| reply(WATCH_EVENT, 0, b"p\0w\0").repeat(100));
    assert_eq!(store.read("a"), Err(EIO));
}

proptest! {
    #[test]
    fn any_bytes_end_in_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..600), produced: u32) {
        let store = store(0, move |_, _| bytes.clone());
        let _ = store.read("a").map(|value| value.to_string());
        store.has_fired();
        store.ring.replies_produced.store(produced, Ordering::Relaxed);
        let _ = store.list("b");
        store.has_fired();
    }
}
