// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process under a machine: QEMU, Firecracker, Cloud Hypervisor, or the kernel itself as a contained process. All have a console, a status line
//! and messages of their own, and end with the thread that started them.

mod monitors;

use crate::{
    MachineError, backlog,
    boot::{BootFiles, pod_tag},
    contained::{self, Failure, Isolation, Program, Step},
    descriptors::Shares,
    drives::Drives,
    firecracker,
    link::Link,
    private_mounts::PrivateMounts,
    privileges, qemu,
    record::{Accel, KernelKind, Mount, Platform, Spec},
    vsock,
};
use rustix::{
    fs::{MemfdFlags, memfd_create},
    process::{PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal},
    thread::CapabilitySet,
};
use std::{
    ffi::CString,
    fs::File,
    io::{self, Read, Seek, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
};
use unilith_ninep::{Access, Export, Forest, Limits, SiteTables, Watches};

/// A machine's process that was started.
pub struct Engine {
    pub pid: u32,
    /// How far it is set apart; monitors are not.
    pub isolation: Option<Isolation>,
    pub console: UnixStream,
    /// The program's output may come here, from some moment on, instead of by the console.
    pub output: Option<UnixStream>,
    pub status: UnixStream,
    /// What it says about itself.
    pub messages: Option<Box<dyn Read + Send>>,
    pub handle: Handle,
}

/// What is done to the process once it runs.
pub struct Handle {
    /// Pinned, so that a signal cannot reach another process of the same number.
    pidfd: OwnedFd,
    control: Control,
}

/// How the machine is asked to stop.
enum Control {
    /// QEMU's control channel (QMP): a break on the console.
    Qmp(UnixStream),
    /// Firecracker's API: Ctrl-Alt-Del.
    Api(PathBuf),
    /// Cloud Hypervisor: a connection to a port of the machine. The console's terminal ends with the machine, not before.
    Vsock { folder: PathBuf, _terminal: File },
    /// A process machine: SIGTERM.
    Signal,
}

impl Handle {
    /// Asks the machine to stop: a break on the console of QEMU's machine, Ctrl-Alt-Del on Firecracker's, a
    /// connection to Cloud Hypervisor's, SIGTERM to a process machine. The kernel turns each into the program's stop signal. `false`: it cannot be asked.
    pub fn ask(&mut self) -> bool {
        const REQUEST: &str = concat!(
            r#"{"execute":"qmp_capabilities"}"#,
            "\n",
            r#"{"execute":"chardev-send-break","arguments":{"id":"console"}}"#,
            "\n"
        );
        match &mut self.control {
            Control::Qmp(control) => control.write_all(REQUEST.as_bytes()).is_ok(),
            Control::Api(socket) => firecracker::api::ask_for_the_end(socket).is_ok(),
            Control::Vsock { folder, .. } => vsock::ask_for_the_end(folder).is_ok(),
            Control::Signal => pidfd_send_signal(&self.pidfd, Signal::TERM).is_ok(),
        }
    }

    /// Makes room for many clients at once where QEMU itself listens on the published ports.
    pub fn widen_backlogs(&self, pid: u32) -> io::Result<usize> {
        backlog::widen(self.pidfd.as_fd(), pid)
    }

    pub fn kill(&self) {
        // It may have ended by itself in this moment.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }

    /// Waits for the end, from any thread of the process that started it.
    pub fn waiter(&self) -> io::Result<impl FnOnce() -> Option<WaitIdStatus> + Send + use<>> {
        let pidfd = self.pidfd.try_clone()?;
        Ok(move || {
            loop {
                match rustix::process::waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED) {
                    Err(rustix::io::Errno::INTR) => {}
                    other => return other.ok().flatten(),
                }
            }
        })
    }
}

/// The machine's end of the overlay's line, and the directory it may see at /overlay.
#[derive(Clone, Copy)]
pub struct Overlay<'a> {
    pub socket: BorrowedFd<'a>,
    pub files: &'a Path,
}

/// Starts the machine's process. `folder` is the machine's own; `mounts` are QEMU's.
#[expect(clippy::too_many_arguments, reason = "what a machine is made of, each once")]
pub fn start(
    spec: &Spec,
    mounts: PrivateMounts,
    folder: &Path,
    files: BootFiles,
    link: &Link,
    overlay: Option<Overlay>,
    drives: &Drives,
    shares: Shares,
) -> Result<Engine, MachineError> {
    match spec.platform {
        Platform::Process => process(spec, files, link, overlay, drives, shares),
        Platform::Microvm | Platform::Q35 => emulator(spec, mounts, files, link, overlay, drives),
        Platform::Firecracker => monitors::microvm(spec, folder, &files, link, overlay, drives, shares),
        Platform::CloudHypervisor => {
            monitors::cloud_hypervisor(spec, folder, &files, link, overlay, drives, shares)
        }
    }
}

/// Two ends of a stream: ours and the machine's.
fn pair() -> Result<(UnixStream, UnixStream), MachineError> {
    UnixStream::pair().map_err(|e| MachineError::Process(format!("no socket pair: {e}")))
}

fn emulator(
    spec: &Spec,
    mounts: PrivateMounts,
    files: BootFiles,
    link: &Link,
    overlay: Option<Overlay>,
    drives: &Drives,
) -> Result<Engine, MachineError> {
    let disk = |(n, (file, read_only)): (usize, (BorrowedFd, bool))| {
        qemu::Disk::inherited(n, file.as_raw_fd(), read_only)
    };
    let ((console, console_end), (status, status_end), (control, control_end)) = (pair()?, pair()?, pair()?);
    let output = match overlay.is_some() && spec.kernel_kind == KernelKind::Micro {
        true => Some(pair()?),
        false => None,
    };
    let (output, output_end) = output.unzip();
    let (mac, mtu) = link.mac_and_mtu(spec);
    let accel = spec.accel.unwrap_or(Accel::Tcg);
    let vhost = vhost_net(accel, link);
    let settings = files.settings.as_deref().map(unlisted).transpose();
    let settings = settings.map_err(|e| MachineError::Qemu(format!("no memfd: {e}")))?;
    let line = qemu::Line {
        platform: spec.platform,
        accel,
        processor: qemu::processor(),
        memory: spec.memory,
        cpus: spec.cpus,
        kernel_kind: spec.kernel_kind,
        kernel: &spec.kernel,
        initrd: &files.initrd,
        append: files.append,
        settings: settings.as_ref().map(AsRawFd::as_raw_fd),
        volumes: &spec.volumes,
        disks: drives.iter().enumerate().map(disk).collect(),
        link: link.for_qemu(),
        vhost: vhost.as_ref().map(AsRawFd::as_raw_fd),
        mac,
        mtu,
        console: qemu::Stream::Socket(console_end.as_raw_fd()),
        status: qemu::Stream::Socket(status_end.as_raw_fd()),
        control: Some(control_end.as_raw_fd()),
        overlay: overlay.map(|overlay| qemu::OverlayLine {
            tools: Some(qemu::tools_of(&spec.kernel)).filter(|path| path.is_file()),
            socket: overlay.socket.as_raw_fd(),
            output: output_end.as_ref().map(AsRawFd::as_raw_fd),
            files: overlay.files.to_path_buf(),
            attributes: takes_attributes(overlay.files),
        }),
    };
    let mut inherited = vec![console_end.as_raw_fd(), status_end.as_raw_fd(), control_end.as_raw_fd()];
    inherited
        .extend(line.overlay.iter().flat_map(|overlay| [Some(overlay.socket), overlay.output]).flatten());
    inherited.extend(line.settings);
    inherited.extend(line.vhost);
    inherited.extend(line.disks.iter().filter_map(|disk| disk.descriptor));
    if let qemu::Link::Tap(fd) | qemu::Link::Frames(fd) = line.link {
        inherited.push(fd);
    }
    let opened = [line.kernel, line.initrd].into_iter();
    let overlay = line.overlay.iter().flat_map(|o| o.tools.iter().chain([&o.files])).map(PathBuf::as_path);
    let needed = privileges::needed(spec, &line.link, opened.chain(overlay));
    let mut command = Command::new(qemu::QEMU);
    command.args(privileges::SANDBOX).args(line.arguments()).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = spawn(command, inherited, needed, mounts).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => MachineError::NoQemu,
        _ => MachineError::Qemu(format!("cannot start {}: {e}", qemu::QEMU)),
    })?;
    let pidfd = pin(&child).map_err(|e| MachineError::Qemu(format!("cannot watch QEMU: {e}")))?;
    let messages = child.stderr.take().map(|m| Box::new(m) as Box<dyn Read + Send>);
    let handle = Handle { pidfd, control: Control::Qmp(control) };
    Ok(Engine { pid: child.id(), isolation: None, console, output, status, messages, handle })
}

/// The host's kernel as the other side of a machine's tap device, where it has that part and this user may use it. Only KVM tells
/// it of doorbells.
fn vhost_net(accel: Accel, link: &Link) -> Option<File> {
    let has_use = accel == Accel::Kvm && matches!(link.for_qemu(), qemu::Link::Tap(_));
    has_use.then(|| File::options().read(true).write(true).open("/dev/vhost-net").ok())?
}

fn pin(child: &Child) -> io::Result<OwnedFd> {
    Ok(pidfd_open(rustix::process::Pid::from_child(child), PidfdFlags::empty())?)
}

/// Whether the file system of a folder keeps the attributes that QEMU wants to set.
fn takes_attributes(folder: &Path) -> bool {
    const PROBE: &str = "user.virtfs.probe";
    let set = rustix::fs::setxattr(folder, PROBE, b"", rustix::fs::XattrFlags::empty());
    // There is nothing to remove where that failed.
    let _ = rustix::fs::removexattr(folder, PROBE);
    set.is_ok()
}

/// Starts a monitor. `needed`: what it keeps of this user's capabilities.
fn spawn(
    mut command: Command,
    inherited: Vec<RawFd>,
    needed: CapabilitySet,
    mounts: PrivateMounts,
) -> io::Result<Child> {
    command.stderr(Stdio::piped());
    // Ctrl-C in the terminal is for the supervisor to act on.
    command.process_group(0);
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe system calls; it allocates nothing
    // and takes no lock. The descriptors it names are open in the parent until `spawn` returns.
    unsafe {
        command.pre_exec(move || {
            mounts.make()?;
            privileges::keep_only(needed)?;
            // After it: a process whose privileges change forgets this signal (prctl(2)).
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            for fd in &inherited {
                let fd = std::os::fd::BorrowedFd::borrow_raw(*fd);
                rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
            }
            Ok(())
        });
    }
    command.spawn()
}

/// Bytes of address space of a process machine: the kernel's areas and the root archive's pages, as the program may map them
/// again and again; and how often that may be done with the machine's memory.
const ADDRESS_SPACE: u64 = 16 << 30;
const VIEWS: u64 = 16;

/// The kernel as a process; what it is told is in `PROCESS` of its crate's documentation (`micro/plat/process`).
fn process(
    spec: &Spec,
    files: BootFiles,
    link: &Link,
    overlay: Option<Overlay>,
    drives: &Drives,
    shares: Shares,
) -> Result<Engine, MachineError> {
    let open = |path: &Path| File::open(path).map_err(MachineError::file("cannot open", path));
    let (kernel, root) = (open(&spec.kernel)?, open(&files.initrd)?);
    let ((console, console_end), (status, status_end)) = (pair()?, pair()?);
    // The kernel does not wait for a reader that is behind: who writes in the machine does.
    console_end.set_nonblocking(true).map_err(|e| MachineError::Process(format!("no console: {e}")))?;
    let (messages, messages_end) = io::pipe().map_err(|e| MachineError::Process(format!("no pipe: {e}")))?;
    // Every user of the host may read a process' arguments, and the environment of the program may hold passwords.
    let boot = unlisted(&files.append).map_err(|e| MachineError::Process(format!("no memfd: {e}")))?;
    let mut words = vec!["kernel".to_string(), format!("memory={}", spec.memory)];
    if spec.cpus > 1 {
        words.push(format!("cpus={}", spec.cpus));
    }
    let mut descriptors: Vec<BorrowedFd> =
        vec![console_end.as_fd(), console_end.as_fd(), messages_end.as_fd()];
    let mut hand = |descriptor, word: &str, more: &str| {
        words.push(format!("{word}{}{more}", descriptors.len()));
        descriptors.push(descriptor);
    };
    hand(root.as_fd(), "root=", "");
    hand(boot.as_fd(), "boot=", "");
    hand(status_end.as_fd(), "status=", "");
    for (word, device, mac, mtu) in link.for_process(spec) {
        let mac = mac.map(|octet| format!("{octet:02x}")).join(":");
        hand(device, &format!("{word}="), &format!(",{mac},{mtu}"));
    }
    for (file, read_only) in drives.iter() {
        hand(file, "disk=", if read_only { ",ro" } else { "" });
    }
    // Without it the machine asks each time.
    let watches = crate::dirs::state().ok().and_then(|state| Watches::new(&state.join("watches")));
    if let Some(watches) = &watches {
        hand(watches.queue(), "changes=", "");
    }
    let volume =
        |v: &Mount| export(&v.host, v.export(), files.sites.clone(), shares.volume(), watches.clone());
    let volumes = spec.volumes.iter().map(volume);
    let volumes = volumes.collect::<Result<Vec<_>, _>>()?;
    for (n, volume) in volumes.iter().enumerate() {
        hand(volume.as_fd(), &format!("9p={}:", qemu::volume_tag(n)), "");
    }
    let pod = files.pod.iter().map(|forest| plant(forest, shares.volume(), watches.clone()));
    let pod = pod.collect::<Result<Vec<_>, _>>()?;
    for (n, forest) in pod.iter().enumerate() {
        hand(forest.as_fd(), &format!("9p={}:", pod_tag(n)), "");
    }
    let plain = |overlay: &Overlay| {
        export(overlay.files, Export::open(overlay.files, Access::PlainFiles), None, shares.volume(), None)
    };
    let files = overlay.as_ref().map(plain).transpose()?;
    if let (Some(overlay), Some(files)) = (&overlay, &files) {
        hand(overlay.socket, "line=", "");
        hand(files.as_fd(), &format!("9p={}:", qemu::OVERLAY_TAG), "");
    }
    let arguments: Result<Vec<CString>, _> = words.into_iter().map(CString::new).collect();
    let arguments = arguments.map_err(|e| MachineError::Process(e.to_string()))?;
    let program = Program {
        file: kernel.as_fd(),
        arguments: &arguments,
        descriptors: &descriptors,
        address_space: ADDRESS_SPACE + spec.memory * VIEWS,
        processors: None,
        isolation: Isolation::asked_for().map_err(MachineError::Process)?,
    };
    let started = contained::start(&program).map_err(|failure| explain(&failure, &spec.kernel))?;
    let handle = Handle { pidfd: started.pidfd, control: Control::Signal };
    Ok(Engine {
        pid: started.pid,
        isolation: Some(started.isolation),
        console,
        output: None,
        status,
        messages: Some(Box::new(messages)),
        handle,
    })
}

/// A file without a name that is read from its beginning.
fn unlisted(text: &str) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"unilith-boot", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file)
}

/// Serves a directory from a thread of its own; the machine's end.
fn export(
    folder: &Path,
    opened: std::io::Result<Export>,
    sites: Option<SiteTables>,
    limits: Limits,
    watches: Option<Arc<Watches>>,
) -> Result<UnixStream, MachineError> {
    let export = opened.map_err(MachineError::file("cannot open the volume", folder))?;
    let export = export.with_sites(sites);
    let (mine, its) = pair()?;
    let folder = folder.to_path_buf();
    thread::spawn(move || {
        if let Err(error) = unilith_ninep::serve(export, mine, limits, watches) {
            eprintln!("unilith: the volume {} is no longer served: {error}", folder.display());
        }
    });
    Ok(its)
}

/// Serves a pod's files from a thread of its own; the machine's end.
fn plant(forest: &Forest, limits: Limits, watches: Option<Arc<Watches>>) -> Result<UnixStream, MachineError> {
    let (mine, its) = pair()?;
    let forest = forest.clone();
    thread::spawn(move || {
        if let Err(error) = forest.serve(mine, limits, watches) {
            eprintln!("unilith: the files of the pod's containers are no longer served: {error}");
        }
    });
    Ok(its)
}

fn explain(failure: &Failure, kernel: &Path) -> MachineError {
    MachineError::Process(match failure.step {
        Step::Execute if failure.errno == rustix::io::Errno::ACCESS => {
            format!("{} is not executable for everybody (chmod 755)", kernel.display())
        }
        Step::Execute => format!("{} cannot be executed: {}", kernel.display(), failure.errno),
        Step::Descriptors => format!("its descriptors cannot be handed over: {}", failure.errno),
        Step::Clone | Step::Identity | Step::Root | Step::Limits => {
            format!("{:?}: {}", failure.step, failure.errno).to_lowercase()
        }
    })
}
