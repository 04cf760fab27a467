// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client of memcached's text protocol.

use crate::connect;
use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
};

/// One connection and the two commands that matter.
pub struct Client(BufReader<std::net::TcpStream>);

impl Client {
    pub fn new(at: SocketAddr) -> Client {
        Client(BufReader::new(connect(at)))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("memcached answers");
        line.trim_end().to_string()
    }

    pub fn set(&mut self, key: &str, value: &str) {
        write!(self.0.get_mut(), "set {key} 0 0 {}\r\n{value}\r\n", value.len()).expect("memcached listens");
        assert_eq!(self.line(), "STORED");
    }

    pub fn get(&mut self, key: &str) -> String {
        write!(self.0.get_mut(), "get {key}\r\n").expect("memcached listens");
        assert!(self.line().starts_with(&format!("VALUE {key} ")));
        let value = self.line();
        assert_eq!(self.line(), "END");
        value
    }

    /// Lines of `stats`.
    pub fn stats(&mut self) -> Vec<String> {
        write!(self.0.get_mut(), "stats\r\n").expect("memcached listens");
        std::iter::repeat_with(|| self.line()).take_while(|l| l != "END").collect()
    }
}

/// So many clients at once, each of which writes and reads this many keys of its own.
pub fn serves(at: SocketAddr, clients: usize, keys: usize) {
    std::thread::scope(|scope| {
        for client in 0..clients {
            scope.spawn(move || {
                let mut connection = Client::new(at);
                for n in 0..keys {
                    connection.set(&format!("k{client}-{n}"), &format!("v{n}"));
                    assert_eq!(connection.get(&format!("k{client}-{n}")), format!("v{n}"));
                }
            });
        }
    });
}
