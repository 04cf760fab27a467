// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use api_fs::{Inode, Sink, Source};
use eventfd::EventFd;
use std::vec::Vec;

const IN: u32 = 1;
const OUT: u32 = 4;

fn event() -> (Arc<EventFd>, Arc<Description>) {
    let file = EventFd::new(0, false);
    (file.clone(), Description::new(file, 2, None))
}

fn signal(e: &EventFd) {
    e.write(0, &mut Source::kernel(&1u64.to_ne_bytes())).unwrap();
}

fn drain(e: &EventFd) {
    e.read(0, &mut Sink::kernel(&mut [0; 8])).unwrap();
}

fn collect(epoll: &Epoll) -> Vec<(u32, u64)> {
    let mut out = Vec::new();
    let _ = epoll.collect(100, |events, data| {
        out.push((events, data));
        Ok(())
    });
    out
}

#[test]
fn level_triggered_repeats_until_drained() {
    let epoll = Epoll::new();
    let (e, d) = event();
    epoll.add(3, &d, IN, 33).unwrap();
    assert_eq!(epoll.add(3, &d, IN, 33), Err(EEXIST));
    assert_eq!(epoll.add(4, &d, IN, 44), Ok(()), "another number of the same description");
    epoll.remove(4, &d).unwrap();
    assert!(collect(&epoll).is_empty());
    signal(&e);
    assert_eq!(collect(&epoll), [(IN, 33)]);
    assert_eq!(collect(&epoll), [(IN, 33)]);
    assert!(epoll.poll().contains(Events::IN));
    drain(&e);
    assert!(epoll.poll().is_empty());
    assert!(collect(&epoll).is_empty());
}

#[test]
fn edge_triggered_tells_once_for_each_wake_up() {
    let epoll = Epoll::new();
    let (e, d) = event();
    signal(&e);
    epoll.add(3, &d, IN | EDGE, 1).unwrap();
    assert_eq!(collect(&epoll), [(IN, 1)]);
    assert!(collect(&epoll).is_empty());
    signal(&e);
    assert_eq!(collect(&epoll), [(IN, 1)]);
    epoll.modify(3, &d, IN | EDGE, 2).unwrap();
    assert_eq!(collect(&epoll), [(IN, 2)], "EPOLL_CTL_MOD looks again");
}

#[test]
fn one_shot_is_silent_until_it_is_armed_again() {
    let epoll = Epoll::new();
    let (e, d) = event();
    epoll.add(3, &d, IN | ONESHOT, 1).unwrap();
    signal(&e);
    assert_eq!(collect(&epoll), [(IN, 1)]);
    signal(&e);
    assert!(collect(&epoll).is_empty());
    epoll.modify(3, &d, IN | OUT | ONESHOT, 1).unwrap();
    assert_eq!(collect(&epoll), [(IN | OUT, 1)]);
}

#[test]
fn a_closed_description_is_forgotten() {
    let epoll = Epoll::new();
    let (e, d) = event();
    epoll.add(3, &d, IN, 1).unwrap();
    signal(&e);
    d.close().unwrap();
    assert!(collect(&epoll).is_empty());
    assert!(e.wait_queue().unwrap().is_empty());
    assert_eq!(Arc::strong_count(&e), 1);
    let (e, d) = event();
    epoll.add(3, &d, IN, 1).unwrap();
    drop(epoll);
    assert!(e.wait_queue().unwrap().is_empty());
}

#[test]
fn errors_are_those_of_epoll_ctl() {
    let epoll = Epoll::new();
    let (_, d) = event();
    assert_eq!(epoll.modify(3, &d, IN, 1), Err(ENOENT));
    assert_eq!(epoll.remove(3, &d), Err(ENOENT));
    let inode: Arc<dyn Inode> = ramfs::tmpfs(1, 1 << 20, 0o777, (0, 0));
    let dir = Description::new(inode.open(&inode, 0).unwrap(), 0, None);
    assert_eq!(epoll.add(5, &dir, IN, 1), Err(EPERM));
    assert_eq!(epoll.add(3, &d, EXCLUSIVE | ONESHOT | IN, 1), Err(EINVAL));
    epoll.add(3, &d, EXCLUSIVE | IN, 1).unwrap();
    assert_eq!(epoll.modify(3, &d, IN, 1), Err(EINVAL));
    let own = Description::new(epoll.clone(), 2, None);
    assert_eq!(epoll.add(6, &own, IN, 1), Err(EINVAL));
}

#[test]
fn instances_nest_but_not_in_circles() {
    let epolls: Vec<Arc<Epoll>> = (0..7).map(|_| Epoll::new()).collect();
    let descriptions: Vec<_> = epolls.iter().map(|e| Description::new(e.clone(), 2, None)).collect();
    let (e, d) = event();
    epolls[0].add(0, &d, IN, 9).unwrap();
    for i in 1..5 {
        epolls[i].add(0, &descriptions[i - 1], IN, i as u64).unwrap();
    }
    assert_eq!(epolls[5].add(0, &descriptions[4], IN, 5), Err(ELOOP));
    assert_eq!(epolls[0].add(1, &descriptions[4], IN, 5), Err(ELOOP));
    assert!(epolls[4].poll().is_empty());
    signal(&e);
    assert_eq!(collect(&epolls[4]), [(IN, 4)]);
    drain(&e);
    assert!(collect(&epolls[4]).is_empty());
}

#[test]
fn a_chain_is_measured_in_both_directions() {
    let epolls: Vec<Arc<Epoll>> = (0..6).map(|_| Epoll::new()).collect();
    let descriptions: Vec<_> = epolls.iter().map(|e| Description::new(e.clone(), 2, None)).collect();
    // From the top, so that what is below is always short.
    for i in 0..4 {
        epolls[i].add(0, &descriptions[i + 1], IN, 0).unwrap();
    }
    assert_eq!(epolls[4].add(0, &descriptions[5], IN, 0), Err(ELOOP));
    assert_eq!(epolls[4].add(0, &descriptions[0], IN, 0), Err(ELOOP));
    // Two chains that are short enough by themselves.
    epolls[3].remove(0, &descriptions[4]).unwrap();
    epolls[4].add(0, &descriptions[5], IN, 0).unwrap();
    assert_eq!(epolls[3].add(0, &descriptions[4], IN, 0), Err(ELOOP), "five links");
    epolls[4].remove(0, &descriptions[5]).unwrap();
    epolls[3].add(0, &descriptions[4], IN, 0).unwrap();
    // A closed instance leaves its chain, and one that is dropped too.
    drop(epolls);
    let mut descriptions = descriptions.into_iter();
    drop(descriptions.next());
    let rest: Vec<_> = descriptions.collect();
    let last = rest[3].file().as_any().downcast_ref::<Epoll>().unwrap();
    last.add(0, &rest[4], IN, 0).unwrap();
}

#[test]
fn an_edge_triggered_parent_hears_of_every_event_of_its_child() {
    let (child, parent) = (Epoll::new(), Epoll::new());
    let (e, d) = event();
    let (f, d2) = event();
    child.add(0, &d, IN, 1).unwrap();
    child.add(1, &d2, IN, 2).unwrap();
    let own = Description::new(child.clone(), 2, None);
    parent.add(0, &own, IN | EDGE, 9).unwrap();
    signal(&e);
    assert_eq!(collect(&parent), [(IN, 9)]);
    assert!(collect(&parent).is_empty());
    assert_eq!(collect(&child), [(IN, 1)]);
    signal(&e);
    assert_eq!(collect(&parent), [(IN, 9)], "the child's item was ready all along");
    signal(&f);
    assert_eq!(collect(&parent), [(IN, 9)]);
    drain(&f);
}

#[test]
fn a_removed_item_keeps_nothing() {
    let epoll = Epoll::new();
    let (e, d) = event();
    signal(&e);
    for i in 0..10_000 {
        epoll.add(i % 7, &d, IN, 0).unwrap();
        epoll.remove(i % 7, &d).unwrap();
    }
    assert_eq!(epoll.state.lock().ready.len(), 0);
    assert_eq!(epoll.state.lock().ready.slots(), 1, "slots are used again");
    let (r, w) = pipe::pipe().unwrap();
    let writer = Description::new(w, 1, None);
    epoll.add(50, &writer, OUT, 0).unwrap();
    assert_eq!(collect(&epoll), [(OUT, 0)]);
    writer.close().unwrap();
    assert!(r.poll().contains(Events::HUP), "the ready list does not keep the pipe open");
}

#[test]
fn an_exclusive_event_goes_to_an_instance_somebody_waits_on() {
    let (idle, waiting) = (Epoll::new(), Epoll::new());
    let (e, d) = event();
    for epoll in [&idle, &waiting] {
        epoll.add(3, &d, EXCLUSIVE | IN, 1).unwrap();
    }
    struct Sleeper;
    impl Waiter for Sleeper {
        fn wake(&self, _: Events) {}
    }
    waiting.wait_queue().unwrap().add(Arc::new(Sleeper), Events::IN, false);
    signal(&e);
    assert_eq!(collect(&waiting), [(IN, 1)]);
}

#[test]
fn hang_up_is_told_unasked() {
    let epoll = Epoll::new();
    let (r, w) = pipe::pipe().unwrap();
    let d = Description::new(r, 0, None);
    epoll.add(3, &d, 0, 7).unwrap();
    drop(w);
    assert_eq!(collect(&epoll), [(Events::HUP.0, 7)]);
}

#[test]
fn a_failed_copy_loses_no_event() {
    let epoll = Epoll::new();
    let (e, d) = event();
    epoll.add(3, &d, IN | EDGE, 1).unwrap();
    signal(&e);
    assert_eq!(epoll.collect(1, |_, _| Err(EFAULT)), Err(EFAULT));
    assert_eq!(collect(&epoll), [(IN, 1)]);
}

#[test]
fn only_the_ready_files_are_asked() {
    let epoll = Epoll::new();
    let all: Vec<_> = (0..10_000).map(|_| event()).collect();
    for (i, (_, d)) in all.iter().enumerate() {
        epoll.add(i as i32, d, IN, i as u64).unwrap();
    }
    signal(&all[5000].0);
    assert_eq!(epoll.state.lock().ready.len(), 1);
    assert_eq!(collect(&epoll), [(IN, 5000)]);
}

#[test]
fn layers_of_instances_have_no_more_ways_than_a_wake_up_can_go() {
    let layers: Vec<Vec<_>> = (0..3)
        .map(|_| {
            let new = |_| {
                let epoll = Epoll::new();
                let description = Description::new(epoll.clone(), 0, None);
                (epoll, description)
            };
            (0..30).map(new).collect()
        })
        .collect();
    let (e, d) = event();
    for (epoll, _) in &layers[0] {
        epoll.add(0, &d, IN, 0).unwrap();
    }
    for (parent, _) in &layers[1] {
        for (fd, (_, child)) in (0..).zip(&layers[0]) {
            parent.add(fd, child, IN, 0).unwrap();
        }
    }
    // An instance of the lowest layer has 30 ways up, and 31 more with each link above: 21 links fit.
    let top = &layers[2][0].0;
    for (fd, (_, child)) in (0..).zip(&layers[1]) {
        top.add(fd, child, IN, 0).unwrap();
    }
    let refused = layers[2][1..].iter().flat_map(|(parent, _)| {
        (0..).zip(&layers[1]).map(move |(fd, (_, child))| parent.add(fd, child, IN, 0))
    });
    assert!(refused.into_iter().any(|added| added == Err(EINVAL)));
    signal(&e);
    assert!(!collect(top).is_empty(), "what was linked is told");
    // A link that goes makes room for another one.
    let (last, other) = (layers[2].last().unwrap(), &layers[1][0].1);
    assert_eq!(last.0.add(99, other, IN, 0), Err(EINVAL));
    for (parent, _) in &layers[2][1..] {
        for (fd, (_, child)) in (0..).zip(&layers[1]) {
            let _ = parent.remove(fd, child);
        }
    }
    last.0.add(99, other, IN, 0).unwrap();
}
