// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that are generated must be what the code says. `UNILITH_UPDATE_DOCS=1 ./unilith test --system docs` writes them anew.

use overlay_wire::{HEADER, MAX_PAYLOAD};
use std::fs;
use syscall_table::{ROWS, Status};
use unilith_tests::{Unilith, root, tested_kernel};

/// The host calls of process machines, as their kernel has them.
#[path = "../../micro/plat/process/src/calls.rs"]
mod host_calls;

#[track_caller]
fn is_up_to_date(page: &str, text: &str) {
    let path = root().join("docs/reference").join(page);
    if std::env::var_os("UNILITH_UPDATE_DOCS").is_some() {
        fs::write(&path, text).expect("docs/ can be written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == text,
        "docs/reference/{page} is stale: UNILITH_UPDATE_DOCS=1 ./unilith test --system docs"
    );
}

#[test]
fn the_page_of_system_calls_is_the_table() {
    let count = |status| ROWS.iter().filter(|row| row.status == status).count();
    let mut text = format!(
        "# System calls of the micro-library OS\n\n\
         Generated from `micro/posix/table`, which also generates the kernel's dispatch. Of {} calls {} are there in full and {} \
         in part, {} are refused on purpose and {} are missing. A call that is missing answers ENOSYS and shows in \
         `unilith inspect`.\n\n| number | call | status | |\n| --- | --- | --- | --- |\n",
        ROWS.len(),
        count(Status::Full),
        count(Status::Partial),
        count(Status::Refused),
        count(Status::Missing),
    );
    for row in ROWS {
        let status = match row.status {
            Status::Full => "full",
            Status::Partial => "partial",
            Status::Refused => "refused",
            Status::Missing => "missing",
        };
        text.push_str(&format!("| {} | `{}` | {status} | {} |\n", row.number, row.name, row.note));
    }
    is_up_to_date("system-calls.md", &text);
}

#[test]
fn the_table_of_choices_has_every_choice() {
    let list = Unilith::new().run(&["menu", "--list", "--json"]).ok().out;
    let rows: Vec<serde_json::Value> = serde_json::from_str(&list).expect("the list is JSON");
    let page = fs::read_to_string(root().join("docs/explanation/micro.md")).expect("the page is there");
    // A line may be of two choices: `alloc`, `sched`.
    let lines: Vec<[&str; 2]> = page
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|');
            Some([cells.next()?, cells.next()?])
        })
        .collect();
    for row in &rows {
        let named = |word: &serde_json::Value| format!("`{}`", word.as_str().expect("a word"));
        let key = named(&row["key"]);
        let line = lines.iter().find(|[keys, _]| keys.contains(&key));
        let values = line.unwrap_or_else(|| panic!("docs/explanation/micro.md has no line for {key}"))[1];
        for value in row["values"].as_array().expect("values").iter().map(named) {
            assert!(values.contains(&value), "docs/explanation/micro.md: {key} has no {value}");
        }
    }
}

#[test]
fn the_page_of_a_bundles_fields_is_the_readers_table() {
    use unilith_container::fields::{FIELDS, FIELDS_OF_EXEC, Field, State};
    let count = |state| FIELDS.iter().filter(|field| field.state == state).count();
    let rows = |fields: &[Field]| -> String {
        let row = |field: &Field| format!("| `{}` | {} | {} |\n", field.name, field.state.word(), field.says);
        fields.iter().map(row).collect()
    };
    let head = "| field | state | |\n| --- | --- | --- |\n";
    let text = format!(
        "# Fields of config.json\n\n\
         Generated from `host/container/src/fields.rs`, by which bundles are read; its tests hold that every field of the OCI runtime \
         specification is here, and that a bundle with it is treated so. A row is for all that is below it, too. Of {} rows {} are \
         honoured, {} are refused by their names by `create`, and {} are about what does not exist for a machine, which is the same with \
         them and without. What is written as nothing (`null`, `false`, empty) is said by nobody. A field that is not here is passed over, \
         as the specification wants it. [The container runtime](oci.md) says more of how.\n\n{head}{}\n\
         The process of `exec --process` is `process`, with these differences:\n\n{head}{}\n\
         The limits of `update --resources` are `linux.resources`, as above.\n",
        FIELDS.len(),
        count(State::Honoured),
        count(State::Refused),
        count(State::NoMeaning),
        rows(FIELDS),
        rows(FIELDS_OF_EXEC),
    );
    is_up_to_date("oci-config.md", &text);
}

#[test]
fn the_page_of_host_calls_is_the_filters_table() {
    let mut text = String::from(
        "# Host calls of a process machine\n\n\
         Generated from `micro/plat/process/src/calls.rs`, which the filter (seccomp) is checked against. After its start a\n\
         machine that is a process can make these calls of the host's kernel; any other ends it. Behind the filter it is\n\
         `nobody` without capabilities, in an empty root directory and namespaces of its own (`docs/how-to/process.md`).\n\n\
         | number | call | for |\n| --- | --- | --- |\n",
    );
    for (number, name, reason) in host_calls::CALLS {
        text.push_str(&format!("| {number} | `{name}` | {reason} |\n"));
    }
    is_up_to_date("host-calls.md", &text);
}

/// The verbs that a help text lists, but for `help` itself.
fn listed(help: &str) -> impl Iterator<Item = &str> {
    let lines = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| l.starts_with("  "));
    let verbs = lines.filter(|l| !l.starts_with("   ")).filter_map(|l| l.split_whitespace().next());
    verbs.filter(|verb| *verb != "help")
}

#[test]
fn the_page_of_the_command_is_its_help() {
    let unilith = Unilith::new();
    // Help is as wide as the terminal; a page has one width.
    let help = |verb: &[&str]| {
        let mut command = unilith.command(&[verb, &["--help"]].concat());
        unilith_tests::finish(command.env("COLUMNS", "100"), unilith_tests::PATIENCE).ok().out
    };
    let mut text = String::from("# The command\n\nGenerated from `--help`.\n");
    let overview = help(&[]);
    text.push_str(&format!("\n```text\n{}\n```\n", overview.trim_end()));
    let mut count = 0;
    for verb in listed(&overview) {
        let said = help(&[verb]);
        text.push_str(&format!("\n## {verb}\n\n```text\n{}\n```\n", said.trim_end()));
        for second in listed(&said) {
            let said = help(&[verb, second]);
            text.push_str(&format!("\n### {verb} {second}\n\n```text\n{}\n```\n", said.trim_end()));
        }
        count += 1;
    }
    assert!(count > 15, "help lists the verbs");
    is_up_to_date("command.md", &text);
}

#[test]
fn the_readme_has_every_kind_of_machine() {
    let help = Unilith::new().run(&["build", "--help"]).ok().out;
    let values = help.lines().skip_while(|line| !line.trim_start().starts_with("--machine <")).skip(1);
    let kinds: Vec<&str> = values
        .take_while(|line| !line.contains("[default"))
        .filter_map(|line| line.trim_start().strip_prefix("- ")?.split(':').next())
        .collect();
    assert!(kinds.len() > 5 && kinds.contains(&"auto"), "{kinds:?}");
    let readme = std::fs::read_to_string(unilith_tests::root().join("README.md")).expect("a README");
    let rows: Vec<&str> = readme.lines().filter(|line| line.starts_with("| `")).collect();
    for kind in kinds.into_iter().filter(|kind| *kind != "auto") {
        let has_it = rows.iter().any(|row| row.contains(&format!("--machine {kind}`")));
        assert!(has_it, "README.md has no row for {kind}");
    }
}

#[test]
fn the_page_of_the_overlays_commands_is_what_a_machine_says() {
    let unilith = Unilith::new();
    if tested_kernel() != "micro" {
        return;
    }
    let machine = unilith.start(&["-p", "127.0.0.1::6379", "redis", "--", "--save", ""]);
    let said = unilith.run(&["exec", "--json", &machine.id, "help"]).ok().out;
    let mut text = String::from(
        "# The overlay's commands\n\n\
         Generated from what a machine says of itself: `unilith exec NAME help`. Exit codes: 0 done, 1 failed, 2 used wrongly,\n\
         126 refused, 127 unknown command, 130 interrupted. With `--json` every listing is one JSON object a line, and failures\n\
         are `{\"error\": {\"command\", \"subject\", \"errno\", \"message\"}}` on standard error.\n",
    );
    for line in said.lines() {
        let command: serde_json::Value = serde_json::from_str(line).unwrap();
        let part = |key: &str| command[key].as_str().unwrap();
        let usage = format!("{} {}", part("name"), part("arguments"));
        text.push_str(&format!(
            "\n## {}\n\n```text\n{}\n```\n\n{}.\n",
            part("name"),
            usage.trim_end(),
            part("summary")
        ));
        let mut in_list = false;
        for line in part("help").lines() {
            // An option, or an example, and what it does.
            let explained =
                line.split_once("  ").map(|(what, does)| format!("- `{what}`: {}\n", does.trim()));
            let gap = if in_list && explained.is_some() { "" } else { "\n" };
            in_list = explained.is_some();
            text.push_str(&format!("{gap}{}", explained.unwrap_or_else(|| format!("{line}\n"))));
        }
    }
    is_up_to_date("overlay-commands.md", &text);
    // Whatever the sources register is there, with a manual.
    let mut count = 0;
    for folder in ["commands", "objects", "trace"] {
        for file in fs::read_dir(root().join("micro/overlay").join(folder).join("src")).unwrap() {
            let source = fs::read_to_string(file.unwrap().path()).unwrap();
            for (_, command) in source.match_indices("Command {\n").map(|(at, _)| source.split_at(at)) {
                let Some(name) = command.lines().nth(1).and_then(|l| l.trim().strip_prefix("name: \""))
                else {
                    continue;
                };
                let title = format!("\n## {}\n", name.trim_end_matches("\","));
                let page = text.split_once(&title).unwrap_or_else(|| panic!("the page lacks {title}")).1;
                let manual = page.split("\n## ").next().unwrap().split("```\n\n").nth(1);
                assert!(manual.is_some_and(|m| m.lines().count() > 1), "there is no manual: {title}");
                count += 1;
            }
        }
    }
    assert!(count > 20, "the commands are where they were");
}

#[test]
fn the_page_of_the_protocol_is_the_crates_own() {
    let source = fs::read_to_string(root().join("micro/overlay/wire/src/lib.rs")).unwrap();
    let mut text = String::from(
        "# The overlay's protocol\n\nGenerated from the crate `overlay-wire`, which both sides use.\n\n",
    );
    let plain = |line: &str| {
        let line = line
            .replace("[`HEADER`]", &HEADER.to_string())
            .replace("[`MAX_PAYLOAD`]", &MAX_PAYLOAD.to_string());
        line.replace("[`", "`").replace("`]", "`").replace("Kind::", "")
    };
    let lines =
        source.lines().filter_map(|l| l.strip_prefix("//!")).map(|l| l.strip_prefix(' ').unwrap_or(l));
    for line in lines.skip(2) {
        let line = line.strip_prefix("# ").map_or(line.to_string(), |title| format!("## {title}"));
        text.push_str(&format!("{}\n", plain(&line)));
    }
    text.push_str("\n## Kinds and payloads\n\n| kind | | |\n| --- | --- | --- |\n");
    let mut explained = String::new();
    for line in source.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("/// ") {
            explained.push_str(&format!("{} ", plain(words)));
        } else if let Some((name, number)) =
            line.strip_prefix("pub const ").and_then(|l| l.split_once(": Kind = Kind("))
        {
            text.push_str(&format!(
                "| {} | {name} | {} |\n",
                number.trim_end_matches(");"),
                explained.trim_end()
            ));
            explained.clear();
        } else {
            explained.clear();
        }
    }
    let messages = fs::read_to_string(root().join("micro/overlay/wire/src/message.rs")).unwrap();
    text.push_str(
        "\n`bytes` are a length (u32) and that many bytes; the payloads of the others are plain bytes.\n\n",
    );
    let mut explained = String::new();
    for line in messages.lines() {
        if let Some(words) = line.strip_prefix("/// ") {
            explained.push_str(&format!("{} ", plain(words)));
        } else if let Some(name) = line.strip_prefix("pub struct ") {
            let name = name.split(['<', ' ', ';']).next().unwrap_or_default();
            if explained.contains("u8") || explained.contains("u16") {
                text.push_str(&format!("- **{name}**: {}\n", explained.trim_end()));
            }
            explained.clear();
        } else if !line.starts_with('#') {
            explained.clear();
        }
    }
    // Whatever travels is there.
    let encoded = messages.split("\nimpl").skip(1).filter(|block| block.contains("pub fn encode("));
    let names = encoded.filter_map(|b| b.split('{').next()?.split_whitespace().last()?.split('<').next());
    for name in names {
        assert!(text.contains(&format!("- **{name}**: ")), "the page lacks the payload {name}");
    }
    let kinds = source.matches(": Kind = Kind(").count();
    let shown = text.matches("| Host: ").count() + text.matches("| Guest: ").count();
    assert!(kinds > 10 && shown == kinds, "{shown} of {kinds} kinds are on the page");
    is_up_to_date("overlay-protocol.md", &text);
}

/// The lines of a file between two, without what is before them.
fn cut<'a>(text: &'a str, from: &str, to: &str) -> impl Iterator<Item = &'a str> {
    let to = to.to_string();
    let inside = text.split_once(from).expect("the text is where it was").1.lines().skip(1);
    inside.take_while(move |line| *line != to)
}

#[test]
fn the_page_of_tracing_is_the_tables() {
    let mut text = String::from(
        "# Tracing: the language, tracepoints, maps and helpers\n\n\
         Generated from the tables in `host/trace` and `micro/overlay/bpf`.\n\n\
         ## The language of `unilith trace`\n\n\
         Actions are separated by `;`.\n\n```text\n",
    );
    let language = fs::read_to_string(root().join("host/trace/src/language/mod.rs")).unwrap();
    for line in cut(&language, "//! ```text", "//! ```") {
        text.push_str(&format!("{}\n", line.trim_start_matches("//!").strip_prefix(' ').unwrap_or("")));
    }
    text.push_str(
        "```\n\n## Ready to use\n\n`unilith trace MACHINE NAME ARGUMENT...`\n\n| name | | stands for |\n| --- | --- | --- |\n",
    );
    for ready in unilith_trace::ready::ALL {
        let usage = [&[ready.name], ready.arguments].concat().join(" ");
        text.push_str(&format!("| `{usage}` | {} | `{}` |\n", ready.summary, ready.shown()));
    }
    text.push_str(
        "\n## Tracepoints\n\nIn C `SEC(\"tp/GROUP/NAME\")`, and `SEC(\"perf_event\")` for `perf:sample`. `timer:every` is what `every` \
         in a line is.\n\n| tracepoint | a program gets |\n| --- | --- |\n",
    );
    for point in api_trace::Point::ALL {
        let known = unilith_trace::language::tracepoint(point.name());
        let context = known.map_or(bpf::Context::Registers, |(_, context)| context);
        assert!(known.is_some() || point == api_trace::Point::Every, "{}", point.name());
        text.push_str(&format!("| `{}` | `struct {}` |\n", point.name(), context.name()));
    }
    text.push_str(
        "\nAt the entry to and the return from a function it gets `struct pt_regs`.\n\n## Contexts\n",
    );
    for context in bpf::Context::ALL {
        text.push_str(&format!(
            "\n### struct {}\n\n{} bytes.\n\n| field | offset | bytes |\n| --- | --- | --- |\n",
            context.name(),
            context.size()
        ));
        for field in context.members() {
            text.push_str(&format!("| `{}` | {} | {} |\n", field.name, field.offset, field.size));
        }
    }
    text.push_str(&format!(
        "\n## Maps\n\nKeys of at most {} bytes, values of at most {}, maps of at most {} MiB. Numbers are Linux'.\n\n\
         | number | kind | helpers |\n| --- | --- | --- |\n",
        bpf::maps::LONGEST_KEY,
        bpf::maps::LONGEST_VALUE,
        bpf::maps::MAX_BYTES >> 20
    ));
    for kind in bpf::maps::Kind::ALL {
        let helpers: Vec<String> =
            bpf::helpers::ALL.iter().filter(|h| h.accepts(kind)).map(|h| format!("`{}`", h.name)).collect();
        text.push_str(&format!("| {} | {kind:?} | {} |\n", kind as u8, helpers.join(", ")));
    }
    text.push_str(
        "\n## Helpers\n\nNumbers and behaviour are Linux' where Linux has the helper. The declarations are those of\n\
         `overlay/include/unilith/bpf.h`.\n",
    );
    let header = fs::read_to_string(root().join("overlay/include/unilith/bpf.h")).unwrap();
    for helper in bpf::helpers::ALL {
        let numbers = [format!("(void *){};", helper.id), format!("(void *){:#x};", helper.id)];
        let declared = header.lines().find_map(|line| {
            let (declared, number) = line.split_once(" = ")?;
            numbers.iter().any(|n| n == number).then_some(declared)
        });
        let declared = declared.unwrap_or_else(|| panic!("bpf.h lacks helper {} {}", helper.id, helper.name));
        let declared = declared.trim_start_matches("static ").replace("(*const ", "").replacen(')', "", 1);
        let summary = bpf::helpers::summary(helper.id);
        assert!(declared.contains(helper.name) && !summary.is_empty(), "{declared}: {summary}");
        text.push_str(&format!("\n### {} {}\n\n`{declared}`\n\n{summary}.\n", helper.id, helper.name));
    }
    let declared = header.matches(" = (void *)").count();
    assert_eq!(declared, bpf::helpers::ALL.len(), "bpf.h declares what is no helper");
    is_up_to_date("tracing.md", &text);
}

/// What a header says, in its order, behind the page's head. `guard` is what its first lines define.
fn manual(head: &str, header: &str, guard: &str) -> String {
    let mut text = String::from(head);
    let (mut prose, mut code) = (String::new(), String::new());
    let mut in_comment = false;
    let flush = |text: &mut String, prose: &mut String, code: &mut String| {
        if !prose.trim().is_empty() {
            text.push_str(&format!("\n{}\n", prose.trim()));
        }
        if !code.trim().is_empty() {
            text.push_str(&format!("\n```c\n{}\n```\n", code.trim()));
        }
        prose.clear();
        code.clear();
    };
    for line in header.lines().skip(1) {
        let is_guard = line.starts_with("#if") || line.starts_with("#endif") || line.starts_with("#include");
        if is_guard || line.contains(guard) || matches!(line, "extern \"C\" {" | "}") {
            continue;
        }
        if let Some(title) = line.strip_prefix("/* ---- ") {
            flush(&mut text, &mut prose, &mut code);
            text.push_str(&format!(
                "\n## {}\n",
                title.trim_end_matches("*/").trim().trim_end_matches('-').trim()
            ));
        } else if in_comment || line.starts_with("/*") {
            if !in_comment && !code.is_empty() {
                flush(&mut text, &mut prose, &mut code);
            }
            in_comment = !line.ends_with("*/");
            let words = line.trim_start_matches("/*").trim_end_matches("*/").trim_start();
            let words = words.strip_prefix('*').unwrap_or(words).trim();
            prose.push_str(words);
            prose.push('\n');
        } else {
            code.push_str(line);
            code.push('\n');
        }
    }
    flush(&mut text, &mut prose, &mut code);
    text
}

/// A page that programs with a device of their own are written with, from the header of that name.
fn manual_of_device(name: &str, title: &str, functions: usize) {
    let header = fs::read_to_string(root().join(format!("micro/raw/include/unilith/{name}.h")))
        .expect("a file of the repository");
    let head = format!(
        "# {title} for linked programs\n\n\
        Generated from `micro/raw/include/unilith/{name}.h`. [A how-to](../how-to/raw.md) uses it, and\n\
        [program and kernel in one image](../explanation/specialise.md) says what it gives.\n"
    );
    is_up_to_date(
        &format!("{name}.md"),
        &manual(&head, &header, &format!("UNILITH_{}_H", name.to_uppercase())),
    );
    // Both sides have every function: the kernel's, and the one that ends a program without a kernel.
    let start = format!("int unilith_{name}_");
    let names: Vec<&str> =
        header.lines().filter_map(|l| l.strip_prefix(&*start)?.split('(').next()).collect();
    assert_eq!(names.len(), functions, "{names:?}");
    let program = root().join("micro/raw/program");
    let linked = fs::read_to_string(program.join("linked.s")).expect("a file of the repository");
    let native =
        fs::read_to_string(program.join(format!("native-{name}.c"))).expect("a file of the repository");
    for function in names {
        let is_there = |macro_name| linked.contains(&format!("\n{macro_name} {name}_{function}\n"));
        assert!(is_there("raw") || is_there("raw4"), "linked.s lacks {function}");
        assert!(native.contains(&format!("{start}{function}(")), "native-{name}.c lacks {function}");
    }
}

#[test]
fn the_manuals_of_devices_are_their_headers() {
    manual_of_device("netdev", "Network devices", 8);
    manual_of_device("blockdev", "Disks", 5);
    manual_of_device("shfs", "A hash file system", 3);
}

/// The pages that C and Rust programs of the overlay are written with.
#[test]
fn the_manual_of_the_overlays_sdk_is_its_header() {
    let header = fs::read_to_string(root().join("overlay/include/unilith/overlay.h")).unwrap();
    let head = "# The SDK of overlay programs\n\n\
        Generated from `overlay/include/unilith/overlay.h`. Numbers of errors are those of Linux. In Rust the same calls are in\n\
        `overlay/rust`, with types; [a how-to](../how-to/save-database.md) uses them, and\n\
        [isolation](../explanation/isolation.md) says what a program may rely on.\n";
    is_up_to_date("overlay-sdk.md", &manual(head, &header, "UNILITH_OVERLAY_H"));

    // The header declares what the kernel serves, but for the linker's own.
    let calls = fs::read_to_string(root().join("micro/overlay/objects/src/api.rs")).unwrap();
    let names = calls.split("pub const NAMES").nth(1).and_then(|rest| rest.split("];").next()).unwrap();
    let names: Vec<&str> = names.split('"').filter(|name| name.starts_with("uio_")).collect();
    assert!(names.len() > 20, "the list of calls is where it was");
    for name in names.iter().filter(|name| **name != "uio_smashed") {
        assert!(header.contains(&format!("{name}(")), "the header lacks {name}");
    }
    // And what it declares is a call, or in the runtime that is linked to every program.
    let runtime = fs::read_to_string(root().join("overlay/runtime/runtime.c")).unwrap();
    let words = header.split(|c: char| !c.is_ascii_alphanumeric() && !"_(".contains(c));
    for name in words.filter_map(|w| w.split_once('(')).map(|w| w.0).filter(|w| w.starts_with("uio_")) {
        let is_call = names.contains(&name);
        let is_own = runtime.lines().any(|l| l.contains(&format!("{name}(")) && l.ends_with(['{', '}']));
        assert!(is_call || is_own, "nobody serves {name}, which the header declares");
    }
    let rust = fs::read_to_string(root().join("overlay/rust/src/lib.rs")).unwrap();
    for name in names.iter().filter(|name| **name != "uio_smashed") {
        assert!(rust.contains(&format!("fn {name}(")), "the Rust crate lacks {name}");
    }
}
