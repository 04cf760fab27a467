// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_UNIX as programs use it.
#![allow(clippy::unwrap_used)] // a panic is a failed test

use abi::{Events, Result, errno::*};
use api_fs::{Inode, Sink, Source};
use api_sched::Waiter;
use api_socket::{
    Address, Caller, Control, Credentials, Names, Received, Rights, Sending, Shutdown, Socket, Type,
};
use std::sync::Arc;
use unix_socket::socket::UnixSocket;

struct NoNames;

impl Names for NoNames {
    fn credentials(&self) -> Credentials {
        ME
    }

    fn sender(&self) -> Credentials {
        ME
    }

    fn may_administer(&self) -> bool {
        true
    }

    fn create(&self, _: &[u8]) -> Result<Arc<dyn Inode>> {
        Err(EROFS)
    }

    fn find(&self, _: &[u8]) -> Result<Arc<dyn Inode>> {
        Err(ENOENT)
    }
}

const ME: Credentials = Credentials { pid: 7, uid: 8, gid: 9 };

fn caller() -> Caller<'static> {
    Caller { names: &NoNames }
}

fn name(text: &str) -> Address {
    Address::new(Address::UNIX, format!("\0{text}").as_bytes())
}

fn pair(kind: Type) -> (Arc<UnixSocket>, Arc<UnixSocket>) {
    let (a, b) = (UnixSocket::new(kind, ME), UnixSocket::new(kind, ME));
    UnixSocket::join(&a, &b);
    (a, b)
}

fn send(socket: &dyn Socket, bytes: &[u8]) -> Result<usize> {
    socket.send(None, &Sending::default(), &mut Source::kernel(bytes))
}

fn receive_with(socket: &dyn Socket, most: usize, flags: u32) -> Result<(Vec<u8>, Received)> {
    let mut out = vec![0; most];
    let received = socket.receive(&mut Sink::kernel(&mut out), flags)?;
    out.truncate(received.length.min(most));
    Ok((out, received))
}

fn receive(socket: &dyn Socket, most: usize) -> Result<Vec<u8>> {
    receive_with(socket, most, 0).map(|r| r.0)
}

#[test]
fn a_stream_joins_writes_and_a_full_one_waits_for_its_reader() {
    let (a, b) = pair(Type::Stream);
    send(&*a, b"one").unwrap();
    send(&*a, b"two").unwrap();
    assert_eq!(receive(&*b, 4), Ok(b"onet".to_vec()));
    assert_eq!(receive(&*b, 4), Ok(b"wo".to_vec()));
    assert_eq!(receive(&*b, 4), Err(EAGAIN));
    let mut sent = 0;
    while let Ok(n) = send(&*a, &[1; 50_000]) {
        sent += n;
    }
    assert!(!a.poll().contains(Events::OUT) && sent >= 200_000);
    let mut got = 0;
    while let Ok(bytes) = receive(&*b, 70_000) {
        got += bytes.len();
    }
    assert_eq!(got, sent);
    assert!(a.poll().contains(Events::OUT));
}

#[test]
fn each_sender_has_its_own_buffer_and_each_receiver_a_bounded_queue() {
    let server = UnixSocket::new(Type::Datagram, ME);
    server.bind(&caller(), &name("full")).unwrap();
    let to = || Sending { to: Some(name("full")), ..Sending::default() };
    let sender = UnixSocket::new(Type::Datagram, ME);
    let put = |s: &UnixSocket| s.send(Some(&caller()), &to(), &mut Source::kernel(b"x"));
    for _ in 0..11 {
        put(&sender).unwrap();
    }
    // Whoever tries again and again takes no memory for it.
    for _ in 0..1000 {
        assert_eq!(put(&sender), Err(EAGAIN));
        let other = UnixSocket::new(Type::Datagram, ME);
        assert_eq!(put(&other), Err(EAGAIN));
        other.connect(&caller(), &name("full")).unwrap();
        assert!(!other.poll().contains(Events::OUT));
        assert_eq!(send(&*other, b"x"), Err(EAGAIN));
    }
    sender.connect(&caller(), &name("full")).unwrap();
    assert_eq!(send(&*sender, b"x"), Err(EAGAIN));
    struct Woken(std::sync::atomic::AtomicU32);
    impl Waiter for Woken {
        fn wake(&self, _: Events) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let (connected, addressed) = (Arc::new(Woken(0.into())), Arc::new(Woken(0.into())));
    sender.wait_queue().add(connected.clone(), Events::OUT, false);
    let blocker = sender.blocker(&caller(), &name("full")).unwrap();
    blocker.room().add(addressed.clone(), Events::OUT, false);
    assert_eq!(receive(&*server, 9), Ok(b"x".to_vec()));
    assert!(connected.0.load(std::sync::atomic::Ordering::Relaxed) > 0);
    assert_eq!(addressed.0.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(send(&*sender, b"x"), Ok(1));
    drop(blocker);
    drop(server);
    assert_eq!(send(&*sender, b"x"), Err(ECONNREFUSED));
    assert_eq!(send(&*sender, b"x"), Err(ENOTCONN), "it is connected no more");
}

#[test]
fn packets_keep_their_bounds() {
    for kind in [Type::Datagram, Type::SequencedPacket] {
        let (a, b) = pair(kind);
        send(&*a, b"first").unwrap();
        send(&*a, b"").unwrap();
        send(&*a, b"third").unwrap();
        let (bytes, received) = receive_with(&*b, 3, 0x20).unwrap();
        assert_eq!((&bytes[..], received.length, received.flags), (&b"fir"[..], 5, 0x20));
        assert_eq!(receive(&*b, 9), Ok(vec![]));
        assert_eq!(receive_with(&*b, 9, 2).unwrap().0, b"third", "MSG_PEEK leaves it");
        assert_eq!(receive(&*b, 9), Ok(b"third".to_vec()));
    }
}

#[test]
fn closing_ends_the_stream_and_unread_data_resets_it() {
    let (a, b) = pair(Type::Stream);
    send(&*a, b"last words").unwrap();
    a.close();
    assert!(b.poll().contains(Events::IN | Events::HUP | Events::RDHUP));
    assert_eq!(receive(&*b, 99), Ok(b"last words".to_vec()));
    assert_eq!(receive(&*b, 99), Ok(vec![]));
    assert_eq!(send(&*b, b"x"), Err(EPIPE));
    let (a, b) = pair(Type::Stream);
    send(&*a, b"never read").unwrap();
    b.close();
    assert_eq!(receive(&*a, 9), Err(ECONNRESET));
    assert_eq!(receive(&*a, 9), Ok(vec![]));
}

#[test]
fn shutdown_is_seen_by_both_sides() {
    let (a, b) = pair(Type::Stream);
    a.shutdown(Shutdown::Write).unwrap();
    assert_eq!(send(&*a, b"x"), Err(EPIPE));
    assert_eq!(receive(&*b, 9), Ok(vec![]));
    assert!(b.poll().contains(Events::RDHUP) && !b.poll().contains(Events::HUP));
    send(&*b, b"still").unwrap();
    assert_eq!(receive(&*a, 9), Ok(b"still".to_vec()));
}

#[test]
fn a_listener_hands_out_connections_in_order_and_keeps_to_its_backlog() {
    let listener = UnixSocket::new(Type::Stream, ME);
    listener.bind(&caller(), &name("server")).unwrap();
    let early = UnixSocket::new(Type::Stream, ME);
    assert_eq!(early.connect(&caller(), &name("server")), Err(ECONNREFUSED), "it does not listen yet");
    listener.listen(&caller(), 1).unwrap();
    let clients: Vec<_> = (0..3).map(|_| UnixSocket::new(Type::Stream, ME)).collect();
    assert_eq!(clients[0].connect(&caller(), &name("server")), Ok(()));
    assert_eq!(clients[1].connect(&caller(), &name("server")), Ok(()));
    assert_eq!(clients[2].connect(&caller(), &name("server")), Err(EAGAIN));
    send(&*clients[0], b"hello").unwrap();
    let (server, _) = listener.accept().unwrap();
    assert_eq!(receive(&*server, 9), Ok(b"hello".to_vec()));
    assert_eq!(server.get_option(1, 17, &[]).unwrap()[..4], 7u32.to_ne_bytes(), "SO_PEERCRED");
    assert_eq!(clients[0].peer_address(), Ok(name("server")));
    listener.close();
    assert_eq!(receive(&*clients[1], 9), Err(ECONNRESET), "nobody accepted it");
    assert_eq!(clients[2].connect(&caller(), &name("server")), Err(ECONNREFUSED));
    let again = UnixSocket::new(Type::Stream, ME);
    assert_eq!(again.bind(&caller(), &name("server")), Ok(()), "the name is free again");
}

#[test]
fn datagrams_find_their_way_by_name_and_back() {
    let server = UnixSocket::new(Type::Datagram, ME);
    server.bind(&caller(), &name("log")).unwrap();
    let client = UnixSocket::new(Type::Datagram, ME);
    client.bind(&caller(), &Address::new(Address::UNIX, &[])).unwrap();
    let to = |address: Address| Sending { to: Some(address), ..Sending::default() };
    client.send(Some(&caller()), &to(name("log")), &mut Source::kernel(b"line")).unwrap();
    let (bytes, received) = receive_with(&*server, 99, 0).unwrap();
    assert_eq!(bytes, b"line");
    let from = received.from.unwrap();
    assert_eq!(from, client.local_address().unwrap());
    server.send(Some(&caller()), &to(from), &mut Source::kernel(b"thanks")).unwrap();
    assert_eq!(receive(&*client, 99), Ok(b"thanks".to_vec()));
    let nobody = client.send(Some(&caller()), &to(name("nobody")), &mut Source::kernel(b"x"));
    assert_eq!(nobody, Err(ECONNREFUSED));
    assert_eq!(UnixSocket::new(Type::Stream, ME).connect(&caller(), &name("log")), Err(ECONNREFUSED));
}

#[test]
fn descriptors_and_credentials_travel_with_their_byte() {
    let (a, b) = pair(Type::Stream);
    b.set_option(1, 16, &1i32.to_ne_bytes()).unwrap(); // SO_PASSCRED
    send(&*a, b"before").unwrap();
    let passed: Arc<dyn std::any::Any + Send + Sync> = Arc::new(String::from("a file"));
    let message = Sending {
        control: vec![Control::Rights(Rights::new(vec![passed], 10, |_| None).unwrap())],
        ..Sending::default()
    };
    a.send(Some(&caller()), &message, &mut Source::kernel(b"with")).unwrap();
    send(&*a, b"after").unwrap();
    let (bytes, received) = receive_with(&*b, 99, 0).unwrap();
    assert_eq!(bytes, b"beforewith", "a read ends behind descriptors, not before them");
    assert!(matches!(&received.control[0], Control::Credentials(c) if *c == ME));
    assert!(
        matches!(&received.control[1], Control::Rights(r) if r.files()[0].downcast_ref::<String>().unwrap() == "a file")
    );
    assert_eq!(receive(&*b, 99), Ok(b"after".to_vec()));
}

/// An open file description, as the collector sees it.
struct Open(Arc<UnixSocket>, Arc<std::sync::atomic::AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.close();
        self.1.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}

fn pass(from: &UnixSocket, what: &Arc<Open>) {
    let socket = |file: &api_socket::Right| {
        file.downcast_ref::<Open>().map(|open| -> Arc<dyn Socket> { open.0.clone() })
    };
    let rights = Rights::new(vec![what.clone()], 1 << 20, socket).unwrap();
    let message = Sending { control: vec![Control::Rights(rights)], ..Sending::default() };
    from.send(Some(&caller()), &message, &mut Source::kernel(b"x")).unwrap();
}

fn collect() {
    drop(unix_socket::garbage::collect());
}

/// Cycles of two, of one, of many, through a listener, and what only looks like one. One test: the graph is the process's.
#[test]
fn sockets_that_hold_only_each_other_are_closed() {
    let open = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let file = |socket: Arc<UnixSocket>| {
        open.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Arc::new(Open(socket, open.clone()))
    };
    let count = || open.load(std::sync::atomic::Ordering::Relaxed);
    let files = || {
        let (a, b) = pair(Type::Stream);
        (file(a), file(b))
    };
    // Each in the other's queue, and one in its own.
    let (a, b) = files();
    pass(&a.0, &a);
    pass(&b.0, &b);
    pass(&b.0, &a);
    drop(b);
    collect();
    assert_eq!(count(), 2, "one handle keeps both");
    let peeked = receive_with(&*a.0, 1, 2).unwrap();
    drop(a);
    collect();
    assert_eq!(count(), 2, "a reader that peeks keeps both");
    drop(peeked);
    collect();
    assert_eq!(count(), 0);
    // Many in a circle, with a tail of files that are no part of it.
    let ring: Vec<_> = (0..5000).map(|_| files()).collect();
    let (outside, within) = files();
    pass(&outside.0, &ring[0].1);
    for (i, (sender, _)) in ring.iter().enumerate() {
        pass(&sender.0, &ring[(i + 1) % ring.len()].1);
    }
    drop(ring);
    collect();
    assert_eq!(count(), 5000 + 2, "a queue from outside leads to all of them");
    assert_eq!(receive(&*within.0, 1), Ok(b"x".to_vec()));
    collect();
    assert_eq!(count(), 2);
    // A listener in the queue of a connection that waits at it.
    let listener = UnixSocket::new(Type::Stream, ME);
    listener.bind(&caller(), &name("circle")).unwrap();
    listener.listen(&caller(), 5).unwrap();
    let client = UnixSocket::new(Type::Stream, ME);
    client.connect(&caller(), &name("circle")).unwrap();
    let listener = file(listener);
    pass(&client, &listener);
    collect();
    assert_eq!(count(), 3);
    drop(listener);
    collect();
    assert_eq!(count(), 2);
    assert!(client.poll().contains(Events::HUP), "its end reaches the peer");
}
