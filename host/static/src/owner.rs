// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which micro-library a symbol belongs to.

use crate::anatomy::ASSEMBLY;
use std::collections::BTreeMap;

include!(concat!(env!("OUT_DIR"), "/owners.rs"));

/// What Rust itself brings: generic code of theirs belongs to the crate whose type it is made for, if its name says so.
pub const RUST: [&str; 6] = ["alloc", "compiler_builtins", "core", "hashbrown", "std", "__rustc"];
/// Names that macros put together, by how they begin.
const PREFIXES: [(&str, &[&str]); 2] = [("unilith_call_", &["posix"]), ("unilith_syscall_", &["kernel"])];
/// The crate of the kernel's image, which is named otherwise than its package.
const IMAGE: (&str, &str) = ("kernel_image", "kernel");

/// A name as its author wrote it, without the compiler's hash.
pub fn readable(symbol: &str) -> String {
    let name = format!("{:#}", rustc_demangle::demangle(symbol));
    // What link-time optimisation put behind it to tell copies apart.
    name.split(".llvm.").next().unwrap_or_default().to_string()
}

/// Whether the compiler wrote a crate into the symbol.
pub fn has_crate(symbol: &str) -> bool {
    rustc_demangle::try_demangle(symbol).is_ok()
}

/// The crates that a name without one may be of.
pub fn of_label(name: &str) -> &'static [&'static str] {
    if let Ok(at) = OWNERS.binary_search_by_key(&name, |(known, _)| known) {
        return OWNERS[at].1;
    }
    PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).map_or(&[], |(_, library)| library)
}

/// The crates of an image, by how many of its symbols name them: of those that define the same name, one is in it.
#[derive(Default)]
pub struct Crates(BTreeMap<String, u32>);

impl Crates {
    pub fn of<'a>(symbols: impl Iterator<Item = &'a str>) -> Crates {
        let mut counted = Crates::default();
        for symbol in symbols.filter(|symbol| has_crate(symbol)) {
            *counted.0.entry(named_in(&readable(symbol))).or_default() += 1;
        }
        counted
    }

    /// The crate of a symbol, or a word in parentheses.
    pub fn owner(&self, symbol: &str) -> String {
        let name = readable(symbol);
        if has_crate(symbol) {
            return named_in(&name);
        }
        let known = of_label(&name).iter().max_by_key(|library| self.0.get(**library));
        known.copied().unwrap_or(ASSEMBLY).to_string()
    }
}

/// The crate in a demangled name.
fn named_in(name: &str) -> String {
    let mut crates = crates(name);
    let Some(first) = crates.next() else { return ASSEMBLY.into() };
    let library =
        if RUST.contains(&first) { crates.find(|c| !RUST.contains(c)).unwrap_or(first) } else { first };
    if library == IMAGE.0 { IMAGE.1.into() } else { library.into() }
}

/// The crates in a demangled name, in their order: where paths begin.
fn crates(name: &str) -> impl Iterator<Item = &str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.match_indices("::").filter_map(move |(at, _)| {
        let before = &name[..at];
        let start = before.rfind(|c: char| !is_word(c)).map_or(0, |at| at + 1);
        // A part of a path that began earlier, or of one behind a generic type: `Vec<T>::push`.
        let is_begin = !before[..start].ends_with("::") && start < at;
        is_begin.then_some(&before[start..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_belongs_to_the_crate_that_its_name_begins_with() {
        assert_eq!(named_in("tcpip::tcp::output::send"), "tcpip");
        assert_eq!(named_in("<tcpip::Net as posix::Poll>::poll"), "tcpip");
        assert_eq!(named_in("<&T as core::fmt::Debug>::fmt"), "core");
    }

    #[test]
    fn generic_code_belongs_to_the_crate_whose_type_it_is_made_for() {
        assert_eq!(named_in("core::ptr::drop_in_place<vfs::dentry::Dentry>"), "vfs");
        assert_eq!(named_in("<alloc::sync::Arc<pipe::Pipe> as core::fmt::Debug>::fmt"), "pipe");
        assert_eq!(named_in("alloc::vec::Vec<T,A>::push"), "alloc");
    }

    #[test]
    fn names_without_a_crate_are_looked_up_in_the_sources() {
        let none = Crates::default();
        assert_eq!(none.owner("unilith_sched_add_timer"), "sched");
        assert_eq!(none.owner("unilith_leave"), "plat_x86");
        assert_eq!(none.owner("unilith_syscall_39"), "kernel");
        assert_eq!(none.owner("unilith_call_getpid"), "posix");
        assert_eq!(none.owner("nobody_knows_it"), ASSEMBLY);
        assert!(OWNERS.is_sorted());
        // Both policies define it; the image has the one whose other functions are in it.
        for policy in ["sched_coop", "sched_preempt"] {
            let other = format!("_ZN{}{policy}5queue17h0123456789abcdefE", policy.len());
            assert_eq!(Crates::of([other.as_str()].into_iter()).owner("unilith_sched_pick"), policy);
        }
    }
}
