// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program that was linked with this kernel: an ELF file within the image (`micro/kernel/linked-*.ld`), which is mapped
//! as any other is. Its text calls functions of the kernel at their addresses.
//!
//! execve(2) of this program's file, by whatever link, starts it anew, and a script may name it as its interpreter. Any other
//! program would make its system calls by number, which nothing here answers.

use crate::program;
use abi::{PAGE_SIZE, Result, errno::*};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_alloc::Reserve;
use api_fs::FileType;
use api_lock::SpinLock;
use api_mem::{PageFrame, PageSource};
use api_plat::{KERNEL_IMAGE, PROCESS};
use core::sync::atomic::{AtomicBool, Ordering};
use mem::MappedFile;
use task::process::Process;
use vfs::{Credentials, Dentry, Walk, ops};

unsafe extern "C" {
    /// The linker script's: where the kernel sees the file; its start and end are multiples of the page size.
    static __program_start: u8;
    static __program_end: u8;
}

fn bounds() -> (u64, u64) {
    (&raw const __program_start as u64, &raw const __program_end as u64)
}

/// The file's pages.
struct Pages;

/// Copies of the pages, by page: on a platform whose image is no part of the machine's memory. All processes share them.
static COPIES: SpinLock<Vec<Option<PageFrame>>> = SpinLock::new(Vec::new());

impl PageSource for Pages {
    fn page(&self, index: u64, for_write: bool) -> Result<PageFrame> {
        let (start, end) = bounds();
        if for_write {
            return Err(EACCES);
        }
        let at = index.checked_mul(PAGE_SIZE as u64).and_then(|offset| start.checked_add(offset));
        let at = at.filter(|at| *at < end).ok_or(EFAULT)?;
        if !PROCESS {
            // SAFETY: a page of the image, which is permanent.
            return Ok(unsafe { PageFrame::from_raw(at - KERNEL_IMAGE) });
        }
        let mut copies = COPIES.lock();
        if copies.is_empty() {
            let pages = (end - start) as usize / PAGE_SIZE;
            copies.reserve_exact_fallibly(pages).map_err(|_| ENOMEM)?;
            copies.resize(pages, None);
        }
        let copy = &mut copies[index as usize];
        if copy.is_none() {
            let frame = PageFrame::new()?;
            // SAFETY: the image's own bytes, which nobody writes.
            frame.write(0, unsafe { core::slice::from_raw_parts(at as *const u8, PAGE_SIZE) });
            *copy = Some(frame);
        }
        copy.clone().ok_or(ENOMEM)
    }

    fn resident_page(&self, index: u64) -> Option<PageFrame> {
        self.page(index, false).ok()
    }

    fn length(&self) -> u64 {
        let (start, end) = bounds();
        end - start
    }
}

/// The program, which was named `name`: its place in the tree, and its pages.
pub fn first(process: &Process, name: &[u8]) -> Result<(Arc<Dentry>, Arc<MappedFile>)> {
    let dentry = place(process, name)?;
    let stat = dentry.inode().stat()?;
    Ok((dentry, mapped(name.to_vec(), stat.device, stat.inode)))
}

fn mapped(path: Vec<u8>, device: u64, inode: u64) -> Arc<MappedFile> {
    Arc::new(MappedFile { source: Arc::new(Pages), path, device, inode, place: None, is_writable: false })
}

/// What execve(2) runs of a file that may be executed: the linked program in place of its own file, or a script. `ENOSYS` for
/// another program.
pub fn executable(process: &Process, file: Arc<MappedFile>) -> Result<Arc<MappedFile>> {
    const ELF: [u8; 4] = *b"\x7fELF";
    if let Some(program) = process.program() {
        let own = program.file.inode().stat()?;
        if (own.device, own.inode) == (file.device, file.inode) {
            return Ok(mapped(file.path.clone(), own.device, own.inode));
        }
    }
    let mut start = [0; ELF.len()];
    if file.source.length() >= ELF.len() as u64 {
        file.source.page(0, false)?.read(0, &mut start);
    }
    if start != ELF {
        return Ok(file);
    }
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Ordering::Relaxed) {
        log::warn!(
            "execve of {} answers ENOSYS: a machine of --static has this one program; without --static it has all",
            file.path.escape_ascii()
        );
    }
    Err(ENOSYS)
}

/// The file that stands for the program in the tree: the image's own, or an empty one, for /proc/self/exe.
fn place(process: &Process, path: &[u8]) -> Result<Arc<Dentry>> {
    if let Ok(found) = program::find(process, path) {
        return Ok(found);
    }
    let path = core::str::from_utf8(path).map_err(|_| ENOENT)?;
    let path = if path.starts_with('/') { String::from(path) } else { alloc::format!("/{path}") };
    let namespace = &process.files.namespace();
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    if !folder.is_empty() {
        ops::directory(namespace, folder, 0o755).map_err(|_| ENOENT)?;
    }
    let root = namespace.root().topmost();
    let who = Credentials::root();
    ops::create(&Walk::new(&root, &root, &who), path.as_bytes(), FileType::Regular, 0o755, 0)
}
