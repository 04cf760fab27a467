// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A DNS relay on the host's end of a machine's link, so that names resolve in a machine as they do on the host, with
//! or without address translation. Names of machines of its networks are answered here; all else is copied. The machine is not
//! trusted: the relay has a number of questions and connections at once, beyond which datagrams are lost and connections wait.

use crate::{proxy, question};
use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
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

/// The addresses of a name, which is in lower case; `None`: it is not known here.
pub type Lookup = Box<dyn FnMut(&str) -> Option<Vec<Ipv4Addr>> + Send>;

/// Whoever answers questions.
#[derive(Clone)]
struct Answers {
    /// One look at a time: whatever a machine asks keeps one processor of the host busy and no more.
    names: Option<Arc<Mutex<Lookup>>>,
    /// The server for all other names.
    server: Option<SocketAddr>,
}

impl Answers {
    /// The answer to a message that is not for the server.
    async fn own(&self, message: &[u8]) -> Option<Vec<u8>> {
        let names = self.names.clone()?;
        let message = message.to_vec();
        let has_server = self.server.is_some();
        let look = move || {
            let question = question::read(&message)?;
            let found = names.lock().ok()?(&question.name);
            match found {
                Some(addresses) => Some(question.answer(&addresses)),
                None => (!has_server).then(|| question.failed()),
            }
        };
        tokio::task::spawn_blocking(look).await.ok()?
    }
}

/// The sockets of a relay.
pub struct Sockets(std::net::UdpSocket, std::net::TcpListener);

/// Takes `address`:53, so that what a machine asks as soon as it runs waits for the relay. `None`: somebody else has it yet.
pub fn take(address: Ipv4Addr) -> Option<Sockets> {
    let (datagrams, streams) =
        (std::net::UdpSocket::bind((address, 53)).ok()?, std::net::TcpListener::bind((address, 53)).ok()?);
    (datagrams.set_nonblocking(true).is_ok() && streams.set_nonblocking(true).is_ok())
        .then_some(Sockets(datagrams, streams))
}

/// Answers for `names`, and relays other questions to the first of `servers`, until the runtime ends: at `taken`, else at
/// `address`:53 as soon as that is free. Must be called inside a runtime.
pub async fn serve(
    address: Ipv4Addr,
    taken: Option<Sockets>,
    servers: Vec<Ipv4Addr>,
    names: Option<Lookup>,
) -> io::Result<()> {
    let server = servers.first().map(|server| SocketAddr::from((*server, 53)));
    let answers = Answers { names: names.map(|names| Arc::new(Mutex::new(names))), server };
    if answers.names.is_none() && answers.server.is_none() {
        return Ok(());
    }
    let (socket, listener) = match taken {
        Some(Sockets(socket, listener)) => (UdpSocket::from_std(socket)?, TcpListener::from_std(listener)?),
        None => bind(SocketAddr::from((address, 53))).await?,
    };
    tokio::spawn(relay_connections(listener, answers.clone()));
    tokio::spawn(relay_questions(Arc::new(socket), answers));
    Ok(())
}

async fn relay_connections(listener: TcpListener, answers: Answers) {
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    // It is never closed.
    while let Ok(permit) = connections.clone().acquire_owned().await {
        let Ok((client, _)) = listener.accept().await else {
            sleep(proxy::RETRY).await;
            continue;
        };
        let answers = answers.clone();
        tokio::spawn(async move {
            // Either end going away ends the exchange.
            let _ = timeout(CONNECTION_LIMIT, exchange(client, answers)).await;
            drop(permit);
        });
    }
}

/// Answers what is for names known here; from the first other question on the connection is the server's.
async fn exchange(mut client: TcpStream, answers: Answers) -> io::Result<()> {
    let mut first = Vec::new();
    while answers.names.is_some() {
        // RFC 1035 4.2.2: each message behind its length.
        let length = client.read_u16().await?;
        let mut message = vec![0; usize::from(length)];
        client.read_exact(&mut message).await?;
        let Some(answer) = answers.own(&message).await else {
            first = [&length.to_be_bytes()[..], &message].concat();
            break;
        };
        client.write_all(&[&(answer.len() as u16).to_be_bytes()[..], &answer].concat()).await?;
    }
    let Some(to) = answers.server else { return Ok(()) };
    let Ok(server) = timeout(ANSWER_LIMIT, TcpStream::connect(to)).await else { return Ok(()) };
    let mut server = server?;
    server.write_all(&first).await?;
    copy_bidirectional(&mut client, &mut server).await.map(drop)
}

async fn relay_questions(socket: Arc<UdpSocket>, answers: Answers) {
    let questions = Arc::new(Semaphore::new(MAX_QUESTIONS));
    let mut buffer = vec![0; LARGEST_MESSAGE];
    loop {
        let Ok((length, client)) = socket.recv_from(&mut buffer).await else {
            sleep(proxy::RETRY).await;
            continue;
        };
        // A resolver whose question is lost asks again.
        let Ok(permit) = questions.clone().try_acquire_owned() else { continue };
        let (socket, question, answers) = (socket.clone(), buffer[..length].to_vec(), answers.clone());
        tokio::spawn(async move {
            match (answers.own(&question).await, answers.server) {
                // A resolver whose answer is lost asks again.
                (Some(answer), _) => drop(socket.send_to(&answer, client).await),
                (None, Some(to)) => relay(socket, question, client, to).await,
                (None, None) => {}
            }
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
            let answers = Answers { names: None, server: Some(to) };
            relay_questions(Arc::new(UdpSocket::from_std(relay).unwrap()), answers).await;
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
    fn names_known_here_are_answered_over_both_protocols_and_others_are_the_servers() {
        use std::io::{Read, Write};
        let server = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = server.local_addr().unwrap();
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (at, stream_at) = (socket.local_addr().unwrap(), listener.local_addr().unwrap());
        socket.set_nonblocking(true).unwrap();
        listener.set_nonblocking(true).unwrap();
        in_background(move || async move {
            let names: Lookup = Box::new(|name| (name == "redis").then(|| vec![Ipv4Addr::new(10, 44, 0, 2)]));
            let answers = Answers { names: Some(Arc::new(Mutex::new(names))), server: Some(to) };
            tokio::spawn(relay_connections(TcpListener::from_std(listener).unwrap(), answers.clone()));
            relay_questions(Arc::new(UdpSocket::from_std(socket).unwrap()), answers).await;
        });
        let question = |name: &[u8]| {
            let length = [name.len() as u8];
            [&[0, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0], &length[..], name, &[0, 0, 1, 0, 1]].concat()
        };
        let known = question(b"redis");
        let client = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut buffer = [0; 512];
        client.send_to(&known, at).unwrap();
        let length = client.recv(&mut buffer).unwrap();
        assert_eq!(buffer[length - 4..length], [10, 44, 0, 2]);
        let mut stream = std::net::TcpStream::connect(stream_at).unwrap();
        // Twice: the connection stays.
        for _ in 0..2 {
            stream.write_all(&[&(known.len() as u16).to_be_bytes()[..], &known].concat()).unwrap();
            let mut answer = vec![0; 2 + length];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer[2..], buffer[..length]);
        }
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let other = question(b"example");
        client.send_to(&other, at).unwrap();
        let (length, from) = server.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[..length], other);
        server.send_to(b"answer", from).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), 6);
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
