// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Containers of Podman with our runtime and with runc, one after the other: how long they take to start, what they use of the host's
//! memory, and how quick their files and their network are. Needs root, podman, runc, mmdebstrap and redis-tools.

use crate::{
    Options, Result, Scratch,
    statistics::{self, Samples},
};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

const NAMES: [&str; 2] = ["unilith-runc", "runc"];
/// Containers that are there at a time when their memory is measured.
const MANY: usize = 20;
/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// What is measured in a container: a line each, with nanoseconds.
const FILES: &str = r#"
    measure() {
      begin=$(date +%s%N)
      eval "$2" >/dev/null
      end=$(date +%s%N)
      echo "$1 $((end - begin))"
    }
    measure "find / of 16,000 files" "find / -xdev"
    measure "the same again" "find / -xdev"
    measure "ls -lR /usr" "ls -lR /usr"
    measure "reading 100 MB" "cat /usr/large"
    measure "SQLite: 20,000 rows in one transaction" "sqlite3 /var/tmp/one 'create table t(a, b); with recursive c(x) as
      (select 1 union all select x + 1 from c where x < 20000) insert into t select x, hex(randomblob(50)) from c'"
    measure "SQLite: ten programs that insert a row" "for i in 1 2 3 4 5 6 7 8 9 10; do sqlite3 /var/tmp/ten 'create table if not exists
      t(a); insert into t values (1)'; done"
    measure "100 times /bin/true" "i=0; while [ \$i -lt 100 ]; do /bin/true; i=\$((i + 1)); done"
    measure "cp -r of 1,000 files" "cp -r /usr/share/zoneinfo /var/tmp/copy"
    measure "rm -r of these" "rm -r /var/tmp/copy"
"#;

pub fn run(options: &Options) -> Result<()> {
    let engine = Engine::new(options)?;
    let mut figures: BTreeMap<(usize, String), [Samples; 2]> = BTreeMap::new();
    let mut add = |at: usize, name: &str, side: usize, value: f64| {
        figures.entry((at, name.into())).or_default()[side].add(value);
    };
    for _ in 0..options.runs {
        for side in 0..NAMES.len() {
            let begin = Instant::now();
            engine.podman(side, &["run", "--rm", "servers", "true"])?;
            add(0, "podman run --rm true", side, milliseconds(begin));
            let begin = Instant::now();
            engine
                .podman(side, &["run", "--rm", "--rootfs", &engine.path("large"), "/bin/busybox", "true"])?;
            add(1, "the same in a root of 2 GB", side, milliseconds(begin));
            let begin = Instant::now();
            let redis = Redis::start(&engine, side)?;
            add(2, "podman run of redis until it answers", side, milliseconds(begin));
            add(3, "Redis: GET over the container's network, 16 at a time", side, redis.requests()?);
            drop(redis);
            let text = engine.podman(side, &["run", "--rm", "servers", "sh", "-c", FILES])?;
            for (n, line) in text.lines().enumerate() {
                if let Some((name, value)) = line.rsplit_once(' ')
                    && let Ok(value) = value.parse::<f64>()
                {
                    add(10 + n, name, side, value / 1e6);
                }
            }
            add(30, "the host's memory for a container that sleeps", side, engine.memory_of_one(side)?);
        }
    }
    statistics::head(&NAMES);
    for ((at, name), sides) in &figures {
        let unit = match at {
            3 => "requests/s",
            30 => "MB",
            _ => "ms",
        };
        statistics::row(name, unit, sides);
    }
    Ok(())
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Podman with a store of its own, in a network namespace of its own. Both go with it.
struct Engine {
    scratch: Scratch,
    namespace: String,
    runtime: PathBuf,
}

impl Engine {
    fn new(options: &Options) -> Result<Engine> {
        let scratch = Scratch::new("containers")?;
        let namespace = format!("unilith-bench-{}", std::process::id());
        // Limits that a computer may not be able to raise: Podman's defaults are above them.
        scratch.write(
            "containers.conf",
            "[containers]\ndefault_ulimits=[\"nofile=1024:1024\",\"nproc=4096:4096\"]\n",
        )?;
        succeed(Command::new("ip").args(["netns", "add", &namespace]))?;
        let engine = Engine { scratch, namespace, runtime: options.root.join("unilith-runc") };
        engine.make_roots()?;
        // Engines give a runtime no time to be compiled.
        let parts = ["--set", "ipv6=on", "--set", "tun=on", "--set", "overlayfs=on", "busybox", "true"];
        succeed(Command::new(&options.command).args(["run", "--rm", "--machine", "process"]).args(parts))?;
        Ok(engine)
    }

    fn path(&self, name: &str) -> String {
        self.scratch.path().join(name).display().to_string()
    }

    /// A Debian with servers, as an image; and a directory with a file of 2 GB beside busybox.
    fn make_roots(&self) -> Result<()> {
        let packages = "--include=redis-server,sqlite3,tzdata,busybox-static";
        let archive = self.path("servers.tar");
        succeed(
            Command::new("mmdebstrap")
                .args(["--quiet", "--variant=minbase", packages])
                .arg("--customize-hook=head -c 100000000 /dev/urandom >\"$1/usr/large\"")
                .args(["bookworm", &archive]),
        )?;
        self.podman(1, &["import", "--quiet", &archive, "servers"])?;
        let file = |path: &Path| -> std::io::Result<()> {
            fs::create_dir_all(path.join("bin"))?;
            fs::copy("/bin/busybox", path.join("bin/busybox")).map(drop)
        };
        let large = PathBuf::from(self.path("large"));
        file(&large).map_err(|e| format!("{}: {e} (busybox-static has it)", large.display()))?;
        succeed(Command::new("fallocate").args(["-l", "2G"]).arg(large.join("file")))
    }

    fn command(&self, side: usize, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["120", "nsenter", &format!("--net=/run/netns/{}", self.namespace), "--", "podman"]);
        command.args(["--cgroup-manager", "cgroupfs", "--events-backend", "file"]);
        for (option, name) in [("--root", "storage"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
            command.args([option, &self.path(name)]);
        }
        command.arg("--runtime");
        if side == 0 {
            command.arg(&self.runtime)
        } else {
            command.arg("runc")
        };
        command.args(words).env("CONTAINERS_CONF", self.path("containers.conf"));
        command
    }

    fn podman(&self, side: usize, words: &[&str]) -> Result<String> {
        output(&mut self.command(side, words))
    }

    /// MB that the computer has less for each container.
    fn memory_of_one(&self, side: usize) -> Result<f64> {
        let before = available()?;
        let names: Vec<String> = (0..MANY).map(|n| format!("many-{n}")).collect();
        for name in &names {
            self.podman(side, &["run", "-d", "--name", name, "servers", "sleep", "1000"])?;
        }
        let used = (before - available()?) / MANY as f64;
        let words: Vec<&str> =
            ["rm", "-f", "-t", "0"].into_iter().chain(names.iter().map(String::as_str)).collect();
        self.podman(side, &words)?;
        Ok(used)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let ended = self.podman(1, &["rm", "-af", "-t", "0"]);
        // Podman's store stays mounted at itself where it was, which not every version makes it.
        let _ = Command::new("umount").args(["-lq", &self.path("storage/overlay")]).status();
        let removed = succeed(Command::new("ip").args(["netns", "delete", &self.namespace]));
        for failure in [ended.map(drop), removed].into_iter().filter_map(Result::err) {
            eprintln!("{failure}");
        }
    }
}

/// MB.
fn available() -> Result<f64> {
    let text = fs::read_to_string("/proc/meminfo").map_err(|e| format!("/proc/meminfo: {e}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let value = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    Ok(value.ok_or("/proc/meminfo has no MemAvailable")? / 1e3)
}

/// A container with Redis.
struct Redis<'a> {
    engine: &'a Engine,
    side: usize,
    address: String,
}

impl<'a> Redis<'a> {
    fn start(engine: &'a Engine, side: usize) -> Result<Redis<'a>> {
        let words = [
            "run",
            "-d",
            "--name",
            "redis",
            "servers",
            "redis-server",
            "--protected-mode",
            "no",
            "--save",
            "",
        ];
        engine.podman(side, &words)?;
        let mut redis = Redis { engine, side, address: String::new() };
        let shown = engine.podman(side, &["inspect", "-f", "{{.NetworkSettings.IPAddress}}", "redis"])?;
        redis.address = shown.trim().to_string();
        let begin = Instant::now();
        while !redis.client("redis-cli", &["ping"]).is_ok_and(|said| said.contains("PONG")) {
            if begin.elapsed() > PATIENCE {
                return Err(format!("redis does not answer with {}", NAMES[side]));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(redis)
    }

    fn client(&self, program: &str, words: &[&str]) -> Result<String> {
        let mut command = Command::new("timeout");
        command.args([
            "60",
            "nsenter",
            &format!("--net=/run/netns/{}", self.engine.namespace),
            "--",
            program,
        ]);
        output(command.args(["-h", &self.address]).args(words))
    }

    /// Requests a second.
    fn requests(&self) -> Result<f64> {
        let text = self.client("redis-benchmark", &["-n", "50000", "-c", "16", "-t", "get", "--csv"])?;
        let line = text
            .lines()
            .find(|line| line.starts_with("\"GET\""))
            .ok_or("redis-benchmark says nothing of GET")?;
        let value = line.split(',').nth(1).and_then(|value| value.trim_matches('"').parse().ok());
        value.ok_or(format!("redis-benchmark said {line}"))
    }
}

impl Drop for Redis<'_> {
    fn drop(&mut self) {
        if let Err(e) = self.engine.podman(self.side, &["rm", "-f", "-t", "0", "redis"]) {
            eprintln!("{e}");
        }
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    output(command).map(drop)
}

fn output(command: &mut Command) -> Result<String> {
    let Output { status, stdout, stderr } =
        command.output().map_err(|e| format!("cannot run {:?}: {e}", command.get_program()))?;
    if !status.success() {
        return Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}
