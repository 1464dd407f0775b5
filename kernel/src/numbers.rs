//! Numbers: the kind of a token, and whether a column holds it exactly.
//!
//! Source: docs/evolution-rules.md#d1 to #d3, as in `widen.json.kinds` and `widen.rows.row`

use crate::scanner::{Fit, Refused, Scanner};

/// The kind of a number, with its value where a machine type has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    Long(i64),
    /// A number with a fraction or an exponent that a double gives back.
    Double(f64),
    /// Any other number of at most 38 digits.
    Decimal,
}

/// A decimal number: `digits * 10^exponent`, without zeros at the end of the digits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Digits {
    pub is_negative: bool,
    pub digits: u128,
    pub exponent: i64,
}

const MAX_DIGITS: i64 = 38;

/// Every decimal of at most 15 digits reads back the same from a double.
const SURE_DIGITS: usize = 15;

/// The largest integer up to which all are doubles.
pub const MAX_EXACT_INTEGER: u64 = 1 << 53;

const POWERS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// Read a number; return its token and its kind. `-0` is refused, since integers have no sign of zero.
#[inline(always)]
pub fn scan<'t>(scanner: &mut Scanner<'t>) -> Fit<(&'t [u8], Number)> {
    let start = scanner.at;
    let is_negative = scanner.byte(start) == b'-';
    let first = start + usize::from(is_negative);
    let mut mantissa = 0u64;
    let mut at = scan_digits(scanner, first, &mut mantissa);
    let whole_digits = at - first;
    if whole_digits == 0 || (whole_digits > 1 && scanner.byte(first) == b'0') {
        return Err(Refused);
    }
    let next = scanner.byte(at);
    if next != b'.' && next | 0x20 != b'e' {
        scanner.at = at;
        let token = &scanner.text[start..at];
        // 18 digits never overflow.
        if whole_digits > 18 {
            return long_integer(token).map(|number| (token, number));
        }
        if is_negative && mantissa == 0 {
            return Err(Refused);
        }
        let value = mantissa as i64;
        return Ok((
            token,
            Number::Long(if is_negative { -value } else { value }),
        ));
    }
    let mut fraction_digits = 0;
    if next == b'.' {
        let from = at + 1;
        at = scan_digits(scanner, from, &mut mantissa);
        fraction_digits = at - from;
        if fraction_digits == 0 {
            return Err(Refused);
        }
    }
    let has_exponent = scanner.byte(at) | 0x20 == b'e';
    if has_exponent {
        at += 1;
        at += usize::from(matches!(scanner.byte(at), b'-' | b'+'));
        let from = at;
        at = scan_digits(scanner, from, &mut 0);
        if at == from {
            return Err(Refused);
        }
    }
    scanner.at = at;
    let token = &scanner.text[start..at];
    if !has_exponent && whole_digits + fraction_digits <= SURE_DIGITS {
        // Both are exact doubles, so one division rounds correctly.
        let value = mantissa as f64 / POWERS[fraction_digits];
        return Ok((
            token,
            Number::Double(if is_negative { -value } else { value }),
        ));
    }
    fraction(token).map(|number| (token, number))
}

#[inline(always)]
fn scan_digits(scanner: &Scanner, mut at: usize, mantissa: &mut u64) -> usize {
    loop {
        let digit = scanner.byte(at).wrapping_sub(b'0');
        if digit >= 10 {
            return at;
        }
        // Only used where there are few digits.
        *mantissa = mantissa.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
}

#[inline(never)]
fn long_integer(token: &[u8]) -> Fit<Number> {
    if let Ok(value) = as_str(token).parse::<i64>() {
        return if value == 0 {
            Err(Refused)
        } else {
            Ok(Number::Long(value))
        };
    }
    let digits = token.len() - usize::from(token[0] == b'-');
    if digits > MAX_DIGITS as usize {
        Err(Refused)
    } else {
        Ok(Number::Decimal)
    }
}

/// Return the kind of a number with a fraction or an exponent that a double may round.
#[inline(never)]
fn fraction(token: &[u8]) -> Fit<Number> {
    let value: f64 = as_str(token).parse().map_err(|_| Refused)?;
    if value.is_finite() {
        let mut buffer = ryu::Buffer::new();
        let shortest = buffer.format_finite(value).as_bytes();
        // Most sources write the shortest text. Otherwise the two are compared as numbers.
        if shortest == token || parse(token).is_some_and(|digits| Some(digits) == parse(shortest)) {
            return Ok(Number::Double(value));
        }
    }
    let digits = parse(token).ok_or(Refused)?;
    let length = digits
        .digits
        .checked_ilog10()
        .map_or(0, |log| i64::from(log) + 1);
    let (before, after) = ((length + digits.exponent).max(0), (-digits.exponent).max(0));
    if before + after <= MAX_DIGITS {
        Ok(Number::Decimal)
    } else {
        Err(Refused)
    }
}

/// Return whether the shortest text of the nearest double is the number.
pub fn to_exact_double(token: &[u8]) -> Option<f64> {
    let value: f64 = as_str(token).parse().ok()?;
    let mut buffer = ryu::Buffer::new();
    let shortest = value
        .is_finite()
        .then(|| parse(buffer.format_finite(value).as_bytes()))?;
    (parse(token)? == shortest?).then_some(value)
}

/// Return a number as a float of 32 bits if its binary value is exactly the number.
pub fn to_exact_float(token: &[u8]) -> Option<f32> {
    let value: f32 = as_str(token).parse().ok()?;
    let number = parse(token)?;
    if number.digits == 0 {
        return Some(value);
    }
    // value = significand * 2^power, number = digits * 10^exponent: compare integers on both sides.
    let bits = value.to_bits();
    let (biased, fraction) = ((bits >> 23) & 0xff, bits & 0x7f_ffff);
    if !value.is_finite() || biased == 0 {
        return None; // what is so small has more digits than 38, or was rounded to 0
    }
    let (significand, power) = (u128::from(fraction | 0x80_0000), biased as i32 - 150);
    let mut left = significand.checked_mul(1u128.checked_shl(power.max(0) as u32)?)?;
    let mut right = number.digits;
    if power > 0 && left >> power != significand {
        return None;
    }
    // Halves on the left are twos on the right.
    for _ in power..0 {
        if left % 2 == 0 {
            left /= 2;
        } else {
            right = right.checked_mul(2)?;
        }
    }
    let factor = 10u128.checked_pow(u32::try_from(number.exponent.unsigned_abs()).ok()?)?;
    if number.exponent < 0 {
        left = left.checked_mul(factor)?
    } else {
        right = right.checked_mul(factor)?
    }
    (left == right).then_some(value)
}

/// Return the unscaled value of a number in a decimal column, or None if the column does not hold it exactly.
pub fn to_decimal(token: &[u8], precision: u8, scale: i8) -> Option<i128> {
    let number = parse(token)?;
    if number.digits == 0 {
        // A decimal has no negative zero.
        return (!number.is_negative).then_some(0);
    }
    let shift = u32::try_from(number.exponent + i64::from(scale)).ok()?;
    let unscaled = number.digits.checked_mul(10u128.checked_pow(shift)?)?;
    let limit = 10u128.checked_pow(u32::from(precision))?;
    let unscaled = (unscaled < limit).then_some(unscaled as i128)?;
    Some(if number.is_negative {
        -unscaled
    } else {
        unscaled
    })
}

/// Return the digits of a number, or None if they are too many for 128 bits.
pub fn parse(token: &[u8]) -> Option<Digits> {
    let (mut digits, mut exponent, mut zeros) = (0u128, 0i64, 0u32);
    let is_negative = token.first() == Some(&b'-');
    let mut is_fraction = false;
    for (at, &byte) in token.iter().enumerate().skip(usize::from(is_negative)) {
        match byte {
            b'.' => is_fraction = true,
            b'e' | b'E' => {
                exponent += i64::from(as_str(&token[at + 1..]).parse::<i32>().ok()?);
                break;
            }
            // Zeros are only counted until another digit follows, since those at the end do not matter.
            b'0' => {
                zeros += u32::from(digits != 0);
                exponent -= i64::from(is_fraction);
            }
            _ => {
                digits = digits
                    .checked_mul(10u128.checked_pow(zeros + 1)?)?
                    .checked_add(u128::from(byte - b'0'))?;
                exponent -= i64::from(is_fraction);
                zeros = 0;
            }
        }
    }
    let exponent = if digits == 0 {
        0
    } else {
        exponent + i64::from(zeros)
    };
    Some(Digits {
        is_negative,
        digits,
        exponent,
    })
}

/// Tokens of numbers are ASCII.
fn as_str(token: &[u8]) -> &str {
    std::str::from_utf8(token).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Fit<Number> {
        let mut scanner = Scanner::new(text.as_bytes());
        let (token, number) = scan(&mut scanner)?;
        if token.len() == text.len() {
            Ok(number)
        } else {
            Err(Refused)
        }
    }

    #[test]
    fn kinds_of_numbers() {
        assert_eq!(kind("0"), Ok(Number::Long(0)));
        assert_eq!(kind("-9223372036854775808"), Ok(Number::Long(i64::MIN)));
        assert_eq!(kind("9223372036854775808"), Ok(Number::Decimal));
        assert_eq!(kind("2.50"), Ok(Number::Double(2.5)));
        assert_eq!(kind("1e5"), Ok(Number::Double(1e5)));
        assert_eq!(kind("0.30000000000000004"), Ok(Number::Double(0.1 + 0.2)));
        assert_eq!(kind("5e-324"), Ok(Number::Double(5e-324)));
        assert_eq!(kind("0.1000000000000000000001"), Ok(Number::Decimal));
        assert_eq!(kind("123456789012345678.5"), Ok(Number::Decimal));
        for text in [
            "-0", "01", "1.", ".5", "+1", "1e", "--1", "NaN", "1e400", "-", "", "0x1",
        ] {
            assert_eq!(kind(text), Err(Refused), "{text}");
        }
        assert_eq!(kind(&"9".repeat(39)), Err(Refused));
        assert_eq!(
            kind(&format!("0.{}1", "0".repeat(40))),
            Ok(Number::Double(1e-41))
        );
    }

    #[test]
    fn decimals() {
        assert_eq!(to_decimal(b"12.50", 4, 2), Some(1250));
        assert_eq!(to_decimal(b"-12.5", 4, 2), Some(-1250));
        assert_eq!(to_decimal(b"12.500", 3, 1), Some(125));
        assert_eq!(to_decimal(b"12.51", 3, 1), None);
        assert_eq!(to_decimal(b"100", 4, 2), None);
        assert_eq!(to_decimal(b"1e2", 5, 2), Some(10000));
        assert_eq!(to_decimal(b"-0.0", 5, 2), None);
        assert_eq!(to_decimal(b"0.0", 5, 2), Some(0));
        assert_eq!(
            to_decimal(b"99999999999999999999999999999999999999", 38, 0),
            Some(10i128.pow(38) - 1)
        );
        assert_eq!(
            to_decimal(b"100000000000000000000000000000000000000", 38, 0),
            None
        );
    }

    #[test]
    fn floats_of_32_bits() {
        assert_eq!(to_exact_float(b"0.5"), Some(0.5));
        assert_eq!(to_exact_float(b"-1.5e3"), Some(-1500.0));
        assert_eq!(to_exact_float(b"0.1"), None);
        assert_eq!(to_exact_float(b"16777216"), Some(16777216.0));
        assert_eq!(to_exact_float(b"16777217"), None);
        assert_eq!(to_exact_float(b"0.0000152587890625"), Some(1.0 / 65536.0));
        assert_eq!(to_exact_float(b"1e39"), None);
        assert_eq!(
            to_exact_float(b"36893488147419103232"),
            Some((1_u128 << 65) as f32)
        );
    }
}
