//! JSON as text (RFC 8259): space, words, strings with their escapes, and values that nothing is kept of.

use crate::number::Token;
use crate::{Fit, Refused};

/// Maximum number of nested objects and arrays, the record included. What is deeper is left to Python.
pub const MAX_LEVELS: usize = 41;
/// Maximum number of keys in an object of which the keys are compared one by one.
const MAX_KEYS: usize = 64;

/// A place in the text of a record.
pub struct Cursor<'a> {
    pub text: &'a [u8],
    pub at: usize,
}

/// The values without a scalar in a value, as the proof counts them.
pub struct Skipped {
    pub has_scalar: bool,
    pub empties: i64,
    pub is_null: bool,
}

impl<'a> Cursor<'a> {
    pub fn new(text: &'a [u8]) -> Self {
        Cursor { text, at: 0 }
    }

    /// Return the next byte that is not space, and stay before it.
    pub fn peek(&mut self) -> Fit<u8> {
        while let Some(byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Ok(*byte);
            }
            self.at += 1;
        }
        Err(Refused)
    }

    /// Pass over a byte, after space.
    pub fn expect(&mut self, byte: u8) -> Fit<()> {
        if self.peek()? != byte {
            return Err(Refused);
        }
        self.at += 1;
        Ok(())
    }

    /// Pass over a comma and return true, or over the end of a container and return false.
    pub fn has_next(&mut self, end: u8) -> Fit<bool> {
        let byte = self.peek()?;
        self.at += 1;
        match byte {
            b',' => Ok(true),
            _ if byte == end => Ok(false),
            _ => Err(Refused),
        }
    }

    pub fn word(&mut self, word: &[u8]) -> Fit<()> {
        if !self.text[self.at..].starts_with(word) {
            return Err(Refused);
        }
        self.at += word.len();
        Ok(())
    }

    /// Whether nothing but space follows.
    pub fn is_at_end(&mut self) -> bool {
        self.peek().is_err()
    }

    /// Return the number that begins here if its spelling is its form: at most 15 digits and no zeros at their end.
    pub fn plain_number(&self) -> Option<&'a [u8]> {
        let text = &self.text[self.at..];
        let start = usize::from(text.first() == Some(&b'-'));
        let mut at = start;
        let mut point = None;
        while let Some(byte) = text.get(at) {
            match byte {
                b'0'..=b'9' => {}
                b'.' if point.is_none() => point = Some(at),
                b'e' | b'E' | b'.' => return None,
                _ => break,
            }
            at += 1;
        }
        let is_plain = match point {
            // Zero has a sign of its own.
            None => text.get(start) != Some(&b'0') || (start == 0 && at == 1),
            // What is less than 1 may need an exponent.
            Some(point) => {
                point > start && text[start] != b'0' && point + 1 < at && text[at - 1] != b'0'
            }
        };
        (is_plain && at > start && at - start <= 15).then(|| &text[..at])
    }

    pub fn number(&mut self) -> Fit<Token<'a>> {
        let token = Token::read(&self.text[self.at..])?;
        self.at += token.text.len();
        Ok(token)
    }

    /// Return the text of a string, as it stands between its quotes, and whether it has escapes.
    pub fn string(&mut self) -> Fit<(&'a [u8], bool)> {
        self.expect(b'"')?;
        let start = self.at;
        let mut has_escapes = false;
        loop {
            self.at += plain_bytes(&self.text[self.at..]);
            match *self.text.get(self.at).ok_or(Refused)? {
                b'"' => {
                    self.at += 1;
                    return Ok((&self.text[start..self.at - 1], has_escapes));
                }
                b'\\' => {
                    has_escapes = true;
                    self.at += 2;
                    if self.at > self.text.len() {
                        return Err(Refused);
                    }
                }
                _ => return Err(Refused),
            }
        }
    }

    /// Pass over a value and tell whether it has any scalar.
    pub fn skip(&mut self, levels: usize) -> Fit<Skipped> {
        let scalar = Skipped {
            has_scalar: true,
            empties: 0,
            is_null: false,
        };
        match self.peek()? {
            b'"' => {
                let (text, has_escapes) = self.string()?;
                if has_escapes {
                    unescape(text, &mut Vec::new())?;
                }
                Ok(scalar)
            }
            b't' => self.word(b"true").map(|()| scalar),
            b'f' => self.word(b"false").map(|()| scalar),
            b'n' => self.word(b"null").map(|()| Skipped {
                has_scalar: false,
                empties: 0,
                is_null: true,
            }),
            b'{' => self.skip_object(levels),
            b'[' => self.skip_array(levels),
            _ => self.number().map(|_| scalar),
        }
    }

    fn skip_array(&mut self, levels: usize) -> Fit<Skipped> {
        let levels = levels.checked_sub(1).ok_or(Refused)?;
        self.expect(b'[')?;
        let mut found = Skipped {
            has_scalar: false,
            empties: 0,
            is_null: false,
        };
        if self.peek()? == b']' {
            self.at += 1;
            found.empties = 1;
            return Ok(found);
        }
        loop {
            let item = self.skip(levels)?;
            found.has_scalar |= item.has_scalar;
            found.empties += item.empties;
            if !self.has_next(b']')? {
                return Ok(found);
            }
        }
    }

    fn skip_object(&mut self, levels: usize) -> Fit<Skipped> {
        let levels = levels.checked_sub(1).ok_or(Refused)?;
        self.expect(b'{')?;
        let mut found = Skipped {
            has_scalar: false,
            empties: 0,
            is_null: false,
        };
        let mut keys = Keys::default();
        let mut is_empty = true;
        if self.peek()? == b'}' {
            self.at += 1;
            found.empties = 1;
            return Ok(found);
        }
        loop {
            let (key, has_escapes) = self.string()?;
            keys.add(key, has_escapes)?;
            self.expect(b':')?;
            let item = self.skip(levels)?;
            is_empty &= item.is_null;
            found.has_scalar |= item.has_scalar;
            found.empties += item.empties;
            if !self.has_next(b'}')? {
                found.empties += i64::from(is_empty);
                return Ok(found);
            }
        }
    }
}

/// The keys of an object that are not among those of a plan: none may come twice.
#[derive(Default)]
pub struct Keys<'a> {
    keys: Vec<&'a [u8]>,
}

impl<'a> Keys<'a> {
    pub fn add(&mut self, key: &'a [u8], has_escapes: bool) -> Fit<()> {
        if has_escapes || self.keys.len() == MAX_KEYS || self.keys.contains(&key) {
            return Err(Refused);
        }
        self.keys.push(key);
        Ok(())
    }
}

/// Return the number of bytes before the first one that a string has only as an escape, or that ends it.
fn plain_bytes(text: &[u8]) -> usize {
    const LOW: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = LOW << 7;
    // A byte of a word is zero exactly if this sets its highest bit, or a lower byte is zero, too.
    let zeros = |word: u64| word.wrapping_sub(LOW) & !word & HIGH;
    let mut at = 0;
    while let Some(chunk) = text.get(at..at + 8) {
        let word = u64::from_le_bytes(chunk.try_into().unwrap_or_default());
        let controls = word.wrapping_sub(LOW * 32) & !word & HIGH;
        let special = controls
            | zeros(word ^ (LOW * u64::from(b'"')))
            | zeros(word ^ (LOW * u64::from(b'\\')));
        if special != 0 {
            return at + special.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = text[at..].iter();
    at + rest
        .take_while(|byte| **byte >= b' ' && **byte != b'"' && **byte != b'\\')
        .count()
}

/// Append the text that a string with escapes stands for. Half of a surrogate pair is refused.
pub fn unescape(text: &[u8], out: &mut Vec<u8>) -> Fit<()> {
    let mut at = 0;
    while let Some(offset) = text[at..].iter().position(|byte| *byte == b'\\') {
        out.extend_from_slice(&text[at..at + offset]);
        at += offset + 2;
        match *text.get(at - 1).ok_or(Refused)? {
            b'u' => {
                let mut code = code_unit(text, at)?;
                at += 4;
                if (0xD800..0xDC00).contains(&code) && text[at..].starts_with(b"\\u") {
                    let low = code_unit(text, at + 2)?;
                    if !(0xDC00..0xE000).contains(&low) {
                        return Err(Refused);
                    }
                    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                    at += 6;
                }
                let character = char::from_u32(code).ok_or(Refused)?;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            byte => out.push(match byte {
                b'"' | b'\\' | b'/' => byte,
                b'b' => 8,
                b'f' => 12,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                _ => return Err(Refused),
            }),
        }
    }
    out.extend_from_slice(&text[at..]);
    Ok(())
}

fn code_unit(text: &[u8], at: usize) -> Fit<u32> {
    let digits = text.get(at..at + 4).ok_or(Refused)?;
    digits.iter().try_fold(0, |code, digit| {
        (*digit as char)
            .to_digit(16)
            .map(|value| code * 16 + value)
            .ok_or(Refused)
    })
}

/// Write a text as a string of a form.
pub fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut from = 0;
    loop {
        let at = from + plain_bytes(&text[from..]);
        out.extend_from_slice(&text[from..at]);
        let Some(byte) = text.get(at) else {
            break;
        };
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            8 => b'b',
            12 => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            _ => b'u',
        };
        out.extend_from_slice(&[b'\\', short]);
        if short == b'u' {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            let (high, low) = (HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]);
            out.extend_from_slice(&[b'0', b'0', high, low]);
        }
        from = at + 1;
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unescaped(text: &str) -> Fit<String> {
        let mut out = Vec::new();
        unescape(text.as_bytes(), &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_plain_number_is_its_own_form() {
        for (text, is_plain) in [
            ("5", true),
            ("-12.25,", true),
            ("0]", true),
            ("-0", false),
            ("05", false),
            ("0.5", false),
            ("5.0", false),
            ("5.", false),
            ("1e3", false),
            ("1.2.3", false),
            ("1234567890123456", false),
            ("-", false),
        ] {
            assert_eq!(
                Cursor::new(text.as_bytes()).plain_number().is_some(),
                is_plain,
                "{text}"
            );
        }
    }

    #[test]
    fn escapes_stand_for_their_characters() {
        assert_eq!(
            unescaped("a\\n\\u00e9\\ud83d\\ude00\\/").unwrap(),
            "a\né😀/"
        );
        for text in ["\\ud83d", "\\ude00", "\\ud83d\\u0041", "\\x", "\\u12", "\\"] {
            assert!(unescaped(text).is_err(), "{text}");
        }
    }

    #[test]
    fn strings_are_written_with_the_escapes_that_they_need() {
        let mut out = Vec::new();
        write_string("a\"\\\n\u{1}\u{7f}é".as_bytes(), &mut out);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\"a\\\"\\\\\\n\\u0001\u{7f}é\""
        );
    }

    #[test]
    fn a_value_without_scalars_counts_its_empty_containers() {
        for (text, wanted) in [
            ("[]", Some(1)),
            ("{}", Some(1)),
            ("[[],{}]", Some(2)),
            ("[null]", Some(0)),
            ("{\"a\":null}", Some(1)),
            ("{\"a\":{},\"b\":null}", Some(1)),
            ("[1]", None),
            ("{\"a\":\"\"}", None),
        ] {
            let found = Cursor::new(text.as_bytes()).skip(MAX_LEVELS).unwrap();
            assert_eq!(
                (!found.has_scalar).then_some(found.empties),
                wanted,
                "{text}"
            );
        }
        for text in ["{\"a\":1,\"a\":2}", "[1,]", "tru", "\"\t\"", "{1:2}"] {
            assert!(
                Cursor::new(text.as_bytes()).skip(MAX_LEVELS).is_err(),
                "{text}"
            );
        }
    }
}
