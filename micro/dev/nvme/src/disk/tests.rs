// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver and the controller of `model.rs`.

use super::*;
use crate::controller::{Fault, MAX_NAMESPACES, start};
use crate::model::{Model, Namespace};
use crate::register::{CSTS_CFS, CSTS_RDY, GONE};
use std::vec;

const READ: Operation = Operation::Read;
const WRITE: Operation = Operation::Write;

fn disk_of(model: &Model) -> Arc<Disk<Model>> {
    start(model.clone()).unwrap().remove(0)
}

fn disk(block: usize, blocks: usize) -> (Model, Arc<Disk<Model>>) {
    let model = Model::new(vec![Namespace::new(1, block, blocks)]);
    let disk = disk_of(&model);
    (model, disk)
}

fn memory(offset: usize, length: usize, operation: Operation) -> Gather {
    let frames = (0..(offset + length).div_ceil(PAGE_SIZE)).map(|_| PageFrame::new().unwrap()).collect();
    Gather { frames, offset, length, is_written: operation == READ }
}

fn fill(memory: &Gather, bytes: &[u8]) {
    let mut at = 0;
    for (frame, offset, length) in pieces(memory) {
        frame.write(offset, &bytes[at..at + length]);
        at += length;
    }
}

fn bytes(memory: &Gather) -> Vec<u8> {
    let mut all = Vec::new();
    for (frame, offset, length) in pieces(memory) {
        let mut piece = vec![0; length];
        frame.read(offset, &mut piece);
        all.extend(piece);
    }
    all
}

fn share(memory: &Gather) -> Gather {
    Gather { frames: memory.frames.clone(), ..*memory }
}

fn request(operation: Operation, sector: u64, memory: &Gather, tag: u64) -> Request {
    Request { operation, sector, memory: share(memory), tag }
}

fn ask(disk: &Disk<Model>, operation: Operation, sector: u64, memory: &Gather) -> Result<()> {
    disk.submit(request(operation, sector, memory, 7)).unwrap();
    disk.notify();
    let done = disk.complete().unwrap();
    assert_eq!(done.tag, 7);
    done.result
}

fn flush(disk: &Disk<Model>) -> Result<()> {
    ask(disk, Operation::Flush, 0, &memory(0, 0, WRITE))
}

struct Random(u64);

impl Random {
    /// Below a power of two that is at random itself, `2^most` at most: small numbers are frequent.
    fn small(&mut self, most: usize) -> usize {
        let power = self.below(most + 1);
        self.below(1 << power)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }
}

#[test]
fn bytes_go_where_they_belong_whatever_the_block_the_address_and_the_length() {
    for block in [512, 4096] {
        let blocks = (1 << 20) / block;
        let (model, disk) = disk(block, blocks);
        let info = disk.info();
        assert_eq!((info.sectors, info.sector_size, info.largest), (blocks as u64, block, MAX_REQUEST));
        let mut expected = vec![0; 1 << 20];
        let mut random = Random(block as u64);
        for round in 0..1000 {
            let count = 1 + random.small(8) % (MAX_REQUEST / block);
            let (sector, length) = (random.below(blocks - count + 1), count * block);
            // Every address: PRP entries take some of them, copies the others.
            let offset = random.below(PAGE_SIZE) & if round % 3 == 0 { !0 } else { !3 };
            let place = sector * block..sector * block + length;
            if round % 2 == 0 {
                let fresh: Vec<u8> = (0..length).map(|n| (n * 7 + round) as u8 ^ (n >> 8) as u8).collect();
                let source = memory(offset, length, WRITE);
                fill(&source, &fresh);
                assert_eq!(ask(&disk, WRITE, sector as u64, &source), Ok(()));
                expected[place].copy_from_slice(&fresh);
            } else {
                let target = memory(offset, length, READ);
                assert_eq!(ask(&disk, READ, sector as u64, &target), Ok(()));
                assert!(bytes(&target) == expected[place]);
            }
        }
        assert!(model.state().namespaces[0].bytes == expected);
    }
}

#[test]
fn a_burst_has_one_doorbell_and_is_answered_in_any_order() {
    let (model, disk) = disk(512, 1000);
    model.state().is_slow = true;
    for round in 0..50 {
        let count = 1 + round % QUEUE;
        for tag in 0..count {
            disk.submit(request(READ, tag as u64, &memory(0, 512, READ), tag as u64)).unwrap();
        }
        let doorbells = model.state().doorbells;
        disk.notify();
        disk.notify();
        assert_eq!(model.state().doorbells, doorbells + 1);
        assert!(disk.complete().is_none());
        model.answer(count);
        let mut seen: Vec<u64> = core::iter::from_fn(|| disk.complete()).map(|done| done.tag).collect();
        // Completions are acknowledged once, too.
        assert!(model.state().doorbells <= doorbells + 3, "round {round}");
        seen.sort_unstable();
        assert_eq!(seen, (0..count as u64).collect::<Vec<_>>());
    }
}

#[test]
fn a_full_queue_gives_the_request_back_also_where_the_controllers_queues_are_short() {
    for entries in [2, 3, 17, 64, 65, 66, 128, 129, 65536] {
        let model = Model::new(vec![Namespace::new(1, 512, 1000)]);
        let capabilities = model.state().capabilities & !0xffff | (entries - 1);
        model.state().capabilities = capabilities;
        let disk = disk_of(&model);
        model.state().is_slow = true;
        let room = QUEUE.min(entries as usize - 1);
        for _ in 0..5 {
            for tag in 0..room {
                disk.submit(request(READ, 0, &memory(0, 512, READ), tag as u64)).unwrap();
            }
            let refused = disk.submit(request(READ, 0, &memory(0, 512, READ), 99)).unwrap_err();
            assert_eq!(refused.tag, 99);
            disk.notify();
            model.answer(room);
            for _ in 0..room {
                assert_eq!(disk.complete().unwrap().result, Ok(()));
            }
        }
    }
}

#[test]
fn a_flush_reaches_the_controller_that_has_a_cache_and_no_other() {
    let (model, disk) = disk(512, 10);
    assert_eq!((flush(&disk), model.state().flushes), (Ok(()), 1));
    let model = Model::new(vec![Namespace::new(1, 512, 10)]);
    model.state().has_cache = false;
    let disk = disk_of(&model);
    assert_eq!((flush(&disk), model.state().flushes), (Ok(()), 0));
}

#[test]
fn errors_of_a_request_are_that_requests_alone() {
    let model = Model::new(vec![Namespace::new(1, 512, 10), Namespace::new(5, 512, 10)]);
    model.state().namespaces[1].is_protected = true;
    let disks = start(model.clone()).unwrap();
    assert_eq!((disks[0].info().read_only, disks[1].info().read_only), (false, true));
    let source = memory(0, 512, WRITE);
    assert_eq!(ask(&disks[1], WRITE, 0, &source), Err(EROFS));
    assert_eq!(ask(&disks[0], WRITE, 10, &source), Err(EIO));
    assert_eq!(ask(&disks[0], WRITE, 9, &source), Ok(()));
    assert_eq!(ask(&disks[1], READ, 9, &memory(0, 512, READ)), Ok(()));
}

#[test]
fn transfers_are_as_large_as_the_controller_takes_them() {
    let model = Model::new(vec![Namespace::new(1, 4096, 100)]);
    model.state().mdts = 2;
    let disk = disk_of(&model);
    assert_eq!(disk.info().largest, 16384);
    assert_eq!(ask(&disk, READ, 0, &memory(100, 16384, READ)), Ok(()));
}

#[test]
fn interrupts_are_promised_only_when_no_completion_waits() {
    let (model, disk) = disk(512, 10);
    assert!(disk.arm_interrupt() && model.state().armed.is_empty());
    disk.submit(request(READ, 0, &memory(0, 512, READ), 1)).unwrap();
    assert!(disk.arm_interrupt());
    disk.notify();
    assert!(!disk.arm_interrupt());
    assert!(disk.complete().is_some() && disk.arm_interrupt());
    disk.submit(request(READ, 0, &memory(0, 512, READ), 1)).unwrap();
    assert!(disk.arm_interrupt());
    assert_eq!(model.state().armed, [(1, false), (1, true)]);
}

/// What a controller must not be, and what is said of it then.
#[test]
fn a_controller_that_lies_while_it_starts_is_left_alone_with_the_reason() {
    type Change = fn(&mut crate::model::State);
    let cases: [(&str, Change); 14] = [
        ("it does not answer", |s| s.capabilities = u64::MAX),
        ("NVM command set", |s| s.capabilities &= !(1 << 37)),
        ("larger than 4 KiB", |s| s.capabilities |= 1 << 48),
        ("have one entry", |s| s.capabilities &= !0xffff),
        ("outside of its registers", |s| s.capabilities |= 15 << 32),
        ("outside of its registers", |s| s.window = 0x1004),
        ("become ready", |s| s.hangs = true),
        ("does not stop", |s| (s.hangs, s.status) = (true, CSTS_RDY)),
        ("fatal error", |s| s.fails = true),
        ("ten seconds", |s| s.is_silent = true),
        ("was not given", |s| s.confuses = 1),
        ("status 0x2 of type 0 to Identify", |s| _ = s.refuses.insert(6, 2)),
        ("Set Features", |s| _ = s.refuses.insert(9, 2)),
        ("cannot have", |s| s.lists = Some(vec![1, 1])),
    ];
    for (why, change) in cases {
        let model = Model::new(vec![Namespace::new(1, 512, 10)]);
        change(&mut model.state());
        let fault = start(model.clone()).err().unwrap();
        assert!(std::format!("{fault}").contains(why), "{why}: {fault}");
        assert!(model.state().is_cut_off, "{why}");
        // The machine waits for none of them for long.
        assert!(model.state().now_ns < 31_000_000_000, "{why}");
    }
    let model = Model::new(vec![Namespace::new(1, 512, 10)]);
    model.state().lists = Some(vec![2]);
    assert_eq!(start(model).err(), Some(Fault::Wrong("it lists namespaces that it cannot have")));
}

#[test]
fn namespaces_that_cannot_be_used_leave_the_others() {
    let claims = |blocks: u64, power: u8, metadata: u8| {
        let mut bytes = vec![0; 4096];
        bytes[..8].copy_from_slice(&blocks.to_le_bytes());
        (bytes[128], bytes[130]) = (metadata, power);
        bytes
    };
    let mut namespaces: Vec<_> = (1..=4).map(|number| Namespace::new(number, 512, 10)).collect();
    namespaces[0].claims = Some(claims(0, 9, 0));
    namespaces[1].claims = Some(claims(10, 9, 8));
    namespaces[2].claims = Some(claims(u64::MAX, 9, 0));
    let model = Model::new(namespaces);
    let disks = start(model.clone()).unwrap();
    assert_eq!((disks.len(), disks[0].namespace, disks[0].queue), (1, 4, 1));
    assert_eq!(ask(&disks[0], READ, 9, &memory(0, 512, READ)), Ok(()));
    assert!(!model.state().is_cut_off);
}

#[test]
fn there_are_as_many_disks_as_queues_and_doorbells_at_most() {
    let many = || Model::new((1..=9).map(|number| Namespace::new(number, 512, 10)).collect());
    assert_eq!(start(many()).unwrap().len(), MAX_NAMESPACES);
    let model = many();
    model.state().grants = 2;
    assert_eq!(start(model).unwrap().len(), 2);
    // The doorbells of the second queue would be outside.
    let model = many();
    model.state().window = 0x1000 + 4 * 4;
    assert_eq!(start(model).unwrap().len(), 1);
    // They may be far from each other.
    let model = many();
    model.state().capabilities |= 10 << 32;
    model.state().window = 0x1000 + ((10 * 4) << 10);
    let disks = start(model).unwrap();
    assert_eq!(disks.len(), MAX_NAMESPACES);
    assert_eq!(ask(&disks[3], READ, 9, &memory(0, 512, READ)), Ok(()));
    let model = many();
    model.state().refuses.insert(5, 0x101);
    assert!(start(model).unwrap().is_empty());
    // There may be none, for which nobody needs a queue.
    let model = Model::new(Vec::new());
    model.state().refuses.insert(9, 2);
    assert!(start(model.clone()).unwrap().is_empty() && !model.state().is_cut_off);
    // An old controller lists nothing, and numbers count up.
    let model = many();
    model.state().version = 0x0001_0000;
    assert_eq!(start(model).unwrap().len(), MAX_NAMESPACES);
}

fn is_given_up(model: &Model, disk: &Disk<Model>, count: usize) {
    for _ in 0..count {
        assert_eq!(disk.complete().unwrap().result, Err(EIO));
    }
    assert!(disk.complete().is_none() && model.state().is_cut_off);
    assert!(disk.arm_interrupt());
    // And what is asked of it now is answered at once.
    for _ in 0..3 * QUEUE {
        assert_eq!(ask(disk, READ, 0, &memory(1, 512, READ)), Err(EIO));
    }
    let mut taken = 0;
    while disk.submit(request(READ, 0, &memory(0, 512, READ), 1)).is_ok() {
        taken += 1;
    }
    assert_eq!(taken, QUEUE);
}

#[test]
fn a_controller_that_breaks_its_word_is_not_used_any_more_and_every_request_is_answered() {
    const OUT: usize = 5;
    type Change = fn(&Model);
    let cases: [(&str, Change); 6] = [
        ("no answer for ever", |model| model.state().now_ns += ANSWER_NS + 1),
        ("fatal", |model| {
            model.state().status |= CSTS_CFS;
            model.state().now_ns += CHECK_NS;
        }),
        ("not ready", |model| {
            model.state().status = 0;
            model.state().now_ns += CHECK_NS;
        }),
        ("gone", |model| {
            model.state().status = GONE;
            model.state().now_ns += CHECK_NS;
        }),
        ("a command that is not in flight", |model| model.complete(1, [0; 3], OUT as u32)),
        ("no command", |model| model.complete(1, [0; 3], 0xffff)),
    ];
    for (what, change) in cases {
        let (model, disk) = disk(512, 10);
        model.state().is_slow = true;
        let pages = memory(1, 512, READ);
        for _ in 0..OUT {
            disk.submit(request(READ, 0, &pages, 1)).unwrap();
        }
        disk.notify();
        assert!(disk.complete().is_none(), "{what}");
        change(&model);
        is_given_up(&model, &disk, OUT);
        // Whatever it still does to the memory, nobody else gets it.
        assert_eq!(pages.frames[0].handles(), 1 + OUT as u32, "{what}");
        drop(disk);
    }
}

#[test]
fn all_disks_of_a_controller_hear_of_its_end() {
    let model = Model::new(vec![Namespace::new(1, 512, 10), Namespace::new(2, 512, 10)]);
    let disks = start(model.clone()).unwrap();
    model.state().is_slow = true;
    for disk in &disks {
        disk.submit(request(READ, 0, &memory(0, 512, READ), 1)).unwrap();
        disk.notify();
    }
    model.complete(1, [0; 3], 77);
    is_given_up(&model, &disks[0], 1);
    assert!(!disks[1].arm_interrupt());
    is_given_up(&model, &disks[1], 1);
}

/// In a process of its own: which request for memory is refused is counted over all threads.
#[test]
fn memory_that_is_refused_fails_the_start_or_the_request_and_nothing_else() {
    const ALONE: &str = "NVME_TEST_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "disk::tests::memory_that_is_refused_fails_the_start_or_the_request_and_nothing_else";
        let program = std::env::current_exe().unwrap();
        let mut alone = std::process::Command::new(program);
        assert!(alone.args(["--exact", name]).env(ALONE, "1").status().unwrap().success());
        return;
    }
    let refused = (0..100).find(|n| {
        let model = Model::new(vec![Namespace::new(1, 512, 10)]);
        api_alloc::fault::fail_after(*n);
        let started = start(model.clone());
        let came = api_alloc::fault::fail_after(usize::MAX);
        assert_eq!(started.as_ref().err(), came.then_some(&Fault::NoMemory), "{n}");
        assert_eq!(model.state().is_cut_off, came, "{n}");
        !came
    });
    assert!(refused.is_some_and(|count| count > 8), "{refused:?}");

    let (_, disk) = disk(512, 10);
    let target = memory(3, 512, READ);
    for n in 0..2 {
        api_alloc::fault::fail_after(n);
        assert_eq!(ask(&disk, READ, 0, &target), Err(ENOMEM), "{n}");
        assert!(api_alloc::fault::fail_after(usize::MAX));
    }
    assert_eq!(ask(&disk, READ, 0, &target), Ok(()));
}

/// A controller that writes anything to its structures and completions: the driver goes on or gives up.
#[test]
fn random_structures_and_completions_neither_panic_nor_hang() {
    let mut random = Random(1);
    let (mut started, mut ended) = (0, 0);
    for _ in 0..2000 {
        let mut namespaces = vec![Namespace::new(1, 512, 64), Namespace::new(2, 512, 64)];
        let bits =
            |random: &mut Random| core::iter::repeat_with(|| random.below(256) as u8).take(4096).collect();
        let mut claims: Vec<u8> = bits(&mut random);
        if random.below(2) == 0 {
            // A format that may be one.
            (claims[25], claims[26]) = (15, random.below(16) as u8);
            let format = [0, 0, 8 + random.below(6) as u8, 0];
            let format_at = 128 + 4 * usize::from(claims[26]);
            claims[format_at..][..4].copy_from_slice(&format);
            claims[..8].copy_from_slice(&(random.below(1 << 40) as u64).to_le_bytes());
        }
        namespaces[random.below(2)].claims = Some(claims);
        let model = Model::new(namespaces);
        model.state().mdts = random.below(256) as u8;
        model.state().grants = 1 + random.below(4) as u32;
        let capabilities = model.state().capabilities;
        model.state().capabilities = capabilities & !0xffff | random.small(16) as u64;
        model.state().window = 0x1000 + random.below(64) as u64;
        let Ok(disks) = start(model.clone()) else { continue };
        started += 1;
        for disk in disks {
            let info = disk.info();
            assert!(info.largest >= PAGE_SIZE && matches!(info.sector_size, 512 | 1024 | 2048 | 4096));
            model.state().is_slow = true;
            for round in 0..20 {
                let pages = memory(random.below(16), info.sector_size, READ);
                let _ = disk.submit(request(READ, random.below(80) as u64, &pages, round));
                disk.notify();
                if random.below(20) == 0 {
                    let queue = disk.queue;
                    model.complete(
                        queue,
                        [0; 3],
                        (random.below(1 << 32) as u32) & !0xffff | random.below(70) as u32,
                    );
                } else {
                    model.answer(random.below(3));
                }
                while disk.complete().is_some() {}
                if model.state().is_cut_off {
                    ended += 1;
                    break;
                }
            }
        }
    }
    assert!(started > 500 && ended > 100, "{started} {ended}");
}
