// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith check`: which system calls a program and its libraries can make, and what the micro kernel has of them.

use crate::{
    cache::Cache,
    cpio, elf,
    error::{ErrorKind, ImageError, Result, fail},
    gather::gather,
    libraries,
    request::{Image, Progress, Request},
};
use std::{fs, path::Path};
use syscall_table::Status;

/// One system call that the program can make.
#[derive(Clone, Debug)]
pub struct Need {
    pub number: u32,
    pub name: String,
    pub status: Status,
    /// What is missing or why it is refused; empty where all is there.
    pub note: String,
    /// Some of the functions that make it: `libc.so.6: openat`.
    pub callers: Vec<String>,
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Report {
    pub image: Image,
    /// In ascending order of number.
    pub needs: Vec<Need>,
    /// Functions that make calls whose number the code computes: those are not among the needs.
    pub computed: Vec<String>,
    /// The files that were looked at: the program, then its libraries.
    pub files: Vec<String>,
}

impl Report {
    pub fn of(&self, status: Status) -> impl Iterator<Item = &Need> {
        self.needs.iter().filter(move |n| n.status == status)
    }
}

/// Gathers the program and looks at its code. Libraries that it only loads by name while it runs are not seen.
pub fn check(request: &Request, cache: &Cache, progress: &dyn Progress) -> Result<Report> {
    let image = gather(request, cache, progress)?;
    progress.step("reading the code");
    let bytes = fs::read(&image.root).map_err(|e| ImageError::io("read", &image.root, &e))?;
    let tree = cpio::read(&bytes, &image.root.display().to_string())?;
    let path = Path::new(image.config.args.first().map_or("", String::as_str));
    let Some((real, content)) = tree.file(path) else {
        fail!(NotFound, "{}: no {} in the image", image.name, path.display());
    };
    let program = content.read()?;
    let parsed = elf::program(&program, &path.display().to_string())?;
    let mut closure = libraries::closure(&tree, &real, &parsed)?.files;
    // The linker searches the libraries first and itself last.
    if parsed.interpreter.is_some() && !closure.is_empty() {
        closure.rotate_left(1);
    }
    let short = |p: &Path| p.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut objects = vec![unilith_rewrite::Object { name: short(path), bytes: &program }];
    objects.extend(closure.iter().map(|n| unilith_rewrite::Object { name: short(&n.path), bytes: &n.bytes }));
    let found = unilith_rewrite::needs(&objects).map_err(|e| {
        ImageError::new(ErrorKind::Corrupt, format!("{}: its code cannot be read: {e}", image.name))
    })?;
    let needs = found.calls.into_iter().map(|(number, callers)| {
        let row = syscall_table::row(number.into());
        Need {
            number: number.into(),
            name: row.map_or_else(|| format!("number {number}"), |r| r.name.to_string()),
            status: row.map_or(Status::Missing, |r| r.status),
            note: row.map_or("no such call in Linux' table", |r| r.note).to_string(),
            callers: callers.into_iter().collect(),
        }
    });
    Ok(Report {
        needs: needs.collect(),
        computed: found.computed.into_iter().collect(),
        files: objects.into_iter().map(|o| o.name).collect(),
        image,
    })
}
