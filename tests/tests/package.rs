// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Debian package of the command: what is in it, and that it works where no checkout is. Nothing is installed on this
//! computer: the package is unpacked into a scratch directory, or installed by apt on an overlay of this computer's root that
//! goes away with its mount namespace.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use serde_json::Value;
use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::{Duration, SystemTime},
};
use unilith_tests::{BUILD_KERNEL, PATIENCE, Ran, Unilith, eventually, finish, root};

/// Where programs are that no checkout brings: neither cargo of rustup nor the script.
const SYSTEM_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The package, made once.
fn package() -> &'static Path {
    static PACKAGE: OnceLock<PathBuf> = OnceLock::new();
    PACKAGE.get_or_init(|| make(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("unilith.deb")))
}

fn make(path: &Path) -> PathBuf {
    let unilith = Unilith::new();
    let mut command = unilith.command(&["package", "--output", path.to_str().unwrap()]);
    finish(&mut command, BUILD_KERNEL).ok().says(".deb");
    path.to_path_buf()
}

/// What a tool prints.
#[track_caller]
fn tool(program: &str, words: &[&OsStr]) -> String {
    finish(Command::new(program).args(words), PATIENCE).ok().out
}

/// The package in a directory of its own, and machines that go away with the test.
struct Installation {
    unilith: Unilith,
}

impl Installation {
    fn new() -> Installation {
        let installation = Installation { unilith: Unilith::new() };
        installation.unpack();
        installation
    }

    fn unpack(&self) {
        tool("dpkg-deb", &["-x".as_ref(), package().as_ref(), self.path("").as_ref()]);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.unilith.path("root").join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.path("usr/bin/unilith"));
        let scratch = self.unilith.path("");
        command.args(words).current_dir(&scratch).stdin(Stdio::null()).env("PATH", SYSTEM_PATH);
        for variable in ["UNILITH_ROOT", "UNILITH_CARGO", "UNILITH_KERNEL"] {
            command.env_remove(variable);
        }
        command.env("HOME", &scratch).env("XDG_STATE_HOME", self.unilith.path("state"));
        command.env("XDG_CACHE_HOME", self.unilith.path("cache")).env_remove("XDG_DATA_HOME");
        command
    }

    fn run(&self, words: &[&str]) -> Ran {
        finish(&mut self.command(words), PATIENCE)
    }

    /// The kind of machine that is quick here.
    fn machine(&self) -> &'static str {
        let found: Value = serde_json::from_str(&self.run(&["doctor", "--json"]).out).unwrap();
        let process = found.as_array().unwrap().iter().find(|f| f["what"] == "process machines").unwrap();
        if process["state"] == "good" { "process" } else { "microvm" }
    }

    /// A root directory with busybox, so that nothing is fetched.
    fn image(&self) -> String {
        let bin = self.unilith.path("image/bin");
        fs::create_dir_all(&bin).unwrap();
        fs::copy("/bin/busybox", bin.join("busybox")).expect("busybox-static is installed");
        for tool in ["sh", "sleep", "echo"] {
            symlink("busybox", bin.join(tool)).unwrap();
        }
        format!("dir:{}", self.unilith.path("image").display())
    }
}

#[test]
fn a_package_is_what_debian_expects_and_the_same_each_time() {
    let unilith = Unilith::new();
    let again = make(&unilith.path("again.deb"));
    assert!(fs::read(package()).unwrap() == fs::read(&again).unwrap(), "two packages of one commit differ");
    let files = fs::read_dir(unilith.path("")).unwrap().count();
    assert_eq!(files, 1, "nothing is left beside the package");

    let field = |name: &str| tool("dpkg-deb", &["-f".as_ref(), again.as_ref(), name.as_ref()]);
    assert!(
        field("Version").starts_with(concat!(env!("CARGO_PKG_VERSION"), "+git20")),
        "{}",
        field("Version")
    );
    assert!(field("Depends").contains("libc6 (>= "), "{}", field("Depends"));
    assert!(field("Recommends").contains("qemu-system-x86"));
    let listed = tool("dpkg-deb", &["-c".as_ref(), again.as_ref()]);
    for line in listed.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let expected = match words[5] {
            _ if line.starts_with('l') => "lrwxrwxrwx",
            path if path.ends_with('/') => "drwxr-xr-x",
            path if path.starts_with("./usr/bin/") || path.ends_with("/kernel") => "-rwxr-xr-x",
            _ => "-rw-r--r--",
        };
        assert_eq!((words[0], words[1]), (expected, "root/root"), "{line}");
    }
    let packed = finish(Command::new("dpkg-deb").arg("-I").arg(&again), PATIENCE).ok().out;
    assert!(!packed.contains("postinst"), "it changes nothing but its files: {packed}");
}

#[test]
fn each_verb_has_a_manual_page_and_shells_their_completions() {
    let installed = Installation::new();
    let manual = installed.path("usr/share/man/man1");
    let help = installed.run(&["--help"]).ok().out;
    let verbs = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| l.starts_with("  "));
    let verbs = verbs.filter(|l| !l.starts_with("   ")).filter_map(|l| l.split_whitespace().next());
    let mut pages: Vec<String> =
        verbs.filter(|verb| *verb != "help").map(|verb| format!("unilith-{verb}")).collect();
    assert!(pages.len() > 40, "help lists the verbs: {pages:?}");
    pages.extend(["unilith", "unilith-network-create", "unilith-runc"].map(String::from));
    let groff = Command::new("groff").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !groff {
        eprintln!("pages are not formatted: groff is not installed");
    }
    for page in pages {
        let path = manual.join(format!("{page}.1.gz"));
        let text = tool("gzip", &["-dc".as_ref(), path.as_ref()]);
        let name = page.replace("runc", "oci").replace('-', "\\-");
        assert!(text.contains(&format!(".SH NAME\n{name} \\- ")), "{page}: {text}");
        if groff {
            let source = installed.unilith.path("page");
            fs::write(&source, text).unwrap();
            let mut format = Command::new("groff");
            let ran = finish(format.args(["-man", "-ww", "-z"]).arg(source), PATIENCE).ok();
            assert_eq!(ran.err, "", "{page}");
        }
    }
    let bash = installed.path("usr/share/bash-completion/completions/unilith");
    let script = r#". "$1"; COMP_WORDS=(unilith comp); COMP_CWORD=1; _unilith unilith comp unilith; echo "${COMPREPLY[@]}""#;
    let ran = finish(Command::new("bash").args(["-c", script, "bash"]).arg(bash), PATIENCE).ok();
    assert_eq!(ran.out, "compose completions\n", "{ran}");
    for path in ["zsh/vendor-completions/_unilith", "fish/vendor_completions.d/unilith.fish"] {
        let text = fs::read_to_string(installed.path("usr/share").join(path)).unwrap();
        assert!(text.contains("compose") && text.contains("system"), "{path}");
    }
}

#[test]
fn what_needs_the_sources_says_so_before_anything_is_fetched() {
    let installed = Installation::new();
    let clone = "clone Unilith's repository and use the ./unilith in it, or set UNILITH_ROOT to the clone";
    for (words, what) in [
        (&["run", "--set", "alloc=buddy", "busybox"][..], "--set"),
        (&["run", "--static", "redis"], "--static"),
        (&["run", "--kernel", "linux", "busybox"], "Linux kernel"),
        (&["build", "--disk", "x.img", "busybox"], "build --disk"),
        (&["linux", "source"], "Linux kernel"),
        (&["cc", "-c", "x.c"], "unilith cc"),
        (&["test"], "unilith test"),
        (&["bench", "boot"], "unilith bench"),
        (&["package"], "unilith package"),
    ] {
        installed.run(words).fails_with(&[what, clone]);
    }
    let packages = installed.unilith.path("cache/unilith/debian");
    assert!(!packages.exists(), "something was fetched");
    installed.run(&["apps"]).ok().says("redis").says("busybox");
    // Neither QEMU nor a compiler is missing where they are not needed.
    let found: Value = serde_json::from_str(&installed.run(&["doctor", "--json"]).out).unwrap();
    let kernels = found.as_array().unwrap().iter().find(|f| f["what"] == "kernels").unwrap();
    assert!(kernels["state"] == "good" && kernels["remedy"].as_str().unwrap().contains(clone), "{kernels}");
    let mut with_sources = installed.command(&["doctor", "--json"]);
    let ran = finish(with_sources.env("UNILITH_ROOT", root()), PATIENCE);
    assert!(ran.out.contains("\"Rust\""), "a clone is used: {ran}");
    let mut runtime = Command::new(installed.path("usr/bin/unilith-runc"));
    runtime.arg("--version").env_remove("UNILITH_ROOT");
    finish(&mut runtime, PATIENCE).ok().says("unilith-runc version");
}

/// Health checks that ended well, by when they were started; in milliseconds since 1970.
fn checks(folder: &Path) -> Vec<u64> {
    let text = fs::read(folder.join("health.json")).unwrap_or_default();
    let health: Value = serde_json::from_slice(&text).unwrap_or_default();
    let log = health["log"].as_array().cloned().unwrap_or_default();
    log.iter().filter(|check| check["exit_code"] == 0).filter_map(|c| c["started_ms"].as_u64()).collect()
}

#[test]
fn machines_outlive_their_package_and_start_again_with_the_next() {
    let installed = Installation::new();
    let (image, machine) = (installed.image(), installed.machine());
    let start = |flags: &[&str], words: &[&str]| {
        let flags = [&["run", "-d", "--network", "none", "--machine", machine], flags, &[&image]].concat();
        let ran = finish(&mut installed.command(&[&flags[..], words].concat()), BUILD_KERNEL).ok();
        let id = ran.out.trim();
        (id.to_string(), installed.unilith.path("state/unilith/machines").join(id))
    };
    let (again, log) = start(&["--restart", "always"], &["/bin/sh", "-c", "echo life; exit 1"]);
    let (well, folder) =
        start(&["--health-cmd", "true", "--health-interval", "200ms"], &["/bin/sleep", "1000"]);
    eventually("its health was checked", || !checks(&folder).is_empty());
    installed.run(&["exec", &well, "echo", "inside"]).ok().says("inside");
    let unit = installed.run(&["generate", "systemd", &well]).ok().out;
    let starts = format!("ExecStart={} start ", installed.path("usr/bin/unilith").display());
    assert!(unit.contains(&starts) && !unit.contains("UNILITH_ROOT"), "{unit}");

    // Removed.
    fs::remove_dir_all(installed.path("")).unwrap();
    let lives = || fs::read_to_string(log.join("console.log")).unwrap_or_default().matches("life").count();
    let before = lives();
    eventually("its restart policy works without the package", || lives() > before + 1);
    let removed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
    eventually("its health is checked without the package", || {
        checks(&folder).iter().any(|started| *started > removed)
    });

    // Installed again, and another version has other kernels.
    installed.unpack();
    fs::rename(installed.path("usr/lib/unilith/kernels"), installed.path("others")).unwrap();
    installed.run(&["exec", &well, "echo", "inside"]).ok().says("inside");
    installed.run(&["restart", "--time", "0", &well]).ok();
    let upgraded = checks(&folder).last().copied().unwrap_or_default();
    eventually("its supervisor works", || checks(&folder).iter().any(|started| *started > upgraded));
    installed.run(&["rm", "-f", &again, &well]).ok();
    installed.run(&["system", "prune", "-f"]).ok();
}

/// Runs the shell script in its last argument as on a computer of its own: processes and mounts are its own, its root is what
/// this computer has with an overlay on it, and the checkout is not there. Words: a directory for the overlay, the checkout,
/// the package, the script.
const ROOM: &str = r#"
set -e
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount --rbind /dev "$1/root/dev"
mount --rbind /sys "$1/root/sys"
mount -t proc proc "$1/root/proc"
mount -t tmpfs -o mode=1777 none "$1/root/tmp"
if [ -e "$1/root$2" ]; then mount -t tmpfs none "$1/root$2"; fi
cp "$3" "$1/root/tmp/unilith.deb"
echo 'APT::Get::Assume-Yes "true";' > "$1/root/tmp/apt.conf"
exec chroot "$1/root" sh -ec "cd /tmp; $4"
"#;

/// The script in a room of its own; `None` where there is none, which is said.
fn in_room(unilith: &Unilith, script: &str) -> Option<Ran> {
    let enter = |script: &str, room: &Path| {
        fs::create_dir(room).unwrap();
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", ROOM, "room"]).arg(room);
        command.args([root(), package().to_path_buf()]).arg(script).stdin(Stdio::null());
        command.env_clear().env("PATH", SYSTEM_PATH).env("LC_ALL", "C.UTF-8");
        command.envs(["HOME", "XDG_CACHE_HOME"].iter().filter_map(|v| Some((v, std::env::var_os(v)?))));
        // Root's machines are none of the room's: from in there their supervisors look dead.
        command
            .env("XDG_STATE_HOME", "/tmp/state")
            .env("APT_CONFIG", "/tmp/apt.conf")
            .env("DEBIAN_FRONTEND", "noninteractive");
        finish(&mut command, BUILD_KERNEL)
    };
    let trial = enter("true", &unilith.path("trial"));
    if trial.code != Some(0) {
        eprintln!("skipped: an overlay of the root is mounted by root, where mounts are allowed: {trial}");
        return None;
    }
    Some(enter(script, &unilith.path("room")))
}

/// What an ordinary user does with what root has installed; then root removes it.
const ORDINARY: &str = r#"
install -d -o 65534 -g 65534 home
cd home
user() { setpriv --reuid=65534 --regid=65534 --clear-groups env -u XDG_CACHE_HOME -u XDG_STATE_HOME HOME=/tmp/home "$@"; }
machine=$(unilith doctor | grep -q '^ok  *process machines' && echo process || echo microvm)
user unilith run --rm --machine $machine --network none /bin/busybox echo ordinary
user unilith run -d --name still --machine $machine --network none /bin/busybox sleep 1000
user unilith ps
user unilith exec still mem
user unilith rm -f still
apt remove unilith
ls /usr/lib/unilith /usr/share/unilith /usr/bin/unilith 2>/dev/null || echo gone
"#;

#[test]
fn the_page_works_as_printed_where_no_checkout_is_and_for_ordinary_users() {
    let page = fs::read_to_string(root().join("docs/how-to/install-package.md")).unwrap();
    let lines: Vec<&str> = page.lines().filter_map(|l| l.strip_prefix("    ")).collect();
    // The first is for a checkout: it made the package.
    assert!(lines[0] == "./unilith package" && lines[1] == "apt install ./unilith.deb", "{lines:?}");
    let unilith = Unilith::new();
    let no_checkout = format!("test ! -e '{}'", root().join("unilith").display());
    let script = [&[no_checkout.as_str()], &lines[1..], &[ORDINARY]].concat().join("\n");
    let Some(ran) = in_room(&unilith, &script) else { return };
    let ran = ran.ok().says("Setting up unilith").says("\nhello\n");
    ran.says("ExecStart=/usr/bin/unilith start cache")
        .says("\nordinary\n")
        .says("\nstill\n")
        .says("\ngone\n");
    assert!(!Path::new("/var/lib/dpkg/info/unilith.list").exists(), "this computer is as it was");
}

#[test]
fn a_package_that_cannot_be_made_says_why_and_leaves_nothing() {
    let unilith = Unilith::new();
    let ran = finish(&mut unilith.command(&["package", "-o", "missing/unilith.deb"]), BUILD_KERNEL);
    ran.fails_with(&["--output missing/unilith.deb", "no directory missing"]);
    let mut wrong = unilith.command(&["package"]);
    finish(wrong.env("SOURCE_DATE_EPOCH", "yesterday"), Duration::from_secs(60))
        .fails_with(&["SOURCE_DATE_EPOCH=yesterday", "seconds"]);
    assert!(!root().join("target/package").exists());
}
