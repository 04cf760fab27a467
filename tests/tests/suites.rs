// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What others wrote to test their programs, from Debian's source, on ordinary Linux and at the levels of UKL: the same tests
//! must pass. glibc's tests of threads and signals run in the machine, those of Redis and memcached against it.
//!
//! A selection at two levels, unless `UNILITH_SUITES=all` asks for everything at every level, which takes hours.
//! `UNILITH_SUITES=cpl0:cpl0,byp` asks for the selection at these levels, `all:cpl0:cpl0,byp` for everything at them. What a level
//! fails is run once more there: the suites have limits of time that a busy computer under software emulation does not keep.
//! What they print is in `target/suites`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};
use unilith_tests::{Machine, Unilith, eventually, finish, root, source};

/// Values of `--ukl` beside none, which is ordinary Linux. Those with `base` are for programs that are linked into Linux.
const LEVELS: [&str; 5] = ["cpl0", "cpl0,byp", "cpl0,byp,call,ret,shortcut", "base", "base,byp,shortcut"];
/// Those of the selection: the ones at which most is different.
const FEW: [&str; 2] = [LEVELS[2], LEVELS[4]];
/// The longest that a machine may take for its part, and a build.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Seconds for one test of glibc, and how many run at once: most of them sleep.
const SECONDS: &str = "120";
const AT_ONCE: &str = "8";
/// Of glibc's tests the selection, which are those that are linked into Linux as well: as many as there are places
/// beside the program that runs them.
const GLIBC: [&str; 14] = [
    "tst-cancel4",
    "tst-cancel16",
    "tst-cond4",
    "tst-exec1",
    "tst-fork1",
    "tst-kill1",
    "tst-minsigstksz-1",
    "tst-mutex1",
    "tst-mutexpi6",
    "tst-robust1",
    "tst-sem14",
    "tst-sigaction",
    "tst-signal3",
    "tst-timer",
];
/// Of Redis' and memcached's.
const REDIS: [&str; 3] = ["unit/type/hash", "unit/protocol", "unit/multi"];
const REDIS_ALL: [&str; 24] = [
    "unit/auth",
    "unit/bitfield",
    "unit/bitops",
    "unit/dump",
    "unit/expire",
    "unit/geo",
    "unit/hyperloglog",
    "unit/keyspace",
    "unit/latency-monitor",
    "unit/multi",
    "unit/protocol",
    "unit/pubsub",
    "unit/querybuf",
    "unit/scan",
    "unit/scripting",
    "unit/sort",
    "unit/type/hash",
    "unit/type/incr",
    "unit/type/list",
    "unit/type/set",
    "unit/type/stream",
    "unit/type/string",
    "unit/type/zset",
    "unit/tracking",
];
const MEMCACHED: [&str; 3] = ["cas", "getset", "incrdecr"];

/// Names of tests and whether they passed.
type Results = BTreeMap<String, bool>;

/// What is asked for: everything or the selection, and the levels beside ordinary Linux.
struct Asked {
    all: bool,
    levels: Vec<&'static str>,
}

fn asked() -> Asked {
    let text = std::env::var("UNILITH_SUITES").unwrap_or_default();
    let (all, named): (Vec<&str>, Vec<&str>) =
        text.split(':').filter(|word| !word.is_empty()).partition(|word| *word == "all");
    let level = |name: &&str| {
        let known = LEVELS.iter().find(|level| *level == name);
        *known.unwrap_or_else(|| panic!("UNILITH_SUITES={text}: no level `{name}`; there are {LEVELS:?}"))
    };
    let levels: Vec<_> = named.iter().map(level).collect();
    let all = !all.is_empty();
    let unnamed: &[&str] = if all { &LEVELS } else { &FEW };
    Asked { all, levels: if levels.is_empty() { unnamed.to_vec() } else { levels } }
}

fn is_linked(level: &str) -> bool {
    level.split(',').any(|word| word == "base")
}

fn words(level: &str) -> Vec<&str> {
    if level.is_empty() { vec![] } else { vec!["--ukl", level] }
}

/// Keeps what a suite printed, and says how it went.
fn keep(suite: &str, level: &str, text: &str, results: &Results) {
    let level = if level.is_empty() { "linux" } else { level };
    source::keep(&format!("{suite}-{level}"), text);
    let passed = results.values().filter(|passed| **passed).count();
    eprintln!("{suite} at {level}: {passed} of {} passed", results.len());
    assert!(passed > 0, "{suite} at {level}: {text}");
}

/// Runs a suite at a level (none: ordinary Linux), at least those of its tests that are named, or all.
type Run<'a> = dyn FnMut(&str, Option<&BTreeSet<String>>) -> Results + 'a;

/// Runs a suite on ordinary Linux and at each of these levels, as far as it can be run there: what passes on the former must pass
/// at the latter, at the second try if not at the first.
fn compare(suite: &str, levels: &[&str], can: &dyn Fn(&str, &str) -> bool, run: &mut Run) {
    let linux = run("", None);
    let mut lost = Vec::new();
    for level in levels {
        let passing = linux.iter().filter(|(name, passed)| **passed && can(level, name));
        let mut missing: BTreeSet<String> = passing.map(|(name, _)| name.clone()).collect();
        for _ in 0..2 {
            let here = run(level, Some(&missing));
            missing.retain(|name| here.get(name) != Some(&true));
            if missing.is_empty() {
                break;
            }
            eprintln!("{suite} at {level}, not passed: {missing:?}");
        }
        if !missing.is_empty() {
            lost.push((level, missing));
        }
    }
    assert!(lost.is_empty(), "{suite}: these pass on ordinary Linux: {lost:#?}");
}

/// glibc's tests, compiled into a root file system.
fn compile_glibc(unilith: &Unilith, source: &Path, name: &str, list: &[&str], compiler: &str) -> PathBuf {
    let out = unilith.path(name);
    fs::write(unilith.path("names"), list.join("\n")).expect("the scratch directory can be written");
    let script = root().join("tests/suites/glibc.sh").display().to_string();
    let list = if list.is_empty() { "''" } else { "names" };
    let line = format!("bash {script} {} {} {list} {compiler}", source.display(), out.display());
    eprint!("{}", finish(&mut unilith.shell(&line), PATIENCE).ok().out);
    out.join("image")
}

/// Runs those of an image that are named, or all.
fn run_glibc(unilith: &Unilith, image: &Path, level: &str, names: Option<&BTreeSet<String>>) -> Results {
    let list = fs::read_to_string(image.join("list")).expect("the list of tests");
    let named = |line: &&str| {
        let name = line.split('\t').next().and_then(|path| path.strip_prefix("/t/"));
        names.is_none_or(|names| name.is_some_and(|name| names.contains(name)))
    };
    let chosen: Vec<&str> = list.lines().filter(named).collect();
    fs::write(image.join("chosen"), chosen.join("\n") + "\n").expect("the image can be written");
    let run = ["run", "--rm", "--machine", "microvm", "--kernel", "linux", "--network", "none", "-m", "1G"];
    let image = image.display().to_string();
    let program = [&image, "/suite", "/chosen", SECONDS, AT_ONCE];
    let ran = finish(&mut unilith.command(&[&run[..], &words(level), &program].concat()), PATIENCE).ok();
    let results = ran.out.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let how = words.next()?;
        let name = words.next()?.strip_prefix("/t/")?;
        (how != "SKIP").then(|| (name.to_string(), how == "PASS"))
    });
    let results = results.collect();
    keep("glibc", level, &ran.out, &results);
    results
}

/// Builds what a machine with this program of the catalogue takes, before one has to be there in time.
fn prepare(unilith: &Unilith, level: &str, program: &str) {
    let build = ["run", "--rm", "--machine", "microvm", "--kernel", "linux"];
    let version = [program, "--", "--version"];
    finish(&mut unilith.command(&[&build[..], &words(level), &version].concat()), PATIENCE).ok();
}

/// A machine that serves a program of the catalogue.
fn serve<'a>(unilith: &'a Unilith, level: &str, program: &[&str]) -> Machine<'a> {
    let run = ["run", "-d", "--machine", "microvm", "--kernel", "linux", "-m", "512M"];
    let ran = finish(&mut unilith.command(&[&run[..], &words(level), program].concat()), PATIENCE).ok();
    eventually("the program serves", || unilith.run(&["ps"]).out.contains("ready"));
    unilith.machine(ran.out.trim())
}

/// Runs files of Redis' suite; its tests by name.
fn run_redis(unilith: &Unilith, source: &Path, level: &str, files: &[&str]) -> Results {
    let server = ["redis", "--", "--protected-mode", "no", "--save", "", "--dir", "/data"];
    let server = [&server[..], &["--enable-debug-command", "yes"]].concat();
    prepare(unilith, level, "redis");
    let (mut text, mut results) = (String::new(), Results::new());
    for file in files {
        // Each file finds a server that nobody has asked anything.
        let machine = serve(unilith, level, &server);
        let at = machine.at(6379);
        let mut suite = Command::new("timeout");
        suite.args(["900", "tclsh", "tests/test_helper.tcl", "--host", &at.ip().to_string(), "--port"]);
        suite.args(["6379", "--clients", "1", "--tags", "-slow", "--single", file]).current_dir(source);
        // On a terminal that has them, colours are around the words.
        let ran = finish(suite.env("TERM", "dumb"), PATIENCE);
        for line in ran.out.lines() {
            let Some((how, name)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) else {
                continue;
            };
            let name = name.split(" in tests/").next().unwrap_or(name);
            let name = name.rsplit_once(" (").map_or(name, |(name, _)| name);
            match how {
                "ok" => drop(results.insert(format!("{file}: {name}"), true)),
                "err" | "exception" => drop(results.insert(format!("{file}: {name}"), false)),
                _ => {}
            }
        }
        text.push_str(&ran.out);
    }
    keep("redis", level, &text, &results);
    results
}

/// Runs files of memcached's suite against one machine.
fn run_memcached(unilith: &Unilith, source: &Path, level: &str, files: &BTreeSet<String>) -> Results {
    prepare(unilith, level, "memcached");
    let (mut text, mut results) = (String::new(), Results::new());
    for file in files {
        let machine = serve(unilith, level, &["memcached"]);
        let mut suite = Command::new("timeout");
        let at = machine.at(11211);
        suite.args(["60", "perl", "-Ilib", &format!("t/{file}.t")]).current_dir(source);
        let ran = finish(suite.env("T_MEMD_USE_DAEMON", at.to_string()), PATIENCE);
        results.insert(file.clone(), ran.code == Some(0));
        text.push_str(&format!("{file}: {ran}\n"));
    }
    keep("memcached", level, &text, &results);
    results
}

/// Suites that take minutes.
mod long {
    use super::*;

    #[test]
    #[ignore = "builds Linux and fetches glibc's source"]
    fn glibcs_own_tests_of_threads_and_signals_pass_as_on_ordinary_linux() {
        let unilith = Unilith::new();
        let source = source::unpack(&unilith, "glibc");
        let Asked { all, levels } = asked();
        let ordinary = compile_glibc(&unilith, &source, "glibc-tests", if all { &[] } else { &GLIBC }, "");
        let linked = levels.iter().any(|level| is_linked(level)).then(|| {
            let compiler = format!("{} linux cc", root().join("unilith").display());
            compile_glibc(&unilith, &source, "glibc-linked", &GLIBC, &compiler)
        });
        let can = |level: &str, name: &str| !is_linked(level) || GLIBC.contains(&name);
        compare("glibc", &levels, &can, &mut |level, names| {
            let image = linked.as_ref().filter(|_| is_linked(level)).unwrap_or(&ordinary);
            run_glibc(&unilith, image, level, names)
        });
    }

    #[test]
    #[ignore = "builds Linux and Redis, and fetches its source"]
    fn redis_own_suite_passes_as_on_ordinary_linux() {
        let unilith = Unilith::new();
        let source = source::unpack(&unilith, "redis");
        let Asked { all, levels } = asked();
        let files: &[&str] = if all { &REDIS_ALL } else { &REDIS };
        compare("redis", &levels, &|_, _| true, &mut |level, names| {
            let has = |file: &&&str| {
                let of_file = format!("{file}: ");
                names.is_none_or(|names| names.iter().any(|name| name.starts_with(&of_file)))
            };
            let files: Vec<&str> = files.iter().filter(has).copied().collect();
            run_redis(&unilith, &source, level, &files)
        });
    }

    #[test]
    #[ignore = "builds Linux and memcached, and fetches its source"]
    fn memcacheds_own_suite_passes_as_on_ordinary_linux() {
        let unilith = Unilith::new();
        let source = source::unpack(&unilith, "memcached");
        // The tests ask a binary beside them what it can do.
        let build = "CC=cc ./configure --disable-docs --disable-coverage >log 2>&1 && make memcached >>log 2>&1 && \
                     ln memcached memcached-debug";
        finish(Command::new("sh").args(["-c", build]).current_dir(&source), PATIENCE).ok();
        let every = fs::read_dir(source.join("t")).expect("its tests").flatten();
        let every = every.filter_map(|e| Some(e.file_name().to_str()?.strip_suffix(".t")?.to_string()));
        let Asked { all, levels } = asked();
        let files = if all { every.collect() } else { MEMCACHED.map(String::from).into() };
        // Those that start servers of their own, with other options, cannot pass anywhere.
        compare("memcached", &levels, &|_, _| true, &mut |level, names| {
            run_memcached(&unilith, &source, level, names.unwrap_or(&files))
        });
    }
}
