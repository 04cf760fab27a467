// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The image that a word of the command line names, with its symbols: one that was built, a machine's, or that of a program,
//! which is built first if need be.

use crate::{
    fault::{Fault, Result, file},
    line::Program,
    prepare::{self, Flags},
};
use std::{fs, path::Path};
use unilith_machine::{record::KernelKind, store::Store};
use unilith_static::anatomy::{Anatomy, Kind};

const NO_LINUX: &str =
    "only the micro kernel is made of micro-libraries; leave --kernel linux and its images out";

/// Makes the directory that `unilith build` writes to, unless what is there was not made by it: `mark` is the name of a file that it
/// writes.
pub fn directory(folder: &Path, mark: &str) -> Result<()> {
    if fs::read_dir(folder).is_ok_and(|mut d| d.next().is_some()) && !folder.join(mark).is_file() {
        return Err(Fault::new(format!(
            "{} is not empty and was not made by `unilith build`; choose another with -o",
            folder.display()
        )));
    }
    fs::create_dir_all(folder).map_err(file("make", folder))
}

/// What an image's verbs are asked about.
#[derive(clap::Args, Clone, Debug)]
pub struct Wanted {
    /// A program, as for `run`, whose kernel is meant as these flags choose it (none: the project here); or a directory that
    /// `unilith build` wrote, a kernel.symbols, or a machine
    #[arg(value_name = "IMAGE|PROGRAM")]
    image: Option<String>,
    #[command(flatten)]
    flags: Flags,
}

/// An image with symbols.
pub struct Image {
    /// What it is, for titles.
    pub title: String,
    pub anatomy: Anatomy,
    /// Bytes of the file that boots, with headers and the space between sections.
    pub file: u64,
    /// Bytes of the root file system, which comes beside it.
    pub root: Option<u64>,
}

impl Wanted {
    /// Finds the image, or builds it.
    pub fn find(&self, store: &Store) -> Result<Image> {
        let named = self.image.as_deref().unwrap_or_default();
        let path = Path::new(named);
        if self.flags.kernel == KernelKind::Linux {
            return Err(Fault::new(NO_LINUX));
        }
        if path.is_dir() && path.join("run.sh").is_file() {
            let symbols = path.join("kernel.symbols");
            if !symbols.is_file() {
                return Err(Fault::new(format!(
                    "{named} has no kernel.symbols: `unilith build` writes it for every image of the micro kernel; \
                     build it again"
                )));
            }
            return read(named, &symbols, &path.join("kernel"), Some(&path.join("root.cpio")));
        }
        if path.is_file() {
            match Kind::of(&fs::read(path).map_err(file("read", path))?) {
                Kind::Kernel => return read(named, path, path, None),
                Kind::Stripped => {
                    return Err(Fault::new(format!(
                        "{named} is a kernel without the names of its parts, as it boots: ask about the directory that \
                         `unilith build` wrote, or about its kernel.symbols"
                    )));
                }
                Kind::OtherKernel => return Err(Fault::new(format!("{named}: {NO_LINUX}"))),
                // A program, or a file that `run` knows: an image is built for it.
                Kind::Program | Kind::Other => {}
            }
        }
        let is_machine = self.image.is_some() && !named.contains(['/', ':']);
        if is_machine && let Ok(machine) = store.find(named) {
            let spec = &machine.spec;
            if spec.kernel_kind == KernelKind::Linux {
                return Err(Fault::new(format!("machine {named}: {NO_LINUX}")));
            }
            let symbols = spec.symbols.clone().unwrap_or_else(|| spec.kernel.clone());
            return read(&format!("machine {named}"), &symbols, &spec.kernel, Some(&spec.initrd));
        }
        let program = Program { name: self.image.clone(), words: Vec::new() };
        let spec = prepare::prepare(&self.flags, &program)?;
        let symbols = spec.symbols.clone().unwrap_or_else(|| spec.kernel.clone());
        let how = if self.flags.r#static { "linked with its kernel" } else { "and its kernel" };
        let platform = serde_json::to_value(spec.platform).ok();
        let platform = platform.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default();
        let title = format!("{} {how}, --machine {platform}", spec.program);
        read(&title, &symbols, &spec.kernel, Some(&spec.initrd))
    }
}

fn read(title: &str, symbols: &Path, boot: &Path, root: Option<&Path>) -> Result<Image> {
    let bytes = fs::read(symbols).map_err(file("read", symbols))?;
    let anatomy = Anatomy::of(&bytes).map_err(|e| Fault::new(format!("{}: {e}", symbols.display())))?;
    let length = |path: &Path| fs::metadata(path).map(|m| m.len()).map_err(file("read", path));
    Ok(Image { title: title.into(), anatomy, file: length(boot)?, root: root.map(length).transpose()? })
}

/// Writes what was drawn; `-` is standard output.
pub fn write(path: &Path, text: &str) -> Result<()> {
    if path.as_os_str() == "-" {
        crate::output::line(format_args!("{}", text.trim_end()));
        return Ok(());
    }
    fs::write(path, text).map_err(file("write", path))?;
    eprintln!("unilith: {} is written", path.display());
    Ok(())
}
