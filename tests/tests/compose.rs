// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compose files: several machines that belong together, with real programs that talk to each other.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};
use unilith_tests::{BUILD_KERNEL, PATIENCE, Ran, Unilith, client, eventually, finish, signal};

/// A directory with a compose file, and the command there.
struct Project {
    unilith: Unilith,
    machine: String,
}

impl Project {
    /// `None`: networks take root and nftables.
    fn new(file: &str) -> Option<Project> {
        let mut unilith = Unilith::new();
        let data = unilith.path("data");
        unilith.set("XDG_DATA_HOME", data);
        // The kernel is built before anything is waited for.
        finish(&mut unilith.command(&["run", "--rm", "busybox", "true"]), BUILD_KERNEL).ok();
        unilith.run(&["network", "create", "probe"]).ok();
        let ran = unilith.run(&["run", "--network", "probe", "no-such-program"]);
        unilith.run(&["network", "rm", "probe"]).ok();
        if ran.err.contains("machines cannot be in networks here: it takes ") {
            eprintln!("skipped: {}", ran.err.trim());
            return None;
        }
        // What is tested is the same on all machines.
        let project = Project { unilith, machine: "--machine=auto".into() };
        project.write("compose.yaml", file);
        Some(project)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.unilith.path(name), text).unwrap();
    }

    fn compose(&self, words: &[&str]) -> Ran {
        self.unilith.run(&[&["compose", "-p", "shop"], words].concat())
    }

    fn up(&self, words: &[&str]) -> Ran {
        self.compose(&[&["up", "-d", &self.machine], words].concat())
    }

    /// Names and states of the project's machines.
    fn states(&self) -> String {
        let format = ["--format", "{{.Names}} {{.State}}"];
        let filter = ["ps", "-a", "--filter", "label=com.docker.compose.project=shop"];
        let mut lines: Vec<String> = self
            .unilith
            .run(&[&filter[..], &format[..]].concat())
            .ok()
            .out
            .lines()
            .map(String::from)
            .collect();
        lines.sort();
        lines.join("\n")
    }

    fn id(&self, name: &str) -> String {
        self.unilith.run(&["inspect", "-f", "{{.Id}}", name]).ok().out
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        self.compose(&["down", "-v", "-t", "1"]);
    }
}

const SHOP: &str = r#"
services:
  page:
    image: busybox
    command: sh -c 'printf "GET greeting\r\nQUIT\r\n" | nc -w 5 cache 6379; exec sleep 1000000'
    environment: {COLOUR: "${COLOUR:-red}"}
    depends_on:
      setup: {condition: service_completed_successfully}
    secrets: [token]
    configs: [{source: settings, target: /etc/settings}]
  setup:
    image: busybox
    command: ["sh", "-c", 'printf "SET greeting hello\r\nQUIT\r\n" | nc -w 5 store 6379']
    depends_on:
      cache: {condition: service_healthy}
  cache:
    image: debian:redis-server
    entrypoint: [redis-server]
    command: [--dir, /data, --appendonly, "yes", --protected-mode, "no"]
    ports: ["127.0.0.1::6379"]
    volumes: ["notes:/data"]
    networks: {default: {aliases: [store]}}
    healthcheck:
      test: [CMD, redis-cli, ping]
      interval: 300ms
      timeout: 20s
volumes: {notes: }
secrets: {token: {file: ./token}}
configs: {settings: {content: "size=9\n"}}
"#;

#[test]
fn services_start_in_order_reach_each_other_and_are_as_described() {
    let Some(shop) = Project::new(SHOP) else { return };
    shop.write("token", "secret-text\n");
    shop.write(".env", "COLOUR='blue'\n");
    shop.up(&[]).ok().complains("network shop_default made").complains("shop-page-1 started");
    assert_eq!(shop.states(), "shop-cache-1 ready\nshop-page-1 running\nshop-setup-1 exited");
    eventually("the page has what the setup has stored", || {
        shop.compose(&["logs", "--no-log-prefix", "page"]).out.contains("$5\r\nhello")
    });
    shop.compose(&["ps"]).ok().says("shop-cache-1").says("(healthy)").says("127.0.0.1:");
    let said = shop.compose(&[
        "exec",
        "-T",
        "page",
        "busybox",
        "sh",
        "-c",
        "cat /run/secrets/token /etc/settings; echo $COLOUR",
    ]);
    said.ok().says("secret-text\nsize=9\nblue\n");
    let port = shop.compose(&["port", "cache", "6379"]).ok().out;
    let port = port.trim().rsplit(':').next().unwrap().to_string();
    client("redis-cli", &["-p", &port, "get", "greeting"]).ok().says("hello");

    // Again: what is as described goes on, what is not is made anew.
    let (cache, page) = (shop.id("shop-cache-1"), shop.id("shop-page-1"));
    shop.up(&[]).ok().complains("shop-cache-1 runs already").complains("shop-page-1 runs already");
    shop.write(".env", "COLOUR=green\n");
    shop.up(&["page"]).ok();
    assert_eq!(shop.id("shop-cache-1"), cache);
    assert_ne!(shop.id("shop-page-1"), page);
    shop.compose(&["exec", "-T", "page", "busybox", "env"]).ok().says("COLOUR=green");

    // What was stored outlives the machines, until the volume goes too.
    shop.compose(&["down"]).ok().complains("network shop_default removed");
    assert_eq!(shop.states(), "");
    shop.up(&["cache"]).ok();
    // A server reads what it has stored before it answers from it.
    eventually("what was stored is there", || {
        shop.compose(&["exec", "-T", "cache", "redis-cli", "get", "greeting"]).out.contains("hello")
    });
    shop.compose(&["rm", "-f", "cache"]).ok();
    assert_eq!(shop.states(), "shop-cache-1 ready", "it runs");
    shop.compose(&["stop", "cache"]).ok();
    assert_eq!(shop.states(), "shop-cache-1 exited");
    shop.compose(&["start", "cache"]).ok();
    assert_eq!(shop.states(), "shop-cache-1 ready");
    shop.compose(&["down", "-v"]).ok().complains("volume shop_notes removed");
    assert_eq!(shop.unilith.run(&["network", "ls", "-q"]).ok().out, "");
}

#[test]
fn a_service_has_as_many_machines_as_it_is_to_have() {
    let file = "services:\n  worker:\n    image: busybox\n    command: sleep 1000000\n    scale: 2\n  \
                extra: {image: busybox, command: sleep 1000000, profiles: [more]}\n";
    let Some(shop) = Project::new(file) else { return };
    shop.up(&[]).ok();
    assert_eq!(shop.states(), "shop-worker-1 running\nshop-worker-2 running");
    let both = "nslookup worker 2>/dev/null | grep -c '^Name:'";
    shop.compose(&["exec", "-T", "--index", "2", "worker", "busybox", "sh", "-c", both]).ok().says("2");
    shop.up(&["--scale", "worker=1"]).ok().complains("shop-worker-2 removed");
    shop.unilith.run(&["compose", "-p", "shop", "--profile", "more", "up", "-d", &shop.machine]).ok();
    assert_eq!(shop.states(), "shop-extra-1 running\nshop-worker-1 running\nshop-worker-2 running");
    shop.write("compose.yaml", "services:\n  worker: {image: busybox, command: sleep 1000000}\n");
    shop.up(&["--remove-orphans"]).ok().complains("shop-extra-1 removed");
    assert_eq!(shop.states(), "shop-worker-1 running");
    shop.compose(&["kill"]).ok();
    assert_eq!(shop.states(), "shop-worker-1 exited");
    shop.compose(&["rm", "-f"]).ok().complains("shop-worker-1 removed");
}

/// `up` in the foreground, and the lines that it has printed so far.
struct Foreground {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
    seen: Vec<String>,
}

impl Foreground {
    fn start(shop: &Project, words: &[&str]) -> Foreground {
        let words = [&["compose", "-p", "shop", "up", &shop.machine], words].concat();
        let mut command = shop.unilith.command(&words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| send.send(line)));
        Foreground { child, lines, seen: Vec::new() }
    }

    fn shows(&mut self, line: &str) {
        eventually(line, || {
            self.seen.extend(self.lines.try_iter());
            self.seen.iter().any(|seen| seen == line)
        });
    }

    fn code(&mut self) -> Option<i32> {
        let mut ended = None;
        eventually("it ends", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.and_then(|status| status.code())
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            signal(rustix::process::Signal::KILL, self.child.id());
            self.child.wait().unwrap();
        }
    }
}

#[test]
fn in_the_foreground_lines_bear_names_and_an_interrupt_ends_all() {
    let file = "services:\n  one: {image: busybox, command: \"sh -c 'echo first; exec sleep 1000000'\", stop_signal: KILL}\n  \
                second: {image: busybox, command: \"sh -c 'echo other; exec sleep 1000000'\", stop_signal: KILL}\n";
    let Some(shop) = Project::new(file) else { return };
    let mut up = Foreground::start(&shop, &[]);
    up.shows("shop-one-1     | first");
    up.shows("shop-second-1  | other");
    signal(rustix::process::Signal::INT, up.child.id());
    assert_eq!(up.code(), Some(130));
    assert_eq!(shop.states(), "shop-one-1 exited\nshop-second-1 exited");

    shop.compose(&["down"]).ok();
    let file = "services:\n  one: {image: busybox, command: sleep 1000000, stop_signal: KILL}\n  \
                test: {image: busybox, command: \"sh -c 'exit 7'\"}\n";
    shop.write("compose.yaml", file);
    let mut up = Foreground::start(&shop, &["--exit-code-from", "test"]);
    assert_eq!(up.code(), Some(7));
    assert_eq!(shop.states(), "shop-one-1 exited\nshop-test-1 exited");
}

#[test]
fn a_program_runs_beside_a_service_and_finds_what_the_service_needs() {
    let file = "services:\n  \
                store: {image: redis, command: [--protected-mode, \"no\"], ports: [\"127.0.0.1::6379\"]}\n  \
                page:\n    image: busybox\n    command: sleep 1000000\n    stop_signal: KILL\n    restart: always\n    \
                environment: {COLOUR: red, SIZE: \"9\"}\n    volumes: [/scratch]\n    \
                depends_on: {store: {condition: service_healthy}}\n";
    let Some(shop) = Project::new(file) else { return };
    shop.write("compose.override.yaml", "services: {page: {environment: {COLOUR: blue}}}\n");
    let ask =
        "echo $COLOUR $SIZE $MORE; printf 'PING\\r\\nQUIT\\r\\n' | nc -w 5 store 6379; : >/scratch/x; exit 7";
    let run = ["run", &shop.machine, "--rm", "-e", "MORE=2", "page", "busybox", "sh", "-c", ask];
    let ran = shop.compose(&run).code(7);
    assert!(ran.out.contains("blue 9 2\n+PONG"), "{ran}");
    assert_eq!(
        shop.states(),
        "shop-store-1 ready",
        "the service itself is not started, and --rm leaves nothing"
    );
    // The service's own machine is another one, and goes on.
    shop.up(&[]).ok();
    let mut cat = shop.unilith.command(&[
        "compose",
        "-p",
        "shop",
        "run",
        &shop.machine,
        "-T",
        "--no-deps",
        "page",
        "cat",
    ]);
    fs::write(shop.unilith.path("input"), "what is typed\n").unwrap();
    cat.stdin(fs::File::open(shop.unilith.path("input")).unwrap());
    assert_eq!(finish(&mut cat, PATIENCE).ok().out, "what is typed\n");
    shop.compose(&["run", &shop.machine, "-d", "--name", "extra", "page"]).ok();
    let shown = shop.compose(&["ps"]).ok();
    assert!(shown.out.contains("shop-page-1") && !shown.out.contains("extra"), "{shown}");
    shop.compose(&["ps", "-a"]).ok().says("extra").says("shop-page-run-");
    shop.compose(&["top", "page"]).ok().says("shop-page-1\n").says("busybox");
    shop.compose(&["pause", "page"]).ok();
    shop.compose(&["ps"]).ok().says("(paused)");
    shop.compose(&["unpause"]).ok();
    assert!(!shop.compose(&["ps"]).ok().out.contains("(paused)"));
    let listed = shop.unilith.run(&["compose", "ls", "--format", "json"]).ok().out;
    for words in ["\"Name\": \"shop\"", "running(3)", "compose.yaml,", "compose.override.yaml\""] {
        assert!(listed.contains(words), "{listed}");
    }
    shop.compose(&["run", "pag"]).fails_with(&["no service `pag`"]);
    shop.compose(&["down", "-v", "-t", "1"]).ok();
    assert_eq!(shop.states(), "", "down removes what run has made");
    assert_eq!(shop.unilith.run(&["compose", "ls", "-aq"]).ok().out, "");
}

#[test]
fn a_service_that_fails_keeps_those_from_starting_that_need_it() {
    let file = "services:\n  setup: {image: busybox, command: \"sh -c 'exit 3'\"}\n  \
                web: {image: busybox, command: sleep 1, depends_on: {setup: {condition: service_completed_successfully}}}\n";
    let Some(shop) = Project::new(file) else { return };
    let ran = shop.up(&[]).code(1);
    assert!(
        ran.err.contains("service web needs setup, whose machine shop-setup-1 ended with code 3"),
        "{ran}"
    );
    assert_eq!(shop.states(), "shop-setup-1 exited");
    let file = "services:\n  sick:\n    image: busybox\n    command: sleep 1000000\n    stop_signal: KILL\n    \
                healthcheck: {test: [CMD, busybox, sh, -c, \"echo no\\e[2J; exit 1\"], interval: 100ms, retries: 2}\n  \
                web: {image: busybox, command: sleep 1, depends_on: {sick: {condition: service_healthy}}}\n";
    shop.write("compose.yaml", file);
    let ran = shop.up(&[]).code(1);
    assert!(ran.err.contains("service web needs sick, whose machine shop-sick-1 is unhealthy"), "{ran}");
    shop.compose(&["ps"]).ok().says("(unhealthy)");
    let found = shop.unilith.inspect("shop-sick-1")["health_state"].clone();
    assert!(found["failing_streak"].as_u64().unwrap() >= 2 && found["log"][0]["exit_code"] == 1, "{found}");
}

#[test]
fn mistakes_in_a_file_are_told_by_line_and_path_and_reach_the_terminal_clean() {
    let unilith = Unilith::new();
    let config = |text: &str| {
        fs::write(unilith.path("compose.yaml"), text).unwrap();
        unilith.run(&["compose", "config"])
    };
    let service = "services:\n  web:\n    image: busybox\n";
    let cases: [(&str, &[&str]); 9] = [
        ("services:\n  web: [\n", &["compose.yaml: line "]),
        ("services:\n\tweb: 1\n", &["compose.yaml: line "]),
        ("{service}    build: .\n", &["line 4: services.web.build", "oci:FILE"]),
        (
            "{service}    depends_on: [db]\n",
            &["line 4: services.web.depends_on", "no service `db`; there are web"],
        ),
        ("{service}    depends_on: [web]\n", &["line 4: services wait for each other: web -> web"]),
        ("{service}    \"\\e[2Jx\": 1\n", &["line 4: services.web.\u{fffd}[2Jx", "no such key"]),
        (
            "{service}    command: \"${NO_SUCH_NAME:?say it}\"\n",
            &["line 4: services.web.command", "NO_SUCH_NAME is not set: say it"],
        ),
        ("{service}    privileged: true\n", &["services.web.privileged: leave it out"]),
        ("{service}    cpu_period: 1\n", &["services.web.cpu_period: "]),
    ];
    for (text, words) in cases {
        let ran = config(&text.replace("{service}", service)).code(2).fails_with(words);
        assert!(!ran.err.contains('\u{1b}'), "{ran}");
    }
    config(&format!("{service}    environment: [A=$$x]\n")).ok().says("- \"A=$$x\"");
    // A file that is put on top: its own mistakes bear its name.
    fs::write(unilith.path("compose.override.yaml"), "services: {web: {privileged: true}}\n").unwrap();
    unilith
        .run(&["compose", "config"])
        .code(2)
        .fails_with(&["compose.override.yaml: line 1: services.web.privileged"]);
    let over = "services: {web: {environment: {A: y, B: z}}}\n";
    fs::write(unilith.path("compose.override.yaml"), over).unwrap();
    unilith.run(&["compose", "config"]).ok().says("A: y").says("B: z");
    let alone = unilith.run(&["compose", "-f", "compose.yaml", "config"]).ok();
    assert!(!alone.out.contains("B: z"), "named files are all that is read: {alone}");
    let both = ["compose", "-f", "compose.override.yaml", "-f", "compose.yaml", "config"];
    unilith.run(&both).ok().says("A: \"$$x\"").says("B: z");
    fs::remove_file(unilith.path("compose.override.yaml")).unwrap();
    let mut input = unilith.command(&["compose", "-f", "-", "config", "--services"]);
    input.stdin(fs::File::open(unilith.path("compose.yaml")).unwrap());
    assert_eq!(finish(&mut input, PATIENCE).ok().out, "web\n");
    fs::write(unilith.path("compose.yaml"), service.replace("busybox", "Redis:7-alpine")).unwrap();
    // Said before the first service is started.
    let first = "services:\n  a: {image: busybox}\n  web:\n    image: busybox\n    env_file: none.env\n";
    fs::write(unilith.path("other.yaml"), first).unwrap();
    unilith.run(&["compose", "-f", "other.yaml", "up", "-d"]).fails_with(&["none.env"]);
    unilith.run(&["compose", "up", "-d"]).code(2).fails_with(&[
        "line 3: services.web.image",
        "no name of an image",
        "small letters",
    ]);
    fs::remove_file(unilith.path("compose.yaml")).unwrap();
    unilith.run(&["compose", "up"]).fails_with(&["there is no compose.yaml here or above", "-f FILE"]);
    let ran = finish(&mut unilith.command(&["compose", "build"]), PATIENCE);
    ran.fails_with(&["nothing is built here", "oci:FILE"]);
}
