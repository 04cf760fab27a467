// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith build`: a directory with kernel, root file system and `run.sh`, which boots with plain QEMU and needs nothing
//! of Unilith; or a disk ([`crate::disk`]); or what Xen starts ([`crate::xen`]).

use crate::output::say;
use crate::{
    disk::Signer,
    fault::{Fault, Result, file},
    line::Line,
    prepare::{self, Flags, MachineKind},
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};
use unilith_machine::{
    boot, qemu,
    record::{Accel, Connection, Drive, Helper, KernelKind, Network, Spec},
};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    image: BuildFlags,
    #[command(flatten)]
    line: Line,
}

#[derive(clap::Args, Clone, Debug)]
struct BuildFlags {
    #[command(flatten)]
    flags: Flags,
    /// The directory to write; default: the program's name
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Write a disk instead that a computer with UEFI firmware boots; the name's end says the format: .img or .raw,
    /// .qcow2, .vmdk, .vhd
    #[arg(long, value_name = "FILE", conflicts_with = "output")]
    disk: Option<PathBuf>,
    /// Sign what the firmware starts, for Secure Boot: the private key (PEM)
    #[arg(long, value_name = "FILE", requires = "disk", requires = "sign_cert")]
    sign_key: Option<PathBuf>,
    /// The key's certificate (PEM), which the firmware knows
    #[arg(long, value_name = "FILE", requires = "sign_key")]
    sign_cert: Option<PathBuf>,
}

pub fn act(mut args: Args) -> Result<u8> {
    let program = args.line.program("build", &mut args.image)?;
    let BuildFlags { flags, output, disk, sign_key, sign_cert } = args.image;
    if flags.kernel != KernelKind::Micro {
        return Err(Fault::new(
            "build --kernel linux is not there yet: its settings are part of the RAM disk of one run",
        ));
    }
    if let Some(disk) = disk {
        let signer = sign_key.zip(sign_cert).map(|(key, certificate)| Signer { key, certificate });
        return crate::disk::write(flags, &program, &disk, signer.as_ref());
    }
    if flags.machine == MachineKind::Xen {
        return crate::xen::write(flags, &program, output);
    }
    let flags = match flags.machine {
        MachineKind::Process => {
            return Err(Fault::new(
                "build writes what QEMU boots; a process machine is started by run --machine process only",
            ));
        }
        MachineKind::Auto => Flags { machine: MachineKind::Microvm, ..flags },
        _ => flags,
    };
    if flags.malloc.is_some() && !flags.r#static {
        return Err(Fault::new(
            "build --malloc: QEMU alone has no volumes that are files, which the library is; link the program with --static, or run it",
        ));
    }
    let spec = prepare::prepare(&flags, &program)?;
    if let Some(network) = spec.networks.first() {
        return Err(Fault::new(format!(
            "--network {}: the script that build writes starts one machine; networks are for `unilith run`",
            network.name
        )));
    }
    if let Some(file) = spec.volumes.iter().find(|v| v.host.is_file()) {
        return Err(Fault::new(format!(
            "build -v {}: QEMU alone has no volumes that are files; give it the directory, or put the file into the image with `files` of a unilith.toml",
            file.host.display()
        )));
    }
    let folder = output.unwrap_or_else(|| PathBuf::from(&spec.label));
    crate::built::directory(&folder, "run.sh")?;
    for (from, name) in [(&spec.kernel, "kernel"), (&spec.initrd, "root.cpio")] {
        let to = folder.join(name);
        fs::copy(from, &to).map_err(file("write", &to))?;
    }
    // Not to boot, but for `unilith size` and for backtraces.
    if let Some(symbols) = &spec.symbols {
        let to = folder.join("kernel.symbols");
        fs::copy(symbols, &to).map_err(file("write", &to))?;
    }
    let script = folder.join("run.sh");
    fs::write(&script, run_script(&spec)).map_err(file("write", &script))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))
        .map_err(file("make executable", &script))?;
    say!("{}", folder.display());
    eprintln!("unilith: {}/run.sh boots it with plain QEMU", folder.display());
    Ok(0)
}

fn run_script(spec: &Spec) -> String {
    let connection = if spec.network == Network::None {
        Connection::None
    } else {
        Connection::User { helper: Helper::Qemu }
    };
    let mut boot = boot::boot_config(spec, &connection);
    // The script may be used at any later time; the machine then starts at QEMU's clock.
    boot.epoch_ns = None;
    let ports = spec.publish.iter().chain(&spec.offer).copied().collect();
    let disk =
        |drive: &Drive| qemu::Disk { file: drive.file.clone(), descriptor: None, read_only: drive.read_only };
    let line = qemu::Line {
        platform: spec.platform,
        accel: spec.accel.unwrap_or(Accel::Tcg),
        processor: qemu::processor(),
        memory: spec.memory,
        cpus: spec.cpus,
        kernel_kind: spec.kernel_kind,
        kernel: Path::new("kernel"),
        initrd: Path::new("root.cpio"),
        append: boot.encode(),
        settings: None,
        volumes: &spec.volumes,
        disks: spec.drives.iter().map(disk).collect(),
        link: if connection == Connection::None { qemu::Link::None } else { qemu::Link::User(ports) },
        vhost: None,
        mac: spec.mac(),
        mtu: None,
        console: qemu::Stream::Stdio,
        status: qemu::Stream::File("status".into()),
        control: None,
        overlay: None,
    };
    let words: Vec<String> = line.arguments().iter().map(|w| quote(&w.to_string_lossy())).collect();
    format!(
        "#!/bin/sh\n\
         # Boots {} with plain QEMU. The console is this terminal; the machine's status lines go to the file `status`, and\n\
         # its last one holds the program's exit code. Written by `unilith build`.\n\
         cd \"$(dirname \"$0\")\" || exit 1\n\
         : > status\n\
         {} {}\n\
         code=$(sed -n 's/^exit //p' status)\n\
         exit \"${{code:-125}}\"\n",
        spec.program,
        qemu::QEMU,
        words.join(" ")
    )
}

/// A word for the shell.
fn quote(word: &str) -> String {
    let plain =
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_=,./:+%@".contains(c));
    if plain { word.into() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_qemu_as_they_are() {
        let word = "it's $HOME; \"x\"";
        let out = std::process::Command::new("sh")
            .args(["-c", &format!("printf %s {}", quote(word))])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(out.stdout).unwrap(), word);
    }
}
