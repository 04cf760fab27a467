// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as programs see it, from wherever they were hit.

use crate::code::Registers;
use crate::peek;
use api_plat::{TrapFrame, USER_END};
use bpf::Environment;
use bpf::maps::Map;
use core::mem::size_of;
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

/// Addresses that are being collected.
struct Stack<'a> {
    to: &'a mut [u64],
    count: usize,
}

/// As far from the first frame as a stack may reach.
const REACH: u64 = 8 << 20;

impl Stack<'_> {
    /// `None` when there is no room.
    fn add(&mut self, address: u64) -> Option<()> {
        *self.to.get_mut(self.count)? = address;
        self.count += 1;
        Some(())
    }

    /// Follows the program's frame pointers, from the inside out, for as long as they make sense.
    fn walk(&mut self, mut bp: u64, sp: u64) -> Option<()> {
        let mut least = sp;
        while bp >= least && bp < sp.saturating_add(REACH) {
            let (next, back) = (peek::read_word(bp)?, peek::read_word(bp + 8)?);
            // What keeps no frame pointers has something else there.
            if back == 0 || back >= USER_END {
                return None;
            }
            self.add(back)?;
            least = bp + 16;
            bp = next;
        }
        Some(())
    }
}

/// The program's registers while the kernel runs for it.
pub fn interrupted() -> Option<Registers> {
    let thread = sched::current();
    if !thread.runs_program() || !sched::is_at_work() {
        return None;
    }
    let frame = (thread.stack_top() - size_of::<TrapFrame>() as u64) as *const TrapFrame;
    // SAFETY: the running thread's stack ends with its program's registers while it is in the kernel. Before its first
    // entry, and in the few instructions in which they are being saved, they are words without a meaning.
    Some(unsafe { Registers::of(frame) })
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
        task::running()
            .map_or(0, |t| (t.process.pid.of_machine() as u64) << 32 | u64::from(t.tid.of_machine() as u32))
    }

    fn uid_gid(&self) -> u64 {
        let of = |t: task::Current| {
            let credentials = t.credentials().try_lock()?;
            Some(u64::from(credentials.gid) << 32 | u64::from(credentials.uid))
        };
        task::running().and_then(of).unwrap_or(0)
    }

    fn comm(&self, to: &mut [u8; 16]) {
        match task::running() {
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
    /// The kernel keeps no frame pointers: behind its address comes the stack of the program that called it.
    fn stack(&self, registers: &[u8], to: &mut [u64], _: bool) -> usize {
        let (Some(ip), Some(bp), Some(sp)) =
            (word(registers, RIP), word(registers, RBP), word(registers, RSP))
        else {
            return 0;
        };
        let mut stack = Stack { to, count: 0 };
        // However far it leads.
        let _ = stack.add(ip);
        if self.function == ip {
            let _ = peek::read_word(sp).and_then(|back| stack.add(back));
        }
        if ip < USER_END {
            let _ = stack.walk(bp, sp);
        } else if let Some(program) = interrupted() {
            let _ = stack.add(program.ip).and_then(|()| stack.walk(program.bp, program.sp));
        }
        stack.count
    }

    fn program(&self, registers: &[u8], to: &mut [u8]) -> bool {
        let own;
        let registers = match word(registers, RIP) {
            Some(ip) if ip < USER_END => registers,
            _ => match interrupted() {
                Some(program) => {
                    own = program;
                    own.bytes()
                }
                None => return false,
            },
        };
        let n = registers.len().min(to.len());
        to[..n].copy_from_slice(&registers[..n]);
        true
    }

    fn function(&self) -> u64 {
        self.function
    }
}
