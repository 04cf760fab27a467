// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver and the card of `model.rs`.

use super::*;
use crate::descriptor::Written;
use crate::model::{MAC, Model};
use alloc::sync::Arc;
use api_netdev::Fragment;
use std::vec;

const FAMILIES: [Family; 3] = [Family::I8254x, Family::I82574, Family::I82576];

fn kind(family: Family) -> Kind {
    Kind { name: "model", family, has_messages: true }
}

fn card(model: &Model) -> Card<Model> {
    let family = model.0.lock().unwrap().family;
    let card = Card::new(model.clone(), kind(family), [7; 6]).unwrap();
    card.begin();
    card
}

fn buffers(count: usize) -> Vec<Buffer> {
    (0..count).map(|_| Buffer::new(BUFFER_SIZE, 0).unwrap()).collect()
}

fn fill(card: &Card<Model>) {
    let mut fresh = buffers(card.wanted(0));
    card.refill(0, &mut fresh);
    assert!(fresh.is_empty());
}

fn packet(bytes: &[u8], fragments: &[&[u8]]) -> Outgoing {
    let mut head = Buffer::new(BUFFER_SIZE, 64).unwrap();
    assert!(head.append(bytes));
    let fragment = |bytes: &&[u8]| Fragment::new(Arc::new(bytes.to_vec()), 0..bytes.len());
    Outgoing { fragments: fragments.iter().map(fragment).collect(), ..Outgoing::plain(head) }
}

fn frame(number: usize) -> Vec<u8> {
    let mut frame = vec![number as u8; 60 + number % 1400];
    frame[..8].copy_from_slice(&(number as u64).to_le_bytes());
    frame
}

#[test]
fn frames_arrive_in_order_many_times_around_the_ring() {
    for family in FAMILIES {
        let model = Model::new(family);
        let card = card(&model);
        assert_eq!(card.info().mac, MAC);
        let (mut sent, mut seen) = (0, 0);
        for burst in [1, 2, 31, 100, 255, 400, 7].into_iter().cycle().take(60) {
            fill(&card);
            let came = (0..burst).take_while(|i| model.arrive(&frame(sent + i))).count();
            sent += came;
            let mut packets = VecDeque::new();
            while card.receive(0, &mut packets, 16) > 0 {}
            for packet in packets {
                assert_eq!(packet.first.bytes(), frame(seen));
                assert!(!packet.checksum_valid);
                seen += 1;
            }
            assert_eq!(seen, sent);
        }
        assert!(seen > 10 * SIZE);
    }
}

#[test]
fn frames_leave_in_order_with_their_fragments_and_their_heads_come_back() {
    for family in FAMILIES {
        let model = Model::new(family);
        let card = card(&model);
        let mut heads = Vec::new();
        for number in 0..1000 {
            let all = frame(number);
            let (head, rest) = all.split_at(20);
            let (middle, end) = rest.split_at(number % rest.len());
            let mut packets = VecDeque::from([packet(head, &[middle, &[], end])]);
            assert_eq!(card.transmit(0, &mut packets), 1);
            if number % 7 == 0 {
                card.flush(0);
                card.reclaim(0, &mut heads);
            }
        }
        card.flush(0);
        card.reclaim(0, &mut heads);
        assert_eq!(heads.len(), 1000);
        let frames = core::mem::take(&mut model.0.lock().unwrap().frames);
        assert_eq!(frames, (0..1000).map(frame).collect::<Vec<_>>());
    }
}

#[test]
fn a_full_ring_leaves_packets_with_the_caller() {
    for family in FAMILIES {
        let model = Model::new(family);
        model.0.lock().unwrap().is_silent = true;
        let card = card(&model);
        let mut packets: VecDeque<_> = (0..400).map(|n| packet(&frame(n), &[])).collect();
        assert_eq!(card.transmit(0, &mut packets), MAX_DESCRIPTORS);
        card.flush(0);
        let mut heads = Vec::new();
        card.reclaim(0, &mut heads);
        assert_eq!(
            (heads.len(), card.transmit(0, &mut packets), packets.len()),
            (0, 0, 400 - MAX_DESCRIPTORS)
        );
        // And a packet that no card could send does not block the others.
        let mut packets = VecDeque::from([packet(&[], &[]), packet(&[1; 1000], &[&[2; 1000]])]);
        assert_eq!(card.transmit(0, &mut packets), 2);
        card.reclaim(0, &mut heads);
        assert_eq!(heads.len(), 2);
    }
}

#[test]
fn interrupts_are_asked_for_only_when_no_packet_waits() {
    for family in FAMILIES {
        let model = Model::new(family);
        let card = card(&model);
        fill(&card);
        let mut packets = VecDeque::new();
        assert!(card.arm_interrupt(0) && !model.interrupts());
        assert!(model.arrive(&frame(1)) && model.interrupts());
        // What its handler does.
        model.write(IMC, u32::MAX);
        assert!(!card.arm_interrupt(0) && !model.interrupts());
        assert_eq!(card.receive(0, &mut packets, 9), 1);
        // The cause of the packet that was taken interrupts no more.
        assert!(card.arm_interrupt(0) && !model.interrupts());
        assert_eq!(model.0.lock().unwrap().armed, [false, true]);
    }
}

#[test]
fn damaged_and_long_frames_are_left_out_and_checksums_are_believed_only_when_checked() {
    for family in FAMILIES {
        let model = Model::new(family);
        let card = card(&model);
        fill(&card);
        let format = family.format();
        let says = |length, is_end, is_damaged, checksum_valid| {
            format.written(Written { length, is_end, is_damaged, checksum_valid })
        };
        for rest in [
            says(60, true, true, true),
            says(2048, false, false, false),
            says(2048, false, false, false),
            says(100, true, false, false),
            says(61, true, false, true),
            says(62, true, false, false),
            format.doubtful(63),
        ] {
            assert!(model.put(&[0; 64], rest));
        }
        let mut packets = VecDeque::new();
        card.receive(0, &mut packets, 100);
        let got: Vec<_> = packets.iter().map(|p| (p.first.len(), p.checksum_valid)).collect();
        assert_eq!(got, [(61, true), (62, false), (63, false)]);
    }
}

#[test]
fn a_card_that_claims_more_than_a_buffer_holds_is_stopped() {
    for family in FAMILIES {
        let model = Model::new(family);
        let card = card(&model);
        fill(&card);
        assert!(model.arrive(&frame(1)));
        let says = Written { length: 2049, is_end: true, is_damaged: false, checksum_valid: false };
        assert!(model.put(&[], family.format().written(says)));
        assert!(model.arrive(&frame(2)));
        let mut packets = VecDeque::new();
        card.receive(0, &mut packets, 100);
        assert_eq!(packets.len(), 1);
        assert!(model.0.lock().unwrap().is_cut_off && model.get(RCTL) == 0 && model.get(TCTL) == 0);
        assert_eq!((card.receive(0, &mut packets, 100), card.wanted(0)), (0, 0));
        assert_eq!(card.transmit(0, &mut VecDeque::from([packet(&[1; 60], &[])])), 0);
        assert!(card.arm_interrupt(0));
    }
}

/// A card that writes anything to its rings, at any time: frames may be nonsense, the driver goes on or stops.
#[test]
fn descriptors_of_random_bits_neither_panic_nor_leave_the_buffers() {
    for family in FAMILIES {
        let mut seed = 1u64;
        let mut random = move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for round in 0..200 {
            let model = Model::new(family);
            let card = card(&model);
            let mut heads = Vec::new();
            for _ in 0..200 {
                let mut fresh = buffers(random() as usize % (card.wanted(0) + 1));
                card.refill(0, &mut fresh);
                let short = if round % 2 == 0 { 0xffff } else { 0x7ff };
                // Lengths and what says that a descriptor is done with, of both formats.
                let kept = !0xffff_0000_ffff | short << 32 | short;
                model.put(&[random() as u8; 32], random() & kept | random() & (1 << 32 | 1));
                let mut packets = VecDeque::from([packet(&[3; 60], &[&[4; 60]])]);
                card.transmit(0, &mut packets);
                if random().is_multiple_of(3) {
                    card.flush(0);
                }
                card.reclaim(0, &mut heads);
                let mut got = VecDeque::new();
                card.receive(0, &mut got, random() as usize % 20);
                assert!(got.iter().all(|p| p.first.len() <= BUFFER_SIZE));
                card.arm_interrupt(0);
            }
        }
    }
}

#[test]
fn a_card_without_an_address_gets_one_and_a_card_that_is_gone_or_hangs_is_refused() {
    for family in FAMILIES {
        let model = Model::new(family);
        for (low, high) in [(0, RAH_AV), (u32::from_le_bytes([1, 2, 3, 4]), RAH_AV), (6, 0)] {
            model.set(RAL, low);
            model.set(RAH, high);
            let card = card(&model);
            assert_eq!(card.info().mac, [6, 7, 7, 7, 7, 7]);
            assert_eq!((model.get(RAL), model.get(RAH)), (0x0707_0706, RAH_AV | 0x0707));
        }
        let model = Model::new(family);
        model.set(CTRL, u32::MAX);
        assert!(Card::new(model, kind(family), [7; 6]).is_err());
        let model = Model::new(family);
        model.0.lock().unwrap().hangs = true;
        assert!(Card::new(model, kind(family), [7; 6]).is_err());
        // And one that is pulled out later.
        let model = Model::new(family);
        let card = card(&model);
        fill(&card);
        model.set(ICR, u32::MAX);
        assert!(card.arm_interrupt(0) && card.is_broken());
    }
}
