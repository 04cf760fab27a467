// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ELF files, directories and settings files of this machine, good and bad.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};
use unilith_image::{
    Base, Cache, Catalogue, ErrorKind, Image, ImageError, Linked, Quiet, Reference, Request, gather,
};

fn run(reference: &str, words: &[&str]) -> Result<Image, ImageError> {
    run_in(tempfile::tempdir().unwrap().path(), reference, words)
}

fn run_in(cache: &Path, reference: &str, words: &[&str]) -> Result<Image, ImageError> {
    let catalogue = Catalogue::open("/nonexistent");
    let mut request = Request::new(Reference::parse(reference, &catalogue)?, catalogue);
    request.words = words.iter().map(|w| w.to_string()).collect();
    let image = gather(&request, &Cache::new(cache), &Quiet)?;
    let size = fs::metadata(&image.root).unwrap().len();
    assert_eq!(size, image.size);
    Ok(image)
}

fn put(path: &Path, bytes: &[u8], mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// This test's own binary: a dynamic program of this machine.
fn own() -> Vec<u8> {
    fs::read(std::env::current_exe().unwrap()).unwrap()
}

#[test]
fn a_program_comes_with_its_libraries_and_always_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prog");
    put(&path, &own(), 0o755);
    let first = run(path.to_str().unwrap(), &["a", "-b"]).unwrap();
    assert_eq!(first.config.args, ["/app/prog", "a", "-b"]);
    assert_eq!((first.config.cwd.as_str(), first.config.uid, first.config.stop_signal), ("/", 0, 15));
    assert_eq!(first.name, "prog");
    assert_eq!(run(path.to_str().unwrap(), &[]).unwrap().digest, first.digest);
}

#[test]
fn a_program_that_speaks_tls_comes_with_the_certificates_of_this_machine() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prog");
    // No name of a file of the archive is in it.
    let program = fs::read("/usr/bin/true").unwrap();
    put(&path, &[&program[..], b"/etc/ssl/certs/"].concat(), 0o755);
    let has = |base: Base| {
        let catalogue = Catalogue::open("/nonexistent");
        let reference = Reference::parse(path.to_str().unwrap(), &catalogue).unwrap();
        let request = Request { base: Some(base), ..Request::new(reference, catalogue) };
        let image = gather(&request, &Cache::new(folder.path().join("cache")), &Quiet).unwrap();
        let archive = fs::read(&image.root).unwrap();
        ["etc/ssl/certs/ca-certificates.crt\0", "etc/ssl/cert.pem\0"]
            .map(|name| archive.windows(name.len()).any(|w| w == name.as_bytes()))
    };
    let here = Path::new("/etc/ssl/certs/ca-certificates.crt").is_file();
    assert_eq!((has(Base::Auto), has(Base::None)), ([here; 2], [false; 2]));
}

#[test]
fn what_cannot_run_says_why_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let name = path.to_str().unwrap();
    let good = own();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        bytes
    };
    for (bytes, part) in [
        (vec![], "an empty file"),
        (b"hello\n".to_vec(), "a text file"),
        (b"#!/bin/sh\n".to_vec(), "a script for /bin/sh"),
        (vec![0, 1, 2, 3], "a data file"),
        (with(4, 1), "32-bit"),
        (with(5, 2), "big-endian"),
        (with(18, 183), "64-bit ARM"),
        (with(18, 243), "RISC-V"),
        (with(16, 1), "an object file"),
        (with(16, 4), "a core dump"),
        (with(27, 0x7f), "entry point"),
        (good[..5000].to_vec(), "truncated"),
        (good[..10].to_vec(), "truncated"),
        (good[..60].to_vec(), "damaged"),
    ] {
        put(&path, &bytes, 0o755);
        let error = run(name, &[]).expect_err(part);
        assert!(error.message.contains(part) && !error.message.contains('\n'), "{part}: {error}");
    }
    for (reference, kind) in [
        ("/nonexistent/prog", ErrorKind::NotFound),
        ("dir:/nonexistent", ErrorKind::NotFound),
        ("oci:/nonexistent", ErrorKind::NotFound),
        ("debian:", ErrorKind::NotFound),
        ("debian:-o=x", ErrorKind::NotFound),
        ("oci:/etc", ErrorKind::NotRunnable),
        ("/etc/passwd", ErrorKind::NotRunnable),
    ] {
        assert_eq!(run(reference, &[]).unwrap_err().kind, kind, "{reference}");
    }
}

#[test]
fn a_library_is_not_a_program() {
    let library = "/lib/x86_64-linux-gnu/libm.so.6";
    if !Path::new(library).exists() {
        eprintln!("skipped: no {library} on this machine");
        return;
    }
    assert!(run(library, &[]).unwrap_err().message.contains("a shared library"));
}

#[test]
fn a_program_whose_library_is_missing_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let mut bytes = own();
    // The name is in the dynamic string table; any other of the same length will not be there.
    let at = bytes.windows(9).position(|w| w == b"libc.so.6").unwrap();
    bytes[at..at + 9].copy_from_slice(b"libq.so.6");
    put(&path, &bytes, 0o755);
    let error = run(path.to_str().unwrap(), &[]).unwrap_err();
    assert!(error.message.contains("needs the library libq.so.6"), "{error}");
}

#[test]
fn fuzzed_programs_are_errors_and_never_panics() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let good = fs::read("/bin/true").unwrap();
    // One cache, so that libc's site table is made once.
    let cache = tempfile::tempdir().unwrap();
    let mut state = 7u64;
    let mut random = |below: usize| {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below
    };
    for round in 0..80 {
        let mut bytes = good.clone();
        for _ in 0..1 + random(8) {
            let at = random(if round % 2 == 0 { 1024 } else { good.len() });
            bytes[at] = random(256) as u8;
        }
        put(&path, &bytes, 0o755);
        if let Err(error) = run_in(cache.path(), path.to_str().unwrap(), &[]) {
            assert!(!error.message.contains('\n'));
        }
    }
}

#[test]
fn a_directory_runs_its_only_program_or_asks_which() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    put(&root.join("bin/one"), &own(), 0o755);
    put(&root.join("etc/thing.conf"), b"x", 0o600);
    symlink("/etc/thing.conf", root.join("link")).unwrap();
    let name = format!("dir:{}", root.display());
    let image = run(&name, &["arg"]).unwrap();
    assert_eq!(image.config.args, ["/bin/one", "arg"]);
    put(&root.join("bin/two"), &own(), 0o755);
    let error = run(&name, &[]).unwrap_err();
    assert!(error.message.contains("/bin/one") && error.message.contains("/bin/two"), "{error}");
    assert_eq!(run(&name, &["two", "x"]).unwrap().config.args, ["/bin/two", "x"]);
    fs::remove_dir_all(root.join("bin")).unwrap();
    assert!(run(&name, &[]).unwrap_err().message.contains("no program"));
}

#[test]
fn a_project_file_says_how_its_directory_runs() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("prog"), &own(), 0o755);
    put(&folder.path().join("site.conf"), b"x", 0o644);
    let settings = "from = \"./prog\"\nargs = [\"-c\", \"/etc/site.conf\"]\nports = [\"80\"]\nmemory = \"32M\"\n\
        workdir = \"/srv\"\nstop-signal = \"SIGQUIT\"\n[files]\n\"/etc/site.conf\" = \"site.conf\"\n[env]\nMODE = \"test\"\n";
    put(&folder.path().join("unilith.toml"), settings.as_bytes(), 0o644);
    let name = folder.path().to_str().unwrap();
    let image = run(name, &[]).unwrap();
    assert_eq!(image.config.args, ["/app/prog", "-c", "/etc/site.conf"]);
    assert_eq!(
        (image.config.memory, image.config.stop_signal, image.config.cwd.as_str()),
        (Some(32 << 20), 3, "/srv")
    );
    assert!(image.config.env.contains(&("MODE".into(), "test".into())));
    assert_eq!(run(name, &["other"]).unwrap().config.args, ["/app/prog", "other"]);
    put(&folder.path().join("unilith.toml"), b"from = \"./prog\"\nmemroy = \"32M\"\n", 0o644);
    let error = run(name, &[]).unwrap_err();
    assert!(error.kind == ErrorKind::Settings && error.message.contains("unilith.toml:2:"), "{error}");
    put(&folder.path().join("unilith.toml"), b"from = \"./gone\"\n", 0o644);
    assert_eq!(run(name, &[]).unwrap_err().kind, ErrorKind::NotFound);
}

#[test]
fn a_linked_program_takes_the_place_of_the_projects_own() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("prog"), &own(), 0o755);
    let linked = folder.path().join("other");
    put(&linked, b"\x7fELF, linked", 0o644);
    put(&folder.path().join("unilith.toml"), b"from = \"./prog\"\nprogram = \"/app/prog\"\n", 0o644);
    let catalogue = Catalogue::open("/nonexistent");
    let name = folder.path().to_str().unwrap();
    let mut request = Request::new(Reference::parse(name, &catalogue).unwrap(), catalogue);
    let instead = |file: PathBuf| vec![Linked { file, program: None }];
    request.linked = instead(linked);
    let cache = folder.path().join("cache");
    let image = gather(&request, &Cache::new(&cache), &Quiet);
    let holds = |image: &Image, text: &[u8]| {
        fs::read(&image.root).unwrap().windows(text.len()).any(|window| window == text)
    };
    // A file that is no program is refused as such, so it was looked at; the ordinary image is another.
    assert!(image.is_err_and(|e| e.message.contains("/app/prog")));
    request.linked = instead("/bin/true".into());
    let linked = gather(&request, &Cache::new(&cache), &Quiet).unwrap();
    request.linked.clear();
    let ordinary = gather(&request, &Cache::new(&cache), &Quiet).unwrap();
    let text = b"a_linked_program_takes_the_place_of_the_projects_own";
    assert_eq!(linked.config.args, ["/app/prog"]);
    assert!(!holds(&linked, text) && holds(&ordinary, text));

    request.linked = vec![Linked { file: "/bin/true".into(), program: Some("missing".into()) }];
    let error = gather(&request, &Cache::new(&cache), &Quiet).unwrap_err();
    assert!(error.message.contains("`program` that is in the sources"), "{error}");
}

#[test]
fn a_script_runs_through_its_interpreter() {
    let folder = tempfile::tempdir().unwrap();
    put(&folder.path().join("bin/sh"), &own(), 0o755);
    put(&folder.path().join("start"), b"#! /bin/sh -e\necho\n", 0o755);
    put(&folder.path().join("other"), b"#!/bin/nothing\n", 0o755);
    let name = format!("dir:{}", folder.path().display());
    assert_eq!(run(&name, &["/start", "x"]).unwrap().config.args, ["/bin/sh", "-e", "/start", "x"]);
    assert!(run(&name, &["/other"]).unwrap_err().message.contains("a script for /bin/nothing"));
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let catalogue = Catalogue::open("/nonexistent");
    let request = Request::new(Reference::parse("/bin/true", &catalogue).unwrap(), catalogue);
    let error = gather(&request, &Cache::new("/proc/nowhere"), &Quiet).unwrap_err();
    assert!(error.message.contains("/proc/nowhere"), "{error}");
}

#[test]
fn a_directory_keeps_its_hard_links_and_the_owners_that_are_not_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    put(&root.join("bin/prog"), &own(), 0o755);
    put(&root.join("data"), &[7; 1 << 20], 0o640);
    let single = run(root.to_str().unwrap(), &[]).unwrap();
    fs::hard_link(root.join("data"), root.join("same")).unwrap();
    let linked = run(root.to_str().unwrap(), &[]).unwrap();
    assert!(
        linked.size - single.size < 1 << 16,
        "the data is there once: {} and {}",
        single.size,
        linked.size
    );
    // Only root gives files away.
    if std::os::unix::fs::chown(root.join("data"), Some(1234), Some(42)).is_ok() {
        let archive = fs::read(run_in(folder.path(), root.to_str().unwrap(), &[]).unwrap().root).unwrap();
        let text = String::from_utf8_lossy(&archive);
        // mode, owner and group of cpio's header (newc).
        assert!(text.contains("000081A0000004D20000002A"), "100640 of 1234:42");
    }
}

#[test]
fn a_directory_that_has_not_changed_is_not_packed_again_and_one_that_has_is() {
    let folder = tempfile::tempdir().unwrap();
    let (root, cache) = (folder.path().join("root"), folder.path().join("cache"));
    put(&root.join("bin/prog"), &own(), 0o755);
    put(&root.join("data"), b"one", 0o644);
    let name = root.to_str().unwrap();
    let recipes = || fs::read_dir(cache.join("recipes")).map_or(0, Iterator::count);
    // What changed just now may change again unseen.
    let first = run_in(&cache, name, &[]).unwrap();
    while recipes() == 0 {
        assert_eq!(run_in(&cache, name, &[]).unwrap().digest, first.digest);
    }
    let written = |image: &Image| fs::metadata(&image.root).unwrap().ino();
    let again = run_in(&cache, name, &[]).unwrap();
    assert_eq!(
        written(&again),
        written(&run_in(&cache, name, &[]).unwrap()),
        "the archive was written again"
    );
    fs::write(root.join("data"), "two").unwrap();
    assert_ne!(run_in(&cache, name, &[]).unwrap().digest, first.digest);
}
