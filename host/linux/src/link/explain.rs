// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the linker said, in one line that says what to do.

use super::kernel;
use object::read::archive::ArchiveFile;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// Names shown; a list of a hundred helps nobody.
const SHOWN: usize = 8;

/// The names of undefined symbols.
pub fn undefined(messages: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let (_, rest) = line.split_once("undefined reference to `")?;
        Some(rest.split('\'').next()?.to_string())
    };
    messages.lines().filter_map(name).collect()
}

/// The undefined symbols that are the kernel's.
pub fn wanted_of_kernel(messages: &str) -> Vec<String> {
    undefined(messages).into_iter().filter(|name| name.starts_with(kernel::PREFIX)).collect()
}

/// Why a link failed. `libraries` is the folder of the C library.
pub fn failure(messages: &str, libraries: &Path) -> String {
    let names = undefined(messages);
    if !names.is_empty() {
        return undefined_line(&names, libraries);
    }
    if let Some((_, text)) = messages.split_once("unilith: ") {
        return text.lines().next().unwrap_or(text).into();
    }
    for line in messages.lines() {
        if line.contains("relocation truncated to fit") || line.contains("relocation R_X86_64_32") {
            let object = line.split(':').next().unwrap_or(line);
            return format!(
                "{object} was compiled for a fixed place in the lower half: compile it with -fPIE, as `unilith linux cc` does"
            );
        }
        if let Some((_, rest)) = line.split_once("multiple definition of `") {
            let name = rest.split('\'').next().unwrap_or(rest);
            return format!("{name} is defined twice: {}", line.trim_start_matches("/usr/bin/ld: "));
        }
        if line.contains("cannot find ") {
            return line.rsplit_once("ld: ").map_or(line, |(_, text)| text).into();
        }
    }
    let line = messages.lines().find(|l| l.contains("error")).or(messages.lines().last());
    line.unwrap_or("the compiler gave no reason").into()
}

fn undefined_line(names: &BTreeSet<String>, libraries: &Path) -> String {
    let mut homes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (library, symbols) in archives(libraries) {
        let has: Vec<_> = names.iter().map(String::as_str).filter(|n| symbols.contains(*n)).collect();
        if !has.is_empty() {
            homes.insert(library, has);
        }
    }
    let shown: Vec<_> = names.iter().take(SHOWN).map(String::as_str).collect();
    let more = names.len().saturating_sub(SHOWN);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    let mut text = format!("undefined: {}{more}", shown.join(", "));
    // The library that has most of them first.
    let mut homes: Vec<_> = homes.into_iter().collect();
    homes.sort_by_key(|(_, has)| std::cmp::Reverse(has.len()));
    match homes.first() {
        Some((library, has)) => {
            text += &format!(
                "; -l{library} has {}",
                has.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ")
            );
        }
        None => text += &format!("; no static library in {} has them", libraries.display()),
    }
    text
}

/// Static libraries in a folder: the names for `-l`, and the symbols each defines.
fn archives(folder: &Path) -> Vec<(String, BTreeSet<String>)> {
    let mut out = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(name) = name.strip_prefix("lib").and_then(|n| n.strip_suffix(".a")) else { continue };
        let Ok(bytes) = fs::read(entry.path()) else { continue };
        let Ok(archive) = ArchiveFile::parse(&*bytes) else { continue };
        let Ok(Some(symbols)) = archive.symbols() else { continue };
        let names = symbols.flatten().map(|s| String::from_utf8_lossy(s.name()).into_owned());
        out.push((name.to_string(), names.collect()));
    }
    out
}

/// What the linker only warns of, but does not work here: an error, and what works less than it seems: a warning.
pub fn warnings(messages: &str) -> Result<Option<String>, String> {
    if let Some(line) = messages.lines().find(|l| l.contains("executable stack")) {
        let object = line.split("warning: ").nth(1).and_then(|l| l.split(':').next()).unwrap_or(line);
        return Err(format!(
            "{object} wants an executable stack, which a program that is linked into the kernel does not have; \
             if it does not use one, add -Wa,--noexecstack where it is assembled"
        ));
    }
    let dlopen = messages.lines().any(|l| l.contains("Using 'dlopen'"));
    Ok(dlopen.then(|| "it calls dlopen: libraries that it loads will not find the program's symbols".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undefined_symbols_are_named_with_the_library_that_has_them() {
        let messages = "a.o: in function `f':\na.c:(.text+1): undefined reference to `deflate'\n\
                        a.c:(.text+9): undefined reference to `deflate'\nb: undefined reference to `linux.x'\n";
        assert_eq!(undefined(messages).into_iter().collect::<Vec<_>>(), ["deflate", "linux.x"]);
        assert_eq!(wanted_of_kernel(messages), ["linux.x"]);
        let line = failure("x: undefined reference to `deflate'", Path::new("/nowhere"));
        assert_eq!(line, "undefined: deflate; no static library in /nowhere has them");
    }

    #[test]
    fn other_failures_say_what_to_do() {
        let folder = Path::new("/nowhere");
        let text = "ld: unilith: more text than the 16 MB of its place\n";
        assert_eq!(failure(text, folder), "more text than the 16 MB of its place");
        let text = "x.o: in function `f':\nx.o:(.text+0x1): relocation truncated to fit: R_X86_64_32 against `.text'";
        assert!(failure(text, folder).starts_with("x.o was compiled for a fixed place"));
        let text = "/usr/bin/ld: b.o:(.data+0x8): multiple definition of `f'; a.o:(.data+0x0): first defined here\ncollect2: error: ld";
        assert_eq!(
            failure(text, folder),
            "f is defined twice: b.o:(.data+0x8): multiple definition of `f'; a.o:(.data+0x0): first defined here"
        );
        assert!(
            warnings("ld: warning: x.o: requires executable stack (because")
                .unwrap_err()
                .starts_with("x.o wants")
        );
        assert!(warnings("x: warning: Using 'dlopen' in statically").unwrap().unwrap().contains("dlopen"));
        assert_eq!(warnings("x: warning: Using 'getaddrinfo' in"), Ok(None));
    }
}
