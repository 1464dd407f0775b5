//! Rows of CSV as records, line by line (RFC 4180). A file with rows of several lines is left to Python.

use crate::number::Token;
use crate::source_reader::{FileField, Span};
use crate::{Fit, Refused, SourceReader};

/// How the rows of a file are written, as `widen.proof.csv_reader.CsvForm`.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "python", derive(pyo3::FromPyObject))]
pub struct CsvPlan {
    pub names: Vec<String>,
    pub separator: u8,
    /// The character around quoted fields; None for no quoting.
    pub quote: Option<u8>,
    /// The unquoted text of null.
    pub null: String,
    /// Which texts are numbers and booleans: none if empty, those that come back as they are, or also other fractions.
    pub values: String,
}

/// A field of a row: its text, or None for null.
type Value<'a> = Option<&'a [u8]>;

impl SourceReader {
    /// Add the rows of a file after its header; return where the lines stand that Python has to read. Return None and
    /// add nothing if a row may take several lines.
    pub fn add_csv(
        &mut self,
        rows: &[u8],
        plan: &CsvPlan,
        file_fields: &[FileField],
    ) -> Option<Vec<Span>> {
        let before = self.sum().clone();
        let ranks = self.ranks(&plan.names);
        let (mut refused, mut start) = (Vec::new(), 0);
        let mut unquoted = Vec::new();
        for line in rows.split_inclusive(|byte| *byte == b'\n') {
            let end = start + line.len();
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            let fields = split(text, plan, &mut unquoted);
            let (false, Ok(fields)) = (text.contains(&b'\r'), fields) else {
                self.restore(before);
                return None;
            };
            let is_row = fields.len() == plan.names.len();
            let is_read = text.is_empty()
                || (is_row && self.add_row(text, &ranks, &fields, &plan.values, file_fields));
            if !is_read {
                refused.push((start, end));
            }
            start = end;
        }
        Some(refused)
    }
}

/// Cut a line into its fields. A quote that is not closed, or that text follows, is refused.
///
/// Args: a place for the fields with doubled quotes.
fn split<'a>(
    line: &'a [u8],
    plan: &CsvPlan,
    unquoted: &'a mut Vec<Vec<u8>>,
) -> Fit<Vec<Value<'a>>> {
    let null = plan.null.as_bytes();
    let plain = |field: &'a [u8]| (field != null).then_some(field);
    let Some(quote) = plan.quote.filter(|quote| line.contains(quote)) else {
        return Ok(line
            .split(|byte| *byte == plan.separator)
            .map(plain)
            .collect());
    };
    // First the spans, with whether they are quoted; the texts are made when all of them are known.
    let mut spans: Vec<(usize, usize, bool)> = Vec::new();
    let mut at = 0;
    loop {
        let is_quoted = line.get(at) == Some(&quote);
        let start = at + usize::from(is_quoted);
        let mut end = start;
        if is_quoted {
            loop {
                let offset = line[end..].iter().position(|byte| *byte == quote);
                end += offset.ok_or(Refused)?;
                if line.get(end + 1) != Some(&quote) {
                    break;
                }
                end += 2;
            }
            at = end + 1;
        } else {
            let offset = line[start..]
                .iter()
                .position(|byte| *byte == plan.separator);
            end = offset.map_or(line.len(), |offset| start + offset);
            at = end;
        }
        spans.push((start, end, is_quoted));
        match line.get(at) {
            None => break,
            Some(byte) if *byte == plan.separator => at += 1,
            Some(_) => return Err(Refused),
        }
    }
    unquoted.clear();
    for (start, end, is_quoted) in &spans {
        let text = &line[*start..*end];
        if *is_quoted && text.contains(&quote) {
            let mut kept = Vec::new();
            let mut is_second = false;
            for byte in text {
                is_second = *byte == quote && !is_second;
                if *byte != quote || is_second {
                    kept.push(*byte);
                }
            }
            unquoted.push(kept);
        }
    }
    let mut texts = unquoted.iter();
    Ok(spans
        .into_iter()
        .map(|(start, end, is_quoted)| {
            let text = &line[start..end];
            match is_quoted {
                false => plain(text),
                true if text.contains(&quote) => texts.next().map(|text| &**text),
                true => Some(text),
            }
        })
        .collect())
}

/// Whether a text is a number or a boolean.
pub fn is_value(text: &[u8], values: &str) -> Fit<bool> {
    if values.is_empty() {
        return Ok(false);
    }
    if text == b"true" || text == b"false" {
        return Ok(true);
    }
    let Ok(token) = Token::read(text) else {
        // A number may be longer than those that are read here.
        let may_be_long = values == "written" && text.contains(&b'.') && text.len() > 6;
        let is_numeric = matches!(text.first(), Some(b'-' | b'0'..=b'9'));
        return if may_be_long && is_numeric {
            Err(Refused)
        } else {
            Ok(false)
        };
    };
    if token.text.len() != text.len() {
        return Ok(false);
    }
    if token.is_whole() {
        return Ok(token.whole_digits <= 38 && text != b"-0");
    }
    let is_short = !token.has_exponent
        && token.whole_digits <= 10
        && token.fraction_digits <= 5
        && !text.ends_with(b"0");
    Ok(is_short || (values == "written" && token.fraction_digits > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(line: &str) -> Option<Vec<Option<String>>> {
        let plan = CsvPlan {
            separator: b',',
            quote: Some(b'"'),
            ..Default::default()
        };
        let mut unquoted = Vec::new();
        let found = split(line.as_bytes(), &plan, &mut unquoted).ok()?;
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        Some(found.into_iter().map(|value| value.map(text)).collect())
    }

    #[test]
    fn lines_are_cut_into_fields() {
        for (line, wanted) in [
            ("a,b", Some(vec![Some("a"), Some("b")])),
            ("a,", Some(vec![Some("a"), None])),
            ("\"\",a", Some(vec![Some(""), Some("a")])),
            (
                "\"a,b\",\"c\"\"d\"\"\"",
                Some(vec![Some("a,b"), Some("c\"d\"")]),
            ),
            ("\"a\",", Some(vec![Some("a"), None])),
            ("a\"b,c", Some(vec![Some("a\"b"), Some("c")])),
            ("\"a", None),
            ("\"a\"b,c", None),
        ] {
            let wanted = wanted.map(|fields| {
                fields
                    .into_iter()
                    .map(|field| field.map(str::to_owned))
                    .collect()
            });
            assert_eq!(fields(line), wanted, "{line}");
        }
    }

    #[test]
    fn texts_are_values_as_the_patterns_say() {
        for (text, exact, written) in [
            ("true", true, true),
            ("0", true, true),
            ("-0", false, false),
            ("007", false, false),
            ("12.5", true, true),
            ("12.50", false, true),
            ("1e5", false, false),
            ("1.5e5", false, true),
            ("12345678901.5", false, true),
            ("1 ", false, false),
            ("", false, false),
        ] {
            assert_eq!(is_value(text.as_bytes(), "exact"), Ok(exact), "{text}");
            assert_eq!(is_value(text.as_bytes(), "written"), Ok(written), "{text}");
            assert_eq!(is_value(text.as_bytes(), ""), Ok(false), "{text}");
        }
    }
}
