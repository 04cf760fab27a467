// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The process that an engine takes for the container. Its first thread is where engines look for the container's files, in a mount
//! namespace that has them as its root, and does nothing else; whatever is of the host is done by the others.

use super::{
    choices::{self, Choices},
    create::{CREATE, START},
    files::{empty_archive, in_memory, places},
    member::{self, Member},
    pod::{self, Pod},
};
use crate::{
    fault::{Fault, Result, file},
    kernel::Kernel,
    prepare,
    terminal::{cells, set_size},
};
use api_boot::Stream;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufRead, BufReader, Read, Write},
    net::Ipv4Addr,
    os::{
        fd::AsFd,
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};
use unilith_container::{
    administrator::Administrator,
    beneath::Root,
    bundle::{self, Container, Namespaces, Place},
    cgroup::{self, Hierarchies},
    confinement, hooks, namespace,
    record::{Containers, Record, Status},
    terminal, view,
};
use unilith_machine::{
    MachineError,
    boot::BootFiles,
    console_log::LogLimits,
    output::Sinks,
    record::{
        Capabilities, Confinement, ControlGroup, Hook, KernelKind, Mount, Network, Outcome, Platform, Ready,
        Restart, Rlimit, Spec, now_ms,
    },
    store::{Held, Store},
    supervisor::{self, Watcher},
    support,
};
use unilith_overlay::socket::{bind_at, connect_at};

/// Memory of a container without a limit. What is not used costs nothing.
const DEFAULT_MEMORY: u64 = 1 << 30;
/// What a new network namespace of Linux has, where the machine's kernel has Docker's defaults.
const NEW_NAMESPACE: [(&str, &str); 2] =
    [("net.ipv4.ip_unprivileged_port_start", "1024"), ("net.ipv4.ping_group_range", "1 0")];
/// Name and value of the label by which a machine is known to be a container.
pub const LABEL: &str = "oci";
/// The number of a machine's program in the machine.
const FIRST: u32 = 1;
/// The exit code of a shell for a program that is not there, and for one that cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[arg(long)]
    bundle: PathBuf,
    #[arg(long)]
    pub console_socket: Option<PathBuf>,
    /// The sandbox whose machine the container joins
    #[arg(long)]
    pub pod: Option<String>,
    /// Its control group is one of systemd's
    #[arg(long)]
    pub scope: bool,
    /// The id of the machine that it becomes, or joins
    #[arg(long)]
    machine: String,
    /// The kernel of a machine that it becomes, as `create` found it
    #[arg(long, requires = "symbols")]
    kernel: Option<PathBuf>,
    #[arg(long)]
    symbols: Option<PathBuf>,
    pub id: String,
}

/// What `create` and `start` are told.
#[derive(Debug, Serialize, Deserialize)]
pub enum Said {
    Done,
    Failed { code: u8, message: String },
}

/// Tells the other side; nobody listens any more if that fails.
pub fn say(stream: &mut UnixStream, said: &Said) {
    let text = serde_json::to_string(said).unwrap_or_default();
    let _ = stream.write_all(format!("{text}\n").as_bytes());
}

pub fn act(all: &Containers, administrator: &Administrator, args: &Args) -> Result<u8> {
    // The engine's terminal, where it has one, is not the container's.
    rustix::process::setsid().map_err(|e| Fault::new(format!("cannot leave the session: {e}")))?;
    let folder = all.folder(&args.id)?;
    let socket = folder.join(CREATE);
    let mut creator = connect_at(&socket).map_err(file("reach", &socket))?;
    let prepared = prepare(all, administrator, args, &folder, &mut creator);
    // Nobody can create it again, so nobody needs it.
    let _ = fs::remove_file(&socket);
    thread::scope(|scope| {
        let (give, take) = mpsc::channel::<Prepared>();
        // It stays in the host's mount namespace. Nothing comes when the container cannot be made.
        let keep = move || take.recv().map_or(Ok(Outcome::FAILED), |prepared| prepared.keep(all, &args.id));
        let keeper = thread::Builder::new().name("keeper".into()).spawn_scoped(scope, keep);
        let failed = |e: io::Error| Fault::new(format!("no thread for the container: {e}"));
        let made = keeper.map_err(failed).and_then(|keeper| {
            let prepared = prepared?;
            view::enter(&prepared.trees())?;
            Ok((keeper, prepared))
        });
        let (keeper, prepared) = match made {
            Ok(made) => made,
            Err(fault) => {
                // `create` tells it; a second time would be in the container's output.
                say(&mut creator, &Said::Failed { code: fault.code, message: fault.message });
                drop(give);
                return Ok(Outcome::FAILED);
            }
        };
        say(&mut creator, &Said::Done);
        drop(creator);
        let gone = || Fault::new("the container's thread has ended");
        give.send(prepared).map_err(|_| gone())?;
        keeper.join().map_err(|_| gone())?
    })
}

/// A container whose program waits for `start`.
struct Prepared {
    listener: UnixListener,
    what: What,
}

/// What a container is.
enum What {
    /// A sandbox that holds the namespaces.
    Holder,
    Machine(Box<Machine>),
    /// Of the machine of its pod.
    Member(Box<Member>),
}

struct Machine {
    held: Held,
    streams: Streams,
    root: PathBuf,
    /// Where other containers join its machine.
    pod: Option<Pod>,
    /// Its interface is nobody else's until this is closed.
    _claim: Option<File>,
}

fn prepare(
    all: &Containers,
    administrator: &Administrator,
    args: &Args,
    folder: &Path,
    creator: &mut UnixStream,
) -> Result<Prepared> {
    let mut container = all.description(&args.id, &args.bundle)?;
    if args.scope {
        container.take_scope(&args.id)?;
    }
    container.priority.enter()?;
    namespace::enter(&container.network)?;
    say(creator, &Said::Done);
    let mut go = String::new();
    let heard =
        BufReader::new(creator.try_clone().map_err(|e| Fault::new(e.to_string()))?).read_line(&mut go);
    if heard.is_err() || go.trim() != "go" {
        return Err(Fault::new("the container was given up while it was made"));
    }
    if let Some(list) = container.hooks.as_ref().and_then(|hooks| hooks.create_container().as_ref()) {
        let record = Record::new(&args.id, &container, std::process::id(), 0, Vec::new());
        hooks::run(
            "createContainer",
            list,
            &record.state(Status::Creating).to_string(),
            Some(&container.root),
        )?;
    }
    add_home(&mut container)?;
    let socket = folder.join(START);
    let listener = bind_at(&socket).map_err(file("make", &socket))?;
    let what = match &args.pod {
        _ if container.is_sandbox && !container.holds_machine() => {
            if container.start_hooks().next().is_some() {
                return Err(Fault::new(
                    "hooks.startContainer: the sandbox has no machine that it could run in (annotation dev.unilith.pod: separate)",
                ));
            }
            What::Holder
        }
        Some(sandbox) => {
            choices::check_member(&container, administrator)?;
            What::Member(Box::new(member::prepare(all, args, folder, container, sandbox)?))
        }
        None => {
            let choices = Choices::of(&mut container, administrator)?;
            What::Machine(Box::new(machine(all, args, folder, &container, &choices)?))
        }
    };
    Ok(Prepared { listener, what })
}

fn machine(
    all: &Containers,
    args: &Args,
    folder: &Path,
    container: &Container,
    choices: &Choices,
) -> Result<Machine> {
    check_namespaces(container)?;
    let has_link = container.network != bundle::Network::Host && !container.is_offline();
    let claim = has_link.then(|| all.claim_interface()).transpose()?;
    let root = Root::open(&container.root)?;
    find_program(&root, container)?;
    let (volumes, names) = places(all, folder, container, &root)?;
    if container.is_virtual && volumes.iter().any(|volume| volume.ids.is_some()) {
        return Err(Fault::new(
            "linux.namespaces: a user namespace: QEMU, which serves a virtual machine's files, translates no users; run without \
             --userns, or let it be a process (annotation unilith.machine=process)",
        ));
    }
    let channels = if container.is_sandbox { pod::CHANNELS } else { 1 };
    let pod = container.may_be_joined().then(|| Pod::at(folder, channels)).transpose()?;
    // The overlay's files are one more.
    let others = 1 + pod.as_ref().map_or(0, |pod| pod.forests().len());
    if volumes.len() + others > Platform::MAX_VOLUMES {
        let (count, most) = (volumes.len() - 1, Platform::MAX_VOLUMES - 1 - others);
        return Err(Fault::new(format!("the container has {count} mounts; a machine can have {most}")));
    }
    let archive = folder.join("root.cpio");
    fs::write(&archive, empty_archive()).map_err(file("write", &archive))?;
    let server = names.map(|names| names.server);
    let spec = spec(all, args, container, choices, volumes, archive, server)?;
    let store = Store::open()?;
    let held = match store.create(spec.clone()) {
        // A machine of `unilith run`, or a container of another engine, is called the same.
        Err(MachineError::NameInUse(..)) => {
            store.create(Spec { name: format!("{}-{}", spec.name, spec.id), ..spec })?
        }
        other => other?,
    };
    let streams = Streams::of(args, container)?;
    Ok(Machine { held, streams, root: container.root.clone(), pod, _claim: claim })
}

/// The container's standard streams: those the engine gave, or a terminal.
pub struct Streams {
    pub input: Box<dyn Read + Send>,
    pub output: File,
    pub has_terminal: bool,
}

impl Streams {
    pub fn of(args: &Args, container: &Container) -> Result<Streams> {
        let Some(socket) = &args.console_socket else {
            let out = io::stdout().as_fd().try_clone_to_owned();
            let out = out.map_err(|e| Fault::new(format!("the container's standard output: {e}")))?;
            return Ok(Streams {
                input: Box::new(io::stdin()),
                output: File::from(out),
                has_terminal: false,
            });
        };
        let terminal = terminal::give(socket)?;
        if let Some(size) = container.console_size {
            set_size(&terminal, cells(size))?;
        }
        // What is to be said of the machine is said where its program is seen.
        rustix::stdio::dup2_stderr(&terminal).map_err(|e| Fault::new(format!("the terminal: {e}")))?;
        let output = terminal.try_clone().map_err(|e| Fault::new(format!("the terminal: {e}")))?;
        Ok(Streams { input: Box::new(terminal), output, has_terminal: true })
    }
}

/// Whether a program has input. Where it has neither that nor a terminal (Docker's and Podman's without `-i`), the engine gives /dev/null,
/// which the program is to see as that and not as a pipe.
pub fn has_input(has_terminal: bool) -> bool {
    /// Its number, 1:3.
    const NULL: u64 = 0x103;
    let is_null = rustix::fs::fstat(io::stdin()).is_ok_and(|found| {
        rustix::fs::FileType::from_raw_mode(found.st_mode).is_char_device() && found.st_rdev == NULL
    });
    has_terminal || !is_null
}

/// The home of a user for whom the engine names none is what the container's own files say, as with runc.
fn add_home(container: &mut Container) -> Result<()> {
    if container.env.iter().all(|entry| entry.strip_prefix("HOME=").is_none_or(str::is_empty)) {
        let home = Root::open(&container.root)?.home_of(&container.binds, container.uid);
        container.env.retain(|entry| !entry.starts_with("HOME="));
        container.env.push(format!("HOME={home}"));
    }
    Ok(())
}

/// Looks for the container's program, as the machine will: what cannot be run is said with a shell's exit code.
pub fn find_program(root: &Root, container: &Container) -> Result<()> {
    let found = root.find_program(&container.binds, &container.args[0], &container.env, &container.working);
    found.map(drop).map_err(|error| {
        let code = match error {
            unilith_container::ContainerError::NotExecutable(_) => NOT_EXECUTABLE,
            _ => NOT_FOUND,
        };
        Fault { code, message: error.to_string() }
    })
}

/// A machine of its own shares no processes and no System V IPC with another one.
fn check_namespaces(container: &Container) -> Result<()> {
    if container.is_in_pod() || container.is_sandbox {
        return Ok(());
    }
    let Namespaces { pid, ipc, .. } = &container.namespaces;
    for (kind, place) in [("PID", pid), ("IPC", ipc)] {
        if let Place::At(path) = place {
            return Err(Fault::new(format!(
                "linux.namespaces: the {kind} namespace {}: containers share it when they share the network of one that has no limit of \
                 memory (--network container:NAME, or a pod)",
                path.display()
            )));
        }
    }
    Ok(())
}

fn spec(
    all: &Containers,
    args: &Args,
    container: &Container,
    choices: &Choices,
    volumes: Vec<Mount>,
    initrd: PathBuf,
    server: Option<Ipv4Addr>,
) -> Result<Spec> {
    let network = match container.network {
        bundle::Network::Host => Network::Auto,
        _ if container.is_offline() => Network::None,
        _ => {
            // Engines forward ports of pods to the loopback of their namespace. Where a name server is on it, it stays.
            let is_pods = container.is_in_pod() || container.is_sandbox;
            let loopback = is_pods && server.is_none();
            Network::Interface { record: all.interface_record()?, server, loopback }
        }
    };
    if choices.platform.is_process()
        && let Some(lack) = support::lack_with(&network)
    {
        return Err(Fault::new(format!("the container is to be a machine that is a process, but {lack}")));
    }
    let found = args.kernel.clone().zip(args.symbols.clone());
    let kernel = found.map_or_else(|| choices.kernel(), |(boot, symbols)| Ok(Kernel { boot, symbols }))?;
    let memory = memory(container, choices)?;
    let environment = container.env.iter().filter_map(|entry| {
        let (key, value) = entry.split_once('=')?;
        Some((key.to_string(), value.to_string()))
    });
    let label = container.args[0].rsplit('/').next().unwrap_or_default().to_string();
    Ok(Spec {
        id: args.machine.clone(),
        name: args.id.clone(),
        created_ms: now_ms(),
        program: container.args[0].clone(),
        image: None,
        label,
        remove: false,
        platform: choices.platform,
        choice: None,
        accel: choices.accel,
        kernel_kind: KernelKind::Micro,
        ukl: String::new(),
        linux: String::new(),
        kernel: kernel.boot,
        symbols: Some(kernel.symbols),
        initrd,
        memory: memory / 4096 * 4096,
        cpus: processors(container),
        args: container.args.clone(),
        env: environment.collect(),
        cwd: Some(container.working.to_string_lossy().into_owned()),
        uid: container.uid,
        gid: container.gid,
        groups: container.groups.clone(),
        umask: container.umask,
        hooks: container.start_hooks().map(hook).collect(),
        // The program is the machine's first process.
        hook_input: match container.start_hooks().next() {
            Some(_) => {
                Record::new(&args.id, container, FIRST, 0, Vec::new()).state(Status::Created).to_string()
            }
            None => String::new(),
        },
        capabilities: container.capabilities.map(capabilities),
        no_new_privileges: container.no_new_privileges,
        confinement: confinement(all, container),
        group: Some(group(container)),
        ids: volumes.first().and_then(|root| root.ids.clone()),
        hostname: all.hostname(container).unwrap_or_else(|| own_name(container, &args.id)),
        log: None,
        log_limits: LogLimits::default(),
        trace: false,
        stop_signal: 15,
        tty: container.terminal,
        null_input: !has_input(container.terminal),
        volumes,
        drives: Vec::new(),
        tmpfs: in_memory(container),
        // Its root is a volume, which says so itself.
        read_only: false,
        hosts: Vec::new(),
        dns: Vec::new(),
        overlay: true,
        network,
        mac: None,
        publish: Vec::new(),
        offer: Vec::new(),
        ready: Ready::Never,
        reach: None,
        labels: BTreeMap::from([(LABEL.into(), args.id.clone())]),
        stop_timeout: None,
        restart: Restart::No,
        networks: Vec::new(),
        health: None,
        // What the engine's network has of it, the machine has.
        ipv6: true,
        anonymous: Vec::new(),
        limits: container.limits.iter().map(|&(resource, soft, hard)| limit(resource, soft, hard)).collect(),
    })
}

/// The processors of its machine: those that the container's limits are worth, as far as this computer has them, and without a limit
/// all. The kernel uses one until threads want more.
fn processors(container: &Container) -> u32 {
    // Not by control groups: a quota of one and a half would count as one.
    let own = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count());
    container.processors().unwrap_or(own).min(own).clamp(1, Platform::MAX_CPUS)
}

/// The memory of its machine, in bytes.
fn memory(container: &Container, choices: &Choices) -> Result<u64> {
    let group = container.cgroup.as_deref().filter(|_| container.may_be_joined());
    let of_pod = group.and_then(|group| Hierarchies::of_host().memory_of_pod(group));
    let limit = match (of_pod, container.memory) {
        (Some(limit), None) => limit,
        (Some(limit), _) if container.is_kubelets_sandbox() => limit,
        // Those without a limit need some as well.
        (None, sum) if container.is_kubelets_sandbox() => {
            return Ok(sum.unwrap_or(0).saturating_add(DEFAULT_MEMORY));
        }
        (_, Some(limit)) => limit,
        (None, None) => return Ok(DEFAULT_MEMORY),
    };
    let within = choices::within(limit, choices.platform, choices.accel);
    within.ok_or_else(|| choices::too_small(limit, choices.accel))
}

/// What the program is kept from. Settings of the network that nobody names are those of a new namespace of Linux, which are narrower
/// than what machines of `unilith run` have as containers of Docker do.
fn confinement(all: &Containers, container: &Container) -> Confinement {
    let confinement::Confinement { filter, masked, read_only, settings: own } = container.confinement.clone();
    let mut settings: Vec<(String, String)> =
        NEW_NAMESPACE.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    // Where the containers of a pod are machines apart, its sandbox has the settings for all of them.
    let sandbox = container.sandbox().and_then(|id| all.find(id).ok());
    let pods = sandbox.and_then(|record| all.description(&record.id, &record.bundle).ok());
    settings.extend(pods.into_iter().flat_map(|pod| pod.confinement.settings));
    settings.extend(own);
    Confinement { filter, masked, read_only, settings }
}

/// The host name of a container that names none: the host's own, as with runc, where it has the host's UTS namespace.
fn own_name(container: &Container, id: &str) -> String {
    match container.namespaces.uts {
        Place::Host => fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_string(),
        Place::New | Place::At(_) => id.chars().take(12).collect(),
    }
}

/// What its programs see of the control group that it is in.
fn group(container: &Container) -> ControlGroup {
    let bundle::Group { pids, quota, period, files } = container.group;
    let or_none = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    let cpu = (or_none(quota), period);
    ControlGroup { memory: or_none(container.memory), pids: or_none(pids), cpu, files }
}

fn capabilities(of: bundle::Capabilities) -> Capabilities {
    let bundle::Capabilities { bounding, permitted, effective, inheritable, ambient } = of;
    Capabilities { bounding, permitted, effective, inheritable, ambient }
}

/// One that runs in the machine. Where a hook names no arguments its path is the only one (execv(3)).
fn hook(hook: &unilith_container::Hook) -> Hook {
    let path = hook.path().display().to_string();
    let arguments = hook.args().clone().filter(|arguments| !arguments.is_empty());
    Hook {
        arguments: arguments.unwrap_or_else(|| vec![path.clone()]),
        path,
        environment: hook.env().clone().unwrap_or_default(),
        timeout: hooks::limit(hook).as_secs(),
    }
}

fn limit(resource: u8, soft: u64, hard: u64) -> Rlimit {
    Rlimit { resource, soft, hard: Some(hard) }
}

impl Prepared {
    /// The container's files, its root first; none of one that has no files of its own.
    fn trees(&self) -> Vec<view::Tree> {
        let volumes = match &self.what {
            What::Holder => &[][..],
            What::Machine(machine) => &machine.held.spec.volumes,
            What::Member(member) => member.volumes(),
        };
        let tree = |volume: &Mount| view::Tree {
            host: volume.host.clone(),
            guest: PathBuf::from(&volume.guest),
            is_read_only: volume.is_read_only_throughout(),
        };
        volumes.iter().map(tree).collect()
    }

    /// Runs the container to its end, and answers its exit code.
    fn keep(self, all: &Containers, id: &str) -> Result<u8> {
        let outcome = self.wait_and_run(all)?;
        if outcome.is_out_of_memory()
            && let Ok(record) = all.find(id)
        {
            cgroup::run_out_of_memory(&record.cgroups);
        }
        Ok(outcome.code)
    }

    fn wait_and_run(self, all: &Containers) -> Result<Outcome> {
        let (starter, _) =
            self.listener.accept().map_err(|e| Fault::new(format!("cannot hear of `start`: {e}")))?;
        drop(self.listener);
        let mut starter = Some(starter);
        if let Some(stream) = &starter {
            let mut word = String::new();
            // Whatever it is: nothing else is ever said here.
            let _ = BufReader::new(stream).read_line(&mut word);
        }
        let machine = match self.what {
            What::Holder => {
                if let Some(mut starter) = starter.take() {
                    say(&mut starter, &Said::Done);
                }
                return hold();
            }
            What::Member(member) => return Ok(member.run(all, starter)),
            What::Machine(machine) => machine,
        };
        let Machine { mut held, streams, root, pod, _claim } = *machine;
        let Streams { input, output, .. } = streams;
        let cache = prepare::cache()?;
        let sites: unilith_ninep::SiteTables =
            Arc::new(move |file: &File| unilith_image::site_table(&cache, file));
        let forests = pod.as_ref().map(|pod| pod.forests().to_vec()).unwrap_or_default();
        if let Some(pod) = pod {
            pod.serve(sites.clone())?;
        }
        let boot = move |held: &Held, config: &api_boot::BootConfig| {
            if !held.spec.platform.is_process() {
                return crate::boot::files(held, config);
            }
            Ok(BootFiles {
                sites: Some(sites.clone()),
                pod: forests.clone(),
                ..BootFiles::new(&held.spec.initrd, config.encode())
            })
        };
        let mut engine = Engine { output: Some(output), starter };
        let result = supervisor::supervise(&mut held, &boot, Some(input), &mut engine);
        let outcome = result.unwrap_or_else(|error| Outcome::failed(error.to_string()));
        if let Some(mut starter) = engine.starter.take() {
            // It ended before the program ran.
            let message =
                outcome.reason.clone().unwrap_or_else(|| format!("{} did not start", root.display()));
            say(&mut starter, &Said::Failed { code: 1, message });
        }
        if let Some(reason) = &outcome.reason {
            eprintln!("unilith: {reason}");
        }
        Ok(outcome)
    }
}

/// Holds the namespaces of a pod until it is told to end.
fn hold() -> Result<Outcome> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT]);
    let mut signals = signals.map_err(|e| Fault::new(format!("cannot watch for signals: {e}")))?;
    signals.forever().next();
    Ok(Outcome { code: 0, reason: None })
}

/// What the engine sees and hears of the machine.
struct Engine {
    output: Option<File>,
    starter: Option<UnixStream>,
}

impl Watcher for Engine {
    fn sinks(&mut self) -> Sinks {
        let mut output = self.output.take();
        Sinks {
            // An engine that does not read any more is gone.
            console: Box::new(move |stream, bytes| {
                drop(match stream {
                    Stream::Output => output.as_mut().map(|out| out.write_all(bytes)),
                    Stream::Error => Some(io::stderr().write_all(bytes)),
                });
            }),
            log: Box::new(|line| eprintln!("{line}")),
        }
    }

    fn started(&mut self) {
        if let Some(mut starter) = self.starter.take() {
            say(&mut starter, &Said::Done);
        }
    }

    fn ready(&mut self, _: &str) {}

    fn note(&mut self, text: &str) {
        eprintln!("unilith: {text}");
    }
}
