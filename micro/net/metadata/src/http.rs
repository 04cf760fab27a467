// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Questions and answers of HTTP (RFC 9112). Questions are of version 1.0, so that no answer comes in chunks.

use crate::MAX_BODY;
use core::fmt;

/// Most bytes of an answer's head.
pub const MAX_HEAD: usize = 4 << 10;
/// Most bytes of a question.
pub const MAX_QUESTION: usize = 1 << 10;

/// A question, as it is sent.
pub struct Question<'q> {
    pub method: &'q str,
    pub path: &'q str,
    /// Whole lines.
    pub header: &'q str,
    /// One more header: its name and its value.
    pub more: Option<(&'q str, &'q str)>,
}

impl fmt::Display for Question<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Content-Length is for PUT; the host is the address that all of them have.
        write!(
            f,
            "{} {} HTTP/1.0\r\nHost: 169.254.169.254\r\nUser-Agent: unilith\r\n",
            self.method, self.path
        )?;
        if self.method != "GET" {
            f.write_str("Content-Length: 0\r\n")?;
        }
        f.write_str(self.header)?;
        if let Some((name, value)) = self.more {
            write!(f, "{name}: {value}\r\n")?;
        }
        f.write_str("Connection: close\r\n\r\n")
    }
}

/// What came so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// It goes on.
    Part,
    /// All of it, of status 200.
    Body(&'a [u8]),
    /// All that is needed of it, of another status.
    Status(u16),
}

/// Reads an answer. `has_ended`: no more will come. The error is a sentence's end.
pub fn read(bytes: &[u8], has_ended: bool) -> Result<Answer<'_>, &'static str> {
    const SHORT: &str = "the answer ended in its middle";
    let Some(head_length) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
        return match (bytes.len() > MAX_HEAD, has_ended) {
            (true, _) => Err("the answer's head is longer than 4 KiB"),
            (false, true) => Err(SHORT),
            (false, false) => Ok(Answer::Part),
        };
    };
    let head = core::str::from_utf8(&bytes[..head_length]).map_err(|_| "the answer is not HTTP")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.")?.split_ascii_whitespace().nth(1));
    let status = status.filter(|text| text.len() == 3).and_then(|text| text.parse().ok());
    let status: u16 = status.ok_or("the answer is not HTTP")?;
    if status != 200 {
        return Ok(Answer::Status(status));
    }
    let mut length = None;
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.trim().parse::<usize>().map_err(|_| "the answer's length is no number")?);
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err("the answer comes in chunks, which were not asked for");
        }
    }
    let body = &bytes[head_length + 4..];
    if length.unwrap_or(body.len()) > MAX_BODY {
        return Err("the answer is longer than 16 KiB");
    }
    match length {
        Some(length) => match body.get(..length) {
            Some(body) => Ok(Answer::Body(body)),
            None if has_ended => Err(SHORT),
            None => Ok(Answer::Part),
        },
        None if has_ended => Ok(Answer::Body(body)),
        None => Ok(Answer::Part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{string::ToString, vec};

    #[test]
    fn a_question_is_what_servers_read() {
        let question = Question { method: "PUT", path: "/t", header: "A: b\r\n", more: Some(("C", "d")) };
        let expected = "PUT /t HTTP/1.0\r\nHost: 169.254.169.254\r\nUser-Agent: unilith\r\nContent-Length: 0\r\n\
                        A: b\r\nC: d\r\nConnection: close\r\n\r\n";
        assert_eq!(question.to_string(), expected);
        let longest = crate::SERVICES.iter().map(|service| {
            let value = "x".repeat(crate::MAX_TOKEN);
            let more = service.token.as_ref().map(|token| (token.carrier, value.as_str()));
            Question { method: "GET", path: service.user, header: service.header, more }.to_string().len()
        });
        assert!(longest.max().unwrap() <= MAX_QUESTION);
    }

    #[test]
    fn an_answer_is_whole_at_its_length_or_its_end() {
        let with = b"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length: 5\r\n\r\nhello and more";
        assert_eq!(read(with, false), Ok(Answer::Body(b"hello")));
        for length in 0..with.len() - 9 {
            assert_eq!(read(&with[..length], false), Ok(Answer::Part), "{length}");
            assert!(read(&with[..length], true).is_err(), "{length}");
        }
        let without = b"HTTP/1.0 200 OK\r\n\r\nhello";
        assert_eq!(read(without, false), Ok(Answer::Part));
        assert_eq!(read(without, true), Ok(Answer::Body(b"hello")));
        assert_eq!(read(b"HTTP/1.1 404 Not Found\r\n\r\n", false), Ok(Answer::Status(404)));
        assert_eq!(
            read(b"HTTP/1.1 301 Moved\r\nLocation: http://elsewhere\r\n\r\n", true),
            Ok(Answer::Status(301))
        );
    }

    #[test]
    fn what_is_no_answer_is_refused_with_a_sentence() {
        for (bytes, says) in [
            (&b"SSH-2.0-OpenSSH\r\n\r\n"[..], "not HTTP"),
            (b"HTTP/1.1 2000 OK\r\n\r\n", "not HTTP"),
            (b"HTTP/1.1\r\n\r\n", "not HTTP"),
            (b"HTTP/1.1 200 \xff\r\n\r\n", "not HTTP"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "no number"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", "no number"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 16385\r\n\r\n", "longer than 16 KiB"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "chunks"),
            (&[b'x'; MAX_HEAD + 1], "longer than 4 KiB"),
        ] {
            let error = read(bytes, false).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let endless = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &vec![b'x'; MAX_BODY + 1]].concat();
        assert!(read(&endless, false).unwrap_err().contains("longer"));
    }
}
