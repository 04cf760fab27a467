// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Points in time as docker's users write and read them: RFC 3339, seconds since 1970, or how long ago (`10m`, `1h30m`).

use std::time::Duration;

const DAY_MS: u64 = 86_400_000;

/// `2026-11-23T01:02:03.004Z` of milliseconds since 1970.
pub fn timestamp(ms: u64) -> String {
    let (days, rest) = (ms / DAY_MS, ms % DAY_MS);
    let (year, month, day) = date(days);
    let (seconds, ms) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The Gregorian date of a day counted from 1970-01-01: 400 years have 146,097 days, counted from a 1st of March so that the
/// leap day is a year's last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (era * 400 + year + u64::from(month <= 2), month, day)
}

/// Days from 1970-01-01 to a date.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = *lengths.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    if !(1970..=9999).contains(&year) || !(1..=length).contains(&day) {
        return None;
    }
    let of_years: u64 = (1970..year).map(|y| 365 + u64::from(is_leap(y))).sum();
    Some(of_years + lengths[..month as usize - 1].iter().sum::<u64>() + day - 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
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
        return Ok(now.saturating_sub(ago.as_millis().try_into().unwrap_or(u64::MAX)));
    }
    rfc3339(text).ok_or_else(wrong)
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

/// A duration in the notation of Go, which docker's users write: `1h30m`, `500ms`, `10s`.
pub fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let seconds = match &rest[..unit] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        sum = sum.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = &rest[unit..];
    }
    (!text.is_empty()).then_some(sum)
}

/// `2026-11-23`, `2026-11-23T01:02`, with seconds, a fraction and a zone or without; UTC where no zone is said.
fn rfc3339(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let mut parts = date.splitn(3, '-').map(|part| part.parse::<u64>().ok());
    let days = days(parts.next()??, parts.next()??, parts.next()??)?;
    let (time, zone) = match time.find(['Z', '+', '-']) {
        Some(at) => (&time[..at], &time[at..]),
        None => (time, "Z"),
    };
    let mut parts = time.splitn(3, ':');
    let hour: u64 = parts.next()?.parse().ok().filter(|h| *h < 24)?;
    let minute: u64 = parts.next()?.parse().ok().filter(|m| *m < 60)?;
    let (second, ms) = decimal(parts.next().unwrap_or("0")).filter(|(s, _)| *s < 61)?;
    let local = days * DAY_MS + ((hour * 60 + minute) * 60 + second) * 1000 + ms;
    if zone == "Z" {
        return Some(local);
    }
    let (hours, minutes) = zone[1..].split_once(':')?;
    let offset = (hours.parse::<u64>().ok().filter(|h| *h < 24)? * 60
        + minutes.parse::<u64>().ok().filter(|m| *m < 60)?)
        * 60_000;
    if zone.starts_with('+') { local.checked_sub(offset) } else { local.checked_add(offset) }
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
            ("2026-11-23T02:02:03+01:00", now),
            ("2026-11-23T01:02", now - 3000),
            ("2026-11-23", now - 3_723_000),
        ] {
            assert_eq!(parse(text, now), Ok(ms), "{text}");
        }
        for text in ["", "x", "10", "1y", "2026-13-01", "2026-02-29", "2026-11-23T25:00", "m", "-1"] {
            assert!(parse(text, now).is_err() || text == "10", "{text}");
        }
    }
}
