// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith bench --report FILE`: what a computer is, as far as figures depend on it, and what experiments give on it, as one
//! page of Markdown that its user may read and send. Nothing is sent. Names of the computer and its users are not in it.

use super::Args;
use crate::{
    fault::{Fault, Result, file},
    output::say,
    repository,
    verbs::doctor,
};
use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};
use unilith_bench::spectrum::commit;

/// What is run unless one is named, in the order of the page.
const EXPERIMENTS: [&str; 6] = ["boot", "syscall", "fault", "exits", "redis", "nginx"];
/// What decides over figures, and where the host's kernel says it.
const FACTS: [(&str, &str); 13] = [
    ("kernel", "/proc/sys/kernel/osrelease"),
    ("virtual machine", "/sys/class/dmi/id/sys_vendor"),
    ("clock", "/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    ("mitigations of spectre_v2", "/sys/devices/system/cpu/vulnerabilities/spectre_v2"),
    ("load", "/proc/loadavg"),
    ("kvm.halt_poll_ns", "/sys/module/kvm/parameters/halt_poll_ns"),
    ("kvm_intel.ept", "/sys/module/kvm_intel/parameters/ept"),
    ("kvm_intel.enable_apicv", "/sys/module/kvm_intel/parameters/enable_apicv"),
    ("kvm_intel.nested", "/sys/module/kvm_intel/parameters/nested"),
    ("kvm_amd.npt", "/sys/module/kvm_amd/parameters/npt"),
    ("kvm_amd.avic", "/sys/module/kvm_amd/parameters/avic"),
    ("kvm_amd.nested", "/sys/module/kvm_amd/parameters/nested"),
    ("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled"),
];
/// Bytes of one file of `/sys` or `/proc` that are of interest.
const MAX_FACT: usize = 200;

/// Writes the page at `path`, section by section, so that what was measured is there if a later experiment is interrupted.
///
/// # Errors
///
/// The file cannot be written: nothing is run before it can. An experiment that fails is a section that says so; all of
/// them failing is an error.
pub fn write(path: &Path, args: &Args) -> Result<u8> {
    let mut names: Vec<&str> = EXPERIMENTS.to_vec();
    if args.program.is_some() || args.name.as_deref() == Some(super::SPECTRUM) {
        return Err(Fault::new(
            "bench --report: a spectrum is a page of its own (`unilith bench spectrum redis`)",
        ));
    }
    if let Some(name) = &args.name {
        let Some((known, _)) = unilith_bench::experiments().find(|(known, _)| known == name) else {
            return Err(Fault::new(format!(
                "bench --report: there is no experiment `{name}` (`unilith bench` lists them)"
            )));
        };
        names = vec![known];
    }
    let (command, sources) = (repository::executable()?, repository::sources("unilith bench")?);
    let mut page = fs::File::create(path).map_err(file("write", path))?;
    let mut add = |text: String| page.write_all(text.as_bytes()).map_err(file("write", path));
    add(format!(
        "# Unilith on a computer\n\n{}\n## What `unilith doctor` says\n\n{}",
        facts(&commit(&sources)),
        quoted(&doctor::without_places())
    ))?;
    let mut measured = 0;
    for name in names {
        let mut child = Command::new(&command);
        let runs = format!("--runs={}", args.runs);
        let words = ["bench", name, &runs].into_iter().chain(args.micro_only.then_some("--micro-only"));
        let words: Vec<&str> = words.collect();
        child.args(&words).stdin(Stdio::null()).stderr(Stdio::inherit());
        let words = words.join(" ");
        eprintln!("unilith: report: unilith {words}");
        let ran = child.output().map_err(|e| Fault::new(format!("cannot run `unilith {words}`: {e}")))?;
        let what = if ran.status.success() {
            measured += 1;
            // Its headings are below ours.
            let printed = String::from_utf8_lossy(&ran.stdout);
            printed
                .lines()
                .map(|line| format!("{}{line}\n", if line.starts_with("## ") { "#" } else { "" }))
                .collect()
        } else {
            format!("It failed ({}); the reason is on the terminal.\n", ran.status)
        };
        add(format!("\n## `unilith {words}`\n\n{what}"))?;
    }
    if measured == 0 {
        return Err(Fault::new(format!(
            "bench --report: no experiment succeeded; {} says so",
            path.display()
        )));
    }
    say!("{}", path.display());
    eprintln!("unilith: read it before you send it: it has this computer's processor, kernel and figures");
    Ok(0)
}

/// The processor, the kernel, and how KVM is set up.
fn facts(commit: &str) -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let of_cpu = |key: &str| {
        let mut values =
            cpuinfo.lines().filter(|line| line.split(':').next().is_some_and(|k| k.trim() == key));
        values.next().and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim()).to_string()
    };
    let fact = |path: &str| -> Option<String> {
        let text = fs::read_to_string(path).ok()?;
        Some(text.trim().chars().take(MAX_FACT).collect())
    };
    let mut rows = vec![
        ("version".to_string(), format!("{} {commit}", env!("CARGO_PKG_VERSION"))),
        ("processor".into(), of_cpu("model name")),
        ("family, model, stepping".into(), ["cpu family", "model", "stepping"].map(of_cpu).join(", ")),
        ("microcode".into(), of_cpu("microcode")),
        ("processors".into(), std::thread::available_parallelism().map_or(String::new(), |n| n.to_string())),
    ];
    rows.extend(FACTS.iter().filter_map(|(name, path)| Some((name.to_string(), fact(path)?))));
    let rows = rows.iter().map(|(name, value)| format!("| {name} | {} |\n", value.replace('|', "/")));
    format!("| what | |\n| --- | --- |\n{}", rows.collect::<String>())
}

fn quoted(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_the_commit_and_the_kernel() {
        let facts = facts("0123abc");
        assert!(facts.contains(" 0123abc |") && facts.contains("| kernel | "), "{facts}");
        assert_eq!(quoted("a\nb\n"), "    a\n    b\n");
    }
}
