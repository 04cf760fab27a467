// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The protocol of the line: how a host and a running machine talk about commands.
//!
//! # Frames
//!
//! A byte stream both ways, cut into frames. A frame is a header of [`HEADER`] bytes and a payload of at most
//! [`MAX_PAYLOAD`] bytes; numbers are little endian.
//!
//! | bytes | field | |
//! | --- | --- | --- |
//! | 0..4 | magic | `ULN` and the version of the frame format, 1 |
//! | 4 | kind | [`Kind`] |
//! | 5..8 | reserved | zero; receivers ignore it |
//! | 8..12 | session | one client; numbered by the multiplexer on the host, 0 between it and its client |
//! | 12..16 | request | one command of a session, numbered by the client, not 0; 0 where the frame is about the session |
//! | 16..20 | length | of the payload |
//! | 20..24 | check | CRC-32C of the 20 bytes before it (RFC 3720, B.4 gives the polynomial) |
//!
//! The check lets a receiver find the next frame again after bytes that are none: it looks for the next place where a
//! header is right ([`Decoder`]). Payloads are not checked, for the channel is reliable.
//!
//! # Conversation
//!
//! [`Kind::HELLO`] opens a session and is answered by [`Kind::WELCOME`] or [`Kind::REFUSED`]. Then each
//! [`Kind::RUN`] starts a command. Its output comes as [`Kind::STDOUT`] and [`Kind::STDERR`], its failures as
//! [`Kind::ERROR`], its end as [`Kind::EXIT`], after which the request's number is free. Several requests of a
//! session run at once. [`Kind::CLOSE`] ends the session and what runs in it.
//!
//! [`Kind::PROGRAM`] starts a program of the machine's image instead, as a process of its own; it is a request like any other.
//! With a terminal all it prints is [`Kind::STDOUT`], its keys are [`Kind::STDIN`], and [`Kind::RESIZE`] says when the terminal has
//! another size; without one [`Kind::INTERRUPT`] is SIGINT to its process group. [`Kind::STARTED`] says that it runs. A session that ends hangs up (SIGHUP). A
//! [`Kind::RUN`] whose first word is no command starts the program of that name, without input.
//!
//! [`Kind::CONTAINER`] starts a program in a tree of files of its own, which the machine mounts for it: a container of a pod.
//! It is like a [`Kind::PROGRAM`] otherwise, but that its end ends every process that
//! descends from it or was started in it later, and that a session that ends takes all of them with it (SIGKILL).
//!
//! Flow is controlled by credit: a request's output and input may each be ahead of their reader by the window that the
//! welcome names, in bytes of payload; [`Kind::CREDIT`] gives back what was read. Failures and ends need no credit.
//!
//! Neither side trusts the other: every length is checked, and what is not understood is answered or skipped, never
//! acted upon.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod decoder;
mod message;

pub use decoder::{Decoder, Frame, check};
pub use message::{
    Container, ControlGroup, ErrorReport, Exit, Hello, How, Limit, Malformed, Namespaces, Origin, Privileges,
    Program, Refused, Run, Size, Tree, Welcome, credit, read_credit, read_started, started,
};

use alloc::vec::Vec;

/// Version of the conversation that this crate speaks. 2 has [`Kind::PROGRAM`] and [`Kind::RESIZE`], 3 has
/// [`Kind::CONTAINER`], 4 [`Kind::STARTED`] for programs and their [`Privileges`]; whoever speaks an older one finds everything else unchanged.
pub const VERSION: u16 = 4;
/// The first version that has [`Kind::CONTAINER`], and programs in one.
pub const CONTAINERS_SINCE: u16 = 3;
/// The first version that says [`Kind::STARTED`] of programs, and heeds their [`Privileges`].
pub const PRIVILEGES_SINCE: u16 = 4;
/// The first version that has [`Kind::PROGRAM`].
pub const PROGRAMS_SINCE: u16 = 2;
/// First bytes of a frame.
pub const MAGIC: [u8; 4] = *b"ULN\x01";
/// Bytes of a header.
pub const HEADER: usize = 24;
/// Most bytes of a payload: what a guest keeps for a frame that has not come as a whole.
pub const MAX_PAYLOAD: usize = 64 << 10;
/// How far output or input of a request may be ahead of its reader.
pub const WINDOW: u32 = 128 << 10;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind(pub u8);

impl Kind {
    /// Host: opens a session ([`Hello`]).
    pub const HELLO: Kind = Kind(1);
    /// Host: starts a command ([`Run`]).
    pub const RUN: Kind = Kind(2);
    /// Host: standard input.
    pub const STDIN: Kind = Kind(3);
    /// Host: the end of standard input.
    pub const STDIN_END: Kind = Kind(4);
    /// Host: interrupts a command.
    pub const INTERRUPT: Kind = Kind(5);
    /// Host: that many bytes of output were read. Guest: that many bytes of input ([`credit`]).
    pub const CREDIT: Kind = Kind(6);
    /// Host: ends the session.
    pub const CLOSE: Kind = Kind(7);
    /// Host: to be answered by [`Kind::PONG`] with the same payload, at once.
    pub const PING: Kind = Kind(8);
    /// Host: starts a program of the machine's image as a process of its own ([`Program`]).
    pub const PROGRAM: Kind = Kind(9);
    /// Host: the client's terminal has another size ([`Size`]).
    pub const RESIZE: Kind = Kind(10);
    /// Host: starts a container in the machine ([`Container`]).
    pub const CONTAINER: Kind = Kind(11);
    /// Guest: the session is open ([`Welcome`]).
    pub const WELCOME: Kind = Kind(0x81);
    /// Guest: it is not, or not any more ([`Refused`]).
    pub const REFUSED: Kind = Kind(0x82);
    /// Guest: standard output.
    pub const STDOUT: Kind = Kind(0x83);
    /// Guest: standard error.
    pub const STDERR: Kind = Kind(0x84);
    /// Guest: a failure of the command ([`ErrorReport`]).
    pub const ERROR: Kind = Kind(0x85);
    /// Guest: the command's end ([`Exit`]).
    pub const EXIT: Kind = Kind(0x86);
    /// Guest: the program runs ([`started`]).
    pub const STARTED: Kind = Kind(0x87);
    /// Guest: answers [`Kind::PING`].
    pub const PONG: Kind = Kind(0x88);

    /// Names of all kinds, for the reference and for messages.
    pub const ALL: [(Kind, &'static str); 19] = [
        (Kind::HELLO, "HELLO"),
        (Kind::RUN, "RUN"),
        (Kind::STDIN, "STDIN"),
        (Kind::STDIN_END, "STDIN_END"),
        (Kind::INTERRUPT, "INTERRUPT"),
        (Kind::CREDIT, "CREDIT"),
        (Kind::CLOSE, "CLOSE"),
        (Kind::PING, "PING"),
        (Kind::PROGRAM, "PROGRAM"),
        (Kind::RESIZE, "RESIZE"),
        (Kind::CONTAINER, "CONTAINER"),
        (Kind::WELCOME, "WELCOME"),
        (Kind::REFUSED, "REFUSED"),
        (Kind::STDOUT, "STDOUT"),
        (Kind::STDERR, "STDERR"),
        (Kind::ERROR, "ERROR"),
        (Kind::EXIT, "EXIT"),
        (Kind::STARTED, "STARTED"),
        (Kind::PONG, "PONG"),
    ];
}

/// Adds a frame to `out`.
///
/// # Panics
///
/// When the payload is longer than [`MAX_PAYLOAD`]: senders cut streams and check what cannot be cut.
pub fn put_frame(out: &mut Vec<u8>, kind: Kind, session: u32, request: u32, payload: &[u8]) {
    assert!(payload.len() <= MAX_PAYLOAD, "a payload of {} bytes", payload.len());
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[kind.0, 0, 0, 0]);
    for number in [session, request, payload.len() as u32] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    let check = check(&out[start..]);
    out.extend_from_slice(&check.to_le_bytes());
    out.extend_from_slice(payload);
}

/// One frame.
pub fn frame(kind: Kind, session: u32, request: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + payload.len());
    put_frame(&mut out, kind, session, request, payload);
    out
}
