// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith compose`: the machines of a compose file. What the file says is in `unilith-compose`; here it becomes machines
//! that `run` could have made, which bear docker's labels.

mod follow;
mod load;
mod machines;
mod run;
mod service;
mod up;

use crate::{
    fault::{Fault, Result},
    output::say,
};
use load::Loaded;
use std::path::PathBuf;
use unilith_machine::store::Store;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// A compose file, instead of compose.yaml or docker-compose.yml here or above with compose.override.yaml beside it; may
    /// repeat, each is put on top of those before it; `-`: standard input
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Name of the project, which its machines' names begin with
    #[arg(short, long, value_name = "NAME")]
    project_name: Option<String>,
    /// Where paths of the files begin, instead of the first file's directory
    #[arg(long, value_name = "DIR")]
    project_directory: Option<PathBuf>,
    /// Take services of this profile as well; may repeat
    #[arg(long, value_name = "NAME")]
    profile: Vec<String>,
    /// Variables of the file, instead of those in .env beside it
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Clone, Debug)]
enum What {
    /// Start what the file describes; what runs already and is as described goes on
    Up(up::Args),
    /// End and remove the machines and networks of the project
    Down {
        /// Remove the volumes of the file as well
        #[arg(short, long)]
        volumes: bool,
        /// Remove machines of services that are not in the file any more
        #[arg(long)]
        remove_orphans: bool,
        /// Seconds programs have to end themselves
        #[arg(short, long, value_name = "SECONDS")]
        timeout: Option<u64>,
    },
    /// List the machines of the project
    Ps {
        /// Ended ones too
        #[arg(short, long)]
        all: bool,
        /// Only ids
        #[arg(short, long)]
        quiet: bool,
        services: Vec<String>,
    },
    /// Show what services have printed
    Logs {
        /// Go on until all of them have ended
        #[arg(short, long)]
        follow: bool,
        /// Only so many of the last lines of each
        #[arg(short = 'n', long, value_name = "LINES")]
        tail: Option<usize>,
        /// Begin each line with the time at which it was printed
        #[arg(short, long)]
        timestamps: bool,
        /// Leave the machines' names out
        #[arg(long)]
        no_log_prefix: bool,
        /// Without colours
        #[arg(long)]
        no_color: bool,
        services: Vec<String>,
    },
    /// Run a program in a machine of its own that is as the service's, beside what the service needs
    Run(run::Args),
    /// Run a program in a service's machine, on a terminal if there is one
    Exec {
        /// Without a terminal
        #[arg(short = 'T', long)]
        no_tty: bool,
        /// Do not wait for it
        #[arg(short, long)]
        detach: bool,
        /// Set an environment variable; may repeat
        #[arg(short, long, value_name = "KEY=VALUE")]
        env: Vec<String>,
        #[arg(short, long, value_name = "USER")]
        user: Option<String>,
        #[arg(short, long, value_name = "DIR")]
        workdir: Option<String>,
        /// Which of several machines of the service
        #[arg(long, value_name = "NUMBER", default_value = "1")]
        index: u32,
        service: String,
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Print the file with everything filled in, or what is wrong with it
    Config {
        /// Only say what is wrong
        #[arg(short, long)]
        quiet: bool,
        /// Only the names of services
        #[arg(long)]
        services: bool,
        /// Only the names of volumes
        #[arg(long)]
        volumes: bool,
    },
    /// List the projects that have machines
    Ls {
        /// Those too whose machines have all ended
        #[arg(short, long)]
        all: bool,
        /// Only names
        #[arg(short, long)]
        quiet: bool,
        #[arg(long, value_enum, default_value = "table")]
        format: Format,
    },
    /// List the processes of services
    Top { services: Vec<String> },
    /// Let services stand still
    Pause { services: Vec<String> },
    /// Let paused services go on
    Unpause { services: Vec<String> },
    /// Ask programs to end
    Stop {
        /// Seconds programs have to end themselves
        #[arg(short, long, value_name = "SECONDS")]
        timeout: Option<u64>,
        services: Vec<String>,
    },
    /// Start machines of the project that have ended
    Start { services: Vec<String> },
    /// End machines of the project and start them again
    Restart {
        /// Seconds programs have to end themselves
        #[arg(short, long, value_name = "SECONDS")]
        timeout: Option<u64>,
        services: Vec<String>,
    },
    /// End machines of the project at once
    Kill { services: Vec<String> },
    /// Remove machines of the project that have ended
    Rm {
        /// Accepted for docker's users: nothing is asked
        #[arg(short, long, hide = true)]
        force: bool,
        /// End those that run before
        #[arg(short, long)]
        stop: bool,
        services: Vec<String>,
    },
    /// Show where a service's port is reached on this host
    Port {
        /// Which of several machines of the service
        #[arg(long, value_name = "NUMBER", default_value = "1")]
        index: u32,
        service: String,
        port: String,
    },
    /// Accepted for docker's users: what is needed is fetched when machines are made
    #[command(hide = true)]
    Pull { services: Vec<String> },
    /// Images are not built here
    #[command(hide = true)]
    Build { services: Vec<String> },
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Table,
    Json,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    if let What::Ls { all, quiet, format } = args.what {
        return machines::projects(store, all, quiet, format == Format::Json);
    }
    if let What::Run(args) = &args.what
        && args.is_to_wait()
    {
        return crate::detach::wait_for_child();
    }
    if let What::Build { .. } = args.what {
        return Err(Fault::new(
            "nothing is built here: `docker build` and `docker save -o FILE` make what `image: oci:FILE` takes",
        ));
    }
    let loaded = Loaded::read(args)?;
    match &args.what {
        What::Up(args) => up::act(store, &loaded, args),
        What::Run(args) => run::act(store, &loaded, args),
        What::Top { services } => machines::processes(&machines::of(store, &loaded, services)?),
        What::Pause { services } => machines::pause(store, &machines::of(store, &loaded, services)?, true),
        What::Unpause { services } => machines::pause(store, &machines::of(store, &loaded, services)?, false),
        What::Down { volumes, remove_orphans, timeout } => {
            machines::down(store, &loaded, *volumes, *remove_orphans, *timeout)
        }
        What::Ps { all, quiet, services } => machines::list(store, &loaded, *all, *quiet, services),
        What::Logs { follow, tail, timestamps, no_log_prefix, no_color, services } => {
            let found = machines::of(store, &loaded, services)?;
            let view = follow::View {
                tail: *tail,
                since: None,
                timestamps: *timestamps,
                prefix: !no_log_prefix,
                colours: !no_color,
            };
            follow::show(&found, &view, *follow)
        }
        What::Exec { no_tty, detach, env, user, workdir, index, service, command } => {
            let machine = machines::one(store, &loaded, service, *index)?;
            let program = super::exec::Request {
                machine: machine.spec.id,
                command: command.clone(),
                terminal: !no_tty,
                detach: *detach,
                env: env.clone(),
                user: user.clone(),
                workdir: workdir.clone(),
            };
            super::exec::program(store, program)
        }
        What::Config { quiet, services, volumes } => {
            if *services {
                loaded.project.services.iter().for_each(|s| say!("{}", s.name));
            } else if *volumes {
                loaded.project.volumes.iter().for_each(|v| say!("{}", v.key));
            } else if !quiet {
                say!("{}", loaded.project.resolved.trim_end());
            }
            Ok(0)
        }
        What::Stop { timeout, services } => {
            machines::stop(store, &machines::of(store, &loaded, services)?, *timeout)?;
            Ok(0)
        }
        What::Kill { services } => machines::kill(store, &machines::of(store, &loaded, services)?),
        What::Rm { stop, services, .. } => {
            let mut found = machines::of(store, &loaded, services)?;
            found.retain(|m| *stop || !machines::is_alive(m));
            machines::remove(store, &found, None)?;
            Ok(0)
        }
        What::Port { index, service, port } => {
            let machine = machines::one(store, &loaded, service, *index)?;
            machines::port(&machine, port)
        }
        What::Start { services } => machines::start(store, &loaded, services),
        What::Restart { timeout, services } => {
            machines::stop(store, &machines::of(store, &loaded, services)?, *timeout)?;
            machines::start(store, &loaded, services)
        }
        // Those of the last line are done above.
        What::Pull { .. } | What::Build { .. } | What::Ls { .. } => {
            eprintln!("unilith: `up` fetches what it needs; `unilith pull` gets a newer image of a name");
            Ok(0)
        }
    }
}
