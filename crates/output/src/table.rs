//! Tables of text.

/// A table whose first column is text and whose others are numbers, set to the right.
#[derive(Clone, Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    #[must_use]
    pub fn new(headings: &[&str]) -> Table {
        Table {
            rows: vec![
                headings
                    .iter()
                    .map(|heading| (*heading).to_owned())
                    .collect(),
            ],
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.to_vec());
    }

    /// The table, each line ended.
    #[must_use]
    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                self.rows
                    .iter()
                    .map(|row| cell(row, column).chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, &width) in widths.iter().enumerate() {
                let cell = cell(row, column);
                line.push_str(&if column == 0 {
                    format!("{cell:<width$}")
                } else {
                    format!("  {cell:>width$}")
                });
            }
            text.push_str(line.trim_end());
            text.push('\n');
            if number == 0 {
                let length: usize = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
                text.push_str(&"-".repeat(length));
                text.push('\n');
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["host", "packets"]);
        table.row(&["a".into(), "1,000".into()]);
        table.row(&["longer".into(), "7".into()]);
        assert_eq!(
            table.text(),
            "host    packets\n---------------\na         1,000\nlonger        7\n"
        );
    }
}
