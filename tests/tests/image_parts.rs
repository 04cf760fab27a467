// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `size` and `graph`: what an image is made of, and which of its micro-libraries call which, of images that really boot.

use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path};
use unilith_tests::{BUILD_KERNEL, Ran, Unilith, finish, is_skipped_without_micro, tested_machine};

const MICRO: &str = "only the micro kernel is made of micro-libraries";

fn patient(unilith: &Unilith, words: &[&str]) -> Ran {
    // The first one builds the kernel, or the C library.
    finish(&mut unilith.command(words), BUILD_KERNEL)
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Compiles a program with `unilith cc`.
fn compile(unilith: &Unilith, text: &str) -> String {
    let (source, target) = (unilith.path("text.c"), unilith.path("program").display().to_string());
    fs::write(&source, text).expect("the scratch directory can be written");
    patient(unilith, &["cc", "-O2", "-o", &target, &source.display().to_string()]).ok();
    target
}

/// The texts of an SVG's elements by the name of their tag; fails unless the file is XML, and needs no other file.
fn drawn(path: &Path) -> BTreeMap<String, Vec<String>> {
    let svg = fs::read_to_string(path).expect("the drawing was written");
    assert!(!svg.contains("href=") && !svg.contains("src="), "it refers to other files");
    let mut reader = quick_xml::Reader::from_str(&svg);
    let (mut open, mut texts): (Vec<String>, BTreeMap<String, Vec<String>>) = Default::default();
    loop {
        match reader.read_event().unwrap_or_else(|e| panic!("{e} at {}", reader.error_position())) {
            quick_xml::events::Event::Eof => break,
            quick_xml::events::Event::Start(tag) => {
                open.push(String::from_utf8_lossy(tag.name().as_ref()).into_owned());
            }
            quick_xml::events::Event::End(_) => drop(open.pop()),
            quick_xml::events::Event::Text(text) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                texts.entry(open.last().cloned().unwrap_or_default()).or_default().push(text);
            }
            _ => {}
        }
    }
    assert!(open.is_empty(), "{open:?} is not closed");
    texts
}

#[test]
fn every_byte_of_a_booted_kernel_belongs_to_a_library_and_is_counted_once() {
    if is_skipped_without_micro(MICRO) {
        return;
    }
    let unilith = Unilith::new();
    let machine = ["--machine", &tested_machine(), "busybox"];
    let size = parsed(&patient(&unilith, &[&["size", "--json"], &machine[..]].concat()).ok().out);
    let (total, file) = (size["total"].as_u64().unwrap(), size["file"].as_u64().unwrap());
    let libraries = size["libraries"].as_array().unwrap();
    let bytes = |of: &Value| of["bytes"].as_u64().unwrap();
    assert_eq!(libraries.iter().map(bytes).sum::<u64>(), total);
    // Headers and the space between segments are the difference.
    assert!(total <= file && total > file * 3 / 4, "{total} of a file of {file}");
    let share = |name: &str| {
        let of = libraries.iter().find(|library| library["library"] == name);
        bytes(of.unwrap_or_else(|| panic!("no {name}: {libraries:?}"))) as f64 / total as f64
    };
    // As somebody who knows the kernel expects them; nearly nothing is nobody's.
    assert!(share("tcpip") > 0.03 && share("posix") > 0.03 && share("vfs") > 0.005);
    for nobodys in ["(assembly)", "(padding)", "(shared constants)"] {
        let least = libraries.iter().filter(|library| library["library"] == nobodys).map(bytes).sum::<u64>();
        assert!((least as f64) < 0.06 * total as f64, "{nobodys} has {least} of {total}");
    }
    // The table says the same.
    let ran = patient(&unilith, &[&["size", "-n", "0"], &machine[..]].concat()).ok().says("in all");
    let row = ran.out.lines().find(|line| line.ends_with(" tcpip")).unwrap_or_else(|| panic!("{ran}"));
    let of_json = libraries.iter().find(|library| library["library"] == "tcpip").map(bytes);
    assert_eq!(row.split_whitespace().next().and_then(|b| b.parse().ok()), of_json, "{ran}");
    // A choice that leaves a library out leaves its bytes out.
    let without =
        [&["size", "--set", "net=none", "--network", "none", "--format", "{{.Library}}"], &machine[..]];
    let without = patient(&unilith, &without.concat()).ok().out;
    assert!(
        without.lines().any(|line| line == "vfs") && without.lines().all(|line| line != "tcpip"),
        "{without}"
    );
}

#[test]
fn the_treemap_is_one_file_that_names_libraries_and_functions() {
    if is_skipped_without_micro(MICRO) {
        return;
    }
    let unilith = Unilith::new();
    let path = unilith.path("map.svg");
    let svg = path.display().to_string();
    let words = ["size", "--svg", &svg, "--machine", &tested_machine(), "busybox"];
    patient(&unilith, &words).ok().complains("map.svg is written");
    let titles = &drawn(&path)["title"];
    assert!(
        titles.iter().any(|title| title.starts_with("tcpip: ") && title.contains(" bytes, ")),
        "{titles:?}"
    );
    assert!(
        titles.iter().any(|title| title.starts_with("tcpip::") && title.ends_with(" bytes")),
        "{titles:?}"
    );
    // To standard output as well.
    let words = ["size", "--svg", "-", "--machine", &tested_machine(), "busybox"];
    assert_eq!(patient(&unilith, &words).ok().out.trim_end(), fs::read_to_string(&path).unwrap().trim_end());
}

#[test]
fn the_graph_of_a_linked_program_has_what_it_calls_and_nothing_else() {
    if is_skipped_without_micro(MICRO) {
        return;
    }
    let unilith = Unilith::new();
    let graph = |text: &str| {
        let program = compile(&unilith, text);
        let words =
            ["graph", "--json", "--static", "--network", "none", "--machine", &tested_machine(), &program];
        parsed(&patient(&unilith, &words).ok().out)
    };
    let has = |graph: &Value, from: &str, to: &str| {
        graph["edges"].as_array().unwrap().iter().any(|edge| edge["from"] == from && edge["to"] == to)
    };
    let bytes = |graph: &Value, library: &str| {
        let nodes = graph["nodes"].as_array().unwrap().iter();
        nodes
            .filter(|node| node["library"] == library)
            .map(|node| node["bytes"].as_u64().unwrap())
            .sum::<u64>()
    };
    let quiet = graph("#include <stdio.h>\nint main(void) { return puts(\"hello\") < 0; }\n");
    assert!(has(&quiet, "(program)", "(C library)") && has(&quiet, "(C library)", "kernel"), "{quiet}");
    // An empty function may go by the name of any other that is empty as well, and /proc/sys has three settings of inotify's.
    const EMPTY: u64 = 64;
    assert!(bytes(&quiet, "tcpip") < EMPTY && bytes(&quiet, "inotify") < EMPTY + 72, "{quiet}");
    let serves = graph(
        "#include <sys/socket.h>\n#include <sys/inotify.h>\nint main(void) { inotify_init(); return socket(AF_INET, SOCK_STREAM, 0) < 0; }\n",
    );
    assert!(bytes(&serves, "tcpip") > 50_000 && bytes(&serves, "inotify") > 1000, "{serves}");
    assert!(has(&serves, "calls_files", "inotify") && has(&serves, "tcpip", "api_netdev"), "{serves}");
}

#[test]
fn the_graph_is_drawn_and_written_for_graphviz() {
    if is_skipped_without_micro(MICRO) {
        return;
    }
    let unilith = Unilith::new();
    let (svg, dot) = (unilith.path("graph.svg"), unilith.path("graph.dot"));
    let words = ["graph", "--machine", &tested_machine(), "--least", "5"];
    let files = ["--svg", &svg.display().to_string(), "--dot", &dot.display().to_string(), "busybox"];
    patient(&unilith, &[&words[..], &files].concat()).ok();
    let text = fs::read_to_string(&dot).unwrap();
    assert!(text.starts_with("digraph ") && text.trim_end().ends_with('}'), "{text}");
    let listed =
        patient(&unilith, &[&words[..], &["--format", "{{.From}} {{.To}}", "busybox"]].concat()).ok().out;
    let titles = drawn(&svg).remove("title").unwrap_or_default();
    assert!(listed.lines().count() > 20, "{listed}");
    for (from, to) in listed.lines().filter_map(|line| line.split_once(' ')) {
        assert!(text.contains(&format!("\"{from}\" -> \"{to}\" [")), "{from} {to}: {text}");
        assert!(titles.iter().any(|title| title.starts_with(&format!("{from} to {to}: "))), "{from} {to}");
    }
    // Of one library: its own edges alone.
    let words =
        ["graph", "--library", "vfs", "--format", "{{.From}} {{.To}}", "--machine", &tested_machine()];
    let own = patient(&unilith, &[&words[..], &["busybox"]].concat()).ok().out;
    assert!(
        own.lines().count() > 2 && own.lines().all(|line| line.split(' ').any(|end| end == "vfs")),
        "{own}"
    );
}

#[test]
fn what_is_no_image_is_refused_with_what_to_do() {
    let unilith = Unilith::new();
    let size = |words: &[&str]| unilith.run(&[&["size"], words].concat());
    for verb in ["size", "graph"] {
        unilith
            .run(&[verb, "--kernel", "linux", "busybox"])
            .fails_with(&["micro-libraries", "--kernel linux"]);
    }
    fs::write(unilith.path("notes.txt"), "no image").unwrap();
    size(&["./notes.txt"]).fails_with(&["notes.txt"]);
    size(&["./nowhere"]).fails_with(&["nowhere"]);
    size(&["nosuchprogram"]).fails_with(&["nosuchprogram"]);
    size(&["--format", "{{.Nothing", "busybox"]).fails_with(&["{{"]);
    if is_skipped_without_micro(MICRO) {
        return;
    }
    let folder = unilith.path("image").display().to_string();
    patient(&unilith, &["build", "-o", &folder, "busybox"]).ok();
    size(&["--library", "nosuch", &folder]).fails_with(&["--library nosuch", "tcpip", "vfs"]);
    unilith.run(&["graph", "--library", "nosuch", &folder]).fails_with(&["--library nosuch", "tcpip", "vfs"]);
    size(&["--svg", "/proc/nowhere/map.svg", &folder]).fails_with(&["/proc/nowhere/map.svg"]);
    // The kernel as it boots has no names; the directory's other file has them.
    size(&[&format!("{folder}/kernel")]).fails_with(&["without the names", "kernel.symbols"]);
    size(&[&format!("{folder}/kernel.symbols")]).ok().says("in all");
    // Damaged in the middle, and cut off.
    let whole = fs::read(format!("{folder}/kernel.symbols")).unwrap();
    for damaged in [&whole[..whole.len() / 2], &whole[..100], &whole[..4]] {
        fs::write(format!("{folder}/kernel.symbols"), damaged).unwrap();
        size(&[&folder]).fails_with(&["kernel.symbols"]);
    }
    fs::remove_file(format!("{folder}/kernel.symbols")).unwrap();
    size(&[&folder]).fails_with(&["no kernel.symbols", "build it again"]);
    // A program is no image; what is shown is the kernel that it would get, and the first line says so.
    let program = std::env::current_exe().unwrap().display().to_string();
    let ran = patient(&unilith, &["size", "-n", "0", "--machine", &tested_machine(), &program]).ok();
    assert!(ran.out.lines().next().is_some_and(|line| line.contains("and its kernel")), "{ran}");
}
