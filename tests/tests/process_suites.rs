// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the authors of programs of several processes wrote to test them, from Debian's source, on the micro-library OS: it passes
//! as it does on Linux. What it prints is in `target/suites`.

use std::{collections::BTreeSet, fs, path::Path, process::Command, time::Duration};
use unilith_tests::{Unilith, finish, root, slow_client, source, tested_machine};

/// The longest that a suite may take; under software emulation the longest takes eleven minutes beside other work.
const SUITE: Duration = Duration::from_secs(3600);

fn script(name: &str) -> String {
    root().join("tests/suites").join(name).display().to_string()
}

/// `-v` for a folder that has the same path on both sides.
fn in_place(folder: &Path) -> String {
    format!("{0}:{0}", folder.display())
}

/// Tests that passed and that failed, by what pg_regress prints: `test NAME ... ok 12 ms`, or without `test` in a group.
fn results(printed: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let (mut passed, mut failed) = (BTreeSet::new(), BTreeSet::new());
    for line in printed.lines() {
        let Some((name, how)) = line.split_once(" ... ") else { continue };
        let name = name.trim_start_matches("test ").trim();
        let _ = if how.trim_start().starts_with("ok") { passed.insert(name) } else { failed.insert(name) };
    }
    (passed, failed)
}

#[test]
fn the_results_of_pg_regress_are_read() {
    let printed = "parallel group (2 tests):  int2 char\n     int2                         ... ok          120 ms\n     \
                   char                         ... FAILED      20 ms\ntest sanity_check                 ... ok 7 ms\n";
    let (passed, failed) = results(printed);
    assert_eq!(
        (Vec::from_iter(passed), Vec::from_iter(failed)),
        (vec!["int2", "sanity_check"], vec!["char"])
    );
}

/// What takes minutes: `./unilith test --long`.
mod long {
    use super::*;

    /// `make installcheck` from the host, 217 files of SQL in groups of up to twenty sessions. Debian's archive may hold the source of
    /// an older release than the server's only; then the output of few tests differs by what was changed between them.
    #[test]
    #[ignore = "fetches PostgreSQL's source, takes minutes"]
    fn postgresqls_regression_tests_pass_against_a_machine() {
        let unilith = Unilith::new();
        let source = source::unpack(&unilith, "postgresql-15");
        let ready = unilith.path("ready");
        let mut prepare = Command::new(script("postgresql.sh"));
        finish(prepare.arg(&source).arg(&ready), SUITE).ok();
        let (tests, written) = (ready.join("tests"), ready.join("written"));
        unilith.fetch("postgresql");
        let words = ["-m", "2G", "-p", "127.0.0.1::5432", "-v", &in_place(&tests), "-v", &in_place(&written)];
        let machine = unilith.start(&[&words[..], &["postgresql"]].concat());
        let at = machine.at(5432);
        let (host, port) = (at.ip().to_string(), at.port().to_string());
        let server = ["-h", &host, "-p", &port, "-U", "postgres"];
        let show = [&server[..], &["-Atc", "show server_version"]].concat();
        let version = slow_client("psql", &show, Duration::from_secs(60)).ok().out;

        let mut suite = Command::new(ready.join("bin/pg_regress"));
        suite.arg(format!("--host={host}")).arg(format!("--port={port}")).arg("--user=postgres");
        for (option, folder) in [("inputdir", &tests), ("outputdir", &written), ("dlpath", &tests)] {
            suite.arg(format!("--{option}={}", folder.display()));
        }
        suite.arg(format!("--bindir={}", ready.join("bin").display())).arg("--max-concurrent-tests=20");
        suite.arg(format!("--schedule={}", tests.join("parallel_schedule").display())).current_dir(&written);
        let ran = finish(suite.env("LD_LIBRARY_PATH", ready.join("lib")), SUITE);
        let differences = fs::read_to_string(written.join("regression.diffs")).unwrap_or_default();
        source::keep("postgresql-micro", &format!("{ran}\n{differences}"));
        let (passed, failed) = results(&ran.out);
        eprintln!("postgresql: {} passed, failed: {failed:?}", passed.len());
        assert!(passed.len() > 200, "{ran}");
        let of_source = fs::read_to_string(source.join("debian/changelog")).expect("Debian's changelog");
        let version = version.split_whitespace().next().expect("a version");
        let is_same = of_source.starts_with(&format!("postgresql-15 ({version}-"));
        let allowed = if is_same { 0 } else { 3 };
        assert!(failed.len() <= allowed, "the server is {version}: {failed:?}\n{differences}");
    }

    /// Stressors that find something wrong: there is no swapon(2) and no loop device; FIOQSIZE of a file with holes and the set of semaphores
    /// that `resources` took away are reported on Linux, too.
    const WRONG: [&str; 4] = ["file-ioctl", "loop", "sem-sysv", "swap"];

    /// All of stress-ng's stressors for a second each, in one machine that goes on whatever they do to it.
    #[test]
    #[ignore = "takes ten minutes"]
    fn every_stressor_of_stress_ng_is_survived() {
        let unilith = Unilith::new();
        let image = "debian:stress-ng";
        unilith.fetch(image);
        let machine = ["-m", "1G", "--network", "none", "--set", "ipv6=on", "--set", "tun=on", image];
        let mut words = vec!["--sequential", "1", "-t", "1", "--verify", "--temp-path", "/tmp"];
        if tested_machine() != "process" {
            // Programs of virtual machines run at the kernel's privilege: what they do with it is not stopped.
            words.extend(["-x", "priv-instr"]);
        }
        let ran = unilith.program_within(&[&machine[..], &words].concat(), SUITE);
        source::keep(&format!("stress-ng-{}", tested_machine()), &ran.to_string());
        // 2: some found something wrong; 3: some lacked something.
        assert!(matches!(ran.code, Some(0 | 2 | 3)), "{ran}");
        let found = ran.out.lines().chain(ran.err.lines()).filter_map(|line| {
            let (_, what) = line.split_once("fail:")?;
            what.split_once("] ")?.1.split(':').next()
        });
        let found: BTreeSet<&str> = found.filter(|name| !WRONG.contains(name)).collect();
        assert!(found.is_empty(), "{found:?}: {ran}");
        assert!(ran.to_string().contains("run completed in"), "{ran}");
    }

    /// bash's tests by their own scripts, here and on this Linux.
    #[test]
    #[ignore = "fetches bash's source, takes minutes"]
    fn bashs_own_tests_pass_as_on_this_linux() {
        let unilith = Unilith::new();
        let source = source::unpack(&unilith, "bash");
        let results = |name: &str| {
            let text = fs::read_to_string(unilith.path(name).join("summary")).expect("a summary");
            source::keep(&format!("bash-{}-{name}", tested_machine()), &text);
            text.lines().filter_map(|line| line.strip_prefix("PASS ").map(str::to_string)).collect()
        };
        let tests = |name: &str| {
            let folder = unilith.path(name);
            let mut build = Command::new(script("bash.sh"));
            finish(build.arg("build").arg(&source).arg(&folder), SUITE).ok();
            folder
        };
        let linux = tests("tests-on-linux");
        let mut run = Command::new(script("bash.sh"));
        finish(run.arg("run").arg(unilith.path("linux")).current_dir(&linux), SUITE).ok();
        let (linux, here): (BTreeSet<String>, BTreeSet<String>) = {
            let folder = tests("tests");
            fs::copy(script("bash.sh"), folder.join("bash.sh"))
                .expect("the scratch directory can be written");
            fs::create_dir(unilith.path("here")).expect("the scratch directory can be written");
            let image = "debian:bash,diffutils,coreutils,grep,sed,gawk,findutils";
            unilith.fetch(image);
            let words =
                ["--network", "none", "-m", "1G", "-v", "./tests:/t", "-v", "./here:/here", "-w", "/t"];
            let program = ["--entrypoint", "/bin/sh", image, "/t/bash.sh", "run", "/here"];
            unilith.program_within(&[&words[..], &program].concat(), SUITE).ok();
            (results("linux"), results("here"))
        };
        eprintln!("bash: {} pass on Linux, {} here", linux.len(), here.len());
        assert!(linux.len() > 50, "{linux:?}");
        let missing: Vec<&String> = linux.difference(&here).collect();
        let output =
            |name: &String| fs::read_to_string(unilith.path("here/output").join(name)).unwrap_or_default();
        assert!(
            missing.is_empty(),
            "{}",
            missing.iter().map(|n| format!("{n}:\n{}", output(n))).collect::<String>()
        );
    }
}
