// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where core files go: the pattern of kernel.core_pattern (core(5), "Naming of core dump files"). A pattern that starts a program is
//! refused.

use abi::setting::Setting;
use abi::{PATH_MAX, Result, errno::*};
use alloc::format;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_lock::SpinLock;
use task::Task;
use task::files;
use task::limits::RLIMIT_CORE;

/// Bytes of a pattern, its end included (Linux' CORENAME_MAX_SIZE); what is longer is cut off.
const MAX_PATTERN: usize = 128;

/// kernel.core_uses_pid.
pub static USES_PID: [Setting; 1] = [Setting::new(0, 0, i32::MAX as u64)];
/// `None`: `core`.
static PATTERN: SpinLock<Option<Vec<u8>>> = SpinLock::new(None);

pub fn pattern() -> Vec<u8> {
    PATTERN.lock().clone().unwrap_or_else(|| b"core".to_vec())
}

/// Takes what was written up to the end of its line. `EINVAL` for a program that is to get the file by a pipe.
pub fn set_pattern(written: &[u8]) -> Result<()> {
    let line = written.split(|byte| [b'\n', 0].contains(byte)).next().unwrap_or_default();
    let line = &line[..line.len().min(MAX_PATTERN - 1)];
    if line.starts_with(b"|") {
        return Err(EINVAL);
    }
    let mut new = Vec::new();
    new.reserve_exact_fallibly(line.len()).map_err(|_| ENOMEM)?;
    new.extend_from_slice(line);
    *PATTERN.lock() = Some(new);
    Ok(())
}

/// A path that is made of pieces: `ENAMETOOLONG` where it gets too long.
struct Path(Vec<u8>);

impl Path {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if self.0.len() + bytes.len() >= PATH_MAX {
            return Err(ENAMETOOLONG);
        }
        self.0.reserve_fallibly(bytes.len()).map_err(|_| ENOMEM)?;
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn number(&mut self, number: u64) -> Result<()> {
        self.put(format!("{number}").as_bytes())
    }

    /// A name is one part of a path: no slash is in it, it is not empty, and leads nowhere else.
    fn name(&mut self, name: &[u8]) -> Result<()> {
        if name.is_empty() {
            return self.put(b"!");
        }
        let leads_elsewhere = [&b"."[..], b".."].contains(&name);
        let clean =
            |(i, byte): (usize, &u8)| if *byte == b'/' || leads_elsewhere && i == 0 { b'!' } else { *byte };
        name.iter().enumerate().try_for_each(|part| self.put(&[clean(part)]))
    }
}

/// The path of the file that the process leaves, which a signal ends.
pub fn path(task: &Task, signal: i32) -> Result<Vec<u8>> {
    let pattern = pattern();
    let (process, who) = (&task.process, task.credentials().lock().clone());
    let program = || process.program().map(|program| program.file.clone());
    let (mut out, mut bytes, mut names_pid) = (Path(Vec::new()), pattern.iter(), false);
    while let Some(byte) = bytes.next() {
        if *byte != b'%' {
            out.put(&[*byte])?;
            continue;
        }
        match bytes.next() {
            None => break,
            Some(b'%') => out.put(b"%")?,
            Some(b'p') => {
                names_pid = true;
                out.number(process.pid.here() as u64)?;
            }
            Some(b'P') => out.number(process.pid.of_machine() as u64)?,
            Some(b'i') => out.number(task.tid.here() as u64)?,
            Some(b'I') => out.number(task.tid.of_machine() as u64)?,
            Some(b'u') => out.number(who.uid.into())?,
            Some(b'g') => out.number(who.gid.into())?,
            // Of others no file is left.
            Some(b'd') => out.number(1)?,
            Some(b's') => out.number(signal as u64)?,
            Some(b't') => out.number(task::time::clock::realtime_ns() / 1_000_000_000)?,
            Some(b'c') => out.number(process.limits.soft(RLIMIT_CORE))?,
            Some(b'h') => out.name(&crate::system::names().host_name())?,
            Some(b'e') => out.name(&task.comm())?,
            Some(b'f') => out.name(&program().map_or_else(Vec::new, |file| file.name()))?,
            Some(b'E') => {
                let root = files::current().root();
                out.name(&program().and_then(|file| file.path_from(&root)).unwrap_or_default())?;
            }
            Some(_) => {}
        }
    }
    if !names_pid && USES_PID[0].get() != 0 {
        out.put(b".")?;
        out.number(process.pid.here() as u64)?;
    }
    Ok(out.0)
}
