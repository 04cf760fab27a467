// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's memcached with four threads, driven over its text protocol.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
};
use unilith_tests::{Unilith, connect};

/// One connection and the two commands that matter.
struct Client(BufReader<std::net::TcpStream>);

impl Client {
    fn new(at: SocketAddr) -> Client {
        Client(BufReader::new(connect(at)))
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("memcached answers");
        line.trim_end().to_string()
    }

    fn set(&mut self, key: &str, value: &str) {
        write!(self.0.get_mut(), "set {key} 0 0 {}\r\n{value}\r\n", value.len()).expect("memcached listens");
        assert_eq!(self.line(), "STORED");
    }

    fn get(&mut self, key: &str) -> String {
        write!(self.0.get_mut(), "get {key}\r\n").expect("memcached listens");
        assert!(self.line().starts_with(&format!("VALUE {key} ")));
        let value = self.line();
        assert_eq!(self.line(), "END");
        value
    }
}

#[test]
fn four_threads_serve_twenty_clients_at_once() {
    let unilith = Unilith::new();
    let machine = unilith.start(&["-p", "127.0.0.1::11211", "memcached"]);
    let at = machine.at(11211);
    std::thread::scope(|scope| {
        for client in 0..20 {
            scope.spawn(move || {
                let mut connection = Client::new(at);
                for n in 0..200 {
                    connection.set(&format!("k{client}-{n}"), &format!("v{n}"));
                    assert_eq!(connection.get(&format!("k{client}-{n}")), format!("v{n}"));
                }
            });
        }
    });
    let mut connection = Client::new(at);
    write!(connection.0.get_mut(), "stats\r\n").unwrap();
    let stats: Vec<String> =
        std::iter::repeat_with(|| connection.line()).take_while(|l| l != "END").collect();
    assert!(stats.contains(&"STAT threads 4".to_string()), "{stats:?}");
    assert!(stats.contains(&"STAT cmd_set 4000".to_string()), "{stats:?}");
}
