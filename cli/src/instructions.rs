// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions of a Dockerfile that change how an image's program is run: what `commit --change` takes.

use crate::{
    fault::{Fault, Result},
    words,
};
use unilith_snapshot::{Config, Empty};

/// Shells that run a command which is one text.
const SHELL: [&str; 2] = ["/bin/sh", "-c"];

/// Applies instructions in their order. As in a Dockerfile a new entrypoint without a new command has none.
pub fn apply(config: &mut Config, instructions: &[String]) -> Result<()> {
    let is = |text: &String, word: &str| {
        text.split_whitespace().next().is_some_and(|w| w.eq_ignore_ascii_case(word))
    };
    if instructions.iter().any(|i| is(i, "ENTRYPOINT")) && !instructions.iter().any(|i| is(i, "CMD")) {
        config.cmd.clear();
    }
    instructions.iter().try_for_each(|instruction| one(config, instruction))
}

fn one(config: &mut Config, instruction: &str) -> Result<()> {
    let wrong = |why: &str| Fault { code: 2, message: format!("--change {instruction}: {why}") };
    let text = instruction.trim();
    let (name, rest) = text.split_once(char::is_whitespace).map_or((text, ""), |(n, r)| (n, r.trim()));
    let name = name.to_ascii_uppercase();
    if rest.is_empty() && !matches!(name.as_str(), "CMD" | "ENTRYPOINT" | "USER") {
        return Err(wrong("write INSTRUCTION VALUE, for example WORKDIR /srv"));
    }
    if rest.contains('\0') {
        return Err(wrong("it holds a NUL byte"));
    }
    match name.as_str() {
        "CMD" => config.cmd = command(rest).map_err(|why| wrong(&why))?,
        "ENTRYPOINT" => config.entrypoint = command(rest).map_err(|why| wrong(&why))?,
        "ENV" => {
            for (key, value) in pairs(rest).map_err(|why| wrong(&why))? {
                set(&mut config.env, &key, &value);
            }
        }
        "LABEL" => config.labels.extend(pairs(rest).map_err(|why| wrong(&why))?),
        "USER" => config.user = rest.to_string(),
        "WORKDIR" if rest.starts_with('/') => config.working_dir = rest.to_string(),
        "WORKDIR" => {
            config.working_dir = format!("{}/{rest}", config.working_dir.trim_end_matches('/'));
        }
        "EXPOSE" => {
            for port in rest.split_whitespace() {
                let (number, protocol) = port.split_once('/').unwrap_or((port, "tcp"));
                let number = number.parse::<u16>().ok().filter(|n| *n != 0);
                let Some(number) = number.filter(|_| matches!(protocol, "tcp" | "udp")) else {
                    return Err(wrong(&format!("`{port}` is no port: write PORT or PORT/udp")));
                };
                config.exposed_ports.insert(format!("{number}/{protocol}"), Empty {});
            }
        }
        "STOPSIGNAL" => {
            let signal = unilith_image::signal_number(rest).ok_or_else(|| wrong("no such signal"))?;
            config.stop_signal = signal.to_string();
        }
        _ => {
            return Err(wrong("it is CMD, ENTRYPOINT, ENV, EXPOSE, LABEL, STOPSIGNAL, USER or WORKDIR"));
        }
    }
    Ok(())
}

/// `["a", "b"]`, or a text for the shell; nothing is no command.
fn command(text: &str) -> std::result::Result<Vec<String>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    if text.starts_with('[') {
        let words: Vec<String> = serde_json::from_str(text).map_err(|e| format!("no list of words: {e}"))?;
        return match words.iter().any(|word| word.contains('\0')) {
            true => Err("it holds a NUL byte".into()),
            false => Ok(words),
        };
    }
    Ok(SHELL.iter().copied().chain([text]).map(String::from).collect())
}

/// `KEY=VALUE KEY="A VALUE"`, or `KEY A VALUE`.
fn pairs(text: &str) -> std::result::Result<Vec<(String, String)>, String> {
    let first = text.split_whitespace().next().unwrap_or_default();
    if !first.contains('=') {
        let (key, value) = text.split_once(char::is_whitespace).ok_or("write KEY=VALUE")?;
        return Ok(vec![(key.to_string(), value.trim().to_string())]);
    }
    let words = words::split(text).map_err(|_| "a quote is not closed")?;
    let pair = |word: &String| match word.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_string(), value.to_string())),
        _ => Err(format!("`{word}`: write KEY=VALUE")),
    };
    words.iter().map(pair).collect()
}

fn set(env: &mut Vec<String>, key: &str, value: &str) {
    let entry = format!("{key}={value}");
    match env.iter_mut().find(|e| e.split('=').next() == Some(key)) {
        Some(old) => *old = entry,
        None => env.push(entry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(instructions: &[&str]) -> std::result::Result<Config, String> {
        let mut config = Config {
            cmd: vec!["/bin/a".into(), "b".into()],
            env: vec!["PATH=/bin".into()],
            working_dir: "/srv".into(),
            ..Config::default()
        };
        let instructions: Vec<String> = instructions.iter().map(|i| i.to_string()).collect();
        apply(&mut config, &instructions).map_err(|fault| fault.message)?;
        Ok(config)
    }

    #[test]
    fn instructions_change_what_they_name() {
        let config = applied(&[
            "env A=1 B=\"two words\" PATH=/x",
            "ENV LAST of all",
            "user redis:redis",
            "WORKDIR data",
            "EXPOSE 80 53/udp",
            "STOPSIGNAL SIGQUIT",
            "LABEL tier=front",
        ])
        .unwrap();
        assert_eq!(config.env, ["PATH=/x", "A=1", "B=two words", "LAST=of all"]);
        assert_eq!((config.user.as_str(), config.working_dir.as_str()), ("redis:redis", "/srv/data"));
        assert_eq!(config.exposed_ports.keys().collect::<Vec<_>>(), ["53/udp", "80/tcp"]);
        assert_eq!((config.stop_signal.as_str(), config.labels["tier"].as_str()), ("3", "front"));
        assert_eq!(config.cmd, ["/bin/a", "b"]);
    }

    #[test]
    fn commands_are_lists_or_texts_for_the_shell_and_a_new_entrypoint_drops_the_old_command() {
        assert_eq!(applied(&["CMD [\"x\", \"-y z\"]"]).unwrap().cmd, ["x", "-y z"]);
        assert_eq!(applied(&["CMD x -y"]).unwrap().cmd, ["/bin/sh", "-c", "x -y"]);
        let both = applied(&["CMD [\"-y\"]", "ENTRYPOINT [\"x\"]"]).unwrap();
        assert_eq!((both.entrypoint, both.cmd), (vec!["x".to_string()], vec!["-y".to_string()]));
        let alone = applied(&["ENTRYPOINT [\"x\"]"]).unwrap();
        assert_eq!((alone.entrypoint.len(), alone.cmd.len()), (1, 0));
    }

    #[test]
    fn what_is_no_instruction_is_refused_by_name() {
        for (text, says) in [
            ("RUN make", "WORKDIR"),
            ("EXPOSE http", "`http`"),
            ("EXPOSE 70000", "`70000`"),
            ("ENV A", "KEY=VALUE"),
            ("ENV A=\"x", "quote"),
            ("CMD [1]", "list"),
            ("WORKDIR", "WORKDIR /srv"),
            ("STOPSIGNAL SIGNO", "signal"),
        ] {
            assert!(applied(&[text]).unwrap_err().contains(says), "{text}");
        }
    }
}
