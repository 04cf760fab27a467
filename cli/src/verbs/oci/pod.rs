// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine of a pod, which its sandbox has: where containers join it. A container's keeper names the files of the host that
//! its container sees over a socket of the sandbox's, and the sandbox's keeper serves them to the machine for as long as that
//! connection lasts. So nothing is mounted on the host, and nothing of a container stays when its keeper ends, however it does.

use super::keeper::{Said, say};
use crate::fault::{Fault, Result, file};
use rustix::{fs::Mode, process::umask};
use serde::{Deserialize, Serialize};
use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use unilith_machine::{boot::pod_tag, record::Mount};
use unilith_ninep::{Forest, Planted, SiteTables};
use unilith_overlay::socket::{bind_at, connect_at};

/// The socket in the sandbox's folder.
const JOIN: &str = "pod.sock";
/// Channels of a sandbox to the files of containers: each is served by one thread, which a slow disk may hold up for all who share it.
pub const CHANNELS: usize = 4;
/// Most containers of a pod at once: as many programs as a machine serves from outside.
const MAX_CONTAINERS: usize = 64;
/// Longest list of what a container sees.
const MAX_LIST: u64 = 1 << 20;

/// What a container's keeper asks for, and what it is answered: where the machine finds its files.
#[derive(Debug, Serialize, Deserialize)]
struct Join {
    container: String,
    /// Directories and files of the host.
    trees: Vec<Mount>,
    tag: String,
}

/// The name of a container's file tree in the forest.
fn tree_name(container: &str, n: usize) -> String {
    format!("{container}/{n}")
}

/// Where containers join, before the machine runs.
pub struct Pod {
    listener: UnixListener,
    forests: Vec<Forest>,
}

impl Pod {
    /// In the folder of the container that has the machine.
    pub fn at(folder: &Path, channels: usize) -> Result<Pod> {
        let path = folder.join(JOIN);
        // Whoever may connect has the machine see any file of the host: its owner alone, from the first moment on. No other thread
        // is there yet that makes files.
        let before = umask(Mode::from_raw_mode(0o177));
        let listener = bind_at(&path).map_err(file("make", &path));
        umask(before);
        let listener = listener?;
        Ok(Pod { listener, forests: (0..channels).map(|_| Forest::new()).collect() })
    }

    pub fn forests(&self) -> &[Forest] {
        &self.forests
    }

    /// Takes containers in, on threads of its own.
    pub fn serve(self, sites: SiteTables) -> Result<()> {
        let Pod { listener, forests } = self;
        let members = Arc::new(AtomicUsize::new(0));
        let accept = move || {
            for (n, stream) in listener.incoming().flatten().enumerate() {
                let channel = n % forests.len();
                let (forest, sites) = (forests[channel].clone(), sites.clone());
                let members = members.clone();
                // Without a thread for it the container finds its connection closed.
                let _ = thread::Builder::new().name("pod-member".into()).spawn(move || {
                    if members.fetch_add(1, Ordering::Relaxed) < MAX_CONTAINERS {
                        take_in(stream, &forest, &pod_tag(channel), &sites);
                    }
                    members.fetch_sub(1, Ordering::Relaxed);
                });
            }
        };
        let started = thread::Builder::new().name("pod".into()).spawn(accept);
        started.map(drop).map_err(|e| Fault::new(format!("no thread for the pod's containers: {e}")))
    }
}

/// Serves one container's files until its keeper hangs up.
fn take_in(mut stream: UnixStream, forest: &Forest, tag: &str, sites: &SiteTables) {
    let planted = match plant(&stream, forest, sites) {
        Ok(planted) => planted,
        Err(fault) => return say(&mut stream, &Said::Failed { code: fault.code, message: fault.message }),
    };
    let answer = Join { container: String::new(), trees: Vec::new(), tag: tag.into() };
    let text = serde_json::to_string(&answer).unwrap_or_default();
    if stream.write_all(format!("{text}\n").as_bytes()).is_ok() {
        // Nothing more is said: what comes is the end.
        let _ = stream.read(&mut [0]);
    }
    drop(planted);
}

fn plant(stream: &UnixStream, forest: &Forest, sites: &SiteTables) -> Result<Vec<Planted>> {
    let mut line = String::new();
    let read = BufReader::new(stream.take(MAX_LIST)).read_line(&mut line);
    read.map_err(|e| Fault::new(format!("a container that joins says nothing: {e}")))?;
    let join: Join =
        serde_json::from_str(&line).map_err(|e| Fault::new(format!("a container that joins: {e}")))?;
    let one = |(n, mount): (usize, &Mount)| {
        let path = &mount.host;
        let export = mount.export().map_err(file("open", path))?;
        let name = tree_name(&join.container, n);
        let planted = forest.plant(name.as_bytes(), export.with_sites(Some(sites.clone())));
        planted.map_err(|_| Fault::new(format!("container {} is in the pod already", join.container)))
    };
    join.trees.iter().enumerate().map(one).collect()
}

/// A container's place in its pod's machine, for as long as this lives.
pub struct Membership {
    _stream: UnixStream,
    container: String,
    /// The mount tag of the channel to its files.
    pub tag: String,
}

impl Membership {
    /// The name of its tree `n` behind the tag.
    pub fn tree(&self, n: usize) -> String {
        tree_name(&self.container, n)
    }
}

/// Joins the machine of the sandbox whose folder this is.
pub fn join(folder: &Path, container: &str, volumes: &[Mount]) -> Result<Membership> {
    let path = folder.join(JOIN);
    let mut stream = connect_at(&path).map_err(file("reach the pod by", &path))?;
    let join = Join { container: container.into(), trees: volumes.to_vec(), tag: String::new() };
    let gone = |e: std::io::Error| Fault::new(format!("the pod's machine does not answer: {e}"));
    let text = serde_json::to_string(&join).map_err(|e| Fault::new(e.to_string()))?;
    stream.write_all(format!("{text}\n").as_bytes()).map_err(gone)?;
    let mut line = String::new();
    BufReader::new(stream.try_clone().map_err(gone)?).read_line(&mut line).map_err(gone)?;
    match (serde_json::from_str::<Join>(&line), serde_json::from_str::<Said>(&line)) {
        (Ok(answer), _) => Ok(Membership { _stream: stream, container: container.into(), tag: answer.tag }),
        (_, Ok(Said::Failed { code, message })) => Err(Fault { code, message }),
        _ => Err(Fault::new(format!(
            "the pod takes no more containers: it has {MAX_CONTAINERS}, or its machine ended"
        ))),
    }
}
