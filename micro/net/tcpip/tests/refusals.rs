// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory is refused once at each place in turn where packets and calls ask for it: everything arrives all the same. Alone in
//! its program, for the refusals are the whole program's.
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use abi::{Events, errno::*};
use api_fs::{Sink, Source};
use api_socket::{Sending, Socket};
use common::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use tcpip::sockets::{Domain, StreamSocket};

/// The host's allocator, which remembers where the stack asks for memory in a form that ends the machine when there is none.
struct Watched;

thread_local! {
    static FOUND: RefCell<BTreeSet<String>> = const { RefCell::new(BTreeSet::new()) };
    /// Finding out who asks takes longer than all the rest.
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// Where such a request is no danger: memory was asked for just before it ([`api_alloc::is_low`]), once for each connection that
/// is made, and the kernel's reserve has room for one.
const GUARDED: [&str; 1] = ["tcpip::stack::Shared::new"];

fn look(size: usize) {
    if !IS_WATCHED.get() || !IN_STACK.get() || api_alloc::fault::is_fallible() {
        return;
    }
    inside(false, || {
        // Compilers differ in how they write a method's type.
        let trace = std::backtrace::Backtrace::force_capture().to_string().replace(['<', '>'], "");
        if GUARDED.iter().any(|guarded| trace.contains(guarded)) {
            return;
        }
        let of_stack =
            |line: &&str| line.starts_with("at ") && line.contains("/src/") && !line.contains("/library/");
        let place: Vec<&str> = trace.lines().map(str::trim).filter(of_stack).take(3).collect();
        FOUND.with(|found| found.borrow_mut().insert(format!("{size} bytes: {place:?}")));
    });
}

// SAFETY: all of it is the system's allocator's work, with the arguments that came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        look(layout.size());
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        look(size);
        // SAFETY: the caller's promise is the same.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watched = Watched;

/// An answer of the stack, or `None` where it refused for want of memory.
fn unless_refused<T>(answer: abi::Result<T>) -> Option<T> {
    match answer {
        Ok(value) => Some(value),
        Err(e) => {
            assert!([EAGAIN, ENOBUFS, ENOMEM].contains(&e), "{e:?}");
            None
        }
    }
}

/// A connection from b to the listener on a, each call made again where it was refused.
fn connect(world: &World, listener: &StreamSocket) -> (Arc<StreamSocket>, Arc<dyn Socket>) {
    let (mut client, mut is_connecting, mut server) = (None, false, None);
    let done = world.until(60 * SECOND, || {
        client =
            client.take().or_else(|| unless_refused(StreamSocket::new(world.b.net.clone(), Domain::V4, 0)));
        if let Some(client) = client.as_ref().filter(|_| !is_connecting) {
            match client.connect(&caller(), &world.a.at(80)) {
                Err(EINPROGRESS) => is_connecting = true,
                answer => assert!(unless_refused(answer).is_none()),
            }
        }
        server = server.take().or_else(|| unless_refused(listener.accept()));
        server.is_some() && client.as_ref().is_some_and(|client| client.poll().contains(Events::OUT))
    });
    assert!(done, "connecting: {is_connecting}, accepted: {}", server.is_some());
    (client.unwrap(), server.unwrap().0)
}

/// One connection that carries `total` bytes each way, then is closed; whether the refusal after `count` came about.
fn exchange(count: usize, faults: Faults, total: usize) -> bool {
    let world = World::new(Faults { delay: MS, ..faults }, 0, 9);
    let listener = world.a.listen(80, 5);
    api_alloc::fault::fail_after(count);
    let (client, server) = connect(&world, &listener);
    let ends: [&dyn Socket; 2] = [&*client, &*server];
    let (mut sent, mut got) = ([0; 2], [0; 2]);
    let bytes = vec![7; 5000];
    let done = world.until(60 * SECOND, || {
        for side in 0..2 {
            let most = bytes.len().min(total - sent[side]);
            if most > 0 {
                let answer = ends[side].send(None, &Sending::default(), &mut Source::kernel(&bytes[..most]));
                sent[side] += unless_refused(answer).unwrap_or(0);
            }
            let mut out = [0; 4096];
            if let Ok(received) = ends[side].receive(&mut Sink::kernel(&mut out), 0) {
                assert!(out[..received.length].iter().all(|byte| *byte == 7));
                got[side] += received.length;
            }
        }
        got == [total; 2]
    });
    assert!(done, "refusal {count}: {sent:?} sent, {got:?} received");
    client.close();
    assert!(world.until(60 * SECOND, || server.poll().contains(Events::RDHUP)), "refusal {count}");
    server.close();
    world.run(300 * SECOND);
    for side in [&world.a, &world.b] {
        assert_eq!(side.net.look(|s| s.tcp.counts()), (0, 0, 0), "refusal {count}: something stays");
    }
    // Not asked so often: every place was tried.
    !api_alloc::fault::fail_after(usize::MAX)
}

/// Datagrams in fragments, each sent until one arrives whole; whether the refusal after `count` came about.
fn datagrams(count: usize) -> bool {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 9);
    let (receiver, sender) = (world.a.datagram(), world.b.datagram());
    receiver.bind(&caller(), &world.a.at(53)).unwrap();
    sender.connect(&caller(), &world.a.at(53)).unwrap();
    api_alloc::fault::fail_after(count);
    for round in 0..4 {
        let bytes = vec![round; 4000];
        let arrived = world.until(60 * SECOND, || {
            unless_refused(sender.send(None, &Sending::default(), &mut Source::kernel(&bytes)));
            world.run(10 * MS);
            let mut out = [0; 5000];
            match unless_refused(receiver.receive(&mut Sink::kernel(&mut out), 0)) {
                Some(received) => received.length == 4000 && out[..4000] == bytes,
                None => false,
            }
        });
        assert!(arrived, "refusal {count}, datagram {round}");
        // What was sent twice.
        while receiver.receive(&mut Sink::kernel(&mut [0; 1]), 0).is_ok() {}
    }
    !api_alloc::fault::fail_after(usize::MAX)
}

/// Every place in turn refuses once, in `exchange`; then nothing refuses, and the stack asks for nothing without being able to
/// hear no.
fn refuse_each(exchange: impl Fn(usize) -> bool, least: usize) {
    let mut count = 0;
    while !exchange(count) {
        count += 1;
        assert!(count < 10_000);
    }
    assert!(count > least, "only {count} places asked");
    IS_WATCHED.set(true);
    exchange(usize::MAX);
    IS_WATCHED.set(false);
    let found: Vec<String> = FOUND.take().into_iter().collect();
    assert!(found.is_empty(), "these end the machine when there is no memory:\n{}", found.join("\n"));
}

#[test]
fn no_refusal_of_memory_loses_a_byte_or_a_connection() {
    // One after the other: refusals are the whole program's.
    refuse_each(|count| exchange(count, Faults::default(), 20_000), 100);
    refuse_each(|count| exchange(count, Faults { reorder: 30, loss: 5, ..Faults::default() }, 12_000), 100);
    refuse_each(datagrams, 20);
}
