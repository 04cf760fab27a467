// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames from the network, with sums that fit: the stack serves others afterwards.
#![no_main]

#[path = "../../micro/net/tcpip/tests/common/mod.rs"]
mod common;

use api_socket::{Shutdown, Socket};
use common::repair::repair;
use common::{Faults, MS, World, receive, send};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let world = World::new(Faults::default(), 0, 1);
    let listener = world.a.listen(80, 8);
    let (client, server) = world.connect(&listener, 80);
    let mut rest = bytes;
    // Each frame behind the length of it.
    while let Some((length, more)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)) % 1515;
        let (frame, more) = more.split_at(length.min(more.len()));
        rest = more;
        let mut frame = frame.to_vec();
        repair(&mut frame);
        world.a.device.inject(frame);
        world.run(MS);
    }
    let _ = (send(&*client, b"x"), receive(&*server, 100));
    drop((client, server));
    world.run(300_000 * MS);
    let listener = world.a.listen(81, 8);
    let (client, server) = world.connect(&listener, 81);
    assert!(send(&*client, b"still there?").is_ok());
    world.run(10 * MS);
    assert_eq!(receive(&*server, 99).as_deref(), Ok(&b"still there?"[..]));
    let _ = client.shutdown(Shutdown::Both);
});
