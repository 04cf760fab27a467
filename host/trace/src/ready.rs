// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One-liners that are ready to use, by name.

/// A line with places for arguments.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    pub name: &'static str,
    /// What is to be said behind the name.
    pub arguments: &'static [&'static str],
    pub summary: &'static str,
    /// `{0}` is the first argument.
    pub line: &'static str,
}

/// All of them.
pub const ALL: &[Ready] = &[
    Ready { name: "syscalls", arguments: &[], summary: "System calls by name", line: "count(sys_enter, id)" },
    Ready {
        name: "syscall-errors",
        arguments: &[],
        summary: "System calls that fail, by name",
        line: "count(sys_exit if ret < 0, id)",
    },
    Ready {
        name: "syscall-latency",
        arguments: &["CALL"],
        summary: "Histogram of the time a system call takes",
        line: "between(sys_enter if id == {0}, tid, sys_exit if id == {0}, tid)",
    },
    Ready {
        name: "reads",
        arguments: &[],
        summary: "Histograms of the bytes that read and write move",
        line: "hist(sys_exit if id == read, ret); hist(sys_exit if id == write, ret)",
    },
    Ready {
        name: "accepts",
        arguments: &[],
        summary: "A line for each connection that is accepted: time, thread, descriptor",
        line: "print(sys_exit if id == accept4, time, comm, ret); print(sys_exit if id == accept, time, comm, ret)",
    },
    Ready {
        name: "opens",
        arguments: &[],
        summary: "A line for each file that is opened: thread, path",
        line: "print(sys_enter if id == openat, comm, str(arg1)); print(sys_enter if id == open, comm, str(arg0))",
    },
    Ready {
        name: "calls",
        arguments: &["FUNCTION"],
        summary: "How often a function is called",
        line: "count({0})",
    },
    Ready {
        name: "callers",
        arguments: &["FUNCTION"],
        summary: "Who calls a function, by stack",
        line: "stacks({0})",
    },
    Ready {
        name: "latency",
        arguments: &["FUNCTION"],
        summary: "Histogram of the time a function takes",
        line: "latency({0})",
    },
    Ready {
        name: "slow",
        arguments: &["FUNCTION", "TIME"],
        summary: "A line for each call that takes longer, such as 10ms",
        line: "slow({0}, {1})",
    },
    Ready {
        name: "watch",
        arguments: &["VARIABLE"],
        summary: "A variable of the program, every second",
        line: "print(every 1s, time, {0})",
    },
    Ready {
        name: "functions",
        arguments: &[],
        summary: "Samples of the processor by function",
        line: "count(perf:sample, ip)",
    },
    Ready {
        name: "page-faults",
        arguments: &[],
        summary: "Page faults by the function of the program",
        line: "count(page_fault_user, ip)",
    },
    Ready {
        name: "run-queue",
        arguments: &[],
        summary: "Histogram of the time from a thread's wake-up until it runs",
        line: "between(sched_wakeup, pid, sched_switch, next_pid)",
    },
    Ready {
        name: "switches",
        arguments: &[],
        summary: "Which threads the processor goes to",
        line: "count(sched_switch, next_comm)",
    },
    Ready {
        name: "packets",
        arguments: &[],
        summary: "Histograms of the lengths of frames received and sent",
        line: "hist(net:receive, len); hist(net:send, len)",
    },
];

impl Ready {
    /// The line with the names of its arguments.
    pub fn shown(&self) -> String {
        self.with(self.arguments)
    }

    fn with(&self, arguments: &[impl AsRef<str>]) -> String {
        let mut line = self.line.to_string();
        for (i, argument) in arguments.iter().enumerate() {
            line = line.replace(&format!("{{{i}}}"), argument.as_ref());
        }
        line
    }
}

/// The line of this name, if there is one. An error when its arguments are missing or too many.
pub fn line(name: &str, arguments: &[String]) -> Result<Option<String>, String> {
    let Some(ready) = ALL.iter().find(|r| r.name == name) else { return Ok(None) };
    if ready.arguments.len() != arguments.len() {
        return Err(match ready.arguments {
            [] => format!("{name} takes no arguments"),
            wants => format!("write {name} {}", wants.join(" ")),
        });
    }
    Ok(Some(ready.with(arguments)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::language::{Variable, compile};

    #[test]
    fn every_ready_line_compiles_to_programs_that_are_verified() {
        for ready in ALL {
            let arguments: Vec<String> = ready
                .arguments
                .iter()
                .map(|a| match *a {
                    "CALL" => "read".into(),
                    "TIME" => "10ms".into(),
                    other => other.to_lowercase(),
                })
                .collect();
            let line = line(ready.name, &arguments).unwrap().unwrap();
            let variables = |name: &str| (name == "variable").then_some(Variable { address: 16, size: 8 });
            let script = compile(&line, &variables).unwrap_or_else(|e| panic!("{line}: {e}"));
            script.verify().unwrap_or_else(|e| panic!("{line}: {e}"));
        }
    }

    #[test]
    fn arguments_that_are_missing_are_named() {
        assert_eq!(line("slow", &["f".into()]), Err("write slow FUNCTION TIME".into()));
        assert_eq!(line("packets", &["f".into()]), Err("packets takes no arguments".into()));
        assert_eq!(line("nothing", &[]), Ok(None));
    }
}
