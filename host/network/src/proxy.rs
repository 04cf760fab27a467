// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The userland proxy of published ports: bytes between the host's sockets and the machine's address.
//!
//! One thread, one runtime. A connection the machine refuses is reset towards the client, as if there were no proxy. Clients
//! are strangers: there are never more connections and exchanges than the caller allows, so that they do not take the
//! descriptors that the machine's supervisor needs. Further clients wait in the listening socket's queue, further exchanges
//! take the place of the one that has been silent longest.

use crate::ports::Listener;
use std::{
    collections::HashMap,
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream, UdpSocket},
    sync::{Mutex, Semaphore},
    task::AbortHandle,
    time::{sleep, timeout},
};

/// How long a client may wait for the machine to accept; a machine that boots needs less.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// A UDP exchange that was silent this long is forgotten, as in Linux's connection tracking.
const UDP_IDLE: Duration = Duration::from_secs(120);
/// Largest UDP payload over IPv4.
const LARGEST_DATAGRAM: usize = 65_507;
/// How long after a failure for want of descriptors or memory the next attempt is made.
pub(crate) const RETRY: Duration = Duration::from_millis(50);

/// How many clients there may be at once, over all ports.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// TCP; each has two descriptors and 16 KiB of buffers.
    pub connections: usize,
    /// UDP; each has one descriptor.
    pub exchanges: usize,
}

/// One published port: where clients arrive, and the port of the machine they want.
pub struct Route {
    pub listener: Listener,
    pub guest: u16,
}

/// Serves the routes until the runtime it runs in ends. Must be called inside a runtime.
pub fn serve(routes: Vec<Route>, machine: Ipv4Addr, limits: Limits) -> io::Result<()> {
    let connections = Arc::new(Semaphore::new(limits.connections));
    let count = |route: &&Route| matches!(route.listener, Listener::Udp(_));
    let exchanges = limits.exchanges / routes.iter().filter(count).count().max(1);
    for route in routes {
        let to = SocketAddr::from((machine, route.guest));
        match route.listener {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                tokio::spawn(tcp(TcpListener::from_std(listener)?, to, connections.clone()));
            }
            Listener::Udp(socket) => {
                socket.set_nonblocking(true)?;
                tokio::spawn(udp(Arc::new(UdpSocket::from_std(socket)?), to, exchanges.max(1)));
            }
        }
    }
    Ok(())
}

async fn tcp(listener: TcpListener, to: SocketAddr, connections: Arc<Semaphore>) {
    // It is never closed.
    while let Ok(permit) = connections.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::spawn(async move {
                    connection(client, to).await;
                    drop(permit);
                });
            }
            Err(_) => sleep(RETRY).await,
        }
    }
}

async fn connection(mut client: TcpStream, to: SocketAddr) {
    let Ok(Ok(mut machine)) = timeout(CONNECT_LIMIT, TcpStream::connect(to)).await else {
        // Dropping it would say "accepted and ended well"; a reset says "refused".
        let _ = client.set_zero_linger();
        return;
    };
    // Delays are the two ends' business; failing to say so costs time only.
    let _ = (client.set_nodelay(true), machine.set_nodelay(true));
    if copy_bidirectional(&mut client, &mut machine).await.is_err() {
        let _ = (client.set_zero_linger(), machine.set_zero_linger());
    }
}

/// The socket towards the machine for one client's address.
struct Exchange {
    socket: Arc<UdpSocket>,
    /// When the client last sent something.
    last: Instant,
    replies: AbortHandle,
}

type Exchanges = Arc<Mutex<HashMap<SocketAddr, Exchange>>>;

async fn udp(host: Arc<UdpSocket>, to: SocketAddr, most: usize) {
    let exchanges = Exchanges::default();
    let mut buffer = vec![0; LARGEST_DATAGRAM];
    loop {
        let Ok((length, client)) = host.recv_from(&mut buffer).await else {
            sleep(RETRY).await;
            continue;
        };
        // A datagram that cannot be delivered is lost, as datagrams are.
        if let Ok(socket) = exchange(&host, client, to, &exchanges, most).await {
            let _ = socket.send(&buffer[..length]).await;
        }
    }
}

/// The socket for a client, old or new.
async fn exchange(
    host: &Arc<UdpSocket>,
    client: SocketAddr,
    to: SocketAddr,
    exchanges: &Exchanges,
    most: usize,
) -> io::Result<Arc<UdpSocket>> {
    let mut all = exchanges.lock().await;
    if let Some(known) = all.get_mut(&client) {
        known.last = Instant::now();
        return Ok(known.socket.clone());
    }
    if all.len() >= most {
        let silent = all.iter().min_by_key(|(_, exchange)| exchange.last).map(|(client, _)| *client);
        if let Some(gone) = silent.and_then(|client| all.remove(&client)) {
            gone.replies.abort();
        }
    }
    let socket = Arc::new(UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?);
    socket.connect(to).await?;
    let replies = tokio::spawn(replies(host.clone(), socket.clone(), client, exchanges.clone()));
    let exchange = Exchange { socket: socket.clone(), last: Instant::now(), replies: replies.abort_handle() };
    all.insert(client, exchange);
    Ok(socket)
}

async fn replies(host: Arc<UdpSocket>, socket: Arc<UdpSocket>, client: SocketAddr, exchanges: Exchanges) {
    let mut buffer = vec![0; LARGEST_DATAGRAM];
    while let Ok(Ok(length)) = timeout(UDP_IDLE, socket.recv(&mut buffer)).await {
        let _ = host.send_to(&buffer[..length], client).await;
    }
    exchanges.lock().await.remove(&client);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::{Protocol, Publish, listen};
    use std::io::{Read, Write};

    const LIMITS: Limits = Limits { connections: 2, exchanges: 2 };

    fn published(protocol: Protocol) -> (Route, SocketAddr) {
        let mut publish = Publish { address: Ipv4Addr::LOCALHOST.into(), host: 0, guest: 0, protocol };
        let listener = listen(&mut publish).unwrap();
        (Route { listener, guest: 0 }, SocketAddr::from((Ipv4Addr::LOCALHOST, publish.host)))
    }

    fn in_background(route: Route) {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                serve(vec![route], Ipv4Addr::LOCALHOST, LIMITS).unwrap();
                std::future::pending::<()>().await;
            });
        });
    }

    #[test]
    fn bytes_and_end_of_stream_travel_both_ways() {
        let machine = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (mut route, at) = published(Protocol::Tcp);
        route.guest = machine.local_addr().unwrap().port();
        in_background(route);
        let server = std::thread::spawn(move || {
            let (mut peer, _) = machine.accept().unwrap();
            let mut request = String::new();
            // Ends only if the client's shutdown arrives, while the way back stays open.
            peer.read_to_string(&mut request).unwrap();
            peer.write_all(request.to_uppercase().as_bytes()).unwrap();
        });
        let mut client = std::net::TcpStream::connect(at).unwrap();
        client.write_all(b"hello").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut reply = String::new();
        client.read_to_string(&mut reply).unwrap();
        assert_eq!(reply, "HELLO");
        server.join().unwrap();
    }

    #[test]
    fn a_refused_connection_is_reset_not_ended() {
        let closed =
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let (mut route, at) = published(Protocol::Tcp);
        route.guest = closed;
        in_background(route);
        let mut client = std::net::TcpStream::connect(at).unwrap();
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn datagrams_find_their_way_back_to_the_client_that_asked() {
        let machine = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (mut route, at) = published(Protocol::Udp);
        route.guest = machine.local_addr().unwrap().port();
        in_background(route);
        let clients = [(); 2].map(|()| std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        for (client, text) in clients.iter().zip([b"a", b"b"]) {
            client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            client.send_to(text, at).unwrap();
        }
        for _ in &clients {
            let mut buffer = [0; 16];
            let (length, from) = machine.recv_from(&mut buffer).unwrap();
            machine.send_to(&buffer[..length], from).unwrap();
        }
        for (client, text) in clients.iter().zip([b"a", b"b"]) {
            let mut buffer = [0; 16];
            let length = client.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..length], text);
        }
    }

    #[test]
    fn clients_beyond_the_limit_wait_and_are_served_when_others_go() {
        let machine = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (mut route, at) = published(Protocol::Tcp);
        route.guest = machine.local_addr().unwrap().port();
        in_background(route);
        // Idle, as somebody's who wants nothing but the descriptors.
        let idle = [(); LIMITS.connections].map(|()| std::net::TcpStream::connect(at).unwrap());
        let reached = [(); LIMITS.connections].map(|()| machine.accept().unwrap());
        let mut client = std::net::TcpStream::connect(at).unwrap();
        client.write_all(b"x").unwrap();
        machine.set_nonblocking(true).unwrap();
        // The two are served by one thread, which has come past this one when it has moved a byte of theirs.
        (&idle[0]).write_all(b"y").unwrap();
        (&reached[0].0).read_exact(&mut [0]).unwrap();
        assert_eq!(machine.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        machine.set_nonblocking(false).unwrap();
        drop((idle, reached));
        let mut byte = [0];
        machine.accept().unwrap().0.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn the_exchange_that_was_silent_longest_makes_room_for_a_new_one() {
        let machine = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (mut route, at) = published(Protocol::Udp);
        route.guest = machine.local_addr().unwrap().port();
        in_background(route);
        let mut buffer = [0; 16];
        let mut last = None;
        for n in 0..20u8 {
            let client = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            client.send_to(&[n], at).unwrap();
            let (length, from) = machine.recv_from(&mut buffer).unwrap();
            assert_eq!(buffer[..length], [n]);
            machine.send_to(&[n], from).unwrap();
            assert_eq!(client.recv(&mut buffer).unwrap(), 1);
            last = Some((client, from));
        }
        // One that is in use keeps its place and its port.
        let (client, from) = last.unwrap();
        client.send_to(b"again", at).unwrap();
        assert_eq!(machine.recv_from(&mut buffer).unwrap(), (5, from));
    }
}
