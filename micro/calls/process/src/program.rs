// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Running a program: from its path to an address space that holds it.

use abi::{Errno, PAGE_SIZE, Result, errno::*};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use api_fs::FileType;
use api_lock::SpinLock;
use api_mem::PageFrame;
use core::cell::RefCell;
use loader::{Executable, Failure, Identity, Interpreter, Loaded, Machine};
use mem::{Layout, Limits, MappedFile, Prot, Space};
use task::files;
use task::identity::capabilities::CAP_SYS_PTRACE;
use task::identity::credentials::{FileGrants, SetIds};
use task::identity::file_capabilities::{CAPABILITIES, FileCapabilities};
use task::pids::Pid;
use task::process::Process;
use task::time::namespace::{VDSO, clock_page};
use task::users::UserNamespace;
use vfs::{Access, Dentry, ops};

/// Where programs are looked for when the environment does not say (Docker's own default).
const PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What [`prepare`] made: the caller activates the space and enters the program, or drops it.
pub struct Prepared {
    pub space: Arc<Space>,
    pub loaded: Loaded,
    /// The file that runs, for /proc/self/exe.
    pub file: Arc<Dentry>,
    /// The first thread's name: how the program was called, not where a link led.
    pub comm: Vec<u8>,
    /// For [`start_as`].
    pub rights: FileRights,
}

/// What the file that is run gives the program.
#[derive(Clone, Copy, Debug)]
pub struct FileRights {
    grants: FileGrants,
    /// The program can do more than the user who runs it, or could without a tracer.
    is_secure: bool,
    /// Its user may read all of its files: a core file or a tracer would show them (Linux' would_dump).
    is_readable: bool,
}

/// Finds a program by its path, for [`prepare`].
pub fn find(process: &Process, path: &[u8]) -> Result<Arc<Dentry>> {
    task::Runner::of(process).files().lookup(path, &files::credentials_for(process))
}

/// What is to run.
pub struct Asked {
    pub file: Arc<Dentry>,
    /// What [`executable`] answered for it.
    pub pages: Arc<MappedFile>,
    /// How it was named.
    pub name: Vec<u8>,
    /// A script's interpreter would not find it by this name: `ENOENT` for one.
    pub is_closed: bool,
    pub arguments: Vec<Vec<u8>>,
    pub environment: Vec<Vec<u8>>,
}

/// Finds the program by its path, or by its name as [`candidates`] has it, and loads it: the first program, and the one that it is
/// replaced by when it is to start again. Of an image with a linked program it is that, whatever the path.
pub fn prepare_first(
    process: &Process,
    name: Vec<u8>,
    arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
) -> core::result::Result<Prepared, Failure> {
    #[cfg(feature = "linked")]
    let (file, pages) = crate::linked::first(process, &name)?;
    #[cfg(not(feature = "linked"))]
    let (name, file, pages) = first_of(process, &candidates(&name, &environment), |path, file| {
        let pages = executable(process, &file)?;
        Ok((path.to_vec(), file, pages))
    })?;
    prepare(process, Asked { file, pages, name, is_closed: false, arguments, environment })
}

/// What `load` makes of the first of these files that there is. One that may not be searched for or executed is passed over, and is what is wrong
/// if there is no other (execvp(3)); every other error of `load` is the last word.
pub fn first_of<T>(
    process: &Process,
    paths: &[Vec<u8>],
    mut load: impl FnMut(&[u8], Arc<Dentry>) -> Result<T>,
) -> Result<T> {
    let mut why = ENOENT;
    for path in paths {
        match find(process, path).map(|file| load(path, file)) {
            Ok(Err(EACCES)) | Err(EACCES) => why = EACCES,
            Ok(loaded) => return loaded,
            Err(ENOENT | ENOTDIR) if paths.len() > 1 => {}
            Err(e) => return Err(e),
        }
    }
    Err(why)
}

/// Where a program of this name may be, the likeliest first: in the directories of PATH, unless the name has a slash.
pub fn candidates(name: &[u8], environment: &[Vec<u8>]) -> Vec<Vec<u8>> {
    if name.contains(&b'/') {
        return vec![name.to_vec()];
    }
    let path = environment.iter().find_map(|entry| entry.strip_prefix(b"PATH=")).unwrap_or(PATH);
    let join = |directory: &[u8]| match directory {
        // POSIX, XBD 8.3: the working directory.
        b"" => name.to_vec(),
        directory => [directory.strip_suffix(b"/").unwrap_or(directory), b"/", name].concat(),
    };
    path.split(|byte| *byte == b':').map(join).collect()
}

/// Loads the program for the process; nothing of the process changes. Errors are execve(2)'s.
pub fn prepare(process: &Process, asked: Asked) -> core::result::Result<Prepared, Failure> {
    let Asked { file: dentry, pages: file, name, is_closed, arguments, environment } = asked;
    let comm = name.rsplit(|b| *b == b'/').next().unwrap_or_default().to_vec();
    let limits = limits(process);
    let mut random = [0; 48];
    api_plat::entropy(&mut random);
    let word = |i: usize| u64::from_le_bytes(core::array::from_fn(|b| random[i * 8 + b]));
    let space = Space::new(Layout::new([word(0), word(1), word(2), word(3)], limits.stack), limits)?;
    if process.pid == Pid::FIRST {
        space.tell_mappings();
    }
    // The last one that was found, which is the program when its ids are asked for.
    let runs = RefCell::new(dentry.clone());
    let (mut grants, mut is_secure) = (FileGrants::default(), false);
    let mut is_readable = may_read(process, &dentry)?;
    let loaded = loader::load(
        &space,
        Executable {
            file,
            name,
            arguments,
            environment,
            is_closed,
            identity: &mut || {
                grants = grants_of(&runs.borrow())?;
                let now = task::Runner::of(process).credentials().lock().clone();
                let (mut c, mut unwatched) = (now.clone(), now);
                c.program_starts(&grants, is_safe(process))?;
                is_secure = unwatched.program_starts(&grants, true)?;
                let (user, group) = (|id| c.users.shown_user(id), |id| c.users.shown_group(id));
                let (uid, euid, gid, egid) = (user(c.uid), user(c.euid), group(c.gid), group(c.egid));
                Ok(Identity { uid, euid, gid, egid, is_secure })
            },
            machine: &mut || map_vdso(&space, process).map(machine),
            random: core::array::from_fn(|i| random[32 + i]),
            limits,
            open: &mut |path, interpreter| {
                // The working directory, which is no program.
                if path.is_empty() {
                    return Err(EACCES);
                }
                let dentry = find(process, path)?;
                let file = executable(process, &dentry)?;
                is_readable &= may_read(process, &dentry)?;
                if interpreter == Interpreter::OfScript {
                    *runs.borrow_mut() = dentry;
                }
                Ok(file)
            },
        },
    )?;
    space.make_ready();
    Ok(Prepared { space, loaded, file: dentry, comm, rights: FileRights { grants, is_secure, is_readable } })
}

/// What the program gets from the file it is run from (execve(2)): nothing on a mount with "nosuid".
fn grants_of(dentry: &Dentry) -> Result<FileGrants> {
    if dentry.mount().flags().has(vfs::MountFlags::NOSUID) {
        return Ok(FileGrants::default());
    }
    // A file system that cannot say has none.
    let attribute = dentry.inode().get_xattr(CAPABILITIES).ok();
    let capabilities = attribute.as_deref().and_then(FileCapabilities::parse);
    let stat = dentry.inode().stat()?;
    let ids = SetIds::of(stat.permissions, stat.uid, stat.gid);
    Ok(FileGrants { ids, owner: Some((stat.uid, stat.gid)), capabilities })
}

/// Whether a program may be able to do more than its user: not under the eyes of a tracer that has no right to see them, and not
/// while another process can change its root directory.
fn is_safe(process: &Process) -> bool {
    let runner = task::Runner::of(process);
    let files = runner.files();
    // Threads of its own may: they end before the program begins.
    let own = process.tasks().filter(|task| task.files().position_address() == files.position_address());
    if files.position_users() > own.count().max(1) {
        return false;
    }
    let mut tracers = process.tasks().map(|task| task.tracing.tracer()).filter(|tracer| *tracer != Pid::NONE);
    let users = process.credentials.lock().users.clone();
    tracers.all(|tracer| {
        let tracer = task::processes::find(tracer);
        tracer.is_some_and(|tracer| tracer.credentials.lock().can_in(&users, CAP_SYS_PTRACE))
    })
}

/// Gives the process the credentials that its new program starts with. Whether it may have them is asked again: a tracer may
/// have come since the program was prepared. The user namespace whose secret the program's memory is: the one in which it is begun, or
/// the machine's own where its user may not read the file.
pub fn start_as(process: &Process, rights: FileRights) -> UserNamespace {
    let FileRights { grants, is_secure, is_readable } = rights;
    let may_gain = is_safe(process);
    let is_its_users = {
        let mut credentials = process.credentials.lock();
        let before = credentials.clone();
        // What is out of its bounds by now the program does not get.
        let _ = credentials.program_starts(&grants, may_gain);
        credentials.is_its_users() && credentials.is_within(&before)
    };
    process.settings.lock().program_starts(is_its_users && is_readable);
    if is_secure {
        process.tasks().for_each(|task| task.settings.secure_program_starts());
    }
    if is_readable { process.credentials.lock().users.clone() } else { UserNamespace::default() }
}

fn may_read(process: &Process, dentry: &Dentry) -> Result<bool> {
    let stat = dentry.inode().stat()?;
    Ok(files::credentials_for(process).check_file(dentry.inode(), &stat, Access::READ).is_ok())
}

/// A file that may be executed: `EACCES` (no right, no regular file, or a mount with "noexec"), `ETXTBSY` (open for writing), `ENOEXEC` (no pages);
/// in an image with a linked program `ENOSYS` for any other program.
pub fn executable(process: &Process, dentry: &Arc<Dentry>) -> Result<Arc<MappedFile>> {
    let who = files::credentials_for(process);
    let stat = dentry.inode().stat()?;
    let forbidden = dentry.mount().flags().has(vfs::MountFlags::NOEXEC);
    if stat.kind != FileType::Regular || forbidden {
        return Err(EACCES);
    }
    who.check_file(dentry.inode(), &stat, Access::EXECUTE)?;
    // Root may do anything but execute what nobody may.
    if stat.permissions & 0o111 == 0 {
        return Err(EACCES);
    }
    ops::is_program_of(&who, dentry)?;
    if descriptors::writers::is_written(dentry.inode()) {
        return Err(ETXTBSY);
    }
    let file = dentry.inode().open(dentry.inode(), 0)?;
    let source = file.page_source().map_err(|e| if e == ENODEV { ENOEXEC } else { e })?;
    let path =
        dentry.path_from(&task::Runner::of(process).files().root()).unwrap_or_else(|| dentry.name().to_vec());
    let (device, inode, place) = (stat.device, stat.inode, Some(dentry.clone() as _));
    let mapped = Arc::new(MappedFile { source, path, device, inode, place, is_writable: false });
    #[cfg(feature = "linked")]
    return crate::linked::executable(process, mapped);
    #[cfg(not(feature = "linked"))]
    Ok(mapped)
}

/// The limits that memory management keeps.
pub fn limits(process: &Process) -> Limits {
    use task::limits::{RLIMIT_AS, RLIMIT_DATA, RLIMIT_MEMLOCK, RLIMIT_STACK};
    let of = |resource| process.limits.soft(resource);
    Limits {
        stack: of(RLIMIT_STACK),
        address_space: of(RLIMIT_AS),
        data: of(RLIMIT_DATA),
        locked: of(RLIMIT_MEMLOCK),
    }
}

/// Maps the vDSO; its address.
fn map_vdso(space: &Space, process: &Process) -> Result<u64> {
    // SAFETY: pages of the kernel image are permanent.
    let code = unsafe { PageFrame::from_raw(api_plat::vdso().code) };
    let data = clock_page(&process.nsproxy.lock().time)?;
    let pages = [(data, Prot::READ), (code, Prot::READ.with(Prot::EXECUTE))];
    Ok(space.map_kernel_pages(&pages, VDSO)? + PAGE_SIZE as u64)
}

/// What every program is told of the machine, with its own vDSO.
fn machine(vdso: u64) -> Machine {
    // Asked once: a hypervisor answers CPUID in the processor's place, which takes it microseconds.
    static KNOWN: SpinLock<Option<Machine>> = SpinLock::new(None);
    let machine = *KNOWN.lock().get_or_insert_with(|| {
        let features = core::arch::x86_64::__cpuid(1);
        let extended = core::arch::x86_64::__cpuid_count(7, 0);
        Machine {
            hwcap: features.edx.into(),
            // FSGSBASE is CPUID leaf 7, EBX bit 0, and AT_HWCAP2 bit 1.
            hwcap2: u64::from(extended.ebx & 1) << 1,
            // What a signal frame needs at most: registers, and the extended state.
            signal_stack: 4096 + core::arch::x86_64::__cpuid_count(0xd, 0).ebx as u64,
            vdso: 0,
        }
    });
    Machine { vdso, ..machine }
}

/// Why a program did not start, in words for the user.
pub fn reason(path: &str, error: Errno) -> String {
    let why = match error {
        ENOENT => "no such file in the image (or its interpreter is missing)",
        EACCES => "not an executable file",
        ENOEXEC => "not a program for x86-64 Linux",
        ELIBBAD => "its interpreter is not a dynamic linker for x86-64",
        ENOMEM => "not enough memory: try more with -m",
        ELOOP => "too many links or interpreters",
        _ => return alloc::format!("{path}: {error:?}"),
    };
    alloc::format!("{path}: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_looked_for_where_the_environment_says() {
        let texts = |name: &[u8], environment: &[Vec<u8>]| {
            let text = |path: Vec<u8>| String::from_utf8(path).unwrap();
            candidates(name, environment).into_iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(texts(b"sh", &[b"PATH=/a:/b/:".to_vec()]), ["/a/sh", "/b/sh", "sh"]);
        assert_eq!(texts(b"./sh", &[]), ["./sh"]);
        assert_eq!(texts(b"sh", &[b"PATHS=/a".to_vec()])[1], "/usr/local/bin/sh");
    }
}
