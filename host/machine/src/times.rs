// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Points in time as docker's users write and read them: RFC 3339, seconds since 1970, or how long ago (`10m`, `1h30m`).

use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, civil::DateTime, tz::TimeZone};

/// `2026-11-23T01:02:03.004Z` of milliseconds since 1970; the last moment of the year 9999 for what is later.
pub fn timestamp(ms: u64) -> String {
    let time = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    format!("{:.3}", time.unwrap_or(Timestamp::MAX))
}

/// The same of nanoseconds, with all of them.
pub fn timestamp_ns(ns: u64) -> String {
    let time = Timestamp::from_nanosecond(i128::from(ns));
    format!("{:.9}", time.unwrap_or(Timestamp::MAX))
}

/// Milliseconds since 1970 of what a user wrote; `now` is what a time that has passed is counted from.
pub fn parse(text: &str, now: u64) -> Result<u64, String> {
    let wrong = || {
        format!(
            "`{text}` is no time: write 2026-11-23T01:02:03Z, seconds since 1970, or how long ago, as 10m"
        )
    };
    if let Some((whole, part)) = decimal(text) {
        return whole.checked_mul(1000).and_then(|ms| ms.checked_add(part)).ok_or_else(wrong);
    }
    if let Some(ago) = duration(text) {
        let ago = u64::try_from(ago.as_millis()).map_err(|_| wrong())?;
        return Ok(now.saturating_sub(ago));
    }
    moment(text).and_then(|time| u64::try_from(time.as_millisecond()).ok()).ok_or_else(wrong)
}

/// Seconds and milliseconds of `12` or `12.5`.
fn decimal(text: &str) -> Option<(u64, u64)> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(part) {
        return None;
    }
    let thousandths = part.chars().chain("000".chars()).take(3).collect::<String>();
    Some((whole.parse().ok()?, thousandths.parse().ok()?))
}

/// A duration in the notation of Go, which docker's users write, and days: `1h30m`, `500ms`, `2d`.
fn duration(text: &str) -> Option<SignedDuration> {
    text.parse::<Span>().ok()?.to_duration(SpanRelativeTo::days_are_24_hours()).ok()
}

/// A date, with a time and a zone or without; UTC where no zone is said.
fn moment(text: &str) -> Option<Timestamp> {
    let in_utc = |at: DateTime| at.to_zoned(TimeZone::UTC).map(|time| time.timestamp());
    text.parse().or_else(|_| text.parse().and_then(in_utc)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_they_are_read() {
        // By date(1).
        for (text, ms) in [
            ("1970-01-01T00:00:00.000Z", 0),
            ("2000-02-29T12:34:56.789Z", 951_827_696_789),
            ("2026-11-23T01:02:03.004Z", 1_795_395_723_004),
            ("2100-03-01T00:00:00.000Z", 4_107_542_400_000),
        ] {
            assert_eq!((timestamp(ms).as_str(), parse(text, 0)), (text, Ok(ms)));
        }
    }

    #[test]
    fn every_form_docker_takes_is_read() {
        let now = 1_795_395_723_000;
        for (text, ms) in [
            ("1795395723", now),
            ("1795395723.5", now + 500),
            ("10m", now - 600_000),
            ("1h30m", now - 5_400_000),
            ("2d", now - 172_800_000),
            ("2026-11-23T02:02:03+01:00", now),
            ("2026-11-23T01:02", now - 3000),
            ("2026-11-23", now - 3_723_000),
        ] {
            assert_eq!(parse(text, now), Ok(ms), "{text}");
        }
        for text in [
            "",
            "x",
            "10",
            "1y",
            "2026-13-01",
            "2026-02-29",
            "2026-11-23T25:00",
            "m",
            "-1",
            "-1h",
            "1970-01-01T00:00:00+01:00",
        ] {
            assert!(parse(text, now).is_err() || text == "10", "{text}");
        }
    }
}
