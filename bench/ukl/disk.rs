// SPDX-License-Identifier: Apache-2.0 OR MIT
//! fio, one random read or write of 4 KiB at a time (`--direct=1`) on a virtio-blk disk, whose backing file is in the host's page
//! cache: what a request takes is the guest's path, QEMU's, and no disk's.

use super::{Level, SERVERS, Table, is_linked, level_words, name_of, prepare};
use crate::side::{output_of, qemu_with};
use crate::{Options, Result};
use serde_json::Value;

/// The disk's size; the paper's file has 8 GB.
const DISK_BYTES: u64 = 256 << 20;

/// How long a run is, for rates and for counting: the machine's clock says nothing of the disk's time when it counts instructions.
const TIMED: [&str; 2] = ["--time_based", "--runtime=10"];
const COUNTED: [&str; 1] = ["--io_size=64M"];

pub fn run(options: &Options) -> Result<()> {
    println!(
        "Random reads and writes of 4 KiB by fio, one at a time. Instructions are those of fio's thread with the kernel's for it,"
    );
    println!("from a run whose clock counts them (QEMU -icount); rates and times are from another.\n");
    let scratch = prepare(options, "fio")?;
    let file = scratch.path().join("disk");
    // Written, so that reads are not of holes.
    std::fs::write(&file, vec![b'u'; DISK_BYTES as usize]).map_err(|e| format!("{}: {e}", file.display()))?;
    let drive = "-device virtio-blk-device,drive=disk -drive if=none,id=disk,format=raw,file=";
    let path = qemu_with(&scratch, &format!("{drive}{}", file.display()))?;
    let levels: Vec<Level> = SERVERS.into_iter().filter(|level| !is_linked(level)).collect();
    let mut table = Table::new(&levels);
    for turn in 0..options.runs {
        for level in &levels {
            let of_level = |e: String| format!("{}: {e}", name_of(level));
            // Two runs tell the spread of a count.
            if turn < 2 {
                let job = fio(options, level, &["--accel", "icount"], &COUNTED, &path).map_err(of_level)?;
                table.add("each, instructions", level, busy(&job).map_err(of_level)?);
            }
            let job = fio(options, level, &[], &TIMED, &path).map_err(of_level)?;
            for kind in ["read", "write"] {
                let rate = number(&job, &[kind, "iops"]).map_err(of_level)?;
                let nanoseconds = number(&job, &[kind, "clat_ns", "mean"]).map_err(of_level)?;
                table.add(&format!("{kind}s/s"), level, rate);
                table.add(&format!("{kind}, mean, us"), level, nanoseconds / 1e3);
            }
        }
    }
    table.print();
    Ok(())
}

/// Runs it in a machine of this level; what it reports of its job.
fn fio(options: &Options, level: Level, flags: &[&str], length: &[&str], path: &str) -> Result<Value> {
    let machine =
        ["run", "--rm", "--kernel", "linux", "--machine", "microvm", "--network", "none", "-m", "512M"];
    let fixed = [
        "--name=job",
        "--filename=/dev/vda",
        "--direct=1",
        "--rw=randrw",
        "--bs=4k",
        "--iodepth=1",
        "--ioengine=psync",
        "--thread",
        "--randrepeat=1",
        "--output-format=json",
    ];
    let words = [&machine[..], flags, &level_words(level), &["debian:fio", "--"], &fixed, length].concat();
    let text = output_of(options, &words, &[("PATH", path)])?;
    // Warnings may come before it.
    let json = text.find('{').map_or("", |at| &text[at..]);
    let report: Value = serde_json::from_str(json).map_err(|_| format!("fio printed: {text}"))?;
    Ok(report["jobs"][0].clone())
}

/// Instructions that its thread and the kernel took for each request: nanoseconds of that machine.
fn busy(job: &Value) -> Result<f64> {
    let percent = number(job, &["usr_cpu"])? + number(job, &["sys_cpu"])?;
    let requests = number(job, &["read", "total_ios"])? + number(job, &["write", "total_ios"])?;
    Ok(percent / 100.0 * number(job, &["job_runtime"])? * 1e6 / requests)
}

fn number(job: &Value, keys: &[&str]) -> Result<f64> {
    let found = keys.iter().fold(job, |value, key| &value[*key]);
    found.as_f64().ok_or_else(|| format!("fio does not report {}", keys.join(".")))
}
