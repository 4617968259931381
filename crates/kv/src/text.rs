//! What parsers of text share: rows of tables by name, one line of many, the number of a line.

/// The row of `table` that is called `wanted`; else the names that there are, as a sentence lists them.
pub fn named<'t, T>(
    table: &'t [T],
    name_of: impl Fn(&'t T) -> &'t str,
    wanted: &str,
) -> Result<&'t T, String> {
    let found = table.iter().find(|row| name_of(row) == wanted);
    found.ok_or_else(|| table.iter().map(name_of).collect::<Vec<_>>().join(", "))
}

/// The words of `text` with single spaces between them: without line ends.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The number of the line of `text` that byte `at` is in, counted from 1.
pub fn line_number(text: &str, at: usize) -> usize {
    text[..at.min(text.len())].matches('\n').count() + 1
}

/// Text as text in HTML, SVG and XML, in elements and in quoted attributes.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // A reader of XML makes a line feed of it, if it stands as it is.
            '\r' => escaped.push_str("&#13;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_there_is_answered_with_those_that_are() {
        let table = [("a", 1), ("b", 2)];
        assert_eq!(named(&table, |(name, _)| name, "b"), Ok(&("b", 2)));
        assert_eq!(named(&table, |(name, _)| name, "c"), Err("a, b".to_owned()));
    }

    #[test]
    fn lines_are_counted_from_one() {
        let lines = [0, 1, 2, 9].map(|at| line_number("a\nb", at));
        assert_eq!(lines, [1, 1, 2, 2]);
    }
}
