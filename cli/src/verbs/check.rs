// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith check PROGRAM`: which system calls it can make, judged from its code, and which the micro kernel lacks.
//!
//! The C library and the loader have nearly all calls in them and would say nothing, so for them it counts what the
//! program and its other libraries import from them; the code of the program and of those libraries is read as it is.

use crate::output::say;
use crate::{
    archive::Archive,
    fault::{Fault, Result, file},
    line::Line,
    prepare::{self, Flags},
    progress::Progress,
};
use object::{Object, ObjectSymbol, read::elf::ElfFile64};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use syscall_table::{ROWS, Row, Status};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    check: CheckFlags,
    #[command(flatten)]
    line: Line,
}

#[derive(clap::Args, Clone, Debug)]
struct CheckFlags {
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

/// Functions of the C library that make system calls of another name. The rest are called as their system call is.
const FUNCTIONS: [(&str, &[&str]); 41] = [
    ("accept", &["accept"]),
    ("calloc", &["brk", "mmap"]),
    ("clock", &["clock_gettime"]),
    ("closedir", &["close"]),
    ("daemon", &["fork", "setsid"]),
    ("exec", &["execve"]),
    ("execvp", &["execve"]),
    ("execv", &["execve"]),
    ("execl", &["execve"]),
    ("execlp", &["execve"]),
    ("exit", &["exit_group"]),
    ("fopen", &["openat", "read", "write"]),
    ("getaddrinfo", &["socket", "connect", "sendmmsg", "recvfrom", "poll"]),
    ("isatty", &["ioctl"]),
    ("malloc", &["brk", "mmap", "munmap"]),
    ("mkfifo", &["mknodat"]),
    ("mkstemp", &["openat", "getrandom"]),
    ("nftw", &["getdents64", "newfstatat"]),
    ("open", &["openat"]),
    ("opendir", &["openat"]),
    ("popen", &["pipe2", "vfork", "execve"]),
    ("posix_fallocate", &["fallocate"]),
    ("posix_spawn", &["vfork", "execve"]),
    ("posix_spawnp", &["vfork", "execve"]),
    ("pthread_cond_wait", &["futex"]),
    ("pthread_create", &["clone3", "mmap", "mprotect"]),
    ("pthread_kill", &["tgkill"]),
    ("pthread_mutex_lock", &["futex"]),
    ("pthread_setaffinity_np", &["sched_setaffinity"]),
    ("readdir", &["getdents64"]),
    ("realloc", &["mremap"]),
    ("remove", &["unlink", "rmdir"]),
    ("select", &["pselect6"]),
    ("sem_wait", &["futex"]),
    ("sigaction", &["rt_sigaction"]),
    ("signal", &["rt_sigaction"]),
    ("sigprocmask", &["rt_sigprocmask"]),
    ("sleep", &["clock_nanosleep"]),
    ("stat", &["newfstatat"]),
    ("system", &["vfork", "execve", "wait4"]),
    ("waitpid", &["wait4"]),
];
/// The C library and the loader, by the beginning of their names.
const C_LIBRARY: [&str; 7] =
    ["libc.so", "libpthread.so", "ld-linux", "librt.so", "libdl.so", "libc.musl", "ld-musl"];

#[derive(Serialize)]
struct Report {
    program: String,
    /// Libraries whose code was read.
    libraries: usize,
    calls: Vec<Call>,
}

#[derive(Serialize)]
struct Call {
    number: u32,
    name: &'static str,
    status: &'static str,
    note: &'static str,
}

pub fn act(mut args: Args) -> Result<u8> {
    let wanted = args.line.program("check", &mut args.check)?;
    let CheckFlags { json, flags } = args.check;
    let progress = Progress::new();
    let image = prepare::gather(&flags, &wanted, Vec::new(), Vec::new(), &progress)?;
    drop(progress);
    let bytes = std::fs::read(&image.root).map_err(file("read", &image.root))?;
    let archive =
        Archive::read(&bytes).ok_or_else(|| Fault::new(format!("{} is damaged", image.root.display())))?;
    let program = image.config.args.first().cloned().unwrap_or_default();
    let report = examine(&archive, &program)?;
    if json {
        super::print_json(&report)?;
    } else {
        print(&report);
    }
    Ok(u8::from(report.calls.iter().any(|c| c.status == "missing")))
}

fn examine(archive: &Archive, program: &str) -> Result<Report> {
    let code = archive.file(program).ok_or_else(|| Fault::new(format!("{program} is not in the image")))?;
    let mut calls: BTreeSet<u32> = BTreeSet::new();
    let mut seen: BTreeMap<String, ()> = BTreeMap::new();
    let mut queue = VecDeque::from([code]);
    while let Some(code) = queue.pop_front() {
        let elf = ElfFile64::<object::Endianness>::parse(code);
        let elf = elf.map_err(|e| Fault::new(format!("{program}: a file it needs is no ELF file: {e}")))?;
        for symbol in elf.dynamic_symbols().filter(|s| s.is_undefined()) {
            calls.extend(symbol.name().map(calls_of).unwrap_or_default());
        }
        let scan = unilith_rewrite::scan(code).map_err(|e| Fault::new(format!("{program}: {e}")))?;
        let known = scan.sites.iter().map(|s| s.number).filter(|n| *n != api_sites::NUMBER_UNKNOWN);
        calls.extend(known.chain(scan.missed.iter().filter_map(|m| m.number)).map(u32::from));
        for library in needed(&elf) {
            let own = !C_LIBRARY.iter().any(|name| library.starts_with(name));
            if own && seen.insert(library.clone(), ()).is_none() {
                queue.extend(archive.named(&library));
            }
        }
    }
    let call = |number: u32| {
        syscall_table::row(number).map(|row| Call {
            number,
            name: row.name,
            status: word(row),
            note: row.note,
        })
    };
    Ok(Report {
        program: program.into(),
        libraries: seen.len(),
        calls: calls.into_iter().filter_map(call).collect(),
    })
}

/// The names of the libraries a file asks for.
fn needed(elf: &ElfFile64) -> Vec<String> {
    use object::{
        elf,
        read::elf::{Dyn, ProgramHeader},
    };
    let endian = elf.endian();
    let segments = elf.elf_program_headers();
    let mut dynamic = segments.iter().filter_map(|s| s.dynamic(endian, elf.data()).ok()?);
    let Some(entries) = dynamic.next() else { return Vec::new() };
    let value =
        |tag: u32| entries.iter().find(|d| d.d_tag(endian) == u64::from(tag)).map(|d| d.d_val(endian));
    let (Some(table), Some(size)) = (value(elf::DT_STRTAB), value(elf::DT_STRSZ)) else { return Vec::new() };
    let strings = segments.iter().find_map(|s| s.data_range(endian, elf.data(), table, size).ok()?);
    let strings = strings.unwrap_or_default();
    let name = |at: u64| {
        let rest = strings.get(usize::try_from(at).ok()?..)?;
        Some(String::from_utf8_lossy(rest.split(|b| *b == 0).next()?).into_owned())
    };
    let wanted = entries.iter().filter(|d| d.d_tag(endian) == u64::from(elf::DT_NEEDED));
    wanted.filter_map(|d| name(d.d_val(endian))).collect()
}

/// The system calls behind a function of the C library.
fn calls_of(symbol: &str) -> Vec<u32> {
    let bare = symbol.trim_start_matches('_').trim_end_matches("64").trim_end_matches("_chk");
    let named = |name: &str| ROWS.iter().find(|row| row.name == name).map(|row| row.number);
    match FUNCTIONS.iter().find(|(function, _)| *function == bare) {
        Some((_, names)) => names.iter().filter_map(|name| named(name)).collect(),
        None => named(bare).into_iter().collect(),
    }
}

fn word(row: &Row) -> &'static str {
    match row.status {
        Status::Full => "full",
        Status::Partial => "partial",
        Status::Refused => "refused",
        Status::Missing => "missing",
    }
}

fn print(report: &Report) {
    let of = |status: &str| report.calls.iter().filter(|c| c.status == status).collect::<Vec<_>>();
    let libraries = match report.libraries {
        0 => String::new(),
        1 => " and one library".into(),
        n => format!(" and {n} libraries"),
    };
    say!("{}{libraries} can make {} system calls, judged from the code:", report.program, report.calls.len());
    say!("  {:3} the kernel has", of("full").len());
    for (status, what) in [("partial", "it has in part"), ("refused", "it refuses"), ("missing", "it lacks")]
    {
        let calls = of(status);
        if calls.is_empty() {
            continue;
        }
        say!("  {:3} {what}", calls.len());
        for call in calls {
            say!(
                "        {}{}",
                call.name,
                if call.note.is_empty() { String::new() } else { format!(": {}", call.note) }
            );
        }
    }
    say!(
        "{}",
        if of("missing").is_empty() && of("refused").is_empty() {
            "It should run."
        } else {
            "It may run: a call that is lacking answers ENOSYS, which many programs put up with; what was really asked for is in \
         `unilith inspect` after a run. `--kernel linux` has them all."
        }
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_libc_stand_for_their_system_calls() {
        assert_eq!(calls_of("epoll_wait"), [232]);
        assert_eq!(calls_of("waitpid"), [61]);
        assert_eq!(calls_of("__read_chk"), [0]);
        assert_eq!(calls_of("strlen"), Vec::<u32>::new());
    }

    #[test]
    fn this_program_needs_libraries_and_asks_for_files() {
        let me = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let elf = ElfFile64::parse(&*me).unwrap();
        assert!(needed(&elf).iter().any(|l| l.starts_with("libc.so")), "{:?}", needed(&elf));
    }
}
