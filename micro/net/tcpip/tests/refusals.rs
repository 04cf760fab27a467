// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory is refused once at each place in turn where packets and calls ask for it: everything arrives all the same. Alone in
//! its program, for the refusals are the whole program's.
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use abi::{Events, errno::*};
use api_fs::{Sink, Source};
use api_socket::{Sending, Socket};
use common::*;

/// One connection that carries `total` bytes each way, then is closed; whether the refusal after `count` came about.
fn exchange(count: usize, total: usize) -> bool {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 9);
    let listener = world.a.listen(80, 5);
    api_alloc::fail_after(count);
    let (client, server) = world.connect(&listener, 80);
    let ends: [&dyn Socket; 2] = [&*client, &*server];
    let (mut sent, mut got) = ([0; 2], [0; 2]);
    let bytes = vec![7; 5000];
    let done = world.until(60 * SECOND, || {
        for side in 0..2 {
            let most = bytes.len().min(total - sent[side]);
            if most > 0 {
                match ends[side].send(None, &Sending::default(), &mut Source::kernel(&bytes[..most])) {
                    Ok(n) => sent[side] += n,
                    Err(e) => assert!([EAGAIN, ENOBUFS, ENOMEM].contains(&e), "{e:?}"),
                }
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
    // Not asked so often: every place was tried.
    !api_alloc::fail_after(usize::MAX)
}

#[test]
fn no_refusal_of_memory_loses_a_byte_or_a_connection() {
    let mut count = 0;
    while !exchange(count, 20_000) {
        count += 1;
        assert!(count < 10_000);
    }
    assert!(count > 20, "only {count} places asked");
}
