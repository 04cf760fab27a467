// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of the image that a client starts, as `docker exec` does: with the environment of the machine's program.

use super::commands::{PATH, REFUSED, UNKNOWN};
use overlay_wire::Program;
use rustix::process::Pid;
use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

/// An exit code, and why in a line.
type Refused = (u8, String);

/// What a client wants.
pub struct Wanted {
    terminal: bool,
    pub input: bool,
    pub detached: bool,
    user: String,
    working: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<OsString>,
}

impl Wanted {
    pub fn new(program: &Program<'_>) -> Wanted {
        let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
        let texts = |all: &[&[u8]]| all.iter().map(|bytes| text(bytes)).collect();
        Wanted {
            terminal: program.terminal.is_some(),
            input: program.input,
            detached: program.detached,
            user: String::from_utf8_lossy(program.user).into_owned(),
            working: text(program.working).into(),
            arguments: texts(&program.arguments),
            environment: texts(&program.environment),
        }
    }

    /// The program, ready to be started. `machines` is the machine's program, whose environment it has.
    pub fn prepare(&self, machines: Pid) -> Result<Command, Refused> {
        if self.terminal {
            let text = "machines with --kernel linux have no terminal for further programs: leave -t out";
            return Err((REFUSED, text.into()));
        }
        let own = fs::read(format!("/proc/{}/environ", machines.as_raw_pid())).unwrap_or_default();
        let own = own.split(|byte| *byte == 0).map(|entry| OsStr::from_bytes(entry).to_owned());
        let variables: Vec<(OsString, OsString)> =
            own.chain(self.environment.iter().cloned()).filter_map(|entry| variable(&entry)).collect();
        let path = variables.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
        let working = if self.working.as_os_str().is_empty() { Path::new("/") } else { &self.working };
        if !working.is_dir() {
            return Err((REFUSED, format!("{}: no such directory in the image", working.display())));
        }
        let name = self.arguments.first().ok_or((REFUSED, "no program".to_string()))?;
        let mut command = Command::new(find(name, path.unwrap_or_else(|| PATH.into()), working)?);
        command.arg0(name).args(&self.arguments[1..]).env_clear().envs(variables).current_dir(working);
        if !self.user.is_empty() {
            let (uid, gid) = ids(&self.user, &text("/etc/passwd"), &text("/etc/group"))?;
            command.uid(uid).gid(gid);
        }
        Ok(command)
    }
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Starts a program that nobody waits for, with no streams; its number.
pub fn detach(command: &mut Command) -> Result<u32, Refused> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child = command.spawn().map_err(failed)?;
    let pid = child.id();
    // It is this process' child, which reaps it.
    thread::spawn(move || child.wait());
    Ok(pid)
}

/// What is said of a program that cannot be started.
pub fn failed(e: io::Error) -> Refused {
    let code = if e.kind() == io::ErrorKind::NotFound { UNKNOWN } else { REFUSED };
    (code, format!("it cannot be started: {e}"))
}

/// `NAME=VALUE` taken apart.
fn variable(entry: &OsStr) -> Option<(OsString, OsString)> {
    let bytes = entry.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
    let text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    Some((text(&bytes[..at]), text(&bytes[at + 1..])))
}

/// Where the program is.
fn find(name: &OsStr, path: OsString, working: &Path) -> Result<PathBuf, Refused> {
    if name.as_bytes().contains(&b'/') {
        let found = working.join(name);
        return if found.exists() {
            Ok(found)
        } else {
            Err((UNKNOWN, "no such program in the image".into()))
        };
    }
    let found = std::env::split_paths(&path).map(|folder| working.join(folder).join(name));
    let mut found = found.filter(|path| path.is_file());
    found.next().ok_or((UNKNOWN, "no such program in the image".into()))
}

/// User and group of `NAME|UID[:GROUP|GID]`.
fn ids(wanted: &str, passwd: &str, group: &str) -> Result<(u32, u32), Refused> {
    let (user, wanted_group) = wanted.split_once(':').map_or((wanted, None), |(u, g)| (u, Some(g)));
    let field = |file: &str, name: &str, index: usize| -> Option<u32> {
        let fields = file.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let mut found = fields.filter(|f| f.first() == Some(&name) || f.get(2) == Some(&name));
        found.next()?.get(index)?.parse().ok()
    };
    let none = |what: &str, name: &str| (REFUSED, format!("-u: no {what} {name} in the image"));
    let uid = field(passwd, user, 2).or_else(|| user.parse().ok()).ok_or_else(|| none("user", user))?;
    let gid = match wanted_group {
        None => field(passwd, user, 3).unwrap_or(0),
        Some(name) => {
            field(group, name, 2).or_else(|| name.parse().ok()).ok_or_else(|| none("group", name))?
        }
    };
    Ok((uid, gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_groups_and_variables_are_understood() {
        let of = |text| ids(text, "me:x:1000:100::/home/me:/bin/sh\n", "wheel:x:10:me\n").map_err(|e| e.1);
        assert_eq!(of("me"), Ok((1000, 100)));
        assert_eq!(of("1000"), Ok((1000, 100)));
        assert_eq!(of("me:wheel"), Ok((1000, 10)));
        assert_eq!(of("7:8"), Ok((7, 8)));
        assert_eq!(of("you"), Err("-u: no user you in the image".into()));
        assert_eq!(variable(OsStr::new("A=b=c")), Some(("A".into(), "b=c".into())));
        assert_eq!(variable(OsStr::new("=x")), None);
    }

    #[test]
    fn a_program_is_looked_for_where_the_environment_says() {
        let root = Path::new("/");
        assert_eq!(find("sh".as_ref(), "/none:/bin".into(), root), Ok("/bin/sh".into()));
        assert_eq!(find("sh".as_ref(), "bin".into(), root), Ok("/bin/sh".into()));
        assert_eq!(find("sh".as_ref(), "/none".into(), root).unwrap_err().0, UNKNOWN);
        assert_eq!(find("./bin/sh".as_ref(), "/none".into(), root), Ok("/./bin/sh".into()));
    }
}
