//! Strings that are dates or timestamps, as `widen.json.kinds.parse_temporal` recognizes them.
//!
//! Source: docs/evolution-rules.md#d5, #d6

/// A string that is a date or a timestamp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Temporal {
    /// Days since 1970.
    Date(i32),
    /// Microseconds since 1970 in UTC.
    Instant(i64),
    /// The same without a time zone.
    LocalTime(i64),
}

pub const DAY_MICROS: i64 = 86_400_000_000;

/// The first and the last day that Python has: those of the years 1 and 9999.
pub const MIN_DAY: i64 = -719_162;
pub const MAX_DAY: i64 = 2_932_896;

pub fn parse_temporal(text: &[u8]) -> Option<Temporal> {
    // Most strings end here.
    if text.len() < 10 || text[4] != b'-' || text[7] != b'-' {
        return None;
    }
    let day = parse_date(&text[..10])?;
    if text.len() == 10 {
        return Some(Temporal::Date(day));
    }
    let time = text
        .get(10..19)
        .filter(|time| time[0] == b'T' && time[3] == b':' && time[6] == b':')?;
    let (hour, minute, second) = (
        number(&time[1..3])?,
        number(&time[4..6])?,
        number(&time[7..9])?,
    );
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut micros = i64::from(day) * DAY_MICROS + ((hour * 60 + minute) * 60 + second) * 1_000_000;
    let mut rest = &text[19..];
    if rest.first() == Some(&b'.') {
        let digits = rest[1..]
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if !(1..=6).contains(&digits) {
            return None;
        }
        micros += number(&rest[1..=digits])? * 10i64.pow(6 - digits as u32);
        rest = &rest[1 + digits..];
    }
    match rest {
        b"" => Some(Temporal::LocalTime(micros)),
        b"Z" | b"+00:00" => Some(Temporal::Instant(micros)),
        _ => None,
    }
}

/// Return the microseconds since 1970 that an integer counts, or None if no timestamp is equal to it.
///
/// `unit_nanos` is the unit, or 0 to infer it from the magnitude.
pub fn epoch_to_micros(value: i64, unit_nanos: i64) -> Option<i64> {
    let unit = match (unit_nanos, value.unsigned_abs()) {
        (1.., _) => unit_nanos,
        (_, 0..100_000_000_000) => 1_000_000_000,
        (_, 0..100_000_000_000_000) => 1_000_000,
        (_, 0..100_000_000_000_000_000) => 1_000,
        _ => 1,
    };
    let nanos = i128::from(value) * i128::from(unit);
    let micros = (nanos % 1000 == 0).then_some(nanos / 1000)?;
    let day = micros.div_euclid(i128::from(DAY_MICROS));
    (i128::from(MIN_DAY)..=i128::from(MAX_DAY))
        .contains(&day)
        .then_some(micros as i64)
}

fn parse_date(text: &[u8]) -> Option<i32> {
    let (year, month, day) = (
        number(&text[..4])?,
        number(&text[5..7])?,
        number(&text[8..10])?,
    );
    day_number(year, month, day).map(|day| day as i32)
}

/// Return the days from 1970-01-01 to a day; None for a day that the calendar lacks, or before the year 1.
pub fn day_number(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year == 0 || day == 0 || day > last {
        return None;
    }
    // Years that begin in March have the leap day at their end.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    Some(days - 719_468)
}

fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |value, digit| {
        digit
            .is_ascii_digit()
            .then(|| value * 10 + i64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporal_strings() {
        assert_eq!(parse_temporal(b"1970-01-01"), Some(Temporal::Date(0)));
        assert_eq!(parse_temporal(b"2024-02-29"), Some(Temporal::Date(19782)));
        assert_eq!(
            parse_temporal(b"0001-01-01"),
            Some(Temporal::Date(MIN_DAY as i32))
        );
        assert_eq!(
            parse_temporal(b"9999-12-31"),
            Some(Temporal::Date(MAX_DAY as i32))
        );
        assert_eq!(
            parse_temporal(b"1970-01-01T00:00:01.5Z"),
            Some(Temporal::Instant(1_500_000))
        );
        assert_eq!(
            parse_temporal(b"1970-01-01T00:00:01+00:00"),
            Some(Temporal::Instant(1_000_000))
        );
        assert_eq!(
            parse_temporal(b"1969-12-31T23:59:59.999999"),
            Some(Temporal::LocalTime(-1))
        );
        for text in [
            "2023-02-29",
            "0000-01-01",
            "2024-13-01",
            "2024-01-00",
            "2024-1-01",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:60:00Z",
            "2024-01-01T00:00:60Z",
            "2024-01-01T00:00:00.1234567Z",
            "2024-01-01T00:00:00+01:00",
            "2024-01-01 00:00:00",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00Z",
            "+024-01-01",
            "",
        ] {
            assert_eq!(parse_temporal(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn epochs() {
        assert_eq!(epoch_to_micros(1, 0), Some(1_000_000));
        assert_eq!(
            epoch_to_micros(1_700_000_000_123, 0),
            Some(1_700_000_000_123_000)
        );
        assert_eq!(epoch_to_micros(1_700_000_000_123_456_789, 0), None);
        assert_eq!(
            epoch_to_micros(1_700_000_000_123_456_000, 0),
            Some(1_700_000_000_123_456)
        );
        assert_eq!(epoch_to_micros(5, 1_000_000), Some(5_000));
        assert_eq!(epoch_to_micros(i64::MAX, 1_000_000_000), None);
        assert_eq!(epoch_to_micros(-62_135_596_801, 0), None);
        assert_eq!(
            epoch_to_micros(-62_135_596_800, 0),
            Some(-62_135_596_800_000_000)
        );
        assert_eq!(epoch_to_micros(-1, 1), None);
    }
}
