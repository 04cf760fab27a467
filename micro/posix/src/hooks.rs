// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs that a container's description has run in the container before its own program (`hooks.startContainer`, runtime-spec,
//! "POSIX-platform Hooks"): with the rights, the filter of system calls and the working directory of that program, an environment of
//! their own, and the container's state on their standard input.

use crate::outside::{self, Place, Refusal, Wanted};
use abi::errno::EAGAIN;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;
use api_boot::{BootConfig, Hook};
use api_fs::{File, Source};
use descriptors::Description;
use pipe::PipeEnd;
use task::process::Process;
use task::signals::SIGKILL;

const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
/// How often a hook is looked at that runs.
const POLL_NS: u64 = 1_000_000;
const SECOND_NS: u64 = 1_000_000_000;

/// Runs the hooks one after another; the first that fails ends it, with what is to be told. The caller is the thread that becomes the
/// program, whose process is `first`.
pub fn run(first: &Arc<Process>, config: &BootConfig) -> Result<(), String> {
    config.hooks.iter().try_for_each(|hook| {
        one(first, hook, &config.hook_input)
            .map_err(|why| format!("the startContainer hook {}: {why}", hook.path))
    })
}

fn one(first: &Arc<Process>, hook: &Hook, input: &str) -> Result<(), String> {
    let failed = |e| format!("its standard streams: {e:?}");
    let (theirs, ours) = pipe::pipe().map_err(failed)?;
    let null = outside::device(&first.files.namespace(), b"/dev/null", O_WRONLY).map_err(failed)?;
    let bytes = |words: &[String]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let asked = Wanted {
        arguments: bytes(&hook.arguments),
        environment: bytes(&hook.environment),
        working: first.files.working(),
        credentials: first.credentials.lock().clone(),
        streams: [Description::new(theirs, O_RDONLY, None), null.clone(), null],
        terminal: None,
        place: Place::Machine,
    };
    let started = outside::start(first, &asked, &[hook.path.as_bytes().to_vec()]);
    // Whoever is at the other end of the pipe is the hook alone.
    drop(asked);
    let mut input = Input { pipe: Some(ours), rest: input.as_bytes() };
    let process = started.map_err(|refusal| match refusal {
        Refusal::NotFound => "there is no such program in the container".to_string(),
        Refusal::NoInterpreter => "what it says runs it is not in the container".to_string(),
        Refusal::Other(e) => format!("cannot be started: {e:?}"),
    })?;
    let until = api_plat::now_ns().saturating_add(hook.timeout.saturating_mul(SECOND_NS));
    let mut was_ended = false;
    loop {
        input.give();
        match outside::code(&process) {
            Some(_) if was_ended => return Err("did not end in its time".into()),
            Some(0) => return Ok(()),
            Some(code) => return Err(format!("ended with {code}")),
            None => {}
        }
        if api_plat::now_ns() >= until && !was_ended {
            outside::signal(&process, SIGKILL);
            was_ended = true;
        }
        api_sched::park(api_plat::now_ns() + POLL_NS);
    }
}

/// What a hook reads.
struct Input<'a> {
    /// `None`: all was given.
    pipe: Option<Arc<PipeEnd>>,
    rest: &'a [u8],
}

impl Input<'_> {
    /// Gives as much as the pipe takes, and the end behind the last of it.
    fn give(&mut self) {
        let Some(pipe) = &self.pipe else { return };
        let taken = match pipe.write(0, &mut Source::kernel(self.rest)) {
            Ok(count) => count,
            Err(EAGAIN) => 0,
            // A hook that does not read its input does not need it.
            Err(_) => self.rest.len(),
        };
        self.rest = &self.rest[taken..];
        if self.rest.is_empty() {
            self.close();
        }
    }

    fn close(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            // Closing a pipe cannot fail.
            let _ = pipe.close();
        }
    }
}

impl Drop for Input<'_> {
    fn drop(&mut self) {
        self.close();
    }
}
