//! Reads one JSON text from left to right: space, words, strings and the compact form of any value.
//!
//! Every function refuses what is not JSON, and what the exact path in Python has to look at.

use memchr::memchr;
use rustc_hash::FxHashSet;

/// The text does not fit exactly, so the exact path has to read it.
#[derive(Debug, PartialEq)]
pub struct Refused;

pub type Fit<T> = Result<T, Refused>;

/// The most nested records and arrays. Below, the table would hold JSON text (`MAX_LEVELS` in `widen.json.document`).
pub const MAX_LEVELS: u32 = 40;

pub struct Scanner<'t> {
    pub text: &'t [u8],
    pub at: usize,
}

/// A string in the text: between which bytes it stands, and whether it has escapes.
#[derive(Clone, Copy)]
pub struct StringToken {
    pub start: usize,
    pub end: usize,
    pub has_escapes: bool,
}

impl<'t> Scanner<'t> {
    pub fn new(text: &'t [u8]) -> Self {
        Scanner { text, at: 0 }
    }

    /// Return a byte, or 0 after the end. A JSON text has no byte 0, so that no caller has to tell them apart.
    #[inline(always)]
    pub fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    /// Skip space and return the next byte, without going past it.
    #[inline(always)]
    pub fn peek(&mut self) -> u8 {
        let mut byte = self.byte(self.at);
        while matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            self.at += 1;
            byte = self.byte(self.at);
        }
        byte
    }

    #[inline(always)]
    pub fn word(&mut self, word: &[u8]) -> Fit<()> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if !rest.starts_with(word) {
            return Err(Refused);
        }
        self.at += word.len();
        Ok(())
    }

    /// Skip space and one expected byte.
    #[inline(always)]
    pub fn expect(&mut self, byte: u8) -> Fit<()> {
        if self.peek() != byte {
            return Err(Refused);
        }
        self.at += 1;
        Ok(())
    }

    /// After an item: go past a comma or the end, and return whether it was the end.
    #[inline(always)]
    pub fn is_end(&mut self, end: u8) -> Fit<bool> {
        let byte = self.peek();
        if byte != b',' && byte != end {
            return Err(Refused);
        }
        self.at += 1;
        Ok(byte == end)
    }

    /// Read a string whose first quote comes next.
    #[inline(always)]
    pub fn string(&mut self) -> Fit<StringToken> {
        let start = self.at + 1;
        let (mut at, mut has_escapes) = (start, false);
        loop {
            at = find_special(self.text, at);
            match self.byte(at) {
                b'"' => {
                    self.at = at + 1;
                    return Ok(StringToken {
                        start,
                        end: at,
                        has_escapes,
                    });
                }
                // The byte after the backslash may be a quote or a backslash, so both are skipped.
                b'\\' => (at, has_escapes) = (at + 2, true),
                _ => return Err(Refused),
            }
        }
    }

    /// Return the bytes of a string; those of one with escapes are put together in `scratch`.
    #[inline(always)]
    pub fn unescaped<'s>(&self, token: StringToken, scratch: &'s mut Vec<u8>) -> Fit<&'s [u8]>
    where
        't: 's,
    {
        let raw = &self.text[token.start..token.end];
        if !token.has_escapes {
            return Ok(raw);
        }
        unescape(raw, scratch)?;
        Ok(scratch)
    }

    /// Skip a scalar, which the policy masks or leaves out.
    pub fn skip_scalar(&mut self) -> Fit<()> {
        match self.peek() {
            b'"' => {
                let token = self.string()?;
                self.unescaped(token, &mut Vec::new()).map(|_| ())
            }
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'[' | b'{' => Err(Refused),
            _ => crate::numbers::scan(self).map(|_| ()),
        }
    }

    /// Append the JSON text of the next value without space, as `document_to_json` in Python writes it.
    pub fn compact(&mut self, out: &mut Vec<u8>, levels: u32) -> Fit<()> {
        if levels == 0 {
            return Err(Refused);
        }
        match self.peek() {
            b'"' => self.compact_string(out).map(|_| ()),
            b't' => self.word(b"true").map(|_| out.extend(b"true")),
            b'f' => self.word(b"false").map(|_| out.extend(b"false")),
            b'n' => self.word(b"null").map(|_| out.extend(b"null")),
            b'[' => self.compact_items(out, b']', |scanner, out| scanner.compact(out, levels - 1)),
            b'{' => {
                let mut keys = FxHashSet::default();
                self.compact_items(out, b'}', |scanner, out| {
                    if scanner.peek() != b'"' {
                        return Err(Refused);
                    }
                    let key = scanner.compact_string(out)?;
                    if !keys.insert(key) {
                        return Err(Refused);
                    }
                    scanner.expect(b':')?;
                    out.push(b':');
                    scanner.compact(out, levels - 1)
                })
            }
            _ => {
                let token = crate::numbers::scan(self)?.0;
                out.extend_from_slice(token);
                Ok(())
            }
        }
    }

    fn compact_items(
        &mut self,
        out: &mut Vec<u8>,
        end: u8,
        mut item: impl FnMut(&mut Self, &mut Vec<u8>) -> Fit<()>,
    ) -> Fit<()> {
        out.push(self.byte(self.at));
        self.at += 1;
        if self.peek() == end {
            self.at += 1;
        } else {
            loop {
                item(self, out)?;
                if self.is_end(end)? {
                    break;
                }
                out.push(b',');
            }
        }
        out.push(end);
        Ok(())
    }

    /// Append a string with the escapes that Python's `json.dumps` writes; return the string itself.
    fn compact_string(&mut self, out: &mut Vec<u8>) -> Fit<Vec<u8>> {
        let token = self.string()?;
        let mut scratch = Vec::new();
        let bytes = self.unescaped(token, &mut scratch)?.to_vec();
        out.push(b'"');
        for &byte in &bytes {
            match byte {
                b'"' | b'\\' => out.extend([b'\\', byte]),
                b'\n' => out.extend(b"\\n"),
                b'\r' => out.extend(b"\\r"),
                b'\t' => out.extend(b"\\t"),
                0x08 => out.extend(b"\\b"),
                0x0c => out.extend(b"\\f"),
                0..0x20 => out.extend(format!("\\u{byte:04x}").bytes()),
                _ => out.push(byte),
            }
        }
        out.push(b'"');
        Ok(bytes)
    }
}

/// Return the place of the first quote, backslash or control character, or the end of the text.
#[inline(always)]
fn find_special(text: &[u8], mut at: usize) -> usize {
    // The compiler turns the test of 16 bytes into a few vector instructions, on every processor.
    while let Some(block) = text.get(at..at + 16) {
        if block
            .iter()
            .fold(false, |found, &byte| found | is_special(byte))
        {
            break;
        }
        at += 16;
    }
    while text.get(at).is_some_and(|&byte| !is_special(byte)) {
        at += 1;
    }
    at
}

#[inline(always)]
fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

#[inline(never)]
fn unescape(raw: &[u8], out: &mut Vec<u8>) -> Fit<()> {
    out.clear();
    let mut rest = raw;
    while let Some(plain) = memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..plain]);
        let escape = *rest.get(plain + 1).ok_or(Refused)?;
        rest = &rest[plain + 2..];
        out.push(match escape {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 0x08,
            b'f' => 0x0c,
            b'"' | b'\\' | b'/' => escape,
            b'u' => {
                let (code, length) = unescape_unicode(rest)?;
                out.extend_from_slice(code.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &rest[length..];
                continue;
            }
            _ => return Err(Refused),
        });
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// Return the character of an escape, and the length of its text; half of a surrogate pair is no character.
fn unescape_unicode(digits: &[u8]) -> Fit<(char, usize)> {
    let high = hex(digits)?;
    if !(0xD800..0xDC00).contains(&high) {
        return Ok((char::from_u32(high).ok_or(Refused)?, 4));
    }
    if digits.get(4..6) != Some(b"\\u") {
        return Err(Refused);
    }
    let low = hex(&digits[6..])?;
    if !(0xDC00..0xE000).contains(&low) {
        return Err(Refused);
    }
    let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    Ok((char::from_u32(code).ok_or(Refused)?, 10))
}

fn hex(digits: &[u8]) -> Fit<u32> {
    let digits = digits.get(..4).ok_or(Refused)?;
    digits
        .iter()
        .try_fold(0, |code, &digit| {
            (digit as char).to_digit(16).map(|value| code * 16 + value)
        })
        .ok_or(Refused)
}
