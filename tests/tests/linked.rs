// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that are built from Debian's source by recipes and linked into Linux, run by the command as a user does.
//!
//! What boots them is ignored by default: it builds Linux and the programs, which takes minutes the first time.

use std::{
    ffi::OsStr,
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    time::Duration,
};
use unilith_tests::{
    BUILD_KERNEL, Machine, Ran, Unilith, client, connect, eventually, finish,
    memcached::{Client, serves},
    root, slow_client,
};

/// Building Linux and a program from nothing.
const BUILD: Duration = Duration::from_secs(3600);
/// How linked programs run here, and the same kernel with Debian's own binaries.
const LINKED: [&str; 4] = ["--kernel", "linux", "--ukl", "base,byp"];
const UNMODIFIED: [&str; 4] = ["--kernel", "linux", "--ukl", "cpl0"];

/// `run` to the end of the program, which may have to be built first.
fn run(unilith: &Unilith, level: [&str; 4], words: &[&str]) -> Ran {
    let verb = ["run", "--rm", "--machine", "microvm"];
    finish(&mut unilith.command(&[&verb[..], &level, words].concat()), BUILD)
}

/// A machine that runs a program of the catalogue in the background; it serves when this returns.
fn start<'a>(unilith: &'a Unilith, level: [&str; 4], words: &[&str]) -> Machine<'a> {
    // Built before the machine has to be there in time.
    let is_option = |at: usize| words[at].starts_with('-') || (at > 0 && words[at - 1].starts_with('-'));
    let program =
        (0..words.len()).find(|at| !is_option(*at)).map(|at| words[at]).expect("a program is named");
    let version = if program == "nginx" { "-v" } else { "--version" };
    run(unilith, level, &[program, "--", version]).ok();
    started(unilith, level, words)
}

/// As [`start`], with a program that is there.
fn started<'a>(unilith: &'a Unilith, level: [&str; 4], words: &[&str]) -> Machine<'a> {
    let verb = ["run", "-d", "--machine", "microvm"];
    let ran = finish(&mut unilith.command(&[&verb[..], &level, words].concat()), BUILD_KERNEL).ok();
    // The command waits only so long for a machine on a busy computer.
    eventually("the program serves", || unilith.run(&["ps"]).out.contains("ready"));
    unilith.machine(ran.out.trim())
}

fn cli(machine: &Machine, words: &[&str]) -> Ran {
    let port = machine.published(6379).port().to_string();
    client("redis-cli", &[&["-h", "127.0.0.1", "-p", &port], words].concat())
}

/// What is asked of each Redis, and what the answers have to be in all of them.
const QUESTIONS: &str = "set greeting hello\nget greeting\nincrby n 41\nincr n\nrpush l c b a\nsort l alpha\n\
    zadd z 2 two 1 one 3 three\nzrangebyscore z (1 3 withscores\nhset h a 1 b 2\nhgetall h\nsetbit bits 100 1\nbitcount bits\n\
    pfadd hll a b c a\npfcount hll\nobject encoding n\nobject encoding z\nlpush wrong:type\nget z\nmulti\nget n\nexec\n\
    eval \"return {redis.call('get', KEYS[1]), #ARGV, string.format('%.3f', 1/3)}\" 1 n x y\n\
    xadd s 1-1 field value\nxrange s - +\ngeoadd g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania\n\
    geodist g Palermo Catania km\nsetrange big 1000000 end\nstrlen big\ndbsize\n";

const SCRATCH: &str = "the scratch directory can be written";

/// The text of a file of the repository.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).expect("the repository is whole")
}

/// The recipe of a settings file.
fn recipe(path: &str) -> String {
    let text = read(path);
    let (_, recipe) = text.split_once("[linked]").expect("it has a recipe");
    // Up to the next table, that of `--static`.
    recipe.split_once("\n[").map_or(recipe, |(recipe, _)| recipe).to_string()
}

/// Makes the scratch directory a project.
fn project(unilith: &Unilith, settings: &str) {
    fs::write(unilith.path("unilith.toml"), settings).expect(SCRATCH);
}

/// Redis' answers to [`QUESTIONS`].
fn answers(unilith: &Unilith, machine: &Machine) -> String {
    fs::write(unilith.path("questions"), QUESTIONS).expect(SCRATCH);
    let port = machine.published(6379).port();
    let line = format!("timeout 60 redis-cli -h 127.0.0.1 -p {port} < questions");
    finish(&mut unilith.shell(&line), Duration::from_secs(90)).ok().out
}

#[test]
#[ignore = "builds Linux and Redis"]
fn redis_answers_forks_and_ends_as_debians_own_does() {
    let unilith = Unilith::new();
    let (_, volume) = data(&unilith);
    let words = ["-p", "127.0.0.1::6379", "-v", &volume, "redis"];
    let ends = |machine: Machine| {
        // The server closes the connection without an answer.
        cli(&machine, &["shutdown", "nosave"]);
        unilith.run(&["wait", &machine.id]).ok().says("0");
    };

    let machine = start(&unilith, LINKED, &words);
    cli(&machine, &["ping"]).ok().says("PONG");
    let linked = answers(&unilith, &machine);
    let port = machine.published(6379).port().to_string();
    for pipeline in ["1", "16"] {
        let words = ["-h", "127.0.0.1", "-p", &port, "-c", "20", "-n", "4800", "-P", pipeline];
        let load = [&words[..], &["-t", "set,get,incr,lpush", "-q"]].concat();
        let ran = slow_client("redis-benchmark", &load, Duration::from_secs(300)).ok();
        assert_eq!(ran.out.matches("requests per second").count(), 4, "{ran}");
        // A child with private data writes the file, while the next round changes what it writes.
        cli(&machine, &["bgsave"]).ok().says("Background saving started");
    }
    let state = |key: &str| cli(&machine, &["info", "persistence"]).ok().out.contains(key);
    eventually("the child has written the file", || state("rdb_bgsave_in_progress:0"));
    assert!(state("rdb_last_bgsave_status:ok"));
    cli(&machine, &["get", "counter:__rand_int__"]).ok().says("9600");
    let size = cli(&machine, &["dbsize"]).ok().out;
    ends(machine);

    // Debian's own binary finds what that child wrote, and answers the same.
    let machine = start(&unilith, UNMODIFIED, &words);
    assert_eq!(cli(&machine, &["dbsize"]).ok().out, size);
    cli(&machine, &["get", "counter:__rand_int__"]).ok().says("9600");
    cli(&machine, &["flushall"]).ok();
    assert_eq!(answers(&unilith, &machine), linked);
    ends(machine);
}

/// The Redis of `apps/redis/direct` as a project, in a machine with strace.
fn direct(unilith: &Unilith) {
    let mut settings = String::from("with = [\"debian:strace\", \"debian:busybox-static\"]\n");
    for line in read("apps/redis/direct/unilith.toml").lines() {
        // All of the packages: strace needs its libraries.
        if !line.starts_with("only ") {
            settings += &format!("{line}\n");
        }
    }
    project(unilith, &settings);
    fs::write(unilith.path("tcp.patch"), read("apps/redis/direct/tcp.patch")).expect(SCRATCH);
}

#[test]
#[ignore = "builds Linux and Redis, and fetches strace"]
fn redis_with_ten_lines_changed_serves_by_the_kernels_tcp_and_not_by_system_calls() {
    let unilith = Unilith::new();
    direct(&unilith);
    let machine = start(&unilith, LINKED, &["-m", "256M", "-p", "127.0.0.1::6379", "."]);
    let port = machine.published(6379).port().to_string();
    let named = answers(&unilith, &machine);
    cli(&machine, &["flushall"]).ok();

    cli(&machine, &["mset", "a", "1", "b", "two", "c", ""]).ok().says("OK");
    assert_eq!(cli(&machine, &["mget", "a", "b", "c", "none"]).ok().out, "1\ntwo\n\n\n");
    let large: Vec<u8> = (0..1_u32 << 20).map(|n| (n ^ (n >> 8)) as u8).collect();
    fs::write(unilith.path("large"), large).unwrap();
    let line = format!(
        "redis-cli -p {port} -x set large < large && redis-cli -p {port} get large | head -c 1048576 | cmp - large"
    );
    finish(&mut unilith.shell(&line), Duration::from_secs(90)).ok().says("OK");
    let load =
        ["-h", "127.0.0.1", "-p", &port, "-c", "20", "-n", "4800", "-P", "16", "-t", "set,get,incr", "-q"];
    let ran = slow_client("redis-benchmark", &load, Duration::from_secs(300)).ok();
    assert_eq!(ran.out.matches("requests per second").count(), 3, "{ran}");
    cli(&machine, &["get", "counter:__rand_int__"]).ok().says("4800");

    // What Redis reads by a system call is its own statistics, not what a client sends.
    let watch = "busybox timeout 8 strace -f -s 200 -e trace=read,write,recvfrom,sendto,epoll_wait -o /tmp/trace \
                 -p $(busybox pidof redis-server); busybox cat /tmp/trace";
    let mut watching = unilith.command(&["exec", &machine.id, "sh", "-c", watch]);
    let said = std::thread::scope(|scope| {
        let watcher = scope.spawn(move || finish(&mut watching, Duration::from_secs(90)).ok().out);
        while !watcher.is_finished() {
            cli(&machine, &["set", "greeting", "bonjour"]).ok().says("OK");
        }
        watcher.join().unwrap()
    });
    assert!(said.contains("epoll_wait(") && said.contains("read("), "{said}");
    assert!(!said.contains("bonjour") && !said.contains("+OK"), "{said}");

    cli(&machine, &["shutdown", "nosave"]);
    unilith.run(&["wait", &machine.id]).ok().says("0");
    let machine = start(&unilith, UNMODIFIED, &["-p", "127.0.0.1::6379", "redis"]);
    assert_eq!(answers(&unilith, &machine), named);
}

const LUA: &str = "local t = {} for i = 1, 5000 do t[i] = (i * 7919) % 5003 end table.sort(t)\n\
                  local co = coroutine.wrap(function() for i = 1, 3 do coroutine.yield(t[i]) end end)\n\
                  print(co(), co(), co(), ('x'):rep(3), 2^53, 7 // 2, string.format('%q', 1 / 3), pcall(error, 'e'))\n\
                  local f = assert(io.open('/tmp/f', 'w')) f:write('text') f:close() print(io.open('/tmp/f'):read('a'))";

#[test]
#[ignore = "builds Linux, Lua and busybox"]
fn lua_and_busybox_say_what_debians_own_say() {
    let unilith = Unilith::new();
    let same = |words: &[&str]| {
        let (linked, own) = (run(&unilith, LINKED, words).ok(), run(&unilith, UNMODIFIED, words).ok());
        assert!(!linked.out.is_empty() && linked.out == own.out, "{linked}\n--- unmodified: {own}");
    };
    same(&["lua", "--", "-e", LUA]);
    // The shell forks, and executes itself, whose text the kernel has already.
    let script = "busybox seq 1 500 | busybox awk '{ s += $1 } END { print s }'; (exit 3); echo $?; \
                  busybox sh -c 'kill -9 $$'; echo $?; x=$(busybox uname -s); echo $x; busybox sha256sum /bin/busybox >/tmp/s && echo summed";
    same(&["busybox", "--", "sh", "-c", script]);
}

/// A new folder of the test, and the words that make it the program's `/data`.
fn data(unilith: &Unilith) -> (PathBuf, String) {
    let folder = unilith.path("data");
    fs::create_dir(&folder).expect(SCRATCH);
    let volume = format!("{}:/data", folder.display());
    (folder, volume)
}

fn curl(url: &str) -> String {
    slow_client("curl", &["-sS", "--compressed", "--max-time", "60", url], Duration::from_secs(90)).ok().out
}

/// Two processes that compress and hand on what they serve; who answered is in the answer.
const WORKERS: &str = "daemon off; worker_processes 2; user root; error_log stderr; events {}\n\
    http { access_log off; aio threads; gzip on; gzip_min_length 1; gzip_types *; gzip_proxied any; server { listen 80;\n\
    location / { root /data; } location /who { return 200 $pid; }\n\
    location /far/ { proxy_pass http://127.0.0.1/; proxy_buffering on; } } }";

/// What Debian's own interpreter has to say too.
const PYTHON: &str = r#"
import asyncio, datetime, decimal, hashlib, http.server, json, math, re, select, socket, struct, subprocess, sys
import threading, urllib.request, xml.etree.ElementTree as tree, zlib
print(json.dumps({"b": [1, 2.5, None], "a": "ä"}, sort_keys=True), re.sub(r"(\w+)@(\w+)", r"<>", "x@y"))
print(decimal.Decimal(1) / 3, math.gamma(5.5), struct.pack(">Id", 7, 0.1), datetime.date(2024, 2, 29).isoformat())
print(hashlib.sha256(b"abc").hexdigest(), len(zlib.compress(b"a" * 10000)), tree.fromstring("<a><b/></a>")[0].tag)
total, lock = [], threading.Lock()
def work(n):
    with lock:
        total.append(sum(range(n * 1000)))
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
print(sorted(total))
async def main():
    return await asyncio.gather(*[asyncio.sleep(0.01 * n, n) for n in range(5)])
print(asyncio.run(main()))
http.server.SimpleHTTPRequestHandler.log_message = lambda *_: None
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
answer = urllib.request.urlopen("http://127.0.0.1:%d/data/script.py" % server.server_port, timeout=60).read()
print(len(answer), answer == open("/data/script.py", "rb").read())
print(subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True).stdout)
try:
    open("/none")
except FileNotFoundError as error:
    print(error)
sys.exit(3)
"#;

/// A program of `tests/programs`, linked by the command as a user does.
fn linked(unilith: &Unilith, compiler: &[&str], source: &str) -> String {
    let (source, program) = (root().join("tests/programs").join(source), unilith.path("program"));
    let files = ["-O2".as_ref(), source.as_os_str(), "-o".as_ref(), program.as_os_str()];
    let mut words: Vec<&OsStr> = ["linux"].iter().chain(compiler).map(OsStr::new).collect();
    words.extend(files);
    finish(&mut unilith.command(&words), BUILD).ok();
    program.display().to_string()
}

#[test]
#[ignore = "builds Linux"]
fn an_echo_server_in_cpp_answers_many_and_ends_by_its_destructors() {
    let unilith = Unilith::new();
    let program = linked(&unilith, &["c++"], "echo.cpp");
    let machine = started(&unilith, LINKED, &["-p", "127.0.0.1::7", &program]);
    let at = machine.published(7);
    let ask = |stream: &mut TcpStream, text: &[u8], answer: &[u8]| {
        stream.write_all(text).unwrap();
        let mut got = vec![0; answer.len()];
        stream.read_exact(&mut got).unwrap();
        assert!(got == answer, "another answer");
    };
    std::thread::scope(|scope| {
        for client in 0..6_u8 {
            scope.spawn(move || {
                let mut stream = connect(at);
                let text: Vec<u8> = (0..40_000_u32).map(|n| n as u8 ^ client).collect();
                ask(&mut stream, &text, &text);
                ask(&mut stream, b"fail\n", b"failed as asked\n");
                ask(&mut stream, b"still there\n", b"still there\n");
            });
        }
    });
    connect(at).write_all(b"end\n").unwrap();
    unilith.run(&["wait", &machine.id]).ok().says("0");
    assert_eq!(machine.log(), "destroyed\n");
}

/// A program that loads libraries, linked with these words, and what is said of that.
fn loader(unilith: &Unilith, words: &[&str]) -> Ran {
    let program = |name: &str| root().join("tests/programs").join(name).display().to_string();
    let (loader, source) = (program("dlopen.c"), program("library.c"));
    let cc = [&["linux", "cc"], words, &["-o", "loader", &loader]].concat();
    let ran = finish(&mut unilith.command(&cc), BUILD).ok();
    for (name, words) in [("plain", ""), ("plugin", "-DPLUGIN"), ("stack", "-z execstack")] {
        let line = format!("cc -shared -fPIC {words} -o {name}.so {source}");
        finish(&mut unilith.shell(&line), BUILD).ok();
    }
    let files: Vec<String> =
        ["plain", "plugin", "stack"].map(|name| format!("\"/{name}.so\" = \"{name}.so\"")).into();
    let settings = format!(
        "from = \"debian:libc6\"\nprogram = \"/loader\"\nfiles = {{ \"/loader\" = \"loader\", {} }}\n\
         args = [\"/none.so\", \"/plugin.so\", \"/plain.so\", \"/stack.so\"]\n",
        files.join(", ")
    );
    project(unilith, &settings);
    ran
}

#[test]
#[ignore = "builds Linux"]
fn a_linked_program_that_loads_libraries_is_warned_of_and_told_why_one_cannot_be_loaded() {
    let unilith = Unilith::new();
    loader(&unilith, &[])
        .complains("it calls dlopen: libraries that it loads will not find the program's symbols");
    let ran = run(&unilith, LINKED, &["."]).ok();
    let expected = "refused: /none.so: cannot open shared object file: No such file or directory\n\
                    refused: /plugin.so: undefined symbol: of_program\n\
                    answer 42\nclosed 0\nanswer 42\nclosed 0\ngoes on with 6\n";
    assert_eq!(ran.out, expected);

    // musl's static library loads nothing, and says so.
    loader(&unilith, &["--libc", "musl"]);
    let ran = run(&unilith, LINKED, &["."]).ok();
    assert_eq!(ran.out, "refused: Dynamic loading not supported\n".repeat(4) + "goes on with 6\n");
}

#[test]
fn a_program_without_recipe_is_refused_with_those_that_have_one() {
    let ran = Unilith::new().run(&["run", "--rm", "--kernel", "linux", "--ukl", "base", "haproxy"]);
    ran.fails_with(&[
        "haproxy: no recipe",
        "--ukl cpl0",
        "busybox",
        "memcached",
        "nginx",
        "python",
        "redis",
        "sqlite",
    ]);
}

/// The error of a project whose recipe this is.
fn refusal(recipe: &str) -> Ran {
    let unilith = Unilith::new();
    let settings = format!("from = \"debian:hello\"\nprogram = \"hello\"\n[linked]\n{recipe}\n");
    project(&unilith, &settings);
    let patch = "--- a/README\n+++ b/README\n@@ -1 +1 @@\n-Not what the file says.\n+Something else.\n";
    fs::write(unilith.path("bad.patch"), patch).expect(SCRATCH);
    run(&unilith, LINKED, &[])
}

#[test]
#[ignore = "fetches source packages"]
fn what_is_wrong_with_a_recipe_is_said_in_one_line() {
    let source = "source = \"hello\"\nmakes = \"hello\"\n";
    let with = |build: &str| refusal(&format!("{source}build = '''{build}'''"));
    refusal("source = \"no-such-source\"\nbuild = \"true\"\nmakes = \"x\"")
        .fails_with(&["no Debian source package `no-such-source`"]);
    refusal("source = \"hello\"").fails_with(&["unilith.toml:", "build"]);
    with("true").fails_with(&["cannot build hello: it made no hello", "the whole log is"]);
    with("echo 'int main(void) { return f(; }' > x.c; $CC -o hello x.c").fails_with(&["x.c:1:", "error:"]);
    with("echo 'int g(void); int main(void) { return g(); }' > x.c; $CC -o hello x.c")
        .fails_with(&["undefined: g"]);
    with("echo 'int main(void) { return 0; }' > x.c; cc -o hello x.c")
        .fails_with(&["was not linked with $CC"]);
    let patched = |file: &str| refusal(&format!("{source}build = 'true'\npatches = ['{file}']"));
    patched("none.patch").fails_with(&["none.patch", "No such file"]);
    patched("bad.patch").fails_with(&["applying bad.patch to the source of hello failed", "FAILED"]);
    // A function within one that outlives it takes code on the stack.
    let nested = "void use(int (*)(void)); void use(int (*f)(void)) { f(); }\n\
                  int main(int n, char **v) { int f(void) { return n + !v; } use(f); return 0; }";
    with(&format!("echo '{nested}' > x.c; $CC -O0 -o hello x.c")).fails_with(&["wants an executable stack"]);
}

#[test]
#[ignore = "builds Linux and programs"]
fn the_page_about_linking_works_as_printed() {
    let unilith = Unilith::new();
    for name in ["unilith", "apps"] {
        std::os::unix::fs::symlink(root().join(name), unilith.path(name)).unwrap();
    }
    let text = read("docs/how-to/link-into-linux.md");
    let mut said = String::new();
    for line in text.lines().filter_map(|l| l.strip_prefix("    ")) {
        let follow = || finish(&mut unilith.shell(line), BUILD);
        let mut ran = follow();
        // A machine on a busy computer may not serve yet when the command says where it will.
        if line.starts_with("redis-cli") {
            eventually(line, || {
                ran = follow();
                ran.code == Some(0)
            });
        }
        said.push_str(&ran.ok().out);
    }
    assert!(said.matches("PONG").count() == 2 && said.contains("Hello, world!"), "{said}");
}

/// Programs that take minutes to compile.
mod long {
    use super::*;

    /// The other Linux that the series is made for.
    const NEWER: [&str; 4] = ["--kernel", "linux", "--linux", "6.12"];

    #[test]
    #[ignore = "builds Linux 6.12 and Redis"]
    fn redis_answers_alike_on_the_other_linux_at_each_level() {
        let unilith = Unilith::new();
        let version = run(&unilith, NEWER, &["busybox", "uname", "-r"]).ok().out;
        assert!(version.starts_with("6.12."), "{version}");
        let direct = root().join("apps/redis/direct");
        let direct = direct.to_str().expect("its path is text");
        let [ordinary, others @ ..] = [
            ("", "redis"),
            ("cpl0", "redis"),
            ("cpl0,byp,call,ret,shortcut", "redis"),
            ("base,byp", "redis"),
            // Calls functions of this kernel by name, whose structures are not those of the other one.
            ("base,byp", direct),
        ]
        .map(|(level, program)| {
            run(&unilith, NEWER, &["--ukl", level, program, "--", "--version"]).ok();
            let machine = started(&unilith, NEWER, &["--ukl", level, "-p", "127.0.0.1::6379", program]);
            eventually("Redis serves", || cli(&machine, &["ping"]).out.contains("PONG"));
            let text = answers(&unilith, &machine);
            cli(&machine, &["shutdown", "nosave"]);
            unilith.run(&["wait", &machine.id]).ok().says("0");
            text
        });
        assert!(ordinary.contains("hello"), "{ordinary}");
        for other in others {
            assert_eq!(other, ordinary);
        }
    }

    /// Three of the catalogue's programs in one machine: a shell that starts two servers, one of them whenever it ends.
    fn servers(unilith: &Unilith) {
        let mut settings = String::from(
            "from = \"debian:redis-server\"\nbase = \"none\"\nwith = [\"debian:memcached\", \"debian:busybox-static\"]\nprogram = \"busybox\"\n\
             args = [\"sh\", \"-c\", \"while true; do redis-server --save '' --protected-mode no; done & memcached -u root -m 32 -t 2 & wait\"]\n\
             ports = [\"6379\", \"11211\"]\nmemory = \"192M\"\nready = { listening = 11211 }\n",
        );
        for program in ["busybox", "redis", "memcached"] {
            let recipe = recipe(&format!("apps/{program}/app.toml"));
            let name = if program == "redis" { "redis-server" } else { program };
            settings += &format!("[[linked]]\nprogram = \"{name}\"{recipe}\n");
        }
        project(unilith, &settings);
    }

    #[test]
    #[ignore = "builds Linux, Redis, memcached and busybox"]
    fn two_linked_servers_in_one_machine_answer_and_each_outlives_the_other() {
        let unilith = Unilith::new();
        servers(&unilith);
        run(&unilith, LINKED, &[".", "--", "true"]).ok();
        let machine = started(&unilith, LINKED, &["-p", "127.0.0.1::6379", "-p", "127.0.0.1::11211", "."]);
        let inside = |line: &str| unilith.run(&["exec", &machine.id, "sh", "-c", line]);
        let redis_serves = |round: &str| {
            cli(&machine, &["set", "round", round]).ok().says("OK");
            cli(&machine, &["get", "round"]).ok().says(round);
        };
        let at = machine.published(11211);
        eventually("Redis serves", || cli(&machine, &["ping"]).out.contains("PONG"));
        redis_serves("both");
        serves(at, 4, 50);
        // Each has a text of its own at kernel addresses.
        let texts = inside(
            "for p in $(busybox pidof redis-server memcached); do busybox grep '^fffffffff.*r-xp' /proc/$p/maps; done",
        );
        let texts = texts.ok().out;
        assert!(texts.contains("fffffffff1010000") && texts.contains("fffffffff2010000"), "{texts}");

        inside("busybox kill -9 $(busybox pidof redis-server)").ok();
        serves(at, 4, 50);
        // The shell executes it anew, with the text that the kernel still has.
        eventually("Redis serves again", || cli(&machine, &["exists", "round"]).out == "0\n");

        inside("busybox kill $(busybox pidof memcached)").ok();
        eventually("memcached is gone", || inside("busybox pidof memcached").code == Some(1));
        redis_serves("alone");
    }

    #[test]
    #[ignore = "builds Linux and SQLite"]
    fn sqlite_keeps_what_it_is_told_on_a_volume() {
        let unilith = Unilith::new();
        let (folder, volume) = data(&unilith);
        let sql = "create table t(id integer primary key, text text);\
                   with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)\
                   insert into t select i, 'row ' || i from n;\
                   begin; delete from t where id % 2; rollback; delete from t where id % 10 = 0; vacuum;\
                   select count(*), sum(id), max(text) from t; pragma integrity_check;";
        let ran = run(&unilith, LINKED, &["-v", &volume, "sqlite", "--", "/data/test.db", sql]).ok();
        assert_eq!(ran.out, "18000|180000000|row 9999\nok\n");
        let database = folder.join("test.db").display().to_string();
        client("sqlite3", &[&database, "pragma integrity_check; select count(*) from t;"])
            .ok()
            .says("ok\n18000");
        run(&unilith, LINKED, &["sqlite", "--", ":memory:", "select missing;"])
            .code(1)
            .says("no such column");
    }

    #[test]
    #[ignore = "builds Linux and memcached"]
    fn memcached_serves_clients_by_four_threads() {
        let unilith = Unilith::new();
        let machine = start(&unilith, LINKED, &["-p", "127.0.0.1::11211", "memcached"]);
        let at = machine.published(11211);
        serves(at, 8, 100);
        let stats = Client::new(at).stats();
        for expected in ["STAT threads 4", "STAT cmd_set 800", "STAT get_hits 800"] {
            assert!(stats.contains(&expected.to_string()), "{stats:?}");
        }
    }

    #[test]
    #[ignore = "builds Linux and Lua"]
    fn lua_with_musl_says_what_it_says_with_glibc() {
        let unilith = Unilith::new();
        let recipe = recipe("apps/lua/app.toml");
        let settings =
            format!("from = \"debian:lua5.4\"\nprogram = \"lua5.4\"\n[linked]\nlibc = \"musl\"{recipe}");
        project(&unilith, &settings);
        let (musl, glibc) = (
            run(&unilith, LINKED, &[".", "--", "-e", LUA]),
            run(&unilith, LINKED, &["lua", "--", "-e", LUA]),
        );
        let (musl, glibc) = (musl.ok(), glibc.ok());
        assert!(musl.out.contains("xxx") && musl.out == glibc.out, "{musl}\n--- glibc: {glibc}");
    }

    #[test]
    #[ignore = "builds Linux and nginx"]
    fn nginx_serves_pages_by_one_process_and_by_workers() {
        let unilith = Unilith::new();
        let machine = start(&unilith, LINKED, &["-p", "127.0.0.1::80", "nginx"]);
        let page = read("apps/nginx/index.html");
        assert_eq!(curl(&format!("http://{}/", machine.published(80))), page);
        drop(machine);

        let (folder, volume) = data(&unilith);
        let text: String = (0..60_000).map(|n| format!("line {n}\n")).collect();
        fs::write(folder.join("text"), &text).unwrap();
        fs::write(folder.join("workers.conf"), WORKERS).unwrap();
        let words = ["-p", "127.0.0.1::80", "-v", &volume, "nginx", "--", "-c", "/data/workers.conf"];
        let machine = started(&unilith, LINKED, &words);
        let at = machine.published(80);
        assert!(curl(&format!("http://{at}/text")) == text, "the file came in another form");
        assert!(curl(&format!("http://{at}/far/text")) == text, "the file came in another form from afar");
        let who: u32 = curl(&format!("http://{at}/who")).parse().unwrap();
        assert!(who > 1, "the first process is no worker");
        unilith.run(&["stop", &machine.id]).ok();
        unilith.run(&["wait", &machine.id]).ok().says("0");
    }

    #[test]
    #[ignore = "builds Linux and fio"]
    fn fio_finds_what_it_wrote_and_what_was_changed() {
        let unilith = Unilith::new();
        let (folder, volume) = data(&unilith);
        let job = "[global]\nsize=4M\nbs=4k\nverify=crc32c\nverify_fatal=1\nrw=randwrite\n\
                   [threads]\ndirectory=/tmp\nthread\nnumjobs=2\n[processes]\ndirectory=/tmp\nioengine=mmap\nnumjobs=2\n\
                   [volume]\nfilename=/data/file\nsize=512k\n";
        fs::write(folder.join("job"), job).unwrap();
        // Built by this; from here on fio has minutes for what takes it seconds.
        run(&unilith, LINKED, &["fio", "--", "--version"]).ok().says("fio-");
        let fio = |job: &str| {
            let words =
                [&["run", "--rm", "--machine", "microvm"], &LINKED[..], &["-v", &volume, "fio", "--", job]]
                    .concat();
            finish(&mut unilith.command(&words), Duration::from_secs(300))
        };
        let ran = fio("/data/job").ok();
        assert_eq!(ran.out.matches("err= 0").count(), 5, "{ran}");
        let check =
            "[volume]\nfilename=/data/file\nsize=512k\nbs=4k\nverify=crc32c\nverify_fatal=1\nrw=read\n";
        fs::write(folder.join("check"), check).unwrap();
        fio("/data/check").ok();
        let mut bytes = fs::read(folder.join("file")).unwrap();
        bytes[100_000] ^= 1;
        fs::write(folder.join("file"), bytes).unwrap();
        fio("/data/check").code(1).says("verify failed at file /data/file offset 98304");
    }

    #[test]
    #[ignore = "builds Linux and Python"]
    fn python_says_what_debians_own_says_and_serves() {
        let unilith = Unilith::new();
        let (folder, volume) = data(&unilith);
        fs::write(folder.join("script.py"), PYTHON).unwrap();
        let words = ["-v", &volume, "-w", "/", "python", "--", "/data/script.py"];
        let (linked, own) =
            (run(&unilith, LINKED, &words).code(3), run(&unilith, UNMODIFIED, &words).code(3));
        assert!(
            linked.out.contains("[0, 1, 2, 3, 4]") && linked.out == own.out,
            "{linked}\n--- unmodified: {own}"
        );
        // A module that would have to be loaded is not there, and the program goes on without it.
        let absent = "try:\n    import _ssl\nexcept ImportError as error:\n    print(error)";
        let ran = run(&unilith, LINKED, &["python", "--", "-c", absent]).ok();
        assert_eq!(ran.out, "No module named '_ssl'\n");

        let words =
            ["-p", "127.0.0.1::8000", "-v", &volume, "python", "--", "-u", "-m", "http.server", "8000"];
        let machine = started(&unilith, LINKED, &words);
        assert_eq!(curl(&format!("http://{}/script.py", machine.published(8000))), PYTHON);
    }
}
