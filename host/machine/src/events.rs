// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happens to machines, as `unilith events` shows it: one JSON value a line in a file that all commands and supervisors
//! append to, and that is set aside when it is long.
//!
//! Whoever makes a machine for a user makes the file ([`begin`]); in stores of container engines there is none, and nothing is
//! noted. Events are a help for the user: a disk that is full or a file that is damaged loses some of them and never holds up
//! a machine.

use crate::{private, record::Spec};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

/// The file is set aside when it has so many bytes, and one such file is kept: some 5,000 events, and 5,000 before them.
const MAX_FILE: u64 = 1 << 20;
/// Bytes of a line: longer ones go without the machine's labels.
const MAX_LINE: usize = 4096;

/// Something that happened to a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// docker's word: create, start, kill, die, stop, pause, unpause, rename, destroy, health_status: healthy.
    pub action: String,
    /// The machine's.
    pub id: String,
    /// docker's words about it, image and name among them, and the machine's labels.
    pub attributes: BTreeMap<String, String>,
}

fn current(folder: &Path) -> PathBuf {
    folder.join("events.jsonl")
}

fn earlier(folder: &Path) -> PathBuf {
    folder.join("events.1.jsonl")
}

/// From now on events in this store are noted.
pub fn begin(folder: &Path) {
    let _ = private::keep_directory(folder).and_then(|()| {
        match OpenOptions::new().append(true).open(current(folder)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => private::create(&current(folder)).map(drop),
            other => other.map(drop),
        }
    });
}

/// Notes that something happened to a machine.
pub fn note(folder: &Path, spec: &Spec, action: &str, more: &[(&str, String)]) {
    // See the module's documentation for the errors that are dropped here.
    let _ = append(folder, spec, action, more);
}

fn append(folder: &Path, spec: &Spec, action: &str, more: &[(&str, String)]) -> io::Result<()> {
    let path = current(folder);
    // Not made here: see `begin`.
    let mut file = OpenOptions::new().append(true).open(&path)?;
    if file.metadata()?.len() >= MAX_FILE {
        // Two that do this at once set aside an empty file at worst; the lock of the old one keeps them apart.
        file.lock()?;
        if is_same(&file, &path) {
            fs::rename(&path, earlier(folder))?;
            private::create(&path)?;
        }
        file = OpenOptions::new().append(true).open(&path)?;
    }
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut attributes = spec.labels.clone();
    attributes.insert("image".into(), spec.program.clone());
    attributes.insert("name".into(), spec.name.clone());
    attributes.extend(more.iter().map(|(key, value)| ((*key).to_string(), value.clone())));
    let mut event = Event {
        time_ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        action: action.into(),
        id: spec.id.clone(),
        attributes,
    };
    let mut line = serde_json::to_vec(&event)?;
    if line.len() > MAX_LINE {
        event.attributes.retain(|key, _| !spec.labels.contains_key(key) || key == "image" || key == "name");
        line = serde_json::to_vec(&event)?;
    }
    line.push(b'\n');
    // One write: O_APPEND keeps lines of several writers apart.
    file.write_all(&line)
}

fn is_same(file: &File, path: &Path) -> bool {
    let key = |m: fs::Metadata| (m.dev(), m.ino());
    let (open, named) = (file.metadata().map(key), fs::metadata(path).map(key));
    open.is_ok_and(|open| named.is_ok_and(|named| open == named))
}

/// Reads events, those that are there and those that come.
pub struct Events {
    folder: PathBuf,
    /// The file that is read, once there is one.
    reader: Option<BufReader<File>>,
    /// The beginning of a line whose end is not written yet.
    begun: Vec<u8>,
    /// Read before the current file.
    is_earlier: bool,
}

impl Events {
    /// `all`: from the oldest event that is kept; otherwise only those that come.
    pub fn open(folder: &Path, all: bool) -> io::Result<Events> {
        let mut events = Events { folder: folder.into(), reader: None, begun: Vec::new(), is_earlier: all };
        if all {
            events.reader = found(&earlier(folder))?;
            if events.reader.is_some() {
                return Ok(events);
            }
            events.is_earlier = false;
        }
        events.reader = found(&current(folder))?;
        if let Some(reader) = events.reader.as_mut().filter(|_| !all) {
            reader.seek(SeekFrom::End(0))?;
        }
        Ok(events)
    }

    /// The next event; `None`: there is none yet.
    pub fn read(&mut self) -> io::Result<Option<Event>> {
        loop {
            let Some(reader) = &mut self.reader else {
                self.reader = found(&current(&self.folder))?;
                if self.reader.is_none() {
                    return Ok(None);
                }
                continue;
            };
            // A line that is longer than any that is written here is cut, and is no event.
            let room = (2 * MAX_LINE).saturating_sub(self.begun.len()).max(1);
            let count = reader.by_ref().take(room as u64).read_until(b'\n', &mut self.begun)?;
            if self.begun.ends_with(b"\n") || self.begun.len() >= 2 * MAX_LINE {
                let line = std::mem::take(&mut self.begun);
                // A damaged line is left out.
                if let Ok(event) = serde_json::from_slice(&line) {
                    return Ok(Some(event));
                }
                continue;
            }
            if count > 0 {
                continue;
            }
            if !self.is_earlier && is_same(reader.get_ref(), &current(&self.folder)) {
                return Ok(None);
            }
            // This file is set aside and will not become longer: the next one is the current one.
            (self.is_earlier, self.reader) = (false, None);
            self.begun.clear();
        }
    }
}

fn found(path: &Path) -> io::Result<Option<BufReader<File>>> {
    match File::open(path) {
        Ok(file) => Ok(Some(BufReader::new(file))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::spec;

    fn actions(events: &mut Events) -> Vec<String> {
        std::iter::from_fn(|| events.read().unwrap()).map(|e| e.action).collect()
    }

    #[test]
    fn events_are_read_in_order_and_those_that_come_later_too() {
        let folder = tempfile::tempdir().unwrap();
        let spec = spec("0123456789ab", "web");
        note(folder.path(), &spec, "create", &[]);
        assert!(!current(folder.path()).exists(), "nobody asked for events");
        begin(folder.path());
        note(folder.path(), &spec, "start", &[]);
        let (mut all, mut new) =
            (Events::open(folder.path(), true).unwrap(), Events::open(folder.path(), false).unwrap());
        assert_eq!(actions(&mut all), ["start"]);
        note(folder.path(), &spec, "die", &[("exitCode", "3".into())]);
        let event = new.read().unwrap().unwrap();
        assert_eq!((event.action.as_str(), event.attributes["exitCode"].as_str()), ("die", "3"));
        assert_eq!(event.attributes["name"], "web");
        assert_eq!(actions(&mut all), ["die"]);
        // Neither damage nor a line without an end is in the way.
        let mut file = OpenOptions::new().append(true).open(current(folder.path())).unwrap();
        file.write_all(b"\xff{}\n{\"time_ns\":").unwrap();
        assert_eq!(actions(&mut all), [""; 0]);
        file.write_all(b"1,\"action\":\"late\",\"id\":\"x\",\"attributes\":{}}\n").unwrap();
        assert_eq!(actions(&mut all), ["late"]);
    }

    #[test]
    fn the_file_is_bounded_and_a_reader_follows_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut spec = spec("0123456789ab", "web");
        spec.labels.insert("much".into(), "x".repeat(3500));
        begin(folder.path());
        let mut all = Events::open(folder.path(), true).unwrap();
        let mut seen = 0;
        for n in 0..1000 {
            note(folder.path(), &spec, "start", &[]);
            if n % 100 == 99 {
                seen += actions(&mut all).len();
            }
        }
        assert_eq!(seen, 1000);
        let sizes = [current(folder.path()), earlier(folder.path())].map(|p| fs::metadata(p).unwrap().len());
        assert!(sizes.iter().all(|size| *size <= MAX_FILE + MAX_LINE as u64), "{sizes:?}");
        spec.labels.insert("more".into(), "x".repeat(3500));
        note(folder.path(), &spec, "start", &[]);
        let event = all.read().unwrap().unwrap();
        assert_eq!(event.attributes.keys().collect::<Vec<_>>(), ["image", "name"]);
    }
}
