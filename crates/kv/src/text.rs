//! What parsers of text share: one line of many, the number of a line.

/// The words of `text` with single spaces between them: without line ends.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The number of the line of `text` that byte `at` is in, counted from 1.
pub fn line_number(text: &str, at: usize) -> usize {
    text[..at.min(text.len())].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_one() {
        let lines = [0, 1, 2, 9].map(|at| line_number("a\nb", at));
        assert_eq!(lines, [1, 1, 2, 2]);
    }
}
