// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Redis in supervisor mode, for as long as `UNILITH_SOAK_MINUTES` says: clients that know what they wrote, a snapshot every
//! ten seconds (fork and copy-on-write), and a second program that takes and returns memory. Nothing may be lost.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::Stdio,
    thread,
    time::{Duration, Instant},
};
use unilith_tests::{Unilith, connect};

/// Connections, each with keys of its own.
const CLIENTS: u64 = 4;
/// Keys of a client; 1.5 KiB each on average.
const KEYS: u64 = 5000;
/// Requests before their answers are read.
const BATCH: usize = 16;
const BETWEEN_SNAPSHOTS: Duration = Duration::from_secs(10);
/// What the second program takes at once.
const ALLOCATES: &str = "while :; do dd if=/dev/zero of=/dev/null bs=24M count=2 2>/dev/null; done";

#[test]
#[ignore = "takes UNILITH_SOAK_MINUTES (30)"]
fn redis_that_bypasses_loses_nothing_while_it_saves_and_another_program_allocates() {
    let minutes = std::env::var("UNILITH_SOAK_MINUTES").map_or(30, |text| text.parse().expect("minutes"));
    let levels = std::env::var("UNILITH_SOAK_UKL").unwrap_or_else(|_| "cpl0,byp".into());
    let unilith = Unilith::new();
    let words = ["--kernel", "linux", "--ukl", &levels, "-m", "512M", "-p", "127.0.0.1::6379", "redis"];
    let machine = unilith.start(&words);
    let at = machine.at(6379);
    let mut second = unilith.command(&["exec", machine.id.as_str(), "sh", "-c", ALLOCATES]);
    let mut second =
        second.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command can be started");
    let end = Instant::now() + Duration::from_secs(minutes * 60);
    let clients: Vec<_> = (0..CLIENTS).map(|number| thread::spawn(move || load(number, at, end))).collect();
    let mut redis = Redis::new(at);
    let mut snapshots = 0;
    while Instant::now() < end {
        thread::sleep(BETWEEN_SNAPSHOTS.min(end.saturating_duration_since(Instant::now())));
        let state = redis.text(&["info", "persistence"]);
        assert!(state.contains("rdb_last_bgsave_status:ok"), "after {snapshots} snapshots: {state}");
        // One that is not finished yet is waited for.
        if state.contains("rdb_bgsave_in_progress:0") {
            assert!(redis.text(&["bgsave"]).contains("started"));
            snapshots += 1;
        }
    }
    let requests: u64 =
        clients.into_iter().map(|client| client.join().expect("a client that is content")).sum();
    assert!(second.try_wait().expect("a child").is_none(), "the second program ended");
    let keys = redis.text(&["dbsize"]);
    eprintln!("{minutes} minutes with {levels}: {requests} requests, {snapshots} snapshots, {keys} keys");
    // Slow machines finish few, but what never finishes one proves nothing.
    assert!(snapshots > minutes, "{snapshots} snapshots in {minutes} minutes");
    second.kill().expect("it runs");
    second.wait().expect("it was killed");
    unilith.run(&["stop", &machine.id]).ok();
    unilith.run(&["wait", &machine.id]).ok().says("0");
    assert!(!machine.log().contains("BUG:") && !machine.log().contains("WARNING:"), "{}", machine.log());
}

/// Writes and reads back, and knows what should be there; at the end looks at everything once more. The number of requests.
fn load(client: u64, at: SocketAddr, end: Instant) -> u64 {
    let mut redis = Redis::new(at);
    let mut state = client + 1;
    let mut random = move || {
        // Marsaglia's xorshift64: the same numbers each time.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut known: HashMap<u64, u64> = HashMap::new();
    let mut requests = 0;
    while Instant::now() < end {
        let batch: Vec<(u64, Option<u64>)> =
            (0..BATCH).map(|_| (random() % KEYS, (random() % 2 == 0).then(&mut random))).collect();
        for (key, new) in &batch {
            let name = name(client, *key);
            match new {
                Some(seed) => redis.send(&[b"set", name.as_bytes(), &value(*seed)]),
                None => redis.send(&[b"get", name.as_bytes()]),
            }
        }
        for (key, new) in batch {
            let answer = redis.answer();
            match new {
                Some(seed) => {
                    assert_eq!(answer.as_deref(), Some(b"OK".as_slice()));
                    known.insert(key, seed);
                }
                None => assert!(answer == known.get(&key).map(|s| value(*s)), "key {key} of client {client}"),
            }
            requests += 1;
        }
    }
    for (key, seed) in &known {
        redis.send(&[b"get", name(client, *key).as_bytes()]);
        assert!(redis.answer() == Some(value(*seed)), "key {key} of client {client} in the end");
    }
    requests
}

fn name(client: u64, key: u64) -> String {
    format!("client:{client}:{key}")
}

/// Bytes that are told by a number, up to 3 KiB.
fn value(seed: u64) -> Vec<u8> {
    let length = usize::try_from(seed % 3072).unwrap_or_default();
    seed.to_le_bytes().iter().copied().cycle().take(length).collect()
}

/// A client of the protocol RESP2.
struct Redis(BufReader<TcpStream>);

impl Redis {
    fn new(at: SocketAddr) -> Redis {
        Redis(BufReader::new(connect(at)))
    }

    fn send(&mut self, words: &[&[u8]]) {
        let mut out = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            out.extend(format!("${}\r\n", word.len()).bytes());
            out.extend(*word);
            out.extend(b"\r\n");
        }
        self.0.get_mut().write_all(&out).expect("the server reads");
    }

    /// A string, a status or a number; `None` for what is not there.
    fn answer(&mut self) -> Option<Vec<u8>> {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the server answers");
        let (kind, text) = line.trim_end().split_at_checked(1).expect("a line of an answer");
        match kind {
            "+" | ":" => Some(text.as_bytes().to_vec()),
            "$" => {
                let length = usize::try_from(text.parse::<i64>().expect("a length")).ok()?;
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes).expect("the rest of the answer");
                bytes.truncate(length);
                Some(bytes)
            }
            _ => panic!("the server says {line}"),
        }
    }

    fn text(&mut self, words: &[&str]) -> String {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.send(&words);
        String::from_utf8_lossy(&self.answer().unwrap_or_default()).into_owned()
    }
}
