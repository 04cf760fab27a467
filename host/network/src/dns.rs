// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A DNS relay on the host's end of a machine's link, so that names resolve in a machine as they do on the host, with
//! or without address translation. It copies messages and reads none of them.

use std::{io, net::Ipv4Addr, net::SocketAddr, sync::Arc, time::Duration, time::Instant};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream, UdpSocket},
    time::{sleep, timeout},
};

/// As long as glibc's resolver waits for one server (`resolv.conf(5)`, `timeout`).
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// How long the machine that had an address before may take to end, and how often that is looked at.
const PREDECESSOR: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(20);
/// Largest DNS message over UDP that EDNS0 senders announce in practice is 4096; leave room (RFC 6891 6.2.5).
const LARGEST_MESSAGE: usize = 8192;

/// The IPv4 servers of a `resolv.conf(5)`.
pub fn servers(resolv_conf: &str) -> Vec<Ipv4Addr> {
    let server = |line: &str| line.trim().strip_prefix("nameserver")?.trim().parse().ok();
    resolv_conf.lines().filter_map(server).collect()
}

/// The servers this host uses.
pub fn host_servers() -> Vec<Ipv4Addr> {
    servers(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
}

/// Relays to the first of `servers` from `address`:53 until the runtime ends. Must be called inside a runtime.
pub async fn serve(address: Ipv4Addr, servers: Vec<Ipv4Addr>) -> io::Result<()> {
    let Some(server) = servers.first() else { return Ok(()) };
    let to = SocketAddr::from((*server, 53));
    let (socket, listener) = bind(SocketAddr::from((address, 53))).await?;
    let socket = Arc::new(socket);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(Ok(mut server)) = timeout(ANSWER_LIMIT, TcpStream::connect(to)).await {
                    // Either end going away ends the exchange.
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                }
            });
        }
    });
    tokio::spawn(async move {
        let mut buffer = vec![0; LARGEST_MESSAGE];
        loop {
            let Ok((length, client)) = socket.recv_from(&mut buffer).await else { continue };
            tokio::spawn(relay(socket.clone(), buffer[..length].to_vec(), client, to));
        }
    });
    Ok(())
}

/// Both sockets. A machine that had the address a moment ago may still hold it: its device is gone before its supervisor.
async fn bind(address: SocketAddr) -> io::Result<(UdpSocket, TcpListener)> {
    let begin = Instant::now();
    loop {
        let both =
            async { io::Result::Ok((UdpSocket::bind(address).await?, TcpListener::bind(address).await?)) };
        match both.await {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && begin.elapsed() < PREDECESSOR => {
                sleep(RETRY).await
            }
            done => return done,
        }
    }
}

async fn relay(socket: Arc<UdpSocket>, question: Vec<u8>, client: SocketAddr, server: SocketAddr) {
    let ask = async {
        let upstream = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?;
        upstream.connect(server).await?;
        upstream.send(&question).await?;
        let mut answer = vec![0; LARGEST_MESSAGE];
        let length = upstream.recv(&mut answer).await?;
        socket.send_to(&answer[..length], client).await
    };
    // No answer is an answer a resolver knows: it asks again.
    let _ = timeout(ANSWER_LIMIT, ask).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ipv4_servers_of_resolv_conf_count() {
        let text = "# nameserver 9.9.9.9\nsearch example.org\nnameserver 192.0.2.53\nnameserver\t192.0.2.54\nnameserver ::1\n";
        assert_eq!(servers(text), [Ipv4Addr::new(192, 0, 2, 53), Ipv4Addr::new(192, 0, 2, 54)]);
    }

    #[test]
    fn an_address_that_is_about_to_be_free_is_waited_for() {
        let before = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = before.local_addr().unwrap();
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(before);
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(bind(address)).unwrap().0.local_addr().unwrap(), address);
        ends.join().unwrap();
    }
}
