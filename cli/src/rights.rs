// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the program is allowed inside its machine: docker's `--cap-drop`, `--cap-add` and `--security-opt`. A machine's own kernel
//! holds it, so that root has everything unless the user says otherwise.

use crate::fault::{Fault, Result};
use rustix::thread::CapabilitySet;
use unilith_machine::record::Capabilities;

#[derive(clap::Args, Clone, Debug, Default)]
#[group(skip)]
pub struct Flags {
    /// Take a capability from the program, or ALL: NET_RAW, CAP_SYS_ADMIN; may repeat
    #[arg(long, value_name = "CAPABILITY")]
    cap_drop: Vec<String>,
    /// Leave the program a capability that `--cap-drop ALL` would take; may repeat
    #[arg(long, value_name = "CAPABILITY")]
    cap_add: Vec<String>,
    /// no-new-privileges: no program gets more rights than the first has
    #[arg(long, value_name = "OPTION")]
    security_opt: Vec<String>,
}

impl Flags {
    pub fn are_limited(&self) -> bool {
        !self.cap_drop.is_empty() || !self.cap_add.is_empty() || !self.security_opt.is_empty()
    }

    /// `None`: root has all.
    pub fn capabilities(&self) -> Result<Option<Capabilities>> {
        if self.cap_drop.is_empty() && self.cap_add.is_empty() {
            return Ok(None);
        }
        let (dropped, added) = (named("--cap-drop", &self.cap_drop)?, named("--cap-add", &self.cap_add)?);
        let all = CapabilitySet::all();
        // As docker: who takes all and adds some has those, and what is taken by name is taken in any case.
        let left = if dropped == all { added } else { all - dropped };
        Ok(Some(Capabilities::bound(left.bits())))
    }

    /// PR_SET_NO_NEW_PRIVS.
    pub fn are_final(&self) -> Result<bool> {
        let mut are_final = false;
        for option in &self.security_opt {
            match option.split(['=', ':']).collect::<Vec<_>>()[..] {
                ["no-new-privileges"] | ["no-new-privileges", "true"] => are_final = true,
                ["no-new-privileges", "false"] => are_final = false,
                ["seccomp" | "apparmor" | "label" | "systempaths", ..] => {
                    let why = "the machine itself is the boundary to this host; leave it out";
                    return Err(usage(format!("--security-opt {option}: {why}")));
                }
                _ => {
                    return Err(usage(format!("--security-opt {option}: it is no-new-privileges")));
                }
            }
        }
        Ok(are_final)
    }
}

fn usage(message: String) -> Fault {
    Fault { code: 2, message }
}

fn named(flag: &str, names: &[String]) -> Result<CapabilitySet> {
    let mut set = CapabilitySet::empty();
    for name in names {
        let upper = name.to_ascii_uppercase();
        let short = upper.strip_prefix("CAP_").unwrap_or(&upper);
        set |= match short {
            "ALL" => CapabilitySet::all(),
            _ => CapabilitySet::from_name(short).ok_or_else(|| {
                usage(format!("{flag} {name}: there is no such capability; capabilities(7) lists them"))
            })?,
        };
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(drop: &[&str], add: &[&str]) -> Option<u64> {
        let words = |list: &[&str]| list.iter().map(ToString::to_string).collect();
        let flags = Flags { cap_drop: words(drop), cap_add: words(add), security_opt: Vec::new() };
        flags.capabilities().unwrap().map(|sets| sets.bounding)
    }

    #[test]
    fn what_is_dropped_is_gone_and_what_is_added_to_nothing_is_all_there_is() {
        let all = CapabilitySet::all().bits();
        assert_eq!(bound(&[], &[]), None);
        assert_eq!(bound(&["chown", "CAP_KILL"], &[]), Some(all & !(1 | 1 << 5)));
        assert_eq!(bound(&["ALL"], &["NET_BIND_SERVICE"]), Some(1 << 10));
        assert_eq!(bound(&["net_raw"], &["all"]), Some(all & !(1 << 13)));
        assert_eq!((bound(&[], &["SYS_TIME"]), bound(&["all"], &[])), (Some(all), Some(0)));
    }

    #[test]
    fn what_is_no_capability_or_option_is_named() {
        let error = named("--cap-drop", &["CAP_FLY".into()]).unwrap_err().to_string();
        assert!(error.contains("--cap-drop CAP_FLY") && error.contains("capabilities(7)"), "{error}");
        for (option, expected) in [
            ("no-new-privileges:true", Some(true)),
            ("no-new-privileges", Some(true)),
            ("no-new-privileges=false", Some(false)),
            ("seccomp=unconfined", None),
            ("fly", None),
        ] {
            let flags = Flags { security_opt: vec![option.into()], ..Flags::default() };
            assert_eq!(flags.are_final().ok(), expected, "{option}");
        }
    }
}
