// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Both directions against another end on the host.

use super::receive::{BUFFERS, Receive};
use super::transmit::Transmit;
use super::*;
use alloc::boxed::Box;
use api_netdev::{Checksum, Fragment, Segmentation};
use proptest::prelude::*;
use std::vec;

fn pages(count: usize) -> &'static [Page] {
    Box::leak((0..count).map(|_| Page::default()).collect::<Vec<_>>().into_boxed_slice())
}

fn word(page: &Page, at: usize) -> u32 {
    page.0[at].load(Ordering::Relaxed)
}

fn transmit(count: usize) -> (Transmit, &'static Page, &'static [Page]) {
    let (ring, data) = (&pages(1)[0], pages(count));
    (Transmit::new(Ring::new(ring, 3), data, (100..100 + count as u32).collect()).unwrap(), ring, data)
}

fn packet(head: &[u8], fragment: &[u8]) -> Outgoing {
    let mut buffer = Buffer::new(BUFFER_SIZE, 152).unwrap();
    assert!(buffer.append(head));
    let fragment = Fragment::new(Arc::new(fragment.to_vec()), 0..fragment.len());
    Outgoing { fragments: vec![fragment], ..Outgoing::plain(buffer) }
}

/// Entry `index` of a transmit ring.
fn request(ring: &Page, index: usize) -> [u32; 3] {
    core::array::from_fn(|i| word(ring, 16 + 3 * index + i))
}

#[test]
fn large_packet_is_described_piece_by_piece_with_its_segmentation_between() {
    let (mut transmit, ring, data) = transmit(8);
    let mut large = packet(b"head", &[7; 5000]);
    large.checksum = Some(Checksum { start: 34, offset: 16 });
    large.segmentation = Some(Segmentation { header_length: 54, segment_size: 1448 });
    assert!(transmit.add(large).is_ok() && transmit.push());
    assert_eq!(word(ring, 0), 3);
    assert_eq!(request(ring, 0), [101, 0xf << 16, 1 | 5004 << 16]);
    assert_eq!(request(ring, 1), [1 | (1448 << 16), 1, 0]);
    assert_eq!(request(ring, 2), [100, 0, (5004 - 4096) << 16]);
    assert_eq!(word(&data[1], 0).to_le_bytes(), *b"head");
    let mut heads = Vec::new();
    transmit.reclaim(&mut heads).unwrap();
    assert_eq!(heads.len(), 1, "what was copied comes back at once");
}

#[test]
fn pages_come_back_by_their_number_and_none_twice() {
    let (mut transmit, ring, _) = transmit(1);
    assert!(transmit.add(packet(b"one", b"")).is_ok());
    assert!(transmit.add(packet(b"two", b"")).is_err(), "the only page is out");
    transmit.push();
    // The response to entry 0: page 0.
    ring.0[16].store(0, Ordering::Relaxed);
    ring.0[2].store(1, Ordering::Relaxed);
    transmit.reclaim(&mut Vec::new()).unwrap();
    assert!(transmit.add(packet(b"two", b"")).is_ok());
    transmit.push();
    // A page that does not exist.
    ring.0[19].store(9, Ordering::Relaxed);
    ring.0[2].store(2, Ordering::Relaxed);
    assert_eq!(transmit.reclaim(&mut Vec::new()), Err(Broken));
    // Nothing is sent any more, and nobody waits for that.
    assert!(transmit.add(packet(b"three", b"")).is_ok() && !transmit.push());
}

fn receive() -> (Receive, &'static Page, &'static [Page]) {
    let (ring, data) = (&pages(1)[0], pages(8));
    let mut receive = Receive::new(Ring::new(ring, 2), data, (0..8).collect(), Vec::new());
    receive.refill(&mut (0..BUFFERS).map(|_| Buffer::new(BUFFER_SIZE, 0).unwrap()).collect());
    assert!(receive.fill());
    (receive, ring, data)
}

fn respond(ring: &Page, index: usize, offset: u32, flags: u32, status: i16) {
    ring.0[16 + 2 * index].store(offset << 16, Ordering::Relaxed);
    ring.0[17 + 2 * index].store(flags | u32::from(status as u16) << 16, Ordering::Relaxed);
    ring.0[2].store(index as u32 + 1, Ordering::Relaxed);
}

#[test]
fn packet_of_several_pages_is_put_together_behind_its_extra_information() {
    let (mut receive, ring, data) = receive();
    data[0].0[1].store(u32::from_le_bytes(*b"abcd"), Ordering::Relaxed);
    respond(ring, 0, 4, 2 | 4 | 8, 4092);
    respond(ring, 1, 0, 0, 0);
    respond(ring, 2, 0, 0, 100);
    let came = receive.packet().unwrap().unwrap().unwrap();
    assert!(came.checksum_valid && came.first.bytes().starts_with(b"abcd"));
    let length = came.first.len() + came.more.iter().map(Buffer::len).sum::<usize>();
    assert_eq!((length, came.more.len()), (4192, 2));
    assert!(receive.packet().unwrap().is_none());
}

#[test]
fn piece_that_leaves_its_page_and_an_error_are_dropped_alone() {
    let (mut receive, ring, _) = receive();
    respond(ring, 0, 4000, 0, 97);
    respond(ring, 1, 0, 0, -1);
    respond(ring, 2, 4000, 0, 96);
    assert!(receive.packet().unwrap().unwrap().is_none());
    assert!(receive.packet().unwrap().unwrap().is_none());
    assert_eq!(receive.packet().unwrap().unwrap().unwrap().first.len(), 96);
    // Its pages are the other end's again.
    assert!(!receive.fill());
    assert_eq!(word(ring, 0), 11);
}

#[test]
fn half_a_packet_is_the_end() {
    let (mut receive, ring, _) = receive();
    respond(ring, 0, 0, 4, 100);
    assert_eq!(receive.packet().map(|_| ()), Err(Broken));
    assert!(receive.packet().unwrap().is_none() && receive.arm());
}

#[test]
fn address_is_six_numbers() {
    assert_eq!(mac("00:16:3e:0a:ff:01\0"), Ok([0, 0x16, 0x3e, 10, 255, 1]));
    for wrong in ["", "00:16:3e:0a:ff", "00:16:3e:0a:ff:01:02", "00:16:3e:0a:ff:xx"] {
        assert_eq!(mac(wrong), Err(EINVAL));
    }
}

proptest! {
    #[test]
    fn whatever_the_other_end_says_no_packet_leaves_its_buffers(
        steps in proptest::collection::vec((any::<u32>(), any::<u32>(), 0u32..9, any::<bool>()), 1..60)
    ) {
        let (mut receive, ring, _) = receive();
        let (mut transmit, sent, _) = transmit(4);
        for (place, answer, more, sends) in steps {
            for i in 0..256 {
                ring.0[16 + 2 * i].store(place.rotate_left(i as u32), Ordering::Relaxed);
                ring.0[17 + 2 * i].store(answer.rotate_right(i as u32), Ordering::Relaxed);
                sent.0[16 + 3 * i].store((place % 6) | (answer << 16), Ordering::Relaxed);
            }
            ring.0[2].store(word(ring, 2).wrapping_add(more), Ordering::Relaxed);
            while let Ok(Some(packet)) = receive.packet() {
                if let Some(packet) = packet {
                    prop_assert!(packet.more.iter().all(|buffer| buffer.len() <= BUFFER_SIZE));
                }
            }
            receive.fill();
            if sends {
                let _ = transmit.add(packet(b"head", &[1; 300]));
                transmit.push();
            }
            sent.0[2].store(word(sent, 2).wrapping_add(more % 3), Ordering::Relaxed);
            let _ = transmit.reclaim(&mut Vec::new());
        }
    }
}
