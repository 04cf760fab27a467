// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith volume`: directories of this host that have a name, for `-v NAME:/path`.

use crate::{
    fault::{Fault, Result, file},
    names,
    output::say,
};
use serde::Serialize;
use std::{
    fs, io,
    path::{Path, PathBuf},
};
use unilith_machine::{
    dirs,
    record::{Mount, Spec},
    store::Store,
};

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum What {
    /// List volumes
    Ls {
        /// Only names
        #[arg(short, long)]
        quiet: bool,
    },
    /// Make volumes; `run -v NAME:/path` does so too
    Create {
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Where volumes are, and which machines have them, as JSON
    Inspect {
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Remove the volumes that no machine has, not even one that has ended, and that were given no name
    Prune {
        /// Also those with a name
        #[arg(short, long)]
        all: bool,
        /// Accepted for docker's users: nothing is asked
        #[arg(short, long, hide = true)]
        force: bool,
    },
    /// Remove volumes with all that is in them
    Rm {
        #[arg(required = true)]
        names: Vec<String>,
    },
}

#[derive(Serialize)]
struct Volume {
    name: String,
    mountpoint: PathBuf,
    /// Machines that have it, ended ones too.
    machines: Vec<String>,
}

fn folder() -> Result<PathBuf> {
    Ok(dirs::data()?.join("volumes"))
}

/// The directory of a volume, made where it is not there yet.
pub fn make(name: &str) -> Result<PathBuf> {
    if !names::is_valid(name) {
        return Err(Fault::new(format!(
            "volume {name}: a name begins with a letter or digit and has letters, digits, _ . - only"
        )));
    }
    let path = folder()?.join(name);
    fs::create_dir_all(&path).map_err(file("make", &path))?;
    Ok(path)
}

/// Directories of volumes that go away again unless they are kept.
pub struct Begun(Vec<PathBuf>);

impl Begun {
    /// The machine that has them is there.
    pub fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        for path in &self.0 {
            // The error that brought this about is the one to be told.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Makes the volumes that an image declares, with what it has in their places, as docker does.
pub fn make_anonymous(spec: &mut Spec) -> Result<Begun> {
    let mut begun = Begun(Vec::new());
    if spec.anonymous.is_empty() {
        return Ok(begun);
    }
    let image = unilith_snapshot::Image::open(&spec.initrd)?;
    for volume in &spec.anonymous {
        let path = make(&volume.name)?;
        let path = path.canonicalize().map_err(file("use", &path))?;
        begun.0.push(path.clone());
        image.populate(volume.guest.as_bytes(), &path)?;
        spec.volumes.push(Mount::new(path, volume.guest.clone(), false));
    }
    Ok(begun)
}

/// Whether there is a volume of this name.
pub fn exists(name: &str) -> Result<bool> {
    Ok(names::is_valid(name) && folder()?.join(name).is_dir())
}

fn find(store: &Store, name: &str) -> Result<Volume> {
    let mountpoint = folder()?.join(name);
    if !names::is_valid(name) || !mountpoint.is_dir() {
        return Err(Fault::new(format!("there is no volume `{name}`; `unilith volume ls` lists them")));
    }
    let machines = store.list()?;
    let uses = machines.iter().filter(|m| m.spec.volumes.iter().any(|v| same(&v.host, &mountpoint)));
    Ok(Volume { name: name.into(), machines: uses.map(|m| m.spec.name.clone()).collect(), mountpoint })
}

fn same(a: &Path, b: &Path) -> bool {
    a == b || b.canonicalize().is_ok_and(|b| a == b)
}

fn all() -> Result<Vec<String>> {
    let path = folder()?;
    let entries = match fs::read_dir(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(file("read", &path))?,
    };
    let mut names: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    Ok(names)
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    match &args.what {
        What::Ls { quiet: true } => all()?.iter().for_each(|name| say!("{name}")),
        What::Ls { quiet: false } => {
            let mut rows = vec![["NAME", "MACHINES", "DIRECTORY"].map(String::from).to_vec()];
            for name in all()? {
                let volume = find(store, &name)?;
                rows.push(vec![
                    volume.name,
                    volume.machines.join(", "),
                    volume.mountpoint.display().to_string(),
                ]);
            }
            super::print_table(&rows);
        }
        What::Create { names } => {
            return super::for_each_name(names, |name| {
                make(name)?;
                say!("{name}");
                Ok(())
            });
        }
        What::Inspect { names } => {
            let mut found = Vec::new();
            let code = super::for_each_name(names, |name| {
                found.push(find(store, name)?);
                Ok(())
            });
            super::print_json(&found)?;
            return code;
        }
        What::Prune { all: named, .. } => {
            for name in all()? {
                let volume = find(store, &name)?;
                if volume.machines.is_empty() && (*named || names::is_of_volume(&name)) {
                    fs::remove_dir_all(&volume.mountpoint).map_err(file("remove", &volume.mountpoint))?;
                    say!("{name}");
                }
            }
        }
        What::Rm { names } => {
            return super::for_each_name(names, |name| {
                let volume = find(store, name)?;
                if let Some(machine) = volume.machines.first() {
                    return Err(Fault::new(format!(
                        "volume {name} is machine {machine}'s: remove that first, unilith rm {machine}"
                    )));
                }
                fs::remove_dir_all(&volume.mountpoint).map_err(file("remove", &volume.mountpoint))?;
                say!("{name}");
                Ok(())
            });
        }
    }
    Ok(0)
}
