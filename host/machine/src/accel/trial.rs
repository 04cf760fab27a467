// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The probe's guest, and one start of QEMU with it.
//!
//! The guest writes a mark to QEMU's debug console, counts down in a loop, writes the next mark, and so on; then it makes
//! the processor leave the guest many times, and ends QEMU. The times between the marks are those of the guest alone:
//! how long QEMU takes to start, and whether it was in the page cache, is in none of them.

use crate::qemu;
use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// Turns of one loop: two instructions each, about 10 ms under software emulation.
const TURNS: u32 = 5_000_000;
/// Loops of one start. The quickest counts: other programs delay some of them.
const LOOPS: u32 = 5;
/// Exits of the last part, between two marks of its own.
const EXITS: u32 = 100;
/// Writing to this port has no effect on any machine; Linux writes there to wait a moment.
const NOTHING_PORT: u8 = 0x80;
/// What QEMU exits with after the guest's last instruction: `isa-debug-exit` of 0x10 is (0x10 << 1) | 1.
const END_CODE: i32 = 0x21;
/// Marks of a whole run: before and after each loop, and after the exits.
const MARKS: usize = LOOPS as usize + 2;

/// What one start showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// From the start of QEMU to its end.
    pub whole: Duration,
    /// The quickest loop.
    pub turns: Duration,
    /// One exit to QEMU and back.
    pub exit: Duration,
}

/// Why a start showed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The guest did not come to its end within the limit.
    Limit,
    /// QEMU did not run it: its own words.
    Refused(String),
}

/// The guest as a file that QEMU starts.
pub struct Guest {
    folder: PathBuf,
}

impl Guest {
    /// Writes the file.
    pub fn write() -> std::io::Result<Guest> {
        // Tests of one process have one each.
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("unilith-probe-{}-{count}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let guest = Guest { folder };
        fs::write(guest.image(), program())?;
        Ok(guest)
    }

    fn image(&self) -> PathBuf {
        self.folder.join("probe")
    }

    /// Runs it once.
    pub fn run(&self, accel: &str, limit: Duration) -> Result<Run, Failure> {
        run(accel, &self.image(), limit)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Left behind it would do no harm: it is in the temporary directory.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn run(accel: &str, image: &Path, limit: Duration) -> Result<Run, Failure> {
    let begin = Instant::now();
    let mut child = Command::new(qemu::QEMU)
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", "16M"])
        .args(["-M", "microvm,x-option-roms=off,pit=off,pic=off,rtc=off", "-accel", accel, "-kernel"])
        .arg(image)
        .args(["-debugcon", "stdio"])
        .args(["-device", &format!("isa-debug-exit,iobase={:#x},iosize=0x04", api_boot::EXIT_PORT)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Failure::Refused(format!("{} cannot be started: {e}", qemu::QEMU)))?;
    let (send, marks) = mpsc::channel();
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let reader = thread::spawn(move || {
        let mut byte = [0];
        let Some(mut out) = out else { return };
        while matches!(out.read(&mut byte), Ok(1)) {
            // Nobody listens any more when the limit is over.
            let _ = send.send(Instant::now());
        }
    });
    let complaints = thread::spawn(move || {
        let mut text = String::new();
        // What could be read is what there is to say.
        let _ = err.map(|mut err| err.read_to_string(&mut text));
        text
    });
    let mut times = Vec::with_capacity(MARKS);
    let over = loop {
        match marks.recv_timeout(limit.saturating_sub(begin.elapsed())) {
            Ok(time) => times.push(time),
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    if over {
        // Either it ends now or it has just ended.
        let _ = child.kill();
    }
    let status = child.wait();
    let whole = begin.elapsed();
    // Neither panics; both end with the process whose output they read.
    let _ = reader.join();
    let complaint = complaints.join().unwrap_or_default();
    if over {
        return Err(Failure::Limit);
    }
    if status.ok().and_then(|s| s.code()) != Some(END_CODE) || times.len() != MARKS {
        let last = complaint.lines().map(str::trim).rfind(|l| !l.is_empty());
        let last = last.map_or("it ended without a word", |l| l.trim_start_matches("qemu-system-x86_64: "));
        return Err(Failure::Refused(last.to_string()));
    }
    let between: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (exits, loops) = between.split_last().expect("there are more than two marks");
    let turns = loops.iter().min().copied().expect("there is a loop");
    Ok(Run { whole, turns, exit: *exits / EXITS })
}

/// The guest: a 32-bit ELF file with a PVH entry note (Xen `XEN_ELFNOTE_PHYS32_ENTRY`, 18).
fn program() -> Vec<u8> {
    const BASE: u32 = 0x10_0000;
    const HEADERS: u32 = 52 + 2 * 32;
    const NOTE: u32 = 20;
    let mark = |code: &mut Vec<u8>| {
        code.extend([0x66, 0xba]); // mov $STATUS_PORT, %dx
        code.extend(api_boot::STATUS_PORT.to_le_bytes());
        code.push(0xee); // out %al, (%dx)
    };
    let mut code = vec![0xb0, b'.']; // mov $'.', %al
    code.push(0xbb);
    code.extend(LOOPS.to_le_bytes()); // mov $LOOPS, %ebx
    mark(&mut code);
    let outer = code.len();
    code.push(0xb9);
    code.extend(TURNS.to_le_bytes()); // mov $TURNS, %ecx
    code.extend([0x49, 0x75, 0xfd]); // 1: dec %ecx; jnz 1b
    mark(&mut code);
    code.push(0x4b); // dec %ebx
    let back = outer as i32 - (code.len() as i32 + 2);
    code.extend([0x75, i8::try_from(back).expect("the loop is short").cast_unsigned()]); // jnz outer
    code.push(0xb9);
    code.extend(EXITS.to_le_bytes()); // mov $EXITS, %ecx
    code.extend([0xe6, NOTHING_PORT, 0x49, 0x75, 0xfb]); // 1: out %al, $NOTHING_PORT; dec %ecx; jnz 1b
    mark(&mut code);
    code.extend([0xb8, 0x10, 0, 0, 0]); // mov $0x10, %eax
    code.extend([0x66, 0xba]); // mov $EXIT_PORT, %dx
    code.extend(api_boot::EXIT_PORT.to_le_bytes());
    code.extend([0xef, 0xf4, 0xeb, 0xfd]); // out %eax, (%dx); 1: hlt; jmp 1b
    let entry = BASE + HEADERS + NOTE;
    let size = HEADERS + NOTE + code.len() as u32;
    let words = |out: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|w| out.extend(w.to_le_bytes()));
    let mut out = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    out.extend([2, 0, 3, 0]); // ET_EXEC, EM_386
    words(&mut out, &[1, entry, 52, 0, 0]); // version, entry, program headers, no sections, flags
    for half in [52u16, 32, 2, 0, 0, 0] {
        out.extend(half.to_le_bytes());
    }
    words(&mut out, &[1, 0, BASE, BASE, size, size, 7, 4096]); // PT_LOAD
    words(&mut out, &[4, HEADERS, BASE + HEADERS, BASE + HEADERS, NOTE, NOTE, 4, 4]); // PT_NOTE
    words(&mut out, &[4, 4, 18]);
    out.extend(b"Xen\0");
    words(&mut out, &[entry]);
    out.extend(code);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test that waits longer has found a hang.
    const PATIENCE: Duration = Duration::from_secs(60);

    fn has_emulator() -> bool {
        let there = Command::new(qemu::QEMU).arg("--version").stdout(Stdio::null()).status().is_ok();
        if !there {
            eprintln!("skipped: needs {} (apt-get install qemu-system-x86)", qemu::QEMU);
        }
        there
    }

    #[test]
    fn guest_runs_to_its_end_under_software_emulation_and_every_part_is_timed() {
        if !has_emulator() {
            return;
        }
        let run = Guest::write().unwrap().run("tcg", PATIENCE).unwrap();
        assert!(run.turns > Duration::ZERO && run.exit > Duration::ZERO, "{run:?}");
        assert!(run.turns * LOOPS + run.exit * EXITS <= run.whole, "{run:?}");
    }

    #[test]
    fn guest_that_is_too_slow_ends_at_the_limit_and_an_emulator_that_refuses_says_why() {
        if !has_emulator() {
            return;
        }
        let guest = Guest::write().unwrap();
        assert_eq!(guest.run("tcg", Duration::ZERO), Err(Failure::Limit));
        let refused = guest.run("no-such-accelerator", PATIENCE);
        assert!(matches!(&refused, Err(Failure::Refused(why)) if why.contains("no-such-accelerator")));
    }
}
