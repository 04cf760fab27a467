// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interpreters of the catalogue, and programs built here: Go without a libc, Rust with tokio, C++.

use std::{
    io::{Read, Write},
    time::Duration,
};
use unilith_tests::{Unilith, client, compile, connect};

/// Python under software emulation takes its time.
const PYTHON: Duration = Duration::from_secs(120);

fn python(code: &str) -> unilith_tests::Ran {
    Unilith::new().program_within(&["python", "--", "-c", code], PYTHON)
}

#[test]
fn python_has_json_re_and_exit_codes() {
    let code = "import json, re, sys; print(json.dumps({'a': re.findall('[0-9]+', 'x12y345')})); sys.exit(9)";
    python(code).code(9).says(r#"{"a": ["12", "345"]}"#);
}

#[test]
fn python_runs_threads_and_asyncio() {
    python(
        "import asyncio, threading\n\
         total = []\n\
         threads = [threading.Thread(target=lambda n=n: total.append(n)) for n in range(8)]\n\
         [t.start() for t in threads]; [t.join() for t in threads]\n\
         async def main():\n    return sum(await asyncio.gather(*[asyncio.sleep(0.01 * n, n) for n in range(5)]))\n\
         print(sum(total), asyncio.run(main()))",
    )
    .ok()
    .says("28 10");
}

#[test]
fn python_has_thread_pools_and_tls_and_asyncio_over_loopback() {
    let code = include_str!("../programs/network.py");
    let ran = python(code).ok();
    assert_eq!(ran.out, "328350\nTLSv1.2 True\n900000\n");
}

#[test]
fn python_has_sqlite_in_memory() {
    python("import sqlite3; print(sqlite3.connect(':memory:').execute('select 6 * 7').fetchone())")
        .ok()
        .says("(42,)");
}

#[test]
fn python_serves_http() {
    let unilith = Unilith::new();
    let machine = unilith.start(&[
        "-p",
        "127.0.0.1::8000",
        "python",
        "--",
        "-m",
        "http.server",
        "8000",
        "--directory",
        "/usr/bin",
    ]);
    let at = machine.at(8000);
    client("curl", &["-sS", "--max-time", "60", &format!("http://{at}/")]).ok().says("python3");
}

#[test]
fn lua_runs_a_script() {
    let code = "local t = {} for i = 1, 10 do t[i] = i * i end print(table.concat(t, ' '), _VERSION)";
    Unilith::new().program(&["lua", "--", "-e", code]).ok().says("1 4 9 16 25 36 49 64 81 100\tLua 5.4");
}

#[test]
fn busybox_runs_its_tools() {
    let unilith = Unilith::new();
    unilith.program(&["busybox", "echo", "hello"]).ok().says("hello");
    unilith.program(&["busybox", "sh", "-c", "echo $((6 * 7)); exit 5"]).code(5).says("42");
    unilith.program(&["busybox", "uname", "-m"]).ok().says("x86_64");
    unilith.program(&["busybox", "false"]).code(1);
}

#[test]
fn environment_workdir_user_and_host_name_reach_the_program() {
    let unilith = Unilith::new();
    std::fs::write(unilith.path("vars"), "# a comment\nFROM_FILE=one two\n").unwrap();
    let words = ["-e", "A=b c", "--env-file", "vars", "-w", "/tmp", "-u", "33:34", "--hostname", "guest"];
    let shell = "echo \"$A|$FROM_FILE|$PWD\"; read -r name < /etc/hostname; echo $name";
    let ran = unilith.program(&[&words[..], &["busybox", "sh", "-c", shell]].concat()).ok();
    assert_eq!(ran.out, "b c|one two|/tmp\nguest\n");
    unilith.program(&[&words[..], &["busybox", "id", "-u"]].concat()).ok().says("33");
    unilith.program(&[&words[..], &["busybox", "hostname"]].concat()).ok().says("guest");
}

#[test]
fn a_static_go_server_answers_over_http() {
    let unilith = Unilith::new();
    let cache = unilith.path("go-cache").display().to_string();
    let env = [("CGO_ENABLED", "0"), ("GOCACHE", cache.as_str()), ("GO111MODULE", "off"), ("GOFLAGS", "")];
    let program = compile(&unilith, &["go", "build"], "server.go", &env);
    let machine = unilith.start(&["-p", "127.0.0.1::8080", &program]);
    let at = machine.at(8080);
    for n in 0..20 {
        let ran = client("curl", &["-sS", "--max-time", "30", &format!("http://{at}/hello/{n}")]).ok();
        assert_eq!(ran.out, format!("hello from go: /hello/{n}\n"));
    }
}

#[test]
fn a_tokio_server_echoes_to_many_clients() {
    let unilith = Unilith::new();
    let machine = unilith.start(&["-p", "127.0.0.1::7000", env!("CARGO_BIN_EXE_echo-server")]);
    let at = machine.at(7000);
    let mut streams: Vec<_> = (0..50).map(|_| connect(at)).collect();
    for round in 0..20 {
        for (n, stream) in streams.iter_mut().enumerate() {
            write!(stream, "{round:05} {n:05}").unwrap();
        }
        for (n, stream) in streams.iter_mut().enumerate() {
            let mut answer = [0; 11];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(answer, format!("{round:05} {n:05}").as_bytes());
        }
    }
}

#[test]
fn cpp_throws_constructs_and_runs_threads() {
    let unilith = Unilith::new();
    let program = compile(&unilith, &["g++", "-O1", "-std=c++17", "-pthread"], "features.cpp", &[]);
    let ran = unilith.program(&[&program]).code(3);
    assert_eq!(
        ran.out,
        "constructed\ncaught: thrown in a function\ncaught in 4 threads\nsum 4000\ndestroyed\n"
    );
}
