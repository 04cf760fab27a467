// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the parts of a program are in its address space, as the program may say itself (prctl(2), PR_SET_MM).

use crate::{PAGE, Space, USER_END, layout::LOWEST};
use abi::{Result, errno::EINVAL, errno::ENOMEM};
use alloc::vec::Vec;
use api_alloc::Reserve;

/// What Linux keeps for /proc/PID/stat, `cmdline` and `environ`; the fields are those of `struct prctl_mm_map`. Nothing is mapped or
/// protected by it, but for the break, which brk(2) moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MmMap {
    pub start_code: u64,
    pub end_code: u64,
    pub start_data: u64,
    pub end_data: u64,
    pub start_brk: u64,
    pub brk: u64,
    pub start_stack: u64,
    pub arg_start: u64,
    pub arg_end: u64,
    pub env_start: u64,
    pub env_end: u64,
}

impl MmMap {
    /// `EINVAL` where an address is none of a program's, or a part ends before it begins (Linux' `validate_prctl_map_addr`).
    fn check(&self, most_data: u64) -> Result<()> {
        let all = [
            self.start_code,
            self.end_code,
            self.start_data,
            self.end_data,
            self.start_brk,
            self.brk,
            self.start_stack,
            self.arg_start,
            self.arg_end,
            self.env_start,
            self.env_end,
        ];
        let are_places = all.iter().all(|at| is_place(*at));
        let are_in_order = self.start_code < self.end_code
            && self.start_data <= self.end_data
            && self.start_brk <= self.brk
            && self.arg_start <= self.arg_end
            && self.env_start <= self.env_end;
        if !are_places || !are_in_order {
            return Err(EINVAL);
        }
        let data = (self.brk - self.start_brk) + (self.end_data - self.start_data);
        if data <= most_data { Ok(()) } else { Err(EINVAL) }
    }
}

/// An address that a program could have something at.
pub fn is_place(address: u64) -> bool {
    (LOWEST..USER_END - PAGE).contains(&address)
}

/// Most of the strings that is shown: what execve(2) takes at most.
const MOST_STRINGS: u64 = 6 << 20;

impl Space {
    pub fn mm_map(&self) -> MmMap {
        let inner = self.inner.lock();
        MmMap { start_brk: inner.brk_start, brk: inner.brk, ..inner.mm_map }
    }

    /// Where the loader has put the program; the break is apart ([`Space::start_brk`]).
    pub fn begin_mm_map(&self, map: MmMap) {
        self.inner.lock().mm_map = map;
    }

    /// `EINVAL` for what it cannot be.
    pub fn check_mm_map(&self, map: &MmMap) -> Result<()> {
        map.check(self.inner.lock().limits.data)
    }

    /// Something is mapped there or further up (Linux' find_vma).
    pub fn has_mapping_above(&self, address: u64) -> bool {
        self.inner.lock().tree.first_overlap(address, USER_END).is_some()
    }

    /// As the program says; `EINVAL` as from [`Space::check_mm_map`].
    pub fn set_mm_map(&self, map: MmMap) -> Result<()> {
        let mut inner = self.inner.lock();
        map.check(inner.limits.data)?;
        (inner.brk_start, inner.brk) = (map.start_brk, map.brk);
        inner.mm_map = map;
        Ok(())
    }

    /// The arguments as the program has left them: one that has written over the end of the last of them (setproctitle(3)) goes on into its
    /// environment, as far as one page (Linux' `get_mm_cmdline`).
    pub fn command_line(&self) -> Result<Vec<u8>> {
        let map = self.mm_map();
        let mut last = [0];
        let is_overwritten =
            map.arg_end > map.arg_start && self.read(map.arg_end - 1, &mut last).is_ok() && last != [0];
        if !is_overwritten {
            return self.bytes(map.arg_start, map.arg_end);
        }
        let end = if map.env_start == map.arg_end { map.env_end.max(map.arg_end) } else { map.arg_end };
        let mut title = self.bytes(map.arg_start, end.min(map.arg_start.saturating_add(PAGE)))?;
        if let Some(nul) = title.iter().position(|byte| *byte == 0) {
            title.truncate(nul + 1);
        }
        Ok(title)
    }

    /// The strings of the environment, where they were at the beginning or where the program says they are.
    pub fn environment(&self) -> Result<Vec<u8>> {
        let map = self.mm_map();
        self.bytes(map.env_start, map.env_end)
    }

    /// As far as there is memory.
    fn bytes(&self, start: u64, end: u64) -> Result<Vec<u8>> {
        let length = end.saturating_sub(start).min(MOST_STRINGS) as usize;
        let mut bytes = Vec::new();
        bytes.reserve_exact_fallibly(length).map_err(|_| ENOMEM)?;
        while bytes.len() < length {
            let (at, done) = (start + bytes.len() as u64, bytes.len());
            let piece = ((PAGE - at % PAGE) as usize).min(length - done);
            bytes.resize(done + piece, 0);
            if self.read(at, &mut bytes[done..]).is_err() {
                bytes.truncate(done);
                break;
            }
        }
        Ok(bytes)
    }
}
