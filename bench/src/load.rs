// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client that counts how long each answer takes: connections that each send the next request when the answer to the
//! last one is complete (a closed loop), all by one thread on the clients' processor.

use crate::{Result, side::CLIENT_CPU};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Longest time that a load may take, and one answer.
const PATIENCE: Duration = Duration::from_secs(120);
const ONE_ANSWER: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };

/// What is asked and when an answer is complete.
pub struct Load {
    pub connections: usize,
    /// In all.
    pub requests: usize,
    /// The request with this number.
    pub request: fn(usize) -> Vec<u8>,
    pub is_complete: fn(&[u8]) -> bool,
}

/// Milliseconds of each request, in order of size.
pub struct Latencies(Vec<f64>);

impl Latencies {
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    pub fn median(&self) -> f64 {
        self.percentile(50)
    }

    pub fn p99(&self) -> f64 {
        self.percentile(99)
    }

    /// The least time within which so many of 100 requests were answered.
    fn percentile(&self, of_hundred: usize) -> f64 {
        self.0[(self.0.len() * of_hundred).div_ceil(100) - 1]
    }
}

struct Connection {
    stream: TcpStream,
    sent: Instant,
    answer: Vec<u8>,
}

impl Load {
    /// Puts the load on the server at `host:port`.
    pub fn run(&self, address: &str) -> Result<Latencies> {
        // Processors are a thread's own.
        let ran = std::thread::scope(|scope| scope.spawn(|| self.run_here(address)).join());
        ran.map_err(|_| "the client's thread panicked".to_string())?
    }

    fn run_here(&self, address: &str) -> Result<Latencies> {
        let failed = |e: std::io::Error| format!("{address}: {e}");
        let mut processors = CpuSet::new();
        processors.set(CLIENT_CPU.parse().unwrap_or(0));
        sched_setaffinity(None, &processors).map_err(|e| failed(e.into()))?;
        let (begin, mut next, mut times) = (Instant::now(), 0, Vec::with_capacity(self.requests));
        let mut connections = Vec::new();
        for _ in 0..self.connections.min(self.requests) {
            let stream = TcpStream::connect(address).map_err(failed)?;
            stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(failed)?;
            let mut connection = Connection { stream, sent: begin, answer: Vec::new() };
            connection.send(&(self.request)(next)).map_err(failed)?;
            next += 1;
            connections.push(connection);
        }
        while times.len() < self.requests {
            let stalls =
                || format!("{address}: {} of {} requests answered: it stalls", times.len(), self.requests);
            let mut ready: Vec<_> =
                connections.iter().map(|c| PollFd::new(&c.stream, PollFlags::IN)).collect();
            if poll(&mut ready, Some(&ONE_ANSWER)).map_err(|e| failed(e.into()))? == 0
                || begin.elapsed() > PATIENCE
            {
                return Err(stalls());
            }
            let ready: Vec<bool> = ready.iter().map(|r| !r.revents().is_empty()).collect();
            for connection in connections.iter_mut().zip(ready).filter_map(|(c, ready)| ready.then_some(c)) {
                if !connection.receive(self.is_complete).map_err(failed)? {
                    continue;
                }
                times.push(connection.sent.elapsed().as_secs_f64() * 1e3);
                if next < self.requests {
                    connection.send(&(self.request)(next)).map_err(failed)?;
                    next += 1;
                }
            }
        }
        times.sort_by(f64::total_cmp);
        Ok(Latencies(times))
    }
}

impl Connection {
    /// Requests are small: the socket takes them whole.
    fn send(&mut self, request: &[u8]) -> std::io::Result<()> {
        self.answer.clear();
        self.sent = Instant::now();
        self.stream.write_all(request)
    }

    /// Whether the answer is complete.
    fn receive(&mut self, is_complete: fn(&[u8]) -> bool) -> std::io::Result<bool> {
        let mut part = [0; 4096];
        match self.stream.read(&mut part) {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => {
                self.answer.extend(&part[..length]);
                Ok(is_complete(&self.answer))
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn of_a_hundred_times_the_ninety_ninth_is_p99() {
        let latencies = Latencies((1..=100).map(f64::from).collect());
        assert_eq!((latencies.p99(), latencies.median(), latencies.mean()), (99.0, 50.0, 50.5));
        assert_eq!(Latencies(vec![7.0]).p99(), 7.0);
    }

    #[test]
    fn every_request_of_every_connection_is_answered_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    let mut part = [0; 1];
                    while stream.read_exact(&mut part).is_ok() && stream.write_all(&part).is_ok() {}
                });
            }
        });
        let load =
            Load { connections: 3, requests: 50, request: |_| b"ab".to_vec(), is_complete: |a| a == b"ab" };
        assert_eq!(load.run(&address).unwrap().0.len(), 50);
    }
}
