// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names in a container's root. The image and the container made what is there, so every step is resolved as if the root
//! were `/` (openat2(2), RESOLVE_IN_ROOT): a link to `/etc` is a link to the root's own.

use crate::{ContainerError, Result, bundle::Bind, file};
use rustix::{
    fs::{self, AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Uid},
    io::Errno,
};
use std::{
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

/// Where programs are looked for when PATH is not set (runc and the shells).
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The largest /etc/passwd that is read.
const MAX_PASSWD: i64 = 1 << 20;

/// A container's root directory.
#[derive(Debug)]
pub struct Root {
    folder: OwnedFd,
    path: PathBuf,
}

impl Root {
    pub fn open(path: &Path) -> Result<Root> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = fs::open(path, flags, Mode::empty()).map_err(io::Error::from);
        Ok(Root { folder: folder.map_err(file("cannot use the root", path))?, path: path.into() })
    }

    fn at(&self, path: &Path, flags: OFlags) -> std::result::Result<OwnedFd, Errno> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        fs::openat2(&self.folder, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    fn kind(&self, path: &Path) -> Option<(FileType, u32)> {
        let found = self.at(path, OFlags::PATH).ok()?;
        let stat = fs::fstat(&found).ok()?;
        Some((FileType::from_raw_mode(stat.st_mode), stat.st_mode))
    }

    /// Makes the directory or the empty file that something is to be mounted on, with what is above it, where it is missing. `owner`: whose
    /// it is then; `None`: this process's user.
    pub fn make_mount_point(&self, path: &Path, is_directory: bool, owner: Option<(u32, u32)>) -> Result<()> {
        let failed = |e: Errno| file("cannot make the mount point", self.path.join(inside(path)))(e.into());
        if self.kind(path).is_some() {
            return Ok(());
        }
        let mut above = PathBuf::from("/");
        let path = inside(path);
        let names: Vec<_> = path.components().collect();
        for (n, name) in names.iter().enumerate() {
            let is_last = n + 1 == names.len();
            let parent = self.at(&above, OFlags::PATH | OFlags::DIRECTORY).map_err(failed)?;
            above.push(name);
            if self.kind(&above).is_some() {
                continue;
            }
            let name: &Path = name.as_ref();
            let made = if is_last && !is_directory {
                let flags =
                    OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644)).map(drop)
            } else {
                fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))
            };
            match (made, owner) {
                (Ok(()), Some((user, group))) => {
                    let (user, group) = (Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
                    fs::chownat(&parent, name, user, group, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
                }
                (Ok(()) | Err(Errno::EXIST), _) => {}
                (Err(e), _) => return Err(failed(e)),
            }
        }
        Ok(())
    }

    /// The absolute path of a program as a shell would find it: in the directories of PATH, or from the working directory
    /// where it has a slash; engines mount programs of theirs (`docker run --init`). What cannot be run is said with runc's
    /// words.
    pub fn find_program(
        &self,
        binds: &[Bind],
        program: &str,
        environment: &[String],
        working: &Path,
    ) -> Result<PathBuf> {
        let candidates: Vec<PathBuf> = if program.contains('/') {
            vec![working.join(program)]
        } else {
            let path = environment.iter().rev().find_map(|entry| entry.strip_prefix("PATH="));
            let path = path.unwrap_or(DEFAULT_PATH);
            path.split(':').map(|folder| working.join(folder).join(program)).collect()
        };
        let mut refused = false;
        for candidate in candidates {
            match mounted(binds, &candidate).unwrap_or_else(|| self.kind(&candidate)) {
                Some((FileType::RegularFile, mode)) if mode & 0o111 != 0 => return Ok(candidate),
                Some(_) => refused = true,
                None => {}
            }
        }
        Err(if refused {
            ContainerError::NotExecutable(program.into())
        } else {
            ContainerError::NoProgram(program.into())
        })
    }

    /// The home directory of a user by the container's /etc/passwd (passwd(5)); `/` where that does not say, as with runc.
    pub fn home_of(&self, binds: &[Bind], uid: u32) -> String {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let passwd = Path::new("/etc/passwd");
        let opened = match on_host(binds, passwd) {
            Some(path) => fs::open(path, flags, Mode::empty()),
            None => self.at(passwd, flags),
        };
        let text = opened.ok().and_then(|file| {
            let is_file = fs::fstat(&file).is_ok_and(|stat| {
                FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_size <= MAX_PASSWD
            });
            is_file.then(|| io::read_to_string(std::fs::File::from(file)).ok()).flatten()
        });
        let fields = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            let is_users = fields.get(2).and_then(|number| number.parse().ok()) == Some(uid);
            is_users.then(|| fields.get(5).map(ToString::to_string)).flatten()
        };
        let home = text.and_then(|text| text.lines().find_map(fields));
        home.filter(|home| !home.is_empty()).unwrap_or_else(|| "/".into())
    }

    /// A directory that is there, to be looked at.
    pub fn folder(&self, path: &Path) -> Option<OwnedFd> {
        self.at(path, OFlags::RDONLY | OFlags::DIRECTORY).ok()
    }

    /// Whether the image has a symbolic link under this name, in its last part.
    pub fn is_link(&self, path: &Path) -> bool {
        let found = fs::statat(&self.folder, inside(path), AtFlags::SYMLINK_NOFOLLOW);
        found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
    }

    /// Whether there is anything under this name.
    pub fn has(&self, path: &Path) -> bool {
        fs::statat(&self.folder, inside(path), AtFlags::SYMLINK_NOFOLLOW).is_ok() || self.kind(path).is_some()
    }
}

/// Where on the host what is at a path is that a bind covers.
fn on_host(binds: &[Bind], path: &Path) -> Option<PathBuf> {
    Bind::covering(binds, path)?.on_host(path)
}

/// What is at a path that a bind covers.
fn mounted(binds: &[Bind], path: &Path) -> Option<Option<(FileType, u32)>> {
    let source = on_host(binds, path)?;
    let found = fs::stat(&source).ok();
    Some(found.map(|stat| (FileType::from_raw_mode(stat.st_mode), stat.st_mode)))
}

/// The path without what would make it absolute or lead up.
fn inside(path: &Path) -> PathBuf {
    use std::path::Component;
    path.components().filter(|c| matches!(c, Component::Normal(_))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn mount_points_are_made_in_the_root_whatever_links_are_there() {
        let base = tempfile::tempdir().unwrap();
        let (root, outside) = (base.path().join("root"), base.path().join("outside"));
        std::fs::create_dir_all(root.join("usr")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        symlink(&outside, root.join("absolute")).unwrap();
        symlink("../outside", root.join("upward")).unwrap();
        symlink("/usr", root.join("fine")).unwrap();
        let tree = Root::open(&root).unwrap();
        tree.make_mount_point(Path::new("/etc/app/config"), false, None).unwrap();
        tree.make_mount_point(Path::new("/data/../var/lib"), true, None).unwrap();
        tree.make_mount_point(Path::new("/fine/lib"), true, None).unwrap();
        assert!(root.join("etc/app/config").is_file() && root.join("usr/lib").is_dir());
        // Either link leads to a name that the root has not, or has itself.
        let _ = tree.make_mount_point(Path::new("/absolute/x"), true, None);
        let _ = tree.make_mount_point(Path::new("/upward/x"), true, None);
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "something was made outside of the root");
    }

    #[test]
    fn a_users_home_is_what_the_containers_own_passwd_says() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().join("root");
        std::fs::create_dir_all(root.join("etc")).unwrap();
        let tree = Root::open(&root).unwrap();
        assert_eq!(tree.home_of(&[], 0), "/");
        std::fs::write(
            root.join("etc/passwd"),
            "root:x:0:0:root:/root:/bin/sh\nx\nweb:x:7:7::/srv:\nbare:x:8:8:::\n",
        )
        .unwrap();
        let homes = |uid| tree.home_of(&[], uid);
        assert_eq!([homes(0), homes(7), homes(8), homes(9)], ["/root", "/srv", "/", "/"]);
        // What the engine mounts over it has the last word.
        let other = base.path().join("passwd");
        std::fs::write(&other, "web:x:7:7::/other:\n").unwrap();
        let bind = Bind {
            source: other,
            destination: "/etc/passwd".into(),
            read_only: true,
            keeps_below: false,
            is_recursive: true,
            is_private: true,
            is_directory: false,
        };
        assert_eq!(tree.home_of(&[bind], 7), "/other");
        // A link of the image does not lead out of it, and nothing that would block or never end is read.
        std::fs::remove_file(root.join("etc/passwd")).unwrap();
        symlink(base.path().join("passwd"), root.join("etc/passwd")).unwrap();
        assert_eq!(homes(7), "/");
        std::fs::remove_file(root.join("etc/passwd")).unwrap();
        fs::mknodat(fs::CWD, root.join("etc/passwd"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
        assert_eq!(homes(7), "/");
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them_and_refused_with_runcs_words() {
        let base = tempfile::tempdir().unwrap();
        for (path, mode) in [("usr/bin/app", 0o755), ("srv/run.sh", 0o755), ("usr/bin/data", 0o644)] {
            let path = base.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "x").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let root = Root::open(base.path()).unwrap();
        let bind = |source: &str, destination: &str| Bind {
            source: base.path().join(source),
            destination: destination.into(),
            read_only: true,
            keeps_below: false,
            is_recursive: true,
            is_private: true,
            is_directory: false,
        };
        // What is mounted hides what is below it.
        let binds = [bind("srv/run.sh", "/sbin/init"), bind("srv", "/opt"), bind("usr/bin", "/opt/bin")];
        let find = |program: &str, path: &str| {
            let found = root.find_program(&binds, program, &[format!("PATH={path}")], Path::new("/srv"));
            found.map_err(|e| e.to_string())
        };
        assert_eq!(find("app", "/bin:/usr/bin").unwrap(), Path::new("/usr/bin/app"));
        assert_eq!(find("./run.sh", "").unwrap(), Path::new("/srv/./run.sh"));
        assert_eq!(find("/usr/bin/app", "").unwrap(), Path::new("/usr/bin/app"));
        assert!(find("app", "/bin").unwrap_err().contains("executable file not found in $PATH"));
        assert!(find("data", "/usr/bin").unwrap_err().contains("permission denied"));
        assert!(find("/usr", "").unwrap_err().contains("permission denied"));
        assert_eq!(find("init", "/bin:/sbin").unwrap(), Path::new("/sbin/init"));
        assert!(find("/opt/run.sh", "").is_ok() && find("/opt/bin/app", "").is_ok());
        assert!(find("/opt/bin/data", "").unwrap_err().contains("permission denied"));
        assert!(find("/opt/bin/run.sh", "").unwrap_err().contains("not found"));
        assert!(root.find_program(&[], "app", &[], Path::new("/")).is_ok());
    }
}
