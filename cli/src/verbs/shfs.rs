// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith shfs`: images of the hash file system that linked programs open without a VFS (`unilith/shfs.h`,
//! `docs/reference/shfs-image.md`).

use crate::fault::{Fault, Result, file};
use crate::output::say;
use sha2::{Digest, Sha256};
use shfs::{BLOCK, Content, Superblock, Volume};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Read, Seek, SeekFrom, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  unilith shfs make site.shfs ./public
  unilith shfs ls site.shfs
  unilith run --static --drive site.shfs:ro ./program")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum What {
    /// Make an image of the files in a directory and those below it
    Make { image: PathBuf, directory: PathBuf },
    /// List the files of an image: bytes, SHA-256 and name
    Ls { image: PathBuf },
    /// Read all of an image and compare every file with its digest
    Check { image: PathBuf },
}

pub fn act(args: &Args) -> Result<u8> {
    match &args.what {
        What::Make { image, directory } => make(image, directory),
        What::Ls { image } => {
            let opened = Image::open(image)?;
            for file in opened.sorted().values() {
                say!("{:>12}  {}  {}", file.size, hex(file.digest), String::from_utf8_lossy(file.name));
            }
            Ok(0)
        }
        What::Check { image } => check(image),
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn damaged(path: &Path, why: impl std::fmt::Display) -> Fault {
    Fault::new(format!("{}: {why}", path.display()))
}

struct Image {
    path: PathBuf,
    file: File,
    volume: Volume<Vec<u8>>,
}

impl Image {
    fn open(path: &Path) -> Result<Image> {
        let mut opened = File::open(path).map_err(file("read", path))?;
        let length = opened.metadata().map_err(file("read", path))?.len();
        let mut first = Vec::new();
        let head = (&mut opened).take(shfs::SUPERBLOCK as u64).read_to_end(&mut first);
        head.map_err(file("read", path))?;
        let superblock =
            Superblock::parse(&first, length / BLOCK as u64).map_err(|damage| damaged(path, damage))?;
        // At most 64 MiB.
        let mut table = vec![0; superblock.table_bytes()];
        opened.seek(SeekFrom::Start(BLOCK as u64)).map_err(file("read", path))?;
        opened.read_exact(&mut table).map_err(file("read", path))?;
        let volume = Volume::new(superblock, table).map_err(|damage| damaged(path, damage))?;
        Ok(Image { path: path.into(), file: opened, volume })
    }

    fn sorted(&self) -> BTreeMap<&[u8], shfs::File<'_>> {
        self.volume.files().map(|file| (file.name, file)).collect()
    }

    fn digest(&self, of: &shfs::File<'_>) -> Result<[u8; 32]> {
        let mut from = &self.file;
        from.seek(SeekFrom::Start(of.first_block * BLOCK as u64)).map_err(file("read", &self.path))?;
        digest(&mut from.take(of.size), &mut io::sink())
            .map(|(digest, _)| digest)
            .map_err(file("read", &self.path))
    }
}

/// Copies; SHA-256 of the bytes, and how many.
fn digest(from: &mut impl Read, to: &mut impl Write) -> io::Result<([u8; 32], u64)> {
    let (mut sum, mut size) = (Sha256::new(), 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok((sum.finalize().into(), size)),
            Ok(n) => {
                sum.update(&buffer[..n]);
                to.write_all(&buffer[..n])?;
                size += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn check(path: &Path) -> Result<u8> {
    let image = Image::open(path)?;
    let files = image.sorted();
    let (mut bytes, mut bad) = (0u64, 0);
    for file in files.values() {
        bytes = bytes.saturating_add(file.size);
        if image.digest(file)? != *file.digest {
            eprintln!(
                "unilith: {}: {} has other bytes than its digest says",
                path.display(),
                String::from_utf8_lossy(file.name)
            );
            bad += 1;
        }
    }
    if bad > 0 {
        return Err(damaged(path, format!("{bad} of {} files are damaged", files.len())));
    }
    say!("{}: {} files, {bytes} bytes, all as their digests say", path.display(), files.len());
    Ok(0)
}

/// The regular files below a directory, by their names in the image. Links lead to files, and to directories that are none of
/// those they are in.
fn gather(directory: &Path) -> Result<BTreeMap<Vec<u8>, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![directory.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(file("read", &folder))? {
            let path = entry.map_err(file("read", &folder))?.path();
            let kind = path.symlink_metadata().map_err(file("read", &path))?.file_type();
            if kind.is_dir() {
                folders.push(path);
                continue;
            }
            let is_file = kind.is_file() || kind.is_symlink() && path.is_file();
            if !is_file {
                return Err(damaged(
                    &path,
                    "an image has files alone; take this out of the directory (it is neither a file nor a link to one)",
                ));
            }
            let name = path.strip_prefix(directory).unwrap_or(&path).as_os_str().as_bytes().to_vec();
            found.insert(name, path);
        }
    }
    Ok(found)
}

fn make(image: &Path, directory: &Path) -> Result<u8> {
    let files = gather(directory)?;
    let mut contents = Vec::new();
    for (name, path) in &files {
        let mut from = File::open(path).map_err(file("read", path))?;
        let (digest, size) = digest(&mut from, &mut io::sink()).map_err(file("read", path))?;
        contents.push(Content { name: name.clone(), size, digest });
    }
    let plan = shfs::make(&contents).map_err(|why| damaged(directory, why))?;
    // Under another name until it is whole.
    let folder = match image.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(file("write in", folder))?;
    {
        let mut to = BufWriter::new(new.as_file_mut());
        let written = file("write", image);
        to.write_all(&plan.head).map_err(written)?;
        let mut next = plan.head.len() as u64;
        for ((content, path), first) in contents.iter().zip(files.values()).zip(&plan.first_blocks) {
            // The same bytes are there already.
            if first * BLOCK as u64 != next || content.size == 0 {
                continue;
            }
            let mut from = File::open(path).map_err(file("read", path))?;
            let again =
                digest(&mut from, &mut to).map_err(|e| damaged(path, format!("cannot copy it: {e}")))?;
            if again != (content.digest, content.size) {
                return Err(damaged(path, "it has changed meanwhile; make the image again"));
            }
            let end = (next + content.size).next_multiple_of(BLOCK as u64);
            let rest = (end - next - content.size) as usize;
            to.write_all(&[0; BLOCK][..rest]).map_err(file("write", image))?;
            next = end;
        }
        to.flush().map_err(file("write", image))?;
    }
    let readable = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    new.as_file().set_permissions(readable).map_err(file("write", image))?;
    new.persist(image).map_err(|e| file("write", image)(e.error))?;
    let bytes: u64 = contents.iter().map(|content| content.size).sum();
    let (count, size) = (contents.len(), plan.blocks * BLOCK as u64);
    say!("{}: {count} files, {bytes} bytes in an image of {size}", image.display());
    Ok(0)
}
