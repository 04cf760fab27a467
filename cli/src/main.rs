// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The `unilith` command: one file per verb in [`verbs`].
#![forbid(unsafe_code)]

mod advice;
mod archive;
mod backtrace;
mod boot;
mod built;
mod connect;
mod counters;
mod detach;
mod disk;
mod fault;
mod foreign;
mod generators;
mod health;
mod installed;
mod instructions;
mod kernel;
mod line;
mod linked;
mod lto;
mod malloc;
mod mapped;
mod monitor;
mod mounts;
mod names;
mod object;
mod output;
mod prepare;
mod progress;
mod registries;
mod repository;
mod rights;
mod session;
mod snapshot;
mod template;
mod terminal;
mod tracing;
mod verbs;
mod words;
mod xen;

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use unilith_machine::store::Store;

/// Runs a Linux program you already have as a unikernel.
#[derive(Parser)]
#[command(name = "unilith", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Run a program in a machine of its own
    #[command(disable_help_flag = true)]
    Run(verbs::run::Args),
    /// Write a directory that boots the program with plain QEMU
    #[command(disable_help_flag = true)]
    Build(verbs::build::Args),
    /// List machines
    Ps(verbs::ps::Args),
    /// Show what a machine has printed
    Logs(verbs::logs::Args),
    /// Ask programs to end, and end their machines
    Stop(verbs::stop::Args),
    /// End machines at once
    Kill(verbs::stop::KillArgs),
    /// Start machines that have ended again
    Start(verbs::start::Args),
    /// Stop machines and start them again
    Restart(verbs::start::RestartArgs),
    /// Let machines stand still
    Pause(verbs::pause::Args),
    /// Let paused machines go on
    Unpause(verbs::pause::Args),
    /// Remove machines that have ended
    Rm(verbs::rm::Args),
    /// Give machines other limits, or another restart policy
    Update(verbs::update::Args),
    /// Give a machine another name
    Rename(verbs::rename::Args),
    /// Print what starts a machine with this computer
    Generate(verbs::generate::Args),
    /// Show where a machine's ports are on this host
    Port(verbs::port::Args),
    /// Show what machines take of this computer
    Stats(verbs::stats::Args),
    /// Copy files between this host and a running machine
    Cp(verbs::cp::Args),
    /// Show which files a running machine has otherwise than its image
    Diff(verbs::diff::Args),
    /// Write an image of a running machine's files
    Commit(verbs::commit::Args),
    /// Get images from registries
    Pull(verbs::pull::Args),
    /// List the images in the cache
    Images(verbs::images::Args),
    /// Remove images that no machine has
    Rmi(verbs::rmi::Args),
    /// List, get, remove and show images
    Image(verbs::image::Args),
    /// Keep a user name and a password for a registry
    Login(verbs::login::Args),
    /// Forget the password for a registry
    Logout(verbs::login::LogoutArgs),
    /// List, make and remove directories of this host that have a name
    Volume(verbs::volume::Args),
    /// List, make and remove networks, whose machines reach each other by name
    Network(verbs::network::Args),
    /// What the cache takes of the disk, and giving it back
    System(verbs::system::Args),
    /// Run a program of the image, or a command of the overlay, in a running machine
    Exec(verbs::exec::Args),
    /// Give commands to a running machine at a prompt
    Attach(verbs::attach::Args),
    /// Count, time and print what functions of a running machine do, with eBPF
    Trace(verbs::trace::Args),
    /// Show which functions of a running machine use the processor
    Top(verbs::top::Args),
    /// Write a flame graph of where a running machine spends its time
    Profile(verbs::profile::Args),
    /// Files and programs for running machines
    Overlay(verbs::overlay::Args),
    /// Debug a machine that is a process with gdb
    Gdb(verbs::gdb::Args),
    /// Machines that belong together, as a compose file describes them
    Compose(verbs::compose::Args),
    /// Everything known about machines, as JSON
    Inspect(verbs::inspect::Args),
    /// Show what happens to machines: starts, ends, health
    Events(verbs::events::Args),
    /// Wait until machines end and print their exit codes
    Wait(verbs::wait::Args),
    /// Say which system calls a program can make, and which the kernel lacks
    #[command(disable_help_flag = true)]
    Check(verbs::check::Args),
    /// List the catalogue of applications
    Apps(verbs::apps::Args),
    /// Say what this computer can do, and what to do about what it cannot
    Doctor(verbs::doctor::Args),
    /// Say which version this is
    Version(verbs::version::Args),
    /// Print a completion script for a shell
    Completions(verbs::completions::Args),
    /// Check formatting and lints, run all tests, boot machines and drive them
    Test(verbs::test::Args),
    /// Write a Debian package of this command, with its kernels
    Package(verbs::package::Args),
    /// Run a comparison from bench/
    Bench(verbs::bench::Args),
    /// A C compiler whose programs run on Linux and can be linked with the micro kernel (run --static): use it as a build's CC
    Cc(verbs::cc::Args),
    /// The same for C++, with Debian's glibc and libstdc++: use it as a build's CXX
    #[command(name = "c++")]
    Cpp(verbs::cc::Args),
    /// Make and check images of the hash file system that linked programs open files of (unilith/shfs.h)
    Shfs(verbs::shfs::Args),
    /// Show what a program's image is made of: bytes by micro-library and by function
    #[command(disable_help_flag = true)]
    Size(verbs::size::Args),
    /// Show which micro-libraries of a program's image call which
    #[command(disable_help_flag = true)]
    Graph(verbs::graph::Args),
    /// Choose the parts of a program's kernel on a terminal, with what each takes and needs
    #[command(disable_help_flag = true)]
    Menu(verbs::menu::Args),
    /// Build a Linux kernel step by step
    Linux(verbs::linux::Args),
    /// Make containers for Podman, Docker and others, in place of runc
    Oci(verbs::oci::Args),
    /// The supervisor of a detached machine; started by `run -d`
    #[command(name = "__supervise", hide = true)]
    Supervise(verbs::supervise::Args),
}

fn main() -> ExitCode {
    let verb = match Cli::try_parse_from(detach::words()) {
        Ok(cli) => cli.verb,
        Err(error) => foreign::exit(&error),
    };
    match detach::be_child().and_then(|()| act(verb)) {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            eprintln!("unilith: {fault}");
            ExitCode::from(fault.code)
        }
    }
}

fn act(verb: Verb) -> fault::Result<u8> {
    // Neither needs machines, and a broken HOME must not keep anybody from their shell's completions.
    match verb {
        Verb::Completions(args) => return verbs::completions::act::<Cli>(&args),
        Verb::Supervise(args) => return verbs::supervise::act(&args),
        Verb::Version(args) => return verbs::version::act(&args),
        // Its containers are looked after by engines, who ask for each.
        Verb::Oci(args) => return verbs::oci::act(args),
        Verb::Package(args) => return verbs::package::act::<Cli>(&args),
        _ => {}
    }
    let store = Store::open()?;
    for line in store.sweep()? {
        eprintln!("unilith: {line}");
    }
    match verb {
        Verb::Run(args) => verbs::run::act(&store, args),
        Verb::Build(args) => verbs::build::act(args),
        Verb::Ps(args) => verbs::ps::act(&store, &args),
        Verb::Logs(args) => verbs::logs::act(&store, &args),
        Verb::Stop(args) => verbs::stop::act(&store, &args),
        Verb::Kill(args) => verbs::stop::kill(&store, &args),
        Verb::Start(args) => verbs::start::act(&store, &args),
        Verb::Restart(args) => verbs::start::restart(&store, &args),
        Verb::Pause(args) => verbs::pause::act(&store, &args, true),
        Verb::Unpause(args) => verbs::pause::act(&store, &args, false),
        Verb::Rm(args) => verbs::rm::act(&store, &args),
        Verb::Update(args) => verbs::update::act(&store, &args),
        Verb::Rename(args) => verbs::rename::act(&store, &args),
        Verb::Generate(args) => verbs::generate::act(&store, &args),
        Verb::Port(args) => verbs::port::act(&store, &args),
        Verb::Stats(args) => verbs::stats::act(&store, &args),
        Verb::Cp(args) => verbs::cp::act(&store, &args),
        Verb::Diff(args) => verbs::diff::act(&store, &args),
        Verb::Commit(args) => verbs::commit::act(&store, &args),
        Verb::Pull(args) => verbs::pull::act(&args),
        Verb::Images(args) => verbs::images::act(&store, &args),
        Verb::Rmi(args) => verbs::rmi::act(&store, &args),
        Verb::Image(args) => verbs::image::act(&store, &args),
        Verb::Login(args) => verbs::login::act(&args),
        Verb::Logout(args) => verbs::login::logout(&args),
        Verb::Volume(args) => verbs::volume::act(&store, &args),
        Verb::Network(args) => verbs::network::act(&store, &args),
        Verb::System(args) => verbs::system::act(&store, &args),
        Verb::Exec(args) => verbs::exec::act(&store, &args),
        Verb::Attach(args) => verbs::attach::act(&store, &args),
        Verb::Trace(args) => verbs::trace::act(&store, &args),
        Verb::Top(args) => verbs::top::act(&store, &args),
        Verb::Profile(args) => verbs::profile::act(&store, &args),
        Verb::Overlay(args) => verbs::overlay::act(&store, &args),
        Verb::Gdb(args) => verbs::gdb::act(&store, &args),
        Verb::Compose(args) => verbs::compose::act(&store, &args),
        Verb::Inspect(args) => verbs::inspect::act(&store, &args),
        Verb::Events(args) => verbs::events::act(&store, &args),
        Verb::Wait(args) => verbs::wait::act(&store, &args),
        Verb::Check(args) => verbs::check::act(args),
        Verb::Apps(args) => verbs::apps::act(&args),
        Verb::Doctor(args) => verbs::doctor::act(&args),
        Verb::Test(args) => verbs::test::act(&args),
        Verb::Bench(args) => verbs::bench::act(&args),
        Verb::Cc(args) => verbs::cc::act(&args, unilith_static::Language::C),
        Verb::Cpp(args) => verbs::cc::act(&args, unilith_static::Language::Cpp),
        Verb::Shfs(args) => verbs::shfs::act(&args),
        Verb::Size(args) => verbs::size::act(&store, &args),
        Verb::Graph(args) => verbs::graph::act(&store, &args),
        Verb::Menu(args) => verbs::menu::act(&args),
        Verb::Linux(args) => verbs::linux::act(&args),
        Verb::Completions(_) | Verb::Oci(_) | Verb::Package(_) | Verb::Supervise(_) | Verb::Version(_) => {
            Ok(0)
        }
    }
}
