//! A file of values for variables: CSV with a line of names, or JSON lines.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::str::FromStr;

/// Rows of values; request after request takes the next one, and after the last the first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Values {
    pub(super) columns: Vec<String>,
    /// Row after row.
    cells: Vec<String>,
}

impl Values {
    /// What request `number` has of a column.
    pub(super) fn cell(&self, number: u64, column: usize) -> &[u8] {
        let rows = (self.cells.len() / self.columns.len().max(1)).max(1) as u64;
        let place = (number % rows) as usize * self.columns.len() + column;
        self.cells.get(place).map_or(b"", |cell| cell.as_bytes())
    }

    fn parse(text: &str) -> Result<Values, String> {
        let values = if text.trim_start().starts_with('{') { of_json(text)? } else { of_csv(text)? };
        if values.cells.is_empty() {
            return Err(
                "it has no values; hint: a CSV file has names in its first line and values below".into()
            );
        }
        Ok(values)
    }

    /// The first row, counted from 1, whose value in a column cannot stand in a header.
    pub(super) fn row_with_control(&self, column: usize) -> Option<usize> {
        let is_control = |c: char| c.is_control() && c != '\t';
        let mut cells = self.cells.iter().skip(column).step_by(self.columns.len());
        cells.position(|cell| cell.contains(is_control)).map(|place| place + 1)
    }
}

impl FromStr for Values {
    type Err = String;

    /// Of the file called so.
    fn from_str(path: &str) -> Result<Values, String> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            format!("cannot read it: {error}; hint: name a CSV file or one of JSON lines")
        })?;
        Values::parse(&text)
    }
}

fn of_csv(text: &str) -> Result<Values, String> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
    let fail = |error: csv::Error| {
        format!("{error}; hint: each line needs as many values as the first one has names")
    };
    let columns: Vec<String> = reader.headers().map_err(fail)?.iter().map(str::to_owned).collect();
    let mut cells = Vec::new();
    for row in reader.records() {
        cells.extend(row.map_err(fail)?.iter().map(str::to_owned));
    }
    Ok(Values { columns, cells })
}

fn of_json(text: &str) -> Result<Values, String> {
    let (mut columns, mut cells): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let fail = |what: String| {
            format!("line {}: {what}; hint: each line is a JSON object with the same names", number + 1)
        };
        let row: Map<String, Value> = serde_json::from_str(line).map_err(|error| fail(error.to_string()))?;
        if columns.is_empty() {
            columns = row.keys().cloned().collect();
        }
        for column in &columns {
            let value = row.get(column).ok_or_else(|| fail(format!("it lacks `{column}`")))?;
            cells.push(value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
    }
    Ok(Values { columns, cells })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_taken_in_turn_from_csv_and_json_lines() {
        for text in [
            "id,name\n7,a b\n8,\"c,d\"\n",
            "{\"id\":7,\"name\":\"a b\"}\n\n{\"name\":\"c,d\",\"id\":8,\"more\":[1]}\n",
        ] {
            let values = Values::parse(text).unwrap();
            assert_eq!(values.columns, ["id", "name"]);
            let cells: Vec<&[u8]> =
                (0..3).flat_map(|row| [values.cell(row, 0), values.cell(row, 1)]).collect();
            assert_eq!(cells, [&b"7"[..], b"a b", b"8", b"c,d", b"7", b"a b"]);
        }
        for (wrong, why) in [
            ("", "it has no values"),
            ("id\n", "it has no values"),
            ("id,name\n7\n", "as many values"),
            ("{\"id\":7}\n{\"no\":8}\n", "line 2: it lacks `id`"),
            ("{\"id\":7\n", "line 1: "),
        ] {
            let told = Values::parse(wrong).unwrap_err();
            assert!(
                told.contains(why) && told.contains("; hint: ") && !told.contains('\n'),
                "{wrong}: {told}"
            );
        }
    }
}
