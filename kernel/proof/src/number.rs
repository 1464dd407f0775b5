//! Numbers as digits and an exponent, and their one form: equal numbers have equal bytes.
//!
//! An integer of 64 bits is its digits. Another number that is the shortest text of a double is written like a double.
//! Every other number is its digits with a mark. Source: docs/evolution-rules.md#d1 to #d3

use std::fmt::Write;

use crate::{Fit, Refused};

/// A number with more digits is left to Python.
const MAX_DIGITS: usize = 60;
/// Up to so many digits, a number is the shortest text of its double.
const SURE_DIGITS: usize = 15;
/// The shortest text of a double has at most so many digits.
const MAX_DOUBLE_DIGITS: usize = 17;
/// A decimal, and an integer in any column of numbers, has at most so many digits.
pub const MAX_DECIMAL_DIGITS: usize = 38;

/// A number: its digits, without zeros at either end, times a power of ten; zero has no digits.
#[derive(Clone, Debug)]
pub struct Number {
    pub is_negative: bool,
    digits: [u8; MAX_DIGITS],
    len: usize,
    pub exponent: i64,
}

/// What a form writes for a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Canonical {
    Zero,
    Integer,
    Double,
    Long,
}

/// The text of a double, which needs no more characters.
#[derive(Default)]
struct Text {
    characters: [u8; 32],
    len: usize,
}

impl Text {
    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.characters[..self.len]).unwrap_or("")
    }
}

impl Write for Text {
    fn write_str(&mut self, more: &str) -> std::fmt::Result {
        let end = self.len + more.len();
        let place = self
            .characters
            .get_mut(self.len..end)
            .ok_or(std::fmt::Error)?;
        place.copy_from_slice(more.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Put a mark with a spelling in the place of the number that a form ends with.
pub fn mark_spelling(form: &mut Vec<u8>, start: usize, spelling: &[u8]) {
    form.truncate(start);
    form.extend_from_slice(b"~5\"");
    form.extend_from_slice(spelling);
    form.push(b'"');
}

/// Return the integer in a form; None if the form is something else.
pub fn read_integer(form: &[u8]) -> Option<i64> {
    if form == b"-0" {
        return None;
    }
    std::str::from_utf8(form).ok()?.parse().ok()
}

/// Whether a column with so many bits besides the sign has an integer.
pub fn fits_bits(value: i64, bits: u32) -> bool {
    let half = 1_i128 << bits;
    (-half..half).contains(&i128::from(value))
}

/// A number of a source with its spelling.
pub struct Token<'a> {
    pub text: &'a [u8],
    pub number: Number,
    /// The number of digits before the point.
    pub whole_digits: usize,
    /// The number of digits after the point.
    pub fraction_digits: usize,
    pub has_exponent: bool,
}

impl<'a> Token<'a> {
    /// Read the number at the beginning of a text (RFC 8259, 6).
    pub fn read(text: &'a [u8]) -> Fit<Token<'a>> {
        let digits_from = |from: usize| {
            text[from..]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count()
        };
        let is_negative = text.first() == Some(&b'-');
        let start = usize::from(is_negative);
        let whole_digits = digits_from(start);
        if whole_digits == 0 || (whole_digits > 1 && text[start] == b'0') {
            return Err(Refused);
        }
        let mut at = start + whole_digits;
        let mut number = Number::new(is_negative);
        number.push(&text[start..at])?;
        let mut fraction_digits = 0;
        if text.get(at) == Some(&b'.') {
            fraction_digits = digits_from(at + 1);
            if fraction_digits == 0 {
                return Err(Refused);
            }
            number.push(&text[at + 1..at + 1 + fraction_digits])?;
            number.exponent -= fraction_digits as i64;
            at += 1 + fraction_digits;
        }
        let has_exponent = matches!(text.get(at), Some(b'e' | b'E'));
        if has_exponent {
            let is_signed = matches!(text.get(at + 1), Some(b'+' | b'-'));
            let from = at + 1 + usize::from(is_signed);
            let count = digits_from(from);
            if count == 0 || count > 4 {
                return Err(Refused);
            }
            let size = text[from..from + count]
                .iter()
                .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
            let is_below = text[at + 1] == b'-';
            number.exponent += if is_below { -size } else { size };
            at = from + count;
        }
        number.trim();
        Ok(Token {
            text: &text[..at],
            number,
            whole_digits,
            fraction_digits,
            has_exponent,
        })
    }

    /// Whether the number is spelled as an integer.
    pub fn is_whole(&self) -> bool {
        !self.has_exponent && self.fraction_digits == 0
    }

    /// Whether a column of numbers gives this spelling back; `5` and `5.0` count as one.
    pub fn has_canonical_spelling(&self, canonical: Canonical) -> bool {
        let number = &self.number;
        let has_zeros_at_end = self.fraction_digits > 0 && self.text.ends_with(b"0");
        match canonical {
            Canonical::Zero if number.is_negative => self.text == b"-0.0" || self.text == b"-0",
            Canonical::Zero => self.text == b"0" || self.text == b"0.0",
            Canonical::Integer => !self.has_exponent && self.fraction_digits < 2,
            Canonical::Double if self.has_exponent => {
                let text = number.shortest(16, 4, true);
                self.text == text.as_bytes()
            }
            Canonical::Double => {
                let point = number.len as i64 + number.exponent;
                number.exponent < 0 && -4 < point && point <= 16 && !has_zeros_at_end
            }
            Canonical::Long => {
                let is_short = number.adjusted().unsigned_abs() < self.text.len() as u64;
                is_short && !self.has_exponent && !has_zeros_at_end
            }
        }
    }

    /// Write the form of the number, given what it is and whether its spelling is canonical.
    pub fn write(&self, canonical: Canonical, has_canonical_spelling: bool, out: &mut Vec<u8>) {
        let is_form =
            has_canonical_spelling && canonical == Canonical::Double && !self.has_exponent;
        if is_form {
            out.extend_from_slice(self.text);
        } else {
            self.number.write_as(canonical, out);
        }
    }
}

/// How many bits after the point a finite double has; less than 1 for integers.
fn fraction_bits(value: f64) -> i64 {
    let bits = value.to_bits();
    let mantissa = bits & ((1 << 52) - 1);
    let exponent = (bits >> 52 & 0x7ff) as i64;
    let whole = if exponent == 0 {
        mantissa
    } else {
        mantissa | 1 << 52
    };
    1075 - exponent.max(1) - i64::from(whole.trailing_zeros())
}

impl Number {
    fn new(is_negative: bool) -> Number {
        Number {
            is_negative,
            digits: [0; MAX_DIGITS],
            len: 0,
            exponent: 0,
        }
    }

    /// Return the number of an integer times a power of ten.
    pub fn of(value: i128, exponent: i64) -> Number {
        let mut number = Number::new(value < 0);
        let mut buffer = [0; 40];
        let mut at = buffer.len();
        let mut rest = value.unsigned_abs();
        // Words are divided faster than double words.
        while rest > u128::from(u64::MAX) {
            at -= 1;
            buffer[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        let mut rest = rest as u64;
        while rest > 0 {
            at -= 1;
            buffer[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        number.len = buffer.len() - at;
        number.digits[..number.len].copy_from_slice(&buffer[at..]);
        number.exponent = exponent;
        number.trim();
        number
    }

    /// Return the number of the shortest text of a finite double.
    pub fn of_double(value: f64) -> Number {
        // At most 15 digits that are read as the double are its shortest text: no other 15 digits are.
        for (places, power) in [10.0, 100.0, 1e3, 1e4, 1e5, 1e6].into_iter().enumerate() {
            let scaled = (value * power).round();
            if scaled == 0.0 || scaled.abs() >= 1e15 {
                break;
            }
            if scaled / power == value {
                return Number::of(scaled as i128, -1 - places as i64);
            }
        }
        let mut text = Text::default();
        // The text of Rust is the shortest one that is read as the same double, in the form 1.25e-7.
        let _ = write!(text, "{value:e}");
        let number = Number::of_scientific(text.as_str());
        if number.exponent >= 0 || fraction_bits(value) != 1 - number.exponent {
            return number;
        }
        // The double lies in the middle between two shortest texts. Python takes the one with the even last digit, as
        // a rounded text has it; Rust takes the upper one.
        let mut text = Text::default();
        let _ = write!(text, "{value:.*e}", number.len - 1);
        Number::of_scientific(text.as_str())
    }

    /// Return the number of a text in the form -1.25e-7.
    fn of_scientific(text: &str) -> Number {
        let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let mut number = Number::new(digits.starts_with('-'));
        let digits = digits.trim_start_matches('-').as_bytes();
        let (whole, fraction) = digits.split_at(1);
        let _ = number.push(whole);
        if let Some(fraction) = fraction.get(1..) {
            let _ = number.push(fraction);
            number.exponent -= fraction.len() as i64;
        }
        number.exponent += exponent.parse::<i64>().unwrap_or(0);
        number.trim();
        number
    }

    fn push(&mut self, digits: &[u8]) -> Fit<()> {
        // Zeros before the first digit say nothing.
        let zeros = if self.len == 0 {
            digits.iter().take_while(|digit| **digit == b'0').count()
        } else {
            0
        };
        let digits = &digits[zeros..];
        let end = self.len + digits.len();
        if end > MAX_DIGITS {
            return Err(Refused);
        }
        self.digits[self.len..end].copy_from_slice(digits);
        self.len = end;
        Ok(())
    }

    fn trim(&mut self) {
        while self.len > 0 && self.digits[self.len - 1] == b'0' {
            self.len -= 1;
            self.exponent += 1;
        }
        if self.len == 0 {
            self.exponent = 0;
        }
    }

    pub fn is_zero(&self) -> bool {
        self.len == 0
    }

    /// The power of ten of the first digit.
    pub fn adjusted(&self) -> i64 {
        self.len as i64 + self.exponent - 1
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.digits[..self.len]).unwrap_or("")
    }

    /// Return the number if it is an integer of 64 bits.
    pub fn to_integer(&self) -> Option<i64> {
        if self.exponent < 0 || self.adjusted() >= 19 {
            return None;
        }
        // At most 19 digits are less than 2^64.
        let digits = self.digits[..self.len].iter();
        let size = digits.fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        let size = i128::from(size) * 10_i128.pow(self.exponent as u32);
        i64::try_from(if self.is_negative { -size } else { size }).ok()
    }

    /// Whether the number is the shortest text of a double.
    pub fn is_double(&self) -> bool {
        if self.len <= SURE_DIGITS && (-300..300).contains(&self.adjusted()) {
            return true;
        }
        if self.len > MAX_DOUBLE_DIGITS {
            return false;
        }
        let mut text = Text::default();
        if write!(text, "{}e{}", self.text(), self.exponent).is_err() {
            return false; // no double has so many digits
        }
        let Ok(value) = text.as_str().parse::<f64>() else {
            return false;
        };
        if !value.is_finite() || value == 0.0 {
            return false;
        }
        let shortest = Number::of_double(value);
        shortest.text() == self.text() && shortest.exponent == self.exponent
    }

    /// Whether a decimal of this precision and scale holds the number.
    pub fn fits_decimal(&self, precision: i64, scale: i64) -> bool {
        self.is_zero() || (self.adjusted() < precision - scale && -self.exponent <= scale)
    }

    /// Return what a form writes for the number.
    pub fn canonical(&self) -> Canonical {
        if self.is_zero() {
            Canonical::Zero
        } else if self.to_integer().is_some() {
            Canonical::Integer
        } else if self.is_double() {
            Canonical::Double
        } else {
            Canonical::Long
        }
    }

    /// Write the form of the number.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_as(self.canonical(), out);
    }

    /// Write the form of a number that is the shortest text of a double.
    pub fn write_double(&self, out: &mut Vec<u8>) {
        let canonical = match self.to_integer() {
            _ if self.is_zero() => Canonical::Zero,
            Some(_) => Canonical::Integer,
            None => Canonical::Double,
        };
        self.write_as(canonical, out);
    }

    fn write_as(&self, canonical: Canonical, out: &mut Vec<u8>) {
        let point = self.len as i64 + self.exponent;
        if canonical == Canonical::Double && self.exponent < 0 && 0 < point && point <= 16 {
            // Most fractions are doubles without an exponent.
            if self.is_negative {
                out.push(b'-');
            }
            out.extend_from_slice(&self.digits[..point as usize]);
            out.push(b'.');
            out.extend_from_slice(&self.digits[point as usize..self.len]);
            return;
        }
        let text = match canonical {
            Canonical::Zero => (if self.is_negative { "-0.0" } else { "0" }).to_owned(),
            Canonical::Integer => self.plain(),
            Canonical::Double => self.shortest(16, 5, false),
            Canonical::Long => format!("~1\"{}\"", self.decimal_text()),
        };
        out.extend_from_slice(text.as_bytes());
    }

    /// Return the number without an exponent.
    fn plain(&self) -> String {
        let digits = self.text();
        let point = self.len as i64 + self.exponent;
        let sign = if self.is_negative { "-" } else { "" };
        if self.exponent >= 0 {
            format!("{sign}{digits}{}", "0".repeat(self.exponent as usize))
        } else if point > 0 {
            let (whole, fraction) = digits.split_at(point as usize);
            format!("{sign}{whole}.{fraction}")
        } else {
            format!("{sign}0.{}{digits}", "0".repeat(-point as usize))
        }
    }

    /// Return the number as a double is written: with an exponent from so many digits before the point, or zeros
    /// before the first digit, on.
    ///
    /// Args: whether an exponent has a sign and two digits, as in Python.
    fn shortest(&self, before: i64, zeros: i64, is_padded: bool) -> String {
        let point = self.len as i64 + self.exponent;
        if -zeros < point && point <= before {
            let text = self.plain();
            return if self.exponent >= 0 {
                text + ".0"
            } else {
                text
            };
        }
        let (first, rest) = self.text().split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let sign = if self.is_negative { "-" } else { "" };
        let exponent = self.adjusted();
        if !is_padded {
            return format!("{sign}{first}{point}{rest}e{exponent}");
        }
        let direction = if exponent < 0 { '-' } else { '+' };
        format!(
            "{sign}{first}{point}{rest}e{direction}{:02}",
            exponent.abs()
        )
    }

    /// Return the number as Python writes a decimal without zeros at its end.
    fn decimal_text(&self) -> String {
        let adjusted = self.adjusted();
        if self.exponent <= 0 && adjusted >= -6 {
            return self.plain();
        }
        let (first, rest) = self.text().split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let sign = if self.is_negative { "-" } else { "" };
        format!("{sign}{first}{point}{rest}E{adjusted:+}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(text: &str) -> String {
        let mut out = Vec::new();
        Token::read(text.as_bytes()).unwrap().number.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn equal_numbers_have_equal_forms() {
        for (text, wanted) in [
            ("1e3", "1000"),
            ("2.50", "2.5"),
            ("0.0", "0"),
            ("-0.0", "-0.0"),
            ("9223372036854775807", "9223372036854775807"),
            ("9223372036854775808", "~1\"9223372036854775808\""),
            ("-9223372036854775808", "-9223372036854775808"),
            ("100000000000000000000", "1e20"),
            ("0.1", "0.1"),
            ("0.1000000000000000055", "~1\"0.1000000000000000055\""),
            ("0.00001", "0.00001"),
            ("0.000001", "1e-6"),
            ("1.5e300", "1.5e300"),
            ("5e-324", "5e-324"),
            ("1e-400", "~1\"1E-400\""),
            ("123e400", "~1\"1.23E+402\""),
        ] {
            assert_eq!(form(text), wanted, "{text}");
        }
    }

    #[test]
    fn a_double_between_two_shortest_texts_has_the_even_one() {
        for (value, wanted) in [
            (-2388903236999661.0 / 4.0, "-597225809249915.2"),
            (2388903236999663.0 / 4.0, "597225809249915.8"),
            (2528393217.0 / 2048.0, "1234567.0004882812"),
            (15746829.0 / 2048.0, "7688.88134765625"),
        ] {
            let mut out = Vec::new();
            Number::of_double(value).write_double(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), wanted);
        }
    }

    #[test]
    fn doubles_have_the_form_of_their_shortest_text() {
        for value in [0.1, 1.0 / 3.0, 5e-324, 1e22, 123456789.125, -2.5] {
            let mut out = Vec::new();
            Number::of_double(value).write_double(&mut out);
            assert_eq!(
                String::from_utf8(out).unwrap(),
                form(&format!("{value:?}")),
                "{value}"
            );
        }
    }

    #[test]
    fn a_spelling_is_kept_or_not() {
        for (text, is_kept) in [
            ("5", true),
            ("5.0", true),
            ("5.00", false),
            ("12.50", false),
            ("1e3", false),
            ("0.00001", false),
            ("1e-05", true),
            ("-0", true),
            ("0.1", true),
            ("0.1000000000000000055", true),
            ("0.10000000000000000550", false),
        ] {
            let token = Token::read(text.as_bytes()).unwrap();
            assert_eq!(
                token.has_canonical_spelling(token.number.canonical()),
                is_kept,
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in ["-", "01", "1.", ".5", "1e", "1e+", "+1", "--1"] {
            assert!(Token::read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
