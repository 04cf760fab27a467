// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Dates for people.

use alloc::format;
use alloc::string::String;
use api_fs::Timespec;

/// `2026-11-21 14:31`, UTC.
pub fn minute(time: Timespec) -> String {
    let (days, second) = (time.seconds.div_euclid(86_400), time.seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", second / 3600, second / 60 % 60)
}

/// The date that many days after 1970 (Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days).
fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_gregorian_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (1_795_271_460, "2026-11-21 14:31"),
            (-1, "1969-12-31 23:59"),
        ] {
            assert_eq!(minute(Timespec { seconds, nanoseconds: 0 }), text);
        }
    }
}
