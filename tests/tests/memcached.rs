// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's memcached with four threads, driven over its text protocol.

use unilith_tests::{
    Unilith,
    memcached::{Client, serves},
};

#[test]
fn four_threads_serve_twenty_clients_at_once() {
    let unilith = Unilith::new();
    let machine = unilith.start(&["-p", "127.0.0.1::11211", "memcached"]);
    let at = machine.at(11211);
    serves(at, 20, 200);
    let mut connection = Client::new(at);
    let stats = connection.stats();
    assert!(stats.contains(&"STAT threads 4".to_string()), "{stats:?}");
    assert!(stats.contains(&"STAT cmd_set 4000".to_string()), "{stats:?}");
}
