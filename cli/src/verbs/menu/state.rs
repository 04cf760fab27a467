// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the menu shows and what its keys do, without a terminal.

use crate::{
    fault::Result,
    kernel::choices::{self, CHOICES, Choice, Parts, Value},
};
use std::collections::{BTreeMap, BTreeSet};
use unilith_static::{anatomy::Anatomy, graph::Graph, size::Size};

/// Rows that Page Up and Page Down go.
const PAGE: usize = 10;
/// Libraries that are named as those that need another one.
const MAX_NAMED: usize = 3;

/// Who chose a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    /// The settings file, as it is on disk.
    File,
    /// `--set` of the command line.
    Flag,
    /// A key that was pressed here.
    Here,
}

/// What is chosen, and by whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set(BTreeMap<String, (String, Origin)>);

/// A micro-library of the image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Library {
    pub name: String,
    pub bytes: u64,
    /// Libraries whose functions it calls, those with the most calls first.
    pub needs: Vec<String>,
    /// Libraries that call its functions.
    pub needed_by: Vec<String>,
}

/// An image that was built: its libraries and the values that it was built with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Built {
    pub libraries: Vec<Library>,
    pub total: u64,
    pub with: BTreeMap<&'static str, &'static str>,
}

impl Built {
    pub fn of(anatomy: &Anatomy, set: &BTreeMap<String, String>) -> Result<Built> {
        let (size, mut graph) = (Size::of(anatomy), Graph::of(anatomy, true));
        graph.edges.sort_by_key(|edge| std::cmp::Reverse(edge.calls + edge.references));
        let library = |size: &unilith_static::size::Library| {
            let name = &size.library;
            let to = graph.edges.iter().filter(|edge| edge.from == *name).map(|edge| edge.to.clone());
            let from = graph.edges.iter().filter(|edge| edge.to == *name).map(|edge| edge.from.clone());
            Library {
                name: name.clone(),
                bytes: size.bytes + size.on_demand,
                needs: to.collect(),
                needed_by: from.collect(),
            }
        };
        let libraries = size.libraries.iter().map(library).filter(|library| library.bytes > 0).collect();
        let with = choices::values(set)?.into_iter().map(|(key, value)| (key, value.value)).collect();
        Ok(Built { libraries, total: size.total, with })
    }
}

/// A part that something of the project cannot do without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub key: &'static str,
    /// The value that leaves the part out.
    pub without: &'static str,
    /// Who wants it: "unilith.toml publishes ports".
    pub who: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pane {
    Choices,
    Libraries,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    /// The next value.
    Next,
    Previous,
    OtherPane,
    /// Back to the default.
    Reset,
    Build,
    Save,
    Quit,
}

/// What is to be done outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Nothing,
    Build,
    Save,
    Quit,
}

pub struct Menu {
    /// The program, and the settings file that `s` writes.
    pub title: String,
    pub file: String,
    pub pane: Pane,
    /// The row of each pane.
    pub at: [usize; 2],
    pub built: Built,
    /// One line on the last key.
    pub message: String,
    set: Set,
    saved: BTreeMap<String, String>,
    wanted: Vec<Wanted>,
    parts: Parts,
    /// `q` was pressed with choices that are not written.
    asked: bool,
}

impl Set {
    pub fn add(&mut self, key: &str, value: &str, origin: Origin) {
        self.0.insert(key.into(), (value.into(), origin));
    }

    /// As `--set` has it.
    pub fn plain(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect()
    }

    fn origin(&self, key: &str) -> Origin {
        self.0.get(key).map_or(Origin::Default, |(_, origin)| *origin)
    }
}

impl Menu {
    /// `saved`: what the settings file says; `set` begins with it.
    pub fn new(
        title: String,
        file: String,
        set: Set,
        saved: BTreeMap<String, String>,
        wanted: Vec<Wanted>,
        built: Built,
    ) -> Result<Menu> {
        choices::values(&set.plain())?;
        let parts = Parts::read()?;
        let (pane, at, message) = (Pane::Choices, [0, 0], String::new());
        Ok(Menu { title, file, pane, at, built, message, set, saved, wanted, parts, asked: false })
    }

    pub fn press(&mut self, key: Key) -> Act {
        self.message.clear();
        if key != Key::Quit {
            self.asked = false;
        }
        match key {
            Key::Up => self.go(|at, _| at.saturating_sub(1)),
            Key::Down => self.go(|at, _| at + 1),
            Key::PageUp => self.go(|at, _| at.saturating_sub(PAGE)),
            Key::PageDown => self.go(|at, _| at + PAGE),
            Key::First => self.go(|_, _| 0),
            Key::Last => self.go(|_, rows| rows),
            Key::OtherPane => {
                self.pane = if self.pane == Pane::Choices { Pane::Libraries } else { Pane::Choices };
            }
            Key::Next => self.turn(1),
            Key::Previous => self.turn(-1),
            Key::Reset => self.reset(),
            Key::Build => match self.conflicts().first() {
                Some(conflict) => self.message = format!("not built: {conflict}"),
                None => return Act::Build,
            },
            Key::Save => match self.conflicts().first() {
                Some(conflict) => self.message = format!("not written: {conflict}"),
                None => return Act::Save,
            },
            Key::Quit => {
                if self.asked || !self.is_changed() {
                    return Act::Quit;
                }
                self.asked = true;
                self.message =
                    format!("{} is not written: s writes it, q again leaves it as it is", self.file);
            }
        }
        Act::Nothing
    }

    fn rows(&self) -> usize {
        if self.pane == Pane::Choices { CHOICES.len() } else { self.built.libraries.len() }
    }

    fn go(&mut self, to: impl Fn(usize, usize) -> usize) {
        let rows = self.rows();
        let at = &mut self.at[self.pane as usize];
        *at = to(*at, rows).min(rows.saturating_sub(1));
    }

    /// The choice that the keys change: the row's, or the one that brought the row's library.
    pub fn choice(&self) -> Option<&'static Choice> {
        match self.pane {
            Pane::Choices => CHOICES.get(self.at[0]),
            Pane::Libraries => {
                let library = &self.built.libraries.get(self.at[1])?.name;
                self.bringing(library).first().map(|(choice, _)| *choice)
            }
        }
    }

    fn turn(&mut self, by: isize) {
        let Some(choice) = self.choice() else {
            self.message = "every kernel has this library; choices are in the other pane (Tab)".into();
            return;
        };
        let now = self.value(choice).value;
        let count = choice.values.len();
        let at = choice.values.iter().position(|(value, _)| *value == now).unwrap_or(0);
        let next = choice.values[(at as isize + by).rem_euclid(count as isize) as usize].0;
        self.set.add(choice.key, next, Origin::Here);
        self.message = match self.conflicts_of(choice.key).first() {
            Some(conflict) => conflict.clone(),
            None => format!("{}={next}", choice.key),
        };
    }

    fn reset(&mut self) {
        let Some(choice) = self.choice() else { return };
        self.set.0.remove(choice.key);
        self.message = format!("{}={}: the default", choice.key, self.value(choice).value);
    }

    fn values(&self) -> BTreeMap<&'static str, Value> {
        // Keys and values are known: those of the start were checked, the others come from the table.
        choices::values(&self.set.plain()).unwrap_or_default()
    }

    pub fn value(&self, choice: &'static Choice) -> Value {
        let default = || Value { value: choice.values[0].0, because_of: None };
        self.values().remove(choice.key).unwrap_or_else(default)
    }

    /// Who chose a value, in words.
    pub fn chosen_by(&self, choice: &'static Choice) -> String {
        if let Some(cause) = self.value(choice).because_of {
            return format!("follows {cause}");
        }
        match self.set.origin(choice.key) {
            Origin::Default => "default".into(),
            Origin::File => self.file.clone(),
            Origin::Flag => "--set".into(),
            Origin::Here => "you".into(),
        }
    }

    /// All that keeps this from being built, with the reason.
    pub fn conflicts(&self) -> Vec<String> {
        CHOICES
            .iter()
            .flat_map(|choice| self.conflicts_of(choice.key))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }

    /// Those that a choice has part in.
    pub fn conflicts_of(&self, key: &str) -> Vec<String> {
        let values = self.values();
        let between = choices::conflicts(&values).into_iter().filter(|conflict| conflict.keys.contains(&key));
        let wanted = self.wanted.iter().filter(|wanted| wanted.key == key);
        let broken =
            wanted.filter(|wanted| values.get(key).is_some_and(|value| value.value == wanted.without));
        let say =
            |wanted: &Wanted| format!("{}, which {}={} leaves out", wanted.who, wanted.key, wanted.without);
        between.map(|conflict| conflict.text).chain(broken.map(say)).collect()
    }

    /// What the settings file is to say: what differs from the defaults, and what it says already.
    pub fn to_save(&self) -> BTreeMap<String, String> {
        let is_default =
            |key: &str, value: &str| choices::choice(key).is_some_and(|c| c.values[0].0 == value);
        let mut set = self.set.plain();
        set.retain(|key, value| self.saved.contains_key(key) || !is_default(key, value));
        set
    }

    /// What was written.
    pub fn saved(&mut self) {
        self.saved = self.to_save();
        let written: Vec<String> = self.saved.keys().cloned().collect();
        for key in written {
            if let Some((_, origin)) = self.set.0.get_mut(&key) {
                *origin = Origin::File;
            }
        }
        self.message = format!("{} is written", self.file);
    }

    pub fn is_changed(&self) -> bool {
        self.to_save() != self.saved
    }

    /// What an image is to be built with: also what the settings file would add that was reset here.
    pub fn set(&self) -> BTreeMap<String, String> {
        let (mut set, values) = (self.set.plain(), self.values());
        for key in self.saved.keys().filter(|key| !self.set.0.contains_key(*key)) {
            set.insert(key.clone(), values.get(key.as_str()).map_or("", |value| value.value).to_string());
        }
        set
    }

    /// Whether the sizes are those of other choices.
    pub fn is_stale(&self) -> bool {
        self.values().iter().any(|(key, value)| self.built.with.get(key) != Some(&value.value))
    }

    /// Choices that bring a library as they are, with their values.
    fn bringing(&self, library: &str) -> Vec<(&'static Choice, &'static str)> {
        let values = self.values();
        let value = |choice: &'static Choice| Some((choice, values.get(choice.key)?.value));
        let brings = |(choice, value): &(&'static Choice, &'static str)| {
            let feature = choice.values.iter().find(|(known, _)| known == value).map_or("", |(_, f)| *f);
            self.parts.of(feature).contains(library)
        };
        CHOICES.iter().filter_map(value).filter(brings).collect()
    }

    /// Why a library is in the image.
    pub fn reason(&self, library: &Library) -> String {
        let name = library.name.as_str();
        let bringing = self.bringing(name);
        if !bringing.is_empty() {
            let say = |(choice, value): &(&'static Choice, &'static str)| {
                format!("{}={value} ({})", choice.key, self.chosen_by(choice))
            };
            return bringing.iter().map(say).collect::<Vec<_>>().join(", ");
        }
        if ["plat-pc", "plat-process"].iter().any(|feature| self.parts.of(feature).contains(name)) {
            return "--machine".into();
        }
        if name.starts_with('(') {
            return String::new();
        }
        if self.parts.is_always_there(name) {
            return "every kernel".into();
        }
        match library.needed_by.is_empty() {
            true => "what needs it was inlined".into(),
            false => format!("needed by {}", some(&library.needed_by)),
        }
    }

    /// Bytes of the libraries that a value brings, of those that are in the image.
    fn bytes_of(&self, feature: &str) -> Vec<(String, Option<u64>)> {
        let bytes = |name: &str| self.built.libraries.iter().find(|l| l.name == name).map(|l| l.bytes);
        self.parts.of(feature).into_iter().map(|name| (name.clone(), bytes(&name))).collect()
    }

    /// Lines on the row.
    pub fn details(&self) -> Vec<String> {
        let mut lines = Vec::new();
        match self.pane {
            Pane::Choices => {
                let Some(choice) = self.choice() else { return lines };
                lines.push(format!("{}: {}", choice.key, choice.about));
                let value = self.value(choice).value;
                for (known, feature) in choice.values {
                    let mark = if *known == value { "*" } else { " " };
                    let brings = self.bytes_of(feature).into_iter().map(|(name, bytes)| match bytes {
                        Some(bytes) => format!("{name} {bytes}"),
                        None => name,
                    });
                    let brings = brings.collect::<Vec<_>>().join(", ");
                    lines.push(format!("{mark} {known}  {brings}").trim_end().to_string());
                }
                let (needs, needed) = choices::needs(choice.key);
                if !needs.is_empty() {
                    lines.push(format!("needs {}", needs.join(", ")));
                }
                if !needed.is_empty() {
                    lines.push(format!("needed by {}", needed.join(", ")));
                }
                lines.extend(self.conflicts_of(choice.key).into_iter().map(|text| format!("! {text}")));
            }
            Pane::Libraries => {
                let Some(library) = self.built.libraries.get(self.at[1]) else { return lines };
                let share = 100.0 * library.bytes as f64 / self.built.total.max(1) as f64;
                lines.push(format!("{}: {} bytes, {share:.1} % of the image", library.name, library.bytes));
                lines.push(format!("chosen by {}", self.reason(library)));
                lines.push(format!("needs {}", all(&library.needs)));
                lines.push(format!("needed by {}", all(&library.needed_by)));
            }
        }
        lines
    }
}

fn some(names: &[String]) -> String {
    let more = if names.len() > MAX_NAMED { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(MAX_NAMED)].join(", "))
}

fn all(names: &[String]) -> String {
    if names.is_empty() { "nothing".into() } else { names.join(", ") }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn example(file: &[(&str, &str)], wanted: Vec<Wanted>) -> Menu {
        let saved: BTreeMap<String, String> =
            file.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let mut set = Set::default();
        saved.iter().for_each(|(key, value)| set.add(key, value, Origin::File));
        let library = |name: &str, bytes, needs: &[&str], needed_by: &[&str]| Library {
            name: name.into(),
            bytes,
            needs: needs.iter().map(ToString::to_string).collect(),
            needed_by: needed_by.iter().map(ToString::to_string).collect(),
        };
        let libraries = vec![
            library("tcpip", 230_000, &["posix", "core"], &["kernel"]),
            library("vfs", 30_000, &["core"], &["posix"]),
            library("ninep", 9000, &["vfs"], &["posix"]),
            library("core", 8000, &[], &["tcpip", "vfs", "posix", "ninep"]),
        ];
        let with =
            choices::values(&saved).unwrap().into_iter().map(|(key, value)| (key, value.value)).collect();
        let built = Built { libraries, total: 277_000, with };
        Menu::new("redis".into(), "unilith.toml".into(), set, saved, wanted, built).unwrap()
    }

    fn go_to(menu: &mut Menu, key: &str) {
        menu.press(Key::First);
        let at = CHOICES.iter().position(|choice| choice.key == key).unwrap();
        for _ in 0..at {
            menu.press(Key::Down);
        }
        assert_eq!(menu.choice().unwrap().key, key);
    }

    #[test]
    fn keys_go_through_all_values_and_back() {
        let mut menu = example(&[], Vec::new());
        go_to(&mut menu, "alloc");
        let alloc = choices::choice("alloc").unwrap();
        let mut seen = Vec::new();
        for _ in alloc.values {
            seen.push(menu.value(alloc).value);
            menu.press(Key::Next);
        }
        assert_eq!(seen, ["tlsf", "buddy", "mimalloc", "tiny", "region"]);
        assert_eq!(menu.value(alloc).value, "tlsf");
        menu.press(Key::Previous);
        assert_eq!((menu.value(alloc).value, menu.chosen_by(alloc).as_str()), ("region", "you"));
        menu.press(Key::Reset);
        assert_eq!((menu.value(alloc).value, menu.chosen_by(alloc).as_str()), ("tlsf", "default"));
        // Rows have an end on both sides.
        for _ in 0..99 {
            menu.press(Key::Down);
        }
        assert_eq!(menu.at[0], CHOICES.len() - 1);
        for _ in 0..99 {
            menu.press(Key::PageUp);
        }
        assert_eq!(menu.at[0], 0);
    }

    #[test]
    fn what_hangs_on_a_part_gives_way_and_says_to_whom() {
        let mut menu = example(&[], Vec::new());
        go_to(&mut menu, "overlay");
        menu.press(Key::Next);
        let trace = choices::choice("trace").unwrap();
        assert_eq!((menu.value(trace).value, menu.chosen_by(trace).as_str()), ("off", "follows overlay=off"));
        assert!(menu.conflicts().is_empty() && menu.is_stale());
        assert_eq!(menu.press(Key::Build), Act::Build);
    }

    #[test]
    fn a_conflict_is_explained_and_neither_written_nor_built() {
        let mut menu = example(&[], Vec::new());
        go_to(&mut menu, "volumes");
        menu.press(Key::Next);
        assert!(menu.message.contains("overlay=on needs volumes"), "{}", menu.message);
        assert!(menu.details().iter().any(|line| line.starts_with("! overlay=on needs volumes")));
        assert_eq!(menu.press(Key::Save), Act::Nothing);
        assert!(menu.message.starts_with("not written: overlay=on needs volumes"), "{}", menu.message);
        assert_eq!(menu.press(Key::Build), Act::Nothing);
        assert!(menu.message.starts_with("not built: "), "{}", menu.message);
        // Its other end ends it as well.
        go_to(&mut menu, "overlay");
        menu.press(Key::Next);
        assert_eq!(menu.press(Key::Save), Act::Save);
    }

    #[test]
    fn what_the_project_uses_cannot_be_left_out() {
        let who = "unilith.toml publishes ports".to_string();
        let mut menu = example(&[], vec![Wanted { key: "net", without: "none", who }]);
        go_to(&mut menu, "net");
        menu.press(Key::Next);
        assert_eq!(menu.message, "unilith.toml publishes ports, which net=none leaves out");
        assert_eq!(menu.press(Key::Save), Act::Nothing);
    }

    #[test]
    fn leaving_with_changes_is_asked_once_and_writing_ends_the_question() {
        let mut menu = example(&[("alloc", "buddy")], Vec::new());
        assert_eq!(menu.press(Key::Quit), Act::Quit);
        go_to(&mut menu, "alloc");
        menu.press(Key::Next);
        assert_eq!(menu.to_save(), BTreeMap::from([("alloc".into(), "mimalloc".into())]));
        assert_eq!(menu.press(Key::Quit), Act::Nothing);
        assert!(menu.message.contains("not written"), "{}", menu.message);
        // Another key takes the question back.
        menu.press(Key::Down);
        assert_eq!(menu.press(Key::Quit), Act::Nothing);
        assert_eq!(menu.press(Key::Quit), Act::Quit);
        menu.saved();
        assert_eq!(menu.chosen_by(choices::choice("alloc").unwrap()), "unilith.toml");
        assert_eq!(menu.press(Key::Quit), Act::Quit);
        // A default that the file names stays named; one that it does not is not written.
        go_to(&mut menu, "alloc");
        for _ in 0..3 {
            menu.press(Key::Next);
        }
        assert_eq!(menu.to_save(), BTreeMap::from([("alloc".into(), "tlsf".into())]));
        menu.press(Key::Next);
        menu.press(Key::Reset);
        assert!(menu.to_save().is_empty() && menu.is_changed());
        // The settings file still says otherwise: what is built is what is shown.
        assert_eq!(menu.set(), BTreeMap::from([("alloc".into(), "tlsf".into())]));
    }

    #[test]
    fn a_library_says_who_chose_it_what_it_needs_and_what_needs_it() {
        let mut menu = example(&[], Vec::new());
        menu.press(Key::OtherPane);
        let reasons: Vec<String> = menu.built.libraries.iter().map(|library| menu.reason(library)).collect();
        assert_eq!(reasons[0], "net=tcpip (default)");
        assert_eq!(reasons[1], "every kernel");
        assert!(reasons[2].contains("volumes=on (default)"), "{reasons:?}");
        assert_eq!(reasons[3], "needed by tcpip, vfs, posix, …");
        let details = menu.details().join("\n");
        assert!(details.contains("needs posix, core") && details.contains("needed by kernel"), "{details}");
        // Its choice can be changed from here; of what every kernel has there is none.
        menu.press(Key::Next);
        assert_eq!(menu.value(choices::choice("net").unwrap()).value, "none");
        menu.press(Key::Down);
        menu.press(Key::Next);
        assert!(menu.message.contains("every kernel has this"), "{}", menu.message);
    }
}
