// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A pseudo-terminal with a command at its other end, as somebody who sits at it sees it.

use crate::PATIENCE;
use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use std::{
    fs::File,
    io::{Read, Write},
    process::{Child, Command},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::Instant,
};

/// The keys and the screen. The command ends with it.
pub struct Terminal {
    child: Child,
    keys: File,
    screen: Receiver<Vec<u8>>,
}

impl Terminal {
    /// Starts the command in a session of its own, which the terminal controls.
    #[track_caller]
    pub fn start(command: &Command) -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).expect("a pseudo-terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it is ours");
        let name = ptsname(&ours, Vec::new()).expect("it has a name");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let theirs = File::from(rustix::fs::open(&name, flags, Mode::empty()).expect("its other end"));
        // The first process of a session takes the terminal that is its standard input.
        let mut led = Command::new("setsid");
        led.arg("--ctty").arg(command.get_program()).args(command.get_args()).env("TERM", "xterm");
        led.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        if let Some(folder) = command.get_current_dir() {
            led.current_dir(folder);
        }
        led.stdin(theirs.try_clone().expect("a descriptor"));
        led.stdout(theirs.try_clone().expect("a descriptor")).stderr(theirs);
        let child = led.spawn().expect("the command runs");
        let keys = File::from(ours);
        let mut reader = keys.try_clone().expect("a descriptor");
        let (sender, screen) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // The end of the other side's last descriptor is an error here (EIO).
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut terminal = Terminal { child, keys, screen };
        terminal.resize(24, 80);
        terminal
    }

    /// Gives the terminal another size.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keys, size).expect("a terminal has a size");
    }

    /// Types.
    pub fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("keys are taken");
    }

    /// Types, and waits until this is on the screen; answers what came since.
    #[track_caller]
    pub fn shows(&mut self, keys: &str, text: &str) -> String {
        self.types(keys);
        let (mut seen, begin) = (Vec::new(), Instant::now());
        loop {
            let shown = without_controls(&seen);
            if shown.contains(text) {
                return shown;
            }
            match self.screen.recv_timeout(PATIENCE.saturating_sub(begin.elapsed())) {
                Ok(bytes) => seen.extend(bytes),
                Err(RecvTimeoutError::Timeout) => panic!("{keys:?}: no {text:?} in {shown:?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("{keys:?}: it ended: {shown:?}"),
            }
        }
    }

    /// Waits until the command has ended; its exit code, and what it showed last.
    #[track_caller]
    pub fn ends(mut self) -> (Option<i32>, String) {
        let mut seen = Vec::new();
        // What is still written keeps the other side from waiting for room.
        while let Ok(bytes) = self.screen.recv_timeout(PATIENCE) {
            seen.extend(bytes);
        }
        let code = self.child.wait().expect("it can be waited for").code();
        (code, without_controls(&seen))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Of a test that failed; else it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text without what moves the cursor (ECMA-48 5.4: ESC [, parameters, a final byte), and without carriage returns.
fn without_controls(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split("\x1b[");
    let mut shown = parts.next().unwrap_or_default().to_string();
    for part in parts {
        let end = part.find(|c: char| ('@'..='~').contains(&c)).map_or(part.len(), |at| at + 1);
        shown.push_str(&part[end..]);
    }
    shown.replace('\r', "")
}
