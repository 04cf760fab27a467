// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The templates of `--format`, as docker's users write them: `{{.State.Status}}`, `{{json .Ports}}`, `table {{.ID}}\t{{.Names}}`,
//! `{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}`. It is the part of Go's text/template that reads values.

use crate::fault::{Fault, Result};
use serde_json::Value;

/// Blocks within blocks, and parentheses within parentheses.
const MAX_DEPTH: usize = 16;
const FUNCTIONS: [(&str, Function); 9] = [
    ("json", Function::Json),
    ("index", Function::Index),
    ("len", Function::Len),
    ("join", Function::Join),
    ("lower", Function::Lower),
    ("upper", Function::Upper),
    ("println", Function::Println),
    ("eq", Function::Eq),
    ("not", Function::Not),
];

#[derive(Clone, Debug, PartialEq)]
enum Part {
    Text(String),
    Show(Expr),
    /// The names for key and value, what is gone through, what is shown for each, and for none.
    Range(Option<String>, Option<String>, Expr, Vec<Part>, Vec<Part>),
    If(Expr, Vec<Part>, Vec<Part>),
}

/// What a field's names begin at, and the names between the points.
#[derive(Clone, Debug, PartialEq)]
struct Expr {
    base: Base,
    names: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
enum Base {
    Dot,
    Root,
    Variable(String),
    Literal(Value),
    Call(Function, Vec<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Json,
    Index,
    Len,
    Join,
    Lower,
    Upper,
    Println,
    Eq,
    Not,
}

/// What ends a list of parts.
#[derive(PartialEq)]
enum Close {
    Text,
    End,
    Else,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Open,
    Shut,
    Pipe,
    Comma,
    Assign,
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
            let dot = Expr { base: Base::Dot, names: Vec::new() };
            let whole = Expr { base: Base::Call(Function::Json, vec![dot]), names: Vec::new() };
            return Ok(Template { parts: vec![Part::Show(whole)], table: false });
        }
        let (table, text) = text.strip_prefix("table ").map_or((false, text), |t| (true, t));
        let unescaped = text.replace("\\t", "\t").replace("\\n", "\n");
        let mut reader = Reader { text, rest: &unescaped };
        match reader.parts(0)? {
            (parts, Close::Text) => Ok(Template { parts, table }),
            _ => Err(wrong(text, "`{{end}}` or `{{else}}` without `{{range}}` or `{{if}}` before it")),
        }
    }

    /// The text for a value.
    ///
    /// # Errors
    /// A field that the value does not have; the message names those it has.
    pub fn fill(&self, value: &Value) -> Result<String> {
        let mut out = String::new();
        Scope { root: value, dot: value.clone(), variables: Vec::new() }.show(&self.parts, &mut out)?;
        Ok(out)
    }

    /// The header of a table: the fields' last names.
    pub fn header(&self) -> String {
        fn name(expr: &Expr) -> String {
            match (&expr.base, expr.names.last()) {
                (_, Some(name)) => name.to_uppercase(),
                (Base::Call(_, arguments), None) => arguments.first().map(name).unwrap_or_default(),
                _ => String::new(),
            }
        }
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Show(expr) => name(expr),
            Part::Range(..) | Part::If(..) => String::new(),
        };
        self.parts.iter().map(part).collect()
    }
}

struct Reader<'a> {
    /// The whole, for messages.
    text: &'a str,
    rest: &'a str,
}

impl Reader<'_> {
    fn parts(&mut self, depth: usize) -> Result<(Vec<Part>, Close)> {
        if depth > MAX_DEPTH {
            return Err(wrong(self.text, "too many blocks within each other"));
        }
        let mut parts = Vec::new();
        loop {
            let Some(at) = self.rest.find("{{") else {
                parts.push(Part::Text(std::mem::take(&mut self.rest).to_string()));
                return Ok((parts, Close::Text));
            };
            let end = self.rest[at..].find("}}").map(|n| at + n);
            let Some(end) = end else { return Err(wrong(self.text, "`{{` without `}}`")) };
            let (mut before, mut action) = (&self.rest[..at], &self.rest[at + 2..end]);
            self.rest = &self.rest[end + 2..];
            // `{{- ` and ` -}}` take the white space beside them away.
            if let Some(inner) = action.strip_prefix('-').filter(|a| a.starts_with(char::is_whitespace)) {
                (before, action) = (before.trim_end(), inner);
            }
            if let Some(inner) = action.strip_suffix('-').filter(|a| a.ends_with(char::is_whitespace)) {
                self.rest = self.rest.trim_start();
                action = inner;
            }
            parts.push(Part::Text(before.to_string()));
            let tokens = self.tokens(action)?;
            let word = match tokens.first() {
                Some(Token::Word(word)) => word.as_str(),
                _ => "",
            };
            match (word, &tokens[..]) {
                ("end", [_]) => return Ok((parts, Close::End)),
                ("else", [_]) => return Ok((parts, Close::Else)),
                ("range", [_, rest @ ..]) => {
                    let (key, value, rest) = names(rest);
                    let over = self.pipeline(rest)?;
                    let (each, none) = self.block(depth)?;
                    parts.push(Part::Range(key, value, over, each, none));
                }
                ("if", [_, rest @ ..]) => {
                    let condition = self.pipeline(rest)?;
                    let (then, otherwise) = self.block(depth)?;
                    parts.push(Part::If(condition, then, otherwise));
                }
                _ => parts.push(Part::Show(self.pipeline(&tokens)?)),
            }
        }
    }

    /// What is between `{{range}}` or `{{if}}` and `{{end}}`, without and behind `{{else}}`.
    fn block(&mut self, depth: usize) -> Result<(Vec<Part>, Vec<Part>)> {
        let (parts, close) = self.parts(depth + 1)?;
        match close {
            Close::End => Ok((parts, Vec::new())),
            Close::Else => match self.parts(depth + 1)? {
                (other, Close::End) => Ok((parts, other)),
                _ => Err(wrong(self.text, "`{{else}}` without `{{end}}`")),
            },
            Close::Text => Err(wrong(self.text, "`{{range}}` or `{{if}}` without `{{end}}`")),
        }
    }

    fn tokens(&self, action: &str) -> Result<Vec<Token>> {
        let mut tokens = Vec::new();
        let mut rest = action.trim_start();
        while let Some(c) = rest.chars().next() {
            let single = match c {
                '(' => Some(Token::Open),
                ')' => Some(Token::Shut),
                '|' => Some(Token::Pipe),
                ',' => Some(Token::Comma),
                _ => None,
            };
            if let Some(token) = single {
                tokens.push(token);
                rest = &rest[1..];
            } else if let Some(behind) = rest.strip_prefix(":=") {
                tokens.push(Token::Assign);
                rest = behind;
            } else if c == '"' || c == '`' {
                let inner = &rest[1..];
                let Some(end) = inner.find(c) else { return Err(wrong(self.text, "a quote is not closed")) };
                tokens.push(Token::Text(inner[..end].to_string()));
                rest = &inner[end + 1..];
            } else {
                let ends = |c: char| c.is_whitespace() || "()|,\"`".contains(c);
                let end = rest.find(ends).unwrap_or(rest.len());
                tokens.push(Token::Word(rest[..end].to_string()));
                rest = &rest[end..];
            }
            // Names behind a parenthesis belong to it: `(index .A 0).B`.
            if !(c == ')' && rest.starts_with('.')) {
                rest = rest.trim_start();
            } else if let Some(Token::Shut) = tokens.last() {
                let end = rest.find(|c: char| c.is_whitespace() || "()|,".contains(c)).unwrap_or(rest.len());
                tokens.push(Token::Word(format!(")({}", &rest[..end])));
                rest = rest[end..].trim_start();
            }
        }
        Ok(tokens)
    }

    /// Commands with `|` between them: each is the last argument of the next.
    fn pipeline(&self, tokens: &[Token]) -> Result<Expr> {
        let mut result: Option<Expr> = None;
        for command in tokens.split(|token| *token == Token::Pipe) {
            let mut at = 0;
            let mut words = Vec::new();
            while at < command.len() {
                words.push(self.operand(command, &mut at, 0)?);
            }
            result = Some(self.call(words, result)?);
        }
        result.ok_or_else(|| wrong(self.text, WRITE))
    }

    /// A function with its arguments, or a value alone.
    fn call(&self, words: Vec<Operand>, last: Option<Expr>) -> Result<Expr> {
        let mut words = words.into_iter();
        let value = |operand| match operand {
            Operand::Value(expr) => Ok(expr),
            Operand::Function(_) => Err(wrong(self.text, WRITE)),
        };
        match words.next() {
            Some(Operand::Function(function)) => {
                let arguments = words.map(value).chain(last.map(Ok)).collect::<Result<Vec<_>>>()?;
                let (least, most) = match function {
                    Function::Index => (1, MAX_DEPTH),
                    Function::Join | Function::Eq => (2, 2),
                    Function::Println => (0, MAX_DEPTH),
                    _ => (1, 1),
                };
                if arguments.len() < least || arguments.len() > most {
                    return Err(wrong(self.text, "a function has too few or too many values"));
                }
                Ok(Expr { base: Base::Call(function, arguments), names: Vec::new() })
            }
            Some(Operand::Value(expr)) if words.next().is_none() && last.is_none() => Ok(expr),
            _ => Err(wrong(self.text, WRITE)),
        }
    }

    fn operand(&self, tokens: &[Token], at: &mut usize, depth: usize) -> Result<Operand> {
        let token = tokens.get(*at);
        *at += 1;
        let plain = |base, names: &str| Ok(Operand::Value(Expr { base, names: fields(names) }));
        match token {
            Some(Token::Text(text)) => plain(Base::Literal(Value::String(text.clone())), ""),
            Some(Token::Open) if depth < MAX_DEPTH => {
                let mut words = Vec::new();
                while tokens.get(*at).is_some_and(|token| *token != Token::Shut) {
                    words.push(self.operand(tokens, at, depth + 1)?);
                }
                if tokens.get(*at).is_none() {
                    return Err(wrong(self.text, "`(` without `)`"));
                }
                *at += 1;
                let mut inner = self.call(words, None)?;
                if let Some(Token::Word(word)) = tokens.get(*at)
                    && let Some(names) = word.strip_prefix(")(")
                {
                    *at += 1;
                    inner.names.extend(fields(names));
                }
                Ok(Operand::Value(inner))
            }
            Some(Token::Word(word)) => {
                if word.starts_with('.') {
                    return plain(Base::Dot, word);
                }
                if let Some(variable) = word.strip_prefix('$') {
                    let (name, names) = variable.split_once('.').unwrap_or((variable, ""));
                    let base = if name.is_empty() { Base::Root } else { Base::Variable(name.to_string()) };
                    return plain(base, names);
                }
                if let Some((_, function)) = FUNCTIONS.iter().find(|(name, _)| name == word) {
                    return Ok(Operand::Function(*function));
                }
                match serde_json::from_str::<Value>(word) {
                    Ok(value @ (Value::Number(_) | Value::Bool(_))) => plain(Base::Literal(value), ""),
                    _ if tokens.len() == 1 => {
                        Err(wrong(self.text, &format!("a field begins with a point: {{{{.{word}}}}}")))
                    }
                    _ => {
                        let known: Vec<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
                        let known = known.join(", ");
                        Err(wrong(self.text, &format!("there is no `{word}`; there are range, if, {known}")))
                    }
                }
            }
            _ => Err(wrong(self.text, WRITE)),
        }
    }
}

enum Operand {
    Value(Expr),
    Function(Function),
}

/// `$VALUE :=` or `$KEY, $VALUE :=` before what is gone through.
fn names(tokens: &[Token]) -> (Option<String>, Option<String>, &[Token]) {
    let name = |word: &str| word.strip_prefix('$').map(String::from);
    match tokens {
        [Token::Word(value), Token::Assign, rest @ ..] => (None, name(value), rest),
        [Token::Word(key), Token::Comma, Token::Word(value), Token::Assign, rest @ ..] => {
            (name(key), name(value), rest)
        }
        rest => (None, None, rest),
    }
}

struct Scope<'a> {
    root: &'a Value,
    dot: Value,
    variables: Vec<(String, Value)>,
}

impl Scope<'_> {
    fn show(&mut self, parts: &[Part], out: &mut String) -> Result<()> {
        for part in parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Show(expr) => match self.value(expr)? {
                    Value::String(text) => out.push_str(&text),
                    other => out.push_str(&other.to_string()),
                },
                Part::If(condition, then, otherwise) => {
                    let branch = if is_true(&self.value(condition)?) { then } else { otherwise };
                    self.show(branch, out)?;
                }
                Part::Range(key, value, over, each, none) => {
                    let items: Vec<(Value, Value)> = match self.value(over)? {
                        Value::Array(list) => (0..).map(|n: usize| Value::from(n)).zip(list).collect(),
                        Value::Object(map) => map.into_iter().map(|(k, v)| (Value::String(k), v)).collect(),
                        Value::Null => Vec::new(),
                        _ => return Err(fault("range goes through lists and maps")),
                    };
                    if items.is_empty() {
                        self.show(none, out)?;
                    }
                    let (outer, known) = (self.dot.clone(), self.variables.len());
                    for (at, item) in items {
                        self.variables.extend(key.clone().map(|name| (name, at)));
                        self.variables.extend(value.clone().map(|name| (name, item.clone())));
                        self.dot = item;
                        self.show(each, out)?;
                        self.variables.truncate(known);
                    }
                    self.dot = outer;
                }
            }
        }
        Ok(())
    }

    fn value(&self, expr: &Expr) -> Result<Value> {
        let called;
        let base = match &expr.base {
            Base::Dot => &self.dot,
            Base::Root => self.root,
            Base::Literal(value) => value,
            Base::Variable(name) => match self.variables.iter().rev().find(|(known, _)| known == name) {
                Some((_, value)) => value,
                None => return Err(fault(&format!("there is no ${name} here"))),
            },
            Base::Call(function, arguments) => {
                let arguments = arguments.iter().map(|a| self.value(a)).collect::<Result<Vec<_>>>()?;
                called = call(*function, &arguments)?;
                &called
            }
        };
        expr.names.iter().try_fold(base, |at, name| step(at, name)).cloned()
    }
}

fn call(function: Function, arguments: &[Value]) -> Result<Value> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let first = arguments.first().unwrap_or(&Value::Null);
    Ok(match function {
        Function::Json => Value::String(first.to_string()),
        Function::Index => {
            let keys = arguments.iter().skip(1).map(text);
            keys.clone().try_fold(first, |at, key| step(at, &key))?.clone()
        }
        Function::Len => Value::from(match first {
            Value::Array(list) => list.len(),
            Value::Object(map) => map.len(),
            Value::String(text) => text.len(),
            _ => return Err(fault("len is of lists, maps and texts")),
        }),
        Function::Join => match first {
            Value::Array(list) => {
                Value::String(list.iter().map(text).collect::<Vec<_>>().join(&text(&arguments[1])))
            }
            _ => return Err(fault("join is of lists")),
        },
        Function::Lower => Value::String(text(first).to_lowercase()),
        Function::Upper => Value::String(text(first).to_uppercase()),
        Function::Println => Value::String(arguments.iter().map(text).collect::<Vec<_>>().join(" ") + "\n"),
        Function::Eq => Value::Bool(arguments.iter().all(|a| a == first)),
        Function::Not => Value::Bool(!is_true(first)),
    })
}

/// As Go has it: nothing, no, zero and what is empty are not.
fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is) => *is,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

/// The names between the points.
fn fields(text: &str) -> Vec<String> {
    text.split('.').filter(|name| !name.is_empty()).map(String::from).collect()
}

/// Names are compared without case and underscores: docker's `.ExitCode` is our `exit_code`.
fn plain(name: &str) -> String {
    name.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect()
}

fn step<'a>(at: &'a Value, name: &str) -> Result<&'a Value> {
    let found = match at {
        Value::Object(map) => {
            let wanted = plain(name);
            map.get(name).or_else(|| map.iter().find(|(key, _)| plain(key) == wanted).map(|(_, v)| v))
        }
        Value::Array(list) => name.parse::<usize>().ok().and_then(|n| list.get(n)),
        _ => None,
    };
    found.ok_or_else(|| {
        let has = match at {
            Value::Object(map) => map.keys().cloned().collect::<Vec<_>>().join(", "),
            Value::Array(list) => format!("{} of a list, from 0", list.len()),
            _ => "no fields".into(),
        };
        fault(&format!("there is no field `{}`; there are {has}", name.to_lowercase()))
    })
}

const WRITE: &str = "write a field, {{.Name}}, {{json .Name}}, or {{range .Names}}{{.}}{{end}}";

fn fault(why: &str) -> Fault {
    Fault { code: 2, message: format!("--format: {why}") }
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
    fn lists_and_maps_are_gone_through_as_gos_templates_do() {
        let value = json!({
            "name": "web", "id": 7, "none": [], "up": true,
            "ports": {"80/tcp": [{"HostPort": "8080"}], "81/tcp": [{"HostPort": "8081"}]},
            "networks": {"a": {"IPAddress": "10.0.0.1"}, "b": {"IPAddress": "10.0.0.2"}},
        });
        for (text, shown) in [
            ("{{range .Networks}}{{.IPAddress}} {{end}}", "10.0.0.1 10.0.0.2 "),
            ("{{(index (index .Ports \"80/tcp\") 0).HostPort}}", "8080"),
            (
                "{{range $p, $conf := .Ports}}{{$p}} -> {{(index $conf 0).HostPort}};{{end}}",
                "80/tcp -> 8080;81/tcp -> 8081;",
            ),
            ("{{range $n := .Networks}}{{$n.IPAddress}}{{$.Name}}{{end}}", "10.0.0.1web10.0.0.2web"),
            ("{{range .None}}x{{else}}nothing{{end}}", "nothing"),
            ("{{if .Up}}up{{else}}down{{end}} {{if not .Up}}down{{end}}", "up "),
            ("{{if eq .Id 7}}seven{{end}}", "seven"),
            ("{{.Networks | len}} {{.Name | upper | json}}", "2 \"WEB\""),
            ("a {{- .Name -}}  b", "awebb"),
        ] {
            let template = Template::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(template.fill(&value).unwrap_or_else(|e| panic!("{text}: {e}")), shown, "{text}");
        }
    }

    #[test]
    fn mistakes_say_what_there_is() {
        let error = Template::parse("{{.Nam}}").unwrap().fill(&json!({"name": 1})).unwrap_err();
        assert!(error.message.contains("there are name"), "{error}");
        let deep = format!("{{{{{}.a{}}}}}", "(".repeat(99), ")".repeat(99));
        let blocks = "{{if .a}}".repeat(99);
        for (text, says) in [
            ("{{.a", "without"),
            ("{{range .a}}", "without"),
            ("{{end}}", "without"),
            ("{{template \"a\"}}", "there is no `template`"),
            ("{{a}}", "point"),
            ("{{}}", "write a field"),
            ("{{.a .b}}", "write a field"),
            ("{{index}}", "too few"),
            ("{{(.a}}", "without"),
            ("{{\"a}}", "quote"),
            (deep.as_str(), "write a field"),
            (blocks.as_str(), "too many"),
        ] {
            assert!(Template::parse(text).unwrap_err().message.contains(says), "{text}");
        }
        for (text, says) in
            [("{{$x}}", "$x"), ("{{range .name}}{{end}}", "lists"), ("{{index .list 4}}", "1 of a list")]
        {
            let error = Template::parse(text).unwrap().fill(&json!({"name": 1, "list": [1]})).unwrap_err();
            assert!(error.message.contains(says), "{text}: {error}");
        }
    }
}
