// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `unilith events`: what happens to machines, in docker's format.

use crate::{
    fault::{Fault, Result},
    template::Template,
};
use serde_json::{Value, json};
use std::{
    io::{self, ErrorKind, Write},
    time::Duration,
};
use unilith_machine::{
    events::{Event, Events},
    lines::printable,
    record::now_ms,
    store::Store,
    times,
};

/// How often is looked for more.
const POLL: Duration = Duration::from_millis(50);
const NS_PER_MS: u64 = 1_000_000;

#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Show what happened since then first: 2026-11-23T01:02:03Z, seconds since 1970, or how long ago, as 10m
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Show nothing that happens after that, and end then
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only events that fit: event=ACTION, container=NAME|ID, image=PROGRAM, label=KEY[=VALUE], type=container; may repeat
    #[arg(short, long, value_name = "KEY=VALUE")]
    filter: Vec<String>,
    /// `json`, or only these fields, e.g. {{.Action}} {{.Actor.Attributes.name}}
    #[arg(long, value_name = "TEMPLATE")]
    format: Option<String>,
}

pub fn act(store: &Store, args: &Args) -> Result<u8> {
    let now = now_ms();
    let time = |flag: &str, text: &Option<String>| {
        let parsed = text.as_ref().map(|text| times::parse(text, now)).transpose();
        parsed.map_err(|why| Fault { code: 2, message: printable(&format!("--{flag}: {why}")) })
    };
    let (since, until) = (time("since", &args.since)?, time("until", &args.until)?);
    let filters = args.filter.iter().map(|text| Filter::parse(text)).collect::<Result<Vec<_>>>()?;
    let format = args.format.as_deref().map(Template::parse).transpose()?;
    let failed = |e: io::Error| Fault::new(format!("cannot read the events: {e}"));
    let mut events = Events::open(store.shared(), since.is_some()).map_err(failed)?;
    let mut out = io::stdout().lock();
    loop {
        // Asked before reading, so that everything that happened until then is shown.
        let is_over = until.is_some_and(|until| now_ms() > until);
        while let Some(event) = events.read().map_err(failed)? {
            let at = event.time_ns / NS_PER_MS;
            let is_in_time = since.is_none_or(|since| at >= since) && until.is_none_or(|until| at <= until);
            if !is_in_time || !fits(&filters, &event) {
                continue;
            }
            let line = match &format {
                Some(format) => format.fill(&value(&event))?,
                None => line(&event),
            };
            match writeln!(out, "{}", printable(&line)).and_then(|()| out.flush()) {
                Ok(()) => {}
                Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(0),
                Err(e) => return Err(Fault::new(format!("cannot print: {e}"))),
            }
        }
        if is_over {
            return Ok(0);
        }
        std::thread::sleep(POLL);
    }
}

/// As docker prints it.
fn line(event: &Event) -> String {
    let attributes: Vec<String> =
        event.attributes.iter().map(|(key, value)| format!("{key}={value}")).collect();
    format!(
        "{} container {} {} ({})",
        times::timestamp_ns(event.time_ns),
        event.action,
        event.id,
        attributes.join(", ")
    )
}

/// As docker's JSON has it.
fn value(event: &Event) -> Value {
    json!({
        "status": event.action,
        "id": event.id,
        "from": event.attributes.get("image"),
        "Type": "container",
        "Action": event.action,
        "Actor": {"ID": event.id, "Attributes": event.attributes},
        "scope": "local",
        "time": event.time_ns / (1000 * NS_PER_MS),
        "timeNano": event.time_ns,
    })
}

enum Filter {
    Event(String),
    Container(String),
    Image(String),
    Label(String, Option<String>),
    Type(String),
}

impl Filter {
    fn parse(text: &str) -> Result<Filter> {
        let wrong = || Fault {
            code: 2,
            message: printable(&format!(
                "--filter {text}: write event=, container=, image=, label= or type= and what it is to be"
            )),
        };
        let (key, value) = text.split_once('=').ok_or_else(wrong)?;
        let own = || value.to_string();
        Ok(match key {
            "event" => Filter::Event(own()),
            "container" => Filter::Container(own()),
            "image" => Filter::Image(own()),
            "type" => Filter::Type(own()),
            "label" => match value.split_once('=') {
                Some((key, value)) => Filter::Label(key.into(), Some(value.into())),
                None => Filter::Label(own(), None),
            },
            _ => return Err(wrong()),
        })
    }

    fn kind(&self) -> u8 {
        match self {
            Filter::Event(_) => 0,
            Filter::Container(_) => 1,
            Filter::Image(_) => 2,
            Filter::Label(..) => 3,
            Filter::Type(_) => 4,
        }
    }

    fn fits(&self, event: &Event) -> bool {
        let is = |key: &str, wanted: &str| event.attributes.get(key).is_some_and(|v| v == wanted);
        match self {
            // `health_status` stands for all of its kind.
            Filter::Event(action) => {
                event.action == *action || event.action.split(':').next() == Some(action.as_str())
            }
            Filter::Container(text) => {
                is("name", text) || !text.is_empty() && event.id.starts_with(text.as_str())
            }
            Filter::Image(image) => is("image", image),
            Filter::Label(key, None) => event.attributes.contains_key(key),
            Filter::Label(key, Some(value)) => is(key, value),
            Filter::Type(kind) => kind == "container",
        }
    }
}

/// As with docker: of filters of one kind one is enough, except labels, and each kind must fit.
fn fits(filters: &[Filter], event: &Event) -> bool {
    filters.iter().all(|filter| {
        let of_kind = || filters.iter().filter(|other| other.kind() == filter.kind());
        match filter {
            Filter::Label(..) => filter.fits(event),
            _ => of_kind().any(|other| other.fits(event)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_of_one_kind_are_alternatives_and_kinds_are_not() {
        let attributes = [("name", "web"), ("image", "redis"), ("tier", "front")];
        let event = Event {
            time_ns: 951_827_696_789_000_001,
            action: "health_status: healthy".into(),
            id: "0123456789ab".into(),
            attributes: attributes.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        };
        let fit = |words: &[&str]| {
            let filters: Vec<Filter> = words.iter().map(|w| Filter::parse(w).unwrap()).collect();
            fits(&filters, &event)
        };
        assert!(fit(&[]) && fit(&["event=die", "event=health_status"]) && fit(&["container=0123"]));
        assert!(fit(&["label=tier", "label=tier=front", "image=redis", "type=container"]));
        assert!(
            !fit(&["event=die"]) && !fit(&["label=tier=back"]) && !fit(&["container=web", "image=nginx"])
        );
        assert!(!fit(&["container="]) && Filter::parse("colour=red").is_err());
        assert_eq!(
            line(&event),
            "2000-02-29T12:34:56.789000001Z container health_status: healthy 0123456789ab (image=redis, name=web, tier=front)"
        );
    }
}
