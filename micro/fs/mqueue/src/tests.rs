// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_lock::SpinLock;

fn queue(messages: usize) -> Queue {
    Queue::new(Attributes { messages, size: 8 }, (1, 2), 0o600, 7)
}

fn send(queue: &Queue, bytes: &[u8], priority: u32) -> Result<()> {
    queue.send(&mut bytes.to_vec(), priority)
}

#[test]
fn messages_come_by_priority_and_then_by_age() {
    let q = queue(4);
    for (bytes, priority) in [(b"a", 1), (b"b", 5), (b"c", 1), (b"d", 5)] {
        send(&q, bytes, priority).unwrap();
    }
    let order: Vec<_> = (0..4).map(|_| q.receive().unwrap()).collect();
    assert_eq!(order, [(b"b".to_vec(), 5), (b"d".to_vec(), 5), (b"a".to_vec(), 1), (b"c".to_vec(), 1)]);
    assert_eq!(q.receive(), Err(EAGAIN));
}

#[test]
fn a_full_queue_and_a_long_message_are_refused_and_the_message_is_kept() {
    let q = queue(1);
    let mut message = b"again".to_vec();
    send(&q, b"first", 0).unwrap();
    assert_eq!(q.send(&mut message, 0), Err(EAGAIN));
    assert_eq!(message, b"again");
    assert_eq!(q.send(&mut b"123456789".to_vec(), 0), Err(EMSGSIZE));
    q.receive().unwrap();
    assert_eq!(q.send(&mut message, 0), Ok(()));
    assert_eq!(q.poll(), Events::READABLE);
}

#[test]
fn a_notification_comes_once_for_an_empty_queue_nobody_waits_on() {
    let q = queue(4);
    let told = Arc::new(SpinLock::new(Vec::new()));
    let ask = || {
        let told = told.clone();
        q.notify([0, 10, 1], Box::new(move |outcome| told.lock().push(outcome)))
    };
    ask().unwrap();
    assert_eq!(ask(), Err(EBUSY));
    let waiting = q.receiving();
    send(&q, b"x", 0).unwrap();
    assert!(told.lock().is_empty());
    drop(waiting);
    send(&q, b"y", 0).unwrap();
    assert!(told.lock().is_empty());
    q.receive().unwrap();
    q.receive().unwrap();
    send(&q, b"z", 0).unwrap();
    assert_eq!(*told.lock(), [Outcome::Message]);
    ask().unwrap();
    q.forget_notification();
    assert_eq!(*told.lock(), [Outcome::Message, Outcome::Removed]);
}

#[test]
fn the_descriptor_shows_the_state_of_the_queue() {
    let q = Arc::new(queue(4));
    send(&q, b"12345", 0).unwrap();
    let file = QueueFile::new(q);
    let mut out = [0; 80];
    let n = file.read(0, &mut Sink::kernel(&mut out)).unwrap();
    assert_eq!(&out[..n], &b"QSIZE:5          NOTIFY:0     SIGNO:0     NOTIFY_PID:0     \n"[..]);
    assert_eq!(file.read(n as u64, &mut Sink::kernel(&mut out)), Ok(0));
    assert_eq!((file.stat().unwrap().size, file.stat().unwrap().uid), (80, 1));
}
