// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What tests of the overlay share: sessions without a process for each command, packages of tracing programs, and clients
//! that ask a program the same again and again while something is done to its machine, and compare each byte it answers.

use crate::{Machine, PATIENCE, Unilith, client, connect, eventually};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{JoinHandle, spawn},
};
use unilith_overlay::{Client, Event};
use unilith_trace::{Script, symbols};

/// Numbers that look random and are the same in each run (Knuth's MMIX).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// The machine's directory, in which the overlay's socket is.
#[track_caller]
pub fn folder(unilith: &Unilith, machine: &str) -> PathBuf {
    let files = unilith.run(&["overlay", "dir", machine]).ok().out;
    Path::new(files.trim()).parent().expect("the directory is in the machine's").to_path_buf()
}

/// A machine whose Redis answers. On a busy host it may be started before that.
#[track_caller]
pub fn redis(unilith: &Unilith) -> Machine<'_> {
    let words = ["-p", "127.0.0.1::6379", "redis", "--", "--save", "", "--protected-mode", "no"];
    let machine = unilith.start(&words);
    let at = machine.at(6379);
    eventually("Redis answers", || {
        let mut answer = [0; 7];
        let asked = TcpStream::connect(at).and_then(|mut stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(b"PING\r\n")?;
            stream.read_exact(&mut answer)
        });
        asked.is_ok() && answer == *b"+PONG\r\n"
    });
    machine
}

/// A session with the machine.
#[track_caller]
pub fn session(unilith: &Unilith, machine: &str) -> Client {
    Client::connect(&folder(unilith, machine)).expect("a session")
}

/// Builds a program of the overlay; answers the object.
#[track_caller]
pub fn build(unilith: &Unilith, source: &Path) -> String {
    let stem = source.file_stem().expect("a source has a name");
    let object = unilith.path(&stem.to_string_lossy()).with_extension("o");
    let [source, object] = [source, &object].map(|path| path.to_str().expect("paths of tests are text"));
    unilith.run(&["overlay", "build", source, "-o", object]).ok();
    object.to_string()
}

/// What `programs/overlay/faults.c` does wrong: its argument, its exit code, and what is said about it.
pub const FAULTS: &[(&str, i32, &[&str])] = &[
    ("nothing", 7, &[]),
    ("write", 139, &["wrote to the application's memory", "without uio_enable_write", "main+0x"]),
    ("write-after", 139, &["without uio_enable_write"]),
    (
        "write-wild-asked",
        139,
        &["wrote to 0x123456789000, where nothing is mapped", "may have left it half changed"],
    ),
    ("kernel-write", 139, &["the kernel's memory"]),
    ("kernel-write-asked", 139, &["the kernel's memory"]),
    ("kernel-call", 139, &["jumped to", "the kernel"]),
    ("null-write", 139, &["a null pointer"]),
    ("null-call", 139, &["jumped to a null pointer"]),
    ("wild-read", 139, &["read 0x123456789000, where nothing is mapped"]),
    ("wild-call", 139, &["jumped to 0x123456789000, where nothing is mapped"]),
    ("odd-address", 139, &["an address that is none"]),
    ("data-call", 139, &["jumped to the application's memory", "which is no code"]),
    ("own-data-call", 139, &["jumped to its own memory", "which is no code"]),
    ("own-text-write", 139, &["wrote to its own memory", "which is read-only"]),
    ("own-constant-write", 139, &["wrote to its own memory", "which is read-only"]),
    ("overflow", 139, &["its stack of 128 KiB overflowed", "depth+0x"]),
    ("smash", 134, &["stack smashing detected"]),
    ("double-free", 134, &["twice"]),
    ("wild-free", 134, &["which is no block of its heap"]),
    ("heap-overrun", 139, &["next to its memory"]),
    ("divide", 136, &["divided by zero"]),
    ("invalid", 132, &["an invalid instruction"]),
    ("breakpoint", 133, &["a breakpoint"]),
    ("system-call", 159, &["without uio_enable_write"]),
    ("exit-call-asked", 159, &["only its own threads may make"]),
    ("abort", 134, &["aborted"]),
    ("files-left", 139, &["a null pointer"]),
];

/// Where the kernel's code and its view of memory are, for those who have no business there.
pub fn kernel_place(fault: &str) -> &'static str {
    match (crate::tested_machine() == "process", fault) {
        (true, "kernel-call") => "0x700000280000",
        (true, _) => "0x710000100000",
        (false, "kernel-call") => "0xffffffff80300000",
        (false, "kernel-write") => "0xffff800000100000",
        (false, _) => "0xffffffff80200000",
    }
}

/// What it does that does not end it, and what it prints then.
pub const ANSWERS: &[(&str, &str)] = &[
    ("write-asked", "written\n"),
    ("write-now", "written\n"),
    ("executable-memory", "-13\n"),
    ("much-memory", "1\n"),
    ("bad-number", "-38\n"),
    ("bad-pointers", "-14 -14 -14 -14\n"),
];

/// What an object becomes by damage that has a name: what it is called, its bytes, and what has to be said of it.
pub fn damages(object: &[u8]) -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let with = |at: usize, bytes: &[u8]| {
        let mut damaged = object.to_vec();
        damaged[at..at + bytes.len()].copy_from_slice(bytes);
        damaged
    };
    let word = |at: usize| object[at..at + 8].try_into().map_or(0, u64::from_le_bytes) as usize;
    // The type of the first relocation of the first section that has some (SHT_RELA).
    let mut sections = (word(40)..object.len()).step_by(64);
    let relocation = sections.find(|at| object[at + 4] == 4).map_or(0, |at| word(at + 24));
    vec![
        ("other.o", with(18, &183u16.to_le_bytes()), "AArch64"),
        ("kind.o", with(16, &[2]), "relocatable"),
        (
            "relocation.o",
            with(relocation + 8, &200u32.to_le_bytes()),
            "relocation of type 200 in section .text",
        ),
        ("half.o", object[..object.len() / 2].to_vec(), "truncated"),
        ("start.o", object[..40].to_vec(), "truncated"),
        ("empty.o", Vec::new(), "not an ELF object"),
        ("text.o", b"int main(void) { return 0; }\n".to_vec(), "ELF"),
        ("large.o", vec![0; 3 << 20], "larger than 2 MiB"),
    ]
}

/// How a command ended.
#[derive(Debug)]
pub struct Said {
    pub code: u8,
    pub out: String,
    /// Its failures, and what it wrote to standard error.
    pub why: String,
}

/// Runs a command with this input.
#[track_caller]
pub fn send(client: &Client, words: &[&str], bytes: &[u8]) -> Said {
    let running = client.start(words, false, 0).expect("the line is there");
    // What the command does not want to read is its own affair.
    let _ = running.input().write(bytes).and_then(|_| running.input().end());
    let (mut out, mut why) = (Vec::new(), String::new());
    loop {
        match running.next() {
            Event::Exit(exit) => {
                return Said { code: exit.code, out: String::from_utf8_lossy(&out).into_owned(), why };
            }
            Event::Failure(f) => why += &format!("{}: {}\n", f.subject, f.text),
            Event::Lost(why) => panic!("{}: {why}", words.join(" ")),
            Event::Out(bytes) => out.extend(bytes),
            Event::Started(_) => {}
            Event::Err(bytes) => why += &String::from_utf8_lossy(&bytes),
        }
    }
}

/// Runs an object under this name, as `unilith exec NAME run FILE` does: it is sent along.
#[track_caller]
pub fn run_object(client: &Client, options: &[&str], name: &str, object: &[u8], words: &[&str]) -> Said {
    let size = object.len().to_string();
    send(client, &[&["run"], options, &["-s", &size, name], words].concat(), object)
}

/// A script as the package that the machine attaches, its functions looked up in the files of the machine that `holds` names.
#[track_caller]
pub fn package(client: &Client, script: &Script, holds: fn(&str) -> bool) -> Vec<u8> {
    let cat = |path: &str| client.run(&["cat", path], false).expect("an answer").out;
    let maps = String::from_utf8(cat("/proc/self/maps")).expect("text");
    let modules = symbols::modules(&maps, &mut |path| holds(path).then(|| cat(path)));
    symbols::package(script, &modules, None).unwrap_or_else(|e| panic!("{e}: {maps}")).encode()
}

/// A client that asks again and again, in a thread of its own.
pub struct Asking {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

/// What Redis is asked, and what it has to answer.
const OF_REDIS: &[(&str, &str)] = &[
    ("SET key first\r\n", "+OK\r\n"),
    ("APPEND key -second\r\n", ":12\r\n"),
    ("GET key\r\n", "$12\r\nfirst-second\r\n"),
    ("DEL list\r\nRPUSH list a b c\r\nLRANGE list 0 -1\r\nDEL list\r\n", LISTED),
    ("NONSENSE\r\n", "-ERR unknown command 'NONSENSE', with args beginning with: \r\n"),
];
const LISTED: &str = ":0\r\n:3\r\n*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n:1\r\n";

/// What nginx is asked: the page, its head, a part of it, what is not there, a method it does not know.
const OF_NGINX: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET /index.html HTTP/1.1\r\nHost: a\r\nRange: bytes=3-40\r\n\r\n",
    "GET /missing HTTP/1.1\r\nHost: a\r\n\r\n",
    "NONSENSE / HTTP/1.1\r\nHost: a\r\n\r\n",
];

impl Asking {
    /// `round` asks once, and panics when it is answered something else.
    pub fn start(mut round: impl FnMut() + Send + 'static) -> Asking {
        let (stop, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, count) = (stop.clone(), rounds.clone());
        let thread = spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                round();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Asking { stop, rounds, thread: Some(thread) }
    }

    pub fn redis(at: SocketAddr) -> Asking {
        let mut stream = connect(at);
        Asking::start(move || {
            for (question, expected) in OF_REDIS {
                stream.write_all(question.as_bytes()).expect("a question is taken");
                let mut answer = vec![0; expected.len()];
                stream.read_exact(&mut answer).expect("an answer comes");
                assert_eq!(String::from_utf8_lossy(&answer), *expected, "{question}");
            }
        })
    }

    /// Compares with what it answers before anything is done to the machine.
    #[track_caller]
    pub fn nginx(at: SocketAddr) -> Asking {
        let mut stream = BufReader::new(connect(at));
        let first: Vec<String> = OF_NGINX.iter().map(|q| answer_of_nginx(&mut stream, q)).collect();
        let codes: Vec<&str> = first.iter().map(|a| &a[9..12]).collect();
        assert_eq!(codes, ["200", "200", "206", "404", "405"], "{first:?}");
        Asking::start(move || {
            for (question, expected) in OF_NGINX.iter().zip(&first) {
                assert_eq!(answer_of_nginx(&mut stream, question), *expected, "{question}");
            }
        })
    }

    /// Waits until it was answered some more times.
    #[track_caller]
    pub fn goes_on(&self) {
        let until = self.rounds.load(Ordering::Relaxed) + 3;
        eventually("the application answers", || {
            let failed = self.thread.as_ref().is_none_or(JoinHandle::is_finished);
            assert!(!failed, "the application answered something else");
            self.rounds.load(Ordering::Relaxed) >= until
        });
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let failed = self.thread.take().is_some_and(|thread| thread.join().is_err());
        assert!(!failed || std::thread::panicking(), "the application answered something else");
    }
}

/// One answer of nginx without its date, which is the one thing that may differ.
fn answer_of_nginx(stream: &mut BufReader<TcpStream>, question: &str) -> String {
    stream.get_mut().write_all(question.as_bytes()).expect("a question is taken");
    let (mut answer, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        assert_ne!(stream.read_line(&mut line).expect("an answer comes"), 0, "it hung up: {question}");
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().expect("a number");
        }
        if !line.starts_with("Date: ") {
            answer.push_str(&line);
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; if question.starts_with("HEAD") { 0 } else { length }];
    stream.read_exact(&mut body).expect("the whole answer comes");
    answer + &String::from_utf8_lossy(&body)
}

/// A SQLite shell in a machine, which works on a file of the host and is told what to do on its standard input.
pub struct Database<'a> {
    pub machine: Machine<'a>,
    /// The database on the host.
    pub file: PathBuf,
    shell: Child,
    conversation: Arc<Mutex<Conversation>>,
    asking: Option<Asking>,
}

struct Conversation {
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    rows: usize,
}

impl Conversation {
    /// Inserts a row in a transaction of its own; the answer tells of it and of all before it.
    fn ask(&mut self) {
        self.rows += 1;
        let (n, other) = (self.rows, self.rows / 2 + 1);
        let question = format!(
            "insert into t values({n}, 'row {n}'); \
             select count(*), sum(n), max(n), (select text from t where n = {other}) from t;\n"
        );
        self.questions.write_all(question.as_bytes()).expect("a statement is taken");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("an answer comes");
        assert_eq!(line.trim_end(), format!("{n}|{}|{n}|row {other}", n * (n + 1) / 2), "{question}");
    }
}

impl<'a> Database<'a> {
    #[track_caller]
    pub fn start(unilith: &'a Unilith, name: &str) -> Database<'a> {
        let folder = unilith.path(name);
        std::fs::create_dir(&folder).expect("the scratch directory can be written");
        let volume = format!("{}:/data", folder.display());
        let words = ["-i", "--name", name, "-v", &volume, "sqlite", "--", "-batch", "/data/test.db"];
        let mut command = unilith.program_command(&words);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut shell = command.spawn().expect("the machine starts");
        let mut questions = shell.stdin.take().expect("a pipe");
        let answers = BufReader::new(shell.stdout.take().expect("a pipe"));
        // What is typed while the kernel sets its console up may be lost.
        let is_up = || unilith.run(&["exec", name, "ls", "/data"]).code == Some(0);
        eventually("the machine takes commands", is_up);
        questions.write_all(b"create table t(n integer primary key, text text);\n").expect("it is taken");
        let mut conversation = Conversation { questions, answers, rows: 0 };
        conversation.ask();
        let conversation = Arc::new(Mutex::new(conversation));
        let shared = conversation.clone();
        let asking = Asking::start(move || shared.lock().expect("nobody else failed").ask());
        let machine = unilith.machine(name);
        Database { machine, file: folder.join("test.db"), shell, conversation, asking: Some(asking) }
    }

    #[track_caller]
    pub fn goes_on(&self) {
        self.asking.as_ref().expect("it was not ended").goes_on();
    }

    /// Ends the shell as its user would, and lets the host's sqlite3 look at what it left.
    #[track_caller]
    pub fn end(mut self) {
        drop(self.asking.take());
        let rows = {
            let mut conversation = self.conversation.lock().expect("nobody failed");
            conversation.questions.write_all(b".quit\n").expect("it is taken");
            conversation.rows
        };
        let mut status = None;
        eventually("the shell ends", || {
            status = self.shell.try_wait().expect("it can be waited for");
            status.is_some()
        });
        assert_eq!(status.and_then(|s| s.code()), Some(0));
        let file = self.file.display().to_string();
        let check = "pragma integrity_check; select count(*), sum(length(text)) > 0 from t;";
        client("sqlite3", &[&file, check]).ok().says(&format!("ok\n{rows}|1"));
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        // It has ended unless the test failed; then somebody may be waiting for its answer.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
