// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of system-call sites (`api-sites`), found once for each file that was ever seen.

use crate::{Cache, Result, cache::digest, mark::mark};
use std::{
    fs::{self, File},
    io::Read,
};

/// Files that are longer are no programs anybody has; reading one must not take the memory of who asks.
const MAX_FILE: u64 = 1 << 30;

/// The encoded table of one file; empty when there is nothing to say about it.
pub fn table(cache: &Cache, bytes: &[u8]) -> Result<Vec<u8>> {
    let folder = format!("sites-{}", unilith_rewrite::VERSION);
    let name = digest(bytes);
    if let Ok(known) = fs::read(cache.folder().join(&folder).join(&name))
        && is_table(&known)
    {
        return Ok(known);
    }
    // A file that cannot be analysed runs all the same: its system calls trap.
    let sites = unilith_rewrite::scan(bytes).map(|scan| scan.sites).unwrap_or_default();
    let table = if sites.is_empty() { Vec::new() } else { api_sites::encode(&sites) };
    cache.put(&folder, &name, &table)?;
    Ok(table)
}

/// What was kept is not damaged.
fn is_table(kept: &[u8]) -> bool {
    kept.is_empty() || api_sites::Sites::parse(kept).is_some()
}

/// The same of a file that is open; empty as well where it cannot be read or kept, for then its system calls trap.
pub fn table_of(cache: &Cache, file: &File) -> Vec<u8> {
    let files = format!("sites-files-{}", unilith_rewrite::VERSION);
    // A container's programs are asked about at each of its starts, in a file system with a number of its own.
    let mark = file.metadata().ok().and_then(|meta| mark(&meta));
    let known = mark.as_ref().and_then(|mark| fs::read(cache.folder().join(&files).join(mark)).ok());
    if let Some(table) = known.filter(|table| is_table(table)) {
        return table;
    }
    let table = read_and_scan(cache, file);
    if let Some(mark) = mark {
        // Without it the file is read again.
        let _ = cache.put(&files, &mark, &table);
    }
    table
}

fn read_and_scan(cache: &Cache, file: &File) -> Vec<u8> {
    const MAGIC: &[u8] = b"\x7fELF";
    let mut bytes = Vec::new();
    let mut file = file.take(MAX_FILE);
    let is_elf = file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut bytes).is_ok() && bytes == MAGIC;
    if !is_elf || file.read_to_end(&mut bytes).is_err() || file.limit() == 0 {
        return Vec::new();
    }
    table(cache, &bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_have_tables_and_a_table_is_made_once() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("cache"));
        let text = folder.path().join("text");
        fs::write(&text, "no program").unwrap();
        assert!(table_of(&cache, &File::open(&text).unwrap()).is_empty());
        // The C library that this test runs on.
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let library =
            maps.lines().find_map(|line| line.split(' ').next_back().filter(|p| p.ends_with("/libc.so.6")));
        let library = || File::open(library.unwrap()).unwrap();
        let found = table_of(&cache, &library());
        assert!(
            api_sites::Sites::parse(&found).is_some_and(|sites| !sites.is_empty()),
            "it makes system calls"
        );
        assert_eq!(table_of(&cache, &library()), found);
        // Known without being read: one that is damaged is made again.
        let files = cache.folder().join(format!("sites-files-{}", unilith_rewrite::VERSION));
        let marks: Vec<_> = fs::read_dir(&files).unwrap().map(|entry| entry.unwrap().path()).collect();
        let [mark] = &marks[..] else { panic!("the text is too young to be known by its times: {marks:?}") };
        assert_eq!(fs::read(mark).unwrap(), found);
        fs::write(mark, "damaged").unwrap();
        assert_eq!(table_of(&cache, &library()), found);
    }
}
