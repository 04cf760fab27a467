// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real-time clock (MC146818) in the CMOS: the wall clock of machines whose host does not tell the time.

use crate::x86::{inb, outb};

/// 1 January 2025: what the clock says where there is none. Programs divide by times since 1970, or think that zero
/// means "not set".
const NO_CLOCK: u64 = 1_735_689_600;

/// The wall clock at the machine's start, `now` nanoseconds ago, in nanoseconds since 1970: `epoch`, what the host said
/// before, or the device's time where the machine's start took so long that the device is ahead.
pub fn wall_since(epoch: Option<u64>, now: u64) -> u64 {
    // It says the second that has begun.
    later(epoch, read().map(|seconds| seconds * 1_000_000_000), now)
}

fn later(epoch: Option<u64>, device: Option<u64>, now: u64) -> u64 {
    let device = device.map(|wall| wall.saturating_sub(now));
    epoch.max(device).unwrap_or(NO_CLOCK * 1_000_000_000)
}

fn register(index: u8) -> u8 {
    // SAFETY: reading the CMOS has no effect but for register C, which is not read here; bit 7 of the index stays 0,
    // so NMIs stay on.
    unsafe {
        outb(0x70, index);
        inb(0x71)
    }
}

const STATUS_A: u8 = 10;
const STATUS_B: u8 = 11;
const UPDATE_IN_PROGRESS: u8 = 1 << 7;

fn read() -> Option<u64> {
    // Without the device every register reads as 0xff, and an update is in progress for ever. It takes 2 ms at most.
    let mut tries = 0;
    loop {
        while register(STATUS_A) & UPDATE_IN_PROGRESS != 0 {
            tries += 1;
            if tries > 10_000 || register(STATUS_B) == 0xff {
                return None;
            }
        }
        let now = [0, 2, 4, 7, 8, 9].map(register);
        // The same twice: no update began in between.
        if now == [0, 2, 4, 7, 8, 9].map(register) {
            return decode(now, register(STATUS_B));
        }
        tries += 1;
        if tries > 10_000 {
            return None;
        }
    }
}

/// Seconds since 1970 of seconds, minutes, hours, day, month and year as they are in the CMOS.
fn decode(raw: [u8; 6], status_b: u8) -> Option<u64> {
    let binary = status_b & 4 != 0;
    let number = |n: u8| u64::from(if binary { n } else { (n >> 4) * 10 + (n & 15) });
    let [second, minute, hour, day, month, year] = raw;
    let mut hours = number(hour & 0x7f);
    if status_b & 2 == 0 {
        hours = hours % 12 + if hour & 0x80 != 0 { 12 } else { 0 };
    }
    let (day, month, year) = (number(day), number(month), 2000 + number(year));
    if !(1..=31).contains(&day) || !(1..=12).contains(&month) || hours > 23 {
        return None;
    }
    let days = days_since_1970(year, month, day);
    Some(days * 86_400 + hours * 3_600 + number(minute) * 60 + number(second))
}

/// Gregorian calendar, with the year beginning in March so that the leap day is its last.
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_encodings_of_a_date_are_read() {
        // 2024-02-29 23:59:58 UTC
        assert_eq!(decode([0x58, 0x59, 0x23, 0x29, 0x02, 0x24], 0x02), Some(1_709_251_198));
        assert_eq!(decode([58, 59, 0x80 | 11, 29, 2, 24], 0x04), Some(1_709_251_198));
        assert_eq!(decode([0, 0, 12, 1, 1, 25], 0x04), Some(1_735_689_600));
    }

    #[test]
    fn later_of_host_and_device_is_the_time() {
        let second = 1_000_000_000;
        // The host spoke, and the device shows the second that had begun then: the host's is finer.
        assert_eq!(later(Some(100 * second + 7), Some(100 * second), second / 10), 100 * second + 7);
        // Starting the machine took three seconds.
        assert_eq!(
            later(Some(100 * second + 7), Some(103 * second), second / 10),
            103 * second - second / 10
        );
        assert_eq!(later(Some(7), None, 5), 7);
        assert_eq!(later(None, Some(7 * second), second), 6 * second);
        assert_eq!(later(None, None, 5), NO_CLOCK * second);
    }

    #[test]
    fn days_are_counted_over_leap_years() {
        assert_eq!(days_since_1970(1970, 1, 1), 0);
        assert_eq!(days_since_1970(2000, 3, 1), 11_017);
        assert_eq!(days_since_1970(2100, 3, 1), 47_541);
    }

    #[test]
    fn nonsense_is_no_date() {
        assert_eq!(decode([0xff; 6], 0xff), None);
    }
}
