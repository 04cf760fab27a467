// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table of interfaces without system calls: look-ups against a search of all routes, pairs and bridges that go round in circles.

use super::routes::{Manner, Route, Routes, TABLE_MAIN, Wanted, mask};
use super::veth::{self, End};
use super::{Address, Interfaces, Kind, MAX_INTERFACES, New};
use crate::ip::Configuration;
use crate::sockets::interface_flags::*;
use crate::stack::{Host, Net};
use abi::errno::*;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_netdev::{Buffer, Name};
use api_sched::{TimerId, Waiter};
use core::net::Ipv4Addr;
use core::sync::atomic::{AtomicU64, Ordering};

struct Still(Arc<AtomicU64>);

impl Host for Still {
    fn now_ns(&self) -> u64 {
        1
    }

    fn set_timer(&self, _: u64) {}

    fn soon(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn listening(&self, _: bool, _: u16) {}

    fn alarm(&self, _: u64, _: Arc<dyn Waiter>) -> Option<TimerId> {
        None
    }

    fn cancel_alarm(&self, _: TimerId) {}
}

/// A stack, and how often it was asked to look soon.
fn stack(seed: u8) -> (Arc<Net>, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    (Net::new(Box::new(Still(asked.clone())), [seed; 24]), asked)
}

fn change<R>(net: &Arc<Net>, change: impl FnOnce(&mut Interfaces) -> abi::Result<R>) -> R {
    net.act(|stack, _| stack.change_interfaces(net, change)).unwrap()
}

fn new(name: &'static str, kind: Kind) -> New {
    let mac = [2, 0, 0, 0, 0, name.as_bytes()[name.len() - 1]];
    New {
        name: Name::new(name),
        index: 0,
        kind,
        mac,
        mtu: 1500,
        flags: IFF_UP | IFF_MULTICAST,
        has_carrier: true,
    }
}

fn add_end(net: &Arc<Net>, name: &'static str, end: End) -> u32 {
    change(net, |all| {
        let index = all.add(new(name, Kind::Veth(end)))?;
        let place = all.place.clone();
        if let Kind::Veth(end) = &all.get(index)?.kind {
            end.settle_at(&place, index, true);
        }
        Ok(index)
    })
}

fn address(local: [u8; 4], prefix: u8) -> Address {
    let local = Ipv4Addr::from(local);
    Address {
        local,
        peer: local,
        prefix,
        scope: 0,
        broadcast: None,
        label: Name::new("x"),
        has_no_route: false,
        metric: 0,
    }
}

fn frame(to: [u8; 6], from: [u8; 6]) -> Buffer {
    let mut buffer = Buffer::new(512, 200).unwrap();
    buffer.append(&to);
    buffer.append(&from);
    buffer.append(&[0x88, 0xb5]);
    buffer.append(&[0; 50]);
    buffer
}

#[test]
fn the_longest_prefix_with_the_least_metric_is_found_as_a_search_of_all_finds_it() {
    let mut routes = Routes::default();
    let mut all: Vec<Route> = Vec::new();
    let mut state = 7u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..2000 {
        let prefix = random(33) as u8;
        // Few bits differ, so that prefixes lie in each other.
        let bits = (0x0a00_0000 | (random(4) as u32) << 22 | (random(8) as u32 * 0x11)) & mask(prefix);
        let mut route = Route::by_gateway(2 + random(3) as u32, Ipv4Addr::new(10, 0, 0, 1));
        (route.to, route.prefix, route.metric) = (Ipv4Addr::from_bits(bits), prefix, random(4) as u32);
        if random(4) == 0 {
            let wanted =
                Wanted { route, has_kind: false, has_scope: false, has_protocol: false, has_metric: true };
            let at = all.iter().position(|known| {
                (known.to, known.prefix, known.metric, known.interface)
                    == (route.to, route.prefix, route.metric, route.interface)
            });
            assert_eq!(routes.remove(&wanted).is_ok(), at.is_some());
            at.map(|at| all.remove(at));
        } else {
            let is_taken = all.iter().any(|known| {
                (known.to, known.prefix, known.metric) == (route.to, route.prefix, route.metric)
            });
            assert_eq!(routes.add(route), if is_taken { Err(EEXIST) } else { Ok(()) });
            if !is_taken {
                all.push(route);
            }
        }
        let to = Ipv4Addr::from_bits(0x0a00_0000 | (random(4) as u32) << 22 | (random(8) as u32 * 0x11));
        let by = if random(2) == 0 { 0 } else { 2 + random(3) as u32 };
        let fits = |route: &&Route| {
            (route.to.to_bits() ^ to.to_bits()) & mask(route.prefix) == 0
                && (by == 0 || route.interface == by)
        };
        let best = all.iter().filter(fits).min_by_key(|route| (32 - route.prefix, route.metric));
        assert_eq!(routes.look_up(TABLE_MAIN, to, 0, by), best);
        assert_eq!(routes.count(), all.len());
    }
}

#[test]
fn a_route_is_replaced_appended_or_refused_as_it_is_asked() {
    let mut routes = Routes::default();
    let one = Route::by_gateway(2, Ipv4Addr::new(10, 0, 0, 1));
    let two = Route { gateway: Some(Ipv4Addr::new(10, 0, 0, 2)), ..one };
    let creates = Manner { creates: true, ..Manner::default() };
    assert_eq!(routes.change(one, Manner::default()), Err(ENOENT));
    routes.change(one, creates).unwrap();
    assert_eq!(routes.change(one, creates), Err(EEXIST));
    // In front of what is there, or behind.
    routes.change(two, creates).unwrap();
    assert_eq!(routes.look_up(TABLE_MAIN, Ipv4Addr::BROADCAST, 0, 0), Some(&two));
    let three = Route { gateway: Some(Ipv4Addr::new(10, 0, 0, 3)), ..one };
    routes.change(three, Manner { appends: true, ..creates }).unwrap();
    let order: Vec<Route> = routes.iter().copied().collect();
    assert_eq!(order, [two, one, three]);
    let four = Route { interface: 3, ..one };
    assert_eq!(routes.change(four, Manner { replaces: true, ..Manner::default() }), Ok(Some(two)));
    assert_eq!(routes.remove_of(2).len(), 2);
    assert_eq!(routes.iter().collect::<Vec<_>>(), [&four]);
}

#[test]
fn what_one_end_of_a_pair_sends_waits_for_the_other_stack() {
    let ((near, _), (far, asked)) = (stack(1), stack(2));
    let [one, two] = veth::pair();
    let (a, b) = (add_end(&near, "a", one), add_end(&far, "b", two));
    change(&near, |all| all.add_address(a, address([10, 0, 0, 1], 24)));
    change(&far, |all| all.add_address(b, address([10, 0, 0, 2], 24)));
    let before = asked.load(Ordering::Relaxed);
    // Who has 10.0.0.2?
    near.act(|stack, now| stack.ip.ask_by(now, a, Ipv4Addr::new(10, 0, 0, 2)));
    assert!(asked.load(Ordering::Relaxed) > before);
    far.poll();
    near.poll();
    let known = near.look(|stack| stack.ip.neighbours.known((a, Ipv4Addr::new(10, 0, 0, 2))));
    assert_eq!(known, Some([2, 0, 0, 0, 0, b'b']));
    // Its stack goes, and with it the other end.
    drop(far);
    near.act(|_, _| ());
    assert!(near.look(|stack| stack.ip.interfaces.as_ref().unwrap().get(a).is_err()));
}

#[test]
fn a_circle_of_pairs_and_bridges_leaves_time_to_others() {
    let (net, _) = stack(3);
    let bridges = ["r1", "r2"].map(|name| {
        change(&net, |all| {
            all.add(new(name, Kind::Bridge(super::bridge::Bridge::new(crate::hash::Keyed::new(1)))))
        })
    });
    for names in [["a1", "a2"], ["b3", "b4"], ["c5", "c6"]] {
        let [one, two] = veth::pair();
        let ends = [(names[0], one, bridges[0]), (names[1], two, bridges[1])];
        for (name, end, bridge) in ends {
            let index = add_end(&net, name, end);
            change(&net, |all| all.set_master(index, bridge));
        }
    }
    net.act(|stack, now| stack.ip.leave(now, bridges[0], frame([0xff; 6], [2, 9, 9, 9, 9, 9])));
    for _ in 0..200 {
        // Each time a bounded number of frames is taken, however many wait.
        assert_eq!(net.poll(), crate::stack::Next::Poll);
    }
    let waiting = net.look(|stack| {
        let backlog = stack.ip.interfaces.as_ref().unwrap().place.backlog.clone();
        core::iter::from_fn(|| backlog.pop()).count()
    });
    assert!((1..=1000).contains(&waiting), "{waiting}");
}

#[test]
fn interfaces_are_bounded_and_names_are_found_again() {
    let (net, _) = stack(4);
    let count = (0..MAX_INTERFACES + 5)
        .map_while(|_| {
            net.act(|stack, _| stack.change_interfaces(&net, |all| all.add(new("d%d", Kind::Dummy)))).ok()
        })
        .count();
    assert_eq!(count, MAX_INTERFACES - 1);
    change(&net, |all| {
        let index = all.named(&Name::parse(b"d7").unwrap()).unwrap();
        all.remove(index)?;
        assert_eq!(all.free_name(&Name::new("d%d")), Name::parse(b"d7"));
        assert_eq!(all.free_name(&Name::new("d8")), Err(EEXIST));
        assert_eq!(all.rename(index, &Name::new("x")), Err(ENODEV));
        Ok(())
    });
}

#[test]
fn the_host_gives_an_address_that_programs_may_take_away() {
    let (net, _) = stack(5);
    change(&net, |all| {
        all.add_device([2, 0, 0, 0, 0, 1], 1500)?;
        let gateway = Some(Ipv4Addr::new(10, 0, 0, 254));
        let given = Configuration { address: Ipv4Addr::new(10, 0, 0, 1), prefix: 24, gateway };
        all.configure(super::DEVICE, &given)?;
        assert_eq!(all.configuration(), Some(given));
        let route = all.route(Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(8, 8, 8, 8), 1, 0)?;
        assert_eq!((route.next_hop, route.source), (Ipv4Addr::new(10, 0, 0, 254), given.address));
        let address = all.get(super::DEVICE)?.addresses[0];
        all.remove_address(super::DEVICE, &address)?;
        assert_eq!(all.configuration(), None);
        assert!(!all.is_own(given.address));
        Ok(())
    });
}
