// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the words of a command line to a machine that can start: what `run` and `build` have in common.

use crate::{
    fault::{Fault, Result},
    kernel,
    line::Program,
    mounts::{self, Mounted, volume},
    names,
    progress::Progress,
    repository,
};
use clap::{ArgAction, Args, ValueEnum};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
};
use unilith_image::{
    Base, Build, Cache, Catalogue, Image, ImageConfig, Linked, Manifest, Pull, Reference, Request, Size,
    is_own_volume, signal_number,
};
use unilith_linux::{PLACES, Recipe, Target};
use unilith_machine::{
    accel,
    boot::HOST_GATEWAY,
    console_log::LogLimits,
    record::{
        Accel, AnonymousVolume, Confinement, KernelKind, Memory, Mount, Network, Platform, Ready, Restart,
        Rlimit, Spec, now_ms,
    },
    support,
};
use unilith_network::ports::{self, Protocol, Publish};

/// Memory of a machine that nobody said anything about, without its image.
const DEFAULT_MEMORY: u64 = 64 << 20;
/// What Linux needs beyond the micro kernel.
const LINUX_MEMORY: u64 = 64 << 20;
/// What the kernel and a small program need beside the image.
const LEAST_BESIDE_IMAGE: u64 = 4 << 20;
/// The project file of a directory.
pub const PROJECT_FILE: &str = "unilith.toml";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MachineKind {
    /// The quickest that works here.
    Auto,
    /// QEMU's q35: PCI.
    Qemu,
    /// QEMU's microvm.
    Microvm,
    /// A contained process of this computer: no virtualisation needed.
    Process,
    /// Firecracker, which needs KVM.
    Firecracker,
    /// Cloud Hypervisor, which needs KVM.
    CloudHypervisor,
    /// A guest of Xen: what `build` writes, `xl create` starts.
    Xen,
}

/// The flags of `run` and `build`.
#[derive(Args, Clone, Debug)]
pub struct Flags {
    /// Publish a port: [ADDRESS:][HOST:]PORT[/udp], an address of IPv6 with brackets; may repeat
    #[arg(short, long, value_name = "PORT")]
    pub publish: Vec<String>,
    /// Publish all ports that the program is known to serve, on free ports of this host
    #[arg(short = 'P', long)]
    pub publish_all: bool,
    /// Mount a directory or file of this host, or a volume by its name: HOST:PATH[:ro] or NAME:PATH[:ro]; may repeat
    #[arg(short, long, value_name = "HOST:PATH")]
    pub volume: Vec<String>,
    /// The same as words: type=bind|volume,source=HOST,target=PATH[,readonly], or
    /// type=tmpfs,target=PATH[,tmpfs-size=SIZE], or type=disk,source=FILE,target=PATH[,readonly][,size=SIZE]: a file with an
    /// ext4 file system, made where it is missing and a size is given; may repeat
    #[arg(long, value_name = "WORDS")]
    pub mount: Vec<String>,
    /// Give a file of this host to the program as a disk: FILE[:ro]; for programs of --static that drive disks themselves
    /// (unilith/blockdev.h); may repeat
    #[arg(long, value_name = "FILE[:ro]")]
    pub drive: Vec<String>,
    /// Mount a file system in memory: PATH[:size=SIZE,mode=MODE,exec]; may repeat
    #[arg(long, value_name = "PATH")]
    pub tmpfs: Vec<String>,
    /// The program may not write to its root file system, only to volumes and what is in memory
    #[arg(long)]
    pub read_only: bool,
    /// A line for the program's /etc/hosts: NAME:ADDRESS; the address host-gateway is this host; may repeat
    #[arg(long, value_name = "NAME:ADDRESS")]
    pub add_host: Vec<String>,
    /// A DNS server to ask instead of this host's
    #[arg(long, value_name = "ADDRESS")]
    pub dns: Vec<Ipv4Addr>,
    /// Set an environment variable (KEY alone: with the value it has here); may repeat
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub env: Vec<String>,
    /// Read environment variables from a file, one KEY=VALUE a line; may repeat
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// Memory of the machine, e.g. 64M
    #[arg(short, long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Processors of the machine, whose threads and processes run on them at the same time
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(Platform::MAX_CPUS))
    )]
    pub cpus: Option<u32>,
    /// The program to run instead of the image's own
    #[arg(long, value_name = "PROGRAM")]
    pub entrypoint: Option<String>,
    /// Directory the program starts in
    #[arg(short, long, value_name = "DIR")]
    pub workdir: Option<String>,
    /// User the program runs as: UID[:GID] or names
    #[arg(short, long, value_name = "USER")]
    pub user: Option<String>,
    /// A further group of the program, by number or by a name of the image's; may repeat
    #[arg(long, value_name = "GROUP")]
    pub group_add: Vec<String>,
    /// Host name of the machine; its id otherwise
    #[arg(short = 'h', long, value_name = "NAME")]
    pub hostname: Option<String>,
    /// Words of yours, KEY=VALUE, for `ps --filter label=KEY`; may repeat
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,
    /// Read such words from a file, one a line; may repeat
    #[arg(long, value_name = "FILE")]
    pub label_file: Vec<PathBuf>,
    /// The signal that asks the program to end: a name or a number
    #[arg(long, value_name = "SIGNAL", value_parser = stop_signal)]
    pub stop_signal: Option<u8>,
    /// Seconds the program has to end itself when it is asked to
    #[arg(long, value_name = "SECONDS")]
    pub stop_timeout: Option<u64>,
    /// Start the program again when it has ended: no, on-failure[:TIMES], always or unless-stopped; with -d
    #[arg(long, value_name = "WHEN", default_value = "no", hide_default_value = true, value_parser = restart)]
    pub restart: Restart,
    #[command(flatten)]
    pub health: crate::health::Flags,
    #[command(flatten)]
    pub rights: crate::rights::Flags,
    /// A resource limit (getrlimit(2)): NAME=SOFT[:HARD], -1 for none; NAME is nofile, nproc, core, stack, memlock, fsize,
    /// data, as, cpu, rss, locks, sigpending, msgqueue, nice, rtprio or rttime; may repeat
    #[arg(long, value_name = "NAME=SOFT[:HARD]")]
    pub ulimit: Vec<Rlimit>,
    /// Accepted for docker's users: the kernel does what an init would
    #[arg(long, hide = true)]
    pub init: bool,
    /// The kernel under the program
    #[arg(long, value_name = "micro|linux", default_value = "micro", value_parser = kernel_kind)]
    pub kernel: KernelKind,
    /// How Linux runs the program, words with commas between: cpl0 (in supervisor mode, unmodified), base (linked into
    /// Linux by `unilith linux cc`, in supervisor mode), byp (system calls bypass the entry code), call (hot call sites
    /// become jumps), shortcut (straight to TCP and devices), ret (no IRET), rtc (threads run to completion)
    #[arg(long, value_name = "OPTIONS", default_value = "", hide_default_value = true)]
    pub ukl: String,
    /// Which Linux: 6.1 (Debian 12's own) or 6.12 (Debian 12's newer one)
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    pub linux: String,
    /// Link the program with the micro kernel into one image, which has the system calls that the program makes and no
    /// others: a program that `unilith cc` linked, or one of the catalogue that has a recipe
    #[arg(long)]
    pub r#static: bool,
    #[command(flatten)]
    pub lto: crate::lto::Flags,
    /// What the machine is
    #[arg(long, value_enum, default_value = "auto")]
    pub machine: MachineKind,
    #[arg(long, value_name = "KEY=VALUE", help = kernel::choices::help())]
    pub set: Vec<String>,
    /// Take a heap library of the kernel's for the program's malloc; `guard` finds misuse of memory. Of a program of --static
    /// it is --set alloc.program=NAME
    #[arg(long, value_name = "NAME", value_enum)]
    pub malloc: Option<crate::malloc::Allocator>,
    /// How the machine is connected: auto, tap, user or none; or a network of `unilith network create`, whose machines
    /// reach each other and find each other by name; may repeat
    #[arg(long, value_name = "MODE|NAME", alias = "net")]
    pub network: Vec<String>,
    /// A further name of the machine in its networks; may repeat
    #[arg(long, value_name = "NAME")]
    pub network_alias: Vec<String>,
    /// The address of the machine's network card, as in 52:55:0a:00:00:01; without it one that its id says
    #[arg(long, value_name = "ADDRESS")]
    pub mac_address: Option<crate::connect::Mac>,
    /// Use KVM or software emulation (tcg) whatever the probe says; icount: a clock that counts instructions
    #[arg(long, value_name = "HOW", value_parser = accelerator)]
    pub accel: Option<Accel>,
    /// What an image of Debian packages has of Debian's base system beside their dependencies: none, auto (a shell and
    /// the usual tools, certificates, time zones as far as the programs can be seen to use them) or full
    #[arg(long, value_name = "none|auto|full")]
    pub base: Option<Base>,
    /// How much the kernel logs: error, warn, info, debug
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
    /// Print every system call of the program
    #[arg(long)]
    pub trace: bool,
    /// Use only what is in the cache
    #[arg(long)]
    pub offline: bool,
    /// When a registry is asked for an image of it: always, missing (this computer has none of that name) or never
    #[arg(long, value_name = "WHEN", default_value = "missing", hide_default_value = true, value_parser = pull)]
    pub pull: Pull,
    /// Do not say what is fetched and built
    #[arg(short, long)]
    pub quiet: bool,
    /// Print help (-h is docker's host name)
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

fn kernel_kind(text: &str) -> std::result::Result<KernelKind, String> {
    match text {
        "micro" => Ok(KernelKind::Micro),
        "linux" => Ok(KernelKind::Linux),
        _ => Err("it is micro or linux".into()),
    }
}

fn pull(text: &str) -> std::result::Result<Pull, String> {
    match text {
        "always" => Ok(Pull::Always),
        "missing" => Ok(Pull::Missing),
        "never" => Ok(Pull::Never),
        _ => Err("it is always, missing or never".into()),
    }
}

fn stop_signal(text: &str) -> std::result::Result<u8, String> {
    signal_number(text).ok_or_else(|| "it is a signal's name or number, for example SIGQUIT".into())
}

fn restart(text: &str) -> std::result::Result<Restart, String> {
    text.parse()
}

fn accelerator(text: &str) -> std::result::Result<Accel, String> {
    match text {
        "kvm" => Ok(Accel::Kvm),
        "tcg" => Ok(Accel::Tcg),
        "icount" => Ok(Accel::Icount),
        _ => Err("it is kvm, tcg or icount".into()),
    }
}

/// A machine's description, with a new id and a generated name.
pub fn prepare(flags: &Flags, program: &Program) -> Result<Spec> {
    let (network, networks) = crate::connect::read(flags)?;
    let (platform, choice) = platform(flags, &network)?;
    let env = environment(flags)?;
    // What is wrong with the words of the command line is said before long work begins.
    let mut publish = Vec::new();
    for text in &flags.publish {
        publish.extend(ports::parse(text).map_err(Fault::new)?);
    }
    let mut volumes: Vec<Mount> =
        flags.volume.iter().map(|v| volume(v, Path::new("."))).collect::<Result<_>>()?;
    let mut drives = mounts::drives(flags)?;
    let mut disks = Vec::new();
    let mut tmpfs = flags.tmpfs.iter().map(|text| mounts::tmpfs(text)).collect::<Result<Vec<_>>>()?;
    for words in &flags.mount {
        match mounts::mount(words)? {
            Mounted::Volume(text) => volumes.push(volume(&text, Path::new("."))?),
            Mounted::Memory(memory) => tmpfs.push(memory),
            Mounted::Disk(_) if flags.kernel == KernelKind::Linux || flags.r#static => {
                return Err(Fault::new(format!(
                    "--mount {words}: the file system on a disk is that of --kernel micro, for programs that are not linked with it; give a \
                     volume (-v), or leave out {}",
                    if flags.r#static { "--static" } else { "--kernel linux" },
                )));
            }
            Mounted::Disk(disk) => disks.push(disk),
        }
    }
    let hosts = flags.add_host.iter().map(|text| host(text)).collect::<Result<Vec<_>>>()?;
    let labels = labels(flags)?;
    let mut set = flags.set.iter().map(|text| kernel::pair(text)).collect::<Result<BTreeMap<_, _>>>()?;
    crate::malloc::check(flags, &mut set)?;
    if let Some(disk) = disks.first()
        && set.entry("ext4".into()).or_insert_with(|| "on".into()) != "on"
    {
        return Err(Fault::new(format!(
            "--set ext4=off: the disk {} has that file system; leave out one of the two",
            disk.source
        )));
    }
    // Whoever names addresses of IPv6 for machines wants a kernel that has them.
    if std::env::var_os("UNILITH_NETWORK6").is_some() && flags.kernel == KernelKind::Micro {
        set.entry("ipv6".into()).or_insert_with(|| "on".into());
    }
    let is_on = |key: &str| set.get(key).is_some_and(|value| value == "on");
    if flags.r#static && is_on("ext4") {
        return Err(Fault::new(
            "--set ext4=on: a program of --static drives disks itself (unilith/blockdev.h); leave it out",
        ));
    }
    flags.lto.check(flags.r#static)?;
    if flags.r#static {
        crate::linked::check(flags, platform, &mut set)?;
    } else if is_on("nvme") && !is_on("ext4") {
        return Err(Fault::new(
            "--set nvme=on: nobody would use a disk; add --set ext4=on, or --static for a program that drives disks itself \
             (unilith/blockdev.h)",
        ));
    }
    for disk in &disks {
        drives.push(mounts::disk(disk)?);
    }
    mounts::check_count(&drives)?;
    // Before the long work.
    processors(flags, None, platform, &set)?;
    // What an installed command cannot have is said as well.
    let chosen = kernel::features(&set)?;
    crate::linked::allocator(flags, &set)?;
    match flags.kernel {
        KernelKind::Linux => drop(crate::boot::workshop(&flags.linux)?),
        KernelKind::Micro if flags.r#static => drop(crate::linked::workshop()?),
        KernelKind::Micro => kernel::can_be_had(platform, &chosen)?,
    }
    if let Some(level) =
        flags.log.as_deref().filter(|l| !["error", "warn", "info", "debug", "trace"].contains(l))
    {
        return Err(Fault::new(format!("--log {level}: it is one of error, warn, info, debug and trace")));
    }

    if flags.kernel == KernelKind::Linux && !flags.ulimit.is_empty() {
        return Err(Fault::new("--ulimit is for --kernel micro: Linux has ulimit in a shell"));
    }
    if flags.kernel == KernelKind::Linux && flags.rights.are_limited() {
        return Err(Fault::new(
            "--cap-drop, --cap-add and --security-opt are for --kernel micro: Linux has setpriv(1) of the image",
        ));
    }
    if flags.kernel == KernelKind::Micro && !flags.ukl.is_empty() {
        return Err(Fault::new("--ukl is for Linux: add --kernel linux"));
    }
    if flags.kernel == KernelKind::Micro && !flags.linux.is_empty() {
        return Err(Fault::new("--linux says which Linux: add --kernel linux"));
    }
    let options = crate::boot::options(&flags.ukl)?;

    let progress = if flags.quiet { Progress::silent() } else { Progress::new() };
    let shown = program.name.as_deref().unwrap_or(".").to_string();
    let linked = if options.linked() || flags.r#static {
        linked_programs(flags, program, &progress)?
    } else {
        Vec::new()
    };
    let mut image = gather(flags, program, env, linked, &progress)?;
    for warning in &image.warnings {
        eprintln!("unilith: {warning}");
    }
    if let Some(project) = image.config.manifest.as_ref().filter(|_| program.name.is_none()) {
        add_project(project, &mut publish, &mut volumes)?;
    }
    if let Some(program) = image.config.args.first() {
        mounts::check_program(&volumes, program)?;
    }
    crate::malloc::preload(flags, &mut image, &mut volumes, &progress)?;
    if flags.publish_all {
        for port in offer(&image, &publish) {
            publish.push(Publish { address: Ipv4Addr::UNSPECIFIED.into(), host: 0, ..port });
        }
    }
    for (key, value) in image.config.manifest.iter().flat_map(|m| &m.set) {
        set.entry(key.clone()).or_insert_with(|| value.clone());
    }
    let kernel = match flags.kernel {
        KernelKind::Micro if flags.r#static => {
            let allocator = crate::linked::allocator(flags, &set)?;
            let features = kernel::features(&set)?;
            let kernel = crate::linked::kernel(flags, platform, &features, allocator, &image, &progress)?;
            image.root = crate::linked::root(&image)?;
            kernel
        }
        KernelKind::Micro => kernel::micro(platform, &kernel::features(&set)?, &progress)?,
        KernelKind::Linux => {
            let built = crate::boot::workshop(&flags.linux)?.prepare(&options, &progress);
            let built = built.map_err(|e| Fault::new(e.to_string()))?;
            crate::boot::check_level(&image, &options, &built)?;
            kernel::Kernel { boot: built.kernel.clone(), symbols: built.kernel }
        }
    };
    let mut overlay = set.get("overlay").is_none_or(|choice| choice != "off");
    if overlay
        && flags.kernel == KernelKind::Linux
        && let Err(e) = crate::boot::tools()
    {
        eprintln!("unilith: the machine has no overlay, whose tools cannot be had: {e}");
        overlay = false;
    }
    drop(progress);

    if platform.is_lean_monitor() {
        crate::monitor::check_volumes(platform, &volumes, &set)?;
        overlay = crate::monitor::has_overlay(platform, overlay, &set);
    }
    let health = flags.health.check(image.config.health.as_ref(), overlay)?;
    let memory = memory(flags, &image)?;
    let config = &image.config;
    let has_volumes = set.get("volumes").is_none_or(|choice| choice != "off");
    let anonymous = if has_volumes { anonymous(config, &volumes, &tmpfs) } else { Vec::new() };
    let spec = Spec {
        id: names::id(),
        name: names::name(),
        created_ms: now_ms(),
        program: shown,
        label: image.name.clone(),
        remove: false,
        platform,
        choice,
        // A process is emulated by nothing, whatever was asked for.
        accel: match flags.accel {
            _ if platform.is_process() => None,
            accel => Some(accel.unwrap_or_else(|| accel::probe().accel())),
        },
        ipv6: chosen.contains(&"ipv6") && flags.kernel == KernelKind::Micro,
        kernel_kind: flags.kernel,
        ukl: flags.ukl.clone(),
        linux: flags.linux.clone(),
        kernel: kernel.boot,
        symbols: Some(kernel.symbols),
        initrd: image.root.clone(),
        image: image.manifest.clone(),
        memory,
        cpus: processors(flags, config.cpus, platform, &set)?,
        args: config.args.clone(),
        env: config.env.clone(),
        cwd: Some(config.cwd.clone()),
        uid: config.uid,
        gid: config.gid,
        groups: config.groups.clone(),
        umask: None,
        hooks: Vec::new(),
        hook_input: String::new(),
        capabilities: flags.rights.capabilities()?,
        no_new_privileges: flags.rights.are_final()?,
        confinement: Confinement::default(),
        group: None,
        ids: None,
        hostname: flags.hostname.clone().unwrap_or_else(|| image.name.clone()),
        log: flags.log.clone(),
        log_limits: LogLimits::default(),
        trace: flags.trace,
        stop_signal: flags.stop_signal.unwrap_or(config.stop_signal),
        tty: false,
        null_input: true,
        volumes,
        drives,
        tmpfs,
        read_only: flags.read_only,
        hosts,
        dns: flags.dns.clone(),
        overlay,
        network,
        networks,
        mac: flags.mac_address.map(|mac| mac.0),
        offer: offer(&image, &publish),
        publish,
        ready: match &config.ready {
            Some(unilith_image::Ready::Listening(port)) => Ready::Listening(*port),
            Some(unilith_image::Ready::Prints(text)) => Ready::Prints(text.clone()),
            Some(unilith_image::Ready::Exits) => Ready::Never,
            None => Ready::Any,
        },
        reach: config.manifest.as_ref().and_then(|m| m.try_it.clone()),
        labels,
        stop_timeout: flags.stop_timeout,
        restart: flags.restart,
        health,
        limits: limits(flags, config),
        anonymous,
    };
    Ok(spec)
}

/// The volumes that an image declares and the user gave nothing for. Those of the catalogue are places that its programs write
/// to, which are kept only where the user says so.
fn anonymous(config: &ImageConfig, volumes: &[Mount], tmpfs: &[Memory]) -> Vec<AnonymousVolume> {
    let plain = |path: &str| path.trim_end_matches('/').to_string();
    let given: BTreeSet<String> =
        volumes.iter().map(|v| plain(&v.guest)).chain(tmpfs.iter().map(|t| plain(&t.guest))).collect();
    let declared: BTreeSet<String> = match config.manifest {
        Some(_) => BTreeSet::new(),
        None => config.volumes.iter().map(|path| plain(path)).collect(),
    };
    let wanted = declared.difference(&given).filter(|path| path.starts_with('/'));
    wanted.map(|path| AnonymousVolume { name: names::of_volume(), guest: path.clone() }).collect()
}

/// What the user asks for, and what the image's settings do beside it.
fn limits(flags: &Flags, config: &ImageConfig) -> Vec<Rlimit> {
    let mut limits = flags.ulimit.clone();
    let files = config.manifest.as_ref().and_then(|m| m.open_files);
    if let Some(files) = files.filter(|_| !limits.iter().any(|l| l.resource == Rlimit::OPEN_FILES)) {
        limits.push(Rlimit { resource: Rlimit::OPEN_FILES, soft: files.into(), hard: None });
    }
    limits
}

/// Words of files (`--label-file`) first, then those of `-l`, so that the command line wins.
fn labels(flags: &Flags) -> Result<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    let mut add = |label: &str| {
        let (key, value) = label.split_once('=').unwrap_or((label, ""));
        labels.insert(key.to_string(), value.to_string());
    };
    for path in &flags.label_file {
        let text = fs::read_to_string(path).map_err(crate::fault::file("read", path))?;
        text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')).for_each(&mut add);
    }
    flags.label.iter().for_each(|label| add(label));
    Ok(labels)
}

/// The cache that all users of it share.
pub fn cache() -> Result<Cache> {
    Ok(Cache::of_user()?)
}

/// The catalogue that comes with this command.
pub fn catalogue() -> Result<Catalogue> {
    Ok(Catalogue::open(repository::catalogue()?))
}

/// How many processors the machine has. What the user asks for is refused where the kernel has one; what the image asks for is not.
fn processors(
    flags: &Flags,
    of_image: Option<u32>,
    platform: Platform,
    set: &BTreeMap<String, String>,
) -> Result<u32> {
    let has_one = flags.kernel == KernelKind::Micro
        && !platform.is_process()
        && set.get("smp").is_some_and(|choice| choice == "off");
    match flags.cpus {
        Some(wanted) if wanted > 1 && has_one => Err(Fault::new(format!(
            "--cpus {wanted}: a kernel of --set smp=off has one processor; leave out one of them"
        ))),
        _ if has_one => Ok(1),
        wanted => Ok(wanted.or(of_image).unwrap_or(1)),
    }
}

/// What the machine is, and for `auto` why.
fn platform(flags: &Flags, network: &Network) -> Result<(Platform, Option<String>)> {
    let platform = match flags.machine {
        MachineKind::Auto => return Ok(automatic(flags, network)),
        MachineKind::Microvm => Platform::Microvm,
        MachineKind::Qemu => Platform::Q35,
        MachineKind::Process => {
            if flags.kernel == KernelKind::Linux {
                return Err(Fault::new(
                    "--kernel linux needs a machine of its own: use --machine auto, qemu or microvm",
                ));
            }
            if let Some(lack) = support::lacks().first() {
                return Err(Fault::new(format!("--machine process does not work here: {lack}")));
            }
            Platform::Process
        }
        MachineKind::Firecracker => {
            crate::monitor::check(Platform::Firecracker, flags, network)?;
            Platform::Firecracker
        }
        MachineKind::CloudHypervisor => {
            crate::monitor::check(Platform::CloudHypervisor, flags, network)?;
            Platform::CloudHypervisor
        }
        MachineKind::Xen => {
            return Err(Fault::new(
                "--machine xen is for `unilith build`, which writes what `xl create` starts in dom0",
            ));
        }
    };
    Ok((platform, None))
}

/// A virtual machine where KVM works, else a process machine, else a virtual machine under software emulation.
fn automatic(flags: &Flags, network: &Network) -> (Platform, Option<String>) {
    // A kernel of the user's own is for a PC unless --machine says something else, and --accel is about QEMU.
    let must_be_virtual = flags.kernel == KernelKind::Linux
        || flags.accel.is_some()
        || std::env::var_os("UNILITH_KERNEL").is_some();
    if must_be_virtual {
        return (Platform::Microvm, None);
    }
    let probe = accel::probe();
    if probe.works {
        return (Platform::Microvm, Some(format!("a virtual machine: {}", probe.why)));
    }
    match support::lack_with(network) {
        None => (Platform::Process, Some(format!("a process of this computer: {}", probe.why))),
        Some(lack) => {
            let why =
                format!("a virtual machine under software emulation: {}; no process, for {lack}", probe.why);
            (Platform::Microvm, Some(why))
        }
    }
}

/// The image of a program, from the cache or newly gathered.
pub fn gather(
    flags: &Flags,
    program: &Program,
    env: Vec<(String, String)>,
    linked: Vec<Linked>,
    progress: &Progress,
) -> Result<Image> {
    let name = program.name.as_deref();
    if let Some(path) = name.and_then(|p| p.strip_prefix("cpio:")) {
        return ready_made(Path::new(path), &program.words, env);
    }
    let mut request = Request::new(reference(name)?, catalogue()?);
    request.words.clone_from(&program.words);
    request.entrypoint = flags.entrypoint.clone();
    request.workdir = flags.workdir.clone();
    request.user = flags.user.clone();
    request.groups.clone_from(&flags.group_add);
    request.env = env;
    request.linked = linked;
    request.base = flags.base;
    request.offline = flags.offline;
    request.puller = Some(crate::registries::find);
    request.pull = flags.pull;
    request.runner = Some(crate::generators::run);
    Ok(unilith_image::gather(&request, &cache()?, progress)?)
}

/// The programs of a catalogue entry or a project that have recipes, built so that they are linked with the kernel; none where
/// it comes from elsewhere and has to be linked already.
fn linked_programs(flags: &Flags, program: &Program, progress: &Progress) -> Result<Vec<Linked>> {
    let catalogue = catalogue()?;
    let (name, manifest, folder) = match program.name.as_deref().filter(|p| !p.starts_with("cpio:")) {
        None if program.name.is_some() => return Ok(Vec::new()),
        given => match reference(given)? {
            Reference::Catalogue(name) => {
                let (manifest, folder) = catalogue.entry(&name)?;
                (name, manifest, folder)
            }
            Reference::Directory(path) if path.join(PROJECT_FILE).is_file() => {
                (PROJECT_FILE.into(), unilith_image::read_manifest(&path.join(PROJECT_FILE))?, path)
            }
            _ => return Ok(Vec::new()),
        },
    };
    let builds = |manifest: &Manifest| match flags.r#static {
        true if !manifest.r#static.is_empty() => manifest.r#static.clone(),
        _ => manifest.linked.clone(),
    };
    let recipes = builds(&manifest);
    if recipes.is_empty() {
        if !catalogue.contains(&name) {
            return Ok(Vec::new());
        }
        let has = |n: &String| catalogue.entry(n).is_ok_and(|(manifest, _)| !builds(&manifest).is_empty());
        let others: Vec<String> = catalogue.names().into_iter().filter(has).collect();
        let instead = match flags.r#static {
            true => "links it with the micro kernel: leave out --static",
            false => "links it into Linux: run it unmodified with `--ukl cpl0`",
        };
        return Err(Fault::new(format!(
            "{name}: no recipe {instead}; there are recipes for {}",
            others.join(", ")
        )));
    }
    let version = if flags.r#static { crate::linked::version(flags, progress)? } else { Vec::new() };
    let words = flags.lto.words();
    let unilith = repository::executable()?;
    let libraries = catalogue.libraries()?;
    let workshop = crate::boot::workshop(&flags.linux)?;
    // Each is at the place of its number, so that all of them can run at once.
    if recipes.len() > usize::from(PLACES) {
        return Err(Fault::new(format!("{name}: there are places for {PLACES} linked programs, not more")));
    }
    let numbered = (0..PLACES).zip(&recipes);
    let make = |(place, build): (u8, &Build)| {
        let name = if catalogue.contains(&name) { &name } else { &build.source };
        let into = if flags.r#static { Target::Micro(&version) } else { Target::Linux(place) };
        let (unilith, offline) = (unilith.as_path(), flags.offline);
        let recipe =
            Recipe { name, build, libraries: &libraries, folder: &folder, into, words, unilith, offline };
        let file = workshop.program(&recipe, progress).map_err(|e| Fault::new(e.to_string()))?;
        Ok(Linked { file, program: build.program.clone() })
    };
    numbered.map(make).collect()
}

/// What to gather. Without a program it is the project in the current directory.
fn reference(program: Option<&str>) -> Result<Reference> {
    let Some(program) = program else {
        if !Path::new(PROJECT_FILE).is_file() {
            return Err(Fault::new(format!(
                "name a program (`unilith run redis`; `unilith apps` lists some) or run this in a directory with a {PROJECT_FILE}"
            )));
        }
        return Ok(Reference::Directory(PathBuf::from(".")));
    };
    Ok(Reference::parse(program, &catalogue()?)?)
}

/// `cpio:FILE PROGRAM ARGUMENTS`: a root file system that was made elsewhere, used as it is.
fn ready_made(path: &Path, words: &[String], env: Vec<(String, String)>) -> Result<Image> {
    let root = path.canonicalize().map_err(crate::fault::file("use", path))?;
    let size = root.metadata().map_err(crate::fault::file("read", path))?.len();
    if !words.first().is_some_and(|w| w.starts_with('/')) {
        return Err(Fault::new(format!(
            "cpio:{}: name the program in it by its absolute path",
            path.display()
        )));
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let config =
        ImageConfig { args: words.to_vec(), env, cwd: "/".into(), stop_signal: 15, ..ImageConfig::default() };
    Ok(Image {
        root,
        digest: String::new(),
        size,
        name,
        config,
        manifest: None,
        programs: Vec::new(),
        warnings: Vec::new(),
    })
}

/// Ports the program is known to serve, to be published on this host's loopback address where they are free.
fn offer(image: &Image, publish: &[Publish]) -> Vec<Publish> {
    let offered = image.config.ports.iter().map(|port| Publish {
        address: Ipv4Addr::LOCALHOST.into(),
        host: port.number,
        guest: port.number,
        protocol: if port.udp { Protocol::Udp } else { Protocol::Tcp },
    });
    offered.filter(|o| !publish.iter().any(|p| p.guest == o.guest && p.protocol == o.protocol)).collect()
}

fn add_project(project: &Manifest, publish: &mut Vec<Publish>, volumes: &mut Vec<Mount>) -> Result<()> {
    for text in &project.publish {
        for port in ports::parse(text).map_err(|e| Fault::new(format!("{PROJECT_FILE}: {e}")))? {
            if !publish.iter().any(|p| p.guest == port.guest && p.protocol == port.protocol) {
                publish.push(port);
            }
        }
    }
    for text in &project.volumes {
        let mount = volume(text, Path::new("."))?;
        // What the user gives the program at this place is the user's choice.
        if volumes.iter().any(|v| v.guest == mount.guest) {
            continue;
        }
        if !is_own_volume(Path::new("."), text) {
            let why = format!(
                "{} is outside of the project; if the program is to have it: -v {text}",
                mount.host.display()
            );
            return Err(Fault::new(format!("{PROJECT_FILE}: volumes: {why}")));
        }
        volumes.push(mount);
    }
    Ok(())
}

fn memory(flags: &Flags, image: &Image) -> Result<u64> {
    let (_, enough) = bounds(image.size, flags.kernel == KernelKind::Linux, image.config.memory);
    let wanted = flags.memory.map_or(enough, |size| size.0);
    check_memory(wanted, image.size, flags.kernel, &image.name)
}

/// Whole pages of memory, if a machine can have so much, and its image of `size` bytes fits beside what the kernel needs.
pub fn check_memory(wanted: u64, size: u64, kernel: KernelKind, name: &str) -> Result<u64> {
    const PAGE: u64 = 4096;
    let linux = kernel == KernelKind::Linux;
    let (least, _) = bounds(size, linux, None);
    if wanted < least {
        return Err(Fault::new(format!(
            "{} of memory is too small: the image of {} takes {} MiB alone; try -m {}M",
            if wanted < 1 << 20 { format!("{wanted} bytes") } else { format!("{} MiB", wanted >> 20) },
            name,
            size.div_ceil(1 << 20),
            bounds(size, linux, None).1 >> 20,
        )));
    }
    if wanted > api_boot::MAX_MEMORY {
        let most = api_boot::MAX_MEMORY >> 30;
        return Err(Fault::new(format!(
            "{} GiB of memory is more than a machine can have, which is {most} GiB; try -m {most}G",
            wanted.div_ceil(1 << 30)
        )));
    }
    Ok(wanted.next_multiple_of(PAGE))
}

/// The least memory that an image can be started with, and what it gets unasked. `known`: what its program is known to need, on
/// either kernel; Linux never gets less than it takes itself.
fn bounds(image: u64, linux: bool, known: Option<u64>) -> (u64, u64) {
    // Linux unpacks the image beside the archive, into a file system that takes at most half of the memory that is left.
    let kernel = if linux { LINUX_MEMORY + 2 * image } else { 0 };
    let enough = (image + DEFAULT_MEMORY + kernel).next_multiple_of(16 << 20);
    let least = image + LEAST_BESIDE_IMAGE + kernel;
    let unasked = match known {
        Some(known) if linux => known.max(enough),
        // The user may have asked for a larger image than the one that it was found out with.
        Some(known) if known >= least => known,
        _ => enough,
    };
    (least, unasked)
}

/// Reads one `--add-host`.
fn host(text: &str) -> Result<(String, String)> {
    let wrong = |why: &str| Fault { code: 2, message: format!("--add-host {text}: {why}") };
    let parts = text.split_once(['=', ':']);
    let (name, address) = parts.ok_or_else(|| wrong("write NAME:ADDRESS"))?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if name.is_empty() || !name.chars().all(is_name) {
        return Err(wrong("a name has letters, digits, - . _ only"));
    }
    let inner = address.strip_prefix('[').and_then(|a| a.strip_suffix(']')).unwrap_or(address);
    if address != HOST_GATEWAY && inner.parse::<IpAddr>().is_err() {
        return Err(wrong(&format!("`{address}` is neither an address nor {HOST_GATEWAY}")));
    }
    Ok((name.to_string(), inner.to_string()))
}

fn environment(flags: &Flags) -> Result<Vec<(String, String)>> {
    variables(&flags.env_file, &flags.env)
}

/// Variables of files (`--env-file`) first, then those of `-e`, so that the command line wins.
pub fn variables(files: &[PathBuf], words: &[String]) -> Result<Vec<(String, String)>> {
    let mut out = Vec::new();
    for path in files {
        let text = fs::read_to_string(path).map_err(crate::fault::file("read", path))?;
        for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
            variable(line, &format!("{}: {line}", path.display()), &mut out)?;
        }
    }
    for text in words {
        variable(text, &format!("-e {text}"), &mut out)?;
    }
    Ok(out)
}

fn variable(text: &str, place: &str, out: &mut Vec<(String, String)>) -> Result<()> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value.to_string())),
        // As with docker: the variable of this host, or none.
        None => (text, std::env::var(text).ok()),
    };
    if key.is_empty() {
        return Err(Fault::new(format!("{place}: there is no name before the `=`")));
    }
    out.extend(value.map(|value| (key.to_string(), value)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_for_etc_hosts_have_a_name_and_an_address() {
        let of = |text| host(text).map_err(|fault| fault.message);
        let pair = |name: &str, address: &str| Ok((name.to_string(), address.to_string()));
        assert_eq!(of("db:10.0.0.1"), pair("db", "10.0.0.1"));
        assert_eq!(of("db=[::1]"), pair("db", "::1"));
        assert_eq!(of("db:::1"), pair("db", "::1"));
        assert_eq!(of("me:host-gateway"), pair("me", "host-gateway"));
        for (text, says) in
            [("db", "NAME:ADDRESS"), ("d\nb:10.0.0.1", "letters"), (":10.0.0.1", "letters"), ("db:x", "`x`")]
        {
            assert!(of(text).unwrap_err().contains(says), "{text}");
        }
    }

    #[test]
    fn what_a_program_is_known_to_need_counts_on_either_kernel() {
        const MB: u64 = 1 << 20;
        let unasked = |linux, known| bounds(10 * MB, linux, known).1 / MB;
        assert_eq!((unasked(false, None), unasked(true, None)), (80, 160));
        assert_eq!((unasked(false, Some(384 * MB)), unasked(true, Some(384 * MB))), (384, 384));
        assert_eq!((unasked(false, Some(32 * MB)), unasked(true, Some(32 * MB))), (32, 160));
        // With `--base full` the image is larger than when that was found out.
        assert_eq!(bounds(54 * MB, false, Some(32 * MB)).1 / MB, 128);
    }

    #[test]
    fn a_variable_without_a_name_is_refused_and_one_without_a_value_is_looked_up() {
        let mut out = Vec::new();
        assert!(variable("=x", "-e =x", &mut out).is_err());
        variable("A=b=c", "-e", &mut out).unwrap();
        variable("UNILITH_SURELY_NOT_SET", "-e", &mut out).unwrap();
        assert_eq!(out, [("A".to_string(), "b=c".to_string())]);
    }
}
