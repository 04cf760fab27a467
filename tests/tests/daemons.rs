// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's network servers, each typed by its package's name and nothing else: what `systemctl start` would start answers a client.
//! They are databases, mail, names, files, queues and proxies, in C, Erlang, Go, Java and Lua, with processes, threads and users as their
//! packages have them.
//!
//! Packages are fetched, so only `--long` runs them. One that this machine's package lists lack is said and left out.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod long {
    use std::{
        io::{Read, Write},
        net::{SocketAddr, TcpStream},
        process::Command,
        time::Duration,
    };
    use unilith_tests::{BUILD_KERNEL, Unilith, eventually_within, finish, limit};

    /// Erlang and Java take their time, more so under software emulation.
    const PATIENCE: Duration = Duration::from_secs(120);
    /// For one answer.
    const ANSWER: Duration = Duration::from_secs(10);

    const GET: &[u8] = b"GET / HTTP/1.0\r\n\r\n";
    /// A question over TCP for `version.bind`, class CHAOS (RFC 1035, 4.2.2; RFC 4892).
    const WHO: &[u8] =
        b"\x00\x1e\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x07version\x04bind\x00\x00\x10\x00\x03";

    /// Package, port, what the client says, and a part of the answer.
    const SERVERS: [(&str, u16, &[u8], &[u8]); 27] = [
        ("beanstalkd", 11300, b"stats\r\n", b"OK "),
        ("bind9", 53, WHO, b"\x12\x34\x85"),
        ("cups-daemon", 631, GET, b"HTTP/1.0 4"),
        ("dovecot-imapd", 143, b"", b"* OK [CAPABILITY IMAP4rev1"),
        ("etcd-server", 2379, b"GET /version HTTP/1.0\r\n\r\n", b"etcdserver"),
        ("exim4-daemon-light", 25, b"", b"ESMTP Exim"),
        ("gearman-job-server", 4730, b"status\n", b"."),
        ("icecast2", 8000, GET, b"Icecast"),
        ("influxdb", 8086, b"GET /ping HTTP/1.0\r\n\r\n", b"X-Influxdb-Version"),
        ("lighttpd", 80, GET, b"Server: lighttpd"),
        ("mariadb-server", 3306, b"", b"MariaDB"),
        ("mosquitto", 1883, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a", b"\x20\x02\x00"),
        ("postfix", 25, b"", b"ESMTP Postfix"),
        ("privoxy", 8118, GET, b"HTTP/1.1 400"),
        ("proftpd-core", 21, b"", b"220 ProFTPD"),
        ("prometheus", 9090, b"GET /-/ready HTTP/1.0\r\n\r\n", b"Ready"),
        ("prometheus-node-exporter", 9100, b"GET /metrics HTTP/1.0\r\n\r\n", b"node_"),
        ("prosody", 5222, b"<stream:stream to='localhost' xmlns='jabber:client' version='1.0'>", b"stream"),
        ("rabbitmq-server", 5672, b"AMQP\x00\x00\x00\x00", b"AMQP"),
        // An anonymous bind of LDAPv3 (RFC 4511, 4.2), and success.
        ("slapd", 389, b"\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00", b"\x61\x07\x0a\x01\x00"),
        ("squid", 3128, GET, b"Server: squid"),
        ("tomcat10", 8080, GET, b"HTTP/1.1 200"),
        ("tor", 9050, b"\x05\x01\x00", b"\x05\x00"),
        ("transmission-daemon", 9091, GET, b"Transmission"),
        ("unbound", 53, WHO, b"\x12\x34\x81"),
        ("varnish", 6081, GET, b"HTTP/1.1 503"),
        ("vsftpd", 21, b"", b"220 (vsFTPd"),
    ];

    fn has_package(name: &str) -> bool {
        let shown = Command::new("apt-cache").args(["show", name]).output();
        shown.is_ok_and(|shown| shown.status.success())
    }

    /// Whether the answer has come within its time.
    fn answers(at: SocketAddr, says: &[u8], part: &[u8]) -> bool {
        let Ok(mut stream) = TcpStream::connect_timeout(&at, ANSWER) else { return false };
        stream.set_read_timeout(Some(limit(ANSWER))).unwrap();
        if stream.write_all(says).is_err() {
            return false;
        }
        let (mut answer, mut piece) = (Vec::<u8>::new(), [0; 4096]);
        while answer.len() < 1 << 20 {
            match stream.read(&mut piece) {
                Ok(length @ 1..) => answer.extend(&piece[..length]),
                Ok(0) | Err(_) => return false,
            }
            if answer.windows(part.len()).any(|window| window == part) {
                return true;
            }
        }
        false
    }

    #[test]
    #[ignore = "fetches a gigabyte of packages"]
    fn servers_of_debian_answer_as_systemd_would_have_started_them() {
        let mut failed = Vec::new();
        for (package, port, says, part) in SERVERS {
            if !has_package(package) {
                println!("{package}: left out, this computer's package lists have none");
                continue;
            }
            let result = std::panic::catch_unwind(|| {
                let unilith = Unilith::new();
                let image = format!("debian:{package}");
                // Fetched first: that may take longer than a start.
                finish(&mut unilith.command(&["check", &image]), BUILD_KERNEL);
                let machine = unilith.start(&["-m", "768M", "-p", &format!("127.0.0.1::{port}"), &image]);
                let at = machine.at(port);
                eventually_within(PATIENCE, "it answers", || answers(at, says, part));
            });
            println!("{package}: {}", if result.is_ok() { "answers" } else { "FAILED" });
            if result.is_err() {
                failed.push(package);
            }
        }
        assert!(failed.is_empty(), "no answer of {}", failed.join(", "));
    }
}
