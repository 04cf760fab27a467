// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A DNS relay on the host's end of a machine's link, so that names resolve in a machine as they do on the host, with
//! or without address translation. It copies messages and reads none of them. The machine is not trusted: the relay has a
//! number of questions and connections at once, beyond which datagrams are lost and connections wait.

use crate::proxy;
use std::{io, net::Ipv4Addr, net::SocketAddr, sync::Arc, time::Duration, time::Instant};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream, UdpSocket},
    sync::Semaphore,
    time::{sleep, timeout},
};

/// As long as glibc's resolver waits for one server (`resolv.conf(5)`, `timeout`).
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// A server may close a connection that is idle for a few seconds (RFC 7766 6.2.3); no exchange takes longer than this.
const CONNECTION_LIMIT: Duration = Duration::from_secs(60);
/// Questions over UDP at once; each has one descriptor and the room of one message.
pub const MAX_QUESTIONS: usize = 128;
/// Connections at once; each has two descriptors.
pub const MAX_CONNECTIONS: usize = 16;
/// How long the machine that had an address before may take to end, and how often that is looked at.
const PREDECESSOR: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(20);
/// Largest DNS message over UDP that EDNS0 senders announce in practice is 4096; leave room (RFC 6891 6.2.5).
pub(crate) const LARGEST_MESSAGE: usize = 8192;

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
    tokio::spawn(relay_connections(listener, to));
    tokio::spawn(relay_questions(Arc::new(socket), to));
    Ok(())
}

async fn relay_connections(listener: TcpListener, to: SocketAddr) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // It is never closed.
    while let Ok(permit) = connections.clone().acquire_owned().await {
        let Ok((mut client, _)) = listener.accept().await else {
            sleep(proxy::RETRY).await;
            continue;
        };
        tokio::spawn(async move {
            if let Ok(Ok(mut server)) = timeout(ANSWER_LIMIT, TcpStream::connect(to)).await {
                // Either end going away ends the exchange.
                let _ = timeout(CONNECTION_LIMIT, copy_bidirectional(&mut client, &mut server)).await;
            }
            drop(permit);
        });
    }
}

async fn relay_questions(socket: Arc<UdpSocket>, to: SocketAddr) {
    let questions = Arc::new(Semaphore::new(MAX_QUESTIONS));
    let mut buffer = vec![0; LARGEST_MESSAGE];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else {
            sleep(proxy::RETRY).await;
            continue;
        };
        // A resolver whose question is lost asks again.
        let Ok(permit) = questions.clone().try_acquire_owned() else { continue };
        let (socket, question) = (socket.clone(), buffer[..length].to_vec());
        tokio::spawn(async move {
            relay(socket, question, client, to).await;
            drop(permit);
        });
    }
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

    fn in_background<F: Future<Output = ()> + 'static>(make: impl FnOnce() -> F + Send + 'static) {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async { make().await });
        });
    }

    #[test]
    fn a_flood_of_questions_costs_a_bounded_number_of_sockets_and_others_are_answered() {
        let server = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = server.local_addr().unwrap();
        let relay = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = relay.local_addr().unwrap();
        relay.set_nonblocking(true).unwrap();
        in_background(move || async move {
            relay_questions(Arc::new(UdpSocket::from_std(relay).unwrap()), to).await;
        });
        let client = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        // The server leaves them without an answer.
        let mut asked = std::collections::HashSet::new();
        let mut buffer = [0; 16];
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        for n in 0..4 * MAX_QUESTIONS as u32 {
            client.send_to(&n.to_be_bytes(), at).unwrap();
            if asked.len() < MAX_QUESTIONS {
                asked.insert(server.recv_from(&mut buffer).unwrap().1);
            }
        }
        server.set_nonblocking(true).unwrap();
        assert_eq!(server.recv_from(&mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(asked.len(), MAX_QUESTIONS);
        // An answer makes room for the next question.
        server.set_nonblocking(false).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        for from in asked {
            server.send_to(b"answer", from).unwrap();
            assert_eq!(client.recv(&mut buffer).unwrap(), 6);
        }
        client.send_to(b"next", at).unwrap();
        let (_, from) = server.recv_from(&mut buffer).unwrap();
        server.send_to(b"there", from).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), 5);
    }

    #[test]
    fn an_address_that_is_about_to_be_free_is_waited_for() {
        // The number of a datagram socket may be somebody's stream.
        let (before, address) = std::iter::repeat_with(|| {
            let before = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = before.local_addr().unwrap();
            (before, address)
        })
        .find(|(_, address)| std::net::TcpListener::bind(address).is_ok())
        .unwrap();
        let ends = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(before);
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        assert_eq!(runtime.block_on(bind(address)).unwrap().0.local_addr().unwrap(), address);
        ends.join().unwrap();
    }
}
