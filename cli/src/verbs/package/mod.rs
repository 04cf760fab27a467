// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith package`: this command as a Debian package, with the kernels of the default choices, and that of containers, in it.
//!
//! The same commit, built by the same toolchain in the same place, gives the same bytes: times are the commit's
//! (`SOURCE_DATE_EPOCH` where that is set), files of the catalogue are those that git knows, modes are the package's.

mod about;
mod licences;
mod pages;
mod stage;

use crate::{
    fault::{Fault, Result, file},
    installed, kernel,
    output::say,
    progress::Progress,
    repository,
};
use about::Commit;
use stage::Stage;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use unilith_machine::{qemu, record::Platform};

/// Where documents of a package are.
const DOCUMENTS: &str = "usr/share/doc/unilith";

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "unilith.deb")]
    output: PathBuf,
}

pub fn act<C: clap::CommandFactory>(args: &Args) -> Result<u8> {
    let root = repository::sources("unilith package")?;
    let folder = args.output.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        let (output, folder) = (args.output.display(), folder.display());
        return Err(Fault::new(format!("--output {output}: there is no directory {folder}")));
    }
    let commit = Commit::of(&root)?;
    let stage = Stage::new(&root.join("target"))?;
    let progress = Progress::new();
    for (platform, features) in kernel::packaged_features()? {
        add_kernel(&stage, &root, platform, &features, &progress)?;
    }
    drop(progress);
    add_commands(&stage, &root)?;
    add_catalogue(&stage, &root)?;
    pages::add(&stage, C::command(), &commit)?;
    let document = |name: &str| format!("{DOCUMENTS}/{name}");
    stage.put(&document("copyright"), about::copyright(&root)?.as_bytes())?;
    stage.put_compressed(&document("changelog.gz"), about::changelog(&commit).as_bytes())?;
    stage.put_compressed(&document("third-party-licences.gz"), licences::text(&root)?.as_bytes())?;
    let control = about::control(&commit, &about::libraries(&stage)?, stage.kibibytes()?);
    stage.put("DEBIAN/control", control.as_bytes())?;
    stage.build(&args.output, commit.epoch)?;
    say!("{}", args.output.display());
    Ok(0)
}

/// A kernel with the features it was built with, in a directory named by the hash of its files.
fn add_kernel(
    stage: &Stage,
    root: &Path,
    platform: Platform,
    features: &[&str],
    progress: &Progress,
) -> Result<()> {
    let kernel = kernel::of_checkout(root, platform, features, progress)?;
    let mut files = vec![("kernel", kernel.boot.clone()), ("kernel.symbols", kernel.symbols)];
    let tools = qemu::tools_of(&kernel.boot);
    if tools.is_file() {
        files.push(("kernel.overlay", tools));
    }
    let mut contents = Vec::new();
    for (name, path) in files {
        contents.push((name, fs::read(&path).map_err(file("read", &path))?));
    }
    let hash = kernel::hash(contents.iter().map(|(_, bytes)| bytes.as_slice()));
    let folder = format!("usr/{}/{hash}", installed::KERNELS);
    for (name, bytes) in &contents {
        // A process machine executes its kernel.
        let put = if *name == "kernel" { Stage::put_program } else { Stage::put };
        put(stage, &format!("{folder}/{name}"), bytes)?;
    }
    stage.put(&format!("{folder}/{}", installed::FEATURES), format!("{}\n", features.join(",")).as_bytes())
}

/// The command, without symbols as Debian's programs are, and the container runtime.
fn add_commands(stage: &Stage, root: &Path) -> Result<()> {
    let me =
        std::env::current_exe().map_err(|e| Fault::new(format!("cannot find my own executable: {e}")))?;
    let read = |path: &Path| fs::read(path).map_err(file("read", path));
    stage.put_program("usr/bin/unilith", &read(&me)?)?;
    let mut strip = Command::new("strip");
    strip.args(["--strip-unneeded", "--remove-section=.comment", "--remove-section=.note"]);
    run(strip.arg(stage.path("usr/bin/unilith")), "binutils")?;
    stage.put_program("usr/bin/unilith-runc", &read(&root.join("unilith-runc"))?)
}

fn add_catalogue(stage: &Stage, root: &Path) -> Result<()> {
    let mut list = Command::new("git");
    let listed = run(list.current_dir(root).args(["ls-files", "-z", "--", "apps"]), "git")?;
    let mut count = 0;
    for name in listed.split('\0').filter(|name| !name.is_empty()) {
        let path = root.join(name);
        let bytes = fs::read(&path).map_err(file("read", &path))?;
        let within = name.strip_prefix("apps/").unwrap_or(name);
        stage.put(&format!("usr/{}/{within}", installed::CATALOGUE), &bytes)?;
        count += 1;
    }
    if count == 0 {
        return Err(Fault::new(format!("git knows no files of the catalogue in {}", root.display())));
    }
    Ok(())
}

/// Runs a tool of a Debian package to its end; what it printed. What it complains of is the error.
fn run(command: &mut Command, package: &str) -> Result<String> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Fault::new(format!("cannot run {tool}: {e}; as root: apt-get install -y {package}")))?;
    if !output.status.success() {
        return Err(Fault::new(format!("{tool}: {}", String::from_utf8_lossy(&output.stderr).trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
