// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A container of a pod that is in the machine of its sandbox: a tree of processes there. Its keeper stands for it on the host, as what
//! stands for a further process does: it has the container's streams and ends with its first process's code. The machine kills the
//! container when its keeper goes.

use super::{
    exec::{self, Out},
    files,
    keeper::{self, Args, Said, Streams, say},
    manage,
    pod::{self, Membership},
};
use crate::{
    fault::{Fault, Result, file},
    terminal::{size_of, watch_size},
};
use std::{
    fs,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};
use unilith_container::{
    beneath::Root,
    bundle::{self, Container, Place},
    record::{Containers, Record},
};
use unilith_machine::record::{Memory, Mount, Outcome};
use unilith_overlay::{Client, How, Program, Running};

/// The file in the container's folder with the number that its first process has in the machine.
const FIRST: &str = "first";

/// What the container sees in one place.
struct Tree {
    path: String,
    /// Behind the pod's tag, or what a file system in memory is like.
    name: String,
    read_only: bool,
    is_in_memory: bool,
}

/// A container that waits for `start`.
pub struct Member {
    container: Container,
    id: String,
    sandbox: String,
    namespaces: Namespaces,
    folder: PathBuf,
    volumes: Vec<Mount>,
    membership: Membership,
    streams: Streams,
}

pub fn prepare(
    all: &Containers,
    args: &Args,
    folder: &Path,
    container: Container,
    sandbox: &str,
) -> Result<Member> {
    let root = Root::open(&container.root)?;
    keeper::find_program(&root, &container)?;
    let (volumes, _) = files::places(all, folder, &container, &root)?;
    let most = unilith_overlay::Container::MAX_TREES as usize;
    let in_memory = container.scratch.iter().filter(|scratch| scratch.is_in_memory()).count();
    if volumes.len() + in_memory > most {
        let count = volumes.len() + in_memory - 1;
        return Err(Fault::new(format!(
            "the container has {count} mounts; one of a pod can have {}",
            most - 1
        )));
    }
    let namespaces = Namespaces::of(all, &container, sandbox)?;
    let membership = pod::join(&all.folder(sandbox)?, &args.id, &volumes)?;
    let streams = Streams::of(args, &container)?;
    let (id, sandbox, folder) = (args.id.clone(), sandbox.to_string(), folder.to_path_buf());
    Ok(Member { container, id, sandbox, namespaces, folder, volumes, membership, streams })
}

/// Where one of the container's namespaces comes from.
enum Origin {
    /// The machine's own, which are the sandbox's.
    Machine,
    New,
    /// Of another container of the pod.
    Container(String),
}

impl Origin {
    /// `kind`: what the namespace that `of` picks is called where its path leads to no container of the pod.
    fn of(
        all: &Containers,
        container: &Container,
        sandbox: &str,
        of: fn(&bundle::Namespaces) -> &Place,
        kind: &str,
    ) -> Result<Origin> {
        let place = of(&container.namespaces);
        let path = match place {
            Place::Host => return Ok(Origin::Machine),
            Place::New => return Ok(Origin::New),
            Place::At(path) => path,
        };
        let record = all.of_namespace(place, of);
        match record.filter(|record| record.host() == sandbox) {
            Some(record) if record.id == sandbox => Ok(Origin::Machine),
            Some(record) => Ok(Origin::Container(record.id)),
            None => Err(Fault::new(format!(
                "linux.namespaces: the {kind} namespace {} is of no container of the pod",
                path.display()
            ))),
        }
    }

    fn to_wire(&self) -> unilith_overlay::Origin<'_> {
        match self {
            Origin::Machine => unilith_overlay::Origin::Machine,
            Origin::New => unilith_overlay::Origin::New,
            Origin::Container(id) => unilith_overlay::Origin::Container(id.as_bytes()),
        }
    }
}

/// The container's namespaces, as its bundle asks for them.
struct Namespaces {
    pid: Origin,
    ipc: Origin,
    uts: Origin,
    cgroup: Origin,
}

impl Namespaces {
    fn of(all: &Containers, container: &Container, sandbox: &str) -> Result<Namespaces> {
        let origin = |of, kind| Origin::of(all, container, sandbox, of, kind);
        Ok(Namespaces {
            pid: origin(|of| &of.pid, "PID")?,
            ipc: origin(|of| &of.ipc, "IPC")?,
            uts: origin(|of| &of.uts, "UTS")?,
            cgroup: origin(|of| &of.cgroup, "cgroup")?,
        })
    }
}

/// The number that the container's first process has in its machine.
pub fn first(all: &Containers, record: &Record) -> Result<u32> {
    let path = all.folder(&record.id)?.join(FIRST);
    let text = fs::read_to_string(&path).map_err(file("read", &path))?;
    text.trim().parse().map_err(|_| Fault::new(format!("{} holds no number", path.display())))
}

impl Member {
    /// The host's directories and files that it sees, its root first.
    pub fn volumes(&self) -> &[Mount] {
        &self.volumes
    }

    /// Runs the container to its end. `starter` hears when its program runs, or why it does not.
    pub fn run(self, all: &Containers, mut starter: Option<UnixStream>) -> Outcome {
        let outcome = self.start_and_serve(all, &mut starter);
        match (outcome, starter) {
            (Ok(outcome), _) => outcome,
            (Err(Fault { code, message }), Some(mut starter)) => {
                say(&mut starter, &Said::Failed { code, message: message.clone() });
                Outcome { code, reason: None }
            }
            (Err(Fault { code, message }), None) => {
                eprintln!("unilith: {message}");
                Outcome { code, reason: Some(message) }
            }
        }
    }

    fn start_and_serve(self, all: &Containers, starter: &mut Option<UnixStream>) -> Result<Outcome> {
        let machine = manage::machine(&all.find(&self.sandbox)?);
        let machine =
            machine.ok_or_else(|| Fault::new("the pod's machine has ended: its sandbox is gone"))?;
        let memory = machine.spec.memory;
        let client = Arc::new(Client::connect(&machine.folder)?);
        let running = self.ask(&client, &all.find(&self.id)?)?;
        let pid = exec::await_start(&running, &self.container.args[0], "")?;
        let path = self.folder.join(FIRST);
        fs::write(&path, pid.to_string()).map_err(file("write", &path))?;
        pass_signals(client.clone(), pid)?;
        if let Some(mut starter) = starter.take() {
            say(&mut starter, &Said::Done);
        }
        let Streams { input, output, has_terminal } = self.streams;
        let again = || output.try_clone().map_err(|e| Fault::new(format!("the terminal: {e}")));
        let out = match has_terminal {
            true => {
                let sized = again()?;
                watch_size(running.input(), move || size_of(&sized))?;
                Out::terminal(again()?)
            }
            false => Out::streams(again()?),
        };
        exec::feed(input, running.input());
        let exit = exec::copy(&running, out, &self.container.args[0]);
        Ok(match exit {
            Some(exit) if exit.how == How::Killed => Outcome::out_of_memory(memory),
            Some(exit) => Outcome { code: exit.code, reason: None },
            None => {
                Outcome { code: exec::ENDED_WITH_MACHINE, reason: Some("the pod's machine ended".into()) }
            }
        })
    }

    /// What it sees, in the order of their depth, so that none hides another.
    fn trees(&self) -> Vec<Tree> {
        let volume = |(n, volume): (usize, &Mount)| Tree {
            path: volume.guest.clone(),
            name: self.membership.tree(n),
            read_only: volume.is_read_only_throughout(),
            is_in_memory: false,
        };
        let memory = |memory: Memory| {
            let Memory { guest, size, inodes, mode, exec } = memory;
            let (size, inodes) = (size.unwrap_or(0), inodes.unwrap_or(0));
            let exec = if exec { ":exec" } else { "" };
            let name = format!("{size}/{inodes}:{mode:o}{exec}");
            Tree { path: guest, name, read_only: false, is_in_memory: true }
        };
        let mut trees: Vec<Tree> = files::in_memory(&self.container).into_iter().map(memory).collect();
        trees.extend(self.volumes.iter().enumerate().map(volume));
        trees.sort_by_key(|tree| Path::new(&tree.path).components().count());
        trees
    }

    /// `record`: with the limits that it has by now.
    fn ask(&self, client: &Client, record: &Record) -> Result<Running> {
        let container = &self.container;
        let confinement = &container.confinement;
        let trees = self.trees();
        let working = container.working.to_string_lossy();
        let size = self.streams.has_terminal.then(|| size_of(&self.streams.output));
        let limit =
            |&(resource, soft, hard): &(u8, u64, u64)| unilith_overlay::Limit { resource, soft, hard };
        let wanted = unilith_overlay::Container {
            name: self.id.as_bytes(),
            trees: trees
                .iter()
                .map(|tree| unilith_overlay::Tree {
                    tag: if tree.is_in_memory { b"" } else { self.membership.tag.as_bytes() },
                    name: tree.name.as_bytes(),
                    path: tree.path.as_bytes(),
                    read_only: tree.read_only,
                })
                .collect(),
            uid: container.uid,
            gid: container.gid,
            groups: container.groups.clone(),
            capabilities: container.capabilities.map(|all| all.sets()),
            no_new_privileges: container.no_new_privileges,
            umask: container.umask,
            limits: container.limits.iter().map(limit).collect(),
            memory: record.memory,
            filter: confinement.filter.clone(),
            masked: confinement.masked.iter().map(String::as_bytes).collect(),
            read_only: confinement.read_only.iter().map(String::as_bytes).collect(),
            settings: confinement
                .settings
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes()))
                .collect(),
            namespaces: unilith_overlay::Namespaces {
                pid: self.namespaces.pid.to_wire(),
                ipc: self.namespaces.ipc.to_wire(),
                uts: self.namespaces.uts.to_wire(),
                cgroup: self.namespaces.cgroup.to_wire(),
                host_name: container.hostname.as_deref().unwrap_or_default().as_bytes(),
            },
            group: unilith_overlay::ControlGroup {
                files: record.group.files,
                pids: record.group.pids.unwrap_or(unilith_overlay::ControlGroup::NO_LIMIT),
                cpu: (
                    record.group.quota.unwrap_or(unilith_overlay::ControlGroup::NO_LIMIT),
                    record.group.period,
                ),
            },
            program: Program {
                terminal: size,
                input: keeper::has_input(size.is_some()),
                working: working.as_bytes(),
                arguments: container.args.iter().map(String::as_bytes).collect(),
                environment: container.env.iter().map(String::as_bytes).collect(),
                ..Program::default()
            },
        };
        Ok(client.container(&wanted)?)
    }
}

/// Passes the signals that ask this process to end on to the container: SIGQUIT kills it, as it ends a machine.
fn pass_signals(client: Arc<Client>, pid: u32) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};
    let signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP, SIGQUIT]);
    let mut signals = signals.map_err(|e| Fault::new(format!("cannot watch for signals: {e}")))?;
    thread::spawn(move || {
        for signal in signals.forever() {
            let number = if signal == SIGQUIT { SIGKILL } else { signal };
            // One that has ended needs no signal.
            let _ = client.run(&["kill".to_string(), format!("-{number}"), pid.to_string()], false);
        }
    });
    Ok(())
}
