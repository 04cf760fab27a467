// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What this crate needs of its platform.

unsafe extern "Rust" {
    /// Writes to the console without a lock: for crash reports, when nothing else runs any more.
    pub safe fn unilith_machine_write_raw(bytes: &[u8]);
    /// Ends the machine with a reason of one line, without the heap.
    pub safe fn unilith_machine_failed(reason: &str) -> !;
    /// Nothing interrupts any more.
    pub safe fn unilith_machine_stop_interrupts();
    /// The other processors are told to report too, which [`crate::crash`] makes them stop for; those told, a bit each. 0 where
    /// the machine's end stops them.
    pub safe fn unilith_machine_stop_others() -> u32;
    /// True if the device that carries the program's output has sent everything, or if its state is locked for ever. Does not wait and does not
    /// allocate.
    pub safe fn unilith_machine_has_sent_all() -> bool;
    /// True when `low..high` lies in the mapped part of one kernel stack.
    pub safe fn unilith_machine_stack_holds(low: u64, high: u64) -> bool;
    /// Names the stack whose guard holds `address`.
    pub safe fn unilith_machine_guard_at(address: u64) -> Option<&'static str>;
    /// FS base on a processor without FSGSBASE.
    pub safe fn unilith_machine_fs_base() -> u64;
    /// As above; the address is canonical.
    pub safe fn unilith_machine_set_fs_base(base: u64);
}

pub use unilith_machine_failed as failed;
pub use unilith_machine_guard_at as guard_at;
pub use unilith_machine_has_sent_all as has_sent_all;
pub use unilith_machine_stack_holds as stack_holds;
pub use unilith_machine_stop_interrupts as stop_interrupts;
pub use unilith_machine_stop_others as stop_others;
pub use unilith_machine_write_raw as write_raw;
