// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as programs see it, from wherever they were hit.

use crate::peek;
use bpf::Environment;
use bpf::maps::Map;
use core::sync::atomic::{AtomicU32, Ordering};

/// What `bpf_trace_printk` and `puts` write to, besides the time.
pub struct Machine<'a> {
    /// Where lines go.
    pub output: &'a Map,
    /// Address of the probed function; 0 at a tracepoint.
    pub function: u64,
}

static RANDOM: AtomicU32 = AtomicU32::new(0x9e37_79b9);

/// Where RIP, RBP and RSP are in `struct pt_regs`.
const RIP: usize = 128;
const RBP: usize = 32;
const RSP: usize = 152;

fn word(registers: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(registers.get(at..at + 8)?.try_into().ok()?))
}

impl Environment for Machine<'_> {
    fn now_ns(&self) -> u64 {
        api_plat::now_ns()
    }

    fn cpu(&self) -> u32 {
        api_plat::cpu()
    }

    /// xorshift (Marsaglia), stirred with the clock: for sampling, not for secrets.
    fn random(&self) -> u32 {
        let mut x = RANDOM.load(Ordering::Relaxed) ^ api_plat::now_ns() as u32 | 1;
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        RANDOM.store(x, Ordering::Relaxed);
        x
    }

    fn pid_tgid(&self) -> u64 {
        posix::task::running().map_or(0, |t| (t.process.pid as u64) << 32 | u64::from(t.tid as u32))
    }

    fn uid_gid(&self) -> u64 {
        let of = |t: &posix::task::Task| {
            let credentials = t.process.credentials.try_lock()?;
            Some(u64::from(credentials.gid) << 32 | u64::from(credentials.uid))
        };
        posix::task::running().and_then(of).unwrap_or(0)
    }

    fn comm(&self, to: &mut [u8; 16]) {
        match posix::task::running() {
            // A name that is being changed right now is not waited for.
            Some(task) => *to = task.name.try_lock().map_or([0; 16], |name| *name),
            None => to[..6].copy_from_slice(b"kernel"),
        }
    }

    fn read(&self, address: u64, to: &mut [u8]) -> bool {
        peek::read(address, to)
    }

    fn print(&self, text: &[u8]) {
        self.output.put_record(text);
    }

    /// The address itself, the return address at the entry to a function, and what the chain of frame pointers gives.
    fn stack(&self, registers: &[u8], to: &mut [u64], _: bool) -> usize {
        let (Some(ip), Some(mut bp), Some(sp)) =
            (word(registers, RIP), word(registers, RBP), word(registers, RSP))
        else {
            return 0;
        };
        let mut count = 0;
        let mut add = |address: u64| {
            let place = to.get_mut(count)?;
            *place = address;
            count += 1;
            Some(())
        };
        let mut walk = || {
            add(ip)?;
            if self.function == ip {
                add(peek::read_word(sp)?)?;
            }
            let mut least = sp;
            while bp >= least && bp < sp + (8 << 20) {
                let (next, back) = (peek::read_word(bp)?, peek::read_word(bp + 8)?);
                if back == 0 {
                    return None;
                }
                add(back)?;
                least = bp + 16;
                bp = next;
            }
            Some(())
        };
        // However far it led.
        let _ = walk();
        count
    }

    fn function(&self) -> u64 {
        self.function
    }
}
