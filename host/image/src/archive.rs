// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tar archives (POSIX.1-2001 pax, ustar, GNU) unpacked into a [`Tree`], never onto a disk.

use crate::{
    error::{ErrorKind, ImageError, Result, fail},
    tree::{Capabilities, Content, Kind, MAX_PATH, Meta, Tree},
};
use std::{
    ffi::OsStr,
    io::Read,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};
use tar::EntryType;

/// All of an image is in memory while it is gathered, and in the machine's memory when it runs. A small archive that
/// unpacks to more than this is a mistake or an attack.
pub(crate) const MAX_UNPACKED: u64 = 2 << 30;

/// Whose rules the archive follows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rules {
    /// dpkg: a directory over a symbolic link to a directory keeps the link.
    Package,
    /// OCI image-spec layer.md: `.wh.` files remove what lower layers have.
    Layer,
}

enum Change {
    Directory(Meta),
    File(Vec<u8>, Meta),
    Link(PathBuf, Meta),
    HardLink(PathBuf),
}

/// What an archive says, in order.
struct Changes {
    /// Paths of lower layers to remove, and directories of lower layers to empty.
    removed: Vec<PathBuf>,
    emptied: Vec<PathBuf>,
    made: Vec<(PathBuf, Change)>,
}

/// Unpacks an archive over a tree. `leave_out` gets absolute paths; `budget` is what may still be unpacked.
pub(crate) fn unpack(
    reader: impl Read,
    what: &str,
    rules: Rules,
    leave_out: &dyn Fn(&Path) -> bool,
    budget: &mut u64,
    tree: &mut Tree,
) -> Result<()> {
    let changes = read(reader, what, rules, leave_out, budget)?;
    // Whiteouts hide lower layers only, wherever they stand in their own (layer.md, "Whiteouts").
    for path in &changes.removed {
        tree.remove(path);
    }
    for path in &changes.emptied {
        tree.empty(path);
    }
    for (path, change) in changes.made {
        match change {
            Change::Directory(meta) => tree.put_directory(&path, meta, rules == Rules::Package)?,
            Change::File(bytes, meta) => tree.put(&path, Kind::File(Content::Bytes(bytes.into())), meta)?,
            Change::Link(target, meta) => {
                tree.put(&path, Kind::Link(target), Meta { mode: 0o777, ..meta })?
            }
            Change::HardLink(target) => {
                // What the link leads to may be left out; then the link is too.
                if !leave_out(&target) {
                    tree.put_hard_link(&path, &target)?;
                }
            }
        }
    }
    Ok(())
}

fn read(
    reader: impl Read,
    what: &str,
    rules: Rules,
    leave_out: &dyn Fn(&Path) -> bool,
    budget: &mut u64,
) -> Result<Changes> {
    let damaged =
        |e: std::io::Error| ImageError::new(ErrorKind::Corrupt, format!("{what}: damaged archive: {e}"));
    let mut changes = Changes { removed: Vec::new(), emptied: Vec::new(), made: Vec::new() };
    let mut archive = tar::Archive::new(reader);
    for entry in archive.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let path = inside(&entry.path_bytes());
        if path.as_os_str().len() >= MAX_PATH {
            fail!(Corrupt, "{what}: damaged archive: a path of {} bytes", path.as_os_str().len());
        }
        if rules == Rules::Layer
            && let Some(hidden) = path.file_name().and_then(|n| n.as_bytes().strip_prefix(b".wh."))
        {
            let above = path.parent().unwrap_or(Path::new("/"));
            if hidden == b".wh..opq" {
                changes.emptied.push(above.to_path_buf());
            } else if !hidden.starts_with(b".wh.") && !hidden.is_empty() && hidden != b".." {
                changes.removed.push(above.join(OsStr::from_bytes(hidden)));
            }
            continue;
        }
        let capabilities = capabilities(&mut entry);
        let header = entry.header();
        let kind = header.entry_type();
        // Writers leave fields empty that they have nothing to say in.
        let number = |n: std::io::Result<u64>| n.ok().and_then(|n| u32::try_from(n).ok()).unwrap_or(0);
        let meta = Meta {
            mode: header.mode().unwrap_or(0o644) & 0o7777,
            uid: number(header.uid()),
            gid: number(header.gid()),
            mtime: number(header.mtime()),
            capabilities,
        };
        if leave_out(&path) {
            continue;
        }
        let target = |entry: &tar::Entry<'_, _>| match entry.link_name_bytes() {
            Some(target) => Ok(target.into_owned()),
            None => Err(ImageError::new(
                ErrorKind::Corrupt,
                format!("{what}: damaged archive: a link without target"),
            )),
        };
        let change = match kind {
            EntryType::Directory => Change::Directory(meta),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                let size = entry.size();
                let Some(left) = budget.checked_sub(size) else {
                    fail!(
                        NotRunnable,
                        "{what}: unpacks to more than {} GiB, too much for a root archive",
                        MAX_UNPACKED >> 30
                    );
                };
                *budget = left;
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).map_err(damaged)?;
                if bytes.len() as u64 != size {
                    fail!(Corrupt, "{what}: damaged archive: {} ends too early", path.display());
                }
                Change::File(bytes, meta)
            }
            EntryType::Symlink => Change::Link(PathBuf::from(OsStr::from_bytes(&target(&entry)?)), meta),
            EntryType::Link => Change::HardLink(inside(&target(&entry)?)),
            // Devices come from the kernel; FIFOs are made by the programs that use them.
            _ => continue,
        };
        changes.made.push((path, change));
    }
    Ok(changes)
}

/// What the file may do: the attribute as star and those after it write it (tar(5), "SCHILY.xattr").
fn capabilities(entry: &mut tar::Entry<'_, impl Read>) -> Capabilities {
    const NAME: &[u8] = b"SCHILY.xattr.security.capability";
    // An extension that cannot be read says nothing.
    let Ok(Some(extensions)) = entry.pax_extensions() else { return Capabilities::NONE };
    let found = extensions.flatten().find(|extension| extension.key_bytes() == NAME);
    found.map_or(Capabilities::NONE, |extension| Capabilities::parse(extension.value_bytes()))
}

/// An archive's name as an absolute path of the tree.
fn inside(name: &[u8]) -> PathBuf {
    Path::new("/").join(OsStr::from_bytes(name)).components().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn tar(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, kind, data) in entries {
            let mut header = tar::Header::new_ustar();
            header.set_entry_type(*kind);
            header.set_mode(0o755);
            // `Header::set_path` refuses the names that these tests are about.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            let body: &[u8] = if *kind == EntryType::Regular {
                data
            } else {
                header.as_mut_bytes()[157..157 + data.len()].copy_from_slice(data);
                b""
            };
            header.set_size(body.len() as u64);
            header.set_cksum();
            builder.append(&header, body).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn over(tree: &mut Tree, rules: Rules, entries: &[(&str, EntryType, &[u8])]) -> Result<()> {
        unpack(&tar(entries)[..], "test", rules, &|_| false, &mut (1 << 20), tree)
    }

    use EntryType::{Directory, Link, Regular, Symlink};

    #[test]
    fn whiteouts_hide_lower_layers_only() {
        let mut tree = Tree::new();
        over(
            &mut tree,
            Rules::Layer,
            &[("a/x", Regular, b"1"), ("a/y", Regular, b"1"), ("b/z", Regular, b"1")],
        )
        .unwrap();
        let second: &[(&str, EntryType, &[u8])] = &[
            ("a/new", Regular, b"2"),
            ("a/.wh..wh..opq", Regular, b""),
            ("b/z", Regular, b"2"),
            ("b/.wh.z", Regular, b""),
        ];
        over(&mut tree, Rules::Layer, second).unwrap();
        let names: Vec<_> = tree.list().into_iter().map(|(p, _)| p.to_string_lossy().into_owned()).collect();
        assert_eq!(names, ["/a", "/a/new", "/b", "/b/z"]);
        assert_eq!(tree.text("/b/z").as_deref(), Some("2"));
    }

    #[test]
    fn links_keep_their_owner_and_their_time() {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(Symlink);
        header.set_uid(7);
        header.set_gid(8);
        header.set_mtime(9);
        header.set_mode(0o644);
        header.set_size(0);
        let mut builder = tar::Builder::new(Vec::new());
        builder.append_link(&mut header, "l", "nowhere").unwrap();
        let mut tree = Tree::new();
        let bytes = builder.into_inner().unwrap();
        unpack(&bytes[..], "test", Rules::Layer, &|_| false, &mut (1 << 20), &mut tree).unwrap();
        let (_, id) = tree.walk(Path::new("/l"), false).unwrap();
        assert_eq!(
            tree.node(id).meta,
            Meta { mode: 0o777, uid: 7, gid: 8, mtime: 9, capabilities: Capabilities::NONE }
        );
    }

    #[test]
    fn what_a_file_may_do_is_read_from_its_attributes() {
        let unpacked = |value: &[u8]| {
            let mut builder = tar::Builder::new(Vec::new());
            builder.append_pax_extensions([("SCHILY.xattr.security.capability", value)]).unwrap();
            let mut header = tar::Header::new_ustar();
            header.set_size(1);
            header.set_mode(0o755);
            builder.append_data(&mut header, "program", &b"x"[..]).unwrap();
            let mut tree = Tree::new();
            let bytes = builder.into_inner().unwrap();
            unpack(&bytes[..], "test", Rules::Layer, &|_| false, &mut (1 << 20), &mut tree).unwrap();
            let (_, id) = tree.walk(Path::new("/program"), false).unwrap();
            tree.node(id).meta.capabilities
        };
        // cap_net_bind_service and cap_checkpoint_restore, as setcap(8) writes them.
        let value = [[1, 0, 0, 2], [0, 4, 0, 0], [0; 4], [0, 1, 0, 0], [0; 4]].concat();
        let given = Capabilities { permitted: 1 << 40 | 1 << 10, is_effective: true };
        assert_eq!(unpacked(&value), given);
        let of_root = [&[0, 0, 0, 3], &value[4..], &[0; 4]].concat();
        assert_eq!(unpacked(&of_root), Capabilities { is_effective: false, ..given });
        let of_another = [&[1, 0, 0, 3], &value[4..], &[1, 0, 0, 0]].concat();
        for bad in [&value[..16], &[value.as_slice(), &[0; 4]].concat(), &of_another, &[0; 20], b""] {
            assert_eq!(unpacked(bad), Capabilities::NONE, "{bad:?}");
        }
    }

    #[test]
    fn packages_have_no_whiteouts() {
        let mut tree = Tree::new();
        over(&mut tree, Rules::Package, &[(".wh.x", Regular, b"1")]).unwrap();
        assert!(tree.text("/.wh.x").is_some());
    }

    #[test]
    fn no_name_leaves_the_tree() {
        let mut tree = Tree::new();
        let entries: &[(&str, EntryType, &[u8])] = &[
            ("../../etc/a", Regular, b"1"),
            ("/etc/b", Regular, b"1"),
            ("l", Symlink, b"../../../.."),
            ("l/etc/c", Regular, b"1"),
            ("h", Link, b"../../etc/a"),
            ("x/../../d", Regular, b"1"),
            ("..", Directory, b""),
            (".", Directory, b""),
        ];
        over(&mut tree, Rules::Layer, entries).unwrap();
        for path in ["/etc/a", "/etc/b", "/etc/c", "/h", "/d"] {
            assert_eq!(tree.text(path).as_deref(), Some("1"), "{path}");
        }
    }

    #[test]
    fn hard_links_share_and_dangling_ones_are_refused() {
        let mut tree = Tree::new();
        over(&mut tree, Rules::Layer, &[("a", Regular, b"1"), ("b", Link, b"a")]).unwrap();
        assert_eq!(tree.walk(Path::new("/a"), true).unwrap().1, tree.walk(Path::new("/b"), true).unwrap().1);
        let error = over(&mut tree, Rules::Layer, &[("c", Link, b"nothing")]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt);
    }

    #[test]
    fn too_much_is_refused_before_it_is_read() {
        let big = vec![0; 1 << 20];
        let error =
            over(&mut Tree::new(), Rules::Layer, &[("a", Regular, &big), ("b", Regular, b"x")]).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotRunnable);
    }

    #[test]
    fn a_cut_archive_is_damaged_and_never_a_panic() {
        let whole = tar(&[("a", Regular, &[7; 3000]), ("b", Symlink, b"a")]);
        for cut in (1..whole.len() - 1024).step_by(100) {
            let result =
                unpack(&whole[..cut], "test", Rules::Layer, &|_| false, &mut (1 << 20), &mut Tree::new());
            // A cut between entries looks like an archive without its end mark, which tar programs accept.
            if let Err(error) = result {
                assert_eq!(error.kind, ErrorKind::Corrupt);
            }
        }
    }
}
