// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs are run by the interpreter that the machine's kernel has.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};

/// What the profile says of a call, decided by looking at it and not by a program.
fn expected(profile: &Value, number: u32, arguments: [u64; 6]) -> u32 {
    let of = |rule: &Value, action: &str, errno: &str| match rule[action].as_str() {
        Some("SCMP_ACT_ALLOW") => ALLOW,
        Some("SCMP_ACT_LOG") => LOG,
        Some("SCMP_ACT_TRAP") => TRAP,
        Some("SCMP_ACT_KILL_PROCESS") => KILL_PROCESS,
        Some("SCMP_ACT_ERRNO") => ERRNO | rule[errno].as_u64().map_or(EPERM, |n| n as u32),
        _ => KILL_THREAD,
    };
    let default = of(profile, "defaultAction", "defaultErrnoRet");
    let holds = |condition: &Value| {
        let argument = arguments[condition["index"].as_u64().unwrap() as usize];
        let value = condition["value"].as_u64().unwrap();
        match condition["op"].as_str().unwrap() {
            "SCMP_CMP_NE" => argument != value,
            "SCMP_CMP_LT" => argument < value,
            "SCMP_CMP_LE" => argument <= value,
            "SCMP_CMP_EQ" => argument == value,
            "SCMP_CMP_GE" => argument >= value,
            "SCMP_CMP_GT" => argument > value,
            _ => argument & value == condition["valueTwo"].as_u64().unwrap_or(0),
        }
    };
    let rules = profile["syscalls"].as_array().unwrap();
    let names = |rule: &&Value| {
        rule["names"]
            .as_array()
            .unwrap()
            .iter()
            .any(|name| super::number(name.as_str().unwrap()) == Some(number))
    };
    let known = rules.iter().flat_map(|rule| rule["names"].as_array().unwrap());
    let last = known.filter_map(|name| super::number(name.as_str().unwrap())).max();
    if last.is_some_and(|last| number > last) && default != ALLOW && default != LOG {
        return ERRNO | ENOSYS;
    }
    let counts = |rule: &&Value| of(rule, "action", "errnoRet") != default;
    let wide = rules.iter().filter(names).filter(counts).filter(|rule| conditions(rule).is_empty());
    if let Some(answer) = wide.map(|rule| of(rule, "action", "errnoRet")).min_by_key(|answer| *answer as i32)
    {
        return answer;
    }
    for rule in rules.iter().filter(names).filter(counts) {
        let all = conditions(rule);
        let indexes: std::collections::BTreeSet<u64> =
            all.iter().map(|c| c["index"].as_u64().unwrap()).collect();
        let is_true = match indexes.len() == all.len() {
            true => all.iter().all(holds),
            false => all.iter().any(holds),
        };
        if is_true {
            return of(rule, "action", "errnoRet");
        }
    }
    default
}

fn conditions(rule: &Value) -> Vec<Value> {
    rule["args"].as_array().cloned().unwrap_or_default()
}

fn compiled(profile: &Value) -> Result<Vec<classic_bpf::Instruction>> {
    let profile: LinuxSeccomp = serde_json::from_value(profile.clone()).map_err(|e| e.to_string())?;
    Ok(compile(&profile)?.into_iter().map(classic_bpf::Instruction::from_word).collect())
}

fn run(program: &[classic_bpf::Instruction], number: u32, arguments: [u64; 6]) -> u32 {
    assert_eq!(classic_bpf::seccomp::check(program), Ok(()), "{program:x?}");
    let data =
        classic_bpf::seccomp::Data { number, architecture: ARCHITECTURE, instruction_pointer: 0, arguments };
    classic_bpf::seccomp::run(program, &data)
}

/// In the manner of the profile that engines have for containers.
fn usual() -> Value {
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": [
            {"names": ["read", "write", "openat", "execve", "exit_group", "no_such_call", "chown32"], "action": "SCMP_ACT_ALLOW"},
            {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 0, "op": "SCMP_CMP_EQ"}]},
            {"names": ["personality"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 4294967295u32, "op": "SCMP_CMP_EQ"}]},
            {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0, "value": 2114060288, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}]},
            {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
        ],
    })
}

#[test]
fn a_profile_as_engines_write_it_decides_by_number_and_arguments() {
    let program = compiled(&usual()).unwrap();
    let ask = |name: &str, first: u64| run(&program, number(name).unwrap(), [first, 0, 0, 0, 0, 0]);
    assert_eq!([ask("read", 9), ask("execve", 0), ask("exit_group", 1)], [ALLOW; 3]);
    assert_eq!([ask("reboot", 0), ask("chown", 0)], [ERRNO | EPERM; 2]);
    assert_eq!([ask("personality", 0), ask("personality", 0xffff_ffff)], [ALLOW; 2]);
    assert_eq!(ask("personality", 8), ERRNO | EPERM);
    assert_eq!((ask("clone", 17), ask("clone", 0x1000_0011)), (ALLOW, ERRNO | EPERM));
    assert_eq!(ask("clone3", 0), ERRNO | ENOSYS);
    assert_eq!(ask("openat2", 0), ERRNO | ENOSYS, "newer than what the profile names");
    let other = classic_bpf::seccomp::Data {
        number: 0,
        architecture: 0x4000_0003,
        instruction_pointer: 0,
        arguments: [0; 6],
    };
    assert_eq!(classic_bpf::seccomp::run(&program, &other), KILL_THREAD, "calls of another architecture");
    assert!(program.len() < 64, "{}", program.len());
    let x32 = number("read").unwrap() | X32;
    assert_eq!(run(&program, x32, [0; 6]), ERRNO | ENOSYS);
    let mut without = usual();
    without["architectures"] = json!(["SCMP_ARCH_X86_64"]);
    let program = compiled(&without).unwrap();
    assert_eq!((run(&program, x32, [0; 6]), run(&program, NO_CALL, [0; 6])), (KILL_THREAD, ERRNO | EPERM));
}

#[test]
fn what_a_machine_cannot_do_and_what_is_wrong_is_said_by_its_name() {
    for (pointer, value, says) in [
        ("/defaultAction", json!("SCMP_ACT_NOTIFY"), "SCMP_ACT_NOTIFY"),
        ("/syscalls/0/action", json!("SCMP_ACT_TRACE"), "SCMP_ACT_TRACE"),
        ("/syscalls/0/action", json!("SCMP_ACT_WHATEVER"), "SCMP_ACT_WHATEVER"),
        ("/syscalls/1/args/0/index", json!(6), "argument 6"),
        ("/syscalls/1/args/0/op", json!("SCMP_CMP_LIKE"), "SCMP_CMP_LIKE"),
        ("/syscalls/4/errnoRet", json!(4096), "4096"),
        ("/architectures", json!(["SCMP_ARCH_VAX"]), "SCMP_ARCH_VAX"),
    ] {
        let mut profile = usual();
        *profile.pointer_mut(pointer).unwrap() = value;
        let error = compiled(&profile).unwrap_err();
        assert!(error.contains(says), "{pointer}: {error}");
    }
    let mut profile = usual();
    profile["listenerPath"] = json!("/run/agent.sock");
    assert!(compiled(&profile).unwrap_err().contains("listenerPath"));
}

#[test]
fn a_profile_that_is_too_long_is_refused() {
    let condition = |n: u64| json!({"names": ["ioctl"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 1, "value": n, "op": "SCMP_CMP_EQ"}]});
    let profile = |most: u64| json!({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": (0..most).map(condition).collect::<Vec<_>>()});
    let program = compiled(&profile(800)).unwrap();
    let ask = |second: u64| run(&program, number("ioctl").unwrap(), [0, second, 0, 0, 0, 0]);
    assert_eq!((ask(0), ask(799), ask(800)), (ALLOW, ALLOW, ERRNO | EPERM));
    assert!(compiled(&profile(900)).unwrap_err().contains("4096"));
}

fn action() -> impl Strategy<Value = &'static str> {
    let all = [
        "SCMP_ACT_ALLOW",
        "SCMP_ACT_ERRNO",
        "SCMP_ACT_KILL",
        "SCMP_ACT_KILL_PROCESS",
        "SCMP_ACT_TRAP",
        "SCMP_ACT_LOG",
    ];
    prop::sample::select(all.to_vec())
}

/// Values that differ in one half, or by one.
fn value() -> impl Strategy<Value = u64> {
    prop_oneof![0..4u64, Just(u64::MAX), Just(1 << 32), Just((1 << 32) + 1), Just(0xffff_ffff), any::<u64>()]
}

fn condition() -> impl Strategy<Value = Value> {
    let operators = ["NE", "LT", "LE", "EQ", "GE", "GT", "MASKED_EQ"];
    (0..6u32, value(), value(), prop::sample::select(operators.to_vec())).prop_map(|(index, value, two, op)| {
        json!({"index": index, "value": value, "valueTwo": two, "op": format!("SCMP_CMP_{op}")})
    })
}

fn rule_of_profile() -> impl Strategy<Value = Value> {
    let names: Vec<&str> = syscall_table::ROWS.iter().map(|row| row.name).collect();
    // Few calls, so that rules meet.
    let few = prop::sample::select(names[..8].to_vec());
    let names = prop::collection::vec(prop_oneof![few, prop::sample::select(names)], 1..12);
    (names, action(), 0..200u32, prop::collection::vec(condition(), 0..4)).prop_map(|(names, action, errno, args)| {
        json!({"names": names, "action": action, "errnoRet": errno, "args": args})
    })
}

proptest! {
    #[test]
    fn programs_say_what_profiles_say(
        rules in prop::collection::vec(rule_of_profile(), 0..12),
        default in action(),
        calls in prop::collection::vec((prop_oneof![0..12u32, 0..500u32], prop::array::uniform6(value())), 64),
    ) {
        let profile = json!({"defaultAction": default, "syscalls": rules});
        let program = compiled(&profile).unwrap();
        for (number, arguments) in calls {
            prop_assert_eq!(
                run(&program, number, arguments), expected(&profile, number, arguments), "{} {:?} {}", number, arguments, &profile
            );
        }
    }
}

/// Profiles that were damaged: an error or a program that the kernel takes, and nothing else. `UNILITH_FUZZ_ROUNDS` makes it go on.
#[test]
fn damaged_profiles_are_refused_or_compiled() {
    let rounds: u64 = std::env::var("UNILITH_FUZZ_ROUNDS").map_or(20_000, |n| n.parse().unwrap());
    let text = usual().to_string();
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut accepted = 0;
    for _ in 0..rounds {
        let mut bytes = text.clone().into_bytes();
        for _ in 0..=random() % 3 {
            let at = random() as usize % bytes.len();
            match random() % 4 {
                0 => drop(bytes.remove(at)),
                1 => bytes.insert(at, b"0123456789[]{},:\"-"[random() as usize % 18]),
                2 => bytes[at] = b"0123456789"[random() as usize % 10],
                _ => bytes[at] ^= random() as u8,
            }
        }
        let Ok(value) = serde_json::from_slice::<Value>(&bytes) else { continue };
        if let Ok(program) = compiled(&value) {
            accepted += 1;
            assert_eq!(classic_bpf::seccomp::check(&program), Ok(()));
        }
    }
    assert!(accepted > rounds / 20, "{accepted}");
}
