// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernel crates reach each other through `extern "Rust"` symbols where a cargo feature says which crate defines them. The linker joins
//! them by name alone: a declaration that differs from a definition would compile, and be undefined behaviour. Here both are read as
//! source and compared. And what a crate offers others has to be used by somebody: the compiler says nothing of a public function that nobody
//! calls, such as one that was to wake who waits.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use quote::ToTokens;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};
use syn::{
    Attribute, FnArg, ForeignItem, ForeignItemFn, ImplItemFn, ItemFn, ItemForeignMod, ReturnType, Safety,
    Signature, Visibility,
    visit::{self, Visit},
};
use unilith_tests::root;

/// A function as one side of the border has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Function {
    arguments: Vec<String>,
    answer: String,
    /// Whether its callers have to vouch for something.
    is_unsafe: bool,
    place: String,
}

impl Function {
    fn of(signature: &Signature, is_unsafe: bool, place: &Path) -> Function {
        let argument = |argument: &FnArg| match argument {
            FnArg::Typed(typed) => plain(&typed.ty),
            FnArg::Receiver(_) => "self".into(),
        };
        let answer = match &signature.output {
            ReturnType::Default => "()".into(),
            ReturnType::Type(_, ty) => plain(ty),
        };
        let place = place.strip_prefix(root()).unwrap_or(place).display().to_string();
        Function { arguments: signature.inputs.iter().map(argument).collect(), answer, is_unsafe, place }
    }

    /// A definition may ask less of its callers than its declaration says.
    fn fits(&self, declared: &Function) -> bool {
        self.arguments == declared.arguments
            && self.answer == declared.answer
            && (declared.is_unsafe || !self.is_unsafe)
    }
}

/// A type without the modules that its names are reached by, and without names of lifetimes.
fn plain(ty: &syn::Type) -> String {
    let text = ty.to_token_stream().to_string();
    let mut words: Vec<&str> = Vec::new();
    for word in text.split_whitespace() {
        match word {
            // The word before it is a module, or nothing.
            "::" => drop(words.pop_if(|before| before.starts_with(|c: char| c.is_alphabetic()))),
            _ => words.push(word),
        }
    }
    words.retain(|word| !word.starts_with('\''));
    words.join(" ").replace("< >", "")
}

/// Declarations of images that are linked with their program: the link chooses one of two definitions.
const CHOSEN_BY_THE_LINK: [(&str, [&str; 2]); 4] = [
    ("unilith_linked_block", ["unilith_block_start", "unilith_block_none"]),
    ("unilith_linked_netdev", ["unilith_netdev_start", "unilith_netdev_none"]),
    ("unilith_linked_network", ["unilith_network_start", "unilith_network_none"]),
    ("unilith_linked_unix", ["unilith_unix_start", "unilith_unix_none"]),
];

/// What the crates declare, and what they define.
#[derive(Default)]
struct Symbols {
    declared: BTreeMap<String, Vec<Function>>,
    defined: BTreeMap<String, Vec<Function>>,
    file: PathBuf,
}

/// The sources below a folder, and what is in them.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let (mut folders, mut found) = (vec![folder.to_path_buf()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found
}

fn parsed(path: &Path, text: &str) -> syn::File {
    syn::parse_file(text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

impl Symbols {
    fn read(folder: &Path) -> Symbols {
        let mut symbols = Symbols::default();
        for (path, text) in sources(folder) {
            if text.contains("extern \"Rust\"") || text.contains("no_mangle") {
                let file = parsed(&path, &text);
                symbols.file = path;
                symbols.visit_file(&file);
            }
        }
        symbols
    }
}

fn is_exported(attributes: &[Attribute]) -> bool {
    let names = |attribute: &Attribute| attribute.to_token_stream().to_string().contains("no_mangle");
    // Documentation may speak of it.
    attributes.iter().any(|attribute| !attribute.path().is_ident("doc") && names(attribute))
}

impl Visit<'_> for Symbols {
    fn visit_item_foreign_mod(&mut self, block: &ItemForeignMod) {
        if block.abi.name.as_ref().is_none_or(|name| name.value() != "Rust") {
            return;
        }
        for item in &block.items {
            if let ForeignItem::Fn(ForeignItemFn { sig, .. }) = item {
                // What is not said to be safe is not, in such a block.
                let declared = Function::of(sig, !matches!(sig.safety, Safety::Safe(_)), &self.file);
                self.declared.entry(sig.ident.to_string()).or_default().push(declared);
            }
        }
    }

    fn visit_item_fn(&mut self, function: &ItemFn) {
        let signature = &function.sig;
        // Of another calling convention are those that assembly and programs call.
        if is_exported(&function.attrs) && signature.abi.is_none() {
            let defined = Function::of(signature, matches!(signature.safety, Safety::Unsafe(_)), &self.file);
            self.defined.entry(signature.ident.to_string()).or_default().push(defined);
        }
        visit::visit_item_fn(self, function);
    }
}

#[test]
fn what_kernel_crates_declare_of_each_other_is_what_they_define() {
    let mut symbols = Symbols::read(&root().join("micro"));
    for (declared, choices) in CHOSEN_BY_THE_LINK {
        let of =
            choices.map(|name| symbols.defined.remove(name).unwrap_or_else(|| panic!("{name} is defined")));
        symbols.defined.insert(declared.into(), of.concat());
    }
    assert!(symbols.declared.len() > 100, "declarations are found: {}", symbols.declared.len());
    let mut wrong = Vec::new();
    for (name, declared) in &symbols.declared {
        let Some(defined) = symbols.defined.get(name) else {
            wrong.push(format!("{name} is declared in {} and defined nowhere", declared[0].place));
            continue;
        };
        for (declared, defined) in
            declared.iter().flat_map(|one| defined.iter().map(move |other| (one, other)))
        {
            if !defined.fits(declared) {
                wrong.push(format!("{name}: declared {declared:?}, defined {defined:?}"));
            }
        }
    }
    for (name, defined) in symbols.defined.iter().filter(|(name, _)| !symbols.declared.contains_key(*name)) {
        wrong.push(format!("{name} is defined in {} for nobody who could be checked", defined[0].place));
    }
    assert!(wrong.is_empty(), "{} symbols differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Names of public functions and methods.
#[derive(Default)]
struct Offered(Vec<String>);

impl Visit<'_> for Offered {
    fn visit_item_fn(&mut self, function: &ItemFn) {
        if !matches!(function.vis, Visibility::Inherited) && !is_exported(&function.attrs) {
            self.0.push(function.sig.ident.to_string());
        }
    }

    fn visit_impl_item_fn(&mut self, function: &ImplItemFn) {
        if !matches!(function.vis, Visibility::Inherited) {
            self.0.push(function.sig.ident.to_string());
        }
    }
}

/// How often each word is in a source, comments left out.
fn count_words<'a>(text: &'a str, counts: &mut BTreeMap<&'a str, usize>) {
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        for word in line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()) {
            *counts.entry(word).or_default() += 1;
        }
    }
}

#[test]
fn what_kernel_crates_offer_is_used() {
    // Programs that are compiled with the kernel use it.
    let for_programs = root().join("micro/raw/rust");
    let folders = ["micro", "host", "cli", "tests", "fuzz"];
    let all: Vec<_> = folders.iter().flat_map(|folder| sources(&root().join(folder))).collect();
    let mut counts = BTreeMap::new();
    all.iter().for_each(|(_, text)| count_words(text, &mut counts));
    let mut unused = Vec::new();
    let mut offered = 0;
    for (path, text) in all.iter().filter(|(path, _)| path.starts_with(root().join("micro"))) {
        let mut functions = Offered::default();
        functions.visit_file(&parsed(path, text));
        offered += functions.0.len();
        let alone =
            functions.0.iter().filter(|name| counts[name.as_str()] == 1 && !path.starts_with(&for_programs));
        unused
            .extend(alone.map(|name| format!("{name} in {}", path.strip_prefix(root()).unwrap().display())));
    }
    assert!(offered > 1000, "functions are found: {offered}");
    assert!(unused.is_empty(), "nobody uses:\n{}", unused.join("\n"));
}

#[test]
fn a_declaration_that_differs_is_found() {
    let one = |text: &str, is_unsafe| {
        Function::of(&syn::parse_str::<Signature>(text).unwrap(), is_unsafe, Path::new("a"))
    };
    let declared = one("fn f(to: &mut [u8], at: crate::abi::Errno) -> Result<u64>", false);
    assert!(one("fn f(bytes: &'static mut [u8], n: Errno) -> abi::Result<u64>", false).fits(&declared));
    for other in [
        "fn f(to: &[u8], at: Errno) -> Result<u64>",
        "fn f(to: &mut [u8], at: Errno) -> Result<u32>",
        "fn f(to: &mut [u8]) -> Result<u64>",
        "fn f(to: &mut [u8], at: Errno)",
    ] {
        assert!(!one(other, false).fits(&declared), "{other}");
    }
    assert!(!one("fn f(to: &mut [u8], at: Errno) -> Result<u64>", true).fits(&declared));
}
