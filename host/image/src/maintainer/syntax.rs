// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shell command language of maintainer scripts (POSIX.1-2017, XCU 2), as a syntax tree.
//!
//! Scripts are foreign data: nesting is limited, and what is not understood is an error with its line, never a panic.

/// Compound commands, substitutions and expansions inside one another; real scripts have fewer than ten.
const MAX_NESTING: usize = 48;
/// Bytes of a script; the longest of Debian 12 has 40 kB.
const MAX_SCRIPT: usize = 128 << 10;
/// Here-documents that one line announces.
const MAX_ANNOUNCED: usize = 8;

/// A script that cannot be read: the line and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub line: usize,
    pub what: &'static str,
}

type Parsed<T> = Result<T, Mistake>;

/// A part of a word.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    /// Text, and whether it is quoted: quoted text has no patterns.
    Text(String, bool),
    /// `$NAME`, `${NAME}` or `${NAME:-WORD}`.
    Parameter { name: String, operator: Option<(String, Word)>, quoted: bool },
    /// `$(…)` or backquotes.
    Command { list: List, quoted: bool },
    /// `$((…))`, unevaluated.
    Arithmetic,
}

pub(super) type Word = Vec<Part>;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Redirect {
    /// `> FILE`, or `>> FILE` when `append`; `descriptor` is 1 unless written.
    Output { descriptor: u32, target: Word, append: bool },
    /// `<< END`: the text is the command's input.
    Here(Word),
    /// `< FILE`.
    Input(Word),
    /// `2>&1` and others that change no file.
    Duplicate,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Command {
    Simple { assignments: Vec<(String, Word)>, words: Vec<Word>, redirects: Vec<Redirect> },
    If { arms: Vec<(List, List)>, otherwise: Option<List> },
    Case { subject: Word, arms: Vec<(Vec<Word>, List)> },
    For { name: String, words: Option<Vec<Word>>, body: List },
    While { condition: List, body: List, until: bool },
    Group(List, Vec<Redirect>),
    Subshell(List, Vec<Redirect>),
    Function(String, Box<Command>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pipeline {
    pub negated: bool,
    pub commands: Vec<Command>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Join {
    Always,
    And,
    Or,
}

/// Pipelines, each with how it depends on the one before it.
pub(super) type List = Vec<(Join, Pipeline)>;

/// Reads a whole script.
pub(super) fn parse(text: &str) -> Parsed<List> {
    if text.len() > MAX_SCRIPT {
        return Err(Mistake { line: 1, what: "it is longer than 128 KiB" });
    }
    let mut parser = Parser::new(text, 0);
    let list = parser.list(&[])?;
    parser.blank_lines()?;
    match parser.peek() {
        None => Ok(list),
        Some(_) => Err(parser.mistake("a word that begins no command")),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// Here-documents announced on this line, by their place in `documents`.
    announced: Vec<(String, bool, bool)>,
    /// The bodies read so far, in the order of their announcement.
    documents: Vec<Word>,
}

const RESERVED: [&str; 13] =
    ["if", "then", "elif", "else", "fi", "case", "esac", "for", "while", "until", "do", "done", "in"];

impl<'a> Parser<'a> {
    fn new(text: &'a str, depth: usize) -> Parser<'a> {
        Parser { text, at: 0, depth, announced: Vec::new(), documents: Vec::new() }
    }

    fn mistake(&self, what: &'static str) -> Mistake {
        let line = 1 + self.text[..self.at].bytes().filter(|b| *b == b'\n').count();
        Mistake { line, what }
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn starts(&self, what: &str) -> bool {
        self.text[self.at..].starts_with(what)
    }

    fn take(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn eat(&mut self, what: &str) -> bool {
        let there = self.starts(what);
        if there {
            self.at += what.len();
        }
        there
    }

    fn deeper<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_NESTING {
            return Err(self.mistake("commands are nested too deep"));
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Skips blanks, continued lines and a comment.
    fn blanks(&mut self) {
        loop {
            if self.eat("\\\n") {
                continue;
            }
            match self.peek() {
                Some(' ' | '\t' | '\r') => self.at += 1,
                Some('#') => {
                    let rest = &self.text[self.at..];
                    self.at += rest.find('\n').unwrap_or(rest.len());
                }
                _ => return,
            }
        }
    }

    /// Ends a line: the here-documents that it announced follow.
    fn new_line(&mut self) -> Parsed<bool> {
        self.blanks();
        if !self.eat("\n") {
            return Ok(false);
        }
        for (end, strip, literal) in std::mem::take(&mut self.announced) {
            let mut body = String::new();
            loop {
                let rest = &self.text[self.at..];
                if rest.is_empty() {
                    return Err(self.mistake("a here-document that does not end"));
                }
                let line = rest.split_inclusive('\n').next().unwrap_or(rest);
                self.at += line.len();
                let line = if strip { line.trim_start_matches('\t') } else { line };
                if line.trim_end_matches('\n') == end {
                    break;
                }
                body.push_str(line);
            }
            let word = if literal { vec![Part::Text(body, true)] } else { self.document(&body)? };
            self.documents.push(word);
        }
        Ok(true)
    }

    /// The expansions of a here-document's text.
    fn document(&mut self, body: &str) -> Parsed<Word> {
        let line = self.mistake("").line;
        let mut inner = Parser::new(body, self.depth);
        let mut word = Vec::new();
        inner.quoted(&mut word, None).map_err(|m| Mistake { line: line.max(m.line), ..m })?;
        Ok(word)
    }

    fn blank_lines(&mut self) -> Parsed<()> {
        loop {
            self.blanks();
            if !(self.new_line()? || (self.starts(";") && !self.starts(";;") && self.eat(";"))) {
                return Ok(());
            }
        }
    }

    /// The reserved word or plain word that comes next, if it is one without quotes and expansions.
    fn bare(&self) -> &'a str {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| c.is_whitespace() || ";&|<>()#'\"`$\\".contains(c));
        &rest[..end.unwrap_or(rest.len())]
    }

    fn keyword(&mut self, word: &str) -> bool {
        self.blanks();
        self.bare() == word && self.eat(word)
    }

    fn expect(&mut self, word: &str, what: &'static str) -> Parsed<()> {
        self.blank_lines()?;
        if self.keyword(word) { Ok(()) } else { Err(self.mistake(what)) }
    }

    /// Commands up to a word of `ends`, `)`, `;;` or the end of the text.
    fn list(&mut self, ends: &[&str]) -> Parsed<List> {
        self.deeper(|p| p.list_here(ends))
    }

    fn list_here(&mut self, ends: &[&str]) -> Parsed<List> {
        let mut out: List = Vec::new();
        let mut join = Join::Always;
        loop {
            self.blank_lines()?;
            let over = self.peek().is_none()
                || self.starts(")")
                || self.starts(";;")
                || self.starts("}")
                || ends.contains(&self.bare());
            if over {
                return if join == Join::Always {
                    Ok(out)
                } else {
                    Err(self.mistake("nothing behind && or ||"))
                };
            }
            let pipeline = self.pipeline()?;
            out.push((join, pipeline));
            self.blanks();
            join = if self.eat("&&") {
                Join::And
            } else if self.eat("||") {
                Join::Or
            } else {
                // `&` starts a command in the background; what it does is the same.
                if !self.starts(";;") && !self.eat(";") {
                    self.eat("&");
                }
                Join::Always
            };
            if join != Join::Always {
                self.blank_lines()?;
            }
        }
    }

    fn pipeline(&mut self) -> Parsed<Pipeline> {
        let mut negated = false;
        while self.keyword("!") {
            negated = !negated;
        }
        let mut commands = vec![self.command()?];
        loop {
            self.blanks();
            if self.starts("||") || !self.eat("|") {
                return Ok(Pipeline { negated, commands });
            }
            self.blank_lines()?;
            commands.push(self.command()?);
        }
    }

    fn command(&mut self) -> Parsed<Command> {
        self.deeper(Self::command_here)
    }

    fn command_here(&mut self) -> Parsed<Command> {
        self.blanks();
        let word = self.bare();
        let command = match word {
            "if" => {
                self.at += 2;
                let mut arms = Vec::new();
                loop {
                    let condition = self.list(&["then"])?;
                    self.expect("then", "`if` without `then`")?;
                    arms.push((condition, self.list(&["elif", "else", "fi"])?));
                    if !self.keyword("elif") {
                        break;
                    }
                }
                let otherwise = if self.keyword("else") { Some(self.list(&["fi"])?) } else { None };
                self.expect("fi", "`if` without `fi`")?;
                Command::If { arms, otherwise }
            }
            "case" => {
                self.at += 4;
                self.blanks();
                let subject = self.word()?.ok_or_else(|| self.mistake("`case` without a word"))?;
                self.expect("in", "`case` without `in`")?;
                let mut arms = Vec::new();
                loop {
                    self.blank_lines()?;
                    if self.keyword("esac") {
                        break;
                    }
                    self.eat("(");
                    let mut patterns = Vec::new();
                    loop {
                        self.blanks();
                        patterns.push(self.word()?.ok_or_else(|| self.mistake("a pattern is missing"))?);
                        self.blanks();
                        if !self.eat("|") {
                            break;
                        }
                    }
                    if !self.eat(")") {
                        return Err(self.mistake("a pattern without `)`"));
                    }
                    arms.push((patterns, self.list(&["esac"])?));
                    self.blank_lines()?;
                    self.eat(";;");
                }
                Command::Case { subject, arms }
            }
            "for" => {
                self.at += 3;
                self.blanks();
                let name = self.bare().to_string();
                self.at += name.len();
                self.blanks();
                let words = if self.keyword("in") {
                    let mut words = Vec::new();
                    loop {
                        self.blanks();
                        match self.word()? {
                            Some(word) => words.push(word),
                            None => break,
                        }
                    }
                    Some(words)
                } else {
                    None
                };
                self.expect("do", "`for` without `do`")?;
                let body = self.list(&["done"])?;
                self.expect("done", "`for` without `done`")?;
                Command::For { name, words, body }
            }
            "while" | "until" => {
                self.at += 5;
                let condition = self.list(&["do"])?;
                self.expect("do", "a loop without `do`")?;
                let body = self.list(&["done"])?;
                self.expect("done", "a loop without `done`")?;
                Command::While { condition, body, until: word == "until" }
            }
            "{" => {
                self.at += 1;
                let list = self.list(&["}"])?;
                self.expect("}", "`{` without `}`")?;
                Command::Group(list, Vec::new())
            }
            _ if self.eat("(") => {
                let list = self.list(&[])?;
                self.blank_lines()?;
                if !self.eat(")") {
                    return Err(self.mistake("`(` without `)`"));
                }
                Command::Subshell(list, Vec::new())
            }
            _ if RESERVED.contains(&word) && word != "in" => {
                return Err(self.mistake("a reserved word where a command begins"));
            }
            _ => return self.simple(),
        };
        let mut redirects = Vec::new();
        loop {
            self.blanks();
            if !self.redirect(&mut redirects)? {
                break;
            }
        }
        Ok(match command {
            Command::Group(list, _) => Command::Group(list, redirects),
            Command::Subshell(list, _) => Command::Subshell(list, redirects),
            other if redirects.is_empty() => other,
            other => {
                let pipeline = Pipeline { negated: false, commands: vec![other] };
                Command::Group(vec![(Join::Always, pipeline)], redirects)
            }
        })
    }

    fn simple(&mut self) -> Parsed<Command> {
        let start = self.at;
        let (mut assignments, mut words, mut redirects) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            self.blanks();
            if self.redirect(&mut redirects)? {
                continue;
            }
            let bare = self.bare();
            if words.is_empty() {
                if let Some((name, _)) = bare.split_once('=').filter(|(n, _)| is_name(n)) {
                    self.at += name.len() + 1;
                    assignments.push((name.to_string(), self.word()?.unwrap_or_default()));
                    continue;
                }
                let rest = self.text[self.at + bare.len()..].trim_start_matches([' ', '\t']);
                let behind = rest.strip_prefix('(').map(|r| r.trim_start_matches([' ', '\t']));
                if assignments.is_empty() && !bare.is_empty() && behind.is_some_and(|r| r.starts_with(')')) {
                    self.at = self.text.len() - behind.map_or(0, str::len) + 1;
                    self.blank_lines()?;
                    return Ok(Command::Function(bare.to_string(), Box::new(self.command()?)));
                }
            }
            match self.word()? {
                Some(word) => words.push(word),
                None => break,
            }
        }
        // bash's arrays are not POSIX's.
        if self.at == start || self.starts("(") {
            return Err(self.mistake("a sign that begins no command"));
        }
        Ok(Command::Simple { assignments, words, redirects })
    }

    /// A redirection, if one comes next.
    fn redirect(&mut self, out: &mut Vec<Redirect>) -> Parsed<bool> {
        let rest = &self.text[self.at..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if !rest[digits..].starts_with(['<', '>']) {
            return Ok(false);
        }
        let descriptor = rest[..digits].parse().ok();
        self.at += digits;
        if self.eat("<<") {
            let strip = self.eat("-");
            self.blanks();
            let rest = &self.text[self.at..];
            let end = rest.find([' ', '\t', '\n', ';', '&', '|', ')']).unwrap_or(rest.len());
            self.at += end;
            let literal = rest[..end].contains(['\'', '"', '\\']);
            let name = rest[..end].replace(['\'', '"', '\\'], "");
            if name.is_empty() {
                return Err(self.mistake("a here-document without a name"));
            }
            if self.announced.len() >= MAX_ANNOUNCED {
                return Err(self.mistake("too many here-documents in one line"));
            }
            // The text follows the line; it is read now, so that the command has it.
            let back = self.at;
            let line = self.text[self.at..].find('\n').map(|n| self.at + n);
            let Some(line) = line else { return Err(self.mistake("a here-document that does not end")) };
            let earlier = std::mem::take(&mut self.announced);
            let mut ahead = Parser::new(self.text, self.depth);
            ahead.at = line;
            ahead.announced = earlier.clone();
            ahead.announced.push((name.clone(), strip, literal));
            ahead.new_line()?;
            out.push(Redirect::Here(ahead.documents.pop().unwrap_or_default()));
            self.at = back;
            self.announced = earlier;
            self.announced.push((name, strip, literal));
            return Ok(true);
        }
        let duplicate = self.eat(">&") || self.eat("<&");
        let append = !duplicate && self.eat(">>");
        let output = duplicate || append || self.eat(">|") || self.eat(">");
        // A file opened for both is there to be read: nothing runs that would write to it.
        if !output && !self.eat("<>") {
            self.eat("<");
        }
        self.blanks();
        let target = self.word()?.ok_or_else(|| self.mistake("a redirection without a file"))?;
        out.push(if duplicate {
            Redirect::Duplicate
        } else if output {
            Redirect::Output { descriptor: descriptor.unwrap_or(1), target, append }
        } else {
            Redirect::Input(target)
        });
        Ok(true)
    }

    /// A word; `None` at a separator.
    fn word(&mut self) -> Parsed<Option<Word>> {
        let mut word = Vec::new();
        let mut any = false;
        while let Some(c) = self.peek() {
            match c {
                '\'' => {
                    self.at += 1;
                    let rest = &self.text[self.at..];
                    let end = rest.find('\'').ok_or_else(|| self.mistake("a quote that does not end"))?;
                    word.push(Part::Text(rest[..end].to_string(), true));
                    self.at += end + 1;
                }
                '"' => {
                    self.at += 1;
                    word.push(Part::Text(String::new(), true));
                    self.quoted(&mut word, Some('"'))?;
                }
                '\\' => {
                    self.at += 1;
                    match self.take() {
                        Some('\n') => {}
                        Some(c) => word.push(Part::Text(c.to_string(), true)),
                        None => return Err(self.mistake("a backslash at the end")),
                    }
                }
                '$' | '`' => self.expansion(&mut word, false)?,
                c if c.is_whitespace() || ";&|<>()".contains(c) => break,
                c => {
                    self.at += c.len_utf8();
                    match word.last_mut() {
                        Some(Part::Text(text, false)) => text.push(c),
                        _ => word.push(Part::Text(c.to_string(), false)),
                    }
                }
            }
            any = true;
        }
        Ok(any.then_some(word))
    }

    /// Text in double quotes or of a here-document, up to `end`.
    fn quoted(&mut self, word: &mut Word, end: Option<char>) -> Parsed<()> {
        let mut text = String::new();
        loop {
            match self.peek() {
                None if end.is_none() => break,
                None => return Err(self.mistake("a quote that does not end")),
                Some(c) if Some(c) == end => {
                    self.at += 1;
                    break;
                }
                Some('\\') => {
                    self.at += 1;
                    match self.take() {
                        Some('\n') => {}
                        Some(c) if "$`\"\\".contains(c) => text.push(c),
                        Some(c) => text.extend(['\\', c]),
                        None => text.push('\\'),
                    }
                }
                Some('$' | '`') => {
                    word.push(Part::Text(std::mem::take(&mut text), true));
                    self.expansion(word, true)?;
                }
                Some(c) => {
                    self.at += c.len_utf8();
                    text.push(c);
                }
            }
        }
        word.push(Part::Text(text, true));
        Ok(())
    }

    fn expansion(&mut self, word: &mut Word, quoted: bool) -> Parsed<()> {
        self.deeper(|p| p.expansion_here(word, quoted))
    }

    fn expansion_here(&mut self, word: &mut Word, quoted: bool) -> Parsed<()> {
        if self.eat("`") {
            let rest = &self.text[self.at..];
            let mut escaped = false;
            let end = rest.char_indices().find(|(_, c)| {
                let found = *c == '`' && !escaped;
                escaped = *c == '\\' && !escaped;
                found
            });
            let (end, _) = end.ok_or_else(|| self.mistake("a backquote that does not end"))?;
            let inner = rest[..end].replace("\\`", "`").replace("\\$", "$").replace("\\\\", "\\");
            let line = self.mistake("").line;
            let mut parser = Parser::new(&inner, self.depth);
            let list = parser.list(&[]).map_err(|m| Mistake { line: line + m.line - 1, ..m })?;
            self.at += end + 1;
            word.push(Part::Command { list, quoted });
            return Ok(());
        }
        if self.eat("$((") {
            self.skip_arithmetic()?;
            word.push(Part::Arithmetic);
            return Ok(());
        }
        if self.eat("$(") {
            let list = self.list(&[])?;
            self.blank_lines()?;
            if !self.eat(")") {
                return Err(self.mistake("`$(` without `)`"));
            }
            word.push(Part::Command { list, quoted });
            return Ok(());
        }
        if self.eat("${") {
            let length = self.starts("#") && !self.starts("#}") && self.eat("#");
            let name = self.parameter_name();
            let rest = &self.text[self.at..];
            let mut operators =
                [":-", ":=", ":+", ":?", "##", "%%", "-", "=", "+", "?", "#", "%"].into_iter();
            let operator = operators.find(|o| rest.starts_with(o));
            let operator = match operator {
                Some(operator) => {
                    self.at += operator.len();
                    let mut inner = Vec::new();
                    self.operand(&mut inner)?;
                    Some((operator.to_string(), inner))
                }
                None => length.then(|| ("length".to_string(), Vec::new())),
            };
            if name.is_empty() || !self.eat("}") {
                return Err(self.mistake("an expansion that is not POSIX's"));
            }
            word.push(Part::Parameter { name, operator, quoted });
            return Ok(());
        }
        self.at += 1;
        let name = self.parameter_name();
        word.push(match name.is_empty() {
            true => Part::Text("$".into(), quoted),
            false => Part::Parameter { name, operator: None, quoted },
        });
        Ok(())
    }

    /// Up to the two parentheses that end an arithmetic expansion; there may be others, and substitutions, in it.
    fn skip_arithmetic(&mut self) -> Parsed<()> {
        let mut open = 2;
        let mut quoted = false;
        while open > 0 {
            match self.take() {
                Some('\'') => quoted = !quoted,
                Some('(') if !quoted => open += 1,
                Some(')') if !quoted => open -= 1,
                Some(_) => {}
                None => return Err(self.mistake("`$((` without `))`")),
            }
        }
        Ok(())
    }

    /// The word of `${NAME:-WORD}`, up to its brace.
    fn operand(&mut self, word: &mut Word) -> Parsed<()> {
        loop {
            match self.peek() {
                None => return Err(self.mistake("`${` without `}`")),
                Some('}') => return Ok(()),
                Some('$' | '`') => self.expansion(word, false)?,
                Some('"') => {
                    self.at += 1;
                    self.quoted(word, Some('"'))?;
                }
                Some('\\') => {
                    self.at += 1;
                    let c = self.take();
                    word.push(Part::Text(c.into_iter().collect(), true));
                }
                Some(c) => {
                    self.at += c.len_utf8();
                    word.push(Part::Text(c.to_string(), false));
                }
            }
        }
    }

    fn parameter_name(&mut self) -> String {
        let rest = &self.text[self.at..];
        let first = rest.chars().next();
        let length = match first {
            Some(c) if c.is_ascii_digit() || "@*#?$!-".contains(c) => 1,
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                rest.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count()
            }
            _ => 0,
        };
        self.at += length;
        rest[..length].to_string()
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debians_shapes_of_scripts_are_read() {
        for script in [
            "#!/bin/sh\nset -e\n",
            "f () { echo x; }\nf; f2() {\n\ttrue\n}",
            "case \"$1\" in\n  configure|reconfigure) a ;;\n (x) ;;\n *) b\nesac",
            "if [ -z \"$2\" ] && ! a; then b; elif c; then d; else e; fi",
            "for i in a b $c; do echo $i; done; for x do :; done",
            "a=`stat -c \"%U\" $b` || true\nx=\"$(a $(b \"c\"))\"",
            "cat > /etc/x <<EOF\nhello $x\nEOF\ncat <<'E' | b\n$literal\nE\n",
            "test -e x || { mkdir y; }\n( cd /x && y ) > /dev/null 2>&1",
            "while read a b; do :; done < /etc/x",
            "a=$(($(echo \"$1\" | sed 's/\\(x\\)/y)/') + 1)); b=$((1))",
            "x=${1:-\"a b\"}; y=${x%%/*}; z=${#x}; [ $# -gt 1 ]",
        ] {
            assert!(parse(script).is_ok(), "{script}: {:?}", parse(script));
        }
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        for (script, line) in [
            ("a\nif b; then", 2),
            ("x\n\n'", 3),
            ("fi", 1),
            ("a=(1 2)", 1),
            ("${x//a/b}", 1),
            ("cat <<E\n", 2),
        ] {
            assert_eq!(parse(script).unwrap_err().line, line, "{script}");
        }
        let deep = "$(".repeat(5000);
        assert_eq!(parse(&deep).unwrap_err().what, "commands are nested too deep");
    }
}
