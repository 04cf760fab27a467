// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random sequences of calls (`tests/programs/sequences`), run natively and in a machine: nearly all lines are the same.
//!
//! What Linux answers differs a little from release to release, and a call that answers otherwise can leave another state for
//! all calls behind it: a share of the lines may differ, which docs/reference/conformance.md explains.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;
use unilith_tests::{BUILD_KERNEL, MORE_PARTS, Unilith, compile, finish, is_skipped, is_skipped_where_slow};

const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the program where nothing but it, /proc, /dev/pts and an empty /tmp is (or $FOLDER there), in namespaces of its own; fails where
/// those cannot be made.
const NATIVELY: &str = "set -e
    ip link set lo up
    mount -t tmpfs -o mode=755 tmpfs /mnt
    mkdir -p /mnt/tmp /mnt/proc /mnt/dev/pts
    chmod 1777 /mnt/tmp
    [ -z \"$FOLDER\" ] || mount --bind \"$FOLDER\" /mnt/tmp
    cp \"$1\" /mnt/program
    shift
    mount -t devpts -o newinstance,ptmxmode=0666 devpts /mnt/dev/pts
    ln -s pts/ptmx /mnt/dev/ptmx
    mount -t proc proc /mnt/proc
    cd /mnt
    # As the root of the namespace of mounts: nobody makes users in a root of his own. -n: not everybody may keep a list of mounts.
    mount -n --move . /
    exec chroot . /program \"$@\"";

/// What is asked natively takes root: `why`.
fn is_skipped_without_root(why: &str) -> bool {
    is_skipped(!rustix::process::geteuid().is_root(), why)
}

/// Since then Linux has answered the calls of some sequences as it does now: Debian 12's own, 6.1, says EINVAL for EBADF in preadv2(2),
/// ENOTCONN for EPIPE of sockets in pairs, ENOTDIR and ENOENT of access control lists before it has looked at the list, takes fchmod(2) of sockets, and has
/// SIOCATMARK for all UNIX sockets.
const COMPARED_WITH: (u32, u32) = (6, 18);

/// Whether this computer's Linux is older than that.
fn is_skipped_on_older_linux() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux tells its release");
    let mut numbers = release.split(['.', '-']).map(|part| part.trim().parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (major, minor) = COMPARED_WITH;
    let why = format!("Linux {} answers otherwise than {major}.{minor}, as which we answer", release.trim());
    is_skipped(version < COMPARED_WITH, &why)
}

fn natively(program: &str, words: &[&str], folder: &str) -> Option<String> {
    let mut unshare = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        unshare.args(["--user", "--map-root-user"]);
    }
    unshare.args(["--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child"]);
    unshare
        .args(["sh", "-c", NATIVELY, "sh", program])
        .args(words)
        .stdin(Stdio::null())
        .env("FOLDER", folder);
    let ran = finish(&mut unshare, PATIENCE);
    let cannot = ran.code != Some(0);
    (!is_skipped(cannot, &format!("a place to run it natively: {}", ran.err.trim()))).then_some(ran.out)
}

/// At most so many lines of a thousand differ. Natively a terminal's bytes are handed on by a thread, which is late on a busy
/// computer: there is room for that.
fn nearly_the_same(source: &str, kinds: &[(&str, usize)], count: &str) {
    nearly_the_same_with(source, kinds, count, &[]);
}

/// As [`nearly_the_same`], of calls that no driver, page table or interrupt has a part in: on virtual machines only where there is time for it.
fn nearly_the_same_by_reason(source: &str, kinds: &[(&str, usize)], count: &str) {
    if !is_skipped_where_slow() {
        nearly_the_same(source, kinds, count);
    }
}

/// As [`nearly_the_same_by_reason`], of calls of a part that our own kernel has where somebody asks for it.
fn nearly_the_same_by_a_part(source: &str, kinds: &[(&str, usize)], count: &str) {
    if !unilith_tests::is_skipped_without_micro("the part is one of our own kernel")
        && !is_skipped_where_slow()
    {
        nearly_the_same_with(source, kinds, count, &MORE_PARTS);
    }
}

/// As [`nearly_the_same`], with these words for the machine.
fn nearly_the_same_with(source: &str, kinds: &[(&str, usize)], count: &str, parts: &[&str]) {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O1", "-static"], &format!("sequences/{source}.c"), &[]);
    for (kind, most) in kinds {
        let words = ["11", count, kind];
        let Some(native) = natively(&program, &words, "") else { return };
        let run = [&["--network", "none"], parts, &[program.as_str()], &words].concat();
        // With parts a kernel is built first.
        let patience = if parts.is_empty() { PATIENCE } else { BUILD_KERNEL };
        let here = finish(&mut unilith.program_command(&run), patience).ok().out;
        compare(&format!("{source} {kind}"), &native, &here, *most);
    }
}

/// At most `most` lines of a thousand differ.
fn compare(what: &str, native: &str, here: &str, most: usize) {
    let (native, here): (Vec<_>, Vec<_>) = (native.lines().collect(), here.lines().collect());
    assert_eq!(native.len(), here.len(), "{what}");
    let differ: Vec<_> = native.iter().zip(&here).filter(|(a, b)| a != b).collect();
    let shown = &differ[..differ.len().min(12)];
    assert!(
        differ.len() * 1000 <= most * native.len(),
        "{what}: {} of {} lines differ (natively, here): {shown:#?}",
        differ.len(),
        native.len()
    );
}

#[test]
fn names_and_descriptors_answer_random_calls_as_on_linux() {
    if is_skipped_without_root("what chown(2) and mknod(2) answer natively is asked by root") {
        return;
    }
    nearly_the_same("files", &[("0", 3)], "4000");
}

#[test]
fn names_and_descriptors_of_a_volume_answer_random_calls_as_on_the_host() {
    if is_skipped_without_root("what chown(2) answers natively is asked by root") {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O1", "-static"], "sequences/files.c", &[]);
    let words = ["11", "4000", "2"];
    let folder = |name| {
        let path = unilith.path(name);
        std::fs::create_dir(&path).expect("the scratch directory can be written");
        path.display().to_string()
    };
    let Some(native) = natively(&program, &words, &folder("natively")) else { return };
    let volume = format!("{}:/tmp", folder("here"));
    let run = [&["--network", "none", "-v", &volume, program.as_str()], &words[..]].concat();
    let here = finish(&mut unilith.program_command(&run), PATIENCE).ok().out;
    compare("files 2", &native, &here, 5);
}

#[test]
fn identities_and_capabilities_answer_random_calls_as_on_linux() {
    if is_skipped_without_root("what root gives up natively is asked by root") {
        return;
    }
    nearly_the_same_by_reason("identities", &[("0", 2)], "4000");
}

#[test]
fn objects_shared_by_key_or_name_answer_random_calls_as_on_linux() {
    if is_skipped_without_root("three users are tried natively by root") {
        return;
    }
    nearly_the_same_by_reason("ipc", &[("0", 1), ("1", 1), ("2", 1), ("3", 1)], "3000");
}

#[test]
fn watched_files_tell_of_random_calls_as_on_linux() {
    if is_skipped_without_root("what chown(2) and mknod(2) answer natively is asked by root") {
        return;
    }
    nearly_the_same_by_reason("watches", &[("0", 5)], "4000");
}

#[test]
fn signals_and_timers_of_a_thread_answer_random_calls_as_on_linux() {
    nearly_the_same("signals", &[("0", 3)], "4000");
}

#[test]
fn limits_priorities_and_settings_answer_random_calls_as_on_linux() {
    if is_skipped_on_older_linux() {
        return;
    }
    if is_skipped_without_root("root natively becomes another user") {
        return;
    }
    nearly_the_same_by_reason("settings", &[("0", 1), ("1", 1)], "4000");
}

#[test]
fn what_execve_is_given_runs_or_is_refused_as_on_linux() {
    if is_skipped_on_older_linux() {
        return;
    }
    if is_skipped_without_root("scripts are run natively by another user") {
        return;
    }
    nearly_the_same_by_reason("executables", &[("0", 8), ("1", 1)], "2000");
}

#[test]
fn filters_of_system_calls_answer_random_calls_as_on_linux() {
    if is_skipped_without_root("what only root may filter is asked by root") {
        return;
    }
    nearly_the_same_by_reason("filters", &[("0", 2)], "800");
}

#[test]
fn children_and_their_descriptors_answer_random_calls_as_on_linux() {
    if is_skipped_without_root("numbers are given to children by root") {
        return;
    }
    nearly_the_same_by_reason("children", &[("0", 4)], "3000");
}

#[test]
fn files_of_proc_answer_what_is_done_to_them_as_on_linux() {
    if is_skipped_without_root("what root may do natively is asked by root") {
        return;
    }
    let unilith = Unilith::new();
    let program = compile(&unilith, &["cc", "-O1", "-static"], "proc_files.c", &[]);
    // The permissions of settings are left out: some cannot be changed here.
    let lines = |out: &str| -> BTreeMap<String, String> {
        let by_path = out.lines().filter_map(|line| line.split_once(' '));
        let without_mode = |path: &str, rest: &str| match path.starts_with("/proc/sys/") {
            true => rest.split_once(' ').map_or("", |(_, rest)| rest).to_owned(),
            false => rest.to_owned(),
        };
        by_path.map(|(path, rest)| (path.to_owned(), without_mode(path, rest))).collect()
    };
    for (words, most) in [
        (&["own", "writes"][..], 5),
        (&["own", "writes", "as-a-user"][..], 2),
        (&["/proc", "writes", "as-a-user"][..], 4),
    ] {
        let Some(native) = natively(&program, words, "") else { return };
        let run = [&["--network", "none", program.as_str()], words].concat();
        let here = finish(&mut unilith.program_command(&run), PATIENCE).ok().out;
        let (native, here) = (lines(&native), lines(&here));
        let both: Vec<_> = native.keys().filter(|path| here.contains_key(*path)).collect();
        assert!(both.len() > 60, "{words:?}: {both:?}");
        let differ: Vec<_> = both.iter().filter(|path| native[**path] != here[**path]).collect();
        let shown: Vec<_> = differ.iter().map(|path| (path, &native[**path], &here[**path])).collect();
        assert!(differ.len() <= most, "{words:?}, natively and here: {shown:#?}");
    }
}

#[test]
fn rings_of_requests_answer_random_submissions_as_on_linux() {
    if is_skipped_on_older_linux() {
        return;
    }
    nearly_the_same_by_a_part("rings", &[("0", 15), ("1", 15)], "1200");
}

#[test]
fn calls_with_arguments_that_make_no_sense_are_refused_as_on_linux() {
    if is_skipped_on_older_linux() {
        return;
    }
    if is_skipped_without_root("what only root may do is asked by root") {
        return;
    }
    nearly_the_same_by_reason("arguments", &[("0", 5)], "3000");
}

#[test]
fn descriptors_and_where_they_lead_answer_random_calls_as_on_linux() {
    if is_skipped_without_root("what chown(2) and mknod(2) answer natively is asked by root") {
        return;
    }
    nearly_the_same_by_reason("descriptors", &[("0", 5)], "4000");
}

#[test]
fn memory_answers_random_calls_as_on_linux() {
    nearly_the_same("memory", &[("0", 12)], "4000");
}

#[test]
fn mounts_answer_random_calls_as_on_linux() {
    if is_skipped_without_root("other mount namespaces are entered natively by root") {
        return;
    }
    nearly_the_same_by_reason("mounts", &[("0", 8)], "4000");
}

#[test]
fn mounts_by_descriptors_answer_random_calls_as_on_linux() {
    if is_skipped_without_root("what may be mounted natively is asked by root") {
        return;
    }
    nearly_the_same_by_reason("mount_objects", &[("0", 3)], "4000");
}

#[test]
fn unions_of_directories_answer_random_calls_as_on_linux() {
    if is_skipped_on_older_linux() {
        return;
    }
    if is_skipped_without_root("attributes of `trusted.` are set natively by root") {
        return;
    }
    nearly_the_same_by_a_part("overlays", &[("0", 3), ("1", 3), ("2", 3)], "3000");
}

#[test]
fn processes_answer_random_calls_as_on_linux() {
    nearly_the_same("processes", &[("0", 5)], "900");
}

/// Numbers of namespaces that are gone are given out again natively, so that a new one may look like an old one.
#[test]
fn namespaces_answer_random_calls_as_on_linux() {
    if is_skipped_without_root("root natively makes namespaces and maps of all kinds") {
        return;
    }
    nearly_the_same_by_reason("namespaces", &[("0", 10)], "3000");
}

/// The names of threads are written by whoever may write to their files, there by all threads of the process.
#[test]
fn interfaces_addresses_routes_and_rules_answer_random_calls_of_netlink_as_on_linux() {
    if is_skipped_on_older_linux() {
        return;
    }
    if is_skipped_without_root("root: limits of what a user's namespaces may") {
        return;
    }
    nearly_the_same_by_a_part("netlink", &[("0", 3), ("1", 25), ("2", 20)], "3000");
}

#[test]
fn threads_answer_random_calls_as_on_linux() {
    if is_skipped_without_root("what root gives up natively is asked by root") {
        return;
    }
    nearly_the_same("threads", &[("0", 6)], "3000");
}

/// A key that nothing holds any more is natively there until no processor sees the credentials that held it.
#[test]
fn keys_answer_random_calls_as_on_linux() {
    if is_skipped_without_root("root natively maps the users of a namespace") {
        return;
    }
    nearly_the_same_by_a_part("keys", &[("0", 30)], "800");
}

#[test]
fn traced_processes_answer_random_calls_as_on_linux() {
    nearly_the_same("traces", &[("0", 3)], "2400");
}

/// Who waits on two words that Linux has in one bucket of its table keeps the place when moved from one to the other, so that there
/// is another order now and then, of a few buckets for private words more often than of many for shared ones.
#[test]
fn futexes_answer_random_calls_as_on_linux() {
    nearly_the_same("futexes", &[("0", 100), ("1", 50), ("2", 50)], "2000");
}

#[test]
fn access_control_lists_answer_random_calls_as_on_linux() {
    if is_skipped_on_older_linux() {
        return;
    }
    if is_skipped_without_root("root natively becomes other users") {
        return;
    }
    nearly_the_same_by_reason("acls", &[("0", 2)], "6000");
}

#[test]
fn readiness_and_pipes_answer_random_calls_as_on_linux() {
    if !is_skipped_on_older_linux() {
        nearly_the_same("readiness", &[("0", 3)], "6000");
    }
}

#[test]
fn sockets_answer_random_calls_as_on_linux() {
    if is_skipped_on_older_linux() {
        return;
    }
    nearly_the_same(
        "sockets",
        &[("2", 3), ("3", 3), ("4", 3), ("1", 5), ("6", 5), ("0", 50), ("5", 50)],
        "2000",
    );
}

#[test]
fn raw_sockets_answer_random_calls_as_on_linux() {
    nearly_the_same_by_reason("sockets", &[("7", 5), ("8", 5), ("9", 5)], "2000");
}

#[test]
fn terminals_answer_random_calls_as_on_linux() {
    nearly_the_same("terminals", &[("0", 60), ("1", 60)], "2000");
}
