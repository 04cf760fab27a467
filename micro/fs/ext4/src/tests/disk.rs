// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk in memory that remembers what is written to it, and the tools of e2fsprogs.

use crate::Disk;
use abi::{Result, errno::EIO};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::string::String;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::vec::Vec;

#[derive(Clone, Debug)]
pub enum Event {
    Write(u64, Vec<u8>),
    Flush,
}

pub struct MemoryDisk {
    bytes: Mutex<Vec<u8>>,
    /// Writes fail from now on.
    pub is_broken: AtomicBool,
    /// What was done, where it is recorded.
    pub events: Mutex<Option<Vec<Event>>>,
}

impl MemoryDisk {
    pub fn new(bytes: Vec<u8>) -> Arc<MemoryDisk> {
        let (bytes, events) = (Mutex::new(bytes), Mutex::new(None));
        Arc::new(MemoryDisk { bytes, is_broken: AtomicBool::new(false), events })
    }

    pub fn record(&self) {
        *self.events.lock().unwrap() = Some(Vec::new());
    }

    pub fn event_count(&self) -> usize {
        self.events.lock().unwrap().as_ref().map_or(0, Vec::len)
    }

    pub fn contents(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }

    pub fn change(&self, at: usize, change: impl FnOnce(&mut u8)) {
        change(&mut self.bytes.lock().unwrap()[at]);
    }

    /// Runs a tool on the disk as a file, and reads back what it made of it.
    pub fn run(&self, tool: &str, arguments: &[&str]) -> (i32, String) {
        let folder = folder();
        let file = folder.path().join("image");
        std::fs::write(&file, &*self.bytes.lock().unwrap()).unwrap();
        let (code, text) = tool_on(tool, arguments, &file);
        *self.bytes.lock().unwrap() = std::fs::read(&file).unwrap();
        (code, text)
    }

    pub fn debugfs(&self, request: &str) -> String {
        self.run("debugfs", &["-R", request]).1
    }
}

impl Disk for MemoryDisk {
    fn bytes(&self) -> u64 {
        self.bytes.lock().unwrap().len() as u64
    }

    fn is_read_only(&self) -> bool {
        false
    }

    fn read(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        let start = offset as usize;
        to.copy_from_slice(&self.bytes.lock().unwrap()[start..start + to.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<()> {
        assert!(offset.is_multiple_of(1024) && from.len().is_multiple_of(1024));
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(EIO);
        }
        let start = offset as usize;
        self.bytes.lock().unwrap()[start..start + from.len()].copy_from_slice(from);
        if let Some(events) = &mut *self.events.lock().unwrap() {
            events.push(Event::Write(offset, from.to_vec()));
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        if let Some(events) = &mut *self.events.lock().unwrap() {
            events.push(Event::Flush);
        }
        Ok(())
    }
}

/// A folder that goes when it is dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn folder() -> Folder {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(std::format!("unilith-ext4-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    Folder(path)
}

fn tool_on(tool: &str, arguments: &[&str], file: &Path) -> (i32, String) {
    // Debian has them where only root's shells look.
    let path = std::env::var("PATH").unwrap_or_default() + ":/sbin:/usr/sbin";
    let Output { status, stdout, stderr } = Command::new(tool)
        .env("PATH", path)
        .args(arguments)
        .arg(file)
        .output()
        .unwrap_or_else(|e| panic!("{tool} (package e2fsprogs): {e}"));
    let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    (status.code().unwrap_or(-1), text)
}

/// A new file system of mkfs.ext4(8).
pub fn image(bytes: usize, options: &[&str]) -> Arc<MemoryDisk> {
    let disk = MemoryDisk::new(std::vec![0; bytes]);
    let mut arguments = std::vec!["-q", "-F", "-E", "lazy_itable_init=1"];
    arguments.extend(options);
    let folder = folder();
    let file = folder.path().join("image");
    std::fs::write(&file, disk.contents()).unwrap();
    let (code, text) = tool_on("mkfs.ext4", &arguments, &file);
    assert_eq!(code, 0, "{text}");
    MemoryDisk::new(std::fs::read(&file).unwrap())
}

/// e2fsck(8) finds nothing to mend.
pub fn check(disk: &MemoryDisk, kind: &[&str]) {
    let (code, text) = disk.run("e2fsck", &["-fn"]);
    assert_eq!(code, 0, "{kind:?}: {text}");
}
