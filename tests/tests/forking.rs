// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of languages that start processes, each by its own library: Python, Node, Go, Perl and Ruby; a compiler that `make`
//! starts twice at once, and `cron`. Real clients talk to the servers.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    path::PathBuf,
    time::Duration,
};
use unilith_image::{Cache, Quiet, SourcePackage};
use unilith_tests::{
    BUILD_KERNEL, Machine, Unilith, client, compile, connect, eventually_within, finish,
    is_skipped_where_slow,
};

/// An interpreter under software emulation on a busy computer.
const SLOW: Duration = Duration::from_secs(240);

/// Writes a file of the directory that machines have as /data.
fn write(unilith: &Unilith, name: &str, text: &str) {
    fs::create_dir_all(unilith.path("data")).expect("the scratch directory can be written");
    fs::write(unilith.path("data").join(name), text).expect("the scratch directory can be written");
}

/// How many processes the machine has, with those that nobody has waited for.
fn processes(unilith: &Unilith, machine: &Machine) -> usize {
    let listed = unilith.run(&["exec", &machine.id, "ls", "/proc"]).ok().out;
    listed.lines().filter(|name| name.trim().parse::<u32>().is_ok()).count()
}

/// Twenty clients at once, each served by a process of its own, which answers `LANGUAGE PID LINE`; the server reaps all of them.
#[track_caller]
fn a_child_answers_each_client(unilith: &Unilith, machine: &Machine, language: &str) {
    let mut clients: Vec<_> = (0..20).map(|_| connect(machine.at(7000))).collect();
    for (n, client) in clients.iter_mut().enumerate() {
        writeln!(client, "client {n}").expect("a connection");
    }
    let mut pids = BTreeSet::new();
    for (n, client) in clients.iter_mut().enumerate() {
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        let pid = answer.strip_prefix(language).and_then(|rest| rest.strip_suffix(&format!(" client {n}\n")));
        let pid = pid.unwrap_or_else(|| panic!("client {n} was told {answer:?}"));
        pids.insert(pid.trim().parse::<u32>().expect("a number of a process"));
    }
    assert_eq!(pids.len(), 20, "a process served two clients: {pids:?}");
    eventually_within(SLOW, "the children are reaped", || processes(unilith, machine) == 1);
}

#[test]
fn perls_server_forks_for_each_client() {
    let unilith = Unilith::new();
    let server = r#"
        use IO::Socket::INET; use POSIX ':sys_wait_h';
        $SIG{CHLD} = sub { 1 while waitpid(-1, WNOHANG) > 0 };
        my $server = IO::Socket::INET->new(LocalPort => 7000, Listen => 32, ReuseAddr => 1) or die $!;
        while (1) {
            my $client = $server->accept or next;
            my $pid = fork // die $!;
            if (!$pid) { my $line = <$client>; print $client "perl $$ $line"; exit }
            close $client;
        }
    "#;
    unilith.fetch("debian:perl");
    let machine = unilith.start(&["-m", "128M", "-p", "127.0.0.1::7000", "debian:perl", "--", "-e", server]);
    eventually_within(SLOW, "perl listens", || std::net::TcpStream::connect(machine.at(7000)).is_ok());
    a_child_answers_each_client(&unilith, &machine, "perl");
}

#[test]
fn rubys_server_forks_for_each_client() {
    if is_skipped_where_slow() {
        return;
    }
    let unilith = Unilith::new();
    let server = r#"
        require 'socket'
        server = TCPServer.new('0.0.0.0', 7000)
        loop do
            client = server.accept
            Process.detach(fork { line = client.gets; client.print "ruby #{Process.pid} #{line}" })
            client.close
        end
    "#;
    unilith.fetch("debian:ruby");
    let machine = unilith.start(&["-m", "256M", "-p", "127.0.0.1::7000", "debian:ruby", "--", "-e", server]);
    eventually_within(SLOW, "ruby listens", || std::net::TcpStream::connect(machine.at(7000)).is_ok());
    a_child_answers_each_client(&unilith, &machine, "ruby");
}

#[test]
fn python_starts_processes_in_each_of_its_ways() {
    if is_skipped_where_slow() {
        return;
    }
    let unilith = Unilith::new();
    write(&unilith, "start.py", include_str!("../programs/start.py"));
    let words = ["-m", "256M", "-v", "./data:/data", "python", "--", "/data/start.py"];
    let ran = unilith.program_within(&words, SLOW).ok();
    let ways = ["fork", "spawn", "forkserver"];
    let expected: String = ways
        .iter()
        .map(|way| format!("{way} 4950 100 [0, 0]\n{way} [0, 1, 4, 9, 16]\n"))
        .chain(["ended by 9\ntoo late\n1+2+4+5\n".to_string()])
        .collect();
    assert_eq!(ran.out, expected);
}

#[test]
fn node_starts_programs_and_serves_with_a_cluster_that_replaces_its_dead() {
    if is_skipped_where_slow() {
        return;
    }
    let unilith = Unilith::new();
    write(&unilith, "cluster.js", include_str!("../programs/cluster.js"));
    unilith.fetch("debian:nodejs");
    let words = ["-m", "512M", "-v", "./data:/data", "-p", "127.0.0.1::8000"];
    let machine = unilith.start(&[&words[..], &["debian:nodejs", "--", "/data/cluster.js"]].concat());
    let url = format!("http://{}/", machine.at(8000));
    let worker = || {
        let answer = client("curl", &["-sS", "--max-time", "30", &url]).out;
        answer.trim().strip_prefix("worker ").and_then(|pid| pid.parse::<u32>().ok())
    };
    let mut workers = BTreeSet::new();
    eventually_within(SLOW, "both workers answer", || {
        workers.extend(worker());
        workers.len() == 2
    });
    for said in ["A SHELL\n", "code 4 in\n", "ended by SIGTERM\n", "told 42\n"] {
        eventually_within(SLOW, said, || machine.log().contains(said));
    }
    let victim = *workers.first().expect("two workers");
    unilith.run(&["exec", &machine.id, "kill", "-KILL", &victim.to_string()]).ok();
    eventually_within(SLOW, "a new worker answers", || worker().is_some_and(|pid| !workers.contains(&pid)));
    eventually_within(SLOW, "the master, two workers, and no zombie", || processes(&unilith, &machine) == 3);
}

#[test]
fn go_starts_programs_by_pipes_and_ends_them_by_signals() {
    let unilith = Unilith::new();
    let cache = unilith.path("go-cache").display().to_string();
    let env = [("CGO_ENABLED", "0"), ("GOCACHE", cache.as_str()), ("GO111MODULE", "off"), ("GOFLAGS", "")];
    let program = compile(&unilith, &["go", "build"], "starter.go", &env);
    let ran = unilith.program_within(&["-m", "256M", &program], SLOW).ok();
    let first = "THROUGH A PIPE\ncode 7\nmissing true\n/ told\nexit status 9\nsignal: killed\n";
    assert_eq!(ran.out, format!("{first}all have answered\n"));
}

/// Lua's source as its authors publish it, without Debian's changes of its Makefile.
fn lua(unilith: &Unilith) -> PathBuf {
    let cache = Cache::of_user().expect("a cache folder");
    let package = SourcePackage::find("lua5.4", &cache, false, &Quiet).expect("Debian's package lists");
    let (_, description) = package.fetch(&cache, &Quiet).expect("Debian's source package");
    let folder = unilith.path("lua");
    let mut unpack = std::process::Command::new("dpkg-source");
    unpack.args(["--no-check", "--skip-patches", "--extract"]).arg(description).arg(&folder);
    finish(&mut unpack, SLOW).ok();
    folder
}

#[test]
fn make_builds_lua_from_source_with_two_compilers_at_once() {
    if is_skipped_where_slow() {
        return;
    }
    let unilith = Unilith::new();
    let folder = lua(&unilith);
    let packages = "debian:gcc,libc6-dev,make";
    unilith.fetch(packages);
    let script = "cd /data && make -s -j2 linux && make -s test && make -q linux && \
        ./src/lua -e 'local n = 0 for l in io.popen([[seq 9]]):lines() do n = n + l end print(n)'";
    let words = ["-m", "512M", "-v", "./lua:/data", "--entrypoint", "/bin/sh", packages, "--", "-c", script];
    let ran = unilith.program_within(&words, BUILD_KERNEL).ok();
    ran.says("Lua 5.4").says("\n45\n");
    // What was built in the machine is a program of this computer.
    let lua = folder.join("src/lua").display().to_string();
    assert_eq!(client(&lua, &["-e", "print(6 * 7)"]).ok().out, "42\n");
}

#[test]
fn cron_starts_a_job_as_its_user() {
    let unilith = Unilith::new();
    let settings = "from = \"debian:cron\"\nprogram = \"/usr/sbin/cron\"\nargs = [\"-f\"]\nmemory = \"64M\"\n\
        [files]\n\"/etc/cron.d/own\" = \"own\"\n";
    fs::write(unilith.path("unilith.toml"), settings).expect("the scratch directory can be written");
    let jobs = "WORD=told\n@reboot daemon echo \"$(id -un) was $WORD\" > /tmp/said; exit 3\n";
    fs::write(unilith.path("own"), jobs).expect("the scratch directory can be written");
    finish(&mut unilith.command(&["check"]), BUILD_KERNEL).ok();
    let machine = unilith.start(&["."]);
    let said = || unilith.run(&["exec", &machine.id, "cat", "/tmp/said"]).out;
    eventually_within(SLOW, "the job has run", || said() == "daemon was told\n");
    eventually_within(SLOW, "nothing of the job is left", || processes(&unilith, &machine) == 1);
}
