// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IORING_OP_MSG_RING: a completion in another ring, or a file for its table.

use super::files;
use super::request::Request;
use super::ring::Ring;
use abi::{Result, errno::*};
use core::sync::atomic::Ordering;

const DATA: u64 = 0;
const SEND_FD: u64 = 1;
/// IORING_MSG_RING_CQE_SKIP.
const SKIP: u32 = 1;

pub fn send(ring: &Ring, request: &Request) -> Result<usize> {
    let sqe = &request.sqe;
    let description = request.file().ok_or(EBADF)?;
    let target = Ring::of(&description).ok_or(EBADFD)?;
    if sqe.op_flags & !SKIP != 0 {
        return Err(EINVAL);
    }
    match sqe.address {
        DATA => {
            if sqe.address3 != 0 || sqe.file_index != 0 || sqe.op_flags != 0 {
                return Err(EINVAL);
            }
            if !target.is_enabled.load(Ordering::Relaxed) {
                return Err(EBADFD);
            }
            target.post(sqe.offset, sqe.length as i32, 0);
            Ok(0)
        }
        SEND_FD => {
            if core::ptr::eq(ring, target) {
                return Err(EINVAL);
            }
            if !target.is_enabled.load(Ordering::Relaxed) {
                return Err(EBADFD);
            }
            let file = files::fixed(ring, sqe.address3 as u32)?;
            let index = files::install(target, file, sqe.file_index as u32)?;
            if sqe.op_flags & SKIP == 0 {
                target.post(sqe.offset, sqe.length as i32, 0);
            }
            Ok(index)
        }
        _ => Err(EINVAL),
    }
}
