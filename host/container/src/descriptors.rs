// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open files that a container must not get from its engine.
//!
//! The unsafe code here is one close_range(2).

use std::io;

/// Has every descriptor of this process but its three streams end with the next execve(2). Descriptors that an engine or a shell left open
/// would stay open in the container's process for as long as the container runs, and whoever reads from the other end of a pipe among
/// them would wait for its end.
pub fn close_in_children() -> io::Result<()> {
    const FIRST: libc::c_uint = 3;
    // SAFETY: changes a flag of descriptors; none is closed here.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::fd::AsRawFd, process::Command};

    #[test]
    fn a_descriptor_of_an_engine_is_not_in_a_child() {
        let file = File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let has = || Command::new("test").args(["-e", &path]).status().unwrap().success();
        assert!(has(), "without FD_CLOEXEC it is inherited");
        close_in_children().unwrap();
        assert!(!has());
    }
}
