// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A project's settings name files of the project. Whoever checks out somebody's directory and runs it gives the program what
//! is in that directory, and nothing else of this host: other files are for the user to give.

use crate::{
    Manifest,
    error::{Result, fail},
};
use std::path::Path;

/// Whether a path, which may not exist, leads to something in the folder, links followed.
pub fn is_beneath(folder: &Path, path: &Path) -> bool {
    match (folder.canonicalize(), folder.join(path).canonicalize()) {
        (Ok(folder), Ok(path)) => path.starts_with(folder),
        // What is not there leads nowhere; that it is missing is for others to say.
        _ => true,
    }
}

/// Refuses settings of a project that take files from beyond its folder.
pub fn check(manifest: &Manifest, folder: &Path) -> Result<()> {
    let refuse = |key: &str, path: &str| {
        fail!(
            Settings,
            "unilith.toml: {key} = \"{path}\" is outside of the project; copy it there, or name it on the command line"
        )
    };
    for (target, file) in &manifest.files {
        if !is_beneath(folder, Path::new(file)) {
            refuse(&format!("files: \"{target}\""), file)?;
        }
    }
    let sources = manifest.from.iter().map(|text| ("from", text));
    for (key, text) in sources.chain(manifest.with.iter().map(|text| ("with", text))) {
        let path = match text.split_once(':') {
            Some(("debian", _)) => continue,
            Some((prefix, path)) if !prefix.contains('/') => path,
            _ => text,
        };
        if !is_beneath(folder, Path::new(path)) {
            refuse(key, text)?;
        }
    }
    Ok(())
}

/// The same for a volume, given as on the command line.
pub fn is_own_volume(folder: &Path, text: &str) -> bool {
    let rest = text.strip_suffix(":ro").or_else(|| text.strip_suffix(":rw")).unwrap_or(text);
    rest.rsplit_once(':').is_none_or(|(host, _)| is_beneath(folder, Path::new(host)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn links_and_dots_do_not_lead_out_of_a_project() {
        let outside = tempfile::tempdir().unwrap();
        let folder = outside.path().join("project");
        fs::create_dir(&folder).unwrap();
        fs::write(outside.path().join("secret"), "x").unwrap();
        fs::write(folder.join("own"), "x").unwrap();
        symlink("../secret", folder.join("link")).unwrap();
        symlink("/etc", folder.join("etc")).unwrap();
        for (path, own) in [
            ("own", true),
            ("./own", true),
            ("../project/own", true),
            ("missing", true),
            ("../secret", false),
        ] {
            assert_eq!(is_beneath(&folder, Path::new(path)), own, "{path}");
        }
        for path in ["link", "etc/passwd", "/etc/passwd", "/"] {
            assert!(!is_beneath(&folder, Path::new(path)), "{path}");
        }
        for (text, own) in [("/etc:/etc:ro", false), (".:/data", true), ("etc:/x", false), ("nonsense", true)]
        {
            assert_eq!(is_own_volume(&folder, text), own, "{text}");
        }
        let manifest = |text: &str| toml::from_str::<Manifest>(text).unwrap();
        for text in [
            "files = { \"/shadow\" = \"/etc/shadow\" }",
            "files = { \"/x\" = \"link\" }",
            "from = \"dir:..\"",
            "from = \"/bin/ls\"",
            "with = [\"dir:/etc\"]",
        ] {
            let error = check(&manifest(text), &folder).unwrap_err().to_string();
            assert!(error.contains("outside of the project"), "{text}: {error}");
        }
        check(
            &manifest("from = \"debian:nginx\"\nwith = [\"./own\"]\nfiles = { \"/x\" = \"own\" }"),
            &folder,
        )
        .unwrap();
    }

    proptest! {
        #[test]
        fn settings_of_any_text_are_read_or_refused(text in any::<String>(), key in "[a-z-]{1,8}") {
            let _ = toml::from_str::<Manifest>(&text);
            if let Ok(manifest) = toml::from_str::<Manifest>(&format!("{key} = {text:?}")) {
                let _ = check(&manifest, Path::new("/nonexistent"));
            }
        }
    }
}
