// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Paper: uIO figure 7. Sequential reads and writes of a file of the host's with several buffer sizes: the overlay's
//! directory and a volume of the micro-library OS, which has no block device driver, and a virtio-blk disk of the Linux
//! guest, which gets its disk through a wrapper around QEMU that adds one. The guest's page cache is bypassed (`O_DIRECT`),
//! the host's is not, on any side; the files lie in the same directory.

use super::{ON, table};
use crate::side::{build_kernels, folder_of, output, output_of, qemu_with};
use crate::{Options, Result, Scratch, Side, programs, statistics::Samples};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;
use unilith_overlay::Client;

/// The disk's size: what the program writes.
const DISK_BYTES: u64 = 64 << 20;

pub fn run(options: &Options) -> Result<()> {
    build_kernels(options, &[&ON])?;
    let scratch = Scratch::new("files")?;
    let program = scratch.path().join("program");
    programs::build(options, "overlay/files.c", &program)?;
    let program = program.to_string_lossy().into_owned();
    let mut figures: BTreeMap<(String, u64), Vec<Samples>> = BTreeMap::new();
    let sides: &[&str] = if options.micro_only {
        &["a volume, 9p", "/overlay, 9p"]
    } else {
        &["Linux, virtio-blk", "a volume, 9p", "/overlay, 9p"]
    };
    for _ in 0..options.runs {
        let mut all = Vec::new();
        if !options.micro_only {
            all.push(disk(options, &scratch, &program)?);
        }
        let volume = format!("{}:/data", scratch.path().display());
        let words = ["--network", "none", "-v", &volume, &program, "/data/file"];
        all.push(output(options, Side::Micro, &words)?);
        all.push(overlay(options, &program)?);
        for (i, text) in all.iter().enumerate() {
            for line in text.lines() {
                let Some(((what, size), value)) =
                    line.split_once(' ').and_then(|(name, value)| Some((name.split_once('-')?, value)))
                else {
                    continue;
                };
                if let (Ok(size), Ok(value)) = (size.parse(), value.trim().parse()) {
                    let key = (what.to_string(), size);
                    figures.entry(key).or_insert_with(|| vec![Samples::default(); sides.len()])[i].add(value);
                }
            }
        }
    }
    let rows: Vec<_> = figures
        .into_iter()
        .map(|((what, size), samples)| (format!("{what}, {} KiB", size >> 10), "MB/s", samples))
        .collect();
    table(sides, &rows);
    Ok(())
}

/// The Linux guest with a disk.
fn disk(options: &Options, scratch: &Scratch, program: &str) -> Result<String> {
    let file = scratch.path().join("disk");
    let made = std::fs::File::create(&file).and_then(|f| f.set_len(DISK_BYTES));
    made.map_err(|e| format!("{}: {e}", file.display()))?;
    let disk = format!(
        "-drive if=none,id=disk,format=raw,file={} -device virtio-blk-device,drive=disk",
        file.display()
    );
    let path = qemu_with(scratch, &disk)?;
    let words = [
        "run",
        "--rm",
        "--kernel",
        "linux",
        "--machine",
        "microvm",
        "--network",
        "none",
        program,
        "/dev/vda",
    ];
    output_of(options, &words, &[("PATH", &path)])
}

/// The overlay's directory is mounted when a command asks for it; then the program is told to begin.
fn overlay(options: &Options, program: &str) -> Result<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("bench-{}-files-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let words =
        [&ON[..], &["--name", &name, "--network", "none", program, "/overlay/file", "/overlay/go"]].concat();
    thread::scope(|scope| {
        let running = scope.spawn(|| output(options, Side::Micro, &words));
        let begun = loop {
            let client =
                folder_of(options, &name).and_then(|f| Client::connect(&f).map_err(|e| e.to_string()));
            match client {
                Ok(client) => break client.run(&["mkdir", "/overlay/go"], false).map_err(|e| e.to_string()),
                Err(e) if running.is_finished() => break Err(e),
                Err(_) => thread::sleep(Duration::from_millis(50)),
            }
        };
        let ran = running.join().map_err(|_| "the machine's thread panicked".to_string())?;
        begun.and(ran)
    })
}
