// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The userland proxy of published ports: bytes between the host's sockets and the machine's address.
//!
//! One thread, one runtime. A connection the machine refuses is reset towards the client, as if there were no proxy.

use crate::ports::Listener;
use std::{collections::HashMap, io, net::Ipv4Addr, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream, UdpSocket},
    sync::Mutex,
    time::timeout,
};

/// How long a client may wait for the machine to accept; a machine that boots needs less.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// A UDP exchange that was silent this long is forgotten, as in Linux's connection tracking.
const UDP_IDLE: Duration = Duration::from_secs(120);
/// Largest UDP payload over IPv4.
const LARGEST_DATAGRAM: usize = 65_507;

/// One published port: where clients arrive, and the port of the machine they want.
pub struct Route {
    pub listener: Listener,
    pub guest: u16,
}

/// Serves the routes until the runtime it runs in ends. Must be called inside a runtime.
pub fn serve(routes: Vec<Route>, machine: Ipv4Addr) -> io::Result<()> {
    for route in routes {
        let to = SocketAddr::from((machine, route.guest));
        match route.listener {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                tokio::spawn(tcp(TcpListener::from_std(listener)?, to));
            }
            Listener::Udp(socket) => {
                socket.set_nonblocking(true)?;
                tokio::spawn(udp(Arc::new(UdpSocket::from_std(socket)?), to));
            }
        }
    }
    Ok(())
}

async fn tcp(listener: TcpListener, to: SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                tokio::spawn(connection(client, to));
            }
            // Out of descriptors: those in use come free as clients leave.
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
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

/// The sockets towards the machine, one for each client address.
type Exchanges = Arc<Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>>;

async fn udp(host: Arc<UdpSocket>, to: SocketAddr) {
    let exchanges = Exchanges::default();
    let mut buffer = vec![0; LARGEST_DATAGRAM];
    loop {
        let Ok((length, client)) = host.recv_from(&mut buffer).await else { continue };
        let known = exchanges.lock().await.get(&client).cloned();
        let socket = match known {
            Some(socket) => socket,
            None => {
                let Ok(socket) = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await else { continue };
                if socket.connect(to).await.is_err() {
                    continue;
                }
                let socket = Arc::new(socket);
                exchanges.lock().await.insert(client, socket.clone());
                tokio::spawn(replies(host.clone(), socket.clone(), client, exchanges.clone()));
                socket
            }
        };
        // A datagram that cannot be delivered is lost, as datagrams are.
        let _ = socket.send(&buffer[..length]).await;
    }
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

    fn published(protocol: Protocol) -> (Route, SocketAddr) {
        let mut publish = Publish { address: Ipv4Addr::LOCALHOST, host: 0, guest: 0, protocol };
        let listener = listen(&mut publish).unwrap();
        (Route { listener, guest: 0 }, SocketAddr::from((Ipv4Addr::LOCALHOST, publish.host)))
    }

    fn in_background(route: Route) {
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                serve(vec![route], Ipv4Addr::LOCALHOST).unwrap();
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
}
