// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `mem` and `sync`.

use crate::arguments::Arguments;
use abi::PAGE_SIZE;
use api_overlay::{Column, Command, Completes, Failure, Listing, Outcome, Session, Value, manual};

pub const COMMANDS: [Command; 2] = [
    Command {
        name: "mem",
        arguments: "",
        summary: manual!("Show who has the memory"),
        help: manual!(
            "Shows, in bytes: what the machine was given, what is free, what the program has mapped, what of it is in \
               memory (of its own, and pages of files), its page tables, and the rest, which is the kernel's: its heap, \
               files in RAM file systems, stacks."
        ),
        completes: Completes::Nothing,
        run: mem,
    },
    Command {
        name: "sync",
        arguments: "",
        summary: manual!("Store what was written to files"),
        help: manual!(
            "Stores what the program wrote through shared mappings of files and is not stored yet. What is written with \
               system calls is with the file system at once."
        ),
        completes: Completes::Nothing,
        run: sync,
    },
];

const COLUMNS: [Column; 2] = [Column::left("what", "WHAT", 18), Column::right("size_bytes", "BYTES", 12)];

fn mem(session: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    Arguments::parse(arguments, "", "")?.no_operands()?;
    let (total, free) = alloc_frames::statistics();
    let (total, free) = (total * PAGE_SIZE as u64, free * PAGE_SIZE as u64);
    let given = posix::calls::system::memory();
    let usage = mem::current().usage();
    let mut list = Listing::new(session, &COLUMNS);
    for (what, bytes) in [
        ("given", given),
        ("usable", total),
        ("free", free),
        ("program_mapped", usage.size),
        ("program_own", usage.anonymous),
        ("program_files", usage.file),
        ("page_tables", usage.tables),
        // Pages of the image's files are not of the usable memory: it lies in the initial RAM disk.
        ("kernel_and_files", total.saturating_sub(free + usage.anonymous + usage.tables)),
    ] {
        list.row(&[Value::Text(what), Value::Number(bytes)])?;
    }
    Ok(0)
}

fn sync(_: &dyn Session, arguments: &[&[u8]]) -> Outcome {
    Arguments::parse(arguments, "", "")?.no_operands()?;
    mem::current().sync_all().map(|()| 0).map_err(|e| Failure::new("").errno(e))
}
