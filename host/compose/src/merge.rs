// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files on top of each other, as the Compose specification merges them ("Merge and override"): mappings are joined, lists go
//! on, single values are replaced. A command is one value; variables, ports and mounts are told apart by what they are about.
//! The tags `!override` and `!reset` replace and remove.

use crate::{
    Line, Mistake, Result,
    fields::Field,
    service,
    yaml::{self, Entry, Node, Onto, Value},
};
use std::collections::{HashMap, HashSet};

/// Puts a tree on top of one that was read before.
///
/// # Errors
/// Both say something of a different kind in one place, or become too large together.
pub fn put(base: &mut Node, over: Node) -> Result<()> {
    let line = over.line;
    join(base, over, &mut Vec::new())?;
    if base.size() > yaml::MAX_NODES {
        return Err(Mistake::new(
            line,
            format!("the files have more than {} values together", yaml::MAX_NODES),
        ));
    }
    Ok(())
}

/// What a service says on top of the one that it extends.
pub(crate) fn put_service(base: &mut Node, over: Node, name: &str) -> Result<()> {
    join(base, over, &mut vec!["services".into(), name.into()])
}

/// Takes out what a tag removes, when all files are read.
pub fn settle(node: &mut Node) {
    match &mut node.value {
        Value::Scalar { .. } => {}
        Value::List(items) => {
            items.retain(|item| item.onto != Onto::Removes);
            items.iter_mut().for_each(settle);
        }
        Value::Map(entries) => {
            entries.retain(|entry| entry.value.onto != Onto::Removes);
            entries.iter_mut().for_each(|entry| settle(&mut entry.value));
        }
    }
}

/// How two values of one place become one.
enum Rule {
    /// As their kind has it.
    Usual,
    /// The later one.
    Last,
    /// A list, even of single values.
    List,
    /// `NAME=value` lines or a mapping, by name.
    Pairs,
    /// A list of names, or a mapping of names to more about them.
    Names,
    /// A list; one item for each of what this says it is about.
    Unique(fn(&Field) -> Option<String>),
}

fn rule(path: &[String]) -> Rule {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match path[..] {
        ["services", _, "command" | "entrypoint"] | ["services", _, "healthcheck", "test"] => Rule::Last,
        ["services", _, "ulimits", _] => Rule::Last,
        ["services", _, "dns" | "env_file" | "tmpfs"] => Rule::List,
        ["services", _, "environment" | "labels" | "annotations"]
        | ["services", _, "deploy", "labels"]
        | ["networks" | "volumes", _, "labels"] => Rule::Pairs,
        ["services", _, "depends_on" | "networks"] => Rule::Names,
        ["services", _, "ports"] => Rule::Unique(|f| service::port(f).ok()),
        ["services", _, "volumes"] => Rule::Unique(mounted),
        ["services", _, "secrets" | "configs"] => Rule::Unique(used),
        _ => Rule::Usual,
    }
}

/// The path in the machine of a mount.
fn mounted(field: &Field) -> Option<String> {
    if field.is_map() {
        return field.get("target")?.text().ok();
    }
    let text = field.text().ok()?;
    let mut parts = text.split(':');
    let first = parts.next()?;
    Some(parts.next().unwrap_or(first).into())
}

/// What a secret or config is called in the machine.
fn used(field: &Field) -> Option<String> {
    if !field.is_map() {
        return field.text().ok();
    }
    field.get("target").or_else(|| field.get("source"))?.text().ok()
}

fn join(base: &mut Node, over: Node, path: &mut Vec<String>) -> Result<()> {
    if over.is_null() && over.onto == Onto::Joins {
        return Ok(());
    }
    let rule = rule(path);
    if over.onto != Onto::Joins || base.onto == Onto::Removes || base.is_null() || matches!(rule, Rule::Last)
    {
        *base = over;
        return Ok(());
    }
    let over = match rule {
        Rule::List => {
            listed(base);
            let mut over = over;
            listed(&mut over);
            over
        }
        Rule::Pairs => {
            let mut over = over;
            by_name(base, Some('='))?;
            by_name(&mut over, Some('='))?;
            over
        }
        Rule::Names if base.is_map() != over.is_map() => {
            let mut over = over;
            by_name(base, None)?;
            by_name(&mut over, None)?;
            over
        }
        _ => over,
    };
    let Node { line, value, .. } = over;
    match (&mut base.value, value) {
        (Value::Map(own), Value::Map(more)) => {
            let mut known: HashMap<String, usize> =
                own.iter().enumerate().map(|(n, entry)| (entry.key.clone(), n)).collect();
            for entry in more {
                if let Some(at) = known.get(&entry.key) {
                    path.push(entry.key);
                    join(&mut own[*at].value, entry.value, path)?;
                    path.pop();
                    continue;
                }
                if own.len() >= yaml::MAX_KEYS {
                    return Err(Mistake::new(
                        entry.line,
                        format!("one mapping has more than {} keys", yaml::MAX_KEYS),
                    ));
                }
                known.insert(entry.key.clone(), own.len());
                own.push(entry);
            }
        }
        (Value::List(own), Value::List(more)) => match rule {
            Rule::Unique(about) => unique(own, more, path, about),
            _ => append(own, more),
        },
        (Value::Scalar { .. }, value @ Value::Scalar { .. }) => *base = Node::new(line, value),
        // One value is a list of one where a list may be.
        (Value::List(own), value @ Value::Scalar { .. }) => append(own, vec![Node::new(line, value)]),
        (Value::Scalar { .. }, Value::List(more)) => {
            listed(base);
            if let Value::List(own) = &mut base.value {
                append(own, more);
            }
        }
        (_, value) => {
            let what = if matches!(value, Value::Map(_)) { "a mapping" } else { "no mapping" };
            return Err(Mistake::new(
                line,
                format!(
                    "{}: here it is {what}, and in a file before otherwise; write both alike",
                    path.join(".")
                ),
            ));
        }
    }
    Ok(())
}

/// A single value as a list of one.
fn listed(node: &mut Node) {
    if matches!(node.value, Value::Scalar { .. }) {
        let item = node.clone();
        *node = Node { value: Value::List(vec![item]), ..node.clone() };
    }
}

/// A list of words as a mapping. `separator`: what is between a name and its value.
fn by_name(node: &mut Node, separator: Option<char>) -> Result<()> {
    listed(node);
    let Value::List(items) = &node.value else { return Ok(()) };
    let mut at: HashMap<String, usize> = HashMap::new();
    let mut entries: Vec<Entry> = Vec::new();
    for item in items {
        let Value::Scalar { text, .. } = &item.value else {
            return Err(Mistake::new(item.line, "it is one value, not a list or a mapping"));
        };
        let (key, value) = match separator.and_then(|separator| text.split_once(separator)) {
            Some((key, value)) => (key, scalar(item.line, value, false)),
            None => (text.as_str(), scalar(item.line, "", true)),
        };
        let entry = Entry { key: key.into(), line: item.line, value: Node { onto: item.onto, ..value } };
        match at.get(key) {
            Some(n) => entries[*n] = entry,
            None => {
                if entries.len() >= yaml::MAX_KEYS {
                    return Err(Mistake::new(
                        item.line,
                        format!("a list has more than {} names", yaml::MAX_KEYS),
                    ));
                }
                at.insert(key.into(), entries.len());
                entries.push(entry);
            }
        }
    }
    node.value = Value::Map(entries);
    Ok(())
}

fn scalar(line: Line, text: &str, plain: bool) -> Node {
    Node::new(line, Value::Scalar { text: text.into(), plain })
}

/// Adds the items that are not there already.
fn append(own: &mut Vec<Node>, more: Vec<Node>) {
    let word = |node: &Node| match &node.value {
        Value::Scalar { text, .. } => Some(text.clone()),
        _ => None,
    };
    let mut known: HashSet<String> = own.iter().filter_map(word).collect();
    own.extend(more.into_iter().filter(|node| word(node).is_none_or(|text| known.insert(text))));
}

/// Adds items; one that is about the same thing as an earlier one takes its place.
fn unique(own: &mut Vec<Node>, more: Vec<Node>, path: &[String], about: fn(&Field) -> Option<String>) {
    let path = path.join(".");
    let id = |node: &Node| about(&Field::new(path.clone(), node));
    let mut known: HashMap<String, usize> =
        own.iter().enumerate().filter_map(|(n, node)| Some((id(node)?, n))).collect();
    for node in more {
        match id(&node).map(|id| (known.get(&id).copied(), id)) {
            Some((Some(at), _)) => own[at] = node,
            Some((None, id)) => {
                known.insert(id, own.len());
                own.push(node);
            }
            // What is wrong with it is said when it is read.
            None => own.push(node),
        }
    }
}
