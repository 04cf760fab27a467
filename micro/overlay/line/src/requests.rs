// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The books of the line: which sessions are open, which commands run in them, what input and credit they have.

use abi::Events;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;
use api_overlay::News;
use api_sched::WaitQueue;
use overlay_wire::{Container, Kind, Program, Run, Size, WINDOW, read_credit};

/// Sessions at once: people and scripts at one machine.
pub const MAX_SESSIONS: usize = 64;
/// Commands of one session at once.
pub const MAX_REQUESTS: usize = 16;
/// Commands at once: each has a thread and a kernel stack.
pub const MAX_COMMANDS: usize = 64;

/// What a frame leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Nothing,
    /// The client does not keep to the protocol: its session ends.
    Refuse(&'static str),
}

#[derive(Default)]
struct Flow {
    input: VecDeque<u8>,
    input_ended: bool,
    /// Bytes of input the client may still send.
    input_room: u32,
    /// Bytes of output the client still takes.
    credit: u32,
    interrupted: bool,
    /// Nobody waits for the answer any more.
    abandoned: bool,
    /// The terminal's, if it changed since somebody asked.
    size: Option<Size>,
}

/// What a client asked for.
pub enum Wanted {
    Command {
        json: bool,
        /// Width of the client's terminal, 0 without one.
        columns: usize,
        /// The name and its arguments.
        arguments: Vec<Vec<u8>>,
    },
    /// The payload of a [`Program`], which was looked at.
    Program(Vec<u8>),
    /// That of a [`Container`].
    Container(Vec<u8>),
}

impl Wanted {
    pub fn command(run: &Run<'_>) -> Wanted {
        let arguments = run.arguments.iter().map(|a| a.to_vec()).collect();
        Wanted::Command { json: run.json, columns: run.columns.into(), arguments }
    }

    /// `None`: the payload is no program.
    pub fn program(payload: &[u8]) -> Option<Wanted> {
        Program::decode(payload).ok().map(|_| Wanted::Program(payload.to_vec()))
    }

    /// `None`: the payload is no container.
    pub fn container(payload: &[u8]) -> Option<Wanted> {
        Container::decode(payload).ok().map(|_| Wanted::Container(payload.to_vec()))
    }
}

/// One command or program that was asked for.
pub struct Request {
    pub session: u32,
    pub number: u32,
    pub wanted: Wanted,
    flow: SpinLock<Flow>,
    /// Woken when input, credit or an interrupt came.
    changed: WaitQueue,
}

impl Request {
    fn new(session: u32, number: u32, wanted: Wanted) -> Request {
        Request {
            session,
            number,
            wanted,
            flow: SpinLock::new(Flow { input_room: WINDOW, credit: WINDOW, ..Flow::default() }),
            changed: WaitQueue::new(),
        }
    }

    /// Takes a frame about this request.
    pub fn heed(&self, kind: Kind, payload: &[u8]) -> Answer {
        let answer = self.take(kind, payload);
        self.changed.wake_all(Events::IN | Events::OUT);
        answer
    }

    fn take(&self, kind: Kind, payload: &[u8]) -> Answer {
        let mut flow = self.flow.lock();
        match kind {
            Kind::STDIN => {
                let Some(room) = flow.input_room.checked_sub(payload.len() as u32) else {
                    return Answer::Refuse("more input than there was credit for");
                };
                if flow.input_ended {
                    return Answer::Refuse("input behind the end of input");
                }
                flow.input_room = room;
                flow.input.extend(payload);
            }
            Kind::STDIN_END => flow.input_ended = true,
            Kind::INTERRUPT => flow.interrupted = true,
            Kind::RESIZE => match Size::decode(payload) {
                Ok(size) => flow.size = Some(size),
                Err(_) => return Answer::Refuse("a size that is none"),
            },
            Kind::CREDIT => match read_credit(payload) {
                Ok(bytes) if bytes <= WINDOW - flow.credit.min(WINDOW) => flow.credit += bytes,
                _ => return Answer::Refuse("more credit than was used"),
            },
            _ => return Answer::Refuse("a frame of an unknown kind"),
        }
        Answer::Nothing
    }

    /// Nobody waits for the answer any more: the command is to end.
    pub fn abandon(&self) {
        {
            let mut flow = self.flow.lock();
            flow.interrupted = true;
            flow.abandoned = true;
        }
        self.changed.wake_all(Events::IN | Events::OUT);
    }

    pub fn is_interrupted(&self) -> bool {
        self.flow.lock().interrupted
    }

    pub fn is_abandoned(&self) -> bool {
        self.flow.lock().abandoned
    }

    /// What else than input and credit came since the last time.
    pub fn take_news(&self) -> News {
        let mut flow = self.flow.lock();
        News {
            is_gone: flow.abandoned,
            interrupted: core::mem::take(&mut flow.interrupted),
            size: flow.size.take().map(|size| (size.columns, size.rows)),
        }
    }

    /// Woken when input, credit or an interrupt came.
    pub fn changed(&self) -> &WaitQueue {
        &self.changed
    }

    /// Bytes of output the client takes now.
    pub fn credit(&self) -> usize {
        self.flow.lock().credit as usize
    }

    /// Output was sent.
    pub fn use_credit(&self, bytes: usize) {
        let mut flow = self.flow.lock();
        flow.credit = flow.credit.saturating_sub(bytes as u32);
    }

    /// Takes input: `None` when there is none yet, 0 at its end. Whoever reads gives the credit back to the client.
    pub fn take_input(&self, to: &mut [u8]) -> Option<usize> {
        let mut flow = self.flow.lock();
        let count = to.len().min(flow.input.len());
        if count == 0 && !to.is_empty() && !flow.input_ended {
            return None;
        }
        for (to, byte) in to.iter_mut().zip(flow.input.drain(..count)) {
            *to = byte;
        }
        flow.input_room += count as u32;
        Some(count)
    }
}

/// All sessions, and what runs in each. There are few of both, so lists do.
#[derive(Default)]
pub struct Books {
    sessions: Vec<u32>,
    requests: Vec<Arc<Request>>,
}

impl Books {
    /// Opens a session. The requests of one that had the same number have lost their client.
    pub fn open(&mut self, session: u32) -> Result<Vec<Arc<Request>>, &'static str> {
        let ended = self.close(session);
        if self.sessions.len() >= MAX_SESSIONS {
            return Err("too many sessions: end one first");
        }
        self.sessions.push(session);
        Ok(ended)
    }

    /// Forgets a session and answers what ran in it.
    pub fn close(&mut self, session: u32) -> Vec<Arc<Request>> {
        self.sessions.retain(|open| *open != session);
        let mut ended = Vec::new();
        self.requests.retain(|request| {
            let stays = request.session != session;
            if !stays {
                ended.push(request.clone());
            }
            stays
        });
        ended
    }

    pub fn close_all(&mut self) -> Vec<Arc<Request>> {
        self.sessions.clear();
        core::mem::take(&mut self.requests)
    }

    pub fn add(&mut self, session: u32, number: u32, wanted: Wanted) -> Result<Arc<Request>, &'static str> {
        if !self.sessions.contains(&session) {
            return Err("a command before a greeting");
        }
        if number == 0 || self.find(session, number).is_some() {
            return Err("a command with a number that is in use");
        }
        let own = self.requests.iter().filter(|request| request.session == session).count();
        if own >= MAX_REQUESTS || self.requests.len() >= MAX_COMMANDS {
            return Err("too many commands at once");
        }
        let request = Arc::new(Request::new(session, number, wanted));
        self.requests.push(request.clone());
        Ok(request)
    }

    pub fn find(&self, session: u32, number: u32) -> Option<Arc<Request>> {
        self.requests.iter().find(|r| r.session == session && r.number == number).cloned()
    }

    /// The command has ended. A new session of the same number may have a request of the same number.
    pub fn remove(&mut self, request: &Arc<Request>) {
        self.requests.retain(|other| !Arc::ptr_eq(other, request));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use overlay_wire::credit;
    use std::vec;

    fn run() -> Wanted {
        Wanted::command(&Run { json: false, columns: 80, arguments: vec![b"cat"] })
    }

    fn request() -> Arc<Request> {
        let mut books = Books::default();
        books.open(1).unwrap();
        books.add(1, 1, run()).unwrap()
    }

    #[test]
    fn input_waits_is_read_in_order_and_ends() {
        let request = request();
        let mut to = [0; 3];
        assert_eq!(request.take_input(&mut to), None);
        request.heed(Kind::STDIN, b"hello");
        request.heed(Kind::STDIN_END, b"");
        assert_eq!((request.take_input(&mut to), &to), (Some(3), b"hel"));
        assert_eq!((request.take_input(&mut to), &to[..2]), (Some(2), &b"lo"[..]));
        assert_eq!(request.take_input(&mut to), Some(0));
        assert!(matches!(request.heed(Kind::STDIN, b"x"), Answer::Refuse(_)));
    }

    #[test]
    fn nobody_sends_more_than_the_window() {
        let request = request();
        let part = vec![0; WINDOW as usize / 2];
        assert_eq!(request.heed(Kind::STDIN, &part), Answer::Nothing);
        assert_eq!(request.heed(Kind::STDIN, &part), Answer::Nothing);
        assert!(matches!(request.heed(Kind::STDIN, b"x"), Answer::Refuse(_)));
        assert_eq!(request.take_input(&mut [0; 100]), Some(100));
        assert_eq!(request.heed(Kind::STDIN, &part[..100]), Answer::Nothing);
    }

    #[test]
    fn output_stops_without_credit_and_credit_is_not_invented() {
        let request = request();
        assert!(matches!(request.heed(Kind::CREDIT, &credit(1)), Answer::Refuse(_)));
        request.use_credit(WINDOW as usize);
        assert_eq!(request.credit(), 0);
        assert_eq!(request.heed(Kind::CREDIT, &credit(10)), Answer::Nothing);
        assert_eq!(request.credit(), 10);
        assert!(matches!(request.heed(Kind::CREDIT, &credit(u32::MAX)), Answer::Refuse(_)));
        assert!(matches!(request.heed(Kind::CREDIT, b"abc"), Answer::Refuse(_)));
    }

    #[test]
    fn news_are_told_once_and_the_last_size_counts() {
        let request = request();
        for columns in [80, 132] {
            request.heed(Kind::RESIZE, &Size { columns, rows: 50 }.encode());
        }
        request.heed(Kind::INTERRUPT, b"");
        let news = News { is_gone: false, interrupted: true, size: Some((132, 50)) };
        assert_eq!(request.take_news(), news);
        assert_eq!(request.take_news(), News::default());
        assert!(matches!(request.heed(Kind::RESIZE, b"12"), Answer::Refuse(_)));
        request.abandon();
        assert!(request.take_news().is_gone && request.take_news().is_gone);
        assert!(Wanted::program(b"none").is_none());
    }

    #[test]
    fn sessions_and_commands_are_limited_and_numbers_unique() {
        let mut books = Books::default();
        assert!(books.add(1, 1, run()).is_err(), "no session yet");
        books.open(1).unwrap();
        let first = books.add(1, 1, run()).unwrap();
        assert!(books.add(1, 1, run()).is_err() && books.add(1, 0, run()).is_err());
        books.remove(&first);
        (1..=MAX_REQUESTS as u32).for_each(|n| drop(books.add(1, n, run()).unwrap()));
        assert!(books.add(1, 99, run()).is_err());
        (2..=MAX_SESSIONS as u32).for_each(|n| drop(books.open(n).unwrap()));
        assert!(books.open(1000).is_err());
        assert_eq!(books.close(1).len(), MAX_REQUESTS);
        assert!(books.open(1000).is_ok());
    }

    #[test]
    fn a_session_that_is_opened_again_ends_what_ran_in_it() {
        let mut books = Books::default();
        books.open(5).unwrap();
        let old = books.add(5, 1, run()).unwrap();
        assert_eq!(books.open(5).unwrap().len(), 1);
        let new = books.add(5, 1, run()).unwrap();
        books.remove(&old);
        assert!(books.find(5, 1).is_some_and(|found| Arc::ptr_eq(&found, &new)));
        old.abandon();
        assert!(old.is_interrupted() && old.is_abandoned() && !new.is_interrupted());
    }
}
