// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines of Firecracker and Cloud Hypervisor, whose consoles and status lines share the standard output and whose overlay is
//! on the socket device.

use super::{Control, Engine, Handle, Overlay, pair, pin, spawn, unlisted};
use crate::{
    MachineError,
    boot::BootFiles,
    cloud_hypervisor::{self, terminal},
    descriptors::Shares,
    drives::Drives,
    firecracker::{self, streams},
    link::Link,
    private_mounts::PrivateMounts,
    privileges, qemu,
    record::Spec,
    vsock,
};
use rustix::thread::CapabilitySet;
use std::{
    ffi::OsString,
    fs, io,
    io::{PipeReader, PipeWriter, Read},
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::Path,
    process::{Child, ChildStderr, Command},
};
use unilith_ninep::{Access, Export};
use unilith_overlay::socket;

/// Bytes that are read of what a monitor says before it is given up, and of what is said of that.
const MAX_LAST_WORDS: u64 = 4096;

fn failed(what: &str) -> impl Fn(io::Error) -> MachineError + '_ {
    move |e| MachineError::Monitor(format!("{what}: {e}"))
}

fn pipe() -> Result<(PipeReader, PipeWriter), MachineError> {
    io::pipe().map_err(failed("no pipe"))
}

/// Starts Firecracker. `folder` is the machine's own.
pub fn microvm(
    spec: &Spec,
    folder: &Path,
    files: &BootFiles,
    link: &Link,
    overlay: Option<Overlay>,
    drives: &Drives,
    shares: Shares,
) -> Result<Engine, MachineError> {
    let parts = firecracker::config::Parts {
        kernel: &spec.kernel,
        initrd: &files.initrd,
        boot_args: &files.append,
        cpus: spec.cpus,
        memory: spec.memory,
        disks: disks(drives),
        tap: link.tap_by_name().map(|name| (name, spec.mac())),
        vsock: overlay.is_some() || !spec.volumes.is_empty(),
    };
    // The environment of the program is in it, which may hold passwords.
    let config = unlisted(&parts.to_json()?).map_err(failed("no memfd"))?;
    let api = folder.join(firecracker::API_SOCKET);
    make_way(&api)?;
    let ports = listen(spec, folder, overlay.as_ref(), shares)?;
    let (input, input_end) = pipe()?;
    let mut command = Command::new(firecracker::program());
    command.args(["--id", &spec.id, "--api-sock", firecracker::API_SOCKET, "--level", "Error"]);
    // Its log would be on the console otherwise.
    command.args(["--log-path", "/proc/self/fd/2"]);
    command.arg("--config-file").arg(format!("/proc/self/fd/{}", config.as_raw_fd()));
    command.stdin(input);
    let program = firecracker::program();
    let mut inherited = vec![config.as_raw_fd()];
    inherited.extend(parts.disks.iter().map(|(fd, _)| *fd));
    let needed = needed(spec, folder, files, drives)?;
    let begun = Begun::new(command, inherited, spec, folder, needed, &program)?;
    streams::feed(begun.typed()?, input_end);
    begun.finish(ports, Control::Api(api))
}

/// Starts Cloud Hypervisor, and the machine over its API. `folder` is the machine's own.
pub fn cloud_hypervisor(
    spec: &Spec,
    folder: &Path,
    files: &BootFiles,
    link: &Link,
    overlay: Option<Overlay>,
    drives: &Drives,
    shares: Shares,
) -> Result<Engine, MachineError> {
    let parts = cloud_hypervisor::config::Parts {
        kernel: &spec.kernel,
        initrd: &files.initrd,
        boot_args: &files.append,
        cpus: spec.cpus,
        memory: spec.memory,
        disks: disks(drives),
        tap: link.tap_by_name().map(|name| (name, spec.mac())),
    };
    let machine = parts.to_json()?;
    // Made here, so that requests wait for Cloud Hypervisor, and end with it should it not start.
    let api = folder.join(cloud_hypervisor::API_SOCKET);
    make_way(&api)?;
    let listener = socket::bind_at(&api).map_err(MachineError::file("cannot make", &api))?;
    let ports = listen(spec, folder, overlay.as_ref(), shares)?;
    let terminal = terminal::make().map_err(failed("no terminal for the console"))?;
    let mut command = Command::new(cloud_hypervisor::program());
    command.arg("--api-socket").arg(format!("fd={}", listener.as_raw_fd()));
    command.stdin(terminal.monitors);
    let program = cloud_hypervisor::program();
    let mut inherited = vec![listener.as_raw_fd()];
    inherited.extend(parts.disks.iter().map(|(fd, _)| *fd));
    let needed = needed(spec, folder, files, drives)?;
    let mut begun = Begun::new(command, inherited, spec, folder, needed, &program)?;
    drop(listener);
    let typed = terminal.ours.try_clone().map_err(failed("cannot share the console"))?;
    terminal::feed(begun.typed()?, typed, !spec.tty);
    if let Err(e) = cloud_hypervisor::boot(|| socket::connect_at(&api), &machine) {
        let words = begun.last_words();
        return Err(MachineError::Monitor(format!(
            "Cloud Hypervisor does not start the machine: {e}{words}"
        )));
    }
    let control = Control::Vsock { folder: folder.to_path_buf(), _terminal: terminal.ours };
    begun.finish(ports, control)
}

fn disks(drives: &Drives) -> Vec<(RawFd, bool)> {
    drives.iter().map(|(file, read_only)| (file.as_raw_fd(), read_only)).collect()
}

/// What a monitor keeps of root's capabilities to open what it is named.
fn needed(
    spec: &Spec,
    folder: &Path,
    files: &BootFiles,
    drives: &Drives,
) -> Result<CapabilitySet, MachineError> {
    let named = [spec.kernel.as_path(), &files.initrd, folder];
    let mut needed = privileges::needed(spec, &qemu::Link::None, named);
    for (file, read_only) in drives.iter() {
        let to_open = privileges::to_open_anew(file, read_only);
        needed |= to_open.map_err(|e| failed("cannot look at a disk")(e.into()))?;
    }
    Ok(needed)
}

/// Removes the socket of an earlier run.
fn make_way(path: &Path) -> Result<(), MachineError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(MachineError::file("cannot remove", path)(e)),
        _ => Ok(()),
    }
}

/// What the machine may connect to.
fn listen<'a>(
    spec: &Spec,
    folder: &'a Path,
    overlay: Option<&Overlay>,
    shares: Shares,
) -> Result<vsock::Ports<'a>, MachineError> {
    vsock::prepare(folder)?;
    let mut ports = vsock::Ports::new(folder, shares.volume);
    if let Some(overlay) = overlay {
        let line = overlay.socket.try_clone_to_owned().map(UnixStream::from);
        ports.line(line.map_err(failed("cannot share the overlay's line"))?)?;
        ports.tools(qemu::tools_of(&spec.kernel))?;
        let files = Export::open(overlay.files, Access::PlainFiles);
        ports.files(files.map_err(MachineError::file("cannot open", overlay.files))?)?;
    }
    for (n, volume) in spec.volumes.iter().enumerate() {
        let export = volume.export();
        ports.volume(n, export.map_err(MachineError::file("cannot open the volume", &volume.host))?)?;
    }
    Ok(ports)
}

/// A monitor that was started, and whose output is read.
struct Begun {
    child: Child,
    pidfd: OwnedFd,
    console: UnixStream,
    console_end: UnixStream,
    status: UnixStream,
    messages: Option<ChildStderr>,
}

impl Begun {
    fn new(
        mut command: Command,
        inherited: Vec<RawFd>,
        spec: &Spec,
        folder: &Path,
        needed: CapabilitySet,
        program: &OsString,
    ) -> Result<Begun, MachineError> {
        let ((console, console_end), (status, status_end)) = (pair()?, pair()?);
        let (from, to) = pipe()?;
        let end = to.try_clone().map_err(failed("no pipe"))?;
        command.current_dir(folder).stdout(to);
        let what = format!("cannot start {}", program.to_string_lossy());
        let mut child = spawn(command, inherited, needed, PrivateMounts::default()).map_err(failed(&what))?;
        let what = format!("cannot watch {}", spec.platform.monitor());
        let pidfd = pin(&child).map_err(failed(&what))?;
        let watched = pidfd.try_clone().map_err(failed(&what))?;
        let out = console_end.try_clone().map_err(failed("cannot share the console"))?;
        streams::Output { from, end, pidfd: watched, console: out, status: status_end }.serve();
        let messages = child.stderr.take();
        Ok(Begun { child, pidfd, console, console_end, status, messages })
    }

    /// The end of the console from which what is typed comes.
    fn typed(&self) -> Result<UnixStream, MachineError> {
        self.console_end.try_clone().map_err(failed("cannot share the console"))
    }

    /// Ends the monitor; what it said about itself, as the end of a sentence.
    fn last_words(&mut self) -> String {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let mut said = Vec::new();
        if let Some(messages) = self.messages.take() {
            // As far as it can be read.
            let _ = messages.take(MAX_LAST_WORDS).read_to_end(&mut said);
        }
        let text = String::from_utf8_lossy(&said);
        let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
        last.map_or(String::new(), |line| format!(" ({line})"))
    }

    fn finish(mut self, ports: vsock::Ports<'_>, control: Control) -> Result<Engine, MachineError> {
        ports.serve(&self.pidfd).map_err(failed("cannot serve the socket device"))?;
        let messages = self.messages.take().map(|m| Box::new(m) as Box<dyn Read + Send>);
        let handle = Handle { pidfd: self.pidfd, control };
        let (pid, console, status) = (self.child.id(), self.console, self.status);
        Ok(Engine { pid, isolation: None, console, output: None, status, messages, handle })
    }
}
