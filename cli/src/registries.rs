// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images of registries: which one a name means, from the store of this user or from its registry.

use crate::{
    fault::{Fault, Result},
    prepare, progress,
};
use unilith_image::{Pull, Stored};
use unilith_registry::{ErrorKind, Name, Record, Registries};

/// The folder of the cache.
const FOLDER: &str = "oci";

/// Registries as this user has them configured, with the images of this user.
pub fn registries() -> Result<Registries> {
    Ok(Registries::of_user(prepare::cache()?.folder().join(FOLDER))?)
}

/// Progress as `unilith-registry` tells it.
pub struct Shown<'a>(pub &'a dyn unilith_image::Progress);

impl unilith_registry::Progress for Shown<'_> {
    fn step(&self, text: &str) {
        self.0.step(text);
    }

    fn advance(&self, done: u64, total: u64) {
        self.0.advance(done, total);
    }
}

/// What writes the images of an engine's own store into a file.
const ENGINES: [(&str, &str); 5] = [
    ("podman:", "podman save --format oci-archive -o image.tar"),
    ("containers-storage:", "podman save --format oci-archive -o image.tar"),
    ("docker-daemon:", "docker save -o image.tar"),
    ("docker:", "docker save -o image.tar"),
    ("containerd:", "ctr images export image.tar"),
];

/// The name of an image of a registry.
fn name(text: &str) -> Result<Name> {
    let of_engine = |(prefix, save): &(&str, &'static str)| Some((text.strip_prefix(prefix)?, *save));
    match ENGINES.iter().find_map(of_engine) {
        Some((image, save)) if !image.starts_with("//") => Err(Fault::new(format!(
            "{text}: images that an engine has are taken from a file: `{save} {image}`, then `unilith run oci:image.tar`"
        ))),
        _ => Ok(Name::parse(text)?),
    }
}

/// The image of a name, for `unilith-image`.
pub fn find(
    name: &str,
    when: Pull,
    progress: &dyn unilith_image::Progress,
) -> std::result::Result<Stored, String> {
    let found = find_or_pull(name, when, progress);
    found.map_err(|fault| fault.message)
}

fn find_or_pull(text: &str, when: Pull, progress: &dyn unilith_image::Progress) -> Result<Stored> {
    let registries = registries()?;
    let name = name(text)?;
    let stored = |record: Record, notes| Stored {
        name: name.short().to_string(),
        folder: registries.store.folder().to_path_buf(),
        manifest: record.manifest,
        notes,
    };
    if when != Pull::Always
        && let Some(record) = registries.store.find(&name.to_string())
    {
        return Ok(stored(record, Vec::new()));
    }
    if when == Pull::Never {
        let why = format!("{name} is not on this computer: `unilith pull {text}` gets it");
        return Err(unilith_registry::RegistryError { kind: ErrorKind::NotFound, message: why }.into());
    }
    let pulled = registries.pull(&name, &Shown(progress))?;
    Ok(stored(pulled.record, pulled.notes))
}

/// Gets an image and says where what was got came from.
pub fn pull(text: &str, progress: &progress::Progress) -> Result<unilith_registry::Pulled> {
    Ok(registries()?.pull(&name(text)?, &Shown(progress))?)
}
