// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the whole-system tests share: the command with state of its own, machines that end with the test, real clients,
//! and a guest of a few bytes for tests of the command alone.
//!
//! Each file in `tests/` is one topic or one program. Tests of one file run one after the other, and as many files at a time
//! as there are processors (`./unilith test` sees to that): they boot machines, most of which have one processor. Every test has a
//! state directory of its own and shares the user's cache.

pub mod covering;
pub mod engine;
pub mod guest;
pub mod memcached;
pub mod overlay;
pub mod page;
pub mod registry;
pub mod source;
pub mod terminal;

use rustix::process::{Pid, Signal, kill_process};
use std::{
    ffi::OsStr,
    fmt, fs,
    hash::{BuildHasher, RandomState},
    io::{BufRead, BufReader},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::Once,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Software emulation on a busy computer is slow; a test that waits longer than this has found a hang.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// How long a machine may take until its program serves, when other work keeps the processors.
const FIRST_START: Duration = Duration::from_secs(180);
/// Building the command, or a kernel, from nothing.
const BUILD: Duration = Duration::from_secs(1800);
/// Building one kernel with the command there, or fetching the packages of a program.
pub const BUILD_KERNEL: Duration = Duration::from_secs(600);

/// How many times slower than a computer this one is, by `UNILITH_TEST_SLOWNESS`: every limit here is multiplied by it.
fn slowness() -> u32 {
    let words = std::env::var("UNILITH_TEST_SLOWNESS").unwrap_or_else(|_| "1".into());
    words.parse().unwrap_or_else(|e| panic!("UNILITH_TEST_SLOWNESS={words}: {e}"))
}

/// A limit that only ends a hang, on a computer as slow as this one.
pub fn limit(of: Duration) -> Duration {
    of * slowness()
}

/// How many of `of` requests a load sends, or rounds a random test goes, on a computer as slow as this one: where a request takes
/// milliseconds and a fork of a process with many mappings half a second, all of them would take hours and say little more.
pub fn load(of: u32) -> u32 {
    (of / slowness()).max(1)
}

/// The repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the repository").to_path_buf()
}

/// The command with a state directory of its own. Machines that are still there at the end of the test are removed.
pub struct Unilith {
    folder: TempDir,
    env: Vec<(String, String)>,
}

/// The kernel that program tests run on: `UNILITH_TEST_KERNEL`, else the micro kernel.
pub fn tested_kernel() -> String {
    std::env::var("UNILITH_TEST_KERNEL").unwrap_or_else(|_| "micro".into())
}

/// The machine that program tests run on: `UNILITH_TEST_MACHINE`, else a virtual one.
pub fn tested_machine() -> String {
    std::env::var("UNILITH_TEST_MACHINE").unwrap_or_else(|_| "microvm".into())
}

/// What `unilith doctor` calls the ways in which a process machine may have a network.
pub const NETWORKS: [&str; 2] = ["tap devices", "user-mode networking"];

/// The machine of tests with [`Unilith::filter_only`], with more processors than one, which it has until there is a second process.
pub const FILTER_ONLY: [&str; 6] = ["--kernel", "micro", "--machine", "process", "--cpus", "2"];

/// Whether the test is to be left out in this case; says why.
pub fn is_skipped(in_case: bool, why: &str) -> bool {
    if in_case {
        eprintln!("skipped: {why}");
    }
    in_case
}

/// Whether the test is to be left out because a process machine has no such thing; says why.
pub fn is_skipped_on_process(why: &str) -> bool {
    is_skipped(tested_machine() == "process", &format!("on process machines: {why}"))
}

/// Parts of the kernel that are put in where somebody asks for them: all in one, so that tests of them build one kernel more.
pub const MORE_PARTS: [&str; 12] = [
    "--set",
    "ext4=on",
    "--set",
    "io_uring=on",
    "--set",
    "tun=on",
    "--set",
    "keys=on",
    "--set",
    "landlock=on",
    "--set",
    "overlayfs=on",
];

/// What the kernel of containers has put in, as the pages about engines print it.
pub const PARTS_OF_CONTAINERS: [&str; 6] = ["--set", "ipv6=on", "--set", "tun=on", "--set", "overlayfs=on"];

/// Whether the test is to be left out because another kernel than our own is tested; says why.
pub fn is_skipped_without_micro(why: &str) -> bool {
    is_skipped(tested_kernel() != "micro", why)
}

/// Whether process machines of this host have several host processes: with several processors they have several processes of a program only
/// then.
pub fn allows_namespaces(unilith: &Unilith) -> bool {
    let words = ["--machine", "process", "--network", "none", "busybox", "sleep", "1000000"];
    let machine = unilith.start(&words);
    unilith.inspect(&machine.id)["state"]["isolation"] != "filter-only"
}

/// Whether what takes long under software emulation is to be left out: it runs on process machines, and by `./unilith test --long` on
/// virtual ones as well.
pub fn is_short_of_time() -> bool {
    tested_machine() != "process" && std::env::var_os("UNILITH_TEST_LONG").is_none()
}

/// Whether the test is to be left out because it takes minutes under software emulation ([`is_short_of_time`]).
pub fn is_skipped_where_slow() -> bool {
    is_skipped(is_short_of_time(), "minutes under software emulation (./unilith test --long runs it)")
}

/// Whether `doctor` finds passt to work; says why not.
pub fn passt_works(unilith: &Unilith) -> bool {
    let found: serde_json::Value =
        serde_json::from_str(&unilith.run(&["doctor", "--json"]).out).expect("doctor prints JSON");
    let passt = found.as_array().into_iter().flatten().find(|f| f["what"] == "user-mode networking");
    let works = passt.is_some_and(|f| f["state"] == "good");
    if !works {
        eprintln!("passt does not work here: {passt:?}");
    }
    works
}

/// What a command printed and how it ended.
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
    pub took: Duration,
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "exit {:?} after {:?}\n--- stdout\n{}\n--- stderr\n{}",
            self.code, self.took, self.out, self.err
        )
    }
}

impl Ran {
    /// Fails the test unless it ended with this code.
    #[track_caller]
    pub fn code(self, code: i32) -> Ran {
        assert!(self.code == Some(code), "expected exit {code}, got {self}");
        self
    }

    /// Fails the test unless it ended well.
    #[track_caller]
    pub fn ok(self) -> Ran {
        self.code(0)
    }

    /// Fails the test unless standard output holds the text.
    #[track_caller]
    pub fn says(self, text: &str) -> Ran {
        assert!(self.out.contains(text), "expected `{text}` on standard output of {self}");
        self
    }

    /// Fails the test unless standard error holds the text.
    #[track_caller]
    pub fn complains(self, text: &str) -> Ran {
        assert!(self.err.contains(text), "expected `{text}` on standard error of {self}");
        self
    }

    /// Fails the test unless exactly one line on standard error comes from Unilith and holds all the texts.
    #[track_caller]
    pub fn fails_with(self, texts: &[&str]) -> Ran {
        let lines: Vec<&str> = self.err.lines().filter(|l| !l.trim().is_empty() && !is_note(l)).collect();
        assert!(
            lines.len() == 1 && lines[0].starts_with("unilith: "),
            "expected one line of error, got {self}"
        );
        for text in texts {
            assert!(lines[0].contains(text), "expected `{text}` in the error of {self}");
        }
        assert!(self.code != Some(0), "expected a failure, got {self}");
        self
    }
}

/// Lines of the kernel's log, of progress, or about what this computer lacks, which are no errors.
fn is_note(line: &str) -> bool {
    let is_progress = line.starts_with("unilith: ") && line.ends_with("...");
    let lacks = ["[", "unilith: the machine cannot reach beyond this host", "unilith: the machine is a "];
    is_progress || lacks.iter().any(|note| line.starts_with(note))
}

impl Default for Unilith {
    fn default() -> Unilith {
        Unilith::new()
    }
}

impl Unilith {
    pub fn new() -> Unilith {
        // Built before anything is timed.
        static BUILT: Once = Once::new();
        BUILT.call_once(|| drop(finish(Command::new(root().join("unilith")).arg("--version"), BUILD).ok()));
        Unilith { folder: tempfile::tempdir().expect("a scratch directory"), env: Vec::new() }
    }

    /// The command with a guest of a few bytes in place of the kernel.
    pub fn with_guest(script: &guest::Script) -> Unilith {
        let mut unilith = Unilith::new();
        let kernel = unilith.path("guest");
        fs::write(&kernel, script.assemble()).expect("the scratch directory can be written");
        fs::write(unilith.path("root.cpio"), [0; 512]).expect("the scratch directory can be written");
        unilith.set("UNILITH_KERNEL", kernel);
        unilith
    }

    /// Sets a variable of the command's environment.
    pub fn set(&mut self, key: &str, value: impl AsRef<OsStr>) {
        self.env.push((key.into(), value.as_ref().to_string_lossy().into_owned()));
    }

    /// Its process machines have their filter alone, as on a host that allows no namespaces ([`FILTER_ONLY`]).
    pub fn filter_only() -> Unilith {
        let mut unilith = Unilith::new();
        unilith.set("UNILITH_ISOLATION", "filter-only");
        unilith
    }

    /// Whether the test is to be left out because `unilith doctor` calls none of these good; says why.
    pub fn is_skipped_without(&self, any_of: &[&str]) -> bool {
        let found = self.run(&["doctor", "--json"]).out;
        let found: serde_json::Value = serde_json::from_str(&found).expect("doctor prints JSON");
        let asked =
            |finding: &&serde_json::Value| finding["what"].as_str().is_some_and(|w| any_of.contains(&w));
        let of_these: Vec<_> = found.as_array().into_iter().flatten().filter(asked).collect();
        let is_there = of_these.iter().any(|finding| finding["state"] == "good");
        is_skipped(!is_there, &format!("it wants one of {any_of:?}: {of_these:?}"))
    }

    /// A path in the test's scratch directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command, ready to be started; its current directory is the scratch directory.
    pub fn command<W: AsRef<OsStr>>(&self, args: &[W]) -> Command {
        let mut command = Command::new(root().join("unilith"));
        command.args(args).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", self.path("state")).envs(self.env.iter().map(|(k, v)| (k, v)));
        command
    }

    /// A shell with a line to run, ready to be started as [`Unilith::command`]'s.
    pub fn shell(&self, line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-ec", line]).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env("XDG_STATE_HOME", self.path("state")).envs(self.env.iter().map(|(k, v)| (k, v)));
        command
    }

    /// Builds the tested kernel, so that no test's time has that in it.
    fn build_kernel(&self) {
        static BUILT: Once = Once::new();
        BUILT.call_once(|| {
            let (kernel, machine) = (tested_kernel(), tested_machine());
            let run = ["run", "--rm", "--kernel", &kernel, "--machine", &machine, "busybox", "true"];
            finish(&mut self.command(&run), BUILD).ok();
        });
    }

    /// Builds the kernel of containers for this kind of machine: engines give a runtime no time to do so.
    #[track_caller]
    pub fn build_kernel_of_containers(&self, machine: &str) {
        let run = ["run", "--rm", "--network", "none", "--machine", machine];
        let words = [&run[..], &PARTS_OF_CONTAINERS, &["busybox", "true"]].concat();
        finish(&mut self.command(&words), BUILD_KERNEL).ok();
    }

    /// The folder of the user's cache in which the tested kernel is.
    pub fn kernels(&self) -> PathBuf {
        self.build_kernel();
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
        cache.expect("tests have a home").join("unilith/kernels")
    }

    /// `run` in the foreground, `--rm`, with the kernel that the tests are about.
    pub fn program(&self, args: &[&str]) -> Ran {
        self.program_within(args, PATIENCE)
    }

    /// As [`Unilith::program`], for programs that take longer.
    #[track_caller]
    pub fn program_within(&self, args: &[&str], patience: Duration) -> Ran {
        finish(&mut self.program_command(args), patience)
    }

    /// As [`Unilith::program`], ready to be started.
    pub fn program_command(&self, args: &[&str]) -> Command {
        self.build_kernel();
        self.command(&self.tested(&["run", "--rm"], args))
    }

    /// A machine that was started under this name; removed when dropped.
    pub fn machine(&self, name: &str) -> Machine<'_> {
        Machine { unilith: self, id: name.into(), said: String::new() }
    }

    /// The words of a command with the kernel and the machine that the tests are about, unless they name them.
    fn tested(&self, verb: &[&str], args: &[&str]) -> Vec<String> {
        let (kernel, machine) = (tested_kernel(), tested_machine());
        let cpus = std::env::var("UNILITH_TEST_CPUS").ok();
        let mut words = verb.to_vec();
        let given = [("--kernel", &kernel), ("--machine", &machine)];
        for (flag, value) in given.into_iter().chain(cpus.as_ref().map(|cpus| ("--cpus", cpus))) {
            // The guest of a few bytes is one of virtual machines.
            let is_given = args.contains(&flag) || (flag == "--machine" && self.has_guest());
            if !is_given {
                words.extend([flag, value]);
            }
        }
        words.iter().chain(args).map(ToString::to_string).collect()
    }

    fn has_guest(&self) -> bool {
        self.env.iter().any(|(key, _)| key == "UNILITH_KERNEL")
    }

    /// Runs the command to its end.
    pub fn run(&self, args: &[&str]) -> Ran {
        finish(&mut self.command(args), PATIENCE)
    }

    /// Fetches what the program needs, which may take longer than a start.
    #[track_caller]
    pub fn fetch(&self, program: &str) {
        finish(&mut self.command(&["check", program]), BUILD_KERNEL).ok();
    }

    /// `run -d` with these words; the machine serves when this returns.
    #[track_caller]
    pub fn start(&self, args: &[&str]) -> Machine<'_> {
        if !self.has_guest() {
            self.build_kernel();
        }
        // Its first start may make a database before it is ready.
        let ran = finish(&mut self.command(&self.tested(&["run", "-d"], args)), FIRST_START).ok();
        Machine { unilith: self, id: ran.out.trim().to_string(), said: ran.err }
    }

    /// One machine of `inspect`.
    #[track_caller]
    pub fn inspect(&self, machine: &str) -> serde_json::Value {
        let ran = self.run(&["inspect", machine]).ok();
        let all: serde_json::Value = serde_json::from_str(&ran.out).expect("inspect prints JSON");
        all[0].clone()
    }

    /// What is under the state directory's `machines`.
    pub fn machines_on_disk(&self) -> usize {
        let entries = fs::read_dir(self.path("state/unilith/machines"));
        entries.map_or(0, |e| e.flatten().filter(|e| e.path().is_dir()).count())
    }
}

impl Drop for Unilith {
    fn drop(&mut self) {
        let ids = self.run(&["ps", "-aq"]).out;
        let ids: Vec<&str> = ids.lines().collect();
        if !ids.is_empty() {
            self.run(&[&["rm", "-f"], ids.as_slice()].concat());
        }
    }
}

/// A machine in the background.
pub struct Machine<'a> {
    unilith: &'a Unilith,
    pub id: String,
    /// What `run` told the user.
    pub said: String,
}

impl Machine<'_> {
    /// The host's address of a port of the machine: the machine's own where it has one, else the published one.
    #[track_caller]
    pub fn at(&self, port: u16) -> SocketAddr {
        let state = self.unilith.inspect(&self.id)["state"].clone();
        if let Some(address) = state["connection"]["guest"].as_str() {
            return SocketAddr::new(address.parse().expect("an address"), port);
        }
        self.published(port)
    }

    /// Where a port of the machine is published.
    #[track_caller]
    pub fn published(&self, port: u16) -> SocketAddr {
        let state = self.unilith.inspect(&self.id)["state"].clone();
        let all = state["published"].as_array().cloned().unwrap_or_default();
        let found = all.iter().find(|p| p["guest"] == port);
        let found = found
            .and_then(|p| p["host"].as_u64())
            .unwrap_or_else(|| panic!("port {port} is not published: {state}"));
        SocketAddr::from((Ipv4Addr::LOCALHOST, found as u16))
    }

    /// What it has printed so far.
    pub fn log(&self) -> String {
        let ran = self.unilith.run(&["logs", &self.id]);
        // Tests of where messages go look at the streams themselves.
        ran.out + &ran.err
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- what the machine printed\n{}", self.log());
        }
        self.unilith.run(&["rm", "-f", &self.id]);
    }
}

/// Runs a client to its end.
pub fn client(program: &str, args: &[&str]) -> Ran {
    finish(Command::new(program).args(args).stdin(Stdio::null()), PATIENCE)
}

/// Builds a program of `tests/programs` with these words before `-o FILE`; it goes away with the test.
#[track_caller]
pub fn compile(unilith: &Unilith, compiler: &[&str], source: &str, env: &[(&str, &str)]) -> String {
    let target = unilith.path("program").display().to_string();
    let source = root().join("tests/programs").join(source);
    let mut command = Command::new(compiler[0]);
    command.args(&compiler[1..]).args(["-o", &target]).arg(source).envs(env.iter().copied());
    finish(&mut command, Duration::from_secs(300)).ok();
    target
}

/// Compiles a program of this repository with `unilith cc`, so that it can be linked with the kernel; its path.
pub fn compile_to_link(unilith: &Unilith, source: &str, more: &[&str]) -> String {
    let name = source.rsplit('/').next().unwrap_or(source).trim_end_matches(".c");
    let target = unilith.path(name).display().to_string();
    let source = root().join(source).display().to_string();
    let words = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", &target, &source];
    // The first one builds the C library.
    finish(&mut unilith.command(&[&words[..], more].concat()), BUILD_KERNEL).ok();
    target
}

/// Runs a client that may take longer than the usual patience.
pub fn slow_client(program: &str, args: &[&str], patience: Duration) -> Ran {
    finish(Command::new(program).args(args).stdin(Stdio::null()), patience)
}

/// Runs a command to its end; fails the test if that takes longer than `patience`. What our command builds first, or waits for
/// while another one builds, does not count: it has [`BUILD_KERNEL`].
#[track_caller]
pub fn finish(command: &mut Command, patience: Duration) -> Ran {
    let begin = Instant::now();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
    let id = child.id();
    let output = wait(child, patience).unwrap_or_else(|at| {
        panic!("{command:?} (pid {id}) did not end in {:?}", at.duration_since(begin));
    });
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ran {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
        took: begin.elapsed(),
    }
}

/// The output of a child that ends in time; one that does not is ended, and when that was.
fn wait(mut child: Child, patience: Duration) -> Result<Output, Instant> {
    let (id, begin) = (child.id(), Instant::now());
    let (send, events) = std::sync::mpsc::channel();
    let (said, errors) = (send.clone(), child.stderr.take().expect("it was asked for"));
    let errors = std::thread::spawn(move || {
        let (mut text, mut errors) = (Vec::new(), BufReader::new(errors));
        loop {
            let start = text.len();
            match errors.read_until(b'\n', &mut text) {
                Ok(0) | Err(_) => return text,
                Ok(_) if is_of_a_build(&text[start..]) => said.send(None).unwrap_or_default(),
                Ok(_) => {}
            }
        }
    });
    std::thread::spawn(move || send.send(Some(child.wait_with_output())));
    let mut end = begin + limit(patience);
    loop {
        match events.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(None) => end = end.max(begin + limit(patience.max(BUILD_KERNEL))),
            Ok(Some(output)) => {
                let output = output.expect("a child's output can be read");
                return Ok(Output { stderr: errors.join().expect("it reads"), ..output });
            }
            Err(_) => {
                signal(Signal::KILL, id);
                return Err(end);
            }
        }
    }
}

/// Whether the command says in this line that it builds something, or waits for another one that does.
fn is_of_a_build(line: &[u8]) -> bool {
    let line = String::from_utf8_lossy(line);
    line.strip_prefix("unilith: ").is_some_and(|step| {
        step.starts_with("building ") || step.starts_with("waiting for another unilith that ")
    })
}

/// Sends a signal to a process that the test has started or found in a machine's record.
#[track_caller]
pub fn signal(signal: Signal, pid: u32) {
    let target = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(target, signal).unwrap_or_else(|e| panic!("cannot send {signal:?} to {pid}: {e}"));
}

/// Words that run the shell script behind them where it can mount without anybody else seeing it. There is no such place
/// in a chroot, whose root is no mount point: the script has to unmount at its end.
pub fn with_own_mounts() -> Vec<String> {
    let mut words = vec!["unshare".to_string(), "-m".into()];
    let private = Command::new(&words[0]).args(["-m", "true"]).stderr(Stdio::null()).status();
    if !private.is_ok_and(|s| s.success()) {
        words.clear();
    }
    words.extend(["sh".into(), "-c".into()]);
    words
}

/// Asks again and again until the answer is yes; fails the test after a while.
#[track_caller]
pub fn eventually(what: &str, question: impl FnMut() -> bool) {
    eventually_within(PATIENCE, what, question);
}

/// As [`eventually`], with patience of one's own.
#[track_caller]
pub fn eventually_within(patience: Duration, what: &str, mut question: impl FnMut() -> bool) {
    let begin = Instant::now();
    let patience = limit(patience);
    while !question() {
        assert!(begin.elapsed() < patience, "not within {patience:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Ports below those that this host gives to clients (net.ipv4.ip_local_port_range), so that none of them takes one meanwhile.
const PORTS: std::ops::Range<u64> = 20_000..32_000;

/// A port of this host that was free a moment ago.
pub fn free_port() -> u16 {
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let random = || RandomState::new().hash_one(()) % (PORTS.end - PORTS.start) + PORTS.start;
    let mut ports = std::iter::repeat_with(|| random() as u16).take(1000);
    ports.find(free).expect("one of many ports is free")
}

/// A connection with time limits, so that a machine that hangs fails the test.
#[track_caller]
pub fn connect(to: SocketAddr) -> TcpStream {
    let patience = limit(PATIENCE);
    let stream = TcpStream::connect_timeout(&to, limit(Duration::from_secs(10)))
        .unwrap_or_else(|e| panic!("cannot connect to {to}: {e}"));
    let limits =
        stream.set_read_timeout(Some(patience)).and_then(|()| stream.set_write_timeout(Some(patience)));
    limits.expect("time limits that are not zero");
    stream
}

/// Whether a process is there.
pub fn is_alive(pid: u64) -> bool {
    // A zombie is none: it only waits for its parent to notice.
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|s| !s.rsplit_once(')').is_some_and(|(_, r)| r.starts_with(" Z")))
}
