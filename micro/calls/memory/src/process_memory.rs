// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of a process by its id: process_vm_readv(2), process_vm_writev(2).

use abi::{PAGE_SIZE, Result, errno::*};
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_user::{Segment, Sink, Source, read_iovec};
use mem::Space;
use task::call::Call;
use task::identity::{As, check_access};

/// process_vm_readv(2).
pub fn process_vm_readv(call: &mut Call<'_>) -> Result<usize> {
    copy(call, false)
}

/// process_vm_writev(2).
pub fn process_vm_writev(call: &mut Call<'_>) -> Result<usize> {
    copy(call, true)
}

/// Copies between the caller's segments and those of the process. What was copied counts, up to the first address that
/// cannot be read or written.
fn copy(call: &Call<'_>, writes: bool) -> Result<usize> {
    if call.arg(5) != 0 {
        return Err(EINVAL);
    }
    let is_empty = |segments: &[Segment]| segments.iter().all(|segment| segment.length == 0);
    let here = read_iovec(call.arg(1), call.uint(2) as usize)?;
    // Of nothing nobody is asked.
    if is_empty(&here) {
        return Ok(0);
    }
    let there = read_iovec(call.arg(3), call.size(4))?;
    if is_empty(&there) {
        return Ok(0);
    }
    let process = task::identity::process_of(call.int(0))?;
    check_access(&process, As::Real)?;
    let space = process.space().ok_or(ESRCH)?;
    let (mut source, mut sink) = (Source::vectored(&here), Sink::vectored(&here));
    let mut page: Vec<u8> = Vec::new();
    page.reserve_exact_fallibly(PAGE_SIZE).map_err(|_| ENOMEM)?;
    let mut done = 0;
    for segment in there.iter() {
        let (start, length) = (segment.address, segment.length);
        let mut at = 0;
        while at < length {
            // A page of another process may take a call of the host, and there may be 500,000.
            api_sched::cond_resched();
            let left = if writes { source.remaining() } else { sink.remaining() };
            // Each page by itself: what lies before one that is not there counts.
            let in_page = PAGE_SIZE - (start as usize + at) % PAGE_SIZE;
            let want = left.min(length - at).min(in_page);
            if want == 0 {
                return Ok(done);
            }
            page.resize(want, 0);
            match piece(&space, start + at as u64, &mut page, writes, &mut source, &mut sink) {
                Ok(n) => {
                    done += n;
                    at += n;
                    if n < want {
                        return Ok(done);
                    }
                }
                Err(_) if done > 0 => return Ok(done),
                Err(e) => return Err(e),
            }
        }
    }
    Ok(done)
}

fn piece(
    space: &Space,
    address: u64,
    page: &mut [u8],
    writes: bool,
    source: &mut Source<'_>,
    sink: &mut Sink<'_>,
) -> Result<usize> {
    if writes {
        let n = source.take_up_to_fault(page)?;
        space.write(address, &page[..n])?;
        Ok(n)
    } else {
        space.read(address, page)?;
        sink.put_up_to_fault(page)
    }
}
