// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A QEMU for the tests: boots a Linux kernel of ours with busybox as the root file system.

use api_boot::{BootConfig, Status};
use std::{
    ffi::OsString,
    fs, io,
    net::TcpListener,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use unilith_image::{Catalogue, Reference, Request};
use unilith_linux::{Cache, Clock, Compiler, Console, Options, Quiet, Release, Workshop};

/// Machine types: the argument of `-M`, and the suffix of its virtio devices.
pub const QEMU_MICROVM: (&str, &str) = (
    "microvm,x-option-roms=off,isa-serial=on,acpi=off,rtc=on,pit=on,pic=on,auto-kernel-cmdline=on",
    "device",
);
pub const QEMU_Q35: (&str, &str) = ("q35,smbus=off,sata=off", "pci");

/// The longest that a boot under software emulation may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// The same for a kernel that checks itself, on as busy a machine.
const PATIENCE_WITH_CHECKS: Duration = Duration::from_secs(900);

type Client = Box<dyn Fn(u16) -> io::Result<String>>;

pub struct Machine {
    kind: (&'static str, &'static str),
    options: Options,
    cpus: u32,
    counting: bool,
    programs: Vec<(String, Vec<u8>)>,
    config: BootConfig,
    devices: Vec<String>,
    client: Option<Client>,
}

pub struct Run {
    pub console: String,
    pub statuses: Vec<Status>,
    pub from_network: Option<String>,
}

impl Machine {
    pub fn new(kind: (&'static str, &'static str)) -> Machine {
        let (config, devices) = (BootConfig::default(), Vec::new());
        Machine {
            kind,
            options: Options::default(),
            cpus: 1,
            counting: false,
            programs: Vec::new(),
            config,
            devices,
            client: None,
        }
    }

    /// How Linux runs the program, and on how many processors.
    pub fn level(mut self, options: Options, cpus: u32) -> Machine {
        (self.options, self.cpus) = (options, cpus);
        self
    }

    /// The value of a symbol of this machine's kernel, in hexadecimal.
    pub fn kernel_symbol(&self, name: &str) -> String {
        let kernel = workshop().prepare(&self.options, &Quiet).unwrap().kernel;
        let symbols = Command::new("nm").arg(kernel).output().unwrap().stdout;
        let symbols = String::from_utf8(symbols).unwrap();
        let line = symbols.lines().find(|line| line.split(' ').nth(2) == Some(name));
        line.unwrap_or_else(|| panic!("no {name}")).split(' ').next().unwrap().into()
    }

    /// The machine's clock advances one nanosecond with each instruction.
    pub fn counting_instructions(mut self) -> Machine {
        self.counting = true;
        self
    }

    /// Compiles `tests/programs/NAME.c` as a static program and puts it at `/bin/NAME`.
    pub fn with_program(self, name: &str) -> Machine {
        self.with_source(name, &format!("host/linux/tests/programs/{name}.c"))
    }

    /// The same for a source file anywhere in the repository.
    pub fn with_source(mut self, name: &str, source: &str) -> Machine {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join(name);
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-Wall", "-Wextra", "-Werror", "-static", "-pthread", "-I", "tests/programs"]);
        compiler.arg(source).arg("-o").arg(&out).current_dir(repository());
        assert!(compiler.status().unwrap().success(), "{source} does not compile");
        self.programs.push((format!("bin/{name}"), fs::read(out).unwrap()));
        self
    }

    /// Links a source file into the kernel and puts it at `/bin/NAME`.
    pub fn with_linked(mut self, name: &str, source: &str, compiler: Compiler) -> Machine {
        self.programs.push((format!("bin/{name}"), link(source, compiler).unwrap()));
        self
    }

    pub fn configure(mut self, change: impl FnOnce(&mut BootConfig)) -> Machine {
        change(&mut self.config);
        self
    }

    /// A network device, and a client that is called with the host's port of the machine's port 80 until it succeeds.
    pub fn with_network(mut self, client: impl Fn(u16) -> io::Result<String> + 'static) -> Machine {
        self.client = Some(Box::new(client));
        self
    }

    pub fn with_volume(mut self, tag: &str, folder: &Path) -> Machine {
        let (folder, kind) = (folder.display(), self.kind.1);
        self.devices.extend(["-fsdev".into(), format!("local,id={tag},path={folder},security_model=none")]);
        self.devices.extend(["-device".into(), format!("virtio-9p-{kind},fsdev={tag},mount_tag={tag}")]);
        self
    }

    /// Runs a line of shell.
    pub fn shell(self, line: &str) -> Run {
        let args = ["/bin/sh", "-c", line].map(String::from).to_vec();
        self.configure(|c| c.args = args).boot()
    }

    pub fn boot(self) -> Run {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let kernel = workshop().prepare(&self.options, &Quiet).unwrap();
        let (patience, memory) =
            if self.options.checks() { (PATIENCE_WITH_CHECKS, "512") } else { (PATIENCE, "192") };
        fs::write(file("root"), root_archive(&self.programs)).unwrap();
        kernel.initial_ram_disk(&file("root"), &self.config, None, &file("initrd")).unwrap();

        let mut qemu = Command::new("timeout");
        qemu.arg(patience.as_secs().to_string()).arg("qemu-system-x86_64");
        qemu.args([
            "-accel",
            "tcg",
            "-cpu",
            "max",
            "-m",
            memory,
            "-nodefaults",
            "-no-user-config",
            "-no-reboot",
        ]);
        qemu.args(["-smp", &self.cpus.to_string()]);
        if self.counting {
            qemu.args(["-icount", "shift=0,sleep=off"]);
        }
        qemu.args(["-display", "none", "-serial", "stdio", "-M", self.kind.0]);
        qemu.arg("-kernel").arg(&kernel.kernel).arg("-initrd").arg(file("initrd"));
        let clock = if self.counting { Clock::Instructions } else { Clock::Host };
        qemu.arg("-append").arg(kernel.command_line(Console::Serial, clock, &self.config));
        qemu.arg("-debugcon").arg(format!("file:{}", file("status").display()));
        qemu.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]).args(&self.devices);
        let port = free_port();
        if self.client.is_some() {
            qemu.arg("-netdev").arg(format!("user,id=n0,hostfwd=tcp:127.0.0.1:{port}-:80"));
            qemu.arg("-device").arg(format!("virtio-net-{},netdev=n0", self.kind.1));
        }
        qemu.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = qemu.spawn().unwrap();
        let mut from_network = None;
        if let Some(client) = &self.client {
            let end = Instant::now() + patience;
            while Instant::now() < end && child.try_wait().unwrap().is_none() {
                // QEMU accepts before the machine does, and then closes: an empty answer is no answer.
                from_network = client(port).ok().filter(|text| !text.is_empty());
                if from_network.is_some() {
                    break;
                }
                thread::sleep(Duration::from_millis(50));
            }
        }
        let output = child.wait_with_output().unwrap();
        let text = fs::read_to_string(file("status")).unwrap_or_default();
        let statuses: Vec<_> = text.lines().filter_map(Status::parse).collect();
        let console = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!statuses.is_empty(), "no status; the console: {console}; QEMU: {errors}");
        let found = ["WARNING:", "BUG:"].iter().any(|word| console.contains(word));
        assert!(!found, "the kernel found a fault of its own: {console}");
        Run { console, statuses, from_network }
    }
}

/// A program that is linked into the kernel, or why it cannot be.
pub fn link(source: &str, compiler: Compiler) -> Result<Vec<u8>, String> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("program");
    let mut arguments: Vec<OsString> =
        ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"].map(OsString::from).to_vec();
    arguments.extend([out.clone().into(), "-I".into(), repository().join("tests/programs").into()]);
    arguments.push(repository().join(source).into());
    let outcome = workshop().compile_program(compiler, &arguments, &Quiet).map_err(|e| e.to_string())?;
    assert_eq!(outcome.code, 0, "{source}: {}", outcome.messages);
    Ok(fs::read(out).unwrap())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

/// Which Linux the tests are of: `./unilith test --long` runs them of each.
fn release() -> Release {
    std::env::var("UNILITH_TEST_LINUX").map_or(Release::default(), |text| Release::parse(&text).unwrap())
}

fn workshop() -> Workshop {
    Workshop::new(repository(), &Cache::of_user().unwrap()).of(release())
}

/// A root file system: the catalogue's busybox, a link for every name of it that the tests use, and programs.
fn root_archive(programs: &[(String, Vec<u8>)]) -> Vec<u8> {
    let catalogue = Catalogue::open(repository().join("apps"));
    let reference = Reference::parse("busybox", &catalogue).unwrap();
    let image =
        unilith_image::gather(&Request::new(reference, catalogue), &Cache::of_user().unwrap(), &Quiet)
            .unwrap();
    let mut out = fs::read(&image.root).unwrap();
    out.resize(out.len().next_multiple_of(4), 0);
    let mut entry = |name: &str, mode: u32, data: &[u8]| {
        let fields = [0, mode, 0, 0, 1, 0, data.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        out.extend(b"070701");
        out.extend(fields.iter().flat_map(|f: &u32| format!("{f:08x}").into_bytes()));
        out.extend(name.bytes().chain([0]));
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend(data);
        out.resize(out.len().next_multiple_of(4), 0);
    };
    let busybox = image.config.args[0].as_bytes();
    for name in ["sh", "cat", "env", "grep", "id", "hostname", "date", "ls", "touch", "ip", "nc", "head"] {
        entry(&format!("bin/{name}"), 0o120_777, busybox);
    }
    for (name, data) in programs {
        entry(name, 0o100_755, data);
    }
    entry("TRAILER!!!", 0, b"");
    out
}
