// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tree of files at the start: what is mounted where, and the standard streams.

use abi::errno::EROFS;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use api_boot::{Tmpfs, Volume};
use api_fs::{FileType, Inode, SetAttr};
use api_lock::SpinLock;
use api_plat::Boot;
use api_sched::DeferredWorkSlot;
use calls_process::terminals;
use core::sync::atomic::AtomicBool;
use core::sync::atomic::{AtomicI32, Ordering};
use descriptors::Description;
use task::control_group;
use task::files::{self, Files};
use task::identity::capabilities::CAP_SYSLOG;
use task::ipc::{self, Ipc};
use task::pids::PidNamespace;
use task::process::Process;
use task::signals::{self, SigInfo};
use vfs::{Capability, Credentials, Dentry, MountFlags, Namespace, Walk, ops};

const PAGE: u64 = abi::PAGE_SIZE as u64;
/// Device number of the root file system.
const ROOT_DEVICE: u64 = 1;
static ROOT: Credentials = Credentials::root();
/// Where POSIX' shared memory is.
const SHARED_MEMORY: &str = "/dev/shm";
const O_RDONLY: u32 = 0;
const O_RDWR: u32 = 2;
const O_WRONLY: u32 = 1;

/// File system and source of /dev and of /dev/shm, as a kernel has them, and as engines have them mounted in containers.
const KERNELS: [(&str, &str); 2] = [("devtmpfs", "devtmpfs"), ("tmpfs", "tmpfs")];
const ENGINES: [(&str, &str); 2] = [("tmpfs", "tmpfs"), ("tmpfs", "shm")];

/// What goes wrong here is told to the user, in one line.
type Told<T> = Result<T, String>;

/// The name of a kind of file system, and a root directory.
type FileSystem = (&'static str, Arc<dyn Inode>);

/// File systems of which the machine has one each, however often they are mounted.
static SINGLE: SpinLock<[Option<FileSystem>; 4]> = SpinLock::new([const { None }; 4]);

/// The one file system of that kind.
pub fn single(kind: &[u8]) -> Option<FileSystem> {
    SINGLE.lock().iter().flatten().find(|(name, _)| name.as_bytes() == kind).cloned()
}

// What a device writes at once, the console takes.
const _: () = assert!(devfs::PIECE <= api_plat::CONSOLE_PIECE);

/// The root file system from the initial RAM disk, with everything mounted that a program expects.
pub fn tree(boot: &Boot) -> Told<Namespace> {
    // Half of the memory may hold files, as Linux' tmpfs has it.
    let limit = boot.memory / 2;
    let namespace = match boot.config.volumes.iter().find(|volume| volume.path == "/") {
        Some(volume) => root_volume(volume)?,
        None => {
            let root = ramfs::from_archive(boot.initrd, boot.initrd_physical, ROOT_DEVICE, limit)
                .map_err(|e| format!("the root file system: {e}"))?;
            Namespace::new(root, "tmpfs").map_err(|e| format!("the root file system: {e:?}"))?
        }
    };
    devfs::connect(devfs::Machine {
        entropy: api_plat::entropy,
        output: devfs::Output {
            write: api_plat::console_write,
            has_room: api_plat::console_has_room,
            is_drained: api_plat::console_is_drained,
        },
        read: api_plat::console_read,
        ended: api_plat::console_ended,
        signal: terminals::signal,
        caller: terminals::caller,
        take_a_break: task::wait::take_a_break,
        session_of_group: terminals::session_of_group,
        shown: terminals::shown,
        named: terminals::named,
        background: terminals::background,
        owner: || {
            let who = files::credentials();
            (who.uid, who.gid)
        },
        now_ns: api_plat::now_ns,
        reads_log: || task::current().credentials().lock().can(CAP_SYSLOG),
        is_terminal: boot.config.tty,
        own_error: boot.config.own_error,
    });
    api_fs::register_keeps_set_id(|| files::credentials().has(Capability::Fsetid));
    STOP_SIGNAL.store(boot.config.stop_signal.unwrap_or(SIGTERM).into(), Ordering::Relaxed);
    CONSOLE.set(api_sched::add_deferred_work(serve_console));
    api_plat::on_console(|| CONSOLE.raise());
    let dev: Arc<dyn Inode> = devfs::root(files::new_device(), limit);
    if boot.config.tty {
        // A program opens its terminal by name as well (/dev/stderr), whoever it runs as.
        let owner = SetAttr { uid: Some(boot.config.uid), gid: Some(devfs::TTY_GROUP), ..SetAttr::default() };
        let given = dev.lookup(b"console").and_then(|console| console.set_attr(&owner));
        given.map_err(|e| format!("/dev/console: {e:?}"))?;
    }
    let pts: Arc<dyn Inode> = devfs::pts(files::new_device());
    let proc: Arc<dyn Inode> = proc::proc(files::new_device(), &PidNamespace::FIRST, Default::default());
    let sys: Arc<dyn Inode> = proc::sys(files::new_device());
    *SINGLE.lock() = [
        Some(("devtmpfs", dev.clone())),
        Some(("devpts", pts.clone())),
        Some(("proc", proc.clone())),
        Some(("sysfs", sys.clone())),
    ];
    // In the order in which engines list them.
    let hidden = MountFlags(MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC);
    mount(&namespace, "/proc", proc, "proc", hidden)?;
    let is_container = boot.config.group.is_some();
    let [devices, memory] = if is_container { ENGINES } else { KERNELS };
    mount_from(&namespace, "/dev", dev.clone(), devices, MountFlags(MountFlags::NOSUID))?;
    let flags = MountFlags(MountFlags::NOSUID | MountFlags::NOEXEC);
    mount(&namespace, "/dev/pts", pts, "devpts", flags)?;
    let wanted = boot.config.tmpfs.iter().find(|wanted| wanted.path == SHARED_MEMORY);
    let usual = MountFlags(MountFlags::NOSUID | MountFlags::NODEV);
    let (shm, flags) = shared_memory(wanted, limit, usual)?;
    mount_from(&namespace, SHARED_MEMORY, shm, memory, flags)?;
    if is_container {
        mount_queues(&namespace, &ipc::first())?;
    }
    mount(&namespace, "/sys", sys, "sysfs", hidden)?;
    if let Some(group) = &boot.config.group {
        let api_boot::ControlGroup { memory, pids, cpu, files } = *group;
        control_group::MACHINE.set_limits(control_group::Limits { memory, pids, cpu });
        if let Some(is_read_only) = files {
            mount_group(&namespace, 0, is_read_only)?;
        }
    }
    let in_memory = || boot.config.tmpfs.iter().filter(|wanted| wanted.path != SHARED_MEMORY);
    let volumes = || boot.config.volumes.iter().filter(|volume| volume.path != "/");
    for (n, volume) in volumes().enumerate() {
        // A file system in memory must not hide what is mounted in it: it comes before the first volume below it.
        let is_below = |volume: &Volume, above: &Tmpfs| is_below(&volume.path, &above.path);
        let is_due =
            |above: &&Tmpfs| is_below(volume, above) && !volumes().take(n).any(|v| is_below(v, above));
        in_memory().filter(is_due).try_for_each(|wanted| mount_memory(&namespace, wanted, limit))?;
        mount_volume(&namespace, volume)?;
    }
    calls_files::disks::start(&namespace, &dev, &boot.config)?;
    for (path, permissions) in [("/tmp", 0o1777), ("/run", 0o755)] {
        ops::directory(&namespace, path, permissions)?;
    }
    let mut are_left =
        in_memory().filter(|wanted| !volumes().any(|volume| is_below(&volume.path, &wanted.path)));
    are_left.try_for_each(|wanted| mount_memory(&namespace, wanted, limit))?;
    configure(&namespace, &boot.config)?;
    // The last step: mount points and configuration are made above.
    if boot.config.read_only {
        namespace
            .remount(&namespace.root().topmost(), MountFlags(MountFlags::READ_ONLY))
            .map_err(|e| format!("the root file system: {e:?}"))?;
    }
    Ok(namespace)
}

/// Whether a path is below another one; both are absolute.
fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above.trim_end_matches('/')).is_some_and(|rest| rest.starts_with('/'))
}

/// The root of a file system in memory, as it was asked for. `most`: bytes of one that names no size.
fn memory_root(wanted: &Tmpfs, most: u64) -> Told<Arc<dyn Inode>> {
    let size = if wanted.size == 0 { most } else { wanted.size };
    let root = ramfs::tmpfs(files::new_device(), size, wanted.mode, (0, 0));
    let inodes = Some(wanted.inodes).filter(|inodes| *inodes != 0);
    root.set_limits(None, inodes).map_err(|e| format!("{}: {e:?}", wanted.path))?;
    Ok(root)
}

fn mount_memory(namespace: &Namespace, wanted: &Tmpfs, most: u64) -> Told<()> {
    mount(namespace, &wanted.path, memory_root(wanted, most)?, "tmpfs", flags_in_memory(wanted))
}

/// The root of /dev/shm, and how it is mounted: as `wanted`, else as large as `limit` with the `usual` flags.
fn shared_memory(
    wanted: Option<&Tmpfs>,
    limit: u64,
    usual: MountFlags,
) -> Told<(Arc<dyn Inode>, MountFlags)> {
    match wanted {
        Some(wanted) => Ok((memory_root(wanted, limit)?, flags_in_memory(wanted))),
        None => Ok((ramfs::tmpfs(files::new_device(), limit, 0o1777, (0, 0)), usual)),
    }
}

fn flags_in_memory(wanted: &Tmpfs) -> MountFlags {
    let noexec = if wanted.exec { 0 } else { MountFlags::NOEXEC };
    MountFlags(MountFlags::NOSUID | MountFlags::NODEV | noexec)
}

/// A tree of the host, and where it is in a container's.
pub struct HostTree<'a> {
    /// The mount tag of the channel whose server has it, and its name there. Without a tag it is a file system in memory ([`memory`]).
    pub tag: &'a str,
    pub name: &'a [u8],
    /// Absolute.
    pub path: &'a str,
    pub read_only: bool,
}

/// The file system in memory that a tree without a tag is, if its name describes one: what follows the path in a boot setting `tmpfs`.
pub fn memory(path: &str, name: &[u8]) -> Option<Tmpfs> {
    Tmpfs::parse(&format!("{path}:{}", core::str::from_utf8(name).ok()?))
}

/// What a container sees of processes and of shared memory.
pub struct Views<'a> {
    pub pids: &'a PidNamespace,
    /// It has an IPC namespace of its own, so that its shared memory is nobody else's; else that of the container whose tree this is,
    /// and the machine's without one.
    pub has_own_ipc: bool,
    pub shares_ipc_with: Option<&'a Namespace>,
    /// Whose message queues it sees.
    pub ipc: &'a Arc<Ipc>,
    /// The container's number, and whether the files of its control group are there, `true`: to be read only.
    pub container: u64,
    pub group_files: Option<bool>,
}

/// The file tree of a container: trees of the host, one of them its root, and between them what the machine has for all programs.
pub fn container_tree(machine: &Files, trees: &[HostTree<'_>], views: &Views<'_>) -> Told<Namespace> {
    let root = trees.iter().find(|tree| tree.path == "/").ok_or("the container has no root")?;
    let failed = |e| format!("the container's root: {e:?}");
    let namespace = Namespace::new(host_tree(root)?, "9p").map_err(failed)?;
    let made = fill_container_tree(machine, &namespace, root, trees, views);
    if made.is_err() {
        namespace.take_apart();
    }
    made.map(|()| namespace)
}

fn fill_container_tree(
    machine: &Files,
    namespace: &Namespace,
    root: &HostTree<'_>,
    trees: &[HostTree<'_>],
    views: &Views<'_>,
) -> Told<()> {
    let flags = |tree: &HostTree<'_>| MountFlags(if tree.read_only { MountFlags::READ_ONLY } else { 0 });
    namespace
        .remount(&namespace.root().topmost(), flags(root))
        .map_err(|e| format!("the container's root: {e:?}"))?;
    // Devices and terminals are the pod's, so the machine's own file systems. Processes and shared memory are those of namespaces.
    let machines = machine.namespace();
    let limit = api_mem::statistics().0 * PAGE / 2;
    let in_memory = |tree: &HostTree<'_>| memory(tree.path, tree.name).filter(|_| tree.tag.is_empty());
    for (path, file_system) in [
        ("/proc", ("proc", "proc")),
        ("/dev", ENGINES[0]),
        ("/dev/pts", ("devpts", "devpts")),
        (SHARED_MEMORY, ENGINES[1]),
        ("/sys", ("sysfs", "sysfs")),
    ] {
        let of = match path {
            SHARED_MEMORY => views.shares_ipc_with.unwrap_or(&machines),
            _ => &machines,
        };
        let tree = of.root().topmost();
        let found = Walk::new(&tree, &tree, &ROOT).lookup(path.as_bytes(), true);
        let found = found.map_err(|e| format!("{path} of the machine: {e:?}"))?;
        let as_there = found.mount().flags();
        let (inode, flags): (Arc<dyn Inode>, MountFlags) = match path {
            "/proc" if *views.pids != PidNamespace::FIRST => {
                (proc::proc(files::new_device(), views.pids, Default::default()), as_there)
            }
            SHARED_MEMORY if views.has_own_ipc => {
                let wanted = trees.iter().filter_map(in_memory).find(|wanted| wanted.path == SHARED_MEMORY);
                shared_memory(wanted.as_ref(), limit, as_there)?
            }
            _ => (found.inode().clone(), as_there),
        };
        mount_from(namespace, path, inode, file_system, flags)?;
    }
    mount_queues(namespace, views.ipc)?;
    if let Some(is_read_only) = views.group_files {
        mount_group(namespace, views.container, is_read_only)?;
    }
    for tree in trees.iter().filter(|tree| tree.path != "/") {
        if let Some(wanted) = in_memory(tree) {
            if wanted.path != SHARED_MEMORY {
                mount_memory(namespace, &wanted, limit)?;
            }
            continue;
        }
        mount_at(namespace, tree.path, tree.tag, host_tree(tree)?, flags(tree))?;
    }
    for (path, permissions) in [("/tmp", 0o1777), ("/run", 0o755)] {
        ops::directory(namespace, path, permissions)?;
    }
    Ok(())
}

/// Mounts the POSIX message queues of a container's IPC namespace, as engines do (mq_overview(7)).
#[cfg(feature = "mqueue")]
fn mount_queues(namespace: &Namespace, ipc: &Arc<Ipc>) -> Told<()> {
    let hidden = MountFlags(MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC);
    mount(namespace, "/dev/mqueue", calls_ipc::message_queues::file_system_of(ipc), "mqueue", hidden)
}

/// Without the calls for them.
#[cfg(not(feature = "mqueue"))]
fn mount_queues(_: &Namespace, _: &Arc<Ipc>) -> Told<()> {
    Ok(())
}

/// Mounts the files of a container's control group where programs look for them; 0: those of the machine's own.
fn mount_group(namespace: &Namespace, container: u64, is_read_only: bool) -> Told<()> {
    let read_only = if is_read_only { MountFlags::READ_ONLY } else { 0 };
    let hidden = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let files = proc::cgroup(files::new_device(), container);
    mount(namespace, "/sys/fs/cgroup", files, "cgroup2", MountFlags(hidden | read_only))
}

#[cfg(feature = "volumes")]
fn host_tree(tree: &HostTree<'_>) -> Told<Arc<dyn Inode>> {
    ninep::attach_tree(tree.tag, tree.name, files::new_device())
        .map_err(|e| format!("{}: the host's 9p server refuses it: {e:?}", tree.path))
}

/// Without the file system for it.
#[cfg(not(feature = "volumes"))]
fn host_tree(tree: &HostTree<'_>) -> Told<Arc<dyn Inode>> {
    Err(format!("{}: this kernel was built with --set volumes=off", tree.path))
}

/// Writes what depends on where the machine runs, unless the image has it: /etc/resolv.conf and /etc/hostname.
fn configure(namespace: &Namespace, config: &api_boot::BootConfig) -> Told<()> {
    let mut servers = String::new();
    for [a, b, c, d] in &config.dns {
        servers.push_str(&format!("nameserver {a}.{b}.{c}.{d}\n"));
    }
    for server in &config.ipv6.dns {
        servers.push_str(&format!("nameserver {server}\n"));
    }
    if !servers.is_empty() {
        provide(namespace, "/etc/resolv.conf", &servers)?;
    }
    if let Some(name) = &config.hostname {
        provide(namespace, "/etc/hostname", &format!("{name}\n"))?;
    }
    // A file of the host's says what its owner wrote.
    let is_foreign = |volume: &Volume| ["/", "/etc", "/etc/hosts"].contains(&volume.path.as_str());
    let own_name = match (&config.hostname, config.ip.map(|ip| ip.address)) {
        (Some(name), Some([a, b, c, d])) if !config.volumes.iter().any(is_foreign) => {
            format!("{a}.{b}.{c}.{d}\t{name}\n")
        }
        (Some(name), None) if !config.ipv6.addresses.is_empty() && !config.volumes.iter().any(is_foreign) => {
            config.ipv6.addresses.iter().map(|(address, _)| format!("{address}\t{name}\n")).collect()
        }
        _ => String::new(),
    };
    if !config.hosts.is_empty() || !own_name.is_empty() {
        provide(namespace, "/etc/hosts", "127.0.0.1\tlocalhost\n")?;
        let mut lines = own_name;
        for line in &config.hosts {
            lines.push_str(line);
            lines.push('\n');
        }
        append(namespace, "/etc/hosts", &lines)?;
    }
    Ok(())
}

/// Makes a file with this text; one that is there and not empty stays.
fn provide(namespace: &Namespace, path: &str, text: &str) -> Told<()> {
    write(namespace, path, text, false)
}

/// Adds this text to the end of a file.
fn append(namespace: &Namespace, path: &str, text: &str) -> Told<()> {
    write(namespace, path, text, true)
}

fn write(namespace: &Namespace, path: &str, text: &str, append: bool) -> Told<()> {
    ops::directory(namespace, "/etc", 0o755)?;
    let failed = |e| format!("{path}: {e:?}");
    let dentry = match file(namespace, path, 0o644) {
        // A root that nobody may change says what it says.
        Err(EROFS) => return Ok(()),
        found => found.map_err(failed)?,
    };
    let inode = dentry.inode();
    let size = inode.stat().map_err(failed)?.size;
    if dentry.kind() != FileType::Regular || (size > 0 && !append) {
        return Ok(());
    }
    let file = match inode.open(inode, O_WRONLY) {
        Err(EROFS) => return Ok(()),
        opened => opened.map_err(failed)?,
    };
    file.write(size, &mut api_fs::Source::kernel(text.as_bytes())).map(|_| ()).map_err(failed)
}

/// The file of that path, made where it is missing.
fn file(namespace: &Namespace, path: &str, permissions: u32) -> abi::Result<Arc<Dentry>> {
    let root = namespace.root().topmost();
    let walk = Walk::new(&root, &root, &ROOT);
    match walk.lookup(path.as_bytes(), true) {
        Err(_) => ops::create(&walk, path.as_bytes(), FileType::Regular, permissions, 0),
        found => found,
    }
}

/// Mounts a directory of the host, or a file.
pub fn mount_volume(namespace: &Namespace, volume: &Volume) -> Told<()> {
    let Volume { tag, path, .. } = volume;
    mount_at(namespace, path, tag, volume_root(volume)?, volume_flags(volume))
}

fn mount_at(
    namespace: &Namespace,
    path: &str,
    tag: &str,
    root: Arc<dyn Inode>,
    flags: MountFlags,
) -> Told<()> {
    let failed = |e| format!("volume {path}: {e:?}");
    let point = match root.kind().map_err(failed)? {
        FileType::Directory => ops::directory(namespace, path, 0o755)?,
        _ => {
            if let Some((above, _)) = path.rsplit_once('/').filter(|(above, _)| !above.is_empty()) {
                ops::directory(namespace, above, 0o755)?;
            }
            file(namespace, path, 0o644).map_err(failed)?
        }
    };
    let mounted = namespace.mount(&point, root, "9p", tag, flags);
    mounted.map(|_| ()).map_err(failed)
}

/// The tree whose root is a directory of the host. What is mounted below `/` needs its mount points there where the
/// machine may not make them.
fn root_volume(volume: &Volume) -> Told<Namespace> {
    let failed = |e| format!("the root file system: {e:?}");
    let namespace = Namespace::new(volume_root(volume)?, "9p").map_err(failed)?;
    namespace.remount(&namespace.root().topmost(), volume_flags(volume)).map_err(failed)?;
    Ok(namespace)
}

fn volume_flags(volume: &Volume) -> MountFlags {
    MountFlags(if volume.read_only { MountFlags::READ_ONLY } else { 0 })
}

/// The root directory of a volume, or the file that it is.
#[cfg(feature = "volumes")]
fn volume_root(volume: &Volume) -> Told<Arc<dyn Inode>> {
    let Volume { tag, path, .. } = volume;
    let channel = ninep::find(tag)
        .ok_or_else(|| format!("volume {path}: the machine has no 9p device with the tag {tag}"))?;
    let failed = |e| format!("volume {path}: the host's 9p server refuses it: {e:?}");
    let root = ninep::attach(channel, files::new_device()).map_err(failed)?;
    if !volume.file {
        return Ok(root);
    }
    root.lookup(api_boot::VOLUME_FILE.as_bytes()).map_err(failed)
}

/// Without the file system for it.
#[cfg(not(feature = "volumes"))]
fn volume_root(volume: &Volume) -> Told<Arc<dyn Inode>> {
    Err(format!("volume {}: this kernel was built with --set volumes=off", volume.path))
}

/// The deferred work of the console.
static CONSOLE: DeferredWorkSlot = DeferredWorkSlot::new();
/// What a break on the console sends to the program.
static STOP_SIGNAL: AtomicI32 = AtomicI32::new(0);
const SIGTERM: u8 = 15;

/// Input or a break arrived at the console.
fn serve_console() {
    if api_plat::console_break() {
        signal_foreground(STOP_SIGNAL.load(Ordering::Relaxed));
    }
    devfs::poll_console();
}

fn signal_foreground(signal: i32) {
    if let Some(process) = task::processes::foreground() {
        // A standard signal is never refused for want of room.
        let _ = signals::send_to_process(&process, SigInfo::from_kernel(signal));
    }
}

/// Mounts a file system on a directory that is made where it is missing.
pub fn mount(
    namespace: &Namespace,
    path: &str,
    inode: Arc<dyn Inode>,
    file_system: &'static str,
    flags: MountFlags,
) -> Told<()> {
    mount_from(namespace, path, inode, (file_system, file_system), flags)
}

/// With a source that is not called as the file system is.
fn mount_from(
    namespace: &Namespace,
    path: &str,
    inode: Arc<dyn Inode>,
    (file_system, source): (&'static str, &'static str),
    flags: MountFlags,
) -> Told<()> {
    let point = ops::directory(namespace, path, 0o755)?;
    let mounted = namespace.mount(&point, inode, file_system, source, flags);
    mounted.map(|_| ()).map_err(|e| format!("{path}: mounting {file_system}: {e:?}"))
}

/// A device, opened by its name.
fn device(files: &Files, path: &str, flags: u32) -> Told<Arc<Description>> {
    let opened = files.lookup(path.as_bytes(), &ROOT).and_then(|dentry| {
        let device = devfs::open(dentry.inode().stat()?.rdev, dentry.inode())?;
        Ok(Description::new(device, flags, Some(dentry)))
    });
    opened.map_err(|e| format!("{path}: {e:?}"))
}

/// Descriptors 0, 1 and 2, and the working directory. `null_input`: without a terminal, nothing comes from the console.
pub fn prepare(files: &Files, working: Option<&str>, null_input: bool) -> Told<()> {
    let streams = match devfs::standard_streams() {
        Some([input, output, error]) => {
            let input = match null_input {
                true => device(files, "/dev/null", O_RDONLY)?,
                false => Description::new(input, O_RDONLY, None),
            };
            [input, Description::new(output, O_WRONLY, None), Description::new(error, O_WRONLY, None)]
        }
        None => {
            let console = device(files, "/dev/console", O_RDWR)?;
            [console.clone(), console.clone(), console]
        }
    };
    for description in streams {
        files.descriptors.insert(description, false).map_err(|e| format!("standard streams: {e:?}"))?;
    }
    if let Some(path) = working {
        if !path.starts_with('/') {
            return Err(format!("the working directory {path} is not an absolute path"));
        }
        let dir = ops::directory(&files.namespace(), path, 0o755)?;
        if !dir.is_directory() {
            return Err(path.to_string() + ": the working directory is not a directory");
        }
        files.set_working(dir);
    }
    Ok(())
}

/// Only one container mounts its files at a time.
struct Mounting;

static IS_MOUNTING: AtomicBool = AtomicBool::new(false);

impl Mounting {
    fn begin() -> Mounting {
        while IS_MOUNTING.swap(true, Ordering::Acquire) {
            sched::yield_now();
        }
        Mounting
    }
}

impl Drop for Mounting {
    fn drop(&mut self) {
        IS_MOUNTING.store(false, Ordering::Release);
    }
}

/// A file tree with these trees of the host, and what every program expects. The error is one line.
pub fn namespace(
    first: &Process,
    trees: &[HostTree<'_>],
    views: &Views<'_>,
) -> core::result::Result<Arc<Namespace>, String> {
    let _mounting = Mounting::begin();
    container_tree(&first.files, trees, views).map(Arc::new)
}
