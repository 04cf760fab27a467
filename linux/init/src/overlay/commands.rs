// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The overlay's commands on Linux: what the micro-library OS does itself, ordinary programs do here.

use rustix::{
    mount::{MountFlags, mount},
    process::Pid,
};
use std::{
    ffi::{CString, OsStr, OsString},
    fs,
    os::unix::{ffi::OsStrExt, process::CommandExt},
    path::Path,
    process::Command,
    sync::Once,
};

/// Name, arguments, what it does, the tool of busybox with its first arguments, and how words of the first are completed.
struct Known {
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    tool: &'static [&'static str],
    completes: &'static str,
}

const fn known(
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    tool: &'static [&'static str],
    completes: &'static str,
) -> Known {
    Known { name, arguments, summary, tool, completes }
}

/// The set that both kernels have. Any other name is a program of the image, or another tool of busybox.
const COMMANDS: [Known; 15] = [
    known("cat", "[FILE...]", "Print files", &["cat"], "paths"),
    known("complete", "KIND PREFIX", "Say how a word may go on", &[], "nothing"),
    known(
        "cp",
        "[-r] FROM... TO",
        "Copy files, also from and to the host's directory /overlay",
        &["cp"],
        "paths",
    ),
    known("export", "", "Print the root file system as a cpio archive", &["sh", "-c", EXPORT], "nothing"),
    known("help", "", "List the commands", &[], "nothing"),
    known("kill", "[-SIGNAL] [PROCESS...] | -l", "Send a signal to the program", &["kill"], "nothing"),
    known("log", "", "Show the kernel's log", &["dmesg"], "nothing"),
    known("ls", "[-l] [PATH...]", "List directories and files", &["ls"], "paths"),
    known("mem", "", "Show who has the memory", &["free"], "nothing"),
    known("mkdir", "[-p] DIRECTORY...", "Make directories", &["mkdir"], "paths"),
    known("mv", "FROM... TO", "Rename files, or move them", &["mv"], "paths"),
    known("net", "", "List sockets", &["netstat", "-tuan"], "nothing"),
    known("ps", "", "List processes", &["ps"], "nothing"),
    known("rm", "[-r] PATH...", "Remove files", &["rm"], "paths"),
    known("sync", "", "Store what was written to files", &["sync"], "nothing"),
];
/// Each mount point is an entry with another device number, and nothing below it is one. The format has 32 bits for a size.
const EXPORT: &str = "set -o pipefail; large=$(find / -xdev -type f -size +4194303k | head -n 1); \
    if [ \"$large\" ]; then echo \"$large: a file of 4 GiB or more\" >&2; exit 1; fi; \
    find / -xdev -print0 | cpio -0 -o -H newc";
/// The host's directory of this machine.
const OVERLAY: &str = "/overlay";
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What shells answer for a name they do not know, and for what they cannot run.
pub const UNKNOWN: u8 = 127;
pub const REFUSED: u8 = 126;

/// What a command comes to.
pub enum Prepared {
    /// Its output; it is done.
    Answer(String),
    /// A process, and whether it takes the client's input.
    Process { command: Command, reads: bool },
}

/// What to run; an error is an exit code with a line that says why.
pub fn prepare(
    name: &OsStr,
    arguments: &[OsString],
    json: bool,
    program: Pid,
) -> Result<Prepared, (u8, String)> {
    if arguments.iter().any(|a| a.as_bytes().starts_with(OVERLAY.as_bytes())) {
        attach_files();
    }
    match name.to_str() {
        Some("help") => return Ok(Prepared::Answer(help(json))),
        Some("complete") => return Ok(Prepared::Answer(complete(arguments))),
        _ if json => {
            return Err((REFUSED, "on Linux only `help` answers in JSON: leave --json out".into()));
        }
        _ => {}
    }
    let stdin = OsStr::new("-");
    // busybox' cp has no `-`.
    let (name, arguments): (&OsStr, Vec<OsString>) = match (name.to_str(), arguments) {
        (Some("cp"), [from, to]) if from == stdin => {
            let script = ["-c", "cat > \"$1\"", "sh"].map(OsString::from);
            (OsStr::new("sh"), script.into_iter().chain([to.clone()]).collect())
        }
        (Some("cp"), [from, to]) if to == stdin => (OsStr::new("cat"), vec![from.clone()]),
        (Some("kill"), words) => (name, kill_words(words, program)),
        _ => (name, arguments.to_vec()),
    };
    let known = COMMANDS.iter().find(|known| name == known.name);
    let reads = match known {
        Some(Known { name: "cat", .. }) => arguments.is_empty() || arguments.iter().any(|a| a == stdin),
        Some(_) => false,
        None => true,
    };
    let mut command = match known {
        Some(known) => tool(known.tool)?,
        None => program_or_tool(name)?,
    };
    command.args(arguments).env_clear().env("PATH", PATH).env("HOME", "/root").current_dir("/");
    Ok(Prepared::Process { command, reads })
}

/// A tool of the busybox that this process was given.
fn tool(words: &[&str]) -> Result<Command, (u8, String)> {
    let [name, first @ ..] = words else { return Err((REFUSED, "it is no tool".into())) };
    let busybox = format!("/proc/{}/fd/0", std::process::id());
    // Without one the standard input is /dev/null.
    if !fs::metadata(&busybox).is_ok_and(|m| m.is_file()) {
        return Err((REFUSED, "this machine was started without the tools: see what `run` said".into()));
    }
    let mut command = Command::new(busybox);
    command.arg0(name).args(first);
    Ok(command)
}

/// A program of the image where it has one of that name, else a tool.
fn program_or_tool(name: &OsStr) -> Result<Command, (u8, String)> {
    let is_path = name.as_bytes().contains(&b'/');
    let found = PATH.split(':').map(|folder| Path::new(folder).join(name)).find(|path| path.is_file());
    match (is_path, found, name.to_str()) {
        (true, ..) => Ok(Command::new(name)),
        (false, Some(path), _) => Ok(Command::new(path)),
        (false, None, Some(name)) if has_tool(name) => tool(&[name]),
        _ => Err((UNKNOWN, "no such command; `help` lists them".into())),
    }
}

fn has_tool(name: &str) -> bool {
    let listed = tool(&["busybox", "--list"]).ok().and_then(|mut list| list.output().ok());
    listed.is_some_and(|o| String::from_utf8_lossy(&o.stdout).lines().any(|tool| tool == name))
}

/// Without a process the signal is the program's; 1 is the program, as on the micro-library OS.
fn kill_words(words: &[OsString], program: Pid) -> Vec<OsString> {
    let program = OsString::from(program.as_raw_pid().to_string());
    let is_option = |word: &OsString| word.as_bytes().starts_with(b"-");
    let mut out: Vec<OsString> =
        words.iter().map(|word| if word == "1" { program.clone() } else { word.clone() }).collect();
    let names_signal = words.first().is_some_and(|word| word == "-s");
    let targets =
        words.iter().filter(|word| !is_option(word)).count() - usize::from(names_signal && words.len() > 1);
    if targets == 0 && words.first().is_none_or(|word| word != "-l") {
        out.push(program);
    }
    out
}

fn help(json: bool) -> String {
    let width = COMMANDS.iter().map(|c| c.name.len()).max().unwrap_or_default();
    let line = |c: &Known| match json {
        true => format!(
            "{{\"name\":\"{}\",\"arguments\":\"{}\",\"summary\":\"{}\",\"help\":\"\",\"completes\":\"{}\"}}\n",
            c.name, c.arguments, c.summary, c.completes
        ),
        false => format!("{:width$}  {}\n", c.name, c.summary),
    };
    COMMANDS.iter().map(line).collect()
}

/// Words of a kind that begin with a prefix, one a line.
fn complete(words: &[OsString]) -> String {
    let [kind, prefix] = words else { return String::new() };
    let Some(prefix) = prefix.to_str() else { return String::new() };
    match kind.to_str() {
        Some("commands") => {
            let names = COMMANDS.iter().map(|c| c.name).filter(|name| name.starts_with(prefix));
            names.map(|name| format!("{name}\n")).collect()
        }
        Some("paths") => {
            let (folder, start) = prefix.rsplit_once('/').unwrap_or(("", prefix));
            let mut found: Vec<String> = fs::read_dir(format!("{folder}/"))
                .into_iter()
                .flat_map(|entries| entries.flatten())
                .filter_map(|entry| {
                    let name = entry.file_name().into_string().ok()?;
                    let slash = if entry.path().is_dir() { "/" } else { "" };
                    name.starts_with(start).then(|| format!("{folder}/{name}{slash}\n"))
                })
                .collect();
            found.sort();
            found.concat()
        }
        _ => String::new(),
    }
}

/// Mounts the host's directory of this machine, once. Where that fails the path is missing, as the command says.
fn attach_files() {
    static ATTACHED: Once = Once::new();
    ATTACHED.call_once(|| {
        let data = CString::new("trans=virtio,version=9p2000.L,msize=512000").unwrap_or_default();
        let mounted = crate::mounts::folder(OVERLAY, 0o755).and_then(|()| {
            mount("overlay", OVERLAY, "9p", MountFlags::empty(), data.as_c_str()).map_err(|e| e.to_string())
        });
        if let Err(e) = mounted {
            eprintln!("unilith: {OVERLAY}: {e}");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_signal_without_a_process_is_the_programs() {
        let program = Pid::from_raw(77).unwrap();
        for (given, run) in [
            ("", "77"),
            ("-HUP", "-HUP 77"),
            ("-s HUP", "-s HUP 77"),
            ("-HUP 1", "-HUP 77"),
            ("12 13", "12 13"),
            ("-l", "-l"),
        ] {
            assert_eq!(kill_words(&words(given), program), words(run), "{given}");
        }
    }

    #[test]
    fn words_are_completed_and_help_is_json_where_asked() {
        assert_eq!(complete(&words("commands mk")), "mkdir\n");
        assert_eq!(complete(&words("paths /etc/hostnam")), "/etc/hostname\n");
        assert_eq!(complete(&words("symbols x")), "");
        assert!(help(true).lines().all(|line| line.starts_with("{\"name\":\"") && line.ends_with("\"}")));
    }
}
