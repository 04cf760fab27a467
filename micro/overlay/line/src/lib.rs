// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The line: sessions of hosts with this machine, and the threads that run their commands.
//!
//! One thread, *the context*, sleeps until bytes come through the [`Transport`], takes frames (`overlay-wire`) out of
//! them, and does what they say. A command runs on a thread of its own, which is made for it and of which one stays for
//! the next. So nothing of the overlay is on the processor while nobody asks for anything.
//!
//! What the host sends is untrusted: [`requests`] keeps the books of sessions, requests, input and credit, and answers
//! what is out of order.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod requests;
mod worker;

pub use overlay_wire::Container;
pub use requests::Request;

use abi::Events;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_overlay::{Outcome, Remote};
use api_sched::{WaitKey, WaitQueue};
use core::any::Any;
use overlay_wire::{Decoder, Frame, Hello, Kind, MAX_PAYLOAD, Program, Refused, Run, WINDOW, Welcome, frame};
use requests::{Answer, Books, Wanted};

/// A channel of bytes to the host: a virtio-console port, a socket.
pub trait Transport: Send + Sync {
    /// Hands over one piece of what came; `false` when there is nothing.
    fn receive(&self, to: &mut dyn FnMut(&[u8])) -> bool;

    /// Sends all of the bytes in one piece, or gives them back when there is no room.
    fn send(&self, bytes: Vec<u8>) -> Result<(), Vec<u8>>;

    /// How often the other side closed the channel: what it had begun to say is void then.
    fn hang_ups(&self) -> u32;

    /// Woken with IN when [`Transport::receive`] or [`Transport::hang_ups`] may have news, with OUT when there is
    /// room again.
    fn events(&self) -> &WaitQueue;
}

/// What the line needs of the kernel around it.
#[derive(Clone, Copy)]
pub struct Setup {
    /// Waits until the channel is there; called on the context's thread.
    pub open: fn() -> Arc<dyn Transport>,
    /// Gives the running kernel thread what commands need, for as long as the answer lives; the error is one line.
    pub enter: fn() -> Result<Box<dyn Any>, String>,
    /// Runs a program of the image to its end, with the client's streams.
    pub program: fn(&dyn Remote, &Program<'_>) -> Outcome,
    /// Runs a container to its end, with the client's streams.
    pub container: fn(&dyn Remote, &Container<'_>) -> Outcome,
    /// What this kernel is, for the welcome.
    pub kernel: &'static str,
}

/// How long overlay code runs while others wait for the processor, in nanoseconds.
const BUDGET_NS: u64 = 1_000_000;

/// A registration in a queue of waiters for as long as it lives.
struct Registration<'a> {
    queue: &'a WaitQueue,
    key: WaitKey,
}

impl<'a> Registration<'a> {
    fn new(queue: &'a WaitQueue, interest: Events) -> Registration<'a> {
        Registration { queue, key: queue.add(api_sched::current(), interest, false) }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.queue.remove(self.key);
    }
}

/// The line of this machine.
struct Line {
    transport: Arc<dyn Transport>,
    setup: Setup,
    books: SpinLock<Books>,
}

impl Line {
    /// Sends frames in one piece; waits for room.
    fn send(&self, bytes: Vec<u8>) {
        let Err(mut bytes) = self.transport.send(bytes) else { return };
        let _registration = Registration::new(self.transport.events(), Events::OUT);
        while let Err(back) = self.transport.send(bytes) {
            bytes = back;
            api_sched::park(u64::MAX);
        }
        // Waiting here may have taken a wake-up that was for something else: the next wait does not wait.
        api_sched::current().wake(Events::NONE);
    }

    fn heed(self: &Arc<Line>, frame: Frame<'_>) {
        let Frame { kind, session, request, payload } = frame;
        match kind {
            Kind::HELLO => self.welcome(session, payload),
            Kind::PING => self.send(overlay_wire::frame(Kind::PONG, session, request, payload)),
            Kind::CLOSE => {
                // Waiters are woken without the lock.
                let ended = self.books.lock().close(session);
                ended.iter().for_each(|request| request.abandon());
            }
            Kind::RUN => {
                let command = Run::decode(payload).ok().map(|run| Wanted::command(&run));
                self.run(session, request, command);
            }
            Kind::PROGRAM => self.run(session, request, Wanted::program(payload)),
            Kind::CONTAINER => self.run(session, request, Wanted::container(payload)),
            _ => {
                let found = self.books.lock().find(session, request);
                let answer = match found {
                    Some(request) => request.heed(kind, payload),
                    // It has just ended: what was on its way to it is void.
                    None => Answer::Nothing,
                };
                if let Answer::Refuse(text) = answer {
                    self.refuse(session, Refused::PROTOCOL, text);
                }
            }
        }
    }

    fn refuse(&self, session: u32, code: u16, text: &str) {
        let ended = self.books.lock().close(session);
        ended.iter().for_each(|request| request.abandon());
        let refused = Refused { code, text: text.as_bytes() }.encode();
        self.send(frame(Kind::REFUSED, session, 0, &refused));
    }

    fn welcome(&self, session: u32, payload: &[u8]) {
        let Ok(hello) = Hello::decode(payload) else {
            return self.refuse(session, Refused::PROTOCOL, "a greeting that is none");
        };
        let Some(version) = hello.agree() else {
            let text = alloc::format!(
                "this machine speaks version {} of the protocol, the client {} to {}",
                overlay_wire::VERSION,
                hello.lowest,
                hello.highest
            );
            return self.refuse(session, Refused::VERSION, &text);
        };
        let opened = self.books.lock().open(session);
        // A client that died without a word may have had that number.
        let ended = match opened {
            Ok(ended) => ended,
            Err(text) => return self.refuse(session, Refused::CROWDED, text),
        };
        ended.iter().for_each(|request| request.abandon());
        let welcome = Welcome {
            version,
            requests: requests::MAX_REQUESTS as u16,
            payload: MAX_PAYLOAD as u32,
            window: WINDOW,
            kernel: self.setup.kernel.as_bytes(),
        };
        self.send(frame(Kind::WELCOME, session, 0, &welcome.encode()));
    }

    fn run(self: &Arc<Line>, session: u32, request: u32, wanted: Option<Wanted>) {
        let Some(wanted) = wanted else {
            return self.refuse(session, Refused::PROTOCOL, "a command that is none");
        };
        let added = self.books.lock().add(session, request, wanted);
        match added {
            Ok(request) => worker::start(self, request),
            Err(text) => self.refuse(session, Refused::PROTOCOL, text),
        }
    }

    /// What the context does.
    fn serve(self: &Arc<Line>) {
        let mut decoder = Decoder::new();
        let mut hang_ups = self.transport.hang_ups();
        let _registration = Registration::new(self.transport.events(), Events::IN);
        // When it last began to run, from its first look at the clock on, which comes behind the first answer.
        let mut begin = None;
        loop {
            let now = self.transport.hang_ups();
            if now != hang_ups {
                hang_ups = now;
                decoder.reset();
                let ended = self.books.lock().close_all();
                ended.iter().for_each(|request| request.abandon());
            }
            let came = self.transport.receive(&mut |bytes| decoder.feed(bytes, |frame| self.heed(frame)));
            let skipped = decoder.take_skipped();
            if skipped > 0 {
                log::info!("overlay: {skipped} bytes on the line are no frame");
            }
            if came {
                // A host that floods the line gets its share of the processor, not more.
                let now = api_plat::now_ns();
                if now.saturating_sub(*begin.get_or_insert(now)) > BUDGET_NS {
                    sched::yield_now();
                    begin = None;
                }
            } else {
                api_sched::park(u64::MAX);
                begin = None;
            }
        }
    }
}

/// Sends back whatever comes, with no protocol at all: what [`start`]'s context is measured against.
#[cfg(feature = "echo")]
pub fn echo(setup: Setup) -> abi::Result<()> {
    *SETUP.lock() = Some(setup);
    let thread = sched::spawn(false, sched::Start::Kernel(send_back))?;
    sched::unpark(&thread);
    Ok(())
}

#[cfg(feature = "echo")]
fn send_back() {
    let Some(setup) = *SETUP.lock() else { return };
    let line = Line { transport: (setup.open)(), setup, books: SpinLock::new(Books::default()) };
    let _registration = Registration::new(line.transport.events(), Events::IN);
    loop {
        while line.transport.receive(&mut |bytes| line.send(bytes.to_vec())) {}
        api_sched::park(u64::MAX);
    }
}

static SETUP: SpinLock<Option<Setup>> = SpinLock::new(None);

/// Starts the context. It sleeps until the host says something.
pub fn start(setup: Setup) -> abi::Result<()> {
    *SETUP.lock() = Some(setup);
    let context = sched::spawn(false, sched::Start::Kernel(context))?;
    sched::unpark(&context);
    Ok(())
}

fn context() {
    let Some(setup) = *SETUP.lock() else { return };
    let transport = (setup.open)();
    Arc::new(Line { transport, setup, books: SpinLock::new(Books::default()) }).serve();
}
