// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a program finds beside its image: `-v`, `--mount`, `--tmpfs` and `--drive`.

use crate::{
    fault::{Fault, Result},
    names,
    prepare::Flags,
    verbs,
};
use std::path::Path;
use unilith_image::Size;
use unilith_machine::{
    drives,
    record::{Drive, Memory, Mount},
};

/// Reads one `-v`; relative host paths start at `base`.
pub fn volume(text: &str, base: &Path) -> Result<Mount> {
    let wrong = |why: &str| Fault::new(format!("-v {text}: {why}"));
    let (rest, read_only) = match text.strip_suffix(":ro") {
        Some(rest) => (rest, true),
        None => (text.strip_suffix(":rw").unwrap_or(text), false),
    };
    let (host, guest) = rest.rsplit_once(':').ok_or_else(|| wrong("write HOST:PATH or HOST:PATH:ro"))?;
    if !guest.starts_with('/') {
        return Err(wrong("the path in the machine must be absolute"));
    }
    // As with docker a bare name is a volume's, unless a directory here has it.
    let named = names::is_valid(host) && !base.join(host).exists();
    let path = if named { verbs::volume::make(host)? } else { base.join(host) };
    let host = path.canonicalize().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            wrong(&format!("{} does not exist; make it first: mkdir -p {0}", path.display()))
        }
        _ => wrong(&format!("{}: {e}", path.display())),
    })?;
    let kind = host.metadata().map_err(|e| wrong(&format!("{}: {e}", path.display())))?.file_type();
    if !kind.is_dir() && !kind.is_file() {
        return Err(wrong(&format!("{} is neither a directory nor a file", path.display())));
    }
    let access = if read_only { rustix::fs::Access::READ_OK } else { rustix::fs::Access::WRITE_OK };
    if rustix::fs::access(&host, access).is_err() {
        return Err(wrong(&if read_only {
            format!("you may not read {}", path.display())
        } else {
            format!("{} is read-only for you; add :ro, or choose one you may write", path.display())
        }));
    }
    Ok(Mount::new(host, guest, read_only))
}

/// Reads all `--drive`.
pub fn drives(flags: &Flags) -> Result<Vec<Drive>> {
    let drives: Vec<Drive> = flags.drive.iter().map(|text| drive(text)).collect::<Result<_>>()?;
    if let Some(first) = flags.drive.first()
        && !flags.r#static
    {
        return Err(Fault::new(format!(
            "--drive {first}: only a program that is linked with the kernel drives a disk (unilith/blockdev.h): add --static; for files \
             that any program opens give a volume (-v)"
        )));
    }
    check_count(&drives)?;
    Ok(drives)
}

/// A machine has few disks.
pub fn check_count(drives: &[Drive]) -> Result<()> {
    let (given, most) = (drives.len(), api_boot::MAX_DRIVES);
    if given <= most {
        return Ok(());
    }
    Err(Fault::new(format!("--drive: {given} disks; a machine has {most} at most")))
}

/// Reads one `--drive`.
fn drive(text: &str) -> Result<Drive> {
    let (file, read_only) = match text.strip_suffix(":ro") {
        Some(file) => (file, true),
        None => (text.strip_suffix(":rw").unwrap_or(text), false),
    };
    let mut drive = Drive { file: file.into(), read_only, guest: None };
    drives::check(&drive).map_err(|e| Fault::new(e.to_string()))?;
    // The machine may be started from another directory.
    drive.file = drive.file.canonicalize().map_err(|e| Fault::new(format!("--drive {text}: {e}")))?;
    Ok(drive)
}

/// The drive of a disk that is mounted. With a size, a file that is missing is made, with a file system of mkfs.ext4(8).
pub fn disk(disk: &Disk) -> Result<Drive> {
    let Disk { source, guest, read_only, size } = disk;
    let file = Path::new(source);
    if let Some(size) = size
        && !file.exists()
    {
        make_disk(file, *size)?;
    }
    let mut drive = Drive { file: file.into(), read_only: *read_only, guest: Some(guest.clone()) };
    drives::check(&drive).map_err(|e| {
        let hint = if file.exists() { "" } else { "; or add size=2G to have it made with a file system" };
        Fault::new(format!("{e}{hint}"))
    })?;
    // The machine may be started from another directory.
    drive.file = file.canonicalize().map_err(|e| Fault::new(format!("disk {source}: {e}")))?;
    Ok(drive)
}

/// Of a disk that mkfs.ext4 gives a journal.
const LEAST_DISK: u64 = 8 << 20;

fn make_disk(file: &Path, size: u64) -> Result<()> {
    let wrong = |why: String| Fault::new(format!("disk {}: {why}", file.display()));
    if size < LEAST_DISK {
        return Err(wrong("a disk with a journal has at least 8M".into()));
    }
    // In place only when it is whole: whoever looks for it meanwhile, or after a failure, finds none.
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let new =
        tempfile::NamedTempFile::new_in(folder).map_err(|e| wrong(format!("it cannot be made: {e}")))?;
    let whole = size.next_multiple_of(drives::SECTOR);
    new.as_file().set_len(whole).map_err(|e| wrong(format!("it cannot be {size} bytes large: {e}")))?;
    // Debian has it where only root's shells look.
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let made = std::process::Command::new("mkfs.ext4")
        .env("PATH", path)
        .args(["-q", "-F", "-E", "root_owner=0:0,lazy_itable_init=1"])
        .arg(new.path())
        .output()
        .map_err(|e| wrong(format!("mkfs.ext4 (package e2fsprogs) cannot be run: {e}")))?;
    if !made.status.success() {
        let text = String::from_utf8_lossy(&made.stderr);
        return Err(wrong(format!("mkfs.ext4 fails: {}", text.trim())));
    }
    match new.persist_noclobber(file) {
        Ok(_) => Ok(()),
        // Another machine has made it at the same time.
        Err(e) if e.error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        Err(e) => Err(wrong(format!("it cannot be made: {}", e.error))),
    }
}

/// A volume over the directory in which the image has its program leaves nothing to run, unless it brings one itself.
pub fn check_program(volumes: &[Mount], program: &str) -> Result<()> {
    let over = |v: &&Mount| v.host.is_dir() && Path::new(program).starts_with(&v.guest);
    let Some(volume) = volumes.iter().filter(over).max_by_key(|v| v.guest.len()) else { return Ok(()) };
    let Ok(rest) = Path::new(program).strip_prefix(&volume.guest) else { return Ok(()) };
    let mut place = volume.host.clone();
    for name in rest {
        place.push(name);
        match place.symlink_metadata() {
            // Where it leads to is known in the machine alone.
            Ok(metadata) if metadata.is_symlink() => return Ok(()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(Fault::new(format!(
                    "-v {}:{}: the program is {program} in the image, which the volume would hide, and {} does not exist; choose \
                     another place for the volume",
                    volume.host.display(),
                    volume.guest,
                    place.display(),
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What a `--mount` asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Mounted {
    /// A directory, file or volume, as `-v` says it.
    Volume(String),
    Memory(Memory),
    Disk(Disk),
}

/// A file of this host with an ext4 file system.
#[derive(Debug, PartialEq, Eq)]
pub struct Disk {
    pub source: String,
    pub guest: String,
    pub read_only: bool,
    /// A file that is missing is made with so many bytes.
    pub size: Option<u64>,
}

/// Reads the words of one `--mount`.
pub fn mount(text: &str) -> Result<Mounted> {
    let wrong = |why: &str| Fault { code: 2, message: format!("--mount {text}: {why}") };
    let (mut kind, mut source, mut target, mut read_only) = ("volume", None, None, false);
    let (mut size, mut mode, mut disk_size) = (None, None, None);
    for word in text.split(',') {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "type" => kind = value,
            "source" | "src" => source = Some(value),
            "target" | "destination" | "dst" => target = Some(value),
            "readonly" | "ro" => read_only = value != "false",
            "tmpfs-size" => size = Some(memory_size(value).map_err(|e| wrong(&e))?),
            "size" => disk_size = Some(memory_size(value).map_err(|e| wrong(&e))?),
            "tmpfs-mode" => mode = Some(octal(value).map_err(|e| wrong(&e))?),
            "bind-propagation" | "consistency" | "volume-nocopy" => {}
            _ => {
                return Err(wrong(&format!(
                    "there is no `{key}`; write type, source, target, readonly, size, tmpfs-size and tmpfs-mode"
                )));
            }
        }
    }
    let target = target.ok_or_else(|| wrong("say target=PATH"))?;
    if kind != "tmpfs" && (size.is_some() || mode.is_some()) {
        return Err(wrong("tmpfs-size and tmpfs-mode are for type=tmpfs"));
    }
    if kind != "disk" && disk_size.is_some() {
        return Err(wrong("size is for type=disk"));
    }
    let source = match kind {
        "disk" => {
            let source = source.ok_or_else(|| wrong("say source=FILE"))?.to_string();
            let guest = absolute(target).map_err(|e| wrong(&e))?;
            if read_only && disk_size.is_some() {
                return Err(wrong("size is for a disk that is made, and readonly would leave it empty"));
            }
            return Ok(Mounted::Disk(Disk { source, guest, read_only, size: disk_size }));
        }
        "bind" => {
            let source = source.ok_or_else(|| wrong("say source=HOST"))?;
            // Never the name of a volume.
            if source.contains('/') { source.to_string() } else { format!("./{source}") }
        }
        "volume" => source.ok_or_else(|| wrong("say source=NAME"))?.to_string(),
        "tmpfs" if source.is_some() || read_only => {
            return Err(wrong("a tmpfs is empty at first: it has no source, and readonly would leave it so"));
        }
        "tmpfs" => {
            let guest = absolute(target).map_err(|e| wrong(&e))?;
            return Ok(Mounted::Memory(Memory {
                guest,
                size,
                inodes: None,
                mode: mode.unwrap_or(TMPFS_MODE),
                exec: false,
            }));
        }
        other => return Err(wrong(&format!("`{other}` is none of bind, volume, tmpfs and disk"))),
    };
    Ok(Mounted::Volume(format!("{source}:{target}{}", if read_only { ":ro" } else { "" })))
}

/// Everybody may write there, and remove what is theirs: docker's and Linux' own.
const TMPFS_MODE: u32 = 0o1777;

/// Reads one `--tmpfs`: `PATH[:OPTION,...]`.
pub fn tmpfs(text: &str) -> Result<Memory> {
    let wrong = |why: &str| Fault { code: 2, message: format!("--tmpfs {text}: {why}") };
    let (path, options) = text.split_once(':').unwrap_or((text, ""));
    let guest = absolute(path).map_err(|e| wrong(&e))?;
    let mut memory = Memory { guest, size: None, inodes: None, mode: TMPFS_MODE, exec: false };
    for option in options.split(',').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("size", value)) => memory.size = Some(memory_size(value).map_err(|e| wrong(&e))?),
            Some(("mode", value)) => memory.mode = octal(value).map_err(|e| wrong(&e))?,
            Some(("nr_inodes", value)) => {
                let count = value.parse().map_err(|_| wrong(&format!("nr_inodes `{value}` is no number")))?;
                memory.inodes = Some(count);
            }
            None if option == "exec" => memory.exec = true,
            None if option == "noexec" => memory.exec = false,
            // What it is in any case.
            None if ["rw", "nosuid", "nodev"].contains(&option) => {}
            _ => {
                return Err(wrong(&format!(
                    "there is no `{option}`; write size=SIZE, nr_inodes=N, mode=MODE and exec"
                )));
            }
        }
    }
    Ok(memory)
}

fn absolute(path: &str) -> std::result::Result<String, String> {
    match path {
        "/" => Err("the root file system is the image's".into()),
        path if path.starts_with('/') => Ok(path.into()),
        _ => Err("the path in the machine must be absolute".into()),
    }
}

fn memory_size(text: &str) -> std::result::Result<u64, String> {
    match text.parse::<Size>() {
        Ok(Size(0)) => Err("a size of 0 holds nothing".into()),
        size => size.map(|size| size.0),
    }
}

fn octal(text: &str) -> std::result::Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| format!("mode `{text}`: expected octal digits, for example 1777"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_that_cannot_work_are_named_before_anything_starts() {
        let here = Path::new(".");
        for (text, says) in [
            ("/tmp", "write HOST:PATH"),
            ("/tmp:data", "absolute"),
            ("/no/such/place:/data", "does not exist"),
            ("/dev/null:/data", "neither a directory nor a file"),
        ] {
            let error = volume(text, here).unwrap_err().message;
            assert!(error.contains(&format!("-v {text}")) && error.contains(says), "{error}");
        }
        assert!(volume("/proc:/data:ro", here).unwrap().read_only);
    }

    #[test]
    fn a_volume_that_hides_the_program_is_named() {
        let folder = std::env::temp_dir();
        let over = |guest: &str| [Mount::new(folder.clone(), guest, false)];
        let error = check_program(&over("/app"), "/app/no-such-program").unwrap_err().message;
        assert!(error.contains("hide") && error.contains("/app/no-such-program"), "{error}");
        assert!(check_program(&over("/data"), "/app/no-such-program").is_ok());
        let both = [over("/app"), [Mount::new("/usr", "/app/usr", true)]];
        assert!(check_program(both.as_flattened(), "/app/usr/bin/env").is_ok());
    }

    #[test]
    fn mounts_as_words_are_those_of_v() {
        let volume = |text: &str| Mounted::Volume(text.into());
        assert_eq!(mount("type=bind,source=data,target=/data,readonly").unwrap(), volume("./data:/data:ro"));
        assert_eq!(mount("src=cache,dst=/c").unwrap(), volume("cache:/c"));
        let disk = Disk { source: "a.img".into(), guest: "/x".into(), read_only: false, size: Some(2 << 30) };
        assert_eq!(mount("type=disk,source=a.img,target=/x,size=2G").unwrap(), Mounted::Disk(disk));
        let memory =
            Memory { guest: "/x".into(), size: Some(1 << 20), inodes: None, mode: 0o700, exec: false };
        let words = "type=tmpfs,target=/x,tmpfs-size=1m,tmpfs-mode=700";
        assert_eq!(mount(words).unwrap(), Mounted::Memory(memory));
        for (text, says) in [
            ("type=tmpfs,target=/", "root file system"),
            ("type=tmpfs,source=a,target=/x", "empty at first"),
            ("source=a,target=/x,tmpfs-size=1m", "type=tmpfs"),
            ("type=bind,target=/x", "source"),
            ("type=disk,target=/x", "source=FILE"),
            ("type=disk,source=a,target=/x,readonly,size=1m", "leave it empty"),
            ("source=a,target=/x,size=1m", "type=disk"),
            ("type=npipe,target=/x", "`npipe`"),
            ("x=y", "no `x`"),
        ] {
            assert!(mount(text).unwrap_err().message.contains(says), "{text}");
        }
    }

    #[test]
    fn file_systems_in_memory_have_a_size_and_a_mode() {
        let of = |text: &str| tmpfs(text).map(|m| (m.size, m.mode, m.exec));
        assert_eq!(of("/x").unwrap(), (None, 0o1777, false));
        assert_eq!(of("/x:rw,size=64k,mode=0755,exec").unwrap(), (Some(64 << 10), 0o755, true));
        for (text, says) in
            [("x", "absolute"), ("/x:size=0", "nothing"), ("/x:mode=9", "octal"), ("/x:uid=1", "`uid=1`")]
        {
            assert!(tmpfs(text).unwrap_err().message.contains(says), "{text}");
        }
    }
}
