// SPDX-License-Identifier: Apache-2.0 OR MIT
//! IPv6 of machines: on a tap device, where the user names addresses for it, and in the place of a pod's interface.

use serde_json::json;
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    time::Duration,
};
use unilith_tests::{
    Unilith, client, connect,
    engine::{Pod, engine},
    eventually, is_skipped, tested_kernel,
};

/// The machine's and the host's address on its tap device; none where it has another network.
fn ends(unilith: &Unilith, machine: &str) -> Option<(Ipv6Addr, Ipv6Addr)> {
    let connection = unilith.inspect(machine)["state"]["connection"].clone();
    let prefix: Ipv6Addr = connection["prefix6"].as_str()?.parse().ok()?;
    let of = |what: &str| -> Option<Ipv6Addr> {
        let four: std::net::Ipv4Addr = connection[what].as_str()?.parse().ok()?;
        Some(Ipv6Addr::from_bits(prefix.to_bits() | u128::from(four.to_bits())))
    };
    Some((of("guest")?, of("host")?))
}

fn with_addresses() -> Unilith {
    let mut unilith = Unilith::new();
    unilith.set("UNILITH_NETWORK6", "fd00:6:6::/96");
    unilith
}

#[test]
fn redis_serves_over_ipv6_from_small_commands_to_megabytes() {
    if is_skipped(tested_kernel() != "micro", "the address is that of the micro kernel") {
        return;
    }
    let unilith = with_addresses();
    let machine = unilith.start(&["redis"]);
    let Some((guest, _)) = ends(&unilith, &machine.id) else {
        assert!(is_skipped(true, "no right to make a tap device"));
        return;
    };
    let mut stream = connect(SocketAddr::new(guest.into(), 6379));
    let value = "x".repeat(3_000_000);
    write!(stream, "PING\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n${}\r\n{value}\r\nGET a\r\n", value.len()).unwrap();
    let mut answers = BufReader::new(stream);
    let mut lines = String::new();
    for _ in 0..3 {
        answers.read_line(&mut lines).unwrap();
    }
    assert_eq!(lines, format!("+PONG\r\n+OK\r\n${}\r\n", value.len()));
    let mut got = vec![0; value.len()];
    answers.read_exact(&mut got).unwrap();
    assert!(got == value.as_bytes());
    let said = client("redis-cli", &["-h", &guest.to_string(), "client", "list"]).ok();
    assert!(
        said.out.contains("addr=[fd00:6:6::") && said.out.contains(&format!("laddr=[{guest}]:6379")),
        "{said}"
    );
    // A datagram to a port that nobody has is answered by ICMPv6.
    let socket = UdpSocket::bind("[::]:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket.connect(SocketAddr::new(guest.into(), 9)).unwrap();
    socket.send(b"x").unwrap();
    assert_eq!(socket.recv(&mut [0; 9]).unwrap_err().raw_os_error(), Some(111));
}

#[test]
fn a_program_reaches_the_host_over_ipv6_and_sees_its_addresses_and_neighbours() {
    if is_skipped(tested_kernel() != "micro", "the address is that of the micro kernel") {
        return;
    }
    let unilith = with_addresses();
    let listener = TcpListener::bind("[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = BufReader::new(stream.try_clone().unwrap());
            let mut line = String::new();
            while head.read_line(&mut line).is_ok_and(|n| n > 2) {
                line.clear();
            }
            let peer = stream.peer_addr().unwrap().ip();
            let _ = write!(stream, "HTTP/1.0 200 OK\r\n\r\nhello {peer}\n");
        }
    });
    let script = format!(
        "host=$(ip -6 route | sed -n 's/^default via \\([^ ]*\\).*/\\1/p'); [ $host ] || exit 0; wget -q -O - \"http://[$host]:{port}/\"; \
         ip -6 addr show dev eth0; ip -6 route; cat /proc/net/if_inet6 /proc/net/ipv6_route; \
         grep Ip6InDelivers /proc/net/snmp6; cat /proc/sys/net/ipv6/conf/eth0/disable_ipv6"
    );
    let ran = unilith.run(&["run", "--rm", "busybox", "sh", "-c", &script]).ok();
    if is_skipped(ran.out.is_empty(), "no right to make a tap device") {
        return;
    }
    let own = ran
        .out
        .strip_prefix("hello ")
        .and_then(|rest| rest.lines().next())
        .expect("it was answered")
        .to_string();
    assert!(own.parse::<Ipv6Addr>().unwrap().segments()[0] == 0xfd00, "{ran}");
    for part in
        [&format!("inet6 {own}/126 scope global"), "inet6 fe80::", "dev eth0", "default via fd00:6:6::"]
    {
        assert!(ran.out.contains(part), "{part}: {ran}");
    }
    let hex = format!("{:032x} 02 7e 00 80     eth0", own.parse::<Ipv6Addr>().unwrap().to_bits());
    assert!(ran.out.contains(&hex) && ran.out.ends_with("\n0\n"), "{ran}");
}

/// Gives a pod's link addresses of IPv6: what an engine with two families does.
fn add_ipv6(pod: &Pod, outside: &str) {
    let inside = pod.path();
    for line in [
        format!("ip -6 addr add fd00:213::1/64 dev {outside} nodad"),
        format!("nsenter --net={inside} ip -6 addr add fd00:213::2/64 dev eth0 nodad"),
        format!("nsenter --net={inside} ip -6 route add default via fd00:213::1"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        client(words[0], &words[1..]).ok();
    }
}

/// The other end of a pod's interface, by its address.
fn outside(pod: &Pod) -> String {
    let listed = client("ip", &["-o", "-4", "addr"]).ok().out;
    let line =
        listed.lines().find(|line| line.contains(&format!("{}/24", pod.at(1)))).expect("the pod has one");
    line.split_whitespace().nth(1).expect("it has a name").to_string()
}

#[test]
fn a_pod_with_two_families_has_both_and_one_with_ipv6_alone_has_that() {
    let Some(engine) = engine() else { return };
    for has_both in [true, false] {
        let pod = Pod::make();
        add_ipv6(&pod, &outside(&pod));
        if !has_both {
            let inside = pod.path();
            client("nsenter", &[&format!("--net={inside}"), "ip", "-4", "addr", "flush", "dev", "eth0"]).ok();
        }
        let id = if has_both { "both" } else { "six" };
        let line = "echo page > /index.html; ip addr show dev eth0; busybox httpd -f -p '[::]:80' -h /";
        let bundle = engine.bundle(id, line, |config| {
            let namespaces = config["linux"]["namespaces"].as_array_mut().expect("it has namespaces");
            namespaces.retain(|namespace| namespace["type"] != "network");
            namespaces.push(json!({"type": "network", "path": pod.path()}));
        });
        assert!(bundle.is_dir());
        assert!(engine.create(id).success(), "{}", engine.out(id));
        engine.run(&["start", id]).ok();
        let page =
            |at: &str| client("curl", &["-s", "-g", "-m", "5", &format!("http://{at}/index.html")]).out;
        eventually("it serves over IPv6", || page("[fd00:213::2]") == "page\n");
        assert_eq!(page(&pod.at(2)) == "page\n", has_both);
        let out = engine.out(id);
        assert!(out.contains("inet6 fd00:213::2/64") && out.contains(&pod.at(2)) == has_both, "{out}");
        engine.run(&["kill", id, "KILL"]).ok();
        engine.wait(id);
        engine.run(&["delete", id]).ok();
    }
}
