// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The templates of `--format`, as far as docker's users write them: `{{.Name}}`, `{{.State.Status}}`, `{{json .Ports}}`,
//! `table {{.ID}}\t{{.Names}}`.

use crate::fault::{Fault, Result};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    /// The names between the points, and whether JSON is wanted.
    Field(Vec<String>, bool),
}

/// A template that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    parts: Vec<Part>,
    /// Rows of a table with a header.
    pub table: bool,
}

impl Template {
    /// Reads a template. A word alone (`json`) stands for the whole as JSON.
    pub fn parse(text: &str) -> Result<Template> {
        if text == "json" {
            return Ok(Template { parts: vec![Part::Field(Vec::new(), true)], table: false });
        }
        let (table, text) = text.strip_prefix("table ").map_or((false, text), |t| (true, t));
        let unescaped = text.replace("\\t", "\t").replace("\\n", "\n");
        let mut rest = unescaped.as_str();
        let mut parts = Vec::new();
        while let Some(at) = rest.find("{{") {
            parts.push(Part::Text(rest[..at].to_string()));
            let end = rest[at..].find("}}").map(|n| at + n);
            let Some(end) = end else { return Err(wrong(text, "`{{` without `}}`")) };
            let words: Vec<&str> = rest[at + 2..end].split_whitespace().collect();
            let (json, field) = match words[..] {
                [field] => (false, field),
                ["json", field] => (true, field),
                _ => return Err(wrong(text, "write a field, {{.Name}}, or {{json .Name}}")),
            };
            let Some(names) = field.strip_prefix('.') else {
                return Err(wrong(text, &format!("a field begins with a point: {{{{.{field}}}}}")));
            };
            parts.push(Part::Field(names.split('.').filter(|n| !n.is_empty()).map(plain).collect(), json));
            rest = &rest[end + 2..];
        }
        parts.push(Part::Text(rest.to_string()));
        Ok(Template { parts, table })
    }

    /// The text for a value.
    ///
    /// # Errors
    /// A field that the value does not have; the message names those it has.
    pub fn fill(&self, value: &Value) -> Result<String> {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Field(names, json) => {
                    let found = names.iter().try_fold(value, |at, name| step(at, name))?;
                    match found {
                        Value::String(text) if !json => out.push_str(text),
                        other => out.push_str(&other.to_string()),
                    }
                }
            }
        }
        Ok(out)
    }

    /// The header of a table: the fields' last names.
    pub fn header(&self) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Field(names, _) => names.last().cloned().unwrap_or_default().to_uppercase(),
        };
        self.parts.iter().map(part).collect()
    }
}

/// Names are compared without case and underscores: docker's `.ExitCode` is our `exit_code`.
fn plain(name: &str) -> String {
    name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect()
}

fn step<'a>(at: &'a Value, name: &str) -> Result<&'a Value> {
    let found = match at {
        Value::Object(map) => map.iter().find(|(key, _)| plain(key) == name).map(|(_, v)| v),
        Value::Array(list) => name.parse::<usize>().ok().and_then(|n| list.get(n)),
        _ => None,
    };
    found.ok_or_else(|| {
        let has = match at {
            Value::Object(map) => map.keys().cloned().collect::<Vec<_>>().join(", "),
            _ => "no fields".into(),
        };
        Fault { code: 2, message: format!("--format: there is no field `{name}`; there are {has}") }
    })
}

fn wrong(text: &str, why: &str) -> Fault {
    Fault { code: 2, message: format!("--format {text}: {why}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_found_as_docker_names_them() {
        let value = json!({"name": "web", "state": {"exit_code": 3, "ports": ["80", "81"]}});
        let filled = |text: &str| Template::parse(text).unwrap().fill(&value).unwrap();
        assert_eq!(filled("{{.Name}}: {{ .State.ExitCode }}"), "web: 3");
        assert_eq!(filled("{{json .State.Ports}}\\t{{.State.Ports.1}}"), "[\"80\",\"81\"]\t81");
        assert_eq!(Template::parse("table {{.ID}}\\t{{.Names}}").unwrap().header(), "ID\tNAMES");
        assert_eq!(filled("json"), value.to_string());
    }

    #[test]
    fn mistakes_say_what_there_is() {
        let error = Template::parse("{{.Nam}}").unwrap().fill(&json!({"name": 1})).unwrap_err();
        assert!(error.message.contains("there are name"), "{error}");
        for (text, says) in
            [("{{.a", "without"), ("{{range .a}}{{end}}", "write a field"), ("{{a}}", "point")]
        {
            assert!(Template::parse(text).unwrap_err().message.contains(says), "{text}");
        }
    }
}
