// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith build --machine xen`: a directory with kernel, root file system and the configuration by which `xl create` starts a PVH
//! guest of Xen.

use crate::{
    built, connect,
    fault::{Fault, Result, file},
    line::Program,
    mounts::{self, Mounted},
    output::say,
    prepare::{self, Flags, MachineKind},
};
use std::{fs, path::PathBuf};
use unilith_machine::{
    boot,
    networks::mode,
    record::{Connection, Drive, Network, Spec},
};

/// The configuration's name in the directory.
const CONFIGURATION: &str = "xl.cfg";

pub fn write(flags: Flags, program: &Program, folder: Option<PathBuf>) -> Result<u8> {
    refuse_what_wants_a_host(&flags)?;
    let (network, _) = connect::read(&flags)?;
    let is_connected = network != Network::None;
    // Nobody has an address without TCP/IP.
    let asks = is_connected && !flags.set.iter().any(|choice| choice == "net=none");
    let mut flags = Flags { machine: MachineKind::Qemu, ..flags };
    // Overlay, socket device and volumes are channels to the host of a virtual machine.
    let wanted = [("xen", true), ("overlay", false), ("vsock", false), ("volumes", false), ("dhcp", asks)];
    for (part, is_on) in wanted {
        if !flags.set.iter().any(|choice| choice.split('=').next() == Some(part)) {
            flags.set.push(format!("{part}={}", if is_on { "on" } else { "off" }));
        }
    }
    let spec = prepare::prepare(&flags, program)?;
    let mut config = boot::boot_config(&spec, &Connection::None);
    // Xen tells the time, and its console has input.
    config.epoch_ns = None;
    config.null_input = false;
    config.published = Vec::new();
    config.dhcp = asks;
    config.dns = spec.dns.iter().map(std::net::Ipv4Addr::octets).collect();

    let folder = folder.unwrap_or_else(|| PathBuf::from(&spec.label));
    built::directory(&folder, CONFIGURATION)?;
    for (from, name) in [(&spec.kernel, "kernel"), (&spec.initrd, "root.cpio")] {
        let to = folder.join(name);
        fs::copy(from, &to).map_err(file("write", &to))?;
    }
    if let Some(symbols) = &spec.symbols {
        let to = folder.join("kernel.symbols");
        fs::copy(symbols, &to).map_err(file("write", &to))?;
    }
    let path = folder.join(CONFIGURATION);
    // `xl` starts the machine anew from another directory.
    let place = folder.canonicalize().map_err(file("find", &folder))?;
    let text = configuration(&spec, &place.to_string_lossy(), &config.encode(), is_connected);
    fs::write(&path, text).map_err(file("write", &path))?;
    say!("{}", folder.display());
    eprintln!("unilith: as root in dom0: xl create -c {}", path.display());
    if !spec.drives.is_empty() {
        eprintln!(
            "unilith: its disks are files of this computer: for them dom0 needs QEMU (Debian's qemu-system-xen); block devices need nothing"
        );
    }
    if asks {
        eprintln!("unilith: it asks the network of dom0's bridge for an address by DHCP");
    }
    Ok(0)
}

/// What `xl.cfg(5)` describes.
fn configuration(spec: &Spec, place: &str, command_line: &str, is_connected: bool) -> String {
    let name: String = spec
        .label
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '-' })
        .collect();
    let mebibytes = spec.memory.div_ceil(1 << 20);
    let interfaces = if is_connected { "['']" } else { "[]" };
    let disks: Vec<String> =
        spec.drives.iter().zip('a'..).map(|(drive, letter)| disk(drive, letter)).collect();
    format!(
        "# {program}, a PVH guest of Xen. Written by `unilith build`.\n\
         name = {name}\n\
         type = \"pvh\"\n\
         kernel = {kernel}\n\
         ramdisk = {ramdisk}\n\
         cmdline = {line}\n\
         memory = {mebibytes}\n\
         vcpus = {cpus}\n\
         # On dom0's bridge; an address of your own: ip=ADDRESS/LENGTH gw=ADDRESS in place of ip=dhcp above.\n\
         vif = {interfaces}\n\
         disk = [{disks}]\n\
         on_poweroff = \"destroy\"\n\
         on_reboot = \"destroy\"\n\
         on_crash = \"destroy\"\n",
        program = spec.program.replace(char::is_control, " "),
        name = quote(&name),
        kernel = quote(&format!("{place}/kernel")),
        ramdisk = quote(&format!("{place}/root.cpio")),
        line = quote(command_line),
        disks = disks.join(", "),
        cpus = spec.cpus,
    )
}

/// What `xl-disk-configuration(5)` describes. The letters are the order of the kernel's disks; a path is what is left behind `target=`,
/// whatever it holds.
fn disk(drive: &Drive, letter: char) -> String {
    let access = if drive.read_only { "ro" } else { "rw" };
    quote(&format!("format=raw, vdev=xvd{letter}, access={access}, target={}", drive.file.display()))
}

/// A string of a configuration of `xl`.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            _ => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

fn refuse_what_wants_a_host(flags: &Flags) -> Result<()> {
    let refused =
        |what: &str, instead: &str| Err(Fault::new(format!("build --machine xen {what}: {instead}")));
    let mounted = flags.mount.iter().map(|words| mounts::mount(words)).collect::<Result<Vec<_>>>()?;
    if !flags.volume.is_empty() || mounted.iter().any(|mount| matches!(mount, Mounted::Volume(_))) {
        return refused(
            "-v",
            "a guest of Xen has no directories of its host; put files into the image with `files` of a unilith.toml, or mount a disk \
             (--mount type=disk,source=FILE,target=/data)",
        );
    }
    if flags.malloc.is_some() && !flags.r#static {
        return refused(
            "--malloc",
            "the library is a volume of the host's; link the program with --static, or leave it out",
        );
    }
    if !flags.publish.is_empty() || flags.publish_all {
        return refused("-p", "the machine is on dom0's bridge with an address of its own; leave it out");
    }
    let is_network_for_all = |word: &String| matches!(mode(word), Some(Network::Auto | Network::None));
    if !flags.network.iter().all(is_network_for_all) {
        return refused(
            "--network",
            "it is `auto`, which asks dom0's bridge for an address by DHCP, or `none`",
        );
    }
    if let Some(choice) = flags.set.iter().find(|c| matches!(c.as_str(), "overlay=on" | "volumes=on")) {
        return refused(&format!("--set {choice}"), "these are channels to the host of a virtual machine");
    }
    if flags.set.iter().any(|choice| choice == "xen=off") {
        return refused("--set xen=off", "the kernel would have no console there");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_quotes_stay_one_string_of_the_configuration() {
        assert_eq!(quote("cwd=/ -- sh -c 'a \"b\" \\c'"), r#""cwd=/ -- sh -c 'a \"b\" \\c'""#);
        assert_eq!(quote("a\nname = b"), "\"a\\nname = b\"");
    }

    #[test]
    fn disks_have_the_letters_of_their_order() {
        let drive = Drive { file: "/a, \"b\".img".into(), read_only: true, guest: None };
        let expected = r#""format=raw, vdev=xvdb, access=ro, target=/a, \"b\".img""#;
        assert_eq!(disk(&drive, 'b'), expected);
    }
}
