// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of the catalogue, built from Debian's source with musl and linked with the micro kernel into one image
//! (`run --static`), driven by their own clients. What they answer is compared with what Debian's own binaries answer.

use std::{
    fs,
    io::{Read, Write},
    path::PathBuf,
    time::Duration,
};
use unilith_tests::{
    Machine, Ran, Unilith, client, connect, eventually, finish, free_port, is_skipped_without_micro,
    memcached::{Client, serves},
    root, slow_client, tested_machine,
};

/// Building musl, the kernel, libraries and a program from nothing.
const BUILD: Duration = Duration::from_secs(1800);
const SCRATCH: &str = "the scratch directory can be written";

/// What these tests are about.
const STATIC: &str = "--static is for the micro kernel";

/// A program of the catalogue as one image, to its end.
fn run(unilith: &Unilith, words: &[&str]) -> Ran {
    let flags = ["run", "--rm", "--static", "--machine", &tested_machine()];
    finish(&mut unilith.command(&[&flags[..], words].concat()), BUILD)
}

/// The same in the background; it serves when this returns.
fn start<'a>(unilith: &'a Unilith, words: &[&str]) -> Machine<'a> {
    let flags = ["run", "-d", "--static", "--machine", &tested_machine()];
    let ran = finish(&mut unilith.command(&[&flags[..], words].concat()), BUILD).ok();
    // The command waits only so long for a machine on a busy computer.
    eventually("the program serves", || unilith.run(&["ps"]).out.contains("ready"));
    unilith.machine(ran.out.trim())
}

/// What a server sends for these bytes, until it closes the connection.
fn answers(machine: &Machine, port: u16, asked: &[u8]) -> Vec<u8> {
    let mut stream = connect(machine.at(port));
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket has timeouts");
    // What is asked fits into the buffers on the way; it ends with a request to close.
    stream.write_all(asked).expect("the server takes what it is asked");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the server answers and closes");
    answer
}

#[track_caller]
fn are_the_same(linked: &[u8], unmodified: &[u8], least: usize) {
    assert!(linked.len() >= least, "only {} bytes: {:?}", linked.len(), String::from_utf8_lossy(linked));
    if let Some(at) = linked.iter().zip(unmodified).position(|(a, b)| a != b) {
        let near = |all: &[u8]| {
            String::from_utf8_lossy(&all[at.saturating_sub(60)..all.len().min(at + 60)]).into_owned()
        };
        panic!("other bytes from {at} on: {:?}, unmodified: {:?}", near(linked), near(unmodified));
    }
    assert_eq!(linked.len(), unmodified.len(), "one answer is the beginning of the other");
}

/// A new folder of the test, and the words that make it the program's `/data`.
fn data(unilith: &Unilith) -> (PathBuf, String) {
    let folder = unilith.path("data");
    fs::create_dir(&folder).expect(SCRATCH);
    let volume = format!("{}:/data", folder.display());
    (folder, volume)
}

fn cli(machine: &Machine, words: &[&str]) -> Ran {
    let at = machine.at(6379);
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    client("redis-cli", &[&["-h", &host, "-p", &port], words].concat())
}

/// Nothing that depends on time, chance or the allocator. Numbers in decimal are the C library's work.
const OF_REDIS: &str = "set greeting hello\nget greeting\nincrby n 41\nincr n\nincrbyfloat n 3.14159\nincrbyfloat n 1e-17\n\
    rpush l c b a\nsort l alpha\nzadd z 0.1 two 1e300 one -inf three 3.0000000000000004 four\nzrange z 0 -1 withscores\n\
    zadd z incr 0.2 two\nhset h a 1 b 2\nhgetall h\nhincrbyfloat h a 1.1\nsetbit bits 100 1\nbitcount bits\n\
    pfadd hll a b c a\npfcount hll\nobject encoding n\nobject encoding z\nlpush wrong:type\nget z\nmulti\nget n\nexec\n\
    eval \"return {redis.call('get', KEYS[1]), #ARGV, string.format('%.17g %q %5.2f', 1/3, 'x', 2.5), tostring(2^53)}\" 1 n x y\n\
    xadd s 1-1 field value\nxrange s - +\ngeoadd g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania\n\
    geodist g Palermo Catania km\ngeopos g Palermo\nsetrange big 70000 end\ngetrange big 0 -1\ndump z\ndump l\ndump n\ndbsize\n\
    nosuchcommand a b\nset a\nquit\n";

#[test]
fn redis_answers_what_debians_own_does_and_saves_what_it_has() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let (folder, volume) = data(&unilith);
    let words = ["-p", "127.0.0.1::6379", "-v", &volume, "redis"];
    let machine = start(&unilith, &words);
    cli(&machine, &["ping"]).ok().says("PONG");
    cli(&machine, &["info", "memory"]).ok().says("mem_allocator:libc");
    let linked = answers(&machine, 6379, OF_REDIS.as_bytes());
    let at = machine.at(6379);
    let (host, port) = (at.ip().to_string(), at.port().to_string());
    for pipeline in ["1", "16"] {
        let words = ["-h", &host, "-p", &port, "-c", "20", "-n", "4800", "-P", pipeline];
        let load = [&words[..], &["-t", "set,get,incr,lpush", "-q"]].concat();
        let ran = slow_client("redis-benchmark", &load, Duration::from_secs(300)).ok();
        assert_eq!(ran.out.matches("requests per second").count(), 4, "{ran}");
    }
    cli(&machine, &["get", "counter:__rand_int__"]).ok().says("9600");
    // A child writes the file.
    cli(&machine, &["bgsave"]).ok().says("Background saving started");
    let state = |key: &str| cli(&machine, &["info", "persistence"]).ok().out.contains(key);
    eventually("the child has written the file", || state("rdb_bgsave_in_progress:0"));
    assert!(state("rdb_last_bgsave_status:ok") && folder.join("dump.rdb").is_file());
    let size = cli(&machine, &["dbsize"]).ok().out;
    // The server closes the connection without an answer.
    cli(&machine, &["shutdown", "nosave"]);
    unilith.run(&["wait", &machine.id]).ok().says("0");
    drop(machine);

    // Debian's own binary reads that file.
    let machine = unilith.start(&words);
    assert_eq!(cli(&machine, &["dbsize"]).ok().out, size);
    cli(&machine, &["get", "counter:__rand_int__"]).ok().says("9600");
    cli(&machine, &["flushall"]).ok();
    are_the_same(&linked, &answers(&machine, 6379, OF_REDIS.as_bytes()), 70_000);
}

/// Regular expressions (PCRE2, compiled to machine code as it is able to), compression (zlib) and threads that read files.
const SETTINGS: &str = "daemon off; master_process off; error_log stderr; pid /run/nginx.pid; pcre_jit on;\n\
    thread_pool default threads=2; events { }\n\
    http { access_log off; types { text/plain txt; } default_type text/plain; aio threads; sendfile on;\n\
    gzip_min_length 1; gzip_types *; gzip_comp_level 6; server { listen 80; root /data;\n\
    location ~ \"^/word/(?<word>[a-z]+)/(?<number>\\d{1,3})$\" { return 200 \"$word=$number $args $http_user_agent\\n\"; }\n\
    location ~* \\.(gif|png)$ { return 404 \"no pictures\\n\"; }\n\
    location /short/ { rewrite ^/short/(.*)$ /word/$1/7 last; } location /packed/ { alias /data/; gzip on; } } }";

/// One request after the other on one connection, which the last one ends.
fn of_nginx() -> String {
    let mut asked = String::new();
    for (path, more) in [
        ("/text", ""),
        ("/text", "Range: bytes=1000-1999\r\n"),
        ("/text", "Range: bytes=-5,0-4\r\n"),
        ("/word/abc/123?x=y", "User-Agent: a test\r\n"),
        ("/word/abc/1234", ""),
        ("/short/quick", ""),
        ("/A.PNG", ""),
        ("/packed/text", "Accept-Encoding: gzip\r\n"),
        ("/nothing", ""),
        ("/../secret", ""),
    ] {
        asked += &format!("GET {path} HTTP/1.1\r\nHost: here\r\n{more}\r\n");
    }
    asked + "HEAD /text HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
}

#[test]
fn nginx_serves_what_debians_own_does() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let machine = start(&unilith, &["-p", "127.0.0.1::80", "nginx"]);
    let page = fs::read_to_string(root().join("apps/nginx/index.html")).expect("the catalogue has a page");
    let url = format!("http://{}/", machine.at(80));
    assert_eq!(client("curl", &["-sS", "--max-time", "30", &url]).ok().out, page);
    let ran = slow_client("wrk", &["-t1", "-c32", "-d5s", &url], Duration::from_secs(90)).ok();
    let ran = ran.says("Requests/sec");
    assert!(!ran.out.contains("Non-2xx") && !ran.out.contains("Socket errors"), "{ran}");
    unilith.run(&["stop", &machine.id]).ok();
    unilith.run(&["wait", &machine.id]).ok().says("0");
    drop(machine);

    let (folder, volume) = data(&unilith);
    let text: String = (0..20_000).map(|n| format!("line {n}\n")).collect();
    fs::write(folder.join("text"), &text).expect(SCRATCH);
    fs::write(folder.join("settings"), SETTINGS).expect(SCRATCH);
    let words = ["-p", "127.0.0.1::80", "-v", &volume, "nginx", "--", "-c", "/data/settings"];
    let asked = |machine: &Machine| {
        let answer = answers(machine, 80, of_nginx().as_bytes());
        // The time of the answer is in a line of its own.
        let lines = answer.split_inclusive(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"Date: "));
        lines.flatten().copied().collect::<Vec<u8>>()
    };
    let linked = asked(&start(&unilith, &words));
    let seen = String::from_utf8_lossy(&linked);
    for expected in [
        "abc=123 x=y a test\n",
        "quick=7  \n",
        "no pictures",
        "Content-Encoding: gzip",
        "multipart/byteranges",
    ] {
        assert!(seen.contains(expected), "{expected}: {seen}");
    }
    are_the_same(&linked, &asked(&unilith.start(&words)), text.len());
}

/// Values as long as a page and longer than a packet, versions of values, numbers, mistakes.
fn of_memcached() -> String {
    let (page, long) = ("p".repeat(4096), "0123456789".repeat(6000));
    format!(
        "set a 5 0 3\r\nabc\r\nget a\r\ngets a\r\ncas a 0 0 1 999999\r\nx\r\nappend a 0 0 2\r\nde\r\nprepend a 0 0 1\r\n_\r\nget a b\r\n\
         set n 0 0 2\r\n41\r\nincr n 1\r\ndecr n 100\r\nincr n 18446744073709551615\r\nincr a 1\r\nset p 0 0 4096\r\n{page}\r\n\
         set l 0 0 60000\r\n{long}\r\nget p l\r\nadd a 0 0 1\r\ny\r\nreplace none 0 0 1\r\ny\r\ntouch a 0\r\ntouch none 0\r\ngat 0 a\r\n\
         delete a\r\ndelete a\r\nget a\r\nmg l s v\r\nmn\r\nnonsense\r\nset bad -1 x 1\r\nverbosity 0\r\nflush_all\r\nget p\r\nquit\r\n"
    )
}

#[test]
fn memcached_serves_by_four_threads_what_debians_own_does() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let words = ["-p", "127.0.0.1::11211", "memcached"];
    let asked = |machine: &Machine| answers(machine, 11211, of_memcached().as_bytes());
    let machine = start(&unilith, &words);
    let linked = asked(&machine);
    serves(machine.at(11211), 8, 100);
    let stats = Client::new(machine.at(11211)).stats();
    for expected in ["STAT threads 4", "STAT curr_items 800"] {
        assert!(stats.contains(&expected.to_string()), "{stats:?}");
    }
    unilith.run(&["stop", &machine.id]).ok();
    drop(machine);
    are_the_same(&linked, &asked(&unilith.start(&words)), 124_000);
}

#[test]
fn sqlite_says_what_debians_own_does_and_keeps_it_on_a_volume() {
    sqlite(&[]);
}

mod long {
    #[test]
    #[ignore = "compiles a kernel to bitcode, and optimises it and SQLite"]
    fn sqlite_optimised_with_its_kernel_says_what_debians_own_does() {
        super::sqlite(&["--lto"]);
    }
}

/// `how`: flags of the link.
fn sqlite(how: &[&str]) {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let run = |unilith: &Unilith, words: &[&str]| run(unilith, &[how, words].concat());
    run(&unilith, &["sqlite", "--", ":memory:", "select 1"]).ok().says("1\n");
    let (folder, volume) = data(&unilith);
    let sql = "create table t(id integer primary key, text text, number real);\
               with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)\
               insert into t select i, 'row ' || i, i / 7.0 from n; create index by_text on t(text);\
               begin; delete from t where id % 2; rollback; delete from t where id % 10 = 0; vacuum;\
               select count(*), sum(id), max(text), sum(number), avg(number) from t; pragma integrity_check;\
               select printf('%.17g %e %.3f', 1.0/3, 1e-7, 2.5), round(2.675, 2), 1e308 * 10, upper('abc');\
               select json_group_array(number) from (select number from t order by text desc limit 5);\
               select date(2460000.5), strftime('%Y-%m-%d %H:%M:%f', 1.5e9, 'unixepoch'), quote(x'00ff'), 'a' like 'A';\
               create virtual table words using fts5(body); insert into words select text from t;\
               select count(*) from words where words match 'row AND 1999*'; explain query plan select * from t where text = 'x';";
    let own = |file: &str| {
        unilith.program(&["-v", &volume, "sqlite", "--", &format!("/data/{file}"), sql]).ok().out
    };
    let ran = run(&unilith, &["-v", &volume, "sqlite", "--", "/data/linked.db", sql]).ok();
    are_the_same(ran.out.as_bytes(), own("own.db").as_bytes(), 280);
    let database = folder.join("linked.db").display().to_string();
    client("sqlite3", &[&database, "pragma integrity_check; select count(*) from t;"]).ok().says("ok\n18000");
    run(&unilith, &["sqlite", "--", ":memory:", "select missing;"]).code(1).complains("no such column");
}

/// Applets in pipes, in subshells, in the background and by scripts; most are this program, started again.
const OF_BUSYBOX: &str = "cd /tmp; seq 1 2000 | sort -rn | head -n 3 | tr '\\n' ' '; echo; \
    for n in 1 2 3; do (sleep 0; echo $((n * n)) > out.$n; exit $n) & done; wait; cat out.1 out.2 out.3; \
    mkdir -p tree/a/b; seq 1 5000 > tree/a/numbers; cp tree/a/numbers tree/a/b/copy; ln -s copy tree/a/b/link; \
    find tree -type f | sort | xargs md5sum; tar -cf - tree | gzip -c | gunzip | tar -tf - | sort; \
    awk '{ s += $1 } END { printf \"%d %.3f\\n\", s, s / NR }' tree/a/numbers; sed -n 's/^\\(4\\)2$/<\\1>/p' tree/a/numbers; \
    grep -c 7 tree/a/numbers; grep -E '^(12|34)+$' tree/a/numbers | tr '\\n' ' '; dd if=/dev/zero bs=1k count=64 2>/dev/null | sha256sum; \
    printf '#!/bin/busybox sh\\necho script $1 $#\\nexit 9\\n' > script; chmod 755 script; ./script one two; echo \"ended with $?\"; \
    printf 'echo no interpreter\\n' > plain; chmod 755 plain; ./plain; printf '6\\n7\\n*\\np\\n' | dc; expr 6 '*' 7; \
    env -i A=b sh -c 'echo $A; exec env'; trap 'echo caught' TERM; kill -TERM $$; trap - TERM; echo a b c | while read -r x y; do echo $y $x; done; \
    sleep 100 & kill $!; wait $!; echo \"sleep ended with $?\"; false || echo false; diff out.1 out.2; cmp out.1 out.1 && echo same; \
    echo $(basename /a/b/c.txt .txt) $(dirname /a/b); nosuchcommand; echo \"ended with $?\"; exit 5";

#[test]
fn busybox_runs_what_debians_own_does() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let words = ["busybox", "--", "sh", "-c", OF_BUSYBOX];
    let linked = run(&unilith, &words).code(5);
    let own = unilith.program(&words).code(5);
    are_the_same(linked.out.as_bytes(), own.out.as_bytes(), 500);
    assert!(linked.out.contains("script one 2\nended with 9\nno interpreter\n"), "{linked}");
    // What the shell complains of is the same as well, beside what the command and the kernel say.
    linked.complains("nosuchcommand: not found");
}

/// How many bytes iperf3 sends. It ends when they are sent, with megabytes of each connection still on their way.
const LOAD: u64 = 64 << 20;

#[test]
fn iperf3_serves_the_hosts_own_client() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let version = run(&unilith, &["--network", "none", "iperf3", "--", "--version"]);
    if version.err.contains("cannot fetch the source") && version.err.contains("404") {
        eprintln!("skipped: the package archive does not have iperf3's source: {}", version.err.trim());
        return;
    }
    version.ok().says("iperf 3");
    let port = free_port();
    let (tcp, udp) = (format!("127.0.0.1:{port}:5201"), format!("127.0.0.1:{port}:5201/udp"));
    let machine = start(&unilith, &["-p", &tcp, "-p", &udp, "iperf3"]);
    let port = port.to_string();
    let load = LOAD.to_string();
    let measured = |words: &[&str]| {
        let all = [&["-c", "127.0.0.1", "-p", &port, "-J"], words].concat();
        let mut said = serde_json::Value::Null;
        // It refuses a client while it is about the one before, and then opens its socket anew: who waits there is reset.
        eventually("the server takes the client", || {
            let ran = slow_client("iperf3", &all, Duration::from_secs(300));
            said = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {ran}"));
            let passing =
                ["busy", "to server: Connection reset by peer", "control message: Connection reset by peer"];
            !said["error"].as_str().is_some_and(|error| passing.iter().any(|why| error.contains(why)))
        });
        assert!(said["error"].is_null(), "{words:?}: {said}");
        said
    };
    for words in [&["-n", &load][..], &["-n", &load, "-R"], &["-n", &load, "-P", "4"]] {
        let end = &measured(words)["end"];
        let received = end["sum_received"]["bytes"].as_u64().unwrap_or_default();
        assert!(received >= LOAD / 2, "{words:?}: {end}");
    }
    let end = &measured(&["-u", "-b", "4M", "-n", "1M", "-l", "1200"])["end"];
    let (packets, lost) = (end["sum"]["packets"].as_u64(), end["sum"]["lost_packets"].as_u64());
    // A datagram may be lost on the way, not most of them.
    assert!(packets > Some(500) && lost < packets.map(|p| p / 2), "{end}");
    unilith.run(&["stop", &machine.id]).ok();
}

/// Writes and verifies: a process, two threads, and a mapping.
const JOBS: &str = "[global]\ndirectory=/data\nsize=2M\nbs=4k\nverify=crc32c\nrandseed=7\n\
    [process]\nrw=randwrite\nioengine=psync\n\
    [threads]\nthread=1\nnumjobs=2\nrw=randrw\nioengine=sync\n\
    [mapped]\nthread=1\nrw=write\nioengine=mmap\n";

#[test]
fn fio_writes_what_debians_own_verifies() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let (folder, volume) = data(&unilith);
    fs::write(folder.join("jobs.fio"), JOBS).expect(SCRATCH);
    let words = ["-v", &volume, "fio", "--", "--output-format=json", "/data/jobs.fio"];
    let ran = run(&unilith, &words).ok();
    let json = ran.out.find('{').map_or("", |at| &ran.out[at..]);
    let said: serde_json::Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {ran}"));
    let jobs = said["jobs"].as_array().expect("fio lists its jobs");
    assert_eq!(jobs.len(), 4, "{said}");
    for job in jobs {
        let (written, read) = (job["write"]["io_bytes"].as_u64(), job["read"]["io_bytes"].as_u64());
        assert!(job["error"] == 0 && written > Some(0) && read > Some(0), "{job}");
    }
    let verify = ["-v", &volume, "fio", "--", "--verify_only", "/data/jobs.fio"];
    unilith.program(&verify).ok();
    // One byte that is another one is found, by the linked one as well.
    let file = folder.join("mapped.0.0");
    let mut bytes = fs::read(&file).expect("fio has written its file");
    bytes[70_000] ^= 1;
    fs::write(&file, bytes).expect(SCRATCH);
    let ran = run(&unilith, &verify);
    assert!(ran.code != Some(0) && ran.err.contains("verify"), "{ran}");
}

/// Modules in C that are linked in, threads, sockets, a child, and this program as another process; nothing of time or chance.
const OF_PYTHON: &str = "import asyncio, array, base64, collections, csv, datetime, decimal, fractions, hashlib, heapq, io, itertools, json, math
import os, pickle, queue, random, re, socket, statistics, struct, subprocess, sys, threading, unicodedata, zlib
import multiprocessing, xml.etree.ElementTree as ET, zoneinfo
print(sys.version_info[:3], json.dumps(json.loads('{\"a\": [1, 2.5, null, \"\\\\u00e9\"]}'), sort_keys=True))
print(re.sub(r'(?P<word>[a-z]+)-(\\d{2,})', r'\\2:\\g<word>', 'abc-123 de-4 f-56'), unicodedata.name('\\u00e9'))
text = b''.join(b'line %d\\n' % n for n in range(5000))
print(len(zlib.compress(text, 6)), zlib.crc32(text), zlib.decompress(zlib.compress(text)) == text)
print([hashlib.new(name, text).hexdigest()[:16] for name in ('md5', 'sha1', 'sha256', 'sha512', 'sha3_256', 'blake2b')])
random.seed(7)
print(random.random(), [random.randrange(1000) for _ in range(5)], math.gamma(5.5), repr(1e22), 0.1 + 0.2, '%.17g' % (1 / 3))
print(decimal.Decimal(2).sqrt(decimal.Context(40)), fractions.Fraction(3, 7) ** 3, statistics.stdev([1, 2, 4, 8]), 3 ** 200)
print(datetime.datetime(2026, 11, 27, tzinfo=datetime.timezone.utc).isoformat(), datetime.date(2024, 2, 29).strftime('%A %j %U'))
print(struct.pack('<hIq', -2, 3, 4).hex(), array.array('d', [1.5]).tobytes().hex(), base64.b85encode(text[:9]))
print(pickle.loads(pickle.dumps({'a': (1, 2), 'b': {3}})), heapq.nsmallest(3, [5, 1, 4, 2]), collections.Counter('abracadabra').most_common(2))
print(list(csv.reader(io.StringIO('a,\"b,c\",d'))), ET.fromstring('<a><b c=\"d\">text</b></a>')[0].attrib)
total, lock, done = [0], threading.Lock(), queue.Queue()
def work(n):
    for _ in range(1000):
        with lock: total[0] += n
    done.put(n)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(total, sorted(done.get() for _ in threads))
server = socket.create_server(('127.0.0.1', 0))
def echo():
    peer, _ = server.accept()
    with peer: peer.sendall(peer.recv(100).upper())
threading.Thread(target=echo).start()
with socket.create_connection(server.getsockname()) as s:
    s.sendall(b'across'); print(s.recv(100))
async def later(n):
    await asyncio.sleep(0.001 * n); return n * n
async def main(): return await asyncio.gather(*(later(n) for n in range(5)))
print(asyncio.run(main()))
end, other = os.pipe(); sys.stdout.flush()
pid = os.fork()
if pid == 0:
    os.write(other, b'from a child'); os._exit(3)
print(os.waitpid(pid, 0)[1] >> 8, os.read(end, 100))
ran = subprocess.run([sys.executable, '-c', 'import sys; print(sys.argv[1] * 2); sys.exit(4)', 'ab'], capture_output=True, text=True)
print(ran.returncode, ran.stdout, ran.stderr)
with multiprocessing.get_context('fork').Pool(2) as pool: print(pool.map(math.factorial, range(8)))
try: open('/nothing')
except OSError as error: print(error)
sys.exit(6)
";

#[test]
fn python_computes_what_debians_own_does_and_serves_files() {
    if is_skipped_without_micro(STATIC) {
        return;
    }
    let unilith = Unilith::new();
    let words = ["python", "--", "-c", OF_PYTHON];
    let linked = run(&unilith, &words).code(6);
    let own = unilith.program(&words).code(6);
    are_the_same(linked.out.as_bytes(), own.out.as_bytes(), 800);
    run(&unilith, &["python", "--", "-c", "import ssl"]).code(1).complains("No module named '_ssl'");
    let (folder, volume) = data(&unilith);
    let text: String = (0..50_000).map(|n| format!("line {n}\n")).collect();
    fs::write(folder.join("text"), &text).expect(SCRATCH);
    let words =
        ["run", "-d", "--static", "--machine", &tested_machine(), "-p", "127.0.0.1::8000", "-v", &volume];
    let serve = ["python", "--", "-u", "-m", "http.server", "8000", "--directory", "/data"];
    let ran = finish(&mut unilith.command(&[&words[..], &serve].concat()), BUILD).ok();
    let machine = unilith.machine(ran.out.trim());
    eventually("the server says so", || machine.log().contains("Serving HTTP"));
    let at = machine.at(8000);
    let get =
        |path: &str| client("curl", &["-sS", "--max-time", "60", &format!("http://{at}/{path}")]).ok().out;
    assert!(get("text") == text, "another text than the file's");
    assert!(get("").contains("<a href=\"text\">") && get("nothing").contains("Error code: 404"));
    unilith.run(&["stop", &machine.id]).ok();
}
