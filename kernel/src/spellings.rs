//! Times in other spellings than ISO 8601 in UTC, as `widen.json.time_spellings.read_time` reads them.
//!
//! Source: docs/guide/times.md#spellings

use crate::times::{day_number, DAY_MICROS, MAX_DAY, MIN_DAY};

/// A time in any spelling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spelled {
    /// Microseconds since 1970 in UTC.
    Instant(i64),
    /// The same without an offset.
    LocalTime(i64),
}

const MIN_CHARS: usize = 13;
const MAX_CHARS: usize = 41;
const DAYS: [&[u8]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];
const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];

/// Return the time that a text is; None for another text, and for an instant outside of the years 1 to 9999.
pub fn read_time(text: &[u8]) -> Option<Spelled> {
    if !(MIN_CHARS..=MAX_CHARS).contains(&text.len()) {
        return None;
    }
    let (local, offset) = match text {
        [_, _, _, _, b'-', ..] => extended(text)?,
        [_, _, _, _, _, _, _, _, b'T', ..] => basic(text)?,
        _ => in_words(text)?,
    };
    let Some(offset) = offset else {
        return Some(Spelled::LocalTime(local));
    };
    let instant = local - offset * 1_000_000;
    let day = instant.div_euclid(DAY_MICROS);
    (MIN_DAY..=MAX_DAY)
        .contains(&day)
        .then_some(Spelled::Instant(instant))
}

type Found = Option<(i64, Option<i64>)>;

/// `2024-01-02 03:04:05,5 +02:00`
fn extended(text: &[u8]) -> Found {
    let mut rest = text;
    let year = digits(&mut rest, 4)?;
    sign(&mut rest, b"-")?;
    let month = digits(&mut rest, 2)?;
    sign(&mut rest, b"-")?;
    let day = digits(&mut rest, 2)?;
    sign(&mut rest, b"T ")?;
    let clock = clock(&mut rest, true, true)?;
    let local = day_number(year, month, day)? * DAY_MICROS + clock;
    if rest.is_empty() {
        return Some((local, None));
    }
    if rest.len() > 1 && rest[0] == b' ' {
        rest = &rest[1..];
    }
    let offset = match rest {
        b"Z" | b"UTC" | b"GMT" => 0,
        _ => offset(rest)?,
    };
    Some((local, Some(offset)))
}

/// `20240102T030405.5+0200`
fn basic(text: &[u8]) -> Found {
    let mut rest = text;
    let (year, month, day) = (
        digits(&mut rest, 4)?,
        digits(&mut rest, 2)?,
        digits(&mut rest, 2)?,
    );
    sign(&mut rest, b"T")?;
    let clock = clock(&mut rest, false, true)?;
    let local = day_number(year, month, day)? * DAY_MICROS + clock;
    Some(match rest {
        b"" => (local, None),
        b"Z" => (local, Some(0)),
        _ => (local, Some(offset(rest)?)),
    })
}

/// `Tue, 2 Jan 2024 03:04:05 +0200`
fn in_words(text: &[u8]) -> Found {
    let mut rest = text;
    let name = DAYS.iter().position(|name| text.starts_with(name));
    if name.is_some() {
        rest = rest[3..].strip_prefix(b", ")?;
    }
    let length = if rest.get(1)?.is_ascii_digit() { 2 } else { 1 };
    let day = digits(&mut rest, length)?;
    sign(&mut rest, b" ")?;
    let month = MONTHS.iter().position(|name| rest.starts_with(name))?;
    rest = &rest[3..];
    sign(&mut rest, b" ")?;
    let year = digits(&mut rest, 4)?;
    sign(&mut rest, b" ")?;
    let clock = clock(&mut rest, true, false)?;
    sign(&mut rest, b" ")?;
    let offset = match rest {
        b"Z" | b"UT" | b"UTC" | b"GMT" => 0,
        [b'+' | b'-', digits @ ..] if digits.len() == 4 => offset(rest)?,
        _ => return None,
    };
    let number = day_number(year, month as i64 + 1, day)?;
    // 1970-01-05 was a Monday.
    if name.is_some_and(|name| (number - 4).rem_euclid(7) != name as i64) {
        return None;
    }
    Some((number * DAY_MICROS + clock, Some(offset)))
}

/// Read a time of day, and return its microseconds.
fn clock(rest: &mut &[u8], has_colons: bool, has_fraction: bool) -> Option<i64> {
    let hour = digits(rest, 2)?;
    if has_colons {
        sign(rest, b":")?;
    }
    let (minute, mut second, mut micros) = (digits(rest, 2)?, 0, 0);
    let has_second = if has_colons {
        rest.first() == Some(&b':')
    } else {
        rest.first().is_some_and(u8::is_ascii_digit)
    };
    if has_second {
        *rest = &rest[usize::from(has_colons)..];
        second = digits(rest, 2)?;
        if has_fraction && matches!(rest.first(), Some(b'.' | b',')) {
            *rest = &rest[1..];
            let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let kept = count.min(6);
            if !(1..=9).contains(&count) || rest[kept..count].iter().any(|digit| *digit != b'0') {
                return None;
            }
            let (mut fraction, after) = rest.split_at(count);
            micros = digits(&mut fraction, kept)? * 10_i64.pow(6 - kept as u32);
            *rest = after;
        }
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(((hour * 60 + minute) * 60 + second) * 1_000_000 + micros)
}

/// Return the seconds of an offset: `+02`, `+0200` or `+02:00`.
fn offset(text: &[u8]) -> Option<i64> {
    let mut rest = text.get(1..)?;
    let sign = match text[0] {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, mut minutes) = (digits(&mut rest, 2)?, 0);
    if !rest.is_empty() {
        rest = rest.strip_prefix(b":").unwrap_or(rest);
        minutes = digits(&mut rest, 2)?;
    }
    if hours > 23 || minutes > 59 || !rest.is_empty() {
        return None;
    }
    Some(sign * (hours * 60 + minutes) * 60)
}

fn digits(rest: &mut &[u8], count: usize) -> Option<i64> {
    let found = rest.get(..count)?;
    *rest = &rest[count..];
    found.iter().try_fold(0, |value, digit| {
        digit
            .is_ascii_digit()
            .then(|| value * 10 + i64::from(digit - b'0'))
    })
}

fn sign(rest: &mut &[u8], signs: &[u8]) -> Option<()> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    signs.contains(first).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_instant() {
        let instant = Some(Spelled::Instant(1_704_157_445_000_000));
        for text in [
            "2024-01-02T03:04:05+0200",
            "2024-01-02T03:04:05+02",
            "2024-01-02 03:04:05 +02:00",
            "2024-01-02T01:04:05,000000000Z",
            "2024-01-02 01:04:05 UTC",
            "20240102T030405+0200",
            "20240102T010405.0Z",
            "Tue, 02 Jan 2024 03:04:05 +0200",
            "2 Jan 2024 01:04:05 GMT",
        ] {
            assert_eq!(read_time(text.as_bytes()), instant, "{text}");
        }
        let local = Some(Spelled::LocalTime(1_704_164_640_000_000));
        for text in ["2024-01-02 03:04", "20240102T0304", "2024-01-02T03:04:00"] {
            assert_eq!(read_time(text.as_bytes()), local, "{text}");
        }
    }

    #[test]
    fn other_texts() {
        for text in [
            "01/02/2024 03:04:05",
            "20240102",
            "20240102030405",
            "2024-01-02T24:00:00Z",
            "2024-01-02T03:04:60Z",
            "2024-02-30 03:04:05Z",
            "2024-01-02 03:04:05.1234567Z",
            "2024-01-02 03:04:05 EST",
            "2024-01-02 03:04:05 ",
            "2024-01-02  03:04:05",
            "2024-01-02T03:04:05+02:0",
            "2024-01-02T03:04:05+24",
            "Wed, 02 Jan 2024 03:04:05 +0200",
            "Tue, 02 Jan 24 03:04:05 +0200",
            "02 Jan 2024 03:04:05",
            "02 Jan 2024 03:04:05 +02:00",
            "0001-01-01T00:00:00+01",
            "9999-12-31T23:59:59-01",
            "",
        ] {
            assert_eq!(read_time(text.as_bytes()), None, "{text}");
        }
    }
}
