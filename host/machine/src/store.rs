// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The directory of machines: `machines/ID/` with `machine.json`, `state.json`, `console.log` and `lock`.
//!
//! Whoever starts a machine takes the lock of its directory and hands the same open file to the supervisor, so there is no
//! moment without it while the machine lives. Only the holder of the lock writes `state.json`. Nobody but the owner may enter
//! the directory or open what is in it: a lock that others can open is a lock that others can hold.

use crate::{
    MachineError, console_log, events, private,
    process::Process,
    record::{Connection, Health, Mount, Outcome, Phase, Spec, State, now_ms},
};
use rustix::process::Signal;
use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use unilith_network::{
    nat::{self, Forwarding},
    tap,
};

/// All machines of one user.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

/// A machine as found on disk.
#[derive(Clone, Debug)]
pub struct Machine {
    pub folder: PathBuf,
    pub spec: Spec,
    pub state: State,
}

/// A machine whose lock this process holds.
#[derive(Debug)]
pub struct Held {
    pub folder: PathBuf,
    pub spec: Spec,
    pub state: State,
    lock: File,
}

/// How long after its making a directory without `machine.json` may still be somebody's work.
const HALF_MADE: Duration = Duration::from_secs(60);
/// A supervisor that was told to end takes its machine down within this time; then it is killed itself.
const SUPERVISOR_LIMIT: Duration = Duration::from_secs(5);
/// The file in a machine's directory that says what it is.
const SPEC: &str = "machine.json";
/// The file in a machine's directory that says that a user ended it.
const STAY_ENDED: &str = "stopped";
/// The file in a machine's directory that says what health checks have found.
const HEALTH: &str = "health.json";
/// How often a waiting command looks.
const POLL: Duration = Duration::from_millis(20);

impl Store {
    /// The store of this user.
    pub fn open() -> Result<Store, MachineError> {
        Ok(Store { folder: crate::dirs::state()? })
    }

    /// A store in a folder of the caller's.
    pub fn at(folder: impl Into<PathBuf>) -> Store {
        Store { folder: folder.into() }
    }

    /// State that all machines share.
    pub fn shared(&self) -> &Path {
        &self.folder
    }

    fn machines(&self) -> PathBuf {
        self.folder.join("machines")
    }

    /// Held by whoever makes or names a machine or a network: two that do so at once must not choose one name.
    pub(crate) fn gate(&self) -> Result<File, MachineError> {
        let machines = self.machines();
        for folder in [&self.folder, &machines] {
            private::keep_directory(folder).map_err(MachineError::file("cannot make or use", folder))?;
        }
        let gate = machines.join(".lock");
        private::create(&gate)
            .and_then(|f| f.lock().map(|()| f))
            .map_err(MachineError::file("cannot lock", &gate))
    }

    /// Makes the directory of a new machine and takes its lock. The name must be free.
    pub fn create(&self, spec: Spec) -> Result<Held, MachineError> {
        let gate = self.gate()?;
        // One that was removed since the machine was thought of.
        for network in &spec.networks {
            self.network(&network.id).map_err(|_| MachineError::NoNetwork(network.name.clone()))?;
        }
        if let Some(other) = self.list()?.into_iter().find(|m| m.spec.name == spec.name) {
            return Err(MachineError::NameInUse(spec.name, other.spec.id, other.state.phase.word()));
        }
        let folder = self.machines().join(&spec.id);
        private::make_directory(&folder).map_err(MachineError::file("cannot make", &folder))?;
        let lock = take_lock(&folder.join("lock"))?;
        let held = Held { folder, spec, state: State::default(), lock };
        let written = write_json(&held.folder.join(SPEC), &held.spec).and_then(|()| held.save());
        if let Err(error) = written {
            // Half a machine is worse than none; the first error is the one to report.
            let _ = fs::remove_dir_all(&held.folder);
            return Err(error);
        }
        drop(gate);
        events::note(&self.folder, &held.spec, "create", &[]);
        Ok(held)
    }

    /// Gives a machine another name, which must be free. Its supervisor goes on under the old one in its messages.
    pub fn rename(&self, machine: &Machine, name: &str) -> Result<(), MachineError> {
        let gate = self.gate()?;
        if let Some(other) = self.list()?.into_iter().find(|m| m.spec.name == name) {
            return Err(MachineError::NameInUse(name.into(), other.spec.id, other.state.phase.word()));
        }
        let spec = Spec { name: name.into(), ..machine.spec.clone() };
        let written = write_json(&machine.folder.join(SPEC), &spec);
        drop(gate);
        if written.is_ok() {
            events::note(&self.folder, &spec, "rename", &[("oldName", machine.spec.name.clone())]);
        }
        written
    }

    /// Changes what a machine is, and answers it as it is then. Its supervisor reads that anew before it starts the machine again.
    pub fn amend(
        &self,
        machine: &Machine,
        change: impl FnOnce(&mut Spec) -> Result<(), MachineError>,
    ) -> Result<Machine, MachineError> {
        let _gate = self.gate()?;
        // Another may have changed or removed it meanwhile.
        let gone = || MachineError::NotFound(machine.spec.name.clone());
        let mut machine = machine.again().ok_or_else(gone)?;
        change(&mut machine.spec)?;
        write_json(&machine.folder.join(SPEC), &machine.spec)?;
        Ok(machine)
    }

    /// All machines, oldest first.
    pub fn list(&self) -> Result<Vec<Machine>, MachineError> {
        let machines = self.machines();
        let entries = match fs::read_dir(&machines) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(MachineError::file("cannot read", &machines)(e)),
        };
        // A directory that is just being made or removed has no whole record, and is no machine.
        let mut found: Vec<Machine> = entries.flatten().filter_map(|e| Machine::load(e.path())).collect();
        found.sort_by(|a, b| (a.spec.created_ms, &a.spec.id).cmp(&(b.spec.created_ms, &b.spec.id)));
        Ok(found)
    }

    /// The machine with that id.
    pub(crate) fn load(&self, id: &str) -> Option<Machine> {
        Machine::load(self.machines().join(id))
    }

    /// The machine with that name, id or unique beginning of an id.
    pub fn find(&self, text: &str) -> Result<Machine, MachineError> {
        let mut all = self.list()?;
        if let Some(i) = all.iter().position(|m| m.spec.name == text || m.spec.id == text) {
            return Ok(all.swap_remove(i));
        }
        all.retain(|m| !text.is_empty() && m.spec.id.starts_with(text));
        if all.len() > 1 {
            let names: Vec<String> = all.iter().map(|m| format!("{} {}", m.spec.id, m.spec.name)).collect();
            return Err(MachineError::Ambiguous(text.into(), names.join(", ")));
        }
        all.pop().ok_or_else(|| MachineError::NotFound(text.into()))
    }

    /// Cleans up after supervisors that were killed: their machines are marked as ended, what they left is removed.
    /// Returns one line for each machine it found in that state.
    pub fn sweep(&self) -> Result<Vec<String>, MachineError> {
        let mut told = Vec::new();
        let machines = self.list()?;
        for machine in machines.iter().filter(|m| m.state.phase != Phase::Exited) {
            match self.sweep_one(machine) {
                Ok(line) => told.extend(line),
                // What is wrong with one machine must not keep the user from the others.
                Err(error) => {
                    told.push(format!("cannot clean up after machine {}: {error}", machine.spec.name))
                }
            }
        }
        self.remove_half_made();
        Ok(told)
    }

    fn sweep_one(&self, machine: &Machine) -> Result<Option<String>, MachineError> {
        let Some(mut held) = machine.try_hold()? else { return Ok(None) };
        held.reload();
        if held.state.phase == Phase::Exited {
            return Ok(None);
        }
        // A supervisor that could not save the state has still told how the machine ended.
        let outcome = held.told_outcome();
        let was_killed = held.state.phase.is_alive() && outcome.is_none();
        if let Some(process) = held.state.process {
            process.signal(Signal::KILL);
        }
        held.tear_down_network();
        held.finish(outcome.unwrap_or_else(Outcome::abandoned))?;
        let name = held.spec.name.clone();
        if held.spec.remove {
            held.remove()?;
        }
        Ok(was_killed.then(|| format!("cleaned up after machine {name}, whose supervisor was killed")))
    }

    /// Removes directories whose maker was killed before it had written the record.
    fn remove_half_made(&self) {
        let Ok(entries) = fs::read_dir(self.machines()) else { return };
        for folder in entries.flatten().map(|e| e.path()).filter(|p| p.is_dir()) {
            let old = folder
                .metadata()
                .and_then(|m| m.modified())
                .is_ok_and(|t| t.elapsed().is_ok_and(|a| a > HALF_MADE));
            if old && !folder.join(SPEC).exists() {
                // Whoever else is removing it does the same.
                let _ = fs::remove_dir_all(folder);
            }
        }
    }
}

impl Machine {
    fn load(folder: PathBuf) -> Option<Machine> {
        let spec = read_json(&folder.join(SPEC))?;
        let state = read_json(&folder.join("state.json"))?;
        Some(Machine { folder, spec, state })
    }

    /// Everything the program and the kernel have printed.
    pub fn console_log(&self) -> PathBuf {
        console_log::newest(&self.folder)
    }

    /// The machine as it is now; `None`: it has been removed.
    pub fn again(&self) -> Option<Machine> {
        Machine::load(self.folder.clone())
    }

    /// What health checks have found; `None`: there are none, or the machine has ended.
    pub fn health(&self) -> Option<Health> {
        self.spec.health.as_ref().filter(|_| self.state.phase.is_alive())?;
        let found: Option<Health> = read_json(&self.folder.join(HEALTH));
        // What was found before it was started again is of no interest.
        Some(found.filter(|h| h.of_start_ms == self.state.started_ms).unwrap_or_default())
    }

    /// Writes what health checks have found.
    pub fn save_health(&self, health: &Health) -> Result<(), MachineError> {
        write_json(&self.folder.join(HEALTH), health)
    }

    /// The store that it is in.
    pub fn store(&self) -> Store {
        store_of(&self.folder)
    }

    /// Where a user's wish is kept that the machine stays ended, whatever its restart policy says.
    fn stay_ended(&self) -> PathBuf {
        self.folder.join(STAY_ENDED)
    }

    /// Notes that a user wants the machine to stay ended, and how long its program has to end itself.
    pub fn note_stop(&self, grace: Duration) -> Result<(), MachineError> {
        let path = self.stay_ended();
        fs::write(&path, grace.as_secs().to_string()).map_err(MachineError::file("cannot write", &path))
    }

    /// The machine with its lock, unless a living supervisor has it.
    pub fn try_hold(&self) -> Result<Option<Held>, MachineError> {
        let path = self.folder.join("lock");
        let lock = match OpenOptions::new().read(true).write(true).open(&path) {
            Ok(lock) => lock,
            // Removed since it was listed.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(MachineError::file("cannot open", &path)(e)),
        };
        match lock.try_lock() {
            Ok(()) => {
                let Machine { folder, spec, state } = self.clone();
                Ok(Some(Held { folder, spec, state, lock }))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(MachineError::file("cannot lock", &path)(e)),
        }
    }

    /// Whether it has ended and its supervisor, which lives, is about to start it again.
    pub fn is_restarting(&self) -> bool {
        self.state.restarting && matches!(self.try_hold(), Ok(None))
    }

    /// Whether nobody has removed it.
    pub fn exists(&self) -> bool {
        self.folder.join(SPEC).exists()
    }

    /// The machine with its lock once its supervisor, which is about to end, has let go; `None` if it removed the machine, or
    /// holds it at the deadline.
    pub fn hold_when_free(&self, deadline: Option<Instant>) -> Result<Option<Held>, MachineError> {
        while self.exists() {
            if let Some(held) = self.try_hold()? {
                return Ok(Some(held));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
            std::thread::sleep(POLL);
        }
        Ok(None)
    }

    /// Waits for the end of the machine, at most until `deadline`. `None`: still running.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<Option<Outcome>, MachineError> {
        // The outcome is in the lock file as well: once open, it can be read after the machine is removed.
        let path = self.folder.join("lock");
        let mut lock = match File::open(&path) {
            Ok(lock) => lock,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(MachineError::NotFound(self.spec.name.clone()));
            }
            Err(e) => return Err(MachineError::file("cannot open", &path)(e)),
        };
        loop {
            // Asked before reading: a supervisor that is gone now wrote its outcome earlier.
            let gone = lock.try_lock_shared().is_ok();
            let mut text = String::new();
            lock.rewind()
                .and_then(|()| lock.read_to_string(&mut text))
                .map_err(MachineError::file("cannot read", &path))?;
            match serde_json::from_str(&text) {
                Ok(outcome) => return Ok(Some(outcome)),
                Err(_) if gone => return Ok(Some(Outcome::abandoned())),
                Err(_) => {}
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Ok(None);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Asks the supervisor to end the machine; `hard` ends it at once, otherwise the program has `grace` to end itself.
    /// Returns when it has ended.
    pub fn stop(&self, store: &Store, hard: bool, grace: Duration) -> Result<(), MachineError> {
        let Some(supervisor) = self.state.supervisor.filter(|_| self.state.phase.is_alive()) else {
            return Err(MachineError::NotRunning(self.spec.name.clone()));
        };
        let signal = if hard { 9 } else { self.spec.stop_signal };
        events::note(store.shared(), &self.spec, "kill", &[("signal", signal.to_string())]);
        let soft = !hard && supervisor.signal(Signal::TERM);
        if soft && self.wait(Some(Instant::now() + grace))?.is_some() {
            return Ok(());
        }
        supervisor.signal(Signal::QUIT);
        if self.wait(Some(Instant::now() + SUPERVISOR_LIMIT))?.is_none() {
            supervisor.signal(Signal::KILL);
            while supervisor.is_alive() {
                std::thread::sleep(Duration::from_millis(10));
            }
            store.sweep()?;
        }
        Ok(())
    }
}

impl Held {
    /// Takes over a machine whose lock the caller has inherited as `lock`.
    pub fn inherit(store: &Store, id: &str, lock: File) -> Result<Held, MachineError> {
        let machine = store.find(id)?;
        Ok(Held { folder: machine.folder, spec: machine.spec, state: machine.state, lock })
    }

    /// The store that it is in.
    pub fn store(&self) -> Store {
        store_of(&self.folder)
    }

    /// The open lock file, to be inherited by a supervisor.
    pub fn lock(&self) -> &File {
        &self.lock
    }

    pub fn console_log(&self) -> PathBuf {
        console_log::newest(&self.folder)
    }

    /// Where an initial RAM disk goes that is made for this machine alone; it is removed when the machine ends.
    pub fn initrd(&self) -> PathBuf {
        self.folder.join("initrd")
    }

    /// Where QEMU's machines find files that are volumes, each alone in a directory; removed when the machine ends.
    pub fn file_exports(&self) -> PathBuf {
        self.folder.join("exports")
    }

    /// Makes a machine that has ended as it was before it started; what it printed stays.
    pub fn renew(&mut self) -> Result<(), MachineError> {
        let path = self.folder.join("lock");
        // Whoever waits reads the outcome here.
        let emptied = self.lock.set_len(0).and_then(|()| self.lock.rewind());
        emptied.map_err(MachineError::file("cannot write", &path))?;
        self.state = State::default();
        self.reload_spec();
        let wish = self.folder.join(STAY_ENDED);
        match fs::remove_file(&wish) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(MachineError::file("cannot remove", &wish)(e))
            }
            _ => self.save(),
        }
    }

    /// How long the program has to end itself: what the user who stops the machine said, else what `run` was told, else [`GRACE`].
    ///
    /// [`GRACE`]: crate::supervisor::GRACE
    pub fn grace(&self) -> Duration {
        let said = fs::read_to_string(self.folder.join(STAY_ENDED)).ok().and_then(|text| text.parse().ok());
        crate::supervisor::grace(said.or(self.spec.stop_timeout))
    }

    /// Whether a user asked for the machine's end.
    pub fn is_to_stay_ended(&self) -> bool {
        self.folder.join(STAY_ENDED).exists()
    }

    /// Writes `state.json`.
    pub fn save(&self) -> Result<(), MachineError> {
        write_json(&self.folder.join("state.json"), &self.state)
    }

    /// Takes over what users have changed since it started: its name, its networks, its limits.
    pub fn reload_spec(&mut self) {
        if let Some(spec) = read_json(&self.folder.join(SPEC)) {
            self.spec = spec;
        }
    }

    fn reload(&mut self) {
        if let Some(state) = read_json(&self.folder.join("state.json")) {
            self.state = state;
        }
    }

    /// Marks this process as the one that looks after the machine.
    pub fn adopt(&mut self) -> Result<(), MachineError> {
        self.state.supervisor = Process::myself();
        self.save()
    }

    /// How the machine ended, as its lock file says.
    fn told_outcome(&mut self) -> Option<Outcome> {
        let mut text = String::new();
        self.lock.rewind().and_then(|()| self.lock.read_to_string(&mut text)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Marks the machine as ended.
    pub fn finish(&mut self, outcome: Outcome) -> Result<(), MachineError> {
        self.state.phase = Phase::Exited;
        self.state.finished_ms = Some(now_ms());
        // Most machines have none.
        let _ = fs::remove_file(self.initrd());
        let _ = fs::remove_dir_all(self.file_exports());
        // Before anybody hears of the end.
        events::note(self.store().shared(), &self.spec, "die", &[("exitCode", outcome.code.to_string())]);
        let text = serde_json::to_vec(&outcome).unwrap_or_default();
        self.state.outcome = Some(outcome);
        let saved = self.save();
        // The lock file is open already: the outcome reaches those who wait for it even where the state cannot be saved.
        let told =
            self.lock.rewind().and_then(|()| self.lock.set_len(0)).and_then(|()| self.lock.write_all(&text));
        saved.and(told.map_err(MachineError::file("cannot write", &self.folder.join("lock"))))
    }

    /// Removes the machine's record and logs; of one that is to be removed at its end (`--rm`) also the volumes without a name.
    pub fn remove(self) -> Result<(), MachineError> {
        match self.spec.remove {
            true => self.remove_with_volumes(),
            false => self.remove_alone(),
        }
    }

    fn remove_alone(&self) -> Result<(), MachineError> {
        fs::remove_dir_all(&self.folder).map_err(MachineError::file("cannot remove", &self.folder))?;
        events::note(self.store().shared(), &self.spec, "destroy", &[]);
        Ok(())
    }

    /// Removes the machine and its volumes without a name, as far as no other machine has them.
    pub fn remove_with_volumes(self) -> Result<(), MachineError> {
        self.remove_alone()?;
        let own = |mount: &&Mount| self.spec.anonymous.iter().any(|a| mount.host.ends_with(&a.name));
        let others = self.store().list()?;
        for Mount { host, .. } in self.spec.volumes.iter().filter(own) {
            if others.iter().any(|m| m.spec.volumes.iter().any(|mount| mount.host == *host)) {
                continue;
            }
            match fs::remove_dir_all(host) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(MachineError::file("cannot remove", host)(e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes what the network set-up left that does not go away with QEMU by itself.
    pub fn tear_down_network(&mut self) {
        if let Some(Connection::Tap { device, translated: true, .. }) = &self.state.connection {
            let removed = nat::nft().map(|nft| nat::tear_down(&nft, device, &self.spec.id));
            if let Some(Err(error)) = removed {
                let note = format!("the nftables tables {device}_{} are left behind: {error}", self.spec.id);
                self.state.notes.push(note);
            }
            if let Err(error) = Forwarding::of_host().and_then(|f| f.release(&self.spec.id)) {
                self.state.notes.push(format!("cannot turn IPv4 forwarding off again: {error}"));
            }
        }
        // Devices of QEMU's machines go with QEMU.
        if let Some(Connection::Tap { device, .. }) = &self.state.connection
            && self.spec.platform.opens_tap_by_name()
            && let Err(error) = tap::remove(device)
        {
            self.state.notes.push(format!("the tap device {device} is left behind: {error}"));
        }
    }
}

/// The store of a machine's directory.
fn store_of(folder: &Path) -> Store {
    Store { folder: folder.parent().and_then(Path::parent).unwrap_or(folder).into() }
}

fn take_lock(path: &Path) -> Result<File, MachineError> {
    let file = private::create(path).map_err(MachineError::file("cannot make", path))?;
    file.lock().map_err(MachineError::file("cannot lock", path))?;
    Ok(file)
}

pub(crate) fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Replaces the file as a whole, so that readers see the old or the new one.
pub(crate) fn write_json<T: serde::Serialize>(path: &Path, value: &T) -> Result<(), MachineError> {
    let temporary = path.with_extension("new");
    let text =
        serde_json::to_vec_pretty(value).map_err(|e| MachineError::file("cannot write", path)(e.into()))?;
    let written = private::create(&temporary)
        .and_then(|mut file| file.write_all(&text))
        .and_then(|()| fs::rename(&temporary, path));
    written.map_err(MachineError::file("cannot write", path))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{
        console_log::LogLimits,
        record::{Accel, KernelKind, Network, Platform, Ready, Restart},
    };
    use std::collections::BTreeMap;

    pub(crate) fn spec(id: &str, name: &str) -> Spec {
        Spec {
            id: id.into(),
            name: name.into(),
            created_ms: 0,
            program: "x".into(),
            label: "x".into(),
            remove: false,
            platform: Platform::Microvm,
            choice: None,
            accel: Some(Accel::Tcg),
            kernel_kind: KernelKind::Micro,
            ukl: String::new(),
            linux: String::new(),
            kernel: "/kernel".into(),
            symbols: None,
            initrd: "/root.cpio".into(),
            image: None,
            memory: 64 << 20,
            cpus: 1,
            args: vec!["/bin/x".into()],
            env: Vec::new(),
            cwd: None,
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            umask: None,
            hooks: Vec::new(),
            hook_input: String::new(),
            capabilities: None,
            no_new_privileges: false,
            confinement: Default::default(),
            group: None,
            ids: None,
            hostname: "x".into(),
            log: None,
            log_limits: LogLimits::default(),
            trace: false,
            stop_signal: 15,
            tty: false,
            null_input: false,
            volumes: Vec::new(),
            drives: Vec::new(),
            tmpfs: Vec::new(),
            read_only: false,
            hosts: Vec::new(),
            dns: Vec::new(),
            overlay: false,
            network: Network::None,
            networks: Vec::new(),
            mac: None,
            publish: Vec::new(),
            offer: Vec::new(),
            ready: Ready::Any,
            reach: None,
            labels: BTreeMap::new(),
            stop_timeout: None,
            restart: Restart::No,
            health: None,
            ipv6: false,
            limits: Vec::new(),
            anonymous: Vec::new(),
        }
    }

    #[test]
    fn a_name_belongs_to_one_machine() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let _first = store.create(spec("aa11", "one")).unwrap();
        let error = store.create(spec("bb22", "one")).unwrap_err().to_string();
        assert!(error.contains("in use by machine aa11") && error.contains("unilith rm one"), "{error}");
        assert_eq!(store.list().unwrap().len(), 1);
    }

    #[test]
    fn nobody_else_may_open_what_a_machine_has_or_hold_its_locks() {
        use std::os::unix::fs::PermissionsExt;
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("unilith");
        // As an earlier version made it.
        fs::create_dir_all(folder.join("machines")).unwrap();
        let held = Store::at(&folder).create(spec("aa11", "one")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for open in [&folder, &folder.join("machines"), &held.folder] {
            assert_eq!(mode(open), 0o700, "{}", open.display());
        }
        for file in ["machine.json", "state.json", "lock", "../.lock"] {
            assert_eq!(mode(&held.folder.join(file)), 0o600, "{file}");
        }
    }

    #[test]
    fn machines_are_found_by_name_id_and_unique_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let _held =
            [("aa11", "one"), ("aa22", "two")].map(|(id, name)| store.create(spec(id, name)).unwrap());
        for (text, id) in [("one", "aa11"), ("aa22", "aa22"), ("aa1", "aa11")] {
            assert_eq!(store.find(text).unwrap().spec.id, id);
        }
        assert!(matches!(store.find("aa"), Err(MachineError::Ambiguous(..))));
        assert!(matches!(store.find(""), Err(MachineError::NotFound(_))));
        assert!(matches!(store.find("zz"), Err(MachineError::NotFound(_))));
    }

    #[test]
    fn an_ended_machine_is_renewed_and_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let mut held = store.create(spec("aa11", "one")).unwrap();
        let _other = store.create(spec("bb22", "two")).unwrap();
        held.finish(Outcome { code: 3, reason: None }).unwrap();
        let machine = store.find("one").unwrap();
        machine.note_stop(Duration::from_secs(25)).unwrap();
        assert_eq!(held.grace(), Duration::from_secs(25));
        assert!(held.is_to_stay_ended());
        assert_eq!(machine.wait(None).unwrap().map(|o| o.code), Some(3));
        held.renew().unwrap();
        assert!(!held.is_to_stay_ended());
        assert_eq!(machine.wait(Some(Instant::now())).unwrap(), None, "the old outcome is forgotten");
        held.finish(Outcome { code: 4, reason: None }).unwrap();
        assert_eq!(machine.wait(None).unwrap().map(|o| o.code), Some(4));
        assert!(matches!(store.rename(&machine, "two"), Err(MachineError::NameInUse(..))));
        store.rename(&machine, "three").unwrap();
        assert_eq!(store.find("three").unwrap().spec.id, "aa11");
        assert!(matches!(store.find("one"), Err(MachineError::NotFound(_))));
    }

    #[test]
    fn a_machine_without_a_supervisor_is_swept_and_one_with_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let kept = store.create(spec("aa11", "kept")).unwrap();
        let mut dead = store.create(spec("bb22", "dead")).unwrap();
        dead.state.phase = Phase::Running;
        dead.save().unwrap();
        drop(dead);
        assert_eq!(store.sweep().unwrap().len(), 1);
        let dead = store.find("dead").unwrap().state;
        assert_eq!((dead.phase, dead.outcome.unwrap().code), (Phase::Exited, 137));
        assert_eq!(store.find("kept").unwrap().state.phase, Phase::Created);
        drop(kept);
    }

    #[test]
    fn an_outcome_that_was_told_survives_a_state_that_could_not_be_saved() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let mut held = store.create(spec("aa11", "full")).unwrap();
        held.state.phase = Phase::Running;
        held.save().unwrap();
        let blocked = held.folder.join("state.new");
        fs::create_dir(&blocked).unwrap();
        held.finish(Outcome { code: 7, reason: None }).unwrap_err();
        drop(held);
        // As long as it lasts it is told and keeps nobody from other machines.
        assert!(store.sweep().unwrap()[0].contains("cannot clean up after machine full"));
        fs::remove_dir(&blocked).unwrap();
        assert!(store.sweep().unwrap().is_empty());
        assert_eq!(store.find("full").unwrap().state.outcome.unwrap().code, 7);
    }

    #[test]
    fn a_swept_machine_that_was_to_be_removed_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        drop(store.create(Spec { remove: true, ..spec("aa11", "gone") }).unwrap());
        store.sweep().unwrap();
        assert!(store.list().unwrap().is_empty());
    }
}
