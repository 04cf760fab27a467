// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith profile`: where a running machine spends its time, as a flame graph.

use crate::counters;
use crate::fault::{Fault, Result, file};
use crate::session;
use crate::tracing::{self, Follow, Machinery, Output as Written, Stop};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use unilith_machine::store::Store;
use unilith_trace::profile::{self, Profile, Sampler, Stacks};

#[derive(clap::Args, Clone, Debug)]
#[command(after_long_help = "\
Examples:
  unilith profile redis
  unilith profile redis -d 30 -F 499 -o redis.svg
  unilith profile redis --format folded > before.folded
  unilith profile redis --format counts > redis.counts

Only busy time is sampled. Frames of the kernel have a colour of their own, and in text
end with _[k]; callers that cannot be known are one frame, [callers unknown]. docs/how-to/profile.md shows how to read it.")]
pub struct Args {
    machine: String,
    /// For so many seconds; Ctrl-C ends it earlier
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    duration: u64,
    /// So many samples a second
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 99,
        value_parser = clap::value_parser!(u32).range(i64::from(*profile::RATES.start())..=i64::from(*profile::RATES.end())))]
    frequency: u32,
    /// Write to this file; `-` is standard output [default: MACHINE.svg; folded stacks and counts to standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// svg: a flame graph; folded: a line for each stack, for other tools; counts: of a machine of --static --lto=count,
    /// how often its branches were taken so far, for --profile-use
    #[arg(long, value_name = "FORMAT", default_value = "svg")]
    format: Format,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Svg,
    Folded,
    Counts,
}

/// Where the profile goes.
enum Output {
    Standard,
    /// A device or a pipe, or a file: that is written to a neighbour first, so nobody loses an older profile to one
    /// that fails.
    File {
        path: PathBuf,
        new: Option<PathBuf>,
        file: File,
    },
}

impl Output {
    fn open(args: &Args, machine: &str) -> Result<Output> {
        let path = match (&args.output, args.format) {
            (Some(path), _) => path.clone(),
            (None, Format::Svg) => PathBuf::from(format!("{machine}.svg")),
            (None, Format::Folded | Format::Counts) => return Ok(Output::Standard),
        };
        if path.as_os_str() == "-" {
            return Ok(Output::Standard);
        }
        // Through symbolic links.
        let path = path.canonicalize().unwrap_or(path);
        match fs::metadata(&path) {
            Ok(there) if there.is_dir() => {
                return Err(Fault::new(format!("cannot write {}: it is a directory", path.display())));
            }
            Ok(there) if !there.is_file() => {
                let file = File::options().write(true).open(&path).map_err(file("write", &path))?;
                return Ok(Output::File { path, new: None, file });
            }
            _ => {}
        }
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".new.{}", std::process::id()));
        let new = path.with_file_name(name);
        let file = File::create(&new).map_err(file("write", &path))?;
        Ok(Output::File { path, new: Some(new), file })
    }

    /// Answers where it is.
    fn write(self, bytes: &[u8]) -> Result<String> {
        match self {
            Output::Standard => {
                let mut out = io::stdout();
                let written = out.write_all(bytes).and_then(|()| out.flush());
                written.map_err(|e| Fault::new(format!("cannot write the profile: {e}")))?;
                Ok("standard output".into())
            }
            Output::File { path, new, mut file } => {
                let finish = |()| new.as_ref().map_or(Ok(()), |new| fs::rename(new, &path));
                file.write_all(bytes).and_then(finish).map_err(crate::fault::file("write", &path))?;
                Ok(path.display().to_string())
            }
        }
    }

    fn discard(self) {
        if let Output::File { new: Some(new), .. } = self {
            // What cannot be removed was not made.
            let _ = fs::remove_file(new);
        }
    }
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    if args.format == Format::Counts {
        return write_counts(store, args);
    }
    let machine = session::find(store, &args.machine)?;
    let client = session::connect(&machine)?;
    let output = Output::open(args, &machine.spec.name)?;
    match take(&machine, &client, args) {
        Ok((bytes, said)) => {
            let path = output.write(&bytes)?;
            eprintln!("{said}: {path}");
            Ok(0)
        }
        Err(fault) => {
            output.discard();
            Err(fault)
        }
    }
}

/// What the machine has counted so far: read from outside, so nothing is sampled and nothing waits.
fn write_counts(store: &Store, args: &Args) -> Result<u8> {
    let machine = store.find(&args.machine)?;
    let profile = counters::take(&machine)?;
    let path = Output::open(args, &machine.spec.name)?.write(profile.text().as_bytes())?;
    eprintln!("{} of {} functions have run: {path}", profile.ran(), profile.functions());
    Ok(0)
}

/// The profile, and what is to be said of it.
fn take(
    machine: &unilith_machine::store::Machine,
    client: &unilith_overlay::Client,
    args: &Args,
) -> Result<(Vec<u8>, String)> {
    let machinery = Machinery::read(machine, client)?;
    let name = tracing::own_name("profile");
    let stop = Stop::watch()?;
    let sampler = Sampler::new(args.frequency, machinery.kernel.as_ref());
    let (send, samples) = channel();
    let follow = Follow::start(client, &name, &sampler.script(true), &machinery, move |output| {
        if let Written::Record { map, bytes } = output
            && let Some(sample) = sampler.read(map, bytes)
        {
            // Only while somebody listens.
            let _ = send.send(sample);
        }
    })?;
    let begin = Instant::now();
    eprintln!("sampling {} {} times a second: for {} s", machine.spec.name, args.frequency, args.duration);
    stop.wait(Some(begin + Duration::from_secs(args.duration)), &follow);
    let elapsed = begin.elapsed();
    let lost = tracing::lost(client, &name)?;
    follow.end()?;
    let names = machinery.names();
    let mut stacks = Stacks::new(machinery.all(), &names);
    let mut profile = Profile::default();
    for sample in samples {
        profile.add(stacks.frames(&sample));
    }
    if profile.samples == 0 {
        let idle = "the machine was idle: no samples; give it something to do meanwhile";
        return Err(Fault::new(idle));
    }
    if lost > 0 {
        eprintln!("unilith: {lost} samples were lost: take fewer with -F");
    }
    let busy = (profile.samples + lost) as f64 / f64::from(args.frequency) / elapsed.as_secs_f64();
    let said = format!(
        "{} samples in {} s, the processor was busy {:.0} % of the time",
        profile.samples,
        elapsed.as_secs(),
        (100.0 * busy).min(100.0)
    );
    let bytes = match args.format {
        Format::Folded | Format::Counts => profile.folded().into_bytes(),
        Format::Svg => {
            let why = |e| Fault::new(format!("cannot draw the flame graph: {e}"));
            profile.flame_graph(&machine.spec.name, &said).map_err(why)?
        }
    };
    Ok((bytes, said))
}
