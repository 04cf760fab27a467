// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith build --disk`: a disk that a computer boots, by UEFI or by BIOS.

use crate::{
    connect,
    fault::{Fault, Result, file},
    kernel,
    line::Program,
    output::say,
    prepare::{self, Flags, MachineKind},
    progress::Progress,
    repository,
};
use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use unilith_machine::{
    boot,
    networks::mode,
    record::{Connection, Network},
};

/// What the end of a file's name says, and what `qemu-img` calls that format.
const FORMATS: [(&str, &str); 5] =
    [("img", "raw"), ("raw", "raw"), ("qcow2", "qcow2"), ("vmdk", "vmdk"), ("vhd", "vpc")];

/// Who says by a signature that firmware may start the file (Secure Boot).
pub struct Signer {
    pub key: PathBuf,
    pub certificate: PathBuf,
}

pub fn write(flags: Flags, program: &Program, path: &Path, signer: Option<&Signer>) -> Result<u8> {
    let format = format(path)?;
    refuse_what_wants_a_host(&flags)?;
    // Its kernel is none of the default choices, and the stub that firmware starts is built.
    repository::sources("build --disk")?;
    let (network, _) = connect::read(&flags)?;
    let mut flags = Flags { machine: MachineKind::Qemu, ..flags };
    // Both are channels to the host of a virtual machine.
    let connected = network != Network::None;
    // Nobody has an address without TCP/IP.
    let asks = connected && !flags.set.iter().any(|choice| choice == "net=none");
    let has = if asks { "on" } else { "off" };
    // What a computer may have instead of virtio's disks; a program that is not linked with the kernel drives neither.
    let drives = if flags.r#static { "on" } else { "off" };
    let wanted = [
        ("overlay", "off"),
        ("vsock", "off"),
        ("volumes", "off"),
        ("dhcp", has),
        ("metadata", has),
        ("e1000", has),
        ("nvme", drives),
        // What a person without a serial line looks at.
        ("framebuffer", "on"),
        ("acpi", "on"),
    ];
    for (part, choice) in wanted {
        if !flags.set.iter().any(|choice| choice.split('=').next() == Some(part)) {
            flags.set.push(format!("{part}={choice}"));
        }
    }
    let spec = prepare::prepare(&flags, program)?;
    let mut config = boot::boot_config(&spec, &Connection::None);
    // The computer has a clock.
    config.epoch_ns = None;
    config.published = Vec::new();
    config.dhcp = asks;
    // With --set ipv6=on routers are asked as well.
    config.ipv6.is_automatic = asks && spec.ipv6;
    config.dns = spec.dns.iter().map(std::net::Ipv4Addr::octets).collect();

    let progress = Progress::new();
    let stub = kernel::efi_stub(&progress)?;
    let loader = kernel::bios_loader(&progress)?;
    drop(progress);
    let read = |path: &PathBuf| fs::read(path).map_err(file("read", path));
    let has_screen = !flags.set.iter().any(|choice| choice == "framebuffer=off");
    let loader = unilith_disk::Loader::read(&read(&loader)?, has_screen).map_err(fault)?;
    let (stub, kernel, root) = (read(&stub)?, read(&spec.kernel)?, read(&spec.initrd)?);
    let efi = unilith_disk::efi_file(&stub, &kernel, &config.encode(), &root).map_err(fault)?;
    let efi = match signer {
        Some(signer) => sign(&efi, path, signer)?,
        None => efi,
    };
    // A disk that is there already stays until the new one is whole.
    let raw = sibling(path, "raw");
    let done = unilith_disk::write_disk(&raw, &efi, &loader)
        .map_err(fault)
        .and_then(|()| finish(&raw, path, format));
    if done.is_err() {
        let _ = fs::remove_file(&raw);
    }
    done?;
    say!("{}", path.display());
    let screen = if has_screen { ", and the screen shows it" } else { "" };
    eprintln!("unilith: boots by UEFI and by BIOS; its console is the first serial port{screen}");
    if config.dhcp {
        eprintln!("unilith: it asks the network for an address by DHCP");
    }
    Ok(0)
}

/// The file with a signature, which `sbsign` makes.
fn sign(efi: &[u8], path: &Path, signer: &Signer) -> Result<Vec<u8>> {
    let (plain, signed) = (sibling(path, "efi"), sibling(path, "signed.efi"));
    fs::write(&plain, efi).map_err(file("write", &plain))?;
    let mut command = Command::new("sbsign");
    command.arg("--key").arg(&signer.key).arg("--cert").arg(&signer.certificate);
    command.arg("--output").args([&signed, &plain]);
    let signature =
        run(command, "sbsigntool").and_then(|()| fs::read(&signed).map_err(file("read", &signed)));
    for scratch in [plain, signed] {
        let _ = fs::remove_file(scratch);
    }
    signature
}

/// Runs a tool of a Debian package; what it complains of is the error.
fn run(mut command: Command, package: &str) -> Result<()> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Fault::new(format!("cannot run {tool}: {e}; as root: apt-get install -y {package}")))?;
    if !output.status.success() {
        return Err(Fault::new(format!("{tool}: {}", String::from_utf8_lossy(&output.stderr).trim())));
    }
    Ok(())
}

fn fault(error: unilith_disk::DiskError) -> Fault {
    Fault::new(error.to_string())
}

fn format(path: &Path) -> Result<&'static str> {
    let end = path.extension().and_then(OsStr::to_str).unwrap_or("");
    let found = FORMATS.iter().find(|(name, _)| *name == end).map(|(_, format)| *format);
    found.ok_or_else(|| {
        Fault::new(format!(
            "--disk {}: the name's end says the format: .img or .raw, .qcow2, .vmdk, .vhd",
            path.display()
        ))
    })
}

fn refuse_what_wants_a_host(flags: &Flags) -> Result<()> {
    let refused = |what: &str, instead: &str| Err(Fault::new(format!("build --disk {what}: {instead}")));
    if !matches!(flags.machine, MachineKind::Auto | MachineKind::Qemu) {
        return refused("--machine", "a disk is for any computer; leave it out");
    }
    if !flags.volume.is_empty() || flags.mount.iter().any(|words| !words.contains("type=tmpfs")) {
        return refused(
            "-v",
            "on a computer of its own there is no host that has the directory; put files into the image with `files` of a unilith.toml",
        );
    }
    if !flags.drive.is_empty() {
        return refused(
            "--drive",
            "on a computer of its own there is no host that has the file; leave it out",
        );
    }
    if flags.malloc.is_some() && !flags.r#static {
        return refused(
            "--malloc",
            "the library is a volume of the host's; link the program with --static, or leave it out",
        );
    }
    if !flags.publish.is_empty() || flags.publish_all {
        return refused("-p", "on a computer of its own there is no host that publishes ports; leave it out");
    }
    let is_network_for_all = |word: &String| matches!(mode(word), Some(Network::Auto | Network::None));
    if !flags.network.iter().all(is_network_for_all) {
        return refused(
            "--network",
            "it is `auto`, which asks the network for an address by DHCP, or `none`",
        );
    }
    if let Some(choice) = flags.set.iter().find(|c| matches!(c.as_str(), "overlay=on" | "volumes=on")) {
        return refused(&format!("--set {choice}"), "these are channels to the host of a virtual machine");
    }
    Ok(())
}

/// A file beside another one.
fn sibling(path: &Path, end: &str) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.{end}", std::process::id()))
}

/// The raw disk in its format, under its name.
fn finish(raw: &Path, path: &Path, format: &str) -> Result<()> {
    if format == "raw" {
        return fs::rename(raw, path).map_err(file("write", path));
    }
    let converted = sibling(path, format);
    let mut command = Command::new("qemu-img");
    command.args(["convert", "-f", "raw", "-O", format]).args([raw, &converted]);
    let done =
        run(command, "qemu-utils").and_then(|()| fs::rename(&converted, path).map_err(file("write", path)));
    let _ = fs::remove_file(&converted);
    done.and_then(|()| fs::remove_file(raw).map_err(file("remove", raw)))
}
