// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of a process by its id: process_vm_readv(2), process_vm_writev(2). There is one process, so both sides are
//! the caller's memory.

use crate::call::Call;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::vec::Vec;
use api_user::{Sink, Source, read_iovec};

/// process_vm_readv(2).
pub fn process_vm_readv(call: &mut Call<'_>) -> Result<usize> {
    copy(call, 3, 1)
}

/// process_vm_writev(2).
pub fn process_vm_writev(call: &mut Call<'_>) -> Result<usize> {
    copy(call, 1, 3)
}

/// Copies between the segments of two pairs of arguments. What was copied counts, up to the first address that cannot
/// be read or written.
fn copy(call: &Call<'_>, from: usize, to: usize) -> Result<usize> {
    if call.arg(5) != 0 {
        return Err(EINVAL);
    }
    let source = read_iovec(call.arg(from), call.size(from + 1))?;
    let target = read_iovec(call.arg(to), call.size(to + 1))?;
    super::identity::check_own(call.int(0))?;
    let (mut source, mut target) = (Source::vectored(&source), Sink::vectored(&target));
    let mut page: Vec<u8> = Vec::new();
    page.try_reserve_exact(PAGE_SIZE).map_err(|_| ENOMEM)?;
    let mut done = 0;
    loop {
        let want = source.remaining().min(target.remaining()).min(PAGE_SIZE);
        if want == 0 {
            return Ok(done);
        }
        page.resize(want, 0);
        let moved = source.take(&mut page).and_then(|n| target.put(&page[..n]));
        match moved {
            Ok(n) => {
                done += n;
                if n < want {
                    return Ok(done);
                }
            }
            Err(_) if done > 0 => return Ok(done),
            Err(e) => return Err(e),
        }
    }
}
