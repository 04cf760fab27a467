// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's nginx, driven by curl, wrk and connections that are opened and closed.

use std::{
    io::{Read, Write},
    time::{Duration, Instant},
};
use unilith_tests::{Unilith, client, connect, root, slow_client};

#[test]
fn the_page_is_served_as_it_is_in_the_catalogue() {
    let unilith = Unilith::new();
    let machine = unilith.start(&["-p", "127.0.0.1::80", "nginx"]);
    let page = std::fs::read_to_string(root().join("apps/nginx/index.html")).unwrap();
    let ran = client("curl", &["-sS", "--max-time", "30", &format!("http://{}/", machine.at(80))]).ok();
    assert_eq!(ran.out, page);
    client("curl", &["-sS", "-I", "--max-time", "30", &format!("http://{}/nothing", machine.published(80))])
        .ok()
        .says("404");
}

#[test]
fn wrk_gets_answers_for_thirty_seconds() {
    let unilith = Unilith::new();
    let machine = unilith.start(&["-p", "127.0.0.1::80", "nginx"]);
    let url = format!("http://{}/", machine.at(80));
    let ran = slow_client("wrk", &["-t1", "-c32", "-d30s", &url], Duration::from_secs(90))
        .ok()
        .says("Requests/sec");
    assert!(!ran.out.contains("Non-2xx") && !ran.out.contains("Socket errors"), "{ran}");
}

#[test]
fn two_thousand_connections_do_not_slow_it_down() {
    let unilith = Unilith::new();
    let machine = unilith.start(&["-p", "127.0.0.1::80", "nginx"]);
    let at = machine.at(80);
    let hundred = || {
        let begin = Instant::now();
        for _ in 0..100 {
            let mut stream = connect(at);
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        begin.elapsed()
    };
    let times: Vec<Duration> = (0..20).map(|_| hundred()).collect();
    let median = |times: &[Duration]| {
        let mut sorted = times.to_vec();
        sorted.sort();
        sorted[sorted.len() / 2]
    };
    let (first, last) = (median(&times[..5]), median(&times[15..]));
    assert!(last < 3 * first, "the last connections took {last:?} a hundred, the first {first:?}: {times:?}");
}
