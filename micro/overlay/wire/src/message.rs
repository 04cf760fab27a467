// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is in the payloads.

use crate::VERSION;
use alloc::vec::Vec;

/// The payload is not what its kind says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

type Result<T> = core::result::Result<T, Malformed>;

/// Takes a payload apart.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        if n > self.0.len() {
            return Err(Malformed);
        }
        let (head, tail) = self.0.split_at(n);
        self.0 = tail;
        Ok(head)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16> {
        let b = self.take(2)?;
        Ok(u16::from_le_bytes([b[0], b[1]]))
    }

    fn u32(&mut self) -> Result<u32> {
        let b = self.take(4)?;
        Ok(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }

    /// Bytes with their length in front.
    fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    /// A list of bytes with their number in front; at most [`Run::MAX_ARGUMENTS`].
    fn words(&mut self) -> Result<Vec<&'a [u8]>> {
        self.list(Run::MAX_ARGUMENTS, Reader::bytes)
    }

    /// A list with its number in front, which is at most `most`.
    fn list<T>(&mut self, most: u32, one: fn(&mut Reader<'a>) -> Result<T>) -> Result<Vec<T>> {
        match self.u32()? {
            count if count <= most => (0..count).map(|_| one(self)).collect(),
            _ => Err(Malformed),
        }
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Opens a session: `lowest` u16, `highest` u16, `client` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// Versions of the conversation that the client speaks.
    pub lowest: u16,
    pub highest: u16,
    /// Who it is, for the log.
    pub client: &'a [u8],
}

impl<'a> Hello<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = [self.lowest.to_le_bytes(), self.highest.to_le_bytes()].concat();
        put_bytes(&mut out, self.client);
        out
    }

    pub fn decode(payload: &'a [u8]) -> Result<Hello<'a>> {
        let mut r = Reader(payload);
        Ok(Hello { lowest: r.u16()?, highest: r.u16()?, client: r.bytes()? })
    }

    /// The highest version that both sides speak: each holds all of those before it.
    pub fn agree(&self) -> Option<u16> {
        let common = self.highest.min(VERSION);
        (self.lowest.max(1)..=common).contains(&common).then_some(common)
    }
}

/// The session is open: `version` u16, `requests` u16, `payload` u32, `window` u32, `kernel` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome<'a> {
    pub version: u16,
    /// Commands that may run in the session at once.
    pub requests: u16,
    /// Most bytes of a payload.
    pub payload: u32,
    pub window: u32,
    /// What runs there.
    pub kernel: &'a [u8],
}

impl<'a> Welcome<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = [self.version.to_le_bytes(), self.requests.to_le_bytes()].concat();
        out.extend([self.payload.to_le_bytes(), self.window.to_le_bytes()].concat());
        put_bytes(&mut out, self.kernel);
        out
    }

    pub fn decode(payload: &'a [u8]) -> Result<Welcome<'a>> {
        let mut r = Reader(payload);
        Ok(Welcome {
            version: r.u16()?,
            requests: r.u16()?,
            payload: r.u32()?,
            window: r.u32()?,
            kernel: r.bytes()?,
        })
    }
}

/// No session, or no command: `code` u16 (1: no common version, 2: too many sessions, 3: against the protocol), `text` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused<'a> {
    pub code: u16,
    pub text: &'a [u8],
}

impl<'a> Refused<'a> {
    /// No common version.
    pub const VERSION: u16 = 1;
    /// Too many sessions.
    pub const CROWDED: u16 = 2;
    /// The client did not keep to the protocol.
    pub const PROTOCOL: u16 = 3;

    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.code.to_le_bytes().to_vec();
        put_bytes(&mut out, self.text);
        out
    }

    pub fn decode(payload: &'a [u8]) -> Result<Refused<'a>> {
        let mut r = Reader(payload);
        Ok(Refused { code: r.u16()?, text: r.bytes()? })
    }
}

/// Starts a command: `flags` u8 (1: JSON), reserved u8, `columns` u16, number of arguments u32, each argument's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run<'a> {
    pub json: bool,
    /// Width of the client's terminal, 0 without one.
    pub columns: u16,
    /// The command's name and its arguments.
    pub arguments: Vec<&'a [u8]>,
}

impl<'a> Run<'a> {
    /// Most arguments.
    pub const MAX_ARGUMENTS: u32 = 4096;

    pub fn encode(&self) -> Vec<u8> {
        let mut out = alloc::vec![u8::from(self.json), 0];
        out.extend_from_slice(&self.columns.to_le_bytes());
        out.extend_from_slice(&(self.arguments.len() as u32).to_le_bytes());
        self.arguments.iter().for_each(|argument| put_bytes(&mut out, argument));
        out
    }

    pub fn decode(payload: &'a [u8]) -> Result<Run<'a>> {
        let mut r = Reader(payload);
        let (flags, _) = (r.u8()?, r.u8()?);
        let columns = r.u16()?;
        let arguments = r.words()?;
        if arguments.is_empty() {
            return Err(Malformed);
        }
        Ok(Run { json: flags & 1 != 0, columns, arguments })
    }
}

/// The size of a terminal: `columns` u16, `rows` u16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    pub columns: u16,
    pub rows: u16,
}

impl Size {
    pub fn encode(&self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.columns.to_le_bytes(), self.rows.to_le_bytes());
        [a, b, c, d]
    }

    pub fn decode(payload: &[u8]) -> Result<Size> {
        let mut r = Reader(payload);
        Ok(Size { columns: r.u16()?, rows: r.u16()? })
    }
}

/// Starts a program of the image: `flags` u8 (1: terminal, 2: input, 4: detached), reserved u8, `columns` u16, `rows` u16,
/// reserved u16, `user` bytes, `working` bytes (both may be empty), number of arguments u32, each argument's bytes, number
/// of variables u32, each variable's bytes (`NAME=VALUE`); since version 3 `container` bytes, which may be missing; since version 4
/// its [`Privileges`], which may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program<'a> {
    /// The program's standard streams are a terminal of this size.
    pub terminal: Option<Size>,
    /// The client's input is the program's; else that is /dev/null.
    pub input: bool,
    /// The client does not wait for its end, and has none of its streams.
    pub detached: bool,
    /// `NAME|UID[:GROUP|GID]`; empty for the user of the machine's first process.
    pub user: &'a [u8],
    /// Working directory; empty for the one in which the first process started.
    pub working: &'a [u8],
    /// The program's name or path, and its arguments.
    pub arguments: Vec<&'a [u8]>,
    /// What is added to the environment of the first process.
    pub environment: Vec<&'a [u8]>,
    /// The container in whose tree it runs, and whose first process is meant above; empty: the machine's.
    pub container: &'a [u8],
    /// `None`: those of the first process.
    pub privileges: Option<Privileges>,
}

/// What a program may do, in place of what the first process may: `flags` u8 (1: no new privileges), five sets of capabilities u64 (bounding,
/// permitted, effective, inheritable, ambient).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    pub no_new_privileges: bool,
    pub capabilities: [u64; 5],
}

impl Privileges {
    const NO_NEW_PRIVILEGES: u8 = 1;

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(if self.no_new_privileges { Privileges::NO_NEW_PRIVILEGES } else { 0 });
        self.capabilities.iter().for_each(|set| out.extend_from_slice(&set.to_le_bytes()));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Privileges> {
        let flags = r.u8()?;
        let mut capabilities = [0; 5];
        for set in &mut capabilities {
            *set = r.u64()?;
        }
        Ok(Privileges { no_new_privileges: flags & Privileges::NO_NEW_PRIVILEGES != 0, capabilities })
    }
}

impl<'a> Program<'a> {
    const TERMINAL: u8 = 1;
    const INPUT: u8 = 2;
    const DETACHED: u8 = 4;

    pub fn encode(&self) -> Vec<u8> {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.terminal.is_some(), Program::TERMINAL)
            | flag(self.input, Program::INPUT)
            | flag(self.detached, Program::DETACHED);
        let mut out = alloc::vec![flags, 0];
        out.extend_from_slice(&self.terminal.unwrap_or_default().encode());
        out.extend_from_slice(&[0; 2]);
        put_bytes(&mut out, self.user);
        put_bytes(&mut out, self.working);
        for words in [&self.arguments, &self.environment] {
            out.extend_from_slice(&(words.len() as u32).to_le_bytes());
            words.iter().for_each(|word| put_bytes(&mut out, word));
        }
        // A machine of version 2 does not look behind the environment, and one of version 3 not behind the container.
        put_bytes(&mut out, self.container);
        if let Some(privileges) = &self.privileges {
            privileges.encode(&mut out);
        }
        out
    }

    pub fn decode(payload: &'a [u8]) -> Result<Program<'a>> {
        let mut r = Reader(payload);
        let (flags, _) = (r.u8()?, r.u8()?);
        let size = Size::decode(r.take(4)?)?;
        r.u16()?;
        let (user, working) = (r.bytes()?, r.bytes()?);
        let (arguments, environment) = (r.words()?, r.words()?);
        if arguments.is_empty() {
            return Err(Malformed);
        }
        let container = if r.0.is_empty() { &[][..] } else { r.bytes()? };
        let privileges = if r.0.is_empty() { None } else { Some(Privileges::decode(&mut r)?) };
        Ok(Program {
            terminal: (flags & Program::TERMINAL != 0).then_some(size),
            input: flags & Program::INPUT != 0,
            detached: flags & Program::DETACHED != 0,
            user,
            working,
            arguments,
            environment,
            container,
            privileges,
        })
    }
}

/// A directory or file of the host and where it is in a container's tree: `flags` u8 (1: read-only), `tag` bytes, `name` bytes,
/// `path` bytes. Without a tag it is a file system in memory, and its name says which: `SIZE[/INODES]:MODE[:exec]`, as the boot setting
/// `tmpfs` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree<'a> {
    /// The mount tag of the machine's 9p channel whose server has it, and its name there (attach(5), `aname`).
    pub tag: &'a [u8],
    pub name: &'a [u8],
    /// Absolute.
    pub path: &'a [u8],
    pub read_only: bool,
}

/// A resource limit (getrlimit(2)): `resource` u8, `soft` u64, `hard` u64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub resource: u8,
    pub soft: u64,
    pub hard: u64,
}

/// Where a container's namespace of one kind comes from (namespaces(7)): `origin` u8 (0: the machine's, 1: a new one, 2: another
/// container's), and for the last one its `name` bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin<'a> {
    #[default]
    Machine,
    New,
    /// Of the container with that name.
    Container(&'a [u8]),
}

impl<'a> Origin<'a> {
    fn encode(self, out: &mut Vec<u8>) {
        match self {
            Origin::Machine => out.push(0),
            Origin::New => out.push(1),
            Origin::Container(name) => {
                out.push(2);
                put_bytes(out, name);
            }
        }
    }

    fn decode(r: &mut Reader<'a>) -> Result<Origin<'a>> {
        match r.u8()? {
            0 => Ok(Origin::Machine),
            1 => Ok(Origin::New),
            2 => Ok(Origin::Container(r.bytes()?)),
            _ => Err(Malformed),
        }
    }
}

/// A container's namespaces: an [`Origin`] each, and the `host name` bytes of a new UTS namespace; empty: that of the machine's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces<'a> {
    pub pid: Origin<'a>,
    pub ipc: Origin<'a>,
    pub uts: Origin<'a>,
    pub cgroup: Origin<'a>,
    pub host_name: &'a [u8],
}

/// A container's control group (cgroup-v2.rst): `files` u8 (0: nowhere, 1: at /sys/fs/cgroup, 2: there to be read only), most processes
/// and threads u64, and microseconds of processor time u64 in a period of so many u64. [`ControlGroup::NO_LIMIT`]: as many as
/// there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    /// Its files are seen; `true`: to be read only.
    pub files: Option<bool>,
    pub pids: u64,
    pub cpu: (u64, u64),
}

impl ControlGroup {
    pub const NO_LIMIT: u64 = u64::MAX;
    const DEFAULT_PERIOD_US: u64 = 100_000;
}

impl Default for ControlGroup {
    fn default() -> ControlGroup {
        let cpu = (ControlGroup::NO_LIMIT, ControlGroup::DEFAULT_PERIOD_US);
        ControlGroup { files: None, pids: ControlGroup::NO_LIMIT, cpu }
    }
}

/// Starts a container: `flags` u8 (1: no new privileges, 2: capabilities are given, 4: so is memory, 8: so is what it is kept from,
/// 16: so are its namespaces, 32: so is its control group, 64: so is its umask), reserved u8, `name` bytes, number of
/// trees u32, each [`Tree`], `uid` u32, `gid` u32, number of groups u32, each u32, five sets of capabilities u64 (bounding,
/// permitted, effective, inheritable, ambient), number of limits u32, each [`Limit`], `memory` u64 if given, if it is kept from something (8) the number of
/// instructions of its filter u32, each u64, two lists of paths (masked, read-only) with their number u32 in front, each bytes, the number of
/// settings u32, each a name and a value as bytes, its [`Namespaces`], its [`ControlGroup`] and its file mode creation mask u32 if given, and a [`Program`], whose user is not looked
/// at and whose environment is all that there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container<'a> {
    /// Tells it from the other containers of the machine.
    pub name: &'a [u8],
    /// One of them is at `/`.
    pub trees: Vec<Tree<'a>>,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub capabilities: Option<[u64; 5]>,
    pub no_new_privileges: bool,
    pub limits: Vec<Limit>,
    /// Most memory of their own that its processes may have together, in bytes.
    pub memory: Option<u64>,
    /// Instructions of its filter of system calls, each as `struct sock_filter` is in memory; none: no filter.
    pub filter: Vec<u64>,
    /// Absolute paths that show nothing, and those that may not be written to.
    pub masked: Vec<&'a [u8]>,
    pub read_only: Vec<&'a [u8]>,
    /// Names and values of /proc/sys.
    pub settings: Vec<(&'a [u8], &'a [u8])>,
    pub namespaces: Namespaces<'a>,
    pub group: ControlGroup,
    /// File mode creation mask; `None`: the machine's usual one.
    pub umask: Option<u32>,
    pub program: Program<'a>,
}

impl<'a> Container<'a> {
    const NO_NEW_PRIVILEGES: u8 = 1;
    const CAPABILITIES: u8 = 2;
    const MEMORY: u8 = 4;
    const CONFINED: u8 = 8;
    const NAMESPACES: u8 = 16;
    const GROUP: u8 = 32;
    const UMASK: u8 = 64;
    const READ_ONLY: u8 = 1;
    /// Most trees: a root, and more mounts than anybody's.
    pub const MAX_TREES: u32 = 256;
    /// Most groups and most limits (NGROUPS_MAX of Linux is larger, but so many do not fit one frame).
    pub const MAX_GROUPS: u32 = 4096;
    /// Most instructions of a filter (Linux' BPF_MAXINSNS).
    pub const MAX_FILTER: u32 = 4096;
    /// Most paths of each kind, and most settings: engines name a dozen.
    pub const MAX_CONFINED: u32 = 1024;

    pub fn encode(&self) -> Vec<u8> {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.no_new_privileges, Container::NO_NEW_PRIVILEGES)
            | flag(self.capabilities.is_some(), Container::CAPABILITIES)
            | flag(self.memory.is_some(), Container::MEMORY)
            | flag(self.is_confined(), Container::CONFINED)
            | flag(self.namespaces != Namespaces::default(), Container::NAMESPACES)
            | flag(self.group != ControlGroup::default(), Container::GROUP)
            | flag(self.umask.is_some(), Container::UMASK);
        let mut out = alloc::vec![flags, 0];
        put_bytes(&mut out, self.name);
        out.extend_from_slice(&(self.trees.len() as u32).to_le_bytes());
        for tree in &self.trees {
            out.push(flag(tree.read_only, Container::READ_ONLY));
            [tree.tag, tree.name, tree.path].iter().for_each(|bytes| put_bytes(&mut out, bytes));
        }
        let ids = [self.uid, self.gid, self.groups.len() as u32];
        ids.iter().chain(&self.groups).for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
        self.capabilities
            .unwrap_or_default()
            .iter()
            .for_each(|set| out.extend_from_slice(&set.to_le_bytes()));
        out.extend_from_slice(&(self.limits.len() as u32).to_le_bytes());
        for limit in &self.limits {
            out.push(limit.resource);
            [limit.soft, limit.hard].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        }
        if let Some(memory) = self.memory {
            out.extend_from_slice(&memory.to_le_bytes());
        }
        if self.is_confined() {
            out.extend_from_slice(&(self.filter.len() as u32).to_le_bytes());
            self.filter.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
            for paths in [&self.masked, &self.read_only] {
                out.extend_from_slice(&(paths.len() as u32).to_le_bytes());
                paths.iter().for_each(|path| put_bytes(&mut out, path));
            }
            out.extend_from_slice(&(self.settings.len() as u32).to_le_bytes());
            self.settings
                .iter()
                .flat_map(|(name, value)| [name, value])
                .for_each(|text| put_bytes(&mut out, text));
        }
        if self.namespaces != Namespaces::default() {
            let Namespaces { pid, ipc, uts, cgroup, host_name } = self.namespaces;
            [pid, ipc, uts, cgroup].into_iter().for_each(|origin| origin.encode(&mut out));
            put_bytes(&mut out, host_name);
        }
        if self.group != ControlGroup::default() {
            let ControlGroup { files, pids, cpu: (quota, period) } = self.group;
            out.push(files.map_or(0, |is_read_only| 1 + u8::from(is_read_only)));
            [pids, quota, period].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        }
        if let Some(umask) = self.umask {
            out.extend_from_slice(&umask.to_le_bytes());
        }
        out.extend_from_slice(&self.program.encode());
        out
    }

    fn is_confined(&self) -> bool {
        let has_paths = !self.masked.is_empty() || !self.read_only.is_empty();
        !self.filter.is_empty() || has_paths || !self.settings.is_empty()
    }

    pub fn decode(payload: &'a [u8]) -> Result<Container<'a>> {
        let mut r = Reader(payload);
        let (flags, _) = (r.u8()?, r.u8()?);
        let name = r.bytes()?;
        let trees = r.list(Container::MAX_TREES, |r| {
            let read_only = r.u8()? & Container::READ_ONLY != 0;
            Ok(Tree { tag: r.bytes()?, name: r.bytes()?, path: r.bytes()?, read_only })
        })?;
        let (uid, gid, groups) = (r.u32()?, r.u32()?, r.list(Container::MAX_GROUPS, Reader::u32)?);
        let mut capabilities = [0; 5];
        for set in &mut capabilities {
            *set = r.u64()?;
        }
        let limits = r.list(Container::MAX_GROUPS, |r| {
            Ok(Limit { resource: r.u8()?, soft: r.u64()?, hard: r.u64()? })
        })?;
        let memory = if flags & Container::MEMORY == 0 { None } else { Some(r.u64()?) };
        let (mut filter, mut masked, mut read_only, mut settings) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        if flags & Container::CONFINED != 0 {
            filter = r.list(Container::MAX_FILTER, Reader::u64)?;
            masked = r.list(Container::MAX_CONFINED, Reader::bytes)?;
            read_only = r.list(Container::MAX_CONFINED, Reader::bytes)?;
            settings = r.list(Container::MAX_CONFINED, |r| Ok((r.bytes()?, r.bytes()?)))?;
        }
        let mut namespaces = Namespaces::default();
        if flags & Container::NAMESPACES != 0 {
            let mut origin = || Origin::decode(&mut r);
            let (pid, ipc, uts, cgroup) = (origin()?, origin()?, origin()?, origin()?);
            namespaces = Namespaces { pid, ipc, uts, cgroup, host_name: r.bytes()? };
        }
        let mut group = ControlGroup::default();
        if flags & Container::GROUP != 0 {
            let files = match r.u8()? {
                0 => None,
                n @ 1..=2 => Some(n == 2),
                _ => return Err(Malformed),
            };
            group = ControlGroup { files, pids: r.u64()?, cpu: (r.u64()?, r.u64()?) };
        }
        let umask = if flags & Container::UMASK == 0 { None } else { Some(r.u32()?) };
        let program = Program::decode(r.0)?;
        if name.is_empty() {
            return Err(Malformed);
        }
        Ok(Container {
            name,
            trees,
            uid,
            gid,
            groups,
            capabilities: (flags & Container::CAPABILITIES != 0).then_some(capabilities),
            no_new_privileges: flags & Container::NO_NEW_PRIVILEGES != 0,
            limits,
            memory,
            filter,
            masked,
            read_only,
            settings,
            namespaces,
            group,
            umask,
            program,
        })
    }
}

/// The payload that says that a container's program runs: its number in the machine, u32.
pub fn started(pid: u32) -> [u8; 4] {
    pid.to_le_bytes()
}

pub fn read_started(payload: &[u8]) -> Result<u32> {
    Reader(payload).u32()
}

/// A failure: `errno` u16 (0: none), `flags` u8 (1: usage), reserved u8, `subject` bytes, `text` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorReport<'a> {
    pub errno: u16,
    /// The command was called in a way it does not know.
    pub is_usage: bool,
    /// What it is about; may be empty.
    pub subject: &'a [u8],
    pub text: &'a [u8],
}

impl<'a> ErrorReport<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.errno.to_le_bytes().to_vec();
        out.extend_from_slice(&[u8::from(self.is_usage), 0]);
        put_bytes(&mut out, self.subject);
        put_bytes(&mut out, self.text);
        out
    }

    pub fn decode(payload: &'a [u8]) -> Result<ErrorReport<'a>> {
        let mut r = Reader(payload);
        let (errno, flags, _) = (r.u16()?, r.u8()?, r.u8()?);
        Ok(ErrorReport { errno, is_usage: flags & 1 != 0, subject: r.bytes()?, text: r.bytes()? })
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Ended,
    Interrupted,
    /// By the kernel, for what it did.
    Killed,
}

/// The end of a command: `code` u8, `how` u8 (0 ended, 1 interrupted, 2 killed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    pub code: u8,
    pub how: How,
}

impl Exit {
    pub fn encode(&self) -> [u8; 2] {
        [self.code, self.how as u8]
    }

    pub fn decode(payload: &[u8]) -> Result<Exit> {
        let mut r = Reader(payload);
        let code = r.u8()?;
        let how = match r.u8()? {
            0 => How::Ended,
            1 => How::Interrupted,
            2 => How::Killed,
            _ => return Err(Malformed),
        };
        Ok(Exit { code, how })
    }
}

/// The payload of a credit: bytes, u32.
pub fn credit(bytes: u32) -> [u8; 4] {
    bytes.to_le_bytes()
}

pub fn read_credit(payload: &[u8]) -> Result<u32> {
    Reader(payload).u32()
}

#[cfg(test)]
pub(crate) mod fuzz {
    /// Numbers that repeat for a seed (xorshift64*, Vigna 2016).
    pub struct Random(u64);

    impl Random {
        pub fn byte(&mut self) -> u8 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 56) as u8
        }

        /// 0 to before `n`.
        pub fn below(&mut self, n: usize) -> usize {
            (usize::from(self.byte()) << 8 | usize::from(self.byte())) % n.max(1)
        }
    }

    /// Runs `round` with many seeds: UNILITH_FUZZ_ROUNDS of them, or 2000.
    pub fn rounds(mut round: impl FnMut(&mut Random)) {
        let most =
            std::env::var("UNILITH_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2000);
        (1..=most).for_each(|seed: u64| round(&mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn messages_survive_the_round_trip() {
        let hello = Hello { lowest: 1, highest: VERSION, client: b"attach" };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        assert_eq!(hello.agree(), Some(VERSION));
        assert_eq!(Hello { lowest: 1, highest: 2, ..hello }.agree(), Some(2));
        assert_eq!(Hello { lowest: 1, highest: 1, ..hello }.agree(), Some(1));
        assert_eq!(Hello { lowest: VERSION + 1, highest: 9, ..hello }.agree(), None);
        assert_eq!(Hello { lowest: 0, highest: 0, ..hello }.agree(), None);
        let welcome = Welcome { version: 1, requests: 8, payload: 9, window: 10, kernel: b"micro" };
        assert_eq!(Welcome::decode(&welcome.encode()), Ok(welcome));
        let refused = Refused { code: Refused::CROWDED, text: b"full" };
        assert_eq!(Refused::decode(&refused.encode()), Ok(refused));
        let run = Run { json: true, columns: 80, arguments: vec![b"ls", b"", b"a b\0"] };
        assert_eq!(Run::decode(&run.encode()), Ok(run));
        let program = Program {
            terminal: Some(Size { columns: 80, rows: 24 }),
            input: true,
            detached: false,
            user: b"postgres:4",
            working: b"/tmp",
            arguments: vec![b"sh", b"-c", b""],
            environment: vec![b"A=b c"],
            container: b"web",
            privileges: None,
        };
        assert_eq!(Program::decode(&program.encode()), Ok(program.clone()));
        let privileges = Privileges { no_new_privileges: true, capabilities: [1, 2, 3, 4, 1 << 40] };
        let newer = Program { privileges: Some(privileges), ..program.clone() };
        assert_eq!(Program::decode(&newer.encode()), Ok(newer.clone()));
        let cut = newer.encode();
        (program.encode().len() + 1..cut.len())
            .for_each(|n| assert_eq!(Program::decode(&cut[..n]), Err(Malformed)));
        let older = program.encode();
        let older = Program::decode(&older[..older.len() - 7]);
        assert_eq!(older, Ok(Program { container: b"", ..program.clone() }), "as version 2 has it");
        let tree = Tree { tag: b"pod3", name: b"web/0", path: b"/", read_only: true };
        let container = Container {
            name: b"web",
            trees: vec![tree, Tree { tag: b"pod4", path: b"/etc/hosts", read_only: false, ..tree }],
            uid: 5,
            gid: 6,
            groups: vec![7, 8],
            capabilities: Some([1, 2, 3, 4, 1 << 40]),
            no_new_privileges: true,
            limits: vec![Limit { resource: 7, soft: 1024, hard: u64::MAX }],
            memory: Some(48 << 20),
            filter: vec![6, u64::MAX],
            masked: vec![b"/proc/kcore"],
            read_only: vec![b"/proc/sys", b"/sys"],
            settings: vec![(b"net.core.somaxconn", b"128")],
            namespaces: Namespaces {
                pid: Origin::New,
                ipc: Origin::Machine,
                uts: Origin::Container(b"db"),
                cgroup: Origin::New,
                host_name: b"web-0",
            },
            group: ControlGroup { files: Some(true), pids: 7, cpu: (50_000, 100_000) },
            umask: Some(0o77),
            program,
        };
        assert_eq!(Container::decode(&container.encode()), Ok(container.clone()));
        let bare = Container { capabilities: None, no_new_privileges: false, memory: None, ..container };
        assert_eq!(Container::decode(&bare.encode()), Ok(bare.clone()));
        let bare = Container { filter: vec![], masked: vec![], read_only: vec![], settings: vec![], ..bare };
        let bare = Container { namespaces: Namespaces::default(), group: ControlGroup::default(), ..bare };
        let bare = Container { umask: None, ..bare };
        assert_eq!(Container::decode(&bare.encode()), Ok(bare));
        assert_eq!(read_started(&started(70_000)), Ok(70_000));
        let bare = Program { detached: true, arguments: vec![b"true"], ..Program::default() };
        assert_eq!(Program::decode(&bare.encode()), Ok(bare));
        let error = ErrorReport { errno: 2, is_usage: true, subject: b"/x", text: b"No such file" };
        assert_eq!(ErrorReport::decode(&error.encode()), Ok(error));
        for how in [How::Ended, How::Interrupted, How::Killed] {
            assert_eq!(Exit::decode(&Exit { code: 130, how }.encode()), Ok(Exit { code: 130, how }));
        }
        assert_eq!(read_credit(&credit(70_000)), Ok(70_000));
    }

    #[test]
    fn a_command_without_words_or_with_too_many_is_malformed() {
        assert_eq!(Run::decode(&Run { json: false, columns: 0, arguments: vec![] }.encode()), Err(Malformed));
        let many = vec![&b""[..]; Run::MAX_ARGUMENTS as usize + 1];
        assert_eq!(Run::decode(&Run { json: false, columns: 0, arguments: many }.encode()), Err(Malformed));
    }

    #[test]
    fn payloads_cut_or_changed_anywhere_are_answered_with_data_or_an_error() {
        let run = Run { json: false, columns: 80, arguments: vec![b"cat", b"/etc/hosts"] }.encode();
        let error = ErrorReport { errno: 2, is_usage: false, subject: b"/x", text: b"No" }.encode();
        let decode_all = |bytes: &[u8]| {
            let _ =
                (Hello::decode(bytes), Welcome::decode(bytes), Refused::decode(bytes), Exit::decode(bytes));
            let _ = (Run::decode(bytes), ErrorReport::decode(bytes), read_credit(bytes));
            let _ = (Program::decode(bytes), Size::decode(bytes), Container::decode(bytes));
        };
        let arguments = vec![&b"sh"[..], b"-c"];
        let program =
            Program { user: b"me", arguments, environment: vec![b"A=b"], ..Program::default() }.encode();
        // Without the container it is one of version 2.
        let older = program.len() - 4;
        assert!((0..program.len()).all(|n| Program::decode(&program[..n]).is_err() == (n != older)));
        let container = Container {
            name: b"web",
            trees: vec![Tree { tag: b"pod3", name: b"0", path: b"/", read_only: true }],
            groups: vec![7],
            limits: vec![Limit { resource: 7, soft: 1, hard: 2 }],
            namespaces: Namespaces {
                pid: Origin::Container(b"db"),
                ipc: Origin::New,
                ..Namespaces::default()
            },
            program: Program { arguments: vec![b"sh"], ..Program::default() },
            ..Container::default()
        };
        let container = container.encode();
        for whole in [&run, &error, &program, &container] {
            (0..whole.len()).for_each(|n| decode_all(&whole[..n]));
        }
        assert!((0..run.len()).all(|n| Run::decode(&run[..n]).is_err()));
        fuzz::rounds(|random| {
            let mut bytes = [&run, &program, &container][random.below(3)].clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len());
                bytes[at] = random.byte();
            }
            decode_all(&bytes);
        });
    }
}
