// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine and its command say to each other: the frames, and in each the message of its kind.
#![no_main]

use libfuzzer_sys::fuzz_target;
use overlay_wire::{Container, Decoder, ErrorReport, Exit, Hello, Program, Refused, Run, Size, Welcome};

fuzz_target!(|bytes: &[u8]| {
    let mut decoder = Decoder::new();
    let mut messages = 0;
    decoder.feed(bytes, |frame| {
        let payload = frame.payload;
        // Every kind, for a peer may send any under any number.
        messages += usize::from(Hello::decode(payload).is_ok());
        messages += usize::from(Welcome::decode(payload).is_ok());
        messages += usize::from(Refused::decode(payload).is_ok());
        messages += usize::from(Size::decode(payload).is_ok());
        messages += usize::from(ErrorReport::decode(payload).is_ok());
        messages += usize::from(Exit::decode(payload).is_ok());
        // What is taken apart and put together again is what it was.
        if let Ok(run) = Run::decode(payload) {
            assert!(Run::decode(&run.encode()).is_ok());
        }
        if let Ok(program) = Program::decode(payload) {
            assert!(Program::decode(&program.encode()).is_ok());
        }
        if let Ok(container) = Container::decode(payload) {
            assert!(Container::decode(&container.encode()).is_ok());
        }
    });
    // In other pieces the same frames come out.
    let mut whole = Vec::new();
    Decoder::new().feed(bytes, |frame| whole.push((frame.kind.0, frame.payload.to_vec())));
    let mut parts = Vec::new();
    let mut decoder = Decoder::new();
    for part in bytes.chunks(7) {
        decoder.feed(part, |frame| parts.push((frame.kind.0, frame.payload.to_vec())));
    }
    assert_eq!(whole, parts);
});
