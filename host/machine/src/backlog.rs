// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Room for clients that come at once to the ports that QEMU publishes.
//!
//! QEMU's user-mode network (libslirp) listens with a backlog of one, so most of fifty clients that come together wait a
//! second and more for their SYN to be sent again, and some are reset in the end. Linux takes a new backlog for a
//! socket that listens already (listen(2)), also through a duplicate of its descriptor (pidfd_getfd(2)), which the
//! parent of the process may take.

use rustix::{
    net::{listen, sockopt::socket_acceptconn},
    process::{PidfdGetfdFlags, pidfd_getfd},
};
use std::{fs, io, os::fd::BorrowedFd};

/// Connections that may wait; Linux takes less where `net.core.somaxconn` is less.
const BACKLOG: i32 = 4096;

/// Gives each socket that the process listens on a long backlog; says how many there were. The process is named twice, by
/// a descriptor that pins it and by its number for /proc.
pub fn widen(pidfd: BorrowedFd, pid: u32) -> io::Result<usize> {
    let mut widened = 0;
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may be closed by now.
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        if !target.to_string_lossy().starts_with("socket:") {
            continue;
        }
        let socket = pidfd_getfd(pidfd, number, PidfdGetfdFlags::empty())?;
        if socket_acceptconn(&socket)? {
            listen(&socket, BACKLOG)?;
            widened += 1;
        }
    }
    Ok(widened)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{PidfdFlags, getpid, pidfd_open};
    use std::{
        net::{Ipv4Addr, TcpStream},
        os::fd::AsFd,
        time::Duration,
    };

    #[test]
    fn twenty_clients_of_a_socket_with_a_backlog_of_one_connect_at_once_when_it_is_widened() {
        use rustix::net::{AddressFamily, SocketAddrV4, SocketType, bind, getsockname, socket};
        let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
        listen(&listener, 1).unwrap();
        let address = SocketAddrV4::try_from(getsockname(&listener).unwrap()).unwrap();
        let connect = || TcpStream::connect_timeout(&address.into(), Duration::from_millis(300));
        let mut clients: Vec<TcpStream> = (0..20).map_while(|_| connect().ok()).collect();
        assert!(clients.len() < 20, "nobody accepts, and the backlog is one");
        let myself = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        assert!(widen(myself.as_fd(), std::process::id()).unwrap() >= 1);
        clients.extend((0..20).map(|_| connect().expect("there is room")));
    }
}
