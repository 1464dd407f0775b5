//! Quoted fields of CSV.

use memchr::{memchr, memchr3};

/// Return whether every quote belongs to a quoted field on one line, which begins and ends beside a separator, a line
/// break or an end of the data. Two quotes inside a field are one of its value.
///
/// Source: RFC 4180
pub fn has_plain_quotes(data: &[u8], quote: u8, separator: u8) -> bool {
    let is_border =
        |at: usize| matches!(data.get(at), None | Some(b'\n' | b'\r')) || data[at] == separator;
    let mut after = 0;
    while let Some(found) = memchr(quote, &data[after..]) {
        let start = after + found;
        if start > 0 && !is_border(start - 1) {
            return false;
        }
        match find_end(data, start + 1, quote) {
            Some(end) if is_border(end) => after = end,
            _ => return false,
        }
    }
    true
}

/// Return where a quoted field ends, after its closing quote; None if it is open at the end of its line.
fn find_end(data: &[u8], start: usize, quote: u8) -> Option<usize> {
    let mut at = start;
    loop {
        at += memchr3(quote, b'\n', b'\r', &data[at..])?;
        if data[at] != quote {
            return None;
        }
        if data.get(at + 1) != Some(&quote) {
            return Some(at + 1);
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::has_plain_quotes;

    #[test]
    fn every_quote_belongs_to_a_field_on_one_line() {
        for (text, is_plain) in [
            ("", true),
            ("a,b\n1,2\n", true),
            ("\"a\"", true),
            ("\"\",\"\"\"\"\n\"a,b\"\r\n", true),
            ("1,\"say \"\"no\"\"\",2\n", true),
            ("\"a\nb\"", false),
            ("\"a\r\nb\"", false),
            ("\"a", false),
            ("a\"b\"", false),
            ("\"a\"b", false),
            ("\"a\" ,b", false),
            ("\"a\"\"\n", false),
            (",\"", false),
        ] {
            assert_eq!(
                has_plain_quotes(text.as_bytes(), b'"', b','),
                is_plain,
                "{text:?}"
            );
        }
    }
}
