//! Times in other spellings than ISO 8601 in UTC, by templates. Source: docs/guide/times.md#spellings

use crate::time::{days_of, DAY_MICROS};

const WEEK: &[u8] = b"MonTueWedThuFriSatSun";
const YEAR: &[u8] = b"JanFebMarAprMayJunJulAugSepOctNovDec";

/// The forms of the day and the clock; a letter stands for a digit of a number, `T` for itself or, with `-`, a space.
const FORMS: [&[u8]; 4] = [
    b"YYYY-MM-DDTHH:NN:SS",
    b"YYYY-MM-DDTHH:NN",
    b"YYYYMMDDTHHNNSS",
    b"YYYYMMDDTHHNN",
];

/// Return the microseconds from 1970 to the local time of a text, and its offset in minutes if it has one.
pub fn read_spelled(text: &[u8]) -> Option<(i64, Option<i64>)> {
    if !text.is_ascii() {
        return None;
    }
    if !text.first()?.is_ascii_digit() || text.get(..4)?.contains(&b' ') {
        return read_mail(text);
    }
    for form in FORMS {
        let Some(numbers) = fill(form, text) else {
            continue;
        };
        let is_spaced = form[4] == b'-';
        let rest = &text[form.len()..];
        // A shorter form is the beginning of a longer one.
        let goes_on = |byte: &u8| *byte == b':' || byte.is_ascii_digit();
        if rest.first().is_some_and(goes_on) {
            return None;
        }
        let (fraction, rest) = if form.ends_with(b"SS") {
            read_fraction(rest)?
        } else {
            (0, rest)
        };
        let local = to_micros(&numbers)? + fraction;
        if rest.is_empty() {
            return Some((local, None));
        }
        let zone = match rest {
            [b' ', zone @ ..] if is_spaced => zone,
            zone => zone,
        };
        let minutes = match zone {
            b"Z" => 0,
            b"UTC" | b"GMT" if is_spaced => 0,
            zone => read_offset(zone)?,
        };
        return Some((local, Some(minutes)));
    }
    None
}

/// Return year, month, day, hour, minute and second of a text that begins with a form.
fn fill(form: &[u8], text: &[u8]) -> Option<[i64; 6]> {
    let mut numbers = [0; 6];
    for (sign, byte) in form.iter().zip(text.get(..form.len())?) {
        let place = match sign {
            b'Y' => 0,
            b'M' => 1,
            b'D' => 2,
            b'H' => 3,
            b'N' => 4,
            b'S' => 5,
            b'T' if form[4] == b'-' && *byte == b' ' => continue,
            sign if sign == byte => continue,
            _ => return None,
        };
        if !byte.is_ascii_digit() {
            return None;
        }
        numbers[place] = numbers[place] * 10 + i64::from(byte - b'0');
    }
    Some(numbers)
}

/// `Tue, 2 Jan 2024 03:04:05 +0200`
fn read_mail(text: &[u8]) -> Option<(i64, Option<i64>)> {
    let mut words: Vec<&[u8]> = text.split(|byte| *byte == b' ').collect();
    let name = match words.first()?.strip_suffix(b",") {
        Some(name) => {
            words.remove(0);
            Some(name_number(WEEK, name)?)
        }
        None => None,
    };
    let [day, month, year, clock, zone] = words[..] else {
        return None;
    };
    let is_number = |word: &[u8]| word.iter().all(u8::is_ascii_digit);
    if !(1..=2).contains(&day.len()) || year.len() != 4 || !is_number(day) || !is_number(year) {
        return None;
    }
    let month = name_number(YEAR, month)? + 1;
    let second: &[u8] = match clock.len() {
        5 => b":00",
        8 => b"",
        _ => return None,
    };
    let mut plain = year.to_vec();
    plain.extend_from_slice(format!("-{month:02}-").as_bytes());
    plain.extend_from_slice(&b"0"[day.len() - 1..]);
    plain.extend_from_slice(day);
    plain.push(b'T');
    plain.extend_from_slice(clock);
    plain.extend_from_slice(second);
    let local = to_micros(&fill(FORMS[0], &plain)?)?;
    let minutes = match zone {
        b"Z" | b"UT" | b"UTC" | b"GMT" => 0,
        zone if zone.len() == 5 => read_offset(zone)?,
        _ => return None,
    };
    // 1970-01-01 was a Thursday.
    let weekday = (local.div_euclid(DAY_MICROS) + 3).rem_euclid(7);
    match name {
        Some(name) if name as i64 != weekday => None,
        _ => Some((local, Some(minutes))),
    }
}

fn name_number(names: &[u8], name: &[u8]) -> Option<usize> {
    names.chunks(3).position(|each| each == name)
}

/// Return the microseconds of a fraction, and what follows it.
fn read_fraction(rest: &[u8]) -> Option<(i64, &[u8])> {
    if !matches!(rest.first(), Some(b'.' | b',')) {
        return Some((0, rest));
    }
    let digits: Vec<i64> = rest[1..]
        .iter()
        .map_while(|byte| byte.is_ascii_digit().then(|| i64::from(byte - b'0')))
        .collect();
    let beyond: i64 = digits.iter().skip(6).sum();
    if digits.is_empty() || digits.len() > 9 || beyond > 0 {
        return None;
    }
    let places = [100_000, 10_000, 1_000, 100, 10, 1];
    let micros = digits
        .iter()
        .zip(places)
        .map(|(digit, place)| digit * place);
    Some((micros.sum(), &rest[1 + digits.len()..]))
}

/// Return the minutes of an offset: `+02`, `+0200` or `+02:00`.
fn read_offset(zone: &[u8]) -> Option<i64> {
    let (sign, digits) = match zone {
        [sign, a, b] => (sign, [*a, *b, b'0', b'0']),
        [sign, a, b, c, d] | [sign, a, b, b':', c, d] => (sign, [*a, *b, *c, *d]),
        _ => return None,
    };
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |at: usize| i64::from(digits[at] - b'0') * 10 + i64::from(digits[at + 1] - b'0');
    let (hours, minutes) = (number(0), number(2));
    if hours > 23 || minutes > 59 {
        return None;
    }
    match sign {
        b'+' => Some(hours * 60 + minutes),
        b'-' => Some(-hours * 60 - minutes),
        _ => None,
    }
}

/// Return the microseconds from 1970 to a day and a clock; None if the calendar lacks it.
fn to_micros(numbers: &[i64; 6]) -> Option<i64> {
    let [year, month, day, hour, minute, second] = *numbers;
    let is_clock = hour < 24 && minute < 60 && second < 60;
    if year == 0 || !(1..=12).contains(&month) || !is_clock {
        return None;
    }
    if day == 0 || day > days_of(year, month) {
        return None;
    }
    let past = year - 1;
    let before = past * 365 + past / 4 - past / 100 + past / 400;
    let in_year: i64 = (1..month).map(|each| days_of(year, each)).sum();
    let days = before + in_year + day - 1 - 719_162;
    Some(days * DAY_MICROS + ((hour * 60 + minute) * 60 + second) * 1_000_000)
}
