// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which test binaries run, how often and with which words.

use super::{
    Args,
    binaries::{self, Binary},
    pool::Job,
};
use crate::{fault::Result, output::say, repository};
use std::{ffi::OsString, path::Path};
use unilith_machine::{record::Network, support};

/// Whole-system tests that run on process machines as well. The others are of QEMU, of the command with a guest of a few
/// bytes, of pages and packages, or would build further kernels (`kernel`, `overlay`: they pass there with
/// UNILITH_TEST_MACHINE=process).
const ON_PROCESS_MACHINES: [&str; 29] = [
    "allocators",
    "debian",
    "disks",
    "exec",
    "forking",
    "languages",
    "lives",
    "memcached",
    "menu",
    "mounts",
    "network",
    "networks",
    "nginx",
    "overlay_programs",
    "processes",
    "profile",
    "programs",
    "ptrace",
    "raw",
    "redis",
    "registry",
    "sequences",
    "servers",
    "snapshots",
    "sqlite",
    "static_glibc",
    "static_image",
    "static_programs",
    "trace",
];

/// Tests of whole machines that have a module `long`.
const WITH_LONG: [&str; 16] = [
    "clients",
    "combinations",
    "crio",
    "disk",
    "fuzz",
    "kubernetes",
    "kvm",
    "lives",
    "lto",
    "pages",
    "popular",
    "process_suites",
    "processors",
    "static_programs",
    "systemd",
    "xen",
];

/// Whole-system tests of what is built with Linux. They are marked as ignored, so that `cargo test` alone does not build
/// Linux.
const WITH_LINUX: [&str; 4] = ["linked", "observers", "suites", "trial"];

/// Modules of tests that only `--long` runs: kernels that check themselves take half an hour each to build.
const LONG: [&str; 4] = ["--skip", "checks::", "--skip", "long::"];

/// What takes longest, by name: it begins first, so that the last to end does not run alone. Not what would wait for the
/// first one's builds of Linux.
const FIRST: [&str; 4] = ["linux/machines", "tests/pages", "tests/processes", "tests/kernel"];

/// Two tests of one binary at a time would be four machines on two processors: times stay meaningful.
const ONE_BY_ONE: &str = "--test-threads=1";

const HOST: &str = "host tests";
const SYSTEM: &str = "whole-system tests";
const PROCESS: &str = "process machines";
const LINUX: &str = "Linux's levels";
const LINKED: &str = "programs of Linux's levels";
const MINUTES: &str = "what takes minutes";
const KVM: &str = "machines under KVM";

/// The jobs of a run in the order in which they begin, their binaries built. None if something does not compile.
pub fn jobs(root: &Path, args: &Args) -> Result<Option<Vec<Job>>> {
    if args.kvm {
        return kvm(root, args);
    }
    let filter: Vec<&str> = args.filter.as_deref().into_iter().collect();
    let mut jobs = Vec::new();
    let host = ["--workspace", "--exclude", "unilith-tests", "--exclude", "kernel"];
    let all = ["--workspace", "--exclude", "kernel"];
    let system = ["-p", "unilith-tests", "-p", "unilith-linux"];
    // All at once, for cargo builds what they share only once then.
    let wanted = match (args.host, args.system) {
        (true, _) => &host[..],
        (_, true) => &system,
        _ => &all,
    };
    let Some(binaries) = binaries::build(root, wanted)? else {
        return Ok(None);
    };
    // cargo tells places without links on the way.
    let tests = root.join("tests").canonicalize().unwrap_or_default();
    let (systems, hosts): (Vec<_>, Vec<_>) = binaries.into_iter().partition(|binary| binary.folder == tests);
    for binary in &hosts {
        if !args.system {
            jobs.push(job(HOST, "", binary, &filter, &[]));
        }
        if !args.host && binary.name == "linux/machines" {
            let words = [&["--ignored", ONE_BY_ONE], &filter[..], unless(args.long, &LONG)].concat();
            jobs.push(job(LINUX, "", binary, &words, &[]));
            if args.long {
                // Two more kernels to build. Kernels that check themselves, and what takes hours, are of the other Linux only.
                let words = [&["--ignored", ONE_BY_ONE], &filter[..], &LONG].concat();
                jobs.push(job(LINUX, " with Linux 6.12", binary, &words, &[("UNILITH_TEST_LINUX", "6.12")]));
            }
        }
    }
    if !args.system {
        jobs.push(examples(root, &host, &filter));
    }
    if !args.host {
        whole_systems(args, &systems, &filter, &mut jobs);
    }
    jobs.sort_by_key(|job| FIRST.iter().position(|name| job.name.starts_with(name)).unwrap_or(FIRST.len()));
    Ok(Some(jobs))
}

/// Jobs that boot machines.
fn whole_systems(args: &Args, binaries: &[Binary], filter: &[&str], jobs: &mut Vec<Job>) {
    let has_process_machines = match support::lack_with(&Network::Auto) {
        Some(why) => {
            say!("== {PROCESS}: skipped: {why}");
            false
        }
        None => true,
    };
    let on_process = [("UNILITH_TEST_MACHINE", "process")];
    // What takes minutes under software emulation runs then, too.
    let slow = [("UNILITH_TEST_LONG", "1")];
    let words = [&[ONE_BY_ONE], filter].concat();
    for binary in binaries {
        jobs.push(job(SYSTEM, "", binary, &words, unless(!args.long, &slow)));
        if has_process_machines && ON_PROCESS_MACHINES.contains(&binary.file()) {
            jobs.push(job(PROCESS, " on process machines", binary, &words, &on_process));
        }
        if args.long && WITH_LONG.contains(&binary.file()) {
            let words = [&words[..], &["--ignored", "--nocapture"]].concat();
            jobs.push(job(
                MINUTES,
                ", what takes minutes",
                binary,
                &words,
                unless(!has_process_machines, &on_process),
            ));
        }
        if WITH_LINUX.contains(&binary.file()) {
            let words = [&words[..], &["--ignored"], unless(args.long, &LONG)].concat();
            jobs.push(job(LINKED, " with Linux", binary, &words, &[]));
        }
    }
}

/// The rig that emulates KVM, with the whole-system tests in it or a few.
fn kvm(root: &Path, args: &Args) -> Result<Option<Vec<Job>>> {
    let Some(binaries) = binaries::build(root, &["-p", "unilith-tests", "--test", "kvm"])? else {
        return Ok(None);
    };
    let files = ON_PROCESS_MACHINES.join(" ");
    let filter = args.filter.as_deref();
    let mut env = vec![
        ("UNILITH_TEST_KVM", if args.long { "suite" } else { "smoke" }),
        ("UNILITH_TEST_KVM_FILES", files.as_str()),
    ];
    // The whole-system tests in there are told apart by kind of machine and file.
    let tests = if args.long { Some("whole_system_tests") } else { filter };
    env.extend(filter.filter(|_| args.long).map(|only| ("UNILITH_TEST_KVM_ONLY", only)));
    let words: Vec<&str> = [ONE_BY_ONE, "--nocapture"].into_iter().chain(tests).collect();
    Ok(Some(binaries.iter().map(|binary| job(KVM, "", binary, &words, &env)).collect()))
}

fn job(part: &'static str, how: &str, binary: &Binary, args: &[&str], env: &[(&str, &str)]) -> Job {
    Job {
        part,
        name: format!("{}{how}", binary.name),
        program: binary.executable.clone(),
        args: args.iter().map(OsString::from).collect(),
        // As cargo would set it: tests find their data by it.
        env: env
            .iter()
            .map(|(key, value)| (OsString::from(key), OsString::from(value)))
            .chain([("CARGO_MANIFEST_DIR".into(), binary.folder.clone().into())])
            .collect(),
        folder: binary.folder.clone(),
    }
}

/// The examples in the documentation of the host's crates, which only cargo can build and run.
fn examples(root: &Path, packages: &[&str], filter: &[&str]) -> Job {
    let words = [&["test", "--doc", "--locked"], packages, &["--"], filter].concat();
    Job {
        part: HOST,
        name: "examples of the documentation".into(),
        program: repository::cargo(),
        args: words.iter().map(OsString::from).collect(),
        env: Vec::new(),
        folder: root.into(),
    }
}

fn unless<T>(not: bool, words: &[T]) -> &[T] {
    if not { &[] } else { words }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs as long as its caller says, so only by hand.
    const BY_HAND: [&str; 1] = ["soak"];

    #[test]
    fn no_test_is_ignored_for_ever() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/tests");
        for entry in std::fs::read_dir(tests).unwrap() {
            let path = entry.unwrap().path();
            // Folders hold modules of the files beside them.
            if path.is_dir() {
                continue;
            }
            let name = path.file_stem().and_then(std::ffi::OsStr::to_str).unwrap();
            let modules = std::fs::read_dir(path.with_extension("")).into_iter().flatten();
            let files = modules.map(|module| module.unwrap().path()).chain([path.clone()]);
            let is_run = [&WITH_LONG[..], &WITH_LINUX, &BY_HAND].concat().contains(&name);
            let ignores = files.map(std::fs::read_to_string).any(|text| text.unwrap().contains("#[ignore"));
            assert!(is_run || !ignores, "{name}: `./unilith test --long` never runs what it ignores");
            assert!(ignores || !WITH_LONG.contains(&name), "{name}: nothing of it takes long");
        }
    }
}
