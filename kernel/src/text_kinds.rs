//! The kinds of texts such as fields of CSV: which of them are numbers or booleans, and which begin like a date.
//!
//! The kinds are those of the patterns in `widen.sources.csv_dialect` and `widen.batches.text_tasks`, which decide
//! where there is no kernel.

use crate::record_shape::kinds::{BOOLEAN, DATE, DECIMAL, DOUBLE, LONG, STRING};

/// Digits of an integer that is surely of 64 bits, and of the longest that is a number at all.
const SURE_DIGITS: usize = 18;
const MAX_DIGITS: usize = 38;

/// Digits before and after the point of a fraction that a double surely gives back.
const MAX_WHOLE_DIGITS: usize = 10;
const MAX_FRACTION_DIGITS: usize = 5;

/// Return the kind of a text. `DECIMAL` is any number of which the other kinds are not sure.
///
/// Args: whether fractions are numbers that a double does not give back as they are written.
pub fn text_kind(text: &[u8], is_written: bool) -> u16 {
    match text.first() {
        Some(b'-' | b'0'..=b'9') => number_kind(text, is_written).unwrap_or_else(|| {
            if begins_as_date(text) {
                DATE
            } else {
                STRING
            }
        }),
        Some(b't' | b'f') if text == b"true" || text == b"false" => BOOLEAN,
        _ => STRING,
    }
}

fn number_kind(text: &[u8], is_written: bool) -> Option<u16> {
    let is_negative = text[0] == b'-';
    let whole = digits(&text[usize::from(is_negative)..]);
    let rest = &text[usize::from(is_negative) + whole.len()..];
    if whole.is_empty() || (whole.len() > 1 && whole[0] == b'0') {
        return None;
    }
    let Some(fraction) = rest.strip_prefix(b".") else {
        let is_integer = rest.is_empty() && !(is_negative && whole[0] == b'0');
        return match whole.len() {
            1..=SURE_DIGITS if is_integer => Some(LONG),
            1..=MAX_DIGITS if is_integer => Some(DECIMAL),
            _ => None,
        };
    };
    let places = digits(fraction);
    let is_short = whole.len() <= MAX_WHOLE_DIGITS && places.len() <= MAX_FRACTION_DIGITS;
    if is_short && places.len() == fraction.len() && places.last().is_some_and(|last| *last != b'0')
    {
        return Some(DOUBLE);
    }
    let is_number = is_written && !places.is_empty() && is_exponent(&fraction[places.len()..]);
    is_number.then_some(DECIMAL)
}

/// Tell whether a text is empty or an exponent.
fn is_exponent(text: &[u8]) -> bool {
    let Some((b'e' | b'E', power)) = text.split_first() else {
        return text.is_empty();
    };
    let power = match power {
        [b'-' | b'+', power @ ..] => power,
        _ => power,
    };
    !power.is_empty() && digits(power).len() == power.len()
}

fn begins_as_date(text: &[u8]) -> bool {
    const FORM: &[u8; 10] = b"dddd-dd-dd";
    text.len() >= FORM.len()
        && FORM.iter().zip(text).all(|(form, byte)| match form {
            b'd' => byte.is_ascii_digit(),
            _ => byte == form,
        })
}

/// Return the ASCII digits with which a text begins.
fn digits(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_digit());
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_texts() {
        let sure = [
            (LONG, "0 7 -7 999999999999999999"),
            (DOUBLE, "1.5 -0.5 9999999999.99999 0.00001"),
            (BOOLEAN, "true false"),
            (DECIMAL, "1000000000000000000 99999999999999999999999999999999999999"),
            (STRING, "-0 007 -x - +7 .5 1. 1e3 NaN True tru é 0x1F 100000000000000000000000000000000000000"),
            (DATE, "2024-05-01 2024-99-99T10:00"),
        ];
        for (kind, texts) in sure {
            for text in texts.split(' ') {
                for is_written in [false, true] {
                    assert_eq!(text_kind(text.as_bytes(), is_written), kind, "{text}");
                }
            }
        }
        assert_eq!(text_kind(b"", true), STRING);
        assert_eq!(text_kind(b"2024-05-0", true), STRING);
        for text in [
            "1.50",
            "-0.0",
            "99999999999.5",
            "0.123456",
            "1.5e3",
            "1.5E-07",
        ] {
            assert_eq!(text_kind(text.as_bytes(), false), STRING, "{text}");
            assert_eq!(text_kind(text.as_bytes(), true), DECIMAL, "{text}");
        }
        for text in ["1.5e", "1.5e+", "01.5", "1.5 ", "1.5.5", "1.e5"] {
            assert_eq!(text_kind(text.as_bytes(), true), STRING, "{text}");
        }
    }
}
