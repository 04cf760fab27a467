// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Neighbours, routers and groups of IPv6 (RFC 4861, RFC 4862, RFC 3810), against frames made by hand.
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use abi::{Events, errno::*};
use api_socket::Socket;
use common::ipv6::*;
use common::*;

#[test]
fn neighbours_answer_questions_and_unasked_news_make_nobody_known() {
    let world = world(Faults { delay: MS, ..Faults::default() }, 0);
    world.run(3 * SECOND);
    let heard = listen_to(&world.a);
    let ask = |target: &str, from: &str, to: &str, hops: u8| {
        let message = [&[135, 0, 0, 0, 0, 0, 0, 0], &ip(target).octets()[..], &[1, 1], &STRANGER].concat();
        world.a.device.inject(frame(from, to, ICMPV6, hops, &message));
        world.run(10 * MS);
        std::mem::take(&mut *heard.lock().unwrap()).len()
    };
    assert_eq!(ask("2001:db8::1", "fe80::77", "ff02::1:ff00:1", 255), 1);
    assert_eq!(
        ask("2001:db8::1", "fe80::77", "ff02::1:ff00:1", 64),
        0,
        "a router sent it on (RFC 4861 7.1.1)"
    );
    assert_eq!(ask("2001:db8::9", "fe80::77", "ff02::1:ff00:1", 255), 0, "another one's");
    let known = || {
        world.a.net.look(|s| {
            let v6 = s.ip.v6.as_ref().unwrap();
            let number = v6.numbers.find(&tcpip::ipv6::numbers::Scoped::on(ip("2001:db8::66"), 2));
            number.and_then(|n| s.ip.neighbours.known((2, n)))
        })
    };
    let said = |mac: [u8; 6], flags: u8| {
        let message =
            [&[136, 0, 0, 0, flags, 0, 0, 0], &ip("2001:db8::66").octets()[..], &[2, 1], &mac].concat();
        world.a.device.inject(frame("2001:db8::66", "ff02::1", ICMPV6, 255, &message));
        world.run(10 * MS);
    };
    said(STRANGER, 0x20);
    assert_eq!(known(), None, "RFC 4861 7.2.5: nobody asked");
    let socket = datagram(&world.a);
    assert_eq!(say(&*socket, &at("2001:db8::66", 9), b"x"), Ok(1));
    said(STRANGER, 0x20);
    assert_eq!(known(), Some(STRANGER));
    said([2, 9, 9, 9, 9, 9], 0);
    assert_eq!(known(), Some(STRANGER), "it does not override");
    said([2, 9, 9, 9, 9, 9], 0x20);
    assert_eq!(known(), Some([2, 9, 9, 9, 9, 9]));
}

#[test]
fn nobody_answers_for_a_neighbour_that_is_not_there() {
    let world = world(Faults { delay: MS, ..Faults::default() }, 0);
    let client = stream(&world.a);
    assert_eq!(client.connect(&caller(), &at("2001:db8::404", 80)), Err(EINPROGRESS));
    assert!(world.until(10 * SECOND, || client.poll().contains(Events::ERR)));
    let error = client.get_option(1, 4, &[]).unwrap();
    assert_eq!(error, i32::from(EHOSTUNREACH.0).to_ne_bytes());
}

#[test]
fn an_address_that_somebody_has_is_not_taken() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 3);
    configure(&world.a, "", None, false);
    let heard = listen_to(&world.a);
    world.run(999 * MS);
    let probes = messages(&heard, 135);
    assert_eq!(probes.len(), 1, "RFC 4862 5.1");
    // From nobody, to the group, for the address alone (RFC 4861 4.3).
    assert_eq!((&probes[0][22..38], &probes[0][38..54]), (&[0; 16][..], &ip("ff02::1:ff00:1").octets()[..]));
    assert_eq!((probes[0].len(), &probes[0][62..78]), (78, &ip("fe80::ff:fe00:1").octets()[..]));
    assert!(addresses(&world.a).is_empty(), "it is tentative");
    let message =
        [&[136, 0, 0, 0, 0x20, 0, 0, 0], &ip("fe80::ff:fe00:1").octets()[..], &[2, 1], &STRANGER].concat();
    world.a.device.inject(frame("fe80::ff:fe00:1", "ff02::1", ICMPV6, 255, &message));
    world.run(10 * SECOND);
    assert!(addresses(&world.a).is_empty());
    let other = World::new(Faults { delay: MS, ..Faults::default() }, 0, 3);
    configure(&other.a, "", None, false);
    other.run(3 * SECOND);
    assert_eq!(addresses(&other.a), ["fe80::ff:fe00:1"]);
}

#[test]
fn a_router_gives_prefix_way_and_mtu_for_as_long_as_it_says() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 3);
    configure(&world.a, "", None, true);
    let heard = listen_to(&world.a);
    world.run(30 * SECOND);
    let asked = messages(&heard, 133);
    assert_eq!(
        (asked.len(), asked[0][21], &asked[0][38..54]),
        (3, 255, &ip("ff02::2").octets()[..]),
        "RFC 4861 6.3.7"
    );
    let own = "2001:db8:5::ff:fe00:1".to_string();
    let say = |hops: u8, lifetime: u16, valid: u32, preferred: u32| {
        let message = router_advertisement(lifetime, valid, preferred);
        world.a.device.inject(frame("fe80::77", "ff02::1", ICMPV6, hops, &message));
        world.run(2 * SECOND);
    };
    say(64, 1800, 86_400, 14_400);
    assert!(!addresses(&world.a).contains(&own), "sent on by a router");
    say(255, 1800, 100, 200);
    assert!(!addresses(&world.a).contains(&own), "preferred for longer than it is valid");
    say(255, 1800, 86_400, 14_400);
    assert!(addresses(&world.a).contains(&own));
    let socket = datagram(&world.a);
    heard.lock().unwrap().clear();
    assert_eq!(say_to(&*socket, "2001:db8:9::9"), Ok(1));
    world.run(10 * MS);
    let sent = heard.lock().unwrap().iter().find(|f| f[20] == UDP).unwrap().clone();
    assert_eq!((&sent[..6], &sent[22..38]), (&STRANGER[..], &ip(&own).octets()[..]), "by way of the router");
    // RFC 4862 5.5.3 (e): two hours stay, whoever says what.
    say(255, 1800, 1, 1);
    world.run(7000 * SECOND);
    assert!(addresses(&world.a).contains(&own));
    assert_eq!(say_to(&*datagram(&world.a), "2001:db8:9::9"), Err(ENETUNREACH), "the router's time is over");
    world.run(300 * SECOND);
    assert!(!addresses(&world.a).contains(&own));
    say(255, 0, 86_400, 14_400);
    assert_eq!(say_to(&*datagram(&world.a), "2001:db8:9::9"), Err(ENETUNREACH), "no default router");
}

#[test]
fn a_machine_whose_host_said_all_heeds_no_router() {
    let world = world(Faults { delay: MS, ..Faults::default() }, 0);
    world.a.device.inject(frame(
        "fe80::77",
        "ff02::1",
        ICMPV6,
        255,
        &router_advertisement(1800, 86_400, 14_400),
    ));
    world.run(3 * SECOND);
    assert_eq!(addresses(&world.a), ["2001:db8::1", "fe80::ff:fe00:1"]);
    assert_eq!(say_to(&*datagram(&world.a), "2001:db8:9::9"), Err(ENETUNREACH));
}

#[test]
fn the_gateway_of_the_host_may_be_of_the_link() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 3);
    configure(&world.a, "2001:db8::1", Some("fe80::ff:fe00:2"), false);
    configure(&world.b, "2001:db8::2", None, false);
    world.run(3 * SECOND);
    let heard = listen_to(&world.a);
    assert_eq!(say_to(&*datagram(&world.a), "2001:db9::9"), Ok(1));
    world.run(100 * MS);
    assert!(heard.lock().unwrap().iter().any(|f| f[20] == UDP && f[..6] == [2, 0, 0, 0, 0, 2]));
}

#[test]
fn switches_hear_of_memberships_and_queries_are_answered() {
    let world = World::new(Faults { delay: MS, ..Faults::default() }, 0, 3);
    let heard = listen_to(&world.a);
    configure(&world.a, "2001:db8::1", None, false);
    world.run(10 * SECOND);
    let reports = || {
        let all = std::mem::take(&mut *heard.lock().unwrap());
        all.into_iter().filter(|f| f[20] == 0 && f.len() > 62 && f[62] == 143).collect::<Vec<_>>()
    };
    let told = reports();
    // Twice (RFC 3810 9.1), with a router alert and to where reports go; the solicited-node group of both addresses is the same.
    assert_eq!(told.len(), 2);
    for report in told {
        assert_eq!(
            (report[21], &report[38..54], &report[54..62]),
            (1, &ip("ff02::16").octets()[..], &[58, 0, 5, 2, 0, 0, 1, 0][..])
        );
        assert_eq!((report[69], report[70], &report[74..90]), (1, 4, &ip("ff02::1:ff00:1").octets()[..]));
        assert_eq!(report[..6], [0x33, 0x33, 0, 0, 0, 0x16]);
    }
    let mut query = [0; 28];
    (query[0], query[4]) = (130, 4);
    world.a.device.inject(frame("fe80::77", "ff02::1", ICMPV6, 1, &query));
    world.run(2 * SECOND);
    let answers = reports();
    assert_eq!((answers.len(), answers[0][70]), (1, 2), "RFC 3810 5.2.12: the state as it is");
    world.a.device.inject(frame("2001:db8::77", "ff02::1", ICMPV6, 1, &query));
    world.run(2 * SECOND);
    assert!(reports().is_empty(), "RFC 3810 6.2: a query is of the link");
}

#[test]
fn sockets_are_in_groups_of_the_link_and_switches_hear_when_they_leave() {
    let world = world(Faults { delay: MS, ..Faults::default() }, 0);
    world.run(3 * SECOND);
    let heard = listen_to(&world.a);
    let (a, b) = (datagram(&world.a), datagram(&world.b));
    a.bind(&caller(), &at("::", 9)).unwrap();
    let group = [&ip("ff05::1234").octets()[..], &2i32.to_ne_bytes()].concat();
    let hears = || {
        assert_eq!(say(&*b, &at("ff05::1234", 9), b"all"), Ok(3));
        world.run(10 * MS);
        receive(&*a, 9).is_ok()
    };
    assert!(!hears());
    a.set_option(41, 20, &group).unwrap();
    assert_eq!(a.set_option(41, 20, &group), Err(EADDRINUSE));
    assert_eq!(a.set_option(41, 20, &group[..19]), Err(EINVAL));
    let other = [&ip("ff05::1234").octets()[..], &9i32.to_ne_bytes()].concat();
    assert_eq!(a.set_option(41, 20, &other), Err(ENODEV));
    assert!(hears());
    world.run(3 * SECOND);
    // RFC 3810 5.2.12: 4 and 3 are the record's types.
    let told = |kind: u8| {
        let all = std::mem::take(&mut *heard.lock().unwrap());
        let is_it = |f: &&Vec<u8>| {
            f[20] == 0 && f[62] == 143 && f[70] == kind && f[74..90] == ip("ff05::1234").octets()
        };
        all.iter().filter(is_it).count()
    };
    assert_eq!(told(4), 2);
    a.set_option(41, 21, &group).unwrap();
    assert_eq!(a.set_option(41, 21, &group), Err(EADDRNOTAVAIL));
    world.run(3 * SECOND);
    assert!(told(3) > 0 && !hears());
    // A socket that goes leaves its groups; hops are those of multicasts.
    a.set_option(41, 20, &group).unwrap();
    set(&*b, 18, 7);
    let sent = listen_to(&world.b);
    assert!(hears());
    assert!(
        sent.lock()
            .unwrap()
            .iter()
            .any(|f| f[20] == UDP && f[21] == 7 && f[..6] == [0x33, 0x33, 0, 0, 0x12, 0x34])
    );
    heard.lock().unwrap().clear();
    drop(a);
    world.run(3 * SECOND);
    assert!(told(3) > 0);
}
