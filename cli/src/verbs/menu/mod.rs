// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith menu`: choose the kernel's parts on a terminal, and write them into a project's settings file.

mod list;
mod project;
mod screen;
mod state;

use crate::{
    fault::{Fault, Result},
    kernel,
    line::Program,
    prepare::{self, Flags, PROJECT_FILE},
};
use project::Project;
use ratatui::crossterm::event;
use rustix::termios::isatty;
use signal_hook::{consts::SIGTERM, flag};
use state::{Act, Built, Menu, Origin, Set};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use unilith_machine::record::KernelKind;
use unilith_static::anatomy::Anatomy;

/// How often signals are looked at.
const PATIENCE: Duration = Duration::from_millis(200);

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  unilith menu                  # of the unilith.toml here
  unilith menu -o cache redis   # writes cache/unilith.toml; then: cd cache && unilith run
  unilith menu --list           # every choice with its values, without a terminal

Choices that cannot be together are explained, and neither written nor built. Without a terminal the same is
`unilith run --set KEY=VALUE`, or `[set]` in unilith.toml.")]
pub struct Args {
    /// A program, as for `run`; none: the project here
    #[arg(value_name = "PROGRAM")]
    program: Option<String>,
    /// The directory of the unilith.toml that is written for a program [default: this one]
    #[arg(short, long, value_name = "DIR", requires = "program")]
    output: Option<PathBuf>,
    /// Print the choices of every kernel, each with its values (the default first) and what it needs, and leave
    #[arg(long, conflicts_with_all = ["program", "output"])]
    list: bool,
    /// With --list: as JSON
    #[arg(long, requires = "list")]
    json: bool,
    #[command(flatten)]
    flags: Flags,
}

pub fn act(args: &Args) -> Result<u8> {
    if args.list {
        return list::act(args.json);
    }
    if !isatty(io::stdin()) || !isatty(io::stdout()) {
        return Err(Fault::new(format!(
            "menu needs a terminal for its input and its output; without one `unilith menu --list` prints the choices, \
             `unilith run --set KEY=VALUE` or `[set]` in {PROJECT_FILE} chooses, and `unilith size` lists what an image is made of"
        )));
    }
    if args.flags.kernel == KernelKind::Linux {
        return Err(Fault::new("menu is about the parts of the micro kernel; leave out --kernel linux"));
    }
    let folder = args.output.as_deref().unwrap_or(Path::new(""));
    let mut project = Project::of(args.program.as_deref(), folder)?;
    let mut set = Set::default();
    project.set().iter().for_each(|(key, value)| set.add(key, value, Origin::File));
    for choice in &args.flags.set {
        let (key, value) = kernel::pair(choice)?;
        set.add(&key, &value, Origin::Flag);
    }
    if args.flags.r#static {
        // A linked image has none, which the conflicts then speak of.
        set.add("overlay", "off", Origin::Flag);
    }
    let shown = args.program.clone().unwrap_or_else(|| "this project".into());
    // Of a new file nothing is saved.
    let saved = if project.is_there() { project.set().clone() } else { BTreeMap::new() };
    let (wanted, built) = (project.wanted(), build(args, &set.plain())?);
    let mut menu = Menu::new(shown, project.path.display().to_string(), set, saved, wanted, built)?;

    let ended = Arc::new(AtomicBool::new(false));
    flag::register(SIGTERM, Arc::clone(&ended))
        .map_err(|e| Fault::new(format!("cannot catch SIGTERM: {e}")))?;
    let failed = |e: io::Error| Fault::new(format!("the terminal: {e}"));
    let mut terminal = Screen::open()?;
    while !ended.load(Ordering::Relaxed) {
        terminal.0.draw(|frame| screen::draw(frame, &menu)).map_err(failed)?;
        if !event::poll(PATIENCE).map_err(failed)? {
            continue;
        }
        let Some(key) = screen::key(&event::read().map_err(failed)?) else { continue };
        match menu.press(key) {
            Act::Nothing => {}
            Act::Quit => break,
            Act::Save => match project.write(&menu.to_save()) {
                Ok(()) => menu.saved(),
                Err(fault) => menu.message = fault.message,
            },
            Act::Build => {
                // Progress and the compiler's words are those of an ordinary terminal.
                drop(terminal);
                let built = build(args, &menu.set());
                terminal = Screen::open()?;
                match built {
                    Ok(built) => menu.built = built,
                    Err(fault) => menu.message = fault.message.replace('\n', " "),
                }
            }
        }
    }
    Ok(0)
}

/// The terminal in its second screen, without its own echo; as it was when dropped.
struct Screen(ratatui::DefaultTerminal);

impl Screen {
    fn open() -> Result<Screen> {
        ratatui::try_init().map(Screen).map_err(|e| Fault::new(format!("the terminal: {e}")))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Builds the program's image with these choices.
fn build(args: &Args, set: &BTreeMap<String, String>) -> Result<Built> {
    let mut flags = args.flags.clone();
    flags.set = set.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let program = Program { name: args.program.clone(), words: Vec::new() };
    let spec = prepare::prepare(&flags, &program)?;
    let symbols = spec.symbols.unwrap_or(spec.kernel);
    let bytes = std::fs::read(&symbols).map_err(crate::fault::file("read", &symbols))?;
    let anatomy = Anatomy::of(&bytes).map_err(|e| Fault::new(format!("{}: {e}", symbols.display())))?;
    Built::of(&anatomy, set)
}
