// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of packages that make indexes and caches of what is installed, or configuration of their defaults, and nothing else:
//! maintainer scripts run them, and other programs do not start, or start slowly, without what they make.
//!
//! Nothing here may make what is a secret (keys, passwords) or depends on the machine: an image is copied. Keys are not taken over
//! in any case ([`crate::generate`]).

/// By their names.
const NAMES: [&str; 24] = [
    "aspell-autobuildhash",
    "dot",
    "fc-cache",
    "fmtutil-sys",
    "gdk-pixbuf-query-loaders",
    "ghc-pkg",
    "gio-querymodules",
    "glib-compile-schemas",
    "gtk-query-immodules-3.0",
    "libgvc6-config-update",
    "locale-gen",
    "mkfontdir",
    "mkfontscale",
    "mktexlsr",
    "update-catalog",
    "update-default-aspell",
    "update-dictcommon-aspell",
    "update-dictcommon-hunspell",
    "update-fonts-alias",
    "update-fonts-dir",
    "update-mime-database",
    "update-xmlcatalog",
    "update_sendmail",
    "updmap-sys",
];
/// Commands that one image keeps, and bytes of each.
const MAX_COMMANDS: usize = 64;
const MAX_COMMAND: usize = 4096;

/// Whether a program of the image by this path is one of them.
pub(super) fn is_one(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| NAMES.contains(&name))
}

/// Notes a command that is to be run in the finished image; one that was noted already is run once.
pub(super) fn note(commands: &mut Vec<Vec<String>>, path: String, arguments: &[String]) {
    let command: Vec<String> = std::iter::once(path).chain(arguments.iter().cloned()).collect();
    let size: usize = command.iter().map(String::len).sum();
    if commands.len() < MAX_COMMANDS && size <= MAX_COMMAND && !commands.contains(&command) {
        commands.push(command);
    }
}
