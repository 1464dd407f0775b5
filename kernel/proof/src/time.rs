//! Strings that are dates or timestamps, and dates and timestamps of columns as text. Source: docs/evolution-rules.md#d6

use crate::{Fit, Refused};

/// What a string is if strings are read as dates and timestamps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Temporal {
    Date,
    Timestamp,
    LocalTime,
    Text,
}

pub const DAY_MICROS: i64 = 86_400_000_000;

/// Return what a string is: only a time that a column can give back is one.
pub fn classify(text: &[u8]) -> Temporal {
    if text.len() < 10 || !is_date(&text[..10]) {
        return Temporal::Text;
    }
    if text.len() == 10 {
        return Temporal::Date;
    }
    let Some(rest) = clock_end(text) else {
        return Temporal::Text;
    };
    match rest {
        b"" => Temporal::LocalTime,
        b"Z" | b"+00:00" => Temporal::Timestamp,
        _ => Temporal::Text,
    }
}

/// Return what follows the seconds and their fraction; None if there is no time of day.
fn clock_end(text: &[u8]) -> Option<&[u8]> {
    let clock = text.get(10..19)?;
    let number = |at: usize, limit: u8| -> bool {
        let [tens, ones] = [clock[at], clock[at + 1]];
        tens.is_ascii_digit() && ones.is_ascii_digit() && (tens - b'0') * 10 + (ones - b'0') < limit
    };
    let is_clock = clock[0] == b'T' && clock[3] == b':' && clock[6] == b':';
    if !is_clock || !number(1, 24) || !number(4, 60) || !number(7, 60) {
        return None;
    }
    let rest = &text[19..];
    if rest.first() != Some(&b'.') {
        return Some(rest);
    }
    let digits = rest[1..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    (1..=6).contains(&digits).then(|| &rest[1 + digits..])
}

fn is_date(text: &[u8]) -> bool {
    let number = |from: usize, to: usize| -> Option<i64> {
        text[from..to].iter().try_fold(0, |sum, byte| {
            byte.is_ascii_digit()
                .then(|| sum * 10 + i64::from(byte - b'0'))
        })
    };
    if text[4] != b'-' || text[7] != b'-' {
        return false;
    }
    match (number(0, 4), number(5, 7), number(8, 10)) {
        (Some(year), Some(month), Some(day)) => {
            year > 0 && (1..=12).contains(&month) && 1 <= day && day <= days_of(year, month)
        }
        _ => false,
    }
}

pub fn days_of(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Return a timestamp without `Z` or `+00:00`, and without zeros at the end of its fraction.
pub fn trim_time(text: &[u8]) -> &[u8] {
    let text = text.strip_suffix(b"Z").unwrap_or(text);
    let text = text.strip_suffix(b"+00:00").unwrap_or(text);
    if !text.contains(&b'.') {
        return text;
    }
    let zeros = text.iter().rev().take_while(|byte| **byte == b'0').count();
    let text = &text[..text.len() - zeros];
    text.strip_suffix(b".").unwrap_or(text)
}

/// Write the day that is so many days after 1970-01-01, if its year has four digits.
pub fn write_date(days: i64, out: &mut Vec<u8>) -> Fit<()> {
    // The calendar repeats every 400 years; a year that begins in March has its leap day at its end.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    if !(1..=9999).contains(&year) {
        return Err(Refused);
    }
    write_digits(year, 4, out);
    out.push(b'-');
    write_digits(month, 2, out);
    out.push(b'-');
    write_digits(day, 2, out);
    Ok(())
}

/// Write the time that is so many microseconds after 1970, without zeros at the end of its fraction.
pub fn write_time(micros: i64, out: &mut Vec<u8>) -> Fit<()> {
    write_date(micros.div_euclid(DAY_MICROS), out)?;
    let in_day = micros.rem_euclid(DAY_MICROS);
    let seconds = in_day / 1_000_000;
    for (mark, number) in [
        (b'T', seconds / 3_600),
        (b':', seconds / 60 % 60),
        (b':', seconds % 60),
    ] {
        out.push(mark);
        write_digits(number, 2, out);
    }
    let mut fraction = in_day % 1_000_000;
    if fraction > 0 {
        let mut digits = 6;
        while fraction % 10 == 0 {
            fraction /= 10;
            digits -= 1;
        }
        out.push(b'.');
        write_digits(fraction, digits, out);
    }
    Ok(())
}

fn write_digits(number: i64, digits: u32, out: &mut Vec<u8>) {
    for place in (0..digits).rev() {
        out.push(b'0' + (number / 10_i64.pow(place) % 10) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_times_only_if_a_column_gives_them_back() {
        for (text, kind) in [
            ("2024-02-29", Temporal::Date),
            ("2023-02-29", Temporal::Text),
            ("0000-01-01", Temporal::Text),
            ("1900-02-29", Temporal::Text),
            ("2024-05-01T10:00:00Z", Temporal::Timestamp),
            ("2024-05-01T10:00:00.123456+00:00", Temporal::Timestamp),
            ("2024-05-01T10:00:00.1234567Z", Temporal::Text),
            ("2024-05-01T10:00:00", Temporal::LocalTime),
            ("2024-05-01T24:00:00Z", Temporal::Text),
            ("2024-05-01T10:00:60Z", Temporal::Text),
            ("2024-05-01 10:00:00Z", Temporal::Text),
            ("2024-05-01T10:00:00.Z", Temporal::Text),
            ("2024-05-01T10:00Z", Temporal::Text),
        ] {
            assert_eq!(classify(text.as_bytes()), kind, "{text}");
        }
    }

    #[test]
    fn times_are_written_as_they_are_read() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00"),
            (-1, "1969-12-31T23:59:59.999999"),
            (1_709_164_800_500_000, "2024-02-29T00:00:00.5"),
            (-62_135_596_800_000_000, "0001-01-01T00:00:00"),
        ] {
            let mut out = Vec::new();
            write_time(micros, &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
        assert!(write_time(-62_135_596_800_000_001, &mut Vec::new()).is_err());
    }
}
