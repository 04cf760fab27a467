#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""The same program of Debian's as a machine and as a container of docker's: time to ready, bytes of the image, memory.

As root, from anywhere in the repository:

    bench/docker/measure.py prepare FOLDER    # unpacks docker and debootstraps an image for each program into FOLDER
    bench/docker/measure.py run FOLDER [RUNS] # starts a daemon in a network namespace of its own, prints a table

Both sides are started with a published port in turns, in that namespace, and are ready when a client has its answer through the port:
the time is that of the command and of all it starts. Memory is what the processes of one machine or container have for themselves,
shared pages in shares (Pss): the machine and its supervisor; the program, its shim and the proxies of its port. The
daemons, which docker's containers share, are a row of their own.
"""

import json, os, pathlib, shutil, socket, statistics, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
UNILITH = str(ROOT / "target/release/unilith")
# Package, port, what its clients say and hear, and the command that docker needs to be told.
PROGRAMS = [
    ("redis-server", 6379, b"PING\r\n", b"+PONG", ["redis-server", "--protected-mode", "no"]),
    ("memcached", 11211, b"version\r\n", b"VERSION", ["memcached", "-u", "nobody"]),
    ("nginx-light", 80, b"GET / HTTP/1.0\r\n\r\n", b"200 OK", ["nginx", "-g", "daemon off;"]),
]
PATIENCE = 60
# Seconds from the first answer until memory is looked at.
SETTLED = 2


def out(words, **more):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, **more).stdout.decode().strip()


def prepare(folder):
    unpacked = folder / "unpacked"
    unpacked.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "download", "-q", "docker.io", "containerd", "runc"], cwd=unpacked, check=True)
    for package in unpacked.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, unpacked], check=True)
        package.unlink()
    base = folder / "base"
    subprocess.run(["debootstrap", "--variant=minbase", "bookworm", base], check=True)
    # Nothing is started while it is installed.
    policy = base / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    for package, *_ in PROGRAMS:
        root = folder / f"r-{package}"
        subprocess.run(["cp", "-a", base, root], check=True)
        install = ["apt-get", "install", "-y", "--no-install-recommends", package]
        subprocess.run(["chroot", root, *install], check=True, env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"))
        subprocess.run(["chroot", root, "apt-get", "clean"], check=True)
        shutil.rmtree(root / "var/lib/apt/lists")
        subprocess.run(["tar", "-C", root, "-cf", folder / f"r-{package}.tar", "."], check=True)


def answers(port, says, hears):
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as client:
            client.settimeout(1)
            client.sendall(says)
            got = b""
            while hears not in got:
                more = client.recv(4096)
                if not more:
                    return False
                got += more
            return True
    except OSError:
        return False


def pss(pids):
    """KiB."""
    total = 0
    for pid in pids:
        try:
            text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total


def below(pid):
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += below(int(child))
    return found


def processes(test):
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if test([word.decode(errors="replace") for word in words]):
            found.append(int(path.parent.name))
    return found


class Machine:
    def __init__(self, folder):
        self.env = dict(os.environ, XDG_STATE_HOME=str(folder / "state"), UNILITH_ROOT=str(ROOT))

    def run(self, *words):
        return out([UNILITH, *words], env=self.env, stderr=subprocess.DEVNULL)

    def start(self, package, port, host, command):
        self.run("run", "-d", "--name", "one", "--offline", "-p", f"127.0.0.1:{host}:{port}", f"debian:{package}")

    def memory(self):
        state = json.loads(self.run("inspect", "one"))[0]["state"]
        return pss(set(below(state["supervisor"]["pid"])) | set(below(state["process"]["pid"])))

    def bytes(self, package):
        return os.stat(json.loads(self.run("inspect", "one"))[0]["initrd"]).st_size

    def stop(self):
        self.run("rm", "-f", "one")


class Container:
    def __init__(self, folder):
        self.docker = [str(folder / "unpacked/usr/bin/docker"), "-H", f"unix://{folder}/docker.sock"]

    def run(self, *words):
        return out([*self.docker, *words])

    def start(self, package, port, host, command):
        self.run("run", "-d", "--name", "one", "-p", f"127.0.0.1:{host}:{port}", package, *command)

    def memory(self):
        id = self.run("inspect", "-f", "{{.Id}}", "one")
        shims = processes(lambda words: "containerd-shim" in words[0] and id in words)
        proxies = processes(lambda words: words[0].endswith("docker-proxy"))
        return pss({pid for shim in shims for pid in below(shim)} | set(proxies))

    def bytes(self, package):
        return int(self.run("image", "inspect", "-f", "{{.Size}}", package))

    def stop(self):
        self.run("rm", "-f", "one")


def show(values, scale=1, unit=""):
    values = [value / scale for value in values]
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f}, {len(values)} runs){unit}"


def measure(folder, runs):
    with tempfile.TemporaryDirectory() as scratch:
        sides = [Machine(pathlib.Path(scratch)), Container(folder)]
        print("| program | figure | unilith | docker | unilith / docker |\n| --- | --- | --- | --- | --- |")
        for package, port, says, hears, command in PROGRAMS:
            times, memory, size = ([], []), ([], []), [0, 0]
            # The first turn warms both sides up.
            for turn in range(runs + 1):
                for index, side in enumerate(sides):
                    host = 21000 + 2 * turn + index
                    begin = time.monotonic()
                    side.start(package, port, host, command)
                    while not answers(host, says, hears):
                        if time.monotonic() - begin > PATIENCE:
                            raise SystemExit(f"{package} does not answer")
                        time.sleep(0.002)
                    took = time.monotonic() - begin
                    if turn:
                        times[index].append(took * 1000)
                        # What the start alone needs has gone back.
                        time.sleep(SETTLED)
                        memory[index].append(side.memory())
                    size[index] = side.bytes(package)
                    side.stop()
            for what, values, scale in [("ready, warm (ms)", times, 1), ("memory (MiB)", memory, 1024)]:
                ratio = statistics.median(values[0]) / statistics.median(values[1])
                print(f"| {package} | {what} | {show(values[0], scale)} | {show(values[1], scale)} | {ratio:.2f} |")
            print(f"| {package} | image (MB) | {size[0] / 1e6:.1f} | {size[1] / 1e6:.1f} | {size[0] / size[1]:.2f} |", flush=True)
        daemons = processes(lambda words: pathlib.Path(words[0]).name in ("dockerd", "containerd"))
        print(f"| the daemons | memory (MiB) | none | {pss(daemons) / 1024:.1f} | |")


def run(folder, runs):
    space, path = "unilith-bench-docker", f"{folder}/unpacked/usr/sbin:{folder}/unpacked/usr/bin:{os.environ['PATH']}"
    subprocess.run(["ip", "netns", "add", space], check=True)
    within = ["nsenter", f"--net=/run/netns/{space}", "--"]
    daemon = None
    try:
        subprocess.run([*within, "ip", "link", "set", "lo", "up"], check=True)
        at = lambda name: str(folder / name)
        words = ["dockerd", "-H", f"unix://{at('docker.sock')}", "--data-root", at("data"), "--exec-root", at("exec")]
        with open(at("log"), "w") as log:
            daemon = subprocess.Popen(
                [*within, *words, "-p", at("docker.pid")], env=dict(os.environ, PATH=path), stdout=log, stderr=log
            )
        container = Container(folder)
        begin = time.monotonic()
        while subprocess.run([*container.docker, "version"], capture_output=True).returncode:
            if daemon.poll() is not None or time.monotonic() - begin > PATIENCE:
                raise SystemExit(f"docker's daemon does not answer; see {at('log')}")
            time.sleep(0.1)
        for package, *_ in PROGRAMS:
            # What is measured is a start, not the making of an image.
            subprocess.run([UNILITH, "check", f"debian:{package}"], check=True, stdout=subprocess.DEVNULL, env=dict(os.environ, UNILITH_ROOT=str(ROOT)))
            container.run("import", at(f"r-{package}.tar"), package)
        subprocess.run([*within, sys.executable, __file__, "measure", folder, str(runs)], check=True)
    finally:
        if daemon:
            daemon.terminate()
            daemon.wait()
        subprocess.run(["ip", "netns", "delete", space])
        shutil.rmtree(folder / "data", ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("prepare", "run", "measure"):
        raise SystemExit(__doc__)
    folder = pathlib.Path(sys.argv[2]).resolve()
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    {"prepare": lambda: prepare(folder), "run": lambda: run(folder, count), "measure": lambda: measure(folder, count)}[sys.argv[1]]()
